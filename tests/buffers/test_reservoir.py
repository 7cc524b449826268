"""The reservoir: every transition ever added is kept with the same probability, and comes back whole."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

import relive
from relive import errors
from relive.buffers.reservoir import Reservoir
from tests import zoo

BOX, DISCRETE = spaces.Box(-1e9, 1e9, (2,), np.float32), spaces.Discrete(3)
DICT = spaces.Dict({"x": BOX, "y": DISCRETE})


def reservoir(buffer_size: int = 8, n_envs: int = 1, **options: Any) -> Reservoir:
    return Reservoir(buffer_size, BOX, DISCRETE, "cpu", n_envs, **options)


def steps(first: int, count: int, n_envs: int = 1) -> dict[str, Any]:
    """``count`` steps of all environments; every field tells the number of its transition."""
    numbers = np.arange(first * n_envs, (first + count) * n_envs).reshape(count, n_envs)
    obs = np.repeat(numbers[..., None], 2, axis=-1).astype(np.float32)
    flags = numbers % 5 == 4
    return {
        "obs": obs,
        "next_obs": obs + 0.5,
        "action": numbers % 3,
        "reward": numbers.astype(np.float32),
        "terminated": flags & (numbers % 2 == 0),
        "truncated": flags & (numbers % 2 == 1),
    }


def add(buffer: Any, first: int, count: int, **options: Any) -> None:
    """The same, one by one."""
    many = steps(first, count, buffer.n_envs)
    for t in range(count):
        buffer.add(**{name: values[t] for name, values in many.items()}, **options)


def kept(buffer: Reservoir) -> list[int]:
    """The numbers of the transitions held, by place."""
    return buffer._get_samples(np.arange(buffer.size())).rewards.flatten().int().tolist()


def is_whole(batch: Any) -> bool:
    numbers = batch.rewards.numpy()
    ends = numbers % 5 == 4
    return bool(
        (batch.observations.numpy() == numbers).all()
        and (batch.next_observations.numpy() == numbers + 0.5).all()
        and (batch.actions.numpy() == numbers % 3).all()
        and (batch.dones.numpy() == (ends & (numbers % 2 == 0))).all()
    )


# What is kept ----------------------------------------------------------------------------------------------------


def test_everything_is_kept_while_there_is_room() -> None:
    buffer = reservoir(6, n_envs=2, seed=0)
    assert (buffer.size(), len(buffer), buffer.num_transitions, buffer.num_seen) == (0, 0, 0, 0)
    assert (buffer.pos, buffer.full, bool(buffer)) == (0, False, True)
    add(buffer, 0, 2)
    assert (buffer.size(), len(buffer), buffer.num_seen, buffer.pos, buffer.full) == (4, 4, 4, 4, False)
    add(buffer, 2, 1)
    assert kept(buffer) == [0, 1, 2, 3, 4, 5]
    assert (buffer.size(), buffer.num_seen, buffer.pos, buffer.full) == (6, 6, 0, True)
    add(buffer, 3, 100)
    assert (buffer.size(), len(buffer), buffer.num_seen, buffer.pos, buffer.full) == (6, 6, 206, 0, True)
    assert len(set(kept(buffer))) == 6
    assert is_whole(buffer.sample(50))


@pytest.mark.parametrize(("size", "n_envs", "count", "chunk"), [(10, 1, 60, 60), (10, 3, 20, 20), (7, 2, 21, 3)])
def test_every_transition_is_kept_with_the_same_probability(size: int, n_envs: int, count: int, chunk: int) -> None:
    total, runs = count * n_envs, 800
    buffer = reservoir(size, n_envs, seed=1)
    chunks = [steps(first, chunk, n_envs) for first in range(0, count, chunk)]
    found = np.zeros(total)
    for _ in range(runs):
        buffer.reset()
        for part in chunks:
            buffer.extend(**part)
        found[kept(buffer)] += 1
    assert found.sum() == runs * size
    share = size / total
    # The indicators of one run add up to `size`; so correlated, their squares need this factor to be chi-square.
    statistic = ((found - runs * share) ** 2).sum() / (runs * share * (1 - share)) * (total - 1) / total
    assert 0.001 < stats.chi2.sf(statistic, total - 1) < 0.999


def test_every_set_of_transitions_is_equally_likely() -> None:
    buffer = reservoir(2, seed=2)
    many, found = steps(0, 5), Counter()
    for _ in range(1000):
        buffer.reset()
        buffer.extend(**many)
        found[tuple(sorted(kept(buffer)))] += 1
    counts = [found[pair] for pair in combinations(range(5), 2)]
    assert sum(counts) == 1000
    assert 0.001 < stats.chisquare(counts).pvalue < 0.999


def test_a_reservoir_of_one_keeps_each_equally_often() -> None:
    buffer = reservoir(0, seed=3)
    assert buffer.buffer_size == 1
    many, counts = steps(0, 8), np.zeros(8)
    for _ in range(1000):
        buffer.reset()
        buffer.extend(**many)
        counts[kept(buffer)] += 1
    assert 0.001 < stats.chisquare(counts).pvalue < 0.999


def test_draws_are_uniform_over_what_is_kept() -> None:
    buffer = reservoir(20, seed=4)
    buffer.extend(**steps(0, 500))
    drawn = Counter(buffer.sample(20_000).rewards.flatten().int().tolist())
    assert sorted(drawn) == sorted(kept(buffer))
    assert 0.001 < stats.chisquare(list(drawn.values())).pvalue < 0.999


@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize("chunks", [[50], [1, 7, 2, 40], [10] * 5])
def test_extend_keeps_what_adds_one_by_one_would(validate: str, chunks: list[int]) -> None:
    one_by_one, at_once = (reservoir(8, 2, seed=5, validate=validate) for _ in range(2))
    add(one_by_one, 0, 50)
    first = 0
    for count in chunks:
        at_once.extend(**steps(first, count, 2))
        first += count
    assert kept(one_by_one) == kept(at_once)
    assert torch.equal(one_by_one.sample(9).rewards, at_once.sample(9).rewards)


def test_of_several_in_one_call_for_one_place_the_newest_stays() -> None:
    buffer = reservoir(1, seed=6)
    buffer.extend(**steps(0, 1))
    for first in range(1, 400, 20):
        before = copy.deepcopy(buffer)
        buffer.extend(**steps(first, 20))
        add(before, first, 20)
        assert kept(buffer) == kept(before)


def test_masked_environments_are_neither_kept_nor_counted() -> None:
    buffer = reservoir(100, n_envs=3)
    nan = steps(0, 1, 3)
    nan["reward"][0, 1] = np.nan
    buffer.add(**{name: values[0] for name, values in nan.items()}, mask=np.array([True, False, True]))
    add(buffer, 1, 1, mask=np.array([False, False, False]))
    add(buffer, 2, 1, mask=np.array([False, True, False]))
    assert kept(buffer) == [0, 2, 7]
    assert buffer.num_seen == 3
    assert is_whole(buffer.sample(10))


# What comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", zoo.OBSERVATION_SPACES)
@pytest.mark.parametrize("action", ["box-f64", "box-2d", "multidiscrete", "discrete"])
def test_transitions_come_back_as_from_a_replay_buffer(observation: str, action: str, rng: np.random.Generator) -> None:
    obs_space, action_space = zoo.OBSERVATION_SPACES[observation], zoo.ACTION_SPACES[action]
    ring = relive.ReplayBuffer(12, obs_space, action_space, "cpu", n_envs=2)
    buffer = Reservoir(12, obs_space, action_space, "cpu", 2)
    for _ in range(6):
        obs, next_obs = (zoo.values(rng, obs_space, (2,)) for _ in range(2))
        step = (obs, next_obs, zoo.values(rng, action_space, (2,)), rng.standard_normal(2), [True, False])
        infos = [{"TimeLimit.truncated": bool(rng.integers(2))}, {}]
        ring.add(*step, infos)
        buffer.add(*step, infos)
    order = [row + 6 * lane for row in range(6) for lane in range(2)]
    for env in (None, zoo.ScaleEnv()) if isinstance(obs_space, spaces.Box) else (None,):
        expected, got = ring.transitions(ring.handles()[order], env=env), buffer._get_samples(np.arange(12), env)
        assert type(got) is type(expected)
        assert got.discounts is None
        for name in ("observations", "actions", "next_observations", "dones", "rewards"):
            for theirs, ours in zip(_leaves(getattr(expected, name)), _leaves(getattr(got, name)), strict=True):
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours, theirs), name


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(part)]


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("words", [True, False], ids=["terminated, truncated", "done, infos"])
def test_a_time_limit_is_no_termination_where_it_is_handled(handled: bool, words: bool) -> None:
    buffer = reservoir(handle_timeout_termination=handled)
    cut = {"truncated": True} if words else {"done": True, "infos": [{"TimeLimit.truncated": True}]}
    end = {"terminated": True} if words else {"done": True, "infos": [{}]}
    for kind in (cut, end):
        buffer.add([0, 0], [1, 1], 0, 0.0, **kind)
    many = ([[[0, 0]]] * 2, [[[1, 1]]] * 2, [[0]] * 2, [[0.0]] * 2)
    if words:
        buffer.extend(*many, terminated=[[False], [True]], truncated=[[True], [False]])
    else:
        buffer.extend(*many, [[True], [True]], [[{"TimeLimit.truncated": True}], [{}]])
    first = 0 if handled else 1
    assert buffer._get_samples(np.arange(4)).dones.tolist() == [[first], [1], [first], [1]]


def test_the_batch_is_normalised_and_what_is_stored_is_not() -> None:
    buffer = Reservoir(4, DICT, DISCRETE, "cpu", seed=0)
    buffer.add({"x": [[5, 5]], "y": [2]}, {"x": [[8.5, 8.5]], "y": [2]}, [0], [9.0], [False])
    batch = buffer.sample(2, env=zoo.ScaleEnv())
    assert isinstance(batch, relive.DictReplayBufferSamples)
    assert batch.observations["x"].tolist() == [[0.5, 0.5]] * 2
    assert batch.next_observations["x"].tolist() == [[1, 1]] * 2
    assert batch.rewards.tolist() == [[0.5]] * 2
    assert buffer.sample(1).rewards.item() == 9


def test_declared_fields_travel_with_their_transition() -> None:
    buffer = reservoir(5, n_envs=2, seed=0, fields={"log_prob": ((), np.float32), "hidden": ((2, 3), np.float16)})
    for t in range(40):
        numbers = np.array([2 * t, 2 * t + 1])
        hidden = np.broadcast_to(numbers[:, None, None] / 2, (2, 2, 3))
        add(buffer, t, 1, extras={"log_prob": -numbers, "hidden": hidden})
    many = steps(40, 10, 2)
    numbers = many["reward"]
    hidden = np.broadcast_to(numbers[..., None, None] / 2, (10, 2, 2, 3))
    buffer.extend(**many, extras={"hidden": hidden, "log_prob": -numbers})
    batch = buffer.sample(64)
    assert isinstance(batch, relive.ReplayBufferSamples)
    assert is_whole(batch)
    assert batch.weights is None
    assert batch.handles.dtype == np.int64
    assert batch.handles.tolist() == batch.rewards.flatten().tolist()
    assert (batch.extras["log_prob"].dtype, batch.extras["hidden"].dtype) == (torch.float32, torch.float16)
    assert torch.equal(batch.extras["log_prob"], -batch.rewards.flatten())
    assert torch.equal(batch.extras["hidden"], (batch.rewards / 2).reshape(-1, 1, 1).expand(-1, 2, 3).half())
    for again in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)), batch._replace(dones=batch.dones + 1)):
        assert isinstance(again, relive.ReplayBufferSamples)
        assert torch.equal(again.extras["log_prob"], batch.extras["log_prob"])
        assert again.handles.tolist() == batch.handles.tolist()
    with pytest.raises(ValueError, match="unexpected"):
        batch._replace(nothing=1)


def test_without_fields_a_batch_is_the_plain_named_tuple() -> None:
    buffer = reservoir()
    add(buffer, 0, 1)
    assert type(buffer.sample(3)) is relive.ReplayBufferSamples
    assert buffer.sample(0).observations.shape == (0, 2)


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_steps": 3}, "n_steps is 3, expected 1: a reservoir keeps single transitions, whose neighbours are gone"),
        ({"hindsight": "future"}, "hindsight is 'future', expected None: .* use ReplayBuffer"),
        ({"validate": "maybe"}, "validate is 'maybe', expected 'strict' or 'seed'"),
        ({"dtypes": {"obs": np.float16}}, "dtypes names 'obs'"),
        ({"n_envs": 0}, "n_envs is 0"),
    ],
)
def test_the_constructor_says_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reservoir(8, BOX, DISCRETE, "cpu", **options)


def test_sequences_and_lanes_are_refused_with_the_reason() -> None:
    buffer = reservoir()
    add(buffer, 0, 3)
    with pytest.raises(NotImplementedError, match=r"Reservoir has no sequences: .*neighbours are gone"):
        buffer.sample_sequences(2, 3)
    with pytest.raises(AttributeError, match="does not know which environment"):
        _ = buffer.lane_sizes
    buffer.interrupt()
    buffer.interrupt([0])
    assert buffer.size() == 3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"obs": np.zeros((2, 3), np.float32)}, errors.ShapeError, r"obs has shape \(2, 3\)"),
        ({"next_obs": np.zeros((1, 2), np.float32)}, errors.ShapeError, r"next_obs has shape \(1, 2\)"),
        ({"action": [0.5, 0]}, errors.CastError, "action has the value 0.5"),
        ({"reward": [np.nan, 0]}, errors.NaNRewardError, "reward is NaN at environment 0"),
        ({"terminated": [2, 0]}, errors.CastError, "terminated has the value 2"),
        ({"truncated": [2, 0]}, errors.CastError, "truncated has the value 2"),
        ({"done": [0, 0]}, TypeError, "one form or the other"),
        ({"mask": [1, 0]}, errors.ShapeError, "mask has shape"),
        (
            {"extras": {"cost": [0, 0], "more": 1}},
            errors.ShapeError,
            r"extras has the names \['cost', 'more'\], expected",
        ),
        ({"extras": None}, errors.ShapeError, r"extras has the names \[\], expected \['cost'\]"),
        ({"extras": {"cost": [0, 0, 0]}}, errors.ShapeError, r"extras/cost has shape \(3,\)"),
        ({"extras": {"cost": [0.5, 0]}}, errors.CastError, "extras/cost has the value 0.5"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_stored(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    buffer = reservoir(n_envs=2, seed=0, fields={"cost": ((), np.int32)})
    fits = {name: values[0] for name, values in steps(0, 1, 2).items()} | {"extras": {"cost": [1, 2]}}
    with pytest.raises(error, match=message):
        buffer.add(**(fits | changes))
    assert (len(buffer), buffer.num_seen) == (0, 0)
    buffer.add(**fits)
    assert len(buffer) == 2


def test_seed_validation_casts_and_broadcasts_as_the_seed_does() -> None:
    buffer = reservoir(n_envs=2, validate="seed")
    buffer.add([1, 2], 3, [[0.9], [1.9]], np.nan, 7, [{}, {"TimeLimit.truncated": True}])
    batch = buffer._get_samples(np.arange(2))
    assert batch.observations.tolist() == [[1, 2], [1, 2]]
    assert batch.next_observations.tolist() == [[3, 3], [3, 3]]
    assert batch.actions.tolist() == [[0], [1]]
    assert batch.dones.tolist() == [[7], [0]]
    assert batch.rewards.isnan().all()


def test_an_empty_reservoir_and_a_negative_batch_are_errors() -> None:
    buffer = reservoir()
    with pytest.raises(errors.EmptyBufferError, match="empty Reservoir: it holds 0 transitions"):
        buffer.sample(1)
    add(buffer, 0, 1)
    with pytest.raises(ValueError, match="batch_size is -1"):
        buffer.sample(-1)
    buffer.reset()
    with pytest.raises(errors.EmptyBufferError):
        buffer.sample(1)
    assert (buffer.num_seen, buffer.size(), buffer.full) == (0, 0, False)


# Copies and threads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
@pytest.mark.parametrize("seen", [3, 100])
def test_a_copy_keeps_and_draws_what_the_original_would(copied: Callable[[Reservoir], Reservoir], seen: int) -> None:
    buffer = reservoir(8, 2, seed=7)
    add(buffer, 0, seen)
    buffer.sample(5)
    other = copied(buffer)
    assert (kept(other), other.num_seen, other.full) == (kept(buffer), buffer.num_seen, buffer.full)
    add(buffer, seen, 50)
    add(other, seen, 50)
    assert kept(other) == kept(buffer)
    assert torch.equal(other.sample(20).rewards, buffer.sample(20).rewards)
    add(other, 0, 50)
    assert is_whole(buffer.sample(20)) and buffer.num_seen == 2 * (seen + 50)


def test_a_pickle_holds_only_what_is_kept() -> None:
    buffer = reservoir(100_000)
    add(buffer, 0, 3)
    assert len(pickle.dumps(buffer)) < 10_000
    assert "3 of 100,000 transitions, 3 seen" in repr(buffer)


def test_without_a_seed_numpy_s_global_generator_decides() -> None:
    runs = []
    for seed in (0, 0, 1):
        np.random.seed(seed)
        buffer = reservoir(8)
        add(buffer, 0, 60)
        runs.append((kept(buffer), buffer.sample(9).rewards.flatten().tolist()))
    assert runs[0] == runs[1] != runs[2]


def test_reset_is_seen_by_streams() -> None:
    buffer = reservoir(4, seed=0)
    add(buffer, 0, 4)
    with buffer.stream(3) as stream:
        assert next(stream).rewards.max() < 4
        buffer.reset()
        with pytest.raises(errors.EmptyBufferError):
            next(stream)
        add(buffer, 10, 4)
        assert next(stream).rewards.min() >= 10


def test_threads_see_no_torn_transition() -> None:
    buffer = reservoir(4, n_envs=2, seed=0)
    add(buffer, 0, 4)
    stop, torn, drawn = threading.Event(), [], [0, 0]

    def write(start: int) -> None:
        first = start
        while not stop.is_set():
            # The reservoir forgets how many it has seen, so most are kept.
            buffer._num_seen = 4
            add(buffer, first, 1)
            first += 2

    def read(which: int) -> None:
        while not stop.is_set():
            batch = buffer.sample(8)
            drawn[which] += 1
            if not is_whole(batch):
                torn.append(batch)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=write, args=(start,)) for start in (10, 11)]
    threads += [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
    try:
        for thread in threads:
            thread.start()
        stop.wait(0.7)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
    assert not torn
    assert min(drawn) > 10


def test_copies_while_others_add_are_whole() -> None:
    buffer = reservoir(4, n_envs=2, seed=0)
    stop = threading.Event()

    def write() -> None:
        first = 0
        while not stop.is_set():
            buffer._num_seen = min(buffer._num_seen, 4)
            add(buffer, first, 1)
            first += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        copies = [copy.deepcopy(buffer) for _ in range(60)]
    finally:
        stop.set()
        thread.join()
    for other in copies:
        assert other.size() == 0 or is_whole(other.sample(8))


def test_it_stands_in_for_stable_baselines3_s_replay_buffer_class() -> None:
    buffer = Reservoir(
        100, BOX, DISCRETE, device="cpu", n_envs=1, optimize_memory_usage=False, handle_timeout_termination=True
    )
    buffer.add(
        np.zeros((1, 2), np.float32),
        np.ones((1, 2), np.float32),
        np.array([1]),
        np.array([1.0]),
        np.array([True]),
        [{"TimeLimit.truncated": True}],
    )
    batch = buffer.sample(4, env=None)
    assert batch.dones.tolist() == [[0]] * 4
