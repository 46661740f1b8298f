"""What Snakemake's main process does around the jobs. Never run in a job or a dry run."""

import shutil
from typing import cast

from interplay.schema.base import UserError
from interplay.schema.report import ReportSpec
from interplay.study.graph import Graph
from interplay.study.plan import Plan


def start(graph: Graph) -> None:
    """Before the first job."""
    graph.write_stages()


def succeed(graph: Graph) -> None:
    """After the last job, when all went well; also when there was nothing to do."""
    for plan in graph.plans:
        shutil.rmtree(graph.by_name(plan) / "partial", ignore_errors=True)
    for page in graph.link():
        print(f"report: {page}")


def fail(graph: Graph) -> None:
    """After the last job, when one failed: links for the studies that are finished, a page of what is there for the others."""
    graph.link()
    for plan in graph.plans:
        if graph.missing([plan.report]):
            print(partial_page(graph, plan))


def partial_page(graph: Graph, plan: Plan) -> str:
    """Where the page of an unfinished study is, made now, or why there is none. It never hides the failure that called for it."""
    from interplay.report import partial  # pandas and matplotlib: a run without a failure does without them

    stages = {digest: stage.as_json() for digest, stage in plan.stages.items()}
    spec = cast(ReportSpec, plan.stages[plan.report].spec)
    try:
        page = partial.render(spec, stages, graph.results, graph.by_name(plan) / "partial")
    except (UserError, OSError) as error:
        return f"no partial report of {plan.study}: {error}"
    return f"partial report: {page}"
