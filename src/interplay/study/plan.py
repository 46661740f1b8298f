"""The plan: every stage of a study at a scale, once each, in an order in which dependencies come first. Pure data."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interplay.schema.base import Model
from interplay.schema.digest import canonical, digest, versions
from interplay.schema.run import Run
from interplay.store import artifact


@dataclass(frozen=True)
class Stage:
    """One kind with a spec (what: hashed), a run block (how: never hashed) and its dependencies by role."""

    kind: str
    spec: Model
    deps: dict[str, str]
    """Role -> digest."""
    run: Run
    label: str
    """Where a person meets it first: arm, stage, seed. Not part of the identity."""
    digest: str = ""

    @staticmethod
    def make(kind: str, spec: Model, deps: dict[str, str], run: Run, label: str) -> "Stage":
        """A stage with its digest worked out."""
        return Stage(kind, spec, deps, run, label, digest(kind, spec, deps))

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
        """Identity, run block and label: what `stage.json` and a line of the lock hold."""
        return {**self.identity(), "run": self.run.stated(), "label": self.label}


def flat_name(study: str, scale: str) -> str:
    """`<study>.<scale>` as the name of one folder or experiment: a study in a folder has dots."""
    return f"{study.replace('/', '.')}.{scale}"


@dataclass
class Plan:
    """The stages of one study at one scale by digest, dependencies first; the last one is the report."""

    study: str
    scale: str
    stages: dict[str, Stage] = field(default_factory=dict)
    report: str = ""
    unused: list[str] = field(default_factory=list)
    """Stages of the study that are on no path and that nothing asks for."""

    def add(self, stage: Stage) -> str:
        """Take the stage in unless it is there; returns its digest."""
        self.stages.setdefault(stage.digest, stage)
        return stage.digest

    def lock(self) -> str:
        """The plan as JSON with one line a stage, so that a diff of two commits shows which stages changed."""
        lines = [json.dumps(stage.as_json(), sort_keys=True, separators=(",", ":")) for stage in self.stages.values()]
        head = f'{{"study": {json.dumps(self.study)}, "scale": {json.dumps(self.scale)}, "report": "{self.report}", "stages": [\n'
        return head + ",\n".join(lines) + "\n]}\n"

    def lock_path(self, configs: Path) -> Path:
        """`configs/plans/<study>.<scale>.lock.json`; a study in a folder keeps its folder."""
        return configs / "plans" / f"{self.study}.{self.scale}.lock.json"

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
