"""The native ranking and the rank distribution against their slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive import _native
from tests.reference import trees as reference


def ranks_of(ranked: _native.Ranked) -> list[int]:
    out = np.full(ranked.size(), 2**63, np.uint64)
    ranked.at_ranks(np.arange(ranked.size(), dtype=np.uint64), out)
    return out.tolist()


def assert_same_order(ranked: _native.Ranked, twin: reference.Ranked) -> None:
    order = twin.order()
    assert ranked.size() == len(order)
    assert ranks_of(ranked) == order
    assert [ranked.rank(slot) for slot in order] == list(range(len(order)))
    assert ranked.max_priority() == twin.max_priority()
    assert [slot for slot in range(ranked.capacity()) if ranked.contains(slot)] == sorted(twin.keys)


class Ranking:
    """A ranking beside its twin; each method is a way in which buffers change it."""

    def __init__(self, capacity: int, rng: np.random.Generator, values: int) -> None:
        self.ranked, self.twin, self.rng, self.values = _native.Ranked(capacity), reference.Ranked(), rng, values
        self.number = 0

    def priority(self) -> float:
        return float(self.rng.integers(self.values)) / 8

    def insert(self, slot: int, priority: float) -> None:
        if slot in self.twin.keys:
            self.ranked.erase(slot)
        number = self.number // 3  # lanes share numbers
        self.number += 1
        self.ranked.insert(slot, priority, number)
        self.twin.keys[slot] = (priority, number)

    def slots(self, count: int) -> list[int]:
        return self.rng.integers(self.ranked.capacity(), size=count).tolist()

    def ring(self, count: int) -> None:
        for _ in range(count):
            self.insert(self.number % self.ranked.capacity(), self.ranked.max_priority())

    def scatter(self, count: int) -> None:
        for slot in self.slots(count):
            self.insert(slot, self.priority())

    def erase(self, count: int) -> None:
        for slot in self.slots(count):
            if self.twin.keys.pop(slot, None):
                self.ranked.erase(slot)

    def erase_ends(self, count: int) -> None:
        order = self.twin.order()
        for slot in order[:count] + order[max(count, len(order) - count) :]:
            self.ranked.erase(slot)
            del self.twin.keys[slot]

    def update(self, count: int) -> None:
        slots = [slot for slot in self.slots(count) if slot in self.twin.keys]
        priorities = [self.priority() for _ in slots]
        if count % 2:
            self.ranked.update_many(np.array(slots, np.uint64), np.array(priorities, np.float64))
        else:
            for slot, priority in zip(slots, priorities, strict=True):
                self.ranked.update(slot, priority)
        for slot, priority in zip(slots, priorities, strict=True):
            self.twin.keys[slot] = (priority, self.twin.keys[slot][1])

    def clear(self, _: int) -> None:
        self.ranked.clear()
        self.twin.keys.clear()


WAYS = ["ring", "scatter", "erase", "erase_ends", "update"]


@given(
    seed=st.integers(0, 2**32 - 1),
    capacity=st.sampled_from([1, 2, 3, 17, 255, 256, 257, 600, 2000]),
    values=st.sampled_from([1, 2, 30, 10**6]),
    steps=st.lists(
        st.tuples(st.sampled_from([*WAYS, *WAYS, "clear"]), st.sampled_from([1, 7, 130, 301, 1500])), max_size=8
    ),
)
def test_a_ranking_has_the_order_of_its_twin_after_every_change(
    seed: int, capacity: int, values: int, steps: list[tuple[str, int]]
) -> None:
    ranking = Ranking(capacity, np.random.default_rng(seed), values)
    for way, count in steps:
        getattr(ranking, way)(min(count, 2 * capacity))
        assert_same_order(ranking.ranked, ranking.twin)


@pytest.mark.parametrize("values", [1, 3, 10**9])
def test_a_ranking_grown_and_emptied_again_and_again(values: int) -> None:
    ranking = Ranking(5000, np.random.default_rng(values), values)
    for way, count in [
        ("scatter", 9000),
        ("erase", 9000),
        ("ring", 7000),
        ("update", 9001),
        ("erase_ends", 2000),
        ("scatter", 9000),
        ("update", 3000),
        ("erase", 20_000),
        ("erase_ends", 5000),
        ("ring", 300),
    ]:
        getattr(ranking, way)(count)
        assert_same_order(ranking.ranked, ranking.twin)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kept_of_128", [1, 65])
def test_blocks_thinned_again_and_again_never_become_too_many(kept_of_128: int, backwards: bool) -> None:
    capacity = 20_000
    ranked = _native.Ranked(capacity)
    for slot in range(capacity):  # from large to small, so that every full block is split
        ranked.insert(slot, float(2 * capacity - slot), 0)
    kept, filled = [], list(range(capacity))  # the same slots for good, and those that come and go behind them
    for _ in range(4):
        kept += [slot for place, slot in enumerate(filled) if place % 128 < kept_of_128]
        filled = [slot for place, slot in enumerate(filled) if place % 128 >= kept_of_128]
        for slot in reversed(filled) if backwards else filled:
            ranked.erase(slot)
        assert ranks_of(ranked) == kept
        lowest = ranked.priority(kept[-1]) / 2
        for place, slot in enumerate(filled):
            ranked.insert(slot, lowest * (1 - place / capacity / 2), 0)
        assert ranks_of(ranked) == kept + filled


def test_of_equal_priorities_the_newest_comes_first() -> None:
    ranked = _native.Ranked(8)
    for slot, priority, number in [(3, 1.0, 10), (5, 1.0, 11), (1, 2.0, 0), (0, 1.0, 11), (7, 1.0, 2**62)]:
        ranked.insert(slot, priority, number)
    assert ranks_of(ranked) == [1, 7, 5, 0, 3]
    ranked.update(3, 2.0)
    assert ranks_of(ranked) == [3, 1, 7, 5, 0]
    assert (ranked.priority(3), ranked.number(3), ranked.max_priority()) == (2.0, 10, 2.0)
    assert [ranked.at_rank(rank) for rank in range(5)] == [3, 1, 7, 5, 0]
    ranked.update_many(np.array([3, 1, 3], np.uint64), np.array([9.0, 5.0, 0.0]))  # the last of equal slots counts
    assert ranks_of(ranked) == [1, 7, 5, 0, 3]


def test_a_ranking_refuses_slots_that_it_does_not_hold_and_holds_already() -> None:
    ranked = _native.Ranked(3)
    assert ranked.max_priority() == 0.0
    ranked.insert(1, 1.0, 0)
    for refused in (
        lambda: ranked.insert(1, 1.0, 0),
        lambda: ranked.erase(0),
        lambda: ranked.update(2, 1.0),
        lambda: ranked.rank(2),
        lambda: ranked.update(1, math.nan),
    ):
        with pytest.raises(ValueError, match=r"held|finite"):
            refused()
    for out_of_bounds in (lambda: ranked.insert(3, 1.0, 0), lambda: ranked.at_rank(1), lambda: ranked.contains(3)):
        with pytest.raises(IndexError):
            out_of_bounds()
    assert ranks_of(ranked) == [1]
    with pytest.raises(ValueError, match="at least"):
        _native.Ranked(0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0, 1.5, 20.0])
@pytest.mark.parametrize("n", [1, 2, 17, 1000, 3000])
def test_ranks_have_the_probabilities_of_the_paper(alpha: float, n: int) -> None:
    expected = reference.rank_probabilities(alpha, n)
    distribution = _native.RankDistribution(alpha, 3000)
    assert np.allclose([distribution.probability(rank, n) for rank in range(n)], expected, rtol=1e-12, atol=0)
    uniforms = np.concatenate([np.linspace(0, 1, 10_001)[:-1], [np.nextafter(1, 0), np.nextafter(0, 1)]])
    ranks = np.full(len(uniforms), 2**63, np.uint64)
    distribution.draw_many(uniforms, n, ranks)
    assert [distribution.draw(uniform, n) for uniform in uniforms[::100]] == ranks[::100].tolist()
    assert ranks.max() < n
    before = np.concatenate([[0], np.cumsum(expected)])
    drawn = ranks.astype(np.int64)
    assert (before[drawn] <= uniforms + 1e-12).all()
    assert (before[drawn + 1] >= uniforms - 1e-12).all()


def test_a_rank_distribution_follows_a_number_of_ranks_that_grows_and_shrinks() -> None:
    distribution = _native.RankDistribution(0.7, 5000)
    for n in (1, 2, 1023, 1024, 1025, 5000, 3, 4999):
        expected = reference.rank_probabilities(0.7, n)
        assert math.isclose(distribution.probability(n - 1, n), expected[-1], rel_tol=1e-12)
        assert distribution.draw(np.nextafter(1, 0), n) == n - 1
        assert distribution.draw(0.0, n) == 0
    for n in (0, 5001):
        with pytest.raises(ValueError, match="rank"):
            distribution.draw(0.5, n)
    with pytest.raises(IndexError):
        distribution.probability(3, 3)
