"""``max_times_sampled``: a step is drawn so often and not once more."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

import relive
from tests.cases.chains import replay, step
from tests.views.worlds import SAMPLERS


def filled(steps: int, limit: int, rows: int = 10, **options: Any) -> relive.ReplayBuffer:
    buffer = replay(rows, max_times_sampled=limit, seed=0, **options)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


def numbers(batch: Any) -> list[int]:
    return batch.observations.flatten().int().tolist()


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_every_step_is_drawn_exactly_so_often(sampler: str, limit: int, n_steps: int) -> None:
    buffer = filled(5, limit, sampler=SAMPLERS[sampler](), n_steps=n_steps)
    drawn = list(chain.from_iterable(numbers(buffer.sample(1)) for _ in range(5 * limit)))
    assert Counter(drawn) == dict.fromkeys(range(5), limit)
    assert not buffer.can_sample
    with pytest.raises(relive.errors.EmptyBufferError):
        buffer.sample(1)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 15])
@pytest.mark.parametrize("sampler", ["none", "uniform", "prioritized"])
def test_batches_of_any_size_use_up_the_draws(batch_size: int, sampler: str) -> None:
    buffer = filled(5, 3, sampler=SAMPLERS[sampler]())
    counts: Counter[int] = Counter()
    left = 15
    while left >= batch_size:
        counts.update(numbers(buffer.sample(batch_size)))
        left -= batch_size
    assert max(counts.values()) <= 3
    with pytest.raises(relive.errors.EmptyBufferError):
        buffer.sample(batch_size)
    if left:
        counts.update(numbers(buffer.sample(left)))  # the refused batch has used up nothing
    assert counts == dict.fromkeys(range(5), 3)


def test_new_steps_can_be_drawn_and_overwritten_ones_take_their_draws_along() -> None:
    buffer = filled(3, 1, rows=3)
    assert sorted(numbers(buffer.sample(3))) == [0, 1, 2]
    step(buffer, 3, 4)
    assert numbers(buffer.sample(1)) == [3]
    for t in (4, 5, 6):
        step(buffer, t, t + 1)
    assert sorted(numbers(buffer.sample(3))) == [4, 5, 6]


@pytest.mark.parametrize("way", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_goes_on_counting(way: Callable) -> None:
    buffer = filled(4, 2)
    before = numbers(buffer.sample(5))
    twin = way(buffer)
    assert Counter(before + numbers(twin.sample(3))) == dict.fromkeys(range(4), 2)
    assert Counter(before + numbers(buffer.sample(3))) == dict.fromkeys(range(4), 2)


def test_a_priority_does_not_bring_back_a_step_that_is_used_up() -> None:
    buffer = filled(3, 1, sampler=relive.Prioritized())
    first = buffer.sample(2)
    buffer.update_priorities(first.handles, [100.0, 100.0])
    assert sorted(numbers(first) + numbers(buffer.sample(1))) == [0, 1, 2]
    assert not buffer.can_sample


def test_each_epoch_uses_up_one_draw_of_every_step() -> None:
    buffer = filled(5, 2, sampler=relive.Uniform(replacement=False))
    assert sorted(numbers(buffer.sample(5))) == [0, 1, 2, 3, 4]
    step(buffer, 5, 6)
    assert sorted(numbers(buffer.sample(6))) == [0, 1, 2, 3, 4, 5]
    assert numbers(buffer.sample(1)) == [5]
    assert not buffer.can_sample


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"max_times_sampled is {limit}"):
        replay(4, max_times_sampled=limit)
