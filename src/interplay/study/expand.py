"""From a typed study to its plan: parse -> expand -> check -> plan. Arms x seeds walk their paths, and every distinct stage is
planned once."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import execution, references
from interplay.core.model import KeyPlace, UserError
from interplay.kinds.study_keys import PathStage
from interplay.report.spec import Lineup, ReportArm, ReportRung, ReportStage
from interplay.study import answers, check, compose, contrasts, locate, resolve, sets
from interplay.study.context import ArmContext, PlanBuilder, study_context, with_changes
from interplay.study.plan import Plan
from interplay.study.spec import Scale, Study


class ExpandedArm(NamedTuple):
    """One arm of the plan."""

    name: str
    context: ArmContext
    rows: list[ReportArm]
    """One for each seed."""


def plan_study(configs: Path, study: str, scale: str) -> Plan:
    """Compose, validate and expand one study. Raises UserError with file and line of the key that is wrong."""
    try:
        with execution.pause_garbage_collection():
            return expand(study, scale, *compose.load(configs, study, scale), configs)
    except UserError as error:
        raise locate.located(error, configs, study, scale) from None


def expand(name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> Plan:
    """The plan of a study at a scale. Raises UserError before anything is written."""
    base = parse(name, study, scale, configs)
    expanded = [_expand_arm(base, arm) for arm in base.arms]
    rows = [row for one in expanded for row in one.rows]
    unused = [stage for stage in study.stages if base.place.key("stages", stage) not in base.plan.used_places]
    lineups = _check(base, expanded, rows, unused)
    report = _report(base, rows, lineups, {"study": name, "scale": scale_name})
    return Plan(name, scale_name, base.plan.stages, report, unused)


def parse(name: str, study: Study, scale: Scale, configs: Path) -> ArmContext:
    """The study with its typed stages and with its arms, one for each combination of the values of axes. Raises UserError."""
    place = KeyPlace(f"{configs.name}/study/{name}.yaml")
    base = study_context(study, scale, place, PlanBuilder(scale, (configs / "study" / name).parent))
    check.check_names(base)
    return base.with_arms()


# -- expand ------------------------------------------------------------------------------------------------------------------


def _expand_arm(base: ArmContext, name: str) -> ExpandedArm:
    context = with_changes(base, base.arms[name].set)
    context.typed_task()
    return ExpandedArm(name, context, [_walk(context, name, seed) for seed in resolve.seeds_of(base)[0]])


def _walk(context: ArmContext, arm: str, seed: int) -> ReportArm:
    """One arm at one seed: its models in order, then its evaluations. Where all of them run along its last stage, the arm is
    judged by those of its end."""
    path, end, tokenizer = resolve.models(context, arm, seed)
    context = replace(context, tokenizer=tokenizer)
    evaluations, ends, rungs = {}, {}, list[ReportRung]()
    for name in context.study.evaluate:
        label, stage = f"{arm}/{name}/seed{seed}", context.stages[name]
        along = [value for key, value in stage.given().items() if isinstance(stage.marks.get(key), PathStage)]
        if not along:
            evaluations[name] = resolve.evaluation(context, name, end, context.place.key("evaluate"), label)[0]
            continue
        check.check_references(context, name)
        found = _rungs(context, name, along[0], path, label)
        rungs += found
        if found and (path[-1].name, path[-1].step) == (along[0], None):
            ends[name] = found[-1].digest
    control = context.arms[arm].control
    return ReportArm(arm=arm, seed=seed, control=control, path=path, evaluations=evaluations or ends, rungs=rungs)


def _rungs(context: ArmContext, name: str, along: str, path: list[ReportStage], label: str) -> list[ReportRung]:
    """The evaluations along a stage of a path: of the model that it starts from, of each kept checkpoint, up to the one from
    which the path goes on, and of its end; none where the path does not lead through it."""
    found = []
    for part in [part for part in path if part.name == along]:
        stage = context.plan.stages[part.digest]
        if not stage.kept_steps():
            keeps = "keeps no checkpoints to evaluate along; give it checkpoints: [steps]"
            raise context.stages[name].place.key("along").error(keeps, along)
        start = [(0, stage.deps["init"])] if "init" in stage.deps else []
        for step, model in [*start, *stage.kept_models()]:
            if part.step is None or (step is not None and model != stage.digest and step <= part.step):
                at = f"{label}@{'end' if step is None else step}"
                digest = resolve.evaluation(context, name, model, context.place.key("evaluate"), at)[0]
                found.append(ReportRung(evaluation=name, stage=along, step=step, digest=digest))
    return found


# -- check -------------------------------------------------------------------------------------------------------------------


def _check(base: ArmContext, expanded: list[ExpandedArm], rows: list[ReportArm], unused: list[str]) -> dict[str, Lineup]:
    """All that is known before the first job. Returns who is compared in each table with a contrast. Raises UserError."""
    study, plan, place = base.study, base.plan, base.place
    for digest, stage in plan.stages.items():
        check.check_stage(stage, plan.stages, plan.places[digest])
    check.check_arm_names(study, base.arms, place)
    check.check_different(rows, base.arms, place)
    planned = {one.name: contrasts.planned_values(one.context, one.rows[-1]) for one in expanded}
    contrasts.check_contrasts(base.arms, planned, place)
    answers.check_budgets(study.match, rows, plan.stages, place)
    lineups = contrasts.lineups(base, rows, planned)
    held = {
        one.name: {name: check.bands_of(study, one.context.stages[name].given()["data"]) for name in study.evaluate}
        for one in expanded
    }
    answers.check_samples(base, held, rows, lineups)
    answers.check_showable(study, rows, plan.stages, place)
    for name in unused:
        check.check_references(base, name)
        base.value(name)
    return lineups


# -- plan --------------------------------------------------------------------------------------------------------------------


def _report(base: ArmContext, rows: list[ReportArm], lineups: dict[str, Lineup], names: dict[str, str]) -> str:
    """Digest of the report, the last stage of a plan."""
    plan, study = base.plan, base.study
    shown = {digest for row in rows for digest in [*(stage.digest for stage in row.path), *row.evaluations.values()]}
    shown |= {rung.digest for row in rows for rung in row.rungs}
    blocks = {digest: more for digest, more in plan.blocks.items() if digest in shown}
    shown |= {digest for more in blocks.values() for digest in more}
    packed = {digest for reader in shown for digest in references.corpus_inputs(plan.stages[reader].deps)}
    read = {dep for one in shown | packed for role, dep in plan.stages[one].deps.items() if references.is_data_role(role)}
    used = sets.with_sources(plan.stages, shown | read)
    ends = {row.arm: row.path[-1].digest for row in rows}
    spec: dict[str, Any] = {
        **names,
        "question": study.question,
        "source": study.source,
        "arms": rows,
        "bands": {band: base.scale.bands.get(band, []) for band in check.tested_bands(study)},
        "trained_ops": {arm: sorted(sets.ops_of(plan.stages, sets.training_sets(plan.stages, end))) for arm, end in ends.items()},
        "tables": answers.tables_with_k(study.tables, rows, partial(answers.samples_of, plan)),
        "figures": study.figures,
        "claims": study.claims,
        "match": study.match,
        "blocks": blocks,
        "lineups": lineups,
        "trained_sets": sets.training_sets_by_arm(plan.stages, rows, used),
    }
    return plan.add_once("report", spec, {digest: digest for digest in sorted(used)}, base.place.key("report"))
