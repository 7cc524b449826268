"""Spaces, shapes, dtypes: cases of public reports, which each test names."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from tests.cases.chains import ACTION, NUMBER


def add(buffer: relive.ReplayBuffer, obs: Any, action: Any) -> None:
    n_envs = buffer.n_envs
    buffer.add(obs, obs, action, np.zeros(n_envs), np.zeros(n_envs, bool), [{}] * n_envs)


def add_to_rollout(buffer: relive.RolloutBuffer, obs: Any, action: Any) -> None:
    n_envs = buffer.n_envs
    buffer.add(obs, action, np.zeros(n_envs), np.zeros(n_envs), torch.zeros(n_envs), torch.zeros(n_envs))


def test_H01_images_of_a_dict_keep_their_dtype_and_are_held_once() -> None:
    """DLR-RM/stable-baselines3#40, #484, #720, google/dopamine#57, thu-ml/tianshou#65.

    The 14,112,000 bytes that were expected there are two copies of each image; one is all that is needed.
    """
    space = spaces.Dict({"img": spaces.Box(0, 255, (84, 84), np.uint8), "v": spaces.Box(-1, 1, (3,), np.float32)})
    buffer = relive.DictReplayBuffer(1000, space, ACTION, device="cpu")
    assert buffer.observations["img"].nbytes == 14_112_000 // 2
    obs = {"img": np.full((1, 84, 84), 200, np.uint8), "v": np.full((1, 3), 0.5, np.float32)}
    for _ in range(1000):
        add(buffer, obs, np.zeros(1, int))
    assert buffer.nbytes.touched < 14_112_000 * 0.52
    batch = buffer.sample(2)
    for part in (batch.observations, batch.next_observations):
        assert {key: tensor.dtype for key, tensor in part.items()} == {"img": torch.uint8, "v": torch.float32}
        assert part["img"].unique().tolist() == [200]


def test_H02_float64_actions_are_drawn_as_float32_and_observations_as_their_space() -> None:
    """DLR-RM/stable-baselines3#675, #1145, PR #1572."""
    box = spaces.Box(-1, 1, (2,), np.float64)
    buffer = relive.ReplayBuffer(4, box, box, device="cpu")
    add(buffer, np.full((1, 2), 0.1), np.full((1, 2), 0.1))
    batch = buffer.sample(1)
    assert batch.actions.dtype == torch.float32
    assert batch.actions.tolist() == [[float(np.float32(0.1))] * 2]
    assert batch.observations.dtype == batch.next_observations.dtype == torch.float64
    assert batch.observations.tolist() == [[0.1, 0.1]]


def test_H02_dtypes_says_otherwise() -> None:
    """DLR-RM/stable-baselines3#675, #1145, PR #1572."""
    box = spaces.Box(-1, 1, (2,), np.float64)
    buffer = relive.ReplayBuffer(4, box, box, device="cpu", dtypes={"observation": np.float16})
    add(buffer, np.full((1, 2), 0.5), np.full((1, 2), 0.1))
    assert buffer.sample(1).observations.dtype == torch.float16


def test_H03_large_ids_are_not_rounded() -> None:
    """PufferAI/PufferLib PR #616."""
    ids, action = spaces.Discrete(2**25), np.array([16_777_217])
    replay = relive.ReplayBuffer(4, NUMBER, ids, device="cpu")
    add(replay, np.zeros((1, 1), np.float32), action)
    assert int(replay.sample(1).actions.item()) == 16_777_217
    rollout = relive.RolloutBuffer(1, NUMBER, ids, device="cpu")
    add_to_rollout(rollout, np.zeros((1, 1), np.float32), action)
    assert int(rollout.actions.item()) == 16_777_217
    assert int(next(iter(rollout.get())).actions.item()) == 16_777_217


BY_ENV = {"plain": NUMBER, "dict": spaces.Dict({"x": NUMBER})}


@pytest.mark.parametrize("kind", BY_ENV)
def test_H04_actions_of_more_than_one_axis_stay_with_their_environment(kind: str) -> None:
    """DLR-RM/stable-baselines3#970, #1392, #2207."""
    box, action = spaces.Box(-20, 20, (2, 3), np.float32), np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    number = np.array([[0.0], [1.0]], np.float32)
    obs = {"x": number} if kind == "dict" else number
    replay_class = relive.DictReplayBuffer if kind == "dict" else relive.ReplayBuffer
    replay = replay_class(8, BY_ENV[kind], box, device="cpu", n_envs=2)
    add(replay, obs, action)
    assert replay.actions[0].tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    rollout_class = relive.DictRolloutBuffer if kind == "dict" else relive.RolloutBuffer
    rollout = rollout_class(1, BY_ENV[kind], box, device="cpu", n_envs=2)
    add_to_rollout(rollout, obs, action)
    for batch in (replay.sample(16), next(iter(rollout.get()))):
        env = (batch.observations["x"] if kind == "dict" else batch.observations)[:, :1]
        assert batch.actions.shape == (len(env), 6)
        assert torch.equal(batch.actions, torch.arange(6.0) + 6 * env)


@pytest.mark.parametrize("as_observation", [False, True])
def test_H04_two_dimensional_multidiscrete_keeps_all_four_numbers(as_observation: bool) -> None:
    """DLR-RM/stable-baselines3#970, #1392, #2207."""
    grid = spaces.MultiDiscrete([[3, 3], [3, 3]])
    value = np.array([[[0, 1], [2, 0]]])
    if as_observation:
        buffer = relive.ReplayBuffer(4, grid, ACTION, device="cpu")
        add(buffer, value, np.zeros(1, int))
        assert buffer.obs_shape == (2, 2)
        assert buffer.sample(1).observations.tolist() == value.tolist()
    else:
        buffer = relive.ReplayBuffer(4, NUMBER, grid, device="cpu")
        add(buffer, np.zeros((1, 1), np.float32), value)
        assert buffer.action_dim == 4
        assert buffer.sample(1).actions.tolist() == [[0, 1, 2, 0]]


def test_H05_discrete_observations_of_several_environments() -> None:
    """DLR-RM/stable-baselines3#295, PR #296."""
    buffer = relive.ReplayBuffer(8, spaces.Discrete(10), ACTION, device="cpu", n_envs=4)
    add(buffer, np.array([3, 7, 1, 0]), np.zeros(4, int))
    assert buffer.observations[0].tolist() == [[3], [7], [1], [0]]
    batch = buffer.sample(5)
    assert batch.observations.shape == (5, 1)
    assert batch.observations.dtype == torch.int64


@pytest.mark.parametrize(
    ("space", "width"),
    [(spaces.MultiDiscrete([3, 3]), 2), (spaces.Discrete(3), 1), (spaces.Box(-1, 1, (1, 4)), 4)],
    ids=["MultiDiscrete", "Discrete", "Box"],
)
def test_H06_the_width_of_an_action_is_that_of_its_numbers(space: spaces.Space, width: int) -> None:
    """DLR-RM/stable-baselines3#609, rlworkgroup/garage PR #356, Eclectic-Sheep/sheeprl#278."""
    buffer = relive.ReplayBuffer(4, NUMBER, space, device="cpu")
    assert buffer.action_dim == width
    assert buffer.actions.shape == (4, 1, width)
    assert relive.RolloutBuffer(4, NUMBER, space, device="cpu").actions.shape == (4, 1, width)


def test_H07_a_nested_space_comes_back_as_the_same_tree() -> None:
    """DLR-RM/stable-baselines3#1003, Farama-Foundation/Minari PR #77."""
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Box(-9, 9, (2,))}), "t": spaces.Tuple((NUMBER, ACTION))})
    obs = {"a": {"b": [[1.0, 2.0]]}, "t": ([[3.0]], [1])}
    for kind in (relive.ReplayBuffer, relive.DictReplayBuffer):
        buffer = kind(4, space, ACTION, device="cpu")
        add(buffer, obs, [0])
        drawn = buffer.sample(1).next_observations
        assert drawn["a"]["b"].tolist() == [[1, 2]]
        assert isinstance(drawn["t"], tuple)
        assert [part.tolist() for part in drawn["t"]] == [[[3]], [[1]]]


def test_H07_what_cannot_be_stored_is_named_with_its_key() -> None:
    """DLR-RM/stable-baselines3#1003, Farama-Foundation/Minari PR #77."""
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Text(5)})})
    with pytest.raises(NotImplementedError, match=r"observation/a/b: Text"):
        relive.ReplayBuffer(4, space, ACTION, device="cpu")


def test_H08_only_the_leading_axes_are_merged() -> None:
    """EdanToledo/Stoix#116."""
    space = spaces.Box(-np.inf, np.inf, (4, 2), np.float32)
    obs = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 4, 2)
    zeros = np.zeros((2, 3), np.float32)
    replay = relive.ReplayBuffer(6, space, ACTION, device="cpu", n_envs=3)
    replay.extend(obs, obs, zeros.astype(int), zeros, zeros)
    rollout = relive.RolloutBuffer(2, space, ACTION, device="cpu", n_envs=3)
    for step in obs:
        add_to_rollout(rollout, step, np.zeros(3, int))
    expected = {item.tobytes() for item in obs.reshape(6, 4, 2)}
    for items in (replay.transitions(replay.handles()).observations, next(iter(rollout.get())).observations):
        assert items.shape == (6, 4, 2)
        assert {item.numpy().tobytes() for item in items} == expected
