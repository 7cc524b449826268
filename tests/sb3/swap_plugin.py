"""A pytest plugin under which Stable-Baselines3's and sb3-contrib's own tests run on relive's buffers.

``pytest -p swap_plugin`` imports it before any test module, so whatever a test imports is swapped already. Every
test fails if a module still holds an original class; the run ends with how many buffers of each class were made.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from typing import Any

import pytest
from stable_baselines3.common.buffers import BaseBuffer as SB3BaseBuffer

import relive.sb3

made: Counter[str] = Counter()


def count_instances(base: type) -> None:
    """Counts in `made` the instances of ``base`` and its subclasses, by the full name of their class."""
    init: Any = base.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        made[f"{type(self).__module__}.{type(self).__qualname__}"] += 1
        init(self, *args, **kwargs)

    base.__init__ = counting  # type: ignore[misc]


def originals(base: type) -> set[type]:
    """The class, and all that really derive from it."""
    return {base, *(found for child in base.__subclasses__() for found in originals(child))}


@functools.cache
def leaks() -> list[str]:
    """Names in Stable-Baselines3, sb3-contrib and their tests, all collected, that still are original classes."""
    classes = originals(SB3BaseBuffer)
    return sorted(
        f"{module_name}.{name}"
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] in ("stable_baselines3", "sb3_contrib", "tests")
        for name, value in list(vars(module).items())
        if isinstance(value, type) and value in classes
    )


relive.sb3.install()
count_instances(SB3BaseBuffer)
count_instances(relive.BaseBuffer)


def pytest_runtest_setup() -> None:
    if found := leaks():
        pytest.fail(f"originals are still referenced: {', '.join(found)}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)  # a worker of xdist
    if output is not None:
        output["made"] = dict(made)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    made.update(getattr(node, "workeroutput", {}).get("made", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, count in sorted(made.items()):
        terminalreporter.write_line(f"swap: {count:5d} × {name}")
