"""From a typed study to its plan: arms x seeds walk their paths, and every distinct stage is made once."""

import itertools
import json
from pathlib import Path
from typing import Any

from interplay.schema.base import UserError, nearest, parse
from interplay.schema.data import ProblemsSpec
from interplay.schema.kinds import KINDS
from interplay.schema.report import ReportArm, ReportStage
from interplay.schema.run import Run
from interplay.schema.study import Arm, DataSet, Scale, Study
from interplay.study import check, custom
from interplay.study.plan import Plan, Stage

TRAINERS = ("pretrain", "midtrain", "sft")
OWN_KEYS = {"kind", "data", "validation", "corpus"}
"""Keys of a study's stage that are not keys of its kind's spec or its run block."""


class Expansion:
    """One study at one scale on its way to a plan. `where` names the study file in errors."""

    def __init__(self, name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> None:
        self.study, self.scale, self.folder = study, scale, (configs / "study" / name).parent
        self.where = f"{configs.name}/study/{name}.yaml"
        self.plan = Plan(name, scale_name)
        self.task: dict[str, Any] = {}
        """The task of the arm at hand: the scale's, the study's above it, the arm's above that."""
        self.trained: dict[str, set[int]] = {}
        """Digest of a model -> the ops in the data of every stage that led to it."""

    # -- stages ------------------------------------------------------------------------------------------------------

    def stage(self, kind: str, given: dict[str, Any], deps: dict[str, str], key: str, label: str = "") -> str:
        """Schema < scale (by kind) < study < arm; then validate, and add to the plan. `key` is its place in the study file,
        `label` what people see of it."""
        defaults = self.scale.kinds.get(kind, {})
        spec = {**defaults, **given}
        run = {**defaults.get("run", {}), **spec.pop("run", {})}
        where = f"{self.where}: {key}"
        spec = custom.fill(spec, self.folder, where)
        if kind == "source" and "path" in spec:
            run["path"] = spec.pop("path")
            spec["sha256"] = custom.checksum(run["path"], where)
        made = Stage.make(kind, parse(KINDS[kind].spec, spec, where), deps, parse(Run, run, f"{where}: run"), label or key)
        return self.plan.add(made)

    def problems(self, name: str) -> str:
        """The problem set of that name."""
        data = self._pick(self.study.data, name, "data")
        spec: dict[str, Any] = {
            "task": self.task,
            "bands": {band: self._op_shares(data, band) for band in data.names()},
            "shares": {band: 1 / len(data.names()) for band in data.names()},
            "size": data.size or self.scale.sizes[data.split] * len(data.names()),
            "split": data.split,
        }
        if data.transform:
            spec["transform"] = {"name": "custom", **data.transform}
        return self.stage("problems", spec, {}, f"data.{name}")

    def _op_shares(self, data: DataSet, band: str) -> dict[int, float]:
        ops = self._pick(self.scale.bands, band, "band")
        return data.op_shares or {op: 1 / len(ops) for op in ops}

    def mix(self, shares: dict[str, float], label: str) -> tuple[list[float], dict[str, str]]:
        """Shares and roles of a mix of problem sets, ordered by digest so that names do not enter the identity."""
        if not isinstance(shares, dict):
            raise UserError(f"{self.where}: {label}.data = {shares!r}: must map problem sets to shares, such as {{edge: 1.0}}")
        check.mix(shares, f"{self.where}: {label}.data")
        by_digest = sorted((self.problems(name), share) for name, share in shares.items())
        return [share for _, share in by_digest], {f"data.{i}": digest for i, (digest, _) in enumerate(by_digest)}

    def ops_of(self, digests: list[str]) -> set[int]:
        """The ops that occur in these problem sets."""
        specs = [self.plan.stages[digest].spec for digest in digests]
        return {op for spec in specs if isinstance(spec, ProblemsSpec) for ops in spec.bands.values() for op in ops}

    # -- paths -------------------------------------------------------------------------------------------------------

    def model_stage(self, name: str, entry: dict[str, Any], before: str | None, tokenizer: str, seed: int, arm: str) -> str:
        """One stage of a path. `before` is the digest of the model that it starts from."""
        kind, key = entry["kind"], f"stages.{name}"
        given = {key: value for key, value in entry.items() if key not in OWN_KEYS}
        if kind == "source":
            return self.stage(kind, given, {}, key)
        if "data" not in entry:
            raise UserError(f"{self.where}: {key}.data: missing; name the problem sets and their shares")
        shares, roles = self.mix(entry["data"], key)
        deps = {"init": before} if before else {}
        given["seed"] = seed
        if kind in TRAINERS:
            corpus = {**entry.get("corpus", {}), "mix": shares}
            deps["corpus"] = self.stage("corpus", corpus, {**roles, "tokenizer": tokenizer}, f"{key}.corpus")
            if not before:
                deps["tokenizer"] = tokenizer
            if "validation" in entry:
                deps["validation"] = self.problems(entry["validation"])
        else:
            given["mix"] = shares
            deps |= roles
        digest = self.stage(kind, given, deps, key, f"{arm}/{name}/seed{seed}")
        self.trained[digest] = self.trained.get(before or "", set()) | self.ops_of(list(roles.values()))
        return digest

    def walk(self, name: str, arm: Arm, stages: dict[str, dict[str, Any]], seed: int, first: int, vary: list[str]) -> ReportArm:
        """One arm at one seed: its models in order, then its evaluations."""
        path: list[ReportStage] = []
        before: str | None = None
        tokenizer = ""
        for step in arm.path:
            entry = stages[step]
            if before is None and entry["kind"] == "pretrain":
                tokenizer = self.stage("tokenizer", {"task": self.task}, {}, "tokenizer")
            before = self.model_stage(step, entry, before, tokenizer, seed if step in vary else first, name)
            tokenizer = tokenizer or before
            path.append(ReportStage(name=step, kind=entry["kind"], digest=before))
        evaluations = {}
        for step in self.study.evaluate:
            entry = {key: value for key, value in stages[step].items() if key not in OWN_KEYS}
            deps = {"model": str(before), "data": self.problems(stages[step]["data"])}
            evaluations[step] = self.stage("evaluate", entry, deps, f"stages.{step}", f"{name}/{step}/seed{seed}")
        return ReportArm(arm=name, seed=seed, control=arm.control, path=path, evaluations=evaluations)

    def run(self) -> Plan:
        """The whole plan, the report last."""
        check.names(self.study, self.scale, self.where)
        seeds = self.study.seeds
        values = seeds.values if seeds else self.scale.seeds
        vary = seeds.vary if seeds else []
        arms = expand_grid(self.study.arms)
        rows: list[ReportArm] = []
        for name, arm in arms.items():
            whole = {**self.study.stages, "task": {**self.scale.task, **self.study.task}}
            stages = replaced(whole, arm.set, f"{self.where}: arms.{name}.set")
            self.task = stages.pop("task")
            for seed in values:
                rows.append(self.walk(name, arm, stages, seed, values[0], vary))
        self._report(rows)
        return self.plan

    def _report(self, rows: list[ReportArm]) -> None:
        shown = {digest for row in rows for digest in [*(s.digest for s in row.path), *row.evaluations.values()]}
        corpora = {
            self.plan.stages[digest].deps[role] for digest in shown for role in self.plan.stages[digest].deps if role == "corpus"
        }
        used = shown | {
            dep for digest in shown | corpora for role, dep in self.plan.stages[digest].deps.items() if role.startswith("data")
        }
        trained = {row.arm: sorted(self.trained.get(row.path[-1].digest, set())) for row in rows}
        spec = {
            "study": self.plan.study,
            "scale": self.plan.scale,
            "question": self.study.question,
            "source": self.study.source,
            "arms": rows,
            "bands": {band: self.scale.bands[band] for band in check.tested_bands(self.study)},
            "trained_ops": trained,
            "tables": self.study.tables,
            "figures": self.study.figures,
            "claims": self.study.claims,
        }
        self.plan.report = self.stage("report", spec, {digest: digest for digest in sorted(used)}, "report")

    def _pick(self, table: dict[str, Any], name: str, what: str) -> Any:
        if name not in table:
            raise UserError(f"{self.where}: {what} '{name}' is not declared{nearest(name, table)}")
        return table[name]


def expand(name: str, scale_name: str, study: Study, scale: Scale, configs: Path) -> Plan:
    """The plan of a study at a scale. Raises UserError before anything is written."""
    return Expansion(name, scale_name, study, scale, configs).run()


def expand_grid(arms: dict[str, Arm]) -> dict[str, Arm]:
    """Arms with a grid become one arm per combination, named `arm[key=value,...]` after the last part of each key."""
    found: dict[str, Arm] = {}
    for name, arm in arms.items():
        keys = list(arm.grid)
        for values in itertools.product(*arm.grid.values()):
            pairs = dict(zip(keys, values, strict=True))
            tag = ",".join(f"{key.rsplit('.', 1)[-1]}={_short(value)}" for key, value in pairs.items())
            found[f"{name}[{tag}]" if tag else name] = arm.model_copy(update={"set": {**arm.set, **pairs}, "grid": {}})
    return found


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def replaced(stages: dict[str, dict[str, Any]], changes: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The stages with `stage.key...: value` put in place; a value replaces what stood there, mixes included."""
    result = json.loads(json.dumps(stages))
    for dotted, value in changes.items():
        stage, *keys = dotted.split(".")
        if stage not in result or not keys:
            raise UserError(f"{where}: {dotted}: must be stage.key{nearest(stage, result)}")
        here = result[stage]
        for key in keys[:-1]:
            here = here.setdefault(key, {})
            if not isinstance(here, dict):
                raise UserError(f"{where}: {dotted}: '{key}' holds a value, not keys")
        here[keys[-1]] = value
    return result
