"""Prioritized draws, priorities that come back, and how true the sums stay: a million steps, batches of 256."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.measure import OURS, Cost, Goal, Measure, Timed, Unit, at_least, bounded
from benchmarks.peers import CPPRB, RLOX, same_batches
from benchmarks.prioritized_peers import TIANSHOU, PrioritizedPeer, full_peers
from benchmarks.replay import BATCH, CAPACITY
from benchmarks.steps import VECTORS, make_steps
from benchmarks.timing import Contender, Entrant
from benchmarks.torchrl_peer import NAME as TORCHRL
from relive._native import SumTree

_PEERS = (TIANSHOU, CPPRB, RLOX, TORCHRL)
_UPDATES = 1_000_000


def measures() -> list[Measure]:
    """All of this file."""
    return [
        Timed(
            "prioritized-sample",
            "prioritized sample 256 of 1M",
            _samplers,
            dict.fromkeys(_PEERS, at_least(2.5, 4)),
        ),
        Timed(
            "prioritized-update",
            "new priorities of 256 drawn steps of 1M",
            _updaters,
            dict.fromkeys(_PEERS, at_least(2, 4)),
        ),
        Drift(),
    ]


def _samplers() -> list[Contender]:
    contenders = _contenders(lambda peer: peer.sampler(BATCH))
    same_batches([contender.call for contender in contenders])
    return contenders


def _updaters() -> list[Contender]:
    return _contenders(lambda peer: peer.updater(BATCH))


def _contenders(make_call: Callable[[PrioritizedPeer], Callable[[], object]]) -> list[Contender]:
    peers = full_peers(make_steps(VECTORS, CAPACITY, 1))
    return [Contender(name, make_call(peer)) for name, peer in peers.items()]


@dataclass(frozen=True)
class Drift:
    """How far the root of the native tree is from the sum of its leaves after a million updates."""

    name: str = "prioritized-drift"
    title: str = "root against leaf sum after 1M random updates of 1M leaves"
    goals: Mapping[str, Goal] = field(default_factory=lambda: {OURS: bounded(1e-9)})
    unit: Unit = "error"

    def run(self, rounds: int, guests: Sequence[Entrant] = ()) -> list[Cost]:
        """The relative error; one round is enough."""
        tree = SumTree(CAPACITY)
        rng = np.random.default_rng(0)
        for _ in range(_UPDATES // BATCH + 1):
            # Over twelve orders of magnitude, so that what is lost by rounding would add up.
            tree.set_many(rng.integers(CAPACITY, size=BATCH, dtype=np.uint64), 10 ** rng.uniform(-6, 6, BATCH))
        leaves = np.empty(CAPACITY)
        tree.leaves(leaves)
        exact = math.fsum(leaves)
        error = abs(tree.total() - exact) / exact
        return [Cost(OURS, error, error)]
