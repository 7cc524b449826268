"""Tensors as a learner under autocast has them, bfloat16 and in need of gradients, wherever a caller may pass one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from relive import errors
from relive.inputs import as_array, handle_array
from tests.cases.goals import SPACE

BOX, DISCRETE = spaces.Box(-10, 10, (2,), np.float32), spaces.Discrete(4)

# Numbers that bfloat16 holds as they are.
CARRIERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda a: np.asarray(a),
    "float32": lambda a: torch.tensor(a),
    "needs gradients": lambda a: torch.tensor(a).requires_grad_(),
    "bfloat16": lambda a: torch.tensor(a).bfloat16(),
    "bfloat16 that needs gradients": lambda a: torch.tensor(a).bfloat16().requires_grad_(),
    "result of a graph": lambda a: (torch.tensor(a).requires_grad_() * 1).bfloat16(),
    "list of tensors": lambda a: [torch.tensor(part).bfloat16().requires_grad_() for part in a],
    "float8": lambda a: torch.tensor(a).to(torch.float8_e4m3fn),
    "float16": lambda a: torch.tensor(a).half().requires_grad_(),
    "cuda": lambda a: torch.tensor(a).cuda().bfloat16().requires_grad_(),
}
carriers = pytest.mark.parametrize(
    "carry",
    [pytest.param(carry, id=name, marks=[pytest.mark.cuda] * (name == "cuda")) for name, carry in CARRIERS.items()],
)
BUFFERS = [relive.ReplayBuffer, relive.Reservoir]


@carriers
@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("many", [False, True], ids=["add", "extend"])
@pytest.mark.parametrize("validate", ["strict", "seed"])
def test_steps(carry: Any, kind: Any, many: bool, validate: str) -> None:
    fields = {"v": ((2,), np.float32)}
    buffer = kind(8, BOX, BOX, device="cpu", n_envs=2, validate=validate, fields=fields, seed=0)
    pairs, numbers, flags = [[0.5, 1.5], [2.5, 3.5]], [1.0, 2.0], [0.0, 1.0]
    step = [carry([part] if many else part) for part in (pairs, pairs, pairs, numbers, flags)]
    (buffer.extend if many else buffer.add)(*step, extras={"v": carry([pairs] if many else pairs)})
    batch = buffer.sample(30)
    rows = {
        tuple(row)
        for row in torch.cat(
            [*batch[:2], batch.next_observations, batch.rewards, batch.dones, batch.extras["v"]], 1
        ).tolist()
    }
    assert rows == {(*[0.5, 1.5] * 3, 1.0, 0.0, 0.5, 1.5), (*[2.5, 3.5] * 3, 2.0, 1.0, 2.5, 3.5)}


def prioritized(**options: Any) -> relive.ReplayBuffer:
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    buffer = relive.ReplayBuffer(8, BOX, DISCRETE, device="cpu", sampler=sampler, seed=0, **options)
    for t in range(4):
        buffer.add(np.zeros((1, 2)), np.zeros((1, 2)), [0], [t], [t == 3])
    return buffer


@carriers
@pytest.mark.parametrize("name", ["priorities", "td_errors"])
def test_priorities(carry: Any, name: str) -> None:
    buffer = prioritized()
    buffer.update_priorities(buffer.handles(), **{name: carry([0.5, 1.0, 2.0, 4.0])})
    assert buffer.priorities(buffer.handles()).tolist() == [0.5, 1.0, 2.0, 4.0]
    mixture = relive.mix({buffer: 1.0})
    batch = mixture.sample(8)
    mixture.update_priorities(batch.handles, **{name: carry([8.0] * 8)})
    drawn = np.unique(batch.handles["handle"])
    assert buffer.priorities(drawn).tolist() == [8.0] * len(drawn)


@carriers
def test_errors_and_masks_of_sequences(carry: Any) -> None:
    buffer = prioritized()
    handles = buffer.handles()[:2]
    errors_of_steps, mask = carry([[-1.0, 3.0], [8.0, -2.0]]), carry([[1.0, 1.0], [0.0, 1.0]])
    buffer.update_priorities(handles, td_errors=errors_of_steps, mask=mask, eta=0.5)
    assert buffer.priorities(handles).tolist() == [2.5, 2.0]


def test_a_mask_of_single_steps_leaves_the_others_as_they_are() -> None:
    buffer = prioritized()
    buffer.update_priorities(buffer.handles(), td_errors=torch.full((4,), 7.0), mask=torch.tensor([True, False] * 2))
    assert buffer.priorities(buffer.handles()).tolist() == [7.0, 1.0, 7.0, 1.0]


@carriers
def test_what_is_set(carry: Any) -> None:
    buffer = relive.ReplayBuffer(8, BOX, BOX, device="cpu", fields={"v": ((2,), np.float32)})
    for _ in range(2):
        buffer.add(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)), [0.0], [0.0], extras={"v": np.zeros((1, 2))})
    pairs, numbers = [[0.5, 1.5], [2.5, 3.5]], [1.0, 2.0]
    buffer.set(
        torch.from_numpy(buffer.handles()),
        reward=carry(numbers),
        action=carry(pairs),
        done=carry([0.0, 1.0]),
        timeout=carry([0.0, 0.0]),
        extras={"v": carry(pairs)},
    )
    batch = buffer.transitions(buffer.handles())
    assert (batch.rewards.flatten().tolist(), batch.dones.flatten().tolist()) == (numbers, [0.0, 1.0])
    assert batch.actions.tolist() == batch.extras["v"].tolist() == pairs


@carriers
@pytest.mark.parametrize("n_steps", [1, 2])
def test_what_functions_of_hindsight_return(carry: Any, n_steps: int) -> None:
    """RSL-RL PR 219: a reward computed by torch."""
    hindsight = relive.Hindsight(
        lambda achieved, desired, info: carry([0.5] * len(achieved)),
        compute_terminated=lambda achieved, desired, info: carry([0.0] * len(achieved)),
    )
    options = {"hindsight": hindsight, "n_steps": n_steps, "gamma": 1.0}
    buffer = relive.ReplayBuffer(8, SPACE, DISCRETE, device="cpu", seed=0, **options)  # type: ignore[arg-type]
    obs = {key: np.zeros((1, 1), np.float32) for key in SPACE.spaces}
    for t in range(3):
        buffer.add(obs, obs, [0], [0.0], [t == 2])
    batch = buffer.sample(50)
    relabelled = batch.rewards.flatten()[batch.relabelled]
    assert set(relabelled.tolist()) == ({0.5} if n_steps == 1 else {0.5, 1.0})
    assert not batch.dones[batch.relabelled].any()
    assert not batch.rewards.requires_grad


class TorchNormaliser:
    """Computes with tensors, as a learner's running statistics may."""

    def __init__(self, carry: Any) -> None:
        self.carry = carry

    def normalize_obs(self, obs: Any) -> Any:
        return (
            {key: self.normalize_obs(part) for key, part in obs.items()}
            if isinstance(obs, dict)
            else self.carry((obs + 1).tolist())
        )

    def normalize_reward(self, reward: Any) -> Any:
        return self.carry((reward * 2).tolist())


@carriers
@pytest.mark.parametrize(
    "options",
    [{}, {"n_steps": 2, "gamma": 1.0}, {"sampler": relive.Prioritized()}],
    ids=["plain", "n-step", "prioritized"],
)
@pytest.mark.parametrize("is_dict", [False, True], ids=["array", "dict"])
def test_what_normalises(carry: Any, options: Any, is_dict: bool) -> None:
    space = spaces.Dict({"x": BOX}) if is_dict else BOX
    buffer = relive.ReplayBuffer(8, space, DISCRETE, device="cpu", seed=0, **options)
    obs: Any = {"x": np.zeros((1, 2), np.float32)} if is_dict else np.zeros((1, 2), np.float32)
    for t in range(4):
        buffer.add(obs, obs, [0], [1.0], [t % 2 == 1])
    batch = buffer.sample(20, env=TorchNormaliser(carry))
    seen = batch.observations["x"] if is_dict else batch.observations
    assert set(seen.flatten().tolist()) == {1.0}
    assert set(batch.rewards.flatten().tolist()) == ({2.0, 4.0} if "n_steps" in options else {2.0})
    assert batch.rewards.dtype == torch.float32
    assert not seen.requires_grad


def test_a_reservoir_is_normalised_by_tensors() -> None:
    reservoir = relive.Reservoir(8, BOX, DISCRETE, device="cpu", seed=0)
    reservoir.add(np.zeros((1, 2)), np.zeros((1, 2)), [0], [1.0], [False])
    batch = reservoir.sample(3, env=TorchNormaliser(CARRIERS["bfloat16 that needs gradients"]))
    assert (batch.observations.flatten()[0].item(), batch.rewards.flatten().tolist()) == (1.0, [2.0] * 3)


# Handles -------------------------------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[relive.ReplayBuffer, Any], Any]] = {
    "held_handles": lambda buffer, handles: buffer.held_handles(handles),
    "transitions": lambda buffer, handles: buffer.transitions(handles),
    "set": lambda buffer, handles: buffer.set(handles, reward=[5.0] * 4),
    "update_priorities": lambda buffer, handles: buffer.update_priorities(handles, [5.0] * 4),
    "priorities": lambda buffer, handles: buffer.priorities(handles),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "carry",
    [
        torch.from_numpy,
        list,
        lambda h: h.astype(np.int32),
        lambda h: h.astype(np.uint64),
        lambda h: h[:, None],
        lambda h: h[::-1],
    ],
    ids=["tensor", "list", "int32", "uint64", "column", "reversed"],
)
def test_handles_are_integers_of_any_kind(call: str, carry: Any) -> None:
    buffer = prioritized()
    CALLS[call](buffer, carry(buffer.handles()))


BAD_HANDLES: dict[str, tuple[Any, str]] = {
    "floats": (np.array([0.0, 1.0, 2.0, 3.5]), "handles has dtype float64, expected integers"),
    "bfloat16": (torch.arange(4).bfloat16(), "handles has dtype float32, expected integers"),
    "booleans": (np.ones(4, bool), "handles has dtype bool, expected integers"),
    "None": (None, "handles is None, expected numbers"),
    "a string": ("abcd", "handles is 'abcd', expected numbers"),
    "ragged": ([[0, 1], [2]], "handles cannot be made an array"),
    "beyond int64": (np.full(4, 2**63, np.uint64), "handles has the value 9223372036854775808"),
    "handles of a mixture": (np.zeros(4, relive.mixture.HANDLE), "handles has dtype .*expected numbers"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", BAD_HANDLES)
def test_what_is_no_handle_is_refused_by_name(case: str, call: str) -> None:
    handles, message = BAD_HANDLES[case]
    buffer = prioritized()
    with pytest.raises((errors.CastError, errors.ShapeError), match=message):
        CALLS[call](buffer, handles)
    assert buffer.priorities(buffer.handles()).tolist() == [1.0] * 4
    assert buffer.rewards[:4].flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_no_handles_are_handles() -> None:
    assert handle_array([]).dtype == np.int64
    buffer = prioritized()
    assert buffer.update_priorities([], []) == 0
    assert buffer.held_handles([]).shape == (0,)


# The conversion itself -----------------------------------------------------------------------------------------------


def test_bfloat16_loses_nothing() -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    assert as_array(every, "x").dtype == np.float32
    assert np.array_equal(as_array(every, "x"), every.float().numpy(), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(2, device="meta"), r"x is a tensor on meta, whose values cannot be read"),
        (torch.zeros(2, dtype=torch.complex64), r"x has dtype complex64, expected numbers"),
        ([torch.zeros(2), torch.zeros(3)], r"x cannot be made an array"),
        ([torch.zeros(2), None], r"x is None, expected numbers"),
        ([0.5, object()], r"x has dtype object, expected numbers"),
        ({"a": 1}, r"x is \{'a': 1\}, expected numbers"),
    ],
    ids=["meta", "complex", "ragged", "None among tensors", "objects", "dict"],
)
def test_what_holds_no_numbers_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises((errors.CastError, errors.ShapeError), match=message):
        as_array(value, "x")


def test_numbers_and_tensors_in_one_list() -> None:
    assert as_array([0.5, torch.tensor(1.5).requires_grad_()], "x").tolist() == [0.5, 1.5]
    assert as_array([[torch.tensor([1.0]).bfloat16()], [torch.tensor([2.0])]], "x").tolist() == [[[1.0]], [[2.0]]]
