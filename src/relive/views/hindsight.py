"""Hindsight: transitions as they would have been with a goal that was reached later (Andrychowicz et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relive.errors import ShapeError

Array = NDArray[Any]
Strategy = Literal["future", "final", "episode", "random"]
STRATEGIES: tuple[Strategy, ...] = ("future", "final", "episode", "random")


class Hindsight:
    """Goals of hindsight experience replay (arXiv 1707.01495).

    Of ``n_sampled_goal + 1`` rows, ``n_sampled_goal`` get another goal: the one reached *after* a step of their own
    episode. What is stored is never changed.

    Args:
        compute_reward: ``(achieved, desired, info) -> rewards``, called once for all rows: ``achieved`` and ``desired``
            are ``(n, *goal)``, ``info`` is a sequence of ``n`` dicts that also answers ``info["key"]`` with all values.
        n_sampled_goal: relabelled rows for each that stays as it was.
        strategy: where the goal comes from: the "future" of the row (its own step included), the "final" step, any step
            of the "episode", or any step at "random".
        compute_terminated: ``(achieved, desired, info) -> flags``, where reaching the goal ends an episode; without it
            ``dones`` are those that were recorded.
        goal_keys: the keys of achieved and desired goal in the observation.
        copy_info: info keys that ``compute_reward`` needs; stored with each step, as float64 numbers or as declared in
            the buffer's ``fields``. An environment that does not give one leaves NaN (0 for integers).
        running: also steps of episodes that go on, whose goals then come from what was reached so far.
    """

    def __init__(
        self,
        compute_reward: Callable[[Any, Any, Any], Any],
        n_sampled_goal: int = 4,
        strategy: Strategy = "future",
        compute_terminated: Callable[[Any, Any, Any], Any] | None = None,
        goal_keys: tuple[str, str] = ("achieved_goal", "desired_goal"),
        copy_info: Sequence[str] = (),
        running: bool = False,
    ) -> None:
        if not callable(compute_reward):
            raise TypeError(f"compute_reward is {compute_reward!r}, expected a function (achieved, desired, info)")
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy is {strategy!r}, expected one of {STRATEGIES}")
        if n_sampled_goal < 1:
            raise ValueError(f"n_sampled_goal is {n_sampled_goal}, expected 1 or more; hindsight=None relabels nothing")
        self.compute_reward = compute_reward
        self.n_sampled_goal = int(n_sampled_goal)
        self.strategy: Strategy = strategy
        self.compute_terminated = compute_terminated
        self.goal_keys = (goal_keys[0], goal_keys[1])
        self.copy_info = tuple(copy_info)
        self.running = running

    def __deepcopy__(self, memo: dict[int, Any]) -> Hindsight:
        return self  # its functions may belong to an environment, which a copied buffer does not need again


class Infos(Sequence[Mapping[str, Any]]):
    """The kept infos of many steps: a sequence of dicts, which also gives one key of all steps as an array."""

    def __init__(self, columns: Mapping[str, Array], size: int) -> None:
        self._columns = columns
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return _Info(self._columns)[key]
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(self._size))]
        if not -self._size <= key < self._size:
            raise IndexError(f"info {key} of {self._size}")
        return _Info({name: column[key] for name, column in self._columns.items()})

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[i] for i in range(self._size))

    def missing(self, step: int) -> list[str]:
        """The keys that are NaN at a step, as those are kept that no info had."""
        columns = self._columns.items()
        return [name for name, column in columns if column.dtype.kind == "f" and np.isnan(column[step]).any()]


class _Info(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        raise KeyError(f"info[{key!r}] was not kept; keep it with Hindsight(copy_info=({key!r},))")


def one_per_step(values: Any, name: str, steps: int, shape: tuple[int, ...] = ()) -> Array:
    """What a user's function returned for ``steps`` steps, as ``(steps, *shape)``; numbers as ``(steps, 1)`` too.

    Raises:
        ShapeError: it returned another number of values.
    """
    if values is None:
        raise TypeError(f"{name} returned None for {steps} steps, expected an array ({steps},)")
    array = np.asarray(values)
    expected = (steps, *shape)
    if array.shape != expected and (shape or array.shape != (steps, 1)):
        raise ShapeError(
            f"{name} returned shape {array.shape} for {steps} steps, expected {expected}: it is called once for all of "
            "them, with arrays"
        )
    return array.reshape(expected)
