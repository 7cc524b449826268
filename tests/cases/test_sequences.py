"""Sequences and episodes: cases of public reports, which each test names; and faults seen in other libraries."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.chains import ACTION, NUMBER, replay, step
from tests.samplers.frequencies import are_equal, fits


def episodes(rows: int, lengths: list[int], *, is_open: bool = False, **options: Any) -> relive.ReplayBuffer:
    """One environment; episodes of these lengths, steps numbered throughout; the last one may be open."""
    buffer = replay(rows, seed=0, **options)
    t = 0
    for number, length in enumerate(lengths):
        for i in range(length):
            ends = i == length - 1 and not (is_open and number == len(lengths) - 1)
            step(buffer, t, t + 1, reward=t, terminated=ends)
            t += 1
    return buffer


def numbers(batch: Any) -> list[list[int]]:
    """The steps of every sequence, without padding."""
    observations = batch.observations[..., 0].int()
    return [row[mask].tolist() for row, mask in zip(observations, batch.mask, strict=True)]


def drawn(buffer: relive.ReplayBuffer, length: int, **options: Any) -> set[tuple[int, ...]]:
    sequences = {tuple(row) for row in numbers(buffer.sample_sequences(2000, length, **options))}
    options = {name: value for name, value in options.items() if name in ("stride", "align", "pad", "cross_episodes")}
    assert buffer.count_sequences(length, **options) == len(sequences)
    return sequences


def test_J05_the_last_step_of_an_episode_is_drawn_as_often_as_it_should_be() -> None:
    """pytorch/rl PR #1774."""
    buffer = episodes(10, [5])
    batch = buffer.sample_sequences(8000, 2, pad="none")
    assert are_equal([tuple(row) for row in numbers(batch)], [(0, 1), (1, 2), (2, 3), (3, 4)])


@pytest.mark.parametrize("priorities", [[1.0] * 10, [9, 9, 1, 1, 9, 9, 1, 9, 9, 9], [9, 9, 0, 1, 9, 9, 0, 9, 9, 9]])
def test_J06_prioritised_sequences_do_not_cross_episodes(priorities: list[float]) -> None:
    """pytorch/rl#2208. Episode ids 7 7 4 4 4 4 5 5 5 6, sequences of three."""
    buffer = episodes(20, [2, 4, 3, 1], sampler=relive.Prioritized(alpha=1.0, eps=0.0))
    buffer.update_priorities(buffer.handles(), priorities)
    assert buffer.count_sequences(3, pad="none") == 3
    batch = buffer.sample_sequences(1000, 3, pad="none")
    starts = Counter(batch.handles.tolist())
    assert set(starts) == {start for start in (2, 3, 6) if priorities[start]}
    assert all(row == list(range(row[0], row[0] + 3)) for row in numbers(batch))


@pytest.mark.parametrize("sampler", [relive.Uniform, relive.Prioritized])
def test_J07_no_legal_start_is_an_error_not_window_zero(sampler: Any) -> None:
    """le2333/RTRRL#57."""
    buffer = episodes(20, [3, 3], sampler=sampler())
    assert buffer.count_sequences(8, pad="none") == 0
    with pytest.raises(relive.errors.EmptyBufferError, match="8"):
        buffer.sample_sequences(1, 8, pad="none")
    with pytest.raises(relive.errors.EmptyBufferError):
        replay(4, sampler=sampler()).sample_sequences(1, 1)


def test_J08_a_trajectory_is_not_joined_to_an_overwritten_one() -> None:
    """facebookresearch/mbrl-lib#95."""
    buffer = replay(4)
    for obs, following, ends in [(1, 2, 0), (2, 3, 1), (5, 6, 0), (6, 7, 1), (8, 9, 0)]:
        step(buffer, obs, following, terminated=bool(ends))
    assert [episode.observations.flatten().tolist() for episode in buffer.episodes()] == [[5, 6]]
    pieces = [episode.observations.flatten().tolist() for episode in buffer.episodes(whole=False)]
    assert pieces == [[2], [5, 6], [8]]
    assert {tuple(e.observations.flatten().tolist()) for e in buffer.sample_episodes(20)} == {(5, 6)}


def test_J09_a_long_read_stops_at_the_end_of_its_episode() -> None:
    """twni2016/pomdp-baselines#20."""
    buffer = episodes(60, [20, 30])
    batch = buffer.sample_sequences(100, 100, stride=100)  # from the first steps only
    assert sorted(set(map(tuple, numbers(batch)))) == [tuple(range(20)), tuple(range(20, 50))]
    for row in range(100):
        first = batch.handles[row] == 0
        assert batch.mask[row].sum() == (20 if first else 30)
        assert not batch.observations[row][~batch.mask[row]].any()
        assert not batch.rewards[row][~batch.mask[row]].any()


def test_J13_sequences_that_cross_ends_mark_first_steps() -> None:
    """Eclectic-Sheep/sheeprl#118, NM512/dreamerv3-torch#37."""
    buffer = episodes(20, [3, 3])
    batch = buffer.sample_sequences(500, 4, pad="none", cross_episodes=True)
    rows = {tuple(n): first.int().tolist() for n, first in zip(numbers(batch), batch.is_first, strict=True)}
    assert rows == {
        (0, 1, 2, 3): [1, 0, 0, 1],
        (1, 2, 3, 4): [0, 0, 1, 0],
        (2, 3, 4, 5): [0, 1, 0, 0],
    }
    assert drawn(buffer, 3, pad="none") == {(0, 1, 2), (3, 4, 5)}


def test_J14_neighbouring_slices_of_one_episode_stay_apart() -> None:
    """pytorch/rl#2588."""
    buffer = episodes(30, [24])
    batch = buffer.sample_sequences(400, 6, stride=6, pad="none")
    assert set(batch.handles.tolist()) == {0, 6, 12, 18}
    assert set(map(tuple, numbers(batch))) == {tuple(range(start, start + 6)) for start in (0, 6, 12, 18)}
    assert are_equal(batch.handles.tolist(), [0, 6, 12, 18])


# Faults seen in other libraries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[999], [999, 1], [1000], [500, 500], [999, 999], [400, 400, 400]])
def test_slices_of_a_ring_at_capacity(lengths: list[int]) -> None:
    """pytorch/rl#1969 fails with an episode of 999 in a ring of 1000."""
    buffer = episodes(1000, lengths)
    held = set(buffer.handles().tolist())
    batch = buffer.sample_sequences(3000, 4, pad="none")
    ends = set(np.cumsum(lengths).tolist())
    for row in numbers(batch):
        assert row == list(range(row[0], row[0] + 4))
        assert set(row) <= held
        assert not set(row[1:]) & ends
    legal = [t for t in held if t + 3 in held and not {t + 1, t + 2, t + 3} & ends]
    assert buffer.count_sequences(4, pad="none") == len(legal)


def test_slices_of_one_come_from_every_step() -> None:
    """pytorch/rl PR #1774: an episode of two, slices of one: both starts."""
    assert drawn(episodes(10, [2]), 1, pad="none") == {(0,), (1,)}
    assert drawn(episodes(10, [2]), 1) == {(0,), (1,)}


def test_sequences_fill_the_ring_right_after_each_write() -> None:
    buffer = replay(6, seed=0)
    for t in range(20):
        step(buffer, t, t + 1, terminated=t % 5 == 4)
        steps = range(max(0, t - 5), t + 1)
        legal = {s for s in steps if s + 1 <= t and s % 5 != 4}
        if legal:
            assert {row[0] for row in drawn(buffer, 2, pad="none")} == legal
        assert {row[0] for row in drawn(buffer, 2)} == set(steps)


def test_nothing_is_read_beyond_the_head_or_from_places_never_written() -> None:
    """TorchRL, the tests of Sequence in test_rb_core.py."""
    assert drawn(episodes(8, [3], is_open=True), 4) == {(0, 1, 2), (1, 2), (2,)}
    wrapped = episodes(5, [8], is_open=True)  # 5 6 7 3 4
    assert drawn(wrapped, 3, pad="none") == {(3, 4, 5), (4, 5, 6), (5, 6, 7)}
    assert drawn(wrapped, 3, pad="none", cross_episodes=True) == {(3, 4, 5), (4, 5, 6), (5, 6, 7)}
    assert drawn(wrapped, 2) == {(3, 4), (4, 5), (5, 6), (6, 7), (7,)}


@pytest.mark.parametrize("burn_in", [0, 1, 2])
def test_burn_in_marks_the_first_steps(burn_in: int) -> None:
    batch = episodes(10, [4]).sample_sequences(100, 3, burn_in=burn_in)
    for marks, mask in zip(batch.burn_in, batch.mask, strict=True):
        assert marks.tolist() == [t < burn_in and bool(mask[t]) for t in range(3)]


def test_a_stride_counts_from_the_start_of_each_episode() -> None:
    buffer = episodes(20, [5, 4], is_open=True)
    assert drawn(buffer, 2, stride=2, pad="none") == {(0, 1), (2, 3), (5, 6), (7, 8)}
    assert drawn(buffer, 2, stride=2) == {(0, 1), (2, 3), (4,), (5, 6), (7, 8)}


def test_a_stride_counts_from_the_start_even_where_that_is_overwritten() -> None:
    """So the same windows are drawn before and after the ring has taken a part of an episode."""
    buffer = episodes(6, [9], is_open=True)  # held: 3 to 8
    assert drawn(buffer, 2, stride=2, pad="none") == {(4, 5), (6, 7)}


def test_a_step_whose_beginning_is_overwritten_is_no_first_one() -> None:
    batch = episodes(6, [9], is_open=True).sample_sequences(100, 3)
    assert not batch.is_first.any()
    batch = episodes(6, [3, 6]).sample_sequences(100, 3)  # the end before step 3 is overwritten, too
    assert [bool(first[0]) for first in batch.is_first] == [handle == 3 for handle in batch.handles.tolist()]


def test_shares_by_transitions_or_by_episodes() -> None:
    """TorchRL's slices always go by episode: one of 20 beside one of 1000 gets half of the draws."""
    for over, share in (("transitions", 11 / 1002), ("episodes", 0.5)):
        buffer = episodes(2000, [20, 1000], sampler=relive.Uniform(over=over))
        starts = buffer.sample_sequences(20_000, 10, pad="none").handles
        assert fits((starts < 20).tolist(), {True: share, False: 1 - share})


def test_sequences_of_interleaved_lanes_never_mix() -> None:
    """TorchRL mixes environments in every slice of a one-dimensional storage."""
    buffer = relive.ReplayBuffer(24, NUMBER, ACTION, device="cpu", n_envs=3, seed=0)
    rng, count = np.random.default_rng(0), np.zeros(3, int)
    for _ in range(60):
        mask = rng.random(3) < 0.6
        obs = (count + np.array([0, 1000, 2000]))[:, None]
        buffer.add(obs, obs + 1, [0] * 3, [0.0] * 3, rng.random(3) < 0.1, mask=mask)
        count += mask
    for cross in (False, True):
        for row in numbers(buffer.sample_sequences(300, 5, cross_episodes=cross)):
            assert row == list(range(row[0], row[0] + len(row)))


def test_the_state_of_the_first_step_comes_along() -> None:
    buffer = replay(8, fields={"hidden": ((2,), np.float32)}, seed=0)
    for t in range(8):
        hidden = np.array([[t, -t]], np.float32)
        buffer.add([[t]], [[t + 1]], [0], [0.0], [t == 4], extras={"hidden": hidden})
    batch = buffer.sample_sequences(50, 3, states=("hidden",))
    assert batch.states["hidden"].tolist() == [[handle, -handle] for handle in batch.handles.tolist()]


def test_every_step_of_a_sequence_is_an_n_step_one() -> None:
    """Its window may look beyond the sequence, never over an end."""
    buffer = episodes(10, [4], n_steps=3, gamma=0.5)
    batch = buffer.sample_sequences(200, 2, stride=10)
    assert batch.rewards[0, :, 0].tolist() == [0 + 0.5 * 1 + 0.25 * 2, 1 + 0.5 * 2 + 0.25 * 3]
    assert batch.next_observations[0, :, 0].tolist() == [3, 4]
    assert batch.dones[0, :, 0].tolist() == [0, 1]
    assert batch.discounts[0, :, 0].tolist() == [0.125, 0.125]


def test_lerobot_1173_a_window_looks_back_from_every_step_and_is_padded_at_the_front() -> None:
    """huggingface/lerobot PR 1173 and 2610: observation histories, where an episode's first steps have no full one."""
    buffer = episodes(10, [3, 2])
    batch = buffer.sample_sequences(500, 3, align="end", pad="start")
    rows = {
        int(handle): (observations[:, 0].int().tolist(), mask.int().tolist(), first.int().tolist())
        for handle, observations, mask, first in zip(
            batch.handles, batch.observations, batch.mask, batch.is_first, strict=True
        )
    }
    assert rows == {
        0: ([0, 0, 0], [0, 0, 1], [0, 0, 1]),
        1: ([0, 0, 1], [0, 1, 1], [0, 1, 0]),
        2: ([0, 1, 2], [1, 1, 1], [1, 0, 0]),
        3: ([0, 0, 3], [0, 0, 1], [0, 0, 1]),
        4: ([0, 3, 4], [0, 1, 1], [0, 1, 0]),
    }
    assert drawn(buffer, 3, align="end", pad="none") == {(0, 1, 2)}
    assert drawn(buffer, 3, align="end", cross_episodes=True) == {(0,), (0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4)}


def test_a_window_looks_back_to_the_oldest_step_held_and_no_further() -> None:
    buffer = episodes(4, [6], is_open=True)  # 2 to 5 are held, of an episode that began with 0
    assert drawn(buffer, 3, align="end") == {(2,), (2, 3), (2, 3, 4), (3, 4, 5)}
    assert not buffer.sample_sequences(50, 3, align="end").is_first.any()
    assert drawn(buffer, 3, align="end", pad="none") == {(2, 3, 4), (3, 4, 5)}


@pytest.mark.parametrize("sampler", [relive.Prioritized(alpha=1.0, eps=0.0), relive.RankPrioritized()])
def test_a_step_drops_out_of_draws_by_priority_when_the_steps_before_it_are_overwritten(sampler: Any) -> None:
    buffer = replay(6, sampler=sampler, seed=0)
    for t in range(20):
        step(buffer, t, t + 1, terminated=t == 9)
        if not buffer.count_sequences(3, align="end", pad="none"):
            continue
        batch = buffer.sample_sequences(200, 3, align="end", pad="none")
        oldest, begin = max(t - 5, 0), 10 if t > 9 else 0
        ends = [end for end in range(oldest + 2, t + 1) if end - 2 >= begin or end <= 9]
        assert set(batch.handles.tolist()) == set(ends)
        assert batch.mask.all()


def test_a_sequence_that_looks_back_has_the_priority_of_its_last_step() -> None:
    buffer = episodes(10, [5], sampler=relive.Prioritized(alpha=1.0, eps=0.0))
    buffer.update_priorities(buffer.handles(), [0, 0, 0, 1, 3])
    batch = buffer.sample_sequences(4000, 4, align="end")
    assert fits(batch.handles.tolist(), {3: 0.25, 4: 0.75})
    buffer.update_priorities(batch.handles[:1], td_errors=np.full((1, 4), 9.0), mask=batch.mask[:1])
    assert buffer.priorities(batch.handles[:1]).tolist() == [9.0]


def test_whole_sequences_are_the_same_from_either_side() -> None:
    buffer = episodes(30, [11, 6, 3])
    for stride in (1, 2, 3, 4):
        whole = {"stride": stride, "pad": "none"}
        assert drawn(buffer, 4, align="end", **whole) == drawn(buffer, 4, align="start", **whole)


def test_looking_back_over_ends_an_episode_counts_where_a_whole_sequence_ends_in_it() -> None:
    buffer = episodes(10, [1, 1, 1, 2, 3], sampler=relive.Uniform(over="episodes"))
    batch = buffer.sample_sequences(4000, 4, align="end", pad="none", cross_episodes=True)
    assert fits(batch.handles.tolist(), {3: 1 / 4, 4: 1 / 4, 5: 1 / 6, 6: 1 / 6, 7: 1 / 6})
