"""Double, prioritized, 3-step DQN: four arguments of `relive.ReplayBuffer` and three lines of the learner.

Read it from top to bottom, or run it:

    python -m relive.examples.rainbow_lite --seed 3

Environments, network and evaluation are those of `dqn.py` beside it. On CartPole-v1 it stops at the first evaluation
(20 greedy episodes in environments of their own) whose mean return is at least 475. Expect that after some 6,000 to
12,000 of at most 60,000 environment steps; on Acrobot-v1 (`--env-id`), where it stops at -85, after 14,000 to 22,000.

Papers: Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", 2018 (three of its six); Schaul
et al., "Prioritized experience replay", 2016.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from relive.examples.dqn import QNetwork, Result, evaluate, greedy, make_envs, spaces_of
from torch import nn
from torch.nn import functional as F

import relive

SOLVED_AT = {"CartPole-v1": 475.0, "Acrobot-v1": -85.0}
"""The mean evaluation return at which training stops; any other environment trains for all its steps."""


@dataclass(frozen=True)
class Config:
    """What to train on, for how long, and how. Steps are environment steps, summed over all environments."""

    env_id: str = "CartPole-v1"
    steps: int = 60_000
    seed: int = 0
    device: str = "cpu"
    n_envs: int = 4
    buffer_size: int = 50_000
    batch_size: int = 128
    learning_starts: int = 1_000
    updates_per_step: int = 2
    hidden: int = 128
    learning_rate: float = 5e-4
    gamma: float = 0.99
    n_steps: int = 3
    alpha: float = 0.6
    beta_start: float = 0.4
    target_rate: float = 0.02
    epsilon_end: float = 0.05
    epsilon_steps: int = 8_000
    eval_every: int = 2_000
    eval_episodes: int = 20


def td_errors(online: nn.Module, target: nn.Module, batch: Any) -> torch.Tensor:
    """What each row's value lacks to its n-step return, (batch, 1): the online network picks, the target values."""
    with torch.no_grad():
        next_actions = online(batch.next_observations).argmax(dim=1, keepdim=True)
        next_values = target(batch.next_observations).gather(1, next_actions)
        # gamma to the power of the steps that there really were: fewer than n where an episode ended.
        wanted = batch.rewards + batch.discounts * (1.0 - batch.dones) * next_values
    errors: torch.Tensor = wanted - online(batch.observations).gather(1, batch.actions)
    return errors


def train(config: Config) -> Result:
    """Train as `config` says."""
    torch.set_num_threads(1)  # the fastest for so small a network, and part of what a seed means
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
    sampler = relive.Prioritized(
        alpha=config.alpha,
        # The correction for drawing unevenly grows until it is whole at the end of training.
        beta=relive.Linear(config.beta_start, 1.0),
    )
    buffer = relive.ReplayBuffer(
        config.buffer_size,
        observation_space,
        action_space,
        device=device,
        n_envs=config.n_envs,
        n_steps=config.n_steps,
        gamma=config.gamma,
        sampler=sampler,
        seed=config.seed,
    )

    solved_at = SOLVED_AT.get(config.env_id, float("inf"))
    curve: list[tuple[int, float]] = []
    draws, draw_seconds = 0, 0.0
    start = time.perf_counter()
    obs, _ = envs.reset(seed=config.seed)

    for env_steps in range(config.n_envs, config.steps + 1, config.n_envs):
        # Act: at random with probability epsilon, which falls linearly.
        epsilon = 1.0 + min(env_steps / config.epsilon_steps, 1.0) * (config.epsilon_end - 1.0)
        explore = rng.random(config.n_envs) < epsilon
        action = np.where(explore, rng.integers(n_actions, size=config.n_envs), greedy(online, obs, device))
        next_obs, reward, terminated, truncated, infos = envs.step(action)

        # Store single steps: the buffer sums over three of them when it is asked.
        last_obs = next_obs.copy()
        for i in np.flatnonzero(terminated | truncated):
            last_obs[i] = infos["final_obs"][i]
        buffer.add(obs, last_obs, action, reward, terminated=terminated, truncated=truncated)
        obs = next_obs

        # Learn.
        sampler.progress = env_steps / config.steps
        if env_steps >= config.learning_starts:
            for _ in range(config.updates_per_step):
                before = time.perf_counter()
                batch: Any = buffer.sample(config.batch_size)
                draw_seconds += time.perf_counter() - before
                draws += 1

                errors = td_errors(online, target, batch)
                loss = (batch.weights * F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                buffer.update_priorities(batch.handles, td_errors=errors.detach())
                with torch.no_grad():
                    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                        slow.lerp_(fast, config.target_rate)

        # Evaluate whenever a multiple of `eval_every` was crossed, and once at the end.
        is_last = env_steps + config.n_envs > config.steps
        if env_steps % config.eval_every < config.n_envs or is_last:
            curve.append((env_steps, evaluate(online, eval_envs, device)))
        if curve and curve[-1][1] >= solved_at:
            break

    seconds = time.perf_counter() - start
    envs.close()
    eval_envs.close()
    return Result(curve[-1][1], curve, env_steps, seconds, draws, draw_seconds, buffer, online)


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the options say, one for each field of `Config`, and print the learning curve."""
    parser = argparse.ArgumentParser(description="Double, prioritized, 3-step DQN.")
    for field in fields(Config):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")
    config = Config(**vars(parser.parse_args(argv)))
    result = train(config)
    for env_steps, mean_return in result.curve:
        print(f"{env_steps:>9,} steps  mean return {mean_return:8.1f}")
    print(
        f"rainbow_lite, {config.env_id}, seed {config.seed}: mean return {result.mean_return:.1f} "
        f"after {result.env_steps:,} steps, {result.seconds:.0f} seconds"
    )


if __name__ == "__main__":
    main()
