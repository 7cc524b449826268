"""With the same state of ``np.random``, replay buffers of Stable-Baselines3 and of relive draw the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common import buffers as seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import relive
from tests import zoo
from tests.differential.compare import (
    ACT,
    FILLS,
    FLAGS,
    INFOS,
    OBS,
    ROWS,
    SEED_SPACES,
    assert_same,
    assert_same_draws,
    assert_same_replay_arrays,
    both,
    copied,
    life,
    replay_pair,
)


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("observation", SEED_SPACES)
def test_replay_draws_are_those_of_the_seed(observation: str, n_envs: int, fill: int) -> None:
    space = SEED_SPACES[observation]
    for handles_timeouts in (True, False):
        for validate in ("strict", "seed"):
            pair = replay_pair(
                space,
                zoo.ACTION_SPACES["box-f32"],
                n_envs,
                handle_timeout_termination=handles_timeouts,
                validate=validate,
            )
            both(pair, life(space, zoo.ACTION_SPACES["box-f32"], n_envs, fill))
            assert_same_replay_arrays(*pair)
            np.random.seed(fill)
            for env in (None, zoo.ScaleEnv()):
                for size in (1, 64, 0):
                    assert_same_draws(*pair, lambda buffer, size=size, env=env: buffer.sample(size, env=env))


@pytest.mark.parametrize("action", zoo.ACTION_SPACES)
@pytest.mark.parametrize("n_envs", [1, 3])
def test_replayed_actions_are_those_of_the_seed(action: str, n_envs: int) -> None:
    for space in (SEED_SPACES["box-f64"], SEED_SPACES["dict"]):
        pair = replay_pair(space, zoo.ACTION_SPACES[action], n_envs)
        both(pair, life(space, zoo.ACTION_SPACES[action], n_envs, ROWS + 2))
        np.random.seed(1)
        assert_same_replay_arrays(*pair)
        assert_same_draws(*pair, lambda buffer: buffer.sample(50))


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("observation", ["box-f32", "box-u8", "image", "discrete", "multibinary"])
def test_extended_buffers_are_those_of_the_seed(observation: str, n_envs: int, fill: int) -> None:
    space, action_space = SEED_SPACES[observation], zoo.ACTION_SPACES["discrete"]
    for as_arrays in (True, False):
        ours, theirs = replay_pair(space, action_space, n_envs)
        columns = [list(column) for column in zip(*life(space, action_space, n_envs, fill), strict=True)]
        theirs.extend(*columns)
        ours.extend(*([np.array(column) for column in columns[:5]] if as_arrays else columns[:5]), columns[5])
        assert_same_replay_arrays(ours, theirs)
        assert_same_draws(ours, theirs, lambda buffer: buffer.sample(40))


def test_a_dropped_and_refilled_buffer_is_that_of_the_seed() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    pair = replay_pair(space, action_space, 2)
    both(pair, life(space, action_space, 2, ROWS + 1))
    for buffer in pair:
        buffer.reset()
    assert_same_replay_arrays(*pair)
    both(pair, life(space, action_space, 2, 3))
    assert_same_replay_arrays(*pair)
    assert_same_draws(*pair, lambda buffer: buffer.sample(40))


def test_after_setting_pos_and_full_draws_are_those_of_the_seed() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    for pos, full in ((0, True), (3, True), (2, False)):
        pair = replay_pair(space, action_space, 2)
        both(pair, life(space, action_space, 2, ROWS))
        for buffer in pair:
            buffer.pos, buffer.full = pos, full
        assert_same_replay_arrays(*pair)
        assert_same_draws(*pair, lambda buffer: buffer.sample(40))
        both(pair, life(space, action_space, 2, 2))
        assert_same_replay_arrays(*pair)
        assert_same_draws(*pair, lambda buffer: buffer.sample(40))


class Small(gymnasium.Env):
    """An environment whose observations and rewards give a `VecNormalize` something to learn."""

    def __init__(self, space: spaces.Space) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.rng = np.random.default_rng(3)

    def reset(self, **_: Any) -> tuple[Any, dict]:
        return zoo.values(self.rng, self.observation_space, ()), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        observation = zoo.values(self.rng, self.observation_space, ())
        return observation, float(self.rng.normal(2, 5)), bool(self.rng.random() < 0.2), False, {}


@pytest.mark.parametrize("observation", ["box-f32", "box-f64", "dict"])
def test_batches_normalised_by_vec_normalize_are_those_of_the_seed(observation: str) -> None:
    space = SEED_SPACES[observation]
    keys = ["joints"] if isinstance(space, spaces.Dict) else None
    env = VecNormalize(DummyVecEnv([lambda: Small(space)] * 2), norm_obs_keys=keys)
    env.reset()
    for _ in range(20):
        env.step(np.array([0, 1]))
    pair = replay_pair(space, env.action_space, 2)
    both(pair, life(space, env.action_space, 2, ROWS + 2))
    np.random.seed(5)
    assert_same_draws(*pair, lambda buffer: buffer.sample(64, env=env))
    assert_same_replay_arrays(*pair)  # stored raw


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.Philox, np.random.SFC64, np.random.MT19937])
def test_draws_follow_a_swapped_global_generator(bits: type) -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    ours, theirs = replay_pair(space, action_space, 3)
    both((ours, theirs), life(space, action_space, 3, 2))
    ours.sample(3)
    np.random.set_bit_generator(bits(7))
    expected = [theirs.sample(size) for size in (1, 5, 200)] + [np.random.random()]
    np.random.set_bit_generator(bits(7))
    got = [ours.sample(size) for size in (1, 5, 200)] + [np.random.random()]
    for ours_part, theirs_part in zip(got, expected, strict=True):
        assert_same(ours_part, theirs_part)


def test_subclasses_that_override_a_part_draw_as_those_of_the_seed() -> None:
    def subclasses(module: Any) -> Iterator[type]:
        class Late(module.ReplayBuffer):  # type: ignore[name-defined]
            """Draws only even rows."""

            def _get_samples(self, batch_inds: NDArray, env: Any = None) -> Any:
                return super()._get_samples(batch_inds // 2 * 2, env=env)

        class Doubled(module.ReplayBuffer):  # type: ignore[name-defined]
            def sample(self, batch_size: int, env: Any = None) -> Any:
                return super().sample(2 * batch_size, env=env)

        class Half(module.ReplayBuffer):  # type: ignore[name-defined]
            def to_torch(self, array: NDArray, copy: bool = True) -> torch.Tensor:
                return super().to_torch(array, copy).half()

        yield from (Late, Doubled, Half)

    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    for classes in zip(subclasses(relive), subclasses(seed), strict=True):
        pair = tuple(cls(ROWS * 2, space, action_space, device="cpu", n_envs=2) for cls in classes)
        both(pair, life(space, action_space, 2, ROWS + 2))
        np.random.seed(4)
        assert_same_draws(*pair, lambda buffer: buffer.sample(32))
        assert_same_draws(*pair, lambda buffer: buffer.sample(32, env=zoo.ScaleEnv()))


LENIENT_ADDS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "observation without axis of environments": ("box-f32", "discrete", (OBS[0], OBS[1], ACT, FLAGS, FLAGS, INFOS)),
    "scalar reward and done arrays": ("box-f32", "discrete", (OBS, OBS, ACT, np.array(0.5), np.array(True), INFOS)),
    "Python scalars": ("box-f32", "discrete", (OBS, OBS, ACT, 2, False, INFOS)),
    "one reward for all": ("box-f32", "discrete", (OBS, OBS, ACT, [0.25], [1], INFOS)),
    "one info for all": ("box-f32", "discrete", (OBS, OBS, ACT, FLAGS, ~FLAGS, [{"TimeLimit.truncated": True}])),
    "infos in a tuple": ("box-f32", "discrete", (OBS, OBS, ACT, FLAGS, FLAGS, tuple(INFOS))),
    "NumPy and integer flags in infos": (
        "box-f32",
        "discrete",
        (OBS, OBS, ACT, FLAGS, FLAGS, [{"TimeLimit.truncated": np.True_}, {"TimeLimit.truncated": 1}]),
    ),
    "NaN reward": ("box-f32", "discrete", (OBS, OBS, ACT, [np.nan, 1], FLAGS, INFOS)),
    "a done of a half": ("box-f32", "discrete", (OBS, OBS, ACT, FLAGS, [0.5, 2], INFOS)),
    "float64 observation": ("box-f32", "discrete", (OBS.astype(float) / 3, OBS / 3, ACT, FLAGS, FLAGS, INFOS)),
    "float64 too large": ("box-f32", "discrete", (OBS, OBS, ACT, np.array([1e300, -1e300]), FLAGS, INFOS)),
    "300 in uint8": ("box-u8", "discrete", (np.full((2, 2, 3), 300), np.full((2, 2, 3), -1), ACT, FLAGS, FLAGS, INFOS)),
    "one row for a 2-D box": (
        "box-u8",
        "discrete",
        (np.arange(3, dtype=np.uint8), np.uint8(7), ACT, FLAGS, FLAGS, INFOS),
    ),
    "fractions in Discrete": (
        "discrete",
        "discrete",
        (np.array([2.7, 1.2]), np.array([[0.5], [3.9]]), np.array([[1.9], [0.2]]), FLAGS, FLAGS, INFOS),
    ),
    "flat actions": ("box-f32", "box-2d", (OBS, OBS, np.arange(12.0), FLAGS, FLAGS, INFOS)),
    "torch tensors": (
        "box-f32",
        "box-f64",
        (torch.from_numpy(OBS), torch.from_numpy(OBS), torch.ones(2, 2), torch.ones(2), torch.zeros(2), INFOS),
    ),
    "Dict with one row": (
        "dict",
        "discrete",
        (
            {"camera": np.uint8(3), "goal": np.array([1, 2]), "joints": OBS[0, :2]},
            {"camera": np.full((1, 36, 36), 400), "goal": np.array([[5], [6]]), "joints": np.float64(0.1)},
            ACT,
            FLAGS,
            FLAGS,
            INFOS,
        ),
    ),
    "a key too many": (
        "dict",
        "discrete",
        (
            {"camera": np.uint8(3), "goal": np.array([1, 2]), "joints": OBS[0, :2], "more": 1},
            {"camera": np.uint8(3), "goal": np.array([1, 2]), "joints": OBS[0, :2], "more": 1},
            ACT,
            FLAGS,
            FLAGS,
            INFOS,
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # torch's, where the seed calls it
@pytest.mark.parametrize("case", LENIENT_ADDS)
def test_lenient_adds_broadcast_and_cast_as_the_seed(case: str) -> None:
    observation, action, step = LENIENT_ADDS[case]
    pair = replay_pair(SEED_SPACES[observation], zoo.ACTION_SPACES[action], 2, validate="seed")
    for buffer in pair:
        buffer.add(*copied(step))
        buffer.add(*copied(step))
    assert_same_replay_arrays(*pair)
    np.random.seed(2)
    assert_same_draws(*pair, lambda buffer: buffer.sample(32))


def test_300_becomes_44_in_uint8_only_where_leniency_was_asked_for() -> None:
    _, _, step = LENIENT_ADDS["300 in uint8"]
    for validate in ("seed", "strict"):
        ours, _ = replay_pair(SEED_SPACES["box-u8"], zoo.ACTION_SPACES["discrete"], 2, validate=validate)
        if validate == "strict":
            with pytest.raises(relive.errors.CastError, match="300"):
                ours.add(*step)
        else:
            ours.add(*step)
            assert np.unique(ours.observations[0]).tolist() == [44]
            assert np.unique(ours.next_observations[0]).tolist() == [255]
