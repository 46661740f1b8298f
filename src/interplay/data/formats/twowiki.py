"""2WikiMultihopQA (2020.coling-main.580): HotpotQA's fields, and `evidences [[subject, relation, object]]`."""

from typing import Any

from interplay.data.formats import hotpotqa
from interplay.data.formats.entry import Entry, ItemError, encodable, kind, name
from interplay.tasks import multihop


def parse(raw: dict[str, Any], where: str) -> Entry:
    """An item; hops are its evidences, whose triples are also the reasoning. Without evidences, as HotpotQA."""
    item = hotpotqa.read(raw, where)
    evidences = raw.get("evidences") or []
    if not isinstance(evidences, list):
        raise ItemError("broken", f"evidences is {kind(evidences)} and should be a list", name(raw))
    steps = tuple(_step(raw, evidence) for evidence in evidences)
    item = item._replace(steps=steps, hops=len(steps) or item.hops)
    return Entry(item.id, multihop.plain(item), item.hops)


def _step(raw: dict[str, Any], evidence: Any) -> str:
    match evidence:
        case [str() as subject, str() as relation, str() as thing]:
            return encodable(f"{subject}, {relation}: {thing}.", name(raw))
    raise ItemError("broken", "evidences should hold [subject, relation, object] triples", name(raw))
