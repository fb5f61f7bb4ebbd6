"""`stager completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Example:
  stager completion bash >> ~/.bashrc
  stager completion fish > ~/.config/fish/completions/stager.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL; add it to your shell's start file."""
    from stager.cli.main import stager

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(stager, {}, "stager", "_STAGER_COMPLETE").source())
