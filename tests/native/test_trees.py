"""The native sum tree against its slow twin."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive import _native
from tests.reference import trees as reference

CAPACITIES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000]
INTEGERS = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 2**30)).map(float)  # whose sums are exact
MASSES = st.one_of(st.just(0.0), st.floats(0, 1e300), st.sampled_from([5e-324, 1e-15, 0.1, 1.0, 1e16]))


def tree_of(masses: Sequence[float], capacity: int | None = None) -> _native.SumTree:
    tree = _native.SumTree(capacity or len(masses), True, True)
    set_many(tree, range(len(masses)), masses)
    return tree


def set_many(tree: _native.SumTree, indices: Sequence[int] | np.ndarray, masses: Sequence[float] | np.ndarray) -> None:
    tree.set_many(np.asarray(indices, np.uint64), np.asarray(masses, np.float64))


def find_many(tree: _native.SumTree, masses: Sequence[float] | np.ndarray) -> np.ndarray:
    out = np.full(len(masses), 2**63, np.uint64)
    tree.find_many(np.asarray(masses, np.float64), out)
    return out.astype(np.int64)


def leaves(tree: _native.SumTree) -> np.ndarray:
    out = np.full(tree.capacity(), np.nan)
    tree.leaves(out)
    return out


@st.composite
def updates(draw: st.DrawFn, masses: st.SearchStrategy[float]) -> tuple[int, list[list[tuple[int, float]]]]:
    """A capacity, and batches of (leaf, mass): few leaves, so that many are equal."""
    capacity = draw(st.sampled_from(CAPACITIES))
    last = min(capacity - 1, draw(st.sampled_from([0, 3, 20, 999])))
    near = st.integers(0, last)
    leaf = st.one_of(near, near.map(lambda i: capacity - 1 - i))
    return capacity, draw(st.lists(st.lists(st.tuples(leaf, masses), max_size=30), min_size=1, max_size=6))


def both(capacity: int, batches: list[list[tuple[int, float]]]) -> tuple[_native.SumTree, reference.SumTree]:
    tree, twin = _native.SumTree(capacity, True, True), reference.SumTree(capacity)
    for number, batch in enumerate(batches):
        indices, masses = [leaf for leaf, _ in batch], [mass for _, mass in batch]
        if number % 3 == 2:
            for leaf, mass in batch:
                tree.set(leaf, mass)
        elif number % 3 == 1:
            first = min(indices, default=0)
            masses = masses[: capacity - first]
            indices = list(range(first, first + len(masses)))
            tree.set_range(first, np.array(masses, np.float64))
        else:
            set_many(tree, indices, masses)
        twin.set_many(indices, masses)
    return tree, twin


@given(updates(INTEGERS), st.lists(st.floats(0, 1), max_size=20))
def test_with_exact_sums_every_answer_is_the_twins(
    case: tuple[int, list[list[tuple[int, float]]]], shares: list[float]
) -> None:
    tree, twin = both(*case)
    total = twin.total()
    assert leaves(tree).tolist() == twin.masses.tolist() == [tree.leaf(i) for i in range(tree.capacity())]
    assert (tree.total(), tree.max(), tree.min_positive()) == (total, twin.max(), twin.min_positive())
    assert [tree.sum_before(i) for i in range(tree.capacity() + 1)] == [0.0, *np.cumsum(twin.masses)]
    edges = np.concatenate([[0], np.cumsum(twin.masses[twin.masses > 0])])
    some = edges[:: max(1, len(edges) // 20)]
    queries = np.concatenate(
        [some, np.nextafter(some, -1), np.nextafter(some, np.inf), np.array(shares) * total, [-1.0, 2 * total, np.inf]]
    )
    expected = [twin.find(mass) for mass in queries]
    assert find_many(tree, queries).tolist() == expected
    assert [tree.find(mass) for mass in queries] == expected
    whole = np.unique(np.floor(np.array(shares) * total))
    whole = whole[whole < total]
    out, into = np.zeros(len(whole), np.uint64), np.zeros(len(whole))
    tree.find_many(whole, out, into)
    assert (into + [tree.sum_before(int(leaf)) for leaf in out] == whole).all()


@given(updates(MASSES), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_with_rounding_no_leaf_without_mass_is_found_and_the_sums_hold(
    case: tuple[int, list[list[tuple[int, float]]]], shares: list[float]
) -> None:
    tree, twin = both(*case)
    total = tree.total()
    assert math.isclose(total, twin.total(), rel_tol=1e-12)
    assert (tree.max(), tree.min_positive()) == (twin.max(), twin.min_positive())
    positive = np.flatnonzero(twin.masses)
    queries = np.concatenate([np.cumsum(twin.masses), np.array(shares) * total, [-math.inf, -1e-300, total, math.inf]])
    found = find_many(tree, queries)
    if len(positive):
        assert (twin.masses[found] > 0).all()
        assert found[-4:].tolist() == [positive[0], positive[0], positive[-1], positive[-1]]
    else:
        assert not found.any()
    # A prefix may be off by the rounding of its sums, and by no more.
    prefix = np.cumsum(twin.masses)
    slack = 1e-12 * total
    assert np.allclose([tree.sum_before(i) for i in range(tree.capacity())], prefix - twin.masses, rtol=0, atol=slack)
    inside = (queries >= 0) & (queries < total)
    assert (prefix[found][inside] >= queries[inside] - slack).all()
    assert ((prefix - twin.masses)[found][inside] <= queries[inside] + slack).all()


@given(updates(MASSES))
def test_a_cleared_tree_is_as_new(case: tuple[int, list[list[tuple[int, float]]]]) -> None:
    tree, _ = both(*case)
    tree.clear()
    assert not leaves(tree).any()
    assert (tree.total(), tree.max(), tree.min_positive()) == (0.0, 0.0, math.inf)
    tree.set(tree.capacity() - 1, 2.0)
    assert (tree.total(), tree.max(), tree.min_positive()) == (2.0, 2.0, 2.0)
    assert tree.find(0.0) == tree.capacity() - 1


def test_nothing_is_found_but_leaf_0_where_all_masses_are_0() -> None:
    for capacity in CAPACITIES:
        tree = _native.SumTree(capacity)
        assert find_many(tree, [-1, 0, 1, math.inf]).tolist() == [0, 0, 0, 0]


def test_a_mass_that_rounding_lifts_to_a_whole_node_stays_in_it() -> None:
    # 3 + 2**-51 less 1.5 * 2**-51 is rounded to 3, that is to all that the second node has.
    tree = tree_of([1.5 * 2**-51, *[0.0] * 7, 3.0, *[0.0] * 7, 10.0])
    assert tree.find(3 + 2**-51) == 8


def test_more_masses_than_descend_together() -> None:
    tree = tree_of(np.ones(1000))
    for size in (0, 1, 255, 256, 257, 1000):
        assert find_many(tree, np.arange(size) + 0.5).tolist() == list(range(size))


def test_draws_have_the_shares_of_their_masses() -> None:
    rng = np.random.default_rng(0)
    masses = rng.random(50) * (rng.random(50) < 0.7)
    found = find_many(tree_of(masses), rng.random(200_000) * masses.sum())
    expected = 200_000 * masses / masses.sum()
    counts = np.bincount(found, minlength=50)
    held = masses > 0
    assert not counts[~held].any()
    # Chi-square with fixed seed: its mean is the number of leaves less 1, its deviation the root of twice that.
    freedom = held.sum() - 1
    assert ((counts - expected)[held] ** 2 / expected[held]).sum() < freedom + 4 * math.sqrt(2 * freedom)


def test_E04_a_mass_on_an_edge_lands_on_no_leaf_without_mass() -> None:
    """Howuhh/prioritized_experience_replay#3, rlcode/per#4, tensorforce/tensorforce#308."""
    assert find_many(tree_of([0, 0, 5, 0]), [0, 2.5, np.nextafter(5, 0), 5]).tolist() == [2, 2, 2, 2]
    assert find_many(tree_of([4, 3, 2]), np.arange(9)).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2]


def test_E05_no_draw_reaches_past_the_content_of_a_partly_filled_tree() -> None:
    """pytorch/rl#2230, PR #2239.

    5e7 draws instead of the report's 1e9, and the edges themselves: each edge is an unlikely draw.
    """
    rng = np.random.default_rng(5)
    tree = _native.SumTree(500)
    masses = rng.random(100)
    set_many(tree, range(100), masses)
    held = leaves(tree)
    assert held[:100].tolist() == masses.tolist()  # the weight of an index is that of the index
    assert not held[100:].any()
    for _ in range(50):
        found = find_many(tree, rng.random(1_000_000) * tree.total())
        assert found.max() <= 99
    edges = np.cumsum(masses)
    for near in (edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), tree.total() + np.zeros(1)):
        assert find_many(tree, near).max() <= 99


@pytest.mark.parametrize("capacity", [128, 100_000])
def test_E06_after_a_million_updates_the_root_is_the_sum_of_the_leaves(capacity: int) -> None:
    """instadeepai/flashbax#52, JuliaReinforcementLearning/ReinforcementLearningTrajectories.jl#59."""
    rng = np.random.default_rng(6)
    tree, held = _native.SumTree(capacity), np.zeros(capacity)
    for _ in range(1_000):
        indices = rng.integers(0, capacity, 1_000)
        masses = rng.uniform(0.1, 5, 1_000) * (rng.random(1_000) < 0.9)
        set_many(tree, indices, masses)
        held[indices] = masses
    assert np.array_equal(leaves(tree), held)
    assert math.isclose(tree.total(), math.fsum(held), rel_tol=1e-9)
    found = find_many(tree, np.linspace(0, tree.total(), 100_000))
    assert (held[found] > 0).all()


def test_E13_of_an_index_twice_in_one_update_the_last_wins() -> None:
    """thu-ml/tianshou PR #94."""
    tree = tree_of([1, 1, 1])
    set_many(tree, [1, 1], [2, 5])
    assert leaves(tree).tolist() == [1, 5, 1]
    assert tree.total() == 7


def test_prefix_queries() -> None:
    """Tianshou's test_segtree, but on an edge the next leaf that has mass is meant; there 0.1 gives leaf 0."""
    tree = tree_of([0.1, 0, 0.1])
    assert find_many(tree, [0, np.nextafter(0.1, 0), 0.1, 0.1 + 1e-6, 0.2 - 1e-6, 0.2]).tolist() == [0, 0, 2, 2, 2, 2]
    rng = np.random.default_rng(10)
    tree, twin = tree_of(np.zeros(123)), np.zeros(123)
    for _ in range(16_000):
        index, mass = int(rng.integers(123)), float(rng.integers(0, 1000))
        tree.set(index, mass)
        twin[index] = mass
        query = float(rng.random() * twin.sum())
        assert tree.total() == twin.sum()
        if twin.any():
            assert tree.find(query) == int(np.searchsorted(np.cumsum(twin), query, side="right"))


def test_of_clashing_values_the_second_is_kept() -> None:
    """flashbax, test_set_batch_clashing_values."""
    rng = np.random.default_rng(13)
    tree = tree_of(np.zeros(20))
    values = rng.random(20)
    set_many(tree, np.tile(np.arange(10), 2), values)
    assert leaves(tree)[:10].tolist() == values[10:].tolist()
    assert math.isclose(tree.total(), values[10:].sum(), rel_tol=1e-15)


def test_a_light_leaf_is_found_again_after_heavy_ones_came_and_went() -> None:
    """Reverb, RoundingErrors."""
    tree = _native.SumTree(10_001)
    tree.set(0, 1e-15)
    for mass in (0.3, 0.0):
        for index in range(1, 10_001):
            tree.set(index, mass)
    assert tree.total() == 1e-15
    assert find_many(tree, [0, 5e-16, 1e-15, 1]).tolist() == [0, 0, 0, 0]


def test_a_mass_that_is_no_mass_is_refused_and_changes_nothing() -> None:
    tree = tree_of([1, 1, 1])
    for mass in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            set_many(tree, [0, 1], [3, mass])
        with pytest.raises(ValueError, match="finite"):
            tree.set(0, mass)
    with pytest.raises(IndexError):
        set_many(tree, [0, 3], [3, 3])
    assert leaves(tree).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="at least one"):
        _native.SumTree(0)


def test_memory_is_touched_only_as_far_as_leaves_are_set() -> None:
    def resident() -> int:
        return int(psutil.Process().memory_info().rss)

    before = resident()
    tree = _native.SumTree(20_000_000, True, True)  # 220 MB when full
    assert resident() - before < 50e6
    for start in range(0, 2_000_000, 100_000):
        set_many(tree, np.arange(start, start + 100_000), np.ones(100_000))
    assert resident() - before < 90e6
    tree.clear()
    assert resident() - before < 90e6
