"""Bytes that a full buffer keeps resident: one process per contender, the growth of its resident set while it fills.

Run as a program (``python -m benchmarks.memory CONTENDER TASK STEPS``) it is such a process, and prints that growth.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from benchmarks.measure import OURS, Cost, Goal, Measure, Unit, at_most
from benchmarks.peers import CPPRB, CPPRB_SHARED, RLOX, SB3, installed, make_peer
from benchmarks.steps import IMAGES, VECTORS, make_steps
from benchmarks.timing import Entrant

_TASKS = {"vectors": VECTORS, "images": IMAGES}
_CHUNK = 500


@dataclass(frozen=True)
class Resident:
    """How much memory buffers take when they are full of contiguous steps."""

    name: str
    title: str
    task: str
    steps: int
    contenders: Sequence[str]
    goals: Mapping[str, Goal]
    notes: Mapping[str, str] = field(default_factory=dict)
    unit: Unit = "bytes"

    def run(self, rounds: int, guests: Sequence[Entrant] = ()) -> list[Cost]:
        """Costs of all contenders, relive first; bytes need no rounds, and guests have none to tell."""
        costs = []
        for name in installed(self.contenders):
            command = [sys.executable, "-m", "benchmarks.memory", name, self.task, str(self.steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            grown = float(done.stdout)
            costs.append(Cost(name, grown, grown, note=self.notes.get(name, "")))
        return costs


def measures() -> list[Measure]:
    """All of this file."""
    notes = {CPPRB_SHARED: "its option for contiguous steps"}
    return [
        Resident(
            "bytes-images",
            "resident bytes, 20k steps of images",
            "images",
            20_000,
            [OURS, SB3, CPPRB, CPPRB_SHARED],
            {SB3: at_most(0.52)},
            notes,
        ),
        Resident(
            "bytes-vectors",
            "resident bytes, 200k steps of 17 and 6 float32",
            "vectors",
            200_000,
            [OURS, SB3, CPPRB, CPPRB_SHARED, RLOX],
            {SB3: at_most(0.7)},
            notes,
        ),
    ]


def _growth(name: str, task: str, steps: int) -> int:
    chunk = make_steps(_TASKS[task], _CHUNK, 1, episode=None)
    make_peer(name, _TASKS[task], _CHUNK).fill(chunk)  # what a first use brings along does not count
    process = psutil.Process()
    before = process.memory_info().rss
    peer = make_peer(name, _TASKS[task], steps)
    for _ in range(steps // _CHUNK):
        peer.fill(chunk)
    grown: int = process.memory_info().rss - before
    del peer
    return grown


if __name__ == "__main__":
    print(_growth(sys.argv[1], sys.argv[2], int(sys.argv[3])))
