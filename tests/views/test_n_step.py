"""n-step draws against the twin, with every sampler, space, end and field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.views.configs import LIVES, WITH_REPLACEMENT, plain
from tests.views.life import Life
from tests.views.worlds import Config


@given(config=plain(), seeds=LIVES, normalised=st.booleans())
def test_every_row_drawn_is_that_of_its_handle(config: Config, seeds: list[int], normalised: bool) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
        life.check_sample(6, normalised=normalised)


@pytest.mark.parametrize("sampler", WITH_REPLACEMENT)
@pytest.mark.parametrize("lanes", [1, 3])
def test_every_step_held_is_drawn_sooner_or_later(sampler: str, lanes: int) -> None:
    """The last steps of an episode and the newest of all, too."""
    life = Life(Config(rows=6, lanes=lanes, n_steps=4, sampler=sampler))
    for seed in range(12):
        life.happen(seed)
        if life.twin.held():
            drawn = life.check_sample(600)
            assert set(life.handles_of(drawn, drawn.observations)) == set(life.twin.handles())


@given(seeds=LIVES, n_steps=st.integers(1, 3))
def test_drawing_changes_nothing_that_is_stored(seeds: list[int], n_steps: int) -> None:
    life = Life(Config(space="dict", rows=5, lanes=2, n_steps=n_steps, fields=True))
    for seed in seeds:
        life.happen(seed)
    if not life.twin.held():
        return
    batch = life.buffer.sample(8)
    for tensor in (*batch.observations.values(), batch.rewards, batch.dones, *batch.extras.values()):
        tensor.fill_(1)
    life.check_sample(8)


def test_one_step_draws_have_no_discounts_and_longer_ones_the_real_length() -> None:
    life = Life(Config(rows=4, n_steps=1))
    life.happen(0)
    assert life.check_sample(3).discounts is None
