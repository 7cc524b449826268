"""Double DQN on vector environments, its experience in a `relive.ReplayBuffer`.

Read it from top to bottom, or run it:

    python -m relive.examples.dqn --seed 3

On CartPole-v1 it stops at the first evaluation (20 greedy episodes in environments of their own) whose mean
return is at least 475. Expect that after some 14,000 to 60,000 of at most 100,000 environment steps.

Papers: Mnih et al., "Human-level control through deep reinforcement learning", 2015; van Hasselt et al., "Deep
reinforcement learning with double Q-learning", 2016.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.nn import functional as F

import relive

SOLVED_AT = {"CartPole-v1": 475.0}
"""The mean evaluation return at which training stops; any other environment trains for all its steps."""


@dataclass(frozen=True)
class Config:
    """What to train on, for how long, and how. Steps are environment steps, summed over all environments."""

    env_id: str = "CartPole-v1"
    total_steps: int = 100_000
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    n_envs: int = 8
    buffer_size: int = 100_000
    batch_size: int = 128
    learning_starts: int = 1_000
    updates_per_step: int = 2
    hidden: int = 128
    learning_rate: float = 5e-4
    gamma: float = 0.99
    target_rate: float = 0.02
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    eval_every: int = 2_000
    eval_episodes: int = 20

    def __post_init__(self) -> None:
        if self.total_steps < self.n_envs:
            raise ValueError(
                f"total_steps is {self.total_steps}, expected at least {self.n_envs}: "
                f"one step in each of n_envs={self.n_envs} environments"
            )


@dataclass(frozen=True)
class Progress:
    """Where a run stands: environment steps done, the newest evaluation's mean return and the newest loss, if any."""

    env_steps: int
    mean_return: float | None
    loss: float | None


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    Attributes:
        mean_return: The last evaluation's.
        curve: One (environment steps, mean return) pair per evaluation.
        env_steps: Environment steps done, those of evaluations not counted.
        seconds: Wall time of the whole run, learning and evaluation included.
        draws: Minibatches drawn from the buffer.
        draw_seconds: Wall time spent inside the buffer's draws alone.
        buffer: The experience.
        network: What was learned: observations (batch, …) to the worth of each action (batch, actions).
    """

    mean_return: float
    curve: list[tuple[int, float]]
    env_steps: int
    seconds: float
    draws: int
    draw_seconds: float
    buffer: relive.ReplayBuffer | relive.RolloutBuffer
    network: nn.Module

    @property
    def env_steps_per_second(self) -> float:
        """Over the wall time of the whole run."""
        return self.env_steps / self.seconds

    @property
    def draws_per_second_inside(self) -> float:
        """Over the wall time spent inside the buffer's draws alone; 0 without a draw."""
        return self.draws / self.draw_seconds if self.draws else 0.0

    @property
    def draws_per_second_overall(self) -> float:
        """Over the wall time of the whole run."""
        return self.draws / self.seconds


def make_env(env_id: str) -> gym.Env[Any, Any]:
    """One environment of `env_id`, refused with a `ValueError` where this learner cannot act in it."""
    env = gym.make(env_id, disable_env_checker=True)
    if not isinstance(env.action_space, gym.spaces.Discrete) or env.action_space.start != 0:
        raise ValueError(f"{env_id} has action space {env.action_space}, this learner needs Discrete with start 0")
    if not isinstance(env.observation_space, gym.spaces.Box):
        raise ValueError(f"{env_id} has observation space {env.observation_space}, this learner needs Box")
    return env


def make_envs(env_id: str, n_envs: int) -> SyncVectorEnv[Any, Any]:
    """`n_envs` environments that start anew within the step that ends an episode: no step is ever a mere reset."""
    return SyncVectorEnv([lambda: make_env(env_id)] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def spaces_of(envs: SyncVectorEnv[Any, Any]) -> tuple[gym.spaces.Box, gym.spaces.Discrete]:
    """The spaces of one of the environments, as `make_env` has checked them."""
    observation_space, action_space = envs.single_observation_space, envs.single_action_space
    assert isinstance(observation_space, gym.spaces.Box)
    assert isinstance(action_space, gym.spaces.Discrete)
    return observation_space, action_space


class QNetwork(nn.Module):
    """Observations (batch, …) to one value per action (batch, actions)."""

    def __init__(self, observation_space: gym.spaces.Box, n_actions: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(int(np.prod(observation_space.shape)), hidden),
            nn.LayerNorm(hidden),  # keeps values from running away: without it not every seed arrives
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_actions),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The value of every action."""
        values: torch.Tensor = self.layers(observations.float())
        return values


@torch.no_grad()
def greedy(network: nn.Module, obs: npt.NDArray[Any], device: torch.device) -> npt.NDArray[np.int64]:
    """The best action of each environment, (n_envs,), for observations (n_envs, …)."""
    actions: npt.NDArray[np.int64] = network(torch.as_tensor(obs, device=device)).argmax(dim=1).cpu().numpy()
    return actions


def evaluate(network: nn.Module, envs: SyncVectorEnv[Any, Any], device: torch.device) -> float:
    """Mean undiscounted return of one greedy episode in each environment of `envs`."""
    obs, _ = envs.reset()
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, dtype=bool)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(greedy(network, obs, device))
        returns += reward * running
        running &= ~(terminated | truncated)
    return float(returns.mean())


def td_loss(online: nn.Module, target: nn.Module, batch: relive.ReplayBufferSamples, gamma: float) -> torch.Tensor:
    """The Huber loss of one batch: the online network picks the next action, the target network values it."""
    with torch.no_grad():
        next_actions = online(batch.next_observations).argmax(dim=1, keepdim=True)
        next_values = target(batch.next_observations).gather(1, next_actions)
        # `dones` is 1 for terminations alone: after a mere time limit the future still counts.
        wanted = batch.rewards + gamma * (1.0 - batch.dones) * next_values
    return F.smooth_l1_loss(online(batch.observations).gather(1, batch.actions), wanted)


def train(config: Config, on_progress: Callable[[Progress], None] | None = None) -> Result:
    """Train as `config` says; `on_progress` is called after every step of the `n_envs` environments."""
    torch.set_num_threads(config.threads)  # one is the fastest for so small a network, and part of what a seed means
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    device = torch.device(config.device)

    envs = make_envs(config.env_id, config.n_envs)
    eval_envs = make_envs(config.env_id, config.eval_episodes)
    eval_envs.reset(seed=config.seed + 1_000_000)  # apart from the training seeds, and from then on a stream
    observation_space, action_space = spaces_of(envs)
    n_actions = int(action_space.n)

    online = QNetwork(observation_space, n_actions, config.hidden).to(device)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=config.learning_rate, fused=device.type in ("cpu", "cuda"))
    buffer = relive.ReplayBuffer(
        config.buffer_size,
        observation_space,
        action_space,
        device=device,
        n_envs=config.n_envs,
        seed=config.seed,
    )

    solved_at = SOLVED_AT.get(config.env_id, float("inf"))
    curve: list[tuple[int, float]] = []
    loss: torch.Tensor | None = None
    draws, draw_seconds = 0, 0.0
    start = time.perf_counter()
    obs, _ = envs.reset(seed=config.seed)

    for env_steps in range(config.n_envs, config.total_steps + 1, config.n_envs):
        # Act: at random with probability epsilon, which falls linearly.
        fraction = min(env_steps / config.epsilon_steps, 1.0)
        epsilon = config.epsilon_start + fraction * (config.epsilon_end - config.epsilon_start)
        explore = rng.random(config.n_envs) < epsilon
        action = np.where(explore, rng.integers(n_actions, size=config.n_envs), greedy(online, obs, device))
        next_obs, reward, terminated, truncated, infos = envs.step(action)

        # Store: where an episode ended, `next_obs` is already the first observation of the next one.
        last_obs = next_obs.copy()
        for i in np.flatnonzero(terminated | truncated):
            last_obs[i] = infos["final_obs"][i]
        buffer.add(obs, last_obs, action, reward, terminated=terminated, truncated=truncated)
        obs = next_obs

        # Learn.
        if env_steps >= config.learning_starts:
            for _ in range(config.updates_per_step):
                before = time.perf_counter()
                batch = buffer.sample(config.batch_size)
                draw_seconds += time.perf_counter() - before
                draws += 1
                assert isinstance(batch, relive.ReplayBufferSamples)

                loss = td_loss(online, target, batch, config.gamma)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                        slow.lerp_(fast, config.target_rate)

        # Evaluate whenever a multiple of `eval_every` was crossed, and once at the end.
        is_last = env_steps + config.n_envs > config.total_steps
        if env_steps % config.eval_every < config.n_envs or is_last:
            curve.append((env_steps, evaluate(online, eval_envs, device)))
        if on_progress is not None:
            on_progress(Progress(env_steps, curve[-1][1] if curve else None, None if loss is None else loss.item()))
        if curve and curve[-1][1] >= solved_at:
            break

    seconds = time.perf_counter() - start
    envs.close()
    eval_envs.close()
    return Result(curve[-1][1], curve, env_steps, seconds, draws, draw_seconds, buffer, online)


def run_from_command_line(config_class: Any, train: Callable[[Any], Result]) -> None:
    """Train as the options say, one for each field of the configuration, then print the learning curve."""
    parser = argparse.ArgumentParser()
    for field in fields(config_class):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")
    result = train(config_class(**vars(parser.parse_args())))
    for env_steps, mean_return in result.curve:
        print(f"{env_steps:>9,} steps  mean return {mean_return:8.1f}")
    print(f"{result.env_steps_per_second:,.0f} env steps/s  {result.draws_per_second_overall:,.0f} draws/s")


if __name__ == "__main__":
    run_from_command_line(Config, train)
