"""Batches that tell more than the seed's fields: the same named tuple, with attributes beside the fields.

`isinstance`, unpacking, indexing and ``_replace`` are those of the named tuple, so code that knows only the seed's
fields takes such a batch like any other.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

Batch = TypeVar("Batch", bound=tuple[Any, ...])


def annotated(batch: Batch, **attributes: Any) -> Batch:
    """The batch with these attributes; those that it had before are gone."""
    with_attributes: Batch = _restore(named_tuple(batch), tuple(batch), attributes)
    return with_attributes


def named_tuple(batch: tuple[Any, ...]) -> type:
    """The named tuple that a batch is, without what was put beside its fields."""
    return _named_tuple(type(batch))


@cache
def _named_tuple(kind: type) -> type:
    return next(base for base in kind.__mro__ if "_fields" in vars(base))


class _Annotated:
    """What an annotated batch does that a named tuple alone does not."""

    def _replace(self: Any, **fields: Any) -> Any:
        return _restore(named_tuple(self), named_tuple(self)._replace(self, **fields), vars(self))  # type: ignore[attr-defined]

    __replace__ = _replace  # of copy.replace, from Python 3.13 on

    def __reduce__(self: Any) -> Any:
        return _restore, (named_tuple(self), tuple(self), vars(self))


@cache
def annotated_kind(plain: type) -> Any:
    """The named tuple ``plain`` with room for attributes."""
    return type(plain.__name__, (_Annotated, plain), {"__doc__": plain.__doc__, "__module__": plain.__module__})


def _restore(plain: type, fields: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    batch = annotated_kind(plain)._make(fields)
    vars(batch).update(attributes)
    return batch
