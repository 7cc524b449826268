"""What three-step returns cost beside plain transitions: relive against itself."""

from __future__ import annotations

import relive
from benchmarks.measure import OURS, Measure, Timed, at_most
from benchmarks.replay import BATCH, CAPACITY
from benchmarks.steps import VECTORS, Steps, make_steps
from benchmarks.timing import Contender

_N_STEPS, _GAMMA = 3, 0.99
_PLAIN = "relive, 1 step"


def measures() -> list[Measure]:
    """All of this file."""
    return [Timed("n-step", f"sample {BATCH} of 1M, {_N_STEPS}-step returns", _samplers, {_PLAIN: at_most(2, 1.4)})]


def _samplers() -> list[Contender]:
    steps = make_steps(VECTORS, CAPACITY, 1)
    return [_sampler(OURS, steps, _N_STEPS), _sampler(_PLAIN, steps, 1)]


def _sampler(name: str, steps: Steps, n_steps: int) -> Contender:
    buffer = relive.ReplayBuffer(
        CAPACITY, VECTORS.observation, VECTORS.action, device="cpu", n_steps=n_steps, gamma=_GAMMA
    )
    buffer.extend(
        steps.obs, steps.next_obs, steps.action, steps.reward, terminated=steps.terminated, truncated=steps.truncated
    )
    return Contender(name, lambda: buffer.sample(BATCH))
