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

#: How long a round of one contender should last: far above the clock's grain, far below a scheduler's patience.
ROUND_SECONDS = 0.004
#: A measure goes on for at least this long, so that cheap ones too see the machine in its quiet moments.
MEASURE_SECONDS = 3.0


@dataclass(frozen=True)
class Contender:
    """Something to time.

    Attributes:
        name: whose work it is.
        call: does it, and returns what a caller would get.
        operations: how many operations one call makes, where it loops by itself.
    """

    name: str
    call: Callable[[], object]
    operations: int = 1


@dataclass(frozen=True)
class Timing:
    """Seconds per operation in the fastest and the middle one of ``rounds`` rounds."""

    fastest: float
    median: float
    rounds: int


def time_interleaved(contenders: Sequence[Contender], least_rounds: int) -> list[Timing]:
    """Times all contenders side by side, without garbage collection, the same number of rounds for each."""
    with _no_garbage_collection():
        calls = [_calls_per_round(contender) for contender in contenders]
        seconds: list[list[float]] = [[] for _ in contenders]
        end = time.perf_counter() + MEASURE_SECONDS
        for turn in count():
            if turn >= least_rounds and time.perf_counter() > end:
                break
            for place in range(len(contenders)):
                which = (turn + place) % len(contenders)
                seconds[which].append(_one_round(contenders[which], calls[which]))
    return [Timing(min(taken), statistics.median(taken), len(taken)) for taken in seconds]


def _one_round(contender: Contender, calls: int) -> float:
    call = contender.call
    kept: object = None
    start = time.perf_counter()
    for _ in repeat(None, calls):
        kept = call()  # what the call before gave lives until now, as a learner's batch does
    taken = time.perf_counter() - start
    del kept
    return taken / (calls * contender.operations)


def _calls_per_round(contender: Contender) -> int:
    _one_round(contender, 1)  # first calls pay for pages and caches
    calls = 1
    while True:
        taken = _one_round(contender, calls) * calls * contender.operations
        if taken >= ROUND_SECONDS / 2:
            return max(1, math.ceil(calls * ROUND_SECONDS / taken))
        calls *= 2


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
