"""Training on relive's buffers ends with the parameters that the same seed gives with the originals, bit for bit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import relive.sb3
from tests.sb3.environments import Drift

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

OFF_POLICY = {
    "learning_starts": 40,
    "batch_size": 16,
    "buffer_size": 150,  # steps are overwritten
    "train_freq": 4,
    "gradient_steps": 2,
}
PPO = {"n_steps": 32, "batch_size": 20, "n_epochs": 2}


@dataclass(frozen=True)
class Case:
    """One way to train; ``buffer`` is the class that has to be at work."""

    algorithm: str
    buffer: str
    options: dict[str, Any]
    make: Callable[[], Any] = Drift
    n_envs: int = 2
    normalize: bool = False
    package: str = "stable_baselines3"
    policy: str = "MlpPolicy"
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    her: dict[str, Any] | None = None


DISCRETE, DICT = partial(Drift, discrete=True), partial(Drift, as_dict=True)
contrib = partial(Case, package="sb3_contrib")
CASES = {
    "SAC": Case("SAC", "ReplayBuffer", OFF_POLICY),
    "SAC, Dict": Case("SAC", "DictReplayBuffer", OFF_POLICY, DICT, policy="MultiInputPolicy"),
    "SAC, n-step": Case("SAC", "NStepReplayBuffer", {**OFF_POLICY, "n_steps": 3}),
    "SAC, HER": Case(
        "SAC",
        "HerReplayBuffer",
        OFF_POLICY,
        partial(BitFlippingEnv, n_bits=4, continuous=True),
        policy="MultiInputPolicy",
        her={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    ),
    "DQN, HER, VecNormalize": Case(
        "DQN",
        "HerReplayBuffer",
        OFF_POLICY,
        partial(BitFlippingEnv, n_bits=4, continuous=False),
        normalize=True,
        policy="MultiInputPolicy",
        her={"n_sampled_goal": 2, "goal_selection_strategy": "episode", "copy_info_dict": True},
    ),
    "TD3": Case("TD3", "ReplayBuffer", OFF_POLICY, n_envs=1),
    "TD3, Dict, VecNormalize": Case(
        "TD3", "DictReplayBuffer", OFF_POLICY, partial(Drift, as_dict="positions"), 3, True, policy="MultiInputPolicy"
    ),
    "DDPG, VecNormalize": Case("DDPG", "ReplayBuffer", OFF_POLICY, normalize=True),
    "DQN": Case("DQN", "ReplayBuffer", OFF_POLICY, DISCRETE, 3),
    "DQN, n-step, VecNormalize": Case("DQN", "NStepReplayBuffer", {**OFF_POLICY, "n_steps": 3}, DISCRETE, 2, True),
    "PPO": Case("PPO", "RolloutBuffer", PPO),
    "PPO, discrete, VecNormalize": Case("PPO", "RolloutBuffer", PPO, DISCRETE, 3, True),
    "PPO, Dict": Case("PPO", "DictRolloutBuffer", PPO, DICT, policy="MultiInputPolicy"),
    "A2C": Case("A2C", "RolloutBuffer", {"n_steps": 5}),
    "A2C, Dict": Case("A2C", "DictRolloutBuffer", {"n_steps": 5}, DICT, 1, policy="MultiInputPolicy"),
    "TQC": contrib("TQC", "ReplayBuffer", OFF_POLICY, policy_kwargs={"n_quantiles": 5}),
    "QR-DQN": contrib("QRDQN", "ReplayBuffer", OFF_POLICY, DISCRETE, policy_kwargs={"n_quantiles": 5}),
    "TRPO": contrib("TRPO", "RolloutBuffer", {"n_steps": 32, "batch_size": 16}, normalize=True),
    "RecurrentPPO": contrib("RecurrentPPO", "RecurrentRolloutBuffer", PPO, policy="MlpLstmPolicy"),
    "RecurrentPPO, Dict": contrib(
        "RecurrentPPO", "RecurrentDictRolloutBuffer", PPO, DICT, policy="MultiInputLstmPolicy"
    ),
    "MaskablePPO": contrib("MaskablePPO", "MaskableRolloutBuffer", PPO, DISCRETE),
    "MaskablePPO, Dict": contrib(
        "MaskablePPO",
        "MaskableDictRolloutBuffer",
        PPO,
        partial(Drift, discrete=True, as_dict=True),
        policy="MultiInputPolicy",
    ),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(case: Case, replay_buffer_class: type | None = None) -> Any:
    env: Any = DummyVecEnv([case.make] * case.n_envs)
    if case.normalize:
        env = VecNormalize(env, norm_obs=case.her is None)  # goals of bits stay bits
    options = dict(case.options)
    if case.her is not None:  # the class of the day: original, or swapped
        replay_buffer_class = replay_buffer_class or importlib.import_module("stable_baselines3").HerReplayBuffer
        options["replay_buffer_kwargs"] = case.her
    if replay_buffer_class is not None:
        options["replay_buffer_class"] = replay_buffer_class
    algorithm = getattr(importlib.import_module(case.package), case.algorithm)
    policy_kwargs = {"net_arch": [16, 16], **case.policy_kwargs}
    if case.algorithm == "RecurrentPPO":
        policy_kwargs["lstm_hidden_size"] = 8
    model = algorithm(case.policy, env, seed=3, device="cpu", policy_kwargs=policy_kwargs, **options)
    return model.learn(300)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested dicts and lists, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def parameters(model: Any) -> list[torch.Tensor]:
    """Networks, target networks, what optimizers remember, and SAC's temperature."""
    return [*tensors(model.get_parameters()), *tensors(getattr(model, "log_ent_coef", None))]


def buffer_of(model: Any) -> Any:
    return model.replay_buffer if hasattr(model, "replay_buffer") else model.rollout_buffer


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_those_of_the_originals(name: str) -> None:
    case = CASES[name]
    pytest.importorskip(case.package)
    theirs = trained(case)
    with relive.sb3.installed():
        ours = trained(case)
    assert type(buffer_of(theirs)).__module__.startswith(("stable_baselines3.", "sb3_contrib."))
    assert type(buffer_of(ours)) is getattr(relive.sb3, case.buffer)
    assert ours._n_updates == theirs._n_updates > 0
    got, expected = parameters(ours), parameters(theirs)
    assert len(got) == len(expected) > 4
    assert all(torch.equal(mine, original) for mine, original in zip(got, expected, strict=True))
    assert all(part.isfinite().all() for part in got)


def test_another_seed_gives_other_parameters() -> None:
    """What is compared depends on what is drawn."""
    model = trained(CASES["SAC"])
    other = trained(Case("SAC", "ReplayBuffer", {**OFF_POLICY, "buffer_size": 140}))
    assert not all(map(torch.equal, parameters(model), parameters(other)))


@pytest.mark.parametrize(
    ("name", "replay_buffer_class"),
    [
        ("DQN", relive.sb3.ReplayBuffer),
        ("DQN", relive.ReplayBuffer),
        ("SAC, Dict", relive.DictReplayBuffer),
        ("SAC, HER", relive.sb3.HerReplayBuffer),
    ],
)
def test_a_class_that_is_passed_does_the_same(name: str, replay_buffer_class: type) -> None:
    theirs, ours = trained(CASES[name]), trained(CASES[name], replay_buffer_class)
    assert type(ours.replay_buffer) is replay_buffer_class
    assert all(map(torch.equal, parameters(ours), parameters(theirs)))
