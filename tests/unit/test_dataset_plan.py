"""A file in a study: the planner turns it into its checksum, and the place goes where it is not hashed."""

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.data.spec import DatasetSpec
from interplay.run.stage import run_stage

STUDY = "study/quickstart.yaml"
OLD = "hard: {band: hard, split: rl}"
GSM8K = ROOT / "data" / "fixtures" / "gsm8k.jsonl"
HERE = "data/fixtures/gsm8k.jsonl"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a project whose `data/fixtures` is a link to this one's."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/fixtures").symlink_to(ROOT / "data/fixtures")
    monkeypatch.chdir(tmp_path)


def with_file(tmp_path: Path, keys: str) -> Lab:
    """The quickstart with a file in the place of its set `hard`."""
    lab = Lab(tmp_path)
    lab.edit(STUDY, OLD, f"hard: {{{keys}}}")
    return lab


def refused(tmp_path: Path, keys: str) -> str:
    with pytest.raises(UserError) as caught:
        with_file(tmp_path, keys).plan()
    return str(caught.value)


def test_a_file_becomes_its_checksum_and_the_place_stays_out_of_the_digest(tmp_path: Path) -> None:
    Path("elsewhere.jsonl").write_bytes(GSM8K.read_bytes())
    plans = [
        with_file(tmp_path / str(n), f"file: {path}, format: gsm8k, size: 4").plan()
        for n, path in enumerate((HERE, "elsewhere.jsonl"))
    ]
    (here,), (there,) = (of_kind(plan, "dataset") for plan in plans)
    assert here.digest == there.digest
    assert isinstance(here.spec, DatasetSpec)
    assert (here.spec.sha256, here.spec.size, here.spec.band, here.spec.split) == (artifact.checksum(GSM8K), 4, "all", None)
    assert (here.run.path, there.run.path) == (HERE, "elsewhere.jsonl")


def test_a_changed_byte_changes_the_digest_and_that_of_what_is_trained_on_it(tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    path.write_bytes(GSM8K.read_bytes())
    lab = with_file(tmp_path / "lab", "file: given.jsonl, format: gsm8k")
    before = lab.plan()
    path.write_bytes(GSM8K.read_bytes() + b"\n")
    after = lab.plan()
    assert of_kind(before, "dataset")[0].digest not in after.stages
    users = [stage for stage in before.stages.values() if of_kind(before, "dataset")[0].digest in stage.deps.values()]
    assert users
    assert not {stage.digest for stage in users} & set(after.stages)


def test_with_its_checksum_a_study_is_planned_where_the_file_is_not(tmp_path: Path) -> None:
    checksum = artifact.checksum(GSM8K)
    (with_it,) = of_kind(with_file(tmp_path / "a", f"file: {HERE}, format: gsm8k").plan(), "dataset")
    (without,) = of_kind(with_file(tmp_path / "b", f"file: nowhere.jsonl, sha256: {checksum}, format: gsm8k").plan(), "dataset")
    assert with_it.digest == without.digest


def test_the_planned_stage_runs_and_leaves_a_record_with_its_counts(tmp_path: Path) -> None:
    defects = "data/fixtures/musique_defects.jsonl"
    skip = "defects: {broken: skip, missing_field: skip, duplicate_id: skip}"
    lab = with_file(tmp_path, f"file: {defects}, format: musique, {skip}")
    (stage,) = of_kind(lab.plan(), "dataset")
    out = lab.start(stage)
    run_stage(out)
    record = artifact.read_json(out / "record.json")
    assert record["metrics"]["skipped"] == {"broken": 1, "duplicate_id": 1, "missing_field": 1, "unanswerable": 1}
    assert {path.name for path in artifact.payload(out)} == {"problems.parquet", "keys.parquet"}


def test_a_defect_among_the_first_items_is_refused_at_planning(tmp_path: Path) -> None:
    message = refused(tmp_path, "file: data/fixtures/musique_defects.jsonl, format: musique")
    assert "data.hard.file = 'data/fixtures/musique_defects.jsonl': line 2: not JSON" in message


def test_a_file_that_is_refused_later_leaves_no_record_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = "why " * 6000  # of a small file all rows are read when the study is planned
    rows = [json.dumps({"question": f"{number} + 1? {long}", "answer": str(number + 1)}) for number in range(30)]
    Path("rows.jsonl").write_text("\n".join([*rows, "{oops"]))
    lab = with_file(tmp_path, "file: rows.jsonl, format: jsonl")
    (stage,) = of_kind(lab.plan(), "dataset")
    out = lab.start(stage)
    with pytest.raises(UserError, match=r"rows\.jsonl: line 31: not JSON"):
        run_stage(out)
    assert artifact.payload(out) == []
    assert not artifact.done(out)


def test_an_absent_file_without_a_checksum_is_refused_at_planning(tmp_path: Path) -> None:
    message = refused(tmp_path, "file: nowhere.jsonl, format: gsm8k")
    assert "configs/study/quickstart.yaml" in message
    assert "data.hard.file = 'nowhere.jsonl': no such file; put it there, or give its sha256 as well" in message


def test_a_checksum_that_is_not_the_files_is_refused_at_planning(tmp_path: Path) -> None:
    message = refused(tmp_path, f"file: {HERE}, format: gsm8k, sha256: {'e' * 64}")
    assert f"but {HERE} has {artifact.checksum(GSM8K)}" in message


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("format: gsm", "data.hard.format = 'gsm': should be"),
        ("format: gsm8k, defects: {broken: ignore}", "defects.broken = 'ignore': should be 'refuse' or 'skip'"),
        ("format: gsm8k, defects: {brokn: skip}", "unknown key 'brokn'; did you mean 'broken'?"),
        ("format: gsm8k, size: 0", "data.hard.size = 0"),
        ("format: gsm8k, split: dev", "data.hard.split = 'dev': should be"),
        ("format: gsm8k, bands: [id]", "bands does not go with a set that is read from a file"),
    ],
)
def test_a_slip_about_a_file_is_one_line_at_planning(keys: str, expected: str, tmp_path: Path) -> None:
    message = refused(tmp_path, f"file: {HERE}, {keys}")
    assert expected in message
    assert "\n" not in message


def test_a_file_without_its_format_is_one_line_at_planning_with_or_without_the_value(tmp_path: Path) -> None:
    message = refused(tmp_path, "file: data/rows.txt, split: rl")
    assert re.search(r"data\.hard( = \{.*\})?: format is missing; name the format of the file", message)
    assert "\n" not in message


def test_a_checksum_is_64_hex_digits(tmp_path: Path) -> None:
    message = refused(tmp_path, "sha256: abc, format: gsm8k")
    assert "sha256 = 'abc'" in message
    assert "should match pattern" in message
