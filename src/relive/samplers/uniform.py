"""Every step alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Uniform:
    """Draws every step with the same probability.

    Args:
        replacement: True draws independently. False draws in epochs: each step that was held when the epoch began comes
            once, in random order; those overwritten meanwhile drop out, new ones wait for the next epoch, and the last
            batch of an epoch is as short as what is left.
        over: of sequences: "transitions" makes all legal starts alike, so a long episode is drawn more often than a
            short one; "episodes" makes all episodes alike that have a legal start, then the starts of the one drawn.
    """

    replacement: bool = True
    over: Literal["transitions", "episodes"] = "transitions"

    def __post_init__(self) -> None:
        if self.over not in ("transitions", "episodes"):
            raise ValueError(f"over is {self.over!r}, expected 'transitions' or 'episodes'")
        if not self.replacement and self.over == "episodes":
            raise ValueError(
                "over='episodes' came with replacement=False, expected one of the two: an epoch has every start once, "
                "so long episodes come more often"
            )
