"""Hindsight: cases of public reports, which each test names; and faults seen in other libraries."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive
from tests.cases.goals import SPACE, at, buffer_of, episode, goals_drawn, is_reached

STRATEGIES = ["future", "final", "episode", "random"]


def test_G02_a_wrapped_episode_has_goals_of_its_own() -> None:
    """thu-ml/tianshou#811."""
    buffer = buffer_of(5)
    episode(buffer, 0, [1, 2, 3])
    episode(buffer, 10, [11, 12, 13, 14])
    assert goals_drawn(buffer) == {
        3: {3},  # what is left of the first one
        11: {11, 12, 13, 14},
        12: {12, 13, 14},
        13: {13, 14},
        14: {14},
    }


def test_G03_after_each_of_two_hundred_steps() -> None:
    """DLR-RM/stable-baselines3#234, PR #236."""
    buffer = buffer_of(64)
    for t in range(200):
        buffer.add(at(t, -1), at(t + 1, -1), [0], [0.0], terminated=[t % 10 == 9])
        if t < 9:
            assert not buffer.can_sample
            continue
        ended = (t + 1) // 10 * 10  # steps before this belong to episodes that have ended
        for after, goals in goals_drawn(buffer, batches=1).items():
            number = after - 1
            assert max(0, t - 63) <= number < ended
            assert all(after <= goal <= number // 10 * 10 + 10 for goal in goals)


def test_G04_nothing_can_be_drawn_before_an_episode_has_ended() -> None:
    """DLR-RM/rl-baselines3-zoo#433, hill-a/stable-baselines#353."""
    buffer = buffer_of(8)
    episode(buffer, 0, [1], end=None)
    assert not buffer.can_sample
    with pytest.raises(RuntimeError, match="learning_starts") as raised:
        buffer.sample(1)
    assert isinstance(raised.value, relive.errors.EmptyBufferError)
    episode(buffer, 1, [2])
    assert buffer.can_sample
    assert len(buffer.sample(1).actions) == 1


@pytest.mark.parametrize("way", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("restarted", [True, False], ids=["the environment began anew", "the episode goes on"])
def test_G05_saved_in_mid_episode(way: Callable, restarted: bool) -> None:
    """DLR-RM/stable-baselines3#1542, PR #1543.

    SB3 closes the open episode when it loads; relive keeps it open until told that the stream was cut.
    """
    buffer = buffer_of(20)
    episode(buffer, 0, [1, 2], end=None)
    buffer = way(buffer)
    if restarted:
        buffer.interrupt()
        episode(buffer, 10, [11, 12, 13, 14, 15, 16])
        assert [len(e.rewards) for e in buffer.episodes()] == [2, 6]  # never 8
        assert goals_drawn(buffer)[1] == {1, 2}
    else:
        episode(buffer, 2, [3, 4, 5, 6])
        assert [len(e.rewards) for e in buffer.episodes()] == [6]
        assert goals_drawn(buffer)[1] == {1, 2, 3, 4, 5, 6}


def test_G06_the_order_and_the_shapes_of_compute_reward() -> None:
    """hill-a/stable-baselines#728, DLR-RM/stable-baselines3#854, qgallouedec/panda-gym#81.

    Achieved 5 and 6, new goals 1 and 2: 4 and 4. Here: achieved 5 then 6, the last goal is 6: -1 and 0.
    """
    seen: list[tuple[Any, ...]] = []

    def difference(achieved: Any, desired: Any, info: Any) -> Any:
        seen.append((achieved.shape, desired.shape, len(info), achieved.dtype, isinstance(info[0], dict)))
        return (achieved - desired)[:, 0]

    buffer = buffer_of(8, difference, strategy="final", n_sampled_goal=4)
    episode(buffer, 4, [5, 6])
    batch = buffer.sample(10)
    assert seen == [((8, 1), (8, 1), 8, np.float32, True)]
    assert batch.rewards.shape == (10, 1)
    for row in np.flatnonzero(batch.relabelled):
        achieved = batch.next_observations["achieved_goal"][row].item()
        assert batch.rewards[row].item() == achieved - 6


@pytest.mark.parametrize("hook", [True, False], ids=["with a rule for the end", "without"])
def test_G07_a_reached_goal_ends_where_there_is_a_rule_for_it(hook: bool) -> None:
    """rail-berkeley/rlkit#96, Farama-Foundation/Gymnasium-Robotics#16."""
    rule = (lambda a, d, i: is_reached(a, d, i) > 0) if hook else None
    buffer = buffer_of(8, compute_terminated=rule)
    episode(buffer, 0, [1, 2, 3], goal=9, end="truncated")
    batch = buffer.sample(200)
    after = batch.next_observations["achieved_goal"].flatten().numpy()
    reached = after == batch.observations["desired_goal"].flatten().numpy()
    assert reached[batch.relabelled].any() and not reached[batch.relabelled].all()
    assert batch.rewards.flatten().tolist() == reached.astype(float).tolist()
    assert batch.dones.flatten().tolist() == (reached * float(hook)).tolist()


def test_G07_an_end_recorded_for_the_old_goal_does_not_hold_for_a_new_one() -> None:
    """rail-berkeley/rlkit#96, Farama-Foundation/Gymnasium-Robotics#16."""
    buffer = buffer_of(8, strategy="random", compute_terminated=lambda a, d, i: is_reached(a, d, i) > 0)
    episode(buffer, 0, [1, 2], goal=2, end="terminated")
    batch = buffer.sample(200)
    for row in range(200):
        after = batch.next_observations["achieved_goal"][row].item()
        goal = batch.observations["desired_goal"][row].item()
        assert batch.dones[row].item() == (after == goal)


@pytest.mark.parametrize("n_steps", [2, 3])
def test_G07_with_several_steps_the_window_ends_at_the_goal(n_steps: int) -> None:
    """rail-berkeley/rlkit#96, Farama-Foundation/Gymnasium-Robotics#16."""
    buffer = buffer_of(
        8, n_steps=n_steps, gamma=0.5, strategy="final", compute_terminated=lambda a, d, i: is_reached(a, d, i) > 0
    )
    episode(buffer, 0, [1, 7, 3, 7], end="truncated")  # the goal of the last step is reached by the second, too
    batch = buffer.sample(300)
    rows = {
        (o, n, r, d, g)
        for o, n, r, d, g, new in zip(
            batch.observations["observation"].flatten().tolist(),
            batch.next_observations["observation"].flatten().tolist(),
            batch.rewards.flatten().tolist(),
            batch.dones.flatten().tolist(),
            batch.discounts.flatten().tolist(),
            batch.relabelled,
            strict=True,
        )
        if new
    }
    # Observation 7 is that before the third step; no window reaches from before the second step to behind it.
    assert rows == {(0, 7, 0.5, 1, 0.25), (1, 7, 1, 1, 0.5), (7, 7, 0.5, 1, 0.25), (3, 7, 1, 1, 0.5)}


def test_G08_info_is_copied_where_asked_for() -> None:
    """hill-a/stable-baselines#794."""
    buffer = buffer_of(8, lambda a, d, info: info["w"], copy_info=("w",))
    episode(buffer, 0, [1, 2], info={"w": 3})
    batch = buffer.sample(20)
    assert set(batch.rewards.flatten()[batch.relabelled].tolist()) == {3}
    one_by_one = buffer_of(8, lambda a, d, info: np.array([one["w"] for one in info]), copy_info=("w",))
    episode(one_by_one, 0, [1, 2], info={"w": 3})
    batch = one_by_one.sample(20)
    assert set(batch.rewards.flatten()[batch.relabelled].tolist()) == {3}


def test_G08_info_that_was_not_copied_is_a_clear_error() -> None:
    """hill-a/stable-baselines#794."""
    for reward in (lambda a, d, info: info["w"], lambda a, d, info: np.array([one["w"] for one in info])):
        buffer = buffer_of(8, reward)
        episode(buffer, 0, [1, 2], info={"w": 3})
        with pytest.raises(KeyError, match="w"):
            buffer.sample(20)


def test_G09_episodes_of_one_step_reach_their_own_goal() -> None:
    """hill-a/stable-baselines#578."""
    for strategy in ("future", "final", "episode"):
        buffer = buffer_of(8, strategy=strategy)
        for number in range(12):
            episode(buffer, 100, [number])
        batch = buffer.sample(50)
        assert (batch.rewards.flatten().numpy() == batch.relabelled).all()
        assert goals_drawn(buffer) == {float(n): {float(n)} for n in range(4, 12)}


# Faults seen in other libraries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("future", {5: {5, 6}, 6: {6}, 11: {11, 12, 13}, 12: {12, 13}, 13: {13}}),
        ("final", {5: {6}, 6: {6}, 11: {13}, 12: {13}, 13: {13}}),
        ("episode", {5: {5, 6}, 6: {5, 6}, 11: {11, 12, 13}, 12: {11, 12, 13}, 13: {11, 12, 13}}),
        ("random", {after: {5, 6, 11, 12, 13} for after in (5, 6, 11, 12, 13)}),
    ],
)
def test_a_full_ring_with_a_wrapped_episode_and_an_open_one(strategy: str, expected: Any, end: str) -> None:
    """TorchRL's 'final' and 'episode' take the goals of another episode in a fifth of such draws."""
    buffer = buffer_of(7, strategy=strategy)
    episode(buffer, 0, [1, 2, 3, 4, 5, 6], end=end)
    episode(buffer, 10, [11, 12, 13], end=end)
    episode(buffer, 20, [21, 22], end=None)  # rows, by what they reached: 11 12 13 | 21 22 | 5 6
    assert len(buffer) == 7
    assert goals_drawn(buffer) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_unfinished_episode_takes_part_where_running_ones_count(strategy: str) -> None:
    buffer = buffer_of(8, strategy=strategy, running=True)
    episode(buffer, 0, [1, 2, 3], end=None)
    expected = {
        "future": {1: {1, 2, 3}, 2: {2, 3}, 3: {3}},
        "final": {1: {3}, 2: {3}, 3: {3}},
    }.get(strategy, {1: {1, 2, 3}, 2: {1, 2, 3}, 3: {1, 2, 3}})
    assert goals_drawn(buffer) == expected
    episode(buffer, 3, [4], end=None)
    assert goals_drawn(buffer)[1] <= {1, 2, 3, 4}


def test_a_terminated_end_stays_one_and_a_truncated_one_still_bootstraps() -> None:
    for end, done in (("terminated", 1), ("truncated", 0)):
        buffer = buffer_of(8)
        episode(buffer, 0, [1, 2], end=end)
        batch = buffer.sample(50)
        last = batch.next_observations["achieved_goal"].flatten().numpy() == 2
        assert batch.dones.flatten().numpy()[last].tolist() == [done] * last.sum()


def test_every_step_of_a_window_has_the_one_new_goal() -> None:
    buffer = buffer_of(8, n_steps=3, gamma=1.0, strategy="final")
    episode(buffer, 0, [5, 9, 5, 9, 9], end="truncated")
    batch = buffer.sample(200)
    first = batch.observations["observation"].flatten().numpy()[batch.relabelled]
    rewards = batch.rewards.flatten().numpy()[batch.relabelled]
    assert set(zip(first.tolist(), rewards.tolist(), strict=True)) == {(0, 1), (5, 2), (9, 2), (9, 1)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_stored_goals_are_never_touched(strategy: str) -> None:
    """Tianshou edits stored rows and puts them back later; Pearl overwrites the caller's arrays."""
    buffer = buffer_of(8, strategy=strategy, n_steps=2)
    obs, following = (
        {key: np.array(value, np.float32) for key, value in place.items()} for place in (at(0, 7), at(1, 7))
    )
    buffer.add(obs, following, [0], [0.0], terminated=[True])
    episode(buffer, 0, [1, 2, 3], goal=7)
    before = pickle.dumps([np.array(leaf) for leaf in buffer.observations.values()])
    for _ in range(5):
        buffer.sample(20)
    assert pickle.dumps([np.array(leaf) for leaf in buffer.observations.values()]) == before
    assert set(np.array(buffer.next_observations["desired_goal"])[:4].flatten().tolist()) == {7}
    assert obs["desired_goal"].tolist() == following["desired_goal"].tolist() == [[7]]


def test_goals_of_several_environments_never_mix() -> None:
    buffer = relive.ReplayBuffer(
        18, SPACE, spaces.Discrete(2), device="cpu", n_envs=3, hindsight=relive.Hindsight(is_reached), seed=0
    )
    rng = np.random.default_rng(0)
    for t in range(20):
        number = np.array([[t], [t + 1000], [t + 2000]], np.float32)
        obs = {"observation": number, "achieved_goal": number, "desired_goal": -number}
        following = {"observation": number + 1, "achieved_goal": number + 1, "desired_goal": -number}
        buffer.add(obs, following, [0] * 3, [0.0] * 3, rng.random(3) < 0.3)
    for after, goals in goals_drawn(buffer).items():
        assert {goal // 1000 for goal in goals} == {after // 1000}


def test_other_names_for_the_goals() -> None:
    number = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    space = spaces.Dict({"have": number, "want": number})
    hindsight = relive.Hindsight(is_reached, goal_keys=("have", "want"), strategy="final")
    buffer = relive.ReplayBuffer(4, space, spaces.Discrete(2), device="cpu", hindsight=hindsight, seed=0)
    buffer.add({"have": [[0]], "want": [[9]]}, {"have": [[5]], "want": [[9]]}, [0], [0.0], [True])
    batch = buffer.sample(10)
    assert batch.observations["want"].flatten().tolist() == [5 if new else 9 for new in batch.relabelled]
    assert batch.next_observations["want"].flatten().tolist() == [5 if new else 9 for new in batch.relabelled]
