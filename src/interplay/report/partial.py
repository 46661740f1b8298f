"""The page of an unfinished study: what is there, and what is missing and why. A view in `by-name`, never an artifact."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.report import behind, frame, make, missing, page
from interplay.report.page import Gap
from interplay.schema.report import ReportSpec
from interplay.store import artifact


def render(spec: ReportSpec, stages: Mapping[str, Mapping[str, Any]], results: Path, out: Path) -> Path:
    """Write tables, figures, claims and page into `out`; returns the page. `stages`: the plan as JSON, dependencies first."""
    shutil.rmtree(out, ignore_errors=True)
    why = missing.reasons(stages, results, results.parent / "logs")
    folders = {digest: artifact.folder(results, stage["kind"], digest) for digest, stage in stages.items()}
    inputs = {digest: path for digest, path in folders.items() if stages[digest]["kind"] != "report"}
    made = make.answer(frame.read(spec, inputs)._replace(why=why))
    make.write(made, out)
    return page.view(made, behind.of_plan(stages, results, why), out, gaps(stages, why))


def gaps(stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> list[Gap]:
    """What has to be mended or run first, failures before the rest, with the number of stages that wait for each."""
    waiting: dict[str, set[str]] = {}
    """Digest -> the missing stages that it waits for."""
    for digest, stage in stages.items():
        deps = [artifact.split_ref(ref)[0] for ref in stage["deps"].values()]
        waiting[digest] = {dep for dep in deps if dep in why}.union(*(waiting[dep] for dep in deps))
    waiting = {digest: of for digest, of in waiting.items() if stages[digest]["kind"] != "report"}
    found = [_gap(stages[digest], why[digest], digest, waiting) for digest in missing.roots(stages, why)]
    return sorted(found, key=lambda gap: missing.state_of(gap.why) != "failed")


def _gap(stage: Mapping[str, Any], why: str, digest: str, waiting: Mapping[str, set[str]]) -> Gap:
    return Gap(stage["label"], digest, stage["kind"], why, sum(digest in of for of in waiting.values()))
