"""Reads replay buffers that Stable-Baselines3 pickled, and runs nothing that the file names.

A pickle names classes and functions, and an ordinary load calls them. Here a name has to be one of `_BUILDERS`,
compared exactly, and what it leads to while the file is read is an inert record of the arguments. When all is read,
functions of our own make of each record what it stands for.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeAlias

import numpy as np
import torch
from gymnasium import spaces

from relive.devices import loaded_onto, usable
from relive.errors import ForeignPickleError
from relive.sb3.faces import DictReplayBuffer, ReplayBuffer
from relive.sb3.rebase import rebased

Pair: TypeAlias = tuple[str, str]

# Numbers, strings and objects; no fields, no dates.
_DTYPE_CODE = re.compile(r"[biufc]\d+|[SU]\d+|O\d?")


def load_replay_buffer(path: str | os.PathLike[str] | BinaryIO, device: torch.device | str = "auto") -> ReplayBuffer:
    """The replay buffer that ``model.save_replay_buffer`` of Stable-Baselines3 wrote.

    It goes on as it would there: the same steps in the same rows, in the dtypes in which they were stored, and the same
    draws. A `HerReplayBuffer` needs ``set_env`` before it draws. Random generators of the spaces start anew.

    Args:
        path: a file, or its path; ``.pkl`` may be left out.
        device: where batches go, whatever the file says; as in Stable-Baselines3 "cuda" is the CPU where there is none.

    Raises:
        ForeignPickleError: the file names something that no such buffer holds; the message says what.
    """
    if isinstance(path, str | os.PathLike):
        plain = Path(path)
        with (plain if plain.exists() else plain.with_suffix(".pkl")).open("rb") as file:
            return load_replay_buffer(file, device)
    with loaded_onto(usable(device, cpu_without_cuda=True)):
        buffer = _Build()(_Reader(path).load())
    if not isinstance(buffer, ReplayBuffer):
        raise ForeignPickleError(f"the file holds a {type(buffer).__name__}, expected a replay buffer")
    return buffer


# Reading -------------------------------------------------------------------------------------------------------------


class _Record:
    """What the file says of one object: what it was made with, its state, and its items where it is a mapping."""

    pair: ClassVar[Pair]
    args: tuple[Any, ...]
    state: Any
    items: dict[Any, Any]

    def __new__(cls, *args: Any) -> _Record:
        record = super().__new__(cls)
        record.args, record.state, record.items = args, None, {}
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value


@functools.cache
def _record_type(pair: Pair) -> type[_Record]:
    return type("_Record", (_Record,), {"pair": pair})


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BUILDERS:
            raise ForeignPickleError(
                f"the file names ({module!r}, {name!r}), which no replay buffer of Stable-Baselines3 holds; "
                "if you trust the file, load it with pickle under relive.sb3.install()"
            )
        return _record_type((module, name))


# Building ------------------------------------------------------------------------------------------------------------


class _Build:
    """Makes what records stand for, each once."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, dict | list | tuple | set | frozenset | _Record):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = self._make(value)
        return self._made[id(value)]

    def _make(self, value: Any) -> Any:
        if isinstance(value, _Record):
            return _BUILDERS[value.pair](value, self)
        if isinstance(value, dict):
            return {self(key): self(item) for key, item in value.items()}
        return type(value)(self(item) for item in value)


def _buffer(make: Callable[[], type[ReplayBuffer]], record: _Record, build: _Build) -> ReplayBuffer:
    state = build(record.state)
    if not isinstance(state, dict) or "device" not in state:
        raise ForeignPickleError(f"the state of {record.pair[1]} is not that of Stable-Baselines3's")
    kind = make()
    buffer = kind.__new__(kind)
    try:
        buffer.__setstate__(state)
    except KeyError as error:
        raise ForeignPickleError(f"the state of {record.pair[1]} lacks {error}") from None
    return buffer


def _strategy(record: _Record, build: _Build) -> Any:
    from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

    return GoalSelectionStrategy(*record.args)


def _box(record: _Record, build: _Build) -> spaces.Box:
    state = build(record.state)
    return spaces.Box(state["low"], state["high"], dtype=state["dtype"])


def _discrete(record: _Record, build: _Build) -> spaces.Discrete:
    state = build(record.state)
    return spaces.Discrete(int(state["n"]), start=int(state.get("start", 0)))


def _multi_discrete(record: _Record, build: _Build) -> spaces.MultiDiscrete:
    state = build(record.state)
    return spaces.MultiDiscrete(state["nvec"], dtype=state["dtype"], start=state.get("start"))


def _multi_binary(record: _Record, build: _Build) -> spaces.MultiBinary:
    return spaces.MultiBinary(build(record.state)["n"])


def _dict_space(record: _Record, build: _Build) -> spaces.Dict:
    children = build(record.state)["spaces"]
    space = spaces.Dict(children)
    space.spaces = dict(children)  # in the file's order: some releases sort
    return space


def _dtype(record: _Record, build: _Build) -> np.dtype[Any]:
    code = record.args[0]
    if not isinstance(code, str) or not _DTYPE_CODE.fullmatch(code):
        raise ForeignPickleError(f"the file has an array of dtype {code!r}, expected numbers, strings or objects")
    dtype: np.dtype[Any] = np.dtype(code)
    return dtype.newbyteorder(">") if record.state and record.state[1] == ">" else dtype


def _reconstructed(record: _Record, build: _Build) -> np.ndarray[Any, Any]:
    _, shape, dtype, fortran, data = build(record.state)
    return _array(data, dtype, shape, "F" if fortran else "C")


def _from_buffer(record: _Record, build: _Build) -> np.ndarray[Any, Any]:
    return _array(*build(record.args))


def _array(data: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any) -> np.ndarray[Any, Any]:
    if dtype.hasobject:
        objects = np.empty(len(data), object)
        for index, item in enumerate(data):
            objects[index] = item
        return objects.reshape(shape, order=order)
    array = np.frombuffer(data, dtype).reshape(shape, order=order)
    return array if array.flags.writeable else array.copy()


def _scalar(record: _Record, build: _Build) -> Any:
    dtype, data = build(record.args)
    return np.frombuffer(data, dtype)[0]


def _ordered_dict(record: _Record, build: _Build) -> dict[Any, Any]:
    return {**dict(build(record.args)[0] if record.args else ()), **build(record.items)}


def _encoded(record: _Record, build: _Build) -> bytes:
    text, encoding = record.args
    if encoding != "latin1":
        raise ForeignPickleError(f"the file has bytes encoded as {encoding!r}, expected 'latin1'")
    return str(text).encode("latin1")


def _device(record: _Record, build: _Build) -> torch.device:
    return torch.device(*record.args)


def _nothing(record: _Record, build: _Build) -> None:
    """Random generators of spaces, and classes that are only named: a buffer uses neither."""


_BUFFERS = "stable_baselines3.common.buffers"
_SPACES: dict[str, Callable[[_Record, _Build], Any]] = {
    "box.Box": _box,
    "discrete.Discrete": _discrete,
    "multi_discrete.MultiDiscrete": _multi_discrete,
    "multi_binary.MultiBinary": _multi_binary,
    "dict.Dict": _dict_space,
}

#: (module, name) → how to make what a record of it stands for. Nothing else may be named in a file.
_BUILDERS: dict[Pair, Callable[[_Record, _Build], Any]] = {
    (_BUFFERS, "ReplayBuffer"): functools.partial(_buffer, lambda: ReplayBuffer),
    (_BUFFERS, "DictReplayBuffer"): functools.partial(_buffer, lambda: DictReplayBuffer),
    (_BUFFERS, "NStepReplayBuffer"): functools.partial(_buffer, lambda: rebased("NStepReplayBuffer")),
    ("stable_baselines3.her.her_replay_buffer", "HerReplayBuffer"): functools.partial(
        _buffer, lambda: rebased("HerReplayBuffer")
    ),
    ("stable_baselines3.her.goal_selection_strategy", "GoalSelectionStrategy"): _strategy,
    ("torch", "device"): _device,
    ("collections", "OrderedDict"): _ordered_dict,
    ("_codecs", "encode"): _encoded,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): _nothing,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstructed for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    # Before 2.0 Stable-Baselines3 used gym.
    **{
        (f"{gym}.spaces.{module}", name): build
        for gym in ("gymnasium", "gym")
        for (module, name), build in ((path.split("."), build) for path, build in _SPACES.items())
    },
    **dict.fromkeys(
        [
            ("gym.utils.seeding", "RandomNumberGenerator"),
            ("gym.utils.seeding", "RandomNumberGenerator._generator_ctor"),
            ("numpy.random._mt19937", "MT19937"),
            ("numpy.random._pcg64", "PCG64"),
            ("numpy.random._pickle", "__bit_generator_ctor"),
            ("numpy.random._pickle", "__generator_ctor"),
            ("numpy.random._pickle", "__randomstate_ctor"),
            ("numpy.random.bit_generator", "SeedSequence"),
            ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
        ],
        _nothing,
    ),
}
