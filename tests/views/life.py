"""A real buffer and its slow twin that live the same life, and what is drawn from the one compared with the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import relive
from tests.reference.views import Row, Step, Tree, stack, tree_map, zeros
from tests.views.operations import Operations
from tests.views.worlds import FIELDS, LANE, WEIGHS, Normaliser


class Life(Operations):
    """A buffer and its twin, drawn from and compared, row by row and bit for bit."""

    def handles_of(self, batch: Any, rows: Tree) -> list[int]:
        """Which steps these rows of observations belong to, as the observations themselves say."""
        place = rows["observation"] if self.config.space == "goal" else rows
        if self.config.space == "dict":
            place = rows["place"]
        numbers = place.numpy().astype(np.int64)
        if self.config.space == "discrete":
            lanes, ticks = np.divmod(numbers[..., 0], LANE)
        else:
            lanes, ticks = np.abs(numbers[..., 0]), np.abs(numbers[..., 1])
        handles = (ticks // 2 * self.config.lanes + lanes).reshape(-1).tolist()
        given = getattr(batch, "handles", None)
        if given is not None and len(given) == len(handles):
            assert given.tolist() == handles
            assert given.dtype == np.int64
        return handles

    def goal_of(self, step: Step, goal: NDArray) -> Step:
        """Which step reached a drawn goal; it must be one of those that the strategy allows."""
        goals = self.config.goals
        assert goals is not None
        reached = [s for s in self.twin.goals_of(step, goals) if same(s.successor["achieved_goal"], goal)]
        assert len(reached) == 1, f"{goal} is no goal for {step.lane, step.number} by {goals.strategy!r}"
        return reached[0]

    def relabelled(self, batch: Any, size: int) -> NDArray:
        config = self.config
        if config.strategy is None:
            return np.zeros(size, bool)
        assert batch.relabelled.dtype == np.bool_
        assert batch.relabelled.shape == (size,)
        assert batch.relabelled.sum() == int(size * config.n_sampled_goal / (config.n_sampled_goal + 1))
        return batch.relabelled

    def check_sample(self, size: int, *, normalised: bool = False) -> Any:
        """Draws transitions and compares every row with the twin's."""
        config, twin = self.config, self.twin
        eligible = twin.handles(twin.eligible(config.goals))
        assert self.buffer.can_sample == bool(eligible)
        if not eligible:
            with pytest.raises(relive.errors.EmptyBufferError):
                self.buffer.sample(1)
            return None
        env = Normaliser() if normalised else None
        batch = self.buffer.sample(size, env=env)
        drawn = batch if not normalised else undone(batch)
        size = len(batch.actions)
        handles = self.handles_of(batch, drawn.observations)
        assert set(handles) <= set(eligible)
        is_relabelled, expected = self.relabelled(batch, size), []
        for row, handle in enumerate(handles):
            step, goal = twin.find(handle), None
            if is_relabelled[row]:
                goal = drawn.observations["desired_goal"][row].numpy()
                self.goal_of(step, goal)
            expected.append(twin.row(step, config.n_steps, config.gamma, config.goals, goal, reward_of(env)))
        self.same_rows(batch, expected, env)
        self.check_weights(batch, handles, eligible)
        return batch

    def same_rows(self, batch: Any, expected: Sequence[Row], env: Any = None, states: Sequence[str] = ()) -> None:
        normal = env.normalize_obs if env else lambda obs: obs
        same_tree(batch.observations, normal(stack([row.observation for row in expected])), "observations")
        same_tree(batch.next_observations, normal(stack([row.successor for row in expected])), "next_observations")
        same_tree(batch.actions, np.stack([row.action for row in expected]), "actions")
        same_tree(batch.dones, np.stack([row.done for row in expected]), "dones")
        same_tree(batch.rewards, np.stack([row.reward for row in expected]), "rewards")
        if self.config.n_steps == 1 and not isinstance(self.config.gamma, str):
            assert batch.discounts is None
        else:
            same_tree(batch.discounts, np.stack([row.discount for row in expected]), "discounts")
        names = [name for name in expected[0].extras if name not in states]
        if names:
            assert set(batch.extras) == set(names)
        for name in names:
            same_tree(batch.extras[name], np.stack([row.extras[name] for row in expected]), name)

    def check_weights(self, batch: Any, handles: Sequence[int], eligible: Sequence[int]) -> None:
        if self.config.sampler not in WEIGHS:
            assert getattr(batch, "weights", None) is None
            return
        assert batch.weights.dtype == torch.float32
        assert batch.weights.shape == (len(handles), 1)
        if self.config.sampler == "rank":
            assert batch.weights.min() > 0 and batch.weights.max() == 1
            return
        sampler = self.buffer.sampler
        masses = self.buffer.priorities(eligible)
        assert masses.dtype == np.float64
        of_all = masses / masses.sum() if masses.sum() else np.full(len(masses), 1 / len(masses))
        raw = {h: (len(of_all) * p) ** -sampler.beta for h, p in zip(eligible, of_all, strict=True) if p > 0}
        over = raw.values() if sampler.weights_over == "buffer" else [raw[h] for h in handles]
        expected = np.array([[raw[h] / max(over)] for h in handles])
        np.testing.assert_allclose(batch.weights.numpy(), expected, rtol=1e-5)

    def check_sequences(
        self,
        size: int,
        length: int,
        *,
        burn_in: int = 0,
        stride: int = 1,
        pad: str | None = None,
        cross_episodes: bool = False,
        align: str = "start",
        normalised: bool = False,
        **options: Any,
    ) -> Any:
        """Draws sequences and compares every step of each with the twin's."""
        config, twin = self.config, self.twin
        legal = twin.handles(twin.legal_starts(length, stride, pad, cross_episodes, config.goals, align))
        kind = {"stride": stride, "pad": pad, "cross_episodes": cross_episodes, "align": align}
        if config.goals is None:
            assert self.buffer.count_sequences(length, **kind) == len(legal)
        options |= {"burn_in": burn_in, **kind}
        if not legal:
            with pytest.raises(relive.errors.EmptyBufferError):
                self.buffer.sample_sequences(1, length, **options)
            return None
        env = Normaliser() if normalised else None
        states = ("hidden",) if config.fields and length % 2 else ()
        batch = self.buffer.sample_sequences(size, length, states=states, env=env, **options)
        drawn = batch if env is None else undone(batch)
        at = 0 if align == "start" else length - 1
        handles = self.handles_of(batch, tree_map(lambda leaf: leaf[:, at], drawn.observations))
        assert set(handles) <= set(legal), "a start that is not legal"
        is_relabelled = self.relabelled(batch, size)
        expected: list[Row] = []
        firsts: list[Step] = []
        mask, is_first, is_burn_in = np.zeros((3, size, length), bool)
        for row, handle in enumerate(handles):
            start, goal = twin.find(handle), None
            if is_relabelled[row]:
                goal = drawn.observations["desired_goal"][row, at].numpy()
                self.goal_of(start, goal)
            steps = twin.sequence(start, length, cross_episodes, align)
            firsts.append(steps[0])
            real = slice(len(steps)) if align == "start" else slice(length - len(steps), length)
            mask[row, real] = True
            is_first[row, real] = [step.number == step.since for step in steps]
            is_burn_in[row, :burn_in] = mask[row, :burn_in]
            expected += [
                twin.row(step, config.n_steps, config.gamma, config.goals, goal, reward_of(env)) for step in steps
            ]
        same_tree(batch.mask, mask, "mask")
        same_tree(batch.is_first, is_first, "is_first")
        same_tree(batch.burn_in, is_burn_in, "burn_in")
        assert batch.handles.tolist() == handles
        self.same_rows(Flat(batch, batch.mask), expected, env, states)
        for name in ("observations", "next_observations", "actions", "dones", "rewards", "discounts"):
            if getattr(batch, name) is not None:
                padded = tree_map(lambda leaf: leaf[~batch.mask], getattr(batch, name))
                same_tree(padded, zeros(tree_map(torch.Tensor.numpy, padded)), f"{name} of padding")
        if options.get("priorities") is not False:
            self.check_weights(batch, handles, legal)
        assert set(batch.states) == set(states)
        for name in states:  # of the first step, and no longer among the extras of every step
            same_tree(batch.states[name], np.stack([step.extras[name] for step in firsts]), "states")
        return batch

    def check_episodes(self) -> None:
        """Every held episode, whole ones and pieces."""
        for whole in (True, False):
            expected = self.twin.episodes(whole)
            got = list(self.buffer.episodes(whole=whole))
            assert [episode.handles.tolist() for episode in got] == [self.twin.handles(e) for e in expected]
            for episode, steps in zip(got, expected, strict=True):
                self.same_episode(episode, steps)
        whole_ones = {tuple(self.twin.handles(e)): e for e in self.twin.episodes(whole=True)}
        if not whole_ones:
            with pytest.raises(relive.errors.EmptyBufferError):
                self.buffer.sample_episodes(1)
            return
        drawn = self.buffer.sample_episodes(3)
        assert len(drawn) == 3
        for episode in drawn:
            self.same_episode(episode, whole_ones[tuple(episode.handles.tolist())])

    def same_episode(self, episode: Any, steps: Sequence[Step]) -> None:
        same_tree(episode.observations, stack([s.observation for s in steps]), "observations")
        same_tree(episode.next_observations, stack([s.successor for s in steps]), "next_observations")
        same_tree(episode.actions, np.stack([s.action for s in steps]), "actions")
        same_tree(episode.rewards, np.stack([s.reward for s in steps]), "rewards")
        assert np.asarray(episode.dones, float).tolist() == [s.done for s in steps]
        assert np.asarray(episode.timeouts, float).tolist() == [s.timeout for s in steps]
        for name in FIELDS if self.config.fields else ():
            same_tree(episode.extras[name], np.stack([s.extras[name] for s in steps]), name)
        assert episode.terminated == bool(steps[-1].terminated)
        assert episode.is_finished == steps[-1].ends
        assert episode.truncated == (steps[-1].ends and not steps[-1].terminated)


class Flat:
    """A batch of sequences as one of transitions: the steps under the mask, one after the other."""

    def __init__(self, batch: Any, mask: torch.Tensor) -> None:
        def flat(tree: Tree) -> Tree:
            return tree_map(lambda leaf: leaf[mask], tree)

        self.observations, self.next_observations = flat(batch.observations), flat(batch.next_observations)
        self.actions, self.dones, self.rewards = flat(batch.actions), flat(batch.dones), flat(batch.rewards)
        self.discounts = None if batch.discounts is None else flat(batch.discounts)
        self.extras = flat(batch.extras) if batch.extras else {}


class undone:  # noqa: N801
    """The observations of a batch as they were before `Normaliser` scaled them."""

    def __init__(self, batch: Any) -> None:
        self.observations = tree_map(lambda leaf: leaf * 4, batch.observations)


def reward_of(env: Any) -> Any:
    return None if env is None else env.normalize_reward


def same(one: Any, other: Any) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def same_tree(got: Any, expected: Tree, what: str) -> None:
    """Bit for bit, with shape and dtype."""
    if isinstance(expected, dict):
        assert set(got) == set(expected), what
        for key, part in expected.items():
            same_tree(got[key], part, f"{what} {key!r}")
        return
    array, expected = np.asarray(got), np.asarray(expected)
    assert array.shape == expected.shape, f"{what}: {array.shape} instead of {expected.shape}"
    assert array.dtype == expected.dtype, f"{what}: {array.dtype} instead of {expected.dtype}"
    assert array.tobytes() == expected.tobytes(), f"{what}: {array.tolist()} instead of {expected.tolist()}"
