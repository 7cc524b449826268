"""``python -m benchmarks``: all measures, or those of ``--only``, as tables and (``--out``) JSON."""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import (
    hindsight,
    images,
    machine,
    memory,
    n_step,
    prioritized,
    replay,
    report,
    rollouts,
    sequences,
    torchrl_peer,
)
from benchmarks.guests import guests
from benchmarks.measure import Measure

_FILES = (replay, prioritized, n_step, hindsight, sequences, images, rollouts, memory)
_THREADS = 1


def main() -> None:
    """Measures, and reports; a missed goal is told, and is no error."""
    measures = [measure for file in _FILES for measure in file.measures()]
    arguments = _arguments([measure.name for measure in measures])
    torch.set_num_threads(_THREADS)
    console = Console(highlight=False)
    facts = machine.facts()
    _say_facts(console, facts, arguments.rounds)

    results = []
    for measure in measures:
        if measure.name not in arguments.only:
            continue
        with console.status(measure.title):
            results.append(_result(measure, arguments.rounds, arguments.torchrl))
        gc.collect()  # the next measure needs the memory of this one's buffers
        console.print(report.as_table(results[-1]))
    _say_missed(console, report.missed(results))
    if arguments.torchrl is None and not torchrl_peer.CONTENDERS.keys().isdisjoint(arguments.only):
        console.print("TorchRL was left out: `make bench-torchrl` once, and `make bench` measures it too.")
    if arguments.out is not None:
        settings = {"rounds": arguments.rounds, "torch_threads": _THREADS, "load_at_end": machine.load()}
        data = {"machine": facts, "settings": settings, "measures": results}
        arguments.out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        console.print(f"written to {arguments.out}")


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of every contender, at least (default: 15)")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=names,
        metavar="NAME,...",
        help=f"of {', '.join(names)}",
    )
    parser.add_argument("--out", type=Path, help="a JSON file with all figures and what they were taken on")
    parser.add_argument("--torchrl", metavar="PYTHON", help="an interpreter that has torchrl")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.only) - set(names))
    if unknown:
        parser.error(f"--only got {', '.join(unknown)}, expected some of {', '.join(names)}")
    if arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}, expected 1 or more")
    return arguments


def _result(measure: Measure, rounds: int, torchrl: str | None) -> dict[str, object]:
    with guests(torchrl, measure.name) as others:
        return report.as_data(measure, measure.run(rounds, others))


def _say_facts(console: Console, facts: dict[str, object], rounds: int) -> None:
    versions = facts["versions"]
    assert isinstance(versions, dict)
    console.print(
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, Python {facts['python']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    load = machine.load()
    console.print(f"load average {load}; fastest of {rounds} or more interleaved rounds; torch uses {_THREADS} thread")
    if load > machine.QUIET:
        console.print("[yellow]The machine is not quiet: run again before you believe a figure.[/yellow]")


def _say_missed(console: Console, names: list[str]) -> None:
    if names:
        console.print(f"[red]missed[/red]: {', '.join(names)}")


if __name__ == "__main__":
    main()
