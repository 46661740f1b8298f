"""What Snakemake's main process does around the jobs. Never run in a job or a dry run."""

import logging
import os
import shutil
from typing import cast

from interplay.core import artifact
from interplay.core.model import UserError, print_visible
from interplay.report.spec import ReportSpec
from interplay.results import kept, payloads
from interplay.run.graph import Graph
from interplay.study import feasible
from interplay.study.plan import Plan
from interplay.track import live

LOG = logging.getLogger(__name__)


def start(graph: Graph) -> None:
    """Before the first job. What comes from outside must be in its place; what DVC has of payloads that are needed and not here
    is fetched now. Leaves by one line and exit code 2 when something cannot be had."""
    try:
        feasible.check_external(graph.to_make())
        graph.restore()
        graph.write_stages()
        _fetch(graph)
    except UserError as error:
        LOG.error("interplay: %s", error)
        raise SystemExit(2) from None
    live.begin(graph.plans, graph.results)


def succeed(graph: Graph) -> None:
    """After the last job, when all went well; also when there was nothing to do, and `start` was not called."""
    graph.restore()
    for plan in graph.plans:
        shutil.rmtree(graph.by_name(plan) / "partial", ignore_errors=True)
    for page in graph.link():
        print(f"report: {page}")
    graph.write_stages()
    try:
        for plan in graph.plans:
            kept.keep(graph.results, plan)
        if os.environ.get(payloads.SWITCH) != "0":
            payloads.add(graph.results, graph.plans)
    except (UserError, OSError) as error:
        LOG.warning("interplay: not stored: %s; the study stands, and `interplay store push` tries again", error)
    live.finish()


def fail(graph: Graph) -> None:
    """After the last job, when one failed: links for the studies that are finished, a page of what is there for the others."""
    try:
        graph.link()
        for plan in graph.plans:
            if graph.missing([plan.report]):
                print_visible(partial_page(graph, plan))
    finally:  # whatever is wrong with a page, no run may go on saying RUNNING
        live.finish()


def _fetch(graph: Graph) -> None:
    """Raises UserError when a payload cannot be had, or is not what its record says."""
    if not graph.partial:
        return
    count = payloads.fetch(graph.partial)
    for folder in graph.partial:
        artifact.check(folder)
    LOG.info("interplay: %s files of %s stages fetched from DVC", count, len(graph.partial))


def partial_page(graph: Graph, plan: Plan) -> str:
    """Where the page of an unfinished study is, made now, or why there is none. It never hides the failure that called for it."""
    from interplay.report.write import page as write_page  # pandas and matplotlib: a run without a failure does without them

    stages = {digest: stage.as_json() for digest, stage in plan.stages.items()}
    spec = cast(ReportSpec, plan.stages[plan.report].spec)
    try:
        page = write_page.render_partial(spec, stages, graph.results, graph.by_name(plan) / "partial")
    except (UserError, OSError) as error:
        return f"no partial report of {plan.study}: {error}"
    return f"partial report: {page}"
