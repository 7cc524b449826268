"""How a replay buffer is drawn from: transitions, sequences, episodes, priorities."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from relive import _native, inputs
from relive.annotated import annotated
from relive.batches import DictReplayBufferSamples, Episode, ReplayBufferSamples, SequenceSamples
from relive.buffers import assigning, plain
from relive.buffers.assigning import Rule, checked_n_steps
from relive.buffers.base import BaseBuffer
from relive.buffers.usual import NO_USUAL_CALLS, UsualCalls
from relive.draws import By, Drawn, Draws, Returns, Sampler, SequenceRule, td_priorities
from relive.errors import EmptyBufferError, ShapeError, WrongSpaceError
from relive.limits import RateLimiter
from relive.prefetch import BatchStream
from relive.samplers import Prioritized, RankPrioritized, Uniform
from relive.spaces import Leaf
from relive.tensors import Uploader, from_capsule
from relive.timeline import Timeline
from relive.views import transition
from relive.views.hindsight import Hindsight
from relive.views.transition import BatchTypes, Samples


class DrawingMethods(BaseBuffer):
    """What draws from a timeline.

    What is assigned to an attribute counts from the next call on, or is refused, see `relive.buffers.assigning`.

    Attributes:
        n_steps: steps of a return.
        gamma: their discount, or the name of the field that holds each step's.
        reward_shape: ``()``, or ``(k,)`` for vector rewards.
        sampler: which steps are drawn; exponents of weights are set on it.
        hindsight: other goals, or None.
        max_times_sampled: how often a step may be drawn, or None.
    """

    # What a subclass in the wild overrides, draws go through.
    _overrides_get_samples = False
    _overrides_to_torch = False
    _overrides_sample = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_get_samples = cls._get_samples is not DrawingMethods._get_samples
        cls._overrides_to_torch = cls.to_torch is not BaseBuffer.to_torch
        cls._overrides_sample = cls.sample is not DrawingMethods.sample

    def __setattr__(self, name: str, value: Any) -> None:
        rule = self._rule_of_assignment(name)
        super().__setattr__(name, value if rule is None else rule(self, value))

    # The named tuples that draws return, for observations of one array or a Tuple, and of a Dict.
    _batch_types: BatchTypes = (ReplayBufferSamples, DictReplayBufferSamples)

    # What a buffer without options has; instances with options have their own.
    n_steps: int = 1
    gamma: float | str = 0.99
    reward_shape: tuple[int, ...] = ()
    sampler: Sampler = Uniform()
    hindsight: Hindsight | None = None
    max_times_sampled: int | None = None
    _limiter: RateLimiter | None = None
    _generation = 0
    _draws: Draws | None = None
    _timeline: Timeline

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """Transitions drawn as the sampler says; without one uniformly, with replacement, from all steps held.

        Args:
            batch_size: how many.
            env: a `VecNormalize`, or anything with ``normalize_obs`` and ``normalize_reward``: observations and
                rewards of the batch are normalised (rewards to float32, those of n-step returns each by itself before
                they are summed); what is stored stays as it is.

        Returns:
            The seed's named tuple. Where there is a sampler with priorities, hindsight or declared fields, it also has
            the attributes ``weights`` (``(batch, 1)`` float32, or None), ``handles`` (``(batch,)`` int64, NumPy),
            ``extras`` (declared fields by name) and ``relabelled`` (``(batch,)`` bool, NumPy, or None).

        Raises:
            EmptyBufferError: nothing may be drawn.
        """
        usual = self._usual or self._bind_usual()
        if usual.sample is not None and env is None:
            batch: Samples | None = usual.sample(batch_size)
            if batch is None and not self._has_options:
                raise self._is_empty()
            if batch is not None:
                return batch
        if self._overrides_get_samples or "_timeline" not in self.__dict__:
            if self.num_transitions == 0:
                raise self._is_empty()
            samples: Samples = super().sample(batch_size, env=env)
            return samples
        if self._has_options:
            return self._sample_by("sampler", batch_size, env)
        size = inputs.whole_number(batch_size, "batch_size")
        with self._sampling(size):
            fields = self._timeline.core.sample(size, self._stream_or_global().native, from_capsule)
            if fields is None:
                raise self._is_empty()
        return self._batch(fields, env)

    def epoch(self, batch_size: int, env: Any = None) -> Iterator[Samples]:
        """One pass over all steps, each once, for ``sampler=Uniform(replacement=False)``; the last batch may be short.

        What is left of an epoch that `sample` has begun is dropped first.

        Raises:
            TypeError: another sampler.
            EmptyBufferError: nothing may be drawn.
        """
        if not isinstance(self.sampler, Uniform) or self.sampler.replacement:
            raise TypeError(f"epoch came with sampler={self.sampler}, expected Uniform(replacement=False)")
        return self._epoch(inputs.whole_number(batch_size, "batch_size", 1), env)

    def _epoch(self, batch_size: int, env: Any) -> Iterator[Samples]:
        draws = self._all_draws
        draws.clear()
        batch = self._sample_by("sampler", min(batch_size, max(draws.count(), 1)), env)
        while len(batch.dones):
            yield batch
            batch = self._sample_by("rest", batch_size, env)

    def transitions(self, handles: ArrayLike, env: Any = None) -> Samples:
        """The transitions of given steps, with n-step returns and declared fields, and the goals that were recorded.

        Args:
            handles: ``(batch,)`` int64, as `handles` gives them.
            env: as in `sample`.

        Raises:
            StaleHandleError: a step is not held any more.
        """
        which = inputs.handle_array(handles)
        if self._has_options:
            return self._samples_of(self._all_draws.at(which, env), env)
        return self._batch(self._timeline.transitions(which), env)

    # Sequences and episodes ----------------------------------------------------------------------------------------

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        burn_in: int = 0,
        stride: int = 1,
        align: Literal["start", "end"] = "start",
        pad: Literal["end", "start", "none"] | None = None,
        cross_episodes: bool = False,
        priorities: bool | None = None,
        states: Sequence[str] = (),
        env: Any = None,
    ) -> SequenceSamples:
        """Runs of steps that follow on in one environment.

        A legal start is every ``stride``-th step of an episode, counted from its first one; ``pad`` says whether
        ``length`` steps must be left from there on. With ``align="end"`` sequences look back: a drawn step is the last
        one, and ``handles``, priorities and ``max_times_sampled`` are about it.

        Args:
            batch_size: how many sequences.
            length: steps of each, ``burn_in`` included.
            burn_in: so many first steps only warm a recurrent state up; they are marked in ``burn_in``.
            stride: of starts in an episode. Of ends it is counted from the end of the first whole sequence, so that
                within episodes whole sequences are the same either way.
            align: whether the step that is drawn is the "start" or the "end" of its sequence.
            pad: "end" fills what is missing behind the end of an episode, or behind the newest step, with zeros, where
                ``mask`` is False. "start", for ``align="end"``, fills what is missing before the first step of an
                episode, or was overwritten. "none" draws whole sequences only. None is the one of the first two that
                goes with ``align``.
            cross_episodes: a sequence goes on into the next episode of its environment, or reaches back into the one
                before; ``is_first`` says where.
            priorities: None draws starts by the sampler's priorities, where it has them; False makes all alike.
            states: declared fields of which only the value at the first real step is wanted (a recurrent state).
            env: as in `sample`.

        Raises:
            EmptyBufferError: no start is legal.
        """
        rule = SequenceRule(length, stride, pad, cross_episodes, align)
        if inputs.whole_number(burn_in, "burn_in") >= rule.length:
            raise ValueError(f"burn_in is {burn_in}, expected 0 or more and less than length={length}")
        if cross_episodes and self.hindsight is not None:
            raise ValueError(
                "cross_episodes=True came with hindsight, expected one or the other: a goal belongs to one episode"
            )
        unknown = [name for name in states if name not in self._field_names]
        if unknown:
            raise KeyError(f"states has {unknown}, expected declared fields, which are {self._field_names}")
        by: By = "sampler"
        if isinstance(self.sampler, Uniform):
            by = "episodes" if self.sampler.over == "episodes" else "sampler"
        elif priorities is False:
            if self.max_times_sampled is not None:
                raise ValueError(
                    "priorities=False came with max_times_sampled, expected one or the other: draws are counted where "
                    "priorities are kept"
                )
            by = "starts"
        with self._sampling(inputs.whole_number(batch_size, "batch_size")):
            drawn = self._all_draws.draw(batch_size, self._stream_or_global(), env, rule, by, burn_in)
        return self._sequences_of(drawn, states, env)

    def count_sequences(
        self,
        length: int,
        *,
        stride: int = 1,
        align: Literal["start", "end"] = "start",
        pad: Literal["end", "start", "none"] | None = None,
        cross_episodes: bool = False,
    ) -> int:
        """How many legal starts, or ends, `sample_sequences` chooses from."""
        return self._all_draws.count(SequenceRule(length, stride, pad, cross_episodes, align))

    def episodes(self, whole: bool = True) -> Iterator[Episode]:
        """Episodes, environment by environment, oldest first, as they are when each one comes.

        Args:
            whole: True leaves out what has not ended, or has lost its beginning to newer steps.
        """
        for piece in self._pieces(whole):
            episode = self._episode(*piece)
            if episode is not None:
                yield episode

    def sample_episodes(self, n: int) -> list[Episode]:
        """``n`` whole episodes, each drawn uniformly from all whole ones, with replacement.

        Raises:
            EmptyBufferError: there is none.
        """
        count = inputs.whole_number(n, "n")
        pieces = self._pieces(True)
        if not pieces:
            raise EmptyBufferError(
                f"no whole episode is held among {self.num_transitions} steps, expected one that has ended and lost no "
                "step; add to the end of an episode"
            )
        drawn = (self._episode(*pieces[i]) for i in self._stream_or_global().below(len(pieces), count))
        return [episode for episode in drawn if episode is not None]

    # Priorities ----------------------------------------------------------------------------------------------------

    def update_priorities(
        self,
        handles: ArrayLike,
        priorities: ArrayLike | None = None,
        *,
        td_errors: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        eta: float = 0.9,
    ) -> int:
        """Gives drawn steps new priorities.

        Args:
            handles: ``(n,)`` int64, of a batch; of equal ones the last wins. One that names a step which was
                overwritten since is dropped and counted.
            priorities: ``(n,)``, from 0 on. With `Prioritized` a mass below the smallest normal double, about 2e-308,
                becomes that, so that only a priority of 0 with ``eps=0`` is never drawn.
            td_errors: in place of priorities, ``(n,)`` or ``(n, 1)``: their absolute values are taken. Of sequences
                ``(n, time)``: a sequence gets ``eta * max + (1 - eta) * mean`` (Kapturowski et al. 2019).
            mask: of sequences, ``(n, time)``: the steps that count; a sequence without any keeps its priority.
            eta: see ``td_errors``.

        Returns:
            How many were dropped.

        Raises:
            PriorityError: one is negative, not finite, or, with `Prioritized`, so large that the masses of a full
                buffer would have no finite sum; the message names the largest allowed. Nothing was changed.
            TypeError: the sampler keeps no priorities.
        """
        if isinstance(self.sampler, Uniform):
            raise TypeError(
                f"update_priorities came with sampler={self.sampler}, expected Prioritized or RankPrioritized"
            )
        if (priorities is None) == (td_errors is None):
            raise TypeError("expected exactly one of priorities and td_errors")
        share = inputs.as_array(eta, "eta")
        if share.ndim > 0 or not 0 <= share <= 1:
            raise ValueError(f"eta is {eta!r}, expected a number from 0 to 1")
        which = inputs.handle_array(handles)
        if priorities is not None:
            values = inputs.as_array(priorities, "priorities").astype(np.float64, copy=False).reshape(-1)
        else:
            assert td_errors is not None
            values, has = td_priorities(td_errors, mask, eta)
            if has is not None and len(has) == len(which):
                which, values = which[has], values[has]
        if len(values) != len(which):
            name = "td_errors" if priorities is None else "priorities"
            raise ShapeError(f"{name} has {len(values)} values, expected {len(which)}: one per handle")
        return self._all_draws.set_priorities(which, np.ascontiguousarray(values))

    def priorities(self, handles: ArrayLike) -> NDArray[np.float64]:
        """What given steps are drawn by, ``(n,)``: masses ``(priority + eps) ** alpha``; with ranks priorities.

        Raises:
            StaleHandleError: a step is not held any more.
            TypeError: the sampler keeps no priorities.
        """
        if isinstance(self.sampler, Uniform):
            raise TypeError(f"priorities came with sampler={self.sampler}, expected Prioritized or RankPrioritized")
        return self._all_draws.priorities(inputs.handle_array(handles))

    @property
    def can_sample(self) -> bool:
        """Whether `sample` would find a step to draw."""
        return self._all_draws.count() > 0 if self._has_options else self.num_transitions > 0

    def stream(self, batch_size: int, depth: int = 2, env: Any = None) -> BatchStream:
        """Iterates over batches that are drawn ahead on a thread of their own, at most ``depth`` of them.

        With a private ``seed`` their order is reproducible. Batches that were drawn before a `reset` never come after
        it. Close it, or use it as a context manager.
        """
        return BatchStream(self, batch_size, depth, env)

    # Inside --------------------------------------------------------------------------------------------------------

    def _rule_of_assignment(self, name: str) -> Rule | None:
        if "_timeline" not in self.__dict__:
            return None
        if name in assigning.DRAWING:
            # A subclass that draws in its own way may mean something of its own by such a name.
            is_its_own = (self._overrides_sample or self._overrides_get_samples) and not self._has_options
            return None if is_its_own else assigning.DRAWING[name]
        return assigning.STORING.get(name)

    def _with_returns(self, n_steps: int, gamma: float | str) -> Returns:
        """Draws with these returns from now on."""
        returns = Returns(n_steps, gamma)
        if self._draws is not None:
            self._draws.returns = returns
        elif n_steps > 1:
            self._draws = self._draws_with(returns)
        if n_steps > 1:
            self._has_view = True
        self._usual = None
        return returns

    @property
    def _has_options(self) -> bool:
        """Whether draws are other than the seed's."""
        return self._draws is not None and "_has_view" in self.__dict__

    @property
    def _all_draws(self) -> Draws:
        """The long way to draw; made when first asked for where no option needs it from the start."""
        if self._draws is None:
            self._draws = self._draws_with(Returns(self.n_steps, self.gamma))
        return self._draws

    def _draws_with(self, returns: Returns) -> Draws:
        return Draws(self._timeline, self.sampler, returns, self.hindsight, self.max_times_sampled)

    @property
    def _field_names(self) -> list[str]:
        space: Any = self._timeline.extra.space
        return list(space.spaces)

    @property
    def _fields_by_name(self) -> dict[str, Leaf]:
        return dict(zip(self._field_names, self._timeline.extra.leaves, strict=True))

    def _sampling(self, size: int) -> Any:
        return nullcontext() if self._limiter is None else self._limiter.sampling(size, self._timeline.core.held)

    def _sample_by(self, by: By, batch_size: int, env: Any) -> Samples:
        if self._limiter is None:
            return self._samples_of(self._all_draws.draw(batch_size, self._stream_or_global(), env, None, by), env)
        with self._sampling(inputs.whole_number(batch_size, "batch_size")):
            drawn = self._all_draws.draw(batch_size, self._stream_or_global(), env, None, by)
        return self._samples_of(drawn, env)

    def _samples_of(self, drawn: Drawn, env: Any) -> Samples:
        samples = self._batch(drawn.base, env, drawn.rewards_are_normalised)
        if drawn.discounts is not None:
            (discounts,) = self._on_device([drawn.discounts])
            samples = samples._replace(discounts=discounts)
        if (
            drawn.weights is None
            and drawn.relabelled is None
            and not drawn.extras
            and isinstance(self.sampler, Uniform)
        ):
            return samples
        return annotated(samples, **self._attributes(drawn))

    def _attributes(self, drawn: Drawn) -> dict[str, Any]:
        extras, weights = drawn.extras or {}, drawn.weights
        if extras or weights is not None:
            moved = self._on_device([*extras.values(), *([] if weights is None else [weights])])
            extras = dict(zip(extras, moved, strict=False))
            weights = None if weights is None else moved[-1]
        return {"weights": weights, "handles": drawn.handles, "extras": extras, "relabelled": drawn.relabelled}

    def _sequences_of(self, drawn: Drawn, states: Sequence[str], env: Any) -> SequenceSamples:
        assert drawn.mask is not None
        assert drawn.is_first is not None
        assert drawn.in_burn_in is not None
        mask = None if env is None else drawn.mask.numpy()
        samples = self._batch(drawn.base, env, drawn.rewards_are_normalised, mask)
        attributes = self._attributes(drawn)
        fields = [drawn.mask, drawn.is_first, drawn.in_burn_in]
        is_real, is_first, in_burn_in, *discounts = self._on_device(
            fields if drawn.discounts is None else [*fields, drawn.discounts]
        )
        if states:  # looking back, the first real step can come later
            first = drawn.mask.to(torch.uint8).argmax(dim=1).to(self.device)
            rows = torch.arange(len(first), device=first.device)
            attributes["states"] = {name: attributes["extras"].pop(name)[rows, first] for name in states}
        else:
            attributes["states"] = {}
        discount = discounts[0] if discounts else None
        sequences = SequenceSamples(
            samples.observations,
            samples.actions,
            samples.next_observations,
            samples.dones,
            samples.rewards,
            discount,
            is_real,
            is_first,
            in_burn_in,
        )
        return annotated(sequences, **attributes)

    def _on_device(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._overrides_to_torch:
            return [self.to_torch(tensor.numpy()) for tensor in tensors]
        if self.device.type == "cpu" or not tensors:
            return list(tensors)
        return list(Uploader(self.device).upload(tensors))

    def _pieces(self, whole: bool) -> list[tuple[int, int, int]]:
        lanes, numbers, steps, begins, ended = self._all_draws.pieces()
        keep = (begins & ended).astype(bool) if whole else np.ones(len(lanes), bool)
        return list(zip(lanes[keep].tolist(), numbers[keep].tolist(), steps[keep].tolist(), strict=True))

    def _episode(self, lane: int, number: int, steps: int) -> Episode | None:
        """One piece of an episode; None where it was overwritten meanwhile."""
        timeline = self._timeline
        numbers = np.arange(number, number + steps)
        rows, handles = numbers % timeline.rows, numbers * timeline.lanes + lane
        in_lane = np.full(steps, lane)

        def stored(path: str) -> NDArray[Any]:
            values: NDArray[Any] = timeline.view(path)[rows, lane]
            return values

        observation = timeline.observation
        episode = Episode(
            observation.map(lambda leaf: stored(leaf.path)),
            timeline.action.map(lambda leaf: stored(leaf.path)),
            observation.unflatten(
                [timeline.successors(index, rows, in_lane) for index in range(len(observation.leaves))]
            ),
            stored("reward"),
            stored("done"),
            stored("timeout"),
            handles,
            {name: stored(leaf.path) for name, leaf in zip(self._field_names, timeline.extra.leaves, strict=True)},
            bool(stored("flags")[-1]),
        )
        return episode if timeline.core.held_handles(handles).all() else None

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Samples:
        """The transitions of these rows, each of an environment drawn at random."""
        rows = np.asarray(batch_inds, np.int64).reshape(-1)
        lanes = self._stream_or_global().below(self.n_envs, len(rows))
        if "_timeline" not in self.__dict__:
            return plain.get_samples(self, rows, lanes, env)
        rows = np.ascontiguousarray(np.where(rows < 0, rows + self.buffer_size, rows))
        if self._has_options:
            heads = np.array(self._timeline.core.lanes()[0], np.int64)[lanes]
            numbers = heads - 1 - (heads - 1 - rows) % self.buffer_size
            return self._samples_of(self._all_draws.at(numbers * self.n_envs + lanes, env), env)
        return self._batch(self._timeline.core.transitions_at(rows, lanes, from_capsule), env)

    def _bind_usual(self) -> UsualCalls:
        """Finds out which calls can take the shortest way, and binds them."""
        if "_timeline" not in self.__dict__:
            return NO_USUAL_CALLS
        timeline = self._timeline
        self._usual = NO_USUAL_CALLS
        if timeline.is_plain and self._limiter is None:
            bound = _native.Usual(timeline.core, self._stream_or_global().native, from_capsule, self._batch_types[0])
            sample: Callable[[Any], Any] | None = bound.sample
            if self._overrides_get_samples or self._overrides_to_torch or self.device.type != "cpu":
                sample = None
            elif self._has_options:
                sample = self._all_draws.bind(self._stream_or_global(), self._batch_types[0])
            self._usual = UsualCalls(bound.add, sample)
        return self._usual

    def _batch(
        self,
        fields: Sequence[torch.Tensor],
        env: Any,
        rewards_are_normalised: bool = False,
        mask: NDArray[np.bool_] | None = None,
    ) -> Samples:
        """Fields of the core, normalised and on their device, as the named tuple that the caller gets.

        Where there is a mask, steps outside it are zero again after normalising.
        """
        if env is not None:
            arrays = self._normalised(fields, env, rewards_are_normalised)
            if mask is not None:
                arrays = tuple(
                    np.where(mask.reshape(*mask.shape, *[1] * (array.ndim - 2)), array, array.dtype.type(0))
                    for array in arrays
                )
            fields = [self.to_torch(array) for array in arrays]
        elif self._overrides_to_torch:
            fields = [self.to_torch(field.numpy()) for field in fields]
        elif self.device.type != "cpu":
            fields = Uploader(self.device).upload(fields)
        return transition.batch(self._timeline, fields, self._batch_types)

    def _normalised(
        self, fields: Sequence[torch.Tensor], env: Any, rewards_are_normalised: bool
    ) -> tuple[NDArray[Any], ...]:
        arrays = [field.numpy() for field in fields]
        obs, action, next_obs, dones, rewards = transition.split(self._timeline, arrays)
        next_obs, obs = self._normalize_obs(next_obs, env), self._normalize_obs(obs, env)
        rewards = rewards if rewards_are_normalised else self._normalize_reward(rewards, env)
        joined = transition.join(self._timeline, obs, action, next_obs, dones, rewards)
        return tuple(inputs.as_array(part, "what normalize_obs returned") for part in joined)

    def _is_empty(self) -> EmptyBufferError:
        name = type(self).__name__
        return EmptyBufferError(
            f"sample from an empty {name}: it holds 0 transitions, expected 1 or more; add steps first"
        )


def check_options(
    space: spaces.Space[Any],
    n_steps: int,
    sampler: Any,
    hindsight: Any,
    max_times_sampled: int | None,
    limiter: Any,
) -> None:
    """Refuses options that have no meaning, alone or together.

    Raises:
        TypeError, ValueError, WrongSpaceError: see the message.
    """
    checked_n_steps(n_steps)
    if not isinstance(sampler, Uniform | Prioritized | RankPrioritized):
        raise TypeError(f"sampler is {sampler!r}, expected Uniform(), Prioritized() or RankPrioritized()")
    if max_times_sampled is not None and operator.index(max_times_sampled) < 1:
        raise ValueError(f"max_times_sampled is {max_times_sampled}, expected 1 or more, or None")
    if isinstance(sampler, Uniform) and sampler.over == "episodes" and max_times_sampled is not None:
        raise ValueError(
            "max_times_sampled came with Uniform(over='episodes'), expected one or the other: episodes whose steps are "
            "used up in part would no longer be alike"
        )
    if isinstance(sampler, Uniform) and not sampler.replacement and limiter is not None:
        raise ValueError(
            "limiter came with Uniform(replacement=False), expected one or the other: a limiter must know beforehand "
            "how many rows are drawn, and the last batch of an epoch is as short as what is left"
        )
    if hindsight is None:
        return
    if not isinstance(hindsight, Hindsight):
        raise TypeError(f"hindsight is {hindsight!r}, expected a Hindsight")
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
    for key in hindsight.goal_keys:
        if key not in keys:
            raise WrongSpaceError(
                f"hindsight needs {key!r} in the observation, expected a Dict space with it; it has {keys}"
            )
    achieved, desired = (space[key] for key in hindsight.goal_keys)  # type: ignore[index]
    if achieved.shape != desired.shape or achieved.dtype != desired.dtype:
        raise WrongSpaceError(
            f"hindsight's goals differ: {hindsight.goal_keys[0]} is {achieved}, {hindsight.goal_keys[1]} is {desired}; "
            "expected the same shape and dtype"
        )
