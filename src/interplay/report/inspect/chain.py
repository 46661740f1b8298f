"""The stages behind a number, from the evaluations down to the data: a paragraph each, and once where seeds or arms share it."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.core.artifact import split_ref
from interplay.core.model import UserError, clock, quantity
from interplay.core.references import is_corpus_role
from interplay.kinds.cost import costs, realised
from interplay.kinds.formulas import Cost
from interplay.kinds.identity import flat_leaves
from interplay.kinds.table import SETS
from interplay.report.draw.collapse import stage_name
from interplay.report.inspect import lineage
from interplay.report.inspect.card import curated
from interplay.report.spec import ReportSpec
from interplay.report.stats import notes
from interplay.report.stats.frame import Results
from interplay.report.stats.provenance import Behind, of_plan
from interplay.report.write import ledger
from interplay.report.write.ledger import Entry
from interplay.report.write.plain import aligned, short

TRAINED = ("rl", "teach", "reward_model", "prefer", "unlearn", "sft", "midtrain", "pretrain", "source")
ORDER = ("evaluate", "select", *TRAINED, "corpus", "curate", "dataset", "problems", "tokenizer")
"""From the number down."""
WIDTH = 120
"""Characters of a line."""

Stages = Mapping[str, Mapping[str, Any]]


def stages_of(spec: ReportSpec, stages: Stages, results: Path, asked: Callable[[str], bool]) -> tuple[list[list[str]], list[str]]:
    """A block of lines for each stage behind the arms of `spec`, and what is not here. `asked`: whether an evaluation is one that
    the number comes from."""
    rows = [row.model_copy(update={"evaluations": {n: d for n, d in row.evaluations.items() if asked(d)}}) for row in spec.arms]
    spec = spec.model_copy(update={"arms": rows})
    shown = [digest for row in rows for digest in row.evaluations.values()]
    chosen = _closure([block for digest in shown for block in spec.blocks_of(digest)], stages)
    known = {digest: stage for digest, stage in stages.items() if digest in chosen}
    behind = of_plan(known, results, notes.missing_reasons(known, results, results.parent / "logs"))
    overlap, absent = _overlaps(spec, behind, results)
    entries = sorted(
        reversed(ledger.entries(spec, behind)), key=lambda entry: ORDER.index(entry.kind) if entry.kind in ORDER else 0
    )
    planned = costs(stages)
    blocks = [_block(entry, behind, overlap, planned, len({row.arm for row in rows}) > 1) for entry in entries]
    gone = [f"{behind.stages[digest].get('label')} [{digest}]: {why}" for digest, why in behind.why.items()]
    return blocks, gone + absent


def _closure(digests: list[str], stages: Stages) -> set[str]:
    """These stages and all that they rest on."""
    found: set[str] = set()
    waiting = list(digests)
    while waiting:
        digest = split_ref(waiting.pop())[0]
        if digest not in found:
            found.add(digest)
            waiting += stages[digest]["deps"].values()
    return found


def _block(entry: Entry, behind: Behind, overlap: dict[str, str], planned: dict[str, Cost], arms: bool) -> list[str]:
    members = [behind.stages[member.digest] for member in entry.members]
    name = entry.name if entry.name != entry.kind else ""
    head = " ".join(filter(None, [entry.kind, name, f"(of {', '.join(entry.arms)})" if arms else ""]))
    rows = []
    for member in entry.members[: ledger.MOST_MEMBERS]:
        known = behind.telemetry.get(member.digest, {})
        hours = clock(known["seconds_wall"]) if "seconds_wall" in known else ""
        rows.append([member.digest, member.seeds, member.state, hours, str(known.get("host", "")), member.attempts])
    facts = {"settings": _settings(entry, members[0]), "spent": _spent(members, planned), "from": _inputs(members, behind)}
    if entry.kind == "problems":
        facts["bands"] = _bands(members[0]["spec"])
    if entry.kind == "curate":
        facts["steps"] = "; ".join(curated(next((stage["metrics"]["steps"] for stage in members if "metrics" in stage), [])))
    if entry.kind in SETS:
        facts["overlap"] = overlap.get(entry.members[0].digest, "")
    commits = {str(behind.telemetry.get(stage["digest"], {}).get("commit", "")) for stage in members}
    facts["commit"] = ", ".join(sorted(commits - {""}))
    more = len(entry.members) - len(rows)
    listed = aligned(_without_empty(rows)) + ([f"    and {more} more"] if more else [])
    return [head, *listed, *(line for key, said in facts.items() if said for line in _wrapped(key, said))]


def _wrapped(key: str, said: str) -> list[str]:
    return textwrap.wrap(said, WIDTH, initial_indent=f"    {key:10}", subsequent_indent=" " * 14, break_long_words=False)


def _spent(members: list[dict[str, Any]], planned: dict[str, Cost]) -> str:
    """What was made or spent, seed by seed where that differs."""
    known = [stage for stage in members if "metrics" in stage]
    flops = [realised(stage, planned[stage["digest"]].parameters).flops for stage in known]
    found = {key: [quantity(stage["metrics"][key]) for stage in known if key in stage["metrics"]] for key in ledger.SPENT}
    found["FLOPs"] = [quantity(number) for number in flops if number]
    return ", ".join(f"{key} {' | '.join(each if len(set(each)) > 1 else each[:1])}" for key, each in found.items() if each)


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    """The rows without the columns in which no row has anything."""
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows)]
    return [[row[at] for at in kept] for row in rows]


def _settings(entry: Entry, stage: Mapping[str, Any]) -> str:
    """What the page shows of the kind, and of what the number rests on: engine, precision, verifier and seed."""
    whole = flat_leaves(stage["spec"])
    more = {key: item for key, item in whole.items() if key in ("engine", "dtype") or key.startswith("verify.")}
    seed = {"seed": whole["seed"]} if "seed" in whole and len(entry.members) == 1 else {}
    return _listed({key: short(item) for key, item in {**entry.settings, **more, **seed}.items()})


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {item}" for key, item in values.items())


def _inputs(members: list[dict[str, Any]], behind: Behind) -> str:
    """`init base [f16b531a734c]; data.0 50 % edge [595825e2ff9f]`; one digest per seed where they differ."""
    mix = members[0]["spec"].get("mix", [])
    told = {ref: role for role, ref in ledger.inputs(members[0]["deps"])}
    said = []
    for role in sorted(members[0]["deps"], key=lambda role: (role not in ("model", "init"), role)):
        if members[0]["deps"][role] not in told:
            continue  # a further shard of a corpus
        refs = list(dict.fromkeys(stage["deps"][role] for stage in members))
        number = role.removeprefix("data.")
        share = f" {100 * mix[int(number)]:.4g} %" if number.isdecimal() and len(mix) > 1 else ""
        name = stage_name({"digest": "", **behind.stages[split_ref(refs[0])[0]]})
        role = told[members[0]["deps"][role]] if is_corpus_role(role) else role
        said.append(f"{role}{share} {name if name != role else ''} [{ledger.listed(refs)}]".replace("  ", " "))
    return "; ".join(said)


def _bands(spec: Mapping[str, Any]) -> str:
    """`edge: op 7, 8 (100 %)`."""
    return "; ".join(
        f"{band}: op {', '.join(sorted(ops, key=int))} ({100 * spec['shares'][band]:.4g} %)"
        for band, ops in spec["bands"].items()
    )


def _overlaps(spec: ReportSpec, behind: Behind, results: Path) -> tuple[dict[str, str], list[str]]:
    """Test set -> how many of its structures the other problem sets of the chain share; and the payloads that this lacks."""
    folders = {d: artifact.folder(results, stage["kind"], d) for d, stage in behind.stages.items() if behind.done(d)}
    sets = [digest for digest in folders if behind.stages[digest]["kind"] in SETS]
    absent = [d for d in sets if not any((folders[d] / name).exists() for name in ("keys.parquet", "problems.parquet"))]
    if absent:
        named = ", ".join(f"{behind.stages[digest].get('label')} [{digest}]" for digest in absent)
        return {}, [f"structural overlap: it needs the problems of {named}; `interplay store pull` gets them"]
    try:
        found = lineage.overlaps(Results(spec, {}, {digest: dict(behind.stages[digest]) for digest in folders}, folders))
    except UserError as error:
        return {}, [f"structural overlap: {error}"]
    said = {}
    for item in found:
        shared, repeats = sum(item.shared.values()), sum(item.repeats.values())
        said[item.digest] = (
            f"{shared} of {item.size} structures occur in the {len(item.against)} other problem sets of this chain; "
        )
        said[item.digest] += f"{repeats} repeat within the set"
    return said, []
