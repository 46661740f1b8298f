"""A finished study's answers as one small file that can be committed: verdicts and the numbers behind them, with the digest of
the report that they are from. `docs/papers.md` is made from these."""

import json
from pathlib import Path
from typing import Any

from interplay.schema.base import UserError
from interplay.store import artifact
from interplay.study.catalog import report_spec
from interplay.study.plan import Plan

SHOWN = ("value", "low", "high", "over", "n_prompts", "n_samples")
"""What is kept of the estimate behind a claim."""


def write(plan: Plan, results: Path, out: Path) -> None:
    """Write the summary. Raises UserError when the study is not finished."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        command = f"snakemake all --config study={plan.study} scale={plan.scale}"
        raise UserError(f"{report}: {plan.study} is not finished; run `{command}`")
    artifact.check(report)
    artifact.write_atomic(out, (json.dumps(of_report(plan, report), indent=1, ensure_ascii=False) + "\n").encode())


def of_report(plan: Plan, report: Path) -> dict[str, Any]:
    """The summary as JSON data; determined by the report's digest."""
    claims = [
        {
            **{key: claim[key] for key in ("says", "source", "verdict", "test")},
            "estimate": {key: claim["estimate"][key] for key in SHOWN},
        }
        for claim in artifact.read_json(report / "claims.json")
    ]
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "question": report_spec(plan).question,
        "claims": claims,
        "contrasts": artifact.record(report)["metrics"].get("contrasts", {}),
    }
