"""Prioritised replay: cases of public reports, which each test names; and faults seen in other libraries."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.chains import ACTION, NUMBER, replay, step

COPIES = [lambda b: b, lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy]
COPY_NAMES = ["itself", "pickle", "deepcopy"]


def prioritized(steps: int, rows: int, *, alpha: float = 1.0, eps: float = 0.0, **options: Any) -> relive.ReplayBuffer:
    """One environment, ``steps`` steps; the mass of a step is its priority unless told otherwise."""
    buffer = replay(rows, sampler=relive.Prioritized(alpha=alpha, eps=eps, **options), seed=0)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


def masses(buffer: relive.ReplayBuffer) -> list[float]:
    return buffer.priorities(buffer.handles()).tolist()


def test_E01_the_newest_step_is_drawn_as_often_as_any() -> None:
    """openai/baselines#171, hill-a/stable-baselines#941."""
    buffer = prioritized(3, 8)
    counts = Counter(int(buffer.sample(1).handles[0]) for _ in range(9000))
    assert sorted(counts) == [0, 1, 2]
    assert all(abs(count - 3000) <= 225 for count in counts.values())


def test_E02_one_step_is_drawn_at_once_with_weight_one() -> None:
    """openai/baselines#170, ray-project/ray#7180, #8118."""
    batch = prioritized(1, 8, beta=0.5).sample(1)
    assert (batch.handles.tolist(), batch.weights.tolist()) == ([0], [[1]])


def test_E02_a_power_of_two_exactly_full() -> None:
    """openai/baselines#170, ray-project/ray#7180, #8118."""
    buffer = prioritized(1024, 1024)
    drawn = np.concatenate([buffer.sample(512).handles for _ in range(20)])
    assert drawn.min() >= 0 and drawn.max() <= 1023
    assert len(np.unique(buffer.sample(1024).handles)) == 1024  # equal masses: each stratum is one step


@pytest.mark.parametrize("rows", [4, 3, 5, 7])
def test_E04_no_mass_lands_on_a_step_without_any(rows: int) -> None:
    """Howuhh/prioritized_experience_replay#3, rlcode/per#4, tensorforce/tensorforce#308."""
    buffer = prioritized(4, max(rows, 4))
    buffer.update_priorities([0, 1, 2, 3], [0, 0, 5, 0])
    for batch_size in (1, 2, 5, 1000):
        assert set(buffer.sample(batch_size).handles.tolist()) == {2}


def test_E04_masses_find_their_steps() -> None:
    """Howuhh/prioritized_experience_replay#3, rlcode/per#4, tensorforce/tensorforce#308.

    Priorities 4, 3, 2: nine draws, one for every unit of mass.
    vwxyzjn/cleanrl#546: also where rows are no power of two.
    """
    for rows in (3, 4, 5, 9):
        buffer = prioritized(3, rows)
        buffer.update_priorities([0, 1, 2], [4, 3, 2])
        for _ in range(50):
            assert buffer.sample(9).handles.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2]


def test_E05_every_index_is_a_step_and_every_weight_is_its_own() -> None:
    """pytorch/rl#2230, PR #2239."""
    buffer = prioritized(100, 500, beta=1.0, weights_over="buffer")
    p = np.random.default_rng(0).random(100).astype(np.float32) + 1e-3
    buffer.update_priorities(buffer.handles(), p)
    for _ in range(100):
        batch = buffer.sample(2000)
        assert batch.handles.max() <= 99
        expected = p.min() / p[batch.handles]
        np.testing.assert_allclose(batch.weights.numpy()[:, 0], expected, rtol=1e-5)


def test_E06_the_tree_does_not_drift_from_its_leaves() -> None:
    """instadeepai/flashbax#52, JuliaReinforcementLearning/ReinforcementLearningTrajectories.jl#59.

    A million updates; then draw i of k, whose mass is known to lie in the i-th of k parts, is where it should be.
    """
    rng = np.random.default_rng(0)
    buffer = prioritized(128, 128)
    p = np.ones(128)
    for _ in range(1000):
        handles, values = rng.integers(0, 128, 1000), rng.uniform(0.1, 5, 1000)
        buffer.update_priorities(handles, values)
        p[handles] = values  # NumPy, too, lets the last of equal indices win
    assert masses(buffer) == p.tolist()
    p[[3, 70]] = 0
    buffer.update_priorities([3, 70], [0, 0])
    edges = np.concatenate([[0], np.cumsum(p)])
    k = 100_000
    drawn = buffer.sample(k).handles
    parts = np.arange(k + 1) * edges[-1] / k
    slack = 1e-9 * edges[-1]
    assert (edges[drawn] < parts[1:] + slack).all() and (edges[drawn + 1] > parts[:-1] - slack).all()
    assert not set(drawn.tolist()) & {3, 70}


def test_E07_an_entry_priority_is_not_rounded() -> None:
    """instadeepai/flashbax PR #58."""
    buffer = prioritized(1, 4)
    buffer.update_priorities([0], [2.7])
    step(buffer, 1, 2)
    assert masses(buffer) == [2.7, 2.7]


def test_E08_the_exponent_is_applied_once() -> None:
    """pytorch/rl#2211."""
    assert masses(prioritized(1, 4, alpha=0.5, initial=4.0)) == [2]
    buffer = prioritized(1, 4, alpha=0.5)
    buffer.update_priorities([0], [4])
    step(buffer, 1, 2)
    assert masses(buffer) == [2, 2]


@pytest.mark.parametrize("way", COPIES, ids=COPY_NAMES)
@pytest.mark.parametrize(("max_over", "entry"), [("held", 0.5), ("ever", 100)])
def test_E09_the_maximum_of_what_is_held_or_of_all_time(max_over: Any, entry: float, way: Callable) -> None:
    """pytorch/rl#2210, PR #2242."""
    buffer = prioritized(2, 2, max_over=max_over)
    buffer.update_priorities([0, 1], [100, 0.5])
    step(buffer, 2, 3)  # the step with 100 is overwritten
    buffer.update_priorities([2], [0.5])
    buffer = way(buffer)
    step(buffer, 3, 4)
    assert masses(buffer) == [0.5, entry]


def test_E10_errors_may_be_negative_or_zero_and_all_steps_stay_reachable() -> None:
    """cpnota/autonomous-learning-library PR #106, medipixel/rl_algorithms#191, kengz/openai_lab PR #108."""
    buffer = prioritized(2, 4, eps=1e-6)
    buffer.update_priorities([0, 1], td_errors=[-3.0, 0.0])
    assert masses(buffer) == pytest.approx([3.000001, 1e-6], rel=1e-12)
    with pytest.raises(relive.errors.PriorityError, match="-3"):
        buffer.update_priorities([0, 1], [-3.0, 0.0])
    buffer.update_priorities([0], [0.0])
    assert {int(buffer.sample(1).handles[0]) for _ in range(100)} == {0, 1}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_E11_what_is_no_number_is_refused_whole(bad: float) -> None:
    """MorvanZhou/Reinforcement-learning-with-tensorflow#54, Curt-Park/rainbow-is-all-you-need#17."""
    buffer = prioritized(4, 4)
    with pytest.raises(ValueError, match=r"(?i)(nan|inf)"):
        buffer.update_priorities([1, 2], [3, bad])
    assert masses(buffer) == [1, 1, 1, 1]
    assert set(buffer.sample(4).handles.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("beta", "lesser"), [(1.0, 1 / 3), (0.5, 3**-0.5)])
def test_E12_weights_of_a_batch_with_both(beta: float, lesser: float) -> None:
    """takoika/PrioritizedExperienceReplay#1, #2, chainer/chainerrl PR #570, google-research/seed_rl#3."""
    for over in ("batch", "buffer"):
        buffer = prioritized(2, 4, beta=beta, weights_over=over)
        buffer.update_priorities([0, 1], [1, 3])
        batch = buffer.sample(4)  # one of mass 1, three of mass 3
        assert batch.handles.tolist() == [0, 1, 1, 1]
        np.testing.assert_allclose(batch.weights.flatten(), [1, lesser, lesser, lesser], rtol=1e-6)


@pytest.mark.parametrize(("over", "weight"), [("batch", 1), ("buffer", 1 / 3)])
def test_E12_weights_of_a_batch_without_the_smaller_priority(over: Any, weight: float) -> None:
    """takoika/PrioritizedExperienceReplay#1, #2, chainer/chainerrl PR #570, google-research/seed_rl#3."""
    buffer = prioritized(2, 4, beta=1.0, weights_over=over)
    buffer.update_priorities([0, 1], [1, 3])
    alone = [batch for batch in (buffer.sample(1) for _ in range(50)) if batch.handles[0] == 1]
    assert len(alone) > 20
    assert {round(batch.weights.item(), 6) for batch in alone} == {round(weight, 6)}


def test_E13_of_equal_handles_in_one_update_the_last_wins() -> None:
    """thu-ml/tianshou PR #94."""
    buffer = prioritized(3, 4)
    buffer.update_priorities([1, 1], [2, 5])
    assert masses(buffer) == [1, 5, 1]
    assert Counter(buffer.sample(7).handles.tolist()) == {0: 1, 1: 5, 2: 1}  # the sum is 7


def test_E14_a_late_priority_is_dropped_and_counted() -> None:
    """pytorch/rl PR #4046."""
    buffer = prioritized(4, 4)
    step(buffer, 4, 5)  # takes the place of step 0
    assert buffer.update_priorities([0], [9]) == 1
    assert masses(buffer) == [1, 1, 1, 1]
    assert buffer.sampler.dropped == 1
    assert buffer.update_priorities([4, 0], [2, 9]) == 1
    assert masses(buffer) == [1, 1, 1, 2]
    assert buffer.sampler.dropped == 2


def test_E15_priorities_of_overwritten_episodes_are_gone() -> None:
    """ray-project/ray#60773, PR #60065.

    The report evicts whole episodes (6, 9, 9 steps held); our ring of ten holds ten.
    """
    buffer = replay(10, sampler=relive.Prioritized(alpha=1.0, eps=0.0), seed=0)
    held, t = [], 0
    for length in (6, 3, 9):
        for i in range(length):
            step(buffer, t, t + 1, terminated=i == length - 1)
            t += 1
        held.append(len(buffer))
        buffer.update_priorities(buffer.handles(), buffer.handles() + 1.0)
    assert held == [6, 9, 10]
    live = list(range(8, 18))
    assert buffer.handles().tolist() == live
    assert masses(buffer) == [number + 1 for number in live]
    total = sum(number + 1 for number in live)
    assert Counter(buffer.sample(total).handles.tolist()) == {number: number + 1 for number in live}


def test_E16_steps_that_were_there_before_can_be_drawn_at_once() -> None:
    """pytorch/rl#3120. Arrays filled by hand, then declared."""
    buffer = replay(8, sampler=relive.Prioritized(), seed=0)
    buffer.observations[:5] = np.arange(5).reshape(5, 1, 1)
    buffer.pos = 5
    entry = (1 + 1e-6) ** 0.6
    assert masses(buffer) == pytest.approx([entry] * 5)
    assert set(buffer.sample(500).handles.tolist()) == set(buffer.handles().tolist())


# Faults seen in other libraries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_a_zero_priority_with_eps_zero_is_no_error(batch_size: int) -> None:
    """TorchRL raises "non-positive p_min" at one zero; where all are zero, draws are uniform with weights of one."""
    buffer = prioritized(4, 4, beta=1.0)
    buffer.update_priorities([0], [0])
    for _ in range(30):
        batch = buffer.sample(batch_size)
        assert 0 not in batch.handles
        assert batch.weights.max() == 1 and np.isfinite(batch.weights.numpy()).all()
    buffer.update_priorities([0, 1, 2, 3], [0, 0, 0, 0])
    seen: set[int] = set()
    for _ in range(100):
        batch = buffer.sample(batch_size)
        assert set(batch.weights.flatten().tolist()) == {1}
        seen |= set(batch.handles.tolist())
    assert seen == {0, 1, 2, 3}


def test_a_step_added_where_every_mass_is_zero_can_be_drawn() -> None:
    buffer = prioritized(3, 4)
    buffer.update_priorities([0, 1, 2], [0, 0, 0])
    step(buffer, 3, 4)
    assert masses(buffer) == [0, 0, 0, 1]
    assert set(buffer.sample(20).handles.tolist()) == {3}


@pytest.mark.parametrize("alpha", [0.4, 0.7, 0.0])
def test_a_new_step_gets_the_largest_mass_with_the_exponent_once(alpha: float) -> None:
    """TorchRL, test_prb_new_item_gets_max_priority."""
    buffer = prioritized(2, 8, alpha=alpha, eps=1e-6)
    buffer.update_priorities([0], [100])
    step(buffer, 2, 3)
    assert masses(buffer)[2] == pytest.approx((100 + 1e-6) ** alpha, rel=1e-12)


def test_a_lowered_maximum_is_lowered_for_new_steps() -> None:
    """TorchRL, test_prb_within_buffer_max_priority_stays_raw."""
    buffer = prioritized(2, 8)
    buffer.update_priorities([0, 1], [100, 10])
    buffer.update_priorities([0], [50])
    step(buffer, 2, 3)
    assert masses(buffer) == [50, 10, 50]


def test_clashing_values_keep_the_last_of_each() -> None:
    """flashbax, test_set_batch_clashing_values."""
    buffer = prioritized(10, 16)
    both = [*range(10), *range(10)]
    buffer.update_priorities(both, [*range(1, 11), *range(11, 21)])
    assert masses(buffer) == list(range(11, 21))
    total = sum(range(11, 21))
    assert Counter(buffer.sample(total).handles.tolist()) == {i: i + 11 for i in range(10)}


def test_equal_handles_tie_to_the_last_row_and_old_ones_do_not_count() -> None:
    """TorchRL, update_if_present with duplicates."""
    buffer = prioritized(5, 4)
    assert buffer.update_priorities([0, 4, 4, 0, 4], [9, 2, 3, 9, 4]) == 2
    assert masses(buffer) == [1, 1, 1, 4]


def test_a_prefix_of_the_mass_finds_its_step() -> None:
    """Tianshou, test_segtree: masses .1, 0, .1."""
    buffer = prioritized(3, 3)
    buffer.update_priorities([0, 1, 2], [0.1, 0, 0.1])
    for _ in range(200):
        assert buffer.sample(2).handles.tolist() == [0, 2]


def test_a_tiny_mass_beside_ones_that_come_and_go_stays_reachable() -> None:
    """Reverb, RoundingErrors."""
    buffer = prioritized(2, 2)
    buffer.update_priorities([0, 1], [1e-15, 0])
    for _ in range(10_000):
        buffer.update_priorities([1], [0.3])
        buffer.update_priorities([1], [0])
    assert set(buffer.sample(50).handles.tolist()) == {0}


def test_lanes_have_priorities_of_their_own() -> None:
    buffer = relive.ReplayBuffer(
        9, NUMBER, ACTION, device="cpu", n_envs=3, sampler=relive.Prioritized(alpha=1.0, eps=0.0), seed=0
    )
    for t in range(5):
        buffer.add(np.full((3, 1), t), np.full((3, 1), t + 1), [0] * 3, [10.0 * t + lane for lane in range(3)], [0] * 3)
    handles = buffer.handles()
    assert handles.tolist() == [6, 9, 12, 7, 10, 13, 8, 11, 14]  # number * 3 + lane
    buffer.update_priorities(handles[3:6], [0.0, 0.0, 7.0])
    buffer.update_priorities(handles[:3], [0.0] * 3)
    buffer.update_priorities(handles[6:], [0.0] * 3)
    assert set(buffer.sample(20).rewards.flatten().tolist()) == {41}
