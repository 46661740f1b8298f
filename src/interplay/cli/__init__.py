"""The command line. `snakemake all` runs studies; `interplay` plans them, explains them and keeps what they left."""

import argparse
import importlib
import sys
from typing import NamedTuple

from interplay.schema.base import UserError


class Command(NamedTuple):
    """One row: its heading and what it is for. The module `interplay.cli.<name>` has `arguments(parser)` and `run(args)`."""

    group: str
    help: str


COMMANDS: dict[str, Command] = {
    "plan": Command("before a run", "what a study consists of, what of it is new and why, and what that will cost"),
    "calibrate": Command("before a run", "measure a study's base per op and pin the band edges in its scale file"),
    "watch": Command("during a run", "stages by state, rates, time left and last metrics, live"),
    "debug": Command("during a run", "make one stage again, in the foreground, in a scratch folder"),
    "report": Command("after a run", "where a study's report lies; renders what is there when arms failed"),
    "explain": Command("after a run", "a table's cell, down to the data"),
    "show": Command("after a run", "one stage: what it is, what it depends on, what it cost, what it measured"),
    "rollouts": Command("after a run", "read the completions of an rl or evaluate stage"),
    "lineage": Command("after a run", "the graph behind a study or a stage, as Mermaid or SVG"),
    "compare": Command("after a run", "two stages or two arms: specs, metrics and the items that flipped"),
    "export": Command("after a run", "one self-contained folder: page, records, lock, environment"),
    "verify": Command("keeping", "check the payloads of finished stages against their records"),
    "gc": Command("keeping", "remove results that no committed lock reaches"),
    "adopt": Command("keeping", "take a model that was made elsewhere into the graph"),
    "store": Command("keeping", "push payloads and records to the DVC remote, or pull them"),
    "track": Command("keeping", "mirror records and metrics into MLflow"),
}


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 2 with one line for whatever the user can mend."""
    args = _parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    try:
        return int(args.run(args))
    except UserError as error:
        print(f"interplay: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        sys.stderr.close()
        return 0


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """The module of the command at hand alone is imported: the others' imports cost seconds."""
    parser = argparse.ArgumentParser(prog="interplay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = next((word for word in argv if not word.startswith("-")), "")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        if name == chosen:
            module = importlib.import_module(f"interplay.cli.{name}")
            module.arguments(sub)
            sub.set_defaults(run=module.run)
    return parser
