"""Rollout buffers: a fixed number of steps of the current policy, consumed whole and in shuffled minibatches."""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from relive import inputs
from relive.annotated import annotated
from relive.batches import DictRolloutBufferSamples, RolloutBufferSamples
from relive.buffers.base import BaseBuffer, require_dict
from relive.buffers.rollout_ends import RolloutEnds
from relive.errors import EmptyBufferError, RolloutFullError, RolloutNotFullError, ShapeError
from relive.randomness import Stream
from relive.returns import RealSteps, seed_gae
from relive.spaces import ArraySpace, DTypes, Leaf, Tree, action_tree, check_dtypes, observation_tree
from relive.timeline import Bytes

Array = NDArray[Any]
Samples = RolloutBufferSamples | DictRolloutBufferSamples
BatchTypes: TypeAlias = tuple[type[RolloutBufferSamples], type[DictRolloutBufferSamples]]

# Integers up to this, and down to its negative, are exact in float32.
_EXACT_IN_FLOAT32 = 1 << 24


class RolloutMethods(BaseBuffer):
    """All that a rollout buffer does, but for its constructor: see `ReplayMethods`."""

    observations: Any
    actions: Any
    rewards: NDArray[np.float32]
    episode_starts: NDArray[np.float32]
    values: NDArray[np.float32]
    log_probs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]

    # What a subclass in the wild overrides, minibatches go through.
    _overrides_get_samples = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_get_samples = cls._get_samples is not RolloutMethods._get_samples

    # The named tuples of minibatches, for observations of one array or a Tuple, and of a Dict.
    _batch_types: BatchTypes = (RolloutBufferSamples, DictRolloutBufferSamples)

    def _set_up(
        self,
        gae_lambda: float,
        gamma: float,
        dtypes: DTypes | None,
        validate: Literal["strict", "seed"],
        seed: int | np.random.Generator | None,
    ) -> None:
        """What a constructor does after that of `BaseBuffer`."""
        if validate not in ("strict", "seed"):
            raise ValueError(f"validate is {validate!r}, expected 'strict' or 'seed'")
        self.gae_lambda = gae_lambda
        self.gamma = gamma
        self.validate = validate
        self._stream = Stream(seed)
        self._dtypes = dtypes
        check_dtypes(dtypes, self._observation, self._action)
        self.generator_ready = False
        self.reset()

    @cached_property
    def _observation(self) -> Tree:
        return observation_tree(self.observation_space, self.__dict__.get("_dtypes"))

    @cached_property
    def _action(self) -> Tree:
        # Unlike in a replay buffer, a float64 action keeps its dtype until it is drawn (Stable-Baselines3 2.9.2).
        return action_tree(self.action_space, self.__dict__.get("_dtypes"), narrow=False)

    @cached_property
    def _drawn_as_float32(self) -> tuple[bool, ...]:
        return tuple(_fits_float32(leaf) for leaf in self._action.leaves)

    # Filling -------------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empties the rollout and zeroes it, following ``buffer_size`` and ``n_envs`` where they were changed."""
        if "_stream" not in self.__dict__:  # a subclass that skipped its parent's constructor has arrays of its own
            super().reset()
            return
        rows = (self.buffer_size, self.n_envs)
        self.observations = _zeroed_tree(self.__dict__.get("observations"), self._observation, rows)
        self.actions = _zeroed_tree(self.__dict__.get("actions"), self._action, rows)
        for name in ("rewards", "returns", "episode_starts", "values", "log_probs", "advantages"):
            setattr(self, name, _zeroed(self.__dict__.get(name), rows, np.dtype(np.float32)))
        self.generator_ready = False
        self._ends = RolloutEnds(*rows)
        super().reset()

    def add(
        self,
        obs: Any,
        action: Any,
        reward: ArrayLike,
        episode_start: ArrayLike,
        value: Any,
        log_prob: Any,
        *,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        final_value: Any = None,
        mask: ArrayLike | None = None,
    ) -> None:
        """Adds one step of every environment.

        In the seed's form ``episode_start`` alone says where episodes end, and whoever collects adds the value of a
        truncated step's last observation to its reward. With ``terminated`` and ``truncated`` the buffer does it, when
        advantages are computed, and stored rewards stay what the environment gave. Then ``episode_start`` need not be
        said (zeros will do), but where it is, the step before must have ended.

        Args:
            obs: ``(n_envs, *shape)``, nested as the space is.
            action: ``(n_envs, *shape)``, nested as the space is.
            reward: ``(n_envs,)``.
            episode_start: ``(n_envs,)`` flags: the step is the first of its episode.
            value: ``(n_envs,)`` or ``(n_envs, 1)``: of ``obs``.
            log_prob: ``(n_envs,)``: of ``action`` under the policy that took it.
            terminated: ``(n_envs,)`` flags: the environment reached a terminal state; this wins over ``truncated``.
            truncated: ``(n_envs,)`` flags: the episode was cut.
            final_value: ``(n_envs,)``: of the last observation, read where truncated. It may be missing (None or NaN)
                where the next row of the environment is masked out (Gymnasium's NEXT_STEP autoreset: its ``obs`` is
                that observation, so its ``value`` is used and must be finite), and in the last row (``last_values``
                is used).
            mask: ``(n_envs,)`` booleans, False where this is no step (the reset row of NEXT_STEP autoreset, an
                environment or agent that sits out). Such a row takes no part in anything: advantages go from the
                step before it to the one after it, and minibatches leave it out. What is passed for it is neither
                checked nor kept, with two exceptions: its ``value`` where ``final_value`` says so, and in the seed's
                form its ``episode_start``, which counts for the next step.

        Raises:
            RolloutFullError: ``buffer_size`` steps are there already.
            ShapeError, CastError, NaNRewardError, FinalValueError: what came does not fit; nothing was stored.
            EpisodeStartError: ``episode_start`` where the step before was neither terminated nor truncated; nothing was
                stored. With ``validate="seed"`` that step ended there, as in Stable-Baselines3.
        """
        row, lanes, strict = self.pos, (self.n_envs,), self.validate == "strict"
        if row >= self.buffer_size:
            raise RolloutFullError(
                f"add to a full rollout: it holds {self.buffer_size} steps per environment; reset it, or make it larger"
            )
        active = None if mask is None else inputs.lane_mask(mask, self.n_envs)
        parts = inputs.tree_arrays(obs, self._observation, lanes, strict, name="obs", active=active)
        action_parts = inputs.tree_arrays(
            action, self._action, lanes, strict, name="action", is_action=True, active=active
        )
        row_rewards = inputs.rewards(reward, lanes, strict, active, step=row)
        row_starts = inputs.flags(episode_start, "episode_start", lanes, strict, active)
        if active is not None:
            row_starts = self._with_starts_of_no_steps(row_starts, episode_start)
        read = None if active is None else active | self._ends.awaiting(row)  # where anybody looks at the value
        row_values = inputs.scalars(_flat(value, "value"), "value", lanes, strict, active=read)
        row_log_probs = inputs.scalars(
            _no_scalar(inputs.as_array(log_prob, "log_prob")), "log_prob", lanes, strict, active=active
        )
        self._ends.check(row, active, row_values)
        if terminated is not None or truncated is not None:
            terminations = self._end_flags(terminated, "terminated", active)
            truncations = self._end_flags(truncated, "truncated", active)
            if final_value is not None:
                final_value = inputs.scalars(
                    _flat(final_value, "final_value"), "final_value", lanes, strict, active=active
                )
            starts = row_starts > 0
            self._ends.reconcile(row, starts if active is None else starts & active, strict=strict)
            self._ends.set(row, terminations, truncations, final_value, active)
        elif final_value is not None:
            raise TypeError("add got final_value without truncated, expected to be told which steps were truncated")
        else:
            self._ends.set_seed_form(row)
        if active is not None:
            self._ends.mask_out(row, active)
        for array, part in zip(self._observation.flatten(self.observations), parts, strict=True):
            array[row] = part
        for array, part in zip(self._action.flatten(self.actions), action_parts, strict=True):
            array[row] = part
        self.rewards[row] = row_rewards
        self.episode_starts[row] = row_starts
        self.values[row] = row_values
        self.log_probs[row] = row_log_probs
        self.pos = row + 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: Any, dones: ArrayLike | None = None) -> None:
        """Fills ``advantages`` (GAE, see `relive.returns.seed_gae`) and ``returns``.

        A rollout that is partly filled is computed up to its newest step. Rows that are no steps have 0.

        Args:
            last_values: ``(n_envs,)`` or ``(n_envs, 1)``: values of what was seen after the newest step.
            dones: ``(n_envs,)`` flags: the newest step ended its episode. Not read where steps were added with
                ``terminated`` and ``truncated``, which say it.
        """
        steps = self._steps(partial=True)
        if self.values.shape != (self.buffer_size, self.n_envs):
            raise ShapeError(
                f"values has shape {self.values.shape}, expected {(self.buffer_size, self.n_envs)}: a subclass has "
                "flattened the rollout; compute advantages before drawing minibatches, or reset it"
            )
        last = self._per_env(last_values, "last_values")
        rewards, values = _floats(self.rewards[:steps]), _floats(self.values[:steps])
        rows = self._real(steps)
        real = None if rows is None else RealSteps(rows)
        if self._ends.known:
            rewards = self._ends.bootstrapped(rewards, values, last, self.gamma)
            ended = self._ends.ended[:steps] if real is None else real.gathered(self._ends.ended[:steps])
            starts, done = np.zeros(ended.shape, np.float32), ended[-1].astype(np.float32)
            starts[1:] = ended[:-1]
            last = np.where(ended[-1], np.float32(0), last)
        else:
            if dones is None:
                raise TypeError("got no dones, expected flags: steps were added without terminated and truncated")
            starts, done = _floats(self.episode_starts[:steps]), self._per_env(dones, "dones")
            if real is not None:
                starts, done = real.starts(starts, done)
        out = (self.advantages[:steps], self.returns[:steps])
        if not all(array.dtype == np.float32 and array.flags.c_contiguous for array in out):
            self.advantages, self.returns = np.zeros_like(self.values), np.zeros_like(self.values)
            out = (self.advantages[:steps], self.returns[:steps])
        if real is None:
            seed_gae(rewards, values, starts, last, done, self.gamma, self.gae_lambda, out=out)
            return
        rewards, values = real.gathered(rewards), real.gathered(values)
        estimates = seed_gae(rewards, values, starts, last, done, self.gamma, self.gae_lambda)
        for estimate, array in zip(estimates, out, strict=True):
            real.scatter(estimate, array)

    # Drawing -------------------------------------------------------------------------------------------------------

    def get(
        self, batch_size: int | None = None, *, partial: bool = False, masked: Literal["drop", "keep"] = "drop"
    ) -> Generator[Samples, None, None]:
        """Minibatches that hold every step once, in random order; the last one may be shorter.

        The shuffling is drawn when the first minibatch is asked for. It can be called again for the next epoch.

        Args:
            batch_size: steps of a minibatch; None for all at once.
            partial: take what is there of a rollout that is not full.
            masked: what becomes of rows that were added as no steps (``mask=`` of `add`). "drop" leaves them out.
                "keep" draws every row, so that all rollouts of a size give minibatches of the same sizes; these have
                the attribute ``mask`` beside their fields, ``(batch,)`` bool, False where there is no step and all else
                means nothing.

        Raises:
            RolloutNotFullError: it is not full, or for ``partial`` empty.
        """
        if not self.full and not (partial and self.pos > 0):
            raise RolloutNotFullError(
                f"get from a rollout of {self.pos} steps per environment, expected {self.buffer_size}; "
                "add the rest, or use partial=True"
                if self.pos
                else "get from an empty rollout; add steps first"
            )
        if batch_size is not None:
            batch_size = inputs.whole_number(batch_size, "batch_size", 1)
        if masked not in ("drop", "keep"):
            raise ValueError(f"masked is {masked!r}, expected 'drop' or 'keep'")
        return self._minibatches(batch_size, self._steps(partial), masked == "keep")

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """As `BaseBuffer.sample`; where some rows are no steps, uniformly over the steps of all environments."""
        real = self._real(self.size())
        if real is None:
            batch: Samples = super().sample(batch_size, env)
            return batch
        rows, envs = np.nonzero(real)
        if not len(rows):
            raise EmptyBufferError("sample from a rollout of which no row is a step; add steps first")
        places = envs * self.buffer_size + rows
        return self._get_samples(places[self._stream_or_global().below(len(places), batch_size)], env)

    def _minibatches(self, batch_size: int | None, steps: int, keep: bool) -> Generator[Samples, None, None]:
        valid, real = np.arange(steps * self.n_envs), self._real(steps)
        if real is not None and not keep:
            valid = np.flatnonzero(real.swapaxes(0, 1))
        indices = valid[self._stream_or_global().permutation(len(valid))]
        if self._overrides_get_samples and not self.generator_ready:
            self._flatten_for_subclass()
        size = len(indices) if batch_size is None else batch_size
        for start in range(0, len(indices), max(size, 1)):
            part = indices[start : start + size]
            batch = self._get_samples(part) if self._overrides_get_samples else self._gather(part, steps)
            if keep:
                mask = np.ones(len(part), bool) if real is None else real.swapaxes(0, 1).ravel()[part]
                batch = annotated(batch, mask=self.to_torch(mask, copy=False))
            yield batch

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Samples:
        """The steps at these flat indices, which count environment by environment."""
        total = self.buffer_size * self.n_envs
        return self._gather(np.arange(total)[batch_inds], self.buffer_size)

    def _gather(self, indices: NDArray[np.int64], steps: int) -> Samples:
        places = indices % steps * self.n_envs + indices // steps  # in the time-major order of the arrays

        def take(array: Array) -> Array:
            if array.shape[:2] != (self.buffer_size, self.n_envs):
                return array[indices]  # flattened by a subclass
            flat: Array = array.reshape(self.buffer_size * self.n_envs, *array.shape[2:])
            return flat.take(places, axis=0)

        actions = [take(array) for array in self._action.flatten(self.actions)]
        for i, narrow in enumerate(self._drawn_as_float32):
            actions[i] = actions[i].astype(np.float32, copy=False) if narrow else actions[i]
        observations = self._observation.unflatten(
            [self.to_torch(_column(take(array)), copy=False) for array in self._observation.flatten(self.observations)]
        )
        numbers = (self.values, self.log_probs, self.advantages, self.returns)
        rest = [self.to_torch(take(array).reshape(-1), copy=False) for array in numbers]
        kind = self._batch_types[isinstance(self.observation_space, spaces.Dict)]
        drawn = self._action.unflatten([self.to_torch(array, copy=False) for array in actions])
        return kind(observations, drawn, *rest)

    def _flatten_for_subclass(self) -> None:
        """What the seed does to the arrays before it draws, for subclasses that read them in their `_get_samples`."""
        for name, tree in (("observations", self._observation), ("actions", self._action)):
            parts = [self.swap_and_flatten(part) for part in tree.flatten(getattr(self, name))]
            setattr(self, name, tree.unflatten(parts))
        for name in ("values", "log_probs", "advantages", "returns"):
            setattr(self, name, self.swap_and_flatten(getattr(self, name)))
        self.generator_ready = True

    # Inside --------------------------------------------------------------------------------------------------------

    def _end_flags(self, given: ArrayLike | None, name: str, active: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """``terminated`` or ``truncated`` of a row; what is not said is False."""
        if given is None:
            return np.zeros(self.n_envs, bool)
        return inputs.flags(given, name, (self.n_envs,), self.validate == "strict", active) > 0

    def _with_starts_of_no_steps(self, starts: Array, episode_start: ArrayLike) -> Array:
        """``starts`` with what ``episode_start`` says of rows that are no steps: there anything but 1 says nothing."""
        said = inputs.as_array(episode_start, "episode_start") == 1
        return np.maximum(starts, inputs.flags(said, "episode_start", (self.n_envs,), self.validate == "strict"))

    def _per_env(self, value: Any, name: str) -> NDArray[np.float32]:
        """One number of every environment, float32."""
        array = inputs.as_array(value, name)
        if array.size != self.n_envs:
            raise ShapeError(f"{name} has shape {array.shape}, expected {(self.n_envs,)}: one per environment")
        return np.ascontiguousarray(array.reshape(-1), np.float32)

    @property
    def num_transitions(self) -> int:
        """Steps held, of all environments together; rows that were added as no steps do not count."""
        return int(self.lane_sizes.sum())

    @property
    def lane_sizes(self) -> NDArray[np.int64]:
        """Steps held of each environment, ``(n_envs,)``: where some sat out they differ, while `size` counts rows."""
        real = self._real(self.size())
        return super().lane_sizes if real is None else real.sum(axis=0, dtype=np.int64)

    def _real(self, steps: int) -> NDArray[np.bool_] | None:
        """Which of the first rows are steps, ``(steps, n_envs)``; None where all are."""
        ends: RolloutEnds | None = self.__dict__.get("_ends")  # none where a subclass skipped its parent's constructor
        return ends.valid[:steps] if ends is not None and ends.masked else None

    def _steps(self, partial: bool) -> int:
        """Rows that count: those added, or all of a rollout whose arrays were filled by hand."""
        return self.pos if partial and 0 < self.pos < self.buffer_size else self.buffer_size

    @property
    def nbytes(self) -> Bytes:
        """Memory reserved and touched, in bytes."""
        arrays = [*self._observation.flatten(self.observations), *self._action.flatten(self.actions)]
        arrays += [self.rewards, self.returns, self.episode_starts, self.values, self.log_probs, self.advantages]
        reserved = sum(array.nbytes for array in arrays)
        reserved += self._ends.nbytes
        return Bytes(reserved, reserved * self.pos // max(self.buffer_size, 1))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.pos:,} of {self.buffer_size:,} steps, n_envs={self.n_envs}, "
            f"observation={self.obs_shape}, action={self.action_dim}, gamma={self.gamma}, gae_lambda={self.gae_lambda})"
        )


class RolloutBuffer(RolloutMethods):
    """``buffer_size`` steps of ``n_envs`` environments, for on-policy learners.

    The contract is that of Stable-Baselines3 2.9.2, bit for bit: advantages, returns, and the minibatches after the
    same ``numpy.random.seed``. The arrays are ordinary attributes, time-major ``(buffer_size, n_envs, ...)``, and
    stay so when minibatches are drawn. Minibatch indices count environment by environment, as the seed's do.

    Args:
        buffer_size: steps per environment.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, nested to any depth.
        action_space: the same.
        device: where minibatches go; "auto" is CUDA where there is one, else the CPU.
        gae_lambda: 0 gives one-step advantages, 1 Monte Carlo ones.
        gamma: discount.
        n_envs: environments that add side by side.
        dtypes: stored dtypes by leaf, for example ``{"observation": np.float16}``.
        validate: "strict" makes wrong shapes, lossy casts and NaN rewards errors; "seed" broadcasts and casts as
            Stable-Baselines3 does.
        seed: None shuffles with NumPy's global generator, as the seed module does; an int or a
            ``numpy.random.Generator`` gives a stream of its own.

    Attributes:
        observations: ``(buffer_size, n_envs, *shape)``, for Dict and Tuple spaces nested arrays.
        actions: ``(buffer_size, n_envs, action_dim)`` in the space's dtype, for Dict and Tuple spaces nested arrays.
        rewards, episode_starts, values, log_probs: ``(buffer_size, n_envs)`` float32, as added.
        advantages, returns: the same shape, by `compute_returns_and_advantage`.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        dtypes: DTypes | None = None,
        validate: Literal["strict", "seed"] = "strict",
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._set_up(gae_lambda, gamma, dtypes, validate, seed)


class DictRolloutBuffer(RolloutBuffer):
    """A `RolloutBuffer` for Dict observation spaces; its minibatches hold dicts of tensors.

    `RolloutBuffer` takes Dict spaces too; this name is the seed's.

    Raises:
        WrongSpaceError: another observation space.
    """

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        require_dict(self, observation_space)
        super().__init__(buffer_size, observation_space, *args, **kwargs)


def _zeroed_tree(old: Any, tree: Tree, rows: tuple[int, int]) -> Any:
    """Arrays of zeros, ``(*rows, *shape)`` for every leaf, in the memory of ``old`` ones where they fit."""
    parts = (None,) * len(tree.leaves) if old is None else tree.flatten(old)
    return tree.unflatten(
        [_zeroed(part, (*rows, *leaf.shape), leaf.dtype) for part, leaf in zip(parts, tree.leaves, strict=True)]
    )


def _zeroed(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """``array`` filled with zeros where it still fits, else a new one: pages that are there need no fault."""
    if isinstance(array, np.ndarray) and array.shape == shape and array.dtype == dtype and array.flags.c_contiguous:
        array.fill(0)
        return array
    return np.zeros(shape, dtype)


def _floats(array: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)


def _column(array: Array) -> Array:
    """Observations that are single numbers as ``(batch, 1)``, as the seed draws them."""
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _flat(value: Any, name: str) -> Array:
    """``(n_envs,)`` or ``(n_envs, 1)`` as the former."""
    return inputs.as_array(value, name).reshape(-1)


def _no_scalar(array: Array) -> Array:
    """A lone log-probability as one of one environment."""
    return array.reshape(1) if array.ndim == 0 else array


def _fits_float32(leaf: Leaf) -> bool:
    """Whether actions of a leaf are drawn as float32: all floats, as the seed does, and integers that it holds."""
    if "f" == leaf.dtype.kind == np.dtype(leaf.space.dtype).kind:
        return True
    return max(map(abs, _bounds(leaf.space))) <= _EXACT_IN_FLOAT32


def _bounds(space: ArraySpace) -> tuple[float, float]:
    """The smallest and the largest number of an action, or a 0 beyond; as Python's numbers, which never overflow."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        starts, counts = (np.asarray(array).ravel().tolist() for array in (space.start, space.nvec))
        return min(starts), max(start + count - 1 for start, count in zip(starts, counts, strict=True))
    if isinstance(space, spaces.Box):
        return space.low.min(initial=0).item(), space.high.max(initial=0).item()
    return 0, 1
