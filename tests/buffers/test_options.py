"""The options of a replay buffer: what each asks of `add`, and which of them exclude each other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive
from relive.errors import EmptyBufferError, NaNRewardError, RateLimitError, ShapeError, WrongSpaceError

BOX = spaces.Box(-np.inf, np.inf, (2,))
GOAL = spaces.Box(-np.inf, np.inf, (1,))
GOALS = spaces.Dict({"observation": BOX, "achieved_goal": GOAL, "desired_goal": GOAL})


def replay(size: int = 8, space: spaces.Space[Any] = BOX, **options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(size, space, spaces.Discrete(3), device="cpu", **{"seed": 0, **options})


def observed(number: float) -> np.ndarray:
    return np.full((1, 2), number, np.float32)


def step(buffer: relive.ReplayBuffer, number: int, end: bool = False, **more: Any) -> None:
    reward = np.full((1, *buffer.reward_shape), float(number))
    ends = {"terminated": [end], "truncated": [False]}
    buffer.add(observed(number), observed(number + 1), [number % 3], reward, **ends, **more)


def goal_step(buffer: relive.ReplayBuffer, number: int, end: bool, reward: Any, info: dict[str, Any]) -> None:
    def seen(t: int) -> dict[str, np.ndarray]:
        return {"observation": observed(t), "achieved_goal": observed(t)[:, :1], "desired_goal": observed(99)[:, :1]}

    buffer.add(seen(number), seen(number + 1), [0], reward, [end], [info])


# Declared fields and vector rewards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("extras", [None, {}, {"cost": [1.0], "other": [2.0]}, {"other": [1.0]}, [1.0]])
def test_extras_are_exactly_what_was_declared(extras: Any) -> None:
    buffer = replay(fields={"cost": ((), np.float32)})
    step(buffer, 0, extras={"cost": [0.5]})
    with pytest.raises(ShapeError, match="extras"):
        step(buffer, 1, extras=extras)
    assert len(buffer) == 1
    assert buffer.sample(2).extras["cost"].tolist() == [0.5, 0.5]


def test_extras_without_a_declaration_are_refused() -> None:
    buffer = replay()
    with pytest.raises(ShapeError, match="extras has"):
        step(buffer, 0, extras={"cost": [1.0]})
    assert len(buffer) == 0


@pytest.mark.parametrize("fields", [{"x": 3}, {"x": ((2,),)}, {"x": ("a", np.float32)}])
def test_a_declaration_is_a_shape_and_a_dtype(fields: Any) -> None:
    with pytest.raises(TypeError, match="fields has 'x'"):
        replay(fields=fields)


def test_declared_fields_can_be_written_later() -> None:
    buffer = replay(fields={"cost": ((), np.float32), "state": ((2,), np.float64)})
    for t in range(3):
        step(buffer, t, extras={"cost": [t], "state": [[t, t]]})
    handles = buffer.handles()
    assert buffer.set(handles[1:2], extras={"state": [[7.0, 8.0]]}) == 0
    assert buffer.transitions(handles).extras["state"].tolist() == [[0, 0], [7, 8], [2, 2]]
    with pytest.raises(KeyError, match="other"):
        buffer.set(handles, extras={"other": [1.0] * 3})


@pytest.mark.parametrize("shape", [(2, 2), (0,)])
def test_a_reward_has_one_axis_at_most(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="reward_shape"):
        replay(reward_shape=shape)


def test_a_reward_of_another_width_is_refused() -> None:
    buffer = replay(reward_shape=(3,))
    step(buffer, 1)
    with pytest.raises(ShapeError, match="reward"):
        buffer.add(observed(0), observed(1), [0], [[1.0, 2.0]], [False], [{}])
    assert buffer.sample(1).rewards.tolist() == [[1.0, 1.0, 1.0]]


def test_vector_rewards_of_hindsight_goals() -> None:
    def reward(achieved: Any, desired: Any, info: Any) -> np.ndarray:
        return np.concatenate([achieved, desired], axis=1)

    buffer = replay(space=GOALS, reward_shape=(2,), hindsight=relive.Hindsight(reward, strategy="final"))
    for t in range(3):
        goal_step(buffer, t, t == 2, [[-1.0, -1.0]], {})
    batch = buffer.sample(50)
    achieved = batch.next_observations["achieved_goal"].numpy()
    expected = np.where(batch.relabelled[:, None], np.concatenate([achieved, np.full_like(achieved, 3)], axis=1), -1.0)
    assert batch.rewards.numpy().tolist() == expected.tolist()


def test_infos_that_are_kept_have_the_declared_shape() -> None:
    seen = []

    def reward(achieved: Any, desired: Any, info: Any) -> np.ndarray:
        seen.append(info["target"])
        return np.zeros(len(info))

    hindsight = relive.Hindsight(reward, copy_info=("target", "weight"))
    buffer = replay(space=GOALS, hindsight=hindsight, fields={"target": ((2,), np.float32)})
    goal_step(buffer, 0, False, [0.0], {"target": [1, 2], "weight": 3})
    goal_step(buffer, 1, True, [0.0], {})
    batch = buffer.sample(40)
    of_first = batch.handles == 0
    assert set(map(tuple, batch.extras["target"].numpy()[of_first].tolist())) == {(1.0, 2.0)}
    assert np.isnan(batch.extras["weight"].numpy()[~of_first]).all()
    assert seen[0].shape == (32, 2)
    with pytest.raises(ShapeError, match="target"):
        goal_step(buffer, 2, False, [0.0], {"target": [1, 2, 3]})
    assert len(buffer) == 2


def test_a_reward_function_that_gives_nan_is_refused() -> None:
    buffer = replay(space=GOALS, hindsight=relive.Hindsight(lambda achieved, desired, info: achieved[:, 0] * np.nan))
    goal_step(buffer, 0, True, [0.0], {})
    with pytest.raises(NaNRewardError, match="compute_reward returned NaN"):
        buffer.sample(5)


# What excludes each other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_steps": 0}, ValueError, "n_steps is 0"),
        ({"gamma": 1.5}, ValueError, "gamma is 1.5"),
        ({"sampler": "prioritized"}, TypeError, "sampler is 'prioritized'"),
        ({"hindsight": "future"}, TypeError, "hindsight is 'future'"),
        ({"max_times_sampled": 0}, ValueError, "max_times_sampled is 0"),
        ({"hindsight": relive.Hindsight(lambda a, d, i: a)}, WrongSpaceError, "achieved_goal"),
        ({"sampler": relive.Uniform(over="episodes"), "max_times_sampled": 2}, ValueError, "alike"),
        (
            {"sampler": relive.Uniform(replacement=False), "limiter": relive.RateLimiter(1.0, 1)},
            ValueError,
            "limiter came with",
        ),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        replay(**options)


def test_uniform_starts_do_not_count_draws() -> None:
    buffer = replay(sampler=relive.Prioritized(), max_times_sampled=1)
    step(buffer, 0)
    with pytest.raises(ValueError, match="priorities=False came with max_times_sampled"):
        buffer.sample_sequences(1, 1, priorities=False)


@pytest.mark.parametrize("call", [lambda b: b.update_priorities([0], [1.0]), lambda b: b.priorities([0])])
def test_priorities_need_a_sampler_that_keeps_them(call: Callable[[relive.ReplayBuffer], Any]) -> None:
    buffer = replay()
    step(buffer, 0)
    with pytest.raises(TypeError, match="expected Prioritized or RankPrioritized"):
        call(buffer)


def test_a_batch_larger_than_an_epoch_draws_nothing() -> None:
    buffer = replay(12, sampler=relive.Uniform(replacement=False))
    for t in range(12):
        step(buffer, t)
    drawn = len(buffer.sample(4).rewards)
    for size in (13, 100):
        with pytest.raises(EmptyBufferError, match=f"batch_size is {size}"):
            buffer.sample(size)
    assert drawn == 4


# Limiter ------------------------------------------------------------------------------------------------------------


def test_a_limiter_counts_steps_and_rows() -> None:
    limiter = relive.RateLimiter(2.0, 2, error_buffer=(-8, 20), on_block="raise")
    buffer = replay(limiter=limiter)
    with pytest.raises(RateLimitError, match="min_size"):
        buffer.sample(1)
    for t in range(3):
        step(buffer, t)
    seen = [np.stack([observed(t + i) for t in (3, 4)]) for i in (0, 1)]
    buffer.extend(*seen, [[0], [1]], [[0.0], [1.0]], [[0], [0]])
    assert (limiter.inserts, limiter.samples) == (5, 0)
    buffer.sample(3)
    buffer.sample_sequences(2, 2)
    assert (limiter.inserts, limiter.samples) == (5, 5)
    with pytest.raises(ShapeError):
        buffer.add(np.zeros((1, 3)), observed(0), [0], [0.0], [False], [{}])
    assert limiter.inserts == 5
    with pytest.raises(RateLimitError, match="sample of 18"):
        buffer.sample(18)
    buffer.reset()
    assert (limiter.inserts, limiter.samples) == (0, 0)


# Copies -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))])
@pytest.mark.parametrize(
    "options",
    [
        {"n_steps": 3, "gamma": 0.9},
        {"sampler": relive.Uniform(replacement=False)},
        {"sampler": relive.Prioritized(weights_over="buffer")},
        {"sampler": relive.RankPrioritized(), "fields": {"cost": ((), np.float32)}},
        {"max_times_sampled": 3, "reward_shape": (2,)},
    ],
)
def test_a_copy_draws_on_as_the_original(way: Callable, options: dict[str, Any]) -> None:
    buffer = replay(**options)
    extras = {"extras": {"cost": [1.0]}} if "fields" in options else {}
    for t in range(11):
        step(buffer, t, end=t % 4 == 3, **extras)
    batch = buffer.sample(4)
    if "sampler" in options and not isinstance(buffer.sampler, relive.Uniform):
        buffer.update_priorities(batch.handles, [1.0, 5.0, 2.0, 0.5])
    twin = way(buffer)
    for _ in range(2):
        mine, its = buffer.sample(4), twin.sample(4)
        for a, b in zip(mine, its, strict=True):
            assert (a is None and b is None) or a.tolist() == b.tolist()
    step(buffer, 11, **extras)
    assert len(twin.handles()) == len(buffer.handles())
    assert twin.handles().tolist() != buffer.handles().tolist()
