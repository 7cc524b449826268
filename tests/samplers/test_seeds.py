"""Every sampler and view draws the same after the same seed (TorchRL's and cpprb's priorities do not)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.views.life import Life
from tests.views.worlds import SAMPLERS, Config

CONFIGS = {
    **{name: Config(rows=9, lanes=3, n_steps=2, sampler=name, fields=True) for name in SAMPLERS},
    **{
        f"hindsight, {strategy}": Config("goal", rows=9, lanes=3, n_steps=2, sampler="prioritized", strategy=strategy)
        for strategy in ("future", "final", "episode", "random")
    },
}
COPIES = [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy]


def filled(name: str, seed: Any) -> Any:
    life = Life(CONFIGS[name], seed=seed)
    rng = np.random.default_rng(0)
    for _ in range(20):
        life.add(rng, ends=0.2)
    return life.buffer


def draws(buffer: Any, name: str) -> list[bytes]:
    drawn = []
    for _ in range(4):
        batch = buffer.sample(3)
        drawn.append(batch.rewards.numpy().tobytes() + batch.handles.tobytes())
        if name != "epochs":
            sequences = buffer.sample_sequences(3, 2)
            drawn.append(sequences.rewards.numpy().tobytes() + sequences.handles.tobytes())
        drawn += [episode.handles.tobytes() for episode in buffer.sample_episodes(2)]
    return drawn


@pytest.mark.parametrize("name", CONFIGS)
def test_a_private_seed_reproduces_whatever_else_is_drawn(name: str) -> None:
    first = draws(filled(name, 7), name)
    np.random.seed(5)
    other = filled(name, 7)
    np.random.random(3)
    assert draws(other, name) == first
    assert draws(filled(name, 8), name) != first


@pytest.mark.parametrize("name", CONFIGS)
def test_without_a_seed_numpys_global_generator_decides(name: str) -> None:
    drawn = []
    for _ in range(2):
        buffer = filled(name, None)
        np.random.seed(3)
        drawn.append(draws(buffer, name))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("way", COPIES, ids=["pickle", "deepcopy"])
def test_a_copy_goes_on_with_the_same_draws(name: str, way: Callable) -> None:
    buffer = filled(name, 7)
    draws(buffer, name)
    twin = way(buffer)
    assert draws(twin, name) == draws(buffer, name)


def test_two_buffers_without_a_seed_differ() -> None:
    """Any two buffers of Tianshou draw the same rows."""
    one, other = filled("uniform", None), filled("uniform", None)
    assert draws(one, "uniform") != draws(other, "uniform")
