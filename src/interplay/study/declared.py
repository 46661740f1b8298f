"""Checks of names, before anything is planned: every stage, arm, band, problem set and key that a study names is declared. And,
once stages are planned: those whose records claims and premises read are on the paths of their arms and record the number, and
targets are on learning curves that are about the same problems."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from interplay.core.artifact import ref_digest
from interplay.core.keys import check_mix
from interplay.core.model import KeyPlace, nearest_name
from interplay.data.spec import is_whole
from interplay.kinds import study_keys
from interplay.kinds.study_keys import Reason, Sets
from interplay.kinds.table import KINDS, MODELS
from interplay.report.claim_spec import Premise, Test
from interplay.report.display_spec import Target
from interplay.report.metric_spec import is_of_run
from interplay.report.shown_spec import MINUS
from interplay.report.spec import Controls, ReportArm, ReportStage
from interplay.rl.spec import RLSpec
from interplay.study import arms, sets
from interplay.study.context import BEFORE, TASK, ArmContext, StudyStage, check_known, known_entry
from interplay.study.plan import Stage
from interplay.study.spec import Arm, Study

Stages = Mapping[str, Stage]

RESERVED = {TASK: "the task itself in an arm's set", arms.SPLIT: "the split of a budget in an arm's axes"}
"""First parts of an arm's keys that are no names of stages."""


LONGEST_NAME = 120
"""Bytes of a name: a file's is 255 at most, and holds the values of axes or an ending as well."""


def check_shares(shares: Mapping[str, float] | None, place: KeyPlace) -> None:
    """Raises UserError where shares do not sum to one."""
    try:
        check_mix(dict(shares or {}), "a mix")
    except (TypeError, ValueError) as error:
        remedy = ""
        if shares and min(shares.values()) >= 0:
            last, share = [*shares.items()][-1]
            alone = f"name the set that has the rest, as in {{{last}: {share:g}, SET: rest}}"
            remedy = f"; {alone}" if len(shares) == 1 else f"; change one, or write `{last}: rest`"
        raise place.error(f"{error}{remedy}", shares) from None


def check_names(context: ArmContext) -> None:
    """Every stage, arm, band and kind that the study names is declared. Raises UserError at the first that is not."""
    study, place = context.study, context.place
    for word, meaning in RESERVED.items():
        if word in study.stages:
            raise place.key("stages", word).error(f"choose another name; `{word}` is {meaning}")
    if BEFORE in study.arms:
        raise place.key("arms", BEFORE).error(
            f"choose another name; `arm: {BEFORE}` of a set is the model that its reader starts from"
        )
    for key in ("data", "stages", "arms", "tables", "figures"):
        for name in getattr(study, key):
            if "/" in name or name in ("", ".", "..") or not name.isprintable():
                must = "choose a name without '/' that can be printed: files are called by it"
                raise place.key(key, name).error(must)
            if len(name.encode()) > LONGEST_NAME:
                must = f"{len(name.encode())} bytes long; choose a name of at most {LONGEST_NAME}: files are called by it"
                raise place.key(key, f"{name[:20]}...").error(must)
            if "@" in name and key in ("stages", "arms"):
                raise place.key(key, name).error("choose a name without '@', which a seed or a step follows in addresses")
    if not study.arms:
        raise place.key("arms").error("empty; write an arm, NAME: {path: [STAGE, ...]}")
    _check_all(_names_of_data(context))
    for name, arm in study.arms.items():
        _check_path(context, arm.path, place.key("arms", name, "path"))
        _check_keys(study, arm, place.key("arms", name))
    for name in study.evaluate:
        check_kind(context, name, place.key("evaluate"))
        check_references(context, name, complete=True)
        sets.refuse_probes(context, [context.stages[name].given()["data"]], context.stages[name].place.key("data"))
    _check_all(_names_shown(context))


Named = Iterator[tuple[KeyPlace, Any, Collection[str], str]]
"""Key of the study, name, declared names, what it is the name of."""


def _check_all(named: Named) -> None:
    for place, name, declared, what in named:
        check_known(name, declared, place, what)


def _names_of_data(context: ArmContext) -> Named:
    study, place = context.study, context.place
    named = [band for data in study.data.values() for band in data.names()]
    calibrated = study.calibrate.bands if study.calibrate else ()
    yield from ((place.key("calibrate", "bands"), band, named, "band of a problem set") for band in calibrated)
    for name, data in study.data.items():
        bands = data.names() if data.form == "generated" else []
        key = place.key("data", name, "bands" if data.bands else "band")
        yield from ((key, band, context.scale.bands, "band") for band in bands)
        yield from ((place.key("data", name, "mix"), other, study.data, "problem set") for other in data.mix or {})
        yield from ((place.key("data", name, "of"), other, study.data, "problem set") for other in [data.of] if other)
    for name, change in study.scales.items():
        here = place.key("scales", name)
        changed = [other for other, given in change.data.items() if not is_whole(given)]
        yield from ((here.key("data"), other, study.data, "problem set") for other in changed)
        yield from ((here.key("stages"), other, study.stages, "stage") for other in change.stages)
        yield from ((here.key("knobs"), other, study.knobs, "knob") for other in change.knobs)
    models = [name for name, stage in context.stages.items() if KINDS[stage.kind].makes == "model"]
    vary = study.seeds.vary if study.seeds else []
    yield from ((place.key("seeds", "vary"), name, models, "stage that leaves a model") for name in vary)


def premises(study: Study) -> Iterator[tuple[tuple[str | int, ...], Premise, Test]]:
    """The premises of claims and of fights, each with its keys and what it is a premise of."""
    for number, claim in enumerate(study.claims):
        for at, premise in enumerate(claim.requires):
            yield ("claims", number, "requires", at), premise, claim.test
    for name, table in study.tables.items():
        if table.contrast is not None and table.fight is not None:
            for at, premise in enumerate(table.contrast.requires):
                yield ("tables", name, "contrast", "requires", at), premise, table.fight


def _names_shown(context: ArmContext) -> Named:
    """Bands of the evaluations in tables, figures and claims. Whether a set has a single op, the plan knows."""
    study, place = context.study, context.place
    bands, what = tested_bands(study), "band of the evaluations"
    for name, table in study.tables.items():
        columns = [column for column in table.columns if not column.startswith("op:")]
        yield from ((place.key("tables", name, "columns"), column, [*bands, "op", *study.targets], what) for column in columns)
    for name, figure in study.figures.items():
        yield from ((place.key("figures", name, "bands"), band, bands, what) for band in figure.bands or [])
        if figure.band and not figure.band.startswith("op:"):
            yield place.key("figures", name, "band"), figure.band, bands, what
    for number, claim in enumerate(study.claims):
        test = place.key("claims", number, "test")
        if claim.test.recorded is not None:
            yield test.key("recorded"), claim.test.recorded, study.stages, "stage"
        elif not claim.test.band.startswith("op:"):
            yield test.key("band"), claim.test.band, [*bands, *study.targets], what
        if claim.fails is not None:
            yield place.key("claims", number, "fails", "recorded"), claim.fails.recorded, study.stages, "stage"
    if isinstance(study.controls, Controls) and not study.controls.band.startswith("op:"):
        yield place.key("controls", "band"), study.controls.band, bands, what
    for keys, premise, _ in premises(study):
        if premise.of is not None and premise.of.band and not premise.of.band.startswith("op:"):
            yield place.key(*keys, "band"), premise.of.band, [*bands, *study.targets], what
        if premise.recorded is not None:
            yield place.key(*keys, "recorded"), premise.recorded, study.stages, "stage"
    for name, target in study.targets.items():
        if target.evaluation in study.evaluate and target.band and not target.band.startswith("op:"):
            held = bands_of(study, study.stages[target.evaluation]["data"])
            yield place.key("targets", name, "band"), target.band, held, f"band of {target.evaluation}"


def check_kind(context: ArmContext, name: Any, place: KeyPlace, kind: str = "evaluate") -> StudyStage:
    """The stage that `place` names. Raises UserError where it is not of that kind."""
    stage = known_entry(context.stages, name, place, "stage")
    if stage.kind != kind:
        raise place.error(f"is a {stage.kind} stage; name one of kind {kind}", name)
    return stage


def check_references(context: ArmContext, name: str, complete: bool = False) -> None:
    """What a stage names is declared, and its mixes sum to one; of a complete one no key is missing. Raises UserError."""
    stage = context.stages[name]
    for key, mark in stage.marks.items():
        if isinstance(mark, Reason):
            continue
        named, place = stage.given().get(key), stage.place.key(key)
        if named is None and mark.missing and complete:
            raise place.error(f"missing; {mark.missing}")
        if isinstance(named, dict):
            check_shares(named, place)
        for other in [named] if isinstance(named, str) else named or []:
            check_known(other, context.study.data if isinstance(mark, Sets) else context.stages, place, mark.to)


def check_arm_names(study: Study, made: Collection[str], place: KeyPlace) -> None:
    """Every arm that a claim, a table or a figure names is there. Raises UserError."""
    named: list[tuple[KeyPlace, str | None]] = []
    for name, table in study.tables.items():
        here, gain = place.key("tables", name), table.gain.against if table.gain else None
        named += [(here.key("against"), table.against), (here.key("gain", "against"), gain)]
    named += [(place.key("figures", name, "against"), figure.against) for name, figure in study.figures.items()]
    for number, claim in enumerate(study.claims):
        test = place.key("claims", number, "test")
        named += [(test.key("arm"), claim.test.arm), (test.key("against"), claim.test.against)]
    for keys, premise, _ in premises(study):
        named += [(place.key(*keys, key), arm) for key, arm in premise.arms.items()]
    _check_all((key, arm, made, "arm") for key, arm in named if arm is not None)


def tested_bands(study: Study) -> list[str]:
    """The bands of the evaluations' problem sets, in order of mention."""
    found = [band for name in study.evaluate for band in bands_of(study, study.stages[name]["data"])]
    return list(dict.fromkeys(found))


def bands_of(study: Study, name: str, above: tuple[str, ...] = ()) -> list[str]:
    """The bands that the rows of a problem set may have: those that it or its sources name, and those that its steps label."""
    data = study.data.get(name)
    if data is None or name in above:
        return []
    found = [*data.names(), *(band for other in data.sources() for band in bands_of(study, other, (*above, name)))]
    labels = [step["bands"] for step in data.steps if isinstance(step.get("bands"), dict)]
    return list(dict.fromkeys([*found, *(str(band) for label in labels for band in label)]))


def _check_keys(study: Study, arm: Arm, place: KeyPlace) -> None:
    """The keys that the arm sets, and those of its axes, belong to a stage that it has."""
    reached = [TASK, *(arms.split_part(part)[0] for part in arm.path), *study.evaluate]
    for part in arms.CHANGES:
        for key in getattr(arm, part):
            spot = place.key(part, key)
            stage, _, rest = key.partition(".")
            if stage == arms.SPLIT:
                _check_split_axis(arm, part, rest, spot)
            elif stage not in (*study.stages, TASK):
                raise spot.error(f"must be stage.key{nearest_name(stage, study.stages)}")
            elif stage not in reached or not rest:
                raise spot.error(f"must be stage.key of a stage of this arm: {', '.join(reached)}")
            elif rest == "kind":
                raise spot.error(
                    "an arm cannot make another kind of a stage; add a stage of that kind, and put it on the arm's path"
                )
            elif not all(key.split(".")):
                raise spot.error("an empty word between dots, or after the last one; write stage.key.key")


def _check_split_axis(arm: Arm, part: str, key: str, place: KeyPlace) -> None:
    """An axis over the split that the arm has."""
    if arm.split is None:
        raise place.error("this arm splits no budget; give it split: {mid: ..., rl: ...}, or take the axis away")
    if part == "set":
        raise place.error("write it in the arm's split itself; only axes choose it here")
    if key not in ("tokens", "rl_share"):
        raise place.error("must be split.tokens or split.rl_share")


def _check_path(context: ArmContext, path: list[str], place: KeyPlace) -> None:
    if not path:
        raise place.error("empty; name at least one stage")
    for position, part in enumerate(path):
        name, step = arms.split_part(part)
        if part in path[:position]:
            raise place.error(f"'{part}' is there twice; write rounds as {{repeat: 2, stages: [{name}]}}, which names each", part)
        if "@" in part and step is None:
            raise place.error("must be stage@step, with the step of a checkpoint that the stage keeps", part)
        kind = known_entry(context.stages, name, place, "stage").kind
        allowed = [one for one in MODELS if KINDS[one].starts_path == (position == 0)]
        if kind not in allowed:
            raise place.error(f"'{name}' is a {kind} stage; place {position + 1} of a path takes {', '.join(allowed)}")


# Numbers of records.


class Read(NamedTuple):
    """A number that a claim or a premise reads in the record of a stage."""

    place: KeyPlace
    """Of the block whose `recorded` names the stage."""
    stage: str
    key: str
    """Key of the block that has the number."""
    number: str
    arms: list[str]


def _reads(study: Study, rows: list[ReportArm], place: KeyPlace) -> Iterator[Read]:
    for number, claim in enumerate(study.claims):
        own, test, fails = place.key("claims", number), claim.test, claim.fails
        arms = test.arms
        if test.recorded is not None:
            key = "difference" if test.value is None else "value"
            yield Read(own.key("test"), test.recorded, key, test.metric, arms)
        if fails is not None:  # about the runs that pass the stage
            through = {row.arm for row in rows for stage in row.path if stage.name == fails.recorded}
            passed = [arm for arm in arms if arm in through]
            yield from (Read(own.key("fails"), fails.recorded, *named, passed or arms) for named in fails.numbers().items())
    for keys, premise, _ in premises(study):
        if premise.improves and premise.recorded:
            yield Read(place.key(*keys), premise.recorded, "value", str(premise.improves.value), list(premise.arms.values()))


def check_records(study: Study, rows: list[ReportArm], stages: Stages, place: KeyPlace) -> None:
    """Stages whose records are read are on the paths of the arms, and record the number. Of code of the user's own it is not
    known what it records. Raises UserError."""
    for read in _reads(study, rows, place):
        for arm in read.arms:
            path = {stage.name: stage.digest for row in rows if row.arm == arm for stage in row.path}
            if read.stage not in path:
                raise read.place.key("recorded").error(f"no stage of {arm}, whose path is {', '.join(path)}", read.stage)
            _check_recorded_number(read, arm, stages[path[read.stage]])


def _check_recorded_number(read: Read, arm: str, stage: Stage) -> None:
    row = KINDS[stage.kind]
    known, key = row.recorded(stage.spec), read.place.key(read.key)
    if known is None:
        return
    held_out = row.references is not None and "validation" in study_keys.marks(row.references)
    for number in read.number.split(MINUS, 1):
        if number not in known and not any(one.endswith("/") and number.startswith(one) for one in known):
            near = nearest_name(number, known)
            raise key.error(f"the record of {read.stage} of {arm}, of kind {stage.kind}, has no such number{near}", number)
        if held_out and number.startswith("eval_") and "validation" not in stage.deps:
            raise key.error(f"{read.stage} of {arm} has no held-out problems; give stages.{read.stage} `validation`", number)


# Targets of learning curves.

RISING = ("reward", "strict", "answer", "score", "answer_first")
"""What RL logs that rises as a model learns, and parts of its reward."""
DRAWING = ("sampler", "prompting", "continuation", "episode", "decoding")
"""Keys of a method that choose what is asked, and how: a training curve depends on them, not on the model alone."""


def check_targets(study: Study, rows: list[ReportArm], stages: Stages, bands: Iterable[str], place: KeyPlace) -> None:
    """Every target of the study is on a curve that some arm has. Raises UserError."""
    for name, target in study.targets.items():
        at = place.key("targets", name)
        if name in bands or name == "op" or name.startswith("op:"):
            raise at.error("is the name of a band or of ops, too; choose another name")
        if study.stages.get(target.stage, {}).get("kind") != "rl":
            known = [one for one, stage in study.stages.items() if stage.get("kind") == "rl"]
            raise at.key("stage").error(f"must be a stage of kind rl{nearest_name(target.stage, known)}", target.stage)
        parts = [(row, part) for row in rows for part in row.path if part.name == target.stage]
        if not parts:
            raise at.key("stage").error("on the path of no arm, so that there is no curve", target.stage)
        lengths = [_points(target, row, part, stages, at) for row, part in parts]
        if target.points(min(lengths)) > min(lengths):
            many = f"the curve has {min(lengths)} points, so that no run could reach the target; smooth over fewer"
            raise at.key("window").error(many, target.window)


def _points(target: Target, row: ReportArm, part: ReportStage, stages: Stages, place: KeyPlace) -> int:
    """Points of the curve of one arm. Raises UserError where it has none."""
    if target.evaluation is not None:
        along = [rung for rung in row.rungs if (rung.evaluation, rung.stage) == (target.evaluation, target.stage)]
        if not along:
            remedy = f"name an evaluate stage of `evaluate` that has along: {target.stage}"
            raise place.key("evaluation").error(f"no evaluation along {target.stage} of {row.arm}; {remedy}", target.evaluation)
        asked = {ref_digest(stages[rung.digest].deps["data"]) for rung in along}
        check_op(target.band, [sets.all_ops(stages, asked)], f"of {target.evaluation}", place.key("band"))
        return len(along)
    if target.curve not in RISING and not target.curve.startswith("reward/"):
        remedy = f"write {', '.join(RISING)} or reward/PART{nearest_name(target.curve, RISING)}"
        raise place.key("curve").error(f"no curve of RL that rises as a model learns; {remedy}", target.curve)
    return part.step or _rl_spec(stages[part.digest]).steps


def check_op(column: str, tested: list[set[int]], whose: str, place: KeyPlace) -> None:
    """A single op occurs in one of the sets of ops, where all are known."""
    if not column.startswith("op:") or not all(tested):
        return
    known = set[int]().union(*tested)
    if (op := int(column.removeprefix("op:"))) not in known:
        listed = ", ".join(map(str, sorted(known)))
        raise place.error(f"no problem {whose} has {op} ops; they have {listed}", column)


def check_on_target(
    study: Study, rows: list[ReportArm], stages: Stages, metric: str, column: str, arms: list[str], place: KeyPlace
) -> None:
    """What is shown of some arms on a target is a number of runs, all of them have its curve, and the curves are about the same
    problems. Raises UserError."""
    target = study.targets.get(column)
    if target is None:
        known = f"write one of {', '.join(study.targets)}" if study.targets else "declare one under `targets`"
        raise place.error(f"is a number of a target, and {column} is none; {known}", metric)
    if not is_of_run(metric):
        raise place.error(f"{column} is a target; write reached_target, or steps_, tokens_ or seconds_to_target", metric)
    first: dict[int, tuple[str, dict[str, Any]]] = {}
    for row in [row for arm in arms for row in rows if row.arm == arm]:
        part = next((part for part in row.path if part.name == target.stage), None)
        if part is None:
            remedy = "name arms that have it"
            raise place.error(f"{row.arm} has no stage {target.stage}, so no curve to reach {column}; {remedy}", metric)
        drawn = {} if target.evaluation else _drawn(target, stages[part.digest])
        name, other = first.setdefault(row.seed, (row.arm, drawn))
        if key := next((key for key in drawn if drawn[key] != other[key]), None):
            unlike = f"training curves of {name} and {row.arm} are not about the same problems: {key} differs"
            raise place.error(f"{unlike}; give the target an evaluation along the stage, which is the same for all", metric)


def _drawn(target: Target, stage: Stage) -> dict[str, Any]:
    """What decides which problems a training curve is about, and what is counted, by key."""
    spec = _rl_spec(stage)
    data = [(role, ref) for role, ref in stage.deps.items() if role.startswith("data.")]
    found: dict[str, Any] = {"data": data, "mix": spec.mix, "temperature": spec.temperature}
    found |= {f"method.{key}": getattr(spec.method, key) for key in DRAWING}
    return {**found, "reward": spec.reward} if target.curve.startswith("reward") else found


def _rl_spec(stage: Stage) -> RLSpec:
    assert isinstance(stage.spec, RLSpec)
    return stage.spec
