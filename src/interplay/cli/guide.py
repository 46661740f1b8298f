"""What `--help` says: the commands by the moment at which they are wanted, and for each what it does and how it is called."""

import argparse
import shutil
import textwrap
from typing import NamedTuple, NoReturn

from interplay.schema.terminal import say

WIDEST = 110
"""Columns that help text takes at most."""


class Page(NamedTuple):
    """The help of one command: a paragraph, and lines that may be typed as they stand (with what each does)."""

    about: str
    examples: dict[str, str]


ABOUT = (
    "Interplay asks what each training stage of a reasoning language model contributes, and how the stages depend on each other. "
    "A study is one YAML file; `snakemake all` runs it; `interplay` says what it consists of, why, and what it left."
)

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

PAGES: dict[str, Page] = {
    "plan": Page(
        "Expands a study into its stages and says which are new, which exist and which no study needs any more; how many tokens, "
        "FLOPs and hours the new ones take; and, for each new stage, which existing one is nearest and where it first differs. "
        "Nothing is run and nothing is written unless asked for.",
        {
            "interplay plan edge": "the study at the scale of configs/config.yaml",
            "interplay plan edge --scale smoke": "at another scale",
            "interplay plan edge --against main~3": "beside the lock of another commit",
            "interplay plan edge --max-gpu-hours 5": "exit code 2 when it needs more",
            "interplay plan edge --scale gpu --gpus 1,8,64": "how long it takes on so many GPUs",
            "interplay plan --all --write": "renew the locks in configs/plans",
        },
    ),
    "calibrate": Page(
        "Measures the study's trained base on held-out problems per op and says where its edge lies: which ops it masters, which "
        "it sometimes solves and which it never does. The bands that follow can be pinned in the scale's file.",
        {"interplay calibrate quickstart --scale laptop --write": "measure, and pin the bands"},
    ),
    "watch": Page(
        "Shows a study while it runs: its stages by kind and state; for those that run progress, rate and time left; the last "
        "metrics; and an estimate for the whole. It only reads files, so it works for runs on this machine and on a cluster that "
        "shares the folder, and disturbs neither. Ends when all is done, or with Ctrl-C.",
        {"interplay watch edge": "live", "interplay watch edge --once": "one look, also into a file or pipe"},
    ),
    "debug": Page(
        "Makes one stage again in the foreground, in a scratch folder of its own: with all that it prints, and with the debugger "
        "when asked. The results of the project stay as they are.",
        {"interplay debug 3f2a": "the stage whose digest starts with 3f2a"},
    ),
    "report": Page(
        "Names the page of a study's report. Where arms have failed or are not there yet, it renders what is there and says what "
        "is missing, and why.",
        {"interplay report edge": "where the page lies"},
    ),
    "explain": Page(
        "Prints the chain behind one cell of a table: the samples and their number, the seeds, the evaluation, the model, every "
        "stage that led to it and the data at its beginning.",
        {"interplay explain edge main rl_edge edge": "table main, row rl_edge, column edge"},
    ),
    "show": Page(
        "Shows one stage: its kind and settings, what it depends on and who uses it, what it measured, and the time and place of "
        "its making.",
        {"interplay show 3f2a": "the stage whose digest starts with 3f2a"},
    ),
    "rollouts": Page(
        "Prints completions of an rl or evaluate stage beside their problems and gold solutions, with the verdict on each; those "
        "of a prompt that are the same stand once.",
        {
            "interplay rollouts 3f2a --failed -n 5": "five completions that were not right",
            "interplay rollouts 3f2a --step 1": "how the first step of an rl stage began",
        },
    ),
    "novelty": Page(
        "Compares the graphs that an evaluation's right solutions state, names left aside, with the gold graphs of a problem set "
        "of the same op: by band, how many are equal to one of the set (copied), and the mean similarity to the nearest, which "
        "is the Jaccard index of their nodes' colours. For the tasks op_dag and op_dag_prose.",
        {"interplay novelty 3f2a --against 77c0": "the evaluation 3f2a beside the set 77c0 that its model was trained on"},
    ),
    "rows": Page(
        "Prints rows of a problem set: number, band, op, form, and the curation steps that changed them. With --index one row "
        "whole: the set that it was first made in, what was done to it, and its text before and after. A row that a refusal "
        "names is written DIGEST:INDEX.",
        {
            "interplay rows 3f2a": "the first rows of the set",
            "interplay rows 3f2a --changed poison:conflict": "those that a step changed",
            "interplay rows 3f2a:17": "one row, back to its origin",
        },
    ),
    "efficiency": Page(
        "Says for each kind of stage how much of the threads, memory and minutes that its `run` block reserves the finished ones "
        "used, how many attempts they took, and which values would fit where those are far off. It reads the stages' own "
        "telemetry, so it needs no accounting of a cluster. Time and threads are those of the last attempt.",
        {"interplay efficiency edge": "the study at the scale of configs/config.yaml"},
    ),
    "lineage": Page(
        "Draws the graph behind a study or a stage, from the data on, as Mermaid text or as SVG.",
        {
            "interplay lineage edge > edge.mmd": "the whole study",
            "interplay lineage 3f2a --output stage.svg": "one stage, as a picture",
        },
    ),
    "compare": Page(
        "Compares two stages or two arms: the settings that differ, the metrics of both with the difference paired by prompt and "
        "seed, and the items on which they disagree, with both completions.",
        {"interplay compare 3f2a 77c0": "two stages", "interplay compare edge:rl_edge edge:rl_hard": "two arms of a study"},
    ),
    "export": Page(
        "Writes one folder that stands for a finished study on its own: page, records, lock and the list of the environment.",
        {"interplay export edge -o edge": "to the folder edge; open edge/index.html"},
    ),
    "verify": Page(
        "Checks that the files of finished stages are there and have the checksums of their records, that each record lies under "
        "the digest of its own content, and says which stages were made by sources that read otherwise now.",
        {"interplay verify": "everything in results", "interplay verify edge": "what a study uses"},
    ),
    "gc": Page(
        "Lists, and when asked removes, results that nothing leads to: no lock in configs/plans, no by-name link of a study that "
        "has no lock yet, no run in flight. Also links, logs and benchmarks of stages that are gone. Without --delete nothing is "
        "touched.",
        {
            "interplay gc": "what would go, and how much room that frees",
            "interplay gc --older-than 7 --delete": "remove what was last written to a week ago or more",
        },
    ),
    "adopt": Page(
        "Takes a model that was made elsewhere into the graph as a stage, so that studies can start from it. Its identity is the "
        "content of its files.",
        {"interplay adopt /models/base": "a Hugging Face folder"},
    ),
    "store": Page(
        "Moves payloads and records to the DVC remote or back. A clone with the small records alone can rebuild every table; "
        "weights and samples are fetched when something needs them.",
        {"interplay store push": "keep what is finished", "interplay store pull edge": "fetch what a study needs"},
    ),
    "track": Page(
        "Mirrors records and metrics of finished stages into MLflow. The store is named by MLFLOW_TRACKING_URI, else it is a "
        "SQLite file. Repeating it changes nothing.",
        {"interplay track sync": "bring the store up to date"},
    ),
}


def front(commands: dict[str, tuple[str, str]]) -> str:
    """The first page: the commands, `{name: (heading, what it is for)}`, under their headings, and a day with them."""
    lines = [*textwrap.wrap(ABOUT, width())]
    column = max(len(name) for name in commands) + 4
    headings = list(dict.fromkeys(heading for heading, _ in commands.values()))
    for heading in headings:
        lines += ["", f"{heading}:"]
        for name, (group, purpose) in commands.items():
            if group == heading:
                lines += _row(name, purpose, column, width())
    lines += ["", "a day with Interplay:", *listed(DAY)]
    more = "`interplay COMMAND --help` says more. Studies lie in configs/study; docs/reference.md explains every key of them."
    return "\n".join([*lines, "", *textwrap.wrap(more, width())])


def examples(command: str) -> str:
    """The last part of a command's page."""
    shown = PAGES[command].examples
    return "\n".join(["example:" if len(shown) == 1 else "examples:", *listed(shown)])


def width() -> int:
    """Columns of help text on this terminal."""
    return max(40, min(WIDEST, shutil.get_terminal_size().columns) - 2)


def listed(rows: dict[str, str], columns: int | None = None) -> list[str]:
    """Lines of two columns: what is typed, and what for."""
    column = max(len(row) for row in rows) + 4
    return [line for left, right in rows.items() for line in _row(left, right, column, columns or width())]


def _row(left: str, right: str, column: int, columns: int) -> list[str]:
    """Two columns; where the terminal is too narrow for both, the right one goes below."""
    room = columns - column
    if room < 30:
        return [f"  {left}", *textwrap.wrap(right, columns, initial_indent="      ", subsequent_indent="      ")]
    first, *more = textwrap.wrap(right, room)
    return [f"  {left:<{column - 2}}{first}", *(f"{'':<{column}}{line}" for line in more)]


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, like all others of the program."""

    def error(self, message: str) -> NoReturn:
        """Exit code 2."""
        say(f"{self.prog.replace(' ', ': ', 1)}: {' '.join(message.split())}; see `{self.prog} --help`", error=True)
        raise SystemExit(2)


def layout(prog: str) -> argparse.HelpFormatter:
    """Paragraphs and examples as written, options aligned."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=width())
