"""Reverb's rate limiter (``reverb/cc/rate_limiter_test.cc``): inputs, and whether each call goes through."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from relive.errors import RateLimitError
from relive.limits import RateLimiter

INF = float("inf")


class Table:
    """Counts what is in a table, and asks its limiter before each call."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.held = 0

    def size(self) -> int:
        return self.held

    def insert(self, n: int = 1) -> bool:
        try:
            with self.limiter.inserting(n, self.size):
                self.held += n
        except RateLimitError:
            return False
        return True

    def sample(self, n: int = 1) -> bool:
        try:
            with self.limiter.sampling(n, self.size):
                pass
        except RateLimitError:
            return False
        return True

    def play(self, calls: str) -> str:
        """``i`` inserts, ``s`` samples, ``d`` deletes; the answers: y or n for each (- for a delete)."""
        answers = ""
        for call in calls:
            if call == "d":
                self.held -= 1
                answers += "-"
                continue
            can = self.limiter.can_insert(1, self.size) if call == "i" else self.limiter.can_sample(1, self.size)
            went = self.insert() if call == "i" else self.sample()
            assert went == can, "asking beforehand says the same"
            answers += "y" if went else "n"
        return answers


def table(spi: float, min_size: int, band: Any) -> Table:
    return Table(RateLimiter(spi, min_size, error_buffer=band, on_block="raise"))


CASES = {
    "spi 1.5, min size 2, diff in [-1, 3]": (1.5, 2, (-1, 3), "siisisi", "nyyynyy"),
    "spi 1.5, min size 2, diff in [0, 5]": (1.5, 2, (0, 5), "iiii", "yyyn"),
    "samples go down to the lower bound": (1.5, 2, (-1, 5), "iisssss", "yyyyyyn"),
    "inserts are free up to min size, whatever the band": (1, 4, (-1, 1), "iiiii", "yyyyn"),
    "deletes below min size block samples and free inserts": (1, 2, (-1, 2), "iiisdsiiss", "yyny-nynyy"),
    "min size alone": (1, 3, (-INF, INF), "iisissssssssiiiiiiii", "yynyyyyyyyyyyyyyyyyy"),
    "a queue of two": (1, 1, (0, 2), "siiisisss", "nyynyyyyn"),
    "a band around min size": (1, 3, 1.0, "siiiiisssi", "nyyyynyyny"),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_go_through_as_in_reverb(case: str) -> None:
    spi, min_size, band, calls, answers = CASES[case]
    assert table(spi, min_size, band).play(calls) == answers


def test_a_restored_limiter_goes_on_as_the_first_would() -> None:
    calls, rest = "iis", "isiissisis"
    first = table(1.5, 2, (-1, 3))
    first.play(calls)
    copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
    expected = first.play(rest)
    for restored in copies:
        assert restored.play(rest) == expected
        assert (restored.limiter.inserts, restored.limiter.samples) == (first.limiter.inserts, first.limiter.samples)
