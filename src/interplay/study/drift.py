"""Finished stages that were made by sources which read otherwise now. An advisory: whether a result would differ is for a person
to say, by raising a `VERSION`."""

from collections.abc import Iterable
from pathlib import Path

from interplay.schema import sources
from interplay.schema.base import plural
from interplay.store import artifact, metrics


def drifted(results: Path, stages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """File of the package -> digests of the finished stages, given as (kind, digest), whose maker read it otherwise."""
    found: dict[str, list[str]] = {}
    for kind, digest in stages:
        made_by = metrics.read_telemetry(artifact.folder(results, kind, digest)).get("sources")
        for name in sources.differing(made_by, sources.of_kind(kind)) if made_by else []:
            found.setdefault(name, []).append(digest)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def advisory(found: dict[str, list[str]]) -> list[str]:
    """The paragraph and one line a file; empty when there is nothing to say. Nothing reruns because of it."""
    if not found:
        return []
    stages = {digest for digests in found.values() for digest in digests}
    return [
        f"advisory: {plural(len(stages), 'finished stage')} stood on sources that read otherwise now (comments and docstrings "
        f"apart), {plural(len(found), 'file')} in all. They are kept. If the same spec would give another result now, raise "
        "VERSION of the model in schema/ that it belongs to: that reruns its users.",
        *(f"  {name}: {plural(len(digests), 'stage')}" for name, digests in found.items()),
    ]
