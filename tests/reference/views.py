"""The slow, obvious twin of every view: it knows, for each lane, a list of the steps held, and nothing else.

What a view makes of a step is said here from its definition, a few lines each: n-step windows, hindsight goals,
sequences and their legal starts, episodes, and which steps may be drawn at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Tree = Any  # an array, or a dict of trees


def tree_map(make: Callable[..., Any], first: Tree, *others: Tree) -> Tree:
    """Applies a function to every leaf of trees of one shape."""
    if isinstance(first, dict):
        return {key: tree_map(make, part, *(other[key] for other in others)) for key, part in first.items()}
    return make(first, *others)


def stack(trees: Sequence[Tree]) -> Tree:
    """Many trees as one, with a leading axis."""
    return tree_map(lambda *leaves: np.stack(leaves), *trees)


def same(one: Tree, other: Tree) -> bool:
    """Bit for bit."""
    equal: list[bool] = []
    tree_map(lambda a, b: equal.append(np.asarray(a).tobytes() == np.asarray(b).tobytes()), one, other)
    return all(equal)


def zeros(tree: Tree) -> Tree:
    return tree_map(np.zeros_like, tree)


@dataclass
class Step:
    """What one environment gave and got at one moment."""

    observation: Tree
    successor: Tree
    action: NDArray  # (width,)
    reward: NDArray  # reward_shape, float32
    done: float
    timeout: float
    extras: dict[str, NDArray] = field(default_factory=dict)
    interrupted: bool = False
    lane: int = -1
    number: int = -1
    since: int = -1  # the number of the first step of its episode

    @property
    def ends(self) -> bool:
        return bool(self.done or self.timeout or self.interrupted)

    @property
    def terminated(self) -> np.float32:
        """What is drawn as done: a time limit is no termination."""
        return np.float32(self.done) * (np.float32(1) - np.float32(self.timeout))


class Moment(NamedTuple):
    """A step as a view sees it: as recorded, or relabelled."""

    observation: Tree
    action: NDArray
    successor: Tree
    terminated: np.float32
    reward: NDArray
    ends: bool


class Row(NamedTuple):
    """One row of a batch."""

    observation: Tree
    action: NDArray
    successor: Tree
    done: NDArray  # (1,) float32
    reward: NDArray  # (1,) or reward_shape, float32
    discount: NDArray | None  # (1,) float32
    extras: dict[str, NDArray]


class Goals(NamedTuple):
    """How rows are relabelled."""

    compute_reward: Callable[..., Any]
    strategy: str = "future"
    compute_terminated: Callable[..., Any] | None = None
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    copy_info: tuple[str, ...] = ()
    running: bool = False


class Lanes:
    """``rows`` steps at most in each of ``lanes`` lanes; the oldest goes first."""

    def __init__(self, rows: int, lanes: int) -> None:
        self.rows, self.lanes = rows, lanes
        self.steps: list[list[Step]] = [[] for _ in range(lanes)]  # held, oldest first
        self.heads = [0] * lanes  # the number of the next step

    # What happens to them ------------------------------------------------------------------------------------------

    def append(self, lane: int, step: Step, *, detect: bool = False) -> bool:
        """Takes a step in; with ``detect`` one that does not follow on ends the episode before it. Whether it did."""
        steps = self.steps[lane]
        is_break = detect and bool(steps) and not steps[-1].ends and not same(steps[-1].successor, step.observation)
        if is_break:
            self.interrupt(lane)
        step.lane, step.number = lane, self.heads[lane]
        follows = bool(steps) and not steps[-1].ends
        step.since = steps[-1].since if follows else step.number
        steps.append(step)
        self.heads[lane] += 1
        del steps[: -self.rows]
        return is_break

    def interrupt(self, lane: int) -> None:
        if self.steps[lane]:
            self.steps[lane][-1].interrupted = True

    def reset(self) -> None:
        """Numbers go on at the next multiple of the rows."""
        self.steps = [[] for _ in range(self.lanes)]
        self.heads = [-(-head // self.rows) * self.rows for head in self.heads]

    def flags_were_written(self) -> None:
        """Says anew where episodes begin; what came before the oldest step stays what it was."""
        for steps in self.steps:
            for before, step in pairwise(steps):
                step.since = step.number if before.ends else before.since

    # Which steps there are -----------------------------------------------------------------------------------------

    def handle(self, step: Step) -> int:
        return step.number * self.lanes + step.lane

    def held(self) -> list[Step]:
        """Lane by lane, oldest first."""
        return [step for steps in self.steps for step in steps]

    def handles(self, steps: Sequence[Step] | None = None) -> list[int]:
        return [self.handle(step) for step in (self.held() if steps is None else steps)]

    def find(self, handle: int) -> Step:
        (step,) = (step for step in self.held() if self.handle(step) == handle)
        return step

    def pieces(self, lane: int) -> list[list[Step]]:
        """The episodes of a lane, as far as they are held: a lane is cut after every end."""
        pieces: list[list[Step]] = []
        for step in self.steps[lane]:
            if pieces and not pieces[-1][-1].ends:
                pieces[-1].append(step)
            else:
                pieces.append([step])
        return pieces

    def episodes(self, whole: bool) -> list[list[Step]]:
        """Lane by lane, oldest first; whole ones have ended and lost no step."""
        every = [piece for lane in range(self.lanes) for piece in self.pieces(lane)]
        return [e for e in every if not whole or (e[-1].ends and e[0].number == e[0].since)]

    def episode_of(self, step: Step) -> list[Step]:
        (piece,) = (piece for piece in self.pieces(step.lane) if any(step is other for other in piece))
        return piece

    def eligible(self, goals: Goals | None) -> list[Step]:
        """Every step held; with hindsight those of episodes that have ended, or of all where running ones count."""
        if goals is None or goals.running:
            return self.held()
        return [step for step in self.held() if self.episode_of(step)[-1].ends]

    # n-step --------------------------------------------------------------------------------------------------------

    def following(self, step: Step) -> list[Step]:
        """A step and all that follow it in its lane."""
        return [other for other in self.steps[step.lane] if other.number >= step.number]

    def row(
        self,
        step: Step,
        n_steps: int,
        gamma: float | str,
        goals: Goals | None = None,
        goal: NDArray | None = None,
        normalise_reward: Callable[[NDArray], NDArray] | None = None,
    ) -> Row:
        """The transition of a step; with a goal, what it would have been with that goal."""
        window: list[Moment] = []
        for other in self.following(step)[:n_steps]:
            window.append(as_recorded(other) if goal is None or goals is None else relabelled(other, goals, goal))
            if window[-1].ends:
                break
        reward = np.zeros(np.shape(step.reward), np.float64)
        weights = [1.0]  # of each reward, and last of what comes after the window
        for i, other in enumerate(self.following(step)[: len(window)]):
            weights.append(weights[-1] * float(other.extras[gamma]) if isinstance(gamma, str) else gamma ** (i + 1))
        for weight, moment in zip(weights, window, strict=False):
            given = moment.reward if normalise_reward is None else normalise_reward(moment.reward)
            reward += weight * given.astype(np.float32).astype(np.float64)
        return Row(
            window[0].observation,
            window[0].action,
            window[-1].successor,
            np.array([window[-1].terminated], np.float32),
            np.atleast_1d(reward.astype(np.float32)),
            None if n_steps == 1 and not isinstance(gamma, str) else np.array([weights[-1]], np.float32),
            step.extras,
        )

    # Hindsight -----------------------------------------------------------------------------------------------------

    def goals_of(self, step: Step, goals: Goals) -> list[Step]:
        """The steps after which the new goal of this step may have been reached, each equally likely."""
        episode = self.episode_of(step)
        return {
            "future": [other for other in episode if other.number >= step.number],
            "final": [episode[-1]],
            "episode": episode,
            "random": self.eligible(goals),
        }[goals.strategy]

    # Sequences -----------------------------------------------------------------------------------------------------

    def sequence(self, step: Step, length: int, cross_episodes: bool, align: str = "start") -> list[Step]:
        """The steps of a sequence that begins (or ends) here: ``length``, or fewer at its episode's or lane's end."""
        steps: list[Step] = []
        if align == "end":
            for other in reversed([other for other in self.steps[step.lane] if other.number <= step.number]):
                if len(steps) == length or (steps and other.ends and not cross_episodes):
                    break
                steps.insert(0, other)
            return steps
        for other in self.following(step)[:length]:
            steps.append(other)
            if other.ends and not cross_episodes:
                break
        return steps

    def legal_starts(
        self,
        length: int,
        stride: int,
        pad: str | None,
        cross_episodes: bool,
        goals: Goals | None = None,
        align: str = "start",
    ) -> list[Step]:
        """Where sequences begin, or with ``align="end"`` end: strides count from the first whole sequence."""
        first = 0 if align == "start" else length - 1
        return [
            step
            for step in self.eligible(goals)
            if (step.number - step.since - first) % stride == 0
            and (pad != "none" or len(self.sequence(step, length, cross_episodes, align)) == length)
        ]


def as_recorded(step: Step) -> Moment:
    return Moment(step.observation, step.action, step.successor, step.terminated, step.reward, step.ends)


def relabelled(step: Step, goals: Goals, goal: NDArray) -> Moment:
    """A step, had its goal been this one: reward, and done where there is a rule for it, are those of the new goal."""
    achieved = step.successor[goals.achieved][None]
    info = Infos([{key: step.extras[key] for key in goals.copy_info}])
    reward = np.float32(np.reshape(goals.compute_reward(achieved, goal[None], info), ()))
    moment = Moment(
        {**step.observation, goals.desired: goal},
        step.action,
        {**step.successor, goals.desired: goal},
        step.terminated,
        np.asarray(reward),
        step.ends,
    )
    if goals.compute_terminated is None:
        return moment
    is_reached = bool(np.reshape(goals.compute_terminated(achieved, goal[None], info), ()))
    return moment._replace(terminated=np.float32(is_reached), ends=moment.ends or is_reached)


class Infos(list[dict[str, Any]]):
    """A list of dicts that also answers a key with the array of all its values."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return np.stack([info[key] for info in self])
        return super().__getitem__(key)
