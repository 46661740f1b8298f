"""From the files of a study to its plan: compose -> parse -> expand -> check -> plan. Hydra composes a study at a scale, once;
pydantic makes it typed, and all that follows works on the typed study: arms x seeds walk their paths, and every distinct stage
is planned once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interplay.core import execution
from interplay.core.digest import GATES, corpus_inputs, is_data_role
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError, nearest_name
from interplay.kinds import table
from interplay.kinds.study_keys import PathStage
from interplay.report.spec import Lineup, ReportArm, ReportRung, ReportStage
from interplay.rl.reward_spec import JudgeReward, ModelReward, with_roles
from interplay.rl.spec import RLSpec
from interplay.study import (
    answers,
    arms,
    check,
    choices,
    compose,
    contrasts,
    declared,
    files,
    locate,
    plan as plans,
    resolve,
    sets,
)
from interplay.study.context import (
    ArmContext,
    PlanBuilder,
    StudyStage,
    kept_candidates,
    study_context,
    tuning_seeds,
    with_changes,
)
from interplay.study.plan import Plan
from interplay.study.spec import Scale, Study

# -- compose -----------------------------------------------------------------------------------------------------------------


KNOBS, REPLICATES = "knobs.", "replicates"


def studies(configs: Path) -> list[str]:
    """Names of all studies: the paths below `configs/study`, without the ending."""
    return choices.names(configs / "study")


def scales(configs: Path) -> list[str]:
    """Names of all scales."""
    return choices.names(configs / "scale")


def committed(configs: Path) -> list[tuple[str, str]]:
    """(study, scale) of all plans that are committed: those of every study, but at scales that list their own `studies`."""
    pairs = []
    for scale in scales(configs):
        listed = files.item(files.read(configs, configs / "scale" / f"{scale}.yaml"), "studies")
        named = [str(node.value) for node in listed.value] if isinstance(listed, yaml.SequenceNode) else studies(configs)
        pairs += [(study, scale) for study in named]
    return sorted(pairs)


def load(
    configs: Path, study: str, scale: str, words: Sequence[choices.Given] = (), parts: compose.Parts | None = None
) -> tuple[Study, Scale]:
    """Compose and validate, with keys that the command line gives. Raises UserError in one line for anything that is not as the
    schema says."""
    _known(configs / "study", study)
    _known(configs / "scale", scale)
    knobs = {one.key.removeprefix(KNOBS): one.value for one in words if one.key.startswith(KNOBS)}
    tree = compose.compose_study(configs, study, scale, knobs, parts)
    places = {"study": KeyPlace(f"{configs.name}/study/{study}.yaml"), "scale": KeyPlace(f"{configs.name}/scale/{scale}.yaml")}
    for group, place in places.items():
        if not isinstance(tree.get(group), dict):
            raise place.error("must hold keys and values, such as `question: ...`, and no `# @package` line")
    written = choices.with_replicates(compose.own_trainers(tree["study"]), scale)
    tree = choices.fill_names({**tree, "study": written}, configs, *places.values())
    if words:
        changed = choices.with_given(tree["study"], words, scale)
        changed = choices.with_replicates(changed, scale, any(one.key == REPLICATES for one in words))
        tree = choices.fill_names({**tree, "study": changed}, configs, *places.values())
    whole = compose.with_rounds(compose.at_scale(tree["study"], scale), places["study"])
    typed = parse_model(Study, compose.with_twins(whole, places["study"]), places["study"])
    for name in typed.scales:
        if name not in scales(configs):
            raise places["study"].key("scales", name).error(f"no such scale{nearest_name(name, scales(configs))}")
    sized = parse_model(Scale, tree["scale"], places["scale"])
    if any(stage.get("kind") == "source" for stage in typed.stages.values()):
        sized = compose.without_int8(sized)
    compose.check_bands(typed, scale, sized, configs, places["study"])
    sized = compose.changed_scale(sized, typed.scales.get(scale))
    return typed, compose.with_candidates(sized, typed.calibrate)


def _known(folder: Path, name: str) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; run from the root of the project")
    known = choices.names(folder)
    if name not in known:
        file = f"{folder.parent.name}/{folder.name}/{name[:80]}.yaml"
        if len(name) < LONGEST and (hint := _elsewhere(folder, name)):
            raise UserError(f"{folder.name}={name}: no file {file}; {hint}")
        plain = name.removesuffix(".yaml").removeprefix(f"{folder.parent.name}/{folder.name}/")
        raise UserError(f"{folder.name}={name[:80]}: no file {file}{nearest_name(plain, known)}")


LONGEST = 200
"""Characters of a name of which files are looked for."""


def _elsewhere(folder: Path, name: str) -> str:
    """What lies where a file is looked for, or where its name leads, and what to do; empty: nothing."""
    wanted, other = folder / f"{name}.yaml", Path(f"{name}.yaml")
    if "\0" in name:
        return ""
    if wanted.is_symlink():
        return f"there is a link to {wanted.readlink()}, which is not there; put the file itself there"
    if wanted.is_dir():
        return "there is a folder of that name; rename it, and write the file"
    if wanted.with_suffix(".yml").is_file():
        return f"there is {wanted.with_suffix('.yml').name}; rename it to {wanted.name}"
    if name and other.is_file():
        return f"{other} lies elsewhere; move it to {folder.parent.name}/{folder.name}/{other.name}"
    return ""


# -- the plan ----------------------------------------------------------------------------------------------------------------


class ExpandedArm(NamedTuple):
    """One arm of the plan."""

    name: str
    context: ArmContext
    rows: list[ReportArm]
    """One for each seed."""


def plan_study(configs: Path, study: str, scale: str, given: Sequence[str] = (), parts: compose.Parts | None = None) -> Plan:
    """Compose, validate and expand one study, given by its name or its file. `given`: keys of the command line, `KEY=VALUE`; it
    plans the file with these keys edited. `parts`: what plans of the same files share. Raises UserError with file and line of the
    key that is wrong."""
    study, words = study_name(configs, study), choices.parse_given(given)
    try:
        with execution.pause_garbage_collection():
            plan = expand(study, scale, *load(configs, study, scale, words, parts), configs)
    except UserError as error:
        raise choices.on_command_line(error, words) or locate.locate_error(error, configs, study, scale) from None
    return replace(plan, at=study if scale == choices.default_choice(configs)[1] else f"{study}.{scale}")


def study_name(configs: Path, given: str) -> str:
    """The name of a study that is given by its name or by the path of its file."""
    path, folder = Path(given), (configs / "study").resolve()
    if path.suffix == ".yaml" or given.startswith(f"{configs.name}/"):
        inside = path.resolve().is_relative_to(folder)
        path = path.resolve().relative_to(folder) if inside else path
        return path.as_posix().removesuffix(".yaml")
    return given


def expand(name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> Plan:
    """The plan of a study at a scale. Raises UserError before anything is written."""
    base = parse(name, study, scale, configs)
    design = plans.design_of(base.study, base.scale, base.seeds())
    base = replace(base, study=(study := answers.with_combinations(base.study, base.arms, base.place)))
    expanded = [_expand_arm(base, arm) for arm in base.arms]
    rows = [row for one in expanded for row in one.rows]
    unused = [stage for stage in study.stages if base.place.key("stages", stage) not in base.plan.used_places]
    lineups = _check(base, expanded, rows, unused)
    tuning = [_walk(one.context, one.name, seed) for one in expanded for seed in tuning_seeds(base, lineups, one.name)]
    value = {one.name: one.context.value for one in expanded}
    made = (study, base.arms, lambda arm, key: value[arm](key), base.place)
    display = {"shown": answers.arm_looks(*made), "placed": answers.figure_places(*made), "key_figure": study.key_figure}
    registered = plans.find_registration(configs, (name, scale_name), design, base.plan.stages, rows)
    declared = {"stopping": study.stopping, "registration": registered, "tuning": tuning}
    report = _report(base, rows, lineups, {"study": name, "scale": scale_name, **display, **declared})
    pilot = base.scale.pilot.model_dump() if base.scale.pilot else None
    return Plan(name, scale_name, base.plan.stages, report, unused, scale.lock == "report", pilot=pilot, design=design)


def parse(name: str, study: Study, scale: Scale, configs: Path) -> ArmContext:
    """The study with its typed stages and with its arms, one for each combination of the values of axes. Raises UserError."""
    place = KeyPlace(f"{configs.name}/study/{name}.yaml")
    plan = PlanBuilder(scale, (configs / "study" / name).parent, models_of_arm)
    base = study_context(study, scale, place, plan)
    declared.check_names(base)
    if study.controls is not None:
        study = contrasts.with_controls(base)
        base = study_context(study, scale, place, plan)
    return replace(base, arms=arms.combine(study.arms, base.lookup(), place))


# -- expand ------------------------------------------------------------------------------------------------------------------


def _expand_arm(base: ArmContext, name: str) -> ExpandedArm:
    context = with_changes(base, base.arms[name].set)
    context.typed_task()
    return ExpandedArm(name, context, [_walk(context, name, seed) for seed in base.seeds()])


def _walk(context: ArmContext, arm: str, seed: int) -> ReportArm:
    """One arm at one seed: its models in order, then its evaluations. Where all of them run along its last stage, the arm is
    judged by those of its end."""
    context = replace(context, seed=seed)
    path, end, tokenizer = models_of_arm(context, arm, seed)
    context = replace(context, tokenizer=tokenizer)
    evaluations, ends, rungs = {}, {}, list[ReportRung]()
    for name in context.study.evaluate:
        label, stage = f"{arm}/{name}@{seed}", context.stages[name]
        along = [value for key, value in stage.given().items() if isinstance(stage.marks.get(key), PathStage)]
        if not along:
            evaluations[name] = resolve.evaluation_stages(context, name, end, context.place.key("evaluate"), label)[0]
            continue
        declared.check_references(context, name)
        found = _rungs(context, name, along[0], path, label)
        rungs += found
        if found and (path[-1].name, path[-1].step) == (along[0], None):
            ends[name] = found[-1].digest
    chosen: dict[str, Any] = {}
    if context.study.calibrate is not None:
        bands = sets.calibrated_bands(context.plan.stages, path[-1].digest)
        chosen = {"calibration": resolve.calibration_stage(context, context.place.key("calibrate")), "calibrated": bands}
    control = context.arms[arm].control
    return ReportArm(arm=arm, seed=seed, control=control, path=path, evaluations=evaluations or ends, rungs=rungs, **chosen)


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
                digest = resolve.evaluation_stages(context, name, model, context.place.key("evaluate"), at)[0]
                found.append(ReportRung(evaluation=name, stage=along, step=step, digest=digest))
    return found


# -- the models of a path ----------------------------------------------------------------------------------------------------


def models_of_arm(context: ArmContext, arm: str, seed: int) -> tuple[list[ReportStage], str, str]:
    """The models of an arm at a seed in order, the reference to the last, and the digest of the stage that holds their tokenizer;
    stages that do not vary over seeds are planned at the study's first. Raises UserError."""
    vary = context.study.seeds.vary if context.study.seeds else []
    combination = context.arms[arm]
    path: list[ReportStage] = []
    before: str | None = None
    for part in combination.path:
        name, step = arms.split_part(part)
        stage = context.stages[name]
        seeded = stage.by_seed or "seed" in table.KINDS[stage.kind].spec.model_fields
        own = context.seeds()[0] if seeded and name not in vary else seed
        if before is None and stage.marks:
            made = context.plan.once(("tokenizer", repr(context.task)), partial(_fresh_tokenizer, context))
            context = replace(context, tokenizer=made)
        # A source is the same in all arms.
        label = f"{arm}/{name}@{own}" if stage.marks else f"{stage.place.dotted}@{own}" if stage.by_seed else ""
        digest = _model_stage(replace(context, start=(label, before) if before else None), stage, before, own, label)
        context = replace(context, tokenizer=context.tokenizer or digest)
        path.append(ReportStage(name=name, kind=stage.kind, digest=digest, step=step))
        if step is not None and step not in (kept := context.plan.stages[digest].kept_steps()):
            listed = ", ".join(map(str, kept)) or "none"
            why = f"no checkpoint is kept at step {step}; kept: {listed} (see `checkpoints` of the stage)"
            raise context.place.key("arms", combination.group, "path").error(why, part)
        model = path[-1].ref()
        before = before if table.KINDS[stage.kind].ends_path else model
    return path, str(before), context.tokenizer


def _model_stage(context: ArmContext, stage: StudyStage, before: str | None, seed: int, label: str) -> str:
    """One stage of a path. `before` is the reference to the model that it starts from."""
    spec, row = context.spec(stage), table.KINDS[stage.kind]
    filled, deps = resolve.stage_references(context, stage, before, label)
    if "seed" in type(spec).model_fields:
        filled["seed"] = seed + (getattr(spec, "seed", 0) if "seed" in stage.settings else 0)
    if isinstance(spec, RLSpec):
        deps |= sets.audit_roles(context, stage, deps)
        reward, named = with_roles(spec.reward)
        filled |= {"reward": reward} if named else {}
        deps |= {role: _rewarding(context, one, stage.place.key("reward")) for role, one in named.items()}
        ends = [
            (resolve.arm_models(context, arm, stage.place.key("references"))[1], w) for arm, w in (spec.references or {}).items()
        ]
        weights, roles = sets.by_digest(ends, "reference")
        deps, filled = deps | roles, filled | ({"references": dict(zip(roles, weights, strict=True))} if ends else {})
        episode, roles = resolve.episode_roles(context, spec.method.episode, stage.place.key("method", "episode"))
        if episode is not spec.method.episode:
            method = spec.method.model_copy(update={"episode": episode})
            deps, filled = deps | roles, filled | {"method": method, "minibatches": spec.minibatches}
    if "candidates" in row.planned:
        filled["candidates"] = [step for step, _ in kept_candidates(str(before), context.plan.stages) if step != "end"]
    return context.plan.add(stage.kind, context.settings(stage, seed), deps, stage.place, label, filled)


def _rewarding(context: ArmContext, reward: ModelReward | JudgeReward, place: KeyPlace) -> str:
    if isinstance(reward, ModelReward):
        return resolve.reward_model(context, reward.model, place)
    return resolve.judging_model(context, reward.arm, place.key("arm"))


def _fresh_tokenizer(context: ArmContext) -> str:
    """The tokenizer of fresh models of an arm."""
    place = context.place.key("tokenizer")
    names = sets.tokenizer_sets(context)
    digests = [resolve.shard_digests(context, name, place.key("data"))[0] for name in names]
    sets.refuse_tests(context, names, place.key("data"))
    return context.plan.add("tokenizer", sets.tokenizer_spec(context), resolve.numbered_roles(digests, "data."), place)


# -- check -------------------------------------------------------------------------------------------------------------------


def _check(base: ArmContext, expanded: list[ExpandedArm], rows: list[ReportArm], unused: list[str]) -> dict[str, Lineup]:
    """All that is known before the first job. Returns who is compared in each table with a contrast. Raises UserError."""
    study, plan, place = base.study, base.plan, base.place
    for digest, stage in plan.stages.items():
        check.check_stage(stage, plan.stages, plan.places[digest])
    declared.check_arm_names(study, base.arms, place)
    contrasts.check_different(rows, base.arms, place)
    contrasts.check_methods(rows, plan.stages, base)
    planned = {one.name: contrasts.planned_values(one.context, one.rows[-1]) for one in expanded}
    contrasts.check_contrasts(base.arms, planned, place)
    answers.check_budgets(study.match, rows, plan.stages, place)
    lineups = contrasts.lineups(base, rows, planned)
    held = {
        one.name: {name: declared.bands_of(study, one.context.stages[name].given()["data"]) for name in study.evaluate}
        for one in expanded
    }
    declared.check_targets(study, rows, plan.stages, declared.tested_bands(study), place)
    answers.check_samples(base, held, rows, lineups)
    answers.check_showable(study, rows, plan.stages, place)
    for name in unused:
        declared.check_references(base, name)
        base.value(name)
    return lineups


# -- report ------------------------------------------------------------------------------------------------------------------


def _report(base: ArmContext, rows: list[ReportArm], lineups: dict[str, Lineup], keys: dict[str, Any]) -> str:
    """Digest of the report, the last stage of a plan; `keys` of its spec are given."""
    plan, study = base.plan, base.study
    every = [*rows, *keys["tuning"]]
    shown = {digest for row in every for digest in row.digests()}
    shown |= {rung.digest for row in rows for rung in row.rungs}
    blocks = {digest: more for digest, more in plan.blocks.items() if digest in shown}
    shown |= {digest for more in blocks.values() for digest in more}
    packed = {digest for reader in shown for digest in corpus_inputs(plan.stages[reader].deps)}
    read = {dep for one in shown | packed for role, dep in plan.stages[one].deps.items() if is_data_role(role)}
    used = [*sets.with_sources(plan.stages, shown | read), *{row.calibration for row in every if row.calibration}]
    audited = {dep for one in shown for role, dep in plan.stages[one].deps.items() if role.startswith(GATES)}
    ends = {row.arm: row.path[-1].digest for row in rows}
    calibrated = study.calibrate.bands if study.calibrate else {}
    spec: dict[str, Any] = {
        **keys,
        "question": study.question,
        "source": study.source,
        "arms": rows,
        "bands": {band: [] if band in calibrated else base.scale.bands.get(band, []) for band in declared.tested_bands(study)},
        "trained_ops": {arm: sorted(sets.ops_of(plan.stages, sets.training_sets(plan.stages, end))) for arm, end in ends.items()},
        "tables": answers.tables_with_k(study.tables, rows, partial(answers.samples_of, plan)),
        "figures": study.figures,
        "claims": study.claims,
        "match": study.match,
        "blocks": blocks,
        "lineups": lineups,
        "controls": study.controls,
        "trained_sets": sets.training_sets_by_arm(plan.stages, rows, used),
        "lacking": study.calibrate.lacking if study.calibrate else "not tested",
        "targets": study.targets,
    }
    deps = {digest: digest for digest in sorted(used)} | {f"{GATES[0]}{digest}": digest for digest in sorted(audited)}
    return plan.add_once("report", spec, deps, base.place.key("report"))
