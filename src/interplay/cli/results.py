"""Commands that read results: `interplay report`, `explain`, `show`, `lineage` and `compare`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from interplay.cli import common
from interplay.cli.common import CONFIGS, LOGS, RESULTS, argument, command, option
from interplay.core import artifact
from interplay.core.model import UserError, print_visible
from interplay.report import metric_spec

if TYPE_CHECKING:
    from interplay.report.spec import ReportSpec
    from interplay.study.plan import Plan


LOG = logging.getLogger(__name__)

FORMATS = {".svg": "svg", ".mmd": "mermaid", ".md": "mermaid"}
"""Ending of a file -> what `lineage` writes into it."""

app = common.new_app()


@command(app, "report", examples="interplay report edge  # where the page lies")
def locate_report(study: common.Study, scale: common.Scale = None) -> None:
    """Prints the path of a study's report. Where arms have failed or are unfinished, it writes a partial report that lists what
    is missing, and why."""
    plan = common.plan_of(study, scale)
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        print_visible(_partial_report(plan))
        return
    if not (folder / "report.html").exists():
        from interplay.report.write import page

        stages = plan.stages[plan.report].deps.values()
        inputs = {digest: artifact.folder(RESULTS, plan.stages[digest].kind, digest) for digest in stages}
        page.remake_page(cast("ReportSpec", plan.stages[plan.report].spec), inputs, folder)
    print_visible(f"report: {folder / 'report.html'}")


def _partial_report(plan: "Plan") -> str:
    """Write the report of an unfinished study; returns a line with its path."""
    from interplay.results import state
    from interplay.run import graph

    if not state.has_begun(RESULTS, plan):
        raise UserError(common.no_results(plan, common.hint_other_scale(plan)))
    return graph.partial_report(graph.Graph(RESULTS, [plan]), plan)


@command(app, "explain", examples="interplay explain edge main rl_edge edge  # table main, row rl_edge, column edge")
def explain_cell(
    study: common.Study,
    table: Annotated[str, argument("a table of the study, such as main, or main_differences")],
    row: Annotated[str, argument("an arm, or `arm - against` for a difference", autocompletion=common.complete_arm)],
    column: Annotated[str, argument("a band, or `op 9`; COLUMN/METRIC is one way to name the metric")],
    scale: common.Scale = None,
    metric: Annotated[
        str | None, option("--metric", metavar="METRIC", help="such as strict_pass@K or nll (default: the table's first)")
    ] = None,
    seed: Annotated[int | None, option("--seed", metavar="SEED", min=0, help="only the chain of this seed")] = None,
) -> None:
    """Prints the provenance of one cell of a table: the samples and their number, the seeds, the evaluation, the model, every
    stage that led to it and its data."""
    from interplay.report.inspect import explain
    from interplay.results import catalog

    plan = common.plan_of(study, scale)
    spec, stages = catalog.report_spec(plan), catalog.plan_json(plan)
    cell = explain.match_cell(spec, stages, table, row, column, metric)
    if hint := common.hint_other_scale(plan):
        LOG.warning("no results of %s at scale %s yet; %s", plan.study, plan.scale, hint)
    print_visible(explain.explain(spec, plan.report, stages, RESULTS, cell, seed), end="")


@command(app, "show", examples="interplay show 3f2a  # the stage whose digest starts with 3f2a")
def show_stage(
    stage: Annotated[
        str,
        argument(
            "a digest's beginning, DIGEST@STEP, STUDY/ARM/seedN/STAGE, or STUDY.SCALE/ARM/seedN/STAGE",
            autocompletion=common.complete_stage,
        ),
    ],
    scale: common.Scale = None,
    full: Annotated[bool, option("--full", help="the whole spec, defaults included")] = False,
) -> None:
    """Shows one stage: its kind and settings, its dependencies and users, its metrics, and when and where it ran."""
    from interplay.report.inspect import card

    known, ref = common.find_stage(stage, scale)
    print_visible(
        card.stage_card(ref.digest, ref.step, known.stages, known.locks.get(ref.digest, []), RESULTS, LOGS, full), end=""
    )


@command(
    app,
    "lineage",
    examples="""
interplay lineage edge > edge.mmd  # the whole study
interplay lineage 3f2a --output stage.svg  # one stage, as a picture
""",
)
def draw_lineage(
    what: Annotated[
        str,
        argument(
            "a study, or a stage as `interplay show` takes it", metavar="study|digest", autocompletion=common.complete_stage
        ),
    ],
    scale: common.Scale = None,
    form: Annotated[
        Literal["mermaid", "svg"] | None,
        option("--format", metavar="FORMAT", help="mermaid or svg (default: by the file's ending, else mermaid)"),
    ] = None,
    across: Annotated[
        int,
        option("--across", metavar="ACROSS", min=1, help="boxes side by side in an SVG, at most (default 8; 3 for a phone)"),
    ] = 8,
    output: Annotated[Path | None, option("-o", "--output", metavar="OUTPUT", help="write to this file")] = None,
) -> None:
    """Draws the graph of a study, or of a stage and its ancestors, as Mermaid text or as SVG. Stages that differ only in their
    seed are one box."""
    from interplay.report.draw import diagram
    from interplay.results import catalog

    stages = catalog.lineage_of(what, CONFIGS, RESULTS, scale or common.default_scale())
    states = {digest: artifact.state_of(artifact.folder(RESULTS, stage["kind"], digest)).name for digest, stage in stages.items()}
    nodes, edges = diagram.study_graph(stages, {digest: "new" if name == "missing" else name for digest, name in states.items()})
    chosen = form or (FORMATS.get(output.suffix, "mermaid") if output else "mermaid")
    drawn = diagram.diagram_svg(nodes, edges, across) if chosen == "svg" else diagram.mermaid(nodes, edges)
    if output is None:
        print_visible(drawn, end="")
        return
    try:
        artifact.write_atomic(output, drawn.encode())
    except OSError as error:
        raise UserError(f"-o {output}: {error.strerror}; name a file in a folder that can be written") from None
    print_visible(f"wrote {output}: {len(stages)} stages in {len(nodes)} boxes")


@command(
    app,
    "compare",
    examples="""
interplay compare 3f2a 77c0  # two stages
interplay compare edge:rl_edge edge:rl_hard  # two arms of a study
""",
)
def compare_sides(
    a: Annotated[str, argument("a stage as for `interplay show`, or an arm as STUDY:ARM", autocompletion=common.complete_side)],
    b: Annotated[str, argument("the second stage or arm", autocompletion=common.complete_side)],
    scale: common.Scale = None,
    metric: Annotated[
        str,
        option("--metric", metavar="METRIC", help=f"{', '.join(metric_spec.metric_names())} (default strict_pass@1)"),
    ] = "strict_pass@1",
    column: Annotated[str | None, option("--column", metavar="COLUMN", help="only prompts of this band, or of `op:N`")] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="flipped items shown in each direction (default 2)")] = 2,
) -> None:
    """Compares two stages or two arms: the settings that differ, the metrics of both with the difference paired by prompt and
    seed, and the items on which they disagree, with both completions."""
    from interplay.report.inspect import compare
    from interplay.results import catalog

    at = scale or common.default_scale()
    try:
        checked = metric_spec.check_metric(metric)
    except ValueError as error:
        raise UserError(f"--metric {error}") from None
    known = catalog.read_catalog(CONFIGS, RESULTS)

    def side(name: str) -> compare.Side:
        head, colon, arm = name.partition(":")
        study, rest = catalog.split_study(head, CONFIGS, at)
        if colon and study and not rest:
            plan = common.plan_of(*study)
            known.stages.update(catalog.plan_json(plan))
            return compare.of_arm(name, arm, catalog.report_spec(plan))
        return compare.of_stage(name, catalog.resolve_stage(name, known, CONFIGS, at).digest, known.stages)

    band = column.replace(" ", ":") if column else None
    print_visible(compare.compare(side(a), side(b), known.stages, RESULTS, checked, band, count), end="")
