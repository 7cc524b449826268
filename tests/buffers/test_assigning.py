"""Options that are assigned later: each counts from the next draw on, or is refused (SB3 1889; rainbow PR 66)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st

import relive
from relive.errors import PriorityError, ReadOnlyError

BOX, DISCRETE = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)
GOALS = spaces.Dict({"observation": BOX, "achieved_goal": BOX, "desired_goal": BOX})
COPIES = [lambda b: b, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    return (achieved + desired)[:, 0]


def other_reward(achieved: Any, desired: Any, info: Any) -> Any:
    return (achieved - desired)[:, 0]


def is_even(achieved: Any, desired: Any, info: Any) -> Any:
    return achieved[:, 0] % 2 == 0


def filled(steps: int = 14, kind: type = relive.ReplayBuffer, **options: Any) -> Any:
    buffer = kind(12, GOALS if "hindsight" in options else BOX, DISCRETE, device="cpu", **{"seed": 0, **options})
    for t in range(steps):
        add(buffer, t)
    return buffer


def add(buffer: Any, t: int) -> None:
    obs: Any = np.array([[t]], np.float32)
    ends = {"terminated": [t == 4], "truncated": [t == 9]}
    if isinstance(buffer.observation_space, spaces.Dict):
        first, second = ({"observation": o, "achieved_goal": o, "desired_goal": 0 * o} for o in (obs, obs + 1))
        buffer.add(first, second, [0], [float(t)], **ends)
    else:
        buffer.add(obs, obs + 1, [0], [float(t)], **ends)


def numbers(batch: Any) -> list[Any]:
    """All that a batch says, as arrays."""
    parts = (*batch, getattr(batch, "weights", None), getattr(batch, "handles", None))
    leaves = [leaf for part in parts for leaf in (part.values() if isinstance(part, dict) else [part])]
    return [None if leaf is None else np.asarray(leaf) for leaf in leaves]


def same(one: Any, other: Any) -> None:
    for mine, its in zip(numbers(one), numbers(other), strict=True):
        assert (mine is None) == (its is None)
        if mine is not None:
            np.testing.assert_allclose(mine, its, rtol=1e-6, atol=0)


def every_draw(buffer: Any) -> list[Any]:
    draws = [buffer.sample(9), buffer.transitions(buffer.handles()), buffer.sample_sequences(5, 3)]
    with buffer.stream(4) as batches:
        draws.append(next(batches))
    return draws


# Returns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", COPIES, ids=["itself", "deepcopy", "pickle"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": relive.Prioritized()},
        {"sampler": relive.RankPrioritized()},
        {"fields": None, "reward_shape": ()},
        {"max_times_sampled": 1000},
        {"hindsight": relive.Hindsight(reward, compute_terminated=is_even, running=True)},
    ],
    ids=["plain", "prioritized", "rank", "plainer", "at most", "hindsight"],
)
def test_gamma_and_n_steps_take_effect_at_the_next_draw(options: dict[str, Any], way: Any) -> None:
    """SB3 1889: gamma was assigned after the first draw, and the attribute alone changed."""
    buffer = filled(n_steps=3, gamma=0.5, **copy.deepcopy(options))
    every_draw(buffer)
    for n_steps, gamma in [(3, 0.25), (2, 0.25), (1, 0.25), (4, 1.0)]:
        buffer.n_steps, buffer.gamma = n_steps, gamma
        buffer = way(buffer)
        assert (buffer.n_steps, buffer.gamma) == (n_steps, gamma)
        expected = filled(n_steps=n_steps, gamma=gamma, **copy.deepcopy(options))
        buffer.seed, expected.seed = 5, 5
        for one, other in zip(every_draw(buffer), every_draw(expected), strict=True):
            same(one, other)


@pytest.mark.parametrize("kind", [relive.ReplayBuffer, relive.DictReplayBuffer])
def test_n_steps_may_come_after_the_first_draw_of_a_buffer_without_options(kind: type) -> None:
    buffer = filled(kind=kind, **({"hindsight": None} if kind is relive.DictReplayBuffer else {}))
    assert buffer.sample(3).discounts is None
    buffer.n_steps = 2
    assert buffer.transitions([2]).discounts.item() == np.float32(0.99**2)
    assert buffer.sample(3).discounts is not None
    buffer.n_steps = 1
    assert buffer.sample(3).discounts is None


def test_epochs_go_on_with_other_returns() -> None:
    buffer = filled(sampler=relive.Uniform(replacement=False), n_steps=2)
    seen = []
    for i, batch in enumerate(buffer.epoch(5)):
        buffer.n_steps = 3 + i
        seen += batch.observations.flatten().tolist() if not isinstance(batch.observations, dict) else []
        assert batch.discounts.min() >= np.float32(0.99 ** (2 if i == 0 else 2 + i)) - 1e-6
    assert sorted(seen) == list(range(2, 14))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("n_steps", 0, ValueError),
        ("n_steps", 1.5, TypeError),
        ("gamma", 1.5, ValueError),
        ("gamma", np.nan, ValueError),
    ],
)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_what_the_constructor_refuses_cannot_be_assigned(name: str, value: Any, error: type, n_steps: int) -> None:
    buffer = filled(n_steps=n_steps, gamma=0.5)
    before = buffer.transitions([3])
    with pytest.raises(error):
        setattr(buffer, name, value)
    assert (buffer.n_steps, buffer.gamma) == (n_steps, 0.5)
    same(buffer.transitions([3]), before)


# Samplers -----------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "alpha": st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0]),
    "eps": st.sampled_from([0.0, 1e-6, 0.5]),
    "initial": st.sampled_from(["max", 2.5, 0.0]),
    "max_over": st.sampled_from(["held", "ever"]),
    "weights_over": st.sampled_from(["batch", "buffer"]),
    "beta": st.sampled_from([0.0, 0.4, 1.0]),
}
ASSIGNMENTS = st.one_of(*[st.tuples(st.just(name), values) for name, values in VALUES.items()])
HAPPENINGS = st.lists(
    ASSIGNMENTS
    | st.tuples(st.just("update"), st.integers(0, 99))
    | st.tuples(st.just("add"), st.integers(1, 9))
    | st.tuples(st.just("draw"), st.integers(1, 5))
    | st.tuples(st.just("copy"), st.booleans()),
    max_size=12,
)


@given(happenings=HAPPENINGS, start=st.fixed_dictionaries(VALUES), most=st.sampled_from([None, 1000]))
@example([("alpha", 0.0), ("update", 3), ("add", 2), ("alpha", 1.0)], {}, None)
@example([("update", 3), ("weights_over", "buffer"), ("alpha", 2.0), ("max_over", "ever"), ("add", 20)], {}, None)
def test_a_buffer_whose_sampler_was_assigned_draws_as_one_that_was_made_so(
    happenings: list[tuple[str, Any]], start: dict[str, Any], most: int | None
) -> None:
    """The priorities are those of a plain twin, and draws those of a buffer that had the options from the start."""
    buffer = filled(0, sampler=relive.Prioritized(**start), max_times_sampled=most)
    given: dict[int, float] = {}
    ever = -1.0
    t = 0
    for name, value in [*happenings, ("add", 3)]:
        sampler = buffer.sampler
        if name == "add":
            for _ in range(value):
                add(buffer, t)
                t += 1
                held = buffer.handles().tolist()
                given = {handle: p for handle, p in given.items() if handle in held}
                first = max(given.values(), default=-1.0) if sampler.max_over == "held" else ever
                if first < 0 or (first + sampler.eps) ** sampler.alpha == 0:
                    first = 1.0
                given[held[-1]] = first if sampler.initial == "max" else float(sampler.initial)
                ever = max(ever, given[held[-1]])
        elif name == "update" and given:
            rng = np.random.default_rng(value)
            handles, priorities = rng.choice(list(given), 5), rng.integers(0, 5, 5) / 2
            buffer.update_priorities(handles, priorities)
            given.update(zip(handles.tolist(), priorities.tolist(), strict=True))
            ever = max(ever, float(priorities.max()))
        elif name == "draw" and given:
            buffer.sample(value)
        elif name == "copy":
            buffer = copy.deepcopy(buffer) if value else pickle.loads(pickle.dumps(buffer))
        elif name in VALUES:
            setattr(sampler, name, value)
            assert getattr(sampler, name) == value
    sampler = buffer.sampler
    masses = [(given[handle] + sampler.eps) ** sampler.alpha for handle in buffer.handles()]
    np.testing.assert_allclose(buffer.priorities(buffer.handles()), masses, rtol=1e-9, atol=1e-12)
    options = {name: getattr(sampler, name) for name in VALUES}
    expected = filled(0, sampler=relive.Prioritized(**options), max_times_sampled=most)
    for number in range(t):
        add(expected, number)
    expected.update_priorities(list(given), list(given.values()))
    buffer.seed, expected.seed = 7, 7
    same(buffer.sample(20), expected.sample(20))
    same(buffer.sample_sequences(6, 2), expected.sample_sequences(6, 2))


def test_alpha_can_be_annealed_and_nothing_is_lost_at_zero() -> None:
    """ray PR 43258, pytorch/rl PR 2452: alpha goes to its end in many small steps."""
    buffer = filled(sampler=relive.Prioritized(alpha=0.6, eps=0.0))
    priorities = np.linspace(0.1, 3, 12)
    buffer.update_priorities(buffer.handles(), priorities)
    for alpha in [*np.linspace(0.6, 0.0, 50), *np.linspace(0.0, 1.0, 50)]:
        buffer.sampler.alpha = alpha
        np.testing.assert_allclose(buffer.priorities(buffer.handles()), priorities**alpha, rtol=1e-9)
        buffer.sample(4)


def test_a_buffer_that_began_at_zero_knows_its_priorities() -> None:
    buffer = filled(sampler=relive.Prioritized(alpha=0.0, eps=0.0))
    buffer.update_priorities(buffer.handles(), np.arange(12.0))
    add(buffer, 14)
    assert buffer.priorities(buffer.handles()).tolist() == [1.0] * 12
    buffer = pickle.loads(pickle.dumps(buffer))
    buffer.sampler.alpha = 1.0
    assert buffer.priorities(buffer.handles()).tolist() == [*range(1, 12), 11]


def test_alpha_of_ranks_takes_effect_at_the_next_draw() -> None:
    buffer = filled(sampler=relive.RankPrioritized(alpha=0.0))
    buffer.update_priorities(buffer.handles(), np.arange(12.0))
    assert len(set(buffer.sample(200).handles.tolist())) == 12
    buffer.sampler.alpha = 50.0
    assert set(buffer.sample(200).handles.tolist()) == {13}


def test_a_sampler_of_two_buffers_is_followed_by_both_or_by_none() -> None:
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    one, other = filled(sampler=sampler), filled(sampler=sampler)
    one.update_priorities([2], [4.0])
    other.update_priorities([2], [1e200])
    with pytest.raises(PriorityError, match="too large for alpha=2"):
        sampler.alpha = 2.0
    assert sampler.alpha == 1.0
    assert (one.priorities([2]).item(), other.priorities([2]).item()) == (4.0, 1e200)
    sampler.alpha = 0.5
    assert (one.priorities([2]).item(), other.priorities([2]).item()) == (2.0, 1e100)
    with pytest.raises(ValueError, match="alpha is -1"):
        sampler.alpha = -1
    assert sampler.alpha == 0.5


def test_a_copied_sampler_is_followed_by_the_copied_buffer_alone() -> None:
    buffer = filled(sampler=relive.Prioritized(alpha=1.0, eps=0.0))
    buffer.update_priorities([2], [4.0])
    for way in COPIES[1:]:
        twin = way(buffer)
        twin.sampler.alpha = 0.5
        assert (buffer.priorities([2]).item(), twin.priorities([2]).item()) == (4.0, 2.0)


# Hindsight ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compute_reward", other_reward),
        ("compute_terminated", is_even),
        ("n_sampled_goal", 1),
        ("strategy", "random"),
        ("running", True),
    ],
)
def test_options_of_hindsight_take_effect_at_the_next_draw(name: str, value: Any, n_steps: int) -> None:
    buffer = filled(hindsight=relive.Hindsight(reward), n_steps=n_steps)
    buffer.sample(5)
    setattr(buffer.hindsight, name, value)
    expected = filled(hindsight=relive.Hindsight(**{"compute_reward": reward, name: value}), n_steps=n_steps)
    buffer.seed, expected.seed = 3, 3
    same(buffer.sample(20), expected.sample(20))
    same(buffer.sample_sequences(6, 2), expected.sample_sequences(6, 2))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("compute_reward", None, TypeError),
        ("strategy", "past", ValueError),
        ("n_sampled_goal", 0, ValueError),
        ("copy_info", ("w",), ReadOnlyError),
        ("goal_keys", ("a", "b"), ReadOnlyError),
    ],
)
def test_what_hindsight_refuses_cannot_be_assigned(name: str, value: Any, error: type) -> None:
    hindsight = relive.Hindsight(reward)
    before = getattr(hindsight, name)
    with pytest.raises(error, match=name):
        setattr(hindsight, name, value)
    assert getattr(hindsight, name) == before


# What is fixed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampler", relive.Prioritized()),
        ("hindsight", relive.Hindsight(reward)),
        ("max_times_sampled", 3),
        ("reward_shape", (2,)),
        ("buffer_size", 24),
        ("n_envs", 2),
        ("observation_space", spaces.Box(0, 1, (2,))),
        ("action_space", spaces.Discrete(3)),
        ("obs_shape", (3,)),
        ("action_dim", 2),
    ],
)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_what_cannot_be_changed_any_more_is_refused_with_the_reason(name: str, value: Any, n_steps: int) -> None:
    buffer = filled(n_steps=n_steps)
    before = getattr(buffer, name)
    with pytest.raises(ReadOnlyError, match=f"{name} of a ReplayBuffer is .* cannot be assigned: .*") as error:
        setattr(buffer, name, value)
    assert isinstance(error.value, AttributeError)
    assert getattr(buffer, name) == before
    setattr(buffer, name, before)  # what it is may be said again


def test_validate_is_checked_and_takes_effect_at_the_next_add() -> None:
    buffer = filled()
    with pytest.raises(ValueError, match="validate is 'loose'"):
        buffer.validate = "loose"
    with pytest.raises(ValueError, match="NaN"):
        buffer.add([[1.0]], [[2.0]], [0], [np.nan], [False])
    buffer.validate = "seed"
    buffer.add([[1.0]], [[2.0]], [0], [np.nan], [False])
    buffer.validate = "strict"
    with pytest.raises(ValueError, match="NaN"):
        buffer.add([[1.0]], [[2.0]], [0], [np.nan], [False])


def test_time_limits_are_handled_as_the_attribute_says() -> None:
    buffer = filled(0)
    for handled in (True, False, True):
        buffer.handle_timeout_termination = handled
        buffer.add([[1.0]], [[2.0]], [0], [0.0], [True], [{"TimeLimit.truncated": True}])
    assert buffer.transitions(buffer.handles()).dones.flatten().tolist() == [0, 1, 0]


def test_a_seed_begins_a_stream_of_its_own() -> None:
    buffer = filled(seed=None)
    buffer.seed = 3
    assert buffer.sample(9).rewards.tolist() == filled(seed=3).sample(9).rewards.tolist()


def test_a_reservoir_refuses_what_needs_neighbours_and_what_says_how_memory_lies() -> None:
    reservoir = filled(kind=relive.Reservoir)
    for name, value in [("n_steps", 3), ("hindsight", relive.Hindsight(reward)), ("buffer_size", 99), ("n_envs", 2)]:
        with pytest.raises(ReadOnlyError, match=f"{name} of a Reservoir"):
            setattr(reservoir, name, value)
    reservoir.n_steps = 1
    assert len(pickle.loads(pickle.dumps(reservoir))) == len(copy.deepcopy(reservoir)) == 12


def test_a_subclass_that_draws_in_its_own_way_has_names_of_its_own() -> None:
    """As NStepReplayBuffer of Stable-Baselines3, which sums up itself."""

    class Own(relive.ReplayBuffer):
        def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **options: Any) -> None:
            super().__init__(*args, **options)
            self.n_steps, self.gamma, self.sampler = n_steps, gamma, "mine"  # type: ignore[assignment]

        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            return super()._get_samples(batch_inds, env)

    buffer = filled(kind=Own)
    assert (buffer.n_steps, buffer.sampler) == (3, "mine")
    assert buffer.sample(3).discounts is None
