"""The calls that nearly every training loop makes, bound beforehand: see `Usual` in native/module.cpp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class UsualCalls:
    """Bound calls; None where the buffer's options need the long way.

    Args:
        add: one step of every environment in the seed's words, see ``Usual.add``.
        sample: a uniform batch, see ``Usual.sample``.
    """

    __slots__ = ("add", "sample")

    def __init__(self, add: Callable[..., int] | None, sample: Callable[[Any], Any] | None) -> None:
        self.add = add
        self.sample = sample

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a buffer binds its own


NO_USUAL_CALLS = UsualCalls(None, None)
