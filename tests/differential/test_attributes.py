"""Constructors and attributes answer as those of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3.common import buffers as seed

import relive
from tests import zoo
from tests.differential.compare import (
    SEED_SPACES,
    assert_same,
    assert_same_draws,
    assert_same_replay_arrays,
    both,
    life,
    replay_pair,
    rollout_pair,
)


@pytest.mark.parametrize("action", zoo.ACTION_SPACES)
@pytest.mark.parametrize("observation", SEED_SPACES)
def test_attributes_of_a_new_buffer_are_those_of_the_seed(observation: str, action: str) -> None:
    space, action_space = SEED_SPACES[observation], zoo.ACTION_SPACES[action]
    pairs = [
        replay_pair(space, action_space, 3),
        replay_pair(space, action_space, 3, handle_timeout_termination=False),
        rollout_pair(space, action_space, 3, gamma=0.5, gae_lambda=0.25),
    ]
    for ours, theirs in pairs:
        for name, expected in vars(theirs).items():
            got = getattr(ours, name)
            if name in ("observations", "next_observations"):
                parts, wanted = zoo.leaves(space, got), zoo.leaves(space, expected)
                assert [(p.shape, p.dtype) for p in parts] == [(w.shape, w.dtype) for w in wanted]
            elif isinstance(expected, np.ndarray):
                assert isinstance(got, np.ndarray)
                assert got.flags.writeable
                assert_same(got, expected, name)
            else:
                assert got == expected, name
                assert type(got) is type(expected), name


@pytest.mark.parametrize("sizes", [(0, 1), (0, 4), (1, 1), (10, 3), (2, 8), (10, 4), (3, 4)])
def test_rows_per_environment_are_those_of_the_seed(sizes: tuple[int, int]) -> None:
    buffer_size, n_envs = sizes
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    pair = [
        module.ReplayBuffer(buffer_size, space, action_space, device="cpu", n_envs=n_envs) for module in (relive, seed)
    ]
    assert pair[0].buffer_size == pair[1].buffer_size
    both(tuple(pair), life(space, action_space, n_envs, 7))
    assert_same_replay_arrays(*pair)
    assert_same_draws(*pair, lambda buffer: buffer.sample(20))


@pytest.mark.parametrize("shape", [(3, 2), (4, 1), (2, 3, 5), (1, 4, 2, 2)])
def test_swap_and_flatten_is_that_of_the_seed(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    assert_same(relive.BaseBuffer.swap_and_flatten(array), seed.BaseBuffer.swap_and_flatten(array))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64, bool, None])
def test_maybe_cast_dtype_is_that_of_the_seed(dtype: Any) -> None:
    assert relive.ReplayBuffer._maybe_cast_dtype(dtype) == seed.ReplayBuffer._maybe_cast_dtype(dtype)


def test_batches_have_the_fields_of_the_seed() -> None:
    from stable_baselines3.common import type_aliases

    for name in (
        "ReplayBufferSamples",
        "DictReplayBufferSamples",
        "RolloutBufferSamples",
        "DictRolloutBufferSamples",
    ):
        ours, theirs = getattr(relive, name), getattr(type_aliases, name)
        assert ours._fields == theirs._fields
        assert ours._field_defaults == theirs._field_defaults
