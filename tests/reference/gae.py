"""Slow, obvious twins of generalised advantage estimation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gae_in_float32(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    episode_starts: NDArray[np.float32],
    last_values: NDArray[np.float32],
    dones: NDArray[Any],
    gamma: float,
    gae_lambda: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Advantages and returns as a loop of NumPy statements over time, whose dtypes NumPy's own rules decide."""
    steps = len(rewards)
    advantages = np.zeros_like(values)
    following_advantage: Any = 0
    following_value = last_values
    goes_on = 1.0 - dones.astype(np.float32)
    for step in range(steps - 1, -1, -1):
        error = rewards[step] + gamma * following_value * goes_on - values[step]
        following_advantage = error + gamma * gae_lambda * goes_on * following_advantage
        advantages[step] = following_advantage
        following_value = values[step]
        goes_on = 1.0 - episode_starts[step]
    return advantages, advantages + values


def gae_of_ends(
    rewards: NDArray[Any],
    values: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_values: NDArray[Any],
    last_values: NDArray[Any],
    gamma: float,
    gae_lambda: float,
    valid: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Advantages in float64 by the definition, one environment after the other: rows that are not valid are no steps.

    Args:
        rewards, values, terminated, truncated, final_values, valid: ``(steps, n_envs)``; a final value is read where a
            step was truncated and not terminated.
        last_values: ``(n_envs,)``, of what was seen after the newest row.
        gamma: discount.
        gae_lambda: trace decay.
    """
    steps, envs = np.shape(rewards)
    advantages = np.zeros((steps, envs))
    for env in range(envs):
        rows = [step for step in range(steps) if valid is None or valid[step, env]]
        for k, step in enumerate(rows):
            weight = 1.0
            for j in range(k, len(rows)):  # the sum of discounted one-step errors, up to the first end
                later = rows[j]
                ends = terminated[later, env] or truncated[later, env]
                if terminated[later, env]:
                    after = 0.0
                elif truncated[later, env]:
                    after = float(final_values[later, env])
                elif j + 1 == len(rows):
                    after = float(last_values[env])
                else:
                    after = float(values[rows[j + 1], env])
                error = float(rewards[later, env]) + gamma * after - float(values[later, env])
                advantages[step, env] += weight * error
                weight *= gamma * gae_lambda
                if ends:
                    break
    return advantages
