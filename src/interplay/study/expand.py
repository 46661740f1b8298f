"""From a typed study to its plan: arms x seeds walk their paths, and every distinct stage is made once."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from interplay.core.artifact import split_ref
from interplay.core.execution import Run
from interplay.core.model import UserError, nearest_name, parse_model, shorten_value
from interplay.core.references import corpus_inputs, corpus_roles, is_data_role, shard_label
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.extensions import check_extensions
from interplay.kinds.table import KINDS, is_trainer, is_tuner
from interplay.report.comparison_spec import Lineup
from interplay.report.spec import ReportArm, ReportStage
from interplay.rl.spec import RLSpec
from interplay.study import (
    answerable,
    arms,
    check,
    compose,
    custom,
    data,
    feasible,
    ladder,
    lineup,
    offline,
    resolve,
    teach,
    tune,
)
from interplay.study.arms import Combination, Tree
from interplay.study.ladder import BLOCK
from interplay.study.plan import Plan, Stage
from interplay.study.resolve import resolved, whole
from interplay.study.spec import Scale, Study
from interplay.study.stages import of_spec


class Expansion:
    """One study at one scale on its way to a plan. `where` names the study file in errors."""

    def __init__(self, name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> None:
        self.study, self.scale, self.folder = study, scale, (configs / "study" / name).parent
        self.where = f"{configs.name}/study/{name}.yaml"
        self.plan = Plan(name, scale_name)
        self.combinations: dict[str, Combination] = {}
        """Every arm of the plan by name."""
        self.task: dict[str, Any] = {}
        """The task of the arm at hand: the scale's, the study's above it, the arm's above that."""
        self.entries: Tree = {}
        """The stages of the arm at hand, with what it sets in place."""
        self.tokenizer = ""
        """Digest of what holds the tokenizer of the arm at hand."""
        self.tokenizers: dict[str, str] = {}
        """A task, as text -> digest of the tokenizer of fresh models."""
        self.making: list[str] = []
        """Problem sets that are being planned, outermost first."""
        self.ending: list[str] = []
        """Arms whose end some problem set waits for."""
        self.trained: dict[str, set[int]] = {}
        """Digest of a model -> the ops in the data of every stage that led to it."""
        self.sets: dict[str, list[str]] = {}
        """Digest of a model -> the problem sets in the data of every stage that led to it."""
        self.blocks: dict[str, list[str]] = {}
        """Digest of an evaluation -> digests of the stages with its further samples."""
        self.used: set[str] = {step for arm in study.arms.values() for step in map(_stage_of, arm.path)}
        """Stages of the study that some arm reaches."""
        self.made: dict[str, str] = {}
        """What a stage was asked for, as text -> its digest: arms ask for the same stages over and over."""

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, kind: str, given: dict[str, Any], deps: dict[str, str], key: str, label: str = "") -> str:
        """Schema < scale (by kind) < study < arm; then validate, and add to the plan. `key` is its place in the study file,
        `label` what people see of it."""
        asked = repr((kind, given, deps))
        if asked not in self.made:
            self.made[asked] = self._new_stage(kind, given, deps, key, label)
        return self.made[asked]

    def _new_stage(self, kind: str, given: dict[str, Any], deps: dict[str, str], key: str, label: str) -> str:
        defaults = self.scale.kinds.get(kind, {})
        spec = {**defaults, **given}
        run = {**defaults.get("run", {}), **spec.pop("run", {})}
        where = f"{self.where}: {key}"
        spec = custom.fill_custom(spec, self.folder, where)
        if run.get("path") is not None:
            custom.below_root(run["path"], f"{where}.run.path")
        if kind == "source" and "path" in spec:
            run["path"] = custom.below_root(spec.pop("path"), f"{where}.path")
            spec["sha256"] = custom.text_checksum(run["path"], where)
        if kind == "dataset" and "file" in spec:
            run["path"] = custom.below_root(spec.pop("file"), f"{where}.file")
            spec["sha256"] = custom.file_checksum(run["path"], spec.get("sha256"), where)
        parsed = parse_model(KINDS[kind].spec, spec, where)
        check_extensions(parsed, where)
        feasible.check_episodes(parsed, deps, self.plan.stages, where)
        how = parse_model(Run, run, f"{where}.run")
        feasible.check_devices(kind, parsed, how, where)
        made = Stage.make(kind, parsed, deps, how, label or key)
        feasible.check_engines(made, self.plan.stages, where)
        return self.plan.add(made)

    def problems(self, name: str, key: str) -> str:
        """The problem set of that name, for which `key` of the study asks."""
        return data.stage_of(self, name, key)

    def shards(self, shares: dict[str, float], label: str) -> list[tuple[list[float], dict[str, str]]]:
        """`mix` for what a trainer reads: of sets in shards one mix for each shard, else one. Raises UserError where the sets
        have not equally many."""
        self._check_mix(shares, label, "data")
        found = {name: data.shards_of(self, name, f"{label}.data") for name in shares}
        counts = {name: len(digests) for name, digests in found.items()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise UserError(
                f"{self.where}: {label}.data = {shorten_value(list(shares))}: sets of one mix must come in equally many shards; "
                f"these have {said}; give the others data.NAME.shards too"
            )
        return [
            _by_digest([(found[name][shard], share) for name, share in shares.items()])
            for shard in range(next(iter(counts.values())))
        ]

    def mix(self, shares: dict[str, float], label: str, key: str = "data") -> tuple[list[float], dict[str, str]]:
        """Shares and roles of a mix of problem sets, ordered by digest so that names do not enter the identity."""
        self._check_mix(shares, label, key)
        return _by_digest([(self.problems(name, f"{label}.{key}"), share) for name, share in shares.items()])

    def _check_mix(self, shares: Any, label: str, key: str) -> None:
        if not isinstance(shares, dict):
            raise UserError(
                f"{self.where}: {label}.{key} = {shorten_value(shares)}: must map problem sets to shares, such as {{edge: 1.0}}"
            )
        check.mix(shares, f"{self.where}: {label}.{key}")

    # -- paths -------------------------------------------------------------------------------------------------------

    def model_stage(self, name: str, entry: dict[str, Any], before: str | None, tokenizer: str, seed: int, arm: str) -> str:
        """One stage of a path. `before` is the digest of the model that it starts from."""
        kind, key = entry["kind"], f"stages.{name}"
        check.entry(entry, f"{self.where}: {key}")
        given = of_spec(entry)
        if kind == "source":
            return self.stage(kind, given, {}, key)
        tune.leads_on(self, before, key)
        if is_tuner(kind):
            return self._tuned(name, given, entry, str(before), seed, arm)
        if "data" not in entry:
            raise UserError(f"{self.where}: {key}.data: missing; name the problem sets and their shares")
        mixes = self.shards(entry["data"], key) if is_trainer(kind) else [self.mix(entry["data"], key)]
        data.refuse_tests(self, entry["data"], f"{key}.data")
        mixes = [
            (shares, {role: data.decontaminated(self, digest, key) for role, digest in roles.items()}) for shares, roles in mixes
        ]
        sets = [digest for _, roles in mixes for digest in roles.values()]
        deps = {"init": before} if before else {}
        given["seed"] = self._seed(given, seed, key)
        if is_trainer(kind):
            deps |= self.corpora(entry.get("corpus", {}), mixes, tokenizer, f"{key}.corpus")
            if not before:
                deps["tokenizer"] = tokenizer
            if "validation" in entry:
                deps["validation"] = self.problems(entry["validation"], f"{key}.validation")
        else:
            given["mix"], roles = mixes[0]
            deps |= roles
            if kind == "teach":
                planned, more = teach.roles(self, entry, str(before), key)
                given, deps = {**given, **planned}, {**deps, **more}
                sets = list(more.values())  # the hard problems ask, and nothing is trained on them
            if "offline" in entry:
                deps |= offline.roles(self, entry["offline"], roles, str(before), key)
        digest = self.stage(kind, given, deps, key, f"{arm}/{name}/seed{seed}")
        spec = self.plan.stages[digest].spec
        if is_trainer(kind):
            check.whole_rows(spec, self.plan.stages[corpus_inputs(deps)[0]].spec, f"{self.where}: {key}")
        if "offline" in entry and isinstance(spec, RLSpec):
            offline.check(spec.method.sampler, entry["offline"], f"{self.where}: {key}")
        self._remember(digest, before, sets)
        return digest

    def _tuned(self, name: str, given: dict[str, Any], entry: dict[str, Any], before: str, seed: int, arm: str) -> str:
        """A stage of a path that is tuning on few data."""
        key = f"stages.{name}"
        mixes, roles = tune.roles(self, entry, before, key)
        spec = {**given, **mixes, "seed": self._seed(given, seed, key)}
        digest = self.stage(entry["kind"], spec, {"init": before, **roles}, key, f"{arm}/{name}/seed{seed}")
        self._remember(digest, before, [dep for role, dep in roles.items() if is_data_role(role)])
        return digest

    def _seed(self, given: dict[str, Any], seed: int, key: str) -> int:
        return seed + check.seed(given.get("seed", 0), f"{self.where}: {key}.seed")

    def _remember(self, digest: str, before: str | None, sets: list[str]) -> None:
        """What the model of a stage was trained on, with all that led to it."""
        earlier = split_ref(before or "")[0]
        self.trained[digest] = self.trained.get(earlier, set()) | data.ops_of(self, sets)
        self.sets[digest] = list(dict.fromkeys([*self.sets.get(earlier, []), *sets]))

    def corpora(
        self, given: dict[str, Any], mixes: list[tuple[list[float], dict[str, str]]], tokenizer: str, key: str
    ) -> dict[str, str]:
        """A trainer's corpora by role: one of each mix."""
        found = {}
        for shard, (role, (shares, roles)) in enumerate(zip(corpus_roles(len(mixes)), mixes, strict=True)):
            label = shard_label(key, shard) if len(mixes) > 1 else key
            found[role] = self.stage("corpus", {**given, "mix": shares}, {**roles, "tokenizer": tokenizer}, key, label)
        return found

    def selected(self, name: str, before: str, stages: Tree, label: str) -> str:
        """The select stage of a path: the best model of the stage `before` it."""
        evaluate = partial(self.evaluation, stages)
        where = f"{self.where}: stages.{name}"
        given, deps = ladder.selection(stages[name], before, self.plan.stages, label, evaluate, where)
        digest = self.stage("select", {**of_spec(stages[name]), **given}, deps, f"stages.{name}", label)
        self.trained[digest], self.sets[digest] = self.trained[before], self.sets[before]
        return digest

    def evaluation(self, stages: Tree, name: str, model: str, label: str, problems: str | None = None) -> list[str]:
        """The stages that evaluate a model, one for each block of samples; on the problem set that the study names, or on
        `problems` (a digest)."""
        key, given = f"stages.{name}", self.pick(stages, name, "evaluate", "stage")
        self.used.add(name)
        check.entry(given, f"{self.where}: {key}")
        entry = of_spec(given)
        deps = {"model": model, "data": problems or self.problems(given.get("data", ""), f"{key}.data")}
        asked = {"num_samples": BLOCK, "first_sample": 0, **self.scale.kinds.get("evaluate", {}), **entry}
        parts = ladder.blocks(asked["num_samples"], asked["first_sample"])
        made = [self.stage("evaluate", {**entry, **part}, deps, key, label) for part in parts]
        if len(made) > 1:
            self.blocks[made[0]] = made[1:]
        return made

    def samples(self, digest: str) -> int:
        """Samples per prompt of an evaluation, all blocks together."""
        specs = [self.plan.stages[block].spec for block in (digest, *self.blocks.get(digest, []))]
        return sum(spec.num_samples for spec in specs if isinstance(spec, EvaluateSpec))

    def evaluate_spec(self, digest: str) -> EvaluateSpec:
        """What an evaluation is asked to do."""
        spec = self.plan.stages[digest].spec
        assert isinstance(spec, EvaluateSpec)
        return spec

    def models(self, name: str, seed: int, first: int, vary: list[str]) -> tuple[list[ReportStage], str]:
        """The models of one arm at one seed, in order, and the reference to the last."""
        arm = self.combinations[name]
        path: list[ReportStage] = []
        before: str | None = None
        self.tokenizer = ""
        for part in arm.path:
            step, at = ladder.split_name(part)
            entry = self.entries[step]
            if before is None and entry["kind"] == "pretrain":
                self.tokenizer = self.fresh_tokenizer()
            if entry["kind"] == "select":
                digest = self.selected(step, str(before), self.entries, f"{name}/{step}/seed{seed}")
            else:
                digest = self.model_stage(step, entry, before, self.tokenizer, seed if step in vary else first, name)
            self.tokenizer = self.tokenizer or digest
            path.append(ReportStage(name=step, kind=entry["kind"], digest=digest, step=at))
            reference = ladder.reference(self.plan.stages[digest], at, f"{self.where}: arms.{arm.group}.path = {part!r}")
            # A reward model only judges: what follows starts from the model that it was made of.
            before = before if KINDS[entry["kind"]].ends_path else reference
        return path, str(before)

    def fresh_tokenizer(self) -> str:
        """The tokenizer of fresh models of the arm at hand: its task decides, since all else is the study's."""
        task = repr(self.task)
        if task not in self.tokenizers:
            made = self.stage("tokenizer", data.tokenizer_spec(self), data.tokenizer_roles(self), "tokenizer")
            self.tokenizers[task] = made
        return self.tokenizers[task]

    def enter(self, name: str) -> None:
        """Make this arm the one at hand."""
        self.entries = arms.replaced(whole(self.study, self.scale), self.combinations[name].set, f"{self.where}: stages")
        self.task = self.entries["task"]

    def end_of(self, name: Any, key: str) -> str:
        """Reference to the model that an arm ends with at the first seed, for a problem set that is made with its samples. Raises
        UserError when that arm itself is trained on the set."""
        self.pick(self.combinations, name, key, "arm")
        if name in self.ending:
            raise UserError(f"{self.where}: {key} = {name!r}: that arm is itself trained on this set; name one that is not")
        at_hand, making = (self.entries, self.task, self.tokenizer), self.making
        self.ending.append(name)
        self.making = []
        try:
            self.enter(name)
            first, vary = self.seeds()[0][0], self.seeds()[1]
            return self.models(name, first, first, vary)[1]
        finally:
            self.ending.pop()
            (self.entries, self.task, self.tokenizer), self.making = at_hand, making

    def seeds(self) -> tuple[list[int], list[str]]:
        """The study's seeds, and the stages that are repeated at each."""
        seeds = self.study.seeds
        return (seeds.values if seeds and seeds.values else self.scale.seeds), (seeds.vary if seeds else [])

    def walk(self, name: str, seed: int, first: int, vary: list[str]) -> ReportArm:
        """One arm at one seed: its models in order, then its evaluations. Where all of them run along its last stage,
        those of its end are what the arm is judged by."""
        arm, stages = self.combinations[name], self.entries
        path, before = self.models(name, seed, first, vary)
        evaluations, ends, rungs = {}, {}, []
        evaluate = partial(self.evaluation, stages)
        for step in self.study.evaluate:
            label, along = f"{name}/{step}/seed{seed}", stages[step].get("along")
            if along is not None:
                self.pick(stages, along, f"stages.{step}.along", "stage")
                found = ladder.rungs(step, along, path, self.plan.stages, label, evaluate, f"{self.where}: stages.{step}.along")
                rungs += found
                if found and (path[-1].name, path[-1].step) == (along, None):
                    ends[step] = found[-1].digest
            else:
                evaluations[step] = evaluate(step, before, label)[0]
        return ReportArm(arm=name, seed=seed, control=arm.control, path=path, evaluations=evaluations or ends, rungs=rungs)

    def run(self) -> Plan:
        """The whole plan, the report last."""
        check.names(self.study, self.scale, self.where)
        values, vary = self.seeds()
        self.combinations = resolve.split_combinations(self.study, self.scale, self.where)
        rows: list[ReportArm] = []
        planned: dict[str, lineup.Resolved] = {}
        held: dict[str, dict[str, list[str]]] = {}
        for name in self.combinations:
            self.enter(name)
            task = data.parse_task(self.task, self.where) if self.task else None
            rows += [self.walk(name, seed, values[0], vary) for seed in values]
            held[name] = {step: check.bands_of(self.study, self.entries[step]["data"]) for step in self.study.evaluate}
            planned[name] = lineup.resolved(self.plan, rows[-1], self.entries, task, self.blocks)
        check.combinations(self.study, self.combinations, self.where)  # after the stages: a bad axis is not a missing arm
        check.different(rows, self.combinations, self.where)
        lineup.check_contrasts(self.combinations, planned, self.where)
        answerable.check_budgets(self.study.match, rows, self.plan, self.where)
        made = lineup.lineups(self.study, self.scale.bands, self.combinations, rows, planned, self.where)
        answerable.check_samples(self.study, self.scale.bands, held, rows, made, self.samples, self.evaluate_spec, self.where)
        answerable.check_showable(self.study, rows, self.plan.stages, self.where)
        self.plan.unused = self._unused()
        self._report(rows, made)
        return self.plan

    def _unused(self) -> list[str]:
        """The stages that no arm reaches: they run nowhere, and are judged as they stand."""
        found = [name for name in self.study.stages if name not in self.used]
        for name in found:
            check.unused(self.study, self.scale, name, self.where)
            resolved(self.scale, whole(self.study, self.scale), name, self.where)
        return found

    def _report(self, rows: list[ReportArm], lineups: dict[str, Lineup]) -> None:
        shown = {digest for row in rows for digest in [*(s.digest for s in row.path), *row.evaluations.values()]}
        shown |= {rung.digest for row in rows for rung in row.rungs}
        blocks = {digest: more for digest, more in self.blocks.items() if digest in shown}
        shown |= {digest for more in blocks.values() for digest in more}
        packed = {digest for reader in shown for digest in corpus_inputs(self.plan.stages[reader].deps)}
        used = shown | {
            dep for digest in shown | packed for role, dep in self.plan.stages[digest].deps.items() if is_data_role(role)
        }
        used |= data.made_of(self, used)
        trained = {row.arm: sorted(self.trained.get(row.path[-1].digest, set())) for row in rows}
        spec = {
            "study": self.plan.study,
            "scale": self.plan.scale,
            "question": self.study.question,
            "source": self.study.source,
            "arms": rows,
            "bands": {band: self.scale.bands.get(band, []) for band in check.tested_bands(self.study)},
            "trained_ops": trained,
            "tables": answerable.with_k(self.study.tables, rows, self.samples),
            "figures": self.study.figures,
            "claims": self.study.claims,
            "match": self.study.match,
            "blocks": blocks,
            "lineups": lineups,
            "trained_sets": data.trained_sets(self, rows, used),
        }
        self.plan.report = self._new_stage("report", spec, {digest: digest for digest in sorted(used)}, "report", "")

    def pick(self, table: Mapping[Any, Any], name: Any, key: str, what: str) -> Any:
        """The entry of that name, for which `key` of the study asks. Raises UserError when there is none."""
        if not isinstance(name, str) or name not in table:
            raise UserError(f"{self.where}: {key} = {shorten_value(name)}: no such {what}{nearest_name(name, table)}")
        return table[name]


def _stage_of(part: str) -> str:
    return ladder.split_name(part)[0]


def _by_digest(pairs: list[tuple[str, float]]) -> tuple[list[float], dict[str, str]]:
    pairs = sorted(pairs)
    return [share for _, share in pairs], {f"data.{i}": digest for i, (digest, _) in enumerate(pairs)}


def expand(name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> Plan:
    """The plan of a study at a scale. Raises UserError before anything is written."""
    return Expansion(name, scale_name, study, scale, configs).run()


def plan_study(configs: Path, study: str, scale: str) -> Plan:
    """Compose, validate and expand one study. Raises UserError with file and line of the key that is wrong."""
    try:
        return expand(study, scale, *compose.load(configs, study, scale), configs)
    except UserError as error:
        from interplay.study.locate import located  # reads every YAML file again, with lines: only when one is wrong

        raise located(error, configs, study, scale) from None
