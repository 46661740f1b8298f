"""DVC beside Snakemake, with the real tools: what git and a remote hold between them is enough for another clone."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import forked
import pyarrow as pa
import pytest
from conftest import ROOT, Laboratory
from pyarrow import parquet as pq

from tools.reference import pipeline

SMOKE = ("study=quickstart", "scale=smoke")


class Clone:
    """A checkout of the project with its own results."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env | {"INTERPLAY_TRACK": "0", "SNAKEMAKE_PROFILE": "local"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        if result := forked.run(command, self.folder, self.env):
            return result
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300, check=False)

    def must(self, *command: str) -> str:
        result = self.run(*command)
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def snakemake(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("snakemake", "all", *flags, "--config", *SMOKE)

    def changed(self) -> list[str]:
        """What git sees changed."""
        return [line[3:] for line in self.must("git", "status", "--short").splitlines()]


def jobs(said: str) -> list[str]:
    """Kinds of the stages in Snakemake's job table."""
    kinds = [line.split()[0] for line in said.splitlines() if len(line.split()) == 2 and line.split()[1].isdecimal()]
    return [kind for kind in kinds if kind not in ("all", "total")]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def origin(finished: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A project in git whose finished study was reproduced by DVC and pushed to the remote of `.dvc/config`, then committed."""
    folder = tmp_path_factory.mktemp("origin")
    laboratory = Laboratory(folder)
    shutil.copytree(finished.folder / "results", folder / "results", symlinks=True)
    for name in (".gitignore", ".dvcignore", "dvc.yaml"):
        shutil.copy(ROOT / name, folder)
    (folder / "data/scores").mkdir(parents=True)
    shutil.copy(ROOT / "data/scores/README.md", folder / "data/scores")
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc")
    laboratory.edit("configs/config.yaml", "scale: laptop", "scale: smoke")
    clone = Clone(folder, laboratory.env)
    clone.must("interplay", "plan", "quickstart", "--scale", "smoke", "--write")  # the laboratory's sets are smaller
    clone.must("git", "init", "-q")
    for key, value in (("user.name", "a"), ("user.email", "a@b"), ("commit.gpgsign", "false")):
        clone.must("git", "config", key, value)
    clone.must("git", "add", "-A")
    clone.must("git", "commit", "-qm", "before")
    assert jobs(clone.must("dvc", "repro", "quickstart")) == []
    clone.must("interplay", "store", "push", "quickstart")
    clone.must("git", "add", "-A")
    clone.must("git", "commit", "-qm", "after")
    return clone


@pytest.fixture
def clone(origin: Clone, tmp_path: Path) -> Clone:
    """A fresh clone that knows the remote."""
    origin.must("git", "clone", "-q", ".", str(tmp_path / "clone"))
    made = Clone(tmp_path / "clone", origin.env)
    made.must("dvc", "remote", "modify", "--local", "local", "url", str(origin.folder / "dvc-store"))
    return made


SHOWN = ("docs/results/metrics", "docs/results/tables", "results/tables")


def test_what_is_deleted_of_the_tables_comes_back_and_what_is_there_is_left_alone(origin: Clone) -> None:
    before = {part: contents(origin.folder / part) for part in SHOWN}
    assert "quickstart.smoke/scores.csv" in before["docs/results/tables"]
    assert "didn't change" in origin.must("dvc", "repro", "quickstart")
    for part in SHOWN:
        shutil.rmtree(origin.folder / part)
    assert jobs(origin.must("dvc", "repro", "quickstart")) == []
    assert {part: contents(origin.folder / part) for part in SHOWN} == before
    assert origin.changed() == []


@pytest.fixture
def fresh(tmp_path: Path) -> Clone:
    """A clone of this project as it is in the working directory, with what its studies need."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    own = [name for name in listed.stdout.splitlines() if not (name.startswith("results/") and name.endswith(".dvc"))]
    for name in own:  # without the pointers of studies that were run here
        if not name.startswith(("src/", "tests/", "docs/", "bench/")) or name.startswith("docs/results/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    clone = Clone(
        tmp_path, {key: value for key, value in os.environ.items() if key not in ("INTERPLAY_COMPUTE", "INTERPLAY_STORE")}
    )
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")):
        clone.must("git", *words)
    return clone


def test_a_fresh_clone_is_clean_to_dvc_and_shows_its_metrics(fresh: Clone) -> None:
    assert "up to date" in fresh.must("dvc", "status")
    assert "main.rl_edge.edge strict_pass@1" in fresh.must("dvc", "exp", "show", "--md", "--no-pager")
    assert "demo curves" in fresh.must("dvc", "plots", "show", "--json")
    assert set(fresh.must("dvc", "stage", "list", "--name-only").split()) == set(pipeline.stages(ROOT))


def test_tables_and_verdicts_are_made_of_committed_scores_follow_them_and_are_not_computed_unasked(fresh: Clone) -> None:
    scores = fresh.folder / "data/scores/demo.laptop.parquet"
    for part in ("metrics", "tables"):
        shutil.rmtree(fresh.folder / "docs/results" / part)
    assert jobs(fresh.must("dvc", "repro", "demo")) == ["report"]  # at its own scale
    assert [name for name in fresh.changed() if "/demo." in name] == []  # byte for byte what is committed
    assert {path.parts[-3] for path in fresh.folder.glob("results/*/*/model")} <= {"pretrain"}, "bases that ship, and no more"

    before, rows, known = shown(fresh), pq.read_table(scores), pq.read_metadata(scores).metadata
    of_gold = {digest for digest in rows["stage"].unique().to_pylist() if "gold_sft" in label_of(fresh, digest)}
    solved = [0 if row["stage"] in of_gold and row["band"] == "edge" else row["strict"] for row in rows.to_pylist()]
    rows = rows.set_column(rows.column_names.index("strict"), "strict", pa.array(solved, rows.schema.field("strict").type))
    with pq.ParquetWriter(scores, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({key: value for key, value in known.items() if key.startswith(b"interplay.")})
    assert jobs(fresh.must("dvc", "repro", "demo")) == ["report"]
    claim = "Supervision on the same problems lifts the edge, too"
    assert (before["claims"][claim], shown(fresh)["claims"][claim]) == ("supported", "refuted")
    assert shown(fresh)["main"]["gold_sft"]["edge strict_pass@1"] == 0
    assert shown(fresh)["main"]["rl_edge"] == before["main"]["rl_edge"]

    scores.unlink()
    shutil.rmtree(fresh.folder / "results")
    refused = fresh.run("interplay", "store", "rebuild", "demo", "--scale", "laptop")
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert " stages would have to be computed, about " in line
    assert "hours on this machine; data/scores/demo.laptop.parquet is not here (`git checkout " in line
    assert "`INTERPLAY_COMPUTE=1 dvc repro` computes them" in line
    assert fresh.run("dvc", "repro", "demo").returncode != 0
    assert not list(fresh.folder.glob("results/*/*/record.json"))


def shown(clone: Clone) -> dict[str, Any]:
    return dict(json.loads((clone.folder / "docs/results/metrics/demo.laptop.json").read_text()))


def label_of(clone: Clone, digest: str) -> str:
    """Where a stage stands in the study."""
    return str(json.loads((clone.folder / "results/evaluate" / digest / "stage.json").read_text())["label"])


def test_after_clone_and_pull_there_is_nothing_to_do_and_a_missing_payload_is_named_before_any_job(
    clone: Clone, origin: Clone
) -> None:
    clone.must("dvc", "pull")
    plan = clone.snakemake("-n")
    assert plan.returncode == 0
    assert jobs(plan.stdout + plan.stderr) == []
    base = next(clone.folder.glob("results/pretrain/*"))
    lose_an_evaluation_and(base / "model", clone.folder)
    shutil.rmtree(clone.folder / ".dvc/cache")
    clone.must("dvc", "remote", "modify", "--local", "local", "url", str(clone.folder / "nowhere"))
    result = clone.snakemake()
    assert result.returncode == 2
    line = next(line for line in result.stderr.splitlines() if line.startswith("interplay: "))
    assert f"results/pretrain/{base.name}/model" in line
    assert "interplay store push" in line
    assert "Traceback" not in result.stderr
    assert not list(clone.folder.glob("results/*/*/telemetry.json"))


def test_one_digest_with_two_contents_is_reported_by_pull_and_left_alone(clone: Clone) -> None:
    clone.must("dvc", "pull")
    path = next(clone.folder.glob("results/pretrain/*/record.json"))
    made_elsewhere = path.read_text().replace('"float32"', '"float32" ')
    path.unlink()  # a link into the cache, perhaps
    path.write_text(made_elsewhere)
    (path.parent / "model/model.safetensors").unlink()
    pulled = clone.run("interplay", "store", "pull", "quickstart")
    assert pulled.returncode == 2
    said = f"results/pretrain/{path.parent.name}: one digest, two contents: made here (float32, alone), and the store has another"
    assert said in pulled.stdout
    assert path.read_text() == made_elsewhere
    assert not (path.parent / "model/model.safetensors").exists()


@pytest.mark.slow
def test_a_missing_payload_that_the_remote_has_is_fetched_before_the_first_job(clone: Clone, origin: Clone) -> None:
    clone.must("dvc", "pull")
    base = next(clone.folder.glob("results/pretrain/*"))
    lost = lose_an_evaluation_and(base / "model", clone.folder)
    result = clone.snakemake()
    assert result.returncode == 0, result.stderr
    assert sorted(jobs(result.stdout + result.stderr)) == ["evaluate", "report"]
    assert contents(base / "model") == contents(origin.folder / base.relative_to(clone.folder) / "model")
    assert (lost / "record.json").read_bytes() == (origin.folder / lost.relative_to(clone.folder) / "record.json").read_bytes()
    assert clone.changed() == []


def lose_an_evaluation_and(payload: Path, project: Path) -> Path:
    """Remove a payload, one evaluation of its model with the report, and the records kept of the study."""
    records = [path for path in project.glob("results/evaluate/*/record.json")]
    lost = next(p.parent for p in records if json.loads(p.read_text())["deps"]["model"] == payload.parent.name)
    for folder in (payload, lost, *project.glob("results/report/*"), project / "results/studies"):
        shutil.rmtree(folder)
    return lost


@pytest.mark.slow
def test_from_the_small_records_alone_every_table_is_made_again_and_no_weights_are_there(clone: Clone, origin: Clone) -> None:
    clone.must("dvc", "pull", "results/studies.dvc")
    said = clone.must("dvc", "repro", "--force", "quickstart")
    assert jobs(said) == ["report"]
    for part in ("tables", "studies"):
        assert contents(clone.folder / "results" / part) == contents(origin.folder / "results" / part)
    names = {path.name for path in clone.folder.glob("results/*/*/**/*")}
    assert not names & {"model.safetensors", "samples.parquet", "problems.parquet", "tokens.npy"}
    assert clone.changed() == []  # what was not there was not dropped from the pointers


def test_a_dvc_that_fails_leaves_the_study_standing_with_one_line(origin: Clone) -> None:
    pointer = origin.folder / "results/rl.dvc"
    text = pointer.read_text()
    pointer.write_text("outs: [damaged")
    try:
        result = origin.snakemake()
    finally:
        pointer.write_text(text)
    assert result.returncode == 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("interplay: ")]
    assert len(lines) == 1
    assert "not stored: dvc add" in lines[0]
    assert "Traceback" not in result.stderr


def test_what_is_stored_already_costs_no_dvc(origin: Clone, tmp_path: Path) -> None:
    assert origin.snakemake().returncode == 0  # stores what a test before this one may have left
    (tmp_path / "dvc.py").write_text("raise SystemExit('dvc was imported')")
    paths = [str(tmp_path), *filter(None, [origin.env.get("PYTHONPATH")])]  # the sources stay those of the run before
    blind = Clone(origin.folder, origin.env | {"PYTHONPATH": os.pathsep.join(paths)})
    result = blind.snakemake()
    assert result.returncode == 0
    assert "interplay: " not in result.stderr
    assert "dvc was imported" in blind.run("dvc", "status").stderr


def test_a_project_without_dvc_gets_no_pointers(finished: Laboratory) -> None:
    assert (finished.folder / "results/studies/quickstart.smoke/plan.json").exists()
    assert not list(finished.folder.glob("results/*.dvc"))
    refused = finished.run("interplay", "store", "push", "quickstart")
    assert refused.returncode == 2
    assert "git init && dvc init" in refused.stderr


def test_an_export_stands_alone_and_takes_the_place_of_an_older_export_only(finished: Laboratory, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    export = ("interplay", "export", "quickstart", "--scale", "smoke", "-o")
    refused = finished.run(*export, str(tmp_path))
    assert refused.returncode == 2
    assert "not an export" in refused.stderr
    out = tmp_path / "quickstart"
    out.mkdir()
    for name in ("export.json", "stale.txt"):
        (out / name).touch()
    assert finished.run(*export, str(out)).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "quickstart"}
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=out, check=False).returncode == 0
    listed = {line.split()[0].rstrip("/") for line in (out / "README.txt").read_text().splitlines() if "  " in line.strip()}
    assert {path.name for path in out.iterdir()} == listed | {"README.txt"}
    page = (out / "index.html").read_text()
    assert not re.search(r"""src="http|<link[^>]*href="http|url\(['"]?http|@import""", page)  # links for readers are not loaded
    words = re.sub(r"[A-Za-z0-9+/=]{100,}", "", page)  # without the base64 of its PDFs, which spells any short name
    assert not re.search(rf"\b{re.escape(os.uname().nodename)}\b", words)
    records = {path.parent.name for path in out.glob("records/*/*/record.json")}
    assert records == {stage["digest"] for stage in json.loads((out / "plan.json").read_text())["stages"]}
