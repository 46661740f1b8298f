"""Why a stage is new: the nearest finished stage of its kind and the fields in which the two differ, followed through the
dependencies down to the edited field."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from interplay.core.artifact import ref_digest, split_ref
from interplay.core.model import join_names
from interplay.kinds.stages import flat_leaves, hashed_json
from interplay.results.state import Found, Library

ABSENT = "(none)"
VERSION = "version of "
OTHER_KIND, OTHER_ROLE = 50.0, 5.0
"""Number of fields for which a dependency of another kind counts, and one that only one of two stages has."""
DIGEST_OF_ARM = re.compile(r"arms\.\d+\.(path\.\d+\.digest$|evaluations\.)")
"""Leaves of a report's spec that repeat its dependencies."""
MOST_CANDIDATES = 500
"""Finished stages of a kind that are compared, the newest first, to bound the time."""
MOST_ROOTS = 3
"""Stages that changed a dependency, and fields of each, that a line names."""
LONGEST = 60
"""Characters of a value."""


class Change(NamedTuple):
    """A field of a stage with its old and new value. `roots` are the changes that led to another dependency."""

    field: str
    old: Any
    new: Any
    roots: tuple["Change", ...] = ()
    stage: str = ""
    """For a root: kind and label of the stage whose field it is."""

    def __str__(self) -> str:
        if not self.roots:
            return f"{self.field}: {show_change(self.old, self.new)}"
        return f"{self.field}: {show_change(self.old, self.new)} because {'; '.join(_root_texts(self.roots))}"

    def essence(self) -> tuple[Any, ...]:
        """Equal for stages that changed for the same reason: without digests, labels and seeds."""
        if self.roots:
            return (self.field, *dict.fromkeys(root.essence() for root in self.roots))
        valued = self.field != "seed" and not self.field.startswith("deps")
        return (self.field, show_change(self.old, self.new)) if valued else (self.field,)


class Cause(NamedTuple):
    """A new stage, the nearest finished one (None: there is none of its kind), and how they differ."""

    digest: str
    kind: str
    label: str
    nearest: str | None
    changes: tuple[Change, ...]
    nearest_label: str = ""
    """Label of the nearest one, where it is a different one."""


def _root_texts(roots: tuple[Change, ...]) -> Iterator[str]:
    """One text for each stage that changed a dependency: its one changed field with the values, or the names of several."""
    stages = list(dict.fromkeys(root.stage for root in roots))
    for stage in stages[:MOST_ROOTS]:
        own = [root for root in roots if root.stage == stage]
        names = [root.field for root in own[:MOST_ROOTS]] + ([f"{len(own) - MOST_ROOTS} more"] if len(own) > MOST_ROOTS else [])
        only = f"{own[0].field}: {show_change(own[0].old, own[0].new)}"
        fields = join_names(names) if len(own) > 1 else only
        yield f"{stage}: {fields}"
    if len(stages) > MOST_ROOTS:
        yield f"{len(stages) - MOST_ROOTS} more stages"


def kind_and_label(kind: str, label: str) -> str:
    """Kind and label, once where these are equal."""
    return kind if label in ("", kind) else f"{kind} {label}"


def show_change(old: Any, new: Any) -> str:
    """`40 -> 60`; in full where shortened values would be equal."""
    before, after = show_value(old), show_value(new)
    return f"{before} -> {after}" if before != after else f"{json.dumps(old)} -> {json.dumps(new)}"


def show_value(value: Any) -> str:
    """A value on part of a line; of a text of several lines, such as a function's source, its length and checksum."""
    if isinstance(value, str) and "\n" in value:
        return f"{len(value.splitlines())} lines ({hashlib.sha256(value.encode()).hexdigest()[:6]})"
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, float) and len(text) > 8:
        text = f"{value:.6g}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class Comparison:
    """Differences and distances between stages, each pair computed once. `stage_of`: reference -> stage as JSON, None where it is
    unknown."""

    def __init__(self, stage_of: Callable[[str], Mapping[str, Any] | None]) -> None:
        self.stage_of = stage_of
        self._leaves: dict[str, frozenset[tuple[str, str]]] = {}
        self._distances: dict[tuple[str, str], float] = {}

    def distance(self, old: str, new: str) -> float:
        """Number of leaves in which two stages of one kind differ, their dependencies' leaves included."""
        pair = (ref_digest(old), ref_digest(new))
        if pair not in self._distances:
            self._distances[pair] = self._distance(*pair)
        return self._distances[pair] + (old != new and pair[0] == pair[1])

    def _distance(self, old: str, new: str) -> float:
        there, here = self.stage_of(old), self.stage_of(new)
        if old == new:
            return 0.0
        if there is None or here is None or there["kind"] != here["kind"]:
            return OTHER_KIND
        own = len(self.leaves(old) ^ self.leaves(new)) / 2
        if here["kind"] == "report":
            return own + len(set(there["deps"]) ^ set(here["deps"])) / 2
        before, after = there["deps"], here["deps"]
        own += OTHER_ROLE * len(before.keys() ^ after.keys())
        return own + sum(self.distance(before[role], after[role]) for role in before.keys() & after.keys())

    def leaves(self, digest: str) -> frozenset[tuple[str, str]]:
        """(dotted path, value as JSON) of every leaf of a stage's spec and of its versions; none where the spec is not known."""
        if digest not in self._leaves:
            stage = self.stage_of(digest)
            walked = _walk(stage) if stage is not None and "spec" in stage else ()
            self._leaves[digest] = frozenset((path, json.dumps(value)) for path, value in walked)
        return self._leaves[digest]

    def changes(self, old: str, new: str) -> list[Change]:
        """The fields in which two stages differ: versions first, then the spec's, then dependencies with their roots."""
        there, here = self.stage_of(old), self.stage_of(new)
        if there is None or here is None:
            return []
        if "spec" not in there or "spec" not in here:
            return list(self._inputs(there["deps"], here["deps"]))
        own = list(_fields(dict(self.leaves(old)), dict(self.leaves(new))))
        return own + list(self._inputs(there["deps"], here["deps"]))

    def distinct_changes(self, old: str, new: str) -> list[Change]:
        """`changes`, with a root that several roles share named once."""
        seen: set[tuple[str, ...]] = set()
        kept = []
        for change in self.changes(old, new):
            keyed = {(root.stage, root.field, show_value(root.old), show_value(root.new)): root for root in change.roots}
            fresh = {key: root for key, root in keyed.items() if key not in seen}
            seen |= fresh.keys()
            if fresh or not change.roots:
                kept.append(change._replace(roots=tuple(fresh.values())))
        return kept

    def _inputs(self, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
        """Dependencies by role. The roles of a report are digests, so old and new ones have no pairs."""
        listed = [role for role, ref in {**before, **after}.items() if role == ref]
        if gone_or_new := [role for role in listed if role not in before or role not in after]:
            added = sum(role in after for role in gone_or_new)
            yield Change("inputs", f"{len(before)} stages", f"{len(after)} stages, {added} of them others")
        for role in sorted({*before, *after} - set(listed)):
            old, new = before.get(role), after.get(role)
            if old != new:
                yield Change(f"deps.{role}", old or ABSENT, new or ABSENT, tuple(self._roots(old, new)) if old and new else ())

    def _roots(self, old: str, new: str) -> Iterator[Change]:
        """The edited fields that led to another dependency."""
        (there, step_then), (here, step_now) = split_ref(old), split_ref(new)
        before, after = self.stage_of(there), self.stage_of(here)
        if before is None or after is None:
            return
        name = kind_and_label(after["kind"], after.get("label", ""))
        if step_then != step_now:
            yield Change("step", step_then or "the last", step_now or "the last", stage=name)
        if before["kind"] != after["kind"]:
            yield Change("kind", before["kind"], after["kind"], stage=name)
            return
        for change in self.changes(there, here):
            if change.roots:
                yield from change.roots
            else:
                yield change._replace(stage=name)


def explain_new(
    new: list[str], found: Mapping[str, Found], library: Library, most: int | None
) -> tuple[list[Cause], dict[str, int]]:
    """The cause of each of the stages `new` (in the plan's order); with `most`, of at most that many of each kind. Also returns
    the number of stages passed over by kind."""
    comparison = Comparison(library.get)
    newest, places = _candidates(found, library)
    causes: list[Cause] = []
    looked_at, passed_over = Counter[str](), Counter[str]()
    for digest in new:
        kind, label = library.planned[digest].kind, library.planned[digest].label
        if most is not None and looked_at[kind] >= most:
            passed_over[kind] += 1
            continue
        looked_at[kind] += 1
        nearest = _nearest(digest, label, [*places.get((kind, label), []), *newest.get(kind, [])], comparison)
        changes = comparison.distinct_changes(nearest, digest) if nearest else []
        there = library.get(nearest) if nearest else None
        other = there["label"] if there and there["label"] != label else ""
        causes.append(Cause(digest, kind, label, nearest, tuple(changes), other))
    return causes, dict(passed_over)


def _candidates(found: Mapping[str, Found], library: Library) -> tuple[dict[str, list[str]], dict[tuple[str, str], list[str]]]:
    """Finished stages to compare with: the newest of each kind, and by kind and label those that a lock holds under that
    label."""
    newest: dict[str, list[str]] = {}
    places: dict[tuple[str, str], list[str]] = {}
    for digest in sorted((d for d, one in found.items() if one.state == "done"), key=lambda d: (-found[d].when, d)):
        of_kind = newest.setdefault(found[digest].kind, [])
        if len(of_kind) < MOST_CANDIDATES:
            of_kind.append(digest)
        if digest in library.locked:
            places.setdefault((found[digest].kind, library.locked[digest]["label"]), []).append(digest)
    return newest, places


def group_causes(causes: list[Cause]) -> list[list[Cause]]:
    """Causes that are equal except for digests and labels, in the order of their first."""
    groups: dict[Any, list[Cause]] = {}
    for cause in causes:
        key = (cause.kind, cause.nearest is None, tuple(change.essence() for change in cause.changes))
        groups.setdefault(key, []).append(cause)
    return list(groups.values())


def cause_json(one: Cause) -> dict[str, Any]:
    """A cause for programs."""
    changes = [
        {
            "field": change.field,
            "old": change.old,
            "new": change.new,
            "because": [{"stage": root.stage, "field": root.field, "old": root.old, "new": root.new} for root in change.roots],
        }
        for change in one.changes
    ]
    return {"digest": one.digest, "kind": one.kind, "label": one.label, "nearest": one.nearest, "changes": changes}


def _nearest(digest: str, label: str, candidates: list[str], comparison: Comparison) -> str | None:
    """The candidate with the fewest differences; among equals one of the same label, then the newest."""

    def rank(place: int) -> tuple[float, bool, int]:
        candidate = candidates[place]
        stage = comparison.stage_of(candidate)
        return (comparison.distance(candidate, digest), stage is None or stage["label"] != label, place)

    return candidates[min(range(len(candidates)), key=rank)] if candidates else None


def _fields(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """Leaves that differ. Those of a part that only one side has are one change, of the part."""
    parts: dict[str, list[str]] = {}
    for path in sorted({*before, *after}, key=lambda path: (not path.startswith(VERSION), path)):
        if before.get(path) != after.get(path):
            parts.setdefault(_part(path, before) if path not in before else _part(path, after), []).append(path)
    for part, paths in parts.items():
        if len(paths) == 1:
            yield Change(paths[0], _value(before, paths[0]), _value(after, paths[0]))
        else:
            fields = f"{len(paths)} fields"
            yield Change(part, *((ABSENT, fields) if paths[0] not in before else (fields, ABSENT)))


def _part(path: str, other: Mapping[str, str]) -> str:
    """The shortest beginning of a path that leads nowhere in the other side; the path itself where that has it."""
    if path in other or path.startswith(VERSION):
        return path
    names = path.split(".")
    beginnings = (".".join(names[:count]) for count in range(1, len(names)))
    return next((b for b in beginnings if b not in other and not any(p.startswith(f"{b}.") for p in other)), path)


def _value(leaves: Mapping[str, str], path: str) -> Any:
    return json.loads(leaves[path]) if path in leaves else 1 if path.startswith(VERSION) else ABSENT


def _walk(stage: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Leaves of the spec, and versions above the first: those are no information, and lists of parts would add one each."""
    own = flat_leaves(hashed_json(stage))
    yield from ((path, value) for path, value in own.items() if not (stage["kind"] == "report" and DIGEST_OF_ARM.match(path)))
    yield from ((f"{VERSION}{path or stage['kind']}", version) for path, version in stage["versions"].items() if version != 1)
