"""Hindsight: transitions as they would have been with a goal that was reached later (Andrychowicz et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from relive.errors import ReadOnlyError, ShapeError
from relive.functions import require_picklable
from relive.inputs import as_array

Array = NDArray[Any]
Value = TypeVar("Value")
Strategy = Literal["future", "final", "episode", "random"]
STRATEGIES: tuple[Strategy, ...] = ("future", "final", "episode", "random")


class Goals(NamedTuple):
    """The options of a `Hindsight` at one moment; a draw reads them once."""

    compute_reward: Callable[[Any, Any, Any], Any]
    n_sampled_goal: int
    strategy: Strategy
    compute_terminated: Callable[[Any, Any, Any], Any] | None
    goal_keys: tuple[str, str]
    copy_info: tuple[str, ...]
    running: bool


def _checked(goals: Goals) -> Goals:
    if not callable(goals.compute_reward):
        raise TypeError(f"compute_reward is {goals.compute_reward!r}, expected a function (achieved, desired, info)")
    if not (goals.compute_terminated is None or callable(goals.compute_terminated)):
        raise TypeError(
            f"compute_terminated is {goals.compute_terminated!r}, expected a function (achieved, desired, info) or None"
        )
    if goals.strategy not in STRATEGIES:
        raise ValueError(f"strategy is {goals.strategy!r}, expected one of {STRATEGIES}")
    if goals.n_sampled_goal < 1:
        raise ValueError(
            f"n_sampled_goal is {goals.n_sampled_goal}, expected 1 or more; hindsight=None relabels nothing"
        )
    return goals._replace(n_sampled_goal=int(goals.n_sampled_goal), running=bool(goals.running))


class _Goal(Generic[Value]):
    """One option of a `Hindsight`, which counts from the next draw on when it is assigned.

    Args:
        fixed: why it cannot be assigned, where it cannot.
    """

    def __init__(self, fixed: str | None = None) -> None:
        self._fixed = fixed

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, hindsight: None, owner: type) -> _Goal[Value]: ...
    @overload
    def __get__(self, hindsight: object, owner: type) -> Value: ...
    def __get__(self, hindsight: Any, owner: type) -> Any:
        return self if hindsight is None else getattr(hindsight.goals, self._name)

    def __set__(self, hindsight: Any, value: Value) -> None:
        if self._fixed is not None:
            raise ReadOnlyError(f"{self._name} of a Hindsight cannot be assigned: {self._fixed}")
        hindsight.goals = _checked(hindsight.goals._replace(**{self._name: value}))


class Hindsight:
    """Goals of hindsight experience replay (arXiv 1707.01495).

    Of ``n_sampled_goal + 1`` rows, ``n_sampled_goal`` get another goal: the one reached *after* a step of their own
    episode. What is stored is never changed. All but ``goal_keys`` and ``copy_info`` can be assigned later, as
    attributes, and count from the next draw on.

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

    FUNCTIONS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("compute_reward", "compute_terminated"),
        "a function defined at the top of a module; for a method of an environment, a static method of its class",
    )

    compute_reward: _Goal[Callable[[Any, Any, Any], Any]] = _Goal()
    n_sampled_goal: _Goal[int] = _Goal()
    strategy: _Goal[Strategy] = _Goal()
    compute_terminated: _Goal[Callable[[Any, Any, Any], Any] | None] = _Goal()
    goal_keys: _Goal[tuple[str, str]] = _Goal(
        "buffers were checked for them; make a Hindsight, and a buffer, with others"
    )
    copy_info: _Goal[tuple[str, ...]] = _Goal("it says what is stored with each step; make a buffer with another")
    running: _Goal[bool] = _Goal()

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
        keys = (goal_keys[0], goal_keys[1])
        copied = tuple(copy_info)
        self.goals = _checked(
            Goals(compute_reward, n_sampled_goal, strategy, compute_terminated, keys, copied, running)
        )

    def __getstate__(self) -> dict[str, Any]:
        require_picklable(self)
        return vars(self)

    def __copy__(self) -> Hindsight:
        return Hindsight(**self.goals._asdict())

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
    array = as_array(values, f"what {name} returned")
    expected = (steps, *shape)
    if array.shape != expected and (shape or array.shape != (steps, 1)):
        raise ShapeError(
            f"{name} returned shape {array.shape} for {steps} steps, expected {expected}: it is called once for all of "
            "them, with arrays"
        )
    return array.reshape(expected)
