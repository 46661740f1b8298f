"""The reference page of the command line."""

from collections.abc import Iterator
from typing import Any

from interplay.cli import COMMANDS, find_command
from interplay.cli.common import examples
from interplay.core.metrics import aligned
from tools.reference.cells import cell


def blocks() -> Iterator[str]:
    """For each command what it is for, its arguments, and how it is called."""
    for name in COMMANDS:
        command = find_command(name)
        rows = [f"| `{cell(words)}` | {cell(meaning)} |" for words, meaning in _arguments(command)]
        parts = [f"## interplay {name}", " ".join(str(command.help).split())]
        if rows:
            parts.append("\n".join(["| argument | meaning |", "| --- | --- |", *rows]))
        parts.append("\n".join(["```", *aligned(examples(command.epilog)), "```"]))
        yield "\n\n".join(parts)


def _arguments(command: Any, before: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _arguments(inner, f"{before}{name} ")
    for param in command.params:
        words = [param.metavar or param.name] if param.param_type_name == "argument" else [param.opts[-1], param.metavar or ""]
        yield before + " ".join(words).strip(), str(param.help)
