"""Drawing image pairs: observations (4, 84, 84) uint8 and what was seen after them, both as tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.measure import OURS, Measure, Timed, at_most
from benchmarks.peers import CPPRB, SB3, StableBaselines3, installed, make_peer, same_batches
from benchmarks.steps import IMAGES, make_steps
from benchmarks.timing import Contender

#: 1.1 GB of frames, which relive stores once and the peers twice.
CAPACITY = 40_000
_CHUNK = 2_000
_TAKE = "np.take"


def measures() -> list[Measure]:
    """All of this file."""
    return [
        Timed(
            f"images-{batch}",
            f"sample {batch} image pairs of 40k",
            partial(_samplers, batch),
            {_TAKE: at_most(1.15, 0.8)},
            {_TAKE: 'both images only, mode="clip", out= memory used again and again'},
        )
        for batch in (32, 256)
    ]


def _samplers(batch: int) -> list[Contender]:
    peers = {name: make_peer(name, IMAGES, CAPACITY) for name in installed([OURS, SB3, CPPRB])}
    for chunk in range(CAPACITY // _CHUNK):
        steps = make_steps(IMAGES, _CHUNK, 1, episode=None, seed=chunk)
        for peer in peers.values():
            peer.fill(steps)
    contenders = [Contender(name, peer.sampler(batch)) for name, peer in peers.items()]
    same_batches([contender.call for contender in contenders])
    theirs = peers[SB3]
    assert isinstance(theirs, StableBaselines3)
    return [*contenders, Contender(_TAKE, _taker(theirs, batch))]


def _taker(peer: StableBaselines3, batch: int) -> Callable[[], object]:
    """The floor: NumPy copies rows of the two arrays that Stable-Baselines3 stores, into the same memory every time."""
    sources = [array.reshape(CAPACITY, -1) for array in (peer.buffer.observations, peer.buffer.next_observations)]
    targets = [np.empty((batch, source.shape[1]), np.uint8) for source in sources]
    tensors = [torch.from_numpy(target).view(batch, *IMAGES.observation.shape) for target in targets]

    def call() -> object:
        rows = np.random.randint(0, CAPACITY, size=batch)
        for source, target in zip(sources, targets, strict=True):
            np.take(source, rows, axis=0, out=target, mode="clip")
        return tensors

    return call
