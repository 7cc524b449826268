"""Tells, before training starts, that a buffer will not fit into memory."""

from __future__ import annotations

import warnings

import psutil

from relive.callers import level_of_caller
from relive.errors import MemoryWarning


def warn_if_too_large(needed: int) -> None:
    """Warns where ``needed`` bytes are more than the machine has, or more than is free now.

    Pages are taken as they are first written, so a buffer may still live if it never fills: never an error.
    """
    memory = psutil.virtual_memory()
    if needed > memory.total:
        verdict = f"the machine has {memory.total / 1e9:.2f}GB in all, so it cannot fill"
    elif needed > memory.available:
        verdict = f"{memory.available / 1e9:.2f}GB of {memory.total / 1e9:.2f}GB are available now"
    else:
        return
    warnings.warn(
        "This system does not have apparently enough memory to store the complete buffer: "
        f"it takes {needed / 1e9:.2f}GB when full, and {verdict}. Choose a smaller buffer_size or smaller dtypes.",
        MemoryWarning,
        stacklevel=level_of_caller(),
    )
