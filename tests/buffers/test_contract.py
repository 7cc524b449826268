"""Constructors, attributes, copies and small promises of the buffers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from relive import errors
from tests import zoo

BOX, DISCRETE = spaces.Box(-10, 10, (2,), np.float32), spaces.Discrete(3)
DICT = spaces.Dict({"x": BOX})


def replay(buffer_size: int = 8, n_envs: int = 1, **options: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(buffer_size, BOX, DISCRETE, device="cpu", n_envs=n_envs, **options)


def add(buffer: relive.ReplayBuffer, t: float, **options: Any) -> None:
    n_envs = buffer.n_envs
    obs = np.full((n_envs, 2), t, np.float32)
    buffer.add(obs, obs + 1, np.zeros(n_envs, int), np.full(n_envs, t), np.zeros(n_envs, bool), **options)


def rewards(buffer: relive.ReplayBuffer) -> list[float]:
    return buffer.transitions(buffer.handles()).rewards.flatten().tolist()


@pytest.mark.parametrize("kind", [relive.ReplayBuffer, relive.RolloutBuffer])
@pytest.mark.parametrize(
    ("changes", "kind_of_error", "message"),
    [
        ({"buffer_size": -1}, ValueError, "buffer_size is -1, expected 0 or more"),
        ({"n_envs": 0}, ValueError, "n_envs is 0, expected at least 1"),
        ({"validate": "maybe"}, ValueError, "validate is 'maybe', expected 'strict' or 'seed'"),
        ({"seed": "x"}, TypeError, "seed is 'x'"),
        ({"dtypes": {"observations": np.float16}}, ValueError, r"dtypes names 'observations', expected one of"),
        ({"observation_space": spaces.Text(3)}, NotImplementedError, "observation: Text"),
        ({"action_space": spaces.Text(3)}, NotImplementedError, "action: Text"),
    ],
)
def test_a_constructor_names_what_it_refuses(kind: type, changes: dict, kind_of_error: type, message: str) -> None:
    arguments = {"buffer_size": 4, "observation_space": BOX, "action_space": DISCRETE, "device": "cpu"} | changes
    with pytest.raises(kind_of_error, match=message):
        kind(**arguments)


@pytest.mark.parametrize("name", ["ReplayBuffer", "RolloutBuffer"])
def test_dict_classes_take_dict_spaces_only(name: str) -> None:
    dict_class = getattr(relive, "Dict" + name)
    with pytest.raises(AssertionError, match=f"must be used with Dict obs space only.*{name}"):
        dict_class(4, BOX, DISCRETE)
    assert issubclass(dict_class, getattr(relive, name))
    assert dict_class(4, DICT, DISCRETE, "cpu").obs_shape == {"x": (2,)}


def test_a_replay_buffer_takes_dict_spaces_too_and_draws_dicts() -> None:
    buffer = relive.ReplayBuffer(4, DICT, DISCRETE, "cpu")
    buffer.add({"x": [[1, 2]]}, {"x": [[3, 4]]}, [0], [0.0], [False])
    batch = buffer.sample(2)
    assert isinstance(batch, relive.DictReplayBufferSamples)
    assert batch.next_observations["x"].tolist() == [[3, 4]] * 2


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("space", [BOX, DICT], ids=["Box", "Dict"])
@pytest.mark.parametrize("handled", [False, True])
def test_optimize_memory_usage_changes_nothing_that_is_drawn(
    optimize: bool, space: spaces.Space, handled: bool
) -> None:
    buffer = relive.ReplayBuffer(
        6, space, DISCRETE, device="cpu", n_envs=2, optimize_memory_usage=optimize, handle_timeout_termination=handled
    )
    assert buffer.optimize_memory_usage is optimize
    for t in range(5):
        numbers = np.full((2, 2), t, np.float32)
        obs, following = ({"x": numbers}, {"x": numbers + 1}) if space is DICT else (numbers, numbers + 1)
        buffer.add(obs, following, [0, 0], [t, t], [t == 3, False], [{"TimeLimit.truncated": t == 3}, {}])
    batch = buffer.transitions(buffer.handles())
    following = batch.next_observations["x"] if space is DICT else batch.next_observations
    assert following[:, 0].tolist() == [3, 4, 5] * 2
    assert batch.dones.flatten().tolist() == [0, 0 if handled else 1, 0, 0, 0, 0]


@pytest.mark.parametrize("buffer_size", [0, 1])
def test_the_smallest_buffer_holds_one_step(buffer_size: int) -> None:
    buffer = replay(buffer_size)
    for t in range(3):
        add(buffer, t)
        assert (buffer.pos, buffer.full, buffer.size(), len(buffer)) == (0, True, 1, 1)
        batch = buffer.sample(3)
        assert batch.rewards.flatten().tolist() == [t] * 3
        assert batch.next_observations.flatten().tolist() == [t + 1] * 6


def test_the_device_can_be_set_at_any_time() -> None:
    buffer = relive.ReplayBuffer(4, BOX, DISCRETE)
    assert buffer.device == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    buffer.device = "cpu"
    assert buffer.device == torch.device("cpu")
    add(buffer, 1)
    buffer.device = torch.device("meta")  # the one other device that every machine has
    assert {part.device.type for part in buffer.sample(2)[:5]} == {"meta"}
    with pytest.raises(RuntimeError):
        buffer.device = "nowhere"


def test_to_torch_copies_unless_told_not_to() -> None:
    buffer, array = replay(), np.zeros(3)
    copied, shared = buffer.to_torch(array), buffer.to_torch(array, copy=False)
    array += 1
    assert (copied.tolist(), shared.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_arrays_are_real_and_writable_views() -> None:
    buffer = replay(8, 2)
    for t in range(3):
        add(buffer, t)
    for name in ("observations", "actions", "rewards", "dones", "timeouts"):
        array = getattr(buffer, name)
        assert type(array) is np.ndarray
        assert array.flags.writeable
        assert array.shape[:2] == (4, 2)
    buffer.rewards += 10
    buffer.rewards[0, 1] = 7
    buffer.dones[:2, 0] = 1
    buffer.observations[1] = 5
    assert buffer.rewards[:3].tolist() == [[10, 7], [11, 11], [12, 12]]
    batch = buffer.transitions(buffer.handles())
    assert batch.rewards.flatten().tolist() == [10, 11, 12, 7, 11, 12]
    assert batch.dones.flatten().tolist() == [1, 1, 0, 0, 0, 0]
    assert batch.observations[1].tolist() == [5, 5]
    with pytest.raises(ValueError, match="broadcast"):
        buffer.rewards = np.zeros(3)
    with pytest.raises(KeyError, match="'y' is not a key"):
        relive.ReplayBuffer(4, DICT, DISCRETE).observations["y"] = 0


def test_successors_assigned_before_observations_stay() -> None:
    rng = np.random.default_rng(0)
    obs, following = rng.random((2, 4, 2, 2)).astype(np.float32)
    buffer = replay(8, 2)
    buffer.next_observations = following
    buffer.observations = obs
    buffer.full = True
    assert np.asarray(buffer.next_observations).tolist() == following.tolist()
    assert buffer.observations.tolist() == obs.tolist()


def test_pos_and_full_declare_rows_that_were_written_by_hand() -> None:
    buffer = replay(4)
    buffer.observations[:3] = np.arange(6).reshape(3, 1, 2)
    buffer.rewards[:3, 0] = [1, 2, 3]
    buffer.pos = 3
    assert (buffer.size(), buffer.full, len(buffer)) == (3, False, 3)
    assert rewards(buffer) == [1, 2, 3]
    assert buffer.next_observations[:2].tolist() == [[[2, 3]], [[4, 5]]]
    buffer.full = True
    assert rewards(buffer) == [0, 1, 2, 3]  # the row never written counts, with its zeros
    with pytest.raises((IndexError, ValueError)):
        buffer.pos = 9


def test_handles_are_forgotten_for_ever_at_reset() -> None:
    buffer = replay(4)
    add(buffer, 1)
    old = buffer.handles()
    buffer.reset()
    for t in range(9):
        assert not buffer.held_handles(old).any()
        add(buffer, t)
    with pytest.raises(errors.StaleHandleError, match=r"1 of 1 handles .* the first is 0"):
        buffer.transitions(old)
    assert issubclass(errors.StaleHandleError, LookupError)


def test_a_reset_brings_lanes_back_into_lockstep() -> None:
    buffer = replay(8, 2)
    add(buffer, 0)
    add(buffer, 1, mask=np.array([True, False]))
    with pytest.raises(errors.LanesDifferError, match=r"pos .*\[2, 1\] steps"):
        _ = buffer.pos
    assert buffer.lane_sizes.tolist() == [2, 1]
    buffer.reset()
    assert (buffer.pos, buffer.full, buffer.size()) == (0, False, 0)
    add(buffer, 2)
    assert (buffer.pos, rewards(buffer)) == (1, [2, 2])


def test_lanes_that_are_full_at_the_same_row_have_a_common_position() -> None:
    buffer = replay(4, 2)
    for t in range(2):
        add(buffer, t)
    for t in (2, 3):
        add(buffer, t, mask=np.array([True, False]))
    assert buffer.lane_sizes.tolist() == [2, 2]
    assert (buffer.pos, buffer.full, buffer.size()) == (0, True, 2)
    assert rewards(buffer) == [2, 3, 0, 1]


def test_relabelling_counts_stale_handles_and_the_last_of_equal_ones_wins() -> None:
    buffer = replay(3)
    add(buffer, 0)
    stale = buffer.handles()
    for t in (1, 2, 3):
        add(buffer, t)
    first, second, _ = buffer.handles()
    assert buffer.set([first, stale[0], second, first], reward=[10, 11, 12, 13], action=[1, 1, 2, 2]) == 1
    assert rewards(buffer) == [13, 12, 3]
    assert buffer.transitions([first, second]).actions.flatten().tolist() == [2, 2]


def test_one_copy_of_each_observation() -> None:
    images = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = relive.ReplayBuffer(300, images, DISCRETE, device="cpu")
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (1, 4, 84, 84)).astype(np.uint8)
    for t in range(300):
        following = image.copy()
        following[..., t % 84] += 1
        buffer.add(image, following, [0], [0.0], [False])
        image = following
    assert buffer.nbytes.touched < 0.52 * (300 * 2 * image.nbytes)
    assert buffer.nbytes.touched <= buffer.nbytes.reserved


def test_len_and_truth_and_repr() -> None:
    buffer = replay(2000, 2)
    assert bool(buffer)  # there is one, though it is empty
    for t in range(3):
        add(buffer, t)
    assert (len(buffer), buffer.num_transitions, buffer.size()) == (6, 6, 3)
    assert repr(buffer).startswith("ReplayBuffer(6 of 2,000 transitions, n_envs=2")
    rollout = relive.RolloutBuffer(5, BOX, DISCRETE, device="cpu", gamma=0.5)
    assert repr(rollout).startswith("RolloutBuffer(0 of 5 steps, n_envs=1")
    assert "gamma=0.5" in repr(rollout)


def test_a_pickle_holds_used_rows_only() -> None:
    buffer = replay(1_000_000)
    for t in range(10):
        add(buffer, t)
    data = pickle.dumps(buffer)
    assert len(data) < 20_000
    twin = pickle.loads(data)
    assert (twin.buffer_size, twin.pos, rewards(twin)) == (1_000_000, 10, list(range(10)))


@pytest.mark.parametrize("name", ["box-f32", "image", "nested"])
def test_a_deepcopy_and_its_original_live_apart(name: str) -> None:
    space = zoo.OBSERVATION_SPACES[name]
    rng = np.random.default_rng(0)
    buffer = relive.ReplayBuffer(6, space, DISCRETE, device="cpu", n_envs=2)

    def live(one: relive.ReplayBuffer) -> None:
        obs, following = zoo.values(rng, space, (2,)), zoo.values(rng, space, (2,))
        one.add(obs, following, [0, 1], rng.random(2), [False, True])

    for _ in range(4):
        live(buffer)
    twin = copy.deepcopy(buffer)
    before = rewards(buffer)
    assert rewards(twin) == before
    live(twin)
    twin.rewards += 1
    assert rewards(buffer) == before
    twin.device = "meta"
    assert buffer.device == torch.device("cpu")


def test_a_negative_batch_size_is_refused_and_none_of_nothing_is_drawn() -> None:
    buffer = replay()
    add(buffer, 1)
    with pytest.raises(ValueError, match="batch_size is -1"):
        buffer.sample(-1)
    assert buffer.sample(0).observations.shape == (0, 2)
    with pytest.raises(TypeError):
        buffer.sample(1.5)  # type: ignore[arg-type]


def test_dtypes_by_leaf() -> None:
    space = spaces.Dict({"a": BOX, "b": spaces.Dict({"c": BOX, "d": BOX})})
    dtypes = {"observation": np.float64, "observation/b": np.float16, "observation/b/d": np.int32, "action": np.uint8}
    buffer = relive.ReplayBuffer(4, space, DISCRETE, device="cpu", dtypes=dtypes)
    obs = {"a": [[1, 2]], "b": {"c": [[0.5, 2]], "d": [[3, 4]]}}
    buffer.add(obs, obs, [2], [0.0], [False])
    batch = buffer.sample(1)
    drawn = batch.observations
    kinds = (drawn["a"].dtype, drawn["b"]["c"].dtype, drawn["b"]["d"].dtype, batch.actions.dtype)
    assert kinds == (torch.float64, torch.float16, torch.int32, torch.uint8)
    assert drawn["b"]["c"].tolist() == [[0.5, 2]]
    with pytest.raises(errors.CastError, match=r"obs/b/d has the value 0\.5"):
        buffer.add(obs | {"b": {"c": [[0, 0]], "d": [[0.5, 0]]}}, obs, [2], [0.0], [False])


def test_every_error_is_one_of_relive_and_one_that_the_seed_raises() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__name__.endswith("Error")]
    assert len(kinds) > 8
    for kind in kinds:
        if kind is not relive.ReliveError:
            assert issubclass(kind, relive.ReliveError)
            own = {base for base in kind.__mro__ if base.__module__ != "relive.errors"} - {
                Exception,
                BaseException,
                object,
            }
            assert own, f"{kind.__name__} is no built-in kind of error"
