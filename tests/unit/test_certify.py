"""Segments of a study: the draw, how likely it finds a forgery, and the first difference of two files."""

import hashlib
import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from lab import Lab
from safetensors.torch import save_file

import interplay
from interplay import cli
from interplay.api import certify, single
from interplay.core import artifact, execution
from interplay.kinds import stages
from interplay.optim import distributed
from interplay.results import check

STUDIES = 200
SEGMENTS, SHARE, DRAWN = 120, 0.1, 29


def advanced(state: str, step: int) -> str:
    """The true state one segment on."""
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def chain(forged: set[int]) -> list[certify.Segment]:
    """The listed segments of one run. After each that is forged all goes on truly from the state that it claims, so that only
    a segment that is made again shows it."""
    state, made = "begin", []
    for step in range(SEGMENTS):
        end = advanced(state, step) if step not in forged else advanced(f"{state}, better", step)
        last = step + 1 if step + 1 < SEGMENTS else 0
        made.append(certify.Segment("0" * 12, "pretrain", "base@0", "0" * 64, step, last, state, end))
        state = end
    return made


def again(segment: certify.Segment) -> tuple[list[str], str]:
    true = advanced(segment.start, segment.first)
    return ["state"], "" if true == segment.end else f"state: {segment.end} -> {true}"


def test_a_consistent_forgery_of_a_share_of_the_segments_is_found_as_often_as_the_certificate_says() -> None:
    forgers, found = random.Random(0), 0
    for seed in range(STUDIES):
        forged = set(forgers.sample(range(SEGMENTS), int(SHARE * SEGMENTS)))
        segments = chain(forged)
        chosen = certify.draw(segments, DRAWN, seed)
        assert len(set(chosen)) == DRAWN
        checked = certify.check_segments(chosen, again, lambda one: None)
        assert {one.segment.first for one in checked if one.difference} == forged & {one.first for one in chosen}
        found += any(one.difference for one in checked)
    exact = 1 - math.comb(SEGMENTS - int(SHARE * SEGMENTS), DRAWN) / math.comb(SEGMENTS, DRAWN)
    assert certify.found_share(DRAWN, SEGMENTS) == pytest.approx(1 - 0.05 ** (1 / 29), abs=0.0001)
    assert certify.found_share(DRAWN, SEGMENTS) < SHARE
    assert exact > certify.PROVEN_SHARE
    assert abs(found - STUDIES * exact) < 4 * math.sqrt(STUDIES * exact * (1 - exact))
    assert not any(one.difference for one in certify.check_segments(chain(set()), again, lambda one: None))


def test_a_draw_is_fixed_by_its_seed_and_by_every_record_and_state() -> None:
    honest = chain(set())
    assert certify.draw(honest, 5, 0) == certify.draw(honest, 5, 0)
    assert certify.draw(honest, 5, 0) != certify.draw(honest, 5, 1)
    other = [honest[0]._replace(record="1" * 64), *honest[1:]]
    places = [[one.first for one in certify.draw(segments, 5, 0)] for segments in (honest, other)]
    assert places[0] != places[1]
    assert set(certify.draw(honest, 1000, 0)) == set(honest)
    assert certify.found_share(SEGMENTS, SEGMENTS) == 0


def test_every_segment_is_drawn_about_as_often_as_any_other() -> None:
    honest, counts = chain(set()), [0] * SEGMENTS
    for seed in range(400):
        for one in certify.draw(honest, 12, seed):
            counts[one.first] += 1
    assert sum((count - 40) ** 2 / 40 for count in counts) < 1.5 * SEGMENTS  # chi-square


# -- differences -------------------------------------------------------------------------------------------------------


def two(tmp_path: Path, name: str) -> tuple[Path, Path]:
    for folder in ("known", "made"):
        (tmp_path / folder).mkdir(exist_ok=True)
    return tmp_path / "known" / name, tmp_path / "made" / name


def test_the_first_difference_names_tensor_place_and_both_values(tmp_path: Path) -> None:
    known, made = two(tmp_path, "model.safetensors")
    tensors = {"a": torch.zeros(2), "b": torch.arange(6.0).view(2, 3).bfloat16()}
    save_file(tensors, known)
    save_file(tensors, made)
    assert check.first_difference(known, made) == ""
    tensors["b"][1, 1] = -4
    save_file(tensors, made)
    assert check.first_difference(known, made) == "tensor b [1, 1]: 4.0 -> -4.0 (1 of 6 values differ)"
    save_file({"a": torch.zeros(2)}, made)
    assert check.first_difference(known, made) == "tensor b: only there"
    save_file({**tensors, "a": -torch.zeros(2)}, made)
    assert check.first_difference(known, made) == "tensor a [0]: 0.0 -> -0.0 (2 of 2 values differ)"


def test_the_first_difference_of_tables_lines_and_other_files(tmp_path: Path) -> None:
    known, made = two(tmp_path, "samples.parquet")
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), known)
    pq.write_table(pa.table({"a": [1, 2, 4], "b": ["x", "w", "z"]}), made)
    assert check.first_difference(known, made) == "row 1, column b: y -> w"
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), made, compression="none")
    assert check.first_difference(known, made).startswith("byte ")
    known, made = two(tmp_path, "metrics.jsonl")
    known.write_text('{"step": 1, "loss": 2.5}\n')
    made.write_text('{"step": 1, "loss": 2.5000001}\n')
    assert check.first_difference(known, made) == "step 1, loss: 2.5 -> 2.5000001"
    known, made = two(tmp_path, "choice.json")
    known.write_text('{"chosen": {"step": 3}}')
    made.write_text('{"chosen": {"step": 4}}')
    assert check.first_difference(known, made) == "chosen.step: 3 -> 4"
    made.write_text("{")
    assert check.first_difference(known, made) == "not readable (UserError)"
    made.unlink()
    assert check.first_difference(known, made) == "only there"


# -- states on the way -------------------------------------------------------------------------------------------------


def test_a_training_state_is_listed_and_kept_at_each_multiple_of_segment_steps(tmp_path: Path) -> None:
    how = execution.Run(segment_steps=2)
    saves = execution.Saves(60, steps=how.segment_steps)
    for step in range(1, 6):
        if saves.due(step):
            distributed.save_checkpoint(tmp_path / "resume", step, {"w": torch.full((3,), float(step))}, {"tokens": step})
            distributed.keep_segment(tmp_path, step, how)
    listed = distributed.listed_segments(tmp_path)
    assert [one["step"] for one in listed] == [2, 4]
    kept = [tmp_path / "segments" / str(step) for step in (2, 4)]
    assert [distributed.state_checksum(folder) for folder in kept] == [one["sha256"] for one in listed]
    assert distributed.load_checkpoint(kept[0])[1]["w"].tolist() == [2, 2, 2]  # type: ignore[index]
    assert artifact.payload(tmp_path) == []
    # A run that goes on from an earlier save lists what it reaches anew.
    distributed.save_checkpoint(tmp_path / "resume", 2, {"w": torch.zeros(3)}, {"tokens": 2})
    distributed.keep_segment(tmp_path, 2, execution.Run(segment_steps=2, keep_segments=False))
    assert [one["step"] for one in distributed.listed_segments(tmp_path)] == [2]
    assert distributed.listed_segments(tmp_path)[0]["sha256"] != listed[0]["sha256"]


def test_the_checksum_of_a_state_leaves_out_whether_it_was_made_in_a_stack(tmp_path: Path) -> None:
    for name, numerics in (("alone", {}), ("stacked", {"numerics": "stacked"}), ("other", {"tokens": 4})):
        distributed.save_checkpoint(tmp_path / name, 1, {"w": torch.ones(2)}, {"tokens": 3, **numerics})
    alone, stacked, other = (distributed.state_checksum(tmp_path / name) for name in ("alone", "stacked", "other"))
    assert alone == stacked != other


def test_the_step_of_the_environment_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(execution.STOP_STEP, "3")
    saves = execution.Saves(60)
    assert [saves.due(step) for step in (1, 2, 3)] == [False, False, True]
    with pytest.raises(execution.StoppedError, match="stopped at step 3"):
        saves.made("step 3")


# -- certificates and numerics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "more", "name"),
    [
        ({"dtype": "float32"}, {}, "float32, alone"),
        ({"dtype": "bfloat16"}, {"numerics": "stacked"}, "bfloat16, stacked"),
        ({"dtype": "int8", "engine": "native", "numerics": "fast"}, {}, "int8, fast"),
        ({"dtype": "int8", "numerics": "exact"}, {}, "int8, exact"),
        ({"dtype": "float32", "engine": "vllm"}, {}, "vllm, float32"),
        ({"dtype": "bfloat16", "engine": "hf"}, {}, "hf, bfloat16"),
        ({"dtype": "int8", "verify": {"own": {"function": "judge.py:f"}}}, {}, "own code, judge.py:f"),
        ({"size": 3}, {}, "no model"),
    ],
)
def test_the_numerics_class_of_a_record_claims_what_is_known(spec: dict, more: dict, name: str) -> None:
    found = stages.numerics_class({"spec": spec, **more})
    assert found.name == name
    assert ("proven" in found.holds) == (name not in ("int8, exact", "no model")), "what is not tested is said to be unproven"


def certificate() -> dict[str, Any]:
    """One of two segments."""
    checked = [{**segment._asdict(), "difference": "", "numerics": "float32"} for segment in chain(set())[:2]]
    found = {"study": "edge", "scale": "smoke", "lock": "0", "segments": SEGMENTS, "drawn": 2, "seed": 0, "machine": {}}
    return {**found, "checked": checked, "result": certify.CERTIFIED}


def test_what_a_certificate_says_of_the_share_that_it_finds_is_not_believed(tmp_path: Path) -> None:
    artifact.write_json(tmp_path / "forged.json", {**certificate(), "share_found": {"probability": 0.95, "share": 0.0001}})
    assert "a forged share of 77.6% or more" in certify.summary(certify.read_certificate(tmp_path / "forged.json"), None)


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    file, whole = tmp_path / "certificate.json", certificate()
    less = [{key: value for key, value in whole.items() if key != "machine"}, {**whole, "drawn": 0, "checked": []}]
    less += [{**whole, "drawn": -1}, {**whole, "checked": [{**one, "numerics": 1} for one in whole["checked"][:1]]}]
    for content in ("[]", "{}", json.dumps({"study": "edge"}), "not JSON", *map(json.dumps, less)):
        file.write_text(content)
        with pytest.raises(artifact.UserError, match=r"certificate\.json: not "):
            certify.read_certificate(file)


# -- one digest, two contents ------------------------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A finished stage, and the same digest in another tree with another metric and another file."""
    monkeypatch.chdir(tmp_path)
    lab, other = Lab(tmp_path), Lab(tmp_path / "other")
    stage = next(stage for stage in lab.plan().stages.values() if stage.kind == "pretrain")
    for each, metric in ((lab, 1.5), (other, 2.5)):
        out = each.finish(stage)
        (out / "payload.bin").write_bytes(str(metric).encode())
        artifact.finish(out, stage.identity(), {"loss": metric})
    return lab.out(stage), other.out(stage)


def test_a_kept_record_with_another_content_is_reported_by_verify_show_and_load(
    apart: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = apart
    assert cli.main(["verify", here.name]) == 0
    kept = Path("results/studies/quickstart.smoke/records/pretrain") / here.name
    shutil.copytree(there, kept)
    capsys.readouterr()
    line = f"pretrain/{here.name}: one digest, two contents: results/pretrain/{here.name} (float32, alone) and {kept}"
    for command, code in (("verify", 1), ("show", 0)):
        assert cli.main([command, here.name]) == code
        assert f"{line} (float32, alone) differ in payload.bin, loss; keep one, remove the other" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="one digest, two contents"):
        interplay.load("quickstart", "smoke")


def test_an_artifact_with_another_content_is_not_adopted(apart: tuple[Path, Path]) -> None:
    here, there = apart
    before = (here / "record.json").read_bytes()
    with pytest.raises(artifact.UserError, match=r"one digest, two contents: .* differ in payload\.bin, loss"):
        single.adopt_artifacts(there, Path("results"), False)
    assert (here / "record.json").read_bytes() == before
