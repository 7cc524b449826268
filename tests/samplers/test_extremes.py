"""Priorities as large and as small as numbers get (SlopDotCash/asi 314): sums stay finite, and no step vanishes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import relive
from tests.cases.chains import replay, step
from tests.reference.priorities import is_too_large, mass

SAMPLERS = {
    "over the batch": lambda alpha, **options: relive.Prioritized(alpha, eps=0.0, **options),
    "over the buffer": lambda alpha, **options: relive.Prioritized(alpha, eps=0.0, weights_over="buffer", **options),
}


def filled(steps: int, rows: int = 4, **options: Any) -> relive.ReplayBuffer:
    buffer = replay(rows, seed=0, **options)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


@pytest.mark.parametrize(
    ("alpha", "priority"), [(1.0, 1e308), (2.0, 1e200), (0.99, 1.7e308), (1.0, sys.float_info.max)]
)
def test_a_priority_whose_mass_could_overflow_the_sum_is_refused_with_the_largest_allowed(
    alpha: float, priority: float
) -> None:
    """asi 314: three of 1e308 were accepted, and every draw then gave one step with NaN weights."""
    buffer = filled(3, sampler=relive.Prioritized(alpha, eps=0.0))
    with pytest.raises(
        relive.errors.PriorityError, match=r"at row 1, expected at most \d\.\d+e\+\d+.*nothing was"
    ) as e:
        buffer.update_priorities([0, 1, 2], [7.0, priority, priority])
    assert buffer.priorities([0, 1, 2]).tolist() == [1.0] * 3
    largest = float(str(e.value).split("at most ")[1].split(":")[0])
    buffer.update_priorities([0, 1, 2], [largest] * 3)
    with pytest.raises(relive.errors.PriorityError):
        buffer.update_priorities([0], [np.nextafter(largest, np.inf)])
    step(buffer, 3, 4)
    batch = buffer.sample(400)
    assert np.isfinite(batch.weights.numpy()).all()
    assert np.bincount(batch.handles).tolist() == [100] * 4


@pytest.mark.parametrize(
    "options", [{"initial": 1e308}, {"alpha": 2.0, "initial": 1e200}, {"alpha": 2.0, "eps": 1e200}]
)
def test_a_first_priority_whose_mass_could_overflow_is_refused_at_construction(options: dict[str, Any]) -> None:
    options = {"alpha": 1.0} | options
    with pytest.raises(relive.errors.PriorityError, match=r"too large for alpha=.*expected priorities up to"):
        replay(4, sampler=relive.Prioritized(**options))


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("most", [None, 10**6])
def test_a_positive_priority_whose_mass_underflows_is_drawn_on(kind: str, most: int | None) -> None:
    buffer = filled(3, sampler=SAMPLERS[kind](2.0, beta=1.0), max_times_sampled=most)
    buffer.update_priorities([0, 1, 2], [1e-200, 0.0, 5e-324])
    assert buffer.priorities([0, 1, 2]).tolist() == [sys.float_info.min, 0.0, sys.float_info.min]
    batch = buffer.sample(100)
    assert set(batch.handles.tolist()) == {0, 2}
    assert batch.weights.unique().tolist() == [1.0]


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("most", [None, 10**6])
def test_weights_are_finite_over_the_whole_range(kind: str, most: int | None) -> None:
    buffer = filled(3, sampler=SAMPLERS[kind](1.0, beta=0.01), max_times_sampled=most)
    buffer.update_priorities([0, 1, 2], [1e307, 1e-307, 1.0])
    weights = buffer.sample(100).weights.numpy()
    assert np.isfinite(weights).all()
    assert weights.min() > 0  # that of the step that is hardly ever drawn is 1
    assert weights.max() <= 1


@given(
    alpha=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 30.0]),
    eps=st.sampled_from([0.0, 1e-6, 1e300, 5e-324]),
    priorities=st.lists(
        st.floats(0.0, sys.float_info.max) | st.sampled_from([1e308, 1e200, 1e154, 1e-200, 1.0]), min_size=3, max_size=3
    ),
    over=st.sampled_from(["batch", "buffer"]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
)
@example(1.0, 0.0, [1e308] * 3, "batch", 0.4)
@example(2.0, 0.0, [1e200] * 3, "batch", 0.4)
@example(2.0, 0.0, [1e-200, 1e-200, 0.0], "buffer", 1.0)
def test_every_priority_is_refused_or_drawn_by(
    alpha: float, eps: float, priorities: list[float], over: Any, beta: float
) -> None:
    try:
        buffer = filled(3, sampler=relive.Prioritized(alpha, beta, eps, weights_over=over))
    except relive.errors.PriorityError:
        assert is_too_large(1.0, alpha, eps, 4)
        return
    try:
        buffer.update_priorities([0, 1, 2], priorities)
    except relive.errors.PriorityError:
        assert any(is_too_large(2.01 * p, alpha, 2.01 * eps, 4) or p + eps > 8e307 for p in priorities)
        assert buffer.priorities([0, 1, 2]).tolist() == [buffer.priorities([0])[0]] * 3
        return
    masses = buffer.priorities([0, 1, 2])
    np.testing.assert_allclose(masses, [mass(p, alpha, eps) for p in priorities], rtol=1e-9)
    assert np.isfinite(masses * 4).all()
    batch = buffer.sample(64)
    assert np.isfinite(batch.weights.numpy()).all()
    counts = np.bincount(batch.handles, minlength=3)
    if masses.any():
        assert (abs(counts - 64 * (masses / masses.max()) / (masses / masses.max()).sum()) <= 2).all()


def test_ranks_take_any_finite_priority() -> None:
    buffer = filled(3, sampler=relive.RankPrioritized(alpha=2000.0, beta=1.0, weights_over="buffer"))
    buffer.update_priorities([0, 1, 2], [1e308, sys.float_info.max, 1e-300])
    batch = buffer.sample(50)
    assert set(batch.handles.tolist()) == {1}
    assert np.isfinite(batch.weights.numpy()).all()


def test_errors_of_sequences_have_a_mean_however_large_they_are() -> None:
    buffer = filled(3, sampler=relive.RankPrioritized())
    buffer.update_priorities([0, 1], td_errors=np.full((2, 4), sys.float_info.max))
    assert np.isfinite(buffer.priorities([0, 1])).all()
