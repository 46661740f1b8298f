"""Commands that read results: `interplay explain`, `show`, `lineage`, `compare`, `rollouts`, `novelty` and `rows`, and
`interplay audit` of a task."""

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from interplay.cli import common
from interplay.cli.common import CONFIGS, LOGS, RESULTS, argument, command, flag, option
from interplay.core import artifact, model
from interplay.kinds.table import SETS
from interplay.report import metric_spec
from interplay.study.plan import Plan
from interplay.tasks.verdict import Row

FORMATS = {".svg": "svg", ".mmd": "mermaid", ".md": "mermaid"}
"""Ending of a file -> what `lineage` writes into it."""
NOVELTY = ("band", "right", "graphs", "copied", "expected", "nearest", "of other ops")
LONGEST_INDEX = 15
"""Digits of a row's number."""
TEXTS = ("prompt", "solution", "answer", "band", "mode", "op", "family")
"""Columns that a curation step may change."""
LONG_TEXT = 400
"""Characters from which on a changed text is shown as a diff of its lines or sentences."""

app = common.new_app()


@command(app, "explain")
def explain_cell(
    study: common.Study,
    table: Annotated[str, argument("a table of the study, such as main, or main_differences", common.complete_table)],
    row: Annotated[str, argument("an arm, or `arm - against` for a difference", common.complete_arm)],
    column: Annotated[str, argument("a band, or `op 9`; COLUMN/METRIC is one way to name the metric")],
    scale: common.Scale = None,
    metric: Annotated[str | None, option("--metric", "such as strict_pass@K or nll (default: the table's first)")] = None,
    seed: Annotated[int | None, option("--seed", "only the chain of this seed", min=0)] = None,
) -> None:
    """Prints the provenance of one cell of a table: the samples and their number, the seeds, the evaluation, the model, every
    stage that led to it and its data.

    Examples:
        interplay explain edge main rl_edge edge  # table main, row rl_edge, column edge
    """
    from interplay.report.inspect import explain

    plan = common.plan_of(study, scale)
    spec, stages = plan.report_spec(), plan.stages_json()
    cell = explain.match_cell(spec, stages, table, row, column, metric)
    common.warn_of_scale(plan)
    model.print_visible(explain.explain(spec, plan.report, stages, RESULTS, cell, seed), end="")


@command(app, "show")
def show_stage(
    stage: common.Stage,
    scale: common.Scale = None,
    full: Annotated[bool, flag("--full", "the whole spec, defaults included")] = False,
    config: Annotated[
        bool, flag("--trainer-config", "the configuration of its trainer (verl, trl) as YAML, and nothing else")
    ] = False,
) -> None:
    """Shows one stage: its kind and settings, its dependencies and users, its metrics, and when and where it ran.

    Examples:
        interplay show edge/rl_edge/rl@0  # a stage of a study
        interplay show 3f2a  # the stage whose digest starts with 3f2a
    """
    from interplay.api import single
    from interplay.report.inspect import stage_view

    known, ref = common.find_stage(stage, scale)
    if config:
        model.print_visible(single.trainer_config(ref.digest, known.stages, RESULTS), end="")
        return
    model.print_visible(
        stage_view.stage_card(ref.digest, ref.step, known.stages, known.locks.get(ref.digest, []), RESULTS, LOGS, full), end=""
    )


@command(app, "lineage")
def draw_lineage(
    what: Annotated[str, argument("a study, or a stage as `interplay show` takes it", common.complete_stage, "study|digest")],
    scale: common.Scale = None,
    form: Annotated[
        Literal["mermaid", "svg"] | None, option("--format", "mermaid or svg (default: by the file's ending, else mermaid)")
    ] = None,
    across: Annotated[int, option("--across", "boxes side by side in an SVG, at most (default 8; 3 for a phone)", min=1)] = 8,
    output: Annotated[Path | None, option("--output", "write to this file", short="-o")] = None,
) -> None:
    """Draws the graph of a study, or of a stage and its ancestors, as Mermaid text or as SVG. Stages that differ only in their
    seed are one box.

    Examples:
        interplay lineage edge > edge.mmd  # the whole study
        interplay lineage 3f2a --output stage.svg  # one stage, as a picture
    """
    from interplay.report.draw import diagram
    from interplay.results import catalog

    stages = catalog.lineage_of(what, CONFIGS, RESULTS, common.chosen_scale(scale))
    states = {digest: artifact.state_of(artifact.folder(RESULTS, stage["kind"], digest)).name for digest, stage in stages.items()}
    nodes, edges = diagram.study_graph(stages, {digest: "new" if name == "missing" else name for digest, name in states.items()})
    chosen = form or (FORMATS.get(output.suffix, "mermaid") if output else "mermaid")
    drawn = diagram.diagram_svg(nodes, edges, across) if chosen == "svg" else diagram.mermaid(nodes, edges)
    if output is None:
        model.print_visible(drawn, end="")
        return
    try:
        artifact.write_atomic(output, drawn.encode())
    except OSError as error:
        raise model.UserError(f"-o {output}: {error.strerror}; name a file in a folder that can be written") from None
    model.print_visible(f"wrote {output}: {len(stages)} stages in {len(nodes)} boxes")


@command(app, "compare")
def compare_sides(
    a: Annotated[str, argument("a stage as for `interplay show`, or an arm as STUDY/ARM", common.complete_side)],
    b: Annotated[str, argument("the second stage or arm", common.complete_side)],
    scale: common.Scale = None,
    metric: Annotated[
        str, option("--metric", f"{', '.join(metric_spec.metric_names())} (default strict_pass@1)")
    ] = "strict_pass@1",
    column: Annotated[str | None, option("--column", "only prompts of this band, or of `op:N`")] = None,
    count: Annotated[int, option("-n", "flipped items shown in each direction (default 2)", min=1)] = 2,
) -> None:
    """Compares two stages or two arms: the settings that differ, the metrics of both with the difference paired by prompt and
    seed, and the items on which they disagree, with both completions.

    Examples:
        interplay compare 3f2a 77c0  # two stages
        interplay compare edge/rl_edge edge/rl_hard  # two arms of a study
    """
    from interplay.report.inspect import compare
    from interplay.results import catalog

    at = common.chosen_scale(scale)
    known = catalog.read_catalog(CONFIGS, RESULTS)
    plans: dict[tuple[str, str], Plan] = {}

    def side(name: str) -> compare.Side:
        study, arm = catalog.split_study(name.replace(":", "/", 1), CONFIGS, at)
        if study and arm and "@" not in arm:
            plan = common.plan_of(*study)
            plans.setdefault(study, plan)
            known.stages.update(plan.stages_json())
            if arm not in catalog.readable_names(plan) and not arm.startswith(("data.", "stages.")):
                return compare.of_arm(name, arm, plan.report_spec())
        return compare.of_stage(name, catalog.resolve_stage(name, known, CONFIGS, at).digest, known.stages)

    band = column.replace(" ", ":") if column else None
    sides = side(a), side(b)
    for plan in plans.values():
        common.warn_of_scale(plan)
    model.print_visible(compare.compare(*sides, known.stages, RESULTS, metric, band, count), end="")


def _classes(incomplete: str) -> list[str]:
    """Classes of errors of the task families, for a shell."""
    return common.starting(metric_spec.ERRORS[1:], incomplete)


@command(app, "rollouts")
def list_rollouts(
    stage: common.Stage,
    scale: common.Scale = None,
    failed: Annotated[bool, flag("--failed", "only completions that are not strictly correct")] = False,
    passed: Annotated[bool, flag("--passed", "only completions that are")] = False,
    error: Annotated[
        str | None,
        option("--error", "only completions of a class of errors, such as missing_node", complete=_classes),
    ] = None,
    step: Annotated[
        int | None, option("--step", "only rollouts of this step of an rl stage (default: the last ones)", min=1)
    ] = None,
    count: Annotated[int, option("-n", "number of different completions (default 10)", min=1)] = 10,
) -> None:
    """Prints completions of an rl, evaluate or generate stage with their problems, gold solutions and verdicts, episodes turn by
    turn. Equal completions of a prompt are shown once. A path is of another trainer's rollouts: TRL's completions/, verl's
    rollout_data_dir, results.jsonl of verifiers.

    Examples:
        interplay rollouts edge/rl_edge/eval@0 --failed -n 5  # five incorrect completions
        interplay rollouts edge/rl_edge/rl@0 --step 1  # the first step of an rl stage
        interplay rollouts runs/grpo/completions  # what TRL logged with log_completions
    """
    from pyarrow import ArrowInvalid

    from interplay.report.inspect import stage_view

    if failed and passed:
        raise model.UserError("rollouts: --passed: not allowed with --failed; name one, or none for all completions")
    folder = Path(stage) if stage and Path(stage).exists() else common.find_folder(stage, scale)
    try:
        wanted = True if failed else False if passed else None
        model.print_visible(stage_view.show_rollouts(folder, wanted, count, step, error), end="")
    except ArrowInvalid as error:
        own = (folder / "stage.json").exists()  # never of rollouts that only their owner can make again
        remedy = f"remove {folder} to make it again" if own else "name a file or folder of whole Parquet or JSON lines files"
        raise model.UserError(f"{folder}: not readable ({error}); {remedy}") from None


@command(app, "novelty")
def measure_novelty(
    stage: Annotated[str, argument(f"an evaluate stage: {common.STAGE}", common.complete_stage)],
    against: Annotated[
        str, option("--against", "problem set to compare with, as trained on", complete=common.complete_stage, metavar="STAGE")
    ],
    scale: common.Scale = None,
    by: Annotated[
        Literal["strict", "answer"], option("--by", "which samples count as correct: strict or answer (default strict)")
    ] = "strict",
) -> None:
    """Compares the graphs of an evaluation's correct solutions, up to renaming, with the gold graphs of a problem set (op_dag,
    op_dag_prose): by band, the share equal to one of the set of the same op (copied), the share whose problem's own gold graph
    is (expected), and the mean similarity to the nearest, the Jaccard index of their nodes' colours.

    Examples:
        interplay novelty edge/rl_edge/eval@0 --against edge/data.edge  # an evaluation and what its model was trained on
    """
    from interplay.data import similarity

    samples, problems = (common.find_folder(name, scale) for name in (stage, against))
    found = artifact.read_json(samples / "stage.json")
    if found["kind"] != "evaluate":
        raise model.UserError(f"novelty: {stage} is a {found['kind']} stage; name one of kind evaluate")
    if problems.parent.name not in SETS:
        raise model.UserError(f"novelty: --against {against} is a {problems.parent.name} stage; name a problem set")
    if not (samples / "samples.parquet").exists():
        remedy = "run its study, or get them by `interplay store pull`"
        raise model.UserError(f"novelty: {stage} has no samples here; {remedy}")
    tested = artifact.find(RESULTS, found["deps"]["data"])
    rows = [
        (band, f"{right}", f"{graphs}", f"{copied:.1%}", f"{expected:.1%}", f"{near:.3f}", f"{without}")
        for band, right, graphs, copied, expected, near, without in similarity.novelty_by_band(samples, tested, problems, by)
    ]
    common.show_parts(common.Grid(NOVELTY, rows, right=range(1, len(NOVELTY))) if rows else "no sample is correct")


@command(app, "rows")
def list_rows(
    stage: Annotated[str, argument(f"a problem set: {common.STAGE}; STAGE:INDEX for one row", common.complete_stage)],
    scale: common.Scale = None,
    index: Annotated[int | None, option("--index", "one row, and its provenance", min=0)] = None,
    changed: Annotated[
        str | None, option("--changed", "only rows that this step changed, such as poison:conflict", metavar="STEP")
    ] = None,
    count: Annotated[int, option("-n", "number of rows (default 10)", min=1)] = 10,
) -> None:
    """Prints rows of a problem set: number, band, op, form, and the curation steps that changed them. With --index one complete
    row: the set in which it was made, the steps that changed it, and its text before and after. Error messages name rows as
    DIGEST:INDEX.

    Examples:
        interplay rows edge/data.edge  # the first rows of the set
        interplay rows 3f2a --changed poison:conflict  # those that a step changed
        interplay rows 3f2a:17  # one row, and its provenance
    """
    name, _, place = stage.partition(":")
    if place and (not place.isdecimal() or len(place) > LONGEST_INDEX or index is not None):
        raise model.UserError(f"{model.shorten_value(stage)}: must be STAGE or STAGE:INDEX, and --index with the former alone")
    folder = common.find_folder(name, scale)
    one = int(place) if place else index
    model.print_visible(_row_list(folder, changed, count) if one is None else _provenance(folder, one), end="")


def _row_list(folder: Path, changed: str | None, most: int) -> str:
    """One line for each of the first rows, or of those that the step `changed` changed."""
    rows = _rows(folder)
    chosen = [row for row in rows if changed is None or changed in row.transforms]
    if not chosen:
        steps = sorted({step for row in rows for step in row.transforms})
        known = f"; changed by {', '.join(steps)}" if steps else "; no step changed any row"
        raise model.UserError(f"{folder}: no row that {changed} changed{known}")
    lines = [
        f"{row.index:6}  {row.band}  op {row.op}  {row.mode}  from {row.origin}{'  ' if row.transforms else ''}"
        f"{' > '.join(row.transforms)}  {_brief(row.prompt)} -> {_brief(row.answer)}"
        for row in chosen[:most]
    ]
    return "\n".join([*lines, f"{len(chosen)} rows" if len(chosen) <= most else f"{most} of {len(chosen)} rows"]) + "\n"


def _provenance(folder: Path, index: int) -> str:
    """One row: its origin, the steps that changed it, and each of its columns before and after."""
    row = _row(folder, index)
    digest, _, number = row.origin.partition(":")
    lines = [f"row {folder.name}:{index}", f"  made in   {_made_in(folder, digest)}, as its row {number}"]
    lines.append(f"  changed   {' > '.join(row.transforms) or 'by no step'}")
    try:
        first: Row | None = _row(artifact.find(folder.parent.parent, digest), int(number))
    except model.UserError:
        first = None
        lines.append("  before    its origin is not in results/")
    for name in TEXTS:
        after = str(getattr(row, name))
        before = after if first is None else str(getattr(first, name))
        lines += [f"  {name:9} {after}"] if before == after else _text_diff(name, before, after)
    return "\n".join(lines) + "\n"


def _text_diff(name: str, before: str, after: str) -> list[str]:
    if len(before) + len(after) < LONG_TEXT:
        return [f"  {name:9} - {before}", f"  {'':9} + {after}"]
    old, new = (text.replace(". ", ".\n").splitlines() for text in (before, after))
    marked = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    return [f"  {name:9} {len(before)} -> {len(after)} characters", *(f"  {'':9} {line}" for line in marked)]


def _made_in(folder: Path, digest: str) -> str:
    """Such as `dataset 3f2a... data.hotpot`."""
    try:
        stage = artifact.read_json(artifact.find(folder.parent.parent, digest) / "stage.json")
    except model.UserError:
        return f"{digest}, which is not in results/"
    return " ".join(filter(None, [stage["kind"], digest, stage.get("label", "")]))


def _row(folder: Path, index: int) -> Row:
    rows = _rows(folder)
    found = next((row for row in rows if row.index == index), None)
    if found is None:
        raise model.UserError(f"{folder}: has no row {index}; `interplay rows {folder.name}` lists some of its {len(rows)}")
    return found


def _rows(folder: Path) -> list[Row]:
    from interplay.data import sets

    if folder.parent.name not in SETS:
        raise model.UserError(f"{folder}: a {folder.parent.name} stage has no rows; give the digest of a {', '.join(SETS)} stage")
    return sets.read_rows(folder, 0)


def _brief(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


@command(app, "audit")
def audit_task(
    task: Annotated[str, argument("a task family, or its keys: '{name: reasoning_gym, dataset: puzzle24}'")],
    op: Annotated[int | None, option("--op", "difficulty of the problems; by default the least of the family from 1 on")] = None,
    rows: Annotated[
        int | None, option("--rows", "problems that are judged (default: 24; of all datasets 12 each)", min=1)
    ] = None,
) -> int:
    """What the verifier of a task pays to completions that did not do the work, an environment to policies that play whole
    episodes, and whether problems repeat, leak or change with the hash seed. Exit code 1 where a check fails.

    Examples:
        interplay audit op_dag  # a family of the package
        interplay audit mirror.py:Mirror --op 5  # a class of your own, in configs/study
        interplay audit '{name: reasoning_gym, dataset: leg_counting}'  # a dataset of reasoning-gym
        interplay audit reasoning_gym  # all of them, a line each
    """
    from interplay.data import audit
    from interplay.study.context import parse_task

    given = _task_keys(task)
    every = [given]
    if given.get("name") == "reasoning_gym" and "dataset" not in given:
        from interplay.tasks.adapters.reasoning_gym import datasets

        every = [{**given, "dataset": name} for name in datasets()]
    worst, count = 0, rows or (24 if len(every) == 1 else 12)
    with audit.Elsewhere() as there:
        for one in every:
            chosen = parse_task(one, model.KeyPlace("audit"), CONFIGS / "study")
            low, high = chosen.ops()
            if op is not None and not low <= op <= high:
                raise model.UserError(f"--op = {op}: {given['name']} has ops from {low} to {high}")
            try:
                found = audit.audit_task(chosen, max(low, min(1, high)) if op is None else op, count, there)
            except model.UserError as error:
                if len(every) == 1:
                    raise
                said, worst = str(error), 1
            else:
                failed = [finding.check for finding in found if finding.failed]
                said, worst = ", ".join(failed) or "sound", max(worst, len(failed) > 0)
            lines = [f"{one['dataset']:24} {said}"] if len(every) > 1 else map(audit.finding_line, found)
            model.print_visible("\n".join(lines))
    return worst


def _task_keys(task: str) -> dict[str, Any]:
    """The keys of a task, of a word of the command line. Raises UserError for a word that is neither a name nor keys."""
    try:
        keys = yaml.safe_load(task)
    except yaml.YAMLError:
        keys = None
    if not isinstance(keys, str | dict):
        raise model.UserError(f"audit: {task!r} is neither a family, such as op_dag, nor its keys, such as '{{name: op_dag}}'")
    return keys if isinstance(keys, dict) else {"name": keys}
