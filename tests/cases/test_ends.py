"""Terminated, truncated, and what autoreset makes of them: cases of public reports, which each test names."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.chains import advantages, replay, step


def targets(buffer: relive.ReplayBuffer, gamma: float, value: float) -> list[float]:
    """One-step targets of everything held, as every off-policy learner computes them."""
    batch = buffer.transitions(buffer.handles())
    return (batch.rewards + gamma * (1 - batch.dones) * value).flatten().tolist()


def test_B01_termination_wins_over_truncation() -> None:
    """takuseno/d3rlpy PR #463, DLR-RM/stable-baselines3#1276, openai/gym PR #1402."""
    buffer = replay(4)
    step(buffer, 0, 1, reward=1, terminated=True, truncated=True)
    assert targets(buffer, 0.9, 10) == [1]


def test_B02_truncation_alone_still_bootstraps() -> None:
    """rail-berkeley/hil-serl#20, jsboige/CoursIA PR #7821, hill-a/stable-baselines#863."""
    buffer = replay(4)
    step(buffer, 0, 1, reward=1, truncated=True)
    step(buffer, 0, 1, reward=1, terminated=True)
    assert targets(buffer, 0.99, 50) == pytest.approx([50.5, 1])
    assert buffer.dones[:2].tolist() == [[1], [1]]  # two flags are kept: both ended,
    assert buffer.timeouts[:2].tolist() == [[1], [0]]  # one by truncation


@pytest.mark.parametrize(("handled", "drawn"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("words", [False, True], ids=["done and infos", "truncated"])
def test_B03_a_time_limit_counts_as_termination_only_where_it_is_not_handled(
    handled: bool, drawn: float, words: bool
) -> None:
    """DLR-RM/stable-baselines3#829, #284."""
    buffer = replay(4, handle_timeout_termination=handled)
    if words:
        step(buffer, 0, 1, truncated=True)
    else:
        buffer.add([0], [1], 0, 0.0, True, [{"TimeLimit.truncated": True}])
    assert buffer.sample(1).dones.item() == drawn
    assert buffer.dones[0, 0] == 1  # in both cases the end itself stays known


def test_B05_a_truncated_step_bootstraps_from_its_final_observation() -> None:
    """leggedrobotics/rsl_rl#20, #151."""
    cut = {"truncated": True, "final_value": 8}
    buffer = advantages([0], [2], 99, gamma=0.5, gae_lambda=1, ends={0: cut})
    assert buffer.advantages.item() == 2
    assert buffer.rewards.item() == 0  # what is stored is what the environment gave


def test_B06_truncation_cuts_the_sum_of_advantages() -> None:
    """Toni-SM/skrl#224."""
    cut = {"truncated": True, "final_value": 3}
    buffer = advantages([0, 0], [0, 0], 100, gamma=1, gae_lambda=1, ends={0: cut})
    assert buffer.advantages.flatten().tolist() == [3, 100]


def test_B07_every_step_carries_its_own_flag() -> None:
    """nicklashansen/puppeteer#2."""
    buffer = replay(4)
    for t in range(3):
        step(buffer, t, t + 1, reward=1, terminated=t == 2)
    batch = buffer.transitions(buffer.handles())
    assert batch.dones.flatten().tolist() == [0, 0, 1]
    assert targets(buffer, 0.9, 10) == [10, 10, 1]


@pytest.mark.parametrize(
    ("end", "expected"),
    [({"terminated": True}, [1, -1, 2]), ({"truncated": True}, [10, 8, 2])],
    ids=["terminated", "truncated"],
)
def test_C03_the_reset_row_is_no_step(end: dict[str, Any], expected: list[float]) -> None:
    """farama.org/Vector-Autoreset-Mode.

    NEXT_STEP autoreset: row 2 shows the final observation, so its value is V(final), and nothing was done there.
    """
    ends = {1: end, 2: {"mask": np.array([False])}}
    buffer = advantages([1, 1, 0, 1], [1, 2, 9, 3], 4, gamma=1, gae_lambda=1, ends=ends)
    assert buffer.advantages[[0, 1, 3], 0].tolist() == expected
    drawn = next(iter(buffer.get())).observations.flatten().tolist()
    assert sorted(drawn) == [0, 1, 3]
