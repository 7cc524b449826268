"""With the same state of ``np.random``, Stable-Baselines3's own buffers and relive's draw the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

ROWS = 5
# Of a Box of shape () the seed draws no batch from a replay buffer, and one with an axis too many from a rollout.
NOT_OF_THE_SEED = ("box-scalar", "multidiscrete-2d", "nested", "tuple")
SEED_SPACES = {name: space for name, space in zoo.OBSERVATION_SPACES.items() if name not in NOT_OF_THE_SEED}
FILLS = {
    "one step": 1,
    "before full": ROWS - 1,
    "exactly full": ROWS,
    "wrapped": ROWS + 3,
    "wrapped twice": 2 * ROWS + 2,
}


# What is compared ----------------------------------------------------------------------------


def assert_same(got: Any, expected: Any, what: str = "") -> None:
    """The same nesting, dtypes, shapes and bits."""
    if expected is None:
        assert got is None, what
    elif isinstance(expected, dict):
        assert list(got) == list(expected), what
        for key in expected:
            assert_same(got[key], expected[key], f"{what}[{key!r}]")
    elif isinstance(expected, tuple):
        assert got._fields == expected._fields, what
        for name in expected._fields:
            assert_same(getattr(got, name), getattr(expected, name), f"{what}.{name}")
    else:
        if isinstance(expected, torch.Tensor):
            assert isinstance(got, torch.Tensor), what
            assert got.device == expected.device, what
        got, expected = np.asarray(got), np.asarray(expected)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), what
        assert got.tobytes() == expected.tobytes(), f"{what}: {got} instead of {expected}"


def assert_same_draws(ours: Any, theirs: Any, draw: Callable[[Any], Any]) -> None:
    """``draw`` gives the same from both, and leaves the same state of the global generator."""
    before = np.random.get_state()
    expected = draw(theirs)
    left = np.random.get_state()
    np.random.set_state(before)
    got = draw(ours)
    assert_same(got, expected, "batch")
    for ours_part, theirs_part in zip(np.random.get_state(), left, strict=True):
        assert np.array_equal(ours_part, theirs_part)


def assert_same_replay_arrays(ours: Any, theirs: Any) -> None:
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    assert (ours.buffer_size, ours.obs_shape, ours.action_dim) == (
        theirs.buffer_size,
        theirs.obs_shape,
        theirs.action_dim,
    )
    held = slice(theirs.size())
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        got, expected = getattr(ours, name), getattr(theirs, name)
        if isinstance(expected, dict):
            assert list(got) == list(expected)
            for key in expected:
                assert got[key].shape == expected[key].shape
                assert_same(got[key][held], expected[key][held], f"{name}[{key!r}]")
        else:
            assert got.shape == expected.shape
            assert_same(got[held], expected[held], name)


# Replay ----------------------------------------------------------------------------


def replay_pair(space: spaces.Space, action_space: spaces.Space, n_envs: int, **options: Any) -> tuple[Any, Any]:
    name = "DictReplayBuffer" if isinstance(space, spaces.Dict) else "ReplayBuffer"
    arguments = (ROWS * n_envs + n_envs - 1, space, action_space)
    theirs_options = {key: value for key, value in options.items() if key != "validate"}
    return (
        getattr(relive, name)(*arguments, device="cpu", n_envs=n_envs, **options),
        getattr(seed, name)(*arguments, device="cpu", n_envs=n_envs, **theirs_options),
    )


def life(space: spaces.Space, action_space: spaces.Space, n_envs: int, steps: int) -> Iterator[tuple[Any, ...]]:
    """Steps as an off-policy algorithm adds them: mostly contiguous, new observations after ends."""
    rng = np.random.default_rng(steps + 100 * n_envs)
    observation = zoo.values(rng, space, (n_envs,))
    for _ in range(steps):
        following = zoo.values(rng, space, (n_envs,))
        done, cut = rng.random((2, n_envs)) < 0.4
        infos = [{"TimeLimit.truncated": bool(flag)} if ends else {} for flag, ends in zip(cut, done, strict=True)]
        action, reward = zoo.values(rng, action_space, (n_envs,)), rng.standard_normal(n_envs)
        yield observation, following, action, reward, done, infos
        reset = zoo.values(rng, space, (n_envs,))
        parts = [
            np.where(done.reshape(n_envs, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(zoo.leaves(space, reset), zoo.leaves(space, following), strict=True)
        ]
        observation = zoo.nest(space, parts)


def copied(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """The seed writes into the dicts it is given."""
    return tuple(dict(part) if isinstance(part, dict) else part for part in step)


def both(pair: tuple[Any, Any], steps: Iterator[tuple[Any, ...]]) -> None:
    for step in steps:
        for buffer in pair:
            buffer.add(*copied(step))


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


# What the seed broadcasts and casts ----------------------------------------------------------------------------

OBS, ACT, FLAGS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2]), np.zeros(2, bool)
INFOS = [{}, {"TimeLimit.truncated": True}]
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


# Rollout ----------------------------------------------------------------------------


def rollout_pair(space: spaces.Space, action_space: spaces.Space, n_envs: int, **options: Any) -> tuple[Any, Any]:
    name = "DictRolloutBuffer" if isinstance(space, spaces.Dict) else "RolloutBuffer"
    theirs_options = {key: value for key, value in options.items() if key != "validate"}
    return (
        getattr(relive, name)(ROWS, space, action_space, device="cpu", n_envs=n_envs, **options),
        getattr(seed, name)(ROWS, space, action_space, device="cpu", n_envs=n_envs, **theirs_options),
    )


def rollout(space: spaces.Space, action_space: spaces.Space, n_envs: int) -> tuple[list[tuple[Any, ...]], Any, NDArray]:
    rng = np.random.default_rng(n_envs)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    steps = [
        (
            zoo.values(rng, space, (n_envs,)),
            zoo.values(rng, action_space, (n_envs,)),
            rng.standard_normal(n_envs) * 10,
            rng.random(n_envs) < 0.3,
            tensor(n_envs, 1),
            tensor(n_envs),
        )
        for _ in range(ROWS)
    ]
    return steps, tensor(n_envs, 1), rng.random(n_envs) < 0.5


def fill(pair: tuple[Any, Any], space: spaces.Space, action_space: spaces.Space, n_envs: int) -> None:
    steps, last_values, dones = rollout(space, action_space, n_envs)
    for buffer in pair:
        for step in steps:
            buffer.add(*copied(step))
        buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)


NUMBERS = ("actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns")


def assert_same_rollout(ours: Any, theirs: Any) -> None:
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    assert_same(ours.observations, theirs.observations, "observations")
    for name in NUMBERS:
        assert_same(getattr(ours, name), getattr(theirs, name), name)


@pytest.mark.parametrize("action", zoo.ACTION_SPACES)
@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("observation", SEED_SPACES)
def test_rollout_minibatches_are_those_of_the_seed(observation: str, action: str, n_envs: int) -> None:
    space, action_space = SEED_SPACES[observation], zoo.ACTION_SPACES[action]
    ours, theirs = pair = rollout_pair(space, action_space, n_envs, gae_lambda=0.95)
    for _ in range(2):  # two rollouts in the same buffers
        fill(pair, space, action_space, n_envs)
        assert_same_rollout(*pair)
        kept = {name: getattr(ours, name).copy() for name in NUMBERS}
        np.random.seed(8)
        for batch_size in (None, 1, 3, ROWS * n_envs, 1000):  # every call is another epoch over the same rollout
            before = np.random.get_state()
            expected = list(theirs.get(batch_size))
            left = np.random.random(3)
            np.random.set_state(before)
            got = list(ours.get(batch_size))
            assert np.array_equal(np.random.random(3), left)
            assert len(got) == len(expected)
            for ours_batch, theirs_batch in zip(got, expected, strict=True):
                assert_same(ours_batch, theirs_batch, f"batch_size={batch_size}")
        for name, array in kept.items():
            assert_same(getattr(ours, name), array, f"{name} after get")
        for buffer in pair:
            buffer.reset()
        assert_same_rollout(*pair)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.9, 1), (1.0, 0.0), (0.37, 0.71)])
@pytest.mark.parametrize("n_envs", [1, 7])
def test_advantages_are_those_of_the_seed(kind: type, gamma: float, gae_lambda: float, n_envs: int) -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    for gamma_kind, lambda_kind in ((kind, kind), (float, kind), (kind, float)):
        pair = rollout_pair(space, action_space, n_envs, gamma=gamma_kind(gamma), gae_lambda=lambda_kind(gae_lambda))
        fill(pair, space, action_space, n_envs)
        assert_same_rollout(*pair)


def test_rewards_changed_in_place_count_when_advantages_are_computed_again() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    pair = rollout_pair(space, action_space, 3)
    fill(pair, space, action_space, 3)
    for buffer in pair:
        buffer.rewards += np.float32(0.3)
        buffer.rewards[2] = 7
        buffer.compute_returns_and_advantage(last_values=torch.ones(3), dones=np.array([1, 0, 1]))
    assert_same_rollout(*pair)


LENIENT_ROLLOUT_ADDS: dict[str, tuple[str, str, int, tuple[Any, ...]]] = {
    "values as (n_envs, 1)": ("box-f32", "discrete", 2, (OBS, ACT, FLAGS, FLAGS, torch.ones(2, 1), torch.ones(2))),
    "values in float64": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, FLAGS, FLAGS, torch.ones(2).double() / 3, torch.ones(2)),
    ),
    "a lone log-probability": (
        "box-f32",
        "discrete",
        1,
        (OBS[:1], ACT[:1], FLAGS[:1], FLAGS[:1], torch.ones(1), torch.tensor(0.5)),
    ),
    "a lone log-probability for two": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, FLAGS, FLAGS, torch.ones(2), torch.tensor(0.5)),
    ),
    "one value for two": ("box-f32", "discrete", 2, (OBS, ACT, FLAGS, FLAGS, torch.ones(1), torch.ones(2))),
    "scalar reward and start": (
        "box-f32",
        "discrete",
        2,
        (OBS, ACT, np.array(0.5), True, torch.ones(2), torch.ones(2)),
    ),
    "observation without axis of environments": (
        "box-f32",
        "discrete",
        2,
        (OBS[0], ACT, FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "300 in uint8": (
        "box-u8",
        "discrete",
        2,
        (np.full((2, 2, 3), 300), ACT, FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "fractions in Discrete": (
        "discrete",
        "discrete",
        2,
        (np.array([2.7, 1.2]), np.array([[1.9], [0.2]]), FLAGS, FLAGS, torch.ones(2), torch.ones(2)),
    ),
    "flat actions": ("box-f32", "box-2d", 2, (OBS, np.arange(12.0), FLAGS, FLAGS, torch.ones(2), torch.ones(2))),
    "NaN reward": ("box-f32", "discrete", 2, (OBS, ACT, [np.nan, 0], FLAGS, torch.ones(2), torch.ones(2))),
    "Dict with one row": (
        "dict",
        "discrete",
        2,
        (
            {"camera": np.uint8(3), "goal": np.array([1, 2]), "joints": OBS[0, :2]},
            ACT,
            FLAGS,
            FLAGS,
            torch.ones(2),
            torch.ones(2),
        ),
    ),
}


@pytest.mark.parametrize("case", LENIENT_ROLLOUT_ADDS)
def test_lenient_rollout_adds_broadcast_and_cast_as_the_seed(case: str) -> None:
    observation, action, n_envs, step = LENIENT_ROLLOUT_ADDS[case]
    pair = rollout_pair(SEED_SPACES[observation], zoo.ACTION_SPACES[action], n_envs, validate="seed")
    for buffer in pair:
        for _ in range(ROWS):
            buffer.add(*copied(step))
    assert_same_rollout(*pair)


def test_rollout_shuffling_follows_a_swapped_global_generator() -> None:
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    ours, theirs = rollout_pair(space, action_space, 3)
    fill((ours, theirs), space, action_space, 3)
    np.random.set_bit_generator(np.random.PCG64(9))
    expected = list(theirs.get(4))
    np.random.set_bit_generator(np.random.PCG64(9))
    for got, wanted in zip(ours.get(4), expected, strict=True):
        assert_same(got, wanted)


# Attributes ----------------------------------------------------------------------------


@pytest.mark.parametrize("action", zoo.ACTION_SPACES)
@pytest.mark.parametrize("observation", SEED_SPACES)
def test_attributes_of_a_new_buffer_are_those_of_the_seed(observation: str, action: str) -> None:
    space, action_space = SEED_SPACES[observation], zoo.ACTION_SPACES[action]
    pairs = [
        replay_pair(space, action_space, 3),
        replay_pair(space, action_space, 3, handle_timeout_termination=False),
        rollout_pair(space, action_space, 3, gamma=0.5, gae_lambda=0.25),
    ]
    for ours, theirs in pairs:
        for name, expected in vars(theirs).items():
            got = getattr(ours, name)
            if name in ("observations", "next_observations"):
                parts, wanted = zoo.leaves(space, got), zoo.leaves(space, expected)
                assert [(p.shape, p.dtype) for p in parts] == [(w.shape, w.dtype) for w in wanted]
            elif isinstance(expected, np.ndarray):
                assert isinstance(got, np.ndarray)
                assert got.flags.writeable
                assert_same(got, expected, name)
            else:
                assert got == expected, name
                assert type(got) is type(expected), name


@pytest.mark.parametrize("sizes", [(0, 1), (0, 4), (1, 1), (10, 3), (2, 8), (10, 4), (3, 4)])
def test_rows_per_environment_are_those_of_the_seed(sizes: tuple[int, int]) -> None:
    buffer_size, n_envs = sizes
    space, action_space = SEED_SPACES["box-f32"], zoo.ACTION_SPACES["discrete"]
    pair = [
        module.ReplayBuffer(buffer_size, space, action_space, device="cpu", n_envs=n_envs) for module in (relive, seed)
    ]
    assert pair[0].buffer_size == pair[1].buffer_size
    both(tuple(pair), life(space, action_space, n_envs, 7))
    assert_same_replay_arrays(*pair)
    assert_same_draws(*pair, lambda buffer: buffer.sample(20))


@pytest.mark.parametrize("shape", [(3, 2), (4, 1), (2, 3, 5), (1, 4, 2, 2)])
def test_swap_and_flatten_is_that_of_the_seed(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    assert_same(relive.BaseBuffer.swap_and_flatten(array), seed.BaseBuffer.swap_and_flatten(array))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64, bool, None])
def test_maybe_cast_dtype_is_that_of_the_seed(dtype: Any) -> None:
    assert relive.ReplayBuffer._maybe_cast_dtype(dtype) == seed.ReplayBuffer._maybe_cast_dtype(dtype)


def test_batches_have_the_fields_of_the_seed() -> None:
    from stable_baselines3.common import type_aliases

    for name in (
        "ReplayBufferSamples",
        "DictReplayBufferSamples",
        "RolloutBufferSamples",
        "DictRolloutBufferSamples",
    ):
        ours, theirs = getattr(relive, name), getattr(type_aliases, name)
        assert ours._fields == theirs._fields
        assert ours._field_defaults == theirs._field_defaults
