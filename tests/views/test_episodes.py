"""Whole episodes and held pieces against the twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import relive
from tests.views.configs import LIVES, plain
from tests.views.life import Life
from tests.views.worlds import Config


@given(config=plain(), seeds=LIVES)
def test_every_episode_is_given_back(config: Config, seeds: list[int]) -> None:
    life = Life(config)
    for seed in seeds:
        life.happen(seed)
        life.check_episodes()


def test_an_empty_buffer_has_no_episodes() -> None:
    life = Life(Config())
    assert list(life.buffer.episodes()) == []
    assert list(life.buffer.episodes(whole=False)) == []
    with pytest.raises(relive.errors.EmptyBufferError):
        life.buffer.sample_episodes(1)


def test_an_episode_is_a_copy() -> None:
    life = Life(Config(rows=4))
    rng = np.random.default_rng(0)
    life.add(rng, ends=0.0)
    life.add(rng, ends=1.0)
    for episode in life.buffer.episodes():
        for array in (episode.observations, episode.next_observations, episode.actions, episode.rewards):
            array[...] = 0
    life.check_episodes()


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"terminated": [True]}, (True, False, True)),
        ({"truncated": [True]}, (False, True, True)),
        ({"terminated": [True], "truncated": [True]}, (True, False, True)),
        ({"terminated": [False]}, (False, False, False)),
    ],
    ids=["terminated", "truncated", "both: termination wins", "open"],
)
def test_an_episode_says_how_it_ended(ends: dict[str, Any], words: tuple[bool, bool, bool]) -> None:
    buffer = Life(Config(rows=4)).buffer
    obs = np.zeros((1, 3), np.float32)
    buffer.add(obs, obs, [0], [1.0], **ends)
    (episode,) = buffer.episodes(whole=False)
    assert (episode.terminated, episode.truncated, episode.is_finished) == words


def test_an_interrupted_episode_is_finished_and_not_terminated() -> None:
    buffer = Life(Config(rows=4)).buffer
    obs = np.zeros((1, 3), np.float32)
    buffer.add(obs, obs, [0], [1.0], [False])
    buffer.interrupt()
    (episode,) = buffer.episodes()
    assert (episode.terminated, episode.is_finished) == (False, True)
