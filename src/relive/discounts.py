"""Discounts: one number, or a declared field that holds each step's own (options that last, time steps of any length).

A window of steps 0, 1, … with discounts γ₀, γ₁, … has the return r₀ + γ₀ r₁ + γ₀ γ₁ r₂ …, and the learner multiplies
what comes after it with the product of them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.errors import CastError
from relive.inputs import as_array
from relive.spaces import Leaf


def checked_gamma(gamma: Any, fields: Mapping[str, Leaf]) -> float | str:
    """A discount as the constructor takes it: a number, or the name of a field.

    Raises:
        ValueError: no number from 0 to 1, and no declared field of single float32 or float64 numbers.
    """
    if not isinstance(gamma, str):
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma is {gamma}, expected a number from 0 to 1, or the name of a field")
        return float(gamma)
    if gamma not in fields:
        raise ValueError(
            f"gamma is {gamma!r}, expected a number from 0 to 1 or a declared field, which are {list(fields)}; declare "
            f"it with fields={{{gamma!r}: ((), np.float32)}}"
        )
    leaf = fields[gamma]
    if leaf.shape != () or leaf.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(
            f"gamma is {gamma!r}, a field of shape {leaf.shape} and dtype {leaf.dtype}, expected shape () and float32 "
            "or float64: one discount for each step"
        )
    return gamma


def check(extras: Any, name: str, active: Any = None) -> None:
    """Refuses discounts outside of [0, 1], and NaN. What is no dict, or no numbers, is left to what converts it.

    Args:
        extras: the declared fields by name, as callers pass them.
        name: the field with the discounts.
        active: ``(n_envs,)`` booleans; others are not looked at. None looks at all.

    Raises:
        CastError: names the field and the value.
    """
    if not isinstance(extras, Mapping) or name not in extras:
        return
    values = as_array(extras[name], name)
    if values.dtype.kind not in "fiu":
        return
    if active is not None and values.shape == np.shape(active):
        values = values[np.asarray(active, bool)]
    is_right = (values >= 0) & (values <= 1)
    if not is_right.all():
        raise CastError(
            f"{name} has the value {values[~is_right].flat[0]}, expected discounts from 0 to 1, since gamma is {name!r}"
        )


def factors(gamma: float | str, own: NDArray[Any] | None, n_steps: int, rows: int) -> NDArray[np.float64]:
    """What the steps of windows are multiplied with, and last what comes after them, ``(rows, n_steps + 1)``.

    Args:
        gamma: the discount, or the name of the field.
        own: ``(rows, n_steps)``, the field over each window.
        n_steps: of a window.
        rows: windows.
    """
    if own is None:
        assert not isinstance(gamma, str)
        return np.broadcast_to(np.float64(gamma) ** np.arange(n_steps + 1), (rows, n_steps + 1))
    ones = np.ones((rows, 1), np.float64)
    return np.concatenate([ones, np.cumprod(own.astype(np.float64), axis=1)], axis=1)
