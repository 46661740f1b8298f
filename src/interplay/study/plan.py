"""The plan: every stage of a study at a scale, once each, in an order in which dependencies come first. Pure data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.digest import canonical, digest, versions
from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.kinds.table import KINDS


@dataclass(frozen=True)
class Stage:
    """One kind with a spec (what: hashed), a run block (how: never hashed) and its dependencies by role."""

    kind: str
    spec: Model
    deps: dict[str, str]
    """Role -> digest."""
    run: Run
    label: str
    """The first use of the stage: arm, stage, seed. Not part of the identity."""
    digest: str = ""

    @staticmethod
    def make(kind: str, spec: Model, deps: dict[str, str], run: Run, label: str) -> "Stage":
        """A stage with its digest."""
        return Stage(kind, spec, deps, run, label, digest(kind, spec, deps))

    def kept_steps(self) -> list[int]:
        """Steps whose model the stage keeps, in order; none of a stage that writes no model of its own."""
        return [] if KINDS[self.kind].ends_path else sorted(set(getattr(self.spec, "checkpoints", [])))

    def kept_models(self) -> list[tuple[int | None, str]]:
        """(step, reference) of the kept checkpoints and of the end, whose step is None where the stage counts in tokens."""
        end = getattr(self.spec, "steps", None)
        return [*((step, f"{self.digest}@{step}") for step in self.kept_steps() if step != end), (end, self.digest)]

    def identity(self) -> dict[str, Any]:
        """What the digest covers, as JSON: the part that the record repeats."""
        return {
            "kind": self.kind,
            "digest": self.digest,
            "versions": versions(self.spec),
            "spec": canonical(self.spec),
            "deps": self.deps,
        }

    def as_json(self) -> dict[str, Any]:
        """Identity, run block and label: what `stage.json` holds."""
        return {**self.identity(), "run": self.run.stated(), "label": self.label}

    def line(self) -> str:
        """The stage in a lock: kind, digest, dependencies, label. The digest covers spec and versions, which are left out."""
        deps = ",".join(ref if role == ref else f"{role}={ref}" for role, ref in sorted(self.deps.items()))
        return f"{self.kind} {self.digest} {deps or '-'} {self.label}"


def flat_name(study: str, scale: str) -> str:
    """`<study>.<scale>` as the name of one folder or experiment: a study in a folder has dots."""
    return f"{study.replace('/', '.')}.{scale}"


def lock_path(configs: Path, study: str, scale: str) -> Path:
    """`configs/plans/<study>.<scale>.lock.json`; a study in a folder keeps its folder."""
    return configs / "plans" / f"{study}.{scale}.lock.json"


@dataclass(frozen=True)
class Plan:
    """The stages of one study at one scale by digest, dependencies first; the last one is the report."""

    study: str
    scale: str
    stages: Mapping[str, Stage] = field(default_factory=dict)
    report: str = ""
    unused: Sequence[str] = field(default_factory=list)
    """Stages of the study that are on no path and that no other stage reads."""

    def lock(self) -> str:
        """What is committed of the plan: digest, kind, label and dependencies of each stage, one stage a line. Sorted by kind and
        label, so that a diff of two commits shows a changed stage in its place."""
        ordered = sorted(self.stages.values(), key=lambda stage: (stage.kind, stage.label, stage.digest))
        return self._text([stage.line() for stage in ordered])

    def full_text(self) -> str:
        """The plan with the spec and the run block of each stage, one stage a line, dependencies first."""
        return self._text([stage.as_json() for stage in self.stages.values()])

    def _text(self, stages: Sequence[Any]) -> str:
        lines = [json.dumps(stage, sort_keys=True, separators=(",", ":")) for stage in stages]
        head = f'{{"study": {json.dumps(self.study)}, "scale": {json.dumps(self.scale)}, "report": "{self.report}", "stages": [\n'
        return head + ",\n".join(lines) + "\n]}\n"

    def lock_path(self, configs: Path) -> Path:
        """Path of the plan's lock."""
        return lock_path(configs, self.study, self.scale)

    def locked(self, configs: Path) -> bool:
        """Whether the committed lock is this plan."""
        path = self.lock_path(configs)
        return path.exists() and path.read_bytes() == self.lock().encode()

    def write_lock(self, configs: Path) -> bool:
        """Write the lock when it differs; returns whether it did."""
        if self.locked(configs):
            return False
        artifact.write_atomic(self.lock_path(configs), self.lock().encode())
        return True


class Lock(NamedTuple):
    """What is committed of a plan."""

    study: str
    scale: str
    report: str
    stages: dict[str, dict[str, Any]]
    """By digest: digest, kind, label and dependencies by role."""


def parse_lock(lock: Mapping[str, Any]) -> Lock:
    """Of a lock, or of a whole plan, read as JSON. Raises KeyError, TypeError or ValueError when it is neither."""
    stages = [_of_line(stage) if isinstance(stage, str) else stage for stage in lock["stages"]]
    return Lock(lock["study"], lock["scale"], lock["report"], {stage["digest"]: stage for stage in stages})


def _of_line(line: str) -> dict[str, Any]:
    kind, digest, refs, label = line.split(" ", 3)
    pairs = [ref.rpartition("=") for ref in refs.split(",") if ref != "-"]
    return {"digest": digest, "kind": kind, "label": label, "deps": {role or ref: ref for role, _, ref in pairs}}
