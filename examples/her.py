"""Hindsight experience replay: the same agent with and without it, on a task that luck alone does not solve.

Read it from top to bottom, or run it:

    python -m relive.examples.her --seed 3

The task, bit flipping, ships with the example: turn one row of bits into another, one bit a step, in as many steps as
there are bits, with -1 for every step that does not end there. Of 2**20 rows one is right, so an agent that explores by
itself hardly ever succeeds, and learns nothing. With `hindsight=` it also learns from what it did reach. Expect a
success rate of 100% after some 10,000 environment steps with it, and of 0% without.

Papers: Andrychowicz et al., "Hindsight experience replay", 2017; van Hasselt et al., "Deep reinforcement learning with
double Q-learning", 2016.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
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

Obs = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Config:
    """What to train on, for how long, and how. Steps are environment steps, summed over all environments."""

    steps: int = 20_000
    seed: int = 0
    device: str = "cpu"
    n_bits: int = 20
    n_envs: int = 8
    buffer_size: int = 100_000
    batch_size: int = 128
    learning_starts: int = 1_000
    updates_per_step: int = 2
    hidden: int = 256
    learning_rate: float = 1e-3
    gamma: float = 0.98
    n_sampled_goal: int = 4
    target_rate: float = 0.05
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    eval_every: int = 2_000
    eval_episodes: int = 100


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    Attributes:
        curve: One (environment steps, success rate) pair per evaluation.
        successes: Training episodes that reached their goal, of all that ended.
        episodes: Training episodes that ended.
        seconds: Wall time of the run.
        buffer: The experience.
        network: What was learned.
    """

    curve: list[tuple[int, float]]
    successes: int
    episodes: int
    seconds: float
    buffer: relive.ReplayBuffer
    network: nn.Module


class BitFlip(gym.Env[Any, np.int64]):
    """Flip one bit a step until the bits are those of the goal, in at most `n_bits` steps."""

    def __init__(self, n_bits: int) -> None:
        bits = gym.spaces.MultiBinary(n_bits)
        self.observation_space = gym.spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self.action_space = gym.spaces.Discrete(n_bits)
        self.n_bits = n_bits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Bits and goal, both at random."""
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.n_bits), dtype=np.int8)
        self.left = self.n_bits
        return self._obs(), {}

    def step(self, action: np.int64) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Flips bit `action`."""
        self.bits[action] ^= 1
        self.left -= 1
        reached = bool(is_reached(self.bits, self.goal))
        return self._obs(), float(reached) - 1.0, reached, self.left == 0, {}

    def _obs(self) -> Obs:
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}


def is_reached(achieved: npt.NDArray[Any], desired: npt.NDArray[Any], info: Any = None) -> npt.NDArray[np.bool_]:
    """Whether goals (…, n_bits) are reached, (…): the task's end, for one step or for a whole batch of them."""
    reached: npt.NDArray[np.bool_] = np.all(achieved == desired, axis=-1)
    return reached


def reward(achieved: npt.NDArray[Any], desired: npt.NDArray[Any], info: Any = None) -> npt.NDArray[np.float32]:
    """0 where the goal is reached, else -1."""
    return is_reached(achieved, desired).astype(np.float32) - 1.0


def make_envs(n_bits: int, n_envs: int) -> SyncVectorEnv[Any, Any]:
    """`n_envs` environments that start anew within the step that ends an episode: no step is ever a mere reset."""
    return SyncVectorEnv([lambda: BitFlip(n_bits)] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP)


class QNetwork(nn.Module):
    """Observations, a dict of (batch, n_bits), to one value per action (batch, n_bits)."""

    def __init__(self, n_bits: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * n_bits, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_bits)
        )

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The value of every action."""
        values: torch.Tensor = self.layers(
            2.0 * torch.cat([obs["observation"], obs["desired_goal"]], dim=1).float() - 1.0
        )
        return values


@torch.no_grad()
def greedy(network: nn.Module, obs: Obs, device: torch.device) -> npt.NDArray[np.int64]:
    """The best action of each environment, (n_envs,)."""
    values = network({name: torch.as_tensor(array, device=device) for name, array in obs.items()})
    actions: npt.NDArray[np.int64] = values.argmax(dim=1).cpu().numpy()
    return actions


def success_rate(network: nn.Module, envs: SyncVectorEnv[Any, Any], n_bits: int, device: torch.device) -> float:
    """The share of environments whose greedy episode reaches its goal."""
    obs, _ = envs.reset()
    reached = np.zeros(envs.num_envs, dtype=bool)
    for _ in range(n_bits):  # one that has reached its goal begins another episode, which does not count against it
        obs, _, terminated, _, _ = envs.step(greedy(network, obs, device))
        reached |= terminated
    return float(reached.mean())


def td_loss(online: nn.Module, target: nn.Module, batch: relive.DictReplayBufferSamples, gamma: float) -> torch.Tensor:
    """The Huber loss of one batch: the online network picks the next action, the target network values it."""
    with torch.no_grad():
        next_actions = online(batch.next_observations).argmax(dim=1, keepdim=True)
        next_values = target(batch.next_observations).gather(1, next_actions)
        wanted = batch.rewards + gamma * (1.0 - batch.dones) * next_values
    return F.smooth_l1_loss(online(batch.observations).gather(1, batch.actions), wanted)


def train(config: Config, with_hindsight: bool = True) -> Result:
    """Train as `config` says; without hindsight the very same agent learns from what it drew as it was."""
    torch.set_num_threads(1)  # the fastest for so small a network, and part of what a seed means
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    device = torch.device(config.device)

    envs = make_envs(config.n_bits, config.n_envs)
    eval_envs = make_envs(config.n_bits, config.eval_episodes)
    eval_envs.reset(seed=config.seed + 1_000_000)  # apart from the training seeds, and from then on a stream

    online = QNetwork(config.n_bits, config.hidden).to(device)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=config.learning_rate, fused=device.type in ("cpu", "cuda"))
    # A goal that is reached ends the episode, so what is relabelled needs new rewards and new ends.
    hindsight = relive.Hindsight(reward, n_sampled_goal=config.n_sampled_goal, compute_terminated=is_reached)
    buffer = relive.ReplayBuffer(
        config.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        device=device,
        n_envs=config.n_envs,
        hindsight=hindsight if with_hindsight else None,
        seed=config.seed,
    )

    curve: list[tuple[int, float]] = []
    successes, episodes = 0, 0
    start = time.perf_counter()
    obs, _ = envs.reset(seed=config.seed)

    for env_steps in range(config.n_envs, config.steps + 1, config.n_envs):
        # Act: at random with probability epsilon, which falls linearly.
        epsilon = 1.0 + min(env_steps / config.epsilon_steps, 1.0) * (config.epsilon_end - 1.0)
        explore = rng.random(config.n_envs) < epsilon
        action = np.where(explore, rng.integers(config.n_bits, size=config.n_envs), greedy(online, obs, device))
        next_obs, rewards, terminated, truncated, infos = envs.step(action)

        # Store: where an episode ended, `next_obs` is already the first observation of the next one.
        last_obs = {name: array.copy() for name, array in next_obs.items()}
        for i in np.flatnonzero(terminated | truncated):
            for name in last_obs:
                last_obs[name][i] = infos["final_obs"][i][name]
        buffer.add(obs, last_obs, action, rewards, terminated=terminated, truncated=truncated)
        obs = next_obs
        successes += int(terminated.sum())
        episodes += int((terminated | truncated).sum())

        # Learn.
        if env_steps >= config.learning_starts:
            for _ in range(config.updates_per_step):
                batch = buffer.sample(config.batch_size)
                assert isinstance(batch, relive.DictReplayBufferSamples)
                loss = td_loss(online, target, batch, config.gamma)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                        slow.lerp_(fast, config.target_rate)

        # Evaluate whenever a multiple of `eval_every` was crossed, and once at the end.
        is_last = env_steps + config.n_envs > config.steps
        if env_steps % config.eval_every < config.n_envs or is_last:
            curve.append((env_steps, success_rate(online, eval_envs, config.n_bits, device)))

    envs.close()
    eval_envs.close()
    return Result(curve, successes, episodes, time.perf_counter() - start, buffer, online)


def main(argv: Sequence[str] | None = None) -> None:
    """Train with and without hindsight as the options say, one for each field of `Config`, and print both curves."""
    parser = argparse.ArgumentParser(description="Bit flipping with and without hindsight experience replay.")
    for field in fields(Config):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")
    config = Config(**vars(parser.parse_args(argv)))
    results = [train(config, with_hindsight) for with_hindsight in (True, False)]
    print("    steps   success with hindsight   without")
    for (env_steps, with_it), (_, without) in zip(results[0].curve, results[1].curve, strict=True):
        print(f"{env_steps:>9,}   {with_it:>22.0%}   {without:>7.0%}")
    for name, result in zip(("with", "without"), results, strict=True):
        print(
            f"her, {config.n_bits} bits, seed {config.seed}, {name} hindsight: success rate {result.curve[-1][1]:.0%}, "
            f"goals reached in training {result.successes:,} of {result.episodes:,}, {result.seconds:.0f} seconds"
        )


if __name__ == "__main__":
    main()
