"""The timeline: every step of every lane stored once, the rest derived. The Python face of native/timeline.hpp.

It owns the arrays in which steps lie, brings the native core more room for finals when it asks for it, and knows how to
be copied and pickled (used rows only).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from relive import _native, layout
from relive.batches import TensorTree
from relive.errors import StaleHandleError
from relive.spaces import Leaf, Tree, field_tree
from relive.storage import Memory
from relive.tensors import from_capsule

Array = NDArray[Any]

#: A chunk of finals is about this large, or what a quarter of the rows need where that is less.
_CHUNK_BYTES = 1 << 20
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_DTYPES = [
    (np.dtype(name), _DLPACK_CODES[np.dtype(name).kind], 8 * np.dtype(name).itemsize) for name in "fd?BbhHiIqQlLe"
]


class Bytes(NamedTuple):
    """How much memory a buffer takes.

    Attributes:
        reserved: bytes of address space, for the buffer when it is full (finals as far as they were needed).
        touched: bytes that held steps and finals lie in, which is what the process really occupies.
    """

    reserved: int
    touched: int


class Timeline:
    """Lanes of steps.

    Args:
        observation: leaves of an observation.
        action: leaves of an action.
        rows: steps held per lane.
        lanes: streams of steps, one for each environment.
        storage: where the bytes lie.
        extra: fields that the user declared.
        reward_shape: ``()``, or ``(k,)`` for vector rewards.
    """

    def __init__(
        self,
        observation: Tree,
        action: Tree,
        rows: int,
        lanes: int,
        storage: Memory | None = None,
        extra: Tree | None = None,
        reward_shape: tuple[int, ...] = (),
    ) -> None:
        self.observation = observation
        self.action = action
        self.extra = field_tree({}) if extra is None else extra
        self.reward_shape = reward_shape
        self.rows = rows
        self.lanes = lanes
        self.is_plain = observation.is_leaf and action.is_leaf and not self.extra.leaves and not reward_shape
        self._storage = storage or Memory()
        self._dtype = layout.record_dtype(observation, action, self.extra, reward_shape)
        self._records = self._storage.array("records", (lanes, rows), self._dtype)
        self._large = {
            leaf.path: self._storage.array(leaf.path, (lanes, rows, *leaf.shape), leaf.dtype)
            for leaf in (*observation.leaves, *action.leaves, *self.extra.leaves)
            if layout.is_large(leaf)
        }
        self._slot_bytes = sum(leaf.nbytes for leaf in observation.leaves)
        self._chunk_slots = self._slots_per_chunk()
        self._finals: list[list[Array]] = []
        offsets = [
            self._offset(name) for name in (layout.REWARD, layout.DONE, layout.TIMEOUT, layout.LINK, layout.FLAGS)
        ]
        self.core = _native.Core(
            rows=rows,
            lanes=lanes,
            records=_as_bytes(self._records),
            record_bytes=self._dtype.itemsize,
            observation=[self._native_leaf(leaf, bare=_is_discrete(leaf)) for leaf in observation.leaves],
            action=[self._native_leaf(leaf, bare=leaf.shape == (1,)) for leaf in action.leaves],
            extra=[self._native_leaf(leaf, bare=leaf.shape == ()) for leaf in self.extra.leaves],
            reward_shape=list(reward_shape),
            offsets=offsets,
            observation_is_tree=not observation.is_leaf,
            action_is_tree=not action.is_leaf,
            array_type=np.ndarray,
            dtypes=_DTYPES,
            fields_are_known=_numpy_fields_are_known(),
        )
        self._grow_finals(1)  # the head slots

    # Writing -------------------------------------------------------------------------------------------------------

    def append(self, *arguments: Any) -> bool:
        """Passes one step, or many, to the core; False where it does not understand them as they are."""
        missing = self.core.append(*arguments)
        while missing > 0:
            self._grow_finals(missing)
            missing = self.core.append(*arguments)
        return missing == 0

    @contextmanager
    def minding(self, breaks: _native.Breaks) -> Iterator[None]:
        """Minds the breaks of what is appended meanwhile, step by step, by calls that know nothing of them."""
        self.core.mind(breaks)
        try:
            yield
        finally:
            self.core.mind(None)

    def interrupt(self, lanes: Sequence[int]) -> None:
        """Marks that the streams of these lanes were cut from outside after their newest step."""
        self.core.interrupt(list(lanes))

    def clear(self) -> None:
        """Forgets every step; every handle given so far is stale from now on."""
        self.core.clear()

    def declare(self, position: int, count: int) -> None:
        """Declares ``count`` rows of every lane written, the newest of them before row ``position``."""
        while missing := self.core.declare(position, count):
            self._grow_finals(missing)

    def set(self, handles: NDArray[np.int64], field: str, values: Array) -> int:
        """Overwrites a field of held steps; returns how many handles were stale, and so left out.

        Args:
            handles: ``(n,)``.
            field: a path of an action leaf or of a declared field, or "reward", "done", "timeout".
            values: ``(n, *shape)`` in the stored dtype.
        """
        leaves = (*self.action.leaves, *self.extra.leaves)
        names = [layout.REWARD, layout.DONE, layout.TIMEOUT, *(leaf.path for leaf in leaves)]
        return self.core.set_field(handles, names.index(field), _as_bytes(values))

    def assign_observation(self, leaf: int, values: Array) -> None:
        """Overwrites one observation leaf of all rows, ``(rows, lanes, *shape)``; successors stay what they were."""
        while missing := self.core.assign_observation(leaf, _as_bytes(values)):
            self._grow_finals(missing)

    def assign_successors(self, values: Sequence[Array]) -> None:
        """Sets the successors of all rows, ``(rows, lanes, *shape)`` for every observation leaf."""
        while missing := self.core.assign_successors([_as_bytes(value) for value in values]):
            self._grow_finals(missing)

    def renew(self) -> None:
        """Says that end flags were written through array views: where episodes begin and end is found out anew."""
        self.core.renew()

    def rebuild(self) -> None:
        """Brings what is derived back in step after writes through array views."""
        self.core.compact()

    # Reading -------------------------------------------------------------------------------------------------------

    def view(self, path: str) -> Array:
        """The stored array of a leaf or field, ``(rows, lanes, *shape)``: writable, not a copy."""
        array = self._large[path] if path in self._large else self._records[path]
        view: Array = array.swapaxes(0, 1)
        return view

    def successors(self, index: int, rows: NDArray[np.int64], lanes: NDArray[np.int64]) -> Array:
        """Leaf ``index`` of what was seen after the steps at these places: ``(n, *shape)`` for ``(n,)`` each."""
        leaf = self.observation.leaves[index]
        out = np.empty((len(rows), *leaf.shape), leaf.dtype)
        self.core.successors(index, rows, lanes, _as_bytes(out))
        return out

    def transitions(self, handles: NDArray[np.int64]) -> TensorTree:
        """The fields of given steps, as `Core.sample` returns them.

        Raises:
            StaleHandleError: a step is not held any more.
        """
        fields = self.core.transitions_of(handles, from_capsule)
        if fields is None:
            stale = handles[~self.core.held_handles(handles)]
            raise StaleHandleError(
                f"{len(stale)} of {len(handles)} handles name steps that were overwritten or forgotten, the first is "
                f"{int(stale[0])}; expected held steps (see held_handles)"
            )
        return fields

    def lane_sizes(self) -> NDArray[np.int64]:
        """Steps held in each lane, ``(lanes,)``."""
        return np.array(self.core.lanes()[1], np.int64)

    def nbytes(self) -> Bytes:
        """Memory reserved and touched."""
        row_bytes = self._dtype.itemsize + sum(int(array[0, 0].nbytes) for array in self._large.values())
        slots, used_slots, _ = self.core.finals()
        used_rows, _ = self.core.used()
        return Bytes(
            reserved=self.rows * self.lanes * row_bytes + slots * self._slot_bytes,
            touched=used_rows * self.lanes * row_bytes + used_slots * self._slot_bytes,
        )

    # Copies --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        apart = list(self._large.values())
        while True:
            rows, slots = self.core.used()
            records = np.empty((self.lanes, rows), self._dtype)
            large = [np.empty((self.lanes, rows, *array.shape[2:]), array.dtype) for array in apart]
            finals = [np.empty((slots, *leaf.shape), leaf.dtype) for leaf in self.observation.leaves]
            lanes = self.core.snapshot(
                rows,
                slots,
                _as_bytes(records),
                [_as_bytes(array) for array in large],
                [_as_bytes(array) for array in finals],
            )
            if lanes is not None:  # else steps were added since `used`
                break
        return {
            "observation": self.observation,
            "action": self.action,
            "extra": self.extra,
            "reward_shape": self.reward_shape,
            "rows": self.rows,
            "lanes": self.lanes,
            "records": records,
            "large": large,
            "finals": finals,
            "heads": lanes[0],
            "counts": lanes[1],
            "begun": lanes[2],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["observation"],
            state["action"],
            state["rows"],
            state["lanes"],
            extra=state["extra"],
            reward_shape=state["reward_shape"],
        )
        rows = state["records"].shape[1]
        self._records[:, :rows] = state["records"]
        for array, kept in zip(self._large.values(), state["large"], strict=True):
            array[:, :rows] = kept
        slots = len(state["finals"][0])
        self._grow_finals(slots - self._chunk_slots)
        for first, chunk in zip(range(0, slots, self._chunk_slots), self._finals, strict=False):
            for array, kept in zip(chunk, state["finals"], strict=True):
                part = kept[first : first + self._chunk_slots]
                array[: len(part)] = part
        self.core.restore(state["heads"], state["counts"], state["begun"], slots)
        if self.core.used()[0] > rows:
            raise ValueError(f"a timeline that holds {self.core.used()[0]} rows came with records of {rows}")

    def __deepcopy__(self, memo: dict[int, Any]) -> Timeline:
        copy = Timeline.__new__(Timeline)
        memo[id(self)] = copy
        copy.__setstate__(self.__getstate__())
        return copy

    # Inside --------------------------------------------------------------------------------------------------------

    def _offset(self, name: str) -> int:
        fields = self._dtype.fields
        assert fields is not None
        return int(fields[name][1])

    def _native_leaf(self, leaf: Leaf, *, bare: bool) -> tuple[int, int, list[int], bool, int, Any, bool]:
        code, bits = _DLPACK_CODES[leaf.dtype.kind], 8 * leaf.dtype.itemsize
        if layout.is_large(leaf):
            return code, bits, list(leaf.shape), False, 0, _as_bytes(self._large[leaf.path]), bare
        return code, bits, list(leaf.shape), True, self._offset(leaf.path), None, bare

    def _slots_per_chunk(self) -> int:
        """A power of two, with room for a head slot of every lane."""
        by_size = max(_CHUNK_BYTES // max(self._slot_bytes, 1), self.lanes)
        by_need = max(self.rows * self.lanes // 4, 2 * self.lanes)
        return 1 << (max(min(by_size, by_need), 1) - 1).bit_length()

    def _grow_finals(self, missing: int) -> None:
        for _ in range(-(-missing // self._chunk_slots)):
            number = len(self._finals)
            arrays = [
                self._storage.array(f"finals/{number}/{leaf.path}", (self._chunk_slots, *leaf.shape), leaf.dtype)
                for leaf in self.observation.leaves
            ]
            self.core.add_finals(self._chunk_slots, [_as_bytes(array) for array in arrays])
            self._finals.append(arrays)


@cache
def _numpy_fields_are_known() -> bool:
    """Whether this NumPy's arrays are laid out as the core reads them; if not, it asks each for a DLPack capsule."""
    probe = np.empty((3, 10), np.float32)[:, ::2]
    return _native.numpy_fields_match(probe, probe.ctypes.data, probe.shape, probe.strides, probe.dtype)


def _is_discrete(leaf: Leaf) -> bool:
    return isinstance(leaf.space, spaces.Discrete)


def _as_bytes(array: Array) -> NDArray[np.uint8]:
    """The memory of a contiguous array as one axis of bytes."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
