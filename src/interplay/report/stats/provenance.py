"""The stages that a report depends on, down to the data, with the telemetry of each, the list of them, and what they took.
Read by the page alone; tables, figures and claims are computed from `frame` and are determined by the digest."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from interplay.core import artifact, execution
from interplay.core.digest import CORPUS, corpus_inputs, is_corpus_role, without_shard
from interplay.core.metrics import clock, quantity, read_telemetry, seeds_text, short
from interplay.kinds.stages import EXACT, Numerics, numerics_class, other_contents
from interplay.kinds.table import KINDS
from interplay.report.spec import ReportArm, ReportSpec

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


def two_contents(folders: Iterable[Path]) -> list[str]:
    """One digest with two contents, among finished stages."""
    return [line for out in folders if artifact.done(out) for line in other_contents(out.parent.parent, out)]


def numerics_lines(of: Provenance) -> list[str]:
    """How the bytes of the finished stages depend on the machine: a line for each class, with the kinds and numbers of stages."""
    found: dict[Numerics, dict[str, int]] = {}
    for digest, stage in of.stages.items():
        if of.done(digest):
            kinds = found.setdefault(numerics_class(stage), {})
            kinds[stage["kind"]] = kinds.get(stage["kind"], 0) + 1
    each = {one: ", ".join(f"{count} {kind}" for kind, count in of_kind.items()) for one, of_kind in found.items()}
    return [f"{one.name} ({kinds}): {one.holds}" for one, kinds in sorted(each.items())]


UNKNOWN = "machine not recorded"


def made_with(digests: Iterable[str], of: Provenance) -> dict[tuple[str, str], dict[str, int]]:
    """Machine, by its processor or GPU, and numerics class -> kinds and numbers of the finished stages among these, and of what
    they depend on, that compute with a model."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for digest in sorted(with_dependencies(digests, of.stages)):
        numerics = numerics_class(of.stages[digest]) if of.done(digest) else None
        if numerics is not None and numerics.model:
            known = of.telemetry.get(digest, {}).get("environment", {})
            at = str(known.get("gpu") or known.get("cpu") or UNKNOWN)
            kinds, kind = found.setdefault((at, numerics.name), {}), of.stages[digest]["kind"]
            kinds[kind] = kinds.get(kind, 0) + 1
    return found


def mixed_machines(digests: Iterable[str], of: Provenance) -> tuple[str, ...]:
    """A line where stages whose bytes may depend on the machine were made on several kinds of it, as far as that is recorded."""
    found: dict[str, dict[str, int]] = {}
    for (at, numerics), kinds in made_with(digests, of).items():
        for kind, count in kinds.items() if numerics != EXACT and at != UNKNOWN else ():
            found.setdefault(at, {})[kind] = found.get(at, {}).get(kind, 0) + count
    each = "; ".join(f"{at}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}" for at, kinds in found.items())
    said = f"Mixed: made on {len(found)} kinds of machine, to which differences may be due: {each}."
    return (said,) if len(found) > 1 else ()


def of_plan(stages: Mapping[str, Mapping[str, Any]], results: Path, why: Mapping[str, str]) -> Provenance:
    """Of a plan whose stages are given as JSON; the report itself is left out."""
    found: dict[str, dict[str, Any]] = {}
    for digest, stage in stages.items():
        out = artifact.folder(results, stage["kind"], digest)
        if stage["kind"] != "report":
            found[digest] = {**stage, **(artifact.record(out) if artifact.done(out) else {})}
    return Provenance(found, _telemetry(found, results), why)


def of_inputs(spec: ReportSpec, inputs: Mapping[str, Path]) -> Provenance:
    """Of a report with the folders of its inputs: from their records to those of their dependencies, and on."""
    kinds = {stage.digest: stage.kind for arm in spec.arms for stage in arm.path}
    kinds |= {digest: "evaluate" for arm in spec.arms for digest in arm.evaluations.values()}
    results = next((path.parent.parent for digest, path in sorted(inputs.items()) if path.name == digest), Path("results"))
    read: dict[str, dict[str, Any]] = {}

    def deps_of(digest: str) -> Iterable[str]:
        read[digest] = _read(digest, kinds.get(digest, ""), results)
        deps = read[digest]["deps"]
        for role, ref in deps.items():
            kinds.setdefault(artifact.ref_digest(ref), ROLES.get(role.split(".")[0], ""))
        return deps.values()

    found = {digest: read[digest] for digest in artifact.closure([*kinds, *inputs], deps_of)}
    return Provenance(found, _telemetry(found, results), {})


def _read(digest: str, kind: str, results: Path) -> dict[str, Any]:
    """The stage as JSON. Of one without files only the kind is known, by its role."""
    stage: dict[str, Any] = {"kind": kind, "digest": digest, "spec": {}, "deps": {}}
    for path in results.glob(f"*/{digest}/*.json"):
        if path.name in ("stage.json", "record.json"):
            stage |= artifact.read_json(path)
    return stage


def _telemetry(stages: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, dict[str, Any]]:
    folders = {digest: artifact.folder(results, stage["kind"], digest) for digest, stage in stages.items()}
    return {digest: known for digest, folder in folders.items() if (known := read_telemetry(folder))}


# The page's list of stages: one entry for what differs only in its seed, as shards do; with settings, what was spent, state.


MOST_MEMBERS = 12
"""Stages of an entry that are listed."""
SPENT = ["size", "parameters", "tokens", "pairs", "completions", "prompt_tokens", "completion_tokens", "optimizer_steps"]
"""Keys of a record's metrics that count what was made or spent."""


class Member(NamedTuple):
    """One stage of an entry."""

    digest: str
    seeds: str
    """`seed 0`, `seeds 0, 1, 2`: where the arms use it; empty for data, which has none."""
    state: str
    """`done`, or why it is missing."""
    hours: str
    attempts: str


class Entry(NamedTuple):
    """Stages of one kind and name that the same arms use."""

    anchor: str
    """Its id on the page."""
    name: str
    kind: str
    arms: list[str]
    members: list[Member]
    settings: dict[str, Any]
    """Of the first member."""
    spent: dict[str, str]
    """Of the first finished member."""
    inputs: list[tuple[str, str]]
    """(role, digest) of the first member."""


def stage_entries(spec: ReportSpec, behind: Provenance) -> list[Entry]:
    """Every stage that the report depends on, dependencies first."""
    uses = _uses(spec, behind)
    named = {digest: name for row in spec.arms for name, digest in _stages(spec, row)}
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for digest, stage in behind.stages.items():
        arms = tuple(dict.fromkeys(arm for arm, _ in uses.get(digest, [])))
        groups.setdefault((stage["kind"], named.get(digest) or name_of(stage), arms), []).append(digest)
    return [
        _entry(name, kind, list(arms), digests, uses, digests[0] in named, behind)
        for (kind, name, arms), digests in groups.items()
    ]


def entry_anchors(found: list[Entry]) -> dict[str, str]:
    """Digest -> its entry on the page, as `#...`."""
    return {member.digest: f"#{entry.anchor}" for entry in found for member in entry.members}


def path_steps(row: ReportArm) -> list[tuple[str, str, str]]:
    """(name, kind, digest) along an arm's path, then its evaluations."""
    path = [(stage.name, stage.kind, stage.digest) for stage in row.path]
    return path + [(name, "evaluate", digest) for name, digest in sorted(row.evaluations.items())]


def _stages(spec: ReportSpec, row: ReportArm) -> list[tuple[str, str]]:
    """(name, digest) of the steps of an arm, an evaluation once for each of its blocks."""
    return [(name, block) for name, _, digest in path_steps(row) for block in spec.blocks_of(digest)]


def stage_reuse(spec: ReportSpec, behind: Provenance) -> tuple[int, int]:
    """(stages that the arms and seeds would make if each made its own, distinct stages)."""
    uses = _uses(spec, behind)
    return sum(len(of) for of in uses.values()), len(uses)


def with_dependencies(digests: Iterable[str], stages: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """These stages and all that they depend on."""
    return set(artifact.closure(digests, lambda digest: stages.get(digest, {"deps": {}})["deps"].values()))


def _uses(spec: ReportSpec, behind: Provenance) -> dict[str, list[tuple[str, int]]]:
    """Digest -> the (arm, seed) pairs whose path or evaluations depend on it."""
    uses: dict[str, list[tuple[str, int]]] = {}
    for row in spec.arms:
        for digest in sorted(with_dependencies([digest for _, digest in _stages(spec, row)], behind.stages)):
            uses.setdefault(digest, []).append((row.arm, row.seed))
    return uses


def name_of(stage: Mapping[str, Any]) -> str:
    """`data.edge` and its shards -> `edge`, `stages.base.corpus` -> `base corpus`; the kind where there is no label."""
    label = without_shard(str(stage.get("label", stage["kind"])))
    return label.removeprefix("data.").removeprefix("stages.").replace(".", " ")


def _entry(
    name: str,
    kind: str,
    arms: list[str],
    digests: list[str],
    uses: dict[str, list[tuple[str, int]]],
    seeded: bool,
    behind: Provenance,
) -> Entry:
    members = [_member(digest, uses.get(digest, []) if seeded else [], behind) for digest in digests]
    first = behind.stages[digests[0]]
    metrics: dict[str, Any] = next((behind.stages[digest]["metrics"] for digest in digests if behind.done(digest)), {})
    spent = {key: quantity(metrics[key]) for key in SPENT if key in metrics}
    settings = _shown_settings(kind, first["spec"])
    return Entry(f"stage-{digests[0]}", name, kind, arms, members, settings, spent, input_references(first["deps"]))


def list_references(refs: list[str]) -> str:
    """References, the first MOST_MEMBERS of them by name."""
    more = len(refs) - MOST_MEMBERS
    return ", ".join(refs[:MOST_MEMBERS]) + (f" and {more} more" if more > 0 else "")


def input_references(deps: Mapping[str, str]) -> list[tuple[str, str]]:
    """(role, reference) in order; shards of a corpus once, by the first: `corpus (4 shards)`."""
    packed = corpus_inputs(deps)
    found = sorted((role, ref) for role, ref in deps.items() if not is_corpus_role(role))
    role = CORPUS if len(packed) == 1 else f"{CORPUS} ({len(packed)} shards)"
    return sorted([*found, *((role, ref) for ref in packed[:1])])


def _member(digest: str, uses: list[tuple[str, int]], behind: Provenance) -> Member:
    seeds = sorted({seed for _, seed in uses})
    said = seeds_text(seeds) if seeds else ""
    state = "done" if behind.done(digest) else behind.why.get(digest, "missing")
    known = behind.telemetry.get(digest, {})
    hours = clock(known["seconds_wall"]) if "seconds_wall" in known else "time not recorded"
    attempts = f"{known['attempts']} attempts" if known.get("attempts", 1) > 1 else ""
    return Member(digest, said, state, hours if state == "done" else "", attempts)


def _shown_settings(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    found = {key: _value_at(spec, key) for key in KINDS[kind].settings} if kind in KINDS else {}
    if isinstance(steps := found.get("steps"), list):
        found["steps"] = " → ".join(map(_step, steps)) or None
    return {key: value for key, value in found.items() if value is not None}


def _step(step: Mapping[str, Any]) -> str:
    """`keychain (n_chains 8, n_hops 2)`: a curation step with what it holds."""
    keys = ", ".join(f"{key} {short(value)}" for key, value in step.items() if key != "name" and value is not None)
    return f"{step['name']} ({keys})" if keys else str(step["name"])


def _value_at(spec: Any, dotted: str) -> Any:
    """The value at a dotted key; None where a part of it is absent, as options of another member of a union are."""
    for key in dotted.split("."):
        spec = spec.get(key) if isinstance(spec, dict) else None
    return spec


# What a study's stages took, from their telemetry: hours, processor hours, attempts, memory and rates. For the page alone.


ABSENT = "not recorded"
RATES = {"completion_tokens_per_second": "sampled", "tokens_per_second": "trained on"}
"""Telemetry key -> what its tokens are."""


def stage_costs(behind: Provenance) -> list[dict[str, str]]:
    """One row per kind in the order of the plan, then their sum, every figure as it is shown: kind; stages, such as `2 of 3
    done`; wall, cpu and gpu, the hours; attempts; memory; rate."""
    of_kind: dict[str, list[str]] = {}
    for digest, stage in behind.stages.items():
        of_kind.setdefault(stage["kind"], []).append(digest)
    found = [_row(kind, digests, behind) for kind, digests in of_kind.items()]
    return [*found, {**_row("all", list(behind.stages), behind), "rate": ""}]


def where_and_when(behind: Provenance) -> str:
    """`on vm; first stage started 2026-11-20 17:57, last 2026-11-20 18:30 UTC`; empty when telemetry says nothing."""
    known = behind.telemetry.values()
    hosts = sorted({str(item["host"]) for item in known if "host" in item})
    starts = sorted(str(item["started"]) for item in known if "started" in item)
    when = [time[:16].replace("T", " ") for time in (starts[:1] + starts[-1:])]
    starts_said = f"first stage started {when[0]}, last {when[1]} UTC" if when else ""
    return "; ".join(filter(None, [f"on {', '.join(hosts)}" if hosts else "", starts_said]))


def _row(kind: str, digests: list[str], behind: Provenance) -> dict[str, str]:
    done = [digest for digest in digests if behind.done(digest)]
    known = [behind.telemetry.get(digest, {}) for digest in done]
    gpus = [_gpu_seconds(behind.stages[digest], behind.telemetry.get(digest, {})) for digest in done]
    attempts = [int(item["attempts"]) for item in known if "attempts" in item]
    peaks = [float(item["peak_memory_mb"]) for item in known if "peak_memory_mb" in item]
    return {
        "kind": kind,
        "stages": f"{len(done)}" if len(done) == len(digests) else f"{len(done)} of {len(digests)} done",
        "wall": _summed([item.get("seconds_wall") for item in known]),
        "cpu": _summed([item.get("seconds_cpu") for item in known]),
        "gpu": "none" if gpus and not any(item != 0.0 for item in gpus) else _summed(gpus),
        "attempts": _partly(str(sum(attempts)), len(attempts), len(done)),
        "memory": _partly(f"{max(peaks, default=0) / 1024:.2f} GiB", len(peaks), len(done)),
        "rate": _rates(known),
    }


def _gpu_seconds(stage: dict[str, Any], known: dict[str, Any]) -> float | None:
    gpus = execution.Run(**stage["run"]).gpus if "run" in stage else None
    if gpus == 0:
        return 0.0
    return gpus * known["seconds_wall"] if gpus is not None and "seconds_wall" in known else None


def _summed(seconds: list[float | None]) -> str:
    known = [item for item in seconds if item is not None]
    return _partly(clock(sum(known)), len(known), len(seconds))


def _partly(shown: str, known: int, of: int) -> str:
    if not known:
        return ABSENT if of else "–"
    return shown if known == of else f"{shown} ({known} of {of} stages)"


def _rates(known: list[dict[str, Any]]) -> str:
    """The median over the stages of each rate that they report."""
    said = []
    for key, what in RATES.items():
        found = [float(item[key]) for item in known if key in item]
        if found:
            said.append(f"{quantity(round(median(found)))} tokens/s {what}")
    return ", ".join(said)
