"""One stage again, in the foreground, in a scratch folder: its inputs are links into results/, which itself is only read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.core.artifact import split_ref
from interplay.core.digest import canonical, digest
from interplay.core.model import UserError, parse_model
from interplay.kinds.identity import leaf_differences
from interplay.kinds.table import KINDS, length_key
from interplay.report.write.plain import aligned, short


def prepare(stage: Mapping[str, Any], results: Path, scratch: Path) -> Path:
    """Write the stage's `stage.json` below `scratch` and link its inputs beside it; returns the folder that it will be made in.

    Raises UserError when an input is not finished, or when something was made in that folder before."""
    out = artifact.folder(scratch / "results", stage["kind"], stage["digest"])
    if out.exists():
        raise UserError(f"{out}: made there before; remove it, or give another folder with --into")
    for role, ref in stage["deps"].items():
        folder = next((path.parent for path in results.glob(f"*/{split_ref(ref)[0]}/record.json")), None)
        if folder is None:
            raise UserError(f"{ref}: not finished in {results}, and {stage['digest']} reads it as {role}; make it first")
        link = artifact.folder(scratch / "results", folder.parent.name, folder.name)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(folder.absolute(), target_is_directory=True)
    artifact.write_json(out / "stage.json", {**stage, "label": stage.get("label", ""), "run": stage.get("run", {})})
    return out


def shortened(stage: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The stage with so many steps: a stage of its own, since a schedule that spans the run spans fewer steps then.

    Raises UserError for kinds that have no steps, and for more steps than the stage has."""
    spec = dict(stage["spec"])
    key = length_key(stage["kind"])
    if key == "steps":
        whole, value = spec["steps"], steps
    elif key == "tokens":
        whole, value = -(-spec["tokens"] // spec["batch_tokens"]), steps * spec["batch_tokens"]
    else:
        raise UserError(f"--steps: a stage of kind {stage['kind']} has no steps; leave it out to make the whole stage")
    if not 1 <= steps <= whole:
        raise UserError(f"--steps = {steps}: must lie in 1..{whole}, the steps of the whole stage")
    kept = {"checkpoints": [step for step in spec["checkpoints"] if step <= steps]} if "checkpoints" in spec else {}
    model = parse_model(KINDS[stage["kind"]].spec, {**spec, key: value, **kept}, stage["digest"])
    made = digest(stage["kind"], model, stage["deps"])
    return {**stage, "spec": canonical(model), "digest": made, "label": f"{stage.get('label', '')}, {steps} of {whole} steps"}


def compared(made: Path, known: Path) -> list[str]:
    """What differs between the result in scratch and the record in results/, a line each; [] when all bytes agree."""
    one, other = artifact.record(known), artifact.record(made)
    names = dict.fromkeys([*one["files"], *other["files"]])
    rows = []
    for name in names:
        before, now = one["files"].get(name), other["files"].get(name)
        if before is None or now is None:
            rows.append([name, "only in the record" if now is None else "only in scratch"])
        elif before != now:
            rows.append([name, f"{before[0]} bytes in both" if before[0] == now[0] else f"{before[0]} -> {now[0]} bytes"])
    changed = leaf_differences(one["metrics"], other["metrics"])
    rows += [[f"metric {key}", f"{short(old)} -> {short(new)}"] for key, (old, new) in changed.items()]
    return aligned(rows)
