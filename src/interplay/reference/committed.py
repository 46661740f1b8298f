"""What is committed of a study at the scales that count: its plan, and the results of that plan or of an older one."""

import json
from pathlib import Path
from typing import Any

from interplay.schema.digest import canonical
from interplay.study import compose
from interplay.study.plan import flat_name, lock_path, parse_lock

SCALES = ("laptop", "gpu", "paper")
"""Scales whose results count, as they are shown. At smoke nothing is learnt."""
NOT_RUN = "not run at this commit"
KEYS = ("claims", "seeds", "stages", "environments", "exported")
"""What a result must say beside the digest of its report."""


def results(root: Path, study: str) -> dict[str, dict[str, Any]]:
    """Scale -> the committed summary, for scales at which it is of the committed lock's report."""
    found = {}
    for scale in SCALES:
        result, lock = _read(result_path(root, study, scale)), _read(_lock(root, study, scale))
        if result and lock and result["report"] == lock["report"]:
            found[scale] = result
    return found


def claims(root: Path, study: str, scale: str) -> list[dict[str, Any]]:
    """The claims of a study, run or not."""
    return [canonical(claim) for claim in compose.load(root / "configs", study, scale)[0].claims]


def stale(root: Path) -> list[str]:
    """A line for every committed result that is not, or not wholly, of the committed plan: the study changed and was not run
    again, or the report changed and was not made again. It says what makes it new."""
    return [line for path in sorted((root / "docs" / "results").glob("*.json")) for line in _stale(root, path)]


def _stale(root: Path, path: Path) -> list[str]:
    result = _read(path)
    study, scale = result["study"], result["scale"]
    lock = _read(_lock(root, study, scale))
    if path != result_path(root, study, scale) or not lock:
        return [f"{path.relative_to(root)}: no study {study} is planned at scale {scale} under that name; remove it"]
    of_result = {digest for digests in result.get("stages", {}).values() for digest in digests.split()}
    of_lock = set(parse_lock(lock).stages)
    if result["report"] != lock["report"] or not of_result <= of_lock:
        wrong = f"is of report {result['report']}, and the plan now has {lock['report']}"
    elif absent := [key for key in KEYS if key not in result]:
        wrong = f"does not say {', '.join(absent)}"
    elif of_result != of_lock:
        wrong = f"names {len(of_result)} of {len(of_lock)} stages of the plan"
    elif not any(path.with_suffix("").glob("*.md")):
        wrong = f"has no tables in {path.with_suffix('').name}/"
    else:
        return []
    name = path.relative_to(root)
    run = f"snakemake all --config study={study} scale={scale}"
    return [f"{name}: {wrong}; run `{run}`, then `interplay export {study} --scale {scale} -o {name}` and `make docs`"]


def result_path(root: Path, study: str, scale: str) -> Path:
    """The committed summary; tables and figures are in the folder of its name without `.json`."""
    return root / "docs" / "results" / f"{flat_name(study, scale)}.json"


def _lock(root: Path, study: str, scale: str) -> Path:
    return lock_path(root / "configs", study, scale)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
