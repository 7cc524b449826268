"""Actions of rollouts: every integer comes back as it was, and Dict and Tuple spaces keep their nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st

import relive

NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def drawn(space: spaces.Space[Any], *steps: Any, n_envs: int = 1, **options: Any) -> Any:
    """The actions of a rollout of these steps, in the order in which they were added."""
    buffer = relive.RolloutBuffer(len(steps), NUMBER, space, "cpu", n_envs=n_envs, **options)
    zeros = torch.zeros(n_envs)
    for action in steps:
        buffer.add(np.zeros((n_envs, 1)), action, zeros, zeros, zeros, zeros)
    return buffer._get_samples(np.arange(len(steps) * n_envs)).actions


DTYPES = [np.int8, np.uint8, np.int32, np.int64] + ([np.uint32, np.uint64] if hasattr(torch, "uint64") else [])
BIG = 1 << 25

CASES: dict[str, tuple[spaces.Space[Any], list[int]]] = {
    "Discrete below zero": (spaces.Discrete(10, start=-33_554_440), [-33_554_435]),
    "Discrete above zero": (spaces.Discrete(BIG), [16_777_217]),
    "MultiDiscrete below zero": (spaces.MultiDiscrete([10, 3], start=[-BIG - 7, 0]), [-BIG - 3, 2]),
    "MultiDiscrete at the end of int64": (spaces.MultiDiscrete([5], start=[2**63 - 6]), [2**63 - 3]),
    "Box below zero": (spaces.Box(-BIG - 5, 0, (2,), np.int32), [-BIG - 3, -1]),
    "Box with the smallest int64": (spaces.Box(-(2**63), 0, (1,), np.int64), [-(2**63) + 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_sb3_2295_integers_far_from_zero_are_not_rounded(case: str) -> None:
    """Also DLR-RM/stable-baselines3#913, #1241."""
    space, action = CASES[case]
    got = drawn(space, np.array([action], space.dtype))
    assert got.dtype not in (torch.float32, torch.float64)
    assert got[0].tolist() == action


def test_integers_that_float32_holds_are_drawn_as_the_seed_draws_them() -> None:
    for space in (spaces.Discrete(3, start=-(1 << 24)), spaces.Box(-(1 << 24), 1 << 24, (1,), np.int32)):
        got = drawn(space, np.array([[-(1 << 24) + 1]]))
        assert (got.dtype, got.item()) == (torch.float32, -(1 << 24) + 1)


def test_integers_that_are_stored_as_float64_are_not_rounded_either() -> None:
    got = drawn(spaces.Discrete(BIG), np.array([16_777_217]), dtypes={"action": np.float64})
    assert (got.dtype, got.item()) == (torch.float64, 16_777_217)


@given(data=st.data(), dtype=st.sampled_from(DTYPES), width=st.integers(1, 3))
def test_every_integer_comes_back_as_it_was(data: st.DataObject, dtype: type, width: int) -> None:
    info = np.iinfo(dtype)
    near = st.integers(int(info.min), int(info.max)) | st.integers(max(-BIG, int(info.min)), min(BIG, int(info.max)))
    numbers = np.array(data.draw(st.lists(near, min_size=3 * width, max_size=3 * width)), dtype).reshape(3, width)
    low, _, high = np.sort(numbers, axis=0)
    actions = [row[None] for row in numbers]
    got = drawn(spaces.Box(low, high, (width,), dtype), *actions)
    assert [[int(x) for x in row] for row in got.tolist()] == numbers.tolist()


@given(start=st.integers(-(2**62), 2**62), count=st.integers(1, 2**40), share=st.floats(0, 1))
@example(start=-33_554_440, count=10, share=0.5)
def test_every_choice_comes_back_as_it_was(start: int, count: int, share: float) -> None:
    action = start + int(share * (count - 1))
    for space in (spaces.Discrete(count, start=start), spaces.MultiDiscrete([count], start=[start])):
        assert int(drawn(space, np.array([action])).item()) == action
