"""Kept checkpoints in a study: paths that start from one, evaluations along a training ladder, selection among them; and blocks
of samples, by which an evaluation grows."""

from collections.abc import Callable, Mapping
from typing import Any

from interplay.core.model import UserError, nearest_name, shorten_value
from interplay.data.spec import ProblemsSpec
from interplay.evaluate.spec import ENTROPY, EvaluateSpec
from interplay.report.metric_spec import is_pass_rate
from interplay.report.spec import ReportRung, ReportStage
from interplay.rl.spec import RLSpec
from interplay.study.plan import Stage
from interplay.train.spec import RewardModelSpec, TrainSpec, TuneSpec

BLOCK = 32
"""Samples per prompt of one evaluate stage. An evaluation of more consists of several, which the report reads as one."""
Evaluate = Callable[[str, str, str], list[str]]
"""(name of an evaluate stage, reference to a model, label) -> the digests of its blocks."""


def split_name(part: str) -> tuple[str, int | None]:
    """`base@2000` in a path -> ("base", 2000): the checkpoint that stage `base` keeps at step 2000; `base` -> ("base", None)."""
    name, _, step = part.partition("@")
    return name, int(step) if step.isdecimal() else None


def blocks(num_samples: Any, first: Any) -> list[dict[str, int]]:
    """The keys by which the blocks of an evaluation differ; one that fits into a block, or that the schema will refuse, stays as
    it is. Gold solutions are scored once, with the first block."""
    if not isinstance(num_samples, int) or not isinstance(first, int) or num_samples <= BLOCK:
        return [{}]
    starts = range(0, num_samples, BLOCK)
    parts = [{"num_samples": min(BLOCK, num_samples - start), "first_sample": first + start} for start in starts]
    return [parts[0], *({**part, "nll": False} for part in parts[1:])]


def kept(stage: Stage) -> list[int]:
    """Steps at which a stage keeps its model, in order; of a reward model none, since it writes nothing."""
    if isinstance(stage.spec, RewardModelSpec):
        return []
    return sorted(set(stage.spec.checkpoints)) if isinstance(stage.spec, TrainSpec | RLSpec | TuneSpec) else []


def reference(stage: Stage, step: int | None, where: str) -> str:
    """`digest`, or `digest@step` of a kept checkpoint. Raises UserError when it is not kept."""
    if step is None:
        return stage.digest
    if step not in kept(stage):
        has = ", ".join(map(str, kept(stage))) or "none"
        raise UserError(f"{where}: no checkpoint is kept at step {step}; kept: {has} (see `checkpoints` of the stage)")
    return f"{stage.digest}@{step}"


def rungs(
    name: str, along: str, path: list[ReportStage], stages: Mapping[str, Stage], label: str, evaluate: Evaluate, where: str
) -> list[ReportRung]:
    """The evaluations of `name` along the stage `along` of a path: of the model it starts from, of each kept checkpoint and of
    its end; none where the path does not lead through it."""
    found = []
    for part in path:
        if part.name != along:
            continue
        stage = stages[part.digest]
        if not kept(stage):
            raise UserError(f"{where} = {along!r}: keeps no checkpoints to evaluate along; give it checkpoints: [steps]")
        for step, model in _models(stage, part.step):
            digest = evaluate(name, model, f"{label}@{'end' if step is None else step}")[0]
            found.append(ReportRung(evaluation=name, stage=along, step=step, digest=digest))
    return found


def _models(stage: Stage, until: int | None) -> list[tuple[int | None, str]]:
    """(step, reference) of the models of a stage, up to the checkpoint that a path goes on from. The end's step is known to the
    plan where a stage counts steps; for a trainer, that counts in tokens, it is None."""
    end = stage.spec.steps if isinstance(stage.spec, RLSpec | TuneSpec) else None
    steps = [step for step in kept(stage) if step != end and (until is None or step <= until)]
    start = [(0, stage.deps["init"])] if "init" in stage.deps else []
    return [*start, *((step, f"{stage.digest}@{step}") for step in steps), *([(end, stage.digest)] if until is None else [])]


def selection(
    entry: Mapping[str, Any], before: str, stages: Mapping[str, Stage], label: str, evaluate: Evaluate, where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys of the spec and dependencies of a select stage. `before` is the reference to what its path comes from."""
    stage = stages.get(before)
    if stage is None or not kept(stage):
        raise UserError(f"{where}: the stage before it keeps no checkpoints; give it checkpoints: [steps]")
    by, name = entry.get("by"), entry.get("evaluate")
    rate = isinstance(by, str) and is_pass_rate(by)
    if (rate and name is None) or (name is not None and not rate and by != ENTROPY):
        remedy = "name the evaluate stage that gives the pass rate" if rate else "belongs to by: strict_pass@k or by: entropy"
        raise UserError(f"{where}.evaluate = {shorten_value(name)}: {remedy}")
    if isinstance(by, str) and by.startswith("eval_loss/"):
        band, known = by.removeprefix("eval_loss/"), _bands(stages.get(stage.deps.get("validation", "")))
        if band not in known:
            raise UserError(f"{where}.by = {by!r}: the stage before it has no validation set with it{nearest_name(band, known)}")
    candidates = [step for step, model in _models(stage, None) if model.startswith(f"{before}@")]
    deps = {"init": before}
    if name is not None:
        for number, model in enumerate([*(f"{before}@{step}" for step in candidates), before]):
            at = candidates[number] if number < len(candidates) else "end"
            blocks_of = evaluate(str(name), model, f"{label}@{at}")
            deps |= {f"evaluation.{number}.{block}": digest for block, digest in enumerate(blocks_of)}
        _can_tell(str(by), entry.get("band"), [stages[digest] for digest in blocks_of], stages, where)
    return {"candidates": candidates}, deps


def _can_tell(by: str, band: Any, made: list[Stage], stages: Mapping[str, Stage], where: str) -> None:
    """The evaluation keeps what the value is made from, and has problems of the band."""
    specs = [stage.spec for stage in made if isinstance(stage.spec, EvaluateSpec)]
    samples = sum(spec.num_samples for spec in specs)
    if by == ENTROPY and not all(spec.entropy for spec in specs):
        raise UserError(f"{where}.by = {by!r}: its evaluation keeps none; give it entropy: true")
    if is_pass_rate(by) and int(by.split("@")[1]) > samples:
        raise UserError(f"{where}.by = {by!r}: its evaluation has {samples} samples per prompt; give it more, or lower k")
    known = _bands(stages[made[0].deps["data"]])
    if band is not None and band not in known:
        raise UserError(f"{where}.band = {shorten_value(band)}: no such band in its evaluation{nearest_name(str(band), known)}")


def _bands(problems: Stage | None) -> list[str]:
    return sorted(problems.spec.bands) if problems and isinstance(problems.spec, ProblemsSpec) else []
