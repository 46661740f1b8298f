"""Slurm: short stages that share a job, resources of a job from `configs/site.yaml`, forwarding of Slurm's signals to the stage,
and requeueing."""

import contextlib
import hashlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import yaml
from pydantic import Field, field_validator

from interplay.core import artifact, execution, model
from interplay.core.keys import parse_model
from interplay.core.model import Count, Model
from interplay.study import files
from interplay.study.plan import Stage

# `configs/site.yaml`: names and options of a Slurm cluster, and how jobs start on one machine. Never hashed.


Word = Annotated[str, Field(pattern=r"^[\w.:/@+-]+$")]
"""A name without blanks and quotes: it becomes part of a command line."""
OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(=[A-Za-z0-9_.,:/@%+=\[\]-]+)?")
"""An option of `sbatch` without characters special to a shell; brackets are for lists of nodes, and are quoted."""
SHORT = re.compile(r"-J|-[oeDApnctCN]$")
"""What Snakemake's executor parses as one of its own short options, at any position."""
STAGE, EXECUTOR = "set it in the run block of the stage", "Snakemake's executor sets it"
TAKEN = {
    **{name: f"write the key {name}" for name in ("account", "qos", "constraint")},
    "partition": "write the key partition or gpu_partition",
    "signal": "write the key warn_seconds",
    **dict.fromkeys(("mem", "mem-per-cpu"), f"{STAGE}: memory_mb"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), f"{STAGE}: threads"),
    "time": f"{STAGE}: runtime",
    **dict.fromkeys(("gpus", "gres"), f"{STAGE}: gpus; their type is the key gpu_model"),
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-gpu"), "a stage is one task on one node"),
    **dict.fromkeys(
        ("job-name", "output", "error", "parsable", "export", "comment", "workdir", "chdir", "wrap", "array"), EXECUTOR
    ),
    **dict.fromkeys(("requeue", "no-requeue"), "the profile's slurm-requeue sets it"),
    "clusters": "jobs run on the cluster of the machine that runs Snakemake",
}
"""Options that are set in another place -> the place. Snakemake's executor refuses most of them when a job is submitted."""


class Site(Model):
    """Options that depend on the site. Threads, memory, minutes and GPUs of a stage are in its `run` block."""

    fork_server: bool = True
    """On one machine, stages of one thread without a GPU are forked from a process of the launch that has imported their
    libraries, which saves each of them one to two seconds; false: each imports them. Jobs of Slurm always do."""
    account: Word | None = None
    """Account that jobs are charged to (`sbatch --account`), one of yours in `sacctmgr`; null: the user's default, or none where
    the cluster has no accounts."""
    partition: Word | None = None
    """Partition of stages without GPUs; null: the cluster's default."""
    gpu_partition: Word | None = None
    """Partition of stages with GPUs; null: as `partition`."""
    gpu_model: str | None = None
    """Type of GPU as in the cluster's `gres`, such as h100; null: any. Letters, digits, dots and underscores: Snakemake's
    executor accepts no others."""
    qos: Word | None = None
    """Quality of service (`sbatch --qos`)."""
    constraint: Annotated[str, Field(pattern=r"^[\w.:,&|()\[\]*-]+$")] | None = None
    """Features that a node must have (`sbatch --constraint`), such as a100|h100."""
    warn_seconds: Count = 120
    """Seconds before its time limit at which a stage is signalled to save and stop; more than a save and a start take. Slurm may
    be a minute early, so the `run.runtime` of every stage has to be longer than this and a minute."""
    options: list[str] = []
    """Further options of `sbatch`, such as --exclude=node7, one per entry."""

    @field_validator("gpu_model")
    @classmethod
    def _model_of_letters(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9_.]+", value):
            remedy = "where the cluster's name has others, leave it null and name such nodes by gpu_partition or constraint"
            raise ValueError(f"should be letters, digits, dots and underscores; {remedy}")
        return value

    @field_validator("options")
    @classmethod
    def _options_only(cls, value: list[str]) -> list[str]:
        for option in value:
            found = OPTION.fullmatch(option)
            if not found or SHORT.search(option):
                raise ValueError(f"{option!r} is no option; write --name=value, without blanks, quotes and shell characters")
            if found["name"] in TAKEN:
                raise ValueError(f"{option!r} is not set here: {TAKEN[found['name']]}")
        return value


# Jobs.


JOB_NAME = re.compile(r"interplay_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""`slurm-jobname-prefix` of the profile and the executor's suffix. Jobs of other names, such as one in which a user runs
Snakemake with the profile `local`, are never requeued."""
FORWARDED = (signal.SIGUSR1, signal.SIGTERM)
SEARCH_INTERVAL = 0.2
"""Seconds between searches for a stage with a signal handler."""
SEARCH_TIME = 120.0
"""Seconds after which the search ends: where the stage has just ended, there is none."""
POLL_INTERVAL = 5.0
"""Seconds between calls of scontrol in tasks that receive no signal."""
MOST_RESTARTS = 10
"""Requeues after which a preempted job whose stage has never saved anything fails."""


# -- jobs of several stages --------------------------------------------------------------------------------------------
# A job's own start takes longer than a short stage. So short stages of one depth in the graph, none of which can need another,
# share a job (rule `shared`), in which a fork server makes them one after the other (run.workers). Stages that need them wait for
# the whole job.


SHARED, MADE = "shared", "made"
"""Rule, and folder in results/, of such jobs; the file that one leaves."""
SHARED_JOB = "INTERPLAY_SHARED"
"""Environment variable of the stages in such a job, which stop without requeueing it: the job does."""
SHORT_SECONDS = 60.0
"""That a short stage is estimated to take at most."""
START = 1.0
"""Seconds that each takes beyond its estimate."""
MOST_SHARING = 200
LONGEST_LAUNCH = 30 * 86400.0
"""Seconds that a launch is taken to last at most."""
SPARE_TIME = 3
"""A job is granted so many times what its stages are estimated to take, and what the warning before its time limit takes."""
SERVER_MB = 1000
"""Memory that it is granted beyond that of its largest stage."""


class Shared(NamedTuple):
    """A job of several stages."""

    digest: str
    members: list[str]
    run: execution.Run

    def folder(self, results: Path) -> Path:
        """Where its `stage.json` is."""
        return results / SHARED / self.digest


def share(stages: Iterable[Stage], seconds: Mapping[str, float], minutes: float, site: Site) -> list[Shared]:
    """Jobs of about so many minutes, of two stages and more each; `stages`: all that are to be made. A stage whose time is not
    known, of several processes or nodes, or of a stack has a job of its own."""
    given = {stage.digest: stage for stage in stages} if minutes else {}
    depth: dict[str, int] = {}
    together: dict[tuple[int, int, int], list[str]] = {}
    for digest in artifact.closure(given, lambda one: [ref for ref in given[one].inputs() if ref in given]):
        run = given[digest].run
        depth[digest] = 1 + max((depth[ref] for ref in given[digest].inputs() if ref in given), default=0)
        if 0 < seconds[digest] <= SHORT_SECONDS and run.processes == run.stack == run.nodes == 1:
            together.setdefault((depth[digest], run.threads, run.gpus), []).append(digest)
    found = []
    for similar in together.values():
        taken = sum(seconds[digest] + START for digest in similar)
        count = max(math.ceil(taken / 60 / minutes), math.ceil(len(similar) / MOST_SHARING))
        parts = [similar[first::count] for first in range(count)]
        found += [
            _shared(members, [given[one].run for one in members], taken / count, site) for members in parts if len(members) > 1
        ]
    return found


def _shared(members: list[str], runs: list[execution.Run], seconds: float, site: Site) -> Shared:
    needed = {"memory_mb": max(run.memory() for run in runs) + SERVER_MB, "gpu_memory_gb": max(run.gpu_memory_gb for run in runs)}
    minutes = site.warn_seconds // 60 + 2 + math.ceil(SPARE_TIME * seconds / 60)
    run = execution.Run(threads=runs[0].threads, gpus=runs[0].gpus, runtime=minutes, **needed)
    return Shared(hashlib.sha256(" ".join(sorted(members)).encode()).hexdigest()[:12], members, run)


def write_shared(results: Path, jobs: Iterable[Shared], stages: Mapping[str, Stage], site: Site) -> None:
    """Write what these jobs read, and remove what those read whose stages are all made. Of another launch, which may still run,
    jobs wait for the file that such a job leaves: what is younger than LONGEST_LAUNCH stays."""
    for job in jobs:
        members = {digest: stages[digest].kind for digest in job.members}
        planned = {"run": job.run.stated(), "members": members, "fork_server": site.fork_server}
        artifact.write_json(job.folder(results) / "stage.json", planned)
    oldest = time.time() - LONGEST_LAUNCH
    for path in [path for path in results.glob(f"{SHARED}/*/stage.json") if path.stat().st_mtime < oldest]:
        if all(artifact.done(results / kind / digest) for digest, kind in artifact.read_json(path)["members"].items()):
            shutil.rmtree(path.parent)


# -- resources ---------------------------------------------------------------------------------------------------------


def load_site(configs: Path) -> Site:
    """`configs/site.yaml`; defaults where the file is missing or empty. Raises UserError in one line where it is wrong."""
    path = configs / "site.yaml"
    if not path.exists():
        return Site()
    root, place = files.read(configs, path), files.place_of(configs, path)
    try:
        tree = yaml.SafeLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise files.not_yaml(error, place) from None
    except ValueError as error:  # such as a date that no calendar has
        raise place.error(f"not readable: {error}") from None
    try:
        return parse_model(Site, tree, place)
    except model.UserError as error:
        refused = error.place or place
        node = next((key for key, _ in root.value if (key.value,) == refused.keys[:1]), root)
        raise model.UserError(error.problem, files.at_line(refused, node), error.value) from None


def partition_of(site: Site, gpus: int) -> str:
    """Partition of a stage; empty: the cluster's default."""
    return (site.gpu_partition if gpus and site.gpu_partition else site.partition) or ""


def named_resources(site: Site) -> dict[str, str]:
    """Resources that Snakemake's executor knows by name. What the site leaves open is omitted, since an empty value would be
    passed to `sbatch`."""
    values = {"slurm_account": site.account, "qos": site.qos, "constraint": site.constraint}
    return {name: value for name, value in values.items() if value}


def sbatch_options(site: Site) -> str:
    """Options of `sbatch` for every stage, quoted for a shell."""
    return shlex.join([f"--signal=USR1@{site.warn_seconds}", *site.options])


# -- the job -----------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """What decides whether a job is requeued."""

    name: str
    """Slurm's job id. Of an array task with its index: the id of the last task alone would mean the whole array."""
    preempted: bool
    restarts: int
    """How often it was requeued."""
    ran: str
    """Elapsed time as Slurm prints it: 01:58:00."""
    limit: str
    """Time limit."""
    end: float | None
    """Unix time of the time limit; None where Slurm names none."""


def current_job() -> Job | None:
    """The job of this process, from scontrol: its environment does not show preemption, and Snakemake's executor removes most
    variables. None outside of a job, in one that the profile `slurm` did not submit, in one that is ending, and in a stage that
    shares its job."""
    if SHARED_JOB in os.environ:
        return None
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
    output = _scontrol("show", "job", "-o", name) if name else None
    fields = dict(part.split("=", 1) for part in (output or "").split() if "=" in part)
    if fields.get("JobState") != "RUNNING" or not JOB_NAME.fullmatch(fields.get("JobName", "")):
        return None
    started, preempted = _unix_time(fields.get("StartTime", "")), _unix_time(fields.get("PreemptTime", ""))
    return Job(
        name=name,
        preempted=preempted is not None and preempted >= (started or 0),  # that of an earlier start may still be shown
        restarts=int(fields.get("Restarts", 0)),
        ran=fields.get("RunTime", "?"),
        limit=fields.get("TimeLimit", "?"),
        end=_unix_time(fields.get("EndTime", "")),
    )


def _unix_time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:  # None, Unknown
        return None


def _scontrol(*words: str) -> str | None:
    """Its output; None where it failed or is not installed."""
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None


# -- requeueing --------------------------------------------------------------------------------------------------------
# A stopped stage requeues its own job. So a stage that saves may take longer than any time limit without using up a retry of
# Snakemake. One that saved nothing would start from the beginning: it is requeued only when preempted, and at most
# MOST_RESTARTS times.


SavedFiles = frozenset[tuple[str, int, int]]


def saved_files(results: Path, digest: str) -> SavedFiles:
    """Names, times and sizes of the files in the `resume/` of a stage."""
    found = set()
    for path in results.glob(f"*/{digest}*/resume/**/*"):
        with contextlib.suppress(FileNotFoundError):  # another process may be writing
            if path.is_file():
                found.add((str(path), path.stat().st_mtime_ns, path.stat().st_size))
    return frozenset(found)


def exit_after_stop(before: SavedFiles | None, now: SavedFiles) -> tuple[int, str]:
    """Exit code of a stage that was stopped by a signal, and the rest of its message; requeues the job where that helps.
    `before`: its saved files at the start, None where it was stopped earlier than that."""
    job = current_job()
    if job is None:
        return execution.EXIT, "goes on when started again"
    advanced = before is not None and now != before
    if not advanced and not job.preempted:
        remedy = "another job would start from the beginning and end the same way; give it a longer run.runtime"
        return 1, f"it saved nothing in {job.ran} of {job.limit}: {remedy}"
    if not now and job.restarts >= MOST_RESTARTS:
        remedy = "name a partition without preemption in configs/site.yaml, or make the stage shorter"
        return 1, f"it is preempted, was requeued {job.restarts} times, and never saved anything: {remedy}"
    requeued = _scontrol("requeue", job.name) is not None
    return execution.EXIT, "its job is requeued" if requeued else "goes on when started again"


# -- signals -----------------------------------------------------------------------------------------------------------
# Slurm sends SIGUSR1 before the time limit and SIGTERM at a preemption to the process of the job's step. That is a Snakemake,
# which would die of the former and only wait on the latter, while the stage loses what it has not saved. So both are forwarded.


def forward_signals(configs: Path) -> None:
    """From here on this process, the Snakemake of a job, forwards FORWARDED to the stage below it, which saves and stops."""
    if threading.current_thread() is not threading.main_thread():
        return
    received, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    # Snakemake sets its own handler for SIGTERM later. The wakeup descriptor sees signals whichever handler is set.
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    threading.Thread(target=_forward_received, args=(received,), daemon=True).start()
    if "SLURM_ARRAY_TASK_ID" in os.environ and "SLURM_STEP_ID" not in os.environ:
        threading.Thread(target=_poll_scontrol, args=(_warn_seconds(configs),), daemon=True).start()


def _forward_received(received: int) -> None:
    while number := os.read(received, 1):
        if number[0] in FORWARDED:
            _signal_stages(number[0])


def _signal_stages(number: int) -> None:
    """Send the signal to the stages below this process, as soon as they have a handler: before that they would die of it."""
    end = time.monotonic() + SEARCH_TIME
    while not (ready := [stage for stage in _stages() if _handles(stage.pid, number)]) and time.monotonic() < end:
        time.sleep(SEARCH_INTERVAL)
    for stage in ready:
        with contextlib.suppress(OSError):
            os.kill(stage.pid, number)


def _stages() -> Iterator[psutil.Process]:
    """Runners of stages below this process."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if {"interplay.run.stage", "share"} & {*process.cmdline()}:
                yield process


def _handles(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.partition(":")[2] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _warn_seconds(configs: Path) -> int:
    """Of the site; the default while its file is being edited and wrong: a running job goes on."""
    try:
        return load_site(configs).warn_seconds
    except model.UserError:
        return Site().warn_seconds


def _poll_scontrol(seconds: int) -> None:
    """Array tasks have no srun step and receive no SIGUSR1, so scontrol is polled: the stage is signalled this long before the
    time limit, or when the job is preempted."""
    while True:
        time.sleep(POLL_INTERVAL)
        job = current_job() if any(_stages()) else None
        if job is not None and (job.preempted or (job.end is not None and job.end - seconds <= time.time())):
            _signal_stages(signal.SIGUSR1)
            return
