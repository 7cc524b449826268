"""The code in docs/sampling.md and in the README's section about it runs, and its asserts hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "docs/sampling.md"
SECTION = "## Every way to draw"

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")
LINK = re.compile(r"\]\(#([^)]+)\)")


def blocks(text: str) -> list[tuple[int, str]]:
    """Each block of Python with the line at which it begins."""
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


def run(page: str, code: str, line: int, names: dict[str, Any]) -> None:
    # Blank lines before it make tracebacks name the line of the page.
    exec(compile("\n" * line + code, str(ROOT / page), "exec"), names)


def test_every_block_of_the_page_runs_after_those_before_it() -> None:
    found = blocks((ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(found) > 15
    names: dict[str, Any] = {}
    for line, code in found:
        run(PAGE, code, line, names)


def test_the_readme_shows_a_configuration_that_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.index(SECTION)
    end = text.index("\n## ", start)
    (code,) = [code for _, code in blocks(text[start:end])]
    run("README.md", code, text.count("\n", 0, start), {})


def test_a_block_whose_assert_does_not_hold_is_found_with_its_line() -> None:
    text = "text\n\n```python\nx = 1\nassert x == 2\n```\n"
    ((line, code),) = blocks(text)
    with pytest.raises(AssertionError) as error:
        run(PAGE, code, line, {})
    assert error.traceback[-1].lineno + 1 == text.splitlines().index("assert x == 2") + 1


def test_every_picture_is_there_and_none_is_left_over() -> None:
    shown = PICTURE.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(shown) == len(set(shown))
    files = {f"pictures/{file.name}" for file in (ROOT / "docs" / "pictures").iterdir()}
    assert set(shown) == files


def test_links_within_the_page_lead_to_headings() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(LINK.findall(text)) <= anchors
