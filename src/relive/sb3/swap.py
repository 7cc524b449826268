"""Puts relive's buffers into Stable-Baselines3 and sb3-contrib, for all algorithms of the process.

Their modules import the buffer classes by name, so each of those names has to be found and replaced. A module that
defines buffers is itself left as it is, since its functions look names up in it (``super(ReplayBuffer, self)``);
whoever imports it from now on gets a stand-in with the same attributes but for the classes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from relive.sb3.faces import FACES
from relive.sb3.rebase import HOMES, rebased

_BUFFERS = "stable_baselines3.common.buffers"
_PACKAGES = ("stable_baselines3", "sb3_contrib")

# How to undo each replacement: (namespace, name, what was there).
_replaced: list[tuple[dict[str, Any], str, Any]] = []


def install() -> None:
    """Swaps the buffer classes of Stable-Baselines3, and of sb3-contrib where it is there, for relive's.

    Algorithms made from now on use them, RecurrentPPO included, and so does every import that follows. Call it before
    your own imports from the two packages and from what is built on them (rl-zoo, imitation): a name that your module
    holds already stays what it is. A second call does nothing.
    """
    if _replaced:
        return
    present = [package for package in _PACKAGES if _can_import(package)]
    replacements: dict[int, type | ModuleType] = {id(theirs): ours for theirs, ours in FACES.items()}
    standins: dict[str, ModuleType] = {}
    for home in sorted({_BUFFERS, *HOMES.values()}):
        if home.partition(".")[0] in present:
            real = importlib.import_module(home)
            standins[home] = ModuleType(home, real.__doc__)
            replacements[id(real)] = standins[home]
            for name in (name for name, where in HOMES.items() if where == home):
                replacements[id(getattr(real, name))] = rebased(name)
    for home, standin in standins.items():
        standin.__dict__.update(
            (name, replacements.get(id(value), value)) for name, value in vars(sys.modules[home]).items()
        )
        _replace(sys.modules, home, standin)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in present and name not in standins:
            for attribute, value in list(vars(module).items()):
                if id(value) in replacements:
                    _replace(vars(module), attribute, replacements[id(value)])


def uninstall() -> None:
    """Undoes `install`. Models keep the buffers they have."""
    while _replaced:
        namespace, name, old = _replaced.pop()
        namespace[name] = old


@contextmanager
def installed() -> Iterator[None]:
    """`install` for the time of a ``with`` block; within another one, or after `install`, it changes nothing."""
    before = bool(_replaced)
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def _can_import(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        return False
    return True


def _replace(namespace: dict[str, Any], name: str, new: Any) -> None:
    _replaced.append((namespace, name, namespace[name]))
    namespace[name] = new
