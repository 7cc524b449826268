"""Draws beyond uniform transitions: the Python face of native/draws.hpp.

A sampler says which steps, a view what is made of them. The core chooses and gathers under one lock. What needs a
caller's function (rewards of hindsight goals, a normalising environment) is computed here, on the batch alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from relive import _native
from relive.annotated import annotated_kind
from relive.discounts import factors as discount_factors
from relive.errors import (
    EmptyBufferError,
    NaNRewardError,
    NothingEligibleError,
    PriorityError,
    ShapeError,
    StaleHandleError,
)
from relive.inputs import as_array, whole_number
from relive.randomness import Stream
from relive.samplers import Prioritized, RankPrioritized, Uniform
from relive.tensors import from_capsule
from relive.timeline import Timeline
from relive.views.hindsight import STRATEGIES, Goals, Hindsight, Infos, one_per_step

Array = NDArray[Any]
Sampler = Uniform | Prioritized | RankPrioritized
By = Literal["sampler", "starts", "episodes", "rest"]

_ALIKE, _PROPORTIONAL, _RANKED = 0, 1, 2
_BY: dict[By, int] = {"sampler": 0, "starts": 1, "episodes": 2, "rest": 3}
_SUCCESSOR, _EXTRA, _REWARD = 2, 3, 4
_NO_LENGTHS = np.empty(0, np.int64)
# What an object makes for itself, so that copies do not carry it.
_OWN = ("_core", "_views", "_names", "_weighs", "_base", "_goal_leaves", "_largest_priority")


@dataclass(slots=True)
class Drawn:
    """The fields of one draw, ``(batch, ...)``, or of sequences ``(batch, time, ...)``.

    Attributes:
        base: observation leaves, action leaves, successor leaves, dones, rewards.
        handles: ``(batch,)`` of the drawn steps.
        discounts: of n-step returns.
        extras: declared fields by name.
        weights: ``(batch, 1)`` importance weights.
        relabelled: ``(batch,)``: which rows have a hindsight goal.
        rewards_are_normalised: each by itself, before they were summed.
        mask: of sequences, which steps are real.
        is_first: of sequences, which steps begin an episode.
        in_burn_in: of sequences, which real steps are within the burn-in.
    """

    base: tuple[torch.Tensor, ...]
    handles: NDArray[np.int64]
    discounts: torch.Tensor | None = None
    extras: dict[str, torch.Tensor] | None = None
    weights: torch.Tensor | None = None
    relabelled: NDArray[np.bool_] | None = None
    rewards_are_normalised: bool = False
    mask: torch.Tensor | None = None
    is_first: torch.Tensor | None = None
    in_burn_in: torch.Tensor | None = None


class Returns(NamedTuple):
    """Of how many steps returns are, and how later ones count."""

    n_steps: int
    gamma: float | str  # a number, or the name of the field that holds each step's

    @property
    def have_discounts(self) -> bool:
        """Whether batches say what comes after a window is multiplied with."""
        return self.n_steps > 1 or isinstance(self.gamma, str)


@dataclass(frozen=True)
class SequenceRule:
    """Which sequences, see `ReplayBuffer.sample_sequences`."""

    length: int
    stride: int = 1
    pad: Literal["end", "start", "none"] | None = None
    cross_episodes: bool = False
    align: Literal["start", "end"] = "start"

    def __post_init__(self) -> None:
        for name in ("length", "stride"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, 1))
        if self.align not in ("start", "end"):
            raise ValueError(f"align is {self.align!r}, expected 'start' or 'end'")
        open_side = "end" if self.align == "start" else "start"
        if self.pad not in (open_side, "none", None):
            raise ValueError(
                f"pad is {self.pad!r}, expected {open_side!r} or 'none': with align={self.align!r} steps can be "
                f"missing at the {open_side} only"
            )

    @property
    def is_padded(self) -> bool:
        """Whether a sequence may be short, and is filled up."""
        return self.pad != "none"


class Draws:
    """What a buffer's options make of its timeline.

    Options may be assigned while other threads draw, so each draw reads ``returns``, and those of ``hindsight``, once.

    Args:
        timeline: the steps.
        sampler: which of them.
        returns: of n-step returns; it can be assigned.
        hindsight: other goals, or None.
        max_times_sampled: how often a step may be drawn, or None.
        reads_dones: whether draws may ask where episodes end.
    """

    def __init__(
        self,
        timeline: Timeline,
        sampler: Sampler,
        returns: Returns,
        hindsight: Hindsight | None,
        max_times_sampled: int | None,
    ) -> None:
        self.timeline = timeline
        self.sampler = sampler
        self.returns = returns
        self.hindsight = hindsight
        self.max_times_sampled = max_times_sampled
        self._names = _field_names(timeline)
        self._weighs = isinstance(sampler, Prioritized | RankPrioritized)
        self._base = 2 * len(timeline.observation.leaves) + len(timeline.action.leaves) + 2  # fields of a transition
        self._goal_leaves = (0, 0) if hindsight is None else _goal_leaves(timeline, hindsight)
        self._largest_priority = 0.0
        self._core = _native.Draws(timeline.core)
        self._views: dict[Any, _native.View] = {}
        if self._keeps_values:
            options = self._weighing()
            self._require_room_for_first(*options)
            self._core.prioritize(self._kind, *options, max_times_sampled or 0)
        if isinstance(sampler, Prioritized | RankPrioritized):
            sampler.tell(self)
        elif not sampler.replacement:
            self._core.without_replacement()

    def follow_sampler(self) -> None:
        """Takes the options of the sampler as they are now.

        Raises:
            PriorityError: a priority that is there, or that of a new step, is too large for them; nothing was changed.
        """
        before, options = self._largest_priority, self._weighing()
        self._require_room_for_first(*options)
        if not self._core.reconfigure(*options):
            largest, self._largest_priority = self._largest_priority, before
            raise PriorityError(
                f"a priority that was given is too large for alpha={options[0]} and eps={options[1]}: expected at most "
                f"{largest}, since the masses of a full buffer need a finite sum; nothing was changed"
            )

    @property
    def _kind(self) -> int:
        if isinstance(self.sampler, Uniform):
            return _ALIKE
        return _PROPORTIONAL if isinstance(self.sampler, Prioritized) else _RANKED

    def _weighing(self) -> tuple[float, float, float, bool, bool]:
        """alpha, eps, the first priority or NaN, whether the largest is that ever given, and that of the buffer."""
        sampler = self.sampler
        if isinstance(sampler, Prioritized):
            initial = np.nan if sampler.initial == "max" else sampler.initial
            ever, over_buffer = sampler.max_over == "ever", sampler.weights_over == "buffer"
            return sampler.alpha, sampler.eps, initial, ever, over_buffer
        if isinstance(sampler, RankPrioritized):
            return sampler.alpha, 0.0, np.nan, False, sampler.weights_over == "buffer"
        return 1.0, 0.0, np.nan, False, False

    def _require_room_for_first(self, alpha: float, eps: float, initial: float, *_: bool) -> None:
        slots = self.timeline.rows * self.timeline.lanes
        largest = _native.Draws.largest_priority(self._kind, alpha, eps, slots)
        if not (1.0 if np.isnan(initial) else initial) <= largest:
            first = "the 1.0 of a first step" if np.isnan(initial) else f"initial={initial}"
            raise PriorityError(
                f"{first} is too large for alpha={alpha} and eps={eps}: expected priorities up to {largest}, since the "
                f"masses (priority + eps) ** alpha of {slots} steps need a finite sum"
            )
        self._largest_priority = largest

    # Drawing -------------------------------------------------------------------------------------------------------

    def draw(
        self,
        batch_size: Any,
        stream: Stream,
        env: Any = None,
        sequence: SequenceRule | None = None,
        by: By = "sampler",
        burn_in: int = 0,
    ) -> Drawn:
        """One batch.

        Args:
            batch_size: how many rows.
            stream: where random draws come from.
            env: normalises rewards (`with_rewards`), see `ReplayBuffer.sample`.
            sequence: sequences in place of transitions.
            by: "sampler"; "starts" makes all steps alike whatever the sampler is; "episodes" all episodes; "rest" draws
                what is left of an epoch, and nothing of the next.
            burn_in: of sequences.

        Raises:
            EmptyBufferError: nothing may be drawn, or less than asked for.
        """
        returns, goals = self.returns, None if self.hindsight is None else self.hindsight.goals
        windows = self._windows(returns, goals, env)
        view = self._view(returns, goals, sequence, windows, burn_in)
        beta = self.sampler.beta_now() if self._weighs else 0.0  # type: ignore[union-attr]
        reason, fields = self._core.draw(batch_size, stream.native, view, beta, _BY[by], from_capsule)
        if fields is None:
            raise self._refusal(reason, batch_size, sequence)
        weighs = by == "sampler" and self._weighs
        drawn, lengths, of_windows = self._sort(fields, returns, sequence, windows, weighs, goals is not None)
        if windows:
            self._compute(drawn, lengths, dict(zip(windows, of_windows, strict=True)), returns, goals, env)
        elif goals is not None:
            self._relabel_steps(drawn, goals)
        return drawn

    def at(self, handles: NDArray[np.int64], env: Any = None) -> Drawn:
        """The view of given steps, with the goals that were recorded.

        Raises:
            StaleHandleError: a step is not held any more.
        """
        returns, goals = self.returns, None if self.hindsight is None else self.hindsight.goals
        windows = self._windows(returns, None, env)
        fields = self._core.at(handles, self._view(returns, goals, None, windows), from_capsule)
        if fields is None:
            raise self._stale(handles)
        drawn, lengths, of_windows = self._sort(fields, returns, None, windows, False, False)
        if windows:
            self._compute(drawn, lengths, dict(zip(windows, of_windows, strict=True)), returns, None, env)
        return drawn

    def bind(self, stream: Stream, kind: type[Any]) -> Callable[[Any], Any] | None:
        """`draw` of transitions with all that does not change bound beforehand: a function of the batch size.

        It returns None where nothing may be drawn. Only for a space of one array, and without goals and declared
        fields; None where there is more to a draw.

        Args:
            stream: where random draws come from.
            kind: the named tuple of a batch.
        """
        if self.hindsight is not None or not self.timeline.is_plain:
            return None
        weighs = isinstance(self.sampler, Prioritized | RankPrioritized)
        gamma = self.returns.gamma
        assert isinstance(gamma, float), "a plain timeline has no fields"
        view = _native.View(self.returns.n_steps, gamma, 0, self._rule(None), None, [], names_steps=weighs)
        beta = self.sampler.beta_now if isinstance(self.sampler, Prioritized | RankPrioritized) else None
        with_attributes: type[Any] = annotated_kind(cast(Hashable, kind)) if weighs else kind
        return _native.UsualDraw(self._core, stream.native, view, from_capsule, with_attributes, beta).sample

    def count(self, sequence: SequenceRule | None = None) -> int:
        """How many steps may be drawn."""
        return self._core.count(self._rule(sequence))

    # Priorities ----------------------------------------------------------------------------------------------------

    def set_priorities(self, handles: NDArray[np.int64], priorities: NDArray[np.float64]) -> int:
        """New priorities; returns how many were stale.

        Raises:
            PriorityError: one is negative, not finite, or so large that masses would have no finite sum; nothing was
                changed.
        """
        dropped = self._core.set_priorities(handles, priorities)
        if dropped < 0:
            row = -1 - dropped
            if np.isfinite(priorities[row]) and priorities[row] > 0:
                raise PriorityError(
                    f"priorities has {priorities[row]} at row {row}, expected at most {self._largest_priority}: the "
                    "masses (priority + eps) ** alpha of a full buffer need a finite sum; nothing was changed. Clip "
                    "them, or use RankPrioritized, where only their order counts."
                )
            raise PriorityError(
                f"priorities has {priorities[row]} at row {row}, expected finite numbers from 0 on; nothing was "
                "changed. For errors with a sign use td_errors=."
            )
        if isinstance(self.sampler, Prioritized | RankPrioritized):
            self.sampler.dropped += dropped
        return dropped

    def priorities(self, handles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Masses of held steps, ``(n,)``; with ranks their priorities.

        Raises:
            StaleHandleError: a step is not held any more.
        """
        found = self._core.values(handles)
        if found is None:
            raise self._stale(handles)
        return found[0]

    def clear(self) -> None:
        """Forgets running epochs; the timeline itself says what else is gone."""
        self._core.clear_epochs()

    def pieces(self) -> tuple[NDArray[np.int64], ...]:
        """Held pieces of episodes: lane, number of the first held step, steps, begins there, has ended."""
        return tuple(self._core.pieces())

    # Copies --------------------------------------------------------------------------------------------------------

    @property
    def _keeps_values(self) -> bool:
        return self.max_times_sampled is not None or isinstance(self.sampler, Prioritized | RankPrioritized)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in _OWN}
        state["epochs"] = self._core.epochs()
        if self._keeps_values:
            handles = self.timeline.core.all_handles()
            kept = self._core.values(handles, kept=True) or ()
            state["values"] = (handles, *kept, self._core.largest_given(), self._core.keeps_priorities())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        names = ("timeline", "sampler", "returns", "hindsight", "max_times_sampled")
        self.__init__(*(state[name] for name in names))  # type: ignore[misc]
        self._core.restore_epochs(state["epochs"])
        if "values" in state:
            self._core.restore_values(*state["values"])

    # Inside --------------------------------------------------------------------------------------------------------

    def _rule(self, sequence: SequenceRule | None) -> _native.StartRule:
        finished_only = self.hindsight is not None and not self.hindsight.running
        return self._rule_of(sequence, finished_only)

    @staticmethod
    def _rule_of(sequence: SequenceRule | None, finished_only: bool) -> _native.StartRule:
        if sequence is None:
            return _native.StartRule(finished_only=finished_only)
        return _native.StartRule(
            sequence.length,
            sequence.stride,
            padded=sequence.is_padded,
            crossing=sequence.cross_episodes,
            finished_only=finished_only,
            looks_back=sequence.align == "end",
        )

    def _view(
        self,
        returns: Returns,
        goals: Goals | None,
        sequence: SequenceRule | None,
        windows: Sequence[tuple[int, int]],
        burn_in: int = 0,
    ) -> _native.View:
        chosen = None if goals is None else (goals.strategy, goals.n_sampled_goal, goals.running)
        key = (returns, chosen, sequence, tuple(windows), burn_in)
        view = self._views.get(key)
        if view is None:
            replaced = None
            if goals is not None:
                replaced = (STRATEGIES.index(goals.strategy), goals.n_sampled_goal, *self._goal_leaves)
            time = 0 if sequence is None else sequence.length
            rule = self._rule_of(sequence, goals is not None and not goals.running)
            gamma, own = (returns.gamma, None) if isinstance(returns.gamma, float) else (1.0, returns.gamma)
            view = _native.View(
                returns.n_steps,
                gamma,
                time,
                rule,
                replaced,
                list(windows),
                burn_in=burn_in,
                own_gamma=None if own is None else self._names.index(own),
            )
            if len(self._views) > 64:  # lengths that change from call to call
                self._views.clear()
            self._views[key] = view
        return view

    def _windows(self, returns: Returns, goals: Goals | None, env: Any) -> list[tuple[int, int]]:
        """The parts of every step of a window that are computed with here; a window of one step is the row itself."""
        if returns.n_steps == 1:
            return []
        own = [] if isinstance(returns.gamma, float) else [(_EXTRA, self._names.index(returns.gamma))]
        if goals is None:
            return [] if env is None else [(_REWARD, 0), *own]
        achieved, _ = self._goal_leaves
        windows = [(_REWARD, 0), (_SUCCESSOR, achieved), *own]
        windows += [(_EXTRA, self._names.index(name)) for name in goals.copy_info if name != returns.gamma]
        if goals.compute_terminated is not None:
            leaves = range(len(self.timeline.observation.leaves))
            windows += [(_SUCCESSOR, leaf) for leaf in leaves if leaf != achieved]
        return windows

    def _sort(
        self,
        fields: tuple[torch.Tensor, ...],
        returns: Returns,
        sequence: SequenceRule | None,
        windows: Sequence[tuple[int, int]],
        weighs: bool,
        relabels: bool,
    ) -> tuple[Drawn, Array, list[Array]]:
        """Gives the fields their names, in the order in which ``ViewFields`` lists them."""
        base, rest = fields[: self._base], iter(fields[self._base :])
        discounts = next(rest) if returns.have_discounts else None
        extras = {name: next(rest) for name in self._names}
        lengths = next(rest).numpy() if windows else _NO_LENGTHS
        of_windows = [next(rest).numpy() for _ in windows]
        mask, is_first, in_burn_in = (None, None, None) if sequence is None else (next(rest), next(rest), next(rest))
        handles = next(rest).numpy()
        weights = next(rest) if weighs else None
        relabelled = next(rest).numpy() if relabels else None
        drawn = Drawn(base, handles, discounts, extras, weights, relabelled, False, mask, is_first, in_burn_in)
        return drawn, lengths, of_windows

    def _compute(
        self,
        drawn: Drawn,
        lengths: Array,
        windows: dict[tuple[int, int], Array],
        returns: Returns,
        goals: Goals | None,
        env: Any,
    ) -> None:
        """Rewards of hindsight goals and of normalised windows, into the batch."""
        leading = lengths.shape  # (batch,) or (batch, time); from here on rows of steps
        flat = {key: _rows(array, array.shape[len(leading) :]) for key, array in windows.items()}
        lengths = lengths.reshape(-1)
        rewards = flat[_REWARD, 0]
        changed = np.zeros(len(lengths), bool)
        if goals is not None and drawn.relabelled is not None:
            changed = np.repeat(drawn.relabelled, len(lengths) // max(len(drawn.relabelled), 1)) & (lengths > 0)
            if changed.any():
                lengths = self._relabel(drawn, np.flatnonzero(changed), lengths, flat, returns, goals)
        if env is not None and returns.n_steps > 1:
            drawn.rewards_are_normalised = True
            rewards = as_array(env.normalize_reward(rewards), "what normalize_reward returned").astype(np.float32)
            changed = lengths > 0
        if changed.any():
            out = drawn.base[-1].numpy().reshape(-1, drawn.base[-1].shape[-1])
            factors = self._factors(returns, np.flatnonzero(changed), flat)
            out[changed] = _discounted(rewards[changed], lengths[changed], factors)

    def _factors(self, returns: Returns, rows: Array, windows: dict[tuple[int, int], Array]) -> Array:
        own = None
        if isinstance(returns.gamma, str):
            own = windows[_EXTRA, self._names.index(returns.gamma)][rows]
        return discount_factors(returns.gamma, own, returns.n_steps, len(rows))

    def _reward(self, goals: Goals, achieved: Array, desired: Array, info: Infos) -> Array:
        returned = goals.compute_reward(achieved, desired, info)
        computed = one_per_step(returned, "compute_reward", len(achieved), self.timeline.reward_shape)
        total = computed.sum()
        if total != total and np.isnan(computed).any():
            row = int(np.flatnonzero(np.isnan(computed.reshape(len(computed), -1)).any(axis=1))[0])
            missing = info.missing(row)
            reason = (
                f". info has no {', '.join(map(repr, missing))} for that step: the environment gave none, or NaN; give "
                "it with every step, or let compute_reward do without"
                if missing
                else ""
            )
            raise NaNRewardError(
                f"compute_reward returned NaN for achieved goal {achieved[row]} and desired goal {desired[row]}, "
                f"expected numbers{reason}"
            )
        return computed

    def _relabel_steps(self, drawn: Drawn, goals: Goals) -> None:
        """Rewards, and where there is a rule for them dones, of single steps under their new goals."""
        assert drawn.relabelled is not None
        count = int(np.count_nonzero(drawn.relabelled))
        rows: Any = slice(0, count)  # the first ones, unless draws are by value
        if drawn.mask is not None or drawn.weights is not None:
            changed = drawn.relabelled
            if drawn.mask is not None:
                changed = (changed[:, None] & drawn.mask.numpy()).reshape(-1)
            rows = np.flatnonzero(changed)
            count = len(rows)
        if count == 0:
            return
        leaves = self.timeline.observation.leaves
        achieved_leaf, desired_leaf = self._goal_leaves
        successors = len(leaves) + len(self.timeline.action.leaves)
        shape = leaves[desired_leaf].shape
        achieved = _steps(drawn.base[successors + achieved_leaf], shape)[rows]
        desired = _steps(drawn.base[desired_leaf], shape)[rows]
        columns = {}
        for name in goals.copy_info:
            column = (drawn.extras or {})[name].numpy()
            columns[name] = _rows(column, column.shape[1 if drawn.mask is None else 2 :])[rows]
        info = Infos(columns, count)
        rewards = _steps(drawn.base[-1], drawn.base[-1].shape[-1:])
        rewards[rows] = self._reward(goals, achieved, desired, info).reshape(count, -1)
        if goals.compute_terminated is not None:
            returned = goals.compute_terminated(achieved, desired, info)
            reached = one_per_step(returned, "compute_terminated", count)
            drawn.base[-2].numpy().reshape(-1)[rows] = reached.astype(bool)

    def _relabel(
        self,
        drawn: Drawn,
        rows: Array,
        lengths: Array,
        windows: dict[tuple[int, int], Array],
        returns: Returns,
        goals: Goals,
    ) -> Array:
        """Rewards, and where there is a rule for them ends, under the new goals; returns the windows' new lengths."""
        achieved_leaf, desired_leaf = self._goal_leaves
        inside = np.arange(returns.n_steps) < lengths[rows][:, None]
        desired_all = drawn.base[desired_leaf].numpy()
        goal_shape = self.timeline.observation.leaves[desired_leaf].shape
        achieved = windows[_SUCCESSOR, achieved_leaf][rows][inside]
        desired = np.repeat(_rows(desired_all, goal_shape)[rows], lengths[rows], axis=0)
        columns = {name: windows[_EXTRA, self._names.index(name)][rows][inside] for name in goals.copy_info}
        info = Infos(columns, len(achieved))
        computed = self._reward(goals, achieved, desired, info)
        rewards = windows[_REWARD, 0][rows]
        rewards[inside] = computed.reshape(len(computed), -1)
        windows[_REWARD, 0][rows] = rewards
        if goals.compute_terminated is None:
            return lengths
        reached = np.zeros(inside.shape, bool)
        flags = goals.compute_terminated(achieved, desired, info)
        reached[inside] = one_per_step(flags, "compute_terminated", len(achieved)).astype(bool)
        ends_at = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, lengths[rows])
        is_cut = ends_at < lengths[rows]
        drawn.base[-2].numpy().reshape(-1)[rows] = reached.any(axis=1)
        if is_cut.any():
            self._cut(drawn, rows[is_cut], ends_at[is_cut], windows, returns)
        lengths = lengths.copy()
        lengths[rows] = ends_at
        return lengths

    def _cut(
        self,
        drawn: Drawn,
        rows: Array,
        lengths: Array,
        windows: dict[tuple[int, int], Array],
        returns: Returns,
    ) -> None:
        """Ends the windows of these rows earlier: other successors and discounts."""
        leaves = self.timeline.observation.leaves
        first = len(leaves) + len(self.timeline.action.leaves)
        _, desired_leaf = self._goal_leaves
        for index, leaf in enumerate(leaves):
            if index != desired_leaf:
                successor = _steps(drawn.base[first + index], leaf.shape)
                successor[rows] = windows[_SUCCESSOR, index][rows, lengths - 1]
        if drawn.discounts is not None:
            drawn.discounts.numpy().reshape(-1)[rows] = self._factors(returns, rows, windows)[
                np.arange(len(rows)), lengths
            ]

    def _stale(self, handles: NDArray[np.int64]) -> StaleHandleError:
        stale = handles[~self.timeline.core.held_handles(handles)]
        return StaleHandleError(
            f"{len(stale)} of {len(handles)} handles name steps that were overwritten or forgotten, the first is "
            f"{int(stale[0])}; expected held steps (see held_handles)"
        )

    def _refusal(self, reason: int, batch_size: Any, sequence: SequenceRule | None) -> EmptyBufferError:
        held = self.timeline.core.held()
        if reason == 2:
            count = self._core.count(self._rule(sequence))
            limit = (
                "an epoch has"
                if self.max_times_sampled is None
                else f"with max_times_sampled={self.max_times_sampled} draws are left of"
            )
            return EmptyBufferError(
                f"batch_size is {batch_size}, but {limit} {count} steps; expected a smaller batch or more steps. "
                "Nothing was drawn."
            )
        if held == 0:
            return EmptyBufferError(
                "sample from an empty buffer: it holds 0 transitions, expected 1 or more; add steps first"
            )
        if sequence is not None:
            return NothingEligibleError(
                f"no sequence of length={sequence.length} can be drawn from the {held} steps held "
                f"(align={sequence.align!r}, pad={sequence.pad!r}, stride={sequence.stride}, "
                f"cross_episodes={sequence.cross_episodes}); expected longer episodes, a smaller length, or padding"
            )
        if self.hindsight is not None:
            return NothingEligibleError(
                f"hindsight needs steps of an episode that has ended, and none of the {held} steps held is of one; add "
                "to the end of an episode before the first draw (learning_starts larger than the longest episode), or "
                "use Hindsight(running=True)"
            )
        return NothingEligibleError(
            f"each of the {held} steps held was drawn max_times_sampled={self.max_times_sampled} times; add steps first"
        )


def _discounted(rewards: Array, lengths: Array, factors: Array) -> Array:
    """Sums of ``(rows, n_steps, width)`` over the steps of each window, in float64."""
    sums = np.zeros((len(rewards), rewards.shape[-1]), np.float64)
    for i in range(rewards.shape[1]):
        weighted = factors[:, i, None] * rewards[:, i].astype(np.float64)
        sums += np.where((i < lengths)[:, None], weighted, 0.0)
    return sums.astype(np.float32)


def td_priorities(
    td_errors: ArrayLike, mask: ArrayLike | None, eta: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Priorities out of errors, and which rows have one; None for all.

    A row of a sequence gets ``eta * max + (1 - eta) * mean`` of its absolute errors (Kapturowski et al. 2019, R2D2).

    Args:
        td_errors: ``(n,)``, ``(n, 1)``, or of sequences ``(n, time)`` or ``(n, time, 1)``.
        mask: of the same shape: the steps that count.
        eta: see above.

    Raises:
        ShapeError, CastError: they have other shapes, or are no numbers.
    """
    given = as_array(td_errors, "td_errors").astype(np.float64, copy=False)
    if mask is None and given.ndim == 1:
        return np.abs(given), None
    errors = np.abs(_by_time(given, "td_errors"))
    if mask is None:
        if errors.shape[1] == 1:
            return errors.reshape(-1), None
        counts = np.ones(errors.shape, bool)
    else:
        counts = _by_time(as_array(mask, "mask"), "mask") != 0
    if counts.shape != errors.shape:
        raise ShapeError(f"mask has shape {counts.shape}, expected that of td_errors {errors.shape}: one per step")
    has = np.asarray(counts.any(axis=1))
    largest = np.where(counts, errors, 0.0).max(axis=1, initial=0.0)
    steps = np.maximum(counts.sum(axis=1), 1)
    mean = np.minimum((np.where(counts, errors, 0.0) / steps[:, None]).sum(axis=1), largest)  # no sum is above it
    priorities: NDArray[np.float64] = eta * largest + (1.0 - eta) * mean
    return priorities, has


def _by_time(array: Array, name: str) -> Array:
    """Numbers of single steps or of sequences as ``(n, time)``."""
    if array.ndim == 3 and array.shape[2] == 1:
        return array[..., 0]
    if array.ndim not in (1, 2):
        raise ShapeError(f"{name} has shape {array.shape}, expected (n,), or of sequences (n, time)")
    return array[:, None] if array.ndim == 1 else array


def _goal_leaves(timeline: Timeline, hindsight: Hindsight) -> tuple[int, int]:
    """The observation leaves of the achieved and the desired goal."""
    every = timeline.observation.unflatten(range(len(timeline.observation.leaves)))
    achieved, desired = (every[key] for key in hindsight.goal_keys)
    return achieved, desired


def _steps(tensor: torch.Tensor, shape: tuple[int, ...]) -> Array:
    """A field as one array of steps, ``(n, *shape)``, sharing its memory."""
    array: Array = tensor.numpy()
    return array if array.ndim == len(shape) + 1 else _rows(array, shape)


def _rows(array: Array, shape: tuple[int, ...]) -> Array:
    """Items of this shape one after the other, ``(n, *shape)``; what -1 cannot say where an item has no numbers."""
    leading = array.shape[: array.ndim - len(shape)]
    return array if len(leading) == 1 else array.reshape(math.prod(leading), *shape)


def _field_names(timeline: Timeline) -> list[str]:
    space: Any = timeline.extra.space
    return list(space.spaces)
