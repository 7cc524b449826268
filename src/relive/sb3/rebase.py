"""Classes of Stable-Baselines3 and sb3-contrib on other bases: their own code, over relive's buffers.

A class statement cannot be run again on another base, but what it made can be put together anew: the same functions,
with ``super()`` bound to the new class.
"""

from __future__ import annotations

import functools
import importlib
from types import CellType, FunctionType
from typing import Any

from relive.sb3.faces import FACES

#: Buffers that derive from the five of `FACES` → the module that defines them.
HOMES = {
    "NStepReplayBuffer": "stable_baselines3.common.buffers",
    "HerReplayBuffer": "stable_baselines3.her.her_replay_buffer",
    "RecurrentRolloutBuffer": "sb3_contrib.common.recurrent.buffers",
    "RecurrentDictRolloutBuffer": "sb3_contrib.common.recurrent.buffers",
    "MaskableRolloutBuffer": "sb3_contrib.common.maskable.buffers",
    "MaskableDictRolloutBuffer": "sb3_contrib.common.maskable.buffers",
}

# What belongs to one class object and is made for a new one by `type`.
_OF_THE_CLASS = {"__dict__", "__weakref__", "__abstractmethods__", "_abc_impl"}


@functools.cache
def rebased(name: str) -> type:
    """The class of `HOMES` with this name, on relive's base."""
    theirs: type = getattr(importlib.import_module(HOMES[name]), name)
    return rebase(theirs, FACES[theirs.__base__]) if theirs.__base__ in FACES else theirs


def rebase(theirs: type, base: type) -> type:
    """What the class statement of ``theirs`` would have made with ``base`` in place of its own base.

    The new class is known to ``theirs`` as a subclass, and pickles under ``base``'s module, where its name has to lead
    to it. ``super()`` works in its functions; a ``super`` that names the old base would not.
    """
    cell = CellType()
    namespace = {name: _bound(value, cell) for name, value in vars(theirs).items() if name not in _OF_THE_CLASS}
    namespace["__module__"] = base.__module__
    if "__setstate__" in namespace:
        namespace["__setstate__"] = _adopting(namespace["__setstate__"])
    ours = type(base)(theirs.__name__, (base,), namespace)
    cell.cell_contents = ours
    theirs.register(ours)  # type: ignore[attr-defined]
    return ours


def _bound(value: Any, cell: CellType) -> Any:
    """A member of a class, with ``super()`` in its functions bound to the class in ``cell``."""
    if isinstance(value, staticmethod | classmethod):
        return type(value)(_bound(value.__func__, cell))
    if isinstance(value, property):
        return property(_bound(value.fget, cell), _bound(value.fset, cell), _bound(value.fdel, cell), value.__doc__)
    if not isinstance(value, FunctionType) or "__class__" not in value.__code__.co_freevars:
        return value
    closure = tuple(
        cell if name == "__class__" else old
        for name, old in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    )
    function = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, closure)
    function.__kwdefaults__ = value.__kwdefaults__
    functools.update_wrapper(function, value)
    del function.__wrapped__  # type: ignore[attr-defined]
    return function


def _adopting(setstate: Any) -> Any:
    """A class's own ``__setstate__``, for states that its original pickled too."""

    @functools.wraps(setstate)
    def adopting(self: Any, state: dict[str, Any]) -> None:
        setstate(self, self._adopt(state))

    return adopting
