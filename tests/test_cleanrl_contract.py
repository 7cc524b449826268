"""What CleanRL's loops hand to their replay buffer and do with its batches, with `relive.ReplayBuffer` in its place.

Each learner calls ``add(obs, real_next_obs, actions, rewards, terminations, infos)`` with what a vector environment of
Gymnasium gave. ``real_next_obs`` holds the last observation of the old episode where one was truncated, and the first
of the next where one terminated. scripts/check_cleanrl.py runs the scripts themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive

Array = np.ndarray


class Step(NamedTuple):
    """The arguments of one `add`."""

    obs: Array
    real_next_obs: Array
    actions: Array
    rewards: Array
    terminations: Array
    infos: Any


def objects(n_envs: int, values: dict[int, Any]) -> Array:
    out = np.full(n_envs, None, dtype=object)
    for env, value in values.items():
        out[env] = value
    return out


def no_infos(final: dict[int, Array], n_envs: int) -> dict[str, Any]:
    return {}


def gymnasium_0_29(final: dict[int, Array], n_envs: int) -> dict[str, Any]:
    """Gymnasium before 1.0: object arrays with None where no episode ended."""
    if not final:
        return {}
    ended = np.array([env in final for env in range(n_envs)])
    episode = {"r": np.array([1.5], np.float32), "l": np.array([3], np.int32), "t": np.array([0.01], np.float32)}
    return {
        "final_observation": objects(n_envs, dict(final)),
        "_final_observation": ended,
        "final_info": objects(n_envs, {env: {"episode": episode, "TimeLimit.truncated": True} for env in final}),
        "_final_info": ended,
    }


def gymnasium_1(final: dict[int, Array], n_envs: int) -> dict[str, Any]:
    """Gymnasium from 1.0 on: nested dicts of arrays, and masks beside them."""
    ended = np.array([env in final for env in range(n_envs)])
    living = {"x_velocity": np.zeros(n_envs), "_x_velocity": ~ended}
    if not final:
        return living
    episode = {"r": np.zeros(n_envs), "_r": ended, "l": np.zeros(n_envs, int), "_l": ended}
    return {
        **living,
        "final_obs": objects(n_envs, dict(final)),
        "_final_obs": ended,
        "final_info": {"episode": episode, "_episode": ended, "TimeLimit.truncated": ended},
        "_final_info": ended,
    }


INFOS: dict[str, Callable[[dict[int, Array], int], dict[str, Any]]] = {
    "none": no_infos,
    "Gymnasium 0.29": gymnasium_0_29,
    "Gymnasium 1": gymnasium_1,
}


class Task(NamedTuple):
    """Spaces as a learner has them, the dtype that the environment really gives, and the learner's options."""

    observation: spaces.Space[Any]
    action: spaces.Space[Any]
    given: type
    options: dict[str, Any]


def mujoco() -> spaces.Box:
    """SAC, TD3 and DDPG assign a dtype to the space, of which the environment takes no notice."""
    space = spaces.Box(-np.inf, np.inf, (11,), np.float64)
    space.dtype = np.float32  # type: ignore[assignment]  # a scalar type, as there, and no np.dtype
    return space


CONTINUOUS = spaces.Box(-1, 1, (3,), np.float32)
FRAMES = spaces.Box(0, 255, (4, 12, 12), np.uint8)
TASKS = {
    "dqn, c51": Task(spaces.Box(-5, 5, (4,), np.float32), spaces.Discrete(2), np.float32, {}),
    "sac, td3, ddpg": Task(mujoco(), CONTINUOUS, np.float64, {"n_envs": 1}),
    "sac, td3 with 3 environments": Task(mujoco(), CONTINUOUS, np.float64, {"n_envs": 3}),
    "sac_atari": Task(FRAMES, spaces.Discrete(4), np.uint8, {}),
    "dqn_atari, c51_atari, qdagger": Task(FRAMES, spaces.Discrete(4), np.uint8, {"optimize_memory_usage": True}),
}


def make(task: Task, buffer_size: int, handle_timeout_termination: bool = False) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(
        buffer_size,
        task.observation,
        task.action,
        torch.device("cpu"),
        handle_timeout_termination=handle_timeout_termination,
        **task.options,
    )


def play(task: Task, infos: Callable[..., Any], steps: int) -> Iterator[Step]:
    """What the loop of a learner adds: short episodes with both kinds of ends, each environment at its own pace."""
    n_envs = task.options.get("n_envs", 1)
    rng = np.random.default_rng(5)
    shape = task.observation.shape or ()
    frames = len(shape) == 3

    def new_frame() -> Array:
        return rng.integers(0, 256, (1, *shape[1:])).astype(np.uint8)

    def first() -> Array:
        if frames:
            return np.repeat(new_frame(), 4, axis=0)
        return rng.normal(size=shape).astype(task.given)

    def follow(obs: Array) -> Array:
        if frames:
            return np.concatenate([obs[1:], new_frame()])
        return obs + rng.normal(size=obs.shape).astype(task.given)

    obs = np.stack([first() for _ in range(n_envs)])
    for _ in range(steps):
        seen = np.stack([follow(one) for one in obs])
        terminations, truncations = rng.random(n_envs) < 0.15, rng.random(n_envs) < 0.15
        ended = np.flatnonzero(terminations | truncations).tolist()
        next_obs = seen.copy()
        for env in ended:
            next_obs[env] = first()
        real_next_obs = next_obs.copy()
        real_next_obs[truncations] = seen[truncations]
        if isinstance(task.action, spaces.Discrete):
            actions = rng.integers(0, task.action.n, n_envs)
        else:
            actions = rng.uniform(-1, 1, (n_envs, 3)).astype(np.float32)
        final = infos({env: seen[env] for env in ended}, n_envs)
        yield Step(obs, real_next_obs, actions, rng.normal(size=n_envs), terminations, final)
        obs = next_obs


@pytest.mark.parametrize("infos", INFOS.values(), ids=INFOS)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_step_comes_back_as_it_was_added(task: Task, infos: Callable[..., Any]) -> None:
    """Also where the ring has wrapped twice, and with ``optimize_memory_usage`` (vwxyzjn/cleanrl#460)."""
    n_envs = task.options.get("n_envs", 1)
    buffer = make(task, 20 * n_envs)
    history = list(play(task, infos, 47))
    for step in history:
        buffer.add(*step)
    batch = buffer.transitions(buffer.handles())
    expected = [(step, env) for env in range(n_envs) for step in history[-20:]]
    assert len(batch.rewards) == len(expected)
    for row, (step, env) in enumerate(expected):
        dtype = batch.observations.numpy().dtype
        np.testing.assert_array_equal(batch.observations[row], step.obs[env].astype(dtype))
        np.testing.assert_array_equal(batch.next_observations[row], step.real_next_obs[env].astype(dtype))
        np.testing.assert_array_equal(batch.actions[row], np.atleast_1d(step.actions[env]))
        assert batch.rewards[row].item() == np.float32(step.rewards[env])
        assert batch.dones[row].item() == step.terminations[env]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_draws_are_numpys_rows_then_environments(task: Task) -> None:
    """The same rows after the same ``np.random.seed``, so that a whole run is the same."""
    n_envs = task.options.get("n_envs", 1)
    buffer = make(task, 20 * n_envs)
    history = list(play(task, gymnasium_0_29, 13))
    for step in history:
        buffer.add(*step)
    np.random.seed(3)
    rows, envs = np.random.randint(0, 13, size=32), np.random.randint(0, high=n_envs, size=(32,))
    np.random.seed(3)
    batch = buffer.sample(32)
    assert batch.rewards.flatten().tolist() == [
        np.float32(history[row].rewards[env]) for row, env in zip(rows, envs, strict=True)
    ]


@pytest.mark.parametrize("infos", INFOS.values(), ids=INFOS)
def test_dict_infos_are_read_where_time_limits_are_handled(infos: Callable[..., Any]) -> None:
    """CleanRL passes False, but the default must take the same infos; its own buffer cannot."""
    task = TASKS["sac, td3 with 3 environments"]
    buffer = make(task, 60, handle_timeout_termination=True)
    said = []
    for step in play(task, infos, 20):
        buffer.add(*step)
        said.append(step.infos.get("_final_info", np.zeros(3, bool)))  # each final_info says that it was a time limit
    assert len(buffer) == 60
    assert buffer.timeouts.tolist() == np.array(said, float).tolist()


def test_scalars_of_numpy_are_rewards_and_ends_of_one_environment() -> None:
    buffer = make(TASKS["dqn, c51"], 4)
    obs = np.zeros((1, 4), np.float32)
    buffer.add(obs, obs, np.array([1]), np.float64(0.5), np.bool_(True), {})
    buffer.add(obs, obs, np.array([1]), np.array([0.5]), np.array([False]), {})
    assert buffer.rewards[:2, 0].tolist() == [0.5, 0.5]
    assert buffer.dones[:2, 0].tolist() == [1, 0]


def test_batches_are_what_the_learners_compute_with() -> None:
    """``gather`` wants int64 columns, atoms want ``(batch, 1)`` targets, and the JAX learners want ``.numpy()``."""
    task = TASKS["dqn, c51"]
    buffer = make(task, 50)
    for step in play(task, gymnasium_0_29, 30):
        buffer.add(*step)
    data = buffer.sample(16)
    assert data.actions.dtype == torch.int64
    assert torch.rand(16, 2).gather(1, data.actions).squeeze().shape == (16,)
    assert (data.rewards + 0.99 * torch.linspace(-1, 1, 5) * (1 - data.dones)).shape == (16, 5)
    assert (data.rewards.flatten() + 0.99 * torch.rand(16) * (1 - data.dones.flatten())).dtype == torch.float32
    assert data.observations.numpy().dtype == np.float32
    assert data.actions.flatten().shape == (16,)


def test_observations_of_a_space_with_an_assigned_dtype_are_stored_and_drawn_in_it() -> None:
    task = TASKS["sac, td3, ddpg"]
    buffer = make(task, 50)
    for step in play(task, gymnasium_0_29, 5):
        buffer.add(*step)
    assert buffer.observations.dtype == np.float32
    data = buffer.sample(4)
    assert torch.cat([data.next_observations, data.actions], 1).dtype == torch.float32


def test_optimize_memory_usage_and_time_limits_go_together() -> None:
    """CleanRL's own buffer refuses the pair."""
    task = TASKS["dqn_atari, c51_atari, qdagger"]
    buffer = make(task, 10, handle_timeout_termination=True)
    first, last, other = (np.full((1, 4, 12, 12), value, np.uint8) for value in (1, 2, 3))
    buffer.add(first, last, np.array([0]), np.array([1.0]), np.array([True]), [{"TimeLimit.truncated": True}])
    buffer.add(other, other, np.array([0]), np.array([1.0]), np.array([False]), [{}])
    batch = buffer.transitions(buffer.handles()[:1])
    assert batch.next_observations.unique().tolist() == [2]
    assert batch.dones.item() == 0


def test_frames_of_a_real_game_come_back_over_lost_lives_and_time_limits() -> None:
    """``dqn_atari``'s options over ALE's own frames; needs an ale-py that brings its games."""
    ale_py = pytest.importorskip("ale_py", minversion="0.10")
    game = ale_py.ALEInterface()
    game.setInt("random_seed", 1)
    game.loadROM(ale_py.roms.get_rom_path("breakout"))
    task = Task(spaces.Box(0, 255, (4, 105, 80), np.uint8), spaces.Discrete(4), np.uint8, {})
    buffer = make(task._replace(options={"optimize_memory_usage": True}), 200)
    rng = np.random.default_rng(0)

    def reset() -> Array:
        game.reset_game()
        return np.repeat(game.getScreenGrayscale()[None, ::2, ::2], 4, axis=0)

    history: list[Step] = []
    obs, lives = reset(), game.lives()
    for t in range(450):
        action = int(rng.integers(4))
        reward = sum(game.act(game.getMinimalActionSet()[action]) for _ in range(4))
        seen = np.concatenate([obs[1:], game.getScreenGrayscale()[None, ::2, ::2]])
        terminated, truncated = game.lives() < lives or game.game_over(), t % 60 == 59
        next_obs = reset() if terminated or truncated else seen
        lives = game.lives()
        real = seen if truncated else next_obs
        step = Step(obs[None], real[None], np.array([action]), np.array([float(reward)]), np.array([terminated]), {})
        history.append(step)
        buffer.add(*step)
        obs = next_obs
    assert any(step.terminations[0] for step in history[-200:])
    batch = buffer.transitions(buffer.handles())
    np.testing.assert_array_equal(batch.observations, np.concatenate([step.obs for step in history[-200:]]))
    np.testing.assert_array_equal(batch.next_observations, np.concatenate([s.real_next_obs for s in history[-200:]]))
