"""Places where a step does not follow on from the one before it, although no end was said there.

Such data (a dataset without flags for time limits, pieces of several) is stored as it is: a break says only that the
successor is kept apart. What looks over several steps would run across it, so `extend` can end the episode there, and
says once per buffer where it was not asked to.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, TypeAlias

from relive import _native
from relive.callers import level_of_caller
from relive.errors import BreaksWarning

#: What `extend` does about breaks: nothing, or end the episode before each.
Rule: TypeAlias = Literal["detect"] | None

#: So many breaks in all are told of.
MANY = 10


def asked_for(rule: Rule, tolerance: float) -> _native.Breaks:
    """What the timeline is to mind.

    Raises:
        ValueError: another rule, or a tolerance that is none.
    """
    if rule not in (None, "detect"):
        raise ValueError(f"breaks is {rule!r}, expected None or 'detect'")
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"breaks_tolerance is {tolerance}, expected a finite number from 0 on")
    if tolerance and rule is None:
        raise ValueError(f"breaks_tolerance is {tolerance} where breaks is None, expected breaks='detect' beside it")
    return _native.Breaks(rule == "detect", tolerance)


def warn(count: int) -> None:
    """Warns of breaks that nobody asked for."""
    warnings.warn(
        f"extend got {count} steps whose observation is not what was seen after the step before, where no end was said "
        "(done, terminated, truncated or interrupt). They are stored as they are, but n-step sums, goals and sequences "
        "run across such places. With breaks='detect' extend ends the episode there; with breaks_tolerance= beside it, "
        "only where numbers are further apart than that.",
        BreaksWarning,
        stacklevel=level_of_caller(),
    )
