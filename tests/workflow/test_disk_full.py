"""A disk that is full in the middle of a save: one line, the save before it intact, nothing half-written; with room again the stage
goes on."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Laboratory, saves, wait_for
from test_resume import unfinish

from interplay.core import artifact


def weights(laboratory: Laboratory) -> int:
    """Bytes of the base's weights. Its training state has between two and three times as many."""
    return next(laboratory.folder.glob("results/pretrain/*/model/model.safetensors")).stat().st_size


def copy_of(finished: Laboratory, folder: Path) -> Laboratory:
    """What the base needs, and the base itself unfinished."""
    copy = Laboratory(folder)
    for kind in ("problems", "tokenizer", "corpus", "pretrain"):
        shutil.copytree(finished.folder / "results" / kind, copy.folder / "results" / kind)
    return copy


def fails_in_one_line(copy: Laboratory, out: Path, says: str, limit: str = "") -> None:
    """Run the stage into the full disk; the last save still stands and nothing else was left."""
    stage = copy.stage(out.name, limit)
    code, errors = stage.wait(), stage.errors.read_text()
    lines = [line for line in errors.splitlines() if line.startswith("interplay: ")]
    assert (code, len(lines)) == (1, 1), errors
    assert f"{out.relative_to(copy.folder)}/resume/" in lines[0]
    assert f"{says}; the stage goes on from its last save" in lines[0]
    assert "Traceback" not in errors
    assert list(out.rglob("*.part")) == []
    pointer = artifact.read_json(out / "resume/state.json")
    assert sorted(path.name for path in (out / "resume").iterdir()) == [pointer["tensors"], "state.json"]


def goes_on(finished: Laboratory, copy: Laboratory, out: Path) -> None:
    """From the save that stands to the bytes of a run that was never stopped."""
    saved = saves(out)
    again = copy.run("python", "-m", "interplay.run.stage", "run", out.name)
    assert again.returncode == 0, again.stderr
    assert f"going on from {saved}/" in again.stderr
    record = Path("results/pretrain") / out.name / "record.json"
    assert (copy.folder / record).read_bytes() == (finished.folder / record).read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_a_disk_that_fills_up_between_two_saves(finished: Laboratory, small_disk: Path) -> None:
    copy = copy_of(finished, small_disk / "laboratory")
    room = 3.5 * weights(copy)
    out = unfinish(copy, "pretrain")
    free = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(int(free.f_bavail * free.f_frsize - room)))
    fails_in_one_line(copy, out, "No space left on device")
    assert saves(out) >= 1
    ballast.unlink()
    goes_on(finished, copy, out)


def test_a_disk_too_small_for_a_corpus(finished: Laboratory, small_disk: Path) -> None:
    copy = copy_of(finished, small_disk / "laboratory")
    out = unfinish(copy, "corpus")
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - (1 << 17)))
    done = copy.run("python", "-m", "interplay.run.stage", "run", out.name)
    lines = [line for line in done.stderr.splitlines() if line.startswith("interplay: ")]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert f"{out.relative_to(copy.folder)}/" in lines[0]
    assert "No space left on device" in lines[0]
    assert [path.name for path in artifact.payload(out)] == []


@pytest.mark.slow
def test_a_file_that_may_not_grow_as_large_as_a_save(finished: Laboratory, tmp_path: Path) -> None:
    copy = copy_of(finished, tmp_path / "laboratory")
    most = int(1.5 * weights(copy))
    out = unfinish(copy, "pretrain")
    while not saves(out):
        unfinish(copy, "pretrain")
        process = copy.stage(out.name)
        wait_for(lambda: saves(out) > 0 or artifact.done(out))
        process.send_signal(signal.SIGTERM)
        process.wait()
    fails_in_one_line(
        copy, out, "File too large", f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}));"
    )
    goes_on(finished, copy, out)
