"""The experience that all contenders store: random steps, each following on from the one before but at ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Task:
    """Spaces of an environment: a Box of observations, and a Box or Discrete of actions."""

    observation: spaces.Box
    action: spaces.Box | spaces.Discrete


#: MuJoCo's HalfCheetah.
VECTORS = Task(spaces.Box(-np.inf, np.inf, (17,), np.float32), spaces.Box(-1, 1, (6,), np.float32))
#: Atari with four stacked frames.
IMAGES = Task(spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6))


@dataclass(frozen=True)
class Steps:
    """Arrays ``(steps, n_envs, ...)``; ``next_obs[t]`` is ``obs[t + 1]`` unless an episode ended."""

    obs: Array
    next_obs: Array
    action: Array
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.obs)

    @property
    def done(self) -> NDArray[np.bool_]:
        """``(steps, n_envs)``: the episode ended, either way."""
        return self.terminated | self.truncated

    def infos(self) -> list[list[dict[str, Any]]]:
        """What vector environments say about time limits: a dict for every step and environment."""
        return [[{"TimeLimit.truncated": True} if flag else {} for flag in row] for row in self.truncated.tolist()]


def make_steps(task: Task, steps: int, n_envs: int, *, episode: int | None = 200, seed: int = 0) -> Steps:
    """Random steps.

    Args:
        task: the spaces.
        steps: of each environment.
        n_envs: environments.
        episode: the mean length of an episode, half of which end by a time limit; None for one that never ends, and
            whose last step leads to its first, so that adding it again and again stays contiguous.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    rows = (steps, n_envs)
    ended = np.zeros(rows, bool) if episode is None else rng.random(rows) < 1 / episode
    by_limit = ended & (rng.random(rows) < 0.5)
    obs = _random(rng, (*rows, *task.observation.shape), task.observation.dtype)
    next_obs = np.roll(obs, -1, axis=0)
    if episode is not None:
        next_obs[ended] = _random(rng, (int(ended.sum()), *task.observation.shape), task.observation.dtype)
    if isinstance(task.action, spaces.Discrete):
        action: Array = rng.integers(task.action.n, size=(*rows, 1))
    else:
        action = _random(rng, (*rows, *task.action.shape), task.action.dtype)
    reward = rng.standard_normal(rows, np.float32)
    return Steps(obs, next_obs, action, reward, ended & ~by_limit, by_limit)


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.dtype(dtype) == np.uint8:
        return np.frombuffer(bytearray(rng.bytes(int(np.prod(shape)))), np.uint8).reshape(shape)
    return rng.standard_normal(shape, np.float32)
