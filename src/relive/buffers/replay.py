"""Replay buffers: a ring of the newest steps, drawn as transitions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from relive import _native, discounts, inputs
from relive.breaks import MANY, Rule, asked_for, warn
from relive.buffers import plain
from relive.buffers.assigning import checked_validate
from relive.buffers.base import require_dict
from relive.buffers.drawing import DrawingMethods, check_options
from relive.buffers.memory_check import warn_if_too_large
from relive.buffers.stored import Actions, Field, Full, NextObservations, Observations, Position, lockstep
from relive.discounts import checked_gamma
from relive.draws import Sampler
from relive.intake import append_converted, extra_parts, parts, read_ends, with_infos
from relive.limits import RateLimiter
from relive.randomness import Stream
from relive.samplers import Uniform
from relive.spaces import (
    DTypes,
    Fields,
    Leaf,
    action_tree,
    check_dtypes,
    field_tree,
    narrow_action_dtype,
    observation_tree,
)
from relive.storage import Memory
from relive.timeline import Bytes, Timeline
from relive.views.hindsight import Hindsight


class ReplayMethods(DrawingMethods):
    """All that a replay buffer does, but for its constructor.

    The public classes define ``__init__`` themselves, so that ``super(ReplayBuffer, self).__init__``, which subclasses
    in the wild call with five arguments, reaches `BaseBuffer`.
    """

    observations = Observations()
    next_observations = NextObservations()
    actions = Actions()
    rewards = Field("reward")
    dones = Field("done", ends=True)
    timeouts = Field("timeout", ends=True)
    pos = Position()
    full = Full()
    _unsaid_breaks = 0  # that `extend` met without being asked about them; counted up to the warning

    def _set_up(
        self,
        optimize_memory_usage: bool,
        handle_timeout_termination: bool,
        dtypes: DTypes | None,
        validate: Literal["strict", "seed"],
        seed: int | np.random.Generator | None,
        *,
        n_steps: int = 1,
        gamma: float | str = 0.99,
        sampler: Sampler | None = None,
        hindsight: Hindsight | None = None,
        fields: Fields | None = None,
        reward_shape: tuple[int, ...] = (),
        max_times_sampled: int | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """What a constructor does after that of `BaseBuffer`."""
        chosen = Uniform() if sampler is None else sampler
        check_options(self.observation_space, n_steps, chosen, hindsight, max_times_sampled, limiter)
        if len(reward_shape) > 1 or any(length < 1 for length in reward_shape):
            raise ValueError(f"reward_shape is {reward_shape}, expected () or (k,)")
        self.validate = checked_validate(validate)
        self.buffer_size = max(self.buffer_size // self.n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._stream = Stream(seed)
        observation, action = observation_tree(self.observation_space, dtypes), action_tree(self.action_space, dtypes)
        check_dtypes(dtypes, observation, action)
        declared = dict(fields or {})
        for name in hindsight.copy_info if hindsight is not None else ():
            declared.setdefault(name, ((), np.float64))
        timeline = Timeline(
            observation, action, self.buffer_size, self.n_envs, Memory(), field_tree(declared), tuple(reward_shape)
        )
        warn_if_too_large(timeline.nbytes().reserved)
        self._generation = 0
        self.sampler, self.hindsight = chosen, hindsight
        self.n_steps = operator.index(n_steps)
        self.gamma = checked_gamma(gamma, dict(zip(declared, timeline.extra.leaves, strict=True)))
        self.reward_shape, self.max_times_sampled = tuple(reward_shape), max_times_sampled
        self._timeline = timeline  # last: attributes are public from now on
        plain_sampler = chosen == Uniform() or chosen == Uniform(over="episodes")
        if n_steps > 1 or not plain_sampler or hindsight is not None or declared or max_times_sampled is not None:
            self._has_view = True
            self._draws = self._all_draws
        if limiter is not None:
            limiter.attach(self.buffer_size * self.n_envs)
            self._limiter = limiter

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
        extras: Mapping[str, Any] | None = None,
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
            mask: ``(n_envs,)`` booleans: environments are left out where False; nobody looks at what came for them.
            extras: the declared fields by name, each ``(n_envs, *shape)``.

        Raises:
            ShapeError, CastError, NaNRewardError: what came does not fit (``validate="strict"``); nothing was stored.
        """
        add = (self._usual or self._bind_usual()).add
        if (
            add is not None
            and done is not None
            and terminated is None
            and truncated is None
            and mask is None
            and extras is None
        ):
            known = infos if self.handle_timeout_termination else None
            if not add(obs, next_obs, action, reward, done, known, self.validate == "strict"):
                return
        if "_timeline" not in self.__dict__:
            plain.add(self, obs, next_obs, action, reward, done, infos)
            return
        timeline = self._timeline
        strict, shape, time_limits = self.validate == "strict", (self.n_envs,), self.handle_timeout_termination
        mask = None if mask is None else inputs.lane_mask(mask, self.n_envs)
        extras = with_infos(extras, infos, self._copied_infos(), shape, mask)
        infos = None if done is None and (terminated is not None or truncated is not None) and self.hindsight else infos
        if strict and isinstance(self.gamma, str):
            discounts.check(extras, self.gamma, mask)
        ends = read_ends(done, infos, terminated, truncated, shape, time_limits=time_limits, strict=strict, mask=mask)
        observation, actions = parts(timeline.observation, obs), parts(timeline.action, action)
        successor, declared = parts(timeline.observation, next_obs), extra_parts(timeline.extra, extras)
        with self._inserting(self.n_envs if mask is None else int(np.count_nonzero(mask))):
            if not (extras and not timeline.extra.leaves) and timeline.append(
                observation, successor, actions, reward, *ends, mask, strict, -1, declared
            ):
                return
            append_converted(
                timeline, obs, next_obs, action, reward, ends, mask, steps=None, strict=strict, extras=extras
            )

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
        extras: Mapping[str, Any] | None = None,
        breaks: Rule = None,
        breaks_tolerance: float = 0.0,
    ) -> int | None:
        """Adds many steps of every environment at once; more than the buffer holds keeps the newest.

        A *break* is a step whose observation is not what was seen after the step before it in its environment (of this
        call, or the newest one held), where no end is said. The steps on both sides are stored as they are.

        Args:
            obs: ``(steps, n_envs, *shape)``, nested as the space is; or a sequence of what `add` takes.
            next_obs: the same.
            action: ``(steps, n_envs, *shape)``.
            reward: ``(steps, n_envs)``.
            done: ``(steps, n_envs)`` flags, with ``infos``.
            infos: for every step what `add` takes.
            terminated: ``(steps, n_envs)`` flags, with ``truncated``: Gymnasium's words in place of ``done``.
            truncated: ``(steps, n_envs)`` flags.
            extras: the declared fields by name, each ``(steps, n_envs, *shape)``.
            breaks: "detect" ends the episode before each break, as `interrupt` does; None lets it go on, and warns once
                per buffer when there were ten or more.
            breaks_tolerance: how far apart two numbers of an observation may be and still count as the same, in the
                stored dtype; 0 takes equal numbers only. NaN counts as the same as NaN.

        Returns:
            How many breaks there were, with ``breaks="detect"``; else None.

        Raises:
            ShapeError, CastError, NaNRewardError: as `add`; nothing was stored.
            ValueError: ``breaks`` or ``breaks_tolerance`` is none of these; nothing was stored.
        """
        minded = asked_for(breaks, breaks_tolerance)
        given = (obs, next_obs, action, reward, done, infos, terminated, truncated, extras)
        if "_timeline" not in self.__dict__:
            if breaks is not None:
                raise ValueError(f"breaks is {breaks!r}, expected None: {type(self).__name__} stores steps by itself")
            self._extend_by_add(*given)
            return None
        if type(self).add is not ReplayMethods.add or not self._extend_at_once(*given, minded):
            with self._timeline.minding(minded):
                self._extend_by_add(*given)
        if breaks is not None:
            return minded.found
        if minded.found and self._unsaid_breaks < MANY:
            self._unsaid_breaks += minded.found
            if self._unsaid_breaks >= MANY:
                warn(self._unsaid_breaks)
        return None

    def _extend_at_once(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: ArrayLike,
        done: ArrayLike | None,
        infos: Any,
        terminated: ArrayLike | None,
        truncated: ArrayLike | None,
        extras: Mapping[str, Any] | None,
        breaks: _native.Breaks,
    ) -> bool:
        """`extend` in one call of the core; False, with nothing stored, where it must be done step by step."""
        timeline = self._timeline
        strict = self.validate == "strict"
        obs = inputs.over_steps(obs, timeline.observation, "obs")
        next_obs = inputs.over_steps(next_obs, timeline.observation, "next_obs")
        action = inputs.over_steps(action, timeline.action, "action")
        steps = inputs.length(obs, timeline.observation)
        shape, time_limits = (steps, self.n_envs), self.handle_timeout_termination
        extras = with_infos(extras, infos, self._copied_infos(), shape)
        if strict and isinstance(self.gamma, str):
            discounts.check(extras, self.gamma)
        infos = None if done is None and (terminated is not None or truncated is not None) and self.hindsight else infos
        ends = read_ends(done, infos, terminated, truncated, shape, time_limits=time_limits, strict=strict)
        observation, successor = parts(timeline.observation, obs), parts(timeline.observation, next_obs)
        actions, declared = parts(timeline.action, action), extra_parts(timeline.extra, extras)
        with self._inserting(steps * self.n_envs):
            if not (extras and not timeline.extra.leaves) and timeline.append(
                observation, successor, actions, reward, *ends, None, strict, steps, declared, breaks
            ):
                return True
            if strict or timeline.extra.leaves or self.reward_shape:
                append_converted(
                    timeline,
                    obs,
                    next_obs,
                    action,
                    reward,
                    ends,
                    None,
                    steps=steps,
                    strict=strict,
                    extras=extras,
                    breaks=breaks,
                )
                return True
        return False

    def interrupt(self, envs: int | Sequence[int] | None = None) -> None:
        """Says that the streams of these environments were cut from outside (a reset in mid-episode, a crash).

        Nothing that looks over several steps will join what comes next to the newest step; the newest step itself stays
        as it is and counts as not terminated.

        Args:
            envs: indices of environments; None for all.
        """
        chosen = np.arange(self.n_envs) if envs is None else inputs.as_array(envs, "envs")
        if chosen.dtype.kind not in "iu" and chosen.size:
            raise TypeError(f"envs has dtype {chosen.dtype}, expected indices from 0 to {self.n_envs - 1}")
        lanes: list[int] = chosen.reshape(-1).tolist()
        for lane in lanes:
            if not 0 <= lane < self.n_envs:
                raise IndexError(f"envs has {lane}, expected indices from 0 to {self.n_envs - 1}")
        self._timeline.interrupt(lanes)

    def reset(self) -> None:
        """Empties the buffer; every handle given so far is stale from now on."""
        if "_timeline" in self.__dict__:
            self._timeline.clear()
            if self._draws is not None:
                self._draws.clear()
            if self._limiter is not None:
                self._limiter.reset()
            self._generation += 1  # last: batches drawn before have the number before
        else:
            super().reset()

    def rebuild(self) -> None:
        """Brings what is derived back in step after writes through the array attributes."""
        self._timeline.rebuild()

    # Steps by name ------------------------------------------------------------------------------------------------

    def handles(self) -> NDArray[np.int64]:
        """A handle for every step held, environment by environment, oldest first.

        A handle names a step for ever: it never comes to mean another one that takes the step's place.
        """
        return self._timeline.core.all_handles()

    def held_handles(self, handles: ArrayLike) -> NDArray[np.bool_]:
        """Which of these handles name steps that are still held."""
        return self._timeline.core.held_handles(inputs.handle_array(handles))

    def set(
        self,
        handles: ArrayLike,
        *,
        reward: ArrayLike | None = None,
        action: Any = None,
        done: ArrayLike | None = None,
        timeout: ArrayLike | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> int:
        """Overwrites fields of given steps, for relabelling.

        Args:
            handles: ``(n,)`` int64; of equal ones the last wins.
            reward: ``(n,)``.
            action: ``(n, *shape)``.
            done: ``(n,)`` flags.
            timeout: ``(n,)`` flags.
            extras: some of the declared fields by name, each ``(n, *shape)``.

        Returns:
            How many handles were stale; those are left out.

        Raises:
            ShapeError, CastError, NaNRewardError: as `add`; nothing was changed.
        """
        which = inputs.handle_array(handles)
        leading = (len(which),)
        strict = self.validate == "strict"
        values: dict[str, NDArray[Any]] = {}
        if reward is not None:
            values["reward"] = inputs.rewards(reward, leading, strict, shape=self.reward_shape)
        if done is not None:
            values["done"] = inputs.flags(done, "done", leading, strict)
        if timeout is not None:
            values["timeout"] = inputs.flags(timeout, "timeout", leading, strict)
        if action is not None:
            tree = self._timeline.action
            arrays = inputs.tree_arrays(action, tree, leading, strict, name="action", is_action=True)
            values.update({leaf.path: array for leaf, array in zip(tree.leaves, arrays, strict=True)})
        if inputs.declared(extras):
            assert extras is not None
            if strict and isinstance(self.gamma, str):
                discounts.check(extras, self.gamma)
            leaves = self._fields_by_name
            unknown = [name for name in extras if name not in leaves]
            if unknown:
                raise KeyError(f"extras has {unknown}, expected declared fields, which are {list(leaves)}")
            values.update(
                {
                    leaves[name].path: inputs.leaf_array(value, leaves[name], leading, strict, is_action=False)
                    for name, value in extras.items()
                }
            )
        if not values:
            raise TypeError("set got no field, expected at least one of reward, action, done, timeout, extras")
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

    def _copied_infos(self) -> list[tuple[str, Leaf]]:
        """Declared fields that are read from infos."""
        if self.hindsight is None or not self.hindsight.copy_info:
            return []
        leaves = self._fields_by_name
        return [(name, leaves[name]) for name in self.hindsight.copy_info]

    def _inserting(self, steps: int) -> Any:
        return nullcontext() if self._limiter is None else self._limiter.inserting(steps, self._timeline.core.held)

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
        extras: Any,
    ) -> None:
        if "_timeline" in self.__dict__:
            observation, actions = self._timeline.observation, self._timeline.action
            obs = inputs.by_step(inputs.over_steps(obs, observation, "obs"), observation)
            next_obs = inputs.by_step(inputs.over_steps(next_obs, observation, "next_obs"), observation)
            action = inputs.by_step(inputs.over_steps(action, actions, "action"), actions)
        if terminated is None and truncated is None and extras is None:
            given = [argument for argument in (obs, next_obs, action, reward, done, infos) if argument is not None]
            super().extend(*given)
            return
        named = {"terminated": terminated, "truncated": truncated}
        for step in range(len(reward)):
            words = {word: flags[step] for word, flags in named.items() if flags is not None}
            if extras is not None:
                words["extras"] = {name: part[step] for name, part in extras.items()}
            self.add(
                obs[step],
                next_obs[step],
                action[step],
                reward[step],
                None if done is None else done[step],
                None if infos is None else infos[step],
                **words,
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
        n_steps: draws have returns of so many steps, fewer where an episode ends or the newest step is reached before.
        gamma: discount of n-step returns; or the name of a declared field, ``((), np.float32)``, that holds each step's
            own: batches then have ``discounts`` for ``n_steps=1`` too.
        sampler: which steps are drawn: `Uniform`, `Prioritized` or `RankPrioritized`; None is ``Uniform()``.
        hindsight: draws with goals that were reached later, see `Hindsight`.
        fields: what else each step has, for example ``{"log_prob": ((), np.float32)}``; passed as ``extras`` to `add`,
            and drawn as ``batch.extras``.
        reward_shape: ``(k,)`` for vector rewards.
        max_times_sampled: a step is not drawn again after so many draws.
        limiter: holds adding and drawing in proportion, see `RateLimiter`.

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
        n_steps: int = 1,
        gamma: float | str = 0.99,
        sampler: Sampler | None = None,
        hindsight: Hindsight | None = None,
        fields: Fields | None = None,
        reward_shape: tuple[int, ...] = (),
        max_times_sampled: int | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._set_up(
            optimize_memory_usage,
            handle_timeout_termination,
            dtypes,
            validate,
            seed,
            n_steps=n_steps,
            gamma=gamma,
            sampler=sampler,
            hindsight=hindsight,
            fields=fields,
            reward_shape=reward_shape,
            max_times_sampled=max_times_sampled,
            limiter=limiter,
        )


class DictReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` for Dict observation spaces; its batches hold dicts of tensors.

    `ReplayBuffer` takes Dict spaces too; this name is the seed's.

    Raises:
        WrongSpaceError: another observation space.
    """

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        require_dict(self, observation_space)
        super().__init__(buffer_size, observation_space, *args, **kwargs)
