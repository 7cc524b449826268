"""Next observations and the mechanics of the ring: cases of public reports, which each test names."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

import relive
from tests.cases.chains import NUMBER, held, pairs, replay, rollout, step


def test_A02_a_ring_that_is_not_full_draws_only_what_was_added() -> None:
    """huggingface/lerobot PR #918."""
    buffer = replay(5)
    for t in (1, 2, 3):
        step(buffer, t, t + 1)
    assert set(pairs(buffer.sample(1000))) == {(1, 2), (2, 3), (3, 4)}


def test_A03_no_transition_leads_over_the_write_head() -> None:
    """DLR-RM/stable-baselines3#1503, PR #28."""
    buffer = replay(4)
    for t in range(6):
        step(buffer, t, t + 1)
    assert held(buffer) == [(2, 3), (3, 4), (4, 5), (5, 6)]  # nothing is lost for the observation stored once
    assert set(pairs(buffer.sample(1000))) == set(held(buffer))


def columns(numbers: list[int]) -> tuple[np.ndarray, ...]:
    """t → t + 1 for many t, as `extend` takes them for one environment."""
    obs = np.array(numbers, np.float32).reshape(-1, 1, 1)
    zeros = np.zeros((len(numbers), 1), np.float32)
    return obs, obs + 1, zeros.astype(np.int64), zeros, zeros


def test_A04_extending_past_the_end_is_full_no_sooner_than_it_is() -> None:
    """assume-framework/assume PR #855, osigaud/bbrl#7."""
    buffer = replay(5)
    buffer.extend(*columns([1, 2]))
    buffer.extend(*columns([3, 4]))
    assert (buffer.size(), buffer.full) == (4, False)
    assert set(pairs(buffer.sample(1000))) == {(1, 2), (2, 3), (3, 4), (4, 5)}
    buffer.extend(*columns([5, 6]))
    assert (buffer.size(), buffer.full, buffer.pos) == (5, True, 1)
    assert buffer.observations[:, 0, 0].tolist() == [6, 2, 3, 4, 5]


def test_A04_extending_by_more_than_the_ring_keeps_the_last() -> None:
    """assume-framework/assume PR #855, osigaud/bbrl#7."""
    buffer = replay(5)
    buffer.extend(*columns([1, 2, 3, 4, 5, 6, 7]))
    assert held(buffer) == [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    assert buffer.full


def test_A05_capacity_counts_steps_not_calls() -> None:
    """ray-project/ray#24393, PR #10957."""
    buffer = replay(10)
    t, most = 0, 0
    for count in [2] * 5 + [4] * 5:
        buffer.extend(*columns(list(range(t, t + count))))
        t += count
        most = max(most, len(buffer))
    assert most == 10
    assert [obs for obs, _ in held(buffer)] == list(range(20, 30))


@pytest.mark.parametrize(
    ("buffer_size", "n_envs", "rows"), [(10, 4, 2), (3, 4, 1)], ids=["10 for 4", "3 for 4: one row is the floor"]
)
def test_A06_buffer_size_is_shared_by_the_environments(buffer_size: int, n_envs: int, rows: int) -> None:
    """DLR-RM/stable-baselines3#567, #1885."""
    buffer = replay(buffer_size, n_envs)
    obs = np.zeros((n_envs, 1), np.float32)
    for added in range(1, rows + 1):
        buffer.add(obs, obs, np.zeros(n_envs, int), np.zeros(n_envs), np.zeros(n_envs, bool))
        assert buffer.full == (added == rows)
    assert buffer.observations.shape == (rows, n_envs, 1)
    assert len(buffer) == rows * n_envs


def test_A07_neither_what_was_added_nor_what_was_drawn_is_shared() -> None:
    """Farama-Foundation/SuperSuit PR #116, google-deepmind/dm_control#34, openai/baselines PR #418."""
    box = relive.ReplayBuffer(4, NUMBER, NUMBER, device="cpu")
    x, a = np.array([[1.0]], np.float32), np.array([[2.0]], np.float32)
    box.add(x, x, a, np.zeros(1), np.zeros(1, bool), [{}])
    x[0] = a[0] = 9
    batch = box.sample(1)
    assert (batch.observations.item(), batch.next_observations.item(), batch.actions.item()) == (1, 1, 2)
    for field in batch[:5]:
        field += 5
    stored = (box.observations, box.actions, box.rewards, box.dones)
    assert [float(array[0].item()) for array in stored] == [1, 2, 0, 0]
    assert held(box) == [(1, 1)]


def test_A08_each_transition_of_an_episode_is_held_once() -> None:
    """Shmuma/ptan#25."""
    buffer = replay(20)
    for _ in range(2):
        for t in range(4):
            step(buffer, t, t + 1, terminated=t == 3)
    assert held(buffer) == [(0, 1), (1, 2), (2, 3), (3, 4)] * 2


def test_A09_an_overwritten_step_is_nobodys_predecessor() -> None:
    """takuseno/d3rlpy#268."""
    buffer = replay(4)
    handles = []
    for obs, next_obs, ends in [(1, 2, 0), (2, 3, 0), (3, 4, 1), (11, 12, 0), (12, 13, 0), (13, 14, 1)]:
        step(buffer, obs, next_obs, terminated=bool(ends))
        handles.append(int(buffer.handles()[-1]))
    assert held(buffer) == [(3, 4), (11, 12), (12, 13), (13, 14)]
    assert buffer.held_handles(handles).tolist() == [False, False, True, True, True, True]
    assert buffer.transitions(buffer.handles()).dones.flatten().tolist() == [1, 0, 0, 1]


def test_A10_an_empty_buffer_says_so_and_one_item_is_drawn_four_times() -> None:
    """tensorforce/tensorforce#418, sfujim/BCQ#17."""
    buffer = replay(4)
    with pytest.raises(ValueError, match="empty ReplayBuffer: it holds 0 transitions, expected 1 or more"):
        buffer.sample(1)
    step(buffer, 1, 2)
    assert pairs(buffer.sample(4)) == [(1, 2)] * 4


def test_A11_a_batch_may_be_larger_than_the_content() -> None:
    """gbionics/amp-rsl-rl PR #14, rail-berkeley/rlkit PR #111, pytorch/rl#994, keiohta/tf2rl#76."""
    buffer = replay(10)
    for t in (1, 2, 3):
        step(buffer, t, t + 1)
    drawn = pairs(buffer.sample(8))
    assert len(drawn) == 8
    assert set(drawn) <= {(1, 2), (2, 3), (3, 4)}


def test_A11_one_pass_in_pairs_over_three_gives_two_and_one_and_stops() -> None:
    """gbionics/amp-rsl-rl PR #14, rail-berkeley/rlkit PR #111, pytorch/rl#994, keiohta/tf2rl#76.

    Of what relive has, only rollouts are drawn without replacement.
    """
    buffer = rollout(3)
    for t in range(3):
        buffer.add([t], 0, 0.0, False, torch.zeros(1), torch.zeros(1))
    batches = [batch.observations.flatten().tolist() for batch in buffer.get(2)]
    assert [len(batch) for batch in batches] == [2, 1]
    assert sorted(chain.from_iterable(batches)) == [0, 1, 2]


def test_A12_extending_by_nothing_changes_nothing() -> None:
    """thu-ml/tianshou PR #120."""
    buffer = replay(5)
    for t in (1, 2, 3):
        step(buffer, t, t + 1)
    buffer.extend(*columns([]))
    assert (buffer.pos, buffer.size()) == (3, 3)
    step(buffer, 4, 5)
    assert held(buffer) == [(1, 2), (2, 3), (3, 4), (4, 5)]


def test_A12_extending_by_nothing_is_legal_for_every_shape() -> None:
    """thu-ml/tianshou PR #120."""
    from gymnasium import spaces

    buffer = relive.ReplayBuffer(3, NUMBER, spaces.Box(-1, 1, (2, 3)), device="cpu", n_envs=2)
    nothing = np.zeros((0, 2), np.float32)
    buffer.extend(np.zeros((0, 2, 1)), np.zeros((0, 2, 1)), np.zeros((0, 2, 2, 3)), nothing, nothing)
    assert (len(buffer), buffer.pos) == (0, 0)
