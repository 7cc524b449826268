"""Contenders that live in another environment: a process of its own that takes its turn in every round.

TorchRL's native part is built for one minor release of torch, which need not be ours. So a process of its environment
(``torchrl_peer.py``) makes what it contends with, waits, makes as many calls as it is told to, and tells the seconds
that they took: both sides see the same machine, moment by moment, and no process works while another one is timed.

One line asks, one line answers::

                        {"version": "0.14.1", "contenders": [{"name": "TorchRL", "operations": 1, "note": ""}]}
    run 0 12            0.00321
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from benchmarks import torchrl_peer


@dataclass(frozen=True)
class Guest:
    """A contender in a process that answers; see `benchmarks.timing.Entrant`."""

    name: str
    operations: int
    note: str
    place: int
    process: _Process

    def run(self, calls: int) -> float:
        """Has so many calls made, and returns the seconds that they took together."""
        return float(self.process.ask(f"run {self.place} {calls}"))


@contextmanager
def guests(python: str | None, measure: str) -> Iterator[list[Guest]]:
    """What the environment of that interpreter contends with in a measure: nothing where it has nothing to show."""
    if python is None or measure not in torchrl_peer.CONTENDERS:
        yield []
        return
    with tempfile.TemporaryFile("w+") as complaints, _started(python, measure, complaints) as process:
        offer: dict[str, Any] = json.loads(process.answer())
        yield [
            Guest(
                contender["name"],
                contender["operations"],
                ", ".join(filter(None, (f"{offer['version']} in its own process", contender["note"]))),
                place,
                process,
            )
            for place, contender in enumerate(offer["contenders"])
        ]


class _Process:
    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process, self._complaints = process, complaints

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise RuntimeError(f"{self._process.args!r} ended before its time:\n{self._complaints.read()[-4000:]}")
        return line


@contextmanager
def _started(python: str, measure: str, complaints: IO[str]) -> Iterator[_Process]:
    with subprocess.Popen(
        [python, "-m", "benchmarks.torchrl_peer", measure],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        text=True,
    ) as process:
        try:
            yield _Process(process, complaints)
        finally:
            process.kill()
