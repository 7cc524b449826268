"""Buffers with functions in their options: which can be pickled, and what a dump says of others (garage 887)."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

import relive
from relive import functions
from relive.errors import FunctionNotPickledError

BOX = spaces.Box(-np.inf, np.inf, (1,), np.float32)
GOALS = spaces.Dict({"observation": BOX, "achieved_goal": BOX, "desired_goal": BOX})


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    return -abs(achieved - desired)[:, 0]


class LockedEnv:
    """What an environment with a renderer or a simulator is like."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return reward(achieved, desired, info)


class OpenEnv:
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return reward(achieved, desired, info)


def replay(**options: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(8, GOALS, spaces.Discrete(2), device="cpu", seed=0, **options)
    for t in range(6):
        first, second = ({k: np.full((1, 1), t + i, np.float32) for k in GOALS.spaces} for i in (0, 1))
        buffer.add(first, second, [0], [0.0], [t == 4], [{}])
    return buffer


UNPICKLED: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("beta of Prioritized", lambda: {"sampler": relive.Prioritized(beta=lambda progress: 0.4 + 0.6 * progress)}),
    ("beta of RankPrioritized", lambda: {"sampler": relive.RankPrioritized(beta=lambda progress: 0.5)}),
    ("compute_reward of Hindsight", lambda: {"hindsight": relive.Hindsight(lambda a, d, i: reward(a, d, i))}),
    ("compute_reward of Hindsight", lambda: {"hindsight": relive.Hindsight(LockedEnv().compute_reward)}),
    (
        "compute_terminated of Hindsight",
        lambda: {"hindsight": relive.Hindsight(reward, compute_terminated=lambda a, d, i: a[:, 0] > d[:, 0])},
    ),
]


@pytest.mark.parametrize(("name", "options"), UNPICKLED, ids=range(len(UNPICKLED)))
def test_a_dump_names_the_option_whose_function_cannot_be_pickled(
    name: str, options: Callable[[], dict[str, Any]]
) -> None:
    buffer = replay(**options())
    for dump in (pickle.dumps, lambda b: pickle._dumps(b), lambda b: pickle.dumps(b, 2)):  # type: ignore[attr-defined]
        with pytest.raises(FunctionNotPickledError, match=f"^{name} is <.*; expected .*a function defined at") as error:
            dump(buffer)
        assert isinstance(error.value, pickle.PicklingError) and isinstance(error.value, TypeError)
    before = buffer.sample(6)
    assert len(before.rewards) == 6


@pytest.mark.parametrize(("name", "options"), UNPICKLED, ids=range(len(UNPICKLED)))
def test_copies_share_such_functions(name: str, options: Callable[[], dict[str, Any]]) -> None:
    buffer = replay(**options())
    twin = copy.deepcopy(buffer)
    assert twin.sample(5).rewards.tolist() == buffer.sample(5).rewards.tolist()
    for holder in (buffer.sampler, buffer.hindsight):
        if holder is not None:
            assert type(copy.copy(holder)) is type(holder)


def test_picklers_that_take_any_function_go_on() -> None:
    buffer = replay(sampler=relive.Prioritized(beta=lambda progress: 0.25))
    twin = pickle.loads(cloudpickle.dumps(buffer))
    assert twin.sampler.beta_now() == 0.25


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": relive.Prioritized(beta=relive.Linear(0.4, 1.0))},
        {"sampler": relive.RankPrioritized(beta=relive.Constant(0.4))},
        {"hindsight": relive.Hindsight(reward, compute_terminated=reward)},
        {"hindsight": relive.Hindsight(OpenEnv().compute_reward)},
    ],
    ids=["linear", "constant", "top of a module", "method"],
)
def test_functions_that_have_a_name_are_pickled(options: dict[str, Any]) -> None:
    buffer = replay(**copy.deepcopy(options))
    twin = pickle.loads(pickle.dumps(buffer))
    assert twin.sample(6).rewards.tolist() == buffer.sample(6).rewards.tolist()


def test_the_functions_of_options_are_known_in_one_place() -> None:
    hindsight = relive.Hindsight(reward)
    assert functions.held(hindsight) == {"compute_reward": reward}
    assert functions.held(relive.Prioritized(beta=0.4)) == {}
    assert functions.obstacle(reward) is None
    assert functions.obstacle(LockedEnv().compute_reward) is not None


def test_schedules() -> None:
    beta = relive.Linear(0.4, 1.0)
    assert [beta(p) for p in (-1, 0, 0.25, 1, 7)] == pytest.approx([0.4, 0.4, 0.55, 1.0, 1.0])
    assert (beta(0), beta(1)) == (0.4, 1.0)
    assert relive.Constant(0.4)(0.9) == 0.4
    assert repr(beta) == "Linear(start=0.4, end=1.0)" and beta == relive.Linear(0.4, 1.0)
    sampler = relive.Prioritized(beta=relive.Linear(0.0, 1.0))
    sampler.progress = 0.5
    assert sampler.beta_now() == 0.5
    for make in (lambda: relive.Linear(-1, 1), lambda: relive.Linear(0, np.inf), lambda: relive.Constant(np.nan)):
        with pytest.raises(ValueError, match=r"(start|end|value) is .*, expected a finite number from 0 on"):
            make()
