"""The suite must see known faults: each is put into a copy of the code, which then has to fail it.

The first table is twelve one-line faults; put into Stable-Baselines3 2.9.2, seven of them pass its own suite.
The others are faults of our own making: in what stores steps, in what finds breaks, and in what draws.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORING = ("tests/differential", "tests/timeline", "tests/cases", "tests/buffers")
N_STEP = ("tests/cases/test_n_step.py", "tests/cases/test_adders.py", "tests/views/test_n_step.py")
HINDSIGHT = ("tests/cases/test_hindsight.py", "tests/views/test_hindsight.py")
SEQUENCES = ("tests/cases/test_sequences.py", "tests/views/test_sequences.py")
BREAKS = ("tests/buffers/test_breaks.py",)
PRIORITIES = ("tests/cases/test_prioritized.py", "tests/samplers")


@dataclass(frozen=True)
class Mutant:
    """One fault: ``good`` stands once in ``file`` and becomes ``bad``."""

    name: str
    file: str
    good: str
    bad: str
    oracle: tuple[str, ...] = STORING


SB3_FAULTS = [
    Mutant(
        "timeouts ignored",
        "native/transition.hpp",
        "store(out.done + i * sizeof(float), done * (1.0F - timeout));",
        "store(out.done + i * sizeof(float), done + 0.0F * timeout);",
    ),
    Mutant(
        "gae_lambda is 1",
        "src/relive/returns/seed.py",
        "trace = gamma * gae_lambda",
        "trace = gamma * 1.0",
    ),
    Mutant(
        "wrap off by one",
        "native/timeline.hpp",
        "return row + 1 == layout_.rows ? 0",
        "return row + 2 >= layout_.rows ? 0",
    ),
    Mutant(
        "next_obs is obs",
        "native/transition.hpp",
        "out.successor[k], i, size, timeline.successor(k, pick.lane, pick.row)",
        "out.successor[k], i, size, layout.at(leaf, pick.lane, pick.row)",
    ),
    Mutant("only env 0 sampled", "native/draw.hpp", "{static_cast<std::size_t>(scratch[size + i]), ", "{0 * size, "),
    Mutant(
        "newest row never sampled",
        "native/draw.hpp",
        "draw_below(bits, static_cast<std::uint64_t>(lanes[0].count)",
        "draw_below(bits, static_cast<std::uint64_t>(std::max<std::int64_t>(lanes[0].count - 1, 1))",
    ),
    Mutant(
        "rollout not shuffled",
        "src/relive/buffers/rollout.py",
        "valid[self._stream_or_global().permutation(len(valid))]",
        "valid[np.sort(self._stream_or_global().permutation(len(valid)))]",
    ),
    Mutant(
        "the row under the write head taken for a successor",
        "native/timeline.cpp",
        "store(place.record + layout_.link, head_link(place.lane));",
        "store(place.record + layout_.link, next_row);",
    ),
    Mutant(
        "log_probs left zero", "src/relive/buffers/rollout.py", "self.log_probs[row] = row_log_probs", "row_log_probs"
    ),
    Mutant(
        "env and time swapped",
        "src/relive/buffers/rollout.py",
        "indices % steps * self.n_envs + indices // steps",
        "indices",
    ),
    Mutant(
        "n-step not cut at the head",
        "native/view.hpp",
        "length < view_.n_steps && step.number + length < head",
        "length < view_.n_steps && step.number + length < head + (layout.rows > 1)",
        N_STEP,
    ),
    Mutant(
        "n-step discount constant",
        "native/view.hpp",
        "store(out.discount + i * sizeof(float), static_cast<float>(powers_[static_cast<std::size_t>(length)]))",
        "store(out.discount + i * sizeof(float), static_cast<float>(powers_.back()))",
        N_STEP,
    ),
]

OWN_FAULTS = [
    Mutant(
        "a break is joined",
        "native/timeline.cpp",
        "breaks_[lane * steps.count] |= !equal_bytes(expected, column.at(0, lane), bytes);",
        "breaks_[lane * steps.count] |= 0 * !equal_bytes(expected, column.at(0, lane), bytes);",
    ),
    Mutant(
        "a break inside extend is joined",
        "native/timeline.cpp",
        "if (step > first && (breaks[step] & apart))",
        "if (step > first + 1 && (breaks[step] & apart))",
    ),
    Mutant(
        "finals are never given back",
        "native/timeline.hpp",
        "finals_.give_back(old - 1);",
        "(void)old;",
    ),
    Mutant(
        "an overwritten step passes for held",
        "native/timeline.hpp",
        "number >= l.head - l.count",
        "number >= l.head - l.count - 1",
    ),
    Mutant(
        "assigning observations loses successors",
        "native/timeline.cpp",
        "if (loses_successor(lane, row_of(n))) keep_successor(lane, row_of(n));",
        "(void)n;",
    ),
    Mutant(
        "termination does not win over truncation",
        "native/core.hpp",
        "truncated && !terminated ? 1.0F : 0.0F",
        "truncated ? 1.0F : 0.0F",
    ),
    Mutant(
        "final values are not discounted",
        "src/relive/buffers/rollout_ends.py",
        "out[rows, envs] += np.float32(gamma) * final",
        "out[rows, envs] += final",
    ),
    Mutant(
        "rows that are no steps take part in advantages",
        "src/relive/returns/masked.py",
        'np.argsort(valid, axis=0, kind="stable")',
        'np.argsort(valid | True, axis=0, kind="stable")',
        ("tests/cases/test_masked_rollouts.py",),
    ),
    Mutant(
        "a start that contradicts an end is let in",
        "src/relive/buffers/rollout_ends.py",
        "envs = envs[~self.ended[self._newest[envs], envs]]",
        "envs = envs[:0]",
        ("tests/cases/test_rollouts.py",),
    ),
    Mutant(
        "integers far below zero are rounded",
        "src/relive/buffers/rollout.py",
        "max(map(abs, _bounds(leaf.space)))",
        "max(_bounds(leaf.space))",
        ("tests/buffers/test_rollout_actions.py",),
    ),
    Mutant(
        "a start on a reset row is forgotten",
        "src/relive/returns/masked.py",
        "np.maximum(starts[1:], passed[1:] > passed[:-1])",
        "starts[1:]",
        ("tests/cases/test_masked_rollouts.py",),
    ),
]


BREAK_FAULTS = [
    Mutant(
        "a break inside a call ends nothing",
        "native/timeline.cpp",
        "if (step + 1 < steps.count && (breaks[step + 1] & ended)) mark_interrupted(lane, row);",
        "",
        BREAKS,
    ),
    Mutant(
        "a break before a call ends nothing",
        "native/timeline.cpp",
        "if (places[0] & ended) interrupt(lane);",
        "",
        BREAKS,
    ),
    Mutant(
        "an end that is said counts as a break",
        "native/timeline.cpp",
        "is_end(lane, newest(l)) : ends(steps, step - 1, lane)) return false;",
        "is_end(lane, newest(l)) : false) return false;",
        BREAKS,
    ),
    Mutant(
        "an end that was said before counts as a break",
        "native/timeline.cpp",
        "l.count == 0 || is_end(lane, newest(l))",
        "l.count == 0",
        BREAKS,
    ),
    Mutant(
        "breaks among rows that are not kept are passed over",
        "native/timeline.cpp",
        "for (std::size_t step = breaks.detect ? 0 : compared_from; step < steps.count; ++step) {",
        "for (std::size_t step = compared_from; step < steps.count; ++step) {",
        BREAKS,
    ),
    Mutant(
        "an episode is thought to begin before a break that is overwritten",
        "native/timeline.cpp",
        "if (ends(steps, step, lane) || (breaks_[lane * steps.count + step + 1] & ended))",
        "if (ends(steps, step, lane))",
        BREAKS,
    ),
    Mutant(
        "a tolerance is exclusive",
        "native/breaks.hpp",
        "(one - other) <= tolerance",
        "(one - other) < tolerance",
        BREAKS,
    ),
    Mutant("NaN is never the same", "native/breaks.hpp", " || (std::isnan(one) && std::isnan(other))", "", BREAKS),
    Mutant(
        "only the first leaf is looked at",
        "native/timeline.cpp",
        "if (!leaf.alike(",
        "if (i == 0 && !leaf.alike(",
        BREAKS,
    ),
    Mutant(
        "what was minded once is minded for ever",
        "src/relive/timeline.py",
        "            self.core.mind(None)",
        "            pass",
        BREAKS,
    ),
]


DRAWING_FAULTS = [
    Mutant("n-step over an end", "native/view.hpp", " && !timeline_.is_end(step.lane, last)", "", N_STEP),
    Mutant(
        "an interrupted stream goes on",
        "native/timeline.hpp",
        "(load<std::uint8_t>(record + layout_.flags) & flag_interrupted) != 0",
        "(load<std::uint8_t>(record + layout_.flags) & 0) != 0",
        ("tests/views/test_n_step.py", "tests/views/test_episodes.py"),
    ),
    Mutant(
        "the goal is that before the step",
        "native/view.hpp",
        "timeline_.successor(view_.goals->achieved, of.lane, of.row);",
        "timeline_.layout().at(timeline_.layout().observation[view_.goals->achieved], of.lane, of.row);",
        HINDSIGHT,
    ),
    Mutant(
        "goals of an overwritten beginning",
        "native/view.hpp",
        "std::max(episodes.begins(step.lane)[episode], timeline.oldest(step.lane))",
        "episodes.begins(step.lane)[episode]",
        HINDSIGHT,
    ),
    Mutant(
        "a sequence one step too long",
        "native/episodes.hpp",
        "end - rule_.length + 1;",
        "end - rule_.length + 2;",
        SEQUENCES,
    ),
    Mutant(
        "a sequence that looks back one step beyond the oldest",
        "native/episodes.hpp",
        "looks_back && !padded ? length - 1 : 0;",
        "looks_back && !padded ? length - 2 : 0;",
        SEQUENCES,
    ),
    Mutant(
        "a sequence that looks back over the beginning of its episode",
        "native/view.hpp",
        "std::max(oldest, episodes.begins(last.lane)[episode]);",
        "oldest;",
        SEQUENCES,
    ),
    Mutant(
        "strides of ends counted as those of starts",
        "native/episodes.hpp",
        "whole % rule_.stride : whole);",
        "0 : whole);",
        SEQUENCES,
    ),
    Mutant(
        "by value, a step stays when what it looks back to is overwritten",
        "native/priorities.hpp",
        "if (!is_eligible(index, other)) take_out(index, slot_of(other));",
        "(void)other;",
        SEQUENCES,
    ),
    Mutant(
        "padding in front called the first step",
        "native/view.hpp",
        "places.push_back({last, false, false});",
        "places.push_back({last, false, true});",
        SEQUENCES,
    ),
    Mutant(
        "by episode, looking back into episodes that are held in part",
        "native/episodes.hpp",
        "if (!(rule_.crossing && rule_.needs_before() > 0)) return 0;",
        "return 0;",
        SEQUENCES,
    ),
    Mutant(
        "strides counted from the oldest step held",
        "native/timeline.hpp",
        "if (is_end(lane, l.row)) l.begun = l.head - l.count + 1;",
        "l.begun = l.head - l.count + 1;",
        (*SEQUENCES, "tests/views/test_episodes.py"),
    ),
    Mutant(
        "weights the wrong way round",
        "native/priorities.hpp",
        "static_cast<float>(std::pow(chances_[i] / least, -beta))",
        "static_cast<float>(std::pow(chances_[i] / least, beta))",
        PRIORITIES,
    ),
    Mutant(
        "new steps get the maximum of what was overwritten",
        "native/priorities.hpp",
        "if (largest_is_gone_) flush(indices_.front());",
        "(void)largest_is_gone_;",
        PRIORITIES,
    ),
    Mutant(
        "new steps get the maximum of what the same call emptied",
        "native/priorities.hpp",
        "if (known_[slot]) forget(slot);",
        "if (known_[slot]) { forget(slot); largest_is_gone_ = false; }",
        PRIORITIES,
    ),
    Mutant(
        "masses whose sum overflows are taken",
        "native/priorities.hpp",
        "std::pow(largest / 2.0 / static_cast<double>(slots), 1.0 / options.alpha)",
        "std::pow(largest / 2.0 + 0.0 * static_cast<double>(slots), 1.0 / options.alpha)",
        ("tests/samplers/test_extremes.py",),
    ),
    Mutant(
        "a tiny mass is lost",
        "native/priorities.hpp",
        "return mass < smallest && priority + options_.eps > 0.0 ? smallest : mass;",
        "return mass;",
        ("tests/samplers/test_extremes.py",),
    ),
    Mutant(
        "a tiny chance is 0",
        "native/priorities.hpp",
        "return std::max(mass / total, smallest);",
        "return mass / total;",
        ("tests/samplers/test_extremes.py",),
    ),
    Mutant(
        "each reward is discounted with its own step's discount",
        "native/view.hpp",
        "double product = view_.own_gamma ? own_gamma(step.lane, step.row) : 1.0;",
        "double product = 1.0;",
        ("tests/views/test_discounts.py",),
    ),
    Mutant(
        "discounts of later steps are left out",
        "native/view.hpp",
        "if (view_.own_gamma) product *= own_gamma(step.lane, last);",
        "",
        ("tests/views/test_discounts.py",),
    ),
    Mutant(
        "priorities are lost where alpha is 0",
        "native/priorities.hpp",
        "} else if (options_.most_uses > 0 || options_.alpha == 0.0) {",
        "} else if (options_.most_uses > 0) {",
        ("tests/buffers/test_assigning.py",),
    ),
    Mutant(
        "another alpha overflows what is held",
        "native/priorities.hpp",
        "if (given_ && (options.max_ever ? largest_given_ : given_->max()) > largest_allowed) return false;",
        "",
        ("tests/buffers/test_assigning.py",),
    ),
    Mutant(
        "the shortest way keeps the gamma of the first draw",
        "src/relive/buffers/drawing.py",
        "            self._has_view = True\n        self._usual = None\n",
        "            self._has_view = True\n",
        ("tests/buffers/test_assigning.py",),
    ),
    Mutant(
        "a mass on the edge lands on the leaf before",
        "native/sum_tree.hpp",
        "chosen += before[child + 1] <= rest ? 1 : 0;",
        "chosen += before[child + 1] < rest ? 1 : 0;",
        ("tests/native/test_trees.py",),
    ),
    Mutant(
        "an epoch draws what was overwritten",
        "native/choice.hpp",
        "if (timeline.holds(lane, number) && starts.is_start(lane, number) && may(step))",
        "if (may(step))",
        ("tests/samplers/test_epochs.py",),
    ),
    Mutant(
        "a sign is lost in a cast",
        "src/relive/inputs.py",
        "lost |= (out < 0) != (array < 0)",
        "lost |= (out < 0) & (array < 0)",
        ("tests/buffers/test_inputs.py",),
    ),
    Mutant(
        "handles are truncated",
        "src/relive/inputs.py",
        'if array.dtype.kind not in "iu" and array.size:',
        'if array.dtype.kind not in "iufb" and array.size:',
        ("tests/buffers/test_learner_tensors.py",),
    ),
    Mutant(
        "a device is taken unseen",
        "src/relive/devices.py",
        "(device.index or 0) < torch.cuda.device_count()",
        "(device.index or 0) >= 0",
        ("tests/buffers/test_devices.py",),
    ),
    Mutant(
        "infos are read where there is no step",
        "src/relive/infos.py",
        "return items if active is None else [info if is_step else {} for",
        "return items if active is None else [info for",
        ("tests/buffers/test_infos.py",),
    ),
    Mutant(
        "the argument's name is lost",
        "src/relive/intake.py",
        'name="next_obs", active=active',
        'name="obs", active=active',
        ("tests/buffers/test_refusals.py",),
    ),
    Mutant(
        "the info of the reset stands for that of the step",
        "native/incoming.hpp",
        "return !final_info && (!value",
        "return (!value",
        ("tests/buffers/test_infos.py",),
    ),
    Mutant(
        "final infos of every environment are read",
        "src/relive/infos.py",
        "ended, finally_said = _mask(infos, FINAL_KEY, lanes).tolist(), _column",
        "ended, finally_said = [True] * lanes, _column",
        ("tests/buffers/test_infos.py",),
    ),
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with a build folder that mutants share, so that each compiles what it changes."""
    folder = tmp_path_factory.mktemp("mutants")
    for part in ("native", "src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.so", "__pycache__", "mutation"))
    for part in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / part, folder / part)
    # The editable install puts its own finder first: take it out, so that the copy is what is imported.
    (folder / "src" / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"
    )
    return folder


def compile_module(folder: Path) -> None:
    build = folder / "build"
    nanobind = run([sys.executable, "-m", "nanobind", "--cmake_dir"], folder).stdout.strip()
    cmake = [sys.executable, "-c", "import sys, cmake; sys.exit(cmake.cmake())"]
    if not build.exists():
        options = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-O1"]
        options += [f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
        run([*cmake, "-S", str(folder), "-B", str(build), "-G", "Ninja", *options], folder)
    run([*cmake, "--build", str(build)], folder)
    for module in build.glob("_native*"):
        if module.suffix in (".so", ".pyd"):
            shutil.copy(module, folder / "src" / "relive")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def suite(folder: Path, oracle: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs the suite against the copy, up to the first failure."""
    settings = {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "find"}
    environment = {**os.environ, **settings}
    environment.pop("PYTEST_XDIST_WORKER", None)
    where = subprocess.run(
        [sys.executable, "-c", "import relive; print(relive.__file__)"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(folder), "the copy is not what is imported"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *oracle],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.mutation
@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [*SB3_FAULTS, *OWN_FAULTS, *BREAK_FAULTS, *DRAWING_FAULTS], ids=lambda mutant: mutant.name
)
def test_the_suite_sees(mutant: Mutant, workshop: Path) -> None:
    path = workshop / mutant.file
    text = path.read_text()
    assert text.count(mutant.good) == 1, f"{mutant.file} does not hold the line to change exactly once"
    try:
        path.write_text(text.replace(mutant.good, mutant.bad))
        compile_module(workshop)
        done = suite(workshop, mutant.oracle)
    finally:
        path.write_text(text)
    assert done.returncode == 1, (
        f"not seen (pytest exit {done.returncode}):\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
    )


@pytest.mark.mutation
@pytest.mark.slow
def test_the_unchanged_copy_passes(workshop: Path) -> None:
    compile_module(workshop)
    done = suite(workshop, (*STORING, "tests/views/test_n_step.py", "tests/samplers/test_epochs.py"))
    assert done.returncode == 0, done.stdout[-3000:]
