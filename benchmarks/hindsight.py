"""Hindsight draws from a million steps of a robot that reaches for goals, in the shapes of Fetch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her import HerReplayBuffer

import relive
from benchmarks.measure import OURS, Measure, Timed, at_least
from benchmarks.peers import SB3, same_batches
from benchmarks.replay import BATCH, CAPACITY
from benchmarks.timing import Contender

_EPISODE = 50
_GOALS = 4
_Rows = NDArray[np.float32]

_SIZES = {"observation": 25, "achieved_goal": 3, "desired_goal": 3}
OBSERVATION = spaces.Dict({key: spaces.Box(-np.inf, np.inf, (size,), np.float32) for key, size in _SIZES.items()})
ACTION = spaces.Box(-1, 1, (4,), np.float32)


def measures() -> list[Measure]:
    """All of this file."""
    return [
        Timed(
            "hindsight",
            f"hindsight sample {BATCH} of 1M, {_GOALS} of {_GOALS + 1} relabelled with a future goal",
            _samplers,
            {SB3: at_least(20, 40)},
        )
    ]


def reward(achieved: _Rows, desired: _Rows, info: object) -> _Rows:
    """Fetch's sparse reward, of all rows at once."""
    far: _Rows = (np.linalg.norm(achieved - desired, axis=-1) > 0.05).astype(np.float32)
    return -far


class _Reach(gymnasium.Env[dict[str, Any], _Rows]):
    """Knows spaces and the reward: a buffer of Stable-Baselines3 asks its environment for both."""

    observation_space, action_space = OBSERVATION, ACTION

    def compute_reward(self, achieved: _Rows, desired: _Rows, info: object) -> _Rows:
        """The same function as relive calls."""
        return reward(achieved, desired, info)


def _samplers() -> list[Contender]:
    obs, next_obs, action, rewards, truncated = _episodes()
    ours = relive.ReplayBuffer(
        CAPACITY, OBSERVATION, ACTION, device="cpu", hindsight=relive.Hindsight(reward, n_sampled_goal=_GOALS)
    )
    ours.extend(obs, next_obs, action, rewards, terminated=np.zeros_like(truncated), truncated=truncated)

    theirs = HerReplayBuffer(CAPACITY, OBSERVATION, ACTION, DummyVecEnv([_Reach]), device="cpu", n_sampled_goal=_GOALS)
    # What a million calls of its `add` would leave behind.
    for key in OBSERVATION:
        theirs.observations[key][:], theirs.next_observations[key][:] = obs[key], next_obs[key]
    theirs.actions[:], theirs.rewards[:] = action, rewards
    theirs.dones[:] = theirs.timeouts[:] = truncated
    theirs.ep_start[:, 0] = np.arange(CAPACITY) // _EPISODE * _EPISODE
    theirs.ep_length[:] = _EPISODE
    theirs.full = True
    contenders = [Contender(OURS, lambda: ours.sample(BATCH)), Contender(SB3, lambda: theirs.sample(BATCH))]
    same_batches([contender.call for contender in contenders])
    return contenders


def _episodes() -> tuple[dict[str, _Rows], dict[str, _Rows], _Rows, _Rows, NDArray[np.bool_]]:
    """Steps of one environment whose episodes are 50 steps long and keep to one goal; truncated, as Fetch's are."""
    rng = np.random.default_rng(0)
    seen = (CAPACITY // _EPISODE, _EPISODE + 1, 1)
    arrays = {key: rng.standard_normal((*seen, size), np.float32) for key, size in _SIZES.items()}
    arrays["desired_goal"][:] = arrays["desired_goal"][:, :1]
    obs, next_obs = (
        {key: array[:, part].reshape(CAPACITY, 1, -1) for key, array in arrays.items()}
        for part in (slice(None, -1), slice(1, None))
    )
    action = rng.uniform(-1, 1, (CAPACITY, 1, *ACTION.shape)).astype(np.float32)
    truncated = (np.arange(CAPACITY) % _EPISODE == _EPISODE - 1)[:, None]
    return obs, next_obs, action, reward(next_obs["achieved_goal"], next_obs["desired_goal"], None), truncated
