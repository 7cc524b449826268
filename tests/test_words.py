"""The check that keeps references out that a reader of the repository cannot follow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.check_words import main, problems

PAGES = {"README.md", "design.md"}


@pytest.mark.parametrize(
    "line",
    [
        "as SB3.md says",
        "see docs/NOTES.md",
        '"""CASES, group A: next observations."""',
        "keep their dtype (CASES H03)",
        "# PEERS, 2 and 4 ----",
        "PEERS 4, item 17",
        "def test_PEERS_4_10_prefix_queries() -> None:",
        "as the issue asks",
        "open('/work/shared/data.npz')",
        "cd /home/me/relive",
        "--index-url https://pypi.internal/simple",
        "https://artifactory.example.com/pypi",
    ],
)
def test_what_cannot_be_followed_is_found_with_its_line(line: str) -> None:
    found = list(problems("docs/a.md", f"first\n{line}\nlast\n", PAGES))
    assert found
    assert {number for number, _ in found} == {2}


@pytest.mark.parametrize(
    "line",
    [
        "[Design](docs/design.md), README.md",
        "DLR-RM/stable-baselines3#105, huggingface/lerobot PR #918",
        "CASES = {}",
        "its peers, _PEERS = (TIANSHOU,)",
        'trained(CASES["SAC"])',
        "source (paper, equation, issue)",
        "https://github.com/DLR-RM/stable-baselines3/issues/105",
        "src/work/a.py, ../home/a",
    ],
)
def test_what_can_be_followed_is_left_alone(line: str) -> None:
    assert list(problems("docs/a.md", line, PAGES)) == []


@pytest.mark.parametrize(
    ("docstring", "named"),
    [
        ('"""huggingface/lerobot PR #918."""', True),
        ('"""Farama-Foundation/Gymnasium#12: an end."""', True),
        ('"""farama.org/Vector-Autoreset-Mode."""', True),
        ('"""A ring that is not full."""', False),
        ("pass", False),
    ],
)
def test_a_case_names_its_report(docstring: str, named: bool) -> None:
    text = f"def test_A02_a_ring() -> None:\n    {docstring}\n"
    assert [number for number, _ in problems("tests/a.py", text, PAGES)] == ([] if named else [1])


def test_all_tracked_files_are_looked_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.md").write_text("See a.md.\n")
    (tmp_path / "picture.png").write_bytes(b"\xff\xfe\x00")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "untracked.md").write_text("See PEERS 4.\n")
    assert main(tmp_path) == 0
    (tmp_path / "b.py").write_text("#\n# See untracked.md.\n")
    subprocess.run(["git", "add", "b.py"], cwd=tmp_path, check=True)
    assert main(tmp_path) == 1
    assert capsys.readouterr().out.startswith("b.py:2: untracked.md is not in the repository")
