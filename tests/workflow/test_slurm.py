"""What Slurm is asked for, and what becomes of its signals, with stand-ins for its commands on the path."""

import json
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BEHIND, Laboratory, below, saves, untrained, wait_for

from interplay.core import artifact, execution
from interplay.run.slurm import MADE, Site, share, write_shared
from interplay.study.expand import plan_study

pytestmark = pytest.mark.slow
SILENT = "#!/bin/sh\nexit 0\n"
COMMANDS = {
    "sbatch": '#!/bin/sh\necho "$@" >> submitted\necho 1\n',
    "srun": '#!/bin/bash\nwhile [[ "$1" == -* ]]; do shift; done\nexec "$@"\n',
    "sinfo": "#!/bin/sh\necho PARTITION\necho 'main*'\n",
    **dict.fromkeys(("sacct", "squeue", "scancel", "sacctmgr", "scontrol", "sshare"), SILENT),
}


@pytest.fixture
def cluster(finished: Laboratory, tmp_path: Path) -> Laboratory:
    """A laboratory whose base is still to be made, on a machine with such commands."""
    laboratory = untrained(finished, tmp_path / "laboratory")
    for name, text in COMMANDS.items():
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    laboratory.env |= {"PATH": f"{tmp_path / 'bin'}:{laboratory.env['PATH']}", "SLURM_JOB_ID": "1"}
    return laboratory


def submitted(cluster: Laboratory) -> str:
    """What the first sbatch of a study was told."""
    command = ["snakemake", "all", "--profile", "slurm", "--config", "study=quickstart", "scale=smoke", "shared_minutes=0"]
    process = subprocess.Popen(command, cwd=cluster.folder, env=cluster.env, stderr=subprocess.PIPE, text=True)
    file = cluster.folder / "submitted"
    wait_for(lambda: file.exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    assert file.exists(), said
    return file.read_text().splitlines()[0]


def test_a_job_may_be_requeued_and_is_warned_before_its_time_is_up(cluster: Laboratory) -> None:
    line = submitted(cluster)
    assert " --requeue " in line
    assert " --signal=USR1@120 " in line
    assert " --mem 3000 " in line
    assert not {"-A", "-C", "--qos="} & set(line.split()), "what the site leaves open is the cluster's choice"


def test_what_a_site_names_is_what_a_job_is_submitted_with(cluster: Laboratory) -> None:
    names = "{account: lab-7, qos: low, constraint: a100|h100, options: ['--exclude=node[1-4]']}\n"
    (cluster.folder / "configs/site.yaml").write_text(names)
    told = submitted(cluster)
    for words in (" -A lab-7 ", " --qos=low ", " -C a100|h100 ", " --signal=USR1@120 --exclude=node[1-4] "):
        assert words in told


def test_the_profile_has_a_scale_of_its_own_and_the_command_line_another(laboratory: Laboratory) -> None:
    for given, scale in (((), "gpu"), (("--config", "scale=smoke"), "smoke"), (("--config", "study=edge"), "gpu")):
        said = laboratory.run("snakemake", "all", "-n", "--profile", "slurm", *given).stdout
        name = "edge" if "study=edge" in given else "quickstart"
        lock = artifact.read_json(laboratory.folder / f"configs/plans/{name}.{scale}.lock.json")
        assert lock["report"] in said


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_what_slurm_tells_the_snakemake_of_the_job_step_alone_reaches_the_stage(
    finished: Laboratory, cluster: Laboratory, number: signal.Signals
) -> None:
    process, out, base = job(finished, cluster)
    stages = below(process, "interplay.run.stage")
    step = [one for one in below(process, "snakemake") if one not in stages][-1]
    step.send_signal(number)
    stopped_with_a_save(process, cluster, out, base)


def test_the_first_task_of_an_array_finds_out_by_itself_before_its_time_is_up(
    finished: Laboratory, cluster: Laboratory, tmp_path: Path
) -> None:
    cluster.env |= {"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "1"}
    (cluster.folder / "configs/site.yaml").write_text("warn_seconds: 600\n")
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 600))
    job_name = f"interplay_{uuid.uuid4()}"
    shown = f"JobId=1 JobName={job_name} JobState=RUNNING RunTime=0 TimeLimit=1 StartTime={end} EndTime={end} PreemptTime=None"
    (tmp_path / "bin/scontrol").write_text(f"#!/bin/sh\n[ $1 = show ] && echo {shown} || echo $* >> requeued\n")
    process, out, base = job(finished, cluster, saves_first=False)
    stopped_with_a_save(process, cluster, out, base)


def job(finished: Laboratory, cluster: Laboratory, saves_first: bool = True) -> tuple["subprocess.Popen[str]", Path, Path]:
    """What a batch script starts for the pre-training, its folder, and that of the same stage where it was never stopped."""
    base = next(finished.folder.glob("results/pretrain/*"))
    out = cluster.folder / "results/pretrain" / base.name
    stage = artifact.read_json(base / "stage.json")
    out.mkdir(parents=True)
    (out / "stage.json").write_text(json.dumps({**stage, "run": {**stage["run"], "save_minutes": 0.0}}))
    batch = (
        "python -m snakemake --snakefile Snakefile --allowed-rules pretrain --cores 1 --force-use-threads --force --no-hooks "
        "--nolock --keep-incomplete --rerun-triggers input --executor slurm-jobstep --jobs 1 --mode remote "
        f"--target-jobs pretrain:digest={base.name} --config study=quickstart scale=smoke"
    )
    process = subprocess.Popen([*BEHIND, *batch.split()], cwd=cluster.folder, env=cluster.env, stderr=subprocess.PIPE, text=True)
    if saves_first:
        wait_for(lambda: saves(out) >= 1)
    return process, out, base


def stopped_with_a_save(process: "subprocess.Popen[str]", cluster: Laboratory, out: Path, base: Path) -> None:
    """The job ends where its stage has saved, and another start ends with the bytes of one that was never stopped."""
    _, errors = process.communicate(timeout=300)
    assert "interplay: stopped" in errors, errors
    assert not artifact.done(out)
    again = cluster.run("python", "-m", "interplay.run.stage", "run", base.name)
    assert again.returncode == 0, again.stderr
    assert (out / "record.json").read_bytes() == (base / "record.json").read_bytes()


def test_stages_that_share_a_job_are_made_by_one_process_and_one_that_fails_does_not_keep_the_others(
    laboratory: Laboratory,
) -> None:
    plan = plan_study(laboratory.folder / "configs", "quickstart", "smoke")
    data = [stage for stage in plan.stages.values() if stage.kind == "problems"]
    lacking = next(stage for stage in plan.stages.values() if stage.kind == "tokenizer")
    made = [*data, replace(lacking, deps={"data": "0" * 12})]
    (job,) = share([*data, made[-1]], dict.fromkeys((stage.digest for stage in made), 1.0), 10, Site())
    results = laboratory.folder / "results"
    for stage in made:
        artifact.write_json(artifact.folder(results, stage.kind, stage.digest) / "stage.json", stage.as_json())
    write_shared(results, [job], {stage.digest: stage for stage in made}, Site())

    command = [sys.executable, "-m", "interplay.run.forkserver", "share", job.digest, "--log", "log"]
    environment = {**laboratory.env, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=laboratory.folder, env=environment)
    wait_for(lambda: any(artifact.done(results / "problems" / stage.digest) for stage in data))
    process.send_signal(signal.SIGUSR1)
    assert process.wait() == execution.EXIT
    noted = {path.name for path in (job.folder(results) / "resume").iterdir()}
    assert noted >= {stage.digest for stage in data if artifact.done(results / "problems" / stage.digest)}
    assert not (job.folder(results) / MADE).exists()

    assert subprocess.run(command, cwd=laboratory.folder, env=environment, check=False).returncode == 0
    assert all(artifact.done(results / "problems" / stage.digest) for stage in data)
    assert not artifact.done(results / "tokenizer" / lacking.digest)
    assert (job.folder(results) / MADE).exists()
    said = (laboratory.folder / "log").read_text()
    assert f"not made: tokenizer {lacking.digest}; see its log" in said
    assert "names no stage there" in (laboratory.folder / f"logs/tokenizer/{lacking.digest}.log").read_text()
