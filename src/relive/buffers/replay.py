"""Replay buffers: a ring of the newest steps, drawn as transitions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from relive import _native, inputs
from relive.batches import DictReplayBufferSamples, ReplayBufferSamples
from relive.buffers import plain
from relive.buffers.base import BaseBuffer, require_dict
from relive.buffers.memory_check import warn_if_too_large
from relive.buffers.stored import Actions, Field, Full, NextObservations, Observations, Position, lockstep
from relive.buffers.usual import NO_USUAL_CALLS, UsualCalls
from relive.errors import EmptyBufferError
from relive.intake import append_converted, parts, read_ends
from relive.randomness import Stream
from relive.spaces import DTypes, action_tree, check_dtypes, narrow_action_dtype, observation_tree
from relive.storage import Memory
from relive.tensors import Uploader, from_capsule
from relive.timeline import Bytes, Timeline
from relive.views import transition
from relive.views.transition import BatchTypes, Samples


class ReplayMethods(BaseBuffer):
    """All that a replay buffer does, but for its constructor.

    The public classes define ``__init__`` themselves, so that ``super(ReplayBuffer, self).__init__``, which subclasses
    in the wild call with five arguments, reaches `BaseBuffer`.
    """

    observations = Observations()
    next_observations = NextObservations()
    actions = Actions()
    rewards = Field("reward")
    dones = Field("done")
    timeouts = Field("timeout")
    pos = Position()
    full = Full()

    # What a subclass in the wild overrides, draws go through.
    _overrides_get_samples = False
    _overrides_to_torch = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_get_samples = cls._get_samples is not ReplayMethods._get_samples
        cls._overrides_to_torch = cls.to_torch is not BaseBuffer.to_torch

    # The named tuples that draws return, for observations of one array or a Tuple, and of a Dict.
    _batch_types: BatchTypes = (ReplayBufferSamples, DictReplayBufferSamples)

    def _set_up(
        self,
        optimize_memory_usage: bool,
        handle_timeout_termination: bool,
        dtypes: DTypes | None,
        validate: Literal["strict", "seed"],
        seed: int | np.random.Generator | None,
    ) -> None:
        """What a constructor does after that of `BaseBuffer`."""
        if validate not in ("strict", "seed"):
            raise ValueError(f"validate is {validate!r}, expected 'strict' or 'seed'")
        self.buffer_size = max(self.buffer_size // self.n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.validate = validate
        self._stream = Stream(seed)
        observation, action = observation_tree(self.observation_space, dtypes), action_tree(self.action_space, dtypes)
        check_dtypes(dtypes, observation, action)
        timeline = Timeline(observation, action, self.buffer_size, self.n_envs, Memory())
        warn_if_too_large(timeline.nbytes().reserved)
        self._timeline = timeline

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
    ) -> None:
        """Adds one step of every environment.

        How it ended is said in the seed's words, ``done`` and ``infos``, or in Gymnasium's, ``terminated`` and
        ``truncated``. Arrays, lists, scalars, torch tensors and LazyFrames are taken, and neither changed nor kept.
        With one environment its axis may be missing.

        Args:
            obs: ``(n_envs, *shape)``, nested as the space is.
            next_obs: the same: what was seen after the step, at an end the last observation and not that of the reset.
            action: ``(n_envs, *shape)``.
            reward: ``(n_envs,)``.
            done: ``(n_envs,)`` flags: the episode ended.
            infos: a dict per environment, or Gymnasium's dict of arrays; only "TimeLimit.truncated" is read.
            terminated: ``(n_envs,)`` flags: the environment reached a terminal state; this wins over ``truncated``.
            truncated: ``(n_envs,)`` flags: the episode was cut, for example by a time limit.
            mask: ``(n_envs,)`` booleans: environments that are left out where False.

        Raises:
            ShapeError, CastError, NaNRewardError: what came does not fit (``validate="strict"``); nothing was stored.
        """
        add = (self._usual or self._bind_usual()).add
        if add is not None and done is not None and terminated is None and truncated is None and mask is None:
            known = infos if self.handle_timeout_termination else None
            if not add(obs, next_obs, action, reward, done, known, self.validate == "strict"):
                return
        if "_timeline" not in self.__dict__:
            plain.add(self, obs, next_obs, action, reward, done, infos)
            return
        timeline = self._timeline
        strict, shape, time_limits = self.validate == "strict", (self.n_envs,), self.handle_timeout_termination
        ends = read_ends(done, infos, terminated, truncated, shape, time_limits=time_limits, strict=strict)
        observation, actions = parts(timeline.observation, obs), parts(timeline.action, action)
        if not timeline.append(
            observation, parts(timeline.observation, next_obs), actions, reward, *ends, mask, strict, -1
        ):
            append_converted(timeline, obs, next_obs, action, reward, ends, mask, steps=None, strict=strict)

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
    ) -> None:
        """Adds many steps of every environment at once; more than the buffer holds keeps the newest.

        Args:
            obs: ``(steps, n_envs, *shape)``, nested as the space is; or a sequence of what `add` takes.
            next_obs: the same.
            action: ``(steps, n_envs, *shape)``.
            reward: ``(steps, n_envs)``.
            done: ``(steps, n_envs)`` flags, with ``infos``.
            infos: for every step what `add` takes.
            terminated: ``(steps, n_envs)`` flags, with ``truncated``: Gymnasium's words in place of ``done``.
            truncated: ``(steps, n_envs)`` flags.

        Raises:
            ShapeError, CastError, NaNRewardError: as `add`; nothing was stored.
        """
        if "_timeline" not in self.__dict__ or type(self).add is not ReplayMethods.add:
            self._extend_by_add(obs, next_obs, action, reward, done, infos, terminated, truncated)
            return
        timeline = self._timeline
        strict = self.validate == "strict"
        steps = inputs.length(obs, timeline.observation)
        shape, time_limits = (steps, self.n_envs), self.handle_timeout_termination
        ends = read_ends(done, infos, terminated, truncated, shape, time_limits=time_limits, strict=strict)
        fits = timeline.append(
            parts(timeline.observation, obs),
            parts(timeline.observation, next_obs),
            parts(timeline.action, action),
            reward,
            *ends,
            None,
            strict,
            steps,
        )
        if not fits and strict:
            append_converted(timeline, obs, next_obs, action, reward, ends, None, steps=steps, strict=strict)
        elif not fits:
            self._extend_by_add(obs, next_obs, action, reward, done, infos, terminated, truncated)

    def interrupt(self, envs: int | Sequence[int] | None = None) -> None:
        """Says that the streams of these environments were cut from outside (a reset in mid-episode, a crash).

        Nothing that looks over several steps will join what comes next to the newest step; the newest step itself stays
        as it is and counts as not terminated.

        Args:
            envs: indices of environments; None for all.
        """
        given: Iterable[int] = range(self.n_envs) if envs is None else np.atleast_1d(np.asarray(envs)).tolist()
        lanes = [operator.index(env) for env in given]
        for lane in lanes:
            if not 0 <= lane < self.n_envs:
                raise IndexError(f"envs has {lane}, expected indices from 0 to {self.n_envs - 1}")
        self._timeline.interrupt(lanes)

    def reset(self) -> None:
        """Empties the buffer; every handle given so far is stale from now on."""
        if "_timeline" in self.__dict__:
            self._timeline.clear()
        else:
            super().reset()

    def rebuild(self) -> None:
        """Brings what is derived back in step after writes through the array attributes."""
        self._timeline.rebuild()

    # Drawing -------------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """Transitions drawn uniformly, with replacement, from all steps held.

        Args:
            batch_size: how many.
            env: a `VecNormalize`, or anything with ``normalize_obs`` and ``normalize_reward``: observations and
                rewards of the batch are normalised (rewards to float32); what is stored stays as it is.

        Raises:
            EmptyBufferError: nothing was added yet.
        """
        usual = self._usual or self._bind_usual()
        if usual.sample is not None and env is None:
            batch: Samples | None = usual.sample(batch_size)
            if batch is None:
                raise self._is_empty()
            return batch
        if self._overrides_get_samples or "_timeline" not in self.__dict__:
            if self.num_transitions == 0:
                raise self._is_empty()
            samples: Samples = super().sample(batch_size, env=env)
            return samples
        size = operator.index(batch_size)
        if size < 0:
            raise ValueError(f"batch_size is {size}, expected 0 or more")
        fields = self._timeline.core.sample(size, self._stream.native, from_capsule)
        if fields is None:
            raise self._is_empty()
        return self._batch(fields, env)

    def transitions(self, handles: ArrayLike, env: Any = None) -> Samples:
        """The transitions of given steps.

        Args:
            handles: ``(batch,)`` int64, as `handles` gives them.
            env: as in `sample`.

        Raises:
            StaleHandleError: a step is not held any more.
        """
        return self._batch(self._timeline.transitions(np.ascontiguousarray(handles, np.int64).reshape(-1)), env)

    def handles(self) -> NDArray[np.int64]:
        """A handle for every step held, environment by environment, oldest first.

        A handle names a step for ever: it never comes to mean another one that takes the step's place.
        """
        return self._timeline.core.all_handles()

    def held_handles(self, handles: ArrayLike) -> NDArray[np.bool_]:
        """Which of these handles name steps that are still held."""
        return self._timeline.core.held_handles(np.ascontiguousarray(handles, np.int64).reshape(-1))

    def set(
        self,
        handles: ArrayLike,
        *,
        reward: ArrayLike | None = None,
        action: Any = None,
        done: ArrayLike | None = None,
        timeout: ArrayLike | None = None,
    ) -> int:
        """Overwrites fields of given steps, for relabelling.

        Args:
            handles: ``(n,)`` int64; of equal ones the last wins.
            reward: ``(n,)``.
            action: ``(n, *shape)``.
            done: ``(n,)`` flags.
            timeout: ``(n,)`` flags.

        Returns:
            How many handles were stale; those are left out.

        Raises:
            ShapeError, CastError, NaNRewardError: as `add`; nothing was changed.
        """
        which = np.ascontiguousarray(handles, np.int64).reshape(-1)
        leading = (len(which),)
        strict = self.validate == "strict"
        values: dict[str, NDArray[Any]] = {}
        if reward is not None:
            values["reward"] = inputs.rewards(reward, leading, strict)
        if done is not None:
            values["done"] = inputs.flags(done, "done", leading, strict)
        if timeout is not None:
            values["timeout"] = inputs.flags(timeout, "timeout", leading, strict)
        if action is not None:
            tree = self._timeline.action
            arrays = inputs.tree_arrays(action, tree, leading, strict, is_action=True)
            values.update({leaf.path: array for leaf, array in zip(tree.leaves, arrays, strict=True)})
        if not values:
            raise TypeError("set got no field, expected at least one of reward, action, done, timeout")
        return max(self._timeline.set(which, field, np.ascontiguousarray(array)) for field, array in values.items())

    # Asking --------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Rows held, which is steps per environment.

        Raises:
            LanesDifferError: environments hold different numbers of steps, see `lane_sizes`.
        """
        return lockstep(self._timeline, "size()")[1] if "_timeline" in self.__dict__ else super().size()

    @property
    def num_transitions(self) -> int:
        """Transitions held, of all environments together."""
        return self._timeline.core.held() if "_timeline" in self.__dict__ else super().num_transitions

    @property
    def lane_sizes(self) -> NDArray[np.int64]:
        """Transitions held of each environment, ``(n_envs,)``."""
        return self._timeline.lane_sizes() if "_timeline" in self.__dict__ else super().lane_sizes

    @property
    def nbytes(self) -> Bytes:
        """Memory reserved and touched, in bytes."""
        return self._timeline.nbytes()

    def __repr__(self) -> str:
        if "_timeline" not in self.__dict__:
            return f"{type(self).__name__}(buffer_size={self.buffer_size}, n_envs={self.n_envs})"
        capacity = self.buffer_size * self.n_envs
        return (
            f"{type(self).__name__}({self.num_transitions:,} of {capacity:,} transitions, n_envs={self.n_envs}, "
            f"observation={self.obs_shape}, action={self.action_dim}, "
            f"{self.nbytes.touched / 1e6:,.1f} MB, device={self.device})"
        )

    # Inside --------------------------------------------------------------------------------------------------------

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Samples:
        """The transitions of these rows, each of an environment drawn at random."""
        rows = np.asarray(batch_inds, np.int64).reshape(-1)
        lanes = self._stream_or_global().below(self.n_envs, len(rows))
        if "_timeline" not in self.__dict__:
            return plain.get_samples(self, rows, lanes, env)
        rows = np.ascontiguousarray(np.where(rows < 0, rows + self.buffer_size, rows))
        return self._batch(self._timeline.core.transitions_at(rows, lanes, from_capsule), env)

    def _bind_usual(self) -> UsualCalls:
        """Finds out which calls can take the shortest way, and binds them."""
        if "_timeline" not in self.__dict__:
            return NO_USUAL_CALLS
        timeline = self._timeline
        self._usual = NO_USUAL_CALLS
        if timeline.is_plain:
            bound = _native.Usual(timeline.core, self._stream.native, from_capsule, self._batch_types[0])
            detour = self._overrides_get_samples or self._overrides_to_torch or self._device.type != "cpu"
            self._usual = UsualCalls(bound.add, None if detour else bound.sample)
        return self._usual

    def _batch(self, fields: Sequence[torch.Tensor], env: Any) -> Samples:
        """Fields of the core, normalised and on their device, as the named tuple that the caller gets."""
        if env is not None:
            fields = [self.to_torch(array) for array in self._normalised(fields, env)]
        elif self._overrides_to_torch:
            fields = [self.to_torch(field.numpy()) for field in fields]
        elif self._device.type != "cpu":
            fields = Uploader(self._device).upload(fields)
        return transition.batch(self._timeline, fields, self._batch_types)

    def _normalised(self, fields: Sequence[torch.Tensor], env: Any) -> tuple[NDArray[Any], ...]:
        arrays = [field.numpy() for field in fields]
        obs, action, next_obs, dones, rewards = transition.split(self._timeline, arrays)
        next_obs, obs = self._normalize_obs(next_obs, env), self._normalize_obs(obs, env)
        return transition.join(self._timeline, obs, action, next_obs, dones, self._normalize_reward(rewards, env))

    def _is_empty(self) -> EmptyBufferError:
        name = type(self).__name__
        return EmptyBufferError(
            f"sample from an empty {name}: it holds 0 transitions, expected 1 or more; add steps first"
        )

    def _extend_by_add(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: Any,
        done: Any,
        infos: Any,
        terminated: Any,
        truncated: Any,
    ) -> None:
        if terminated is None and truncated is None:
            given = [argument for argument in (obs, next_obs, action, reward, done, infos) if argument is not None]
            super().extend(*given)
            return
        steps = len(reward)
        for step in range(steps):
            self.add(
                obs[step],
                next_obs[step],
                action[step],
                reward[step],
                terminated=None if terminated is None else terminated[step],
                truncated=None if truncated is None else truncated[step],
            )

    @staticmethod
    def _maybe_cast_dtype(dtype: Any) -> Any:
        """float32 for float64, any other dtype as it is."""
        return narrow_action_dtype(dtype)


class ReplayBuffer(ReplayMethods):
    """A ring of the newest steps of ``n_envs`` environments, each step stored once.

    ``add``, ``sample`` and all attributes are those of Stable-Baselines3 2.9.2, with the same draws after the same
    ``numpy.random.seed``. The next observation of a step is not stored a second time: it is the observation of the step
    that follows where that is the same, bit for bit, and kept apart where not (ends, time limits, the newest step, data
    that does not follow on). So it is exact always, at half the memory.

    Args:
        buffer_size: steps of all environments together; each has ``max(buffer_size // n_envs, 1)`` rows.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, nested to any depth.
        action_space: the same; stored flat, float64 as float32.
        device: where batches go; "auto" is CUDA where there is one, else the CPU.
        n_envs: environments that add side by side.
        optimize_memory_usage: accepted and recorded; one copy of an observation is all there ever is.
        handle_timeout_termination: a step whose info says ``TimeLimit.truncated``, or that is added as truncated, does
            not count as terminated when drawn.
        dtypes: stored dtypes by leaf, for example ``{"observation": np.float16}`` or ``{"observation/camera":
            np.uint8}``.
        validate: "strict" makes wrong shapes, lossy casts and NaN rewards errors; "seed" broadcasts and casts as
            Stable-Baselines3 does.
        seed: None draws from NumPy's global generator as the seed module does; an int or a ``numpy.random.Generator``
            gives a stream of its own.

    Raises:
        UnsupportedSpaceError: a space whose samples have no fixed shape.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> buffer = ReplayBuffer(1000, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), device="cpu", seed=0)
        >>> obs, next_obs = np.zeros(3, np.float32), np.ones(3, np.float32)
        >>> buffer.add(obs, next_obs, 1, 0.5, terminated=False, truncated=True)
        >>> batch = buffer.sample(4)
        >>> batch.next_observations.shape, batch.dones[0].item()
        (torch.Size([4, 3]), 0.0)
    """

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
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._set_up(optimize_memory_usage, handle_timeout_termination, dtypes, validate, seed)


class DictReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` for Dict observation spaces; its batches hold dicts of tensors.

    `ReplayBuffer` takes Dict spaces too; this name is the seed's.

    Raises:
        WrongSpaceError: another observation space.
    """

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        require_dict(self, observation_space)
        super().__init__(buffer_size, observation_space, *args, **kwargs)
