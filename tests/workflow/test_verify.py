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
from interplay.optim import distributed
from interplay.study.expand import plan_study

PLANTED = [69, pytest.param(200, marks=pytest.mark.slow)]
"""Each of `FAULTS` three times; more among the slow tests."""


# -- faults ------------------------------------------------------------------------------------------------------------


def pick(dice: random.Random, results: Path, pattern: str) -> Path:
    return dice.choice(sorted(results.glob(pattern)))


def correct_checksum(out: Path, name: str) -> None:
    """The record lists the file as it is now, so that its checksum agrees."""
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
    correct_checksum(out, "samples.parquet")
    return out


def forge_verdict_of_sample(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "evaluate/*/record.json").parent
    alter_cell(dice, out / "samples.parquet", ("strict", "answer", "score", "error", "index", "band", "op"))
    correct_checksum(out, "samples.parquet")
    return out


def forge_count(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "evaluate/*/record.json").parent
    alter_cell(dice, out / "prompts.parquet", ("strict", "answer", "score", "n", "band"))
    correct_checksum(out, "prompts.parquet")
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
    correct_checksum(out, f"tables/{file.name}")
    return out


def forge_verdict(dice: random.Random, results: Path) -> Path:
    """Of a claim, in claims.json or in the record."""
    out = pick(dice, results, "report/*/record.json").parent
    if dice.random() < 0.5:
        return edit_record(out, lambda record: dice.choice(record["metrics"]["claims"]).update(verdict="supported"))
    claims = artifact.read_json(out / "claims.json")
    dice.choice(claims)["verdict"] = "supported"
    artifact.write_json(out / "claims.json", claims)
    correct_checksum(out, "claims.json")
    return out


def forge_rollout(dice: random.Random, results: Path) -> Path:
    out = pick(dice, results, "rl/*/record.json").parent
    name, columns = dice.choice([("rollouts", ("strict", "answer", "score", "error")), ("history", ("passes", "n"))])
    alter_cell(dice, out / f"{name}.parquet", columns)
    correct_checksum(out, f"{name}.parquet")
    return out


def forge_curve(dice: random.Random, results: Path) -> Path:
    """What the history of prompts knows, too."""
    out = pick(dice, results, "rl/*/record.json").parent
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    dice.choice(lines)["strict"] += 0.01
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    correct_checksum(out, "metrics.jsonl")
    return out


def forge_weight(dice: random.Random, results: Path) -> Path:
    """A weight with its checksum in the record, not in the record that the study keeps. (What other tests ran of the stages of
    another study is kept by none.)"""
    kept = sorted(results.glob("studies/*/records/*/*/record.json"))
    stages = [results / one.parent.parent.name / one.parent.name for one in kept]
    out = dice.choice([stage for stage in stages if (stage / "model/model.safetensors").exists()])
    weights = load_file(out / "model/model.safetensors")
    name = dice.choice(sorted(weights))
    weights[name].view(-1)[0] += 1
    save_file(weights, out / "model/model.safetensors")
    correct_checksum(out, "model/model.safetensors")
    return out


FAULTS = [flip_byte, alter_checksum, alter_identity, forge_completion, forge_verdict_of_sample, forge_count, forge_metric]
FAULTS += [forge_rollout, forge_curve, forge_weight]
FAULTS += [*FAULTS, forge_cell, forge_table, forge_verdict]  # a report takes longest
KNOWN_BY_COPY = (forge_weight,)
"""What only the records that the study keeps contradict."""


@pytest.mark.parametrize("planted", PLANTED)
def test_each_planted_fault_is_found_without_training(finished: Laboratory, tmp_path: Path, planted: int) -> None:
    """The kept records, which list every checksum once more, are away but where nothing else could tell."""
    results, whole = finished.folder / "results", tmp_path / "whole"
    shutil.copytree(results, whole, symlinks=True)
    every = [path.parent for path in sorted(results.glob("*/*/record.json"))]
    assert certify.find_damage(every, results).found == []
    dice, missed = random.Random(22), []
    for number in range(planted):
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


def copied(finished: Laboratory, folder: Path) -> Laboratory:
    """The finished study without the records that are kept with it, from which a stage that is removed would come back."""
    made = Laboratory(folder)
    left_out = shutil.ignore_patterns("studies")
    shutil.copytree(finished.folder / "results", made.folder / "results", symlinks=True, ignore=left_out)
    return made


@pytest.fixture(scope="module")
def made_again(finished: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """The finished study, one of whose RL runs was made again by Snakemake and keeps its state after every step."""
    made = copied(finished, tmp_path_factory.mktemp("kept") / "kept")
    shutil.rmtree(policy(made))
    shutil.rmtree(made.folder / "results" / "report")  # which asks for it
    made.edit("configs/scale/smoke.yaml", "rl: {steps: 4", "rl: {run: {segment_steps: 1}, steps: 4")
    done = made.snakemake("study=quickstart", "scale=smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture
def kept(made_again: Laboratory, tmp_path: Path) -> Laboratory:
    """A copy that may be damaged."""
    made = Laboratory(tmp_path / "kept")
    for name in ("results", "configs"):
        shutil.rmtree(made.folder / name, ignore_errors=True)
        shutil.copytree(made_again.folder / name, made.folder / name, symlinks=True)
    return made


def policy(lab: Laboratory) -> Path:
    """Its artifact."""
    plan = plan_study(lab.folder / "configs", "quickstart", "smoke")
    digest = next(digest for digest, stage in plan.stages.items() if stage.label == "rl_edge/rl@0")
    return lab.folder / "results" / "rl" / digest


def study_segments(lab: Laboratory) -> list[certify.Segment]:
    plan = plan_study(lab.folder / "configs", "quickstart", "smoke")
    return certify.study_segments(plan, lab.folder / "results")[0]


def verify(lab: Laboratory, *words: str) -> tuple[int, str]:
    done = lab.run("interplay", "verify", *words)
    return done.returncode, done.stdout + done.stderr


def remade(lab: Laboratory, segments: list[certify.Segment]) -> list[str]:
    """The first difference of each."""
    return [certify.remake_segment(one, lab.folder / "results")[1] for one in segments]


def test_random_segments_are_certified_and_the_certificate_holds_for_these_results_alone(
    kept: Laboratory, tmp_path: Path
) -> None:
    before, file = kept.records(), tmp_path / "certificate.json"
    code, said = verify(kept, "quickstart", "--scale", "smoke", "--segments", "3", "--seed", "3", "-o", str(file))
    assert code == 0, said
    assert said.count(": equal (") == 3
    assert kept.records() == before
    found = artifact.read_json(file)
    assert (found["result"], found["drawn"], found["seed"]) == ("certified", 3, 3)
    assert found["segments"] == len(study_segments(kept))
    assert all((found["machine"]["cpu"], found["machine"]["flags"], found["versions"]["torch"]))
    assert found["share_found"] == {"probability": 0.95, "share": round(1 - 0.05 ** (1 / 3), 4)}
    code, said = verify(kept, "--certificate", str(file))
    assert code == 0, said
    assert "3 of " in said
    for key, value, why in (
        ("seed", 4, "seed 4 draws other segments of these results"),
        ("lock", "0" * 64, "the plan of quickstart at scale smoke is another one now"),
        ("result", "differs", "but 0 segments differed"),
    ):
        plan = plan_study(kept.folder / "configs", "quickstart", "smoke")
        assert why in "\n".join(certify.contradicted({**found, key: value}, plan, kept.folder / "results"))
    file.write_text("{}")
    assert verify(kept, "--certificate", str(file))[0] == 2
    file.write_text(json.dumps(found))
    shutil.rmtree(policy(kept) / "segments")  # one record or state fewer, and it says nothing of what is here
    (policy(kept) / "segments.json").unlink()
    code, said = verify(kept, "--certificate", str(file))
    assert code == 1, said


@pytest.mark.slow  # see test_certify
def test_a_forged_state_is_named_by_tensor_place_and_both_values(kept: Laboratory) -> None:
    """A weight of one state is moved and its checksum listed: no recomputation can tell, the segments on both sides do."""
    out = policy(kept)
    own = [one for one in study_segments(kept) if one.digest == out.name]
    assert [(one.first, one.last) for one in own] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert remade(kept, own[3:]) == [""], "the end of a run, from its last state"
    file = out / "segments" / "2" / "state" / "2.safetensors"
    tensors = load_file(file)
    name = min(key for key in tensors if key.startswith("model."))
    true = tensors[name].view(-1)[0].item()
    tensors[name].view(-1)[0] += 0.25
    file.unlink()
    save_file(tensors, file)
    assert len(certify.find_damage([out], kept.folder / "results").found) == 1, "the list knows another checksum"
    listed = distributed.listed_segments(out)
    listed[1]["sha256"] = distributed.state_checksum(out / "segments" / "2")
    artifact.write_json(out / "segments.json", {"states": listed})
    assert certify.find_damage([out], kept.folder / "results").found == []
    first, before, after = remade(kept, own[:3])
    assert first == ""
    where = f"segments/2/state/2.safetensors: tensor {name} ["
    assert before.startswith(where)
    assert f": {tensors[name].view(-1)[0].item()!r} -> {true!r} (1 of " in before
    assert after.startswith("segments/3/")


def test_a_completion_that_is_judged_the_same_is_found_by_its_segment_alone(finished: Laboratory, tmp_path: Path) -> None:
    lab = copied(finished, tmp_path / "copy")
    results = lab.folder / "results"
    out = sorted(results.glob("evaluate/*"))[0]
    table = pq.read_table(out / "samples.parquet")
    texts, judged = table["completion"].to_pylist(), table.select(["index", "answer", "score", "error"]).to_pylist()
    row = next(row for row in range(len(texts)) if judged[row] == judged[row - 1] and texts[row] != texts[row - 1])
    texts[row] = texts[row - 1]
    at = table.column_names.index("completion")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(texts)), out / "samples.parquet")
    correct_checksum(out, "samples.parquet")
    assert certify.find_damage([out], results).found == []
    own = [one for one in study_segments(lab) if one.digest == out.name]
    each = len(texts) // artifact.record(out)["metrics"]["n_prompts"]
    hit = next(one for one in own if one.first <= row // each < (one.last or len(texts)))
    assert remade(lab, [hit]) == [f"samples.parquet: row {row}, column completion: {texts[row]} -> {table['completion'][row]}"]
