"""Ratios and verdicts of a run, as tables and as JSON. Times and bytes go to the JSON only: they are never a target."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from benchmarks.measure import Cost, Goal, Measure

_FIGURES = {"seconds": "time, relive = 1", "bytes": "bytes, relive = 1", "error": "relative error"}
_COLOURS = {"aim reached": "green", "holds": "green", "missed": "red", "": ""}


def as_data(measure: Measure, costs: list[Cost]) -> dict[str, Any]:
    """One measure for the JSON; relive comes first."""
    return {
        "name": measure.name,
        "title": measure.title,
        "unit": measure.unit,
        "contenders": [_row(measure.goals.get(cost.name), cost, costs[0]) for cost in costs],
    }


def _row(goal: Goal | None, cost: Cost, ours: Cost) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": cost.name,
        "note": cost.note,
        "least": cost.least,
        "median": cost.median,
        "rounds": cost.rounds,
        "relative": cost.least / ours.least if ours.least else 1.0,
    }
    if goal is not None:
        ratio = goal.ratio(cost.least, ours.least)
        row |= {
            "sense": goal.sense,
            "ratio": ratio,
            "must": goal.must,
            "aim": goal.aim,
            "verdict": goal.verdict(ratio),
        }
    return row


def as_table(data: dict[str, Any]) -> Table:
    """The same for the terminal."""
    notes = [f"{row['name']}: {row['note']}" for row in data["contenders"] if row["note"]]
    table = Table(
        title=data["title"],
        title_justify="left",
        title_style="bold",
        caption="\n".join(notes) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    figure = "least" if data["unit"] == "error" else "relative"
    table.add_column("contender", min_width=17)
    table.add_column(_FIGURES[data["unit"]], justify="right", min_width=17)
    for column in ("ratio", "must", "aim"):
        table.add_column(column, justify="right", min_width=6)
    table.add_column("verdict", min_width=11)
    for row in data["contenders"]:
        verdict = row.get("verdict", "")
        table.add_row(
            row["name"],
            f"{row[figure]:.3g}",
            f"{row['ratio']:.3g}" if "ratio" in row else "",
            _bound(row, "must"),
            _bound(row, "aim"),
            Text(verdict, _COLOURS[verdict]),
        )
    return table


def _bound(row: dict[str, Any], name: str) -> str:
    bound = row.get(name)
    return "" if bound is None else f"{row['sense']} {bound:g}"


def missed(data: list[dict[str, Any]]) -> list[str]:
    """Which goals were missed, as ``measure: contender``."""
    return [
        f"{measure['name']}: {row['name']}"
        for measure in data
        for row in measure["contenders"]
        if row.get("verdict") == "missed"
    ]
