"""The layout of a step in memory: the one place that knows what lies where.

Small leaves, flags and bookkeeping of a step stand side by side in one record (a NumPy structured dtype), so that a
random draw touches two or three neighbouring cache lines instead of five far ones; the successor's observation is in
the next record. A leaf over ``LARGE`` bytes lies in an array of its own, so that scalars stay dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.spaces import Leaf, Tree

#: Leaves of more bytes than this have their own array.
LARGE = 1024

REWARD, DONE, TIMEOUT, LINK, FLAGS = "reward", "done", "timeout", "link", "flags"
INTERRUPTED = 1
"""In ``flags``: the stream was cut after this step, from outside."""


def is_large(leaf: Leaf) -> bool:
    """Whether a leaf lies in an array of its own."""
    return leaf.nbytes > LARGE


def record_dtype(observation: Tree, action: Tree, extra: Tree, reward_shape: tuple[int, ...]) -> np.dtype[Any]:
    """The record of a step; the fields with the widest alignment come first, so that none needs padding before it."""
    fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = [
        (leaf.path, leaf.dtype, leaf.shape)
        for leaf in (*observation.leaves, *action.leaves, *extra.leaves)
        if not is_large(leaf)
    ]
    fields += [(REWARD, np.dtype(np.float32), reward_shape)]
    fields += [(name, np.dtype(np.float32), ()) for name in (DONE, TIMEOUT)]
    fields += [(LINK, np.dtype(np.int32), ()), (FLAGS, np.dtype(np.uint8), ())]
    fields.sort(key=lambda field: -field[1].alignment)
    return np.dtype(fields, align=True)
