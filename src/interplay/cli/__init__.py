"""The command line. `snakemake all` runs studies; `interplay` plans them, explains them and keeps what they left."""

import argparse
import importlib
import sys
import textwrap
from typing import Any, NamedTuple

from interplay.cli import guide
from interplay.schema.base import UserError, nearest
from interplay.schema.terminal import say


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
    "novelty": Command("after a run", "how new the graphs of an evaluation's right solutions are beside a problem set"),
    "rows": Command("after a run", "rows of a problem set; one of them back to where it comes from"),
    "efficiency": Command("after a run", "what stages used of the threads, memory and time they were given, and what would fit"),
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
    words = sys.argv[1:] if argv is None else argv
    try:
        parser, command = _parsers(words)
        if not words:
            parser.print_help()
            return 2
        args, more = parser.parse_known_args(words)
        if more:
            raise UserError(_not_understood(command, more[0]))
        return int(args.run(args))
    except UserError as error:
        say(f"interplay: {error}", error=True)
        return 2
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is None:  # not about a file that one could free, name otherwise or put there
            raise
        say(f"interplay: {error.filename}: {error.strerror}", error=True)
        return 2
    except KeyboardInterrupt:
        return 130


def _parsers(words: list[str]) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The program's parser, and that of the command at hand. Its module alone is imported: the others' imports cost seconds."""
    chosen = next((word for word in words if not word.startswith("-")), "")
    if chosen and chosen not in COMMANDS:
        raise UserError(f"{chosen}: no such command{nearest(chosen, COMMANDS)}")
    parser = guide.Parser(
        prog="interplay",
        usage="interplay COMMAND ...",
        description=guide.front({name: (row.group, row.help) for name, row in COMMANDS.items()}),
        formatter_class=guide.layout,
    )
    if not chosen:
        return parser, parser
    sub = parser.add_subparsers(dest="command", required=True, prog="interplay", help=argparse.SUPPRESS).add_parser(
        chosen, **_help(chosen)
    )
    add_command(chosen, sub)
    return parser, sub


def _not_understood(command: argparse.ArgumentParser, word: str) -> str:
    options = [text for action in command._actions for text in action.option_strings] if word.startswith("-") else []
    what = "option" if options else "argument"
    return f"{command.prog.removeprefix('interplay ')}: {word}: no such {what}{nearest(word, options)}"


def add_command(name: str, parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of a command and its `run`."""
    module = importlib.import_module(f"interplay.cli.{name}")
    module.arguments(parser)
    parser.set_defaults(run=module.run)


def _help(name: str) -> dict[str, Any]:
    about = "\n".join(textwrap.wrap(guide.PAGES[name].about, guide.width()))
    return {"description": about, "epilog": guide.examples(name), "formatter_class": guide.layout}
