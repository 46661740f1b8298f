"""The plan: every stage of a study at a scale, once each, in an order in which dependencies come first. Pure data."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, execution, model
from interplay.core.digest import Known, canonical, digest, versions
from interplay.kinds.table import KINDS


@dataclass(frozen=True)
class Stage:
    """One kind with a spec (what: hashed), a run block (how: never hashed) and its dependencies by role."""

    kind: str
    spec: model.Model
    deps: dict[str, str]
    """Role -> digest."""
    run: execution.Run
    label: str
    """The first use of the stage, its address within a study: `arm/stage@seed`. Not part of the identity."""
    digest: str = ""

    @staticmethod
    def make(
        kind: str, spec: model.Model, deps: dict[str, str], run: execution.Run, label: str, known: Known | None = None
    ) -> "Stage":
        """A stage with its digest; `known` as for `digest`."""
        return Stage(kind, spec, deps, run, label, digest(kind, spec, deps, known))

    def kept_steps(self) -> list[int]:
        """Steps whose model the stage keeps, in order; none of a stage that writes no model of its own."""
        return [] if KINDS[self.kind].ends_path else sorted(set(getattr(self.spec, "checkpoints", [])))

    def kept_models(self) -> list[tuple[int | None, str]]:
        """(step, reference) of the kept checkpoints and of the end, whose step is None where the stage counts in tokens."""
        end = getattr(self.spec, "steps", None)
        return [*((step, f"{self.digest}@{step}") for step in self.kept_steps() if step != end), (end, self.digest)]

    def identity(self) -> dict[str, Any]:
        """What the digest covers, as JSON: the part that the record repeats."""
        return {
            "kind": self.kind,
            "digest": self.digest,
            "versions": versions(self.spec),
            "spec": canonical(self.spec),
            "deps": self.deps,
        }

    def as_json(self) -> dict[str, Any]:
        """Identity, run block and label: what `stage.json` holds."""
        return {**self.identity(), "run": self.run.stated(), "label": self.label}


def flat_name(study: str, scale: str) -> str:
    """`<study>.<scale>` as the name of one folder or experiment: a study in a folder has dots."""
    return f"{study.replace('/', '.')}.{scale}"


def lock_path(configs: Path, study: str, scale: str) -> Path:
    """`configs/plans/<study>.<scale>.lock.json`; a study in a folder keeps its folder."""
    return configs / "plans" / f"{study}.{scale}.lock.json"


@dataclass(frozen=True)
class Plan:
    """The stages of one study at one scale by digest, dependencies first; the last one is the report."""

    study: str
    scale: str
    stages: Mapping[str, Stage] = field(default_factory=dict)
    report: str = ""
    unused: Sequence[str] = field(default_factory=list)
    """Stages of the study that are on no path and that no other stage reads."""
    brief: bool = False
    """Whether the lock names the report alone (`Scale.lock`)."""
    at: str = ""
    """With what addresses of its stages begin: the study, and `.scale` unless that is the project's default."""
    pilot: Mapping[str, Any] | None = None
    """What a pilot of the scale, or of the study at it, measured (`study.spec.Pilot`)."""

    def address(self, stage: Stage) -> str:
        """What a stage is called everywhere, and found by: `study/arm/stage@seed`, `study.scale/data.edge`."""
        return f"{self.at or flat_name(self.study, self.scale)}/{stage.label}"

    def lock(self) -> str:
        """What is committed of the plan: digest, dependencies and label of each stage, one stage a line. Sorted, so that a diff
        of two commits shows a changed stage in its place. A brief lock has the number of stages and a checksum of their lines."""
        short = _short_names(self.stages)
        ordered = sorted(self.stages.values(), key=lambda stage: (_section(stage), stage.label, stage.digest))
        texts = []
        for title, stages in groupby(ordered, _section):
            lines = [json.dumps(line) for line in _lines(list(stages), short)]
            texts.append(f"{json.dumps(title)}: [\n" + ",\n".join(lines) + "\n]")
        body = '"stages": {\n' + ",\n".join(texts) + "\n}}\n"
        if self.brief:
            return f'{self._head()}"count": {len(self.stages)}, "sha256": "{hashlib.sha256(body.encode()).hexdigest()[:16]}"}}\n'
        return self._head() + body

    def full_text(self) -> str:
        """The plan with the spec and the run block of each stage, one stage a line, dependencies first."""
        lines = [json.dumps(stage.as_json(), sort_keys=True, separators=(",", ":")) for stage in self.stages.values()]
        return f'{self._head()}"stages": [\n' + ",\n".join(lines) + "\n]}\n"

    def _head(self) -> str:
        return f'{{"study": {json.dumps(self.study)}, "scale": {json.dumps(self.scale)}, "report": "{self.report}", '

    def lock_path(self, configs: Path) -> Path:
        """Path of the plan's lock."""
        return lock_path(configs, self.study, self.scale)

    def locked(self, configs: Path) -> bool:
        """Whether the committed lock is this plan."""
        path = self.lock_path(configs)
        return path.exists() and path.read_bytes() == self.lock().encode()

    def write_lock(self, configs: Path) -> bool:
        """Write the lock when it differs; returns whether it did."""
        if self.locked(configs):
            return False
        artifact.write_atomic(self.lock_path(configs), self.lock().encode())
        return True


# -- the text of a lock ------------------------------------------------------------------------------------------------------
# `"rl data.0,init": ["7cbe765b5518 bbd,061 rl_edge/rl@0", ...]`: a section holds the stages of one kind whose dependencies
# have the same roles; a line has the digest, the dependencies in the order of the roles, and the label. A dependency is named by
# the shortest beginning of its digest that no other stage has, as git names commits: a line changes only where its stage or a
# dependency does. A report reads nearly all stages, by digest in place of a role: `report *`, with those that it does not read.
# Leading parts of a label that are those of the line above are left out, and their slashes kept: `/rl@1`.

SHORTEST = 3
"""Characters of a digest that name a dependency at least."""
OTHERS = "*"
"""In place of roles: all stages other than the named ones."""
NONE = "-"


def _section(stage: Stage) -> str:
    """The kind and the roles of a stage."""
    by_digest = stage.deps and all(role == ref for role, ref in stage.deps.items())
    return f"{stage.kind} {OTHERS if by_digest else ','.join(sorted(stage.deps))}".rstrip()


def _short_names(digests: Iterable[str]) -> dict[str, str]:
    """Digest -> its shortest beginning, of at least SHORTEST characters, that no other of the digests has."""
    ordered = ["", *sorted(digests), ""]
    shared = [_shared(one, other) for one, other in pairwise(ordered)]
    lengths = [max(SHORTEST, 1 + before, 1 + after) for before, after in pairwise(shared)]
    return {digest: digest[:length] for digest, length in zip(ordered[1:-1], lengths, strict=True)}


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _lines(stages: list[Stage], short: Mapping[str, str]) -> Iterator[str]:
    """The lines of a section."""
    above: list[str] = []
    for stage in stages:
        parts = stage.label.split("/")
        same = min(_shared(parts, above), len(parts) - 1)
        yield " ".join([stage.digest, *_short_refs(stage, short), "/" * same + "/".join(parts[same:])])
        above = parts


def _short_refs(stage: Stage, short: Mapping[str, str]) -> list[str]:
    """The dependencies of a stage as one word; no word for a stage without any."""
    if _section(stage).endswith(OTHERS):
        return [",".join(name for digest, name in short.items() if digest not in {*stage.deps, stage.digest}) or NONE]
    refs = [stage.deps[role].partition("@") for role in sorted(stage.deps)]
    return [",".join(f"{short[digest]}{mark}{step}" for digest, mark, step in refs)] if refs else []


class Lock(NamedTuple):
    """What is committed of a plan."""

    study: str
    scale: str
    report: str
    stages: dict[str, dict[str, Any]]
    """By digest: digest, kind, label and dependencies by role; none of a brief lock, which names the report alone."""


def parse_lock(lock: Mapping[str, Any]) -> Lock:
    """Of a lock read as JSON. Raises ValueError when it is none, with the line that is wrong where it is one."""
    try:
        if "count" in lock:
            return Lock(lock["study"], lock["scale"], lock["report"], {})
        lines = [(title, line) for title, section in lock["stages"].items() for line in section]
        digests = {name: digest for digest, name in _short_names(line.split(" ")[0] for _, line in lines).items()}
        stages, above = dict[str, dict[str, Any]](), [""]
        for title, line in lines:
            stage = _of_line(title, line, digests, above)
            stages[stage["digest"]] = stage
            above = stage["label"].split("/")
        return Lock(lock["study"], lock["scale"], lock["report"], stages)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it has not the form of one ({error})") from None


def _of_line(title: str, line: str, digests: Mapping[str, str], above: list[str]) -> dict[str, Any]:
    """A stage of a lock; `digests` by short name, `above` the label of the line above in parts. Raises ValueError."""
    kind, _, roles = title.partition(" ")
    try:
        digest, *refs, label = line.split(" ", 2 if roles else 1)
        named = [ref.partition("@") for ref in refs[0].split(",") if ref != NONE] if refs else []
        full = [f"{digests[name]}{mark}{step}" for name, mark, step in named]
        if roles == OTHERS:
            deps = {one: one for one in sorted(digests.values()) if one not in {digest, *full}}
        else:
            deps = dict(zip(roles.split(",") if roles else [], full, strict=True))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{title}: {line!r}: {error}") from None
    same = len(label) - len(label.lstrip("/"))
    return {"digest": digest, "kind": kind, "label": "/".join([*above[:same], label[same:]]), "deps": deps}
