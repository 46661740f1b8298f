"""The provenance of a number, from the evaluations down to the data: a paragraph each, and once where seeds or arms share it."""

import functools
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from interplay.core import artifact, metrics, model
from interplay.core.digest import is_corpus_role
from interplay.core.metrics import aligned, short
from interplay.kinds import formulas
from interplay.kinds.stages import flat_leaves, planned_costs, realised_cost
from interplay.kinds.table import KINDS, SETS, makes
from interplay.report.draw.diagram import stage_name
from interplay.report.inspect.stage_view import curation_lines
from interplay.report.spec import ReportSpec
from interplay.report.stats import frame, provenance
from interplay.results import state

ORDER = ("samples", "model", "corpus", "problems", "tokenizer")
"""What stages make (`Kind.makes`), from the number down."""
WIDTH = 120
"""Characters of a line."""

Stages = Mapping[str, Mapping[str, Any]]


def read_curves(spec: ReportSpec, results: Path) -> frame.Results:
    """What the targets of a study are read from, of all its arms: the horizon is that of all."""
    of = {target.stage for target in spec.targets.values()}
    kinds = {part.digest: part.kind for row in spec.arms for part in row.path if part.name in of}
    kinds |= {rung.digest: "evaluate" for row in spec.arms for rung in row.rungs if rung.stage in of}
    folders = {digest: artifact.folder(results, kind, digest) for digest, kind in kinds.items()}
    return frame.read_results(spec, folders)._replace(kept={})


def stages_of(
    spec: ReportSpec, stages: Stages, results: Path, asked: Callable[[str], bool], ends: Sequence[str] = ()
) -> tuple[list[list[str]], list[str]]:
    """A block of lines for each stage that the arms of `spec` depend on, and what is missing. `asked`: whether the number is from
    an evaluation; `ends`: models whose curves it is from."""
    rows = [row.model_copy(update={"evaluations": {n: d for n, d in row.evaluations.items() if asked(d)}}) for row in spec.arms]
    spec = spec.model_copy(update={"arms": rows})
    shown = [digest for row in rows for digest in row.evaluations.values()]
    chosen = provenance.with_dependencies([*ends, *(block for digest in shown for block in spec.blocks_of(digest))], stages)
    known = {digest: stage for digest, stage in stages.items() if digest in chosen}
    behind = provenance.of_plan(known, results, state.missing_reasons(known, results, results.parent / "logs"))
    overlap, absent = _overlaps(spec, behind, results)
    entries = sorted(reversed(provenance.stage_entries(spec, behind)), key=lambda entry: _rank(entry.kind))
    planned = planned_costs(stages)
    blocks = [_block(entry, behind, overlap, planned, len({row.arm for row in rows}) > 1) for entry in entries]
    gone = [f"{behind.stages[digest].get('label')} [{digest}]: {why}" for digest, why in behind.why.items()]
    return blocks, gone + absent


def _rank(kind: str) -> tuple[int, int]:
    """Evaluations first, then models, later kinds of training first, down to the data."""
    return (ORDER.index(makes(kind)), -list(KINDS).index(kind)) if makes(kind) in ORDER else (len(ORDER), 0)


def _block(
    entry: provenance.Entry, behind: provenance.Provenance, overlap: dict[str, str], planned: dict[str, formulas.Cost], arms: bool
) -> list[str]:
    members = [behind.stages[member.digest] for member in entry.members]
    name = entry.name if entry.name != entry.kind else ""
    head = " ".join(filter(None, [entry.kind, name, f"(of {', '.join(entry.arms)})" if arms else ""]))
    rows = []
    for member in entry.members[: provenance.MOST_MEMBERS]:
        known = behind.telemetry.get(member.digest, {})
        hours = metrics.clock(known["seconds_wall"]) if "seconds_wall" in known else ""
        rows.append([member.digest, member.seeds, member.state, hours, str(known.get("host", "")), member.attempts])
    facts = {"settings": _settings(entry, members[0]), "spent": _spent(members, planned), "from": _inputs(members, behind)}
    if "shares" in members[0]["spec"]:
        facts["bands"] = _bands(members[0]["spec"])
    steps = next((stage["metrics"].get("steps") for stage in members if "metrics" in stage), None)
    if isinstance(steps, list):  # of a curation; a trainer counts its steps
        facts["steps"] = "; ".join(curation_lines(steps))
    if makes(entry.kind) == "problems":
        facts["overlap"] = overlap.get(entry.members[0].digest, "")
    commits = {str(behind.telemetry.get(stage["digest"], {}).get("commit", "")) for stage in members}
    facts["commit"] = ", ".join(sorted(commits - {""}))
    more = len(entry.members) - len(rows)
    listed = aligned(_without_empty(rows)) + ([f"    and {more} more"] if more else [])
    return [head, *listed, *(line for key, said in facts.items() if said for line in _wrapped(key, said))]


def _wrapped(key: str, said: str) -> list[str]:
    return textwrap.wrap(said, WIDTH, initial_indent=f"    {key:10}", subsequent_indent=" " * 14, break_long_words=False)


def _spent(members: list[dict[str, Any]], planned: dict[str, formulas.Cost]) -> str:
    """What was made or spent, seed by seed where that differs."""
    known = [stage for stage in members if "metrics" in stage]
    flops = [realised_cost(stage, planned[stage["digest"]].parameters).flops for stage in known]
    found = {
        key: [metrics.quantity(stage["metrics"][key]) for stage in known if key in stage["metrics"]] for key in provenance.SPENT
    }
    found["FLOPs"] = [metrics.quantity(number) for number in flops if number]
    return ", ".join(f"{key} {' | '.join(each if len(set(each)) > 1 else each[:1])}" for key, each in found.items() if each)


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    """The rows without the columns in which no row has anything."""
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows)]
    return [[row[at] for at in kept] for row in rows]


def _settings(entry: provenance.Entry, stage: Mapping[str, Any]) -> str:
    """What the page shows of the kind, and what determines the number: engine, precision, verifier and seed."""
    whole = flat_leaves(stage["spec"])
    more = {key: item for key, item in whole.items() if key in ("engine", "dtype") or key.startswith("verify.")}
    seed = {"seed": whole["seed"]} if "seed" in whole and len(entry.members) == 1 else {}
    return ", ".join(f"{key} {short(item)}" for key, item in {**entry.settings, **more, **seed}.items())


def _inputs(members: list[dict[str, Any]], behind: provenance.Provenance) -> str:
    """`init base [f16b531a734c]; data.0 50 % edge [595825e2ff9f]`; one digest per seed where they differ."""
    mix = members[0]["spec"].get("mix", [])
    role_of = {ref: role for role, ref in provenance.input_references(members[0]["deps"])}
    said = []
    for role in sorted(members[0]["deps"], key=lambda role: (role not in ("model", "init"), role)):
        if members[0]["deps"][role] not in role_of:
            continue  # a further shard of a corpus
        refs = list(dict.fromkeys(stage["deps"][role] for stage in members))
        number = role.removeprefix("data.")
        share = f" {100 * mix[int(number)]:.4g} %" if number.isdecimal() and len(mix) > 1 else ""
        name = stage_name({"digest": "", **behind.stages[artifact.ref_digest(refs[0])]})
        role = role_of[members[0]["deps"][role]] if is_corpus_role(role) else role
        said.append(f"{role}{share} {name if name != role else ''} [{provenance.list_references(refs)}]".replace("  ", " "))
    return "; ".join(said)


def _bands(spec: Mapping[str, Any]) -> str:
    """`edge: op 7, 8 (100 %)`."""
    of = {band: f"op {', '.join(sorted(ops, key=int))}" for band, ops in spec["bands"].items()}
    of |= {band: f"chosen from op {metrics.number_ranges(ops)}" for band, ops in spec.get("calibrated", {}).items()}
    return "; ".join(f"{band}: {ops} ({100 * spec['shares'][band]:.4g} %)" for band, ops in of.items())


def _overlaps(spec: ReportSpec, behind: provenance.Provenance, results: Path) -> tuple[dict[str, str], list[str]]:
    """Test set -> how many of its structures the other problem sets of the chain share; and the payloads that this lacks."""
    folders = {d: artifact.folder(results, stage["kind"], d) for d, stage in behind.stages.items() if behind.done(d)}
    sets = [digest for digest in folders if behind.stages[digest]["kind"] in SETS]
    absent = [d for d in sets if not any((folders[d] / name).exists() for name in ("keys.parquet", "problems.parquet"))]
    if absent:
        named = ", ".join(f"{behind.stages[digest].get('label')} [{digest}]" for digest in absent)
        return {}, [f"structural overlap: it needs the problems of {named}; `interplay store pull` gets them"]
    try:
        found = set_overlaps(frame.Results(spec, {}, {digest: dict(behind.stages[digest]) for digest in folders}, folders))
    except model.UserError as error:
        return {}, [f"structural overlap: {error}"]
    said = {}
    for item in found:
        shared, repeats = sum(item.shared.values()), sum(item.repeats.values())
        others = f"{len(item.against)} other problem sets of this chain"
        said[item.digest] = f"{shared} of {item.size} structures occur in the {others}; {repeats} repeat within the set"
    return said, []


# Arms as the page lists them, and the overlap of test sets with training sets.


LEAST_ERROR = 0.0005
"""Share below which an error class is not worth a word: it would read 0.0 %."""


def arm_rows(results: frame.Results) -> list[dict[str, Any]]:
    """One entry per arm: its control, the ops it was trained on, its steps as (name, first seed's digest), its errors by
    band."""
    return [_arm(results, name) for name in results.spec.arm_names()]


def _arm(results: frame.Results, name: str) -> dict[str, Any]:
    rows = results.spec.rows_of(name)
    ops = frame.trained_ops(results, name)
    unknown = "it starts from a model that was made elsewhere" if frame.is_adopted(results, name) else "its data are not here"
    trained = metrics.number_ranges(ops) if ops is not None else f"not known: {unknown}"
    errors = _errors(results, list(dict.fromkeys(digest for row in rows for _, digest in sorted(row.evaluations.items()))))
    path = [(step, digest) for step, _, digest in provenance.path_steps(rows[0])]
    return {"name": name, "control": rows[0].control, "trained": trained, "steps": path, "errors": errors}


def _errors(results: frame.Results, evaluations: list[str]) -> dict[str, str]:
    """Band -> its error classes with their share of all samples, most frequent first, mean over the evaluations."""
    records = [results.records[digest]["metrics"] for digest in evaluations if digest in results.records]
    said = {}
    for band in frame.bands(results):
        shares = [record.get("band", {}).get(band, {}).get("errors", {}) for record in records]
        names = {name for share in shares for name in share} - {"none"}
        means = {name: sum(share.get(name, 0.0) for share in shares) / len(shares) for name in names}
        order = sorted(means, key=lambda name: (-means[name], name))
        said[band] = ", ".join(f"{name} {100 * means[name]:.1f} %" for name in order if means[name] >= LEAST_ERROR)
    return {band: text for band, text in said.items() if text}


class Overlap(NamedTuple):
    """How clean one test set is: by structural key (equal up to renaming of letters and reordering of definitions) and by
    origin (equal for all variants of one question)."""

    digest: str
    size: int
    repeats: dict[int, int]
    """Op -> problems whose structure an earlier one of the set has."""
    shared: dict[int, int]
    """Op -> problems whose structure, or that of the row that they were made of, is one in `against` or of what that was made
    of."""
    variants: dict[int, int]
    """Op -> problems that were made of the same row as some problem in `against`."""
    against: list[str]
    """Digests of the other problem sets among the report's inputs that something was trained on."""


class _Rows(NamedTuple):
    """A problem set as sets are compared, each column (P,)."""

    op: pd.Series
    key: pd.Series
    origin: pd.Series
    """`digest:index` of the row that it was first made as."""
    root: pd.Series
    """Structural key of that row; its own where the origin is not here."""


def set_overlaps(results: frame.Results) -> list[Overlap]:
    """One entry per test set among the inputs, checked against the sets that arms were trained on as far as they are here;
    where the plan has none, against all sets that no shown evaluation uses."""
    spec, records = results.spec, results.records
    shown = [digest for arm in spec.arms for digest in arm.evaluated()]
    tests = {records[digest]["deps"]["data"] for digest in shown if digest in records}
    folders = {digest: results.folders[digest] for digest in sorted(records) if records[digest]["kind"] in SETS}

    @functools.cache
    def keys_of(digest: str) -> dict[int, str]:
        table = frame.problem_keys(folders[digest])
        return dict(zip(table["index"].tolist(), table["key"], strict=True))

    trained = {digest for of_arm in spec.trained_sets.values() for digest in of_arm}
    against = [digest for digest in folders if (digest in trained if trained else digest not in tests)]
    rows = {digest: _set_rows(digest, folders, keys_of) for digest in sorted(tests & folders.keys())}
    shared = {digest: np.zeros(len(own.op), bool) for digest, own in rows.items()}
    variants = {digest: np.zeros(len(own.op), bool) for digest, own in rows.items()}
    tested = {key for own in rows.values() for column in (own.key, own.root) for key in column}
    asked = {origin for own in rows.values() for origin in own.origin}
    for digest in against if rows else []:  # one at a time: a corpus in shards has more keys than fit in memory
        other = _set_rows(digest, folders, keys_of)
        keys = list(tested.intersection(other.key) | tested.intersection(other.root))
        origins = list(asked.intersection(other.origin))
        for test, own in rows.items():  # of what all tests share with the set, mostly nothing: bases have sets of their own
            shared[test] |= own.key.isin(keys) | own.root.isin(keys)
            variants[test] |= own.origin.isin(origins)
    found = []
    for digest, own in rows.items():
        masks = (own.key.duplicated(), shared[digest], variants[digest])
        repeats, common, kin = (dict(sorted(Counter(own.op[mask].tolist()).items())) for mask in masks)
        found.append(Overlap(digest, len(own.op), repeats, common, kin, against))
    return found


def _set_rows(digest: str, folders: Mapping[str, Path], keys_of: Callable[[str], dict[int, str]]) -> _Rows:
    """The rows of a problem set; `keys_of`: structural keys of a set by index. A row without an origin was first made in this
    very set; where the set of an origin is not here, the row's own key stands for that of its root."""
    table = frame.problem_keys(folders[digest])
    origins, roots = [], []
    for index, key, origin in zip(table["index"].tolist(), table["key"], table["origin"], strict=True):
        first, _, place = origin.partition(":")
        origins.append(origin or f"{digest}:{index}")
        roots.append(keys_of(first).get(int(place), key) if first in folders else key)
    return _Rows(table["op"], table["key"], pd.Series(origins), pd.Series(roots))


# What the specs of problem sets say of their rows before these exist: bands, and ops where the set is generated.


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
        labels = [step.get("bands") for step in spec.get("steps", [])]  # bands that steps put rows into
        named = [str(band) for label in labels if isinstance(label, (dict, list)) for band in label]
        return {band: [] for band in [*(band for source in sources for band in _planned_bands(source, stages)), *named]}
    if stage["kind"] == "dataset":
        return {spec["band"]: []} if "band" in spec else {}
    if stage["kind"] == "generate":
        return {band: [] for band in _planned_bands(stage["deps"].get("data.0", ""), stages)}
    known = {band: sorted(int(op) for op in ops) for band, ops in spec.get("bands", {}).items()}
    return {**known, **{band: [] for band in spec.get("calibrated", {})}}
