"""Draws are uniform, and reproducible where a seed was given."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

import relive

NUMBER, ACTION = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2)


def replay(
    rows: int, n_envs: int, steps: int, *, seed: int | np.random.Generator | None = 0, mask: float = 1.0
) -> relive.ReplayBuffer:
    """Every step has a reward of its own: a number below 2**24, exact in float32."""
    buffer = relive.ReplayBuffer(rows * n_envs, NUMBER, ACTION, device="cpu", n_envs=n_envs, seed=seed)
    rng = np.random.default_rng(1)
    obs = np.zeros((n_envs, 1))
    for t in range(steps):
        rewards = t * n_envs + np.arange(n_envs)
        taking_part = rng.random(n_envs) < mask
        buffer.add(obs, obs, np.zeros(n_envs, int), rewards, np.zeros(n_envs, bool), mask=taking_part)
    return buffer


CONTENTS: dict[str, Callable[[], relive.ReplayBuffer]] = {
    "one lane, not full": lambda: replay(100, 1, 70),
    "one lane, wrapped": lambda: replay(100, 1, 130),
    "power of two": lambda: replay(64, 1, 64),
    "many lanes": lambda: replay(5, 37, 8),
    "many lanes, not full": lambda: replay(9, 20, 4),
    "lanes that differ": lambda: replay(30, 7, 20, mask=0.4),
    "lanes that differ, wrapped": lambda: replay(10, 7, 60, mask=0.4),
    "a private generator": lambda: replay(50, 3, 60, seed=np.random.default_rng(5)),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_every_step_held_is_drawn_equally_often(content: str) -> None:
    buffer = CONTENTS[content]()
    held = buffer.transitions(buffer.handles()).rewards.flatten().numpy()
    drawn = np.concatenate([buffer.sample(1000).rewards.flatten().numpy() for _ in range(50)])
    names, counts = np.unique(drawn, return_counts=True)
    assert names.tolist() == sorted(held.tolist())
    assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbouring_draws_do_not_depend_on_each_other() -> None:
    buffer = replay(10, 1, 10)
    drawn = buffer.sample(40_001).rewards.flatten().numpy().astype(int)
    table = np.zeros((10, 10))
    np.add.at(table, (drawn[:-1], drawn[1:]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_every_row_of_a_rollout_comes_to_every_place_equally_often() -> None:
    buffer = relive.RolloutBuffer(3, NUMBER, ACTION, device="cpu", n_envs=2, seed=0)
    for t in range(3):
        buffer.add([[t], [t + 3]], [0, 0], [0, 0], [0, 0], torch.zeros(2), torch.zeros(2))
    table = np.zeros((6, 6))
    for _ in range(3000):
        order = next(iter(buffer.get())).observations.flatten().long().numpy()
        table[np.arange(6), order] += 1
    assert stats.chisquare(table.ravel(), ddof=10).pvalue > 1e-4


def draws(buffer: relive.ReplayBuffer, count: int = 4) -> list[list[float]]:
    return [buffer.sample(7).rewards.flatten().tolist() for _ in range(count)]


def test_a_private_seed_gives_the_same_draws_whatever_else_is_drawn() -> None:
    one, other = replay(100, 3, 150, seed=7), replay(100, 3, 150, seed=7)
    first = draws(one)
    np.random.seed(99)
    np.random.random(5)
    before = np.random.get_state()
    assert draws(other) == first
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), before, strict=True))
    assert draws(replay(100, 3, 150, seed=8)) != first


def test_a_generator_is_shared_with_its_owner() -> None:
    generator = np.random.default_rng(3)
    first = draws(replay(100, 3, 150, seed=generator), 1)
    assert draws(replay(100, 3, 150, seed=np.random.default_rng(3)), 1) == first
    assert generator.bit_generator.state != np.random.default_rng(3).bit_generator.state


def test_without_a_seed_draws_follow_numpys_global_one() -> None:
    buffer = replay(100, 3, 150, seed=None)
    np.random.seed(4)
    first = draws(buffer)
    assert draws(buffer) != first
    np.random.seed(4)
    assert draws(buffer) == first


@pytest.mark.parametrize("way", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_goes_on_with_the_same_stream(way: Callable) -> None:
    buffer = replay(100, 3, 150, seed=7)
    draws(buffer)
    twin = way(buffer)
    np.random.seed(1)
    assert draws(twin) == draws(buffer)


@pytest.mark.parametrize("seed", [1, None])
def test_rollouts_shuffle_with_the_same_streams(seed: int | None) -> None:
    orders = []
    for _ in range(2):
        np.random.seed(3)
        buffer = relive.RolloutBuffer(20, NUMBER, ACTION, device="cpu", seed=seed)
        for t in range(20):
            buffer.add([[t]], [0], [0], [0], torch.zeros(1), torch.zeros(1))
        orders.append([next(iter(buffer.get())).observations.flatten().tolist() for _ in range(2)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


def test_nothing_is_shuffled_before_the_first_minibatch_is_asked_for() -> None:
    buffer = relive.RolloutBuffer(1, NUMBER, ACTION, device="cpu")
    buffer.add([[0]], [0], [0], [0], torch.zeros(1), torch.zeros(1))
    np.random.seed(0)
    buffer.get()
    here = np.random.random()
    np.random.seed(0)
    assert np.random.random() == here
