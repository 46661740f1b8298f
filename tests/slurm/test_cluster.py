"""Studies on a real Slurm of one node: the same records and tables as on one machine, after failures, preemption and a drained
node, too. `make test-slurm` installs what is needed.

Each test waits for two clocks, Slurm's and that by which Snakemake looks at its jobs (after 1, 11, 21 s and so on): a study of six
levels takes a minute and a half, so what one job can show is shown on the pre-training alone."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import many
import pytest
from conftest import LONGEST, Laboratory, saves, untrained, wait_for
from one_node import OneNode, installed, run

from interplay.core import artifact, metrics
from interplay.study.expand import plan_study

pytestmark = pytest.mark.slurm
SMOKE = ("study=quickstart", "scale=smoke")
OFTEN = ("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1", "--latency-wait", "5")
"""Snakemake looks at its jobs each second, since they are short."""


STARTED: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def nothing_left(node: OneNode) -> Iterator[None]:
    """A test that fails leaves neither a Snakemake nor a job to the next."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
    run("scancel", "--me")


@pytest.fixture(scope="session")
def node() -> Iterator[OneNode]:
    """A running cluster; what it leaves in its folder goes with it."""
    assert os.geteuid() == 0, "Slurm's daemons are started as root here"
    assert not installed(), f"missing: {installed()}; `make test-slurm` installs them"
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:
        made = OneNode(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def based(node: OneNode, finished: Laboratory, tmp_path: Path) -> Laboratory:
    """A laboratory with data and no models, where a stage saves after every step and can be met at work."""
    return untrained(finished, tmp_path / "laboratory")


def command(*config: str, target: str = "all", array: str = "") -> list[str]:
    as_array = ["--slurm-array-jobs", array] if array else []
    alone = [] if any(given.startswith("shared_minutes") for given in config) else ["shared_minutes=0"]
    return ["snakemake", *target.split(), "--profile", "slurm", *OFTEN, *as_array, "--config", *config, *alone]


def start(laboratory: Laboratory, *config: str, target: str = "all", array: str = "") -> "subprocess.Popen[str]":
    """Snakemake in the background; what it says lies beside the study."""
    words = command(*config, target=target, array=array)
    with open(laboratory.folder / f"{config[0].replace('/', '.')}.log", "w") as log:
        STARTED.append(subprocess.Popen(words, cwd=laboratory.folder, env=laboratory.env, stdout=log, stderr=log, text=True))
    return STARTED[-1]


def ended(process: "subprocess.Popen[str]", laboratory: Laboratory) -> tuple[int, str]:
    """Exit status, and all that was said."""
    code = process.wait(timeout=LONGEST)
    return code, "".join(path.read_text() for path in laboratory.folder.glob("study=*.log"))


def tables(laboratory: Laboratory) -> dict[str, str]:
    report = laboratory.folder / "results/by-name/quickstart.smoke/report"
    return {path.name: path.read_text() for path in sorted((report / "tables").iterdir())}


def record_of(kind: str, finished: Laboratory) -> str:
    """Below the project, the record of the study's stage of this kind that needs no other model than the first."""
    plan = plan_study(finished.folder / "configs", "quickstart", "smoke")
    base = next(stage.digest for stage in plan.stages.values() if stage.kind == "pretrain")
    stages = [stage for stage in plan.stages.values() if base in (stage.digest, *stage.deps.values())]
    return next(f"results/{kind}/{stage.digest}/record.json" for stage in stages if stage.kind == kind)


def at_work(laboratory: Laboratory) -> Path:
    """The folder of the pre-training stage, once it has saved."""
    found = laboratory.folder.glob("results/pretrain/*/resume")
    wait_for(lambda: any(saves(path.parent) >= 1 for path in laboratory.folder.glob("results/pretrain/*/resume")))
    return next(found).parent


def test_records_and_tables_are_those_of_one_machine(node: OneNode, finished: Laboratory, laboratory: Laboratory) -> None:
    before = node.newest()
    done = laboratory.run(*command(*SMOKE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert laboratory.records() == finished.records()
    assert tables(laboratory) == tables(finished)
    jobs = node.jobs(before)
    assert len(jobs) == len(finished.records())
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    again = laboratory.run(*command(*SMOKE))
    assert again.returncode == 0
    assert len(node.jobs(before)) == len(jobs)


def test_a_job_that_fails_says_why_and_leaves_the_other_arms_standing(
    node: OneNode, finished: Laboratory, laboratory: Laboratory
) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    study, before = "configs/study/quickstart.yaml", node.newest()
    laboratory.edit(study, "  eval: {kind", "  more: {kind: midtrain, data: {corpus: 1.0}}\n  eval: {kind")
    broken = "  broken: {path: [base, more], control: base, set: {more.optimizer.learning_rate: 1.0e+30}}\n"
    laboratory.edit(study, "evaluate: [eval]", f"{broken}evaluate: [eval]")
    done = laboratory.run(*command(*SMOKE))
    assert done.returncode != 0
    assert "lower the learning rate" in done.stdout + done.stderr
    assert finished.records().items() <= laboratory.records().items()
    failed = {job["Comment"].split("_")[1] for job in node.jobs(before) if job["JobState"] == "FAILED"}
    assert failed == {"midtrain"}, "nothing that hangs on it is tried"


def test_a_preempted_job_waits_in_the_queue_and_goes_on_from_its_save(
    node: OneNode, finished: Laboratory, based: Laboratory
) -> None:
    record = record_of("pretrain", finished)
    process = start(based, *SMOKE, target=record)
    out = at_work(based)
    urgent = run("sbatch", "--parsable", "-p", "urgent", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null").strip()
    wait_for(lambda: any(job["JobId"] == urgent and job["JobState"] == "COMPLETED" for job in node.jobs()))
    code, said = ended(process, based)
    assert code == 0, said
    assert int(artifact.read_json(out / "telemetry.json")["attempts"]) >= 2
    assert based.records()[record] == finished.records()[record]


def test_a_requeued_job_is_no_failure(node: OneNode, finished: Laboratory, based: Laboratory) -> None:
    record = record_of("pretrain", finished)
    process = start(based, *SMOKE, target=record)
    out = at_work(based)
    running = [job["JobId"] for job in node.jobs() if job["JobState"] == "RUNNING" and out.parent.name in job["Comment"]]
    run("scontrol", "requeue", running[-1])
    code, said = ended(process, based)
    assert code == 0, said
    assert based.records()[record] == finished.records()[record]


def test_a_stage_of_two_processes_that_is_warned_of_its_time_limit_goes_on_in_the_same_job(
    node: OneNode, finished: Laboratory, based: Laboratory
) -> None:
    record = record_of("pretrain", finished)
    based.edit("configs/scale/smoke.yaml", "run: {save_minutes: 0.0}", "run: {save_minutes: 0.0, processes: 2}")
    process, before = start(based, *SMOKE, target=record), node.newest()
    out = at_work(based)
    (training,) = [job["JobId"] for job in node.jobs(before) if "pretrain" in job["Comment"]]
    run("scancel", "--signal=USR1", training)  # as --signal=USR1@120 has Slurm do, two minutes ahead
    code, said = ended(process, based)
    assert code == 0, said
    assert int(artifact.read_json(out / "telemetry.json")["attempts"]) == 2
    (job,) = [job for job in node.jobs(before) if "pretrain" in job["Comment"]]
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), "no retry was spent"
    assert job["NumCPUs"] == "2"


@pytest.fixture
def waiting(node: OneNode, laboratory: Laboratory) -> Iterator[tuple["subprocess.Popen[str]", Path, TextIO]]:
    """A job whose stage, of a kind that saves nothing, waits for the holder of its folder's lease: for this test."""
    plan = plan_study(laboratory.folder / "configs", "quickstart", "smoke")
    stage = next(stage for stage in plan.stages.values() if stage.kind == "problems")
    out = artifact.folder(laboratory.folder / "results", stage.kind, stage.digest)
    out.mkdir(parents=True)
    with open(out / "lease", "a+") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        process = start(laboratory, *SMOKE, target=f"results/problems/{stage.digest}/record.json")
        wait_for(lambda: "waiting for the record" in said_by(out))
        yield process, out, lease


def said_by(out: Path) -> str:
    """What a stage has said so far: in the file to which its log, that Snakemake takes away now and then, is a link."""
    log = out.parent.parent.parent / f"logs/{out.parent.name}/.{out.name}.log"
    return log.read_text() if log.exists() else ""


def test_a_stage_that_saved_nothing_when_its_time_was_up_is_not_put_back(
    node: OneNode, laboratory: Laboratory, waiting: tuple["subprocess.Popen[str]", Path, TextIO]
) -> None:
    process, out, lease = waiting
    before = node.newest() - 1
    run("scancel", "--signal=USR1", node.jobs(before)[0]["JobId"])
    wait_for(lambda: node.jobs(before)[0]["JobState"] == "FAILED")
    assert node.jobs(before)[0]["Restarts"] == "0"
    assert "it saved nothing in 00:0" in said_by(out)
    assert "give it a longer run.runtime" in said_by(out)
    lease.close()
    assert ended(process, laboratory)[0] == 0, "the profile tries once more"
    assert artifact.done(out)


def test_but_where_another_job_took_its_place_it_is(
    node: OneNode, laboratory: Laboratory, waiting: tuple["subprocess.Popen[str]", Path, TextIO]
) -> None:
    process, out, lease = waiting
    before = node.newest() - 1
    run("sbatch", "-p", "urgent", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null")
    wait_for(lambda: node.jobs(before)[0]["Restarts"] == "1")
    lease.close()
    code, said = ended(process, laboratory)
    assert code == 0, said
    assert artifact.done(out)
    assert len(node.jobs(before)) == 2, "the stage's and the urgent one: no retry was spent"


def test_a_stage_of_a_cancelled_job_stays_cancelled(node: OneNode, finished: Laboratory, based: Laboratory) -> None:
    process, before = start(based, *SMOKE, target=record_of("pretrain", finished)), node.newest()
    out = at_work(based)
    (training,) = [job["JobId"] for job in node.jobs(before) if "pretrain" in job["Comment"]]
    process.send_signal(signal.SIGINT)  # Snakemake cancels its jobs
    ended(process, based)
    wait_for(lambda: any(job["JobId"] == training and job["JobState"] == "CANCELLED" for job in node.jobs()))
    time.sleep(5)
    assert [job["JobState"] for job in node.jobs(before) if job["JobState"] not in ("COMPLETED", "CANCELLED")] == []
    assert not artifact.done(out)


def test_stages_of_a_kind_that_are_ready_together_go_as_one_array_where_asked(
    node: OneNode, finished: Laboratory, laboratory: Laboratory
) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    for folder in ("evaluate", "report", "studies"):  # from the last one a launch would put records back
        shutil.rmtree(laboratory.folder / "results" / folder)
    before = node.newest()
    done = laboratory.run(*command(*SMOKE, array="evaluate"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert laboratory.records() == finished.records()
    jobs = node.jobs(before)
    together = [job for job in jobs if "ArrayTaskId" in job]
    assert len(together) == 3, "an evaluation of each arm"
    assert len({job["ArrayJobId"] for job in together}) == 1


def test_tasks_of_an_array_save_when_they_are_preempted(node: OneNode, finished: Laboratory, laboratory: Laboratory) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    laboratory.edit("configs/scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 400,")
    plan, before = plan_study(laboratory.folder / "configs", "quickstart", "smoke"), node.newest()
    folders = [laboratory.folder / "results/rl" / stage.digest for stage in plan.stages.values() if stage.kind == "rl"]
    records = [str((folder / "record.json").relative_to(laboratory.folder)) for folder in folders]
    process = start(laboratory, *SMOKE, target=" ".join(records), array="rl")
    wait_for(lambda: all(len(metrics.read(folder)) > 10 for folder in folders))
    run("sbatch", "-p", "urgent", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null")
    code, said = ended(process, laboratory)
    assert code == 0, said
    tasks = [job for job in node.jobs(before) if "ArrayTaskId" in job]
    assert [(job["JobState"], job["Restarts"]) for job in tasks] == [("COMPLETED", "1")] * 2, "no retry was spent"
    for folder in folders:
        assert re.search(r"interplay: stopped at step \d+ of 400; its job is requeued", said_by(folder))


def test_short_stages_share_jobs_that_are_preempted_put_back_at_their_time_limit_and_picked_up_again(
    node: OneNode, finished: Laboratory, based: Laboratory
) -> None:
    """Forty stages of RL and their evaluations; `python tests/slurm/many.py` does the same with a thousand."""
    many.write_study(based.folder, arms=8)
    study, before = ("study=many", "scale=smoke", "shared_minutes=10"), node.newest()
    plan = plan_study(based.folder / "configs", "many", "smoke")

    def made(kind: str) -> int:
        return sum(artifact.done(based.folder / "results" / kind / stage.digest) for stage in plan.stages.values())

    def running() -> list[str]:
        return [job["JobId"] for job in node.jobs(before) if job["JobState"] == "RUNNING" and job["Partition"] == "main"]

    def at(kind: str, count: int) -> str:
        found: list[str] = []
        wait_for(lambda: made(kind) >= count and bool(found.extend(running()) or found))
        return found[0]

    process = start(based, *study)
    at("rl", 4)
    run("sbatch", "-p", "urgent", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null")
    run("scancel", "--signal=USR1", at("rl", 20))  # as --signal=USR1@120 has Slurm do, two minutes ahead
    at("evaluate", 3)
    process.kill()
    process.wait()
    code, said = ended(start(based, *study), based)
    assert code == 0, said
    assert made("rl") == made("evaluate") - 1 == 40
    jobs = [job for job in node.jobs(before) if job["Partition"] == "main"]
    assert len(jobs) <= 12, "of more than eighty stages"
    assert max(int(job["Restarts"]) for job in jobs) >= 2, "of the RL stages, twice, without using up a retry"
    attempts = [artifact.read_json(path)["attempts"] for path in based.folder.glob("results/rl/*/telemetry.json")]
    assert sum(attempts) <= 40 + 3, "what was made stayed"


def test_jobs_wait_while_the_node_is_drained(node: OneNode, finished: Laboratory, based: Laboratory) -> None:
    record = record_of("pretrain", finished)
    node.wait("idle")
    run("scontrol", "update", f"NodeName={node.host}", "State=DRAIN", "Reason=test")
    try:
        process, before = start(based, *SMOKE, target=record), node.newest()
        wait_for(lambda: node.jobs(before))
        assert {job["JobState"] for job in node.jobs(before)} == {"PENDING"}
    finally:
        run("scontrol", "update", f"NodeName={node.host}", "State=RESUME")
    code, said = ended(process, based)
    assert code == 0, said
    assert based.records()[record] == finished.records()[record]


def test_two_studies_at_once_share_their_stages(node: OneNode, based: Laboratory) -> None:
    studies, before = based.folder / "configs/study", node.newest()
    (studies / "second.yaml").write_text((studies / "quickstart.yaml").read_text())
    based.edit("configs/study/second.yaml", "set: {rl.data: {hard: 1.0}}", "set: {rl.steps: 3}")
    both = [start(based, *SMOKE), start(based, "study=second", "scale=smoke")]
    for process in both:
        code, said = ended(process, based)
        assert code == 0, said
    plans = [plan_study(based.folder / "configs", name, "smoke") for name in ("quickstart", "second")]
    wanted = [set(plan.stages) for plan in plans]
    assert wanted[0] & wanted[1], "they share stages"
    made = [based.folder.glob(f"results/{kind}/*/telemetry.json") for kind in ("pretrain", "rl", "evaluate", "report")]
    attempts = [artifact.read_json(path)["attempts"] for paths in made for path in paths]
    assert set(attempts) == {1}, "what both want is made once"
    assert len(based.records()) == len(wanted[0] | wanted[1])
    assert node.jobs(before)


def test_a_stage_that_wants_a_gpu_gets_one_and_the_site_has_its_say(
    node: OneNode, finished: Laboratory, based: Laboratory
) -> None:
    based.edit("configs/scale/smoke.yaml", "run: {save_minutes: 0.0}", "run: {gpus: 1}")
    based.edit("configs/site.yaml", "gpu_partition: null", "gpu_partition: urgent")
    based.edit("configs/site.yaml", "options: []", "options: [--nice=7]")
    based.edit("configs/site.yaml", "account: null", "account: lab-7")
    based.edit("configs/site.yaml", "qos: null", "qos: low")
    (based.folder / "bin").mkdir()
    (based.folder / "bin/sacctmgr").write_text("#!/bin/sh\necho lab-7\n")  # this cluster keeps no accounts
    (based.folder / "bin/sacctmgr").chmod(0o755)
    based.env["PATH"] = f"{based.folder / 'bin'}:{based.env['PATH']}"
    record, before = record_of("evaluate", finished), node.newest()
    done = based.run(*command(*SMOKE, target=record))
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = node.jobs(before)
    assert [(job["Comment"].split("_")[1], job["Partition"]) for job in jobs] == [("pretrain", "urgent"), ("evaluate", "main")]
    assert jobs[0]["TresPerJob"] == "gres:gpu:1"
    assert {job["Account"] for job in jobs} == {"lab-7"}
    assert based.records()[record] == finished.records()[record], "no GPU is there, whatever the variable says"
