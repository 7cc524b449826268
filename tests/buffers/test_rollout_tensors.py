"""What networks give goes into rollouts as it is: bfloat16, float16, with gradients, under autocast (RSL-RL PR 219)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTION = spaces.Box(-np.inf, np.inf, (1,), np.float32)
ROWS, N_ENVS = 3, 2
# Numbers that bfloat16 holds, so that a detour through it loses nothing.
NUMBERS = np.arange(1.0, N_ENVS + 1, dtype=np.float32) / 4
ADDED = {
    "obs": np.ones((N_ENVS, 2), np.float32),
    "action": NUMBERS[:, None],
    "reward": NUMBERS,
    "episode_start": np.zeros(N_ENVS, np.float32),
    "value": NUMBERS,
    "log_prob": -NUMBERS,
    "terminated": np.zeros(N_ENVS, np.float32),
    "truncated": np.ones(N_ENVS, np.float32),
    "final_value": NUMBERS,
}


def filled(given: dict[str, Any], last_values: Any, dones: Any = None) -> relive.RolloutBuffer:
    buffer = relive.RolloutBuffer(ROWS, BOX, ACTION, "cpu", gamma=0.5, n_envs=N_ENVS, seed=0)
    for _ in range(ROWS):
        buffer.add(**given)
    buffer.compute_returns_and_advantage(last_values, dones)
    return buffer


def assert_same(got: relive.RolloutBuffer, expected: relive.RolloutBuffer) -> None:
    for name in (
        "observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns",
    ):  # fmt: skip
        assert getattr(got, name).tobytes() == getattr(expected, name).tobytes(), name


def tensor(numbers: np.ndarray, dtype: torch.dtype, requires_grad: bool) -> torch.Tensor:
    return torch.from_numpy(numbers.copy()).to(dtype).requires_grad_(requires_grad)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ADDED)
def test_a_tensor_of_any_float_is_taken_for_each_argument(name: str, dtype: torch.dtype, requires_grad: bool) -> None:
    given = ADDED | {name: tensor(ADDED[name], dtype, requires_grad)}
    assert_same(filled(given, NUMBERS), filled(ADDED, NUMBERS))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_so_are_the_last_values_and_dones(dtype: torch.dtype, requires_grad: bool) -> None:
    seed_form = {name: ADDED[name] for name in ("obs", "action", "reward", "episode_start", "value", "log_prob")}
    dones = np.array([0, 1], np.float32)
    got = filled(seed_form, tensor(NUMBERS[:, None], dtype, requires_grad), tensor(dones, dtype, requires_grad))
    assert_same(got, filled(seed_form, NUMBERS, dones))


def test_flags_and_masks_may_be_boolean_tensors() -> None:
    flags = {name: torch.from_numpy(ADDED[name] > 0) for name in ("episode_start", "terminated", "truncated")}
    mask = np.array([True, False])
    got = filled(ADDED | flags | {"mask": torch.from_numpy(mask)}, NUMBERS)
    assert_same(got, filled(ADDED | {"mask": mask}, NUMBERS))
    assert got.num_transitions == ROWS


def test_what_networks_give_under_autocast_is_kept_to_the_last_bit() -> None:
    torch.manual_seed(0)
    critic, actor = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    obs = torch.rand(N_ENVS, 2)
    buffer = relive.RolloutBuffer(1, BOX, ACTION, "cpu", gamma=0.5, gae_lambda=1, n_envs=N_ENVS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, action = critic(obs), actor(obs)
        log_prob = torch.distributions.Normal(action, 1.0).log_prob(action).sum(-1)
        last_value = critic(obs + 1)
        assert value.dtype == action.dtype == last_value.dtype == torch.bfloat16
        assert value.requires_grad
        buffer.add(obs, action, torch.ones(N_ENVS, dtype=torch.bfloat16), torch.ones(N_ENVS), value, log_prob)
        buffer.compute_returns_and_advantage(last_value, torch.zeros(N_ENVS, dtype=torch.bfloat16))
        (batch,) = buffer.get()
    assert {field.dtype for field in batch} == {torch.float32}
    assert not any(field.requires_grad for field in batch)
    order = [0, 1] if torch.equal(batch.observations, obs) else [1, 0]
    assert torch.equal(batch.old_values, value.detach().float().flatten()[order])
    assert torch.equal(batch.actions, action.detach().float()[order])
    assert torch.equal(batch.old_log_prob, log_prob.detach().float()[order])
    expected = 1 + 0.5 * last_value.detach().float().flatten()
    assert torch.allclose(batch.returns, expected[order])
