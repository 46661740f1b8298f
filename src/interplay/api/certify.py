"""Random segments of a study's stages, made again on this machine and compared with what is there, and a certificate of it.

A segment is a training run from one listed state to the next (`run.segment_steps`), a shard of an evaluation, or any other stage
as a whole. Which are drawn depends on the seed and on the records: no one who changes a result afterwards keeps the draw."""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import torch

from interplay.api import single
from interplay.core import artifact, execution, metrics, model
from interplay.evaluate import sampling
from interplay.kinds import stages, table
from interplay.optim import distributed
from interplay.report.write import answers
from interplay.results import check, payloads
from interplay.study.plan import Plan, Stage

PROVEN_SHARE = 0.95
"""Probability with which a certificate names the share of forged segments that it would have found."""
CERTIFIED = "certified"
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
"""Environment variables that hold libraries to fewer instructions than the processor has."""


class Damage(NamedTuple):
    """What was found without training."""

    found: list[payloads.Damage]
    files: int
    size: int
    """Bytes of the files that were read."""


def find_damage(folders: Sequence[Path], results: Path) -> Damage:
    """Files and records that are not as recorded, and what contradicts itself in stages of which all is."""
    checked = [payloads.of_record(folder) for folder in folders]
    files = [file for listed, _ in checked for file in listed]
    damage = [wrong for _, found in checked for wrong in found]
    damage += payloads.find_damage(files, metrics.Progress(len(files), "files").update)
    broken = {wrong.stage for wrong in damage}
    damage += [wrong for folder in folders if folder not in broken for wrong in contradictions(folder, results, broken)]
    return Damage(damage, len(files), sum(file.size for file in files))


def contradictions(out: Path, results: Path, broken: Set[Path] = frozenset()) -> Iterator[payloads.Damage]:
    """Without training: what in a finished stage, whose files are as recorded, does not follow from its other files and from its
    inputs, and other contents of its digest. Of a stage whose inputs are not here, or are `broken`, the latter alone."""
    yield from (payloads.Damage(out, line) for line in stages.other_contents(results, out))
    record, inputs = artifact.record(out), dict[str, Path]()
    for role, ref in record["deps"].items():
        digest, step = artifact.split_ref(ref)
        found = next((path.parent for path in results.glob(f"*/{digest}/record.json")), None)
        if found is None or found in broken:
            return
        inputs[role] = artifact.at_step(found, step)
    if table.makes(out.parent.name) != "report":
        yield from (payloads.Damage(out, line) for line in check.contradictions(out, inputs))
        return
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for line in answers.differing_answers(record["spec"], inputs, out, Path(scratch)):
                yield payloads.Damage(out, line)
    except Exception as error:  # altered files may break any reader
        yield payloads.Damage(out, check.not_checked(out, error))


class Segment(NamedTuple):
    """A part of a finished stage that can be made again by itself."""

    digest: str
    kind: str
    label: str
    record: str
    """sha256 of the stage's record."""
    first: int
    """Steps or problems before it; 0: it starts where the stage does."""
    last: int
    """Steps or problems up to its end; 0: it ends where the stage does."""
    start: str
    """sha256 of the training state that it starts from; empty at the start of a stage, and where there is none."""
    end: str

    def name(self) -> str:
        """In words."""
        unit = "problems" if table.makes(self.kind) == "samples" else "steps"
        where = f", {unit} {self.first + 1} to {self.last or 'the last'}" if self.first or self.last else ""
        return f"{self.kind} {self.digest} ({self.label}){where}"


def study_segments(plan: Plan, results: Path) -> tuple[list[Segment], int]:
    """All segments of the finished stages, and the number of unfinished ones. A report is no segment, since a check without
    training makes all of it again, nor is what came from outside, whose digest is that of its content. Raises UserError where
    files of a finished stage are not here."""
    found, unfinished = list[Segment](), 0
    for stage in plan.stages.values():
        row, out = table.KINDS[stage.kind], artifact.folder(results, stage.kind, stage.digest)
        if not artifact.done(out):
            unfinished += 1
        elif not row.reads_light and "sha256" not in row.spec.model_fields:
            if absent := artifact.absent(out):
                raise model.UserError(
                    f"{out / absent[0]}: not here; `interplay store pull {plan.study}` gets what the remote has"
                )
            found += _segments(stage, out)
    return found, unfinished


def _segments(stage: Stage, out: Path) -> list[Segment]:
    states = [(0, ""), *((int(one["step"]), str(one["sha256"])) for one in distributed.listed_segments(out)), (0, "")]
    if table.makes(stage.kind) == "samples":
        problems = int(artifact.record(out)["metrics"]["n_prompts"])
        size = sampling.shard_size(int(stage.as_json()["spec"]["num_samples"]), _run_block(out).engine_batch)
        states = [(start, "") for start in range(0, problems, size)] + [(0, "")]
    known = (stage.digest, stage.kind, stage.label, artifact.checksum(out / "record.json"))
    return [Segment(*known, first, last, start, end) for (first, start), (last, end) in itertools.pairwise(states)]


def _run_block(out: Path) -> execution.Run:
    """As the stage was made with; the defaults where only its record came here."""
    return execution.Run(**(artifact.read_json(out / "stage.json")["run"] if (out / "stage.json").exists() else {}))


def draw(segments: Sequence[Segment], count: int, seed: int) -> list[Segment]:
    """`count` different segments, or all where there are fewer: the first by a checksum of the seed, of all segments with the
    checksums of their records and states, and of their own name."""
    whole = repr([seed, *map(tuple, segments)])
    return sorted(segments, key=lambda one: hashlib.sha256(f"{whole} {one.digest} {one.first}".encode()).digest())[:count]


def found_share(count: int, total: int) -> float:
    """The share of forged segments of which `count` different ones of `total` hold one with PROVEN_SHARE; 0: they are all."""
    return 0.0 if count >= total else round(1 - (1 - PROVEN_SHARE) ** (1 / count), 4)


class Checked(NamedTuple):
    """A segment that was made again."""

    segment: Segment
    compared: list[str]
    """Files, and `metrics`, whose content was compared."""
    difference: str
    """The first one; empty where all agrees."""
    seconds: float


Remake = Callable[[Segment], tuple[list[str], str]]
"""Segment -> what was compared, and the first difference."""


def check_segments(chosen: Sequence[Segment], remake: Remake, done: Callable[[Checked], None]) -> list[Checked]:
    """Make each again; `done` is called after each."""
    found = []
    for segment in chosen:
        started = time.monotonic()
        compared, difference = remake(segment)
        found.append(Checked(segment, compared, difference, round(time.monotonic() - started, 1)))
        done(found[-1])
    return found


# -- one segment again -------------------------------------------------------------------------------------------------


def remake_segment(segment: Segment, results: Path) -> tuple[list[str], str]:
    """Make a segment again in a temporary folder, in a process of its own: what was compared, and the first difference."""
    known = artifact.folder(results, segment.kind, segment.digest)
    with tempfile.TemporaryDirectory(prefix="interplay-verify-") as scratch:
        out = single.prepare_scratch(_described(known), results, Path(scratch))
        _put_start(segment, known, out)
        if why := _run_until(segment, out):
            return [], f"was not made again: {why}"
        return _compare_state(segment, known, out) if _is_within(segment) else _compare_stage(known, out)


def _is_within(segment: Segment) -> bool:
    """Whether it ends at a training state, before the end of its stage."""
    return bool(segment.last) and table.makes(segment.kind) != "samples"


def _described(known: Path) -> dict[str, Any]:
    """The stage as it was planned, to be made alone."""
    file = known / "stage.json"
    found = dict(artifact.read_json(file if file.exists() else known / "record.json"))
    found["run"] = {key: value for key, value in found.get("run", {}).items() if key != "stack"}
    return {key: value for key, value in found.items() if key not in ("peers", "metrics", "files", "numerics")}


def _put_start(segment: Segment, known: Path, out: Path) -> None:
    """What the segment starts from, where the stage had it on its way: the training state with all lines and models until then,
    or the samples of the other shards."""
    if table.makes(segment.kind) == "samples":
        _put_other_shards(segment, known, out)
        return
    state = known / distributed.SEGMENTS / str(segment.first)
    if not segment.first or not state.exists():  # without the state its run is made again from the start
        return
    shutil.copytree(state, out / "resume")
    shutil.copyfile(known / "metrics.jsonl", out / "metrics.jsonl")  # lines of later steps are dropped
    for step in artifact.kept_steps(known):
        if step <= segment.first:
            shutil.copytree(artifact.at_step(known, step), out / "checkpoints" / str(step))


def _put_other_shards(segment: Segment, known: Path, out: Path) -> None:
    counts, samples = artifact.record(known)["metrics"], pq.read_table(known / "samples.parquet")
    each, problems = int(counts["n_samples"]), int(counts["n_prompts"])
    for shard in (range(segment.first), range(segment.last or problems, problems)):
        if shard:
            rows = samples.slice(shard.start * each, len(shard) * each)
            distributed.write_shard(out / "resume" / "shards", shard, rows)


def _run_until(segment: Segment, out: Path) -> str:
    """Run the stage to the end of the segment; why that failed, or an empty text."""
    stop = {execution.STOP_STEP: str(segment.last)} if _is_within(segment) else {}
    env = {key: value for key, value in os.environ.items() if key != execution.STOP_STEP} | stop
    command = [sys.executable, "-m", "interplay.run.stage", "run", segment.digest, "--results", str(out.parent.parent)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode == (execution.EXIT if stop else 0):
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1].removeprefix("interplay: ")


def _compare_stage(known: Path, out: Path) -> tuple[list[str], str]:
    """All files of a stage, the metrics of its record, and its final training state where it has one."""
    before, now = artifact.record(known), artifact.record(out)
    names = list(dict.fromkeys([*before["files"], *now["files"]]))
    state = [str(path.relative_to(known)) for path in sorted((known / "state").rglob("*")) if path.is_file()]
    if where := _first([*names, *(name for name in state if (out / "state").exists())], known, out):
        return [*names, *state], where
    changed = stages.leaf_differences(before["metrics"], now["metrics"])
    return [*names, *state, "metrics"], next((f"metrics, {key}: {a!r} -> {b!r}" for key, (a, b) in changed.items()), "")


def _compare_state(segment: Segment, known: Path, out: Path) -> tuple[list[str], str]:
    """The training state at the end of a segment, and the lines and models of its steps."""
    listed, made = ({int(one["step"]): str(one["sha256"]) for one in distributed.listed_segments(of)} for of in (known, out))
    steps = [step for step in listed if segment.first < step <= segment.last]
    names = [f"{distributed.SEGMENTS}/{step}" for step in steps]
    for step, folder in zip(steps, names, strict=True):
        files = [path.relative_to(known) for path in sorted((known / folder).rglob("*")) if path.is_file()]
        tensors = [str(path) for path in files if path.suffix == ".safetensors" or path.parts[-2] == "steps"]
        if where := _first(tensors, known, out):
            return names, where
        if listed[step] != made.get(step):
            return names, f"{folder}: sha256 {listed[step][:12]} -> {made.get(step, 'none')[:12]}"
    lines = [[line for line in metrics.read(folder) if segment.first < line["step"] <= segment.last] for folder in (known, out)]
    if where := check.line_difference(*lines):
        return [*names, "metrics.jsonl"], f"metrics.jsonl, {where}"
    models = [name for name in artifact.record(known)["files"] if _step_of(name) in range(segment.first + 1, segment.last + 1)]
    return [*names, "metrics.jsonl", *models], _first(models, known, out)


def _step_of(name: str) -> int:
    """Of a file of a kept checkpoint; -1 of any other."""
    return int(name.split("/")[1]) if name.startswith("checkpoints/") else -1


def _first(names: Sequence[str], known: Path, out: Path) -> str:
    return next((f"{name}: {where}" for name in names if (where := check.first_difference(known / name, out / name))), "")


# -- the certificate ---------------------------------------------------------------------------------------------------


def certificate(plan: Plan, segments: Sequence[Segment], checked: Sequence[Checked], seed: int, results: Path) -> dict[str, Any]:
    """What was checked, on which machine, and how it ended, as JSON."""
    count, total = len(checked), len(segments)
    return {
        "study": plan.study,
        "scale": plan.scale,
        "lock": _lock(plan),
        "segments": total,
        "drawn": count,
        "seed": seed,
        "share_found": {"probability": PROVEN_SHARE, "share": found_share(count, total)},
        "checked": [_entry(one, results) for one in checked],
        "result": CERTIFIED if not any(one.difference for one in checked) else "differs",
        "machine": machine(),
        "versions": metrics.versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _lock(plan: Plan) -> str:
    return hashlib.sha256(plan.lock().encode()).hexdigest()


def _entry(one: Checked, results: Path) -> dict[str, Any]:
    out = artifact.folder(results, one.segment.kind, one.segment.digest)
    made_on = metrics.read_telemetry(out).get("environment", {}).get("cpu", "")
    numerics = stages.numerics_class(artifact.record(out)).name
    done = {"compared": one.compared, "difference": one.difference, "seconds": one.seconds}
    return {**one.segment._asdict(), **done, "numerics": numerics, "made_on": made_on}


def machine() -> dict[str, Any]:
    """The processor with its instructions, and what libraries may use of them."""
    lines = metrics.CPUS.read_text().splitlines() if metrics.CPUS.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    vector = sorted(flag for flag in flags if flag.startswith(("avx", "amx", "sse", "fma", "f16c", "sve", "asimd")))
    environment = {key: value for key, value in metrics.current_environment().items() if key in ("cpu", "gpu")}
    limits = {name: os.environ[name] for name in LIMITS if name in os.environ}
    return {**environment, "flags": vector, "used": torch.backends.cpu.get_cpu_capability(), "limits": limits}


def summary(found: dict[str, Any], file: Path | None) -> str:
    """A certificate in a few lines."""
    drawn, total = found["drawn"], found["segments"]
    share = found_share(drawn, total)  # what the file says of it is not believed
    said = f"a forged share of {share:.1%} or more would have been found with {PROVEN_SHARE:.0%}" if share else "these are all"
    classes = sorted({one["numerics"] for one in found["checked"]})
    lines = [
        f"{found['study']} at scale {found['scale']}: {found['result']}",
        f"{drawn} of {model.plural(total, 'segment')} made again; {said}",
        f"seed {found['seed']}, numerics {'; '.join(classes)}, on {found['machine'].get('cpu', 'an unnamed processor')}",
    ]
    return "\n".join([*lines, *([f"written to {file}"] if file else [])])


def contradicted(found: dict[str, Any], plan: Plan, results: Path) -> list[str]:
    """What in a certificate does not agree with the plan and the results here, a line each; [] where it holds."""
    if found["lock"] != _lock(plan):
        return [f"lock: the plan of {plan.study} at scale {plan.scale} is another one now"]
    segments, _ = study_segments(plan, results)
    chosen = [one._asdict() for one in draw(segments, found["drawn"], found["seed"])]
    lines = [] if len(segments) == found["segments"] else [f"segments: {found['segments']}, here are {len(segments)}"]
    for one in found["checked"]:
        name = Segment(*(one[key] for key in Segment._fields)).name()
        here = [other for other in segments if (other.digest, other.first) == (one["digest"], one["first"])]
        unlike = [key for key in Segment._fields if here and getattr(here[0], key) != one[key]]
        if not here or unlike:
            lines.append(f"{name}: {f'{unlike[0]} is another one here' if here else 'not here'}")
    listed = [{key: one[key] for key in Segment._fields} for one in found["checked"]]
    if not lines and listed != chosen:
        lines.append(f"seed {found['seed']} draws other segments of these results")
    differing = [one for one in found["checked"] if one["difference"]]
    if (found["result"] == CERTIFIED) == bool(differing):
        lines.append(f"result: {found['result']}, but {model.plural(len(differing), 'segment')} differed")
    lines += [f"{one['kind']} {one['digest']}: differed when it was made again; {one['difference']}" for one in differing]
    return lines


def read_certificate(file: Path) -> dict[str, Any]:
    """Raises UserError where the file is none."""
    found = artifact.read_json(file)
    texts, counts = dict.fromkeys(("study", "scale", "lock", "result"), str), dict.fromkeys(("segments", "drawn", "seed"), int)
    wanted, keys = {**texts, **counts, "checked": list, "machine": dict}, [*Segment._fields, "difference", "numerics"]
    if not isinstance(found, dict) or (wrong := [key for key, kind in wanted.items() if not isinstance(found.get(key), kind)]):
        raise model.UserError(f"{file}: not a certificate{f'; {wrong[0]} is missing' if isinstance(found, dict) else ''}")
    if not all(isinstance(one, dict) and set(keys) <= one.keys() for one in found["checked"]):
        raise model.UserError(f"{file}: not a certificate; an entry of checked lacks one of {', '.join(keys)}")
    if not 0 < found["drawn"] == len(found["checked"]):
        raise model.UserError(f"{file}: not a certificate; drawn = {found['drawn']}, and checked has {len(found['checked'])}")
    return found
