"""The stages that a report depends on, down to the data, with the telemetry of each. Read by the page
alone; tables, figures and claims are computed from `frame` and are determined by the digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.metrics import read_telemetry
from interplay.report.spec import ReportSpec

ROLES = {"corpus": "corpus", "tokenizer": "tokenizer", "samples": "evaluate", "evaluation": "evaluate", "offline": "evaluate"}
ROLES |= dict.fromkeys(("validation", "data", "against"), "problems")
"""Kind of a stage that is known only by the role it plays for another; a problem set may also have been read or curated."""


class Provenance(NamedTuple):
    """Stages by digest, dependencies first."""

    stages: dict[str, dict[str, Any]]
    """kind, spec, deps, label, run; of a finished stage its record's identity and metrics too."""
    telemetry: dict[str, dict[str, Any]]
    """Digest -> `telemetry.json`, for stages that have one."""
    why: Mapping[str, str]
    """Digest -> why the stage is not there."""

    def done(self, digest: str) -> bool:
        """Whether the stage has a record."""
        return "metrics" in self.stages.get(digest, {})


def of_plan(stages: Mapping[str, Mapping[str, Any]], results: Path, why: Mapping[str, str]) -> Provenance:
    """Of a plan whose stages are given as JSON; the report itself is left out."""
    found = {digest: {**stage, **_record(results, stage["kind"], digest)} for digest, stage in stages.items()}
    found = {digest: stage for digest, stage in found.items() if stage["kind"] != "report"}
    return Provenance(found, _telemetry(found, results), why)


def of_inputs(spec: ReportSpec, inputs: Mapping[str, Path]) -> Provenance:
    """Of a report with the folders of its inputs: from their records to those of their dependencies, and on."""
    kinds = {stage.digest: stage.kind for arm in spec.arms for stage in arm.path}
    kinds |= {digest: "evaluate" for arm in spec.arms for digest in arm.evaluations.values()}
    results = next((path.parent.parent for digest, path in sorted(inputs.items()) if path.name == digest), Path("results"))
    found: dict[str, dict[str, Any]] = {}
    for digest in dict.fromkeys([*kinds, *inputs]):
        _walk(artifact.split_ref(digest)[0], kinds.get(digest, ""), results, found)
    return Provenance(found, _telemetry(found, results), {})


def _walk(digest: str, kind: str, results: Path, found: dict[str, dict[str, Any]]) -> None:
    """Put the dependencies of `digest`, then itself, into `found`."""
    if digest in found:
        return
    stage = _read(digest, kind, results)
    for role, ref in stage["deps"].items():
        _walk(artifact.split_ref(ref)[0], ROLES.get(role.split(".")[0], ""), results, found)
    found[digest] = stage


def _read(digest: str, kind: str, results: Path) -> dict[str, Any]:
    """The stage as JSON. Of one without files only the kind is known, by its role."""
    stage: dict[str, Any] = {"kind": kind, "digest": digest, "spec": {}, "deps": {}}
    for path in results.glob(f"*/{digest}/*.json"):
        if path.name in ("stage.json", "record.json"):
            stage |= artifact.read_json(path)
    return stage


def _record(results: Path, kind: str, digest: str) -> dict[str, Any]:
    out = artifact.folder(results, kind, digest)
    return artifact.record(out) if artifact.done(out) else {}


def _telemetry(stages: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, dict[str, Any]]:
    folders = {digest: artifact.folder(results, stage["kind"], digest) for digest, stage in stages.items()}
    return {digest: known for digest, folder in folders.items() if (known := read_telemetry(folder))}


# What the specs of problem sets say of their rows before these exist: bands, and ops where the set is generated.


Stages = Mapping[str, Mapping[str, Any]]


def planned_bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    """Band -> its ops, easiest first; a band whose ops are in no spec has none. Of a curated set: the bands of what it is made
    of, and those that its steps name. Its rows may have lost bands and changed ops, so both are what it may hold."""
    found = _planned_bands(digest, stages)
    return dict(sorted(found.items(), key=lambda item: item[1] or [0]))


def planned_ops(known: Mapping[str, list[int]]) -> list[int] | None:
    """Every op of such bands; None where some band's are not known."""
    return sorted({op for ops in known.values() for op in ops}) if all(known.values()) else None


def _planned_bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    stage = stages.get(digest, {"kind": "", "spec": {}, "deps": {}})
    spec = stage["spec"]
    if stage["kind"] == "curate":
        sources = [dep for role, dep in sorted(stage["deps"].items()) if role.startswith("data.")]
        named = [band for step in spec.get("steps", []) for band in _named(step)]
        return {band: [] for band in [*(band for source in sources for band in _planned_bands(source, stages)), *named]}
    if stage["kind"] == "dataset":
        return {spec["band"]: []} if "band" in spec else {}
    return {band: sorted(int(op) for op in ops) for band, ops in spec.get("bands", {}).items()}


def _named(step: Mapping[str, Any]) -> list[str]:
    """Bands that a step puts rows into."""
    given = step.get("bands")
    return [str(band) for band in given] if isinstance(given, (dict, list)) else []
