"""The program `interplay`: its commands by the moment at which they are wanted, its help, and its exit codes."""

import importlib
import logging
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from interplay.cli.common import Command, Help
from interplay.core.model import UserError, log_to_stderr, nearest_name, shorten_value

LOG = logging.getLogger(__name__)

WIDEST = 110
"""Columns that help text takes at most."""


class Row(NamedTuple):
    """One command: the module of `interplay.cli` that holds it, its heading on the first page, and what it is for."""

    module: str
    group: str
    purpose: str


COMMANDS: dict[str, Row] = {
    "plan": Row("plan", "before a run", "what a study consists of, what of it is new and why, and what that will cost"),
    "calibrate": Row("plan", "before a run", "measure a study's base per op and pin the band edges in its scale file"),
    "watch": Row("run", "during a run", "stages by state, rates, time left and last metrics, live"),
    "debug": Row("run", "during a run", "make one stage again, in the foreground, in a scratch folder"),
    "report": Row("results", "after a run", "where a study's report lies; renders what is there when arms failed"),
    "explain": Row("results", "after a run", "a table's cell, down to the data"),
    "show": Row("results", "after a run", "one stage: what it is, what it depends on, what it cost, what it measured"),
    "rollouts": Row("samples", "after a run", "read the completions of an rl or evaluate stage"),
    "novelty": Row("samples", "after a run", "how new the graphs of an evaluation's right solutions are beside a problem set"),
    "rows": Row("samples", "after a run", "rows of a problem set; one of them back to where it comes from"),
    "efficiency": Row(
        "run", "after a run", "what stages used of the threads, memory and time they were given, and what would fit"
    ),
    "lineage": Row("results", "after a run", "the graph behind a study or a stage, as Mermaid or SVG"),
    "compare": Row("results", "after a run", "two stages or two arms: specs, metrics and the items that flipped"),
    "export": Row("exchange", "after a run", "one self-contained folder: page, records, lock, environment"),
    "verify": Row("storage", "keeping", "check the payloads of finished stages against their records"),
    "gc": Row("storage", "keeping", "remove results that no committed lock reaches"),
    "adopt": Row("exchange", "keeping", "take a model that was made elsewhere into the graph"),
    "store": Row("storage", "keeping", "push payloads and records to the DVC remote, or pull them"),
    "track": Row("exchange", "keeping", "mirror records and metrics into MLflow"),
}

DAY = {
    "interplay plan edge": "what the study consists of, what of it is new, what that will cost",
    "snakemake all --config study=edge": "run what is new, on this machine (`--profile slurm`: on a cluster)",
    "interplay watch edge": "look on, from another terminal",
    "interplay report edge": "where the page with tables, figures and verdicts lies",
    "interplay explain edge main rl_edge edge": "one cell of a table, down to the data",
    "interplay compare edge:rl_edge edge:rl_hard": "two arms: settings, metrics, and the items that flipped",
    "interplay gc": "what could be removed; `--delete` removes it",
}
"""A day with Interplay: command -> what it is for, in the order of use."""


class Program(Help, TyperGroup):
    """The group of all commands. The module of the command at hand alone is imported: the others' would cost time."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """All names, in the order of the first page."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        return find_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. Raises UserError with the nearest name."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise UserError(f"{args[0]}: no such command{nearest_name(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands under their headings, and a day with them. No command's module is imported."""
        for heading in dict.fromkeys(row.group for row in COMMANDS.values()):
            with formatter.section(heading):
                formatter.write_dl([(name, row.purpose) for name, row in COMMANDS.items() if row.group == heading])
        with formatter.section("a day with Interplay"):
            formatter.write_dl(list(DAY.items()), col_max=60)


app = typer.Typer(
    name="interplay",
    cls=Program,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    epilog="`interplay COMMAND --help` says more. Studies lie in configs/study; docs/reference/ explains every key of them.",
)


@app.callback()
def start_program() -> None:
    """Interplay asks what each training stage of a reasoning language model contributes, and how the stages depend on each
    other. A study is one YAML file; `snakemake all` runs it; `interplay` says what it consists of, why, and what it left."""


def find_command(name: str) -> Command:
    """The command of this name."""
    module = importlib.import_module(f"interplay.cli.{COMMANDS[name].module}")
    found: Any = typer.main.get_group(module.app)
    return found.commands[name]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 2 with one line for whatever the user can mend."""
    log_to_stderr()
    words = sys.argv[1:] if argv is None else argv
    program: Any = typer.main.get_command(app)
    try:
        if not words:
            program.main(["--help"], prog_name="interplay", standalone_mode=False)
            return 2
        return int(program.main(words, prog_name="interplay", standalone_mode=False) or 0)
    except UserError as error:
        LOG.error("interplay: %s", error)
        return 2
    except typer.TyperException as error:
        LOG.error("interplay: %s", _usage_line(error, words))
        return 2
    except OSError as error:
        if error.filename is None:  # not about a file that one could free, name otherwise or put there
            raise
        LOG.error("interplay: %s: %s", error.filename, error.strerror)
        return 2


def _usage_line(error: typer.TyperException, words: list[str]) -> str:
    """What is wrong with the words of a command, in one line: the command, the option, its value, and the nearest option."""
    ctx = getattr(error, "ctx", None)
    name = ctx.command_path.removeprefix("interplay").strip() if ctx else words[0]
    option = getattr(error, "option_name", "")
    if option and ctx and option not in (known := [text for param in ctx.command.params for text in param.opts]):
        return str(UserError(f"{name}: {option}: no such option{nearest_name(option, known)}"))
    text = error.format_message()
    if isinstance(error, typer.BadParameter) and error.param is not None and error.__cause__ is not None:
        given = error.__cause__.errors()[0]["input"]  # type: ignore[attr-defined]
        text = f"{error.param.opts[-1]} {shorten_value(given)}: {error.message.removeprefix('Value error, ')}"
    return str(UserError(f"{name}: {text.rstrip('.')}; see `interplay {name} --help`"))
