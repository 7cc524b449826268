"""Everything with everything: each configuration lives a life of its own, with all views drawn along the way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.views.configs import WITH_REPLACEMENT
from tests.views.life import Life
from tests.views.worlds import WEIGHS, Config


def live_and_draw(config: Config, seed: int, operations: int = 6) -> None:
    rng = np.random.default_rng(seed)
    life = Life(config)
    for _ in range(operations):
        life.happen(int(rng.integers(2**32)))
        life.check_sample(6, normalised=bool(rng.random() < 0.3))
        cross = config.strategy is None and bool(rng.random() < 0.5)
        pad, stride = str(rng.choice(["end", "none"])), int(rng.integers(1, 3))
        life.check_sequences(4, int(rng.integers(1, 5)), pad=pad, stride=stride, cross_episodes=cross)
        life.check_episodes()
        if config.sampler in WEIGHS and life.twin.held():
            handles = rng.choice(life.twin.handles(), size=4)
            life.buffer.update_priorities(handles, rng.integers(0, 5, 4) / 2)


@pytest.mark.parametrize("sampler", WITH_REPLACEMENT)
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("space", ["box", "discrete", "dict"])
@pytest.mark.parametrize("fields", [False, True], ids=["", "fields"])
def test_plain(sampler: str, n_steps: int, lanes: int, space: str, fields: bool) -> None:
    shape = (2,) if fields else ()
    config = Config(space, rows=6, lanes=lanes, n_steps=n_steps, sampler=sampler, fields=fields, reward_shape=shape)
    live_and_draw(config, seed=lanes + n_steps)


@pytest.mark.parametrize("sampler", WITH_REPLACEMENT)
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode", "random"])
@pytest.mark.parametrize("ends_at_goals", [False, True], ids=["", "ends at goals"])
@pytest.mark.parametrize("running", [False, True], ids=["", "running"])
def test_hindsight(sampler: str, n_steps: int, strategy: str, ends_at_goals: bool, running: bool) -> None:
    config = Config(
        "goal",
        rows=6,
        lanes=3,
        n_steps=n_steps,
        sampler=sampler,
        strategy=strategy,
        ends_at_goals=ends_at_goals,
        running=running,
        copy_info=True,
        fields=True,
    )
    live_and_draw(config, seed=n_steps)


def test_the_whole_product_drawn_ten_thousand_times() -> None:
    """Prioritised, three steps, hindsight, Dict observations, four lanes, a wrapped ring, time limits, fields."""
    config = Config(
        "goal",
        rows=9,
        lanes=4,
        n_steps=3,
        sampler="prioritized",
        strategy="future",
        ends_at_goals=True,
        copy_info=True,
        fields=True,
    )
    life, rng = Life(config), np.random.default_rng(0)
    life.extend(rng, 12, ends=0.2)
    draws = 0
    while draws < 10_000:
        for _ in range(3):
            life.add(rng, ends=0.2)
        for _ in range(4):
            batch = life.check_sample(25)
            draws += 0 if batch is None else 25
        if batch is not None:
            life.buffer.update_priorities(batch.handles, td_errors=rng.standard_normal(25))
