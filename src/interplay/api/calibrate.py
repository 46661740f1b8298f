"""Pin a scale's band edges from the base alone: pass rate per op on held-out prompts, before any RL result is seen."""

import os
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from interplay.core import artifact, execution, model, references
from interplay.data.spec import ProblemsSpec
from interplay.kinds.table import KINDS, makes
from interplay.results import payloads
from interplay.run.stage import run_stage
from interplay.study.plan import Plan, Stage

EDGE = (0.05, 0.50)
"""Strict pass@1 of the base on an op of the edge."""
SAMPLES = 16
"""Completions per held-out prompt."""
HARD = 0.005
"""Strict pass@1 of the base that an op of the hard band stays below."""


def calibrate(plan: Plan, configs: Path, results: Path, prompts: int, max_op: int, write: bool) -> str:
    """Measure the base and say (and with `write`, pin) the bands. Raises UserError when the base is not trained yet."""
    base = next(stage for stage in plan.stages.values() if KINDS[stage.kind].starts_path)
    if not artifact.done(artifact.folder(results, base.kind, base.digest)):
        raise model.UserError(f"{results}/{base.kind}/{base.digest}: the base is not trained yet; run the study's base first")
    if max_op <= (last := max(_trained(plan, base))):
        raise model.UserError(f"calibrate: --max-op {max_op}: must be beyond {last}, the last op that the base was trained on")
    rates = measure_rates(plan, base, results, prompts, max_op)
    bands = pin_bands(rates, _trained(plan, base))
    lines = [f"op {op:2}: strict pass@1 {rate:.3f}" for op, rate in rates.items()]
    lines += [f"{band}: {ops}" for band, ops in bands.items()]
    if write:
        path = configs / "scale" / f"{plan.scale}.yaml"
        _write(path, bands)
        lines.append(f"pinned in {path}; now `make locks`")
    return "\n".join(lines)


def measure_rates(plan: Plan, base: Stage, results: Path, prompts: int, max_op: int) -> dict[int, float]:
    """Strict pass@1 per op on the validation split, which no stage trains on and no table shows: two ordinary stages."""
    corpus = _problems(plan, base)
    low, high = corpus.task.ops()
    ops = range(low, min(max_op, high) + 1)
    update = {
        "bands": {"all": {op: 1 / len(ops) for op in ops}},
        "shares": {"all": 1.0},
        "size": prompts * len(ops),
        "split": "validation",
    }
    problems = Stage.make("problems", corpus.model_copy(update=update), {}, execution.Run(), "calibrate/problems")
    asked = next(stage for stage in plan.stages.values() if makes(stage.kind) == "samples")
    spec = asked.spec.model_copy(update={"num_samples": SAMPLES})
    evaluate = Stage.make("evaluate", spec, {"model": base.digest, "data": problems.digest}, asked.run, "calibrate/evaluate")
    folders = [artifact.folder(results, stage.kind, stage.digest) for stage in (problems, evaluate)]
    for out, stage in zip(folders, (problems, evaluate), strict=True):
        artifact.write_json(out / "stage.json", stage.as_json())
        run_stage(out)
    if os.environ.get(payloads.SWITCH) != "0":
        payloads.add_payloads(results, [], folders)  # what lies in results/ and is not stored stops the next `dvc pull`
    measured = artifact.record(artifact.folder(results, "evaluate", evaluate.digest))["metrics"]["op"]
    return {op: float(measured[str(op)]["strict_pass@1"]) for op in ops}


def pin_bands(rates: dict[int, float], trained: list[int]) -> dict[str, list[int]]:
    """Bands from pass rates: the edge is what comes after the trained ops with a rate within EDGE; the two ops after it are
    `beyond`; hard are the first two ops after those from which on all rates stay below HARD. Raises UserError when there is no
    edge or no hard op."""
    after = [op for op in rates if op > max(trained)]
    edge = [op for op in after if EDGE[0] <= rates[op] <= EDGE[1]]
    if not edge:
        shown = ", ".join(f"op {op}: {rates[op]:.3f}" for op in after)
        raise model.UserError(
            f"calibrate: no op after {max(trained)} has a pass rate within {list(EDGE)} ({shown}); train the base differently"
        )
    beyond = [op for op in after if op > max(edge)][:2]
    hard = [op for op in after if op > max([*edge, *beyond]) and all(rates[later] < HARD for later in rates if later >= op)][:2]
    if not hard:
        why = f"no op up to {max(rates)} stays below a pass rate of {HARD}"
        raise model.UserError(f"calibrate: {why}; measure further with --max-op")
    return {"id_top": trained[-2:], "edge": edge, "beyond": beyond, "hard": hard}


def _problems(plan: Plan, base: Stage) -> ProblemsSpec:
    if packed := references.corpus_inputs(base.deps):
        data = plan.stages[packed[0]].deps["data.0"]
        return cast(ProblemsSpec, plan.stages[data].spec)
    return next(stage.spec for stage in plan.stages.values() if isinstance(stage.spec, ProblemsSpec))


def _trained(plan: Plan, base: Stage) -> list[int]:
    return sorted(op for ops in _problems(plan, base).bands.values() for op in ops)


def _write(path: Path, bands: dict[str, list[int]]) -> None:
    editor = YAML()
    editor.width = 130
    editor.preserve_quotes = True
    editor.indent(mapping=2, sequence=4, offset=2)
    tree: Any = editor.load(path.read_text())
    for band, ops in bands.items():
        if band not in tree["bands"]:
            tree["bands"][band] = CommentedSeq()
            tree["bands"][band].fa.set_flow_style()
        tree["bands"][band][:] = ops
    with open(path.with_suffix(".part"), "w") as handle:
        editor.dump(tree, handle)
    path.with_suffix(".part").replace(path)
