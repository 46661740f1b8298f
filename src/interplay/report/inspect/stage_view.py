"""One stage for people: its card (what it is, its dependencies and dependants, its state, what it measured, cost and left), and
its completions: what the model was asked, what it wrote, how that was judged, and what was right, as text, and in pages that are
filtered by error class and step, each distinct completion once."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from interplay.core import artifact, execution
from interplay.core.metrics import aligned, clock, pairs, quantity, read_telemetry, short, size
from interplay.core.model import UserError, escape_control, nearest_name
from interplay.data.audit import kept_findings
from interplay.data.foreign import read_foreign
from interplay.data.sets import FILES, Choice, find_groups, open_kept, read_problems, rows_at
from interplay.data.trajectory import SEGMENTS, gold_text, shown_text, write_trajectories
from interplay.kinds.stages import flat_leaves, non_default_leaves, numerics_class, other_contents
from interplay.kinds.table import makes

Row = dict[str, Any]

SHOWN = ("step", "reward", "strict", "answer", "score", "error", "advantage", "truncated", "length")


def gold_rows(folder: Path, rows: Iterable[Row]) -> dict[tuple[int, int], Row]:
    """The problems of rows by (set, index), as far as the data that the artifact was made from are on disk."""
    if not (folder / "stage.json").exists():  # of another trainer
        return {}
    wanted = {row["index"] for row in rows}
    deps = artifact.read_json(folder / "stage.json")["deps"]
    roles = {role: 0 if role == "data" else int(role.removeprefix("data.")) for role in deps if role.split(".")[0] == "data"}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for role, number in roles.items():
        for place in folder.parent.parent.glob(f"*/{deps[role]}"):
            found |= {(number, index): row for index, row in read_problems(place, wanted).items()}
    return found


def rollout_block(row: dict[str, Any], problem: dict[str, Any]) -> str:
    """One rollout as lines of text."""
    facts = [
        f"{name} {row[name]:.4g}" if isinstance(row[name], float) else f"{name} {row[name]}"
        for name in SHOWN
        if row.get(name) is not None
    ]
    wrote, gold = shown_text(row), gold_text(problem.get("solution") or "", row)
    if SEGMENTS in row:
        wrote, gold = (text.replace("\n", "\n         ") for text in (wrote, gold))
    texts: dict[str, Any] = {"prompt": row.get("prompt") or problem.get("prompt"), "wrote": wrote, "gold": gold}
    return "\n".join(
        [", ".join([f"problem {row['index']}", *facts]), *(f"  {name:7}{text}" for name, text in texts.items() if text)]
    )


# -- as text -----------------------------------------------------------------------------------------------------------


def show_rollouts(folder: Path, failed: bool | None, limit: int, step: int | None = None, error: str | None = None) -> str:
    """The last `limit` distinct rollouts of an rl artifact, or of another trainer's files (data.foreign.read_foreign), of a
    `step` or of all, or the first of an evaluate or generate artifact spread over its problems; `failed`: only those not strictly
    right (True), only those that are (False), or all (None); `error`: only those of a class.

    Raises UserError when the folder holds neither rollouts nor samples, or not that step or class."""
    if (folder / "stage.json").exists() and open_kept(folder) is None:
        raise UserError(f"{folder}: no {' or '.join(FILES)}; give the digest of a finished rl, evaluate or generate stage")
    with open_kept(folder) or _of_other_trainer(folder) as file:
        found = find_groups(file, Choice(error, step, failed=failed))
        known = found.steps
        if step is not None and not known:
            raise UserError(f"--step = {step}: {folder} has no steps; leave it out, or give the digest of an rl stage")
        if step is not None and step not in known:
            has = f"it has {len(known)} steps, {known[0]} to {known[-1]}"
            raise UserError(f"--step = {step}: {folder} keeps no rollouts of it; {has}")
        if error is not None and error not in found.errors:
            classes = [name for name, _ in found.errors.most_common()]
            raise UserError(f"--error = {error}: no kept completion is of that class{nearest_name(error, classes)}")
        spread = max(1, len(found.first) // max(limit, 1))
        picked = slice(-limit, None) if known else slice(0, spread * limit, spread)
        rows, counts = rows_at(file, found.first[picked]), found.size[picked]
        if not rows:
            among = found.errors.total() if error is None else found.errors[error]
            what = "" if failed is None else " failed" if failed else " passed"
            return f"none of {among} kept completions{what}{'' if step is None else f' at step {step}'}\n"
    problems = gold_rows(folder, rows)
    return "\n\n".join(_block(row, int(count), problems) for row, count in zip(rows, counts, strict=True)) + "\n"


def _block(row: Row, count: int, problems: dict[tuple[int, int], Row]) -> str:
    head, _, rest = rollout_block(row, problems.get((row.get("set", 0), row["index"]), {})).partition("\n")
    return f"{head}{f', {count} times the same' if count > 1 else ''}\n{rest}"


# -- in pages ----------------------------------------------------------------------------------------------------------

PER_PAGE = 20
LAST_STEPS = 50
"""Steps of a running RL stage whose completions are read."""
WORDS = re.compile(r"\w+|\s+|[^\w\s]")
LONGEST = 4000
"""Characters of a text that is compared with the reference solution word by word; comparing takes its square."""


def browse_rollouts(folder: Path, choice: Choice) -> dict[str, Any]:
    """One page of the completions of an artifact: how many there are by error class and by step, and of the chosen ones the
    problem, the reference solution, and the parts of both texts in which they differ. Of an RL stage that runs those of its last
    steps. Raises UserError without completions."""
    with open_kept(folder) or _of_last_steps(folder) as file:
        found = find_groups(file, choice)
        shown = slice(choice.page * PER_PAGE, (choice.page + 1) * PER_PAGE)
        rows = rows_at(file, found.first[shown])
    problems = gold_rows(folder, rows)
    return {
        "errors": dict(found.errors.most_common()),
        "steps": found.steps,
        "total": int(found.size.sum()),
        "distinct": len(found.first),
        "page": choice.page,
        "pages": -(-len(found.first) // PER_PAGE),
        "rows": [_rollout_json(row, int(count), problems) for row, count in zip(rows, found.size[shown], strict=True)],
    }


def _of_other_trainer(path: Path) -> parquet.ParquetFile:
    """Rollouts of another trainer, as a file in memory in the schema of this one."""
    sink = pa.BufferOutputStream()
    write_trajectories(sink, read_foreign(path))
    return parquet.ParquetFile(pa.BufferReader(sink.getvalue()))


def _of_last_steps(folder: Path) -> parquet.ParquetFile:
    """What the last steps of an RL stage that runs left, as a file in memory."""
    files = sorted((folder / "resume" / "steps").glob("*.json"), key=lambda file: int(file.stem))[-LAST_STEPS:]
    found = [row for file in files for row in artifact.read_json(file)["rollouts"]]
    if not found:
        raise UserError("no completions yet: evaluate and generate write them at their end, RL with each step")
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(found), sink)
    return parquet.ParquetFile(pa.BufferReader(sink.getvalue()))


def _rollout_json(row: Row, count: int, problems: dict[tuple[int, int], Row]) -> dict[str, Any]:
    problem = problems.get((row.get("set", 0), row["index"]), {})
    # Escaped, since marks that turn the direction of writing would move what is next to them.
    texts = shown_text(row), gold_text(problem.get("solution") or "", row)
    wrote, gold = text_differences(*map(escape_control, texts))
    facts = {name: row[name] for name in SHOWN if name in row and name not in ("error", "strict")}
    return {
        "problem": row["index"],
        "prompt": escape_control(row.get("prompt") or problem.get("prompt") or ""),
        "error": row["error"],
        "count": count,
        "facts": {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in facts.items()},
        "wrote": wrote,
        "gold": gold,
    }


def text_differences(one: str, other: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Both texts in parts: (text, whether the other text lacks it)."""
    if not other or len(one) + len(other) > LONGEST:
        return [(one, False)], [(other, False)]
    words, against = WORDS.findall(one), WORDS.findall(other)
    here: list[tuple[str, bool]] = []
    there: list[tuple[str, bool]] = []
    for kind, i, k, j, m in difflib.SequenceMatcher(None, words, against, autojunk=False).get_opcodes():
        here += [("".join(words[i:k]), kind != "equal")] if k > i else []
        there += [("".join(against[j:m]), kind != "equal")] if m > j else []
    return here, there


MOST = 16
"""Dependants that are listed."""
TAIL = 12
"""Lines of a log."""
IN_FIRST_LINE = {"seconds_wall", "seconds_cpu", "peak_memory_mb", "peak_processes", "started", "threads", "host", "python"}
IN_FIRST_LINE |= {"attempts"}
"""Keys of telemetry that its first line says in words."""

Stages = Mapping[str, Mapping[str, Any]]


def stage_card(digest: str, step: int | None, stages: Stages, locks: list[str], results: Path, logs: Path, full: bool) -> str:
    """Everything about the stage. `stages`: all that are known, by digest; `locks` contain it; `full`: the whole spec.

    Raises UserError when `step` is not a checkpoint that the finished stage keeps."""
    stage = stages[digest]
    out = artifact.folder(results, stage["kind"], digest)
    now = artifact.state_of(out)
    blocks = [_head(stage, now, locks, step), _spec(stage, full), *_neighbours(digest, stages, results)]
    record = artifact.record(out) if now.name == "done" else None
    if record:
        blocks.append(["metrics", *_metrics(stage["kind"], record["metrics"])])
        if makes(stage["kind"]) == "audit" and (out / "audit.json").exists():
            blocks.append(["findings", *(f"  {line}" for line in kept_findings(out))])
        numerics = numerics_class(record)
        blocks.append([f"numerics  {numerics.name}: {numerics.holds}", *other_contents(results, out)])
    if known := read_telemetry(out):
        blocks.append(["telemetry", *telemetry_lines(known)])
    if record:
        where = artifact.at_step(out, step)
        blocks.append(_files(out, record["files"], "" if step is None else f"{where.relative_to(out)}/"))
    log = logs / stage["kind"] / f"{digest}.log"
    if log.exists():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        tail = [f"  {line[:200]}" for line in lines[-TAIL:]] if now.name not in ("done", "new") else []
        blocks.append([f"log {log}", *tail])
    return "\n\n".join("\n".join(block) for block in blocks if len(block)) + "\n"


def _head(stage: Mapping[str, Any], now: artifact.State, locks: list[str], step: int | None) -> list[str]:
    at = "" if step is None else f"@{step}"
    versions = stage.get("versions", {})
    raised = [f"{path or 'the kind'} {number}" for path, number in versions.items() if number != 1]
    rows = [
        ("state", f"{now.name}{f': {now.detail}' if now.detail else ''}"),
        ("plans", ", ".join(locks) or "in no committed lock"),
        ("versions", f"1 throughout, but {', '.join(raised)}" if raised else "1 throughout"),
    ]
    usual = execution.Run().model_dump()
    run = {key: value for key, value in stage.get("run", {}).items() if usual.get(key) != value}
    if run:
        rows.append(("run", ", ".join(f"{key} {short(value)}" for key, value in run.items())))
    return [f"{stage['kind']} {stage['digest']}{at}  {stage.get('label', '')}".rstrip(), *aligned(rows)]


def _spec(stage: Mapping[str, Any], full: bool) -> list[str]:
    every, said = flat_leaves(stage["spec"]), non_default_leaves(stage["kind"], stage["spec"])
    if makes(stage["kind"]) == "report" and not full:
        return [f"spec: question, arms, tables, figures and claims of the study; {len(every)} values (--full lists them)"]
    usual = {key: value for key, value in every.items() if key not in said}
    more = f" ({len(usual)} values do not; --full lists them)" if usual and not full else ""
    rest = ["spec: at the schema's defaults", *pairs(usual)] if usual and full else []
    return [f"spec: what differs from the schema's defaults{more}", *(pairs(said) or ["  nothing"]), *rest]


def _neighbours(digest: str, stages: Stages, results: Path) -> list[list[str]]:
    def row(role: str, ref: str) -> tuple[str, ...]:
        other = artifact.ref_digest(ref)
        known = stages.get(other)
        if known is None:
            return (ref, role, "", "", "in no lock and not in results/")
        now = artifact.state_of(artifact.folder(results, known["kind"], other)).name
        return (ref, role, known["kind"], known.get("label", ""), now)

    def block(head: str, rows: list[tuple[str, ...]]) -> list[str]:
        return [head, *aligned(rows[:MOST]), *([f"  and {len(rows) - MOST} more"] if len(rows) > MOST else [])]

    needs = [row(role if role != ref else "input", ref) for role, ref in stages[digest]["deps"].items()]
    users = [
        (other, role, ref)
        for other, stage in stages.items()
        for role, ref in stage["deps"].items()
        if artifact.ref_digest(ref) == digest
    ]
    needed = [row("input" if role == ref else role + ref[len(digest) :], other) for other, role, ref in users]
    return [*([block("needs", needs)] if needs else []), block("needed by", needed) if needed else ["needed by", "  nothing"]]


def _metrics(kind: str, metrics: Mapping[str, Any]) -> list[str]:
    if makes(kind) == "samples":
        return score_table(metrics)
    if makes(kind) == "report":
        verdicts = [(claim["verdict"], claim["says"]) for claim in metrics.get("claims", [])]
        cells = sum(len(table) for table in metrics.get("tables", {}).values())
        return [*aligned(verdicts), f"  {cells} cells in the tables {', '.join(metrics.get('tables', {}))}"]
    rows: list[tuple[str, ...]] = []
    if isinstance(metrics.get("steps"), list):  # of a curation
        rows = [(f"step {number}", said) for number, said in enumerate(curation_lines(metrics["steps"]))]
        metrics = {key: value for key, value in metrics.items() if key != "steps"}
    for key, value in metrics.items():
        if key.endswith("_first") and f"{key[:-6]}_last" in metrics:
            rows.append((key[:-6], f"{short(value)} -> {short(metrics[f'{key[:-6]}_last'])}"))
        elif key.endswith("_last") and f"{key[:-5]}_first" in metrics:
            continue
        elif isinstance(value, dict) and all(not isinstance(item, dict) for item in value.values()):
            named = sorted(value.items(), key=lambda item: (len(item[0]), item[0]) if item[0].isdecimal() else (0, ""))
            rows.append((key, ", ".join(f"{name}: {short(item)}" for name, item in named) or "none"))
        else:
            rows += [(leaf, short(item)) for leaf, item in flat_leaves({key: value}).items()]
    return aligned(rows)


def curation_lines(steps: list[dict[str, Any]]) -> list[str]:
    """What each step of a curate stage did: `pass_rate: 400 -> 130 rows (too_hard 210, too_easy 60)`."""
    said = []
    for step in steps:
        counts = ", ".join(f"{name} {short(item)}" for name, item in step.items() if name not in ("step", "given", "left"))
        said.append(f"{step['step']}: {step['given']} -> {step['left']} rows{f' ({counts})' if counts else ''}")
    return said


def score_table(metrics: Mapping[str, Any]) -> list[str]:
    """An evaluation's record as a table in percent, one row for all problems and one per band and op."""
    largest = metrics["n_samples"]
    ks = sorted({1, max(k for k in (1 << i for i in range(20)) if k <= largest)})
    columns = [f"{kind}_pass@{k}" for k in ks for kind in ("strict", "answer")] + ["prior_pass@1"]
    rows = [["", "prompts", *(name.replace("_pass", "") for name in columns), "truncated", "tokens", "errors"]]
    cells = {
        "all": metrics["all"],
        **metrics.get("band", {}),
        **{f"op {op}": metrics["op"][op] for op in sorted(metrics.get("op", {}), key=int)},
    }
    for name, cell in cells.items():
        wrong = sorted(((share, name) for name, share in cell["errors"].items() if name != "none"), reverse=True)
        errors = ", ".join(f"{name} {100 * share:.0f}" for share, name in wrong[:3] if share >= 0.005)
        numbers = [f"{100 * cell[key]:.1f}" if key in cell else "" for key in [*columns, "truncated"]]
        rows.append([name, str(cell["n"]), *numbers, f"{cell['length']:.0f}", errors])
    return aligned(rows, right=range(1, len(rows[0]) - 1))


def telemetry_lines(known: Mapping[str, Any]) -> list[str]:
    """When, where, how long, how often; then what else was measured."""
    attempts = known.get("attempts")
    said = [
        f"{str(known['started']).replace('T', ' ')[:16]} UTC" if "started" in known else "",
        f"on {known['host']}" if "host" in known else "",
        clock(known["seconds_wall"]) if "seconds_wall" in known else "",
        f"{clock(known['seconds_cpu'])} CPU" if "seconds_cpu" in known else "",
        f"{known['threads']} thread{'' if known['threads'] == 1 else 's'}" if "threads" in known else "",
        f"{known['peak_memory_mb'] / 1024:.2f} GiB" if "peak_memory_mb" in known else "",
        f"{attempts} attempt{'' if attempts == 1 else 's'}" if attempts else "",
    ]
    rest = {key: value for key, value in known.items() if key not in IN_FIRST_LINE}
    figures = ", ".join(f"{key} {_figure(item)}" for key, item in rest.items() if not isinstance(item, (dict, list)))
    return [f"  {line}" for line in (", ".join(filter(None, said)), figures) if line]


def _figure(item: Any) -> str:
    """Without decimals above a hundred."""
    return quantity(round(item) if item >= 100 else item) if isinstance(item, (int, float)) else short(item)


def _files(out: Path, files: Mapping[str, Any], below: str) -> list[str]:
    chosen = {name: entry for name, entry in files.items() if name.startswith(below)}
    rows = []
    for name, (count, _) in sorted(chosen.items()):
        path = out / name
        there = "" if path.exists() and path.stat().st_size == count else "not here" if not path.exists() else "damaged"
        rows.append((name, size(count), there))
    total = size(sum(count for count, _ in chosen.values()))
    return [f"files {out}: {total} in {len(chosen)}", *aligned(rows, right=[1])]
