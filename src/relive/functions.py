"""Which options hold functions, and whether those can be pickled.

A pickle takes a function by its name, so a lambda, a function inside another, or a method of something that holds a
lock ends a dump deep inside pickle, with a message that does not say whose it is. Who holds functions asks here, when
it is pickled. Deep copies share functions and do not ask.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, ClassVar, Protocol

from relive.errors import FunctionNotPickledError


class Holder(Protocol):
    """Options, some of which may be functions: their names, and what to do about one that cannot be pickled."""

    FUNCTIONS: ClassVar[Mapping[str, str]]


def held(holder: Holder) -> dict[str, Callable[..., Any]]:
    """The functions that it holds now, by the names of the options."""
    values = {name: getattr(holder, name) for name in holder.FUNCTIONS}
    return {name: value for name, value in values.items() if callable(value)}


def obstacle(function: Callable[..., Any]) -> Exception | None:
    """What pickle says against a function; None where it takes it."""
    try:
        pickle.dumps(function)
    except Exception as error:  # whatever an object on the way raises
        return error
    return None


def require_picklable(holder: Holder) -> None:
    """Refuses to be pickled with a function that pickle does not take. Picklers that take such functions may go on.

    Raises:
        FunctionNotPickledError: names the option, and what to do.
    """
    for name, function in held(holder).items():
        error = obstacle(function)
        if error is not None and not _takes_any_function():
            raise FunctionNotPickledError(
                f"{name} of {type(holder).__name__} is {function!r}, which pickle cannot take ({error}); expected "
                f"{holder.FUNCTIONS[name]}. A copy.deepcopy shares the function and works as it is."
            ) from error


def _takes_any_function() -> bool:
    """Whether cloudpickle or dill is at work, which write functions out in full."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if "cloudpickle" in module or module.partition(".")[0] == "dill":
            return True
        frame = frame.f_back
    return False
