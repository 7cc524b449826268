"""Mixtures: how many rows come from where, that they come whole, and that priorities find their way back."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

import relive
import relive.sb3
from relive.annotated import annotated
from relive.buffers.reservoir import Reservoir
from relive.errors import EmptyBufferError, ShapeError
from relive.mixture import HANDLE, Mixture, mix
from tests import zoo

BOX, DISCRETE = spaces.Box(-1e9, 1e9, (2,), np.float32), spaces.Discrete(3)


def fill(buffer: Any, first: int, count: int) -> Any:
    for number in range(first, first + count):
        obs = np.full((1, 2), number, np.float32)
        buffer.add(obs, obs + 0.5, np.array([number % 3]), np.array([float(number)]), np.array([False]), [{}])
    return buffer


def ring(first: int = 0, count: int = 20, kind: Any = relive.ReplayBuffer, **options: Any) -> Any:
    return fill(kind(50, BOX, DISCRETE, "cpu", **options), first, count)


class Weighing(relive.ReplayBuffer):
    """Stands for a prioritized buffer: batches have weights and handles, and it notes the priorities it gets."""

    def sample(self, batch_size: int, env: Any = None) -> Any:
        held = self.handles()
        handles = held[self._stream.below(len(held), batch_size)]
        batch = self.transitions(handles, env=env)
        return annotated(
            batch,
            weights=batch.rewards / 1000,
            handles=handles,
            extras={"cost": -batch.rewards.flatten(), "mine": batch.rewards},
        )

    def update_priorities(self, handles: Any, priorities: Any = None, *, td_errors: Any = None) -> int:
        assert handles.dtype == np.int64 and handles.flags.c_contiguous
        self.given = (handles.tolist(), priorities, td_errors)
        return int((~self.held_handles(handles)).sum())


def counts(batch: Any, buffers: int = 2) -> list[int]:
    return np.bincount(batch.sources, minlength=buffers).tolist()


# How many rows from where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proportions", "size", "expected"),
    [
        ((0.75, 0.25), 256, [192, 64]),
        ((3, 1), 4, [3, 1]),
        ((0.5, 0.5), 7, [4, 3]),
        ((1, 1, 1), 256, [86, 85, 85]),
        ((0.6, 0.3, 0.1), 5, [3, 2, 0]),
        ((0.55, 0.25, 0.2), 10, [6, 2, 2]),
        ((0.29, 0.71), 100, [29, 71]),
        ((1, 0), 5, [5, 0]),
        ((1e-9, 1), 5, [0, 5]),
        ((2,), 3, [3]),
        ((1, 1), 0, [0, 0]),
        ((1, 1), 1, [1, 0]),
    ],
)
def test_counts_are_the_proportions_by_largest_remainders(proportions: Any, size: int, expected: list[int]) -> None:
    mixture = mix({ring(100 * i): share for i, share in enumerate(proportions)})
    batch = mixture.sample(size)
    assert counts(batch, len(proportions)) == expected
    assert len(batch.rewards) == size
    assert (batch.rewards.flatten().numpy() // 100 == batch.sources).all()
    assert (np.diff(batch.sources) >= 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 64])
@pytest.mark.parametrize("shares", [(0.75, 0.25), (0.99, 0.01), (0.5, 0.3, 0.15, 0.05), (1, 1, 1), (0, 1, 2)])
def test_what_rounding_leaves_over_is_made_good_by_the_next_batches(shares: tuple[float, ...], size: int) -> None:
    mixture = mix({ring(): share for share in shares})
    total = np.zeros(len(shares))
    for batch in range(1, 201):
        got = mixture._apportion(size)
        mixture._given += got
        assert got.min() >= 0 and got.sum() == size
        total += got
        assert np.abs(total - mixture.proportions * batch * size).max() < 1
    assert total[np.array(shares) == 0].sum() == 0


def test_rows_that_were_too_many_for_some_are_taken_back() -> None:
    mixture = mix({ring(): 1, ring(): 1, ring(): 1, ring(): 1})
    mixture._given[:] = [2, 2, 0, 0]  # as only a change behind its back can make it
    assert mixture._apportion(2).tolist() == [0, 0, 1, 1]
    mixture._given[:] = [9, 0, 0, 0]
    assert mixture._apportion(1).sum() == 1
    assert mixture._apportion(4).tolist()[0] == 0


def test_every_size_adds_up() -> None:
    mixture = mix({ring(): 0.37, ring(): 0.21, ring(): 0.42})
    for size in range(60):
        assert len(mixture.sample(size).rewards) == size


def test_proportions_can_be_set_at_any_time() -> None:
    own, shown = ring(0), ring(100)
    mixture = mix({own: 6, shown: 2})
    assert mixture.buffers == (own, shown)
    assert mixture.proportions.tolist() == [0.75, 0.25]
    mixture.proportions[0] = 5
    assert mixture.proportions.tolist() == [0.75, 0.25], "what is read is a copy"
    for shares, expected in (([1, 0], [8, 0]), ([1, 3], [2, 6]), (np.array([0, 2]), [0, 8])):
        mixture.proportions = shares  # type: ignore[assignment]
        assert counts(mixture.sample(8)) == expected


def test_a_share_of_zero_needs_no_transitions() -> None:
    own, empty = ring(), relive.ReplayBuffer(5, BOX, DISCRETE, "cpu")
    assert len(mix({own: 1, empty: 0}).sample(9).rewards) == 9
    assert len(mix({own: 1, empty: 0}, random=True).sample(9).rewards) == 9


# At random -------------------------------------------------------------------------------------------------------


def test_random_counts_are_multinomial() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    mixture = mix({ring(): share for share in shares}, seed=0, random=True)
    found = np.array([mixture._apportion(10) for _ in range(3000)])
    assert (found.sum(axis=1) == 10).all()
    for index, share in enumerate(shares):
        binomial = stats.binom(10, share)
        bins = np.arange(11)
        observed, expected = np.bincount(found[:, index], minlength=11), 3000 * binomial.pmf(bins)
        common = expected > 5
        rest = [observed[~common].sum()], [expected[~common].sum()]
        pvalue = stats.chisquare(np.r_[observed[common], rest[0]], np.r_[expected[common], rest[1]]).pvalue
        assert 0.001 < pvalue < 0.999
    batch = mixture.sample(64)
    assert len(batch.rewards) == 64


def test_a_seed_decides_random_counts_and_none_is_numpy_s_own() -> None:
    def run(**options: Any) -> list[list[int]]:
        mixture = mix({ring(seed=1): 0.5, ring(seed=2): 0.5}, random=True, **options)
        return [counts(mixture.sample(20)) for _ in range(20)]

    assert run(seed=3) == run(seed=3) == run(seed=np.random.default_rng(3)) != run(seed=4)
    np.random.seed(0)
    first = run()
    np.random.seed(0)
    assert run() == first


def test_fixed_counts_draw_nothing_of_their_own() -> None:
    one, two, one_twin, two_twin = (ring(seed=seed) for seed in (1, 2, 1, 2))
    batch = mix({one: 3, two: 1}, seed=0).sample(16)
    expected = torch.cat([one_twin.sample(12).rewards, two_twin.sample(4).rewards])
    assert torch.equal(batch.rewards, expected)


# What a batch is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo.OBSERVATION_SPACES)
def test_observations_of_every_kind_are_joined_field_by_field(name: str, rng: np.random.Generator) -> None:
    space = zoo.OBSERVATION_SPACES[name]
    buffers = [relive.ReplayBuffer(10, space, zoo.ACTION_SPACES["box-2d"], "cpu", seed=seed) for seed in (0, 1)]
    for buffer in buffers:
        for _ in range(6):
            obs, next_obs = (zoo.values(rng, space, (1,)) for _ in range(2))
            buffer.add(obs, next_obs, rng.random((1, 2, 3), np.float32), rng.random(1), [True])
    twins = copy.deepcopy(buffers)
    batch = mix({buffers[0]: 1, buffers[1]: 2}).sample(9)
    parts = [twins[0].sample(3), twins[1].sample(6)]
    assert isinstance(batch, type(parts[0]))
    assert batch.discounts is None
    for field in ("observations", "actions", "next_observations", "dones", "rewards"):
        got = _leaves(getattr(batch, field))
        for one, two, both in zip(*(_leaves(getattr(part, field)) for part in parts), got, strict=True):
            assert torch.equal(both, torch.cat([one, two]))


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(part)]


def test_the_faces_of_stable_baselines3_mix_to_its_own_named_tuple() -> None:
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    own, shown = ring(0, kind=relive.sb3.ReplayBuffer), ring(100, kind=relive.sb3.ReplayBuffer)
    batch = mix({own: 0.5, shown: 0.5}).sample(8)
    assert isinstance(batch, ReplayBufferSamples)
    assert counts(batch) == [4, 4]
    observations, *rest = batch
    assert torch.equal(observations[:, :1], batch.rewards)
    assert len(rest) == len(ReplayBufferSamples._fields) - 1
    mixed = mix({own: 0.5, ring(100): 0.5}).sample(8)
    assert isinstance(mixed, ReplayBufferSamples), "the first buffer says which"


def test_the_batch_is_normalised_by_every_buffer() -> None:
    batch = mix({ring(5, 1): 1, ring(12, 1): 1}).sample(2, env=zoo.ScaleEnv())
    assert batch.observations[:, 0].tolist() == [0.5, 1.5]
    assert batch.rewards.flatten().tolist() == [0.5, 0.5]


def test_a_reservoir_is_a_buffer_like_any_other() -> None:
    batch = mix({ring(0): 1, ring(100, kind=Reservoir): 1}).sample(10)
    assert counts(batch) == [5, 5]
    assert batch.handles["handle"].tolist() == [-1] * 10


def test_weights_are_one_where_a_buffer_does_not_weigh() -> None:
    for buffers, expected in (
        ({ring(0): 1, ring(100, kind=Weighing): 1}, [[1], [1], [0.1], [0.1]]),
        ({ring(100, 1, kind=Weighing): 1, ring(0): 1}, [[0.1], [0.1], [1], [1]]),
    ):
        batch = mix(buffers).sample(4)
        assert batch.weights.dtype == torch.float32
        assert torch.allclose(batch.weights, torch.tensor(expected), atol=0.05)
    assert mix({ring(): 1, ring(): 1}).sample(4).weights is None


def test_handles_say_the_buffer_and_the_handle_there() -> None:
    plain, weighing = ring(0), ring(100, kind=Weighing, seed=0)
    batch = mix({plain: 1, weighing: 1}).sample(6)
    assert batch.handles.dtype == HANDLE
    assert batch.sources.dtype == np.int64
    assert batch.sources.tolist() == batch.handles["source"].tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.handles["is_weighed"].tolist() == [False] * 3 + [True] * 3
    assert batch.handles["handle"][:3].tolist() == [-1] * 3
    named = weighing.transitions(batch.handles["handle"][3:])
    assert torch.equal(named.rewards, batch.rewards[3:])


def test_extras_are_those_that_all_buffers_share() -> None:
    shared = mix({ring(0, kind=Weighing): 1, ring(100, kind=Weighing): 1}).sample(6)
    assert sorted(shared.extras) == ["cost", "mine"]
    assert torch.equal(shared.extras["cost"], -shared.rewards.flatten())
    assert mix({ring(0): 1, ring(100, kind=Weighing): 1}).sample(6).extras == {}

    def reservoir(first: int) -> Reservoir:
        buffer = Reservoir(9, BOX, DISCRETE, "cpu", fields={"cost": ((), np.float32), "more": ((3,), np.float32)})
        zeros = np.zeros((1, 2), np.float32)
        buffer.add(zeros, zeros, [0], [first], [False], extras={"cost": [-first], "more": [[1, 2, 3]]})
        return buffer

    some = mix({ring(100, kind=Weighing): 1, reservoir(5): 1}).sample(6)
    assert list(some.extras) == ["cost"]
    assert torch.equal(some.extras["cost"], -some.rewards.flatten())


def test_relabelled_rows_are_told_where_any_buffer_relabels() -> None:
    class Relabelling(relive.ReplayBuffer):
        def sample(self, batch_size: int, env: Any = None) -> Any:
            return annotated(super().sample(batch_size, env), relabelled=np.arange(batch_size) % 2 == 0)

    batch = mix({ring(0): 1, ring(0, kind=Relabelling): 1}).sample(6)
    assert batch.relabelled.tolist() == [False] * 3 + [True, False, True]
    assert not hasattr(mix({ring(): 1, ring(): 1}).sample(6), "relabelled")


def test_a_batch_can_be_copied_and_pickled() -> None:
    batch = mix({ring(0): 1, ring(100, kind=Weighing): 1}).sample(6)
    for again in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(again) is type(batch)
        assert torch.equal(again.weights, batch.weights)
        assert (again.handles == batch.handles).all()
        assert torch.equal(again.observations, batch.observations)


# Priorities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("name", ["priorities", "td_errors"])
def test_each_priority_goes_to_the_buffer_of_its_row(name: str, column: bool) -> None:
    first, plain, second = ring(0, kind=Weighing, seed=0), ring(100), ring(200, kind=Weighing, seed=1)
    mixture = mix({first: 1, plain: 1, second: 2})
    batch = mixture.sample(12)
    rows = np.random.default_rng(0).permutation(12)
    values = torch.arange(12.0)[:, None] if column else np.arange(12.0)
    handles = batch.handles[rows]
    if name == "td_errors":
        dropped = mixture.update_priorities(handles, td_errors=-values)
    else:
        dropped = mixture.update_priorities(handles, values)
    assert dropped == 0
    for index, buffer in ((0, first), (2, second)):
        mine = np.flatnonzero(batch.sources[rows] == index)
        got_handles, priorities, td_errors = buffer.given
        assert got_handles == batch.handles["handle"][rows[mine]].tolist()
        if name == "td_errors":
            assert priorities is None and td_errors.tolist() == (-mine).tolist()
        else:
            assert td_errors is None and priorities.tolist() == mine.tolist()


def test_stale_handles_are_counted_over_all_buffers() -> None:
    buffers = [ring(0, kind=Weighing), ring(0, kind=Weighing)]
    mixture = mix(dict.fromkeys(buffers, 1))
    batch = mixture.sample(10)
    fill(buffers[0], 0, 50)
    assert mixture.update_priorities(batch.handles, np.ones(10)) == 5
    fill(buffers[1], 0, 50)
    assert mixture.update_priorities(batch.handles, np.ones(10)) == 10


def test_rows_of_buffers_without_priorities_are_ignored() -> None:
    mixture = mix({ring(): 1, ring(0, kind=Reservoir): 1})
    assert mixture.update_priorities(mixture.sample(8).handles, np.ones(8)) == 0
    assert mixture.update_priorities(np.zeros(0, HANDLE), []) == 0


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_priority_that_is_none_is_named_and_nothing_changes(bad: float) -> None:
    first, second = ring(0, kind=Weighing), ring(0, kind=Weighing)
    mixture = mix({first: 1, second: 1})
    handles = mixture.sample(6).handles
    values = np.ones(6)
    values[4] = bad
    with pytest.raises(ValueError, match=f"priorities has {bad} at row 4, expected finite numbers from 0 on"):
        mixture.update_priorities(handles, values)
    assert not hasattr(first, "given") and not hasattr(second, "given")
    if bad != -1:
        with pytest.raises(ValueError, match=f"td_errors has {bad} at row 4"):
            mixture.update_priorities(handles, td_errors=values)


def test_priorities_that_do_not_belong_to_the_handles_are_refused() -> None:
    mixture = mix({ring(0, kind=Weighing): 1})
    handles = mixture.sample(6).handles
    with pytest.raises(ShapeError, match="priorities has 5 values, expected 6: one per handle"):
        mixture.update_priorities(handles, np.ones(5))
    with pytest.raises(
        TypeError, match=r"handles has dtype int64, expected .*: the handles of a batch of this mixture"
    ):
        mixture.update_priorities(np.arange(6), np.ones(6))
    with pytest.raises(TypeError, match="either priorities or td_errors"):
        mixture.update_priorities(handles)
    with pytest.raises(TypeError, match="either priorities or td_errors"):
        mixture.update_priorities(handles, np.ones(6), td_errors=np.ones(6))


# What is refused -------------------------------------------------------------------------------------------------


SMALL = spaces.Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (BOX, SMALL, r"observation_space is Box\(-1\S+ .* and Box\(-1\.0"),
        (BOX, spaces.Dict({"a": BOX}), "observation_space is Box.* and Dict"),
        (
            spaces.Dict({"a": BOX, "b": spaces.Dict({"c": BOX})}),
            spaces.Dict({"a": BOX, "b": spaces.Dict({"c": SMALL})}),
            "differ: observation_space/b/c is Box",
        ),
        (spaces.Dict({"a": BOX}), spaces.Dict({"b": BOX}), "differ: observation_space is Dict"),
        (
            spaces.Tuple((BOX, DISCRETE)),
            spaces.Tuple((BOX, spaces.Discrete(5))),
            r"differ: observation_space/1 is Discrete\(3\) and Discrete\(5\)",
        ),
    ],
)
def test_spaces_that_differ_are_named(one: spaces.Space, other: spaces.Space, message: str) -> None:
    pairs = [
        [relive.ReplayBuffer(5, space, DISCRETE, "cpu") for space in (one, one, other)],
        [relive.ReplayBuffer(5, BOX, space, "cpu") for space in (one, one, other)],
    ]
    for (first, alike, differs), which in zip(pairs, ("observation_space", "action_space"), strict=True):
        with pytest.raises(ValueError, match=message.replace("observation_space", which)):
            mix({first: 1, differs: 1})
        with pytest.raises(ValueError, match="buffers 0 and 2 of the mixture differ"):
            mix({first: 1, alike: 1, differs: 1})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("n_steps", (1, 3), "n_steps is 1 and 3, so only one of them gives discounts"),
        ("reward_shape", ((), (2,)), r"reward_shape is \(\) and \(2,\)"),
    ],
)
def test_options_that_make_rows_of_another_kind_are_named(name: str, values: tuple, message: str) -> None:
    one, other = (ring(count=0, **{name: value}) for value in values)
    with pytest.raises(ValueError, match=message):
        mix({one: 1, other: 1})
    mix({ring(count=0, **{name: values[1]}): 1, other: 1})


@pytest.mark.parametrize(
    ("proportions", "error", "message"),
    [
        (lambda _: [1, 2], TypeError, "proportions is a list, expected a dict"),
        (lambda _: {}, ValueError, "proportions is empty, expected at least one buffer"),
        (lambda _: {"a": 1}, TypeError, "proportions has 'a' as buffer 0, expected a buffer"),
        (lambda it: {it(): -1, it(): 2}, ValueError, r"proportions has -1\.0 for buffer 0, expected a finite number"),
        (lambda it: {it(): 1, it(): np.nan}, ValueError, "proportions has nan for buffer 1"),
        (lambda it: {it(): np.inf}, ValueError, "proportions has inf for buffer 0"),
        (lambda it: {it(): 0}, ValueError, "proportions are all 0"),
        (lambda it: {mix({it(): 1}): 1}, TypeError, r"proportions has Mixture\(1 of ReplayBuffer"),
    ],
)
def test_wrong_proportions_are_named(
    proportions: Callable[[Callable[[], Any]], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mix(proportions(ring))


def test_wrong_proportions_set_later_change_nothing() -> None:
    mixture = mix({ring(): 1, ring(): 1})
    with pytest.raises(ShapeError, match=r"proportions has shape \(3,\), expected \(2,\): one per buffer"):
        mixture.proportions = [1, 2, 3]  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"proportions has -1\.0 for buffer 1"):
        mixture.proportions = [1, -1]  # type: ignore[assignment]
    assert mixture.proportions.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="batch_size is -3"):
        mixture.sample(-3)


def test_an_empty_buffer_is_named_and_nothing_is_drawn() -> None:
    own, empty, twin = ring(seed=0), relive.ReplayBuffer(5, BOX, DISCRETE, "cpu"), ring(seed=0)
    mixture = mix({own: 1, empty: 1})
    for _ in range(3):
        with pytest.raises(EmptyBufferError, match=r"buffer 1 of the mixture, ReplayBuffer\(0 of 5.*it is empty; add"):
            mixture.sample(3)
    fill(empty, 100, 1)
    batch = mixture.sample(3)
    assert counts(batch) == [2, 1], "what failed does not count"
    assert torch.equal(batch.rewards[:2], twin.sample(2).rewards)


def test_a_buffer_whose_transitions_may_not_be_drawn_yet_is_named() -> None:
    class NotYetError(EmptyBufferError, RuntimeError):
        pass

    class Hindsight(relive.ReplayBuffer):
        def sample(self, batch_size: int, env: Any = None) -> Any:
            raise NotYetError("no episode has ended: raise learning_starts")

    with pytest.raises(
        NotYetError, match=r"nothing to draw from buffer 1 .*: no episode has ended: raise learning_starts"
    ):
        mix({ring(): 1, ring(kind=Hindsight): 1}).sample(4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dtypes": {"observation": np.float16}},
            r"observations differs .*: torch.float32 \(batch, 2\) on cpu and torch.f",
        ),
        ({"dtypes": {"action": np.int32}}, "actions differs between"),
    ],
)
def test_batches_that_do_not_fit_together_are_named(options: dict[str, Any], message: str) -> None:
    mixture = mix({ring(): 1, ring(**options): 1})
    with pytest.raises(ShapeError, match=message):
        mixture.sample(4)


def test_extras_and_discounts_that_do_not_fit_together_are_named() -> None:
    class Odd(Weighing):
        def sample(self, batch_size: int, env: Any = None) -> Any:
            batch = super().sample(batch_size, env)
            return annotated(batch, extras={"cost": batch.rewards})

    with pytest.raises(ShapeError, match="extras/cost differs between"):
        mix({ring(kind=Weighing): 1, ring(kind=Odd): 1}).sample(4)

    class Discounting(relive.ReplayBuffer):
        def sample(self, batch_size: int, env: Any = None) -> Any:
            batch = super().sample(batch_size, env)
            return batch._replace(discounts=batch.rewards)

    both = mix({ring(kind=Discounting): 1, ring(kind=Discounting): 1}).sample(4)
    assert torch.equal(both.discounts, both.rewards)
    with pytest.raises(ShapeError, match=r"discounts differs .*: torch.float32 \(batch, 1\) on cpu and none"):
        mix({ring(kind=Discounting): 1, ring(): 1}).sample(4)


# Copies, streams, threads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
@pytest.mark.parametrize("random", [False, True])
def test_a_copy_draws_what_the_original_would(copied: Callable[[Mixture], Mixture], random: bool) -> None:
    mixture = mix({ring(0, seed=1): 0.7, ring(100, seed=2): 0.3}, seed=3, random=random)
    mixture.sample(5)
    other = copied(mixture)
    for _ in range(10):
        assert torch.equal(mixture.sample(3).rewards, other.sample(3).rewards)


def test_it_prints_its_buffers_and_shares_their_spaces() -> None:
    mixture = mix({ring(): 3, ring(): 1})
    assert repr(mixture).startswith("Mixture(0.75 of ReplayBuffer(20 of 50 transitions")
    assert ", 0.25 of ReplayBuffer(" in repr(mixture)
    assert (mixture.observation_space, mixture.action_space) == (BOX, DISCRETE)
    assert mixture.device == torch.device("cpu")


def test_a_stream_of_a_mixture_forgets_its_batches_when_any_buffer_is_reset() -> None:
    own, shown = ring(0), ring(100, kind=Reservoir)
    with mix({own: 1, shown: 1}).stream(4, depth=3) as stream:
        assert next(stream).rewards[2:].min() >= 100
        shown.reset()
        with pytest.raises(EmptyBufferError, match=r"buffer 1 of the mixture, Reservoir"):
            next(stream)
        fill(shown, 200, 3)
        assert next(stream).rewards[2:].min() >= 200


def test_threads_draw_the_proportions_together() -> None:
    mixture = mix({ring(0, seed=1): 0.9, ring(100, seed=2): 0.1})
    totals = [np.zeros(2, int) for _ in range(4)]

    def draw(mine: np.ndarray) -> None:
        for _ in range(50):
            batch = mixture.sample(3)
            mine += counts(batch)
            assert (batch.rewards.flatten().numpy() // 100 == batch.sources).all()

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in totals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(totals).tolist() == [540, 60]  # type: ignore[union-attr]
