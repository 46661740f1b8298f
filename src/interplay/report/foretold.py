"""What the specs of problem sets tell of their rows before these are there: bands, and ops where the set is generated."""

from collections.abc import Mapping
from typing import Any

Stages = Mapping[str, Mapping[str, Any]]


def bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    """Band -> its ops, easiest first; a band whose ops no spec tells has none. Of a curated set: the bands of what it is made
    of, and those that its steps name. Its rows may have lost bands and changed ops, so both are what it may hold."""
    found = _bands(digest, stages)
    return dict(sorted(found.items(), key=lambda item: item[1] or [0]))


def all_ops(known: Mapping[str, list[int]]) -> list[int] | None:
    """Every op of such bands; None where some band's are not told."""
    return sorted({op for ops in known.values() for op in ops}) if all(known.values()) else None


def _bands(digest: str, stages: Stages) -> dict[str, list[int]]:
    stage = stages.get(digest, {"kind": "", "spec": {}, "deps": {}})
    spec = stage["spec"]
    if stage["kind"] == "curate":
        sources = [dep for role, dep in sorted(stage["deps"].items()) if role.startswith("data.")]
        named = [band for step in spec.get("steps", []) for band in _named(step)]
        return {band: [] for band in [*(band for source in sources for band in _bands(source, stages)), *named]}
    if stage["kind"] == "dataset":
        return {spec["band"]: []} if "band" in spec else {}
    return {band: sorted(int(op) for op in ops) for band, ops in spec.get("bands", {}).items()}


def _named(step: Mapping[str, Any]) -> list[str]:
    """Bands that a step puts rows into."""
    given = step.get("bands")
    return [str(band) for band in given] if isinstance(given, (dict, list)) else []
