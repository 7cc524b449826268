"""What a rollout buffer adds to the seed's contract."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive import errors
from tests.reference.gae import gae_of_ends

BOX, DISCRETE = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(3)


def rollout(steps: int = 4, n_envs: int = 2, **options: Any) -> relive.RolloutBuffer:
    return relive.RolloutBuffer(steps, BOX, DISCRETE, device="cpu", n_envs=n_envs, **options)


def add(buffer: relive.RolloutBuffer, t: float = 0, **words: Any) -> None:
    n_envs = buffer.n_envs
    numbers = np.full(n_envs, t, np.float32)
    buffer.add(np.full((n_envs, 2), t), np.zeros(n_envs, int), numbers, numbers * 0, numbers + 1, numbers - 1, **words)


def test_a_full_rollout_takes_no_more() -> None:
    buffer = rollout(2)
    add(buffer)
    assert not buffer.full
    add(buffer)
    assert (buffer.full, buffer.pos, buffer.size()) == (True, 2, 2)
    with pytest.raises(IndexError, match=r"full rollout: it holds 2 steps.*reset") as caught:
        add(buffer)
    assert isinstance(caught.value, errors.RolloutFullError)


def test_minibatches_of_a_rollout_that_is_not_full_are_refused_at_the_call() -> None:
    buffer = rollout(3)
    with pytest.raises(AssertionError, match="empty rollout"):
        buffer.get()
    with pytest.raises(errors.RolloutNotFullError, match="empty rollout"):
        buffer.get(partial=True)
    add(buffer)
    with pytest.raises(errors.RolloutNotFullError, match=r"1 steps per environment, expected 3.*partial=True"):
        buffer.get(4)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_one_is_refused(batch_size: int) -> None:
    buffer = rollout(1)
    add(buffer)
    with pytest.raises(ValueError, match="batch_size"):
        buffer.get(batch_size)


def test_a_part_of_a_rollout_is_drawn_on_request() -> None:
    buffer = rollout(5, gamma=0.5, gae_lambda=1)
    for t in range(3):
        add(buffer, t)
    buffer.compute_returns_and_advantage(torch.ones(2), np.zeros(2))
    batches = list(buffer.get(4, partial=True))
    assert [len(batch.returns) for batch in batches] == [4, 2]
    drawn = torch.cat([batch.observations[:, 0] for batch in batches])
    assert sorted(drawn.tolist()) == [0, 0, 1, 1, 2, 2]
    assert buffer.returns[:, 0].tolist() == [1.125, 2.25, 2.5, 0, 0]
    for batch in batches:
        assert torch.equal(batch.old_values, batch.observations[:, 0] + 1)


def test_reset_uses_memory_again_and_zeroes_it() -> None:
    buffer = rollout()
    add(buffer, 3)
    names = ("observations", "actions", "rewards", "returns", "episode_starts", "values", "log_probs", "advantages")
    arrays = {name: getattr(buffer, name) for name in names}
    buffer.reset()
    for name, array in arrays.items():
        assert getattr(buffer, name) is array
        assert not array.any()
    assert (buffer.pos, buffer.full) == (0, False)


def test_reset_follows_changed_sizes() -> None:
    buffer = rollout(4, 2)
    buffer.buffer_size, buffer.n_envs = 3, 5
    buffer.reset()
    assert buffer.observations.shape == (3, 5, 2)
    assert buffer.actions.shape == (3, 5, 1)
    for _ in range(3):
        add(buffer)
    buffer.compute_returns_and_advantage(torch.zeros(5), np.zeros(5))
    assert len(next(iter(buffer.get())).returns) == 15


def test_reset_replaces_an_array_that_was_swapped_for_another() -> None:
    buffer = rollout()
    buffer.rewards = np.ones((4, 2))
    buffer.values = torch.ones(4, 2)
    buffer.reset()
    assert buffer.rewards.dtype == buffer.values.dtype == np.float32
    assert not buffer.values.any()


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_copies_are_whole(way: str) -> None:
    buffer = rollout(4, 2, seed=3)
    for t in range(3):
        add(buffer, t, terminated=[t == 1, False])
    twin = pickle.loads(pickle.dumps(buffer)) if way == "pickle" else copy.deepcopy(buffer)
    for one in (buffer, twin):
        add(one, 3, terminated=[False, False])
        one.compute_returns_and_advantage(torch.ones(2))
    assert np.array_equal(twin.advantages, buffer.advantages)
    for ours, theirs in zip(twin.get(3), buffer.get(3), strict=True):
        assert torch.equal(ours.observations, theirs.observations)


# Ends with their final values ----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    gae_lambda=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_advantages_with_ends_and_final_values(seed: int, steps: int, envs: int, gae_lambda: float) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, finals = rng.standard_normal((3, steps, envs)).astype(np.float32)
    last = rng.standard_normal(envs).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < 0.3
    buffer = rollout(steps, envs, gamma=0.9, gae_lambda=gae_lambda)
    for t in range(steps):
        buffer.add(
            np.zeros((envs, 2)), np.zeros(envs, int), rewards[t], np.zeros(envs), values[t], values[t],
            terminated=terminated[t], truncated=truncated[t], final_value=finals[t],
        )  # fmt: skip
    buffer.compute_returns_and_advantage(torch.from_numpy(last))
    expected = gae_of_ends(rewards, values, terminated, truncated, finals, last, 0.9, gae_lambda)
    assert np.allclose(buffer.advantages, expected, atol=1e-5)
    assert np.allclose(buffer.returns, expected + values, atol=1e-5)
    assert np.array_equal(buffer.rewards, rewards)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 12), envs=st.integers(1, 4))
def test_advantages_under_next_step_autoreset(seed: int, steps: int, envs: int) -> None:
    """The row after each end is the reset row: masked out, and its value is that of the final observation."""
    rng = np.random.default_rng(seed)
    rewards, values = rng.standard_normal((2, steps, envs)).astype(np.float32)
    last = rng.standard_normal(envs).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < 0.4
    valid = np.ones((steps, envs), bool)
    for t in range(1, steps):
        valid[t] = ~(valid[t - 1] & (terminated[t - 1] | truncated[t - 1]))
    terminated &= valid
    truncated &= valid
    finals = np.concatenate([values[1:], last[None]])
    buffer = rollout(steps, envs, gamma=0.9, gae_lambda=0.8)
    for t in range(steps):
        buffer.add(
            np.full((envs, 2), t), np.zeros(envs, int), rewards[t], np.zeros(envs), values[t], values[t],
            terminated=terminated[t], truncated=truncated[t], mask=valid[t],
        )  # fmt: skip
    buffer.compute_returns_and_advantage(last)
    expected = gae_of_ends(rewards, values, terminated, truncated, finals, last, 0.9, 0.8, valid)
    assert np.allclose(buffer.advantages[valid], expected[valid], atol=1e-5)
    drawn = torch.cat([batch.observations[:, 0] for batch in buffer.get(3)])
    assert sorted(drawn.tolist()) == sorted(np.nonzero(valid)[0].tolist())


def test_a_truncated_step_without_final_value_is_refused_when_the_next_step_comes() -> None:
    buffer = rollout(4)
    add(buffer, 0, truncated=[False, True])
    with pytest.raises(errors.FinalValueError, match=r"step 0 of environment 1.*final_value.*mask"):
        add(buffer, 1, truncated=[False, False])
    assert buffer.pos == 1
    add(buffer, 1, truncated=[False, False], mask=np.array([True, False]))
    assert buffer.pos == 2


def test_a_final_value_is_read_only_where_truncated() -> None:
    buffer = rollout(2, gamma=1.0, gae_lambda=0.0)
    ends = {"terminated": [True, False], "truncated": [True, False]}
    add(buffer, 0, **ends, final_value=torch.tensor([[np.nan], [np.nan]]))
    add(buffer, 0, terminated=[False, False])
    buffer.compute_returns_and_advantage([5.0, 5.0])
    assert buffer.advantages.tolist() == [[-1, 0], [4, 4]]


def test_one_form_of_ends_for_a_whole_rollout() -> None:
    buffer = rollout(4)
    add(buffer, 0, terminated=[False, False])
    with pytest.raises(TypeError, match="one form"):
        add(buffer, 1)
    with pytest.raises(TypeError, match="final_value without truncated"):
        rollout().add(
            np.zeros((2, 2)), [0, 0], [0, 0], [0, 0], torch.zeros(2), torch.zeros(2), final_value=torch.zeros(2)
        )
    seed_form = rollout(1)
    add(seed_form)
    with pytest.raises(TypeError, match="dones"):
        seed_form.compute_returns_and_advantage(torch.zeros(2))


BAD: dict[str, tuple[int, Any, type[Exception], str]] = {
    "obs": (0, np.zeros((3, 2)), errors.ShapeError, r"obs has shape \(3, 2\), expected \(2, 2\)"),
    "action": (1, np.zeros((2, 2), int), errors.ShapeError, r"action has shape \(2, 2\), expected \(2, 1\)"),
    "reward": (2, [0.0], errors.ShapeError, r"reward has shape \(1,\), expected \(2,\)"),
    "NaN reward": (2, [0.0, np.nan], errors.NaNRewardError, "environment 1"),
    "episode_start": (3, [0.5, 0], errors.CastError, "episode_start has the value 0.5"),
    "value": (4, torch.zeros(3), errors.ShapeError, r"value has shape \(3,\), expected \(2,\)"),
    "log_prob": (5, torch.zeros(2, 1), errors.ShapeError, r"log_prob has shape \(2, 1\), expected \(2,\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_add_that_does_not_fit_changes_nothing(case: str) -> None:
    index, bad, kind, message = BAD[case]
    buffer = rollout()
    arguments: list[Any] = [np.ones((2, 2)), [1, 1], [1, 1], [1, 1], torch.ones(2), torch.ones(2)]
    arguments[index] = bad
    with pytest.raises(kind, match=message):
        buffer.add(*arguments)
    assert buffer.pos == 0
    assert not any(
        getattr(buffer, name).any() for name in ("observations", "actions", "rewards", "values", "log_probs")
    )


def test_writing_into_a_minibatch_leaves_the_rollout_alone() -> None:
    buffer = rollout(1)
    add(buffer, 2)
    for batch_size in (None, 1):
        for batch in buffer.get(batch_size):
            for field in batch:
                field += 5
    assert buffer.observations.tolist() == [[[2, 2], [2, 2]]]
    assert buffer.values.tolist() == [[3, 3]]


def test_a_rollout_says_how_much_it_holds() -> None:
    rollout = relive.RolloutBuffer(4, spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), device="cpu", n_envs=2)
    empty = rollout.nbytes
    rollout.add(np.zeros((2, 3)), np.zeros(2), np.ones(2), np.ones(2), np.zeros(2), np.zeros(2))
    assert (len(rollout), rollout.num_transitions, rollout.lane_sizes.tolist()) == (2, 2, [1, 1])
    # observation 12 bytes, action 8, and six numbers of 4 for each of 8 steps; a quarter of the rows is filled
    assert (rollout.nbytes, empty) == ((8 * 44, 2 * 44), (8 * 44, 0))
    assert bool(rollout), "a buffer is never false, whatever it holds"


def test_what_is_known_of_ends_and_masks_counts_as_memory() -> None:
    buffer = rollout(steps=4, n_envs=2)
    plain = buffer.nbytes.reserved
    add(buffer, terminated=np.zeros(2, bool), truncated=np.zeros(2, bool))
    assert buffer.nbytes.reserved == plain + 8 * (1 + 1 + 4)
    add(buffer, terminated=np.zeros(2, bool), truncated=np.zeros(2, bool), mask=np.array([True, False]))
    assert buffer.nbytes.reserved == plain + 8 * (1 + 1 + 4 + 1)


def test_rows_asked_for_by_hand_count_environment_by_environment() -> None:
    buffer = rollout(steps=4, n_envs=2)
    for t in range(4):
        add(buffer, t)
    buffer.values[:] = np.arange(8).reshape(4, 2)  # step t of environment e: 2 t + e
    assert buffer._get_samples(np.array([0, 3, 4, -1])).old_values.tolist() == [0, 6, 1, 7]
    with pytest.raises(IndexError):
        buffer._get_samples(np.array([8]))
