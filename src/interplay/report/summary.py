"""A finished study's answers as small files that can be committed. `STUDY.SCALE.json`: verdicts and the numbers behind them, the
digests of the report and of every stage, seeds, and what it was made with; `docs/papers.md` is made from these. Beside it, in
`STUDY.SCALE/`, its tables in Markdown and its figures as SVG that a text editor can read."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib

from interplay.report import figures, frame
from interplay.schema.base import UserError
from interplay.schema.report import ReportSpec
from interplay.store import artifact, environment
from interplay.store.metrics import read_telemetry
from interplay.study import kept
from interplay.study.catalog import report_spec
from interplay.study.plan import Plan

SHOWN = ("value", "low", "high", "over", "n_prompts", "n_samples")
"""What is kept of the estimate behind a claim."""
FORMS = (".md", ".svg")
"""Of the files beside the summary."""


def write(plan: Plan, results: Path, out: Path) -> None:
    """Write the summary to `out`, and tables and figures into the folder of that name without `.json`, which then holds nothing
    else. Raises UserError when the study is not finished, or the folder holds what no export writes."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        command = f"snakemake all --config study={plan.study} scale={plan.scale}"
        raise UserError(f"{report}: {plan.study} is not finished; run `{command}`")
    artifact.check(report)
    beside = out.with_suffix("")
    strange = next((path for path in sorted(beside.rglob("*")) if path.suffix not in FORMS), None)
    if strange:
        raise UserError(
            f"{strange}: not of an export; name another file, beside which {beside.name}/ is new or an older export's"
        )
    kept.write_folder(beside, {**_tables(report), **_figures(report_spec(plan), plan, results)})
    artifact.write_atomic(out, (json.dumps(of_report(plan, results), indent=1, ensure_ascii=False) + "\n").encode())


def of_report(plan: Plan, results: Path) -> dict[str, Any]:
    """The summary as JSON data; determined by the report's digest but for `environments` and `exported`."""
    report = artifact.folder(results, "report", plan.report)
    claims = [
        {
            **{key: claim[key] for key in ("says", "source", "verdict", "caveat", "test") if key in claim},
            "estimate": {key: claim["estimate"][key] for key in SHOWN},
        }
        for claim in artifact.read_json(report / "claims.json")
    ]
    spec = report_spec(plan)
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "question": spec.question,
        "claims": claims,
        "contrasts": artifact.record(report)["metrics"].get("contrasts", {}),
        "seeds": sorted({arm.seed for arm in spec.arms}),
        "stages": _stages(plan),
        "environments": _environments(plan, results),
        "exported": environment.current(),
    }


def _stages(plan: Plan) -> dict[str, str]:
    """Kind -> the digests of its stages, in the order of the plan."""
    found: dict[str, list[str]] = {}
    for digest, stage in plan.stages.items():
        found.setdefault(stage.kind, []).append(digest)
    return {kind: " ".join(digests) for kind, digests in found.items()}


def _environments(plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Each environment in which stages were made, and how many; one of which nothing is known but the number, for stages that
    came without telemetry or from before it told that."""
    told = (read_telemetry(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items())
    counts = Counter(json.dumps(each.get("environment", {}), sort_keys=True) for each in told)
    return [{"stages": count, **json.loads(known)} for known, count in counts.most_common()]


def _tables(report: Path) -> dict[str, kept.Content]:
    return {path.name: path for path in sorted((report / "tables").glob("*.md"))}


def _figures(spec: ReportSpec, plan: Plan, results: Path) -> dict[str, kept.Content]:
    """What the study found, without the curves of its trainings: they show how it went, and are the largest."""
    inputs = {digest: artifact.folder(results, plan.stages[digest].kind, digest) for digest in plan.stages[plan.report].deps}
    chosen = {name: figure for name, figure in spec.figures.items() if figure.x != "step" or figure.along()}
    if not chosen:
        return {}
    read = frame.read(spec, inputs)
    found: dict[str, kept.Content] = {}
    for name, figure in chosen.items():
        with matplotlib.rc_context({"svg.fonttype": "none"}):  # words as words: half the size, and a diff can be read
            drawing = figures.draw(read, figure)
        if drawing.svg:
            found[f"{name}.svg"] = small(drawing.svg.decode()).encode()
    return found


def small(svg: str) -> str:
    """The picture with coordinates to a tenth of a point, and without metadata, indents and rotations by nothing. What is written
    in it, such as -0.003 nats or the rate in an arm's name, stays as it is."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{2,}", _tenth, tag[0]), svg)
    return re.sub(r"\n\s+", "\n", svg)


def _tenth(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"
