"""Adding vectors to a replay buffer and drawing them: observations of 17 and actions of 6 float32, a million steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3

import relive
from benchmarks.measure import OURS, Measure, Timed, at_least
from benchmarks.peers import CPPRB, RLOX, SB3, Peer, Relive, installed, make_peer, same_batches
from benchmarks.steps import VECTORS, Steps, make_steps
from benchmarks.timing import Contender

CAPACITY = 1_000_000
BATCH = 256
EXTENDED = 100_000
#: Steps that one call of an adder adds, so that the loop around them costs nothing.
ADDED = 256


def measures() -> list[Measure]:
    """All of this file."""
    everyone = installed([OURS, SB3, CPPRB, RLOX])
    return [
        Timed("add-1", "add, 1 environment", partial(_adders, everyone, 1), {SB3: at_least(1.5, 2.5)}),
        Timed("add-64", "add, 64 environments", partial(_adders, everyone, 64), {SB3: at_least(3, 4)}),
        Timed(
            "extend-flags",
            "extend, 100k steps, ends as arrays of flags",
            partial(_extenders, False),
            {SB3: at_least(100)},
            {SB3: "with infos", _COPY: "np.copyto of the columns that relive stores"},
        ),
        Timed(
            "extend-infos",
            "extend, 100k steps, ends as infos",
            partial(_extenders, True),
            {SB3: at_least(40)},
        ),
        Timed(
            "sample",
            "sample 256 of 1M",
            partial(_samplers, everyone),
            {SB3: at_least(7, 10), RLOX: at_least(1.3, 2), CPPRB: at_least(4, 6)},
        ),
        Timed("sample-dict", "sample 256 of 1M, Dict observations (17,) and (4,)", _dict_samplers),
    ]


_COPY = "memcpy"


def _full(names: Sequence[str], n_envs: int) -> dict[str, Peer]:
    """Buffers full of steps, so that no page is touched for the first time while the clock runs."""
    steps = make_steps(VECTORS, CAPACITY // n_envs, n_envs)
    peers = {name: make_peer(name, VECTORS, CAPACITY, n_envs) for name in names}
    for peer in peers.values():
        peer.fill(steps)
    return peers


def _adders(names: Sequence[str], n_envs: int) -> list[Contender]:
    count = ADDED if n_envs == 1 else ADDED // 8
    steps = make_steps(VECTORS, count, n_envs, seed=1)
    return [Contender(name, peer.adder(steps), count) for name, peer in _full(names, n_envs).items()]


def _extenders(with_infos: bool) -> list[Contender]:
    steps = make_steps(VECTORS, EXTENDED, 1)
    names = [SB3] if with_infos else installed([SB3, CPPRB, RLOX])
    peers = {name: make_peer(name, VECTORS, 2 * EXTENDED) for name in names}
    ours = Relive(VECTORS, 2 * EXTENDED, 1)
    for peer in (ours, *peers.values()):
        peer.fill(steps)
        peer.fill(steps)
    contenders = [
        Contender(OURS, ours.extender_with_infos(steps) if with_infos else ours.extender(steps)),
        *(Contender(name, peer.extender(steps)) for name, peer in peers.items()),
    ]
    return contenders if with_infos else [*contenders, Contender(_COPY, _copier(steps))]


def _copier(steps: Steps) -> Any:
    sources = (steps.obs, steps.action, steps.reward, steps.done, steps.truncated)
    targets = [np.ones(array.shape, np.float32) for array in sources]

    def call() -> None:
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    return call


def _samplers(names: Sequence[str]) -> list[Contender]:
    contenders = [Contender(name, peer.sampler(BATCH)) for name, peer in _full(names, 1).items()]
    same_batches([contender.call for contender in contenders])
    return contenders


def _dict_samplers() -> list[Contender]:
    steps = make_steps(VECTORS, CAPACITY, 1)
    keys = {"state": slice(0, 17), "goal": slice(0, 4)}
    space = spaces.Dict(
        {key: spaces.Box(-np.inf, np.inf, (part.stop - part.start,), np.float32) for key, part in keys.items()}
    )
    obs = {key: np.ascontiguousarray(steps.obs[..., part]) for key, part in keys.items()}
    next_obs = {key: np.ascontiguousarray(steps.next_obs[..., part]) for key, part in keys.items()}

    ours = relive.DictReplayBuffer(CAPACITY, space, VECTORS.action, device="cpu")
    ours.extend(obs, next_obs, steps.action, steps.reward, terminated=steps.terminated, truncated=steps.truncated)
    theirs = sb3.DictReplayBuffer(CAPACITY, space, VECTORS.action, device="cpu")
    for key in keys:
        theirs.observations[key][:] = obs[key]
        theirs.next_observations[key][:] = next_obs[key]
    theirs.actions[:], theirs.rewards[:] = steps.action, steps.reward
    theirs.dones[:], theirs.timeouts[:] = steps.done, steps.truncated
    theirs.full = True
    return [
        Contender(OURS, lambda: ours.sample(BATCH)),
        Contender(SB3, lambda: theirs.sample(BATCH)),
    ]
