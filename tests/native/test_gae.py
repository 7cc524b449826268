"""The native estimator against its slow twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.returns import seed_gae
from tests.reference.gae import gae_in_float32, gae_of_ends


def rollout(rng: np.random.Generator, steps: int, envs: int, scale: float) -> tuple[np.ndarray, ...]:
    def numbers(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    starts = (rng.random((steps, envs)) < 0.3).astype(np.float32)
    dones = (rng.random(envs) < 0.5).astype(np.float32)
    return numbers(steps, envs), numbers(steps, envs), starts, numbers(envs), dones


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 40),
    envs=st.integers(1, 20),
    gamma=st.floats(0, 1),
    gae_lambda=st.floats(0, 1),
    kind=st.sampled_from([float, np.float64]),
    scale=st.sampled_from([1e-30, 1.0, 1e20]),
)
def test_every_bit_is_that_of_the_numpy_loop(
    seed: int, steps: int, envs: int, gamma: float, gae_lambda: float, kind: type, scale: float
) -> None:
    arguments = rollout(np.random.default_rng(seed), steps, envs, scale)
    with np.errstate(all="ignore"):
        expected = gae_in_float32(*arguments, kind(gamma), kind(gae_lambda))
    got = seed_gae(*arguments, kind(gamma), kind(gae_lambda))
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 12), envs=st.integers(1, 4))
def test_it_is_the_sum_of_discounted_errors_up_to_the_first_end(seed: int, steps: int, envs: int) -> None:
    rewards, values, starts, last, dones = rollout(np.random.default_rng(seed), steps, envs, 1.0)
    terminated = np.concatenate([starts[1:], dones[None]]) > 0
    never = np.zeros_like(terminated)
    expected = gae_of_ends(rewards, values, terminated, never, values, last, 0.9, 0.7)
    advantages, returns = seed_gae(rewards, values, starts, last, dones, 0.9, 0.7)
    assert np.allclose(advantages, expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(returns, advantages + values)


@pytest.mark.parametrize(
    ("position", "shape"), [(1, (3, 2)), (2, (5, 3)), (3, (3,)), (4, (1,))], ids=["values", "starts", "last", "dones"]
)
def test_arrays_that_do_not_fit_together_are_refused(position: int, shape: tuple[int, ...]) -> None:
    arguments: list[Any] = list(rollout(np.random.default_rng(0), 5, 2, 1.0))
    arguments[position] = np.zeros(shape, np.float32)
    with pytest.raises((ValueError, TypeError)):
        seed_gae(*arguments, 0.9, 0.9)


def test_an_output_of_another_shape_is_refused() -> None:
    arguments = rollout(np.random.default_rng(0), 5, 2, 1.0)
    small = np.zeros((2, 2), np.float32)
    with pytest.raises((ValueError, TypeError)):
        seed_gae(*arguments, 0.9, 0.9, out=(small, small))
