"""A Gymnasium space as the leaves of a step: the arrays that an observation or an action consists of.

A leaf is one array of fixed shape. Dict and Tuple spaces, nested to any depth, become trees of leaves. A leaf is named
by its path, a JSON pointer (RFC 6901) without the leading slash: ``observation/camera/0``; ``~`` and ``/`` in keys
are escaped, so that no two leaves share a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import DTypeLike

from relive.errors import UnsupportedSpaceError

ArraySpace: TypeAlias = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
#: Per-leaf dtypes by path; a path that is not a leaf stands for all leaves below it.
DTypes: TypeAlias = Mapping[str, DTypeLike]
#: Declared fields by name: shape and dtype.
Fields: TypeAlias = Mapping[str, tuple[Sequence[int], DTypeLike]]


@dataclass(frozen=True)
class Leaf:
    """One array of a step: ``shape`` and ``dtype`` as stored."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    space: ArraySpace

    @property
    def nbytes(self) -> int:
        """Bytes of one item."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Tree:
    """The leaves of one space, in a fixed order, and the way between a nested value and the flat row of its leaves.

    Attributes:
        leaves: the leaves in order.
        is_leaf: the space itself is one leaf; its value is then not nested at all.
    """

    def __init__(self, space: spaces.Space[Any], leaves: Iterable[Leaf]) -> None:
        self.space = space
        self.leaves = tuple(leaves)
        self.is_leaf = not isinstance(space, spaces.Dict | spaces.Tuple)
        # Of a Dict of arrays, which most trees are.
        is_flat = isinstance(space, spaces.Dict) and not any(
            isinstance(child, spaces.Dict | spaces.Tuple) for child in space.spaces.values()
        )
        self._flat_keys = list(space.spaces) if is_flat else None  # type: ignore[attr-defined]

    def flatten(self, value: Any, *, exact: bool = True) -> tuple[Any, ...]:
        """The parts of a nested value, one for each leaf.

        Raises:
            KeyError: a key of the space is missing, or where ``exact`` there is one that the space does not have.
        """
        return (value,) if self.is_leaf else tuple(_parts(self.space, value, exact))

    def unflatten(self, parts: Sequence[Any]) -> Any:
        """The nested value that has these parts."""
        if self.is_leaf:
            return parts[0]
        if self._flat_keys is not None:
            return dict(zip(self._flat_keys, parts, strict=True))
        return _assemble(self.space, iter(parts))

    def map(self, function: Callable[[Leaf], Any]) -> Any:
        """``function(leaf)`` for every leaf, in the shape of the space."""
        return self.unflatten([function(leaf) for leaf in self.leaves])


def observation_tree(space: spaces.Space[Any], dtypes: DTypes | None = None) -> Tree:
    """The leaves of an observation, each in its space's own shape and dtype."""
    return Tree(space, _leaves(space, "observation", observation_shape, lambda dtype: dtype, dtypes or {}))


def action_tree(space: spaces.Space[Any], dtypes: DTypes | None = None, *, narrow: bool = True) -> Tree:
    """The leaves of an action, each flattened to one axis.

    Args:
        space: any supported one.
        dtypes: stored dtypes by path.
        narrow: store float64 as float32, as torch networks give it.
    """
    cast = narrow_action_dtype if narrow else lambda dtype: dtype
    return Tree(space, _leaves(space, "action", lambda s: (action_width(s),), cast, dtypes or {}))


def field_tree(fields: Fields) -> Tree:
    """The leaves of what a user declares beside the seed's fields, each under ``extras/``.

    Raises:
        TypeError: a declaration that is no pair of a shape and a dtype.
        UnsupportedSpaceError: a dtype that torch does not have.
    """
    leaves = []
    for name, declared in fields.items():
        try:
            lengths, kind = declared
            shape, dtype = tuple(int(length) for length in lengths), np.dtype(kind)
        except (TypeError, ValueError) as error:
            raise TypeError(f"fields has {name!r}: {declared!r}, expected a pair (shape, dtype): {error}") from error
        if dtype.kind not in "biuf" or not _torch_has(dtype):
            raise UnsupportedSpaceError(f"fields has {name!r} of dtype {dtype}, which torch does not have")
        leaves.append(Leaf(f"extras/{_escape(name)}", shape, dtype, spaces.Box(-np.inf, np.inf, shape, np.float32)))
    named = {name: leaf.space for name, leaf in zip(fields, leaves, strict=True)}
    return Tree(spaces.Dict(list(named.items())), leaves)


def observation_shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    """The shape in which an observation of a space of one array is stored."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return tuple(space.shape)
    if isinstance(space, spaces.Discrete):
        return (1,)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.shape)
    raise UnsupportedSpaceError(f"{type(space).__name__} is not a space of one array")


def action_width(space: spaces.Space[Any]) -> int:
    """How many numbers an action of a space of one array has."""
    return int(np.prod(observation_shape(space), dtype=np.int64))


def narrow_action_dtype(dtype: DTypeLike) -> DTypeLike:
    """float32 for float64, any other dtype as it is (Stable-Baselines3 #1572)."""
    return np.float32 if dtype == np.float64 else dtype


def obs_shape(space: spaces.Space[Any]) -> Any:
    """``obs_shape`` of a buffer: a tuple, or for Dict and Tuple spaces the same nesting of tuples."""
    return observation_tree(space, {"observation": np.uint8}).map(lambda leaf: leaf.shape)  # whatever its dtype


def action_dim(space: spaces.Space[Any]) -> Any:
    """``action_dim`` of a buffer: an int, or for Dict and Tuple spaces the same nesting of ints."""
    return action_tree(space, {"action": np.uint8}).map(lambda leaf: leaf.shape[0])  # whatever its dtype


def check_dtypes(dtypes: DTypes | None, *trees: Tree) -> None:
    """Refuses a dtype for a path that no leaf has."""
    paths = [leaf.path for tree in trees for leaf in tree.leaves]
    for wanted in dtypes or {}:
        if not any(path == wanted or path.startswith(wanted + "/") for path in paths):
            raise ValueError(f"dtypes names {wanted!r}, expected one of {paths} or a path above them")


def _leaves(
    space: spaces.Space[Any],
    path: str,
    shape: Callable[[spaces.Space[Any]], tuple[int, ...]],
    cast: Callable[[DTypeLike], DTypeLike],
    dtypes: DTypes,
) -> Iterator[Leaf]:
    for key, child in _children(space):
        yield from _leaves(child, f"{path}/{_escape(key)}", shape, cast, dtypes)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        if not space.spaces:
            raise UnsupportedSpaceError(f"{path}: {space} has no parts, expected at least one")
        return
    if not isinstance(space, ArraySpace):
        raise UnsupportedSpaceError(
            f"{path}: {type(space).__name__} space {space} has samples without a fixed shape; expected Box, Discrete, "
            "MultiDiscrete, MultiBinary, or Dict and Tuple of these. Wrap the environment to encode it in one of them."
        )
    given = np.dtype(_dtype_for(path, dtypes) or cast(space.dtype))
    dtype = np.dtype(given.newbyteorder("=").str)  # the one object that NumPy has for it
    if not _torch_has(dtype):
        raise UnsupportedSpaceError(
            f"{path}: torch has no dtype for {dtype}; choose one with dtypes={{{path!r}: np.float32}}"
        )
    yield Leaf(path, shape(space), dtype, space)


def _dtype_for(path: str, dtypes: DTypes) -> DTypeLike | None:
    """The entry for the longest path that is this one or above it."""
    above = [given for given in dtypes if path == given or path.startswith(given + "/")]
    return dtypes[max(above, key=len)] if above else None


def _torch_has(dtype: np.dtype[Any]) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except TypeError:
        return False
    return True


def _children(space: spaces.Space[Any]) -> list[tuple[Any, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return []


def _escape(key: Any) -> str:
    # Keys other than strings and positions are rare, but legal: ~2 keeps 1 and "1" apart.
    text = key if isinstance(key, str) else str(key) if type(key) is int else f"~2{key!r}"
    return text if text.startswith("~2") else text.replace("~", "~0").replace("/", "~1")


def _parts(space: spaces.Space[Any], value: Any, exact: bool) -> Iterator[Any]:
    if isinstance(space, spaces.Dict):
        if exact and len(value) != len(space.spaces):
            raise KeyError(f"got the keys {list(value)}, expected {list(space.spaces)}")
        for key, child in space.spaces.items():
            yield from _parts(child, value[key], exact)
    elif isinstance(space, spaces.Tuple):
        if len(value) != len(space.spaces):
            raise KeyError(f"got {len(value)} parts, expected {len(space.spaces)}")
        for child, part in zip(space.spaces, value, strict=True):
            yield from _parts(child, part, exact)
    else:
        yield value


#: What `Tree.flatten` may end in where a value is not nested as the space is.
MISFITS = (LookupError, TypeError, ValueError)


def misfit(space: spaces.Space[Any], value: Any, name: str, exact: bool = True) -> str | None:
    """Where first a value called ``name`` is not nested as the space is, said for an error."""
    if isinstance(space, spaces.Dict):
        keys = list(space.spaces)
        if not isinstance(value, Mapping):
            return f"{name} is {_kind(value)}, expected a dict with the keys {keys}"
        missing, surplus = [key for key in keys if key not in value], [key for key in value if key not in keys]
        if missing or (exact and surplus):
            fault = f"lacks {missing}" if missing else f"has {surplus}"
            return f"{name} {fault}, expected a dict with exactly the keys {keys}"
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, Sequence | np.ndarray | torch.Tensor) or isinstance(value, str):
            return f"{name} is {_kind(value)}, expected a tuple of {len(space.spaces)} parts"
        if len(value) != len(space.spaces):
            return f"{name} has {len(value)} parts, expected a tuple of {len(space.spaces)}"
    faults = (misfit(child, value[key], f"{name}/{_escape(key)}", exact) for key, child in _children(space))
    return next((fault for fault in faults if fault is not None), None)


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _assemble(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _assemble(child, parts) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(child, parts) for child in space.spaces)
    return next(parts)
