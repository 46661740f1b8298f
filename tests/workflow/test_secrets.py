"""What a run leaves behind can be shared: it holds nothing of the environment that it was made in."""

import shutil
from pathlib import Path

from conftest import Laboratory

MARKER = "m4rker-0f-a-secret"
SECRETS = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "WANDB_API_KEY", "DATABASE_URL")


def holding(folder: Path) -> list[str]:
    """Files below the folder, however they are called, whose bytes hold the marker."""
    found = [path for path in folder.rglob("*") if path.is_file() and MARKER.encode() in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


def test_no_file_of_a_run_nor_of_its_export_holds_a_secret_of_the_environment(finished: Laboratory) -> None:
    finished.env |= {name: f"{MARKER}-{name}" for name in SECRETS} | {"INTERPLAY_TRACK": "1"}
    for kind in ("report", "studies"):  # the latter: records that are put back where they are missing
        shutil.rmtree(finished.folder / "results" / kind)
    shutil.rmtree(next(finished.folder.glob("results/evaluate/*")))
    problems = next(finished.folder.glob("results/problems/*"))
    (problems / "record.json").unlink()
    alone = finished.run(
        "python", "-m", "interplay.run.stage", "run", problems.name, "--log", f"logs/problems/{problems.name}.log"
    )
    assert alone.returncode == 0, alone.stderr
    again = finished.snakemake("study=quickstart", "scale=smoke")
    assert again.returncode == 0, again.stderr
    exported = finished.run("interplay", "export", "quickstart", "--scale", "smoke", "-o", "export")
    assert exported.returncode == 0, exported.stderr
    assert len(list(finished.folder.glob("results/evaluate/*/telemetry.json"))) > 2
    assert list(finished.folder.glob("mlflow.db"))
    assert {path.name for path in finished.folder.glob("export/*")} >= {"index.html", "records", "export.json"}
    said = (alone.stdout, alone.stderr, again.stdout, again.stderr, exported.stdout)
    assert not any(MARKER in text for text in said)
    assert holding(finished.folder) == []


def test_a_secret_that_is_in_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.hidden").write_bytes(b"\x00" + MARKER.encode() + b"\xff")
    assert holding(tmp_path) == ["sub/.hidden"]
