"""Numbers that change with the progress of training, from 0 to 1. Unlike lambdas they can be pickled and compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

#: A number, or a function of training progress from 0 to 1.
Schedule: TypeAlias = float | Callable[[float], float]


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}, expected a finite number from 0 on")


@dataclass(frozen=True)
class Constant:
    """The same number all the time.

    Args:
        value: finite, from 0 on.

    Raises:
        ValueError: it is not.
    """

    value: float

    def __post_init__(self) -> None:
        _check("value", self.value)

    def __call__(self, progress: float) -> float:
        """The number."""
        return float(self.value)


@dataclass(frozen=True)
class Linear:
    """A straight line from ``start`` at progress 0 to ``end`` at 1; before and after it stays what it is there.

    Args:
        start: finite, from 0 on.
        end: the same.

    Raises:
        ValueError: one is not.

    Example:
        >>> beta = Linear(0.4, 1.0)
        >>> beta(0.0), beta(0.5), beta(2.0)
        (0.4, 0.7, 1.0)
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        _check("start", self.start)
        _check("end", self.end)

    def __call__(self, progress: float) -> float:
        """The number at this progress."""
        along = min(max(float(progress), 0.0), 1.0)
        return float(self.start * (1.0 - along) + self.end * along)
