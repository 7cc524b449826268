"""Arrays that are not stored but derived from the timeline when they are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from relive.timeline import Timeline

#: ``gather(rows, lanes)``: items ``(n, *item_shape)`` for int64 arrays ``(n,)`` of places.
Gather = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]


class DerivedArray:
    """A read-only array ``(rows, lanes, *item_shape)`` that gathers only what is asked of it.

    It indexes as a NumPy array does and turns into one with ``np.asarray``; what comes out is always a copy.
    """

    def __init__(
        self, gather: Gather, rows: int, lanes: int, item_shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._gather = gather
        self._rows = rows
        self._lanes = lanes
        self._item_shape = item_shape
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, lanes, *item_shape)``."""
        return (self._rows, self._lanes, *self._item_shape)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Always 0: nothing is stored for it."""
        return 0

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if _is_plain(parts) and len(parts) <= 2:
            return self._places(parts)
        if (
            len(parts) > 2
            and _is_plain(parts[:2])
            and all(isinstance(part, slice) and part == slice(None) for part in parts[2:])
        ):
            return self._places(parts[:2])
        return np.asarray(self)[key]

    def _places(self, parts: tuple[Any, ...]) -> Any:
        """Items at an index of the first two axes only."""
        first, second = (*parts, slice(None), slice(None))[:2]
        rows, lanes = _positions(first, self._rows), _positions(second, self._lanes)
        if isinstance(second, slice):
            rows = rows[..., None]
        elif isinstance(first, slice):
            rows = rows.reshape(-1, *[1] * lanes.ndim)
        rows, lanes = np.broadcast_arrays(rows, lanes)
        items = self._gather(np.ascontiguousarray(rows.reshape(-1)), np.ascontiguousarray(lanes.reshape(-1)))
        return items.reshape((*rows.shape, *self._item_shape))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            "next_observations is derived from the steps that follow and takes no item assignment; assign the whole "
            "array (buffer.next_observations = values), or use buffer.add or buffer.extend"
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a derived array is computed when it is read: it cannot be had without a copy")
        array: NDArray[Any] = self._places((slice(None),))
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"DerivedArray(shape={self.shape}, dtype={self.dtype})"


def successors(timeline: Timeline, index: int) -> DerivedArray:
    """Leaf ``index`` of all next observations, ``(rows, lanes, *shape)``."""
    leaf = timeline.observation.leaves[index]
    return DerivedArray(partial(timeline.successors, index), timeline.rows, timeline.lanes, leaf.shape, leaf.dtype)


def _positions(part: Any, size: int) -> NDArray[np.int64]:
    """The positions on an axis that an int, a slice or an array of ints names."""
    if isinstance(part, slice):
        return np.arange(*part.indices(size), dtype=np.int64)
    given = np.asarray(part)
    if given.size and given.dtype.kind not in "iu":
        raise IndexError(f"an index is {part!r}, expected ints, slices, arrays of ints or booleans, None or Ellipsis")
    positions = given.astype(np.int64)
    if ((positions < -size) | (positions >= size)).any():
        raise IndexError(f"an index is {part!r}, expected positions from {-size} to {size - 1}")
    return np.where(positions < 0, positions + size, positions)


def _is_plain(parts: tuple[Any, ...]) -> bool:
    """Whether every part indexes exactly one axis."""
    return all(part is not Ellipsis and part is not None and not _is_mask(part) for part in parts)


def _is_mask(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (
        not isinstance(part, slice | int | np.integer) and np.asarray(part).dtype == bool
    )
