"""From names to stages: problem sets, the references of a stage, and evaluations, each resolved with all that it refers to. One
recursion, which goes on through the models of an arm (`ModelsOfArm`): a problem set may be made with samples of its last one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from interplay.core import random
from interplay.core.digest import corpus_roles, shard_label
from interplay.core.model import MOST, KeyPlace
from interplay.data.spec import DataSet
from interplay.data.steps.spec import STEPS
from interplay.data.steps.turns_spec import LIBRARY, WithEntries
from interplay.evaluate.generate_spec import GenerateSpec, template_fields
from interplay.evaluate.spec import EvaluateSpec, sample_blocks
from interplay.kinds import study_keys, table
from interplay.report.spec import ReportStage
from interplay.rollout import seat_spec
from interplay.rollout.spec import SeatsEpisode, library_of
from interplay.study import declared, sets
from interplay.study.context import BEFORE, ArmContext, StudyStage, kept_candidates, known_entry, with_changes
from interplay.study.spec import PINNED
from interplay.tasks.families import task_family
from interplay.tasks.family import Generator

Resolved = tuple[dict[str, Any], dict[str, str]]
"""Keys of a spec, and dependencies by role."""


# -- problem sets ------------------------------------------------------------------------------------------------------------


def problem_set(context: ArmContext, name: str, place: KeyPlace) -> str:
    """Digest of the problem set that `place` names. Raises UserError when it is made of itself, or comes in shards."""
    if name in context.study.data and (count := context.study.data[name].shards):
        reader = f"data.{name} comes in {count} shards, which only pretrain, midtrain and sft read"
        raise place.error(f"{reader}; name a set without shards", name)
    return shard_digests(context, name, place)[0]


def shard_digests(context: ArmContext, name: str, place: KeyPlace) -> list[str]:
    """Digests of the shards of a problem set, in order; of the whole set where it has none. Raises UserError."""
    own = context.place.key("data", name)
    if name in context.open_sets:
        circle = " -> ".join([*context.open_sets[context.open_sets.index(name) :], name])
        raise own.error(f"made of itself: {circle}; take one of them away")
    data = known_entry(context.study.data, name, place, "problem set")
    if data.form == "mix":
        return [_curated(replace(context, open_sets=(*context.open_sets, name)), data, own)]
    if data.form == "written":
        return [_written(replace(context, open_sets=(*context.open_sets, name)), data, own)]
    if data.form == "file":
        return [context.plan.add("dataset", sets.file_spec(data), {}, own)]

    chosen = calibration_stage(context, own) if context.calibrated(data) else ""

    def generated() -> list[str]:
        specs = sets.generated_specs(context, name, data)
        if not chosen:
            return [context.plan.add("problems", spec, {}, own, label) for spec, label in specs]
        sets.check_calibrated(context, data, sets.task_of(context, name, data), own)
        return [_calibrated(context, spec, chosen, own) for spec, _ in specs]

    return context.plan.once(("problem set", name, repr(context.task), chosen), generated)


# -- bands that are chosen for each base -----------------------------------------------------------------------------------------


def calibration_stage(context: ArmContext, place: KeyPlace) -> str:
    """Digest of the stage that chooses the ops of bands for the replicate that is planned; `place` is what reads them. Raises
    UserError where the arm that is calibrated would itself depend on it."""
    wanted, own = context.study.calibrate, context.place.key("calibrate")
    assert wanted is not None
    seed = context.replicate
    known_entry(context.arms, wanted.arm, own.key("arm"), "arm")
    task = context.typed_task()
    if task is None or task_family(task).shared is not Generator.__dataclass_fields__["shared"].default:
        raise own.error("needs a task whose problems belong to one split each, so that prompts of the calibration are no others")
    if wanted.arm in context.open_arms:
        why = f"is calibrated on arm {wanted.arm}, which is trained on this set; name a pinned band, such as {PINNED}"
        raise place.key("band").error(f"{why}{next(iter(wanted.bands))}, there")
    base = replace(context.unchanged or context, seed=seed, open_arms=context.open_arms)

    def made() -> str:
        _, model, tokenizer = arm_models(base, wanted.arm, base.place)
        probe: dict[str, Any] = {"task": base.task, "split": "validation", "size": wanted.prompts * len(candidates)}
        probe |= {"bands": {"candidates": dict.fromkeys(candidates, 1 / len(candidates))}, "shares": {"candidates": 1.0}}
        problems = base.plan.add("problems", probe, {}, own, f"{own.dotted}.prompts")
        at, label = replace(base, tokenizer=tokenizer), f"{wanted.arm}/{own.dotted}.samples@{seed}"
        blocks = evaluation_stages(at, wanted.evaluate, model, own.key("evaluate"), label, problems)
        sets.check_rules(wanted.bands, sum(getattr(base.plan.stages[block].spec, "num_samples", 0) for block in blocks), own)
        roles = {f"samples.{number}": block for number, block in enumerate(blocks)}
        return base.plan.add("calibrate", {"bands": wanted.bands}, roles, own, f"{wanted.arm}/{own.dotted}@{seed}")

    candidates = base.scale.bands[next(iter(wanted.bands))]
    return base.plan.once(("calibration", str(seed)), made)


def _calibrated(context: ArmContext, spec: dict[str, Any], chosen: str, place: KeyPlace) -> str:
    """The set of the base that was calibrated: with problems of its own."""
    seed = random.stream_key("calibrated", spec.get("seed", 0), int(chosen, 16)) % MOST
    own = {**spec, "seed": seed}
    return context.plan.add("problems", own, {"calibration": chosen}, place, f"{place.dotted}@{context.replicate}")


def _curated(context: ArmContext, data: DataSet, place: KeyPlace) -> str:
    """A set that is made of others."""
    mix = place.key("mix")
    declared.check_shares(data.mix, mix)
    parts = [(problem_set(context, name, mix), share) for name, share in (data.mix or {}).items()]
    shares, deps = sets.merge_shares(*sets.by_digest(parts, "data"))
    sets.check_size(context.plan.stages, data.size, shares, deps, place.key("size"))
    sampled = dict(deps)
    for number, step in enumerate(data.steps):
        deps |= dict(_step_roles(context, step, number, sampled, place.key("steps", number)))
    steps = [{name: value for name, value in step.items() if name not in sets.MISSING} for step in data.steps]
    size = {} if data.size is None else {"size": data.size}
    digest = context.plan.add("curate", {"mix": shares, "steps": steps, **size}, deps, place, _at_replicate(context, place))
    sets.check_samples_of_steps(context.plan.stages, digest, place)
    sets.check_tools(context.plan.stages, digest, place)
    for number, step in enumerate(data.steps):
        if (known := STEPS.get(step["name"])) and known.READS_SAMPLES:  # a function of the user's own reads none
            sets.refuse_texts(context, [digest], place.key("steps", number), step["name"])
    return digest


def _written(context: ArmContext, data: DataSet, place: KeyPlace) -> str:
    """A set whose rows a model writes."""
    stage = declared.check_kind(context, data.generate, place.key("generate"), "generate")
    source = problem_set(context, data.of, place.key("of"))
    spec = context.spec(stage)
    assert isinstance(spec, GenerateSpec)
    judged = spec.writes in ("solution", "prompt", "choice") or any(one.name == "verdict" for one in spec.filters)
    if judged or "said" in template_fields(spec.text):
        sets.refuse_texts(context, [source], place.key("of"), data.of)
    deps = {"model": arm_end(context, data.arm, place.key("arm")), "data.0": source}
    return context.plan.add(stage.kind, context.settings(stage), deps, stage.place, _at_replicate(context, place))


def _at_replicate(context: ArmContext, place: KeyPlace) -> str:
    """Label of a set for the replicate that is planned: a set of the first one serves all, unless samples of a model that each
    replicate has of its own make it another. A set that is made `before` a stage has that in its label."""
    if context.start and place.keys[:1] == ("data",) and _made_before(context.study.data.get(place.keys[1])):
        return f"{place.dotted}.{context.start[0]}"
    return place.dotted if context.replicate == context.seeds()[0] else f"{place.dotted}@{context.replicate}"


def _step_roles(
    context: ArmContext, step: Mapping[str, Any], number: int, rows: Mapping[str, str], place: KeyPlace
) -> Iterator[tuple[str, str]]:
    """What a curation step reads in addition to the rows."""
    sets.check_step(step, place)
    model = STEPS.get(str(step.get("name")))
    if model is None:
        return  # parsing the spec names the known ones
    if model.READS_TOKENIZER:
        yield "tokenizer", context.tokenizer
    if model.READS_SAMPLES:
        end = arm_end(context, step["arm"], place.key("arm"))
        for role, data in rows.items():
            made = evaluation_stages(context, step["evaluate"], end, place.key("evaluate"), _at_replicate(context, place), data)
            yield from ((f"samples.{number}.{role.removeprefix('data.')}.{block}", one) for block, one in enumerate(made))
    if model.COMPARES:
        others = [problem_set(context, other, place.key("against")) for other in step["against"]]
        if issubclass(model, WithEntries):
            sets.refuse_tests(context, step["against"], place.key("against"))
        yield from numbered_roles(others, f"against.{number}.").items()


def _decontaminated(context: ArmContext, digest: str, place: KeyPlace) -> str:
    """The problem set after the contamination step that the study declares for all training data; itself where it declares none.
    Raises UserError where it is one of the sets to compare with."""
    wanted, own = context.study.decontaminate, context.place.key("decontaminate")
    if wanted is None:
        return digest
    names = wanted.against
    if names is None:
        names = [context.study.stages[name]["data"] for name in context.study.evaluate]
    others = [problem_set(context, name, own.key("against")) for name in names]
    if digest in others:
        raise place.error("one of the sets that decontaminate compares with; train on another")
    given = {"mix": [1.0], "steps": [wanted.model_dump(exclude={"against"})]}
    deps = {"data.0": digest, **numbered_roles(others, "against.0.")}
    return context.plan.add("curate", given, deps, own, f"{context.plan.stages[digest].label} clean")


def _made_before(data: DataSet | None) -> bool:
    """Whether a set is made with the model that its reader starts from."""
    return data is not None and BEFORE in (data.arm, *(step.get("arm") for step in data.steps))


# -- references of stages ----------------------------------------------------------------------------------------------------


def stage_references(context: ArmContext, stage: StudyStage, before: str | None, label: str) -> Resolved:
    """Keys of the spec and roles that the references of a stage come to, field by field. Raises UserError."""
    filled: dict[str, Any] = {}
    deps: dict[str, str] = {"init": before} if before else {}
    for key, mark in stage.marks.items():
        if key not in stage.references.model_fields_set:
            if mark.missing:
                raise stage.place.key(key).error(f"missing; {mark.missing}")
        elif isinstance(mark, study_keys.Sets):
            more, roles = _sets(context, stage, key, mark)
            filled, deps = {**filled, **more}, {**deps, **roles}
        elif isinstance(mark, study_keys.Samples):
            deps |= _samples(context, stage, key, mark, deps, label)
    return filled, deps


def _sets(context: ArmContext, stage: StudyStage, key: str, mark: study_keys.Sets) -> Resolved:
    """What a key that names problem sets comes to."""
    named, place = getattr(stage.references, key), stage.place.key(key)
    names = [named] if isinstance(named, str) else list(named)
    mixes = [_mix(context, named, place, mark)] if not mark.packed else _mixes_of_shards(context, named, place)
    if mark.use != "evaluation":
        sets.refuse_tests(context, names, place)
        sets.refuse_probes(context, names, place)
        mixes = [(shares, {role: _decontaminated(context, one, place) for role, one in roles.items()}) for shares, roles in mixes]
    if not mark.texts:
        sets.refuse_texts(context, {one for _, roles in mixes for one in roles.values()}, place, named)
    if mark.pairs:
        given = named if isinstance(named, str) else names
        sets.check_pairs(context.spec(stage), mixes[0][1].values(), context.plan.stages, place, given)
    if mark.packed:
        return {}, _corpora(context, stage, mark.packed, mixes)
    shares, roles = mixes[0]
    return ({mark.mix: shares} if mark.mix else {}), roles


def _mix(context: ArmContext, named: str | Mapping[str, float], place: KeyPlace, mark: study_keys.Sets) -> sets.Mix:
    """Shares and roles of the sets that a key names, of which one alone has no share."""
    if isinstance(named, str):
        return [], {mark.role: problem_set(context, named, place)}
    declared.check_shares(named, place)
    return sets.by_digest([(problem_set(context, name, place), share) for name, share in named.items()], mark.role)


def _mixes_of_shards(context: ArmContext, named: Mapping[str, float], place: KeyPlace) -> list[sets.Mix]:
    """One mix for each shard of the sets. Raises UserError where they have not equally many."""
    declared.check_shares(named, place)
    found = {name: shard_digests(context, name, place) for name in named}
    counts = {name: len(digests) for name, digests in found.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        must = f"sets of one mix must come in equally many shards; these have {listed}; give the others data.NAME.shards too"
        raise place.error(must, list(named))
    numbers = range(next(iter(counts.values())))
    return [sets.by_digest([(found[name][shard], share) for name, share in named.items()], "data") for shard in numbers]


def _corpora(context: ArmContext, stage: StudyStage, packed: str, mixes: list[sets.Mix]) -> dict[str, str]:
    """Corpora by role, one of each mix, and the tokenizer where the model is fresh."""
    given, place = getattr(stage.references, packed), stage.place.key(packed)
    roles = {} if not table.KINDS[stage.kind].starts_path else {"tokenizer": context.tokenizer}
    for shard, (role, (shares, deps)) in enumerate(zip(corpus_roles(len(mixes)), mixes, strict=True)):
        label = shard_label(place.dotted, shard) if len(mixes) > 1 else ""
        spec, deps = {**given, "mix": shares}, {**deps, "tokenizer": context.tokenizer}
        roles[role] = context.plan.add("corpus", spec, deps, place, label)
    return roles


def _samples(
    context: ArmContext, stage: StudyStage, key: str, mark: study_keys.Samples, deps: Mapping[str, str], label: str
) -> dict[str, str]:
    """Roles of the evaluations that a key asks for."""
    name, place, init = getattr(stage.references, key), stage.place.key(key), deps["init"]
    if mark.of == "candidates":
        kept = kept_candidates(init, context.plan.stages)
        made = [evaluation_stages(context, name, model, place, f"{label}@{step}") for step, model in kept]
    elif mark.of == "init on each set":
        data = [dep for role, dep in deps.items() if role.startswith("data.")]
        made = [evaluation_stages(context, name, init, place, stage.place.dotted, problems) for problems in data]
    else:
        blocks = evaluation_stages(context, name, init, place, stage.place.dotted)
        problems = {mark.problems: context.plan.stages[blocks[0]].deps["data"]} if mark.problems else {}
        return {**problems, **{f"{mark.role}.{block}": one for block, one in enumerate(blocks)}}
    return {f"{mark.role}.{number}.{block}": one for number, blocks in enumerate(made) for block, one in enumerate(blocks)}


# -- evaluations ---------------------------------------------------------------------------------------------------------------


def evaluation_stages(
    context: ArmContext, name: Any, model: str, place: KeyPlace, label: str, problems: str | None = None
) -> list[str]:
    """The stages that evaluate a model, one for each block of samples, on the study's problem set or `problems` (a digest)."""
    stage = declared.check_kind(context, name, place)
    deps = {"data": problems} if problems else stage_references(context, stage, None, label)[1]
    spec = context.spec(stage)
    assert isinstance(spec, EvaluateSpec)
    sets.check_evaluated(context.plan.stages[deps["data"]].spec, spec, stage.place)
    plan, given = context.plan, context.settings(stage)
    if spec.by_reward:
        deps = {**deps, "reward": reward_model(context, spec.by_reward.model, stage.place.key("by_reward", "model"))}
        if arm := spec.by_reward.reference:
            deps["reference"] = arm_models(context, arm, stage.place.key("by_reward", "reference"))[1]
    if arm := spec.probe.against if spec.probe else "":
        deps = {**deps, "compared": arm_models(context, arm, stage.place.key("probe", "against"))[1]}
    filled = {key: named.with_roles() for key in ("by_reward", "probe") if (named := getattr(spec, key))}
    if arms_asked := {one.arm for one in spec.judged.values() if one.arm}:
        ends = {arm: judging_model(context, arm, stage.place.key("judged")) for arm in arms_asked}
        judges = numbered_roles(ends.values(), "judge.")
        roles = {model: role for role, model in judges.items()}
        asked = {name: {"arm": roles[ends[one.arm]]} if one.arm else {} for name, one in spec.judged.items()}
        placed = {name: one.model_copy(update=asked[name]) for name, one in spec.judged.items()}
        deps, filled = {**deps, **judges}, {**filled, "judged": placed}
    episode, named = episode_roles(replace(context, start=(label, model)), spec.episode, stage.place.key("episode"))
    deps, filled = {**deps, **named}, filled if episode is spec.episode else {**filled, "episode": episode}
    deps = {"model": model, **deps}
    made = [plan.add(stage.kind, given, deps, stage.place, label, filled | block) for block in sample_blocks(spec)]
    if len(made) > 1:
        plan.blocks[made[0]] = made[1:]
    return made


# -- models --------------------------------------------------------------------------------------------------------------------


def episode_roles(context: ArmContext, episode: Any, place: KeyPlace) -> tuple[Any, dict[str, str]]:
    """The episode with roles in place of the arms on its seats, or of the library that its context names, and what these roles
    refer to; itself where it names neither. Raises UserError."""
    if isinstance(episode, SeatsEpisode):
        return _seated(context, episode, place)
    if name := library_of(episode):
        return _with_library(context, episode, name, place)
    return episode, {}


def numbered_roles(references: Iterable[str], prefix: str) -> dict[str, str]:
    """Role -> reference, each reference once."""
    return {f"{prefix}{number}": reference for number, reference in enumerate(sorted(set(references)))}


def _seated(context: ArmContext, episode: SeatsEpisode, place: KeyPlace) -> tuple[SeatsEpisode, dict[str, str]]:
    """The episode with roles `seat.<i>` in place of arms; role -> reference of the model that the arm ends with."""
    ends = {arm: arm_models(context, arm, place.key("seats"))[1] for arm in seat_spec.models_of(episode.seats)}
    seated = numbered_roles(ends.values(), seat_spec.SEAT)
    roles = {model: role for role, model in seated.items()}
    seats = seat_spec.with_roles(episode.seats, {arm: roles[model] for arm, model in ends.items()})
    return episode.model_copy(update={"seats": seats}), seated


def _with_library(context: ArmContext, episode: Any, name: str, place: KeyPlace) -> tuple[Any, dict[str, str]]:
    """The episode with a role in place of the library that its context names; the role and the digest of that set. Raises
    UserError where the library is made of what models are tested on."""
    place = place.key("context")
    made = problem_set(context, name, place.key(LIBRARY))
    sets.refuse_tests(context, [name], place.key(LIBRARY))
    sets.check_library(context.plan.stages, [made], episode.context, place)
    shown = episode.context.model_copy(update={LIBRARY: LIBRARY})
    return episode.model_copy(update={"context": shown}), {LIBRARY: made}


def arm_end(context: ArmContext, arm: Any, place: KeyPlace) -> str:
    """Reference to the model that an arm ends with at the replicate that is planned, for a problem set that is made with its
    samples; of `before` to the model that the reader of the set starts from. Raises UserError when that arm itself is trained on
    the set."""
    if arm == BEFORE:
        if context.start is None:
            raise place.error("what reads this set starts from no model of a path; name an arm", arm)
        return context.start[1]
    known_entry(context.arms, arm, place, "arm")
    if arm in context.open_arms:
        raise place.error("that arm is itself trained on this set; name one that is not", arm)
    return arm_models(context, arm, place)[1]


def reward_model(context: ArmContext, arm: str, place: KeyPlace) -> str:
    """Reference to the reward model that an arm ends with at the replicate that is planned. Raises UserError."""
    last = arm_models(context, arm, place)[0][-1]
    if not table.KINDS[last.kind].ends_path:
        raise place.error(f"ends with {last.name} of kind {last.kind}; name an arm that ends with one of kind reward_model", arm)
    return last.ref()


def judging_model(context: ArmContext, arm: str, place: KeyPlace) -> str:
    """Reference to the language model that an arm ends with at the replicate that is planned. Raises UserError."""
    path, end, _ = arm_models(context, arm, place)
    if path and table.KINDS[path[-1].kind].ends_path:
        raise place.error(f"ends with {path[-1].name}, which gives scores and no text; name an arm that ends with a policy", arm)
    return end


def arm_models(context: ArmContext, arm: str, place: KeyPlace) -> tuple[list[ReportStage], str, str]:
    """The models of another arm at the replicate that is planned."""
    known_entry(context.arms, arm, place, "arm")
    if arm in context.open_arms:
        raise place.error("that arm is itself made with this; name one that is not", arm)
    seed = context.replicate
    changed = with_changes(context, context.arms[arm].set)
    return context.plan.models_of_arm(replace(changed, open_arms=(*context.open_arms, arm), seed=seed), arm, seed)
