"""Small buffers whose goals are numbers, for the tables of hindsight."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import relive

NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)
SPACE = spaces.Dict({"observation": NUMBER, "achieved_goal": NUMBER, "desired_goal": NUMBER})


def is_reached(achieved: NDArray, desired: NDArray, info: Any) -> NDArray:
    """1 where the goal is reached, else 0."""
    return (achieved == desired).all(axis=-1).astype(np.float32)


def buffer_of(rows: int, compute_reward: Any = is_reached, **options: Any) -> relive.ReplayBuffer:
    """One environment; ``options`` of hindsight."""
    buffer_options = {name: options.pop(name) for name in ("n_steps", "gamma", "sampler") if name in options}
    hindsight = relive.Hindsight(compute_reward, **options)
    return relive.ReplayBuffer(
        rows, SPACE, spaces.Discrete(2), device="cpu", hindsight=hindsight, seed=0, **buffer_options
    )


def at(here: float, goal: float) -> dict[str, list[list[float]]]:
    return {"observation": [[here]], "achieved_goal": [[here]], "desired_goal": [[goal]]}


def episode(
    buffer: relive.ReplayBuffer,
    start: float,
    reached: list[float],
    goal: float = -1.0,
    end: str | None = "terminated",
    info: dict[str, Any] | None = None,
) -> None:
    """Steps from ``start`` through the numbers ``reached``; the last one ends so."""
    for i, number in enumerate(reached):
        ends = end is not None and i == len(reached) - 1
        infos = [{"TimeLimit.truncated": ends and end == "truncated"} | (info or {})]
        before = start if i == 0 else reached[i - 1]
        buffer.add(at(before, goal), at(number, goal), [0], [0.0], [ends], infos)


def goals_drawn(buffer: relive.ReplayBuffer, batches: int = 5) -> dict[float, set[float]]:
    """Achieved after a row's step → every new goal that the row was given."""
    goals: dict[float, set[float]] = {}
    for _ in range(batches):
        batch = buffer.sample(400)
        after = batch.next_observations["achieved_goal"].flatten().tolist()
        desired = batch.observations["desired_goal"].flatten().tolist()
        for row in np.flatnonzero(batch.relabelled):
            goals.setdefault(after[row], set()).add(desired[row])
    return goals
