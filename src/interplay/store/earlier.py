"""A longer RL run goes on from a finished shorter one that is otherwise the same, so that more steps repeat none.

It applies to RL at a constant rate without warm-up (RLSpec.continues), where a step does not depend on how many follow; then the
bytes are those of a run from the start. The LM trainer has no such case: its schedule decays over the whole budget, its position
jumps start at a share of it, and the lines of its metrics.jsonl are spread over it."""

import os
import shutil
from pathlib import Path
from typing import Any

from interplay.schema.base import UserError
from interplay.schema.digest import digest
from interplay.schema.rl import RLSpec
from interplay.store import artifact


def go_on(out: Path, stage: dict[str, Any]) -> str | None:
    """Where this RL stage has nothing saved, let its `resume/` be the state at the end of the longest finished run that it
    continues; returns that run's digest, or None."""
    if stage["kind"] != "rl" or (out / "resume").exists():
        return None
    spec = RLSpec.model_validate(stage["spec"])
    found = [(other, done) for other in sorted(out.parent.iterdir()) if other != out and (done := _finished(other, stage, spec))]
    if not found:
        return None
    shorter = max(found, key=lambda pair: (pair[1].steps, pair[0].name))[0]
    _copy(shorter, out, spec)
    return shorter.name


def _finished(other: Path, stage: dict[str, Any], spec: RLSpec) -> RLSpec | None:
    """The spec of a finished run that left its state and that `stage` continues; None for any other."""
    if not (artifact.done(other) and (other / "state" / "state" / "state.json").exists()):
        return None
    try:
        record = artifact.record(other)
        shorter = RLSpec.model_validate(record["spec"])
        if record["deps"] != stage["deps"] or not spec.continues(shorter):
            return None
        # A record made by another version of the code has another digest by now, and other bytes.
        artifact.check(other)
        return shorter if digest("rl", shorter, record["deps"]) == record["digest"] else None
    except (UserError, ValueError):
        return None


def _copy(shorter: Path, out: Path, spec: RLSpec) -> None:
    """Lines and checkpoints so far, then the state under its name, at once: a kill leaves nothing that looks like a save."""
    artifact.copy_atomic(shorter / "metrics.jsonl", out / "metrics.jsonl")
    for step in artifact.kept_steps(shorter):
        if step in spec.checkpoints:
            shutil.copytree(artifact.at_step(shorter, step), out / "checkpoints" / str(step), dirs_exist_ok=True)
    part = out / "resume.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(shorter / "state", part)
    os.replace(part, out / "resume")
