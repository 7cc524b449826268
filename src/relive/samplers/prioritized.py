"""Steps with a large error more often: prioritized experience replay (Schaul et al. 2016, arXiv 1511.05952)."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, overload

from relive.functions import require_picklable
from relive.samplers.schedules import Schedule

Value = TypeVar("Value")


class Follower(Protocol):
    """Who draws by a sampler."""

    def follow_sampler(self) -> None:
        """Takes the sampler's options as they are now, or raises and stays as it is."""


class _Option(Generic[Value]):
    """An option of a sampler that can be assigned: it is checked, and all buffers that draw by the sampler follow.

    Args:
        check: takes what came to what is kept, or raises.
    """

    def __init__(self, check: Callable[[Any], Value]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = "_" + name

    @overload
    def __get__(self, sampler: None, owner: type) -> _Option[Value]: ...
    @overload
    def __get__(self, sampler: object, owner: type) -> Value: ...
    def __get__(self, sampler: Any, owner: type) -> Any:
        return self if sampler is None else sampler.__dict__[self._name]

    def __set__(self, sampler: Any, value: Any) -> None:
        new, options = self._check(value), sampler.__dict__
        if self._name not in options:
            options[self._name] = new
            return
        before, options[self._name] = options[self._name], new
        try:
            sampler._tell()
        except Exception:
            options[self._name] = before
            sampler._tell()
            raise


def is_priority(value: object) -> bool:
    """Whether it is a finite number from 0 on."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _alpha(alpha: Any) -> float:
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ValueError(f"alpha is {alpha}, expected a finite number from 0 on (0 is uniform)")
    return float(alpha)


def _eps(eps: Any) -> float:
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps is {eps}, expected a finite number from 0 on")
    return float(eps)


def _initial(initial: Any) -> float | Literal["max"]:
    if initial != "max" and not is_priority(initial):
        raise ValueError(f"initial is {initial!r}, expected 'max' or a finite priority from 0 on")
    return "max" if initial == "max" else float(initial)


def _one_of(name: str, *values: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"{name} is {value!r}, expected {values[0]!r} or {values[1]!r}")
        return value

    return check


class _Weighted:
    """What both variants share: exponents, which may change while running.

    Attributes:
        alpha: how much priorities count.
        weights_over: where the largest weight is looked for.
        progress: how far training is, from 0 to 1; the training loop sets it where ``beta`` is a function.
        dropped: priorities that came for steps that were overwritten meanwhile.
    """

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "beta": "a number, relive.Linear(0.4, 1.0), or a function defined at the top of a module"
    }

    alpha = _Option(_alpha)
    weights_over: _Option[Literal["batch", "buffer"]] = _Option(_one_of("weights_over", "batch", "buffer"))

    def __init__(self, alpha: float, beta: Schedule, weights_over: Literal["batch", "buffer"]) -> None:
        self._followers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.alpha = alpha
        self.beta = beta
        self.weights_over = weights_over
        self.progress = 0.0
        self.dropped = 0

    @property
    def beta(self) -> Schedule:
        """How much the importance weights correct; it can be set at any time."""
        return self._beta

    @beta.setter
    def beta(self, beta: Schedule) -> None:
        if not callable(beta) and not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"beta is {beta}, expected a finite number from 0 on, or a function of progress")
        self._beta = beta

    def beta_now(self) -> float:
        """The exponent of the next draw."""
        return float(self._beta(self.progress)) if callable(self._beta) else float(self._beta)

    def tell(self, follower: Follower) -> None:
        """Tells this one of every change of options from now on, for as long as it lives."""
        self._followers.add(follower)

    def _tell(self) -> None:
        for follower in list(self._followers):
            follower.follow_sampler()

    def __getstate__(self) -> dict[str, Any]:
        require_picklable(self)
        return self._state()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copied(copy.deepcopy(self._state(), memo))

    def __copy__(self) -> Any:
        return self._copied(self._state())

    def _copied(self, state: dict[str, Any]) -> Any:
        other = type(self).__new__(type(self))
        other.__setstate__(state)
        return other

    def _state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_followers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._followers = weakref.WeakSet()
        self.__dict__.update(state)


class Prioritized(_Weighted):
    """Draws step i with probability ``mass_i / sum``, where ``mass = (priority + eps) ** alpha``.

    Batches carry ``weights = (N * P(i)) ** -beta``, scaled to at most 1, and ``handles``, with which priorities go back
    through `ReplayBuffer.update_priorities`. Draws are stratified: one from each of ``batch_size`` equal parts of the
    sum. Where all masses are 0, all steps are alike.

    Every argument can be assigned later, as an attribute, and counts from the next draw and the next new step on. A new
    ``alpha``, ``eps`` or ``weights_over`` looks at all steps once, and takes about 10 bytes a step more from then on.

    Args:
        alpha: how much priorities count; 0 is uniform.
        beta: how much the weights correct, or a function of ``progress``.
        eps: added to every priority, so that a step without error is not lost.
        initial: the priority of a new step; "max" takes the largest mass.
        max_over: of "max": of what is "held", or the largest "ever" given.
        weights_over: the largest weight, to which others are scaled, is that of the "batch" or of the "buffer".

    Raises:
        ValueError: an option out of its range.
        PriorityError: assigned, an option that a priority already there is too large for; nothing is changed then.
    """

    eps = _Option(_eps)
    initial = _Option(_initial)
    max_over: _Option[Literal["held", "ever"]] = _Option(_one_of("max_over", "held", "ever"))

    def __init__(
        self,
        alpha: float = 0.6,
        beta: Schedule = 0.4,
        eps: float = 1e-6,
        initial: float | Literal["max"] = "max",
        max_over: Literal["held", "ever"] = "held",
        weights_over: Literal["batch", "buffer"] = "batch",
    ) -> None:
        super().__init__(alpha, beta, weights_over)
        self.eps = eps
        self.initial = initial
        self.max_over = max_over


class RankPrioritized(_Weighted):
    """Draws the step of rank i with probability ``(1 / i) ** alpha``, scaled; rank 1 has the largest priority.

    The rank-based variant of the same paper, which outliers do not distort; the order is exact at every draw. New steps
    get the largest priority held, and of equal priorities the newest step comes first. Every argument can be assigned
    later, as an attribute.

    Args:
        alpha: how much ranks count; 0 is uniform.
        beta: as in `Prioritized`.
        weights_over: as in `Prioritized`.
    """

    def __init__(
        self, alpha: float = 0.7, beta: Schedule = 0.5, weights_over: Literal["batch", "buffer"] = "batch"
    ) -> None:
        super().__init__(alpha, beta, weights_over)
