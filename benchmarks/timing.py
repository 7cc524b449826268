"""Interleaved timing: every contender once per round, in rotating order, and the smallest round counts.

A machine is never quite quiet, and it drifts: a peer that is timed a minute later is timed on another machine. So the
contenders of a measure take turns within every round, and ratios are those of their fastest rounds. Only the standard
library is used here, so that other interpreters can time with it.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from typing import Protocol

#: How long a round of one contender should last: far above the clock's grain, far below a scheduler's patience.
ROUND_SECONDS = 0.004
#: A measure goes on for at least this long, so that cheap ones too see the machine in its quiet moments.
MEASURE_SECONDS = 3.0


class Entrant(Protocol):
    """Whoever takes turns: a contender of this process, or one of another that is told when to run."""

    @property
    def name(self) -> str:
        """Whose work it is."""

    @property
    def operations(self) -> int:
        """How many operations one call makes."""

    @property
    def note(self) -> str:
        """How it differs from the others, for the reader."""

    def run(self, calls: int) -> float:
        """Makes so many calls, and returns the seconds that they took together."""


@dataclass(frozen=True)
class Contender:
    """Something to time.

    Attributes:
        name: whose work it is.
        call: does it, and returns what a caller would get.
        operations: how many operations one call makes, where it loops by itself.
        before: what happens before each call while the clock stands still.
        note: how it differs from the others, for the reader.
    """

    name: str
    call: Callable[[], object]
    operations: int = 1
    before: Callable[[], object] | None = None
    note: str = ""

    def run(self, calls: int) -> float:
        """Makes so many calls, and returns the seconds that they took together."""
        if self.before is not None:
            return self._run_each(calls, self.before)
        call = self.call
        kept: object = None
        start = time.perf_counter()
        for _ in repeat(None, calls):
            kept = call()  # what the call before gave lives until now, as a learner's batch does
        taken = time.perf_counter() - start
        del kept
        return taken

    def _run_each(self, calls: int, before: Callable[[], object]) -> float:
        call = self.call
        kept: object = None
        taken = 0.0
        for _ in repeat(None, calls):
            before()
            start = time.perf_counter()
            kept = call()
            taken += time.perf_counter() - start
        del kept
        return taken


@dataclass(frozen=True)
class Timing:
    """Seconds per operation in the fastest and the middle one of ``rounds`` rounds."""

    fastest: float
    median: float
    rounds: int


def time_interleaved(entrants: Sequence[Entrant], least_rounds: int) -> list[Timing]:
    """Times all entrants side by side, without garbage collection, the same number of rounds for each."""
    with no_garbage_collection():
        calls = [_calls_per_round(entrant) for entrant in entrants]
        seconds: list[list[float]] = [[] for _ in entrants]
        end = time.perf_counter() + MEASURE_SECONDS
        for turn in count():
            if turn >= least_rounds and time.perf_counter() > end:
                break
            for place in range(len(entrants)):
                which = (turn + place) % len(entrants)
                entrant = entrants[which]
                seconds[which].append(entrant.run(calls[which]) / (calls[which] * entrant.operations))
    return [Timing(min(taken), statistics.median(taken), len(taken)) for taken in seconds]


def _calls_per_round(entrant: Entrant) -> int:
    entrant.run(1)  # first calls pay for pages and caches
    calls = 1
    while True:
        taken = entrant.run(calls)
        if taken >= ROUND_SECONDS / 2:
            return max(1, math.ceil(calls * ROUND_SECONDS / taken))
        calls *= 2


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Within it nothing is collected, so that no contender pays for what another left behind."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
