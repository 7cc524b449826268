"""Hindsight against the twin: every goal drawn comes from where the strategy allows, every row is right for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from tests.views.configs import LIVES, STRATEGIES, WITH_REPLACEMENT, hindsight
from tests.views.life import Life
from tests.views.worlds import Config, compute_reward, make


@given(config=hindsight(), seeds=LIVES, normalised=st.booleans())
def test_every_row_drawn_is_right_for_its_goal(config: Config, seeds: list[int], normalised: bool) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
        life.check_sample(7, normalised=normalised)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sampler", WITH_REPLACEMENT)
def test_every_eligible_step_and_every_allowed_goal_is_drawn(strategy: str, sampler: str) -> None:
    life = Life(Config(space="goal", rows=5, lanes=2, n_steps=2, sampler=sampler, strategy=strategy))
    rng = np.random.default_rng(0)
    for _ in range(8):
        life.add(rng, ends=0.3)
    drawn: set[tuple[int, int]] = set()
    eligible = life.twin.eligible(life.config.goals)
    for _ in range(6):
        batch = life.check_sample(600)
        handles = life.handles_of(batch, batch.observations)
        for row in np.flatnonzero(batch.relabelled):
            goal = life.goal_of(life.twin.find(handles[row]), batch.observations["desired_goal"][row].numpy())
            drawn.add((handles[row], life.twin.handle(goal)))
    allowed = {
        (life.twin.handle(step), life.twin.handle(goal))
        for step in eligible
        for goal in life.twin.goals_of(step, life.config.goals)
    }
    assert drawn == allowed


@given(config=hindsight(), seeds=LIVES)
def test_stored_goals_stay_what_they_were(config: Config, seeds: list[int]) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
    before = {key: np.array(leaf) for key, leaf in life.buffer.observations.items()}
    if life.buffer.can_sample:
        batch = life.buffer.sample(8)
        batch.observations["desired_goal"].fill_(7)
        batch.next_observations["desired_goal"].fill_(7)
    for key, leaf in before.items():
        assert np.array(life.buffer.observations[key]).tobytes() == leaf.tobytes()


@pytest.mark.parametrize(
    ("batch_size", "n_sampled_goal", "relabelled"), [(10, 4, 8), (7, 4, 5), (1, 4, 0), (6, 1, 3), (256, 4, 204)]
)
def test_a_fixed_share_of_each_batch_is_relabelled(batch_size: int, n_sampled_goal: int, relabelled: int) -> None:
    life = Life(Config(space="goal", rows=9, strategy="future", n_sampled_goal=n_sampled_goal))
    life.extend(np.random.default_rng(0), 9, ends=0.5)
    assert life.check_sample(batch_size).relabelled.sum() == relabelled


def test_the_reward_is_computed_in_one_call_that_sees_writable_arrays_of_its_own() -> None:
    calls: list[int] = []

    def reward(achieved: Any, desired: Any, info: Any) -> Any:
        calls.append(len(info))
        computed = compute_reward(achieved, desired, info)
        achieved[...] = desired[...] = -1
        return computed

    config = Config(space="goal", rows=6, n_steps=3, strategy="future")
    life = Life(config, hindsight=relive.Hindsight(reward))
    rng = np.random.default_rng(0)
    for _ in range(20):
        life.add(rng, ends=0.3)
    if not life.twin.eligible(config.goals):
        life.add(rng, ends=1.0)
    life.check_sample(50)
    assert len(calls) == 1


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_reward_may_have_an_axis_of_one_and_any_dtype(shape: tuple[int, ...]) -> None:
    config = Config(space="goal", rows=6, n_steps=2, strategy="final")

    def reward(achieved: Any, desired: Any, info: Any) -> Any:
        return compute_reward(achieved, desired, info).astype(np.int64).reshape(shape)

    life = Life(config, hindsight=relive.Hindsight(reward, strategy="final"))
    life.extend(np.random.default_rng(0), 6, ends=0.5)
    life.add(np.random.default_rng(0), ends=1.0)
    life.check_sample(20)


@pytest.mark.parametrize("returned", [lambda m: np.zeros(m + 1), lambda m: np.zeros((m, 2)), lambda m: None])
def test_a_reward_that_does_not_fit_is_refused(returned: Any) -> None:
    buffer = make(Config(space="goal", strategy="future"), hindsight=relive.Hindsight(lambda a, d, i: returned(len(a))))
    goal = np.zeros((1, 2), np.float32)
    obs = {"achieved_goal": goal, "desired_goal": goal, "observation": goal}
    buffer.add(obs, obs, [0], [0.0], [True])
    with pytest.raises((ValueError, TypeError), match="compute_reward"):
        buffer.sample(10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "past"}, "strategy is 'past'"),
        ({"n_sampled_goal": -1}, "n_sampled_goal is -1"),
    ],
)
def test_options_are_checked_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relive.Hindsight(compute_reward, **options)


def test_a_space_without_the_goals_is_refused_at_construction() -> None:
    with pytest.raises(relive.errors.WrongSpaceError, match="achieved_goal"):
        make(Config(space="box"), hindsight=relive.Hindsight(compute_reward))
