"""Small environments whose steps cost nothing: what is tested is what becomes of the steps."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

DIRECTIONS = np.array([(-1, 0), (0, 1), (1, -1)])


class Drift(gym.Env):
    """A point drifts with noise; the episode terminates where it leaves the unit box, and a time limit cuts it.

    Args:
        discrete: actions are three directions, in place of a push in (-1, 1)².
        as_dict: observations are a Dict of the position and a row of pixels, or of two positions.
        limit: steps of an episode at most.
    """

    def __init__(self, discrete: bool = False, as_dict: bool | Literal["positions"] = False, limit: int = 13) -> None:
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,), np.float32)
        position, pixels = spaces.Box(-10, 10, (2,), np.float32), spaces.Box(0, 255, (3,), np.uint8)
        second = position if as_dict == "positions" else pixels
        self.observation_space = spaces.Dict({"position": position, "second": second}) if as_dict else position
        self.limit = limit
        self.position, self.steps = np.zeros(2), 0

    def observation(self) -> Any:
        position = self.position.astype(np.float32)
        if not isinstance(self.observation_space, spaces.Dict):
            return position
        if self.observation_space["second"].dtype == np.float32:
            return {"position": position, "second": -position}
        pixels = 128 + 100 * self.position.sum() + np.arange(3)
        return {"position": position, "second": np.clip(pixels, 0, 255).astype(np.uint8)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.uniform(-0.5, 0.5, 2), 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push = DIRECTIONS[int(action)] if isinstance(self.action_space, spaces.Discrete) else np.asarray(action)
        self.position = self.position + 0.2 * push + self.np_random.normal(0, 0.05, 2)
        self.steps += 1
        terminated = bool(np.abs(self.position).max() > 1)
        reward = float(-np.square(self.position).sum())
        return self.observation(), reward, terminated, self.steps >= self.limit and not terminated, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Which of the three directions may be taken (MaskablePPO asks)."""
        return np.array([True, self.steps % 2 == 0, self.steps % 3 > 0])
