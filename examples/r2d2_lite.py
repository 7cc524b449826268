"""A recurrent Q-learner on a task of memory, with stored states, burn-in and R2D2's priorities.

Read it from top to bottom, or run it:

    python -m relive.examples.r2d2_lite --seed 3

The task, recall, ships with the example: the first step alone shows one of four cues; from step 24 on, eight steps ask
which it was. The agent learns from windows of 16 steps, so that none holds both the cue and a question. What came
before a window reaches the learner as the recurrent state that the actor had at its first step (`fields=`, `states=`).
That state goes stale as the network changes, so the first 8 steps of a window only bring it up to date, and the other 8
are learned from (`burn_in=`). For comparison it also runs with the stored state alone, where windows are the 8 steps to
learn from, and with burn-in alone, from a state of zeros. Expect 7.5 or more of 8 right answers with both, and 2 to 6
with the stored state alone; burn-in alone can but guess, which gives some 2.

Paper: Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning", 2019.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.nn import functional as F

import relive

Obs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Config:
    """What to train on, for how long, and how. Steps are environment steps, summed over all environments."""

    steps: int = 20_000
    seed: int = 0
    device: str = "cpu"
    delay: int = 24
    n_envs: int = 8
    buffer_size: int = 50_000
    batch_size: int = 64
    burn_in: int = 8
    learn: int = 8
    learning_starts: int = 2_000
    hidden: int = 64
    learning_rate: float = 5e-4
    gamma: float = 0.5
    alpha: float = 0.6
    beta: float = 0.6
    eta: float = 0.9
    target_rate: float = 0.02
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    eval_every: int = 2_000
    eval_episodes: int = 100


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    Attributes:
        curve: One (environment steps, mean return) pair per evaluation.
        losses: One per update.
        seconds: Wall time of the run.
        buffer: The experience.
        network: What was learned.
    """

    curve: list[tuple[int, float]]
    losses: list[float]
    seconds: float
    buffer: relive.ReplayBuffer
    network: nn.Module


class Recall(gym.Env[Obs, np.int64]):
    """A cue in the first step, then noise alone, then from step `delay` on `QUESTIONS` steps that ask for the cue.

    An observation is the cue (one of `CUES`, all 0 after the first step), whether the step asks, and a number of noise.
    A right answer pays 1: a perfect memory has a return of `QUESTIONS`, guessing one of `QUESTIONS / CUES`.
    """

    CUES, QUESTIONS = 4, 8

    def __init__(self, delay: int) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (self.CUES + 2,), np.float32)
        self.action_space = gym.spaces.Discrete(self.CUES)
        self.delay = delay

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Shows a cue."""
        super().reset(seed=seed)
        self.time, self.cue = 0, int(self.np_random.integers(self.CUES))
        return self._obs(), {}

    def step(self, action: np.int64) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Takes `action` for the answer, where there was a question."""
        right = self.time >= self.delay and int(action) == self.cue
        self.time += 1
        return self._obs(), float(right), self.time == self.delay + self.QUESTIONS, False, {}

    def _obs(self) -> Obs:
        obs = np.zeros(self.CUES + 2, np.float32)
        if self.time == 0:
            obs[self.cue] = 1.0
        obs[-2] = self.time >= self.delay
        obs[-1] = self.np_random.uniform(-0.5, 0.5)
        return obs


def make_envs(delay: int, n_envs: int) -> SyncVectorEnv[Any, Any]:
    """`n_envs` environments that start anew within the step that ends an episode: no step is ever a mere reset."""
    return SyncVectorEnv([lambda: Recall(delay)] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP)


class RecurrentQ(nn.Module):
    """Values that depend on all that was seen. A state is (batch, 2, hidden): the LSTM's outputs and its cells."""

    def __init__(self, n_inputs: int, n_actions: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_actions)
        # Forget gates that begin open: cells last for up to 40 steps before anything was learned
        # (Tallec and Ollivier, "Can recurrent neural networks warp time?", 2018).
        with torch.no_grad():
            self.lstm.get_parameter("bias_hh_l0")[hidden : 2 * hidden] = torch.empty(hidden).uniform_(1.0, 40.0).log()

    def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations (batch, time, …), the state before them: values (batch, time, actions), the state after them."""
        outputs, after = self.lstm(obs, tuple(state.transpose(0, 1).unsqueeze(1).contiguous()))
        return self.head(outputs), torch.cat(after).transpose(0, 1)


@torch.no_grad()
def act(network: nn.Module, obs: Obs, state: torch.Tensor) -> tuple[npt.NDArray[np.int64], torch.Tensor]:
    """The best action of each environment, (n_envs,), and its next state."""
    values, state = network(torch.as_tensor(obs, device=state.device)[:, None], state)
    return values[:, 0].argmax(dim=1).cpu().numpy(), state


def evaluate(network: nn.Module, envs: SyncVectorEnv[Any, Any], state: torch.Tensor) -> float:
    """Mean return of one greedy episode in each environment, from `state` on; all are equally long."""
    obs, _ = envs.reset()
    returns, is_over = np.zeros(envs.num_envs), False
    while not is_over:
        actions, state = act(network, obs, state)
        obs, reward, terminated, _, _ = envs.step(actions)
        returns += reward
        is_over = bool(terminated.all())
    return float(returns.mean())


def td_errors(
    online: nn.Module, target: nn.Module, batch: relive.SequenceSamples, state: torch.Tensor, burn_in: int, gamma: float
) -> torch.Tensor:
    """What the value of each step lacks, (batch, time): 0 for the burn-in, meaningless where a window has no step."""
    # All that was seen: a window's first observation, then what followed each of its steps.
    seen = torch.cat([batch.observations[:, :1], batch.next_observations], dim=1)
    online_state = target_state = state
    with torch.no_grad():
        if burn_in:  # each network reads these for a state of its own
            _, online_state = online(seen[:, :burn_in], state)
            _, target_state = target(seen[:, :burn_in], state)
        target_values, _ = target(seen[:, burn_in:], target_state)
    values, _ = online(seen[:, burn_in:], online_state)
    next_actions = values[:, 1:].detach().argmax(dim=2, keepdim=True)
    next_values = target_values[:, 1:].gather(2, next_actions)
    wanted = batch.rewards[:, burn_in:] + gamma * (1.0 - batch.dones[:, burn_in:]) * next_values
    errors = wanted - values[:, :-1].gather(2, batch.actions[:, burn_in:])
    return F.pad(errors.squeeze(2), (burn_in, 0))


def train(config: Config, use_stored_state: bool = True) -> Result:
    """Train as `config` says, each window from the state stored with its first step or from a state of zeros."""
    torch.set_num_threads(1)  # the fastest for so small a network, and part of what a seed means
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    device = torch.device(config.device)

    envs = make_envs(config.delay, config.n_envs)
    eval_envs = make_envs(config.delay, config.eval_episodes)
    eval_envs.reset(seed=config.seed + 1_000_000)  # apart from the training seeds, and from then on a stream

    online = RecurrentQ(Recall.CUES + 2, Recall.CUES, config.hidden).to(device)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=config.learning_rate, fused=device.type in ("cpu", "cuda"))
    buffer = relive.ReplayBuffer(
        config.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        device=device,
        n_envs=config.n_envs,
        sampler=relive.Prioritized(alpha=config.alpha, beta=config.beta),
        fields={"state": ((2, config.hidden), np.float32)},
        seed=config.seed,
    )

    curve: list[tuple[int, float]] = []
    losses: list[float] = []
    start = time.perf_counter()
    obs, _ = envs.reset(seed=config.seed)
    state = torch.zeros(config.n_envs, 2, config.hidden, device=device)

    for env_steps in range(config.n_envs, config.steps + 1, config.n_envs):
        # Act: at random with probability epsilon, which falls linearly.
        epsilon = 1.0 + min(env_steps / config.epsilon_steps, 1.0) * (config.epsilon_end - 1.0)
        explore = rng.random(config.n_envs) < epsilon
        best, next_state = act(online, obs, state)
        action = np.where(explore, rng.integers(Recall.CUES, size=config.n_envs), best)
        next_obs, reward, terminated, truncated, infos = envs.step(action)

        # Store, with the state in which the network saw `obs`; an episode begins with a state of zeros.
        ended = terminated | truncated
        last_obs = next_obs.copy()
        for i in np.flatnonzero(ended):
            last_obs[i] = infos["final_obs"][i]
        extras = {"state": state.cpu().numpy()}
        buffer.add(obs, last_obs, action, reward, terminated=terminated, truncated=truncated, extras=extras)
        obs, state = next_obs, next_state
        state[torch.as_tensor(ended, device=device)] = 0.0

        # Learn, ever more slowly: the less the network changes, the less what is stored goes stale.
        if env_steps >= config.learning_starts:
            optimizer.param_groups[0]["lr"] = config.learning_rate * (1.0 - env_steps / config.steps)
            length = config.burn_in + config.learn
            batch: Any = buffer.sample_sequences(
                config.batch_size, length, burn_in=config.burn_in, states=("state",), pad="end"
            )
            first = batch.states["state"] if use_stored_state else torch.zeros_like(batch.states["state"])
            errors = td_errors(online, target, batch, first, config.burn_in, config.gamma)
            learned = batch.mask & ~batch.burn_in
            loss = (batch.weights * errors.square() * learned).sum() / learned.sum().clamp(min=1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            buffer.update_priorities(batch.handles, td_errors=errors.detach(), mask=learned, eta=config.eta)
            # Where the episode ended within the burn-in there is nothing to learn: not to be drawn again.
            useless = batch.dones.any(dim=1).squeeze(1) & ~learned.any(dim=1)
            handles = batch.handles[useless.cpu().numpy()]
            buffer.update_priorities(handles, np.zeros(len(handles)))
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.lerp_(fast, config.target_rate)

        # Evaluate whenever a multiple of `eval_every` was crossed, and once at the end.
        is_last = env_steps + config.n_envs > config.steps
        if env_steps % config.eval_every < config.n_envs or is_last:
            zeros = torch.zeros(config.eval_episodes, 2, config.hidden, device=device)
            curve.append((env_steps, evaluate(online, eval_envs, zeros)))

    envs.close()
    eval_envs.close()
    return Result(curve, losses, time.perf_counter() - start, buffer, online)


def main(argv: Sequence[str] | None = None) -> None:
    """Train in three ways as the options say, one for each field of `Config`, and print the three curves."""
    parser = argparse.ArgumentParser(description="A recurrent Q-learner on a task of memory.")
    for field in fields(Config):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")
    config = Config(**vars(parser.parse_args(argv)))
    results = {
        "stored state and burn-in": train(config),
        "stored state alone": train(replace(config, burn_in=0)),
        "burn-in alone": train(config, use_stored_state=False),
    }
    print("    steps   " + "   ".join(results))
    for points in zip(*(result.curve for result in results.values()), strict=True):
        columns = (f"{mean_return:{len(name)}.2f}" for name, (_, mean_return) in zip(results, points, strict=True))
        print(f"{points[0][0]:>9,}   " + "   ".join(columns))
    for name, result in results.items():
        print(
            f"r2d2_lite, seed {config.seed}, {name}: mean return {result.curve[-1][1]:.2f} of {Recall.QUESTIONS}, "
            f"{result.seconds:.0f} seconds"
        )


if __name__ == "__main__":
    main()
