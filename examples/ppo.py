"""PPO on vector environments, its rollouts in a `relive.RolloutBuffer`.

Read it from top to bottom, or run it:

    python -m relive.examples.ppo --seed 3

Environments, evaluation and what comes out are those of `dqn.py` beside it. On CartPole-v1 it stops at the first
evaluation (20 greedy episodes in environments of their own) whose mean return is at least 475. Expect that after some
12,000 to 33,000 of at most 200,000 environment steps.

Papers: Schulman et al., "Proximal policy optimization algorithms", 2017; Schulman et al., "High-dimensional continuous
control using generalized advantage estimation", 2016.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from relive.examples.dqn import (
    SOLVED_AT,
    Progress,
    Result,
    evaluate,
    make_envs,
    run_from_command_line,
    spaces_of,
)
from torch import nn
from torch.distributions import Categorical

import relive


@dataclass(frozen=True)
class Config:
    """What to train on, for how long, and how. Steps are environment steps, summed over all environments."""

    env_id: str = "CartPole-v1"
    total_steps: int = 200_000
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    n_envs: int = 8
    rollout_steps: int = 128
    batch_size: int = 256
    epochs: int = 10
    hidden: int = 64
    learning_rate: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    eval_every: int = 4_096
    eval_episodes: int = 20

    def __post_init__(self) -> None:
        per_rollout = self.n_envs * self.rollout_steps
        if self.total_steps < per_rollout:
            raise ValueError(
                f"total_steps is {self.total_steps}, expected at least {per_rollout}: one rollout of "
                f"rollout_steps={self.rollout_steps} in each of n_envs={self.n_envs} environments"
            )


class ActorCritic(nn.Module):
    """Observations (batch, …) to action logits (batch, actions) and values (batch,)."""

    def __init__(self, observation_space: gym.spaces.Box, n_actions: int, hidden: int) -> None:
        super().__init__()
        inputs = int(np.prod(observation_space.shape))
        self.policy = self._layers(inputs, hidden, n_actions, last_gain=0.01)
        self.value = self._layers(inputs, hidden, 1, last_gain=1.0)

    @staticmethod
    def _layers(inputs: int, hidden: int, outputs: int, last_gain: float) -> nn.Sequential:
        layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
        for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Flatten(), layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Logits alone: `evaluate` takes the likeliest action."""
        logits: torch.Tensor = self.policy(observations.float())
        return logits

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """What the critic thinks of the observations."""
        values: torch.Tensor = self.value(observations.float()).squeeze(1)
        return values


def loss_of(network: ActorCritic, batch: relive.RolloutBufferSamples, config: Config) -> torch.Tensor:
    """The clipped objective of one minibatch, plus the squared error of the critic."""
    distribution = Categorical(logits=network(batch.observations))
    ratio = torch.exp(distribution.log_prob(batch.actions.squeeze(1)) - batch.old_log_prob)
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    value_loss = (network.values(batch.observations) - batch.returns).square().mean()
    return policy_loss + config.value_weight * value_loss


def train(config: Config, on_progress: Callable[[Progress], None] | None = None) -> Result:
    """Train as `config` says; `on_progress` is called after every rollout."""
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    device = torch.device(config.device)

    envs = make_envs(config.env_id, config.n_envs)
    eval_envs = make_envs(config.env_id, config.eval_episodes)
    eval_envs.reset(seed=config.seed + 1_000_000)  # apart from the training seeds, and from then on a stream

    observation_space, action_space = spaces_of(envs)
    network = ActorCritic(observation_space, int(action_space.n), config.hidden).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=1e-5)
    rollout = relive.RolloutBuffer(
        config.rollout_steps,
        observation_space,
        action_space,
        device=device,
        gae_lambda=config.gae_lambda,
        gamma=config.gamma,
        n_envs=config.n_envs,
        seed=config.seed,
    )

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=device)

    solved_at = SOLVED_AT.get(config.env_id, float("inf"))
    per_rollout = config.n_envs * config.rollout_steps
    curve: list[tuple[int, float]] = []
    draws, draw_seconds = 0, 0.0
    start = time.perf_counter()
    obs, _ = envs.reset(seed=config.seed)
    episode_start = np.ones(config.n_envs, dtype=bool)

    for env_steps in range(per_rollout, config.total_steps + 1, per_rollout):
        # Act for one rollout.
        rollout.reset()
        for _ in range(config.rollout_steps):
            with torch.no_grad():
                distribution = Categorical(logits=network(tensor(obs)))
                action = distribution.sample()
                log_prob, value = distribution.log_prob(action), network.values(tensor(obs))
            next_obs, reward, terminated, truncated, infos = envs.step(action.cpu().numpy())

            # A truncated episode goes on without us: the value of its last observation stands for what was cut off.
            final_value = np.zeros(config.n_envs, dtype=np.float32)
            for i in np.flatnonzero(truncated):
                with torch.no_grad():
                    final_value[i] = network.values(tensor(infos["final_obs"][i])[None]).item()
            rollout.add(
                obs,
                action,
                reward,
                episode_start,
                value,
                log_prob,
                terminated=terminated,
                truncated=truncated,
                final_value=final_value,
            )
            obs, episode_start = next_obs, terminated | truncated
        with torch.no_grad():
            rollout.compute_returns_and_advantage(last_values=network.values(tensor(obs)))

        # Learn from it, several times over, ever more slowly.
        optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - (env_steps - per_rollout) / config.total_steps)
        for _ in range(config.epochs):
            batches = rollout.get(config.batch_size)
            while True:
                before = time.perf_counter()
                batch = next(batches, None)
                draw_seconds += time.perf_counter() - before
                if batch is None:
                    break
                draws += 1
                assert isinstance(batch, relive.RolloutBufferSamples)
                loss = loss_of(network, batch, config)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
                optimizer.step()

        # Evaluate whenever a multiple of `eval_every` was crossed, and once at the end.
        is_last = env_steps + per_rollout > config.total_steps
        if env_steps % config.eval_every < per_rollout or is_last:
            curve.append((env_steps, evaluate(network, eval_envs, device)))
        if on_progress is not None:
            on_progress(Progress(env_steps, curve[-1][1] if curve else None, loss.item()))
        if curve and curve[-1][1] >= solved_at:
            break

    seconds = time.perf_counter() - start
    envs.close()
    eval_envs.close()
    return Result(curve[-1][1], curve, env_steps, seconds, draws, draw_seconds, rollout, network)


if __name__ == "__main__":
    run_from_command_line(Config, train)
