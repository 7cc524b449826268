"""n-step transitions: cases of public reports, which each test names; and faults seen in other libraries."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.chains import ACTION, NUMBER, replay, step

Drawn = dict[int, tuple[float, float, float, float]]


def drawn(buffer: relive.ReplayBuffer) -> Drawn:
    """First observation → (return, discount, done, last next observation), of everything that can be drawn."""
    rows: Drawn = {}
    for _ in range(3):
        batch = buffer.sample(300)
        fields = (batch.observations, batch.rewards, batch.discounts, batch.dones, batch.next_observations)
        for obs, reward, discount, done, following in np.concatenate([f.numpy() for f in fields], axis=1).tolist():
            row = tuple(round(value, 5) for value in (reward, discount, done, following))
            assert rows.setdefault(int(obs), row) == row
    return rows


def chain(rewards: list[float], n_steps: int, gamma: float, end: dict[str, bool], rows: int = 20) -> Any:
    """One episode 0 → 1 → 2 …, whose last step ends so."""
    buffer = replay(rows, n_steps=n_steps, gamma=gamma, seed=0)
    for t, reward in enumerate(rewards):
        step(buffer, t, t + 1, reward=reward, **(end if t == len(rewards) - 1 else {}))
    return buffer


def test_F02_a_short_window_has_the_discount_of_its_real_length() -> None:
    """ray-project/ray#4626."""
    assert drawn(chain([1, 1], 3, 0.9, {}))[0] == (1.9, 0.81, 0, 2)
    assert drawn(chain([1, 1], 3, 0.9, {"terminated": True}))[0] == (1.9, 0.81, 1, 2)


def test_F03_a_window_stays_in_its_episode() -> None:
    """tensorflow/agents#939, BY571/DQN-Atari-Agents#8."""
    buffer = replay(20, n_steps=3, gamma=1.0, seed=0)
    step(buffer, 0, 1, reward=1)
    step(buffer, 1, 2, reward=1, truncated=True)
    for t in (10, 11, 12):
        step(buffer, t, t + 1, reward=100)
    assert drawn(buffer)[0] == (2, 1, 0, 2)
    assert drawn(buffer)[1] == (1, 1, 0, 2)
    assert drawn(buffer)[10] == (300, 1, 0, 13)


def test_F04_five_steps_of_one_episode() -> None:
    """ray-project/ray PR #18358, ray-project/ray#17844, #18034."""
    assert drawn(chain([1] * 5, 3, 0.9, {"terminated": True})) == {
        0: (2.71, 0.729, 0, 3),
        1: (2.71, 0.729, 0, 4),
        2: (2.71, 0.729, 1, 5),
        3: (1.9, 0.81, 1, 5),
        4: (1, 0.9, 1, 5),
    }


def test_F05_environments_do_not_mix() -> None:
    """chainer/chainerrl PR #442."""
    buffer = relive.ReplayBuffer(20, NUMBER, ACTION, device="cpu", n_envs=2, n_steps=2, gamma=1.0, seed=0)
    for t in range(3):
        obs = np.array([[t], [t + 100]])
        buffer.add(obs, obs + 1, [0, 0], [t + 1, 10 * (t + 1)], [False, False])
    rows = drawn(buffer)
    assert {obs: row[0] for obs, row in rows.items()} == {0: 3, 1: 5, 2: 3, 100: 30, 101: 50, 102: 30}
    assert rows[0][3] == 2
    assert rows[100][3] == 102


def test_F06_an_episode_has_one_terminal_step_and_no_invented_ones() -> None:
    """google/dopamine#228: several terminal steps are stored there."""
    buffer = replay(20, seed=0)
    for t in range(8):
        step(buffer, t, t + 1, terminated=t == 7)
    batch = buffer.transitions(buffer.handles())
    assert batch.observations.flatten().tolist() == list(range(8))
    assert batch.dones.flatten().tolist() == [0] * 7 + [1]
    assert sorted(drawn(chain([0] * 8, 3, 1.0, {"terminated": True}))) == list(range(8))


# Faults seen in other libraries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "done"),
    [({"terminated": True}, 1), ({"truncated": True}, 0), ({}, 0)],
    ids=["terminated", "time limit", "open: the head of the lane"],
)
def test_the_last_steps_have_the_last_observation(end: dict[str, bool], done: float) -> None:
    """cpprb: after a time limit the last n - 1 rows have a next observation of 1.0, the fill value, and done 0."""
    rows = drawn(chain([1, 2, 4, 8, 16, 32], 4, 1.0, end))
    assert {obs: row[0] for obs, row in rows.items()} == {0: 15, 1: 30, 2: 60, 3: 56, 4: 48, 5: 32}
    assert {obs: row[3] for obs, row in rows.items()} == {0: 4, 1: 5, 2: 6, 3: 6, 4: 6, 5: 6}
    assert {obs: row[2] for obs, row in rows.items()} == {0: 0, 1: 0, 2: done, 3: done, 4: done, 5: done}


@pytest.mark.parametrize("end", [{"terminated": True}, {"truncated": True}], ids=["terminated", "truncated"])
def test_every_start_of_an_episode_is_drawn(end: dict[str, bool]) -> None:
    """RLlib never draws starts 8 and 9 of ten at n = 3; CleanRL's Rainbow drops the last n - 1 as well."""
    assert sorted(drawn(chain([1] * 10, 3, 0.99, end))) == list(range(10))


def test_a_window_does_not_reach_over_the_write_head() -> None:
    """younggyoseo/FastTD3#6: n-step crossed it, and used gamma once."""
    buffer = chain([1] * 13, 3, 0.5, {}, rows=5)
    assert drawn(buffer) == {
        8: (1.75, 0.125, 0, 11),
        9: (1.75, 0.125, 0, 12),
        10: (1.75, 0.125, 0, 13),
        11: (1.5, 0.25, 0, 13),
        12: (1, 0.5, 0, 13),
    }


def test_windows_of_interleaved_lanes_never_mix() -> None:
    """TorchRL's slices over a one-dimensional storage mix environments every time; with lanes that fall apart, too."""
    buffer = relive.ReplayBuffer(12, NUMBER, ACTION, device="cpu", n_envs=3, n_steps=4, gamma=1.0, seed=0)
    rng, numbers = np.random.default_rng(0), np.zeros(3, int)
    for _ in range(40):
        mask = rng.random(3) < 0.6
        obs = (numbers + np.array([0, 1000, 2000]))[:, None]
        buffer.add(obs, obs + 1, [0] * 3, [1, 10, 100], [False] * 3, mask=mask)
        numbers += mask
    for obs, (reward, _, _, following) in drawn(buffer).items():
        length = following - obs
        assert 1 <= length <= 4
        assert reward == length * {0: 1, 1: 10, 2: 100}[obs // 1000]


def test_an_interrupted_stream_is_not_joined_to_what_comes_next() -> None:
    buffer = replay(20, n_steps=3, gamma=1.0, seed=0)
    step(buffer, 0, 1, reward=1)
    buffer.interrupt()
    step(buffer, 1, 2, reward=100)  # as it happens with the observation that was due
    assert drawn(buffer) == {0: (1, 1, 0, 1), 1: (100, 1, 0, 2)}


def test_what_is_relabelled_counts_in_every_window() -> None:
    buffer = chain([1] * 4, 2, 1.0, {})
    buffer.set(buffer.handles()[1:2], reward=[50.0])
    assert {obs: row[0] for obs, row in drawn(buffer).items()} == {0: 51, 1: 51, 2: 2, 3: 1}
    buffer.set(buffer.handles()[1:2], done=[True])
    assert {obs: row[0] for obs, row in drawn(buffer).items()} == {0: 51, 1: 50, 2: 2, 3: 1}


@pytest.mark.parametrize(
    ("option", "value"), [("n_steps", 0), ("n_steps", -1), ("gamma", -0.1), ("gamma", 1.1), ("gamma", np.nan)]
)
def test_options_are_checked_by_name(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        replay(4, **{option: value})
