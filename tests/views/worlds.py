"""The worlds in which buffers are tested: observations that say where they come from, and configurations of all kinds.

Every observation says where it comes from: ``tick`` is 2·number for what was seen before a step, 2·number + 1 for what
was seen after it, unless the next step begins with the very same observation. So a goal, too, says who reached it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import relive
from tests.reference.views import Goals, Tree, tree_map

LANE = 4096  # more than any tick
NUMBERS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
SPACES: dict[str, spaces.Space] = {
    "box": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "discrete": spaces.Discrete(8 * LANE),
    "dict": spaces.Dict({"camera": spaces.Box(0, 255, (1, 36, 36), np.uint8), "place": NUMBERS}),
    "goal": spaces.Dict({"achieved_goal": NUMBERS, "desired_goal": NUMBERS, "observation": NUMBERS}),
}
ACTIONS: dict[str, spaces.Space] = {"box": spaces.Box(-1, 1, (2,), np.float32), "discrete": spaces.Discrete(4)}
FIELDS: dict[str, tuple[tuple[int, ...], Any]] = {
    "log_prob": ((), np.float32),
    "discount": ((), np.float32),
    "hidden": ((2, 3), np.float32),
    "action_mask": ((4,), np.bool_),
    "seen": ((), np.int64),
}


def observation(space: str, lane: int, tick: int) -> Tree:
    place = np.array([lane, tick], np.float32)
    if space == "box":
        return np.array([lane, tick, -tick], np.float32)
    if space == "discrete":
        return np.array([lane * LANE + tick], np.int64)
    if space == "dict":
        camera = np.full((1, 36, 36), tick % 251, np.uint8)
        camera[0, 0, :2] = lane, tick // 251
        return {"camera": camera, "place": place}
    desired = np.array([lane, tick * 7 % 11], np.float32)
    return {"achieved_goal": place, "desired_goal": desired, "observation": -place}


def compute_reward(achieved: NDArray, desired: NDArray, info: Any) -> NDArray:
    """Says which two goals it was asked about; exact in float32."""
    assert achieved.shape == desired.shape == (len(info), 2)
    reward = achieved[:, 1] * 2048.0 + desired[:, 1]
    if len(info) and "w" in info[0]:
        assert info["w"].tolist() == [one["w"] for one in info]
        reward = reward + info["w"] / 2
    return reward


def compute_terminated(achieved: NDArray, desired: NDArray, info: Any) -> NDArray:
    assert achieved.shape == desired.shape == (len(info), 2)
    return (achieved[:, 1] - desired[:, 1]) % 3 == 0


class Normaliser:
    """Exact in float32, so that it does not matter when a reward is rounded."""

    def normalize_obs(self, obs: Any) -> Any:
        return tree_map(lambda leaf: (leaf / np.float64(4)).astype(np.float32), obs)

    def normalize_reward(self, reward: NDArray) -> NDArray:
        return np.clip(reward / 4, -0.25, 0.5)


@dataclass(frozen=True)
class Config:
    """What a life is about."""

    space: str = "box"
    action: str = "discrete"
    rows: int = 5
    lanes: int = 1
    n_steps: int = 1
    gamma: float | str = 0.99
    sampler: str = "none"
    strategy: str | None = None  # of hindsight, "goal" spaces only
    n_sampled_goal: int = 4
    ends_at_goals: bool = False  # with compute_terminated
    running: bool = False
    copy_info: bool = False
    fields: bool = False
    reward_shape: tuple[int, ...] = ()
    seed: int | None = 0

    @property
    def goals(self) -> Goals | None:
        if self.strategy is None:
            return None
        return Goals(
            compute_reward,
            self.strategy,
            compute_terminated if self.ends_at_goals else None,
            copy_info=("w",) if self.copy_info else (),
            running=self.running,
        )


SAMPLERS = {
    "none": lambda: None,
    "uniform": lambda: relive.Uniform(),
    "epochs": lambda: relive.Uniform(replacement=False),
    "prioritized": lambda: relive.Prioritized(),
    "by the buffer": lambda: relive.Prioritized(alpha=1.0, beta=1.0, eps=0.0, weights_over="buffer", max_over="ever"),
    "rank": lambda: relive.RankPrioritized(),
}
WEIGHS = ("prioritized", "by the buffer", "rank")


def make(config: Config, **options: Any) -> relive.ReplayBuffer:
    hindsight = None
    if config.goals is not None:
        hindsight = relive.Hindsight(
            compute_reward,
            n_sampled_goal=config.n_sampled_goal,
            strategy=config.strategy,
            compute_terminated=config.goals.compute_terminated,
            copy_info=config.goals.copy_info,
            running=config.running,
        )
    options = {
        "n_steps": config.n_steps,
        "gamma": config.gamma,
        "sampler": SAMPLERS[config.sampler](),
        "hindsight": hindsight,
        "fields": FIELDS if config.fields else None,
        "reward_shape": config.reward_shape,
        "seed": config.seed,
    } | options
    return relive.ReplayBuffer(
        config.rows * config.lanes,
        SPACES[config.space],
        ACTIONS[config.action],
        device="cpu",
        n_envs=config.lanes,
        **options,
    )
