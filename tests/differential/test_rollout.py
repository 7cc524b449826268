"""With the same state of ``np.random``, rollouts of Stable-Baselines3 and of relive give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from tests import zoo
from tests.differential.compare import (
    ACT,
    FLAGS,
    OBS,
    ROWS,
    SEED_SPACES,
    assert_same,
    copied,
    rollout_pair,
)


def rollout(space: spaces.Space, action_space: spaces.Space, n_envs: int) -> tuple[list[tuple[Any, ...]], Any, NDArray]:
    rng = np.random.default_rng(n_envs)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    steps = [
        (
            zoo.values(rng, space, (n_envs,)),
            zoo.values(rng, action_space, (n_envs,)),
            rng.standard_normal(n_envs) * 10,
            rng.random(n_envs) < 0.3,
            tensor(n_envs, 1),
            tensor(n_envs),
        )
        for _ in range(ROWS)
    ]
    return steps, tensor(n_envs, 1), rng.random(n_envs) < 0.5


def fill(pair: tuple[Any, Any], space: spaces.Space, action_space: spaces.Space, n_envs: int) -> None:
    steps, last_values, dones = rollout(space, action_space, n_envs)
    for buffer in pair:
        for step in steps:
            buffer.add(*copied(step))
        buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)


NUMBERS = ("actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns")


def assert_same_rollout(ours: Any, theirs: Any) -> None:
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    assert_same(ours.observations, theirs.observations, "observations")
    for name in NUMBERS:
        assert_same(getattr(ours, name), getattr(theirs, name), name)


@pytest.mark.parametrize("action", zoo.ACTION_SPACES)
@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("observation", SEED_SPACES)
def test_rollout_minibatches_are_those_of_the_seed(observation: str, action: str, n_envs: int) -> None:
    space, action_space = SEED_SPACES[observation], zoo.ACTION_SPACES[action]
    ours, theirs = pair = rollout_pair(space, action_space, n_envs, gae_lambda=0.95)
    for _ in range(2):  # two rollouts in the same buffers
        fill(pair, space, action_space, n_envs)
        assert_same_rollout(*pair)
        kept = {name: getattr(ours, name).copy() for name in NUMBERS}
        np.random.seed(8)
        for batch_size in (None, 1, 3, ROWS * n_envs, 1000):  # every call is another epoch over the same rollout
            before = np.random.get_state()
            expected = list(theirs.get(batch_size))
            left = np.random.random(3)
            np.random.set_state(before)
            got = list(ours.get(batch_size))
            assert np.array_equal(np.random.random(3), left)
            assert len(got) == len(expected)
            for ours_batch, theirs_batch in zip(got, expected, strict=True):
                assert_same(ours_batch, theirs_batch, f"batch_size={batch_size}")
        for name, array in kept.items():
            assert_same(getattr(ours, name), array, f"{name} after get")
        for buffer in pair:
            buffer.reset()
        assert_same_rollout(*pair)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.9, 1), (1.0, 0.0), (0.37, 0.71)])
@pytest.mark.parametrize("n_envs", [1, 7])
def test_advantages_are_those_of_the_seed(kind: type, gamma: float, gae_lambda: float, n_envs: int) -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    for gamma_kind, lambda_kind in ((kind, kind), (float, kind), (kind, float)):
        pair = rollout_pair(space, action_space, n_envs, gamma=gamma_kind(gamma), gae_lambda=lambda_kind(gae_lambda))
        fill(pair, space, action_space, n_envs)
        assert_same_rollout(*pair)


def test_rewards_changed_in_place_count_when_advantages_are_computed_again() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    pair = rollout_pair(space, action_space, 3)
    fill(pair, space, action_space, 3)
    for buffer in pair:
        buffer.rewards += np.float32(0.3)
        buffer.rewards[2] = 7
        buffer.compute_returns_and_advantage(last_values=torch.ones(3), dones=np.array([1, 0, 1]))
    assert_same_rollout(*pair)


LENIENT_ROLLOUT_ADDS: dict[str, tuple[str, str, int, tuple[Any, ...]]] = {
    "values as (n_envs, 1)": ("box-f32", "discrete", 2, (OBS, ACT, FLAGS, FLAGS, torch.ones(2, 1), torch.ones(2))),
    "values in float64": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, FLAGS, FLAGS, torch.ones(2).double() / 3, torch.ones(2)),
    ),
    "a lone log-probability": (
        "box-f32",
        "discrete",
        1,
        (OBS[:1], ACT[:1], FLAGS[:1], FLAGS[:1], torch.ones(1), torch.tensor(0.5)),
    ),
    "a lone log-probability for two": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, FLAGS, FLAGS, torch.ones(2), torch.tensor(0.5)),
    ),
    "one value for two": ("box-f32", "discrete", 2, (OBS, ACT, FLAGS, FLAGS, torch.ones(1), torch.ones(2))),
    "scalar reward and start": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, np.array(0.5), True, torch.ones(2), torch.ones(2)),
    ),
    "observation without axis of environments": (
        "box-f32",
        "discrete",
        2,
        (OBS[0], ACT, FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "300 in uint8": (
        "box-u8",
        "discrete",
        2,
        (np.full((2, 2, 3), 300), ACT, FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "fractions in Discrete": (
        "discrete",
        "discrete",
        2,
        (np.array([2.7, 1.2]), np.array([[1.9], [0.2]]), FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "flat actions": ("box-f32", "box-2d", 2, (OBS, np.arange(12.0), FLAGS, FLAGS, torch.ones(2), torch.ones(2))),
    "NaN reward": ("box-f32", "discrete", 2, (OBS, ACT, [np.nan, 0], FLAGS, torch.ones(2), torch.ones(2))),
    "Dict with one row": (
        "dict",
        "discrete",
        2,
        (
            {"camera": np.uint8(3), "goal": np.array([1, 2]), "joints": OBS[0, :2]},
            ACT,
            FLAGS,
            FLAGS,
            torch.ones(2),
            torch.ones(2),
        ),
    ),
}


@pytest.mark.parametrize("case", LENIENT_ROLLOUT_ADDS)
def test_lenient_rollout_adds_broadcast_and_cast_as_the_seed(case: str) -> None:
    observation, action, n_envs, step = LENIENT_ROLLOUT_ADDS[case]
    pair = rollout_pair(SEED_SPACES[observation], zoo.ACTION_SPACES[action], n_envs, validate="seed")
    for buffer in pair:
        for _ in range(ROWS):
            buffer.add(*copied(step))
    assert_same_rollout(*pair)


def test_rollout_shuffling_follows_a_swapped_global_generator() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    ours, theirs = rollout_pair(space, action_space, 3)
    fill((ours, theirs), space, action_space, 3)
    np.random.set_bit_generator(np.random.PCG64(9))
    expected = list(theirs.get(4))
    np.random.set_bit_generator(np.random.PCG64(9))
    for got, wanted in zip(ours.get(4), expected, strict=True):
        assert_same(got, wanted)
