"""The faces are what Stable-Baselines3, sb3-contrib and code around them take for their own classes."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

pytest.importorskip("stable_baselines3")

from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common import type_aliases

import relive.sb3

BOX, DISCRETE = spaces.Box(-10, 10, (2,), np.float32), spaces.Discrete(3)
DICT = spaces.Dict({"a": BOX, "b": spaces.Discrete(4)})
FIVE = ("BaseBuffer", "ReplayBuffer", "DictReplayBuffer", "RolloutBuffer", "DictRolloutBuffer")


def add(buffer: Any, t: int, n_envs: int = 1, done: bool = False, truncated: bool = False) -> None:
    obs = np.full((n_envs, 2), t, np.float32)
    infos = [{"TimeLimit.truncated": truncated}] * n_envs
    buffer.add(obs, obs + 1, np.full(n_envs, t % 3), np.full(n_envs, t), np.full(n_envs, done), infos)


# Classes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FIVE, "NStepReplayBuffer"])
def test_the_original_class_knows_ours_as_a_subclass(name: str) -> None:
    original, face = getattr(sb3_buffers, name), getattr(relive.sb3, name)
    assert face is not original
    assert issubclass(face, original)
    assert face.__name__ == name


@pytest.mark.parametrize("name", FIVE)
def test_relives_own_class_is_known_too(name: str) -> None:
    assert issubclass(getattr(relive, name), getattr(sb3_buffers, name))
    assert issubclass(getattr(relive.sb3, name), getattr(relive, name))


@pytest.mark.parametrize("first", [*FIVE, "NStepReplayBuffer"])
@pytest.mark.parametrize("second", [*FIVE, "NStepReplayBuffer"])
def test_the_faces_derive_from_each_other_as_the_originals_do(first: str, second: str) -> None:
    expected = issubclass(getattr(sb3_buffers, first), getattr(sb3_buffers, second))
    assert issubclass(getattr(relive.sb3, first), getattr(relive.sb3, second)) == expected
    assert issubclass(getattr(relive.sb3, first), getattr(sb3_buffers, second)) == expected


def test_the_hindsight_buffer_runs_on_our_base() -> None:
    assert issubclass(relive.sb3.HerReplayBuffer, HerReplayBuffer)
    assert relive.sb3.DictReplayBuffer in relive.sb3.HerReplayBuffer.__mro__
    assert sb3_buffers.ReplayBuffer not in relive.sb3.HerReplayBuffer.__mro__
    assert relive.sb3.HerReplayBuffer.__doc__ == HerReplayBuffer.__doc__
    assert relive.sb3.HerReplayBuffer is relive.sb3.HerReplayBuffer


@pytest.mark.parametrize("name", ["RecurrentRolloutBuffer", "RecurrentDictRolloutBuffer"])
def test_contribs_recurrent_buffers_run_on_our_bases(name: str) -> None:
    module = pytest.importorskip("sb3_contrib.common.recurrent.buffers")
    ours, original = getattr(relive.sb3, name), getattr(module, name)
    assert issubclass(ours, original)
    assert ours.__base__ is getattr(relive.sb3, original.__base__.__name__)


@pytest.mark.parametrize("name", ["MaskableRolloutBuffer", "MaskableDictRolloutBuffer"])
def test_contribs_maskable_buffers_run_on_our_bases(name: str) -> None:
    module = pytest.importorskip("sb3_contrib.common.maskable.buffers")
    ours, original = getattr(relive.sb3, name), getattr(module, name)
    assert issubclass(ours, original)
    assert ours.__base__ is getattr(relive.sb3, original.__base__.__name__)


@pytest.mark.parametrize("name", [*FIVE[1:], "NStepReplayBuffer", "HerReplayBuffer"])
def test_a_class_is_found_by_the_name_that_pickles_hold(name: str) -> None:
    assert pickle.loads(pickle.dumps(getattr(relive.sb3, name))) is getattr(relive.sb3, name)
    assert getattr(relive.sb3, name).__module__ == "relive.sb3"


@pytest.mark.parametrize("name", FIVE)
def test_the_originals_arguments_come_first_and_in_their_order(name: str) -> None:
    original = list(inspect.signature(getattr(sb3_buffers, name)).parameters)
    face = inspect.signature(getattr(relive.sb3, name)).parameters
    if "args" not in face:
        assert list(face)[: len(original)] == original


@pytest.mark.parametrize(
    "name", ["psutil", "spaces", "get_action_dim", "get_obs_shape", "get_device", "VecNormalize", "ReplayBufferSamples",
             "DictReplayBufferSamples", "RolloutBufferSamples", "DictRolloutBufferSamples"]
)  # fmt: skip
def test_what_user_code_imports_from_the_module_is_here(name: str) -> None:
    assert getattr(relive.sb3, name) is getattr(sb3_buffers, name)


def test_names_that_are_not_there_are_errors_and_those_made_later_are_listed() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = relive.sb3.Nothing
    assert {"HerReplayBuffer", "ReplayBuffer", "install"} <= set(dir(relive.sb3))


# Batches -------------------------------------------------------------------------------------------------------------


def test_batches_are_the_originals_named_tuples() -> None:
    flat = relive.sb3.ReplayBuffer(4, BOX, DISCRETE, device="cpu")
    add(flat, 0)
    assert type(flat.sample(2)) is type_aliases.ReplayBufferSamples
    nested = relive.sb3.DictReplayBuffer(4, DICT, DISCRETE, device="cpu")
    obs = {"a": np.zeros((1, 2), np.float32), "b": np.array([3])}
    nested.add(obs, obs, np.array([1]), np.array([0.0]), np.array([False]), [{}])
    assert type(nested.sample(2)) is type_aliases.DictReplayBufferSamples
    for kind, space, seen, samples in (
        (relive.sb3.RolloutBuffer, BOX, obs["a"], type_aliases.RolloutBufferSamples),
        (relive.sb3.DictRolloutBuffer, DICT, obs, type_aliases.DictRolloutBufferSamples),
    ):
        rollout = kind(1, space, DISCRETE, device="cpu")
        rollout.add(seen, np.array([1]), np.array([0.0]), np.array([True]), torch.zeros(1), torch.zeros(1))
        rollout.compute_returns_and_advantage(last_values=torch.zeros(1), dones=np.array([False]))
        assert type(next(rollout.get(1))) is samples


def test_n_step_batches_have_discounts() -> None:
    buffer = relive.sb3.NStepReplayBuffer(8, BOX, DISCRETE, device="cpu", n_steps=3, gamma=0.5)
    for t in range(5):
        add(buffer, t)
    batch = buffer._get_samples(np.array([0, 3]))
    assert batch.rewards.flatten().tolist() == [0 + 1 / 2 + 2 / 4, 3 + 4 / 2]
    assert batch.discounts.flatten().tolist() == [1 / 8, 1 / 4]
    assert batch.next_observations[:, 0].tolist() == [3, 5]


def test_casts_and_broadcasts_are_the_originals() -> None:
    images = spaces.Box(0, 255, (2,), np.uint8)
    for kind in (relive.sb3.ReplayBuffer, sb3_buffers.ReplayBuffer):
        buffer = kind(4, images, DISCRETE, "cpu", 2)
        wraps = np.array([[300, -1]] * 2)
        buffer.add(wraps, wraps, np.array([0, 1]), np.array(0.0), np.array(False), [{}] * 2)
        assert buffer.observations[0, 0].tolist() == [44, 255]


def test_strictness_and_a_stream_of_its_own_are_there_for_the_asking() -> None:
    buffer = relive.sb3.ReplayBuffer(4, BOX, DISCRETE, "cpu", validate="strict", seed=0, dtypes={"observation": "f2"})
    assert buffer.observations.dtype == np.float16
    with pytest.raises(relive.errors.NaNRewardError):
        buffer.add(np.zeros((1, 2)), np.zeros((1, 2)), [0], [np.nan], [False], [{}])


# Code in the wild ----------------------------------------------------------------------------------------------------


class SkipsTheConstructor(relive.sb3.ReplayBuffer):
    """Calls the constructor of `BaseBuffer` over its parent's, with five arguments."""

    def __init__(self, buffer_size: int, observation_space: Any, action_space: Any, device: Any, n_envs: int, **_: Any):
        super(relive.sb3.ReplayBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage, self.handle_timeout_termination = False, True
        self.observations = np.zeros((self.buffer_size, n_envs, *self.obs_shape), observation_space.dtype)
        self.next_observations = np.zeros_like(self.observations)
        self.actions = np.zeros((self.buffer_size, n_envs, self.action_dim), action_space.dtype)
        self.rewards, self.dones, self.timeouts = np.zeros((3, self.buffer_size, n_envs), np.float32)


def test_a_subclass_that_skips_its_parents_constructor() -> None:
    buffer = SkipsTheConstructor(6, BOX, DISCRETE, "cpu", 2)
    for t in range(4):
        add(buffer, t, 2)
    batch = buffer.sample(16)
    assert isinstance(batch, type_aliases.ReplayBufferSamples)
    assert torch.equal(batch.next_observations, batch.observations + 1)
    assert isinstance(buffer, sb3_buffers.ReplayBuffer)


class LateRewards(relive.sb3.RolloutBuffer):
    """Adds to the rewards when the rollout is full, as code for intrinsic motivation does."""

    def compute_returns_and_advantage(self, last_values: Any, dones: Any = None) -> None:
        self.rewards += 1
        super().compute_returns_and_advantage(last_values, dones)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_rollout_class_of_the_users_own_trains() -> None:
    from stable_baselines3 import PPO

    model = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, n_epochs=1, device="cpu", rollout_buffer_class=LateRewards
    )
    model.learn(32)
    assert model.rollout_buffer.rewards.max() == 2


def test_a_second_learn_with_optimize_memory_usage_ends_the_newest_step_and_nothing_else() -> None:
    """Stable-Baselines3 sets ``dones[pos - 1]``: that step is drawn as terminated, as there; successors stay exact."""
    model = SAC(
        "MlpPolicy", "Pendulum-v1", buffer_size=50, learning_starts=100, optimize_memory_usage=True, device="cpu",
        replay_buffer_class=relive.sb3.ReplayBuffer, replay_buffer_kwargs={"handle_timeout_termination": False},
    )  # fmt: skip
    model.learn(20)
    before = np.array(model.replay_buffer.next_observations[:20])
    with pytest.warns(UserWarning, match="last trajectory in the replay buffer will be truncated"):
        model.learn(5)
    buffer = model.replay_buffer
    assert buffer.dones[:25, 0].tolist() == [0] * 19 + [1] + [0] * 5
    assert np.array_equal(buffer.next_observations[:20], before)
    assert not np.array_equal(buffer.observations[20], before[19])


def test_both_memory_options_together_are_taken() -> None:
    """Stable-Baselines3 refuses the pair (#934), since successors would be wrong; here they are not."""
    buffer = relive.sb3.ReplayBuffer(8, BOX, DISCRETE, "cpu", optimize_memory_usage=True)
    for t in (0, 1, 10, 11):
        add(buffer, t, done=t == 1, truncated=t == 1)
    batch: Any = buffer.sample(50)
    assert torch.equal(batch.next_observations, batch.observations + 1)
    assert batch.dones.sum() == 0


def test_the_arrays_are_real() -> None:
    buffer = relive.sb3.ReplayBuffer(8, BOX, DISCRETE, "cpu")
    add(buffer, 2)
    observations: NDArray[Any] = buffer.observations[: buffer.pos, 0]
    assert type(observations) is np.ndarray and observations.tolist() == [[2, 2]]
    buffer.rewards += 1
    assert buffer.sample(1).rewards.item() == 3
