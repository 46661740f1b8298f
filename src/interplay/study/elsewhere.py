"""At which other scales a study has results. The scale is asked for anew with every command, so results at another one than that
of configs/config.yaml look as if they were gone."""

from pathlib import Path

from interplay.schema.base import UserError
from interplay.store import artifact
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan


def hint(configs: Path, results: Path, plan: Plan) -> str:
    """Such as `finished at smoke: add --scale smoke`, where nothing of the plan is there and something at another scale is; else
    empty."""
    if not results.exists() or begun(results, plan):
        return ""
    found = {scale: _state(configs, results, plan.study, scale) for scale in compose.scales(configs) if scale != plan.scale}
    known = {scale: state for scale, state in found.items() if state}
    if not known:
        return ""
    best = next((scale for scale, state in known.items() if state == "finished"), next(iter(known)))
    return f"{', '.join(f'{state} at {scale}' for scale, state in known.items())}: add --scale {best}"


def _state(configs: Path, results: Path, study: str, scale: str) -> str:
    try:
        plan = plan_study(configs, study, scale)
    except UserError:  # a study need not fit every scale
        return ""
    if artifact.done(artifact.folder(results, "report", plan.report)):
        return "finished"
    return "begun" if begun(results, plan) else ""


def begun(results: Path, plan: Plan) -> bool:
    """Whether any stage of the plan is finished."""
    return any(artifact.done(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items())
