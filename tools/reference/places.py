"""The part of `docs/papers.md` that says where each paper of the field has its place, made of `docs/data/places.yaml`."""

from pathlib import Path

from tools.reference import lists
from tools.reference.lists import Place


def section(root: Path) -> str:
    """The part of docs/papers.md."""
    parts = ["## Where each paper has its place"]
    for heading, places in lists.places(root).items():
        lines = [f"| {place.paper} | {_where(place)} | {place.why} |" for place in places]
        parts.append("\n".join([f"### {heading}", "", "| paper | where | |", "| --- | --- | --- |", *lines]))
    return "\n\n".join(parts)


def _where(place: Place) -> str:
    named = [("method", place.methods), ("study", place.studies), ("kind", place.kinds)]
    return "; ".join(f"{what} {', '.join(f'`{name}`' for name in names)}" for what, names in named if names)
