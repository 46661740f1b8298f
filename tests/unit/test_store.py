"""Artifacts: atomic, checked, leased; metrics that no resume doubles."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interplay.core import artifact
from interplay.core.metrics import Metrics, read
from interplay.core.model import UserError


def finished(out: Path) -> Path:
    out.mkdir(parents=True)
    (out / "resume").mkdir()
    (out / "resume" / "state.json").write_text("{}")
    (out / "weights.bin").write_bytes(b"weights")
    artifact.finish(out, {"kind": "rl", "digest": out.name}, {"steps": 3})
    return out


def test_a_record_lists_the_payload_and_ends_the_resume_state(tmp_path: Path) -> None:
    out = finished(tmp_path / "rl" / "abc")
    assert set(artifact.record(out)["files"]) == {"weights.bin"}
    assert not (out / "resume").exists()
    artifact.check(out)


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_damage_to_a_payload_is_named(tmp_path: Path, damage: str) -> None:
    out = finished(tmp_path / "rl" / "abc")
    file = out / "weights.bin"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"weight" if damage == "cut" else b"wEights")
    with pytest.raises(UserError, match=r"weights\.bin: (missing|corrupted)"):
        artifact.check(out)


def test_a_digest_may_be_shortened_while_it_names_one_stage(tmp_path: Path) -> None:
    for name in ("abc123", "abd456"):
        artifact.write_json(tmp_path / "rl" / name / "stage.json", {})
    assert artifact.find(tmp_path, "abc").name == "abc123"
    with pytest.raises(UserError, match="ambiguous"):
        artifact.find(tmp_path, "ab")
    with pytest.raises(UserError, match="names no stage"):
        artifact.find(tmp_path, "f")


def test_the_lease_is_freed_when_its_holder_is_killed(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from interplay.core.artifact import lease; from interplay.core.metrics import log_to_stderr; log_to_stderr()\nwith lease(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waiting = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stderr is not None
    line = waiting.stderr.readline()
    assert f"interplay: {tmp_path}: process {holder.pid} on " in line
    assert line.endswith("holds its lease; waiting for the record\n")
    holder.kill()
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "held\n"
    waiting.kill()
    holder.wait()
    waiting.wait()


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("one", "another"):
        artifact.write_atomic(path, text.encode())
        assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_lines_past_the_resumed_step_and_torn_lines_are_dropped(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for step in (1, 2, 3):
        metrics.write(step, loss=1 / 3)
    with open(tmp_path / "metrics.jsonl", "a") as handle:
        handle.write('{"step": 4, "lo')
    Metrics(tmp_path, resumed_step=2).write(3, loss=0.5)
    assert [line["step"] for line in read(tmp_path)] == [1, 2, 3]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["loss"] == 0.3333333


def test_a_kept_checkpoint_is_addressed_as_digest_at_step_and_another_step_is_refused_with_those_that_there_are(
    tmp_path: Path,
) -> None:
    assert artifact.split_ref("a" * 12) == ("a" * 12, None)
    assert artifact.split_ref("a" * 12 + "@200") == ("a" * 12, 200)
    for step in (20, 100):
        artifact.write_atomic(tmp_path / f"checkpoints/{step}/model/config.json", b"{}")
    artifact.finish(tmp_path, {}, {})
    assert artifact.at_step(tmp_path, None) == tmp_path
    assert artifact.at_step(tmp_path, 100) == tmp_path / "checkpoints/100"
    with pytest.raises(UserError, match=r"keeps no checkpoint of step 7; kept: 20, 100$"):
        artifact.at_step(tmp_path, 7)


def test_the_commit_is_that_of_the_folder_we_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert artifact.current_commit() == ""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (tmp_path / "file").write_text("one")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    clean = artifact.current_commit()
    (tmp_path / "file").write_text("two")
    assert len(clean) == 40
    assert artifact.current_commit() == f"{clean}-dirty"


def test_a_line_of_metrics_that_is_being_written_does_not_count_yet(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read(tmp_path) == [{"step": 1, "loss": 2.0}]


def test_who_reads_a_file_while_it_is_replaced_reads_the_old_one_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    artifact.write_atomic(path, b"old")
    with open(path, "rb") as reader:
        artifact.write_atomic(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert list(tmp_path.iterdir()) == [path]
