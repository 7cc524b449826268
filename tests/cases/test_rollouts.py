"""Rollouts and generalised advantage estimation: cases of public reports, which each test names."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from tests.cases.chains import advantages, rollout


def fill(buffer: relive.RolloutBuffer, rewards: list[float], values: list[float], starts: list[bool]) -> None:
    """Steps of one environment in the seed's form."""
    for t, (reward, value, start) in enumerate(zip(rewards, values, starts, strict=True)):
        buffer.add([t], 0, reward, start, torch.tensor([float(value)]), torch.zeros(1))


def test_D01_the_end_flag_of_a_step_stops_that_step() -> None:
    """DLR-RM/stable-baselines3#105, hill-a/stable-baselines#385, anthonytorlucci/rlevo#342."""
    buffer = rollout(3, gamma=1, gae_lambda=1)
    fill(buffer, [1, 1, 1], [0, 0, 0], [True, False, True])
    buffer.compute_returns_and_advantage(torch.tensor([10.0]), np.array([0.0]))
    assert buffer.advantages.flatten().tolist() == [2, 1, 11]


def test_D01_the_same_in_gymnasiums_words() -> None:
    """DLR-RM/stable-baselines3#105, hill-a/stable-baselines#385, anthonytorlucci/rlevo#342."""
    buffer = advantages([1, 1, 1], [0, 0, 0], 10, gamma=1, gae_lambda=1, ends={1: {"terminated": True}})
    assert buffer.advantages.flatten().tolist() == [2, 1, 11]


def test_D02_the_last_step_bootstraps_from_what_was_seen_after_it() -> None:
    """DLR-RM/stable-baselines3#183, PR #185."""
    buffer = rollout(1, gamma=0.5, gae_lambda=1)
    fill(buffer, [1], [5], [True])
    buffer.compute_returns_and_advantage(torch.tensor([7.0]), np.array([False]))
    assert buffer.advantages.item() == -0.5


def test_D03_all_steps_have_advantages() -> None:
    """PufferAI/PufferLib#363, PR #445."""
    buffer = rollout(4, gamma=1, gae_lambda=1)
    fill(buffer, [1] * 4, [0] * 4, [True, False, False, False])
    buffer.compute_returns_and_advantage(torch.tensor([0.0]), np.array([False]))
    assert buffer.advantages.flatten().tolist() == [4, 3, 2, 1]


def test_D05_a_minibatch_of_one_is_kept() -> None:
    """DLR-RM/stable-baselines3#325, #265, PR #1028, jolibrain/wheatley PR #93.

    Normalising advantages is the learner's affair here; what the buffer owes are minibatches of 4 and 1.
    """
    buffer = rollout(5)
    fill(buffer, [0] * 5, [0] * 5, [False] * 5)
    batches = list(buffer.get(4))
    assert [len(batch.advantages) for batch in batches] == [4, 1]
    assert torch.isfinite(batches[1].advantages).all()
    assert batches[1].advantages.shape == (1,)


def test_D06_every_row_once_per_epoch_in_another_order() -> None:
    """Toni-SM/skrl#458, #311."""
    buffer = rollout(11, seed=0)
    fill(buffer, [0] * 11, [0] * 11, [False] * 11)
    epochs = [[batch.observations.flatten().tolist() for batch in buffer.get(3)] for _ in range(2)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [3, 3, 3, 2]
        assert sorted(chain.from_iterable(epoch)) == list(range(11))
    assert epochs[0] != epochs[1]


def test_D07_a_nan_reward_is_refused_at_add_with_its_place() -> None:
    """anthonytorlucci/rlevo#1042."""
    buffer = rollout(6, n_envs=2)
    for t in range(6):
        reward = np.array([0.0, np.nan if t == 3 else 0.0])
        step = ([[t], [t]], [0, 0], reward, [False, False], torch.zeros(2), torch.zeros(2))
        if t == 3:
            with pytest.raises(relive.errors.NaNRewardError, match="environment 1"):
                buffer.add(*step)
            break
        buffer.add(*step)
    assert buffer.pos == 3


def test_D07_extend_names_step_and_environment() -> None:
    """anthonytorlucci/rlevo#1042."""
    buffer = relive.ReplayBuffer(20, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), device="cpu", n_envs=2)
    rewards = np.zeros((6, 2))
    rewards[3, 1] = np.nan
    obs = np.zeros((6, 2, 1), np.float32)
    with pytest.raises(relive.errors.NaNRewardError, match="step 3, environment 1"):
        buffer.extend(obs, obs, np.zeros((6, 2), int), rewards, np.zeros((6, 2)))
    assert len(buffer) == 0


def test_D07_let_in_it_spoils_only_what_came_before() -> None:
    """anthonytorlucci/rlevo#1042."""
    buffer = rollout(6, validate="seed")
    fill(buffer, [0, 0, 0, np.nan, 0, 0], [0] * 6, [True] + [False] * 5)
    buffer.compute_returns_and_advantage(torch.zeros(1), np.array([False]))
    assert np.isnan(buffer.advantages.flatten()).tolist() == [True] * 4 + [False] * 2


def test_D08_the_value_of_a_padded_slot_counts_nowhere() -> None:
    """alibaba/ROLL PR #447."""
    ends = {1: {"terminated": True}, 2: {"mask": np.array([False])}}
    buffer = advantages([0, 2, 0], [0, 1, 40], 99, gamma=1, gae_lambda=0.5, ends=ends)
    assert buffer.advantages.flatten().tolist() == [1.5, 1, 0]


def test_D09_the_value_after_a_terminal_step_counts_nothing() -> None:
    """thu-ml/tianshou#869."""
    ends = {2: {"terminated": True}}
    buffer = advantages([1, 1, 1], [3, 3, 3], 3, gamma=0.9, gae_lambda=1, ends=ends)
    assert buffer.advantages.flatten().tolist() == pytest.approx([-0.29, -1.1, -2], abs=1e-6)


def test_D10_images_keep_their_dtype() -> None:
    """DLR-RM/stable-baselines3#2162."""
    images = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = relive.RolloutBuffer(128, images, spaces.Discrete(4), device="cpu", n_envs=8)
    assert buffer.observations.nbytes == 28_901_376
    image = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84)).astype(np.uint8)
    buffer.add(image, np.zeros(8, int), np.zeros(8), np.zeros(8), torch.zeros(8), torch.zeros(8))
    assert np.array_equal(buffer.observations[0], image)
    batch = next(iter(buffer.get(partial=True)))
    assert batch.observations.dtype == torch.uint8
    assert {part.numpy().tobytes() for part in batch.observations} == {part.tobytes() for part in image}


# Starts that contradict ends ------------------------------------------------------------------------------------


def starts_at_row_three(validate: Any, before: dict[str, Any], **more: Any) -> relive.RolloutBuffer:
    """Rewards 1, 1, 100 with a start at the third row, where ``before`` says how the second step ended."""
    buffer = rollout(3, gamma=1, gae_lambda=1, validate=validate)
    for t, reward in enumerate([1.0, 1.0, 100.0]):
        ends = {"terminated": False} | (before if t == 1 else {}) | (more if t == 2 else {})
        buffer.add([float(t)], 0, reward, t in (0, 2), [0.0], [0.0], **ends)
    buffer.compute_returns_and_advantage([0.0])
    return buffer


def test_sb3_1731_a_start_after_a_step_that_did_not_end_is_refused() -> None:
    """Also DLR-RM/stable-baselines3#1961: advantages would flow over the reset."""
    buffer = rollout(3, n_envs=3, gamma=1)
    zeros = np.zeros(3)
    step = ([[0.0]] * 3, zeros, zeros, zeros, zeros, zeros)
    buffer.add(*step[:3], [1, 1, 1], *step[4:], terminated=zeros)
    buffer.add(*step, terminated=zeros, truncated=[0, 1, 0], final_value=zeros)
    with pytest.raises(ValueError, match=r"step 2 of environments \[0, 2\].*rows \[1, 1\].*truncated=True") as caught:
        buffer.add(*step[:3], [1, 1, 1], *step[4:], terminated=zeros)
    assert isinstance(caught.value, relive.errors.EpisodeStartError)
    assert buffer.pos == 2
    buffer.add(*step[:3], [0, 1, 0], *step[4:], terminated=zeros)
    buffer.compute_returns_and_advantage(zeros)


def test_sb3_1731_for_the_seed_such_a_start_ends_the_step_before() -> None:
    assert starts_at_row_three("seed", {}).advantages.flatten().tolist() == [2, 1, 100]


@pytest.mark.parametrize("validate", ["strict", "seed"])
def test_a_start_after_an_end_is_no_contradiction(validate: str) -> None:
    assert starts_at_row_three(validate, {"terminated": True}).advantages.flatten().tolist() == [2, 1, 100]
    cut = starts_at_row_three(validate, {"truncated": True, "final_value": [5.0]})
    assert cut.advantages.flatten().tolist() == [7, 6, 100]


@pytest.mark.parametrize("starts", [(1,), (2,), (1, 2), ()], ids=str)
def test_under_next_step_autoreset_a_start_may_be_said_of_either_row_or_of_none(starts: tuple[int, ...]) -> None:
    buffer = rollout(3, gamma=1, gae_lambda=1)
    for t, reward in enumerate([1.0, 50.0, 100.0]):
        real = np.array([t != 1])
        buffer.add([float(t)], 0, reward, t in starts, [0.0], [0.0], terminated=t == 0, mask=real)
    buffer.compute_returns_and_advantage([0.0])
    assert buffer.advantages.flatten().tolist() == [1, 0, 100]


def test_the_step_before_is_the_newest_that_is_one() -> None:
    """A row that is no step neither begins an episode nor ends one."""
    buffer = rollout(6)
    real, out = np.array([True]), np.array([False])
    buffer.add([0.0], 0, 0.0, True, [0.0], [0.0], terminated=[True], mask=out)
    buffer.add([0.0], 0, 0.0, True, [0.0], [0.0], terminated=[False], mask=real)  # the first: nothing is before it
    buffer.add([0.0], 0, 0.0, True, [0.0], [0.0], terminated=[True], mask=out)
    with pytest.raises(relive.errors.EpisodeStartError, match=r"environments \[0\].*rows \[1\]"):
        buffer.add([0.0], 0, 0.0, True, [0.0], [0.0], terminated=[False], mask=real)
    assert buffer.pos == 3
    buffer.reset()
    buffer.add([0.0], 0, 0.0, True, [0.0], [0.0], terminated=[False])  # of a new rollout the first row may be a start
    assert buffer.pos == 1
