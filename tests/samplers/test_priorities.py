"""Masses, weights and priorities that come back."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import relive
from tests.cases.chains import replay, step
from tests.reference.priorities import Masses, mass, probabilities, sequence_priority, weights
from tests.views.life import Life
from tests.views.worlds import Config

COPIES = [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy]


def filled(steps: int, rows: int = 8, **options: Any) -> relive.ReplayBuffer:
    buffer = replay(rows, sampler=relive.Prioritized(**({"alpha": 1.0, "eps": 0.0} | options)), seed=0)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=15),
    rows=st.integers(1, 9),
    lanes=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.4, 0.6, 1.0]),
    eps=st.sampled_from([0.0, 1e-6, 0.1]),
    initial=st.sampled_from(["max", 2.5]),
    max_over=st.sampled_from(["held", "ever"]),
)
@example([107, 1, 104989], 2, 1, 0.4, 0.0, "max", "held")  # the largest goes when one call fills the ring anew
def test_masses_are_those_of_the_twin(
    seeds: list[int], rows: int, lanes: int, alpha: float, eps: float, initial: Any, max_over: Any
) -> None:
    sampler = relive.Prioritized(alpha=alpha, eps=eps, initial=initial, max_over=max_over)
    life = Life(Config(rows=rows, lanes=lanes), sampler=sampler)
    twin = Masses(alpha, eps, initial, max_over)
    known: set[int] = set()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        kind = rng.choice(["add", "add some", "extend", "update", "update", "copy", "draw"])
        if kind == "add":
            life.add(rng)
        elif kind == "add some":
            life.add(rng, mask=rng.random(lanes) < 0.5)
        elif kind == "extend":
            life.extend(rng, int(rng.integers(0, 2 * rows)))
        elif kind == "copy":
            life.copy(str(rng.choice(["deepcopy", "pickle"])))
        elif kind == "draw" and life.twin.held():
            life.buffer.sample(5)
        elif kind == "update" and known:
            handles = rng.choice(sorted(known), size=rng.integers(1, 9))
            priorities = rng.integers(0, 5, len(handles)) / 2
            assert life.buffer.update_priorities(handles, priorities) == twin.update(handles.tolist(), priorities)
        if kind in ("add", "add some", "extend"):
            twin.follow(life.twin.handles())
        known |= set(life.twin.handles())
        assert life.buffer.sampler.dropped == twin.dropped
        got = life.buffer.priorities(life.twin.handles())
        np.testing.assert_allclose(got, [twin.of[h] for h in life.twin.handles()], rtol=1e-12)


@given(
    priorities=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e6]), min_size=1, max_size=9),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
    over=st.sampled_from(["batch", "buffer"]),
    size=st.integers(1, 20),
)
def test_each_draw_comes_from_its_own_stratum_with_its_own_weight(
    priorities: list[float], alpha: float, beta: float, over: Any, size: int
) -> None:
    """One lane that has not wrapped: the masses lie side by side in the order of adding."""
    eps = 1e-3
    buffer = filled(len(priorities), 9, alpha=alpha, beta=beta, eps=eps, weights_over=over)
    buffer.update_priorities(buffer.handles(), priorities)
    masses = np.array([mass(p, alpha, eps) for p in priorities])
    batch = buffer.sample(size)
    drawn = batch.handles
    edges = np.concatenate([[0], np.cumsum(masses)])
    stratum = np.arange(size + 1) * edges[-1] / size
    slack = 1e-9 * edges[-1]
    assert (edges[drawn] < stratum[1:] + slack).all()
    assert (edges[drawn + 1] > stratum[:-1] - slack).all()
    expected = weights(probabilities(masses), drawn.tolist(), beta, over)
    np.testing.assert_allclose(batch.weights.numpy()[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("sampler", [relive.Prioritized, relive.RankPrioritized])
@pytest.mark.parametrize(
    ("bad", "message"), [(-1.0, "-1"), (np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")], ids=str
)
@pytest.mark.parametrize("words", ["priorities", "td_errors"])
def test_what_is_no_priority_is_refused_and_nothing_changes(sampler: Any, bad: float, message: str, words: str) -> None:
    buffer = replay(4, sampler=sampler(), seed=0)
    for t in range(4):
        step(buffer, t, t + 1)
    before = buffer.priorities(buffer.handles()).tolist()
    if bad == -1.0 and words == "td_errors":
        assert buffer.update_priorities([0], td_errors=[-1.0]) == 0  # an error has a sign
        return
    with pytest.raises(relive.errors.PriorityError, match=f"(?i){message}") as raised:
        buffer.update_priorities([2, 1, 3], **{words: [3.0, bad, 2.0]})
    assert isinstance(raised.value, ValueError)
    assert "1" in str(raised.value)
    assert buffer.priorities(buffer.handles()).tolist() == before
    buffer.sample(10)


@pytest.mark.parametrize("sampler", [relive.Prioritized, relive.RankPrioritized])
def test_priorities_of_any_kind_of_array_are_taken(sampler: Any) -> None:
    buffer = replay(4, sampler=sampler(), seed=0)
    for t in range(4):
        step(buffer, t, t + 1)
    batch = buffer.sample(3)
    errors = torch.tensor([[1.0], [-2.0], [3.0]], requires_grad=True)
    for values in (errors, errors.flatten().detach(), errors.detach().numpy(), [1.0, -2.0, 3.0]):
        assert buffer.update_priorities(batch.handles, td_errors=values) == 0
    assert buffer.update_priorities([], []) == 0
    with pytest.raises(ValueError, match="3"):
        buffer.update_priorities(batch.handles, [1.0, 2.0])


def test_priorities_of_steps_that_are_not_held_raise_when_asked_for() -> None:
    buffer = filled(9, rows=8)
    with pytest.raises(relive.errors.StaleHandleError):
        buffer.priorities([0])
    with pytest.raises(relive.errors.StaleHandleError):
        buffer.priorities([99])


def test_generations_of_one_place_are_told_apart() -> None:
    """TorchRL, the generations in test_writers.py."""
    buffer = filled(4, rows=4)
    first = buffer.handles()
    for t in (4, 5):
        step(buffer, t, t + 1)
    assert buffer.held_handles(first).tolist() == [False, False, True, True]
    assert buffer.update_priorities(first, [9.0] * 4) == 2
    assert buffer.priorities(buffer.handles()).tolist() == [9.0, 9.0, 1.0, 1.0]
    nine = np.zeros((9, 1), np.float32)
    buffer.extend(nine[..., None], nine[..., None] + 1, nine.astype(int), nine, nine)  # twice round in one call
    assert buffer.update_priorities(first, [7.0] * 4) == 4
    assert buffer.sampler.dropped == 6
    held = buffer.handles()
    buffer.reset()
    assert buffer.update_priorities(held, [7.0] * 4) == 4


@pytest.mark.parametrize("way", COPIES, ids=["pickle", "deepcopy"])
def test_a_copy_has_its_own_priorities(way: Callable) -> None:
    buffer = filled(5, max_over="ever", beta=0.3)
    buffer.update_priorities(buffer.handles(), [1.0, 2.0, 3.0, 4.0, 50.0])
    twin = way(buffer)
    twin.update_priorities([4], [0.5])
    buffer.sampler.beta = 0.9
    assert buffer.priorities(buffer.handles()).tolist() == [1, 2, 3, 4, 50]
    assert twin.priorities(twin.handles()).tolist() == [1, 2, 3, 4, 0.5]
    assert twin.sampler.beta == 0.3
    step(twin, 5, 6)
    assert twin.priorities(twin.handles())[-1] == 50  # the largest ever is remembered


def test_beta_can_be_set_while_running() -> None:
    buffer = filled(2, weights_over="buffer", beta=1.0)
    buffer.update_priorities([0, 1], [1.0, 3.0])
    for beta in (1.0, 0.5, 0.0):
        buffer.sampler.beta = beta
        batch = buffer.sample(8)
        expected = np.where(batch.handles == 0, 1, (1 / 3) ** beta)
        np.testing.assert_allclose(batch.weights.numpy()[:, 0], expected, rtol=1e-6)


def test_beta_can_follow_the_progress_of_training() -> None:
    buffer = filled(2, weights_over="buffer", beta=lambda progress: 0.4 + 0.6 * progress)
    buffer.update_priorities([0, 1], [1.0, 3.0])
    assert buffer.sampler.progress == 0
    for progress in (0.0, 0.5, 1.0):
        buffer.sampler.progress = progress
        batch = buffer.sample(8)
        expected = np.where(batch.handles == 0, 1, (1 / 3) ** (0.4 + 0.6 * progress))
        np.testing.assert_allclose(batch.weights.numpy()[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("eta", [0.9, 0.0, 1.0])
def test_the_priority_of_a_sequence_mixes_maximum_and_mean_over_its_mask(eta: float) -> None:
    """Kapturowski et al. 2019: eta · max + (1 - eta) · mean."""
    buffer = filled(6)
    errors = np.array([[1.0, -4.0, 2.0], [3.0, 99.0, 99.0], [7.0, 7.0, 7.0]])
    mask = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], bool)
    handles = np.array([0, 2, 4])
    assert buffer.update_priorities(handles, td_errors=errors, mask=torch.from_numpy(mask), eta=eta) == 0
    expected = [sequence_priority([1, -4, 2], eta), 1, sequence_priority([3], eta), 1, 1, 1]
    np.testing.assert_allclose(buffer.priorities(buffer.handles()), expected, rtol=1e-12)


def test_the_priority_of_a_drawn_batch_of_sequences() -> None:
    buffer = filled(6)
    batch = buffer.sample_sequences(4, 3)
    buffer.update_priorities(batch.handles, td_errors=torch.ones(4, 3) * 2, mask=batch.mask)
    assert set(buffer.priorities(batch.handles).tolist()) == {2.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"beta": -1.0}, "beta is -1"),
        ({"eps": -1e-6}, "eps is -1e-06"),
        ({"initial": -2.0}, "initial is -2"),
        ({"initial": "mean"}, "initial is 'mean'"),
        ({"max_over": "all"}, "max_over is 'all'"),
        ({"weights_over": "epoch"}, "weights_over is 'epoch'"),
    ],
)
def test_options_are_checked_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relive.Prioritized(**options)


def test_a_sampler_serves_one_buffer() -> None:
    """Two buffers made with one object do not share priorities, or the second is refused."""
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    one = replay(4, sampler=sampler, seed=0)
    try:
        other = replay(4, sampler=sampler, seed=0)
    except (relive.ReliveError, ValueError):
        return
    for buffer in (one, other):
        step(buffer, 0, 1)
    one.update_priorities([0], [7.0])
    assert other.priorities([0]).tolist() == [1.0]


def test_new_steps_that_push_out_every_old_one_do_not_inherit_from_them() -> None:
    buffer = filled(3, rows=4)
    buffer.update_priorities(buffer.handles(), [5.0, 9.0, 7.0])
    rows = np.zeros((6, 1), np.float32)
    buffer.extend(rows[..., None], rows[..., None] + 1, rows.astype(int), rows, rows)
    assert buffer.priorities(buffer.handles()).tolist() == [1.0] * 4


def test_priorities_without_a_sampler_that_has_them_are_refused() -> None:
    buffer = replay(4, seed=0)
    step(buffer, 0, 1)
    with pytest.raises((relive.ReliveError, TypeError, ValueError), match=r"(?i)prioriti"):
        buffer.update_priorities([0], [1.0])
