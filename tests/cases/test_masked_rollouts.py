"""Rows of a rollout that are no steps: nothing of theirs counts, wherever they lie and whatever they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive import errors
from tests.cases.chains import rollout
from tests.reference.gae import gae_of_ends

NEVER = np.array([False])
GARBAGE = (np.nan, np.inf, -np.inf, -1.0, 7.0, 1e300)


def lane(
    rows: list[tuple[float, float, bool]], last_value: float = 0.0, *, words: bool = True, **ends: dict[int, Any]
) -> relive.RolloutBuffer:
    """A rollout of one environment: (reward, value, whether it is a step), and by name what some rows have beside."""
    buffer = rollout(len(rows), gamma=0.5, gae_lambda=1)
    for t, (reward, value, real) in enumerate(rows):
        more = {name: by_row[t] for name, by_row in ends.items() if t in by_row}
        start = more.pop("episode_start", t == 0)
        end = {"terminated": False} | more if words else more
        buffer.add([float(t)], 0, reward, start, [value], [0.0], mask=np.array([real]), **end)
    buffer.compute_returns_and_advantage([last_value], None if words else NEVER)
    return buffer


@pytest.mark.parametrize("words", [True, False], ids=["gymnasium's words", "the seed's form"])
@pytest.mark.parametrize(
    ("rows", "last_value", "expected"),
    [
        ([(1, 0, True), (100, 7, False), (1, 0, True), (1, 0, True)], 0, [1.75, 0, 1.5, 1]),
        ([(100, 7, False), (1, 0, True), (1, 0, True)], 0, [0, 1.5, 1]),
        ([(1, 0, True), (1, 0, True), (100, 7, False)], 4, [2.5, 3, 0]),
        ([(1, 0, True), (100, 7, False), (50, 9, False), (1, 3, True)], 0, [1.5, 0, 0, -2]),
        ([(100, 7, False), (100, 7, False)], 4, [0, 0]),
    ],
    ids=["in the middle", "first", "last", "several in a row", "all"],
)
def test_miles_pr_1827_advantages_go_from_step_to_step(
    rows: list[tuple[float, float, bool]], last_value: float, expected: list[float], words: bool
) -> None:
    buffer = lane(rows, last_value, words=words)
    assert buffer.advantages.flatten().tolist() == expected
    real = [bool(row[2]) for row in rows]
    assert buffer.returns.flatten().tolist() == [
        advantage + value if is_step else 0
        for advantage, (_, value, _), is_step in zip(expected, rows, real, strict=True)
    ]


def test_an_end_before_a_row_that_is_no_step_stops_there() -> None:
    rows = [(1.0, 0.0, True), (100.0, 7.0, False), (1.0, 0.0, True)]
    assert lane(rows, terminated={0: True}).advantages.flatten().tolist() == [1, 0, 1]
    truncated = lane(rows, truncated={0: True}, final_value={0: [6.0]})
    assert truncated.advantages.flatten().tolist() == [4, 0, 1]


@pytest.mark.parametrize("start_at", [1, 2], ids=["on the reset row", "on the first step"])
def test_in_the_seeds_form_a_start_counts_on_the_reset_row_and_on_the_first_step(start_at: int) -> None:
    rows = [(1.0, 0.0, True), (100.0, 7.0, False), (1.0, 0.0, True)]
    buffer = lane(rows, words=False, episode_start={start_at: True})
    assert buffer.advantages.flatten().tolist() == [1, 0, 1]


def test_in_the_seeds_form_a_start_on_a_last_reset_row_ends_the_step_before() -> None:
    buffer = lane([(1.0, 0.0, True), (1.0, 7.0, False)], 9.0, words=False, episode_start={1: True})
    assert buffer.advantages.flatten().tolist() == [1, 0]


def test_under_next_step_autoreset_a_truncated_step_bootstraps_from_the_reset_row() -> None:
    rows = [(1.0, 0.0, True), (100.0, 7.0, False), (1.0, 0.0, True)]
    assert lane(rows, truncated={0: True}).advantages.flatten().tolist() == [4.5, 0, 1]
    several = [rows[0], rows[1], (50.0, np.nan, False), rows[2]]
    assert lane(several, truncated={0: True}).advantages.flatten().tolist() == [4.5, 0, 0, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reset_row_that_shall_bootstrap_has_a_finite_value(value: float) -> None:
    buffer = rollout(3, gamma=0.5)
    buffer.add([0.0], 0, 1.0, True, [0.0], [0.0], truncated=[True])
    with pytest.raises(errors.FinalValueError, match=r"step 0 of environment 0.*reset row that follows, got (nan|inf)"):
        buffer.add([1.0], 0, 0.0, False, [value], [0.0], terminated=[False], mask=NEVER)
    assert buffer.pos == 1
    buffer.add([1.0], 0, 0.0, False, [4.0], [0.0], terminated=[False], mask=NEVER)
    buffer.add([2.0], 0, 1.0, True, [0.0], [0.0], terminated=[True])
    buffer.compute_returns_and_advantage([np.nan])
    assert buffer.advantages.flatten().tolist() == [3, 0, 1]


@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered in cast")
def test_openrlhf_pr_1240_what_a_row_that_is_no_step_holds_spoils_nothing(garbage: float, validate: Any) -> None:
    """Neither is it checked: a NaN reward, an observation out of range, half a flag."""
    pixels = spaces.Box(0, 255, (2,), np.uint8)
    buffers = [relive.RolloutBuffer(3, pixels, spaces.Discrete(3), "cpu", n_envs=2, validate=validate) for _ in "ab"]
    for buffer, bad in zip(buffers, (0.0, garbage), strict=True):
        for t in range(3):
            out = bad if t == 1 else 1.0
            pair = np.array([1.0, out])
            buffer.add(
                np.array([[1.0, 1.0], [out, out]]), pair, pair, [0, bad if t == 1 else 0], pair, pair,
                terminated=[0, bad if t == 1 else 0], truncated=[0, bad if t == 1 else 0], final_value=pair,
                mask=np.array([True, t != 1]),
            )  # fmt: skip
        buffer.compute_returns_and_advantage([1.0, 1.0])
    clean, spoilt = buffers
    for name in ("observations", "actions", "rewards", "values", "log_probs", "advantages", "returns"):
        assert getattr(clean, name).tobytes() == getattr(spoilt, name).tobytes(), name
        assert not getattr(spoilt, name)[1, 1].any(), name
    assert len(next(iter(spoilt.get())).returns) == 5


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 5),
    gae_lambda=st.sampled_from([0.0, 0.6, 1.0]),
    share=st.sampled_from([0.2, 0.6, 1.0]),
    form=st.sampled_from(["words", "seed"]),
    partial=st.booleans(),
)
def test_a_masked_rollout_is_lane_by_lane_the_rollout_of_its_steps_alone(
    seed: int, steps: int, envs: int, gae_lambda: float, share: float, form: str, partial: bool
) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, finals = rng.standard_normal((3, steps, envs)).astype(np.float32)
    last, dones = rng.standard_normal(envs).astype(np.float32), rng.random(envs) < 0.5
    terminated, truncated, starts = rng.random((3, steps, envs)) < 0.3
    valid = rng.random((steps, envs)) < share
    starts &= valid
    for array in (rewards, values, finals):
        array[~valid] = rng.choice([np.nan, np.inf, 5.0], (~valid).sum())
    options = {"gamma": 0.9, "gae_lambda": gae_lambda}
    masked = rollout(steps + partial, envs, **options)
    zeros = np.zeros((envs, 1))
    for t in range(steps):
        ends = {"terminated": terminated[t], "truncated": truncated[t], "final_value": finals[t]}
        masked.add(
            zeros, np.zeros(envs, int), rewards[t], starts[t] * (form == "seed"), values[t], values[t],
            mask=valid[t], **(ends if form == "words" else {}),
        )  # fmt: skip
    masked.compute_returns_and_advantage(last, dones)
    if form == "words":
        expected = gae_of_ends(rewards, values, terminated, truncated, finals, last, 0.9, gae_lambda, valid)
        assert np.allclose(masked.advantages[:steps], expected, atol=1e-4)
    for env in range(envs):
        rows = np.flatnonzero(valid[:, env])
        assert not masked.advantages[:steps][~valid].any()
        assert not masked.returns[:steps][~valid].any()
        if not len(rows):
            continue
        alone = rollout(len(rows), **options)
        for t in rows:
            end: dict[str, Any] = {
                "terminated": terminated[t, [env]],
                "truncated": truncated[t, [env]],
                "final_value": finals[t, [env]],
            }
            alone.add(
                [0.0], 0, rewards[t, env], starts[t, env] and form == "seed", values[t, [env]], [0.0],
                **(end if form == "words" else {}),
            )  # fmt: skip
        alone.compute_returns_and_advantage(last[[env]], dones[[env]])
        assert masked.advantages[rows, env].tobytes() == alone.advantages.tobytes()
        assert masked.returns[rows, env].tobytes() == alone.returns.tobytes()


def test_minibatches_hold_steps_only() -> None:
    buffer = lane([(1.0, 2.0, True), (100.0, 7.0, False), (1.0, 3.0, True)])
    (batch,) = buffer.get()
    assert sorted(batch.old_values.tolist()) == [2, 3]
    assert torch.isfinite(batch.returns).all()


# Environments and agents that sit steps out --------------------------------------------------------------------------

# Three agents: one in all steps, one that joins late and leaves early, one in none.
TAKES_PART = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0]], bool)


def agents(rows: int, takes_part: np.ndarray, **options: Any) -> relive.RolloutBuffer:
    """A rollout in which agent a observes 10 a + t in row t, and nonsense where it sits out."""
    n_envs = takes_part.shape[1]
    buffer = rollout(rows, n_envs, gamma=0.5, gae_lambda=1, **options)
    for t, real in enumerate(takes_part):
        number = np.where(real, 10 * np.arange(n_envs) + t, np.nan)
        buffer.add(
            number[:, None], np.zeros(n_envs, int), number, np.zeros(n_envs), number, number,
            terminated=np.zeros(n_envs), mask=real,
        )  # fmt: skip
    buffer.compute_returns_and_advantage(np.zeros(n_envs))
    return buffer


def test_mava_628_steps_are_counted_for_each_agent() -> None:
    """Also instadeepai/Mava#782, #870."""
    buffer = agents(4, TAKES_PART)
    assert buffer.lane_sizes.tolist() == [4, 2, 0]
    assert (len(buffer), buffer.num_transitions) == (6, 6)
    assert (buffer.size(), buffer.pos, buffer.full) == (4, 4, True)
    buffer.reset()
    assert (len(buffer), buffer.lane_sizes.tolist()) == (0, [0, 0, 0])
    everyone = agents(5, np.ones((2, 3), bool))
    assert (len(everyone), everyone.lane_sizes.tolist()) == (6, [2, 2, 2])


def test_mava_870_minibatches_hold_the_steps_of_those_who_took_part() -> None:
    buffer = agents(4, TAKES_PART, seed=0)
    batches = list(buffer.get(4))
    assert [len(batch.returns) for batch in batches] == [4, 2]
    assert not any(hasattr(batch, "mask") for batch in batches)
    assert sorted(torch.cat([batch.observations for batch in batches]).flatten().tolist()) == [0, 1, 2, 3, 11, 12]
    for batch in batches:
        assert torch.equal(batch.old_values, batch.observations.flatten())


def test_mava_782_minibatches_of_every_row_say_which_are_steps() -> None:
    buffer = agents(4, TAKES_PART, seed=0)
    batches = list(buffer.get(5, masked="keep"))
    assert [len(batch.returns) for batch in batches] == [5, 5, 2]
    for batch in batches:
        assert batch._fields == relive.RolloutBufferSamples._fields
        assert (batch.mask.dtype, batch.mask.shape) == (torch.bool, batch.returns.shape)
        for field in batch:
            assert torch.isfinite(field).all()
            assert not field[~batch.mask].any()
    seen = torch.cat([batch.observations[batch.mask] for batch in batches])
    assert sorted(seen.flatten().tolist()) == [0, 1, 2, 3, 11, 12]


def test_a_rollout_in_which_all_took_part_has_masks_on_request_too() -> None:
    (batch,) = agents(3, np.ones((2, 3), bool), seed=0).get(partial=True, masked="keep")
    assert batch.mask.tolist() == [True] * 6


def test_nobody_took_part() -> None:
    buffer = agents(2, np.zeros((2, 3), bool))
    assert len(buffer) == 0
    assert list(buffer.get(4)) == []
    assert [batch.mask.tolist() for batch in buffer.get(4, masked="keep")] == [[False] * 4, [False] * 2]


def test_another_word_for_masked_rows_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError, match="masked is 'zero', expected 'drop' or 'keep'"):
        agents(4, TAKES_PART).get(4, masked="zero")  # type: ignore[arg-type]


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 8),
    envs=st.integers(1, 4),
    batch_size=st.none() | st.integers(1, 9),
    partial=st.booleans(),
)
def test_every_step_comes_once_and_knows_its_mask(
    seed: int, steps: int, envs: int, batch_size: int | None, partial: bool
) -> None:
    takes_part = np.random.default_rng(seed).random((steps, envs)) < 0.6
    buffer = agents(steps + partial, takes_part, seed=seed)
    numbers = (10 * np.arange(envs) + np.arange(steps)[:, None])[takes_part]
    dropped = list(buffer.get(batch_size, partial=True))
    kept = list(buffer.get(batch_size, partial=True, masked="keep"))
    assert sum(len(batch.mask) for batch in kept) == steps * envs
    for batches in ([batch.observations for batch in dropped], [batch.observations[batch.mask] for batch in kept]):
        seen = [number for part in batches for number in part.flatten().tolist()]
        assert sorted(seen) == sorted(numbers.tolist())
    assert buffer.lane_sizes.tolist() == takes_part.sum(axis=0).tolist()
    assert len(buffer) == takes_part.sum()


def test_rows_drawn_with_replacement_are_steps_too() -> None:
    buffer = agents(4, TAKES_PART, seed=0)
    batch = buffer.sample(200)
    assert set(batch.observations.flatten().tolist()) == {0, 1, 2, 3, 11, 12}
    assert torch.equal(batch.old_values, batch.observations.flatten())
    with pytest.raises(errors.EmptyBufferError, match="no row is a step"):
        agents(2, np.zeros((2, 3), bool)).sample(1)


def test_in_a_game_of_turns_an_episode_may_end_while_one_sits_out() -> None:
    """In the seed's form: the player moves in every second row, and the game ends with the other's second move."""
    buffer = rollout(6, gamma=0.5, gae_lambda=1)
    for t in range(6):
        buffer.add([t], 0, 1.0, t in (0, 4), [0.0], [0.0], mask=np.array([t % 2 == 0]))
    buffer.compute_returns_and_advantage([8.0], [True])
    assert buffer.advantages.flatten().tolist() == [1.5, 0, 1, 0, 1, 0]


def test_masks_reach_minibatches_of_a_subclass() -> None:
    class Mine(relive.RolloutBuffer):
        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            return super()._get_samples(batch_inds, env)

    buffer = Mine(2, spaces.Box(-9, 9, (1,)), spaces.Discrete(2), "cpu", n_envs=2)
    for t in range(2):
        buffer.add([[t], [t]], [0, 0], [0, 0], [0, 0], [1, 1], [0, 0], mask=np.array([True, t == 0]))
    buffer.compute_returns_and_advantage([0, 0], [0, 0])
    for batch in buffer.get(3, masked="keep"):
        assert torch.equal(batch.old_values > 0, batch.mask)
