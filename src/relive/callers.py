"""Who called relive."""

from __future__ import annotations

import sys


def level_of_caller() -> int:
    """The ``stacklevel`` at which the function that asks warns of the line that called into relive."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "relive":
        frame, level = frame.f_back, level + 1
    return level
