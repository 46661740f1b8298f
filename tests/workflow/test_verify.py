"""`interplay verify` over a finished study: planted faults, segments made again, and certificates."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Laboratory
from safetensors.torch import load_file, save_file

from interplay.api import certify
from interplay.core import artifact
from interplay.optim import checkpoint

PLANTED = 200


# -- faults ------------------------------------------------------------------------------------------------------------


def pick(dice: random.Random, results: Path, pattern: str) -> Path:
    return dice.choice(sorted(results.glob(pattern)))


def mend(out: Path, name: str) -> None:
    """The record lists the file as it is now, so that no checksum tells."""
    record = artifact.read_json(out / "record.json")
    record["files"][name] = [(out / name).stat().st_size, artifact.checksum(out / name)]
    artifact.write_json(out / "record.json", record)


def edit_record(out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    record = artifact.read_json(out / "record.json")
    change(record)
    artifact.write_json(out / "record.json", record)
    return out


def altered(dice: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + dice.choice([-1, 1])
    return value + 0.01 if isinstance(value, float) else f"{value}x"


def alter_leaf(dice: random.Random, tree: Any, numbers: bool = False) -> None:
    """One number or word anywhere in JSON data."""
    places: list[tuple[Any, Any]] = []

    def visit(at: Any) -> None:
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            if isinstance(value, (dict, list)):
                visit(value)
            elif isinstance(value, (int, float) if numbers else (int, float, str)):
                places.append((at, key))

    visit(tree)
    at, key = dice.choice(places)
    at[key] = altered(dice, at[key])


def alter_cell(dice: random.Random, file: Path, columns: tuple[str, ...]) -> None:
    table = pq.read_table(file)
    name, row = dice.choice(columns), dice.randrange(len(table))
    values = table[name].to_pylist()
    values[row] = altered(dice, values[row])
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type)), file)


def flip_byte(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "*/*/record.json").parent
    file = out / dice.choice(sorted(artifact.record(out)["files"]))
    data = bytearray(file.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    return out


def alter_checksum(dice: random.Random, results: Path) -> Path:
    def change(record: dict[str, Any]) -> None:
        entry = record["files"][dice.choice(sorted(record["files"]))]
        at = dice.randrange(64)
        entry[1] = entry[1][:at] + format(int(entry[1][at], 16) ^ 1, "x") + entry[1][at + 1 :]

    return edit_record(pick(dice, results, "*/*/record.json").parent, change)


def alter_identity(dice: random.Random, results: Path) -> Path:
    """The spec, a dependency or a version."""
    out = pick(dice, results, "*/*/record.json").parent
    parts = [part for part in ("spec", "deps", "versions") if artifact.record(out)[part]]
    return edit_record(out, lambda record: alter_leaf(dice, record[dice.choice(parts)]))


def forge_completion(dice: random.Random, results: Path) -> Path:
    """The gold solution in place of a wrong completion, or nothing in place of a right one."""
    out = pick(dice, results, "evaluate/*/record.json").parent
    table, data = pq.read_table(out / "samples.parquet"), artifact.record(out)["deps"]["data"]
    gold = pq.read_table(results / "problems" / data / "problems.parquet")["solution"].to_pylist()
    strict, texts = table["strict"].to_pylist(), table["completion"].to_pylist()
    row = dice.randrange(len(texts))
    texts[row] = "" if strict[row] else gold[row // (len(texts) // len(gold))]
    at = table.column_names.index("completion")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(texts)), out / "samples.parquet")
    mend(out, "samples.parquet")
    return out


def forge_verdict_of_sample(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "evaluate/*/record.json").parent
    alter_cell(dice, out / "samples.parquet", ("strict", "answer", "score", "error", "index", "band", "op"))
    mend(out, "samples.parquet")
    return out


def forge_count(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "evaluate/*/record.json").parent
    alter_cell(dice, out / "prompts.parquet", ("strict", "answer", "score", "n", "band"))
    mend(out, "prompts.parquet")
    return out


def forge_metric(dice: random.Random, results: Path) -> Path:
    """A number in the record of an evaluation, of training or of RL."""
    out = pick(dice, results, f"{dice.choice(['evaluate', 'pretrain', 'rl'])}/*/record.json").parent
    return edit_record(out, lambda record: alter_leaf(dice, record["metrics"], numbers=True))


def forge_cell(dice: random.Random, results: Path) -> Path:
    """A number of the report's record."""
    out = pick(dice, results, "report/*/record.json").parent
    return edit_record(out, lambda record: alter_leaf(dice, record["metrics"]["tables"], numbers=True))


def forge_table(dice: random.Random, results: Path) -> Path:
    """A digit in a table of the report."""
    out = pick(dice, results, "report/*/record.json").parent
    file = pick(dice, out, "tables/*")
    text = file.read_text()
    at = dice.choice([found.start() for found in re.finditer(r"\d", text)])
    file.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    mend(out, f"tables/{file.name}")
    return out


def forge_verdict(dice: random.Random, results: Path) -> Path:
    """Of a claim, in claims.json or in the record."""
    out = pick(dice, results, "report/*/record.json").parent
    if dice.random() < 0.5:
        return edit_record(out, lambda record: dice.choice(record["metrics"]["claims"]).update(verdict="supported"))
    claims = artifact.read_json(out / "claims.json")
    dice.choice(claims)["verdict"] = "supported"
    artifact.write_json(out / "claims.json", claims)
    mend(out, "claims.json")
    return out


def forge_rollout(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "rl/*/record.json").parent
    name, columns = dice.choice([("rollouts", ("strict", "answer", "score", "error")), ("history", ("passes", "n"))])
    alter_cell(dice, out / f"{name}.parquet", columns)
    mend(out, f"{name}.parquet")
    return out


def forge_curve(dice: random.Random, results: Path) -> Path:
    """What the history of prompts knows, too."""
    out = pick(dice, results, "rl/*/record.json").parent
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    dice.choice(lines)["strict"] += 0.01
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    mend(out, "metrics.jsonl")
    return out


def forge_weight(dice: random.Random, results: Path) -> Path:
    """A weight with its checksum in the record, not in the record that the study keeps."""
    out = pick(dice, results, "*/*/model/model.safetensors").parent.parent
    weights = load_file(out / "model/model.safetensors")
    name = dice.choice(sorted(weights))
    weights[name].view(-1)[0] += 1
    save_file(weights, out / "model/model.safetensors")
    mend(out, "model/model.safetensors")
    return out


FAULTS = [flip_byte, alter_checksum, alter_identity, forge_completion, forge_verdict_of_sample, forge_count, forge_metric]
FAULTS += [forge_rollout, forge_curve, forge_weight]
FAULTS += [*FAULTS, forge_cell, forge_table, forge_verdict]  # a report takes longest
KNOWN_BY_COPY = (forge_weight,)
"""What only the records that the study keeps contradict."""


def test_each_of_200_planted_faults_is_found_without_training(finished: Laboratory, tmp_path: Path) -> None:
    """The kept records, which list every checksum once more, are away but where nothing else could tell."""
    results, whole = finished.folder / "results", tmp_path / "whole"
    shutil.copytree(results, whole, symlinks=True)
    every = [path.parent for path in sorted(results.glob("*/*/record.json"))]
    assert certify.find_damage(every, results).found == []
    dice, missed = random.Random(22), []
    for number in range(PLANTED):
        fault = FAULTS[number % len(FAULTS)]
        if fault not in KNOWN_BY_COPY:
            shutil.rmtree(results / "studies")
        out = fault(dice, results)
        if not certify.find_damage([out], results).found:
            missed.append(f"{number} {fault.__name__} {out}")
        for place in (out, results / "studies"):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(whole / place.relative_to(results), place, symlinks=True)
    assert missed == []
    assert certify.find_damage(every, results).found == []


# -- segments ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def base(finished: Laboratory, tmp_path: Path) -> Laboratory:
    """A short study of the base alone, whose training keeps its state every four steps; made by Snakemake."""
    made = Laboratory(tmp_path / "base")
    made.take_data(finished)
    made.edit("configs/scale/smoke.yaml", "pretrain: {tokens: 100000", "pretrain: {run: {segment_steps: 4}, tokens: 16000")
    made.edit("configs/scale/smoke.yaml", "rl: {steps: 4", "rl: {run: {segment_steps: 1, keep_segments: false}, steps: 2")
    done = made.snakemake("study=quickstart", "scale=smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def verify(lab: Laboratory, *words: str) -> tuple[int, str]:
    done = lab.run("interplay", "verify", *words)
    return done.returncode, done.stdout + done.stderr


def forge_state(out: Path, step: int) -> tuple[str, float, float]:
    """Move a weight of the state after a step, and list that state's checksum; the tensor and both values."""
    folder = out / "segments" / str(step)
    file = folder / f"{step}.safetensors"
    tensors = load_file(file)
    name = min(key for key in tensors if key.startswith("model."))
    before = tensors[name].view(-1)[0].item()
    tensors[name].view(-1)[0] += 0.25
    file.unlink()  # a link to it may be elsewhere
    save_file(tensors, file)
    listed = checkpoint.listed_segments(out)
    listed[[one["step"] for one in listed].index(step)]["sha256"] = checkpoint.state_checksum(folder)
    artifact.write_json(out / "segments.json", {"states": listed})
    return name, tensors[name].view(-1)[0].item(), before


def test_segments_are_made_again_and_a_forged_state_is_named(base: Laboratory, tmp_path: Path) -> None:
    study = ("quickstart", "--scale", "smoke")
    results, file = base.folder / "results", tmp_path / "certificate.json"
    before = base.records()
    code, said = verify(base, *study, "--segments", "6", "--seed", "3", "-o", str(file))
    assert code == 0, said
    assert said.count(": equal (") == 6
    assert base.records() == before
    found = artifact.read_json(file)
    assert (found["result"], found["drawn"], found["seed"]) == ("certified", 6, 3)
    assert all((found["machine"]["cpu"], found["machine"]["flags"], found["versions"]["torch"]))
    assert found["share_found"] == {"probability": 0.95, "share": round(1 - 0.05 ** (1 / 6), 4)}
    code, said = verify(base, "--certificate", str(file))
    assert code == 0, said
    # One state is forged with its checksum: the segment before it does not lead there, and the next one does not start there.
    out = next((results / "pretrain").glob("*"))
    name, forged, true = forge_state(out, 8)
    code, said = verify(base, "--certificate", str(file))
    assert code == 1, said
    assert "seed 3 draws other segments of these results" in said or "is another one here" in said
    code, said = verify(base, *study)
    assert code == 0, "the list and the state agree, so that only a segment made again can tell"
    segments = [one for one in study_segments(base) if one.kind == "pretrain"]
    assert [(one.first, one.last) for one in segments][:3] == [(0, 4), (4, 8), (8, 12)]
    checked = certify.check_segments(segments[:3], lambda one: certify.remake_segment(one, results), lambda one: None)
    assert [bool(one.difference) for one in checked] == [False, True, True]
    assert checked[1].difference.startswith(f"segments/8/8.safetensors: tensor {name} ")
    assert f": {forged!r} -> {true!r} (1 of " in checked[1].difference


def study_segments(lab: Laboratory) -> list[certify.Segment]:
    from interplay.study.expand import plan_study

    return certify.study_segments(plan_study(lab.folder / "configs", "quickstart", "smoke"), lab.folder / "results")[0]
