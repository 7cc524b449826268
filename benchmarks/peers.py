"""Replay buffers of relive and its peers behind one face, each called as its own users call it.

All do equal work. `add` gets arrays in the form that a peer wants, made beforehand. `sample` is a complete call: it
ends in torch tensors for observations, actions, next observations, dones and rewards, of the same shapes. Where a
peer returns NumPy arrays they are wrapped without a copy (rlox keeps flags uint8, where the others give float32).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3

import relive
from benchmarks.measure import OURS
from benchmarks.steps import Steps, Task

try:
    import cpprb
except ImportError:  # it has no wheels for Windows
    cpprb = None
try:
    import rlox
except ImportError:
    rlox = None

SB3, CPPRB, CPPRB_SHARED, RLOX = "Stable-Baselines3", "cpprb", "cpprb next_of", "rlox"


class Peer(Protocol):
    """A replay buffer that takes ``capacity`` steps of all environments together."""

    def fill(self, steps: Steps) -> None:
        """Adds steps the fastest way there is; not timed."""

    def adder(self, steps: Steps) -> Callable[[], None]:
        """A call that adds all steps one by one."""

    def extender(self, steps: Steps) -> Callable[[], object]:
        """A call that adds all steps at once, or as the peer's own way for many steps does."""

    def sampler(self, batch: int) -> Callable[[], object]:
        """A call that draws a batch, as tensors."""


class Relive:
    """relive, called as Stable-Baselines3 is."""

    def __init__(self, task: Task, capacity: int, n_envs: int) -> None:
        self.buffer = relive.ReplayBuffer(capacity, task.observation, task.action, device="cpu", n_envs=n_envs)

    def fill(self, steps: Steps) -> None:
        """Adds steps the fastest way there is; not timed."""
        self.extender(steps)()

    def adder(self, steps: Steps) -> Callable[[], None]:
        """A call that adds all steps one by one, with infos."""
        return _repeated(self.buffer.add, _seed_arguments(steps))

    def extender(self, steps: Steps) -> Callable[[], object]:
        """A call that adds all steps at once, their ends told by arrays of flags."""
        return lambda: self.buffer.extend(
            steps.obs,
            steps.next_obs,
            steps.action,
            steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
        )

    def extender_with_infos(self, steps: Steps) -> Callable[[], object]:
        """The same, their ends told by infos."""
        done, infos = steps.done, steps.infos()
        return lambda: self.buffer.extend(steps.obs, steps.next_obs, steps.action, steps.reward, done, infos)

    def sampler(self, batch: int) -> Callable[[], object]:
        """A call that draws a batch, as tensors."""
        return lambda: self.buffer.sample(batch)


class StableBaselines3:
    """Stable-Baselines3."""

    def __init__(self, task: Task, capacity: int, n_envs: int) -> None:
        self.buffer = sb3.ReplayBuffer(capacity, task.observation, task.action, device="cpu", n_envs=n_envs)

    def fill(self, steps: Steps) -> None:
        """Adds steps the fastest way there is; not timed."""
        buffer = self.buffer
        part = slice(buffer.pos, buffer.pos + len(steps))
        assert part.stop <= buffer.buffer_size
        buffer.observations[part] = steps.obs
        buffer.next_observations[part] = steps.next_obs
        buffer.actions[part] = steps.action
        buffer.rewards[part] = steps.reward
        buffer.dones[part] = steps.done
        buffer.timeouts[part] = steps.truncated
        buffer.full = buffer.full or part.stop == buffer.buffer_size
        buffer.pos = part.stop % buffer.buffer_size

    def adder(self, steps: Steps) -> Callable[[], None]:
        """A call that adds all steps one by one."""
        return _repeated(self.buffer.add, _seed_arguments(steps))

    def extender(self, steps: Steps) -> Callable[[], object]:
        """A call of its `extend`, which loops over `add`."""
        done, infos = steps.done, steps.infos()
        return lambda: self.buffer.extend(steps.obs, steps.next_obs, steps.action, steps.reward, done, infos)

    def sampler(self, batch: int) -> Callable[[], object]:
        """A call that draws a batch, as tensors."""
        return lambda: self.buffer.sample(batch)


class Cpprb:
    """cpprb; ``shares`` lets neighbouring steps share observations (``next_of``)."""

    def __init__(self, task: Task, capacity: int, n_envs: int, *, shares: bool = False) -> None:
        action_shape = (1,) if isinstance(task.action, spaces.Discrete) else task.action.shape
        fields: dict[str, dict[str, Any]] = {
            "obs": {"shape": task.observation.shape, "dtype": task.observation.dtype},
            "act": {"shape": action_shape, "dtype": task.action.dtype},
            "rew": {},
            "done": {},
        }
        if shares:
            self.buffer = cpprb.ReplayBuffer(capacity, fields, next_of="obs")
        else:
            self.buffer = cpprb.ReplayBuffer(capacity, {**fields, "next_obs": fields["obs"]})

    def fill(self, steps: Steps) -> None:
        """Adds steps the fastest way there is; not timed."""
        self.extender(steps)()

    def adder(self, steps: Steps) -> Callable[[], None]:
        """A call that adds all steps one by one; those of many environments are one call each."""
        add = self.buffer.add
        calls = [_cpprb_arguments(steps, slice(step, step + 1)) for step in range(len(steps))]

        def call() -> None:
            for arguments in calls:
                add(**arguments)

        return call

    def extender(self, steps: Steps) -> Callable[[], object]:
        """A call that adds all steps at once."""
        arguments = _cpprb_arguments(steps, slice(None))
        return lambda: self.buffer.add(**arguments)

    def sampler(self, batch: int) -> Callable[[], object]:
        """A call that draws a batch, as tensors."""
        sample, wrap = self.buffer.sample, torch.from_numpy

        def call() -> object:
            drawn = sample(batch)
            return (
                wrap(drawn["obs"]),
                wrap(drawn["act"]),
                wrap(drawn["next_obs"]),
                wrap(drawn["done"]),
                wrap(drawn["rew"]),
            )

        return call


class Rlox:
    """rlox: float32 vectors only. It asks for flat arrays, which are made beforehand, and for a seed at every draw."""

    def __init__(self, task: Task, capacity: int, n_envs: int) -> None:
        assert isinstance(task.action, spaces.Box)
        self.buffer = rlox.ReplayBuffer(capacity, task.observation.shape[0], task.action.shape[0])

    def fill(self, steps: Steps) -> None:
        """Adds steps the fastest way there is; not timed."""
        self.extender(steps)()

    def adder(self, steps: Steps) -> Callable[[], None]:
        """A call that adds all steps one by one; those of many environments are one call each."""
        if steps.obs.shape[1] > 1:
            return _repeated(self.buffer.push_batch, [_rlox_arguments(steps, t) for t in range(len(steps))])
        return _repeated(
            self.buffer.push,
            [
                (
                    steps.obs[t, 0],
                    steps.action[t, 0],
                    float(steps.reward[t, 0]),
                    bool(steps.terminated[t, 0]),
                    bool(steps.truncated[t, 0]),
                    steps.next_obs[t, 0],
                )
                for t in range(len(steps))
            ],
        )

    def extender(self, steps: Steps) -> Callable[[], object]:
        """A call that adds all steps at once."""
        arguments = _rlox_arguments(steps, slice(None))
        return lambda: self.buffer.push_batch(*arguments)

    def sampler(self, batch: int) -> Callable[[], object]:
        """A call that draws a batch, as tensors."""
        sample, wrap, seeds = self.buffer.sample, torch.from_numpy, itertools.count()

        def call() -> object:
            drawn = sample(batch, next(seeds))
            return (
                wrap(drawn["obs"]),
                wrap(drawn["actions"]),
                wrap(drawn["next_obs"]),
                wrap(drawn["terminated"]).unsqueeze(1),
                wrap(drawn["rewards"]).unsqueeze(1),
            )

        return call


def make_peer(name: str, task: Task, capacity: int, n_envs: int = 1) -> Peer:
    """An empty buffer."""
    if name == OURS:
        return Relive(task, capacity, n_envs)
    if name == SB3:
        return StableBaselines3(task, capacity, n_envs)
    if name == RLOX:
        return Rlox(task, capacity, n_envs)
    return Cpprb(task, capacity, n_envs, shares=name == CPPRB_SHARED)


def installed(names: Sequence[str]) -> list[str]:
    """Those of these peers that are there."""
    missing = {CPPRB, CPPRB_SHARED} if cpprb is None else set()
    if rlox is None:
        missing.add(RLOX)
    return [name for name in names if name not in missing]


def same_batches(samplers: Sequence[Callable[[], Any]]) -> None:
    """Raises where batches differ in shapes: then contenders would not do equal work."""
    shapes = [[_shape(field) for field in sampler()[:5]] for sampler in samplers]
    if any(others != shapes[0] for others in shapes):
        raise AssertionError(f"batches have different shapes: {shapes}")


def _shape(field: Any) -> object:
    if isinstance(field, dict):
        return {key: tuple(part.shape) for key, part in field.items()}
    return tuple(field.shape)


def _repeated(add: Callable[..., object], calls: Sequence[Sequence[Any]]) -> Callable[[], None]:
    def call() -> None:
        for arguments in calls:
            add(*arguments)

    return call


def _seed_arguments(steps: Steps) -> list[tuple[Any, ...]]:
    """Stable-Baselines3's words."""
    return [
        (obs.copy(), next_obs.copy(), action.copy(), reward.copy(), done.copy(), infos)
        for obs, next_obs, action, reward, done, infos in zip(
            steps.obs, steps.next_obs, steps.action, steps.reward, steps.done, steps.infos(), strict=True
        )
    ]


def _cpprb_arguments(steps: Steps, part: slice) -> dict[str, Any]:
    def rows(array: Any) -> Any:
        return np.ascontiguousarray(array[part].reshape(-1, *array.shape[2:]))

    return {
        "obs": rows(steps.obs),
        "act": rows(steps.action),
        "next_obs": rows(steps.next_obs),
        "rew": rows(steps.reward),
        "done": rows(steps.terminated.astype(np.float32)),
    }


def _rlox_arguments(steps: Steps, part: int | slice) -> tuple[Any, ...]:
    flags = (steps.terminated, steps.truncated)
    arrays = (steps.obs, steps.next_obs, steps.action, steps.reward, *(f.astype(np.uint8) for f in flags))
    return tuple(np.ascontiguousarray(array[part]).reshape(-1) for array in arrays)
