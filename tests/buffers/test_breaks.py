"""Steps that do not follow on, with no end said: stored as they are, ended where asked for, warned of where not."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import relive
from relive.errors import BreaksWarning
from tests.reference.transitions import are_alike

NUMBER, ACTION = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)
BREAKS_WARNED = 10


def buffer_of(rows: int = 100, n_envs: int = 1, space: spaces.Space = NUMBER, **options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(rows * n_envs, space, ACTION, device="cpu", n_envs=n_envs, seed=0, **options)


def pieces(*lengths: int, start: int = 0) -> tuple[NDArray, NDArray]:
    """obs and next_obs of episodes without flags: 0→1→2, then 1000→1001→…"""
    obs = np.concatenate([1000.0 * i + np.arange(n) for i, n in enumerate(lengths, start)]).astype(np.float32)
    return obs[:, None, None], obs[:, None, None] + 1


def extend(buffer: Any, obs: Any, next_obs: Any, terminated: Any = None, **options: Any) -> int | None:
    shape = np.shape(obs)[:2]
    numbers = np.arange(np.prod(shape)).reshape(shape)
    if terminated is None:
        terminated = np.zeros(shape, bool)
    found: int | None = buffer.extend(obs, next_obs, numbers % 2, numbers, terminated=terminated, **options)
    return found


def episodes(buffer: relive.ReplayBuffer) -> list[list[float]]:
    return [episode.observations.flatten().tolist() for episode in buffer.episodes(whole=False)]


# What it is for --------------------------------------------------------------------------------------------------


def test_episodes_that_no_flag_ends_do_not_run_into_each_other() -> None:
    """tinkoff-ai/CORL PR #63: a dataset without flags for time limits is one long episode."""
    obs, next_obs = pieces(3, 2, 4)
    joined, cut = buffer_of(n_steps=3, gamma=1.0), buffer_of(n_steps=3, gamma=1.0)
    assert extend(joined, obs, next_obs) is None
    assert extend(cut, obs, next_obs, breaks="detect") == 2
    rewards = [b.transitions(b.handles()).rewards.flatten().tolist() for b in (joined, cut)]
    assert rewards == [[3, 6, 9, 12, 15, 18, 21, 15, 8], [3, 3, 2, 7, 4, 18, 21, 15, 8]]
    assert episodes(joined) == [obs.flatten().tolist()]
    assert episodes(cut) == [[0, 1, 2], [1000, 1001], [2000, 2001, 2002, 2003]]
    assert joined.count_sequences(3, pad="none") == 7
    assert cut.count_sequences(3, pad="none") == 3
    batch = cut.transitions(cut.handles())
    assert batch.dones.sum() == 0  # what is cut still bootstraps
    assert batch.next_observations.flatten().tolist()[:4] == [3, 3, 3, 1002]  # of the last step of each window


def test_goals_stay_in_their_episode() -> None:
    space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), NUMBER))
    hindsight = relive.Hindsight(lambda achieved, desired, infos: (achieved == desired)[:, 0].astype(np.float32))
    buffer = buffer_of(space=space, hindsight=hindsight)
    obs, next_obs = pieces(3, 2, 1)
    found = extend_tree(buffer, dict.fromkeys(space, obs), dict.fromkeys(space, next_obs), breaks="detect")
    assert found == 2
    batch = buffer.sample(200)  # the last episode goes on, so nothing of it is drawn
    assert set(batch.observations["observation"].flatten().tolist()) == {0, 1, 2, 1000, 1001}
    goals = batch.observations["desired_goal"].flatten()[batch.relabelled] // 1000
    assert goals.tolist() == (batch.observations["observation"].flatten()[batch.relabelled] // 1000).tolist()


def extend_tree(buffer: Any, obs: Any, next_obs: Any, **options: Any) -> Any:
    length = len(next(iter(obs.values() if isinstance(obs, dict) else obs)))
    nothing = np.zeros((length, 1))
    return buffer.extend(obs, next_obs, nothing.astype(int), nothing, terminated=nothing.astype(bool), **options)


# Which places are breaks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["terminated", "truncated", "done", "a time limit in infos"])
def test_an_end_that_is_said_is_no_break(way: str) -> None:
    obs, next_obs = pieces(3, 3)
    ends = np.array([0, 0, 1, 0, 0, 0], bool)[:, None]
    infos = [[{"TimeLimit.truncated": bool(end)}] for end in ends[:, 0]]
    options: dict[str, Any] = {
        "terminated": {"terminated": ends},
        "truncated": {"truncated": ends},
        "done": {"done": ends},
        "a time limit in infos": {"done": ends, "infos": infos},
    }[way]
    buffer, nothing = buffer_of(), np.zeros((6, 1))
    assert buffer.extend(obs, next_obs, nothing.astype(int), nothing, **options, breaks="detect") == 0
    assert episodes(buffer) == [[0, 1, 2], [1000, 1001, 1002]]
    assert not (buffer._timeline.view("flags") != 0).any()


def test_what_is_held_already_and_the_first_row_are_a_place_too() -> None:
    buffer = buffer_of()
    assert extend(buffer, *pieces(2), breaks="detect") == 0  # nothing before it
    obs, next_obs = pieces(5)
    assert extend(buffer, obs[2:4], next_obs[2:4], breaks="detect") == 0
    assert extend(buffer, *pieces(2, start=1), breaks="detect") == 1
    assert extend(buffer, *pieces(1, start=2), breaks="detect") == 1  # one row
    assert episodes(buffer) == [[0, 1, 2, 3], [1000, 1001], [2000]]
    buffer.interrupt()
    assert extend(buffer, *pieces(2, start=3), breaks="detect") == 0  # that was said
    buffer.reset()
    assert extend(buffer, *pieces(2, start=4), breaks="detect") == 0
    assert episodes(buffer) == [[4000, 4001]]


def test_lanes_are_looked_at_one_by_one() -> None:
    buffer = buffer_of(n_envs=3)
    columns = [pieces(6), pieces(2, 4), pieces(1, 2, 3)]
    obs, next_obs = (np.concatenate([column[part] for column in columns], axis=1) for part in (0, 1))
    assert extend(buffer, obs, next_obs, breaks="detect") == 3
    assert [len(episode) for episode in episodes(buffer)] == [6, 2, 4, 1, 2, 3]
    assert extend(buffer, next_obs[-1:], next_obs[-1:] + 1, breaks="detect") == 0
    wrong = next_obs[-1:] + 1
    wrong[0, 1] += 0.5
    assert extend(buffer, wrong, wrong + 1, breaks="detect") == 1
    assert [len(episode) for episode in episodes(buffer)] == [8, 2, 5, 1, 1, 2, 5]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 20])
@pytest.mark.parametrize("at_once", [1, 2, 5, 14])
def test_more_rows_than_it_holds(rows: int, at_once: int) -> None:
    """Breaks among rows that are not kept count as well, and say where the episode of the oldest step began."""
    buffer, ring = buffer_of(rows), [(4, 3), (2, 5)]
    found, said = 0, [0, 4, 7, 9]
    for number, lengths in enumerate(ring):
        obs, next_obs = pieces(*lengths, start=2 * number)
        for t in range(0, len(obs), at_once):
            found += extend(buffer, obs[t : t + at_once], next_obs[t : t + at_once], breaks="detect") or 0
    assert found == 3
    held = buffer.handles().tolist()
    begins = [max(begin for begin in said if begin <= handle) for handle in held]
    for stride in (2, 3):
        expected = [h for h, begin in zip(held, begins, strict=True) if (h - begin) % stride == 0]
        assert buffer.count_sequences(1, stride=stride) == len(expected)
        if expected:
            drawn = buffer.sample_sequences(200, 1, stride=stride)
            assert set(drawn.handles.tolist()) == set(expected)
            firsts = dict(zip(drawn.handles.tolist(), drawn.is_first[:, 0].tolist(), strict=True))
            assert firsts == {h: h in said for h in expected}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int8, np.int16, np.int32, np.int64])
def test_a_tolerance_is_for_copies_that_differ_a_little(dtype: Any) -> None:
    space = spaces.Box(-1, 1, (2,), np.float32) if np.dtype(dtype).kind == "f" else spaces.Box(0, 100, (2,), dtype)
    step = 0.25 if np.dtype(dtype).kind == "f" else 4
    obs = (np.arange(8).reshape(4, 1, 2) * step).astype(dtype)
    next_obs = (obs.astype(float) + 2 * step).astype(dtype)
    next_obs[0, 0, 1] += np.array(step, dtype)
    next_obs[2, 0, 0] -= np.array(2 * step, dtype)
    for tolerance, expected in [(0, 2), (0.9 * step, 2), (step, 1), (1.9 * step, 1), (2 * step, 0)]:
        buffer = buffer_of(space=space, dtypes={"observation": dtype})
        assert extend(buffer, obs, next_obs, breaks="detect", breaks_tolerance=tolerance) == expected
        stored = buffer.transitions(buffer.handles()).next_observations.numpy()
        assert stored.tobytes() == next_obs[:, 0].tobytes()  # as it came, whatever counts as the same


def test_the_largest_and_the_smallest_integer_are_far_apart() -> None:
    for dtype in (np.int8, np.uint8, np.int64):
        info = np.iinfo(dtype)
        space = spaces.Box(info.min, info.max, (1,), dtype)
        buffer = buffer_of(space=space)
        obs = np.array([[[info.max]], [[info.min]]], dtype)
        apart = float(info.max) - float(info.min)
        assert extend(buffer, obs, obs, breaks="detect", breaks_tolerance=0.99 * apart) == 1
        assert extend(buffer_of(space=space), obs, obs, breaks="detect", breaks_tolerance=apart) == 0


def test_equal_numbers_are_the_same_and_nan_is_nan() -> None:
    nan, inf = np.nan, np.inf
    quiet = np.array(nan, np.float32)
    payload = (quiet.reshape(1).view(np.uint32) + 1).view(np.float32)[0]
    seen = np.array([nan, payload, 0.0, inf, -inf, 1.0, nan, inf, inf], np.float32)
    then = np.array([nan, quiet, -0.0, inf, -inf, 1.0, 1.0, -inf, 1e30], np.float32)
    for tolerance in (0.0, 1e38):
        buffer = buffer_of()
        obs = np.concatenate([[0], then]).astype(np.float32)[:, None, None]
        next_obs = np.concatenate([seen, [0]]).astype(np.float32)[:, None, None]
        assert extend(buffer, obs, next_obs, breaks="detect", breaks_tolerance=tolerance) == 3
        assert [len(episode.handles) for episode in buffer.episodes(whole=False)] == [7, 1, 1, 1]


@given(
    numbers=st.lists(
        st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1)),
        min_size=1,
        max_size=30,
    ),
    tolerance=st.one_of(st.just(0.0), st.floats(0, 1e5)),
)
@settings(max_examples=60, deadline=None)
def test_half_precision_is_compared_as_numpy_reads_it(numbers: list[tuple[int, int]], tolerance: float) -> None:
    seen, then = np.array(numbers, np.uint16).T.copy().view(np.float16)
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    for one, other in zip(seen, then, strict=True):
        buffer = buffer_of(space=space, dtypes={"observation": np.float16}, validate="seed")
        obs = np.array([0, other], np.float16)[:, None, None]
        next_obs = np.array([one, 0], np.float16)[:, None, None]
        found = extend(buffer, obs, next_obs, breaks="detect", breaks_tolerance=tolerance)
        assert found == (not are_alike(np.array([one]), np.array([other]), tolerance))


def test_every_leaf_counts_also_large_ones() -> None:
    image = spaces.Box(0, 255, (3, 30, 30), np.uint8)
    space = spaces.Dict({"a": spaces.Tuple((NUMBER, spaces.Discrete(5))), "image": image})
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (7, 1, 3, 30, 30), np.uint8)
    numbers, discrete = np.arange(7, dtype=np.float32)[:, None, None], np.arange(7)[:, None] % 5

    def tree(rows: slice, *changes: tuple[str, int]) -> Any:
        parts = {"number": numbers[rows].copy(), "discrete": discrete[rows].copy(), "image": images[rows].copy()}
        for name, row in changes:
            parts[name].reshape(len(parts[name]), -1)[row, -1] += 1
        return {"a": (parts["number"], parts["discrete"]), "image": parts["image"]}

    def detected(*changes: tuple[str, int]) -> Any:
        buffer, nothing = buffer_of(space=space), np.zeros((6, 1))
        found = buffer.extend(
            tree(slice(6), *changes),
            tree(slice(1, 7)),
            nothing.astype(int),
            nothing,
            terminated=nothing.astype(bool),
            breaks="detect",
        )
        return found, [len(episode.handles) for episode in buffer.episodes(whole=False)]

    assert detected() == (0, [6])
    assert detected(("image", 2)) == (1, [2, 4])
    assert detected(("discrete", 3)) == (1, [3, 3])
    assert detected(("number", 5), ("image", 5), ("image", 1)) == (2, [1, 4, 1])


# Every way in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize("carrier", ["arrays", "lists", "float64", "tensors"])
def test_every_form_of_arrays(validate: Any, carrier: str) -> None:
    obs, next_obs = pieces(3, 2, 4)
    make: Any = {
        "arrays": np.asarray,
        "lists": np.ndarray.tolist,
        "float64": lambda array: array.astype(np.float64),
        "tensors": torch.from_numpy,
    }[carrier]
    buffer = buffer_of(validate=validate)
    assert extend(buffer, make(obs), make(next_obs), breaks="detect") == 2
    assert episodes(buffer) == [[0, 1, 2], [1000, 1001], [2000, 2001, 2002, 2003]]


def test_numbers_are_compared_as_they_are_stored() -> None:
    """The two are not the same in float64, and are in float32."""
    obs = np.array([0.1, 0.2 + 1e-12])[:, None, None]
    next_obs = np.array([0.2, 0.3])[:, None, None]
    assert extend(buffer_of(), obs, next_obs, breaks="detect") == 0


class Halved(relive.ReplayBuffer):
    """Stores other numbers than it is given, and leaves rows with a negative one out."""

    def add(self, obs: Any, next_obs: Any, *args: Any, **kwargs: Any) -> None:
        if np.all(np.asarray(obs) >= 0):
            super().add(obs, np.asarray(next_obs) / 2, *args, **kwargs)


def test_a_subclass_is_judged_by_what_it_stores() -> None:
    buffer = Halved(100, NUMBER, ACTION, device="cpu")
    obs = np.array([1, 2, -5, 3, 9], np.float32)[:, None, None]
    next_obs = np.array([4, 6, -5, 0, 0], np.float32)[:, None, None]
    assert extend(buffer, obs, next_obs, breaks="detect") == 1
    assert episodes(buffer) == [[1, 2, 3], [9]]
    obs, next_obs = pieces(2, start=7)
    for row in range(2):  # only extend was asked to
        buffer.add(obs[row], next_obs[row], [0], [0.0], terminated=[False])
    assert len(episodes(buffer)) == 2


class Plain(relive.ReplayBuffer):
    """Stores by itself, as subclasses of Stable-Baselines3's classes do that skip the parent's constructor."""

    def __init__(self, *args: Any) -> None:
        super(relive.ReplayBuffer, self).__init__(*args)
        self.added = 0

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.added += 1


def test_a_subclass_without_a_timeline_cannot_detect() -> None:
    buffer = Plain(100, NUMBER, ACTION, "cpu", 1)
    with pytest.raises(ValueError, match="breaks is 'detect', expected None: Plain stores steps by itself"):
        extend(buffer, *pieces(2), breaks="detect")
    assert buffer.added == 0
    assert extend(buffer, *pieces(2)) is None
    assert buffer.added == 2


def test_a_reservoir_refuses_since_it_has_no_neighbours() -> None:
    reservoir = relive.Reservoir(10, NUMBER, ACTION, device="cpu", seed=0)
    with pytest.raises(ValueError, match="breaks is 'detect', expected None: a reservoir keeps single transitions"):
        extend(reservoir, *pieces(2, 2), breaks="detect")
    assert len(reservoir) == 0
    assert extend(reservoir, *pieces(2, 2)) is None
    assert len(reservoir) == 4


def test_with_a_limiter() -> None:
    limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=5, error_buffer=100, timeout=0)
    buffer = buffer_of(limiter=limiter)
    assert extend(buffer, *pieces(3, 4), breaks="detect") == 1
    with pytest.raises(relive.errors.RateLimitError):
        extend(buffer, *pieces(90, 110), breaks="detect")
    assert episodes(buffer) == [[0, 1, 2], [1000, 1001, 1002, 1003]]
    assert not buffer._timeline.view("flags")[6].any()  # nothing was cut for what was refused


def test_a_refused_call_changes_nothing() -> None:
    buffer = buffer_of(n_envs=2)
    obs, next_obs = (np.repeat(part, 2, axis=1) for part in pieces(3))
    extend(buffer, obs, next_obs)
    before = pickle.dumps(buffer)
    nothing = np.zeros((3, 2))
    bad = np.array([[0, 0], [0, np.nan], [0, 0]])
    with pytest.raises(relive.errors.NaNRewardError):
        buffer.extend(obs, next_obs, nothing.astype(int), bad, terminated=nothing, breaks="detect")
    with pytest.raises(relive.errors.ShapeError):
        buffer.extend(obs, next_obs[:2], nothing.astype(int), nothing, terminated=nothing, breaks="detect")
    with pytest.raises(ValueError, match="breaks is 'find', expected None or 'detect'"):
        extend(buffer, obs, next_obs, breaks="find")
    for tolerance in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"breaks_tolerance is {tolerance}, expected a finite number from 0 on"):
            extend(buffer, obs, next_obs, breaks="detect", breaks_tolerance=tolerance)
    with pytest.raises(ValueError, match=r"breaks_tolerance is 0\.5 where breaks is None"):
        extend(buffer, obs, next_obs, breaks_tolerance=0.5)
    assert pickle.dumps(buffer) == before
    assert extend(buffer, obs, next_obs, breaks="detect") == 2  # and the count is that of the call that went through
    assert extend(buffer, obs[:0], next_obs[:0], breaks="detect") == 0


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_copies_know_where_episodes_were_cut(way: str) -> None:
    buffer = buffer_of()
    extend(buffer, *pieces(3, 2), breaks="detect")
    twin = copy.deepcopy(buffer) if way == "deepcopy" else pickle.loads(pickle.dumps(buffer))
    assert episodes(twin) == episodes(buffer) == [[0, 1, 2], [1000, 1001]]


@pytest.mark.parametrize("sampler", [relive.Uniform, relive.Prioritized, relive.RankPrioritized])
def test_books_that_are_there_already_learn_of_it(sampler: Any) -> None:
    """Also of a step held before, which becomes the last of its episode."""
    buffer = buffer_of(8, sampler=sampler())
    extend(buffer, *pieces(4))
    assert buffer.count_sequences(3, pad="none") == 2
    extend(buffer, *pieces(2, 3, start=1), breaks="detect")  # the first of the eight is overwritten
    assert buffer.count_sequences(3, pad="none") == 2
    drawn = buffer.sample_sequences(100, 3, pad="none")
    assert {tuple(row) for row in drawn.observations[..., 0].int().tolist()} == {(1, 2, 3), (2000, 2001, 2002)}


def test_threads_that_extend_at_once_each_know_their_own() -> None:
    buffer, calls = buffer_of(5000), 200
    found: dict[int, int] = {}

    def work(thread: int) -> None:
        found[thread] = sum(
            extend(buffer, *pieces(2, 1, start=1000 * thread + 2 * n), breaks="detect") or 0 for n in range(calls)
        )

    def look_on() -> None:  # never asked for anything
        for n in range(calls):
            extend(buffer, *pieces(1, 1, start=-2 - 2 * n))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in (1, 2, 3)]
    threads.append(threading.Thread(target=look_on))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch = buffer.transitions(buffer.handles())
    obs, following = batch.observations[:, 0].numpy(), batch.next_observations[:, 0].numpy()
    is_ours = obs[1:] >= 0  # the first row of a call that detects, and those inside one
    expected = int(((obs[1:] != following[:-1]) & is_ours).sum())
    assert sum(found.values()) == expected
    flags = buffer._timeline.view("flags")[: len(obs), 0] != 0
    assert flags[:-1].tolist() == ((obs[1:] != following[:-1]) & is_ours).tolist()


# The warning -----------------------------------------------------------------------------------------------------


def warnings_of(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(warning.category is BreaksWarning and warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def test_many_breaks_are_told_of_once_for_each_buffer() -> None:
    for _ in range(2):
        buffer = buffer_of(1000)
        message = warnings_of(lambda b=buffer: extend(b, *pieces(*[5] * 30)))
        assert len(message) == 1
        assert message[0].startswith("extend got 29 steps")
        assert "breaks='detect'" in message[0]
        assert warnings_of(lambda b=buffer: extend(b, *pieces(*[5] * 30))) == []
        twin = copy.deepcopy(buffer)
        assert warnings_of(lambda b=twin: extend(b, *pieces(*[5] * 30))) == []


def test_few_are_not_told_of_until_they_add_up() -> None:
    """A dataset may come in pieces: each join is a break then."""
    buffer = buffer_of(1000)
    for number in range(BREAKS_WARNED):  # the first has nothing before it
        assert warnings_of(lambda n=number: extend(buffer, *pieces(5, start=n))) == []
    assert len(warnings_of(lambda: extend(buffer, *pieces(5, start=77)))) == 1


@pytest.mark.parametrize("options", [{}, {"validate": "seed"}])
def test_nothing_is_told_where_ends_are_said_or_breaks_detected(options: Any) -> None:
    obs, next_obs = pieces(*[5] * 30)
    ends = np.arange(150)[:, None] % 5 == 4

    def calls() -> None:
        extend(buffer_of(1000, **options), obs, next_obs, ends)
        buffer = buffer_of(1000, **options)
        for number in range(30):
            extend(buffer, *pieces(5, start=number))
            buffer.interrupt()
        assert extend(buffer_of(1000, **options), obs, next_obs, breaks="detect") == 29

    assert warnings_of(calls) == []


def test_a_subclass_is_told_of_its_breaks_too() -> None:
    buffer = Halved(1000, NUMBER, ACTION, device="cpu")
    assert len(warnings_of(lambda: extend(buffer, *pieces(12)))) == 1


def test_only_rows_that_are_kept_are_counted_for_it() -> None:
    assert warnings_of(lambda: extend(buffer_of(9), *pieces(*[1] * 30))) == []
    assert len(warnings_of(lambda: extend(buffer_of(11), *pieces(*[1] * 30)))) == 1
