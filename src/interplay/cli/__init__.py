"""The command line: its commands by the phase of a run, its help, and its exit codes. `interplay run` is a thin layer over
`snakemake all`, which makes the stages."""

import contextlib
import importlib
import io
import logging
import os
import re
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from interplay.cli.common import FOLDERS, Command, Help, names_in, starting, study_tree
from interplay.core.metrics import log_to_stderr
from interplay.core.model import UserError, nearest_name, shorten_value

LOG = logging.getLogger(__name__)

WIDEST = 110
"""Largest width of help texts in columns."""


class Row(NamedTuple):
    """One command: the module of `interplay.cli` that holds it, its heading in the help, and its purpose."""

    module: str
    group: str
    purpose: str


COMMANDS: dict[str, Row] = {
    "list": Row("monitor", "before a run", "studies with their state and question; known methods, tasks, metrics, scales"),
    "new": Row("studies", "before a run", "write a commented study that extends another one, and print its plan"),
    "plan": Row("planning", "before a run", "the stages of a study, which of them are new and why, and their cost"),
    "register": Row("planning", "before a run", "freeze claims, thresholds, sizes and stopping rule before there are results"),
    "audit": Row("results", "before a run", "what a task's verifier pays to completions that did not do the work"),
    "run": Row("studies", "during a run", "run what is new of a study; its verdicts, or the cause of a failure, at the end"),
    "open": Row(
        "monitor", "during a run", "a live local page: studies, curves, causes of failures, completions, arms side by side"
    ),
    "watch": Row("monitor", "during a run", "stages by state, rates, time left and last metrics, live"),
    "debug": Row("monitor", "during a run", "make one stage again, in the foreground, in a scratch folder"),
    "judge": Row("planning", "after a run", "a study's claims, judged anew from the records that are there"),
    "settle": Row("studies", "after a run", "what open verdicts need: how many replicates, and their cost; adds them, by looks"),
    "report": Row("studies", "after a run", "a study's verdicts and the path of its report; a partial report when arms failed"),
    "explain": Row("results", "after a run", "the provenance of a table's cell, down to the data"),
    "show": Row("results", "after a run", "one stage: settings, dependencies, cost and metrics"),
    "rollouts": Row("results", "after a run", "the completions of an rl or evaluate stage"),
    "novelty": Row("results", "after a run", "structural novelty of an evaluation's correct solutions against a problem set"),
    "rows": Row("results", "after a run", "rows of a problem set; the provenance of one row"),
    "efficiency": Row("monitor", "after a run", "use of the reserved threads, memory and time, and values that would fit"),
    "lineage": Row("results", "after a run", "the graph of a study, or of a stage and its ancestors, as Mermaid or SVG"),
    "compare": Row("results", "after a run", "two stages or two arms: specs, metrics and the items that flipped"),
    "export": Row("storage", "after a run", "one self-contained folder: page, records, lock, environment"),
    "verify": Row("planning", "keeping", "check results by checksums, by recomputation, and by random segments made again"),
    "gc": Row("storage", "keeping", "garbage collection: results that no committed lock reaches"),
    "adopt": Row("studies", "keeping", "add a model from outside to the graph"),
    "store": Row("storage", "keeping", "payloads and records in the DVC remote; tables from committed scores"),
    "track": Row("storage", "keeping", "mirror records and metrics into MLflow"),
}

DAY = {
    "interplay new kl --from edge": "a study of your own: an edit of another one",
    "interplay plan edge": "the stages of the study, which of them are new, their cost",
    "interplay run edge": "run what is new, on this machine (`--profile slurm`: on a cluster)",
    "interplay open": "a live page of all studies, in a browser",
    "interplay report edge": "the verdicts, and the path of the page with tables and figures",
    "interplay explain edge main rl_edge edge": "the provenance of one cell of a table",
    "interplay compare edge/rl_edge edge/rl_hard": "two arms: settings, metrics, and the items that flipped",
    "interplay gc": "results that can be removed; `--delete` removes them",
}
"""Examples in the order of use: command -> purpose."""


class Program(Help, TyperGroup):
    """The group of all commands. Only the module of the current command is imported, to save time."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """All names, in the order of the help."""
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
        """The commands under their headings, and examples in the order of use. No command's module is imported."""
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
    epilog="See also `interplay COMMAND --help`. Studies lie in configs/study; `python -m tools.reference find WORD` explains "
    "a key, `make site` all of them.",
)


@app.callback()
def start_program() -> None:
    """Interplay measures what each training stage of a reasoning language model contributes, and how the stages depend on each
    other. A study is one YAML file; `snakemake all` runs it; `interplay` plans it, explains it and reads its results."""


def find_command(name: str) -> Command:
    """The command of this name."""
    module = importlib.import_module(f"interplay.cli.{COMMANDS[name].module}")
    found: Any = typer.main.get_group(module.app)
    return found.commands[name]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 2 with one line for errors that the user can fix."""
    log_to_stderr()
    if os.environ.get("_INTERPLAY_COMPLETE") == "complete_bash" and "COMP_WORDS" in os.environ:
        _complete_in_bash()
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
        if error.filename is None:  # not about a file that the user can fix
            raise
        LOG.error("interplay: %s: %s", error.filename, error.strerror)
        return 2


def _complete_in_bash() -> None:
    """Join what Bash breaks at @, = and :, which addresses have, and offer what follows the last of them, which it replaces."""
    words, cursor = os.environ["COMP_WORDS"].split(), int(os.environ.get("COMP_CWORD", 0))
    here = " ".join([*words, ""] if cursor >= len(words) else words[: cursor + 1])  # the last word may be empty
    joined = re.sub(r" ?([@=:]) ?", r"\1", here)
    os.environ |= {"COMP_WORDS": joined, "COMP_CWORD": str(joined.count(" "))}
    broken = re.match(r".*[@=:]", joined.rpartition(" ")[2])
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            typer.main.get_command(app).main(["--help"], prog_name="interplay")
    finally:
        cut = len(broken[0]) if broken else 0
        print("\n".join(line[cut:] for line in said.getvalue().splitlines()))


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    """KEY=VALUE of the study that precedes this word: the keys of its stages and of itself, level by level, and the values of
    those that name files of configs/ or take few words. Bash puts a blank behind an only word: there are always several."""
    from interplay.core import keys
    from interplay.study.spec import Study

    def known(path: list[str], among: dict[str, Any]) -> dict[str, Any]:
        return keys.keys_at(Study, among, path if not path or path[0] in Study.model_fields else ["stages", *path])

    key, given, _ = incomplete.partition("=")
    tree, (*above, last) = study_tree(str(ctx.params.get("study"))), key.split(".")
    if not tree.get("stages"):  # not readable
        return []
    here = known(above, tree) if above else {**{name: [] for name in tree["stages"]}, **known([], tree), "scale": []}
    if given:
        fields = known(above, {}) if last == "name" else here  # each member of a union has its own name
        values = names_in(FOLDERS[last]) if last in FOLDERS else keys.options_of(fields.get(last, []))
        return starting([f"{key}={value}" for value in values], incomplete)
    found = []
    for name in starting(here, last):
        word, leads_on = ".".join([*above, name]), name != "scale" and bool(known([*above, name], tree))
        found += [f"{word}="] * (not leads_on or name in FOLDERS) + [f"{word}."] * leads_on
    if len(found) > 1 or not found:
        return found
    return complete_key(ctx, found[0]) or [found[0], f"{found[0]}..."]


def _usage_line(error: typer.TyperException, words: list[str]) -> str:
    """The error in a command line, in one line: the command, the option, its value, and the nearest option."""
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
