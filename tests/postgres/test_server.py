"""MLflow on a server with PostgreSQL: a study arrives whole, also when the server was away for a while. `make test-postgres`
installs what is needed."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LONGEST, Laboratory, ended_after, saves, untrained, wait_for
from server import SECRET, Postgres, Server

pytestmark = pytest.mark.postgres
STUDY = ("study=quickstart", "scale=smoke")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("postgres")
    for above in (folder, *folder.parents):  # its user must reach its folder
        if above.stat().st_mode & 0o777 == 0o700:
            above.chmod(0o711)
    made = Postgres(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def server(postgres: Postgres, tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, postgres.create("served"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def told(uri: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Digest -> status and last metrics of each stage's run."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name("quickstart")
    assert found is not None
    runs: list[Any] = list(client.search_runs([found.experiment_id], max_results=500))
    stages = [run for run in runs if "stage.digest" in run.data.tags]
    assert max(Counter(run.data.tags["stage.digest"] for run in stages).values()) == 1, "a stage has one run"
    return {run.data.tags["stage.digest"]: (run.info.status, dict(run.data.metrics)) for run in stages}


def test_a_study_arrives_whole_though_the_server_was_away_for_a_while(
    finished: Laboratory, server: Server, tmp_path: Path
) -> None:
    laboratory = untrained(finished, tmp_path / "laboratory")
    laboratory.env |= {"INTERPLAY_TRACK": "1", "MLFLOW_TRACKING_URI": server.uri}
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(
            laboratory.command(*STUDY), cwd=laboratory.folder, env=laboratory.env, stdout=said, stderr=said
        )
        with ended_after(process):
            wait_for(lambda: any(saves(path.parent) >= 1 for path in laboratory.folder.glob("results/pretrain/*/resume")))
            server.stop()
            assert process.wait(timeout=LONGEST) == 0, (tmp_path / "said").read_text()
    assert laboratory.records() == finished.records()
    assert "complete it with `interplay track sync`" in (tmp_path / "said").read_text()

    server.start()
    before = told(server.uri)
    assert {status for status, _ in before.values()} != {"FINISHED"}, "the rest of the study it did not see"
    sync = ("interplay", "track", "sync", "quickstart", "--scale", "smoke")
    done = laboratory.run(*sync)
    assert done.returncode == 0, done.stderr
    after = told(server.uri)
    assert {status for status, _ in after.values()} == {"FINISHED"}
    assert len(after) == len(laboratory.records())

    assert laboratory.run(*sync, "--to", "sqlite:///beside.db").returncode == 0
    beside = told(f"sqlite:///{laboratory.folder / 'beside.db'}")
    assert after.keys() == beside.keys()
    timed = ("system/",)
    for digest, (_, metrics) in after.items():
        measured = {key: value for key, value in beside[digest][1].items() if not key.startswith(timed)}
        assert {key: metrics.get(key) for key in measured} == pytest.approx(measured)


def test_a_password_of_the_store_is_told_to_nobody(finished: Laboratory, postgres: Postgres, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "laboratory")
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    laboratory.env |= {"INTERPLAY_TRACK": "1", "MLFLOW_TRACKING_URI": postgres.create("direct")}
    [record] = laboratory.folder.glob("results/report/*/record.json")
    record.unlink()
    done = laboratory.snakemake(*STUDY)
    assert done.returncode == 0, done.stderr
    synced = laboratory.run("interplay", "track", "sync", "quickstart", "--scale", "smoke")
    assert synced.returncode == 0, synced.stderr
    assert f"//127.0.0.1:{postgres.port}/direct" in synced.stdout
    assert all(SECRET not in text for text in (done.stdout, done.stderr, synced.stdout, synced.stderr))
    written = [path for path in laboratory.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
