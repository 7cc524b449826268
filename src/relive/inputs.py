"""What callers pass, made into plain arrays of the stored shape and dtype, or into an error that names the fault.

The fast path is in the native core (native/incoming.hpp), which takes arrays that fit as they are; only what it does
not understand comes here. ``strict`` accepts what has one meaning and loses nothing; otherwise values are broadcast
and cast exactly as Stable-Baselines3 2.9.2 does, whose assignments are NumPy's.

Where ``active`` is given, a mask ``(lanes,)``, the lanes that it leaves out are zero in what comes back: what was
passed for them is no step, so it is neither checked nor kept. Only shapes must fit.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from relive.errors import CastError, NaNRewardError, ReliveError, ShapeError
from relive.spaces import MISFITS, Leaf, Tree, misfit

Array = NDArray[Any]


def as_array(value: Any, name: str) -> Array:
    """A NumPy array of any array-like: lists, scalars, LazyFrames, torch tensors, and lists of tensors.

    The one conversion of what callers pass and what their functions return: tensors may be of any device, need
    gradients, or have a dtype that NumPy does not have (bfloat16 becomes float32, which holds all its values).

    Raises:
        ShapeError: a ragged list.
        CastError: it holds something other than numbers.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value
    if isinstance(value, torch.Tensor):
        array = _of_tensor(value, name)
    else:
        try:
            if isinstance(value, list | tuple) and _holds_tensors(value):
                array = np.stack([as_array(item, name) for item in value])
            else:
                array = np.asarray(value)
        except ValueError as error:  # ragged
            if isinstance(error, ReliveError):
                raise
            raise ShapeError(f"{name} cannot be made an array: {error}") from error
    if array.dtype.kind not in "biuf":
        what = f"is {value!r}" if array.ndim == 0 else f"has dtype {array.dtype}"
        raise CastError(f"{name} {what}, expected numbers")
    return array


def _of_tensor(tensor: torch.Tensor, name: str) -> Array:
    try:
        return tensor.numpy(force=True)
    except TypeError:  # NumPy does not have its dtype
        return tensor.float().numpy(force=True)
    except (RuntimeError, NotImplementedError) as error:
        raise CastError(f"{name} is a tensor on {tensor.device}, whose values cannot be read: {error}") from error


def _holds_tensors(items: Sequence[Any]) -> bool:
    """Whether a list has tensors in it, in whatever depth: NumPy takes them one number at a time, or not at all."""
    return any(isinstance(x, torch.Tensor) or (isinstance(x, list | tuple) and _holds_tensors(x)) for x in items)


def handle_array(value: Any, name: str = "handles") -> NDArray[np.int64]:
    """Handles of steps, ``(n,)``.

    Raises:
        CastError: they are no integers.
    """
    array = as_array(value, name)
    if array.dtype != np.int64:
        if array.dtype.kind not in "iu" and array.size:
            raise CastError(
                f"{name} has dtype {array.dtype}, expected integers: the handles of a batch, or of `handles`"
            )
        array = cast(array, np.dtype(np.int64), name)
    return np.ascontiguousarray(array).reshape(-1)


def leaf_array(
    value: Any,
    leaf: Leaf,
    leading: tuple[int, ...],
    strict: bool,
    *,
    is_action: bool,
    active: Array | None = None,
    name: str | None = None,
) -> Array:
    """A leaf of one step (``leading`` is ``(lanes,)``) or of many (``(steps, lanes)``): ``(*leading, *leaf.shape)``.

    ``name`` is what errors call it; None for its path.
    """
    name = name or leaf.path
    array = as_array(value, name)
    shape = (*leading, *leaf.shape)
    if not strict:
        if is_action or isinstance(leaf.space, spaces.Discrete):
            array = array.reshape(shape)  # the seed's own rule for these
        return _assigned(array, shape, leaf.dtype, leading, active)
    if array.shape == shape and array.dtype == leaf.dtype:
        return _only(array, leading, active)
    allowed = {shape}
    if is_action:
        allowed.add((*leading, *(leaf.space.shape or ())))
    if leaf.shape == (1,) and (is_action or isinstance(leaf.space, spaces.Discrete)):
        allowed.add(leading)
    if leading[-1] == 1:  # one environment: its axis may be missing
        allowed |= {(*leading[:-1], *kind[len(leading) :]) for kind in tuple(allowed)}
    if array.shape not in allowed:
        raise ShapeError(_shape_message(name, array.shape, shape, leading))
    return cast(_only(array.reshape(shape), leading, active), leaf.dtype, name)


def tree_arrays(
    value: Any,
    tree: Tree,
    leading: tuple[int, ...],
    strict: bool,
    *,
    name: str,
    is_action: bool = False,
    active: Array | None = None,
) -> tuple[Array, ...]:
    """All leaves of an observation or action, which errors call ``name``."""
    parts = flattened(value, tree, name, exact=strict)
    return tuple(
        leaf_array(part, leaf, leading, strict, is_action=is_action, active=active, name=name + _below(leaf))
        for part, leaf in zip(parts, tree.leaves, strict=True)
    )


def flattened(value: Any, tree: Tree, name: str, exact: bool = True) -> tuple[Any, ...]:
    """The parts of a value that errors call ``name``.

    Raises:
        ShapeError: it is not nested as the space is.
    """
    try:
        return tree.flatten(value, exact=exact)
    except MISFITS as error:
        fault = misfit(tree.space, value, name, exact) or f"{name} does not have the parts of {tree.space}: {error}"
        raise ShapeError(fault) from None


def _below(leaf: Leaf) -> str:
    """The path of a leaf below its root: ``/camera/0``."""
    _, slash, rest = leaf.path.partition("/")
    return slash + rest


def scalars(
    value: Any,
    name: str,
    leading: tuple[int, ...],
    strict: bool,
    dtype: type = np.float32,
    active: Array | None = None,
) -> Array:
    """Rewards, flags and other single numbers, one for each step and lane: ``leading`` in float32."""
    array = as_array(value, name)
    if not strict:
        return _assigned(array, leading, np.dtype(dtype), leading, active)
    if array.shape != leading and not (leading[-1] == 1 and array.shape == leading[:-1]):
        raise ShapeError(_shape_message(name, array.shape, leading, leading))
    return cast(_only(array.reshape(leading), leading, active), np.dtype(dtype), name)


def rewards(
    value: Any,
    leading: tuple[int, ...],
    strict: bool,
    active: Array | None = None,
    step: int | None = None,
    shape: tuple[int, ...] = (),
) -> Array:
    """Rewards, each of ``shape``; a NaN is refused where ``strict``.

    ``step`` names a lone step.
    """
    if shape:
        array = _vectors(value, leading, shape, strict, active)
    else:
        array = scalars(value, "reward", leading, strict, active=active)
    if strict:
        bad = np.isnan(array).any(axis=-1) if shape else np.isnan(array)
        if bad.any():
            where = np.argwhere(bad)[0]
            step = step if len(leading) == 1 else int(where[0])
            place = f"environment {where[-1]}" if step is None else f"step {step}, environment {where[-1]}"
            raise NaNRewardError(
                f"reward is NaN at {place}, expected a number; nothing was stored. Find out why the environment gives "
                "it, or use validate='seed' to store it as it is."
            )
    return array


def _vectors(value: Any, leading: tuple[int, ...], shape: tuple[int, ...], strict: bool, active: Array | None) -> Array:
    array, expected = as_array(value, "reward"), (*leading, *shape)
    if not strict:
        return _assigned(array, expected, np.dtype(np.float32), leading, active)
    if array.shape != expected and not (leading[-1] == 1 and array.shape == (*leading[:-1], *shape)):
        raise ShapeError(_shape_message("reward", array.shape, expected, leading))
    return cast(_only(array.reshape(expected), leading, active), np.dtype(np.float32), "reward")


def extras(
    value: Any, tree: Tree, leading: tuple[int, ...], strict: bool, active: Array | None = None
) -> tuple[Array, ...]:
    """Declared fields, by name, one array for each leaf."""
    given = declared(value)
    names = list(tree.space.spaces) if isinstance(tree.space, spaces.Dict) else []
    if set(given) != set(names):
        raise ShapeError(f"extras has {sorted(map(str, given))}, expected exactly the declared fields {sorted(names)}")
    return tuple(
        leaf_array(given[name], leaf, leading, strict, is_action=False, active=active)
        for name, leaf in zip(names, tree.leaves, strict=True)
    )


def declared(extras: Any) -> Mapping[str, Any]:
    """``extras`` as a dict; None is an empty one."""
    if extras is None:
        return {}
    if not isinstance(extras, Mapping):
        raise ShapeError(f"extras is of type {type(extras).__name__}, expected a dict with the declared fields")
    return extras


def whole_number(value: Any, name: str, least: int = 0) -> int:
    """A whole number from ``least`` on.

    Raises:
        TypeError: it is none.
        ValueError: it is smaller.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number from {least} on") from None
    if number < least:
        raise ValueError(f"{name} is {number}, expected {least} or more")
    return number


def flags(value: Any, name: str, leading: tuple[int, ...], strict: bool, active: Array | None = None) -> Array:
    """End flags as float32; only 0 and 1 where ``strict``."""
    given = as_array(value, name)
    array = scalars(given, name, leading, strict, active=active)
    if strict and given.dtype != bool:
        odd = (array != 0) & (array != 1)
        if odd.any():
            raise CastError(f"{name} has the value {array[odd][0]}, expected only 0 and 1 (or booleans)")
    return array


def lane_mask(value: Any, lanes: int) -> NDArray[np.bool_]:
    """A mask ``(lanes,)`` of booleans."""
    array = as_array(value, "mask")
    if array.dtype != bool or array.shape != (lanes,):
        raise ShapeError(
            f"mask has shape {array.shape} and dtype {array.dtype}, expected ({lanes},) booleans: one per environment"
        )
    return np.ascontiguousarray(array)


def cast(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """``array`` in ``dtype``, where that loses no more than a float's rounding.

    Raises:
        CastError: a value is out of range, has a fraction for an integer, or is an integer that a float rounds.
    """
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "b":
        return array.astype(dtype)  # any dtype holds 0 and 1
    with np.errstate(invalid="ignore", over="ignore"):
        out = array.astype(dtype)
        if array.dtype.kind == "f" and dtype.kind == "f":
            lost = np.isinf(out) & np.isfinite(array)
        else:
            lost = out.astype(array.dtype) != array
            if array.dtype.kind in "iu" and dtype.kind in "iu":
                lost |= (out < 0) != (array < 0)  # of one width, 255 and -1 come back as what they were
    if lost.any():
        value = array[lost].flat[0]
        raise CastError(
            f"{name} has the value {value} ({array.dtype}), which {dtype} cannot hold; expected values of the space. "
            "Choose another dtype with dtypes=, correct the values, or use validate='seed' to cast regardless."
        )
    return out


def _only(array: Array, leading: tuple[int, ...], active: Array | None) -> Array:
    """``array``, ``(*leading, ...)``, with zeros in the lanes that ``active`` leaves out."""
    if active is None:
        return array
    return np.where(_along(active, array.ndim, leading), array, array.dtype.type(0))


def _assigned(
    array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], leading: tuple[int, ...], active: Array | None
) -> Array:
    """What NumPy's assignment makes of ``array`` in an array of this shape and dtype, as the seed does it."""
    if active is None:
        out: Array = np.empty(shape, dtype)
        out[...] = array
        return out
    out = np.zeros(shape, dtype)
    np.copyto(out, array, casting="unsafe", where=_along(active, len(shape), leading))
    return out


def _along(active: Array, ndim: int, leading: tuple[int, ...]) -> Array:
    """A mask ``(lanes,)`` in a shape that broadcasts to ``(*leading, ...)``, of ``ndim`` axes in all."""
    return active.reshape(-1, *(1,) * (ndim - len(leading)))


def _shape_message(name: str, got: tuple[int, ...], expected: tuple[int, ...], leading: tuple[int, ...]) -> str:
    axes = (
        f"one per environment (n_envs={leading[-1]})"
        if len(leading) == 1
        else f"(steps={leading[0]}, n_envs={leading[1]}, ...)"
    )
    return f"{name} has shape {got}, expected {expected}: {axes}"


def over_steps(value: Any, tree: Tree, name: str) -> Any:
    """A list of what `add` takes for single steps, nested as the space is, as one such value over steps.

    Anything else comes back as it is. A list is one over steps where all its items are dicts, or tuples for a Tuple.

    Raises:
        ShapeError: a step is not nested as the space is.
    """
    kind = Mapping if isinstance(tree.space, spaces.Dict) else tuple
    if tree.is_leaf or not isinstance(value, list) or not value or not all(isinstance(step, kind) for step in value):
        return value
    steps = [flattened(step, tree, f"{name}[{number}]") for number, step in enumerate(value)]
    return tree.unflatten([list(leaf) for leaf in zip(*steps, strict=True)])


def by_step(value: Any, tree: Tree) -> Any:
    """The inverse of `over_steps`: what `add` takes for each step; a space of one leaf has that by itself."""
    if tree.is_leaf:
        return value
    parts = tree.flatten(value, exact=False)
    return [tree.unflatten([part[step] for part in parts]) for step in range(len(parts[0]))]


def length(value: Any, tree: Tree) -> int:
    """How many steps an observation of many steps has: the length of its first leaf."""
    first = flattened(value, tree, "obs", exact=False)[0]
    try:
        return len(first)
    except TypeError:
        name = "obs" + _below(tree.leaves[0])
        raise ShapeError(f"{name} is {first!r}, expected an array (steps, n_envs, ...)") from None
