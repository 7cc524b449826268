"""Runs the test suites of Stable-Baselines3 and sb3-contrib on relive's buffers.

For each package: its source package is downloaded, its tests are unpacked below build/, those files that have to do
with buffers are run with the buffer classes swapped (tests/sb3/swap_plugin.py), and what came out is compared with what
the package's own classes gave (tests/sb3/baseline.json). ``--record`` runs them unmodified and writes that file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "sb3"
PLUGIN = ROOT / "tests" / "sb3" / "swap_plugin.py"
BASELINE = ROOT / "tests" / "sb3" / "baseline.json"
OUTCOMES = ("passed", "failed", "skipped")


@dataclass(frozen=True)
class Suite:
    """The tests of a package that have to do with buffers.

    Attributes:
        package: as pip and `importlib` know it.
        version: of the source package.
        files: below its folder of tests.
        by_hand: tests that are left out: long or large, and nothing about buffers.
        by_chance: tests that fail by chance, whatever the buffers; such a failure is said and counts as passed.
    """

    package: str
    version: str
    files: tuple[str, ...]
    by_hand: tuple[str, ...]
    by_chance: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its tests lie."""
        return BUILD / f"{self.package}-{self.version}"


SUITES = (
    Suite(
        "stable-baselines3",
        "2.9.2",
        (
            "test_buffers.py",
            "test_n_step_replay.py",
            "test_her.py",
            "test_gae.py",
            "test_dict_env.py",
            "test_spaces.py",
            "test_save_load.py",
            "test_vec_normalize.py",
            "test_deterministic.py",
            "test_run.py",
        ),
        ("test_save_load_large_model",),
    ),
    Suite(
        "sb3-contrib",
        "2.9.2",
        (
            "test_lstm.py",
            "test_invalid_actions.py",
            "test_run.py",
            "test_dict_env.py",
            "test_save_load.py",
            "test_deterministic.py",
        ),
        ("test_ppo_lstm_performance",),
        # They replace CrossQ's counters of batches by random integers below 10, which must differ from what was there.
        # Run 30 times each, with random, NumPy and torch seeded with 0 to 29 before each run: with the package's own
        # buffers the first failed 8 times and the second 4 times; with relive's 8 and 4, after the same seeds.
        ("test_save_load[CrossQ]", "test_save_load_policy[MlpPolicy-CrossQ]"),
    ),
)

# Result of a file: "passed" is a count; the others are the names of tests.
Result = dict[str, Any]


def main() -> int:
    """Runs the suites; 0 if every one came out as recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run unmodified and write the baseline")
    parser.add_argument("--jobs", default="2", help="processes of pytest")
    parser.add_argument("--all", action="store_true", help="run also what is left out otherwise")
    options = parser.parse_args()
    baseline = {} if options.record else json.loads(BASELINE.read_text())
    differences: list[str] = []
    for suite in SUITES:
        unpack(suite)
        results = run(suite, swapped=not options.record, jobs=options.jobs, everything=options.all)
        if options.record:
            baseline[suite.package] = {"version": suite.version, "files": results}
        expected = baseline[suite.package]["files"]
        print_tables(suite, expected, results)
        differences += compare(suite, expected, results, everything=options.all)
    if options.record:
        BASELINE.write_text(json.dumps(baseline, indent=2) + "\n")
        print(f"wrote {BASELINE.relative_to(ROOT)}")
    for difference in differences:
        print(difference)
    return 1 if differences else 0


def unpack(suite: Suite) -> None:
    """Downloads the source package, and unpacks its tests and nothing else: what is tested is what is installed."""
    if (suite.folder / "pytest.ini").exists():
        return
    requirement = f"{suite.package}=={suite.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
    subprocess.run([*pip, "--dest", str(BUILD), requirement], check=True)
    (archive,) = BUILD.glob(f"{suite.package.replace('-', '_')}-{suite.version}.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = Path(*Path(member.name).parts[1:])
            if member.isfile() and inside.parts[0] == "tests" and ".." not in inside.parts:
                target = suite.folder / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
    # Keeps pytest from taking this repository's settings; written last, it says that all is there.
    (suite.folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    expensive: takes long\n")


def run(suite: Suite, *, swapped: bool, jobs: str, everything: bool) -> dict[str, Result]:
    """Runs the tests of a suite; the result of every file."""
    report = suite.folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--quiet", "-n", jobs, "-p", "no:cacheprovider", "--tb=short"]
    command += ["--disable-warnings", f"--junit-xml={report}"]
    if swapped:
        command += ["-p", PLUGIN.stem]
    if not everything:
        command += ["-k", " and ".join(f"not {name}" for name in suite.by_hand)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PLUGIN.parent),
        "CUDA_VISIBLE_DEVICES": "",  # the same tests everywhere
        "OMP_NUM_THREADS": "1",
    }
    files = [f"tests/{file}" for file in suite.files]
    finished = subprocess.run([*command, *files], cwd=suite.folder, env=environment, check=False)
    if finished.returncode not in (0, 1) or not report.exists():  # 1: some tests failed
        raise SystemExit(f"{suite.package}: pytest ended with {finished.returncode}")
    return dict(sorted(read(report, suite.by_chance)))


def read(report: Path, by_chance: Collection[str]) -> Iterator[tuple[str, Result]]:
    """The result of every file in a JUnit report."""
    cases: dict[str, dict[str, list[str]]] = {}
    for case in ET.parse(report).iter("testcase"):
        file = case.attrib["classname"].removeprefix("tests.") + ".py"
        children = {child.tag for child in case}
        outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
        if outcome == "failed" and case.attrib["name"] in by_chance:
            print(f"{file}: {case.attrib['name']} failed by chance (see by_chance in {Path(__file__).name})")
            outcome = "passed"
        cases.setdefault(file, {name: [] for name in OUTCOMES})[outcome].append(case.attrib["name"])
    for file, by_outcome in cases.items():
        yield file, {name: len(tests) if name == "passed" else sorted(tests) for name, tests in by_outcome.items()}


def print_tables(suite: Suite, expected: dict[str, Result], got: dict[str, Result]) -> None:
    """Prints a line for every file: as recorded, and as it came out."""
    header = "".join(f"{name:>9}" for name in OUTCOMES)
    print(f"\n{suite.package} {suite.version}")
    print(f"{'':26}{'its own buffers':^27} | {'relive':^27}\n{'':26}{header} | {header}")
    totals = [Counter[str](), Counter[str]()]
    for file in suite.files:
        cells = []
        for total, results in zip(totals, (expected, got), strict=True):
            counts = {name: count(results[file][name]) if file in results else 0 for name in OUTCOMES}
            total.update(counts)
            cells.append("".join(f"{counts[name]:9d}" for name in OUTCOMES))
        print(f"{file:26}{cells[0]} | {cells[1]}")
    print(f"{'all':26}" + " | ".join("".join(f"{total[name]:9d}" for name in OUTCOMES) for total in totals) + "\n")


def compare(suite: Suite, expected: dict[str, Result], got: dict[str, Result], *, everything: bool) -> Iterator[str]:
    """Yields what came out otherwise than recorded."""
    for file in suite.files:
        then, now = expected.get(file, {}), got.get(file, {})
        for outcome in OUTCOMES:
            if then.get(outcome) != now.get(outcome) and not (everything and outcome == "passed"):
                yield f"{suite.package} {file}: {outcome} was {then.get(outcome)}, now {now.get(outcome)}"


def count(tests: int | list[str]) -> int:
    """How many tests an entry stands for."""
    return tests if isinstance(tests, int) else len(tests)


if __name__ == "__main__":
    sys.exit(main())
