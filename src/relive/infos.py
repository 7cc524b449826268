"""What infos say about the steps that they came with.

For the steps of one call they come as a sequence of dicts, one per environment (Stable-Baselines3), or as Gymnasium's
dict of arrays, where ``_key`` says which environments have ``key``. An environment that is reset within the step that
ends an episode (Gymnasium's SAME_STEP autoreset) gives two: the one beside the observation of the reset is the first of
the next episode, and that of the step lies in ``final_info``, as a dict of arrays or, in Gymnasium before 1.0, as an
array of dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from relive.errors import ShapeError
from relive.inputs import as_array, scalars
from relive.spaces import Leaf

TIMEOUT_KEY = "TimeLimit.truncated"
FINAL_KEY = "final_info"

_ABSENT: Final = object()


def timeouts(infos: Any, lanes: int, strict: bool, active: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """``info["TimeLimit.truncated"]`` of the step of every environment, ``(lanes,)`` float32.

    Args:
        infos: a sequence of dicts, one per environment; Gymnasium's dict of arrays; or None.
        lanes: environments.
        strict: else a sequence is read as Stable-Baselines3 does, which does not know ``final_info``.
        active: ``(lanes,)``, False where there is no step; nobody looks at what came for it.

    Raises:
        ShapeError: it has another form.
    """
    if infos is None or (isinstance(infos, Mapping) and not (TIMEOUT_KEY in infos or FINAL_KEY in infos)):
        return np.zeros(lanes, np.float32)
    if strict or isinstance(infos, Mapping):
        said = _of_steps(infos, TIMEOUT_KEY, lanes, active)
    else:
        said = [info.get(TIMEOUT_KEY, False) for info in _without_inactive(infos, active)]
    return scalars([False if value is _ABSENT else value for value in said], "infos", (lanes,), False)


def many_timeouts(infos: Any, steps: int, lanes: int, strict: bool) -> NDArray[Any]:
    """The same for many steps, ``(steps, lanes)`` float32.

    Args:
        infos: ``steps`` times what `timeouts` takes; or a dict of arrays that have a leading axis of steps; or None.
        steps: how many.
        lanes: environments.
        strict: see `timeouts`.
    """
    out = np.zeros((steps, lanes), np.float32)
    if infos is None:
        return out
    for step, info in enumerate(_by_step(infos, TIMEOUT_KEY, steps)):
        if lanes == 1 and type(info) is list and len(info) == 1 and type(info[0]) is dict and FINAL_KEY not in info[0]:
            if info[0].get(TIMEOUT_KEY):  # the usual form, without a detour
                out[step, 0] = info[0][TIMEOUT_KEY]
        else:
            out[step] = timeouts(info, lanes, strict)
    return out


def values(
    infos: Any, leaf: Leaf, key: str, leading: tuple[int, ...], active: NDArray[np.bool_] | None = None
) -> NDArray[Any]:
    """What infos have under a key for each step, ``(*leading, *leaf.shape)``; NaN (0 for integers) where nothing.

    Args:
        infos: as `timeouts` or, for many steps, `many_timeouts` takes them.
        leaf: shape and dtype.
        key: of the info.
        leading: ``(lanes,)`` or ``(steps, lanes)``.
        active: see `timeouts`.

    Raises:
        ShapeError, CastError: they have another form, or a value that does not fit the leaf.
    """
    out = np.full((*leading, *leaf.shape), np.nan if leaf.dtype.kind == "f" else 0, leaf.dtype)
    if infos is None:
        return out
    if len(leading) > 1:
        for step, of_step in enumerate(_by_step(infos, key, leading[0])):
            out[step] = values(of_step, leaf, key, leading[1:])
        return out
    for lane, value in enumerate(_of_steps(infos, key, leading[0], active)):
        if value is not _ABSENT:
            out[lane] = _fitting(value, leaf, key)
    return out


def _fitting(value: Any, leaf: Leaf, key: str) -> NDArray[Any]:
    array = as_array(value, f"info[{key!r}]")
    if array.size != int(np.prod(leaf.shape)):
        raise ShapeError(
            f"info[{key!r}] has shape {array.shape}, expected {leaf.shape}; declare it in fields={{{key!r}: (shape, "
            "dtype)}"
        )
    return array.reshape(leaf.shape)


def _without_inactive(items: Any, active: NDArray[np.bool_] | None) -> Any:
    """Infos of lanes, empty where there is no step."""
    return items if active is None else [info if is_step else {} for info, is_step in zip(items, active, strict=True)]


def _of_steps(infos: Any, key: str, lanes: int, active: NDArray[np.bool_] | None) -> list[Any]:
    """What is said under a key about the step of each lane."""
    if isinstance(infos, Mapping):
        if lanes == 1 and not ("_" + key in infos or "_" + FINAL_KEY in infos):
            return [_of_info(infos, key)]
        said = _of_arrays(infos, key, lanes)
        return said if active is None else [x if is_step else _ABSENT for x, is_step in zip(said, active, strict=True)]
    if not isinstance(infos, Sequence | np.ndarray) or isinstance(infos, str):
        raise ShapeError(f"infos is a {type(infos).__name__}, expected {lanes} dicts: one per environment")
    if len(infos) != lanes:
        raise ShapeError(f"infos has {len(infos)} entries, expected {lanes}: one per environment (n_envs={lanes})")
    infos = _without_inactive(infos, active)
    for lane, info in enumerate(infos):
        if not isinstance(info, Mapping):
            raise ShapeError(f"infos has a {type(info).__name__} for environment {lane}, expected a dict")
    return [_of_info(info, key) for info in infos]


def _of_info(info: Mapping[str, Any], key: str) -> Any:
    """What one environment's dict says about its step."""
    final = info.get(FINAL_KEY)
    # A reset is no time limit, so what stands beside it under that key is of the step as well: Stable-Baselines3's
    # vector environments write it there.
    if isinstance(final, Mapping) and (key in final or key != TIMEOUT_KEY):
        return final.get(key, _ABSENT)
    return info.get(key, _ABSENT)


def _of_arrays(infos: Mapping[str, Any], key: str, lanes: int) -> list[Any]:
    """The same out of Gymnasium's dict of arrays."""
    said, final = _column(infos, key, lanes), infos.get(FINAL_KEY)
    if final is None:
        return said
    if isinstance(final, Mapping):
        if "_" + FINAL_KEY not in infos:
            raise ShapeError(
                f"infos has {FINAL_KEY!r} without '_{FINAL_KEY}', expected the mask that says which episodes ended"
            )
        ended, finally_said = _mask(infos, FINAL_KEY, lanes).tolist(), _column(final, key, lanes)
    else:  # Gymnasium before 1.0: an array of dicts, None where the episode goes on
        _check_length(final, FINAL_KEY, lanes)
        ended = [isinstance(info, Mapping) for info in final]
        finally_said = [info.get(key, _ABSENT) if has else _ABSENT for has, info in zip(ended, final, strict=True)]
    of_lanes = zip(ended, finally_said, said, strict=True)
    return [last if has and (last is not _ABSENT or key != TIMEOUT_KEY) else value for has, last, value in of_lanes]


def _column(infos: Mapping[str, Any], key: str, lanes: int) -> list[Any]:
    """One key of a dict of arrays."""
    if key not in infos:
        return [_ABSENT] * lanes
    column = infos[key]
    if isinstance(column, bool | int | float | np.generic) or getattr(column, "ndim", None) == 0:
        column = [column] * lanes
    _check_length(column, key, lanes)
    present = _mask(infos, key, lanes).tolist()
    return [value if has else _ABSENT for has, value in zip(present, column, strict=True)]


def _mask(infos: Mapping[str, Any], key: str, lanes: int) -> NDArray[np.bool_]:
    """Which environments have a key; all, where nothing is said."""
    mask = as_array(infos.get("_" + key, True), f"infos['_{key}']").astype(bool)
    if mask.shape not in ((), (lanes,)):
        raise ShapeError(f"infos['_{key}'] has shape {mask.shape}, expected ({lanes},): one per environment")
    return np.broadcast_to(mask, (lanes,))


def _by_step(infos: Any, key: str, steps: int) -> Iterator[Any]:
    """The infos of each step."""
    if isinstance(infos, Mapping):
        wanted = (key, "_" + key, FINAL_KEY, "_" + FINAL_KEY)
        return (_at_step({name: infos[name] for name in wanted if name in infos}, step, steps) for step in range(steps))
    if isinstance(infos, str) or not isinstance(infos, Sequence | np.ndarray):
        raise ShapeError(f"infos is a {type(infos).__name__}, expected {steps} entries: one per step")
    if len(infos) != steps:
        raise ShapeError(f"infos has {len(infos)} entries, expected {steps}: one per step")
    return iter(infos)


def _at_step(infos: Mapping[str, Any], step: int, steps: int) -> dict[str, Any]:
    for name, column in infos.items():
        if not isinstance(column, Mapping):
            _check_length(column, name, steps, "step")
    return {
        name: _at_step(column, step, steps) if isinstance(column, Mapping) else column[step]
        for name, column in infos.items()
    }


def _check_length(column: Any, key: str, expected: int, of: str = "environment") -> None:
    is_column = isinstance(column, Sequence | np.ndarray | torch.Tensor) and not isinstance(column, str)
    if not is_column or len(column) != expected:
        came = f"has {len(column)} entries" if is_column else f"is a {type(column).__name__}"
        raise ShapeError(f"infos[{key!r}] {came}, expected {expected}: one per {of}")
