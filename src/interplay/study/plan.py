"""The plan: every stage of a study at a scale, once each, in an order in which dependencies come first; its lock; and its
registration, the committed file that says what was declared before there were data. Pure data."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, execution, model
from interplay.core.digest import Known, canonical, digest, versions
from interplay.kinds.table import KINDS
from interplay.report.spec import Change, Registration, ReportArm, ReportSpec
from interplay.study.spec import Scale, Study


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

    def inputs(self) -> list[str]:
        """Digests of the stages that it depends on."""
        return [artifact.ref_digest(ref) for ref in self.deps.values()]

    def kept_steps(self) -> list[int]:
        """Steps whose model the stage keeps, in order; none of a stage that writes no model of its own."""
        return [] if KINDS[self.kind].ends_path else sorted(set(getattr(self.spec, "checkpoints", [])))

    def kept_models(self) -> list[tuple[int | None, str]]:
        """(step, reference) of the kept checkpoints and of the end, whose step is None where the stage counts in tokens."""
        end = getattr(self.spec, "steps", None)
        return [*((step, artifact.make_ref(self.digest, step)) for step in self.kept_steps() if step != end), (end, self.digest)]

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
    """What a pilot of the scale, or of the study at it, measured (`report.spec.Pilot`)."""
    design: Mapping[str, Any] = field(default_factory=dict)
    """What `interplay register` freezes: `design_of`."""

    def address(self, stage: Stage) -> str:
        """What a stage is called everywhere, and found by: `study/arm/stage@seed`, `study.scale/data.edge`."""
        return f"{self.at or flat_name(self.study, self.scale)}/{stage.label}"

    def report_spec(self) -> ReportSpec:
        """What the report shows: arms, evaluations, tables, figures and claims."""
        spec = self.stages[self.report].spec
        assert isinstance(spec, ReportSpec)
        return spec

    def stages_json(self) -> dict[str, dict[str, Any]]:
        """The stages as plain JSON, dependencies first."""
        return {digest: stage.as_json() for digest, stage in self.stages.items()}

    def run_command(self) -> str:
        """What runs the study at this scale, which is named unless it is the project's default."""
        return f"interplay run {self.study}{'' if self.at == self.study else f' --scale {self.scale}'}"

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


# -- registration ------------------------------------------------------------------------------------------------------------
# `configs/registered/<study>.<scale>.json` holds the design of a study, key by key in the words of its files, before there are
# results of what it is about. The planner compares: what differs later is shown in the report as changed after seeing data.

DESIGN = (
    *("task", "tokenizer", "data", "decontaminate", "calibrate", "stages", "arms", "evaluate", "match", "controls", "claims"),
    "targets",
)
SIZES = ("tasks", "bands", "sizes", "per_op", "kinds")
OUTCOME = ("columns", "cells", "arms")
"""Keys of a table that say what the verdicts of its contrast are about."""
SETTINGS = re.compile(r"kinds\.|arms\[[^]]*\]\.set\b")
"""Keys that act through stages alone."""
SHOWN_ALONE = ("run", "label", "color")
"""Keys that change how a stage runs or what an arm is called."""


def registration_path(configs: Path, study: str, scale: str) -> Path:
    """The file of a study's registration."""
    return configs / "registered" / f"{study}.{scale}.json"


def design_of(study: Study, scale: Scale, seeds: Sequence[int]) -> dict[str, Any]:
    """What of a study at a scale decides its results and verdicts: claims by their sentence, arms, stages, data and sizes; no
    table, figure or label. The contrasts of tables, whose rows are verdicts, too, with what they are about."""
    found: dict[str, Any] = {key: _plain(getattr(study, key)) for key in DESIGN}
    used = {str(stage.get("kind")) for stage in study.stages.values()} | {"problems", "corpus", "tokenizer"}
    sized = {key: _plain(getattr(scale, key)) for key in SIZES}
    sized["kinds"] = {kind: keys for kind, keys in sized["kinds"].items() if kind in used}
    claims = {one["says"]: {key: item for key, item in one.items() if key != "says"} for one in found.pop("claims")}
    judged = {name: table for name, table in study.tables.items() if table.contrast}
    contrasts = {name: _plain(table.contrast) for name, table in judged.items()}
    outcomes = {name: {key: _plain(getattr(table, key)) for key in OUTCOME} for name, table in judged.items()}
    repeated = {"values": list(seeds), "vary": study.seeds.vary if study.seeds else []}
    more = {
        "claims": claims,
        "stopping": _plain(study.stopping),
        "contrasts": contrasts,
        "outcomes": outcomes,
        "seeds": repeated,
        "exploratory": study.exploratory,
    }
    return {key: item for key, item in {**found, **sized, **more}.items() if item not in (None, {}, [])}


def _plain(value: Any) -> Any:
    """As JSON data, without what is at its default and without what changes no number."""
    if isinstance(value, model.Model):
        fields = type(value).model_fields.items()
        held = {name: getattr(value, name) for name, one in fields if getattr(value, name) != one.get_default()}
        return _plain({name: item for name, item in held.items() if name in value.model_fields_set})
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if key not in SHOWN_ALONE}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def replicate_seeds(values: Sequence[int], count: int) -> list[int]:
    """The seeds of the first replicates, fixed in advance: those that the study lists, then on from the largest of them."""
    return [*values, *range(max(values) + 1, max(values) + 1 + count)][:count]


def stages_digest(stages: Mapping[str, Stage], rows: Iterable[ReportArm]) -> str:
    """Of all stages behind these rows, in any order."""
    ends = [digest for row in rows for digest in row.digests()]
    return digest("plan", model.Model(), {one: one for one in artifact.closure(ends, lambda at: stages[at].deps.values())})


def stages_by_look(stages: Mapping[str, Stage], rows: Sequence[ReportArm], looks: Iterable[int]) -> dict[str, str]:
    """Number of replicates -> digest of the stages of the first ones, for each look that the rows reach, and for all."""
    seeds = list(dict.fromkeys(row.seed for row in rows))
    counts = sorted({*(look for look in looks if look < len(seeds)), len(seeds)})
    return {str(count): stages_digest(stages, [row for row in rows if row.seed in seeds[:count]]) for count in counts}


def treatments(stages: Mapping[str, Stage], rows: Sequence[ReportArm]) -> list[str]:
    """The stages whose results a claim is about, by digest: training that some arm at a seed has and another has not, or all
    after the first stage of an only arm, and the evaluations of what it made; of arms without such training, such as one model
    asked in two ways, the evaluations that the first of them has not, and of a model alone all."""
    found: dict[str, None] = {}
    for seed in dict.fromkeys(row.seed for row in rows):
        here = [row for row in rows if row.seed == seed]
        paths = {row.arm: [step.digest for step in row.path] for row in here}
        shared = set.intersection(*map(set, paths.values())) if len(paths) > 1 else set(next(iter(paths.values()))[:1])
        start = next((row.evaluations for row in here if len(here) > 1 and shared.issuperset(paths[row.arm])), {})
        for row in here:
            own = [one for one in paths[row.arm] if one not in shared]
            asked = [one for one in row.evaluations.values() if own or one not in start.values()]
            found |= dict.fromkeys([*own, *asked, *(at.digest for at in row.rungs if own)])
    return [one for one in found if one in stages]


def read_registrations(path: Path) -> list[dict[str, Any]]:
    """The registrations in a file, the first one first; none where there is no file. Raises UserError."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_bytes())["registrations"]
        return [{key: one[key] for key in ("date", "commit", "late", "design", "plan", "sha256")} for one in found]
    except (ValueError, KeyError, TypeError):
        raise model.UserError(f"{path}: not a registration; restore it, as by `git checkout {path}`, or remove it") from None


def with_checksum(one: Mapping[str, Any]) -> dict[str, Any]:
    """A registration with the checksum of the rest."""
    rest = {key: one[key] for key in ("date", "commit", "late", "design", "plan")}
    return {**rest, "sha256": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def find_registration(
    configs: Path, of: tuple[str, str], design: Mapping[str, Any], stages: Mapping[str, Stage], rows: Sequence[ReportArm]
) -> Registration | None:
    """The registration of a study at a scale, with what its design has changed since the first one. Raises UserError."""
    path = registration_path(configs, *of)
    if not (known := read_registrations(path)):
        return None
    first, looks = known[0], (known[0]["design"].get("stopping") or {}).get("looks", [])
    compared = json.loads(json.dumps(design))
    if "contrasts" in first["design"] and "outcomes" not in first["design"]:  # of before these were kept
        compared.pop("outcomes", None)
    changes = list(_changes("", first["design"], compared, looks))
    now = stages_by_look(stages, rows, [])
    other = {count: at for count, at in now.items() if first["plan"].get(count, at) != at}
    if now.keys() <= first["plan"].keys() and not other:  # settings act through their stages, which are as registered
        changes = [change for change in changes if not SETTINGS.match(change.key)]
    if other and not changes:  # another version of a kind, or a file whose content is another
        changes = [Change(key="plan", before=first["plan"][count], after=at) for count, at in other.items()]
    return Registration(
        file=path.relative_to(configs.parent).as_posix(),
        date=first["date"],
        commit=first["commit"],
        late=first["late"],
        again=[one["date"] for one in known[1:]],
        changes=changes,
        exploratory=design["exploratory"],
        edited=any(with_checksum(one)["sha256"] != one["sha256"] for one in known),
    )


def _changes(at: str, before: Any, after: Any, looks: Sequence[int]) -> Iterator[Change]:
    """Keys that differ, in the order in which they were registered. A look adds the replicates that were declared for it."""
    if at == "seeds.values" and len(after) in looks and after == replicate_seeds(before, len(after)):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{at}[{key}]" if at in ("claims", "arms", "contrasts", "outcomes") else f"{at}.{key}" if at else key
            yield from _changes(inner, before.get(key), after.get(key), looks)
    elif before != after:
        yield Change(key=at, before=_value_text(before), after=_value_text(after))


def _value_text(value: Any) -> str:
    return "" if value is None else model.shorten_value(value)
