"""Generalised advantage estimation of a whole rollout, by one complete call."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3

import relive
from benchmarks.measure import OURS, Measure, Timed, at_least
from benchmarks.peers import RLOX, SB3, installed
from benchmarks.timing import Contender

GAMMA, GAE_LAMBDA = 0.99, 0.95
_NOTE = "its kernel alone, from and into arrays in its own (env-major) layout"
_MUST = {(2048, 1): 500, (128, 64): 40, (128, 4096): 2}


def measures() -> list[Measure]:
    """All of this file."""
    return [
        Timed(
            f"gae-{steps}x{n_envs}",
            f"GAE of {steps} steps × {n_envs} environments",
            partial(_estimators, steps, n_envs),
            {SB3: at_least(must), RLOX: at_least(None, 1)},
            {RLOX: _NOTE},
        )
        for (steps, n_envs), must in _MUST.items()
    ]


def _estimators(steps: int, n_envs: int) -> list[Contender]:
    rng = np.random.default_rng(0)
    shape = (steps, n_envs)
    rewards, values = rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)
    ended = rng.random(shape) < 1 / 200
    starts = np.concatenate([np.zeros((1, n_envs)), ended[:-1]]).astype(np.float32)
    last_values = rng.standard_normal(n_envs, np.float32)
    last, done = torch.from_numpy(last_values), ended[-1]

    ours, theirs = (
        kind(
            steps,
            spaces.Box(-1, 1, (1,), np.float32),
            spaces.Discrete(2),
            device="cpu",
            gae_lambda=GAE_LAMBDA,
            gamma=GAMMA,
            n_envs=n_envs,
        )
        for kind in (relive.RolloutBuffer, sb3.RolloutBuffer)
    )
    for buffer in (ours, theirs):
        buffer.rewards[:], buffer.values[:], buffer.episode_starts[:] = rewards, values, starts
        buffer.pos, buffer.full = steps, True
    contenders = [
        Contender(OURS, lambda: ours.compute_returns_and_advantage(last, done)),
        Contender(SB3, lambda: theirs.compute_returns_and_advantage(last, done)),
    ]
    for contender in contenders:
        contender.call()
    _same(ours.advantages, theirs.advantages, exactly=True)
    if installed([RLOX]):
        import rlox

        flat = [np.ascontiguousarray(array.T).reshape(-1) for array in (rewards, values, ended)]
        flat[2] = flat[2].astype(np.float32)
        arguments = (*flat, last_values, steps, GAMMA, GAE_LAMBDA)
        advantages, _ = rlox.compute_gae_batched_f32(*arguments)
        _same(ours.advantages, advantages.reshape(n_envs, steps).T, exactly=False)
        contenders.append(Contender(RLOX, lambda: rlox.compute_gae_batched_f32(*arguments)))
    return contenders


def _same(ours: Any, theirs: Any, *, exactly: bool) -> None:
    same = np.array_equal(ours, theirs) if exactly else np.allclose(ours, theirs, atol=1e-3)
    if not same:
        raise AssertionError("contenders give different advantages: they do not do equal work")
