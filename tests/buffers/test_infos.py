"""What infos say about a step, in every form in which environments give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive import errors
from tests.cases.goals import SPACE

Info = dict[str, Any]
NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)


@dataclass
class Said:
    """The infos of one step of one environment: that of the step, and where it was reset within it the one of that."""

    step: Info
    reset: Info | None = None


# The twin: what is kept is what the step's own info says.


def expected(steps: Sequence[Said], key: str, nothing: float) -> list[float]:
    return [float(said.step.get(key, nothing)) for said in steps]


# The forms. Arrays are made as Gymnasium's vector environments make them.


def in_arrays(infos: Sequence[Info]) -> Info:
    vector = gymnasium.vector.VectorEnv()
    vector.num_envs = len(infos)
    out: Info = {}
    for lane, info in enumerate(infos):
        out = vector._add_info(out, info, lane)
    return out


def beside(said: Said) -> Info:
    return said.step if said.reset is None else said.reset


def list_of_dicts(steps: Sequence[Said]) -> Any:
    return [beside(said) if said.reset is None else said.reset | {"final_info": said.step} for said in steps]


def dict_of_arrays(steps: Sequence[Said]) -> Any:
    return in_arrays(list_of_dicts(steps))


def array_of_dicts(steps: Sequence[Said]) -> Any:
    """Gymnasium 0.29."""
    infos = in_arrays([beside(said) for said in steps])
    if any(said.reset is not None for said in steps):
        infos["final_info"] = np.array([None if said.reset is None else said.step for said in steps], dtype=object)
        infos["_final_info"] = np.array([said.reset is not None for said in steps])
    return infos


FORMS: dict[str, Callable[[Sequence[Said]], Any]] = {
    "list of dicts": list_of_dicts,
    "dict of arrays": dict_of_arrays,
    "dict of arrays with an array of dicts": array_of_dicts,
}

infos_of_a_step = st.fixed_dictionaries(
    {}, optional={"w": st.integers(0, 9).map(float), "TimeLimit.truncated": st.booleans(), "other": st.just("text")}
)
infos_of_a_reset = st.fixed_dictionaries({}, optional={"w": st.integers(90, 99).map(float), "new": st.just(1.0)})
many_said = st.lists(st.builds(Said, infos_of_a_step, st.none() | infos_of_a_reset), min_size=1, max_size=4)


def buffer_of(n_envs: int, **options: Any) -> relive.ReplayBuffer:
    hindsight = relive.Hindsight(lambda a, d, info: info["w"], copy_info=("w",))
    return relive.ReplayBuffer(
        8 * n_envs, SPACE, spaces.Discrete(2), device="cpu", n_envs=n_envs, hindsight=hindsight, seed=0, **options
    )


def step_of(n_envs: int) -> tuple[Any, ...]:
    obs = {key: np.zeros((n_envs, 1), np.float32) for key in SPACE.spaces}
    return obs, obs, np.zeros(n_envs, np.int64), np.zeros(n_envs, np.float32)


def assert_kept(buffer: relive.ReplayBuffer, row: int, said: Sequence[Said]) -> None:
    kept = [
        float(buffer.transitions(buffer.handles()).extras["w"].reshape(buffer.n_envs, -1)[i, row])
        for i in range(len(said))
    ]
    np.testing.assert_array_equal(kept, expected(said, "w", np.nan))
    assert buffer.timeouts[row].tolist() == expected(said, "TimeLimit.truncated", 0.0)


@pytest.mark.parametrize("form", FORMS)
@given(many_said)
def test_an_add_keeps_what_the_info_of_the_step_says(form: str, said: list[Said]) -> None:
    buffer = buffer_of(len(said))
    buffer.add(*step_of(len(said)), np.ones(len(said), bool), FORMS[form](said))
    assert_kept(buffer, 0, said)


@pytest.mark.parametrize("form", FORMS)
@given(many_said, st.data())
def test_an_extend_keeps_what_each_add_would(form: str, said: list[Said], data: st.DataObject) -> None:
    n_envs = len(said)
    other = data.draw(
        st.lists(st.builds(Said, infos_of_a_step, st.none() | infos_of_a_reset), min_size=n_envs, max_size=n_envs)
    )
    buffer, zero = buffer_of(n_envs), step_of(n_envs)
    obs = {key: np.stack([part, part]) for key, part in zero[0].items()}
    rest = [np.stack([part, part]) for part in zero[2:]]
    buffer.extend(obs, obs, *rest, np.ones((2, n_envs), bool), [FORMS[form](said), FORMS[form](other)])
    assert_kept(buffer, 0, said)
    assert_kept(buffer, 1, other)


def test_an_extend_takes_a_dict_of_arrays_over_steps() -> None:
    infos = {
        "w": np.array([[1.0, 2.0], [90.0, 4.0]]),
        "TimeLimit.truncated": np.array([[True, False], [False, False]]),
        "final_info": {"w": np.array([[0.0, 0.0], [3.0, 0.0]]), "_w": np.array([[False, False], [True, False]])},
        "_final_info": np.array([[False, False], [True, False]]),
    }
    buffer, (obs, _, action, reward) = buffer_of(2), step_of(2)
    obs = {key: np.stack([part, part]) for key, part in obs.items()}
    buffer.extend(obs, obs, np.stack([action] * 2), np.stack([reward] * 2), np.ones((2, 2), bool), infos)
    assert_kept(buffer, 0, [Said({"w": 1.0, "TimeLimit.truncated": True}), Said({"w": 2.0})])
    assert_kept(buffer, 1, [Said({"w": 3.0}), Said({"w": 4.0})])
    one = {key: part[:1] for key, part in obs.items()}
    with pytest.raises(errors.ShapeError, match=r"infos\['w'\] has 2 entries, expected 1: one per step"):
        buffer.extend(one, one, action[None], reward[None], np.ones((1, 2), bool), infos)


@pytest.mark.parametrize("kind", [relive.ReplayBuffer, relive.Reservoir])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_time_limit_in_final_info_is_no_termination(kind: Any, form: str, n_envs: int) -> None:
    """Without options too, where the core reads infos by itself."""
    said = [Said({"TimeLimit.truncated": True}, {"w": 1.0}), Said({"TimeLimit.truncated": False}, {"w": 2.0})][:n_envs]
    buffer = kind(8, NUMBER, spaces.Discrete(2), device="cpu", n_envs=n_envs, seed=0)
    obs = np.arange(n_envs, dtype=np.float32)[:, None]
    buffer.add(obs, obs, np.zeros(n_envs, int), np.zeros(n_envs), np.ones(n_envs, bool), FORMS[form](said))
    many = [part[None] for part in (obs, obs, np.zeros(n_envs, int), np.zeros(n_envs), np.ones(n_envs, bool))]
    buffer.extend(*many, [FORMS[form](said)])
    batch = buffer.sample(50)
    assert {*zip(batch.observations.flatten().tolist(), batch.dones.flatten().tolist(), strict=True)} == {
        (0.0, 0.0),
        (1.0, 1.0),
    } - (set() if n_envs == 2 else {(1.0, 1.0)})


def test_a_lone_dict_may_hold_the_info_of_the_step() -> None:
    buffer = buffer_of(1)
    buffer.add(*step_of(1), True, {"w": 90.0, "final_info": {"w": 3.0, "TimeLimit.truncated": True}})
    assert_kept(buffer, 0, [Said({"w": 3.0, "TimeLimit.truncated": True})])


def test_stable_baselines3_writes_the_time_limit_beside_the_info_of_the_step() -> None:
    """There an environment that resets itself is one like any other, and its last info stays what it is."""
    said = {"w": 90.0, "TimeLimit.truncated": True, "final_info": {"w": 3.0}}
    buffer = buffer_of(1)
    buffer.add(*step_of(1), [True], [said])
    buffer.add(*step_of(1), [True], [{"w": 4.0, "terminal_observation": np.zeros(1), "TimeLimit.truncated": True}])
    assert buffer.timeouts[:2].flatten().tolist() == [1, 1]
    assert buffer.transitions(buffer.handles()).extras["w"].flatten().tolist() == [3, 4]


def test_the_seeds_form_is_read_as_stable_baselines3_reads_it() -> None:
    buffer = relive.ReplayBuffer(8, NUMBER, spaces.Discrete(2), device="cpu", validate="seed")
    step = (np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32), [0], [0.0], [True])
    buffer.add(*step, [{"TimeLimit.truncated": False, "final_info": {"TimeLimit.truncated": True}}])
    buffer.add(*step, [{"TimeLimit.truncated": True, "final_info": {"TimeLimit.truncated": False}}])
    assert buffer.timeouts[:2].flatten().tolist() == [0, 1]


class Counter(gymnasium.Env):
    """Counts; each episode has ``length`` steps, and each info the number of its episode and step."""

    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length, self.episode, self.t = length, 0, 0

    def _obs(self) -> dict[str, Any]:
        return {key: np.full(1, self.t, np.float32) for key in SPACE.spaces}

    def _info(self) -> Info:
        return {"w": 100.0 * self.episode + self.t, "TimeLimit.truncated": self.t == self.length}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Info]:
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), self._info()

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), 0.0, False, self.t == self.length, self._info()


@pytest.mark.parametrize("lengths", [(2, 3), (1,), (3,)], ids=str)
@pytest.mark.parametrize("words", ["done", "terminated"])
def test_rewards_of_hindsight_are_those_of_the_steps_own_infos(lengths: tuple[int, ...], words: str) -> None:
    """Gymnasium PR 3111: a vector environment that resets within the last step of an episode."""
    n_envs = len(lengths)
    vector = SyncVectorEnv([lambda n=n: Counter(n) for n in lengths], autoreset_mode=AutoresetMode.SAME_STEP)
    buffer = buffer_of(n_envs)
    obs, _ = vector.reset()
    obs = {key: part.copy() for key, part in obs.items()}
    for _ in range(6):
        following, rewards, terminated, truncated, infos = vector.step(np.zeros(n_envs, int))
        following = {key: part.copy() for key, part in following.items()}
        last = {key: part.copy() for key, part in following.items()}
        for lane in np.flatnonzero(truncated):
            for key in last:
                last[key][lane] = infos["final_obs"][lane][key]
        actions = np.zeros(n_envs, np.int64)
        if words == "done":
            buffer.add(obs, last, actions, rewards, terminated | truncated, infos)
        else:
            buffer.add(obs, last, actions, rewards, infos=infos, terminated=terminated, truncated=truncated)
        obs = following
    kept = buffer.transitions(buffer.handles()).extras["w"].reshape(n_envs, 6)
    for lane, length in enumerate(lengths):
        assert kept[lane].tolist() == [100.0 * (t // length + 1) + t % length + 1 for t in range(6)]
        assert buffer.timeouts[:6, lane].tolist() == [float((t + 1) % length == 0) for t in range(6)]
    batch = buffer.sample(40)
    assert (batch.rewards.flatten()[batch.relabelled] == batch.extras["w"].flatten()[batch.relabelled]).all()


def test_a_nan_of_compute_reward_says_which_info_was_missing() -> None:
    buffer = buffer_of(1)
    buffer.add(*step_of(1), [True], [{"other": 1}])
    with pytest.raises(errors.NaNRewardError, match=r"info has no 'w' for that step.*with every step"):
        buffer.sample(10)


def test_a_nan_of_compute_reward_that_has_all_infos_blames_none() -> None:
    hindsight = relive.Hindsight(lambda a, d, info: np.full(len(a), np.nan), copy_info=("w",))
    buffer = relive.ReplayBuffer(8, SPACE, spaces.Discrete(2), device="cpu", hindsight=hindsight)
    buffer.add(*step_of(1), [True], [{"w": 1}])
    with pytest.raises(errors.NaNRewardError, match=r"expected numbers$"):
        buffer.sample(10)


BAD_INFOS: dict[str, tuple[Any, str]] = {
    "another number of dicts": ([{}], r"infos has 1 entries, expected 2"),
    "no dicts": ([{}, None], r"infos has a NoneType for environment 1, expected a dict"),
    "a string": ("ab", r"infos is a str, expected 2 dicts"),
    "a number": (3, r"infos is a int"),
    "a column of another length": ({"w": np.zeros(3)}, r"infos\['w'\] has 3 entries, expected 2"),
    "a mask of another length": ({"w": np.zeros(2), "_w": np.ones(3, bool)}, r"infos\['_w'\] has shape \(3,\)"),
    "a column of strings": ({"w": np.array(["a", "b"])}, r"info\['w'\] is .*'a'.*, expected numbers"),
    "a column that is a dict": ({"w": {}}, r"infos\['w'\] is a dict"),
    "final infos without a mask": ({"final_info": {"w": np.zeros(2)}}, r"'final_info' without '_final_info'"),
    "final infos of another length": ({"final_info": [None]}, r"infos\['final_info'\] has 1 entries"),
}


@pytest.mark.parametrize("many", [False, True], ids=["add", "extend"])
@pytest.mark.parametrize("case", BAD_INFOS)
def test_infos_that_do_not_fit_are_refused(case: str, many: bool) -> None:
    infos, message = BAD_INFOS[case]
    buffer, (obs, _, action, reward) = buffer_of(2), step_of(2)
    step = (obs, obs, action, reward, np.ones(2, bool), infos)
    if many:
        obs = {key: part[None] for key, part in obs.items()}
        step = (obs, obs, action[None], reward[None], np.ones((1, 2), bool), [infos])
    with pytest.raises((errors.ShapeError, errors.CastError), match=message):
        (buffer.extend if many else buffer.add)(*step)
    assert len(buffer) == 0


@pytest.mark.parametrize("kind", [relive.ReplayBuffer, relive.Reservoir])
@pytest.mark.parametrize("validate", ["strict", "seed"])
@pytest.mark.parametrize(
    "nothing", [None, {"TimeLimit.truncated": "?"}, {"final_info": {"TimeLimit.truncated": "?"}}], ids=str
)
def test_nobody_looks_at_the_infos_of_environments_that_sit_out(kind: Any, validate: Any, nothing: Any) -> None:
    buffer = kind(8, NUMBER, spaces.Discrete(2), device="cpu", n_envs=2, seed=0, validate=validate)
    obs, mask = np.zeros((2, 1), np.float32), np.array([False, True])
    buffer.add(obs, obs, [0, 0], [0.0, 1.0], [False, True], [nothing, {"TimeLimit.truncated": True}], mask=mask)
    batch = buffer.sample(4)
    assert (batch.rewards.unique().tolist(), batch.dones.unique().tolist()) == ([1.0], [0.0])


def test_nobody_looks_at_the_copied_infos_of_environments_that_sit_out() -> None:
    obs, _, action, reward = step_of(2)
    for infos in ([{"w": "?"}, {"w": 5.0}], [None, {"w": 5.0}], {"w": np.array(["?", 5.0], dtype=object)}):
        buffer = buffer_of(2)
        buffer.add(obs, obs, action, reward, np.ones(2, bool), infos, mask=np.array([False, True]))
        assert buffer.transitions(buffer.handles()).extras["w"].tolist() == [5.0]
