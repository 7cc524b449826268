"""What `add` and `extend` take, what they refuse, and that they neither change nor keep it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from relive import errors
from tests import zoo

BOX = spaces.Box(-10, 10, (3,), np.float32)
OBS = np.arange(6, dtype=np.float32).reshape(2, 3)


def replay(
    validate: str = "strict", space: spaces.Space = BOX, action: spaces.Space | None = None
) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(8, space, action or spaces.Discrete(4), device="cpu", n_envs=2, validate=validate)  # type: ignore[arg-type]


class LazyFrames:
    """As Gymnasium's: an array only when somebody asks for one."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array.astype(dtype) if dtype is not None else self.array.copy()

    def __len__(self) -> int:
        return len(self.array)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


CARRIERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda a: a,
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "list of arrays": lambda a: list(a),
    "read-only array": read_only,
    "Fortran order": np.asfortranarray,
    "reversed strides": lambda a: a[::-1].copy()[::-1],
    "wider integers or floats": lambda a: a.astype(np.float64 if a.dtype.kind == "f" else np.int64),
    "foreign byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "subclass of ndarray": lambda a: a.view(np.ma.MaskedArray).view(type("Mine", (np.ndarray,), {})),
    "torch tensor": torch.from_numpy,
    "torch tensor that requires grad": lambda a: (
        torch.from_numpy(a.copy()).requires_grad_() if a.dtype.kind == "f" else torch.from_numpy(a)
    ),
    "list of torch tensors": lambda a: (
        [torch.from_numpy(part) for part in a.copy()] if a.ndim > 1 else [torch.tensor(x) for x in a.tolist()]
    ),
    "LazyFrames": LazyFrames,
    "list of LazyFrames": lambda a: [LazyFrames(part) for part in a] if a.ndim > 1 else a.tolist(),
}


@pytest.mark.parametrize("many", [False, True], ids=["add", "extend"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_kind_of_array_is_taken(carrier: str, many: bool) -> None:
    carry = CARRIERS[carrier]
    arrays = [OBS, OBS + 1, np.array([1, 2]), np.array([0.5, -0.5], np.float32), np.array([True, False])]
    buffer = replay()
    if many:
        arrays = [np.stack([array, array]) for array in arrays]
        buffer.extend(*(carry(array) for array in arrays))
    else:
        buffer.add(*(carry(array) for array in arrays))
        buffer.add(*(carry(array) for array in arrays))
    batch = buffer.transitions(buffer.handles())
    assert batch.observations.tolist() == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2
    assert batch.next_observations.tolist() == [[1, 2, 3]] * 2 + [[4, 5, 6]] * 2
    assert batch.actions.flatten().tolist() == [1, 1, 2, 2]
    assert batch.rewards.flatten().tolist() == [0.5, 0.5, -0.5, -0.5]
    assert batch.dones.flatten().tolist() == [1, 1, 0, 0]
    assert (batch.observations.dtype, batch.actions.dtype) == (torch.float32, torch.int64)


def test_bfloat16_tensors_are_taken() -> None:
    buffer = replay()
    numbers = torch.from_numpy(OBS).bfloat16()
    buffer.add(numbers, numbers, [0, 1], torch.tensor([1.5, 2.0]).bfloat16(), [0, 1])
    assert buffer.observations[0].tolist() == OBS.tolist()
    assert buffer.rewards[0].tolist() == [1.5, 2.0]


@pytest.mark.cuda
def test_cuda_tensors_are_taken() -> None:
    buffer = replay()
    numbers = torch.from_numpy(OBS).cuda().requires_grad_()
    buffer.add(numbers, numbers, torch.tensor([0, 1]).cuda(), numbers[:, 0], numbers[:, 0] * 0)
    assert buffer.observations[0].tolist() == OBS.tolist()


def test_one_environment_needs_no_axis_of_environments() -> None:
    buffer = relive.ReplayBuffer(4, BOX, spaces.Discrete(4), device="cpu")
    buffer.add(OBS[0], OBS[1].tolist(), 3, 0.5, True, {"TimeLimit.truncated": True})
    buffer.add([OBS[0]], [OBS[1]], [3], [0.5], [True], [{"TimeLimit.truncated": True}])
    buffer.extend(OBS[:, None], OBS[:, None], [3, 3], [0.5, 0.5], [True, False])
    assert buffer.actions.flatten().tolist() == [3] * 4
    assert buffer.timeouts.flatten().tolist() == [1, 1, 0, 0]
    assert buffer.dones.flatten().tolist() == [1, 1, 1, 0]


INFOS: dict[str, tuple[Any, list[float]]] = {
    "none": (None, [0, 0]),
    "a dict per environment": ([{}, {"TimeLimit.truncated": True}], [0, 1]),
    "a tuple of dicts": (({"TimeLimit.truncated": True}, {"x": 3}), [1, 0]),
    "NumPy booleans": ([{"TimeLimit.truncated": np.False_}, {"TimeLimit.truncated": np.True_}], [0, 1]),
    "integers": ([{"TimeLimit.truncated": 0}, {"TimeLimit.truncated": 1}], [0, 1]),
    "a dict of arrays": ({"TimeLimit.truncated": np.array([False, True])}, [0, 1]),
    "a dict of arrays without the key": ({"x": np.zeros(2)}, [0, 0]),
    "a dict of arrays with a mask": (
        {"TimeLimit.truncated": np.array([True, True]), "_TimeLimit.truncated": np.array([False, True])},
        [0, 1],
    ),
}


@pytest.mark.parametrize("many", [False, True], ids=["add", "extend"])
@pytest.mark.parametrize("form", INFOS)
def test_every_form_of_infos_is_read(form: str, many: bool) -> None:
    infos, expected = INFOS[form]
    buffer, done = replay(), np.array([True, True])
    if many:
        one = [OBS, OBS, np.array([0, 1]), np.zeros(2, np.float32), done]
        buffer.extend(*(np.stack([part, part]) for part in one), None if infos is None else [infos, infos])
        assert buffer.timeouts[1].tolist() == expected
    else:
        buffer.add(OBS, OBS, [0, 1], [0, 0], done, infos)
    assert buffer.timeouts[0].tolist() == expected
    assert buffer.dones[0].tolist() == [1, 1]


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize(
    ("words", "done", "timeout"),
    [
        ({"terminated": [True, False]}, [1, 0], [0, 0]),
        ({"truncated": [True, False]}, [1, 0], [1, 0]),
        ({"terminated": [True, False], "truncated": [True, True]}, [1, 1], [0, 1]),
        ({"terminated": [1, 0], "truncated": np.array([0.0, 1.0])}, [1, 1], [0, 1]),
    ],
)
def test_gymnasiums_words_say_how_a_step_ended(words: dict, done: list, timeout: list, handled: bool) -> None:
    buffer = relive.ReplayBuffer(8, BOX, spaces.Discrete(4), device="cpu", n_envs=2, handle_timeout_termination=handled)
    buffer.add(OBS, OBS, [0, 1], [0, 0], **words)
    buffer.extend(OBS[None], OBS[None], [[0, 1]], [[0, 0]], **{key: [value] for key, value in words.items()})
    for row in range(2):
        assert buffer.dones[row].tolist() == done
        assert buffer.timeouts[row].tolist() == (timeout if handled else [0, 0])


def test_both_forms_of_ends_or_none_are_refused() -> None:
    buffer = replay()
    step = (OBS, OBS, [0, 1], [0, 0])
    for ends in ({}, {"done": [0, 0], "terminated": [0, 0]}, {"infos": [{}, {}], "truncated": [0, 0]}):
        with pytest.raises(TypeError, match="terminated"):
            buffer.add(*step, **ends)
        with pytest.raises(TypeError, match="terminated"):
            buffer.extend(*([part] for part in step), **{key: [value] for key, value in ends.items()})
    assert len(buffer) == 0


@pytest.mark.parametrize("name", ["box-f32", "discrete", "dict", "nested", "tuple", "image"])
@pytest.mark.parametrize("validate", ["strict", "seed"])
def test_the_callers_objects_are_neither_changed_nor_kept(name: str, validate: str) -> None:
    space, action_space = zoo.OBSERVATION_SPACES[name], zoo.ACTION_SPACES["box-2d"]
    rng = np.random.default_rng(0)
    buffer = relive.ReplayBuffer(8, space, action_space, device="cpu", n_envs=2, validate=validate)  # type: ignore[arg-type]
    arguments = [
        zoo.values(rng, space, (2,)),
        zoo.values(rng, space, (2,)),
        zoo.values(rng, action_space, (2,)),
        rng.random(2).astype(np.float32),
        np.array([True, False]),
        [{"TimeLimit.truncated": True}, {"deep": {"er": [1]}}],
    ]
    before = copy.deepcopy(arguments)
    buffer.add(*arguments)
    rollout = relive.RolloutBuffer(2, space, action_space, device="cpu", n_envs=2, validate=validate)  # type: ignore[arg-type]
    value = torch.ones(2, 1)
    rollout.add(arguments[0], arguments[2], arguments[3], arguments[4], value, value[:, 0])
    for given, kept in zip(arguments[:5], before[:5], strict=True):
        for part, old in zip(leaves_of(given), leaves_of(kept), strict=True):
            assert part.shape == old.shape
            assert part.tobytes() == old.tobytes()
    assert arguments[5] == before[5]
    stored = [part.clone() for part in leaves_of(tuple(buffer.transitions(buffer.handles())[:5]))]
    for part in leaves_of(tuple(arguments[:5])):
        part[...] = 1 - part if part.dtype != bool else ~part
    value[:] = 9
    again = leaves_of(tuple(buffer.transitions(buffer.handles())[:5]))
    assert all(torch.equal(a, b) for a, b in zip(again, stored, strict=True))
    assert rollout.values[0].tolist() == [1, 1]
    assert np.array_equal(rollout.actions[0], before[2].reshape(2, 6))


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves_of(part)]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [value]


# Errors ----------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "obs": OBS,
    "next_obs": OBS,
    "action": np.array([0, 1]),
    "reward": np.zeros(2, np.float32),
    "done": np.zeros(2, bool),
    "infos": [{}, {}],
}
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "obs for another number of environments": (
        {"obs": np.zeros((3, 3), np.float32)},
        errors.ShapeError,
        r"obs has shape \(3, 3\), expected \(2, 3\): one per environment \(n_envs=2\)",
    ),
    "obs without the axis of environments": ({"obs": OBS[0]}, errors.ShapeError, r"shape \(3,\), expected \(2, 3\)"),
    "next_obs of another shape": ({"next_obs": OBS[:, :2]}, errors.ShapeError, r"shape \(2, 2\), expected \(2, 3\)"),
    "ragged obs": ({"obs": [[1.0], [1.0, 2.0]]}, errors.ShapeError, "obs cannot be made an array"),
    "obs of strings": ({"obs": np.full((2, 3), "a")}, errors.CastError, "obs has dtype <U1, expected numbers"),
    "obs beyond float32": ({"obs": np.full((2, 3), 1e300)}, errors.CastError, r"1e\+300 .*float32"),
    "action of another width": (
        {"action": [0, 1, 2]},
        errors.ShapeError,
        r"action has shape \(3,\), expected \(2, 1\)",
    ),
    "action with a fraction": ({"action": [0.5, 1]}, errors.CastError, r"action has the value 0\.5 .*int64"),
    "one reward for two": (
        {"reward": np.zeros(1)},
        errors.ShapeError,
        r"reward has shape \(1,\), expected \(2,\): one per environment \(n_envs=2\)",
    ),
    "reward with an axis too many": (
        {"reward": np.zeros((2, 1))},
        errors.ShapeError,
        r"shape \(2, 1\), expected \(2,\)",
    ),
    "NaN reward": ({"reward": [0, np.nan]}, errors.NaNRewardError, "NaN at environment 1.*validate='seed'"),
    "half a done": ({"done": [0.5, 0]}, errors.CastError, r"done has the value 0\.5.* 0 and 1"),
    "one done for two": ({"done": [True]}, errors.ShapeError, r"done has shape \(1,\), expected \(2,\)"),
    "one info for two": ({"infos": [{}]}, errors.ShapeError, r"infos has 1 entries, expected 2.*n_envs=2"),
    "mask of numbers": ({"mask": np.array([0, 1])}, errors.ShapeError, r"mask has .*int64, expected \(2,\) booleans"),
    "mask of another length": ({"mask": np.ones(3, bool)}, errors.ShapeError, r"mask has shape \(3,\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_add_that_does_not_fit_says_what_came_and_what_was_expected(case: str) -> None:
    changes, kind, message = REFUSED[case]
    buffer = replay()
    buffer.add(**GOOD)
    with pytest.raises(kind, match=message) as caught:
        buffer.add(**(GOOD | changes))
    assert isinstance(caught.value, relive.ReliveError)
    assert isinstance(caught.value, ValueError)
    assert (buffer.pos, len(buffer)) == (1, 2)
    assert not buffer.observations[1].any()


@pytest.mark.parametrize("case", [case for case in REFUSED if "mask" not in case and "ragged" not in case])
def test_an_extend_that_does_not_fit_changes_nothing(case: str) -> None:
    changes, kind, _ = REFUSED[case]
    arguments = {
        name: [GOOD[name], changes.get(name, GOOD[name])] if name == "infos" else np.stack([np.asarray(GOOD[name])] * 2)
        for name in GOOD
    }
    for name, value in changes.items():
        if name != "infos":
            arguments[name] = np.stack([np.asarray(value)] * 2)
    buffer = replay()
    buffer.add(**GOOD)
    with pytest.raises(kind):
        buffer.extend(**arguments)
    assert (buffer.pos, len(buffer)) == (1, 2)


def test_values_beyond_an_integer_dtype_are_refused() -> None:
    for value in (300, -1, 0.5, np.nan):
        buffer = replay(space=spaces.Box(0, 255, (2,), np.uint8))
        fine = np.zeros((2, 2), np.uint8)
        with pytest.raises(errors.CastError, match="uint8 cannot hold"):
            buffer.add(np.full((2, 2), value), fine, [0, 0], [0, 0], [0, 0])
        assert len(buffer) == 0


@pytest.mark.parametrize(("given", "stored"), [(np.int8, np.uint8), (np.int64, np.uint64)])
def test_a_sign_that_an_integer_dtype_does_not_have_is_refused(given: Any, stored: Any) -> None:
    """Of one width the value comes back when it is cast back, so that does not show it."""
    buffer = replay(space=spaces.Box(0, 100, (2,), stored), action=spaces.Discrete(4))
    fine = np.zeros((2, 2), stored)
    with pytest.raises(errors.CastError, match=rf"has the value -1 .*{np.dtype(stored)} cannot hold"):
        buffer.add(np.full((2, 2), -1, given), fine, [0, 0], [0, 0], [0, 0])
    with pytest.raises(errors.CastError, match=r"action has the value 18446744073709551615 .*int64 cannot hold"):
        buffer.add(fine, fine, np.full(2, 2**64 - 1, np.uint64), [0, 0], [0, 0])
    assert len(buffer) == 0


def test_parts_that_a_space_does_not_have_are_refused() -> None:
    space = zoo.OBSERVATION_SPACES["dict"]
    good = zoo.values(np.random.default_rng(0), space, (2,))
    for bad in ({"camera": good["camera"]}, good | {"more": 1}, [1, 2], 3.0, None):
        buffer = replay(space=space)
        with pytest.raises(errors.ShapeError, match=r"^obs "):
            buffer.add(bad, good, [0, 0], [0, 0], [0, 0])
        with pytest.raises(errors.ShapeError, match=r"^next_obs "):
            buffer.add(good, bad, [0, 0], [0, 0], [0, 0])
        assert len(buffer) == 0


def test_set_refuses_what_does_not_fit_and_changes_nothing() -> None:
    buffer = replay()
    buffer.add(**GOOD)
    handles = buffer.handles()
    with pytest.raises(errors.ShapeError, match="reward"):
        buffer.set(handles, reward=[1.0])
    with pytest.raises(errors.NaNRewardError):
        buffer.set(handles, reward=[1.0, np.nan])
    with pytest.raises(errors.CastError, match="done"):
        buffer.set(handles, reward=[1.0, 1.0], done=[0.5, 0])
    with pytest.raises(TypeError, match="no field"):
        buffer.set(handles)
    assert buffer.rewards[0].tolist() == [0, 0]


def test_interrupting_what_is_not_there_is_refused() -> None:
    for bad in (2, -1, [0, 2]):
        with pytest.raises(IndexError, match="indices from 0 to 1"):
            replay().interrupt(bad)
    with pytest.raises(TypeError):
        replay().interrupt(0.5)  # type: ignore[arg-type]


# The forms that environments really give, which the core takes without a conversion on the way.
STEP_FORMS: dict[str, tuple[int, Any, Any, Any, Any, Any]] = {
    # n_envs, observation, action, reward, terminated, truncated
    "one environment, plain Python": (1, np.full(3, 0.5, np.float32), 2, 1.5, False, True),
    "one environment, NumPy scalars": (1, np.full(3, 0.5, np.float32), np.int64(2), np.float64(1.5), False, np.True_),
    "one environment, 0-d arrays": (1, np.full(3, 0.5, np.float32), np.array(2), np.array(1.5), np.array(False), True),
    "one environment in a vector": (
        1, np.full((1, 3), 0.5, np.float32), np.array([2]), np.array([1.5]), np.array([False]), np.array([True]),
    ),
    "two environments": (
        2, np.full((2, 3), 0.5, np.float32), np.array([2, 2]), np.full(2, 1.5), np.zeros(2, bool), np.ones(2, bool),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", STEP_FORMS)
def test_the_forms_that_environments_give_need_no_conversion(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n_envs, obs, action, reward, terminated, truncated = STEP_FORMS[form]
    buffer = relive.ReplayBuffer(
        8, spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), device="cpu", n_envs=n_envs
    )
    monkeypatch.setattr("relive.buffers.replay.append_converted", lambda *_, **__: pytest.fail("converted"))
    buffer.add(obs, obs + np.float32(0.25), action, reward, terminated=terminated, truncated=truncated)
    infos = {"TimeLimit.truncated": True} if n_envs == 1 else [{"TimeLimit.truncated": True}] * n_envs
    buffer.add(obs, obs + np.float32(0.25), action, reward, truncated, infos)
    batch = buffer.transitions(buffer.handles())
    size = 2 * n_envs
    assert torch.equal(batch.observations, torch.full((size, 3), 0.5))
    assert torch.equal(batch.next_observations, torch.full((size, 3), 0.75))
    assert batch.actions.tolist() == [[2]] * size
    assert batch.rewards.tolist() == [[1.5]] * size
    assert batch.dones.tolist() == [[0.0]] * size
    assert buffer.timeouts[:2].tolist() == [[1.0] * n_envs] * 2


def test_a_number_is_no_observation_of_a_box() -> None:
    buffer = relive.ReplayBuffer(4, spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), device="cpu")
    with pytest.raises(relive.errors.ShapeError):
        buffer.add(1, 1, 2, 0.0, False)
    with pytest.raises(relive.errors.CastError):
        buffer.add(np.zeros(3), np.zeros(3), 2, 1e300, False)
    assert len(buffer) == 0


@pytest.mark.parametrize("kind", [relive.ReplayBuffer, relive.Reservoir])
@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize("name", ["dict", "nested", "tuple"])
@pytest.mark.parametrize("as_list", [True, False], ids=["a list of steps", "arrays over steps"])
@pytest.mark.parametrize("dtype", [None, np.float64], ids=["as stored", "to be cast"])
def test_nested_steps_are_extended_by(kind: Any, validate: Any, name: str, as_list: bool, dtype: Any) -> None:
    space, rng = zoo.OBSERVATION_SPACES[name], np.random.default_rng(0)
    steps = [zoo.values(rng, space, (2,)) for _ in range(3)]
    if dtype is not None:
        steps = [zoo.nest(space, [leaf.astype(dtype) for leaf in zoo.leaves(space, step)]) for step in steps]
    columns = [np.stack(leaf) for leaf in zip(*(zoo.leaves(space, step) for step in steps), strict=True)]
    given = steps if as_list else zoo.nest(space, columns)
    one, other = (kind(16, space, space, device="cpu", n_envs=2, validate=validate, seed=0) for _ in range(2))
    one.extend(given, given, given, np.arange(6.0).reshape(3, 2), np.zeros((3, 2), bool))
    for t, step in enumerate(steps):
        other.add(step, step, step, [2.0 * t, 2.0 * t + 1], [False, False])
    got, expected = one.sample(30), other.sample(30)
    assert torch.equal(got.rewards, expected.rewards)
    for field in ("observations", "next_observations", "actions"):
        parts = (zoo.leaves(space, getattr(batch, field)) for batch in (got, expected))
        assert all(torch.equal(a, b) for a, b in zip(*parts, strict=True))


def test_a_step_of_a_list_that_does_not_fit_is_named() -> None:
    space = zoo.OBSERVATION_SPACES["dict"]
    good = zoo.values(np.random.default_rng(0), space, (2,))
    buffer = replay(space=space)
    with pytest.raises(errors.ShapeError, match=r"^next_obs\[1\] lacks \['goal', 'joints'\]"):
        buffer.extend([good, good], [good, {"camera": good["camera"]}], [[0, 0]] * 2, [[0, 0]] * 2, [[0, 0]] * 2)
    assert len(buffer) == 0
