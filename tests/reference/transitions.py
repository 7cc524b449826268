"""The slow, obvious twin of a replay buffer: a list of whole transitions for each lane.

Every step keeps copies of both its observations. Nothing is shared, nothing derived, nothing clever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Leaves = Sequence[NDArray]  # one array for every leaf of a space

_serials = count()


@dataclass
class Transition:
    """One step of one lane. ``serial`` tells it from every other step there ever was.

    A step that is not held may lose its definition: what lies in its place is then nobody's promise.
    """

    observation: list[NDArray]
    successor: list[NDArray]
    action: list[NDArray]
    reward: np.float32
    done: np.float32
    timeout: np.float32
    interrupted: bool | None = False  # None: not known
    is_defined: bool = True
    serial: int = field(default_factory=lambda: next(_serials))


def are_alike(one: NDArray, other: NDArray, tolerance: float) -> bool:
    """Whether no two numbers are further apart; NaN is alike to NaN."""
    for a, b in zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True):
        if not (a == b or abs(a - b) <= tolerance or (a != a and b != b)):
            return False
    return True


class TransitionRing:
    """``rows`` places for each of ``lanes`` lanes.

    Args:
        rows: steps held per lane.
        lanes: streams of steps.
        observation: a zero observation, ``(*shape,)`` for every leaf: what a place holds that was never written.
        action: the same of an action.
    """

    def __init__(self, rows: int, lanes: int, observation: Leaves, action: Leaves) -> None:
        self.rows = rows
        self.lanes = lanes
        self.places: list[list[Transition]] = [
            [
                Transition(
                    [leaf.copy() for leaf in observation],
                    [leaf.copy() for leaf in observation],
                    [leaf.copy() for leaf in action],
                    np.float32(0),
                    np.float32(0),
                    np.float32(0),
                )
                for _ in range(rows)
            ]
            for _ in range(lanes)
        ]
        self.position = [0] * lanes
        self.count = [0] * lanes
        # Places written since the last reset; the others say nothing about what was seen after them.
        self.written = [[False] * rows for _ in range(lanes)]

    # Writing -------------------------------------------------------------------------------------------------------

    def append(
        self,
        observation: Leaves,
        successor: Leaves,
        action: Leaves,
        reward: NDArray,
        done: NDArray,
        timeout: NDArray,
        mask: NDArray | None = None,
        tolerance: float | None = None,
    ) -> int:
        """One step of every lane, or of those in ``mask``; all arrays have a leading axis of lanes.

        With a tolerance a lane whose step does not follow on is interrupted before it. Returns how many those were.
        """
        breaks = 0
        for lane in range(self.lanes):
            if mask is not None and not mask[lane]:
                continue
            if tolerance is not None and self.is_break(lane, [leaf[lane] for leaf in observation], tolerance):
                self.interrupt(lane)
                breaks += 1
            row = self.position[lane]
            if self.count[lane] == 0 and self.written[lane][row - 1]:
                # Not held, and nobody says any more what was seen after it.
                self.places[lane][row - 1].is_defined = False
            self.places[lane][row] = Transition(
                [leaf[lane].copy() for leaf in observation],
                [leaf[lane].copy() for leaf in successor],
                [leaf[lane].copy() for leaf in action],
                np.float32(reward[lane]),
                np.float32(done[lane]),
                np.float32(timeout[lane]),
            )
            self.written[lane][row] = True
            self.position[lane] = (row + 1) % self.rows
            self.count[lane] = min(self.count[lane] + 1, self.rows)
        return breaks

    def is_break(self, lane: int, observation: Leaves, tolerance: float) -> bool:
        """Whether the next step of a lane does not follow on, with no end said."""
        if not self.count[lane]:
            return False
        last = self.held_of(lane)[-1]
        if last.done or last.timeout or last.interrupted:
            return False
        return not all(
            are_alike(seen, given, tolerance) for seen, given in zip(last.successor, observation, strict=True)
        )

    def extend(
        self,
        observation: Leaves,
        successor: Leaves,
        action: Leaves,
        reward: NDArray,
        done: NDArray,
        timeout: NDArray,
        tolerance: float | None = None,
    ) -> int:
        """Many steps: all arrays have leading axes (steps, lanes)."""
        return sum(
            self.append(
                [leaf[step] for leaf in observation],
                [leaf[step] for leaf in successor],
                [leaf[step] for leaf in action],
                reward[step],
                done[step],
                timeout[step],
                tolerance=tolerance,
            )
            for step in range(len(reward))
        )

    def interrupt(self, lane: int) -> None:
        """The stream of a lane was cut after its newest step."""
        if self.count[lane]:
            self.held_of(lane)[-1].interrupted = True

    def reset(self) -> None:
        """Forgets everything; what lies in the places stays, but nobody knows any more what came after it."""
        self.position = [0] * self.lanes
        self.count = [0] * self.lanes
        self.written = [[False] * self.rows for _ in range(self.lanes)]

    def declare(self, position: int, full: bool) -> None:
        """Says of every lane that the rows before ``position``, or all, are held."""
        for lane in range(self.lanes):
            self.position[lane] = position
            self.count[lane] = self.rows if full else position
        self._settle()

    def assign(self, name: str, leaf: int | None, values: NDArray) -> None:
        """Overwrites a field, or one leaf of it, of all rows: ``(rows, lanes, ...)``."""
        for lane in range(self.lanes):
            held = {id(step) for step in self.held_of(lane)}
            for row, step in enumerate(self.places[lane]):
                if leaf is None:
                    setattr(step, name, np.float32(values[row, lane]))
                else:
                    getattr(step, name)[leaf] = values[row, lane].copy()
                if name == "successor":
                    self.written[lane][row] = True
                if name == "observation" and id(step) not in held and self.written[lane][row]:
                    step.is_defined = False  # its successor may have been what was overwritten now

    def fill(self, every_field: Mapping[str, Any]) -> None:
        """Overwrites all fields of all rows: leaves for observation, successor and action, arrays for the others."""
        for lane in range(self.lanes):
            for row, step in enumerate(self.places[lane]):
                for name in ("observation", "successor", "action"):
                    setattr(step, name, [leaf[row, lane].copy() for leaf in every_field[name]])
                for name in ("reward", "done", "timeout"):
                    setattr(step, name, np.float32(every_field[name][row, lane]))
                step.is_defined = True
                self.written[lane][row] = True

    def forget_rows_not_held(self) -> None:
        """What a copy does, which takes along held steps only."""
        for lane in range(self.lanes):
            held = {id(step) for step in self.held_of(lane)}
            for step in self.places[lane]:
                if id(step) not in held:
                    step.is_defined, step.interrupted = False, None

    def _settle(self) -> None:
        """A held place that was never written has the observation of the next row as its successor."""
        for lane in range(self.lanes):
            for row in self.rows_held(lane):
                step, after = self.places[lane][row], self.places[lane][(row + 1) % self.rows]
                assert step.is_defined and after.is_defined, "the test declares only rows that it knows"
                if not self.written[lane][row]:
                    step.successor = [leaf.copy() for leaf in after.observation]
                    self.written[lane][row] = True

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def knows_every_row(self) -> bool:
        return all(step.is_defined for lane in self.places for step in lane)

    @property
    def in_lockstep(self) -> bool:
        return len(set(self.position)) == 1 and len(set(self.count)) == 1

    def rows_held(self, lane: int) -> list[int]:
        """Oldest first."""
        oldest = self.position[lane] - self.count[lane]
        return [(oldest + i) % self.rows for i in range(self.count[lane])]

    def held_of(self, lane: int) -> list[Transition]:
        """Oldest first."""
        return [self.places[lane][row] for row in self.rows_held(lane)]

    def held(self) -> list[Transition]:
        """Lane by lane, oldest first."""
        return [step for lane in range(self.lanes) for step in self.held_of(lane)]

    def successors_kept_apart(self) -> int:
        """How many held steps, besides the newest of each lane, have a successor that the next row does not hold."""
        wanted = 0
        for lane in range(self.lanes):
            steps = self.held_of(lane)
            for step, after in pairwise(steps):
                wanted += any(
                    a.tobytes() != b.tobytes() for a, b in zip(step.successor, after.observation, strict=True)
                )
        return wanted
