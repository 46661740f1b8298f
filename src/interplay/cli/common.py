"""Shared by all commands: options with completion, the folders of a project, and tables."""

import contextlib
import inspect
import logging
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from interplay.core.model import UserError, escape_control, print_visible

if TYPE_CHECKING:
    from interplay.results.catalog import Catalog, Ref
    from interplay.study.plan import Plan


LOG = logging.getLogger(__name__)

CONFIGS = Path("configs")
RESULTS = Path("results")
LOGS = Path("logs")
FOLDERS = {"method": "method", "sampler": "curriculum", "model": "model", "task": "task", "scale": "scale"}
"""Folder below configs whose files are the values of a key, by the key's last part."""

F = TypeVar("F", bound=Callable[..., Any])
Completer = Callable[..., list[str]]
"""Words that are possible at a place of the command line, given the beginning of the last."""


# -- completion --------------------------------------------------------------------------------------------------------


def complete_study(incomplete: str) -> list[str]:
    """Studies of the project."""
    return starting(names_in("study"), incomplete)


def complete_scale(incomplete: str) -> list[str]:
    """Scales of the project."""
    return starting(names_in("scale"), incomplete)


def complete_arm(ctx: typer.Context, incomplete: str) -> list[str]:
    """Arms of the study that precedes this word."""
    return starting(_declared(str(ctx.params.get("study")), "arms"), incomplete)


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tables of the study that precedes this word."""
    return starting(_declared(str(ctx.params.get("study")), "tables"), incomplete)


def complete_side(incomplete: str) -> list[str]:
    """Arms as STUDY/ARM, and stages; studies, until one is complete."""
    return sorted(
        {address.rpartition("/")[0] for address in complete_stage(incomplete) if "@" in address} - {""}
    ) or complete_stage(incomplete)


def complete_stage(incomplete: str) -> list[str]:
    """Addresses STUDY/ARM/STAGE@SEED, those of combinations included; studies, until one is complete."""
    study = max((name for name in names_in("study") if incomplete.startswith(f"{name}/")), key=len, default="")
    return starting([f"{study}/{label}" for label in _labels(study)] if study else names_in("study"), incomplete)


def names_in(folder: str) -> list[str]:
    """The files of a folder below configs, without their ending."""
    root = CONFIGS / folder
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def _declared(study: str, key: str) -> list[str]:
    """Names under a key of a study."""
    return [str(name) for name in study_tree(study).get(key) or {}]


def study_tree(study: str) -> dict[str, Any]:
    """A study's file above the studies and the files of configs/ that it takes in; empty where one cannot be read, since a shell
    should not show errors."""
    import yaml

    from interplay.core import keys

    def read(path: str) -> Any:
        return yaml.load((CONFIGS / f"{path}.yaml").read_text(), Loader=yaml.CSafeLoader)

    try:
        own, tree = read(f"study/{study}"), dict[str, Any]()
        for base in keys.extended_studies(own, study):
            tree = _merged(tree, study_tree(base))
        for entry in own.get("defaults", []):
            for group, name in entry.items() if isinstance(entry, dict) else ():
                folder, _, at = group.removeprefix("override ").lstrip("/").partition("@")
                value = read(f"{folder}/{name}") if at and "_here_" not in at else {}
                for part in reversed(at.split(".")):
                    value = {part: value}
                tree = _merged(tree, value)
        return _merged(tree, own)
    except (OSError, yaml.YAMLError, TypeError, AttributeError, RecursionError):  # AttributeError: PyYAML without libyaml
        return {}


def _merged(one: Any, other: Any) -> Any:
    both = isinstance(one, dict) and isinstance(other, dict)
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}} if both else other


def _labels(study: str) -> list[str]:
    """The stages of all committed plans of a study, as addresses within it; of one without a plan its arms, and the stages that
    were made of it."""
    import json

    found: dict[str, None] = {}
    for path in sorted((CONFIGS / "plans").glob(f"{study}.*.lock.json")):
        try:
            for section in json.loads(path.read_bytes())["stages"].values():
                above = [""]
                for line in section:
                    label = line.split(" ", 2)[-1] if line.count(" ") > 1 else line.split(" ")[-1]
                    same = len(label) - len(label.lstrip("/"))
                    above = [*above[:same], *label[same:].split("/")]
                    found["/".join(above)] = None
        except (OSError, ValueError, KeyError, AttributeError):  # a shell should not show errors
            continue
    named = RESULTS / "by-name"
    made = {path.relative_to(path.parents[1]).as_posix() for path in named.glob(f"{study}.*/*/*@*")}
    return list(found) or [*(f"{arm}/" for arm in _declared(study, "arms")), *sorted(made)]


def starting(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that go on from what is written."""
    return [word for word in words if word.startswith(incomplete)]


# -- options -----------------------------------------------------------------------------------------------------------


def option(name: str, help: str, short: str = "", complete: Completer | None = None, **more: Any) -> Any:
    """An option with a value, whose help text includes its default. The value is called like the option unless `metavar` is."""
    names, metavar = [short, name] if short else [name], name.lstrip("-").replace("-", "_").upper()
    return typer.Option(*names, help=help, show_default=False, autocompletion=complete, **{"metavar": metavar, **more})


def flag(name: str, help: str) -> Any:
    """An option without a value, off unless it is given."""
    return typer.Option(name, help=help, show_default=False)


def argument(help: str, complete: Completer | None = None, metavar: str | None = None) -> Any:
    """A word without a dash."""
    return typer.Argument(help=help, show_default=False, autocompletion=complete, metavar=metavar)


STUDY = "a study: its name or its file below configs/study"
Study = Annotated[str, argument(STUDY, complete_study)]
AnyStudy = Annotated[str | None, argument(STUDY, complete_study)]
STAGE = "an address, STUDY/ARM/STAGE@SEED or STUDY.SCALE/..., or the beginning of a digest; @STEP names a checkpoint"
Stage = Annotated[str, argument(STAGE, complete_stage)]
SCALE = "a file below configs/scale (default: that of configs/config.yaml)"
Scale = Annotated[str | None, option("--scale", SCALE, complete=complete_scale)]
MOST_LISTED = 8
"""Names in a list of what is known."""
MOST = 10**6
"""Upper bound of options in hours or days; larger values are almost certainly typos."""
HOURS: dict[str, Any] = {"metavar": "H", "min": 0, "max": MOST}
DAYS = {**HOURS, "metavar": "DAYS"}


class Help:
    """Mixin of a typer command: lines `COMMAND  # PURPOSE` of its epilog are shown in two columns."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, or a last paragraph."""
        if shown := examples(self.epilog):
            with formatter.section("Example" if len(shown) == 1 else "Examples"):
                formatter.write_dl(shown, col_max=60)
        else:
            super().format_epilog(ctx, formatter)  # type: ignore[misc]


class Command(Help, TyperCommand):
    """A command. A closed pipe, as with `| head`, is no error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stderr.close()
            return 0


def examples(epilog: str | None) -> list[tuple[str, str]]:
    """Lines that can be typed as they are, with the purpose of each."""
    pairs = [line.partition("  # ") for line in (epilog or "").splitlines()]
    return [(line, purpose) for line, mark, purpose in pairs if mark]


def command(app: typer.Typer, name: str, settings: dict[str, Any] | None = None) -> Callable[[F], F]:
    """Add a function to a module's app as a command: its docstring is the text of its help, with lines after `Examples:`."""

    def add(function: F) -> F:
        text, _, shown = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
        shown = textwrap.dedent(shown)
        return app.command(name, cls=Command, help=text, epilog=shown or None, context_settings=settings)(function)

    return add


def new_app() -> typer.Typer:
    """The app of one module of commands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


# -- studies -----------------------------------------------------------------------------------------------------------


def default_scale() -> str:
    """The scale of configs/config.yaml."""
    from interplay.study import choices

    return choices.chosen(CONFIGS, {})[1]


def chosen_scale(scale: str | None) -> str:
    """The scale that is named, else that of configs/config.yaml. Raises UserError for an empty name, as of a shell variable
    that is not set leaves."""
    if scale == "":
        raise UserError("--scale: it is empty; name a scale, such as smoke, or leave --scale out")
    return scale or default_scale()


def plan_of(study: str, scale: str | None, given: Sequence[str] = ()) -> "Plan":
    """The plan of a study; at the scale of configs/config.yaml unless one is named, among the given keys, `scale=smoke`, too."""
    from interplay.study import expand

    named = [text.removeprefix("scale=") for text in given if text.startswith("scale=")]
    keys = [text for text in given if not text.startswith("scale=")]
    return expand.plan_study(CONFIGS, study, chosen_scale(next(reversed(named), None) if scale is None else scale), keys)


def at_look(plan: "Plan", count: int | None = None) -> "Plan":
    """The plan with the replicates of a look, by default the last one; itself where the study declares no looks."""
    from interplay.study import expand, plan as plans

    looks = (plan.design.get("stopping") or {}).get("looks")
    if not looks:
        return plan
    seeds = plans.replicate_seeds(plan.design["seeds"]["values"], looks[-1] if count is None else count)
    return expand.plan_study(CONFIGS, plan.study, plan.scale, [seeds_key(seeds)])


def seeds_key(seeds: Sequence[int]) -> str:
    """The key of the command line that gives a study these seeds."""
    return f"seeds.values=[{','.join(map(str, seeds))}]"


def every_plan() -> "list[Plan]":
    """The plans that are committed: of all studies at all scales, as far as a scale does not list its own."""
    from interplay.core import execution
    from interplay.study import compose, expand

    parts: compose.Parts = {}
    with execution.pause_garbage_collection():
        return [expand.plan_study(CONFIGS, *pair, parts=parts) for pair in expand.committed(CONFIGS)]


def launched_plans() -> Iterator["Plan"]:
    """The plans, as their files are now, of all studies at the scales at which they were launched."""
    from interplay.results import state
    from interplay.study import expand

    for study, scale in sorted(state.launched_studies(RESULTS)):
        with contextlib.suppress(UserError):
            yield expand.plan_study(CONFIGS, study, scale)


def find_stage(text: str, scale: str | None) -> "tuple[Catalog, Ref]":
    """The stage that `text` names, and the catalog that holds it."""
    from interplay.results import catalog

    known = catalog.read_catalog(CONFIGS, RESULTS)
    return known, catalog.resolve_stage(text, known, CONFIGS, chosen_scale(scale))


def find_folder(text: str, scale: str | None = None) -> Path:
    """The artifact folder of the stage that `text` names; a digest is looked up in results/ alone, which takes no plan. Raises
    UserError where the stage was never started."""
    from interplay.core import artifact
    from interplay.results import catalog

    if "/" not in text:
        return artifact.find(RESULTS, text)
    known, ref = find_stage(text, scale)
    folder = artifact.folder(RESULTS, known.stages[ref.digest]["kind"], ref.digest)
    if not folder.exists():
        study, _ = catalog.split_study(text, CONFIGS, chosen_scale(scale))
        plan = plan_of(*study) if study else None
        hint = f"{found}, or " if plan and (found := hint_other_scale(plan)) else ""
        launch = f"interplay run {f'{plan.study} --scale {plan.scale}' if plan else text.split('/')[0]}"
        raise UserError(f"{text}: not made yet ({ref.digest}); {hint}`{launch}` makes what its study needs")
    return folder


def hint_other_scale(plan: "Plan") -> str:
    """Other scales with results, and what to add to the command; empty where the plan has some, or no scale has."""
    from interplay.results import state

    return state.other_scale_hint(CONFIGS, RESULTS, plan)


def warn_of_scale(plan: "Plan") -> None:
    """Of other scales with results, where the plan has none."""
    if hint := hint_other_scale(plan):
        LOG.warning("no results of %s at scale %s yet; %s", plan.study, plan.scale, hint)


def no_results(plan: "Plan", hint: str) -> str:
    """Message that a study has no results, with the remedy; `hint` is that of `hint_other_scale`."""
    launch = f"interplay run {plan.study} --scale {plan.scale}"
    return f"{RESULTS}: no results of {plan.study} at scale {plan.scale} yet; {f'{hint}, or ' if hint else ''}run `{launch}`"


def report_lines(plan: "Plan") -> list[str]:
    """A plan's verdicts and the path of its page, which is made again where it is gone; of an unfinished study a partial one."""
    from interplay.core import artifact
    from interplay.results import catalog

    looks = (plan.design.get("stopping") or {}).get("looks", [])
    done = [one for one in (at_look(plan, look) for look in looks) if artifact.done(RESULTS / "report" / one.report)]
    plan = done[-1] if done else plan  # the latest look
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        return [_partial_report(plan)]
    if not (folder / "report.html").exists():
        from interplay.report.write import answers, page

        page.remake_page(plan.report_spec(), answers.report_inputs(plan, RESULTS), folder)
    return [*catalog.verdict_lines(folder), f"report: {folder / 'report.html'}"]


def _partial_report(plan: "Plan") -> str:
    """Write the report of an unfinished study; returns a line with its path."""
    from interplay.results import state
    from interplay.run import graph

    if not state.has_begun(RESULTS, plan):
        raise UserError(no_results(plan, hint_other_scale(plan)))
    return graph.partial_report(graph.Graph(RESULTS, [plan]), plan)


# -- tables ------------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """A table: head, rows, and the right-aligned columns. With `total`, the last row is the sum."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    total: bool = False


def show_parts(*parts: str | Grid, spaced: bool = False) -> None:
    """Print texts and tables: tables by rich on a terminal, as plain columns into a file or a pipe. `spaced`: with blank lines in
    between."""
    for number, part in enumerate(parts):
        if spaced and number:
            print_visible("")
        if isinstance(part, str):
            print_visible(part)
        elif sys.stdout.isatty():
            _draw(part)
        else:
            from interplay.core.metrics import aligned

            print_visible("\n".join(aligned([part.head, *part.rows], 0, part.right)))


def _draw(grid: Grid) -> None:
    from rich import box, console, table as tables, text

    table = tables.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, name in enumerate(grid.head):
        table.add_column(name, justify="right" if at in grid.right else "left", overflow="fold")
    for number, row in enumerate(grid.rows):
        if grid.total and number == len(grid.rows) - 1:
            table.add_section()
        table.add_row(*(text.Text(escape_control(cell)) for cell in row))
    console.Console().print(table)
