"""Typed stages of a study, what planning one arm reads, the builder that collects the stages of a plan, and what those stages say
of a model."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from interplay.core import artifact, execution
from interplay.core.digest import Known
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, UserError, nearest_name
from interplay.data.spec import DataSet
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds import extensions, study_keys
from interplay.kinds.table import KINDS
from interplay.model.spec import SourceSpec
from interplay.report.spec import Lineup, ReportStage
from interplay.rl.spec import RLSpec
from interplay.study import files
from interplay.study.arms import Combination, Lookup, Tree, apply_changes
from interplay.study.plan import Stage
from interplay.study.spec import REFERENCES, SEED, Scale, Study
from interplay.tasks.families import task_family
from interplay.tasks.spec import OwnTask, Task, TaskKey

TASK = "task"
"""First part of keys of an arm that lead into the task."""
BEFORE = "before"
"""In place of the name of an arm, in a set: the model that the stage which reads the set starts from."""
ANY_SHARES = [1.0]
"""In place of the shares of a mix while a spec is parsed before its problem sets are resolved."""


T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class StudyStage:
    """A stage of a study as one arm has it."""

    place: KeyPlace
    """Its key in the study file."""
    kind: str
    references: study_keys.References
    settings: Mapping[str, Any]
    """Keys of the spec and the run block, as written."""

    @property
    def marks(self) -> dict[str, study_keys.Mark]:
        """The keys that its kind may refer with, in order."""
        return study_keys.marks(type(self.references))

    @property
    def by_seed(self) -> bool:
        """Whether it is a model folder for each seed."""
        path = self.settings.get("path")
        return isinstance(path, str) and SEED in path

    def given(self) -> dict[str, Any]:
        """The reference keys that the stage has, `corpus` included."""
        return {key: getattr(self.references, key) for key in self.references.model_fields_set}


def parse_stage(written: Mapping[str, Any], place: KeyPlace) -> StudyStage:
    """The stage with its references as typed values; the keys of its spec are parsed with those of the scale. Raises
    UserError."""
    if "kind" not in written:
        raise place.key("kind").error(f"missing; known: {', '.join(sorted(REFERENCES))}")
    kind = written["kind"]
    check_known(kind, REFERENCES, place.key("kind"), "kind")
    if planned := [key for key in KINDS[kind].planned if key in written]:
        raise place.key(planned[0]).error("the planner fills it in; take it away", written[planned[0]])
    if not isinstance(written.get("run", {}), dict):
        raise place.key("run").error("must be keys and values", written["run"])
    referring = _reference_keys(REFERENCES[kind])
    references = parse_model(REFERENCES[kind], {key: written[key] for key in written if key in referring}, place)
    settings = {key: value for key, value in written.items() if key != "kind" and key not in referring}
    return StudyStage(place, kind, references, settings)


def _reference_keys(references: type[study_keys.References]) -> set[str]:
    marks = study_keys.marks(references)
    return {*marks, *(mark.packed for mark in marks.values() if isinstance(mark, study_keys.Sets))}


ModelsOfArm = Callable[["ArmContext", str, int], tuple[list[ReportStage], str, str]]
"""(context, arm, seed) -> its models in order, the reference to the last, and the digest of the stage that holds their tokenizer.
Problem sets and evaluations are made with models of arms, which are made with problem sets: the planner hands this in."""


class PlanBuilder:
    """Collects the stages of a plan, each once. What it remembers has explicit keys, and none of it is about a current arm."""

    def __init__(self, scale: Scale, folder: Path, models_of_arm: ModelsOfArm) -> None:
        self.scale, self.folder, self.models_of_arm = scale, folder, models_of_arm
        self.stages: dict[str, Stage] = {}
        """By digest, dependencies first."""
        self.places: dict[str, KeyPlace] = {}
        """Digest -> the key of the study that first led to the stage."""
        self.used_places: set[KeyPlace] = set()
        self.blocks: dict[str, list[str]] = {}
        """Digest of an evaluation -> digests of the stages with its further samples."""
        self._parsed: dict[str, tuple[Model, execution.Run]] = {}
        self._added: dict[str, str] = {}
        self._hashed: Known = {}
        self._specs: dict[tuple[int, int], tuple[StudyStage, Mapping[str, Any], Model]] = {}
        self._found: dict[tuple[str, ...], Any] = {}

    def once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        """What `make` returns, computed at the first call with this key."""
        if key not in self._found:
            self._found[key] = make()
        found: T = self._found[key]
        return found

    def all_blocks(self, digest: str) -> list[str]:
        """Digests of an evaluation and of the stages with its further samples."""
        return [digest, *self.blocks.get(digest, [])]

    def parse(self, kind: str, given: Mapping[str, Any], place: KeyPlace) -> tuple[Model, execution.Run]:
        """Spec and run block: schema < scale (by kind) < study < arm. Raises UserError."""
        asked = repr((kind, given))
        if asked not in self._parsed:
            self._parsed[asked] = self._parse(kind, given, place)
        return self._parsed[asked]

    def spec_of(self, stage: StudyStage, task: Mapping[str, Any], settings: Callable[[], dict[str, Any]]) -> Model:
        """The spec of a stage of the study, of which `settings` returns the keys. It is asked for at every seed, and the same
        objects have the same spec. Raises UserError."""
        asked = id(stage), id(task)
        if asked not in self._specs:  # holds both: an object that is gone leaves its id to another
            self._specs[asked] = stage, task, self.parse(stage.kind, settings(), stage.place)[0]
        return self._specs[asked][2]

    def _parse(self, kind: str, given: Mapping[str, Any], place: KeyPlace) -> tuple[Model, execution.Run]:
        defaults = self.scale.kinds.get(kind, {})
        spec = {**defaults, **given}
        run = {**defaults.get("run", {}), **spec.pop("run", {})}
        spec, run = files.read_files(KINDS[kind].spec, spec, run, self.folder, place)
        parsed = parse_model(KINDS[kind].spec, spec, place)
        extensions.check_extensions(parsed, place)
        how = parse_model(execution.Run, run, place.key("run"))
        if judges := parsed.judges() if isinstance(parsed, RLSpec | EvaluateSpec) else []:
            if not how.judge and any(one.model for one in judges):
                raise place.key("run", "judge").error(
                    "missing; write the address of the endpoint that judges, which ends with /v1"
                )
            if how.processes > 1:
                raise place.key("run", "processes").error("a judge is asked by one process; write 1", how.processes)
        return parsed, how

    def add(
        self,
        kind: str,
        given: Mapping[str, Any],
        deps: dict[str, str],
        place: KeyPlace,
        label: str = "",
        filled: Mapping[str, Any] | None = None,
    ) -> str:
        """Digest of the stage with the given keys of its spec; `filled` are those that the planner knows, in their final types.
        `place` is its key in the study file, `label` its name for people."""
        self.used_places.add(place)
        asked = repr((kind, given, deps, filled))
        if asked not in self._added:
            spec, run = self.parse(kind, given, place)
            self._added[asked] = self._add(kind, spec.model_copy(update=filled) if filled else spec, deps, run, place, label)
        return self._added[asked]

    def add_once(self, kind: str, given: Mapping[str, Any], deps: dict[str, str], place: KeyPlace) -> str:
        """The same for a large stage that is added a single time."""
        spec, run = self._parse(kind, given, place)
        return self._add(kind, spec, deps, run, place, "")

    def _add(self, kind: str, spec: Model, deps: dict[str, str], run: execution.Run, place: KeyPlace, label: str) -> str:
        stage = Stage.make(kind, spec, deps, run, label or place.dotted, self._hashed)
        self.stages.setdefault(stage.digest, stage)
        self.places.setdefault(stage.digest, place)
        return stage.digest


@dataclass(frozen=True)
class ArmContext:
    """What planning one arm reads. Frozen: a change on the way, such as the tokenizer, is passed on in a copy."""

    study: Study
    scale: Scale
    place: KeyPlace
    """The study file, for errors."""
    plan: PlanBuilder
    stages: Mapping[str, StudyStage]
    """The stages with the values that the arm sets."""
    task: Mapping[str, Any]
    """Keys of the task: schema < scale < study < arm."""
    arms: Mapping[str, Combination]
    """Every arm of the plan by name."""
    tokenizer: str = ""
    """Digest of the stage that holds the tokenizer of the arm."""
    seed: int | None = None
    """The replicate that is planned; None: the first."""
    open_sets: tuple[str, ...] = ()
    """Problem sets that are being resolved, outermost first."""
    open_arms: tuple[str, ...] = ()
    """Arms whose end some problem set is made with."""
    start: tuple[str, str] | None = None
    """Label of the stage of a path that is planned, and the reference to the model that it starts from; None: none is, or it
    starts from none."""
    unchanged: "ArmContext | None" = None
    """The study before any arm changes it; None: this context is that."""

    def lookup(self) -> Lookup:
        """A function from what an arm sets, and `stage.key`, to the value of that key."""
        contexts: dict[str, ArmContext] = {}

        def value(changes: Mapping[str, Any], dotted: str) -> Any:
            key = repr(changes)
            if key not in contexts:
                contexts[key] = with_changes(self, changes)
            return contexts[key].value(dotted)

        return value

    def settings(self, stage: StudyStage, seed: int | None = None) -> dict[str, Any]:
        """The keys of the stage's spec that are known before its references are resolved, at a seed or at the study's first."""
        mixes = [mark.mix for mark in stage.marks.values() if isinstance(mark, study_keys.Sets) and mark.mix]
        task = {TASK: self.task} if TASK in KINDS[stage.kind].planned else {}
        at = self.seeds()[0] if seed is None else seed
        path = {"path": stage.settings["path"].replace(SEED, str(at))} if stage.by_seed else {}
        return {**stage.settings, **dict.fromkeys(mixes, ANY_SHARES), **task, **path}

    def seeds(self) -> list[int]:
        """The seeds of the study. Raises UserError where there are more of them than its last look takes."""
        found = self.study.seeds.values if self.study.seeds and self.study.seeds.values else self.scale.seeds
        if self.study.stopping is not None and len(found) > self.study.stopping.looks[-1]:
            remedy = f"the last look takes fewer than the {len(found)} seeds; add a look at {len(found)}, or take seeds away"
            raise self.place.key("stopping", "looks").error(remedy, self.study.stopping.looks)
        return found

    @property
    def replicate(self) -> int:
        """The seed of the replicate that is planned."""
        return self.seeds()[0] if self.seed is None else self.seed

    def spec(self, stage: StudyStage) -> Model:
        """The spec of a stage, but for what its references come to. Raises UserError."""
        return self.plan.spec_of(stage, self.task, lambda: self.settings(stage))

    def calibrated(self, data: DataSet) -> list[str]:
        """The bands of a generated set whose ops are chosen for each base."""
        rules = self.study.calibrate.bands if self.study.calibrate else {}
        return [band for band in data.names() if data.form == "generated" and band in rules]

    def typed_task(self) -> Task | None:
        """The task; None in a study that reads all problems from files."""
        if not self.task:
            return None
        return self.plan.once(("typed task", repr(self.task)), lambda: parse_task(self.task, self.place, self.plan.folder))

    def value(self, dotted: str) -> Any:
        """The value of `stage.key` or `task.key`; None where there is none. `stage` alone: all values."""
        name, *keys = dotted.split(".")
        if name == TASK:
            return value_at(self.typed_task(), keys)
        stage = known_entry(self.stages, name, self.place.key("stages", name), "stage")
        known = {"kind": stage.kind, **stage.given()}
        if keys[:1] and keys[0] in known and keys[0] != "corpus":
            return value_at(known, keys)
        return value_at({**stage.settings, **fields_of(self.spec(stage)), **known, "corpus": self._corpus(stage)}, keys)

    def _corpus(self, stage: StudyStage) -> Model | None:
        """How the stage packs its problem sets, but for their shares; None where it packs none."""
        if (given := getattr(stage.references, "corpus", None)) is None:
            return None
        return self.plan.parse("corpus", {**given, "mix": ANY_SHARES}, stage.place.key("corpus"))[0]


def study_context(study: Study, scale: Scale, place: KeyPlace, plan: PlanBuilder) -> ArmContext:
    """The stages and the task as the study has them, before any arm changes them."""
    family = study.task.get("name")
    task = {**(scale.tasks.get(family, {}) if isinstance(family, str) else {}), **study.task}
    stages = {name: parse_stage(written, place.key("stages", name)) for name, written in study.stages.items()}
    return ArmContext(study, scale, place, plan, stages, task, {})


def tuning_seeds(context: ArmContext, lineups: Mapping[str, Lineup], arm: str) -> list[int]:
    """Seeds of the pilots on which an arm is a try, none of the study's, each with a base of its own. Raises UserError."""
    study, found = context.study, dict[int, None]()
    for name, lineup in lineups.items():
        contrast = study.tables[name].contrast
        bases = contrast.tune.bases if contrast and contrast.tune else []
        if not bases or not any(item.arm == arm for one in lineup.contenders for item in one.tries):
            continue
        place, first = context.place.key("tables", name, "contrast", "tune", "bases"), context.arms[arm].path[0]
        if own := sorted(set(bases) & set(context.seeds())):
            raise place.error(f"the study judges by seed {own[0]}, too; choose others", bases)
        if first not in (study.seeds.vary if study.seeds else []):
            raise place.error(f"{first} is made once, so that the pilot has the study's base; name it in seeds.vary", bases)
        found |= dict.fromkeys(bases)
    return list(found)


def with_changes(context: ArmContext, changes: Mapping[str, Any]) -> ArmContext:
    """The context of an arm that sets these keys: the study's, with nothing of the arm that `context` may be of."""
    base = context.unchanged or context
    before: Tree = {**base.study.stages, TASK: base.task}
    stages = base.place.key("stages")
    after = apply_changes(before, changes, stages)
    changed = {name: parse_stage(after[name], stages.key(name)) for name in base.stages if after[name] is not before[name]}
    return replace(base, stages={**base.stages, **changed}, task=after[TASK], unchanged=base)


def check_known(name: Any, table: Collection[str], place: KeyPlace, what: str) -> None:
    """Raises UserError where the table has no such name."""
    if not isinstance(name, str) or name not in table:
        raise place.error(f"no such {what}{nearest_name(str(name), table)}", name)


def known_entry(table: Mapping[Any, V], name: Any, place: KeyPlace, what: str) -> V:
    """The entry of that name, which `place` holds. Raises UserError where there is none."""
    check_known(name, table, place, what)
    return table[name]


def parse_task(given: Mapping[str, Any], outer: KeyPlace, folder: Path) -> Task:
    """The typed task under the key `task` of `outer`. `folder` has the files of the user's own families."""
    place = outer.key(TASK)
    task = parse_model(TaskKey, {TASK: files.fill_extensions(given, folder, place)}, outer).task
    extensions.check_extensions(task, place)
    if not isinstance(task, OwnTask) and (check := task_family(task).check):
        try:
            check(task)
        except UserError as error:
            raise place.error(str(error)) from None
    return task


def value_at(tree: Any, keys: list[str]) -> Any:
    """The value that `keys` lead to in models and mappings; None where they lead nowhere."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else getattr(tree, key, None) if isinstance(tree, Model) else None
    return tree


def fields_of(model: Model) -> dict[str, Any]:
    """The fields of a model, those within unconverted."""
    return {name: getattr(model, name) for name in type(model).model_fields}


# What a plan knows of the models that its stages read.


def first_stage(model: Stage, stages: Mapping[str, Stage]) -> Stage | None:
    """The first stage of a model's path; None where that was made elsewhere."""
    first: Stage | None = model
    while first is not None and "init" in first.deps:
        first = stages.get(artifact.ref_digest(first.deps["init"]))
    return first


def source_config(source: Stage) -> Mapping[str, Any]:
    """The config.json of a source; {} where it is not known here."""
    file = Path(source.run.path or "") / "config.json"
    here = isinstance(source.spec, SourceSpec) and bool(source.run.path) and file.is_file()
    return source.run.config or (artifact.read_json(file) if here else {})


def tokenizer_of(model: str, stages: Mapping[str, Stage]) -> str:
    """The digest of the tokenizer that a model of the study was built with; empty where it was made elsewhere."""
    found = stages.get(artifact.ref_digest(model))
    first = found and first_stage(found, stages)
    return first.deps.get("tokenizer", "") if first else ""


def kept_candidates(init: str, stages: Mapping[str, Stage]) -> list[tuple[int | str | None, str]]:
    """(step or "end", reference) of the models that a stage chooses from; none where the stage before keeps no checkpoint."""
    stage = stages.get(init)
    if stage is None or not stage.kept_steps():
        return []
    return [("end" if model == init else step, model) for step, model in stage.kept_models()]
