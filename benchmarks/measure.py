"""What a measure is: contenders that do equal work, and what relive must reach against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from benchmarks.timing import Entrant, time_interleaved

#: The contender that all others are compared to.
OURS = "relive"

Verdict = Literal["aim reached", "holds", "missed", ""]
Unit = Literal["seconds", "bytes", "error"]


@dataclass(frozen=True)
class Goal:
    """What the ratio to a peer should be.

    Attributes:
        sense: "≥": the ratio is the peer's cost by relive's, so relive is that many times as fast. "≤": it is
            relive's by the peer's, so relive takes that share of its time or bytes.
        must: what is promised, where anything is.
        aim: what would be better.
        absolute: a bound on the figure itself, which no peer has a part in.
    """

    sense: Literal["≥", "≤"]
    must: float | None
    aim: float | None = None
    absolute: bool = False

    def ratio(self, theirs: float, ours: float) -> float:
        """What is compared with the goal: ``theirs`` is the cost of the row that the goal stands in."""
        if self.absolute:
            return theirs
        return theirs / ours if self.sense == "≥" else ours / theirs

    def verdict(self, ratio: float) -> Verdict:
        """What a ratio says about the goal."""
        if self.must is not None and not self._reaches(ratio, self.must):
            return "missed"
        if self.aim is not None and self._reaches(ratio, self.aim):
            return "aim reached"
        return "holds" if self.must is not None else ""

    def _reaches(self, ratio: float, bound: float) -> bool:
        return ratio >= bound if self.sense == "≥" else ratio <= bound


def at_least(must: float | None, aim: float | None = None) -> Goal:
    """That relive is so many times as fast as a peer."""
    return Goal("≥", must, aim)


def at_most(must: float, aim: float | None = None) -> Goal:
    """That relive takes no more than this share of a peer's time or bytes."""
    return Goal("≤", must, aim)


def bounded(must: float) -> Goal:
    """That the figure of a row is no more than this."""
    return Goal("≤", must, absolute=True)


@dataclass(frozen=True)
class Cost:
    """What one operation costs a contender.

    Attributes:
        name: the contender.
        least: seconds, bytes or an error, the least of all rounds.
        median: the same, of the middle round: far from ``least`` on a machine that is not quiet.
        rounds: how many there were.
        note: how this contender differs from the others.
    """

    name: str
    least: float
    median: float
    rounds: int = 1
    note: str = ""


class Measure(Protocol):
    """A row group of the report."""

    @property
    def name(self) -> str:
        """How the command line calls it."""

    @property
    def title(self) -> str:
        """What is measured, for the table."""

    @property
    def unit(self) -> Unit:
        """Of costs."""

    @property
    def goals(self) -> Mapping[str, Goal]:
        """By contender."""

    def run(self, rounds: int, guests: Sequence[Entrant] = ()) -> list[Cost]:
        """Costs of all contenders, relive first and guests from other processes last."""


@dataclass(frozen=True)
class Timed:
    """Contenders timed side by side.

    Attributes:
        name: how the command line calls it.
        title: what is measured, for the table.
        contenders: builds them, relive first; what they hold is freed after the measure.
        goals: by contender.
        notes: by contender.
    """

    name: str
    title: str
    contenders: Callable[[], Sequence[Entrant]]
    goals: Mapping[str, Goal] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    unit: Unit = "seconds"

    def run(self, rounds: int, guests: Sequence[Entrant] = ()) -> list[Cost]:
        """Costs of all contenders, relive first and guests last; all take turns."""
        entrants = [*self.contenders(), *guests]
        timings = time_interleaved(entrants, rounds)
        return [
            Cost(entrant.name, timing.fastest, timing.median, timing.rounds, self._note(entrant))
            for entrant, timing in zip(entrants, timings, strict=True)
        ]

    def _note(self, entrant: Entrant) -> str:
        return ", ".join(filter(None, (self.notes.get(entrant.name), entrant.note)))
