"""What is passed for environments that sit a step out: nobody looks at it, whatever it is (OpenRLHF PR 1240)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive
from relive import errors

BYTES = spaces.Box(0, 255, (2,), np.uint8)
ACTION = spaces.MultiDiscrete([3, 4])
FIELDS = {"level": ((), np.uint8)}
SITS_OUT = np.array([True, False])

# What may be passed for the environment that sits out, beside what the other one does.
GARBAGE: dict[str, Callable[[str, np.ndarray], Any]] = {
    "out of range": lambda name, array: np.where(_rows(array), array, -1).astype(np.int64),
    "fractions": lambda name, array: np.where(_rows(array), array, 0.5),
    "NaN": lambda name, array: np.where(_rows(array), array, np.nan),
    "infinite": lambda name, array: np.where(_rows(array), array, np.inf),
    "beyond float32": lambda name, array: np.where(_rows(array), array, 1e300),
    "lists": lambda name, array: np.where(_rows(array), array, np.nan).tolist(),
    "another dtype": lambda name, array: np.where(_rows(array), array, 7).astype(np.float32),
}


def _rows(array: np.ndarray) -> np.ndarray:
    return SITS_OUT.reshape(-1, *[1] * (array.ndim - 1))


def step(t: int) -> dict[str, Any]:
    numbers = np.full((2, 2), t, np.uint8)
    return {
        "obs": numbers,
        "next_obs": numbers + 1,
        "action": np.array([[t % 3, 1], [1, 1]]),
        "reward": np.array([t, 1.0]),
        "terminated": np.array([t == 2, False]),
        "truncated": np.array([t == 3, True]),
    }


def replay(**options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(16, BYTES, ACTION, "cpu", n_envs=2, fields=FIELDS, **options)


def reservoir(**options: Any) -> relive.Reservoir:
    return relive.Reservoir(8, BYTES, ACTION, "cpu", 2, fields=FIELDS, **options)


@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize("time_limits", [True, False])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("make", [replay, reservoir])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_what_sits_out_is_neither_checked_nor_kept(
    make: Callable[..., Any], garbage: str, time_limits: bool, validate: str
) -> None:
    clean, spoilt = (make(seed=0, validate=validate, handle_timeout_termination=time_limits) for _ in range(2))
    for t in range(5):
        level = np.array([t, 1])
        clean.add(**step(t), extras={"level": level}, mask=SITS_OUT)
        bad = {name: GARBAGE[garbage](name, value) for name, value in step(t).items()}
        spoilt.add(**bad, extras={"level": GARBAGE[garbage]("level", level)}, mask=SITS_OUT)
    assert len(clean) == len(spoilt) == 5
    expected, got = clean.sample(20), spoilt.sample(20)
    for ours, theirs in zip(got[:5], expected[:5], strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.numpy().tobytes() == theirs.numpy().tobytes()
    assert got.extras["level"].tolist() == expected.extras["level"].tolist()


def test_vector_rewards_of_what_sits_out_may_be_anything() -> None:
    buffer = relive.ReplayBuffer(8, BYTES, ACTION, "cpu", n_envs=2, reward_shape=(2,))
    given = step(1) | {"reward": [[1.0, 2.0], [np.nan, 1e300]]}
    buffer.add(**given, mask=SITS_OUT)
    assert buffer.transitions(buffer.handles()).rewards.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("make", [replay, reservoir])
def test_what_takes_part_is_checked_as_ever(make: Callable[..., Any]) -> None:
    buffer = make()
    bad: dict[str, tuple[Any, type[Exception]]] = {
        "obs": (np.array([[-1, 0], [0, 0]]), errors.CastError),
        "action": (np.array([[0.5, 0], [0, 0]]), errors.CastError),
        "reward": (np.array([np.nan, 0]), errors.NaNRewardError),
        "terminated": ([0.5, 0], errors.CastError),
        "next_obs": (np.zeros((3, 2), np.uint8), errors.ShapeError),
    }
    for name, (value, kind) in bad.items():
        with pytest.raises(kind, match=name.removeprefix("next_")[:3]):
            buffer.add(**(step(1) | {name: value}), extras={"level": [0, 0]}, mask=SITS_OUT)
    assert len(buffer) == 0
