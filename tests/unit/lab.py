"""A project folder with configs and with results that are as finished as a test says, without running anything."""

import json
from pathlib import Path
from typing import Any

from conftest import copy_configs

from interplay.core import artifact
from interplay.kinds import sources
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

SCALE = "smoke"


class Lab:
    """`configs/` and `results/` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.configs, self.results = folder, folder / "configs", folder / "results"
        copy_configs(folder)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.configs / file
        assert old in path.read_text(), f"{file} does not contain {old!r}"
        path.write_text(path.read_text().replace(old, new))

    def plan(self, study: str = "quickstart") -> Plan:
        return plan_study(self.configs, study, SCALE)

    def lock(self, study: str = "quickstart") -> Plan:
        plan = self.plan(study)
        plan.write_lock(self.configs)
        return plan

    def out(self, stage: Stage) -> Path:
        return artifact.folder(self.results, stage.kind, stage.digest)

    def start(self, stage: Stage) -> Path:
        """Written down and started, not finished."""
        out = self.out(stage)
        artifact.write_json(out / "stage.json", stage.as_json())
        (out / "lease").touch()
        return out

    def finish(self, stage: Stage, seconds: float = 10.0, **telemetry: Any) -> Path:
        """With a payload of one file, a record and telemetry."""
        out = self.start(stage)
        (out / "payload.bin").write_bytes(stage.digest.encode())
        known = {"seconds_wall": seconds, "threads": stage.run.threads, "attempts": 1, "sources": sources.of_kind(stage.kind)}
        artifact.write_json(out / "telemetry.json", {**known, **telemetry})
        artifact.finish(out, stage.identity(), {})
        return out

    def finish_all(self, plan: Plan, but: tuple[str, ...] = ()) -> None:
        for stage in plan.stages.values():
            if stage.kind not in but:
                self.finish(stage)


def telemetry(out: Path, **values: Any) -> None:
    path = out / "telemetry.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def of_kind(plan: Plan, kind: str) -> list[Stage]:
    return [stage for stage in plan.stages.values() if stage.kind == kind]
