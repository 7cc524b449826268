"""Storage in the memory of this process, taken from the system page by page as it is first written."""

from __future__ import annotations

from typing import Any

import numpy as np


class Memory:
    """Hands out zeroed arrays.

    ``numpy.zeros`` takes address space, not memory: a page costs nothing until something is written to it, so a buffer
    that is a tenth full takes a tenth of its size.
    """

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
        """A zeroed, C-contiguous, writable array; ``name`` is unique within a timeline."""
        return np.zeros(shape, dtype)
