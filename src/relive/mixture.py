"""Batches out of several buffers at once: demonstrations beside own experience, old data beside new."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from relive import errors
from relive.annotated import annotated, named_tuple
from relive.draws import Returns
from relive.errors import EmptyBufferError, ShapeError
from relive.inputs import as_array, whole_number
from relive.locks import Lock
from relive.prefetch import BatchStream
from relive.randomness import Stream

#: A row of a mixed batch: the index of its buffer, whether that weighs its draws, and the handle there, or -1.
HANDLE = np.dtype([("source", np.int32), ("is_weighed", np.bool_), ("handle", np.int64)], align=True)

_PriorityError: type[ValueError] = errors.PriorityError


def mix(proportions: Mapping[Any, float], seed: int | np.random.Generator | None = None, **options: Any) -> Mixture:
    """A `Mixture` of buffers, ``{buffer: proportion}``; see there.

    Example:
        >>> from gymnasium import spaces
        >>> from relive import ReplayBuffer
        >>> own, shown = (ReplayBuffer(100, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), "cpu") for _ in range(2))
        >>> for buffer, reward in ((own, 0.0), (shown, 1.0)):
        ...     buffer.add([0.0], [0.0], 0, reward, False)
        >>> batch = mix({own: 0.75, shown: 0.25}).sample(4)
        >>> batch.rewards.flatten().tolist(), batch.sources.tolist()
        ([0.0, 0.0, 0.0, 1.0], [0, 0, 0, 1])
    """
    return Mixture(proportions, seed, **options)


class Mixture:
    """Draws each batch from several buffers, so many rows from each.

    The rows of a batch follow the order of the buffers. Proportions hold exactly: what rounding leaves over is made
    good by the next batches, so that a buffer with a hundredth gets one row in every hundred, also of batches of ten.

    Each buffer draws in its own way, with its own priorities and its own stream of random numbers.

    Args:
        proportions: ``{buffer: proportion}``, any buffers with ``sample`` and equal spaces; proportions are relative to
            their sum.
        seed: None for NumPy's global generator, an int or a ``numpy.random.Generator`` for a stream of its own; drawn
            from only where ``random``.
        random: the buffer of each row is drawn by itself, so that the rows from each follow a multinomial distribution.

    Attributes:
        buffers: the buffers, in order.

    Raises:
        ValueError: spaces differ, or something else that would make the rows differ in kind; or a proportion is
            negative, not finite, or all are 0.
    """

    def __init__(
        self,
        proportions: Mapping[Any, float],
        seed: int | np.random.Generator | None = None,
        *,
        random: bool = False,
    ) -> None:
        if not isinstance(proportions, Mapping):
            raise TypeError(f"proportions is a {type(proportions).__name__}, expected a dict {{buffer: proportion}}")
        if not proportions:
            raise ValueError("proportions is empty, expected at least one buffer")
        self.buffers = tuple(proportions)
        for index, buffer in enumerate(self.buffers):
            if isinstance(buffer, Mixture) or not callable(getattr(buffer, "sample", None)):
                raise TypeError(f"proportions has {buffer!r} as buffer {index}, expected a buffer, which has `sample`")
            _check_alike(self.buffers[0], buffer, index)
        self.random = random
        self._stream = Stream(seed)
        self._lock = Lock()
        self.proportions = list(proportions.values())

    @property
    def proportions(self) -> NDArray[np.float64]:
        """The share of each buffer, ``(buffers,)``, which add up to 1; can be set at any time, in any scale."""
        shares: NDArray[np.float64] = self._proportions.copy()
        return shares

    @proportions.setter
    def proportions(self, proportions: ArrayLike) -> None:
        given = np.array(proportions, np.float64)
        if given.shape != (len(self.buffers),):
            raise ShapeError(f"proportions has shape {given.shape}, expected ({len(self.buffers)},): one per buffer")
        for index, share in enumerate(given.tolist()):
            if not 0 <= share < math.inf:
                raise ValueError(f"proportions has {share} for buffer {index}, expected a finite number from 0 on")
        if given.sum() == 0:
            raise ValueError("proportions are all 0, expected one above 0 at least")
        with self._lock:
            self._proportions = given / given.sum()
            self._given = np.zeros(len(given), np.int64)

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """That of every buffer."""
        space: spaces.Space[Any] = self.buffers[0].observation_space
        return space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """That of every buffer."""
        space: spaces.Space[Any] = self.buffers[0].action_space
        return space

    @property
    def device(self) -> torch.device:
        """Where batches go: the device of the buffers."""
        device: torch.device = self.buffers[0].device
        return device

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch with rows of every buffer.

        Args:
            batch_size: how many rows.
            env: normalises, as in the ``sample`` of each buffer.

        Returns:
            The named tuple that the buffers return, with the attributes

            - ``sources``: ``(batch,)`` int64, the index of each row's buffer;
            - ``handles``: ``(batch,)`` of dtype `HANDLE`, for `update_priorities`;
            - ``weights``: ``(batch, 1)`` as the buffers give them, 1 for rows of those that do not weigh; None where
              none does;
            - ``extras``: ``{name: (batch, *shape)}``, the declared fields that all buffers share;
            - ``relabelled``: ``(batch,)`` bool, where a buffer relabels goals.

        Raises:
            EmptyBufferError: a buffer that has a share in the batch is empty; nothing was drawn.
            ShapeError: batches of the buffers that do not fit together.
        """
        size = whole_number(batch_size, "batch_size")
        with self._lock:
            counts = self._apportion(size)
            self._given += counts
        try:
            sources = [index for index, count in enumerate(counts.tolist()) if count] or [0]
            return self._join(sources, self._draw(sources, counts, env))
        except BaseException:
            with self._lock:
                self._given -= counts
            raise

    def update_priorities(
        self, handles: ArrayLike, priorities: ArrayLike | None = None, *, td_errors: ArrayLike | None = None
    ) -> int:
        """Gives new priorities back, each to the buffer of its row; rows of buffers without priorities are ignored.

        Args:
            handles: ``(n,)``, the ``handles`` of a batch or some of them.
            priorities: ``(n,)`` from 0 on.
            td_errors: ``(n,)`` in place of priorities, whose absolute value is taken.

        Returns:
            How many handles were stale; those are left out.

        Raises:
            PriorityError: one is negative, NaN or infinite; nothing was changed.
        """
        if (priorities is None) == (td_errors is None):
            raise TypeError("update_priorities takes either priorities or td_errors")
        rows = np.asarray(handles)
        if rows.dtype != HANDLE:
            raise TypeError(
                f"handles has dtype {rows.dtype}, expected {HANDLE}: the handles of a batch of this mixture"
            )
        rows = rows.reshape(-1)
        name = "priorities" if td_errors is None else "td_errors"
        values = as_array(priorities if td_errors is None else td_errors, name).reshape(-1)
        if len(values) != len(rows):
            raise ShapeError(f"{name} has {len(values)} values, expected {len(rows)}: one per handle")
        bad = ~np.isfinite(values) | ((values < 0) & (td_errors is None))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise _PriorityError(f"{name} has {values[row]} at row {row}, expected finite numbers from 0 on")
        dropped = 0
        for index, buffer in enumerate(self.buffers):
            chosen = (rows["source"] == index) & rows["is_weighed"]
            if chosen.any():
                own = np.ascontiguousarray(rows["handle"][chosen])
                dropped += int(buffer.update_priorities(own, **{name: values[chosen]}))
        return dropped

    def stream(self, batch_size: int, depth: int = 2, env: Any = None) -> BatchStream:
        """Batches drawn ahead on a background thread, see `relive.prefetch.BatchStream`."""
        return BatchStream(self, batch_size, depth, env)

    def __repr__(self) -> str:
        shares = zip(self._proportions.tolist(), self.buffers, strict=True)
        return f"Mixture({', '.join(f'{share:g} of {buffer!r}' for share, buffer in shares)})"

    # Inside --------------------------------------------------------------------------------------------------------

    @property
    def _generation(self) -> int:
        """Goes up when any buffer is reset, for streams."""
        return sum(getattr(buffer, "_generation", 0) for buffer in self.buffers)

    def _apportion(self, size: int) -> NDArray[np.int64]:
        """How many of ``size`` rows each buffer gives."""
        if self.random:
            drawn = self._stream.below(1 << 53, size) * 2.0**-53
            places = np.searchsorted(np.cumsum(self._proportions)[:-1], drawn, side="right")
            drawn_from: NDArray[np.int64] = np.bincount(places, minlength=len(self.buffers))
            return drawn_from
        due: NDArray[np.float64] = self._proportions * (int(self._given.sum()) + size) - self._given
        counts: NDArray[np.int64] = np.floor(np.maximum(due, 0)).astype(np.int64)
        # The largest remainders, the first of equal ones. Where some got too much before, it may be too many rows.
        order = np.argsort(counts - due, kind="stable")
        missing = size - int(counts.sum())
        counts[order[: max(missing, 0)]] += 1
        for index in reversed(order):
            taken = min(max(-missing, 0), int(counts[index]))
            counts[index] -= taken
            missing += taken
        return counts

    def _draw(self, sources: Sequence[int], counts: NDArray[np.int64], env: Any) -> list[Any]:
        for index in sources:
            if counts[index] and len(self.buffers[index]) == 0:
                raise EmptyBufferError(self._without(index, "it is empty"))
        return [self._draw_from(index, int(counts[index]), env) for index in sources]

    def _draw_from(self, index: int, count: int, env: Any) -> Any:
        try:
            return self.buffers[index].sample(count, env=env)
        except EmptyBufferError as error:  # steps are held, but none that may be drawn
            raise type(error)(self._without(index, str(error))) from error

    def _without(self, index: int, reason: str) -> str:
        return (
            f"nothing to draw from buffer {index} of the mixture, {self.buffers[index]!r}: {reason}; add steps to it "
            "first, or set its share in `proportions` to 0"
        )

    def _join(self, sources: Sequence[int], batches: Sequence[Any]) -> Any:
        kind = named_tuple(batches[0])
        fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        joined = kind(*(_concatenate([getattr(batch, name, None) for batch in batches], name) for name in fields))
        sizes = [len(batch.rewards) for batch in batches]
        weights = [getattr(batch, "weights", None) for batch in batches]
        handles = [getattr(batch, "handles", None) for batch in batches]
        extras = [getattr(batch, "extras", None) or {} for batch in batches]
        relabelled = [getattr(batch, "relabelled", None) for batch in batches]
        rows = np.zeros(sum(sizes), HANDLE)
        rows["source"] = np.repeat(sources, sizes)
        rows["is_weighed"] = np.repeat([part is not None for part in weights], sizes)
        rows["handle"] = np.concatenate(
            [np.full(size, -1) if part is None else part for part, size in zip(handles, sizes, strict=True)]
        )
        attributes = {
            "sources": rows["source"].astype(np.int64),
            "handles": rows,
            "weights": _concatenate(_filled(weights, batches), "weights"),
            "extras": {
                name: _concatenate([part[name] for part in extras], f"extras/{name}")
                for name in extras[0]
                if all(name in part for part in extras)
            },
        }
        if any(part is not None for part in relabelled):
            parts = zip(relabelled, sizes, strict=True)
            attributes["relabelled"] = np.concatenate(
                [np.zeros(size, bool) if part is None else part for part, size in parts]
            )
        return annotated(joined, **attributes)


def _filled(weights: Sequence[Any], batches: Sequence[Any]) -> Sequence[Any]:
    """Weights of 1 for batches that have none, where others have some."""
    known = next((part for part in weights if part is not None), None)
    if known is None:
        return weights
    pairs = zip(weights, batches, strict=True)
    return [known.new_ones((len(batch.rewards), 1)) if part is None else part for part, batch in pairs]


def _concatenate(parts: Sequence[Any], name: str) -> Any:
    """Tensors of several batches one after the other, nested as they are."""
    first = parts[0]
    if all(part is None for part in parts):
        return None
    if isinstance(first, dict):
        return {key: _concatenate([part[key] for part in parts], f"{name}/{key}") for key in first}
    if isinstance(first, tuple):
        return tuple(_concatenate([part[i] for part in parts], f"{name}/{i}") for i in range(len(first)))
    kinds = [None if part is None else (part.dtype, tuple(part.shape[1:]), part.device) for part in parts]
    for kind in kinds:
        if kind != kinds[0]:
            raise ShapeError(
                f"{name} differs between the buffers of a mixture: {_say(kinds[0])} and {_say(kind)}, expected the "
                "same dtype, shape and device; give the buffers the same dtypes, fields, n_steps and device"
            )
    return torch.cat(list(parts)) if len(parts) > 1 else first


def _say(kind: tuple[Any, ...] | None) -> str:
    return "none" if kind is None else f"{kind[0]} (batch, {', '.join(map(str, kind[1]))}) on {kind[2]}"


def _check_alike(first: Any, other: Any, index: int) -> None:
    """Refuses a buffer whose rows would be of another kind than those of the first."""
    difference = (
        _space_difference(first.observation_space, other.observation_space, "observation_space")
        or _space_difference(first.action_space, other.action_space, "action_space")
        or _difference(getattr(first, "reward_shape", ()), getattr(other, "reward_shape", ()), "reward_shape")
    )
    if difference is None and _gives_discounts(first) != _gives_discounts(other):
        steps = [getattr(buffer, "n_steps", 1) for buffer in (first, other)]
        difference = f"n_steps is {steps[0]} and {steps[1]}, so only one of them gives discounts"
        if steps[0] == steps[1]:
            difference = f"gamma is {first.gamma!r} and {other.gamma!r}, so only one of them gives discounts"
    if difference is not None:
        raise ValueError(f"buffers 0 and {index} of the mixture differ: {difference}; expected buffers of one kind")


def _gives_discounts(buffer: Any) -> bool:
    return Returns(getattr(buffer, "n_steps", 1), getattr(buffer, "gamma", 1.0)).have_discounts


def _space_difference(one: spaces.Space[Any], other: spaces.Space[Any], path: str) -> str | None:
    """The deepest part in which two spaces differ, in words, or None."""
    if one == other:
        return None
    if isinstance(one, spaces.Dict) and isinstance(other, spaces.Dict) and set(one.spaces) == set(other.spaces):
        pairs = [(key, one.spaces[key], other.spaces[key]) for key in one.spaces]
    elif isinstance(one, spaces.Tuple) and isinstance(other, spaces.Tuple) and len(one.spaces) == len(other.spaces):
        pairs = [(str(i), *both) for i, both in enumerate(zip(one.spaces, other.spaces, strict=True))]
    else:
        pairs = []
    below = (_space_difference(mine, theirs, f"{path}/{key}") for key, mine, theirs in pairs)
    return next((found for found in below if found), _difference(one, other, path))


def _difference(one: Any, other: Any, name: str) -> str | None:
    return None if one == other else f"{name} is {one} and {other}"
