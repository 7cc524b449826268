"""What a draw from Stable-Baselines3's buffer and the same one from relive's must share, and what both are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as seed

import relive
from tests import zoo

ROWS = 5
# Of a Box of shape () the seed draws no batch from a replay buffer, and one with an axis too many from a rollout.
NOT_OF_THE_SEED = ("box-scalar", "multidiscrete-2d", "nested", "tuple")
SEED_SPACES = {name: space for name, space in zoo.OBSERVATION_SPACES.items() if name not in NOT_OF_THE_SEED}
FILLS = {
    "one step": 1,
    "before full": ROWS - 1,
    "exactly full": ROWS,
    "wrapped": ROWS + 3,
    "wrapped twice": 2 * ROWS + 2,
}

OBS, ACT, FLAGS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2]), np.zeros(2, bool)
INFOS = [{}, {"TimeLimit.truncated": True}]


def assert_same(got: Any, expected: Any, what: str = "") -> None:
    """The same nesting, dtypes, shapes and bits."""
    if expected is None:
        assert got is None, what
    elif isinstance(expected, dict):
        assert list(got) == list(expected), what
        for key in expected:
            assert_same(got[key], expected[key], f"{what}[{key!r}]")
    elif isinstance(expected, tuple):
        assert got._fields == expected._fields, what
        for name in expected._fields:
            assert_same(getattr(got, name), getattr(expected, name), f"{what}.{name}")
    else:
        if isinstance(expected, torch.Tensor):
            assert isinstance(got, torch.Tensor), what
            assert got.device == expected.device, what
        got, expected = np.asarray(got), np.asarray(expected)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), what
        assert got.tobytes() == expected.tobytes(), f"{what}: {got} instead of {expected}"


def assert_same_draws(ours: Any, theirs: Any, draw: Callable[[Any], Any]) -> None:
    """``draw`` gives the same from both, and leaves the same state of the global generator."""
    before = np.random.get_state()
    expected = draw(theirs)
    left = np.random.get_state()
    np.random.set_state(before)
    got = draw(ours)
    assert_same(got, expected, "batch")
    for ours_part, theirs_part in zip(np.random.get_state(), left, strict=True):
        assert np.array_equal(ours_part, theirs_part)


def assert_same_replay_arrays(ours: Any, theirs: Any) -> None:
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    assert (ours.buffer_size, ours.obs_shape, ours.action_dim) == (
        theirs.buffer_size,
        theirs.obs_shape,
        theirs.action_dim,
    )
    held = slice(theirs.size())
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        got, expected = getattr(ours, name), getattr(theirs, name)
        if isinstance(expected, dict):
            assert list(got) == list(expected)
            for key in expected:
                assert got[key].shape == expected[key].shape
                assert_same(got[key][held], expected[key][held], f"{name}[{key!r}]")
        else:
            assert got.shape == expected.shape
            assert_same(got[held], expected[held], name)


def replay_pair(space: spaces.Space, action_space: spaces.Space, n_envs: int, **options: Any) -> tuple[Any, Any]:
    name = "DictReplayBuffer" if isinstance(space, spaces.Dict) else "ReplayBuffer"
    arguments = (ROWS * n_envs + n_envs - 1, space, action_space)
    theirs_options = {key: value for key, value in options.items() if key != "validate"}
    return (
        getattr(relive, name)(*arguments, device="cpu", n_envs=n_envs, **options),
        getattr(seed, name)(*arguments, device="cpu", n_envs=n_envs, **theirs_options),
    )


def life(space: spaces.Space, action_space: spaces.Space, n_envs: int, steps: int) -> Iterator[tuple[Any, ...]]:
    """Steps as an off-policy algorithm adds them: mostly contiguous, new observations after ends."""
    rng = np.random.default_rng(steps + 100 * n_envs)
    observation = zoo.values(rng, space, (n_envs,))
    for _ in range(steps):
        following = zoo.values(rng, space, (n_envs,))
        done, cut = rng.random((2, n_envs)) < 0.4
        infos = [{"TimeLimit.truncated": bool(flag)} if ends else {} for flag, ends in zip(cut, done, strict=True)]
        action, reward = zoo.values(rng, action_space, (n_envs,)), rng.standard_normal(n_envs)
        yield observation, following, action, reward, done, infos
        reset = zoo.values(rng, space, (n_envs,))
        parts = [
            np.where(done.reshape(n_envs, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(zoo.leaves(space, reset), zoo.leaves(space, following), strict=True)
        ]
        observation = zoo.nest(space, parts)


def copied(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """The seed writes into the dicts it is given."""
    return tuple(dict(part) if isinstance(part, dict) else part for part in step)


def both(pair: tuple[Any, Any], steps: Iterator[tuple[Any, ...]]) -> None:
    for step in steps:
        for buffer in pair:
            buffer.add(*copied(step))


def rollout_pair(space: spaces.Space, action_space: spaces.Space, n_envs: int, **options: Any) -> tuple[Any, Any]:
    name = "DictRolloutBuffer" if isinstance(space, spaces.Dict) else "RolloutBuffer"
    theirs_options = {key: value for key, value in options.items() if key != "validate"}
    return (
        getattr(relive, name)(ROWS, space, action_space, device="cpu", n_envs=n_envs, **options),
        getattr(seed, name)(ROWS, space, action_space, device="cpu", n_envs=n_envs, **theirs_options),
    )
