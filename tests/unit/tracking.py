"""MLflow stores for tests, and a study whose records have numbers to show."""

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lab import Lab

from interplay.core import artifact
from interplay.study.plan import Plan, Stage

BAND = {"strict_pass@1": 0.25, "strict_pass@8": 0.5, "answer_pass@1": 0.5, "n": 40, "errors": {"value": 0.75}}
METRICS: dict[str, dict[str, Any]] = {
    "problems": {"size": 40, "ops": {"3": 40}},
    "corpus": {"rows": 7, "tokens": 99},
    "pretrain": {"parameters": 1000, "steps": 4, "tokens": 64, "loss": 0.5, "eval_loss": {"id": 0.25}},
    "rl": {"steps": 4, "strict_last": 0.5, "completions": 8, "completion_tokens": 80, "prompt_tokens": 40},
    "evaluate": {"all": {**BAND, "length": 9.0}, "band": {"edge": BAND}, "op": {"3": BAND}},
    "report": {"claims": [{"says": "It does.", "verdict": "supported", "reason": "so it is"}], "tables": {}},
}


def store_in(folder: Path, template: Path) -> str:
    """The URI of an empty store of one's own."""
    shutil.copy(template, folder / "store.db")
    return f"sqlite:///{folder / 'store.db'}"


def dump(uri: str) -> list[str]:
    """All that a store holds, as SQL."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        return list(connection.iterdump())


def rows(uri: str) -> Counter[str]:
    """Table -> number of rows."""
    return Counter(line.split()[2] for line in dump(uri) if line.startswith("INSERT INTO"))


def finish(lab: Lab, stage: Stage) -> Path:
    """A finished stage with the metrics, steps and model files of its kind."""
    out = lab.start(stage)
    if stage.kind in ("pretrain", "rl"):
        (out / "model").mkdir(exist_ok=True)
        (out / "model" / "config.json").write_text("{}")
        steps(out, 4)
    if stage.kind == "report":
        (out / "tables").mkdir(exist_ok=True)
        (out / "tables" / "main.csv").write_text("arm,edge\n")
    told = {"started": "2026-11-20T10:00:00Z", "seconds_wall": 60.0, "attempts": 1, "host": "h", "tokens_per_second": 5.0}
    artifact.write_json(out / "telemetry.json", told)
    artifact.finish(out, stage.identity(), METRICS.get(stage.kind, {}))
    return out


def steps(out: Path, count: int) -> None:
    """`metrics.jsonl` up to a step, as a deterministic stage writes it."""
    (out / "metrics.jsonl").write_text("".join(f"{json.dumps({'step': n, 'loss': 1 / n})}\n" for n in range(1, count + 1)))


def finish_all(lab: Lab, plan: Plan) -> None:
    for stage in plan.stages.values():
        finish(lab, stage)


def finish_each_kind(lab: Lab, plan: Plan) -> None:
    """One stage of each kind, the first."""
    for stage in {stage.kind: stage for stage in reversed(plan.stages.values())}.values():
        finish(lab, stage)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with tables and nothing in them: to make them takes seconds."""
    from snakemake_logger_plugin_mlflow import store

    file = tmp_path_factory.mktemp("mlflow") / "template.db"
    store.connect(f"sqlite:///{file}")
    return file
