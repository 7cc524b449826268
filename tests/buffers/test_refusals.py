"""What does not fit is refused by the name of its argument, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import relive
from relive import errors
from tests.cases.goals import SPACE as GOALS

OBSERVATION = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2,), np.uint8),
        "t": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32))),
    }
)
ACTION = spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)})
OBS = {"camera": np.full((2, 2), 7, np.uint8), "t": (np.ones(2, np.int64), np.full((2, 1), 0.5, np.float32))}
ACT = {"arm": np.full((2, 2), 0.5, np.float32), "grip": np.ones(2, np.int64)}
STEP: dict[str, Any] = {
    "obs": OBS,
    "next_obs": OBS,
    "action": ACT,
    "reward": np.array([1.0, 2.0]),
    "done": np.array([False, True]),
    "infos": [{"w": 1.0}, {"w": 2.0}],
    "extras": {"v": np.array([3.0, 4.0], np.float32)},
}
RAGGED = [[1.0], [1.0, 2.0]]


def over_steps(value: Any) -> Any:
    """What `extend` takes for one step."""
    if isinstance(value, dict):
        return {key: over_steps(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(over_steps(part) for part in value)
    return value[None] if isinstance(value, np.ndarray) else [value] if isinstance(value, list) else value


# Bad values: of anything, of what is nested, and where the name of a leaf belongs to the message.
ANYTHING: dict[str, Any] = {
    "None": None,
    "a string": "text",
    "ragged": RAGGED,
    "an object": object(),
    "another length": np.zeros(5),
    "a dict": {"x": np.zeros(2)},
    "strings": np.array(["a", "b"]),
}


def of_observations(good: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {
        "a leaf is None": (good | {"camera": None}, "/camera is None"),
        "a leaf is a dict": (good | {"camera": {"x": 1}}, "/camera is {'x': 1}"),
        "a leaf has another shape": (
            good | {"camera": good["camera"][..., :1]},
            r"/camera has shape \(.*2, 1\), expected \(.*2, 2\)",
        ),
        "a leaf is out of range": (
            good | {"camera": np.full_like(good["camera"], -1, np.int64)},
            "/camera has the value -1",
        ),
        "a leaf is ragged": (
            good | {"camera": RAGGED if good["camera"].ndim == 2 else [RAGGED]},
            "/camera cannot be made an array",
        ),
        "a key is missing": ({"camera": good["camera"]}, r" lacks \['t'\], expected a dict with exactly the keys"),
        "a key too many": (good | {"z": 1}, r" has \['z'\], expected a dict with exactly the keys \['camera', 't'\]"),
        "a part is missing": (good | {"t": good["t"][:1]}, "/t has 1 parts, expected a tuple of 2"),
        "a part too many": (good | {"t": (*good["t"], 0)}, "/t has 3 parts, expected a tuple of 2"),
        "a number for a tuple": (good | {"t": 1.0}, "/t is of type float, expected a tuple of 2"),
        "a leaf of a tuple": (good | {"t": (good["t"][0], None)}, "/t/1 is None"),
        "a tuple": (tuple(good.values()), " is of type tuple, expected a dict with the keys"),
    }


def of_actions(good: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {
        "a leaf is None": (good | {"arm": None}, "/arm is None"),
        "a fraction": (good | {"grip": np.full(good["grip"].shape, 0.5)}, "/grip has the value 0.5"),
        "a key is missing": ({"arm": good["arm"]}, r" lacks \['grip'\]"),
        "a key too many": (good | {"z": 1}, r" has \['z'\], expected"),
    }


def of_extras(good: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {
        "a leaf is None": ({"v": None}, "/v is None"),
        "a leaf has another shape": ({"v": np.zeros((5, 5))}, r"/v has shape \(5, 5\)"),
        "a leaf of strings": ({"v": np.full(good["v"].shape, "a")}, "/v has dtype"),
        "another name": ({"x": good["v"]}, r" has .*\['x'\], expected"),
        "none": ({}, r" has .*\[\], expected"),
    }


def bad_steps(step: dict[str, Any]) -> Iterator[tuple[str, str, Any, str]]:
    """(argument, what is wrong, value, what follows the argument's name)."""
    nested = {"obs": of_observations, "next_obs": of_observations, "action": of_actions, "extras": of_extras}
    for argument, good in step.items():
        for case, value in ANYTHING.items():
            is_default = value is None and argument in ("done", "infos", "extras")
            is_no_timeout = argument == "infos" and case == "a dict"  # a dict of arrays without the key
            if not is_default and not is_no_timeout:
                yield argument, case, value, ""
        for case, (value, message) in nested[argument](good).items() if argument in nested else ():
            yield argument, case, value, message


Filled = Callable[[], Any]


def replay() -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(8, OBSERVATION, ACTION, device="cpu", n_envs=2, fields={"v": ((), np.float32)}, seed=0)
    buffer.add(**STEP)
    return buffer


def reservoir() -> relive.Reservoir:
    buffer = relive.Reservoir(8, OBSERVATION, ACTION, device="cpu", n_envs=2, fields={"v": ((), np.float32)}, seed=0)
    buffer.add(**STEP)
    return buffer


def leaves(tree: Any) -> Iterator[NDArray[Any]]:
    if isinstance(tree, dict | tuple):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(part)
    else:
        yield np.asarray(tree)


def dump(buffer: Any) -> list[bytes]:
    """Everything that a refused call might have changed, the generators' next draws included."""
    state = [
        repr(np.random.get_state()).encode(),
        str(buffer._stream.generator.bit_generator.state).encode(),
        str(len(buffer)).encode(),
    ]
    if isinstance(buffer, relive.Reservoir):
        return [*state, str(buffer.num_seen).encode(), *(column.tobytes() for column in buffer._columns)]
    names = ["observations", "next_observations", "actions", "rewards", "dones", "timeouts"]
    if isinstance(buffer, relive.RolloutBuffer):
        names = ["observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns"]
        state.append(str((buffer.pos, buffer.full)).encode())
    else:
        state += [
            buffer.handles().tobytes(),
            *(buffer._timeline.view(f.path).tobytes() for f in buffer._timeline.extra.leaves),
        ]
        state += [str([(len(e.rewards), e.interrupted) for e in buffer.episodes(whole=False)]).encode()]
        if not isinstance(buffer.sampler, relive.Uniform):
            state.append(buffer.priorities(buffer.handles()).tobytes())
    return [*state, *(array.tobytes() for name in names for array in leaves(getattr(buffer, name)))]


def assert_refused(buffer: Any, call: str, arguments: dict[str, Any], message: str, *kinds: type[Exception]) -> None:
    before = dump(buffer)
    with pytest.raises(kinds or (errors.ReliveError,), match=message) as caught:
        getattr(buffer, call)(**arguments)
    assert "expected" in str(caught.value) or "cannot be made" in str(caught.value)
    assert dump(buffer) == before


@pytest.mark.parametrize("filled", [replay, reservoir], ids=["ReplayBuffer", "Reservoir"])
@pytest.mark.parametrize("call", ["add", "extend"])
@pytest.mark.parametrize("argument", STEP)
def test_a_step_that_does_not_fit(filled: Filled, call: str, argument: str) -> None:
    step = STEP if call == "add" else over_steps(STEP)
    getattr(filled(), call)(**step)
    buffer = filled()
    for name, case, value, message in bad_steps(step):
        if name == argument:
            value = [value] if call == "extend" and argument == "infos" and not isinstance(value, str) else value
            try:
                assert_refused(
                    buffer, call, step | {argument: value}, f"^{argument}{message or ' |^' + argument + '/'}"
                )
            except BaseException as error:
                error.add_note(f"where {argument} is so: {case}") if hasattr(error, "add_note") else None
                raise


@pytest.mark.parametrize("filled", [replay, reservoir], ids=["ReplayBuffer", "Reservoir"])
@pytest.mark.parametrize("case", [*(name for name in ANYTHING if name != "None"), "numbers"])
def test_a_mask_that_does_not_fit(filled: Filled, case: str) -> None:
    assert_refused(filled(), "add", STEP | {"mask": ANYTHING.get(case, [1, 0])}, "^mask ")


@pytest.mark.parametrize("filled", [replay, reservoir], ids=["ReplayBuffer", "Reservoir"])
@pytest.mark.parametrize("call", ["add", "extend"])
@pytest.mark.parametrize("argument", ["terminated", "truncated"])
@pytest.mark.parametrize("case", [name for name in ANYTHING if name != "None"])
def test_ends_that_do_not_fit(filled: Filled, call: str, argument: str, case: str) -> None:
    step = {name: value for name, value in STEP.items() if name not in ("done", "infos")}
    step = step if call == "add" else over_steps(step)
    assert_refused(filled(), call, step | {argument: ANYTHING[case]}, f"^{argument} ")


@pytest.mark.parametrize("argument", ["handles", "reward", "action", "done", "timeout", "extras"])
def test_what_is_set_and_does_not_fit(argument: str) -> None:
    buffer = replay()
    good = {"handles": buffer.handles(), "reward": [1.0, 2.0], "extras": {"v": np.zeros(2)}}
    for case, value in ANYTHING.items():
        if (value is None and argument != "handles") or (case == "another length" and argument == "handles"):
            continue
        message = "^reward " if case == "another length" and argument == "handles" else f"^['\"]?{argument}"
        assert_refused(buffer, "set", good | {argument: value}, message, errors.ReliveError, KeyError)


def prioritized() -> relive.ReplayBuffer:
    sampler = relive.Prioritized()
    buffer = relive.ReplayBuffer(8, GOALS, spaces.Discrete(2), device="cpu", sampler=sampler, seed=0)
    obs = {key: np.zeros((1, 1), np.float32) for key in GOALS.spaces}
    for t in range(4):
        buffer.add(obs, obs, [0], [float(t)], [t == 3])
    buffer.update_priorities(buffer.handles(), [1.0, 2.0, 3.0, 4.0])
    return buffer


@pytest.mark.parametrize("case", [name for name in ANYTHING if name != "None"])
@pytest.mark.parametrize("argument", ["handles", "priorities", "td_errors", "mask"])
def test_priorities_that_do_not_fit(argument: str, case: str) -> None:
    buffer = prioritized()
    good = {"handles": buffer.handles(), **({"td_errors": np.zeros((4, 3))} if argument == "mask" else {})}
    given = good | ({"priorities": np.zeros(4)} if argument == "handles" else {}) | {argument: ANYTHING[case]}
    name = "handles|^priorities has 4 values" if argument == "handles" else argument
    assert_refused(buffer, "update_priorities", given, f"^({name})")


@pytest.mark.parametrize("envs", ["text", RAGGED, 0.5, [0.0], True, [True, False], {"x": 1}], ids=str)
def test_environments_that_do_not_fit(envs: Any) -> None:
    assert_refused(replay(), "interrupt", {"envs": envs}, "^envs ", errors.ReliveError, TypeError)


# Numbers -------------------------------------------------------------------------------------------------------------


def rollout() -> relive.RolloutBuffer:
    buffer = relive.RolloutBuffer(2, GOALS, spaces.Discrete(2), device="cpu", seed=0)
    obs = {key: np.zeros((1, 1), np.float32) for key in GOALS.spaces}
    for t in range(2):
        buffer.add(obs, [0], [float(t)], [t == 0], [0.0], [0.0])
    return buffer


def epochs() -> relive.ReplayBuffer:
    sampler = relive.Uniform(replacement=False)
    buffer = relive.ReplayBuffer(8, GOALS, spaces.Discrete(2), device="cpu", sampler=sampler, seed=0)
    obs = {key: np.zeros((1, 1), np.float32) for key in GOALS.spaces}
    buffer.add(obs, obs, [0], [0.0], [True])
    return buffer


def plain() -> relive.ReplayBuffer:
    """Whose draws take the shortest way."""
    buffer = relive.ReplayBuffer(8, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), device="cpu", seed=0)
    buffer.add(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32), [0], [0.0], [True])
    return buffer


def plain_prioritized() -> relive.ReplayBuffer:
    box, sampler = spaces.Box(-1, 1, (1,)), relive.Prioritized()
    buffer = relive.ReplayBuffer(8, box, spaces.Discrete(2), device="cpu", seed=0, sampler=sampler)
    buffer.add(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32), [0], [0.0], [True])
    return buffer


# What is called, with what, the argument, and the least number that it takes.
NUMBERS: dict[str, tuple[Filled, str, dict[str, Any], str, int]] = {
    "sample": (plain, "sample", {}, "batch_size", 0),
    "sample of a Dict": (replay, "sample", {}, "batch_size", 0),
    "sample by priority": (prioritized, "sample", {}, "batch_size", 0),
    "sample by priority, the short way": (plain_prioritized, "sample", {}, "batch_size", 0),
    "sample of a reservoir": (reservoir, "sample", {}, "batch_size", 0),
    "epoch": (epochs, "epoch", {}, "batch_size", 1),
    "sequences": (replay, "sample_sequences", {"length": 1}, "batch_size", 0),
    "length of sequences": (replay, "sample_sequences", {"batch_size": 1}, "length", 1),
    "stride of sequences": (replay, "sample_sequences", {"batch_size": 1, "length": 1}, "stride", 1),
    "burn-in of sequences": (replay, "sample_sequences", {"batch_size": 1, "length": 1}, "burn_in", 0),
    "length of counted sequences": (replay, "count_sequences", {}, "length", 1),
    "episodes": (prioritized, "sample_episodes", {}, "n", 0),
    "stream": (plain, "stream", {}, "batch_size", 0),
    "depth of a stream": (plain, "stream", {"batch_size": 1}, "depth", 1),
    "stream of a reservoir": (reservoir, "stream", {}, "batch_size", 0),
    "minibatches": (rollout, "get", {}, "batch_size", 1),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_that_does_not_fit(case: str) -> None:
    filled, call, others, argument, least = NUMBERS[case]
    for bad in ("text", RAGGED, 1.5, {"x": 1}, np.zeros(2), np.float64(2), *([None] if call != "get" else [])):
        message = rf"^{argument} is .*, expected a whole number from {least} on$"
        assert_refused(filled(), call, others | {argument: bad}, f"(?s){message}", TypeError)
    for bad in (least - 1, -3):
        assert_refused(
            filled(), call, others | {argument: bad}, f"^{argument} is {bad}, expected {least} or more", ValueError
        )
    for good in (np.int64(1), np.int32(1), np.array(1)):
        getattr(filled(), call)(**others, **({argument: good} if argument != "burn_in" else {}))


@pytest.mark.parametrize("bad", ["text", None, 1.5, -0.1, np.nan])
def test_a_share_of_the_largest_error_that_does_not_fit(bad: Any) -> None:
    buffer = prioritized()
    given = {"handles": buffer.handles(), "td_errors": np.zeros((4, 3)), "eta": bad}
    assert_refused(
        buffer, "update_priorities", given, "^eta is .*, expected (a number from 0 to 1|numbers)$", ValueError
    )


def test_numbers_of_a_mixture_that_do_not_fit() -> None:
    mixture = relive.mix({plain(): 1.0})
    with pytest.raises(TypeError, match="batch_size is 'text', expected a whole number from 0 on"):
        mixture.sample("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="depth is 0, expected 1 or more"):
        mixture.stream(1, depth=0)
