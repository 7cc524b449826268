"""The core believes nothing it is told: bad arguments raise, a damaged snapshot is refused, nothing ever crashes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive
from relive import _native, layout
from relive.tensors import from_capsule
from relive.timeline import Timeline
from tests import zoo

BIG = 2**62


def filled(rows: int = 4, lanes: int = 2, steps: int = 6, observation: str = "box-f32") -> relive.ReplayBuffer:
    """A buffer whose data never follows on, so that every step has a final of its own."""
    space = zoo.OBSERVATION_SPACES[observation]
    buffer = relive.ReplayBuffer(rows * lanes, space, spaces.Discrete(2), device="cpu", n_envs=lanes)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        obs, following = zoo.values(rng, space, (lanes,)), zoo.values(rng, space, (lanes,))
        buffer.add(obs, following, np.zeros(lanes, int), rng.random(lanes), np.zeros(lanes, bool))
    return buffer


def test_what_is_minded_lives_as_long_as_it_is() -> None:
    buffer = filled(steps=3)
    core = buffer._timeline.core
    for bad in (5, True, "detect"):
        with pytest.raises(TypeError, match="a Breaks, or None"):
            core.mind(bad)  # type: ignore[arg-type]
    core.mind(_native.Breaks(True, 0.0))  # nobody else keeps it
    gc.collect()
    buffer.add(np.ones((2, 3)), np.ones((2, 3)), [0, 0], [0.0, 0.0], [False, False])
    core.mind(_native.Breaks(False, 0.0))
    core.mind(None)
    assert len(list(buffer.episodes(whole=False))) == 4


@pytest.mark.parametrize("bad", [4, -1, BIG, -BIG])
@pytest.mark.parametrize("axis", ["row", "lane"])
def test_places_out_of_bounds_raise(axis: str, bad: int) -> None:
    core = filled()._timeline.core
    rows, lanes = np.array([0, 1, 2]), np.array([0, 1, 0])
    (rows if axis == "row" else lanes)[1] = bad
    with pytest.raises(IndexError, match="out of bounds"):
        core.transitions_at(rows, lanes, from_capsule)
    with pytest.raises(IndexError, match="out of bounds"):
        core.successors(0, rows, lanes, np.empty(3 * 12, np.uint8))


def test_places_that_are_no_indices_are_refused() -> None:
    core = filled()._timeline.core
    for rows, lanes in [
        (np.array([[0]]), np.array([0])),
        (np.array([0, 1]), np.array([0])),
        (np.array(["0"]), np.array([0])),
        (None, np.array([0])),
    ]:
        with pytest.raises((TypeError, ValueError)):
            core.transitions_at(rows, lanes, from_capsule)


@pytest.mark.parametrize("handle", [-1, -BIG, BIG, 2**63 - 1, -(2**63)])
def test_handles_from_nowhere_are_stale(handle: int) -> None:
    buffer = filled()
    assert buffer.held_handles([handle]).tolist() == [False]
    with pytest.raises(relive.errors.StaleHandleError):
        buffer.transitions([handle])
    assert buffer.set([handle], reward=[1.0]) == 1


BAD_CALLS: dict[str, Callable[[Any], Any]] = {
    "no such leaf": lambda core: core.successors(5, np.array([0]), np.array([0]), np.empty(12, np.uint8)),
    "out too small": lambda core: core.successors(0, np.array([0]), np.array([0]), np.empty(3, np.uint8)),
    "no such field": lambda core: core.set_field(np.array([0]), 99, np.empty(4, np.uint8)),
    "values too small": lambda core: core.set_field(np.array([0, 1]), 0, np.empty(4, np.uint8)),
    "lane beyond the last": lambda core: core.interrupt([99]),
    "negative lane": lambda core: core.interrupt([-1]),
    "position beyond the rows": lambda core: core.declare(99, 1),
    "count beyond the rows": lambda core: core.declare(0, 99),
    "successors of no leaf": lambda core: core.assign_successors([]),
    "successors too small": lambda core: core.assign_successors([np.empty(3, np.uint8)]),
    "observation of no leaf": lambda core: core.assign_observation(7, np.empty(96, np.uint8)),
    "observation too small": lambda core: core.assign_observation(0, np.empty(95, np.uint8)),
    "finals of another size": lambda core: core.add_finals(4, [np.empty(3, np.uint8)]),
    "finals of no leaf": lambda core: core.add_finals(4, []),
    "finals in no power of two": lambda core: core.add_finals(3, [np.empty(36, np.uint8)]),
    "snapshot of too many rows": lambda core: core.snapshot(99, 8, np.empty(1, np.uint8), [], []),
    "snapshot into too little": lambda core: core.snapshot(4, 8, np.empty(1, np.uint8), [], [np.empty(96, np.uint8)]),
    "restore of another number of lanes": lambda core: core.restore([4], [4], 2),
    "restore of more counts than heads": lambda core: core.restore([4, 4], [4], 2),
    "no generator": lambda core: core.sample(1, None, from_capsule),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_arguments_raise_and_change_nothing(call: str) -> None:
    buffer = filled()
    before = [part.clone() for part in buffer.transitions(buffer.handles())[:5]]
    with pytest.raises((ValueError, IndexError, TypeError)):
        BAD_CALLS[call](buffer._timeline.core)
    after = buffer.transitions(buffer.handles())[:5]
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(after, before, strict=True))


def test_a_snapshot_into_too_few_rows_says_so() -> None:
    timeline = filled()._timeline
    rows, slots = timeline.core.used()
    assert rows == 4
    records = np.empty(2 * 3 * timeline._dtype.itemsize, np.uint8)
    assert timeline.core.snapshot(3, slots, records, [], [np.empty(slots * 12, np.uint8)]) is None


Damage = Callable[[dict[str, Any]], None]


def set_link(row: int, link: int) -> Damage:
    def damage(state: dict[str, Any]) -> None:
        state["records"][layout.LINK][0, row] = link

    return damage


def set_head(head: int, count: int) -> Damage:
    def damage(state: dict[str, Any]) -> None:
        state["heads"][0], state["counts"][0] = head, count

    return damage


# The head of each lane is 6, so its newest step lies in row 1 and its oldest in row 2.
DAMAGES: dict[str, Damage] = {
    "link beyond all finals": set_link(2, 10**6),
    "link to the largest number": set_link(3, 2**31 - 1),
    "negative link": set_link(2, -5),
    "the most negative link": set_link(2, -(2**31)),
    "link to a head slot": set_link(2, 1),
    "newest step without its head slot": set_link(1, 0),
    "newest step with the head slot of another lane": set_link(1, 2),
    "count beyond the rows": set_head(6, 5),
    "negative count": set_head(6, -1),
    "count beyond the head": set_head(2, 3),
    "negative head": set_head(-6, 4),
    "another head": set_head(7, 4),
    "fewer finals than are linked": lambda state: state.update(finals=[leaf[:3] for leaf in state["finals"]]),
    "no finals": lambda state: state.update(finals=[leaf[:0] for leaf in state["finals"]]),
    "fewer rows than are held": lambda state: state.update(records=state["records"][:, :2].copy()),
    "fewer lanes": lambda state: state.update(heads=state["heads"][:1], counts=state["counts"][:1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_refused(damage: str) -> None:
    state = filled()._timeline.__getstate__()
    DAMAGES[damage](state)
    with pytest.raises((ValueError, IndexError, TypeError)):
        Timeline.__new__(Timeline).__setstate__(state)


def test_two_links_to_one_final_are_refused() -> None:
    state = filled()._timeline.__getstate__()
    links = state["records"][layout.LINK]
    links[0, 3] = links[0, 2]
    with pytest.raises(ValueError, match="no final of its own"):
        Timeline.__new__(Timeline).__setstate__(state)


def test_junk_links_of_rows_that_are_not_held_do_no_harm() -> None:
    buffer = filled(rows=6, steps=6)
    buffer.reset()
    rng = np.random.default_rng(1)
    numbers = rng.random((2, 3)).astype(np.float32)
    buffer.add(numbers, numbers, [0, 0], [0.0, 0.0], [False, False])
    buffer.add(numbers, numbers, [0, 0], [0.0, 0.0], [False, False], mask=np.array([True, False]))
    state = buffer._timeline.__getstate__()
    state["records"][layout.LINK][1, 1] = 2**31 - 1
    timeline = Timeline.__new__(Timeline)
    timeline.__setstate__(state)
    rows, lanes = np.repeat(np.arange(6), 2), np.tile(np.arange(2), 6)
    assert timeline.successors(0, rows, lanes).shape == (12, 3)


@pytest.fixture
def core_arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a timeline of two rows and two lanes tells its core: records of one float32 observation and action."""
    given: dict[str, Any] = {}
    build = _native.Core
    monkeypatch.setattr(_native, "Core", lambda **arguments: given.update(arguments) or build(**arguments))
    number = spaces.Box(-1, 1, (1,), np.float32)
    relive.ReplayBuffer(4, number, number, device="cpu", n_envs=2)
    monkeypatch.undo()
    return given


# A leaf is (type code, bits, shape, packed, offset in the record, memory of its own, may lack its own axis).
LAYOUTS: dict[str, dict[str, Any]] = {
    "no rows": {"rows": 0},
    "no lanes": {"lanes": 0},
    "more rows than records": {"rows": 3},
    "records too small": {"records": np.zeros(3, np.uint8)},
    "no record": {"record_bytes": 0, "records": np.zeros(0, np.uint8)},
    "field beyond the record": {"offsets": [8, 12, 16, 99, 24]},
    "a field too few": {"offsets": [8, 12, 16, 20]},
    "leaf beyond the record": {"observation": [(2, 32, [9], True, 0, None, False)]},
    "leaf of negative length": {"observation": [(2, 32, [-1], True, 0, None, False)]},
    "no leaf": {"observation": []},
    "large leaf without memory": {"observation": [(2, 32, [1], False, 0, None, False)]},
    "large leaf with too little": {"observation": [(2, 32, [1], False, 0, np.zeros(3, np.uint8), False)]},
    "rows times lanes beyond 64 bits": {"rows": 2**33, "lanes": 2**31},
    "leaf beyond 64 bits": {"observation": [(2, 32, [2**31, 2**31], True, 0, None, False)]},
    "offset beyond 64 bits": {"observation": [(2, 32, [1], True, 2**64 - 4, None, False)]},
}


@pytest.mark.parametrize("change", LAYOUTS)
def test_a_layout_that_does_not_fit_is_refused(change: str, core_arguments: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError, OverflowError)):
        _native.Core(**(core_arguments | LAYOUTS[change]))


def test_a_layout_that_fits_is_taken(core_arguments: dict[str, Any]) -> None:
    assert _native.Core(**core_arguments).lanes() == [[0, 0], [0, 0], [0, 0]]
