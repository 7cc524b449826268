"""The array attributes of a replay buffer: ``buffer.observations``, ``buffer.rewards`` and their like.

Each is a data descriptor over the timeline. Reading gives a real, writable NumPy array ``(rows, n_envs, ...)`` over the
stored memory, or a `DerivedArray`; assigning writes the whole. A subclass that skips `ReplayBuffer.__init__` has no
timeline; its attributes then are plain ones and hold whatever it assigns: public code does this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from relive.errors import LanesDifferError
from relive.spaces import Leaf, Tree
from relive.timeline import Timeline
from relive.views import successors

if TYPE_CHECKING:
    from relive.buffers.replay import ReplayMethods


class _Attribute(ABC):
    """An attribute that falls back to a plain one where the buffer has no timeline."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, buffer: ReplayMethods | None, owner: type) -> Any:
        if buffer is None:
            return self
        timeline: Timeline | None = buffer.__dict__.get("_timeline")
        if timeline is not None:
            return self._read(timeline)
        try:
            return buffer.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"{type(buffer).__name__} has no attribute {self.name!r}") from None

    def __set__(self, buffer: ReplayMethods, value: Any) -> None:
        timeline: Timeline | None = buffer.__dict__.get("_timeline")
        if timeline is None:
            buffer.__dict__[self.name] = value
        else:
            self._write(timeline, value)

    @abstractmethod
    def _read(self, timeline: Timeline) -> Any: ...

    @abstractmethod
    def _write(self, timeline: Timeline, value: Any) -> None: ...


class Field(_Attribute):
    """Rewards and flags: ``(rows, n_envs)`` float32."""

    def __init__(self, path: str, *, ends: bool = False) -> None:
        self.path = path
        self.ends = ends  # it says where episodes end

    def _read(self, timeline: Timeline) -> Any:
        return timeline.view(self.path)

    def _write(self, timeline: Timeline, value: Any) -> None:
        timeline.view(self.path)[...] = value
        if self.ends:
            timeline.renew()


class LeafDict(dict[Any, Any]):
    """The arrays of a Dict space by key; assigning to a key writes that array whole into the buffer."""

    def __init__(self, arrays: Mapping[Any, Any], assign: Callable[[Any, Any], None]) -> None:
        super().__init__(arrays)
        self._assign = assign

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self:
            raise KeyError(f"{key!r} is not a key of the space, expected one of {list(self)}")
        self._assign(key, value)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # copies and pickles hold the arrays, not the buffer


class _Leaves(_Attribute):
    """Arrays of a tree of leaves, nested as the space is."""

    @abstractmethod
    def _tree(self, timeline: Timeline) -> Tree: ...

    @abstractmethod
    def _read_leaf(self, timeline: Timeline, index: int) -> Any: ...

    @abstractmethod
    def _write_leaves(self, timeline: Timeline, values: dict[int, Any]) -> None:
        """Writes some leaves whole, ``(rows, lanes, *shape)`` in the stored dtype."""

    def _read(self, timeline: Timeline) -> Any:
        tree = self._tree(timeline)
        return self._nest(timeline, tree.space, iter(range(len(tree.leaves))))

    def _write(self, timeline: Timeline, value: Any) -> None:
        self._write_parts(timeline, value, self._tree(timeline), range(len(self._tree(timeline).leaves)))

    def _nest(self, timeline: Timeline, space: spaces.Space[Any], indices: Iterator[int]) -> Any:
        if isinstance(space, spaces.Tuple):
            return tuple(self._nest(timeline, child, indices) for child in space.spaces)
        if not isinstance(space, spaces.Dict):
            return self._read_leaf(timeline, next(indices))
        below: dict[Any, range] = {}
        arrays = {}
        for key, child in space.spaces.items():
            size = _count(child)
            first = next(indices)
            below[key] = range(first, first + size)
            for _ in range(size - 1):
                next(indices)
            arrays[key] = self._nest(timeline, child, iter(below[key]))

        def assign(key: Any, value: Any) -> None:
            self._write_parts(timeline, value, Tree(space.spaces[key], ()), below[key])

        return LeafDict(arrays, assign)

    def _write_parts(self, timeline: Timeline, value: Any, tree: Tree, indices: range) -> None:
        leaves = self._tree(timeline).leaves
        parts = dict(zip(indices, tree.flatten(value), strict=True))
        self._write_leaves(timeline, {i: _whole(part, leaves[i], timeline) for i, part in parts.items()})


class Observations(_Leaves):
    """What was seen before each step. Assigning leaves the next observations as they are."""

    def _tree(self, timeline: Timeline) -> Tree:
        return timeline.observation

    def _read_leaf(self, timeline: Timeline, index: int) -> Any:
        return timeline.view(timeline.observation.leaves[index].path)

    def _write_leaves(self, timeline: Timeline, values: dict[int, Any]) -> None:
        for index, value in values.items():
            timeline.assign_observation(index, value)


class NextObservations(_Leaves):
    """What was seen after each step: derived. Assigning finds out anew which successors need to be kept apart."""

    def _tree(self, timeline: Timeline) -> Tree:
        return timeline.observation

    def _read_leaf(self, timeline: Timeline, index: int) -> Any:
        return successors(timeline, index)

    def _write_leaves(self, timeline: Timeline, values: dict[int, Any]) -> None:
        every = range(len(timeline.observation.leaves))
        timeline.assign_successors([values[i] if i in values else np.asarray(successors(timeline, i)) for i in every])


class Actions(_Leaves):
    """Actions, flattened to one axis."""

    def _tree(self, timeline: Timeline) -> Tree:
        return timeline.action

    def _read_leaf(self, timeline: Timeline, index: int) -> Any:
        return timeline.view(timeline.action.leaves[index].path)

    def _write_leaves(self, timeline: Timeline, values: dict[int, Any]) -> None:
        for index, value in values.items():
            timeline.view(timeline.action.leaves[index].path)[...] = value


class Position(_Attribute):
    """``pos``: the row written next. Setting it declares the rows before it written."""

    def _read(self, timeline: Timeline) -> int:
        return lockstep(timeline, self.name)[0]

    def _write(self, timeline: Timeline, value: int) -> None:
        _, count = lockstep(timeline, self.name)
        timeline.declare(value, timeline.rows if count == timeline.rows else value)


class Full(_Attribute):
    """``full``: every row is written. Setting it declares so; clearing it keeps the rows before ``pos``."""

    def _read(self, timeline: Timeline) -> bool:
        return lockstep(timeline, self.name)[1] == timeline.rows

    def _write(self, timeline: Timeline, value: bool) -> None:
        position, count = lockstep(timeline, self.name)
        if bool(value) != (count == timeline.rows):
            timeline.declare(position, timeline.rows if value else position)


def lockstep(timeline: Timeline, name: str) -> tuple[int, int]:
    """(position, rows held) that all lanes share.

    Raises:
        LanesDifferError: they do not.
    """
    position, count = timeline.core.common()
    if position < 0:
        raise LanesDifferError(
            f"{name} has no single value: the lanes hold {timeline.lane_sizes().tolist()} steps; ask lane_sizes"
        )
    return position, count


def _count(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_count(child) for child in space.spaces.values())
    return sum(_count(child) for child in space.spaces) if isinstance(space, spaces.Tuple) else 1


def _whole(value: Any, leaf: Leaf, timeline: Timeline) -> Any:
    """A contiguous array of all rows in the stored dtype, cast and broadcast as NumPy assigns."""
    out = np.empty((timeline.rows, timeline.lanes, *leaf.shape), leaf.dtype)
    out[...] = value
    return out
