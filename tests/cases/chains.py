"""Small buffers over one-number observations, and what they hold, for the tables of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

import relive

NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)
ACTION = spaces.Discrete(2)


def replay(buffer_size: int, n_envs: int = 1, **options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(buffer_size, NUMBER, ACTION, device="cpu", n_envs=n_envs, **options)


def step(buffer: relive.ReplayBuffer, obs: float, next_obs: float, reward: float = 0.0, **ends: bool) -> None:
    """Adds ``obs`` → ``next_obs`` to a buffer of one environment."""
    buffer.add([obs], [next_obs], 0, reward, **({"terminated": False} | ends))


def pairs(batch: relive.ReplayBufferSamples) -> list[tuple[int, int]]:
    """(observation, next observation) of every row of a batch."""
    both = zip(batch.observations.flatten().tolist(), batch.next_observations.flatten().tolist(), strict=True)
    return [(int(obs), int(next_obs)) for obs, next_obs in both]


def held(buffer: relive.ReplayBuffer) -> list[tuple[int, int]]:
    """The same of everything that is held, environment by environment, oldest first."""
    return pairs(buffer.transitions(buffer.handles()))


def rollout(steps: int, n_envs: int = 1, **options: Any) -> relive.RolloutBuffer:
    return relive.RolloutBuffer(steps, NUMBER, ACTION, device="cpu", n_envs=n_envs, **options)


def advantages(
    rewards: list[float],
    values: list[float],
    value_after: float,
    *,
    gamma: float,
    gae_lambda: float,
    ends: dict[int, dict[str, Any]],
) -> relive.RolloutBuffer:
    """A rollout of one environment, whose steps ``ends`` names in Gymnasium's words, with advantages computed."""
    buffer = rollout(len(rewards), gamma=gamma, gae_lambda=gae_lambda)
    for t, (reward, value) in enumerate(zip(rewards, values, strict=True)):
        buffer.add([float(t)], 0, reward, t == 0, [value], [0.0], **({"terminated": False} | ends.get(t, {})))
    buffer.compute_returns_and_advantage([value_after])
    return buffer
