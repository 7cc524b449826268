"""Looks through all tracked files for what a reader of the repository cannot follow; `make lint` runs it.

    python scripts/check_words.py

A file may point to another one of the repository or to a public source. It may not point to notes that only its author
had, nor to a machine of its author; and a test that is named after a case, like ``test_A02_…``, says in its docstring
which public report that is. What is found is printed as ``file:line: text``, and the exit code then is 1.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: What has to write such words down to be about them.
EXEMPT = frozenset({"scripts/check_words.py", "tests/test_words.py"})

#: A page, by its file's name; whether the repository has it is asked afterwards.
PAGE = re.compile(r"[\w.-]*\w\.md\b")

NOTES = (
    (re.compile(r"\b(CASES|PEERS)\b(?=[,:]? +(group|item|[A-N]?\d))|test_PEERS|\b(CASES|PEERS),", re.ASCII), "notes"),
    (re.compile(r"\b(the|this|our) (issue|brief|ticket)\b(?! (tracker|form))", re.IGNORECASE), "a task"),
    (re.compile(r"(?<![\w.~/])/(work|home|root|Users)/\w"), "a path of one machine"),
    (re.compile(r"https?://[^\s/]*\b(artifactory|nexus|internal|corp)\b"), "a private registry"),
)

CASE = re.compile(r"test_[A-N]\d\d_")
REPORT = re.compile(r"[\w.-]+/[\w.-]+(#| PR #?)\d+|\b\w+\.(org|com|io)/\S+")


def problems(path: str, text: str, pages: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, what is wrong) for one file.

    Args:
        path: where it lies in the repository.
        text: what it says.
        pages: the names of the Markdown files that the repository has.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for page in PAGE.findall(line):
            if page not in pages:
                yield number, f"{page} is not in the repository: say the fact, or give its public source"
        for pattern, what in NOTES:
            for match in pattern.finditer(line):
                yield number, f"{match[0]!r} points to {what}: say the fact, or give its public source"
    if path.endswith(".py"):
        yield from _cases_without_report(text)


def _cases_without_report(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef) or not CASE.match(node.name):
            continue
        if not REPORT.search(ast.get_docstring(node) or ""):
            yield node.lineno, f"{node.name} has no docstring that names its report, like owner/repository#12"


def main(root: Path = ROOT) -> int:
    """Prints what it finds in the tracked files below ``root``; 1 if that is anything."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    tracked = [path for path in listed.split("\0") if path and (root / path).is_file()]
    pages = {Path(path).name for path in tracked if path.endswith(".md")}
    found = 0
    for path in tracked:
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # no text
        for number, what in () if path in EXEMPT else problems(path, text, pages):
            print(f"{path}:{number}: {what}")
            found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
