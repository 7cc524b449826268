"""Sequences against the twin: legal starts, steps, masks, first flags, padding, burn-in, states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from tests.views.configs import LIVES, WINDOWS, WITH_REPLACEMENT, hindsight, plain
from tests.views.life import Life
from tests.views.worlds import Config


@given(config=plain(), seeds=LIVES, window=WINDOWS, data=st.data(), normalised=st.booleans())
def test_every_sequence_drawn_is_that_of_its_start(
    config: Config, seeds: list[int], window: dict[str, Any], data: st.DataObject, normalised: bool
) -> None:
    burn_in = data.draw(st.integers(0, window["length"] - 1), label="burn_in")
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
        life.check_sequences(4, burn_in=burn_in, normalised=normalised, **window)


@given(config=hindsight(), seeds=LIVES, window=WINDOWS)
def test_a_relabelled_sequence_has_one_goal(config: Config, seeds: list[int], window: dict[str, Any]) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
        life.check_sequences(5, **(window | {"cross_episodes": False}))


@given(config=plain(sampler="prioritized"), seeds=LIVES, window=WINDOWS)
def test_priorities_can_be_left_aside(config: Config, seeds: list[int], window: dict[str, Any]) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
    life.check_sequences(4, priorities=False, **window)


@pytest.mark.parametrize("sampler", WITH_REPLACEMENT)
@pytest.mark.parametrize(("align", "pad"), [("start", "end"), ("start", "none"), ("end", "start"), ("end", "none")])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_legal_start_is_drawn(sampler: str, align: str, pad: str, stride: int) -> None:
    life = Life(Config(rows=8, lanes=2, sampler=sampler, fields=True))
    for seed in range(10):
        life.happen(seed)
        legal = life.twin.legal_starts(3, stride, pad, False, align=align)
        batch = life.check_sequences(400, 3, stride=stride, pad=pad, align=align)
        assert set([] if batch is None else batch.handles.tolist()) == set(life.twin.handles(legal))


@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=12), window=WINDOWS)
def test_counts_keep_up_with_every_write(seeds: list[int], window: dict[str, Any]) -> None:
    """Several kinds of window in turn over one buffer, counted before, between and after writes."""
    life = Life(Config(rows=7, lanes=3))
    others = [
        window,
        {"length": 2, "stride": 1, "pad": "none", "cross_episodes": False},
        {"length": 3, "stride": 2, "pad": "none", "cross_episodes": True, "align": "end"},
    ]
    for seed in seeds:
        life.happen(seed)
        for one in others:
            assert life.buffer.count_sequences(**one) == len(life.twin.legal_starts(**one))


@pytest.mark.parametrize("sampler", ["by the buffer", "rank", relive.Uniform(over="episodes")])
@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=12), window=WINDOWS)
def test_one_kind_of_window_keeps_up_with_every_write(sampler: Any, seeds: list[int], window: dict[str, Any]) -> None:
    """Books of draws by value or by episode change with each write; so the same window again and again."""
    config = Config(rows=6, lanes=2, sampler=sampler if isinstance(sampler, str) else "uniform")
    life = Life(config) if isinstance(sampler, str) else Life(config, sampler=sampler)
    for seed in seeds:
        life.happen(seed)
        life.check_sequences(6, **window)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0"),
        ({"length": 3, "burn_in": 3}, "burn_in is 3"),
        ({"length": 3, "burn_in": -1}, "burn_in is -1"),
        ({"length": 3, "stride": 0}, "stride is 0"),
        ({"length": 3, "pad": "start"}, "pad is 'start'"),
        ({"length": 3, "pad": "end", "align": "end"}, "pad is 'end'"),
        ({"length": 3, "align": "middle"}, "align is 'middle'"),
        ({"length": 3, "states": ("memory",)}, "memory"),
    ],
)
def test_options_are_checked_by_name(options: dict[str, Any], message: str) -> None:
    life = Life(Config(rows=6, fields=True))
    life.happen(0)
    with pytest.raises((ValueError, KeyError), match=message):
        life.buffer.sample_sequences(2, **options)


def test_hindsight_over_ends_is_refused() -> None:
    life = Life(Config(space="goal", rows=6, strategy="future"))
    for seed in range(4):
        life.happen(seed)
    with pytest.raises(ValueError, match="cross_episodes"):
        life.buffer.sample_sequences(2, 3, cross_episodes=True)
