"""Prioritized replay buffers of relive and its peers behind one face, each called as its own users call it.

All hold the same million steps with the same priorities, with alpha 0.6 and beta 0.4. A sample is a complete call: it
ends in torch tensors for observations, actions, next observations, dones, rewards and weights, and knows what the
priorities of its rows go back by. Where a peer returns NumPy arrays they are wrapped without a copy, in its own dtypes.
An update gets the rows of a batch as that peer's `sample` gives them, and |TD errors| in the dtype that it takes
fastest; all add eps, take the power and update the sums above the leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

import relive
from benchmarks.measure import OURS
from benchmarks.peers import CPPRB, RLOX, installed
from benchmarks.steps import VECTORS, Steps

TIANSHOU = "Tianshou"
ALPHA, BETA, EPS = 0.6, 0.4, 1e-6
#: How many batches an update takes in turn, and how many sets of priorities: odd and even, so that a row does not meet
#: the priority that it has already. cpprb stops climbing its tree where nothing changes.
_BATCHES, _PRIORITIES = 251, 256


class PrioritizedPeer(Protocol):
    """A full prioritized buffer."""

    def sampler(self, batch: int) -> Callable[[], Any]:
        """A call that draws a batch: five tensors, and one of weights."""

    def updater(self, batch: int) -> Callable[[], object]:
        """A call that gives another batch of 251 drawn ones new priorities."""


class Relive:
    """relive."""

    def __init__(self, steps: Steps, priorities: NDArray[np.float32]) -> None:
        self.buffer = relive.ReplayBuffer(
            len(steps),
            VECTORS.observation,
            VECTORS.action,
            device="cpu",
            sampler=relive.Prioritized(alpha=ALPHA, beta=BETA, eps=EPS),
        )
        self.buffer.extend(
            steps.obs,
            steps.next_obs,
            steps.action,
            steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
        )
        dropped = self.buffer.update_priorities(np.arange(len(steps)), priorities)
        assert dropped == 0

    def sampler(self, batch: int) -> Callable[[], Any]:
        """A call that draws a batch: five tensors, and one of weights in the batch's attribute of that name."""
        sample = self.buffer.sample
        return lambda: sample(batch)

    def updater(self, batch: int) -> Callable[[], object]:
        """A call that gives another batch of 251 drawn ones new priorities."""
        sample: Any = self.buffer.sample  # gives batches with handles, which its type does not say
        handles = [sample(batch).handles for _ in range(_BATCHES)]
        return _updates(self.buffer.update_priorities, handles, _errors(batch, np.float64))


class Tianshou:
    """Tianshou, NumPy and numba. Its columns are set as a whole, as its own `from_data` does."""

    def __init__(self, steps: Steps, priorities: NDArray[np.float32]) -> None:
        data = import_module("tianshou.data")
        self.buffer = data.PrioritizedReplayBuffer(len(steps), alpha=ALPHA, beta=BETA)
        self.buffer.set_batch(
            data.Batch(
                obs=steps.obs[:, 0],
                act=steps.action[:, 0],
                rew=steps.reward[:, 0],
                terminated=steps.terminated[:, 0],
                truncated=steps.truncated[:, 0],
                done=steps.done[:, 0],
                obs_next=steps.next_obs[:, 0],
            )
        )
        self.buffer._size = len(steps)
        self.buffer.update_weight(np.arange(len(steps)), priorities)

    def sampler(self, batch: int) -> Callable[[], Any]:
        """A call that draws a batch: five tensors, and one of weights (float64)."""
        sample, wrap = self.buffer.sample, torch.from_numpy

        def call() -> object:
            drawn, rows = sample(batch)
            return (
                wrap(drawn.obs),
                wrap(drawn.act),
                wrap(drawn.obs_next),
                wrap(drawn.terminated).unsqueeze(1),
                wrap(drawn.rew).unsqueeze(1),
                wrap(drawn.weight).unsqueeze(1),
                rows,
            )

        return call

    def updater(self, batch: int) -> Callable[[], object]:
        """A call that gives another batch of 251 drawn ones new priorities."""
        rows = [self.buffer.sample(batch)[1] for _ in range(_BATCHES)]
        return _updates(self.buffer.update_weight, rows, _errors(batch, np.float32))


class Cpprb:
    """cpprb, without `check_for_update`: that guard is meant for many processes, and doubles the time of a sample."""

    def __init__(self, steps: Steps, priorities: NDArray[np.float32]) -> None:
        vectors = {"shape": VECTORS.observation.shape, "dtype": np.float32}
        fields = {
            "obs": vectors,
            "act": {"shape": VECTORS.action.shape, "dtype": np.float32},
            "rew": {},
            "done": {},
            "next_obs": vectors,
        }
        cpprb = import_module("cpprb")
        self.buffer = cpprb.PrioritizedReplayBuffer(len(steps), fields, alpha=ALPHA, eps=EPS)
        self.buffer.add(
            obs=steps.obs[:, 0],
            act=steps.action[:, 0],
            rew=steps.reward[:, 0],
            done=steps.terminated[:, 0].astype(np.float32),
            next_obs=steps.next_obs[:, 0],
        )
        self.buffer.update_priorities(np.arange(len(steps)), priorities)

    def sampler(self, batch: int) -> Callable[[], Any]:
        """A call that draws a batch: five tensors, and one of weights."""
        sample, wrap = self.buffer.sample, torch.from_numpy

        def call() -> object:
            drawn = sample(batch, BETA)
            return (
                wrap(drawn["obs"]),
                wrap(drawn["act"]),
                wrap(drawn["next_obs"]),
                wrap(drawn["done"]),
                wrap(drawn["rew"]),
                wrap(drawn["weights"]).unsqueeze(1),
                drawn["indexes"],
            )

        return call

    def updater(self, batch: int) -> Callable[[], object]:
        """A call that gives another batch of 251 drawn ones new priorities."""
        rows = [self.buffer.sample(batch, BETA)["indexes"] for _ in range(_BATCHES)]
        return _updates(self.buffer.update_priorities, rows, _errors(batch, np.float32))


class Rlox:
    """rlox: it takes float64 priorities only, and asks for a seed at every draw."""

    def __init__(self, steps: Steps, priorities: NDArray[np.float32]) -> None:
        sizes = steps.obs.shape[-1], steps.action.shape[-1]
        self.buffer = import_module("rlox").PrioritizedReplayBuffer(len(steps), *sizes, ALPHA, BETA)
        rows = zip(
            steps.obs[:, 0],
            steps.action[:, 0],
            steps.reward[:, 0].tolist(),
            steps.terminated[:, 0].tolist(),
            steps.truncated[:, 0].tolist(),
            steps.next_obs[:, 0],
            priorities.tolist(),
            strict=True,
        )
        for row in rows:
            self.buffer.push(*row)

    def sampler(self, batch: int) -> Callable[[], Any]:
        """A call that draws a batch: five tensors, and one of weights (flags uint8)."""
        sample, wrap, seeds = self.buffer.sample, torch.from_numpy, itertools.count()

        def call() -> object:
            drawn = sample(batch, next(seeds))
            return (
                wrap(drawn["obs"]),
                wrap(drawn["actions"]),
                wrap(drawn["next_obs"]),
                wrap(drawn["terminated"]).unsqueeze(1),
                wrap(drawn["rewards"]).unsqueeze(1),
                wrap(drawn["weights"]).unsqueeze(1),
                drawn["indices"],
            )

        return call

    def updater(self, batch: int) -> Callable[[], object]:
        """A call that gives another batch of 251 drawn ones new priorities."""
        rows = [self.buffer.sample(batch, seed)["indices"] for seed in range(_BATCHES)]
        return _updates(self.buffer.update_priorities, rows, _errors(batch, np.float64))


_KINDS: dict[str, Callable[[Steps, NDArray[np.float32]], PrioritizedPeer]] = {
    OURS: Relive,
    TIANSHOU: Tianshou,
    CPPRB: Cpprb,
    RLOX: Rlox,
}


def full_peers(steps: Steps) -> dict[str, PrioritizedPeer]:
    """All that are installed, relive first, full of these steps of one environment and of equal random priorities."""
    priorities = np.abs(np.random.default_rng(2).standard_normal(len(steps), np.float32))
    names = installed(list(_KINDS))
    if find_spec("tianshou") is None:
        names.remove(TIANSHOU)
    return {name: _KINDS[name](steps, priorities) for name in names}


def _errors(batch: int, dtype: type[np.floating[Any]]) -> list[NDArray[Any]]:
    rng = np.random.default_rng(3)
    return [np.abs(rng.standard_normal(batch)).astype(dtype) for _ in range(_PRIORITIES)]


def _updates(
    update: Callable[[Any, Any], object], batches: Sequence[Any], priorities: Sequence[Any]
) -> Callable[[], object]:
    next_batch, next_priorities = itertools.cycle(batches).__next__, itertools.cycle(priorities).__next__
    return lambda: update(next_batch(), next_priorities())
