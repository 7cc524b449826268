"""The seed's advantages, bit for bit: what `RolloutBuffer` computes unless it is told otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive import _native

Floats = NDArray[np.float32]


def seed_gae(
    rewards: Floats,
    values: Floats,
    episode_starts: Floats,
    last_values: Floats,
    dones: Floats,
    gamma: float,
    gae_lambda: float,
    *,
    out: tuple[Floats, Floats] | None = None,
) -> tuple[Floats, Floats]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

    ``A[t] = delta[t] + gamma * gae_lambda * goes_on[t] * A[t + 1]`` with
    ``delta[t] = rewards[t] + gamma * goes_on[t] * values[t + 1] - values[t]``, where ``goes_on[t]`` is 0 if step
    ``t`` ended its episode. The float32 operations are those of Stable-Baselines3 in their order: every bit of the
    result is the same.

    Args:
        rewards: ``(steps, n_envs)`` float32.
        values: ``(steps, n_envs)`` float32.
        episode_starts: ``(steps, n_envs)`` float32, 1 where a step is the first of its episode.
        last_values: ``(n_envs,)`` float32, values of what was seen after the last step.
        dones: ``(n_envs,)`` float32, 1 where the last step ended its episode.
        gamma: discount. A ``numpy.float64`` makes NumPy 2 compute in float64, and so does this.
        gae_lambda: 0 gives one-step errors, 1 Monte Carlo advantages.
        out: arrays that take the result.

    Returns:
        Advantages, and returns (advantages plus values), ``(steps, n_envs)`` float32.
    """
    steps = len(rewards)
    advantages, returns = (np.empty_like(values), np.empty_like(values)) if out is None else out
    trace = gamma * gae_lambda
    _native.gae(
        rewards, values, episode_starts, last_values, dones, advantages, returns, steps,
        float(gamma), float(trace), _is_wide(gamma), _is_wide(trace),
    )  # fmt: skip
    return advantages, returns


def _is_wide(scalar: Any) -> bool:
    """Whether NumPy computes ``scalar * float32 array`` in float64 (NEP 50; NumPy 1 never does)."""
    return type(scalar) is not float and np.result_type(np.empty(0, np.float32), scalar) == np.float64
