"""Spaces of every kind, and values of them, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

OBSERVATION_SPACES: dict[str, spaces.Space] = {
    "box-f32": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "box-f64": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "box-scalar": spaces.Box(-np.inf, np.inf, (), np.float32),
    "box-u8": spaces.Box(0, 255, (2, 3), np.uint8),
    "image": spaces.Box(0, 255, (3, 20, 20), np.uint8),  # 1200 bytes: lies in an array of its own
    "discrete": spaces.Discrete(5),
    "discrete-start": spaces.Discrete(4, start=-2),
    "multidiscrete": spaces.MultiDiscrete([3, 4, 5]),
    "multidiscrete-2d": spaces.MultiDiscrete([[3, 4], [5, 6]]),
    "multibinary": spaces.MultiBinary(4),
    "multibinary-nd": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (1, 36, 36), np.uint8),
            "goal": spaces.Discrete(7),
            "joints": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        }
    ),
    "nested": spaces.Dict(
        {
            "a": spaces.Dict({"b": spaces.Box(-np.inf, np.inf, (2,), np.float32), "c": spaces.MultiBinary(3)}),
            "t": spaces.Tuple((spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,), np.float64))),
        }
    ),
    "empty": spaces.Box(-np.inf, np.inf, (2, 0), np.float32),
    "dict-with-empty": spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (0,), np.float32), "b": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    ),
    "tuple": spaces.Tuple((spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(3))),
}

ACTION_SPACES: dict[str, spaces.Space] = {
    "box-f32": spaces.Box(-1, 1, (2,), np.float32),
    "box-f64": spaces.Box(-1, 1, (2,), np.float64),
    "box-2d": spaces.Box(-1, 1, (2, 3), np.float32),
    "discrete": spaces.Discrete(4),
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary(3),
    "empty": spaces.Box(-1, 1, (0,), np.float32),
}


def leaf_spaces(space: spaces.Space) -> Iterator[spaces.Space]:
    """The spaces of one array that a space consists of."""
    if isinstance(space, spaces.Dict):
        for child in space.spaces.values():
            yield from leaf_spaces(child)
    elif isinstance(space, spaces.Tuple):
        for child in space.spaces:
            yield from leaf_spaces(child)
    else:
        yield space


def leaves(space: spaces.Space, value: Any) -> list[Any]:
    """The parts of a value, one for every leaf space."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, child in space.spaces.items() for leaf in leaves(child, value[key])]
    if isinstance(space, spaces.Tuple):
        return [leaf for child, part in zip(space.spaces, value, strict=True) for leaf in leaves(child, part)]
    return [value]


def nest(space: spaces.Space, parts: list[Any]) -> Any:
    """The value that has these parts."""

    def build(node: spaces.Space, rest: Iterator[Any]) -> Any:
        if isinstance(node, spaces.Dict):
            return {key: build(child, rest) for key, child in node.spaces.items()}
        if isinstance(node, spaces.Tuple):
            return tuple(build(child, rest) for child in node.spaces)
        return next(rest)

    return build(space, iter(parts))


def stored_shape(space: spaces.Space) -> tuple[int, ...]:
    """The shape in which a buffer stores one observation of a leaf space."""
    return (1,) if isinstance(space, spaces.Discrete) else space.shape


def numbers(rng: np.random.Generator, space: spaces.Space, leading: tuple[int, ...]) -> NDArray:
    """Random values of a leaf space, ``(*leading, *space.shape)`` in its dtype."""
    shape = (*leading, *space.shape)
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.start, space.start + space.n, shape).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(0, space.nvec, shape).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, shape).astype(space.dtype)
    if space.dtype.kind in "ui":
        return rng.integers(space.low.min(), int(space.high.max()) + 1, shape).astype(space.dtype)
    return rng.standard_normal(shape).astype(space.dtype)


def values(rng: np.random.Generator, space: spaces.Space, leading: tuple[int, ...]) -> Any:
    """Random values of any space, nested as it is."""
    return nest(space, [numbers(rng, leaf, leading) for leaf in leaf_spaces(space)])


class ScaleEnv:
    """A normaliser that is no `VecNormalize`: anything with these two methods will do."""

    def normalize_obs(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return {key: self.normalize_obs(part) for key, part in obs.items()}
        return ((obs.astype(np.float64) - 1.5) / 7).astype(np.float32)

    def normalize_reward(self, reward: NDArray) -> NDArray:
        return np.clip(reward.astype(np.float64) / 3, -0.5, 0.5)
