"""Spaces as leaves of a step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive import errors
from relive.spaces import action_dim, obs_shape, observation_tree
from tests import zoo

BOX = spaces.Box(-1, 1, (2,), np.float32)

ANSWERS: list[tuple[spaces.Space, Any, Any]] = [
    (BOX, (2,), 2),
    (spaces.Box(-1, 1, (), np.float32), (), 1),
    (spaces.Box(-1, 1, (2, 3), np.float32), (2, 3), 6),
    (spaces.Discrete(4, start=-2), (1,), 1),
    (spaces.MultiDiscrete([3, 4]), (2,), 2),
    (spaces.MultiDiscrete([[3, 4, 2], [5, 6, 2]]), (2, 3), 6),
    (spaces.MultiBinary(5), (5,), 5),
    (spaces.MultiBinary((2, 3)), (2, 3), 6),
    (
        spaces.Dict({"a": BOX, "b": spaces.Tuple((BOX, spaces.Discrete(2)))}),
        {"a": (2,), "b": ((2,), (1,))},
        {"a": 2, "b": (2, 1)},
    ),
]


@pytest.mark.parametrize(("space", "shape", "width"), ANSWERS, ids=lambda value: str(value)[:30])
def test_shapes_and_widths(space: spaces.Space, shape: Any, width: Any) -> None:
    assert obs_shape(space) == shape
    assert action_dim(space) == width


KEYS = st.one_of(
    st.text("ab/~01é\x00. ", max_size=4), st.sampled_from(["a/b", "a~1b", "~", "/", "", "0", "~2", "~21", "__class__"])
)


@given(st.recursive(st.none(), lambda child: st.dictionaries(KEYS, child, min_size=1, max_size=4), max_leaves=8))
def test_no_two_leaves_share_a_path(shape: Any) -> None:
    def build(node: Any) -> spaces.Space:
        return BOX if node is None else spaces.Dict({key: build(child) for key, child in node.items()})

    space = build(shape)
    paths = [leaf.path for leaf in observation_tree(space).leaves]
    assert len(set(paths)) == len(paths) == len(list(zoo.leaf_spaces(space)))


def test_keys_of_any_characters_work() -> None:
    keys = ["a/b", "a", "a~1b", "~0", "", " ", "reward", "done", "link", "ключ", "observation"]
    space = spaces.Dict({key: spaces.Box(-np.inf, np.inf, (1,), np.float32) for key in keys})
    nested = spaces.Dict({"a": spaces.Dict({"b": BOX}), "a/b": BOX})
    assert len({leaf.path for leaf in observation_tree(nested).leaves}) == 2
    buffer = relive.ReplayBuffer(4, space, spaces.Discrete(2), device="cpu")
    obs = {key: [[i]] for i, key in enumerate(keys)}
    following = {key: [[-i]] for i, key in enumerate(keys)}
    buffer.add(obs, following, [1], [9.0], [True])
    batch = buffer.sample(1)
    assert {key: part.item() for key, part in batch.observations.items()} == {k: v[0][0] for k, v in obs.items()}
    assert {key: part.item() for key, part in batch.next_observations.items()} == {
        k: v[0][0] for k, v in following.items()
    }
    assert (batch.rewards.item(), batch.dones.item()) == (9, 1)


class Mystery(spaces.Space):
    """A space that nobody knows."""


UNSUPPORTED: dict[str, spaces.Space] = {
    "Text": spaces.Text(4),
    "Sequence": spaces.Sequence(BOX),
    "Graph": spaces.Graph(BOX, None),
    "OneOf": spaces.OneOf((BOX, BOX)) if hasattr(spaces, "OneOf") else spaces.Text(4),
    "Mystery": Mystery(),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_space_without_a_fixed_shape_is_named_with_its_path(name: str) -> None:
    space = UNSUPPORTED[name]
    outer = spaces.Dict({"x": BOX, "deep": spaces.Tuple((BOX, spaces.Dict({"k/y": space})))})
    kind = type(space).__name__
    with pytest.raises(NotImplementedError, match=rf"observation/deep/1/k~1y: {kind} space .*expected Box"):
        relive.ReplayBuffer(4, outer, spaces.Discrete(2))
    with pytest.raises(errors.UnsupportedSpaceError, match=f"action: {kind}"):
        relive.ReplayBuffer(4, BOX, space)


def test_a_space_of_no_parts_is_refused() -> None:
    for empty in (spaces.Dict({}), spaces.Tuple(())):
        with pytest.raises(errors.UnsupportedSpaceError, match=r"observation: .*no parts"):
            relive.ReplayBuffer(4, empty, spaces.Discrete(2))


def test_a_dtype_that_torch_lacks_is_refused_with_the_way_out() -> None:
    space = spaces.Box(-1, 1, (2,), np.longdouble)
    with pytest.raises(errors.UnsupportedSpaceError, match=r"observation: torch has no dtype.*dtypes="):
        relive.ReplayBuffer(4, space, spaces.Discrete(2))
    relive.ReplayBuffer(4, space, spaces.Discrete(2), dtypes={"observation": np.float32})


@pytest.mark.parametrize("name", zoo.OBSERVATION_SPACES)
def test_what_an_environment_samples_goes_in_and_comes_out(name: str) -> None:
    """Batches as Gymnasium's own vector environments make them."""
    space = zoo.OBSERVATION_SPACES[name]
    batched = gymnasium.vector.utils.batch_space(space, 3)
    batched.seed(0)
    obs, following = batched.sample(), batched.sample()
    buffer = relive.ReplayBuffer(3, space, spaces.Discrete(2), device="cpu", n_envs=3)
    buffer.add(obs, following, [0, 1, 0], [0, 1, 2], terminated=[False] * 3, truncated=[False] * 3)
    batch = buffer.transitions(buffer.handles())
    for drawn, given_value in ((batch.observations, obs), (batch.next_observations, following)):
        for part, leaf, expected in zip(
            zoo.leaves(space, drawn), zoo.leaf_spaces(space), zoo.leaves(space, given_value), strict=True
        ):
            assert part.shape == (3, *zoo.stored_shape(leaf))
            assert part.numpy().tobytes() == np.asarray(expected).tobytes()
