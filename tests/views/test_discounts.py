"""Each step with a discount of its own, in a field that gamma names (SB3 1889)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import CastError
from tests.cases.chains import ACTION, NUMBER
from tests.views.life import Life
from tests.views.worlds import Config

FIELDS = {"discount": ((), np.float32)}


def replay(**options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(8, NUMBER, ACTION, device="cpu", **{"fields": FIELDS, "gamma": "discount"} | options)


def add(buffer: relive.ReplayBuffer, t: int, discount: Any, done: bool = False) -> None:
    buffer.add([t], [t + 1], 0, float(2**t), done=done, extras={"discount": discount})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rewards_are_summed_with_the_discounts_of_the_steps_before(dtype: Any) -> None:
    buffer = replay(n_steps=3, fields={"other": ((2,), np.int64), "discount": ((), dtype)})
    for t, discount in enumerate([0.5, 0.25, 1.0, 0.0, 0.5]):
        extras = {"discount": discount, "other": [7, 7]}
        buffer.add([t], [t + 1], 0, float(2**t), done=t == 3, extras=extras)
    batch = buffer.transitions(buffer.handles())
    assert batch.rewards.flatten().tolist() == [1 + 0.5 * 2 + 0.125 * 4, 2 + 0.25 * 4 + 0.25 * 8, 4 + 8, 8, 16]
    assert batch.discounts.flatten().tolist() == [0.125, 0, 0, 0, 0.5]


@pytest.mark.parametrize("n_steps", [1, 3])
def test_discounts_of_single_steps_are_those_of_the_field(n_steps: int) -> None:
    buffer = replay(n_steps=n_steps, seed=0)
    for t, discount in enumerate([0.5, 0.25, 0.75]):
        add(buffer, t, discount, done=True)
    batch = buffer.sample(9)
    assert batch.discounts.shape == (9, 1)
    assert batch.discounts.flatten().tolist() == batch.extras["discount"].tolist()
    sequences = buffer.sample_sequences(5, 2)
    assert sequences.discounts.squeeze(-1).tolist() == sequences.extras["discount"].tolist()
    assert set(sequences.discounts[:, 1].flatten().tolist()) == {0}  # padding


@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8),
    rows=st.integers(1, 7),
    lanes=st.integers(1, 3),
    n_steps=st.integers(1, 4),
    sampler=st.sampled_from(["none", "prioritized", "rank"]),
    strategy=st.sampled_from([None, "future", "random"]),
    ends_at_goals=st.booleans(),
    normalised=st.booleans(),
)
def test_every_draw_is_that_of_the_twin(
    seeds: list[int],
    rows: int,
    lanes: int,
    n_steps: int,
    sampler: str,
    strategy: str | None,
    ends_at_goals: bool,
    normalised: bool,
) -> None:
    life = Life(
        Config(
            "box" if strategy is None else "goal",
            rows=rows,
            lanes=lanes,
            n_steps=n_steps,
            gamma="discount",
            sampler=sampler,
            strategy=strategy,
            ends_at_goals=ends_at_goals,
            fields=True,
        )
    )
    for seed in seeds:
        life.happen(seed)
        life.check_sample(6, normalised=normalised)
        life.check_sequences(4, 3, normalised=normalised)


@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan, np.inf])
def test_what_is_no_discount_is_refused_and_nothing_stored(bad: float) -> None:
    buffer = replay()
    add(buffer, 0, 0.5)
    with pytest.raises(CastError, match=f"discount has the value {bad}, expected discounts from 0 to 1"):
        add(buffer, 1, bad)
    many = np.zeros((2, 1, 1), np.float32)
    with pytest.raises(CastError, match="discount has the value"):
        buffer.extend(many, many, [[0]] * 2, [[0.0]] * 2, [[0]] * 2, extras={"discount": [[0.5], [bad]]})
    with pytest.raises(CastError, match="discount has the value"):
        buffer.set([0], extras={"discount": [bad]})
    assert (len(buffer), buffer.transitions([0]).discounts.item()) == (1, 0.5)


def test_nobody_looks_at_the_discount_of_an_environment_that_sits_out() -> None:
    buffer = replay(n_envs=2)
    two = np.zeros((2, 1), np.float32)
    buffer.add(two, two, [0, 0], [0, 0], [0, 0], mask=np.array([True, False]), extras={"discount": [0.5, np.nan]})
    assert len(buffer) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": None}, "gamma is 'discount', expected a number from 0 to 1 or a declared field"),
        ({"fields": {"discount": ((1,), np.float32)}}, r"field of shape \(1,\)"),
        ({"fields": {"discount": ((), np.int64)}}, "dtype int64"),
        ({"gamma": 1.5}, "gamma is 1.5"),
    ],
)
def test_a_gamma_without_a_meaning_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(**options)


def test_gamma_can_become_a_field_and_a_number_again() -> None:
    buffer = replay(gamma=0.5, n_steps=2)
    for t in range(3):
        add(buffer, t, 0.25)
    assert buffer.transitions([0]).discounts.item() == 0.25
    buffer.gamma = "discount"
    assert buffer.transitions([0]).discounts.item() == 0.0625
    buffer.n_steps = 1
    assert buffer.transitions([0]).discounts.item() == 0.25
    buffer.gamma = 0.5
    assert buffer.transitions([0]).discounts is None
    add(buffer, 3, 7.0)
    with pytest.raises(CastError, match="discount has the value 7"):
        buffer.gamma = "discount"
    assert buffer.gamma == 0.5


def test_a_mixture_gives_discounts_of_all_buffers_or_of_none() -> None:
    one, other = replay(), replay(gamma=0.5)
    with pytest.raises(ValueError, match=r"gamma is 'discount' and 0\.5, so only one of them gives discounts"):
        relive.mix({one: 0.5, other: 0.5})
