"""Tables of what is added and what may be drawn: Acme's table of adder cases, written anew.

Theirs is ``acme/adders/reverb/test_cases.py`` of google-deepmind/acme. Acme adds rows for windows that begin before the
episode does; relive has one row for every step. Its period is our stride, its WRITE and ZERO_PAD are ``pad="end"``, its
TRUNCATE is ``pad="none"``, its CONTINUE ``cross_episodes=True``. Observations are numbers; a step is (observation,
reward, how it ends: "" or "T" terminated or "L" time limit).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Steps = list[tuple[float, Any, str]]


@dataclass(frozen=True)
class NStepCase:
    """``rows``: (observation, return, discount, terminated, next observation) of every step."""

    name: str
    n_steps: int
    gamma: float
    steps: Steps
    seen_last: list[float]  # what was seen after each end, and after the newest step
    rows: list[tuple[float, Any, float, int, float]]
    reward_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class SequenceCase:
    """``rows``: the observations of every sequence, without padding."""

    name: str
    length: int
    steps: Steps
    seen_last: list[float]
    rows: list[tuple[float, ...]]
    options: dict[str, Any] = field(default_factory=dict)


N_STEP = [
    NStepCase(
        "one step",
        1,
        0.5,
        [(1, 1, ""), (2, 1, ""), (3, 1, "T")],
        [4],
        [(1, 1, 0.5, 0, 2), (2, 1, 0.5, 0, 3), (3, 1, 0.5, 1, 4)],
    ),
    NStepCase(
        "two steps",
        2,
        0.5,
        [(1, 1, ""), (2, 1, ""), (3, 1, "T")],
        [4],
        [(1, 1.5, 0.25, 0, 3), (2, 1.5, 0.25, 1, 4), (3, 1, 0.5, 1, 4)],
    ),
    NStepCase(
        "an episode shorter than n",
        5,
        0.5,
        [(1, 1, ""), (2, 2, ""), (3, 4, "T")],
        [4],
        [(1, 3, 0.125, 1, 4), (2, 4, 0.25, 1, 4), (3, 4, 0.5, 1, 4)],
    ),
    NStepCase(
        "an episode as long as n",
        3,
        1.0,
        [(1, 1, ""), (2, 2, ""), (3, 4, "T")],
        [4],
        [(1, 7, 1, 1, 4), (2, 6, 1, 1, 4), (3, 4, 1, 1, 4)],
    ),
    NStepCase("an episode of one step", 3, 0.5, [(1, 8, "T")], [2], [(1, 8, 0.5, 1, 2)]),
    NStepCase("an episode of one step, cut", 3, 0.5, [(1, 8, "L")], [2], [(1, 8, 0.5, 0, 2)]),
    NStepCase(
        "cut by a time limit",
        2,
        0.5,
        [(1, 1, ""), (2, 1, ""), (3, 1, "L")],
        [4],
        [(1, 1.5, 0.25, 0, 3), (2, 1.5, 0.25, 0, 4), (3, 1, 0.5, 0, 4)],
    ),
    NStepCase(
        "an open episode",
        3,
        0.5,
        [(1, 1, ""), (2, 2, "")],
        [3],
        [(1, 2, 0.25, 0, 3), (2, 2, 0.5, 0, 3)],
    ),
    NStepCase(
        "two episodes",
        2,
        1.0,
        [(1, 1, ""), (2, 2, "L"), (10, 100, ""), (11, 200, "T"), (20, 5, "")],
        [3, 12, 21],
        [(1, 3, 1, 0, 3), (2, 2, 1, 0, 3), (10, 300, 1, 1, 12), (11, 200, 1, 1, 12), (20, 5, 1, 0, 21)],
    ),
    NStepCase(
        "a reward of several numbers",
        2,
        0.5,
        [(1, (1, 10), ""), (2, (2, 20), ""), (3, (4, 40), "T")],
        [4],
        [(1, (2, 20), 0.25, 0, 3), (2, (4, 40), 0.25, 1, 4), (3, (4, 40), 0.5, 1, 4)],
        reward_shape=(2,),
    ),
]

ONE = [(1, 1, ""), (2, 1, ""), (3, 1, ""), (4, 1, ""), (5, 1, "T")]  # one episode of five
TWO = [(1, 1, ""), (2, 1, ""), (3, 1, "T"), (11, 1, ""), (12, 1, "L"), (21, 1, ""), (22, 1, "")]

SEQUENCES = [
    SequenceCase("period one", 3, ONE, [6], [(1, 2, 3), (2, 3, 4), (3, 4, 5)], {"pad": "none"}),
    SequenceCase("period two", 3, ONE, [6], [(1, 2, 3), (3, 4, 5)], {"stride": 2, "pad": "none"}),
    SequenceCase("period three", 3, ONE, [6], [(1, 2, 3)], {"stride": 3, "pad": "none"}),
    SequenceCase("period one, padded", 3, ONE, [6], [(1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5), (5,)]),
    SequenceCase("period two, padded", 3, ONE, [6], [(1, 2, 3), (3, 4, 5), (5,)], {"stride": 2}),
    SequenceCase("period three, padded", 3, ONE, [6], [(1, 2, 3), (4, 5)], {"stride": 3}),
    SequenceCase("terminated early", 4, ONE[2:], [6], [], {"pad": "none"}),
    SequenceCase("terminated early, padded", 4, ONE[2:], [6], [(3, 4, 5), (4, 5), (5,)]),
    SequenceCase("as long as the episode", 5, ONE, [6], [(1, 2, 3, 4, 5)], {"pad": "none"}),
    SequenceCase("several ends, truncated", 2, TWO, [4, 13, 23], [(1, 2), (2, 3), (11, 12), (21, 22)], {"pad": "none"}),
    SequenceCase(
        "several ends, written",
        2,
        TWO,
        [4, 13, 23],
        [(1, 2), (2, 3), (3,), (11, 12), (12,), (21, 22), (22,)],
    ),
    SequenceCase(
        "several ends, continued",
        3,
        TWO,
        [4, 13, 23],
        [(1, 2, 3), (2, 3, 11), (3, 11, 12), (11, 12, 21), (12, 21, 22)],
        {"pad": "none", "cross_episodes": True},
    ),
    SequenceCase(
        "several ends, continued and padded",
        3,
        TWO,
        [4, 13, 23],
        [(1, 2, 3), (2, 3, 11), (3, 11, 12), (11, 12, 21), (12, 21, 22), (21, 22), (22,)],
        {"cross_episodes": True},
    ),
    SequenceCase(
        "several ends, continued with period two",
        3,
        TWO,
        [4, 13, 23],
        [(1, 2, 3), (3, 11, 12), (11, 12, 21), (21, 22)],
        {"stride": 2, "cross_episodes": True},
    ),
]
