"""Drawing 32 sequences of 64 steps right after a step was written, as off-policy learners with memory do."""

from __future__ import annotations

import itertools

import numpy as np

import relive
from benchmarks.measure import OURS, Measure, Timed, at_least
from benchmarks.replay import CAPACITY
from benchmarks.steps import VECTORS, make_steps
from benchmarks.timing import Contender
from benchmarks.torchrl_peer import BY_TRAJECTORY, NAME

_SEQUENCES, _LENGTH, _EPISODE = 32, 64, 200
_NOTES = {
    OURS: "one step is added before each draw, for all contenders, while the clock stands still",
    NAME: "SliceSampler, end_key, cache_values",
    BY_TRAJECTORY: "SliceSampler, traj_key, cache_values",
}


def measures() -> list[Measure]:
    """All of this file."""
    return [
        Timed(
            "sequences",
            f"{_SEQUENCES} sequences of {_LENGTH} of 1M, each draw right after a write",
            _samplers,
            dict.fromkeys((NAME, BY_TRAJECTORY), at_least(20, 40)),
            _NOTES,
        )
    ]


def _samplers() -> list[Contender]:
    steps = make_steps(VECTORS, CAPACITY, 1, episode=None)
    ended = (np.arange(CAPACITY) % _EPISODE == _EPISODE - 1)[:, None]
    buffer = relive.ReplayBuffer(CAPACITY, VECTORS.observation, VECTORS.action, device="cpu")
    buffer.extend(steps.obs, steps.next_obs, steps.action, steps.reward, terminated=ended, truncated=ended & False)
    numbers = itertools.cycle(range(CAPACITY))

    def write() -> None:
        t = next(numbers)
        buffer.add(steps.obs[t], steps.next_obs[t], steps.action[t], steps.reward[t], ended[t], [{}])

    return [Contender(OURS, lambda: buffer.sample_sequences(_SEQUENCES, _LENGTH, pad="none"), before=write)]
