"""Commands that read results: `interplay report`, `explain`, `show`, `lineage` and `compare`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from interplay.cli.common import (
    CONFIGS,
    LOGS,
    RESULTS,
    Scale,
    Study,
    argument,
    command,
    complete_arm,
    complete_side,
    complete_stage,
    default_scale,
    find_elsewhere,
    new_app,
    nothing_of,
    option,
    plan_of,
)
from interplay.core.model import UserError, print_visible
from interplay.report.metric_spec import check_metric, metric_names

if TYPE_CHECKING:
    from interplay.study.plan import Plan


LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from interplay.report.spec import ReportSpec
    from interplay.study.plan import Plan

FORMATS = {".svg": "svg", ".mmd": "mermaid", ".md": "mermaid"}
"""Ending of a file -> what `lineage` writes into it."""

app = new_app()


@command(app, "report", examples="interplay report edge  # where the page lies")
def locate_report(study: Study, scale: Scale = None) -> None:
    """Names the page of a study's report. Where arms have failed or are not there yet, it renders what is there and says what
    is missing, and why."""
    from interplay.core import artifact

    plan = plan_of(study, scale)
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        print_visible(_render_partial(plan))
        return
    if not (folder / "report.html").exists():
        from interplay.report.write import page

        stages = plan.stages[plan.report].deps.values()
        inputs = {digest: artifact.folder(RESULTS, plan.stages[digest].kind, digest) for digest in stages}
        page.remake_page(cast("ReportSpec", plan.stages[plan.report].spec), inputs, folder)
    print_visible(f"report: {folder / 'report.html'}")


def _render_partial(plan: "Plan") -> str:
    """The page of an unfinished study: it says that it is partial, and what is missing and why."""
    from interplay.results.state import has_begun
    from interplay.run import graph

    if not has_begun(RESULTS, plan):
        raise UserError(nothing_of(plan, find_elsewhere(plan)))
    return graph.partial_report(graph.Graph(RESULTS, [plan]), plan)


@command(app, "explain", examples="interplay explain edge main rl_edge edge  # table main, row rl_edge, column edge")
def explain_cell(
    study: Study,
    table: Annotated[str, argument("a table of the study, such as main, or main_differences")],
    row: Annotated[str, argument("an arm, or `arm - against` for a difference", autocompletion=complete_arm)],
    column: Annotated[str, argument("a band, or `op 9`; COLUMN/METRIC is one way to name the metric")],
    scale: Scale = None,
    metric: Annotated[
        str | None, option("--metric", metavar="METRIC", help="such as strict_pass@K or nll (default: the table's first)")
    ] = None,
    seed: Annotated[int | None, option("--seed", metavar="SEED", min=0, help="only the chain of this seed")] = None,
) -> None:
    """Prints the chain behind one cell of a table: the samples and their number, the seeds, the evaluation, the model, every
    stage that led to it and the data at its beginning."""
    from interplay.report.inspect.explain import explain, match_cell
    from interplay.results.catalog import as_json, report_spec

    plan = plan_of(study, scale)
    spec, stages = report_spec(plan), as_json(plan)
    asked = match_cell(spec, stages, table, row, column, metric)
    if where := find_elsewhere(plan):
        LOG.warning("nothing of %s at scale %s yet; %s", plan.study, plan.scale, where)
    print_visible(explain(spec, plan.report, stages, RESULTS, asked, seed), end="")


@command(app, "show", examples="interplay show 3f2a  # the stage whose digest starts with 3f2a")
def show_stage(
    stage: Annotated[
        str,
        argument(
            "a digest's beginning, DIGEST@STEP, STUDY/ARM/seedN/STAGE, or STUDY.SCALE/ARM/seedN/STAGE",
            autocompletion=complete_stage,
        ),
    ],
    scale: Scale = None,
    full: Annotated[bool, option("--full", help="the whole spec, defaults included")] = False,
) -> None:
    """Shows one stage: its kind and settings, what it depends on and who uses it, what it measured, and the time and place of
    its making."""
    from interplay.report.inspect.card import stage_card
    from interplay.results import catalog

    known = catalog.read(CONFIGS, RESULTS)
    ref = catalog.resolve(stage, known, CONFIGS, scale or default_scale())
    print_visible(stage_card(ref.digest, ref.step, known.stages, known.locks.get(ref.digest, []), RESULTS, LOGS, full), end="")


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
        argument("a study, or a stage as `interplay show` takes it", metavar="study|digest", autocompletion=complete_stage),
    ],
    scale: Scale = None,
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
    """Draws the graph behind a study or a stage, from the data on, as Mermaid text or as SVG. Stages that differ only in their
    seed are one box."""
    from interplay.core import artifact
    from interplay.report.draw.diagram import diagram_svg, mermaid, study_graph
    from interplay.results.catalog import lineage_of

    stages = lineage_of(what, CONFIGS, RESULTS, scale or default_scale())
    states = {digest: artifact.state_of(artifact.folder(RESULTS, stage["kind"], digest)).name for digest, stage in stages.items()}
    nodes, edges = study_graph(stages, {digest: "new" if name == "missing" else name for digest, name in states.items()})
    chosen = form or (FORMATS.get(output.suffix, "mermaid") if output else "mermaid")
    drawn = diagram_svg(nodes, edges, across) if chosen == "svg" else mermaid(nodes, edges)
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
    a: Annotated[str, argument("a stage as `interplay show` takes it, or an arm as STUDY:ARM", autocompletion=complete_side)],
    b: Annotated[str, argument("the second stage or arm", autocompletion=complete_side)],
    scale: Scale = None,
    metric: Annotated[
        str,
        option("--metric", metavar="METRIC", help=f"{', '.join(metric_names())} (default strict_pass@1)"),
    ] = "strict_pass@1",
    column: Annotated[str | None, option("--column", metavar="COLUMN", help="only prompts of this band, or of `op:N`")] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="flipped items shown in each direction (default 2)")] = 2,
) -> None:
    """Compares two stages or two arms: the settings that differ, the metrics of both with the difference paired by prompt and
    seed, and the items on which they disagree, with both completions."""
    from interplay.report.inspect.compare import Side, compare, of_arm, of_stage
    from interplay.results import catalog
    from interplay.study.expand import plan_study

    at = scale or default_scale()
    try:
        checked = check_metric(metric)
    except ValueError as error:
        raise UserError(f"--metric {error}") from None
    known = catalog.read(CONFIGS, RESULTS)

    def side(name: str) -> Side:
        head, colon, arm = name.partition(":")
        study, rest = catalog.split_study(head, CONFIGS, at)
        if colon and study and not rest:
            plan = plan_study(CONFIGS, *study)
            known.stages.update(catalog.as_json(plan))
            return of_arm(name, arm, catalog.report_spec(plan))
        return of_stage(name, catalog.resolve(name, known, CONFIGS, at).digest, known.stages)

    band = column.replace(" ", ":") if column else None
    print_visible(compare(side(a), side(b), known.stages, RESULTS, checked, band, count), end="")
