"""What commands share: their options with completion, where a project's parts lie, and how a result reaches a terminal."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from interplay.core.model import escape_control, print_visible

if TYPE_CHECKING:
    from interplay.study.plan import Plan


CONFIGS = Path("configs")
RESULTS = Path("results")
LOGS = Path("logs")

F = TypeVar("F", bound=Callable[..., Any])


# -- completion --------------------------------------------------------------------------------------------------------


def complete_study(incomplete: str) -> list[str]:
    """Studies of the project."""
    return _starting(_names("study"), incomplete)


def complete_scale(incomplete: str) -> list[str]:
    """Scales of the project."""
    return _starting(_names("scale"), incomplete)


def complete_arm(ctx: typer.Context, incomplete: str) -> list[str]:
    """Arms of the study that stands before this word."""
    return _starting(_arms(str(ctx.params.get("study"))), incomplete)


def complete_side(incomplete: str) -> list[str]:
    """Arms as STUDY:ARM; studies, until one is whole."""
    study, colon, _ = incomplete.partition(":")
    return _starting(
        [f"{study}:{arm}" for arm in _arms(study)] if colon else [f"{name}:" for name in _names("study")], incomplete
    )


def complete_stage(incomplete: str) -> list[str]:
    """The beginning of a by-name path, STUDY/ARM/; studies, until one is whole."""
    study = max((name for name in _names("study") if incomplete.startswith(f"{name}/")), key=len, default="")
    return _starting([f"{study}/{arm}/" for arm in _arms(study)] if study else _names("study"), incomplete)


def _names(folder: str) -> list[str]:
    root = CONFIGS / folder
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def _arms(study: str) -> list[str]:
    """The arms that a study's file names; nothing of a file that cannot be read: a shell is not to show errors."""
    import yaml

    try:
        found = yaml.load((CONFIGS / "study" / f"{study}.yaml").read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return [str(name) for name in found["arms"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []


def _starting(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


# -- options -----------------------------------------------------------------------------------------------------------


def option(*names: str, help: str, **more: Any) -> Any:
    """An option whose help text says its default itself."""
    return typer.Option(*names, help=help, show_default=False, **more)


def argument(help: str, **more: Any) -> Any:
    """A word without a dash."""
    return typer.Argument(help=help, show_default=False, **more)


STUDY = "a file below configs/study, without .yaml"
Study = Annotated[str, argument(STUDY, autocompletion=complete_study)]
AnyStudy = Annotated[str | None, argument(STUDY, autocompletion=complete_study)]
Scale = Annotated[
    str | None,
    option(
        "--scale",
        metavar="SCALE",
        help="a file below configs/scale (default: that of configs/config.yaml)",
        autocompletion=complete_scale,
    ),
]
MOST_HOURS = 10**6
"""Of an option of hours or days: what is more, is a slip, and infinity is no limit."""


class Help:
    """Mixed into a command of typer: its epilog's lines `COMMAND  # WHAT FOR` are shown as two columns."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, or a last paragraph."""
        if shown := examples(self.epilog):
            with formatter.section("Example" if len(shown) == 1 else "Examples"):
                formatter.write_dl(shown, col_max=60)
        else:
            super().format_epilog(ctx, formatter)  # type: ignore[misc]


class Command(Help, TyperCommand):
    """A command. The reader of a pipe, such as `head`, that has seen enough, is no error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stderr.close()
            return 0


def examples(epilog: str | None) -> list[tuple[str, str]]:
    """Lines that may be typed as they stand, with what each does."""
    pairs = [line.partition("  # ") for line in (epilog or "").splitlines()]
    return [(line, purpose) for line, mark, purpose in pairs if mark]


def command(app: typer.Typer, name: str, **shown: str) -> Callable[[F], F]:
    """Make a function a command of a module's app: its docstring is the paragraph of its help, `examples` the lines below."""
    return app.command(name, cls=Command, epilog=shown.get("examples", "").strip() or None)


def new_app() -> typer.Typer:
    """The app of one module of commands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


# -- studies -----------------------------------------------------------------------------------------------------------


def default_scale() -> str:
    """The scale of configs/config.yaml."""
    from interplay.study import compose

    return compose.chosen(CONFIGS, {})[1]


def plan_of(study: str, scale: str | None) -> "Plan":
    """The plan of a study; at the scale of configs/config.yaml unless one is named."""
    from interplay.study.expand import plan_study

    return plan_study(CONFIGS, study, scale or default_scale())


def find_elsewhere(plan: "Plan") -> str:
    """At which other scales there are results, with what to add to the command; empty where the plan has some, or no scale."""
    from interplay.results import state

    return state.other_scale_hint(CONFIGS, RESULTS, plan)


def nothing_of(plan: "Plan", where: str) -> str:
    """That nothing of a study is there, and what would change that; `where` else there is something, as of `find_elsewhere`."""
    launch = f"snakemake all --config study={plan.study} scale={plan.scale}"
    return f"{RESULTS}: nothing of {plan.study} at scale {plan.scale} yet; {f'{where}, or ' if where else ''}run `{launch}`"


# -- tables ------------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """A table: its head, its rows, and which columns are flush right. The row of all, where there is one, comes last."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    total: bool = False


def show_parts(*parts: str | Grid, apart: bool = False) -> None:
    """Print texts and tables: tables by rich on a terminal, as plain columns into a file or a pipe. `apart`: with a blank line
    between two."""
    for number, part in enumerate(parts):
        if apart and number:
            print_visible("")
        if isinstance(part, str):
            print_visible(part)
        elif sys.stdout.isatty():
            _draw(part)
        else:
            from interplay.report.write.plain import aligned

            print_visible("\n".join(aligned([part.head, *part.rows], 0, part.right)))


def _draw(grid: Grid) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, name in enumerate(grid.head):
        table.add_column(name, justify="right" if at in grid.right else "left", overflow="fold")
    for number, row in enumerate(grid.rows):
        if grid.total and number == len(grid.rows) - 1:
            table.add_section()
        table.add_row(*(Text(escape_control(cell)) for cell in row))
    Console().print(table)
