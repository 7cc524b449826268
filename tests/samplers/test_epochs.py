"""Without replacement: every step once an epoch."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from tests.cases.chains import replay, step
from tests.samplers.frequencies import are_equal
from tests.views.life import Life
from tests.views.worlds import Config

COPIES = [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy]


def numbers(buffer: relive.ReplayBuffer, batch_size: int) -> list[int]:
    return buffer.sample(batch_size).observations.flatten().int().tolist()


def filled(steps: int, rows: int = 10, **options: object) -> relive.ReplayBuffer:
    buffer = replay(rows, sampler=relive.Uniform(replacement=False), seed=0, **options)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7])
def test_an_epoch_draws_every_step_once_and_its_last_batch_is_short(batch_size: int) -> None:
    buffer = filled(7)
    for _ in range(3):
        batches = []
        while sum(map(len, batches)) < 7:
            batches.append(numbers(buffer, batch_size))
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
        assert len(batches[-1]) == (7 - 1) % batch_size + 1
        assert sorted(number for batch in batches for number in batch) == list(range(7))


def test_epochs_have_different_orders_each_equally_likely() -> None:
    buffer = filled(3)
    orders = [tuple(numbers(buffer, 3)) for _ in range(3000)]
    assert are_equal(orders, [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8])
def test_epoch_iterates_over_exactly_one(batch_size: int) -> None:
    buffer = filled(5)
    for _ in range(2):
        drawn = [batch.observations.flatten().int().tolist() for batch in buffer.epoch(batch_size)]
        assert sorted(number for batch in drawn for number in batch) == list(range(5))
        assert all(len(batch) == batch_size for batch in drawn[:-1])


def test_overwritten_steps_drop_out_and_new_ones_wait() -> None:
    buffer = filled(4, rows=4)
    first = numbers(buffer, 1)
    step(buffer, 4, 5)
    step(buffer, 5, 6)  # 0 and 1 are overwritten
    rest = [number for _ in range(len({2, 3} - set(first))) for number in numbers(buffer, 1)]
    assert sorted(rest) == sorted({2, 3} - set(first))
    assert sorted(numbers(buffer, 4)) == [2, 3, 4, 5]  # the next epoch


def test_a_batch_larger_than_the_epoch_is_refused_and_nothing_is_lost() -> None:
    buffer = filled(3)
    with pytest.raises(ValueError, match="4"):
        buffer.sample(4)
    assert sorted(numbers(buffer, 3)) == [0, 1, 2]


@pytest.mark.parametrize("way", COPIES, ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_in_mid_epoch_goes_on_without_repeats(way: Callable, seed: int) -> None:
    """TorchRL, load_state_dict_decouples_from_source."""
    buffer = filled(8)
    before = [numbers(buffer, 1) for _ in range(seed + 1)]
    twin = way(buffer)
    rest = [numbers(twin, 1) for _ in range(8 - len(before))]
    assert sorted(number for batch in before + rest for number in batch) == list(range(8))
    assert [numbers(buffer, 1) for _ in range(8 - len(before))] == rest  # and the original has not moved


def test_a_reset_begins_anew() -> None:
    buffer = filled(5)
    numbers(buffer, 2)
    buffer.reset()
    with pytest.raises(relive.errors.EmptyBufferError):
        buffer.sample(1)
    for t in (10, 11):
        step(buffer, t, t + 1)
    assert sorted(numbers(buffer, 2)) == [10, 11]


@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=12),
    lanes=st.integers(1, 3),
    rows=st.integers(1, 6),
    strategy=st.sampled_from([None, "future"]),
    batch_size=st.integers(1, 4),
)
def test_no_repeat_inside_an_epoch_whatever_happens(
    seeds: list[int], lanes: int, rows: int, strategy: str | None, batch_size: int
) -> None:
    """What is left of an epoch is known: the eligible steps of its start, without those drawn or overwritten."""
    space = "box" if strategy is None else "goal"
    life = Life(Config(space, rows=rows, lanes=lanes, sampler="epochs", strategy=strategy))
    left: set[int] = set()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        kind = rng.choice(["add", "add some", "extend"])
        if kind == "extend":
            life.extend(rng, int(rng.integers(0, rows + 2)))
        else:
            life.add(rng, mask=rng.random(lanes) < 0.5 if kind == "add some" else None)
        eligible = set(life.twin.handles(life.twin.eligible(life.config.goals)))
        left &= eligible
        if not left:
            left = set(eligible)
        if not eligible:
            with pytest.raises(relive.errors.EmptyBufferError):
                life.buffer.sample(1)
            continue
        size = min(batch_size, len(left))
        batch = life.buffer.sample(size)
        handles = life.handles_of(batch, batch.observations)
        assert max(Counter(handles).values()) == 1
        assert len(handles) == size
        assert set(handles) <= left
        left -= set(handles)
