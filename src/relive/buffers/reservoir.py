"""A reservoir: a uniform sample of all transitions that were ever added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, DTypeLike, NDArray

from relive import infos as infos_of
from relive import inputs
from relive.annotated import annotated
from relive.batches import DictReplayBufferSamples, ReplayBufferSamples
from relive.breaks import Rule, asked_for
from relive.buffers.assigning import RESERVOIR, checked_validate
from relive.buffers.base import BaseBuffer
from relive.buffers.memory_check import warn_if_too_large
from relive.errors import EmptyBufferError, ShapeError
from relive.intake import read_ends
from relive.locks import Lock
from relive.prefetch import BatchStream
from relive.randomness import Stream
from relive.spaces import DTypes, Leaf, Tree, action_tree, check_dtypes, observation_tree
from relive.storage import Memory
from relive.views.transition import Samples

_NO_NEIGHBOURS = "a reservoir keeps single transitions, whose neighbours are gone; use ReplayBuffer"


class Reservoir(BaseBuffer):
    """Keeps each transition that was ever added with the same probability, however long ago it was.

    While there is room, all are kept. After that the t-th transition is kept with probability ``buffer_size / t``, and
    takes the place of a random one (algorithm R of Vitter 1985, "Random sampling with a reservoir"). One reservoir
    serves all environments; each transition is stored with its own next observation.

    ``add``, ``extend`` and ``sample`` are those of `ReplayBuffer`. What needs a transition's neighbours is refused.

    Args:
        buffer_size: how many transitions it holds, of all environments together; at least one.
        observation_space: as `ReplayBuffer`.
        action_space: as `ReplayBuffer`.
        device: where batches go; "auto" is CUDA where there is one, else the CPU.
        n_envs: environments that add side by side.
        optimize_memory_usage: accepted and recorded.
        handle_timeout_termination: a time limit does not count as terminated.
        dtypes: stored dtypes by leaf.
        validate: "strict" or "seed".
        seed: None for NumPy's global generator, an int or a ``numpy.random.Generator`` for a stream of its own; it
            decides what is kept as well as what is drawn.
        fields: further fields of a step, ``{name: (shape, dtype)}``, which ``add`` then takes as ``extras``; batches
            have the attributes ``extras``, ``{name: (batch, *shape)}``, and ``handles``, ``(batch,)`` int64, the
            position of each row among all transitions ever added.
        n_steps: 1; others are refused.
        gamma: of no effect on single steps.
        hindsight: None; others are refused.

    Raises:
        UnsupportedSpaceError: a space whose samples have no fixed shape.
        ValueError: ``n_steps`` or ``hindsight``, with the reason.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> reservoir = Reservoir(100, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), device="cpu", seed=0)
        >>> steps = np.zeros((1000, 1, 3), np.float32)
        >>> zeros = np.zeros((1000, 1), np.int64)
        >>> reservoir.extend(steps, steps, zeros, np.zeros((1000, 1)), terminated=zeros, truncated=zeros)
        >>> len(reservoir), reservoir.num_seen, reservoir.sample(4).rewards.shape
        (100, 1000, torch.Size([4, 1]))
    """

    n_steps: int = 1
    hindsight: None = None

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        dtypes: DTypes | None = None,
        validate: Literal["strict", "seed"] = "strict",
        seed: int | np.random.Generator | None = None,
        fields: Mapping[str, tuple[tuple[int, ...], DTypeLike]] | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        hindsight: None = None,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.validate = checked_validate(validate)
        if n_steps != 1:
            raise ValueError(f"n_steps is {n_steps}, expected 1: {_NO_NEIGHBOURS}")
        if hindsight is not None:
            raise ValueError(f"hindsight is {hindsight!r}, expected None: {_NO_NEIGHBOURS}")
        self.buffer_size = max(self.buffer_size, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._stream = Stream(seed)
        self._observation, self._action = observation_tree(observation_space, dtypes), action_tree(action_space, dtypes)
        check_dtypes(dtypes, self._observation, self._action)
        self._fields = [_field(name, *declared) for name, declared in (fields or {}).items()]
        self._lock = Lock()
        self._generation = 0
        self._num_seen = 0
        self._allocate()
        warn_if_too_large(sum(column.nbytes for column in self._columns))

    def __setattr__(self, name: str, value: Any) -> None:
        rule = RESERVOIR.get(name) if "_columns" in self.__dict__ else None
        super().__setattr__(name, value if rule is None else rule(self, value))

    # Adding --------------------------------------------------------------------------------------------------------

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: ArrayLike,
        done: ArrayLike | None = None,
        infos: Any = None,
        *,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        extras: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Offers one step of every environment, as `ReplayBuffer.add`.

        Raises:
            ShapeError, CastError, NaNRewardError: what came does not fit (``validate="strict"``); nothing was stored.
        """
        ends = (done, infos, terminated, truncated)
        self._offer(obs, next_obs, action, reward, ends, mask, extras, (self.n_envs,))

    def extend(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: ArrayLike,
        done: ArrayLike | None = None,
        infos: Any = None,
        *,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        extras: Mapping[str, ArrayLike] | None = None,
        breaks: Rule = None,
        breaks_tolerance: float = 0.0,
    ) -> None:
        """Offers many steps of every environment at once, as `ReplayBuffer.extend`; the same as adding one by one.

        Raises:
            ShapeError, CastError, NaNRewardError: as `add`; nothing was stored.
            ValueError: ``breaks`` is not None, with the reason; nothing was stored.
        """
        asked_for(breaks, breaks_tolerance)
        if breaks is not None:
            raise ValueError(f"breaks is {breaks!r}, expected None: {_NO_NEIGHBOURS}")
        ends = (done, infos, terminated, truncated)
        obs = inputs.over_steps(obs, self._observation, "obs")
        next_obs = inputs.over_steps(next_obs, self._observation, "next_obs")
        action = inputs.over_steps(action, self._action, "action")
        steps = inputs.length(obs, self._observation)
        self._offer(obs, next_obs, action, reward, ends, None, extras, (steps, self.n_envs))

    def interrupt(self, envs: Any = None) -> None:
        """Does nothing: where a stream was cut from outside matters only to what looks over several steps."""

    def reset(self) -> None:
        """Empties the reservoir; what was seen so far is forgotten."""
        with self._lock:
            super().reset()
            self._num_seen = 0
            self._generation += 1  # after the rest: a stream takes what it drew before for old

    # Drawing -------------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """A batch of uniformly drawn transitions, with replacement, as `ReplayBuffer.sample`.

        Raises:
            EmptyBufferError: nothing was added yet.
        """
        size = inputs.whole_number(batch_size, "batch_size")
        with self._lock:
            if self.size() == 0:
                name = type(self).__name__
                raise EmptyBufferError(
                    f"sample from an empty {name}: it holds 0 transitions, expected 1 or more; add steps first"
                )
            return self._get_samples(self._stream_or_global().below(self.size(), size), env)

    def stream(self, batch_size: int, depth: int = 2, env: Any = None) -> BatchStream:
        """Batches drawn ahead on a background thread, see `relive.prefetch.BatchStream`."""
        return BatchStream(self, batch_size, depth, env)

    def sample_sequences(self, *args: Any, **options: Any) -> NoReturn:
        """Refused.

        Raises:
            NotImplementedError: always, with the reason.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sequences: {_NO_NEIGHBOURS}")

    # Asking --------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Transitions held, of all environments together."""
        return super().size()

    @property
    def num_transitions(self) -> int:
        """The same."""
        return self.size()

    @property
    def num_seen(self) -> int:
        """Transitions added since the start or the last `reset`, kept or not."""
        return self._num_seen

    @property
    def lane_sizes(self) -> NDArray[np.int64]:
        """Not known.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{type(self).__name__} does not know which environment a transition is of; ask len()")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.size():,} of {self.buffer_size:,} transitions, {self.num_seen:,} seen, "
            f"n_envs={self.n_envs}, observation={self.obs_shape}, action={self.action_dim}, device={self.device})"
        )

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            held = self.size()
            return self.__dict__ | {"_columns": [column[:held].copy() for column in self._columns]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        held = state["_columns"]
        self.__dict__.update(state)
        self._allocate()
        for column, values in zip(self._columns, held, strict=True):
            column[: len(values)] = values

    # Inside --------------------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        """Columns ``(buffer_size, ...)``: observations, actions, next observations, done, reward, number, fields."""
        observation, action = self._observation.leaves, self._action.leaves
        kinds = [(leaf.shape, leaf.dtype) for leaf in (*observation, *action, *observation)]
        kinds += [((1,), np.dtype(np.float32)), ((1,), np.dtype(np.float32)), ((), np.dtype(np.int64))]
        kinds += [(leaf.shape, leaf.dtype) for leaf in self._fields]
        self._columns = [Memory().array("", (self.buffer_size, *shape), dtype) for shape, dtype in kinds]

    def _offer(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: Any,
        ends: tuple[Any, Any, Any, Any],
        mask: Any,
        extras: Any,
        leading: tuple[int, ...],
    ) -> None:
        """Takes one step (``leading`` is ``(n_envs,)``) or many (``(steps, n_envs)``), oldest first."""
        strict = self.validate == "strict"
        active = None if mask is None else inputs.lane_mask(mask, self.n_envs)
        given = [
            *_tree(obs, self._observation, "obs", leading, strict, active),
            *_tree(action, self._action, "action", leading, strict, active, is_action=True),
            *_tree(next_obs, self._observation, "next_obs", leading, strict, active),
            self._terminations(*ends, leading, active),
            inputs.rewards(reward, leading, strict, active),
            np.empty(leading),  # numbers are known once they are stored
            *_extras(extras, self._fields, leading, strict, active),
        ]
        columns = self._columns
        count = math.prod(leading)
        rows = [array.reshape(count, *column.shape[1:]) for array, column in zip(given, columns, strict=True)]
        if active is not None:
            rows = [array[active] for array in rows]
        with self._lock:
            numbers = np.arange(self._num_seen, self._num_seen + len(rows[0]))
            rows[len(rows) - 1 - len(self._fields)] = numbers
            places, chosen = self._choose(numbers)
            for column, array in zip(columns, rows, strict=True):
                column[places] = array[chosen]
            self._num_seen += len(numbers)
            self.full = self._num_seen >= self.buffer_size
            self.pos = 0 if self.full else self._num_seen

    def _choose(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places that get a new transition, each once, and the indices of those which they get."""
        places = numbers.copy()
        first_late = int(np.searchsorted(numbers, self.buffer_size))
        bounds = numbers[first_late:] + 1
        if len(bounds):
            # Uniform below a bound of its own for each, by 53 bits: no generator of NumPy draws that in one call.
            drawn = self._stream_or_global().below(1 << 53, len(bounds)) * 2.0**-53
            places[first_late:] = np.minimum((drawn * bounds).astype(np.int64), bounds - 1)
        chosen = np.flatnonzero(places < self.buffer_size)[::-1]
        # Of several for one place the last stays, as if they had come one by one.
        kept, index = np.unique(places[chosen], return_index=True)
        return kept, chosen[index]

    def _terminations(
        self,
        done: Any,
        infos: Any,
        terminated: Any,
        truncated: Any,
        leading: tuple[int, ...],
        active: NDArray[np.bool_] | None,
    ) -> NDArray[Any]:
        """What is drawn as ``dones``: 1 where the episode terminated."""
        strict = self.validate == "strict"
        first, second, words, infos = read_ends(
            done,
            infos,
            terminated,
            truncated,
            leading,
            time_limits=self.handle_timeout_termination,
            strict=strict,
            mask=active,
        )
        ended = inputs.flags(first, "terminated" if words else "done", leading, strict, active)
        if words:
            inputs.flags(second, "truncated", leading, strict, active)
            return ended
        if len(leading) == 1:
            timeouts = infos_of.timeouts(infos, self.n_envs, strict, active)
        else:
            timeouts = infos_of.many_timeouts(infos, leading[0], self.n_envs, strict)
        terminations: NDArray[Any] = ended * (1 - timeouts)
        return terminations

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Samples:
        rows = np.asarray(batch_inds, np.int64).reshape(-1)
        with self._lock:
            arrays = iter([column.take(rows, axis=0) for column in self._columns])
        obs, action, next_obs = (
            tree.unflatten([next(arrays) for _ in tree.leaves])
            for tree in (self._observation, self._action, self._observation)
        )
        dones, rewards, numbers = next(arrays), next(arrays), next(arrays)
        parts = (
            *self._observation.flatten(self._normalize_obs(obs, env)),
            *self._action.flatten(action),
            *self._observation.flatten(self._normalize_obs(next_obs, env)),
            dones,
            self._normalize_reward(rewards, env),
            *arrays,
        )
        tensors = iter([self.to_torch(array, copy=False) for array in parts])
        obs, action, next_obs = (
            tree.unflatten([next(tensors) for _ in tree.leaves])
            for tree in (self._observation, self._action, self._observation)
        )
        kind: Any = DictReplayBufferSamples if isinstance(self.observation_space, spaces.Dict) else ReplayBufferSamples
        batch: Samples = kind(obs, action, next_obs, next(tensors), next(tensors))
        if not self._fields:
            return batch
        extras = {leaf.path.removeprefix(_EXTRAS): next(tensors) for leaf in self._fields}
        return annotated(batch, weights=None, handles=numbers, extras=extras)


_EXTRAS = "extras/"


def _field(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Leaf:
    """A declared field as a leaf; its space has no say in what it may hold."""
    shape = tuple(shape)
    return Leaf(_EXTRAS + name, shape, np.dtype(dtype), spaces.Box(-np.inf, np.inf, shape))


def _tree(
    value: Any,
    tree: Tree,
    name: str,
    leading: tuple[int, ...],
    strict: bool,
    active: NDArray[np.bool_] | None,
    *,
    is_action: bool = False,
) -> Iterable[NDArray[Any]]:
    """The leaves of one step or of many; the seed's own casts are defined for one step only."""
    if strict or len(leading) == 1:
        return inputs.tree_arrays(value, tree, leading, strict, name=name, is_action=is_action, active=active)
    parts = inputs.flattened(value, tree, name, exact=False)
    given = (tree.unflatten([part[i] for part in parts]) for i in range(leading[0]))
    steps = [inputs.tree_arrays(step, tree, leading[1:], strict, name=name, is_action=is_action) for step in given]
    return [np.stack(leaf) for leaf in zip(*steps, strict=True)]


def _extras(
    given: Mapping[str, Any] | None,
    fields: list[Leaf],
    leading: tuple[int, ...],
    strict: bool,
    active: NDArray[np.bool_] | None,
) -> list[NDArray[Any]]:
    """The declared fields of one step or of many, in their order.

    Raises:
        ShapeError: not the names that were declared, or another shape.
    """
    names = [leaf.path.removeprefix(_EXTRAS) for leaf in fields]
    values = inputs.declared(given)
    if set(values) != set(names):
        raise ShapeError(f"extras has the names {list(values)}, expected {sorted(names)}, as fields declares them")
    return [
        inputs.leaf_array(values[name], leaf, leading, strict, is_action=False, active=active)
        for name, leaf in zip(names, fields, strict=True)
    ]
