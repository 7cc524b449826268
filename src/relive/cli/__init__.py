"""The command line: `relive demo` and its like, one file a command."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from relive.cli import demo

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The experience store for reinforcement learning.")
app.command(name="demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relive {version('relive')}")
        raise typer.Exit


@app.callback()
def _options(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """What is asked before any command."""


def main() -> None:
    """The entry point `relive`."""
    app()
