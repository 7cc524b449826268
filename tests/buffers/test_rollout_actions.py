"""Actions of rollouts: every integer comes back as it was, and Dict and Tuple spaces keep their nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st

import relive
from tests import zoo

NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def drawn(space: spaces.Space[Any], *steps: Any, n_envs: int = 1, **options: Any) -> Any:
    """The actions of a rollout of these steps, in the order in which they were added."""
    buffer = relive.RolloutBuffer(len(steps), NUMBER, space, "cpu", n_envs=n_envs, **options)
    zeros = torch.zeros(n_envs)
    for action in steps:
        buffer.add(np.zeros((n_envs, 1)), action, zeros, zeros, zeros, zeros)
    return buffer._get_samples(np.arange(len(steps) * n_envs)).actions


DTYPES = [np.int8, np.uint8, np.int32, np.int64] + ([np.uint32, np.uint64] if hasattr(torch, "uint64") else [])
BIG = 1 << 25

CASES: dict[str, tuple[spaces.Space[Any], list[int]]] = {
    "Discrete below zero": (spaces.Discrete(10, start=-33_554_440), [-33_554_435]),
    "Discrete above zero": (spaces.Discrete(BIG), [16_777_217]),
    "MultiDiscrete below zero": (spaces.MultiDiscrete([10, 3], start=[-BIG - 7, 0]), [-BIG - 3, 2]),
    "MultiDiscrete at the end of int64": (spaces.MultiDiscrete([5], start=[2**63 - 6]), [2**63 - 3]),
    "Box below zero": (spaces.Box(-BIG - 5, 0, (2,), np.int32), [-BIG - 3, -1]),
    "Box with the smallest int64": (spaces.Box(-(2**63), 0, (1,), np.int64), [-(2**63) + 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_sb3_2295_integers_far_from_zero_are_not_rounded(case: str) -> None:
    """Also DLR-RM/stable-baselines3#913, #1241."""
    space, action = CASES[case]
    got = drawn(space, np.array([action], space.dtype))
    assert got.dtype not in (torch.float32, torch.float64)
    assert got[0].tolist() == action


def test_integers_that_float32_holds_are_drawn_as_the_seed_draws_them() -> None:
    for space in (spaces.Discrete(3, start=-(1 << 24)), spaces.Box(-(1 << 24), 1 << 24, (1,), np.int32)):
        got = drawn(space, np.array([[-(1 << 24) + 1]]))
        assert (got.dtype, got.item()) == (torch.float32, -(1 << 24) + 1)


def test_integers_that_are_stored_as_float64_are_not_rounded_either() -> None:
    got = drawn(spaces.Discrete(BIG), np.array([16_777_217]), dtypes={"action": np.float64})
    assert (got.dtype, got.item()) == (torch.float64, 16_777_217)


@given(data=st.data(), dtype=st.sampled_from(DTYPES), width=st.integers(1, 3))
def test_every_integer_comes_back_as_it_was(data: st.DataObject, dtype: type, width: int) -> None:
    info = np.iinfo(dtype)
    near = st.integers(int(info.min), int(info.max)) | st.integers(max(-BIG, int(info.min)), min(BIG, int(info.max)))
    numbers = np.array(data.draw(st.lists(near, min_size=3 * width, max_size=3 * width)), dtype).reshape(3, width)
    low, _, high = np.sort(numbers, axis=0)
    actions = [row[None] for row in numbers]
    got = drawn(spaces.Box(low, high, (width,), dtype), *actions)
    assert [[int(x) for x in row] for row in got.tolist()] == numbers.tolist()


@given(start=st.integers(-(2**62), 2**62), count=st.integers(1, 2**40), share=st.floats(0, 1))
@example(start=-33_554_440, count=10, share=0.5)
def test_every_choice_comes_back_as_it_was(start: int, count: int, share: float) -> None:
    action = start + int(share * (count - 1))
    for space in (spaces.Discrete(count, start=start), spaces.MultiDiscrete([count], start=[start])):
        assert int(drawn(space, np.array([action])).item()) == action


# Dict and Tuple spaces -------------------------------------------------------------------------------------------

ARM = spaces.Box(-1, 1, (2, 3), np.float64)
NESTED: dict[str, spaces.Space[Any]] = {
    "Dict": spaces.Dict({"arm": ARM, "gripper": spaces.Discrete(3)}),
    "Dict of one": spaces.Dict({"arm": ARM}),
    "Tuple": spaces.Tuple((spaces.MultiDiscrete([3, 4]), ARM)),
    "Tuple of one": spaces.Tuple((spaces.Discrete(3),)),
    "nested": spaces.Dict({"body": spaces.Dict({"arm": ARM}), "hands": spaces.Tuple((spaces.MultiBinary(3), ARM))}),
    "large integers": spaces.Dict({"id": spaces.Discrete(BIG), "few": spaces.Discrete(3)}),
}


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", NESTED)
def test_sb3_920_dict_and_tuple_actions_keep_their_nesting(kind: str, n_envs: int, rng: np.random.Generator) -> None:
    """Also pytorch/rl#2716, ray-project/ray#6914."""
    space = NESTED[kind]
    actions = [zoo.values(rng, space, (n_envs,)) for _ in range(4)]
    buffer = relive.RolloutBuffer(4, NUMBER, space, "cpu", n_envs=n_envs, gamma=0.5)
    zeros = torch.zeros(n_envs)
    for t, action in enumerate(actions):
        buffer.add(np.full((n_envs, 1), t), action, zeros, zeros, zeros, zeros)
    buffer.compute_returns_and_advantage(zeros, zeros)
    stored = zoo.leaves(space, buffer.actions)
    whole = buffer._get_samples(np.arange(4 * n_envs))
    for i, (leaf, array) in enumerate(zip(zoo.leaf_spaces(space), stored, strict=True)):
        given = np.stack([zoo.leaves(space, action)[i] for action in actions]).reshape(4, n_envs, -1)
        assert (array.dtype, array.shape) == (leaf.dtype, given.shape)
        assert np.array_equal(array, given)
        drawn_leaf = zoo.leaves(space, whole.actions)[i]
        narrow = not (isinstance(leaf, spaces.Discrete) and leaf.n == BIG)
        assert drawn_leaf.dtype == (torch.float32 if narrow else torch.int64)
        assert torch.equal(drawn_leaf, torch.from_numpy(given.swapaxes(0, 1).reshape(4 * n_envs, -1)).to(drawn_leaf))
    for batch in buffer.get(3):
        parts = zoo.leaves(space, batch.actions)
        for part, given in zip(
            parts, zip(*(zoo.leaves(space, action) for action in actions), strict=True), strict=True
        ):
            for row, seen in zip(part, batch.observations.flatten().int().tolist(), strict=True):
                candidates = given[seen].reshape(n_envs, -1).astype(row.numpy().dtype)
                assert any(np.array_equal(row, candidate) for candidate in candidates)


def test_dict_actions_with_dict_observations_and_without_the_axis_of_one_environment() -> None:
    space = spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "gripper": spaces.Discrete(3)})
    buffer = relive.RolloutBuffer(2, spaces.Dict({"x": NUMBER}), space, "cpu")
    for t in range(2):
        buffer.add({"x": [t]}, {"arm": [0.5, t], "gripper": t}, 0.0, t == 0, [0.0], [0.0])
    assert buffer.action_dim == {"arm": 2, "gripper": 1}
    (batch,) = buffer.get()
    assert isinstance(batch, relive.DictRolloutBufferSamples)
    assert torch.equal(batch.actions["gripper"], batch.observations["x"])


def test_an_action_that_lacks_a_part_changes_nothing() -> None:
    buffer = relive.RolloutBuffer(2, NUMBER, NESTED["Dict"], "cpu")
    for action in (
        {"arm": np.zeros((1, 2, 3))},
        {"arm": np.zeros((1, 2, 3)), "gripper": [0.5]},
        np.zeros((1, 7)),
        np.zeros((2, 7)),
    ):
        with pytest.raises((relive.errors.ShapeError, relive.errors.CastError), match="action"):
            buffer.add([0.0], action, 0.0, True, [0.0], [0.0])
    assert buffer.pos == 0
    assert not any(array.any() for array in zoo.leaves(NESTED["Dict"], buffer.actions))


def test_reset_and_memory_know_the_parts_of_actions() -> None:
    space = NESTED["Dict"]
    buffer = relive.RolloutBuffer(2, NUMBER, space, "cpu")
    before = zoo.leaves(space, buffer.actions)
    buffer.add([0.0], {"arm": np.ones((1, 2, 3)), "gripper": [2]}, 0.0, True, [0.0], [0.0])
    assert buffer.nbytes == (2 * (4 + 6 * 8 + 8 + 6 * 4), 4 + 6 * 8 + 8 + 6 * 4)
    buffer.reset()
    for old, new in zip(before, zoo.leaves(space, buffer.actions), strict=True):
        assert old is new
        assert not new.any()


def test_subclasses_that_read_flat_arrays_find_flat_parts() -> None:
    class Mine(relive.RolloutBuffer):
        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            assert self.actions["gripper"].shape == (4, 1)
            return super()._get_samples(batch_inds, env)

    buffer = Mine(2, NUMBER, NESTED["Dict"], "cpu", n_envs=2)
    for t in range(2):
        action = {"arm": np.full((2, 2, 3), t / 4), "gripper": [t, t]}
        buffer.add([[t], [t]], action, [0, 0], [0, 0], torch.zeros(2), torch.zeros(2))
    for batch in buffer.get(3):
        assert torch.equal(batch.actions["gripper"], batch.observations)
        assert torch.equal(batch.actions["arm"][:, :1] * 4, batch.observations)
