"""The runner: `python -m interplay.run.stage run DIGEST` makes one stage from its `stage.json` and its inputs' artifacts alone.

Exit codes: 0 the record exists; 2 an error that the user can fix; 3 a failure that a retry would repeat; 75 stopped by a signal
(SIGTERM, SIGUSR1, Ctrl-C), goes on when started again; 1 anything else, such as a time limit before the first save."""

import argparse
import contextlib
import logging
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from interplay.core import artifact, digest, execution, metrics, model
from interplay.core.keys import parse_model
from interplay.kinds import sources, table
from interplay.rl.spec import RLSpec
from interplay.run import resources, slurm, workers

LOG = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Arguments of the runner."""
    made = argparse.ArgumentParser(prog="python -m interplay.run.stage", description=__doc__)
    made.add_argument("command", choices=["run"], help="make one stage")
    made.add_argument("digest")
    made.add_argument("--results", type=Path, default=Path("results"))
    made.add_argument("--log", type=Path, help="also write standard error to this file")
    benchmarks = "folder for time and memory of the stage, in the format of Snakemake's benchmarks"
    made.add_argument("--benchmarks", type=Path, help=benchmarks)
    return made


def main(argv: list[str] | None = None) -> int:
    """Command line of the runner."""
    args = parser().parse_args(argv)
    metrics.log_to_stderr()
    with _logged_to(args.log):
        code = _exit_code(args.results, args.digest)
    if args.benchmarks and not code:
        folder = artifact.find(args.results, args.digest)
        resources.write_benchmark(args.benchmarks / folder.parent.name / f"{args.digest}.tsv", metrics.read_telemetry(folder))
    return code


def _exit_code(results: Path, digest: str) -> int:
    """Run the stage; a failure becomes one line and an exit code."""
    before: slurm.SavedFiles | None = None
    try:
        execution.install_handlers()
        before = slurm.saved_files(results, digest)
        run_stage(artifact.find(results, digest))
        return 0
    except execution.StoppedError as stopped:
        execution.ignore_signals()
        code, later = slurm.exit_after_stop(before, slurm.saved_files(results, digest))
        return _fail(code, f"{stopped}; {later}")
    except model.UserError as error:
        return _fail(2, str(error))
    except model.PermanentError as error:
        artifact.write_json(artifact.find(results, digest) / "failure.json", {"message": str(error)})
        return _fail(3, str(error))
    except OSError as error:
        where = error.filename or results
        return _fail(1, f"{where}: {error.strerror or error}; the stage goes on from its last save when started again")
    except workers.WorkerError as error:
        return _fail(1, str(error))
    except Exception:
        LOG.error("%s", traceback.format_exc().rstrip())
        return 1


def _fail(code: int, message: str) -> int:
    execution.ignore_signals()
    LOG.error("interplay: %s", message)
    return code


class Job(NamedTuple):
    """A stage whose lease this process has and whose record is not there."""

    stage: dict[str, Any]
    """Its `stage.json`."""
    spec: model.Model
    inputs: dict[str, Path]
    out: Path
    how: execution.Run


def run_stage(out: Path) -> None:
    """Make the stage of this folder unless its record exists; waits while another process makes it."""
    if out.parent.name == slurm.SHARED:
        return workers.run_shared(out)
    if (out / "stage.json").exists() and artifact.read_json(out / "stage.json")["run"].get("stack", 1) > 1:
        return _run_stacked(out)
    with artifact.lease(out):
        if (job := _open_job(out)) is None:
            return
        resources.limit_threads(job.how.threads)
        _begin(job)
        with resources.share_cores(job.how), resources.reserve_gpus(job.how.gpus), resources.watch_memory() as memory:
            started = time.time()
            values = _make(job)
        execution.ignore_signals()
        metrics.telemetry(
            out, **resources.stage_telemetry(started, time.time() - started, resources.cpu_seconds(), job.how, memory)
        )
        _finish(job, values, artifact.saved_numerics(out))


def _open_job(out: Path) -> Job | None:
    """The stage of a folder, for the holder of its lease; None where its record is there. Raises UserError where its inputs or
    sources are not those of its plan, PermanentError where it failed before."""
    if artifact.done(out):
        return None
    artifact.sweep(out)
    stage = artifact.read_json(out / "stage.json")
    if (out / "failure.json").exists():
        raise model.PermanentError(artifact.read_json(out / "failure.json")["message"])
    how = parse_model(execution.Run, stage["run"], model.KeyPlace(f"{out / 'stage.json'}", ("run",)))
    inputs = {role: _checked_input(out.parent.parent, ref, stage["kind"]) for role, ref in stage["deps"].items()}
    spec = parse_model(table.KINDS[stage["kind"]].spec, stage["spec"], model.KeyPlace(f"{out / 'stage.json'}", ("spec",)))
    # The sources may have changed since the stage was planned, as while a job waited in a queue.
    if (now := digest.digest(stage["kind"], spec, stage["deps"])) != stage["digest"]:
        raise model.UserError(f"{out / 'stage.json'}: planned with other sources; its digest is {now} now; run snakemake again")
    return Job(stage, spec, inputs, out, how)


def _begin(job: Job, **more: Any) -> None:
    stage = job.stage
    LOG.info("%s [%s %s]", stage.get("address") or stage["label"], stage["kind"], stage["digest"])
    attempts = int(metrics.read_telemetry(job.out).get("attempts", 0)) + 1  # killed attempts included
    made_by = {
        "commit": stage.get("commit", ""),
        "sources": sources.of_kind(stage["kind"], stage["spec"].get("trainer", "native")),
    }
    metrics.telemetry(job.out, attempts=attempts, host=platform.node(), **made_by, **more)


def _finish(job: Job, values: workers.Values, more: dict[str, str]) -> None:
    identity = {key: job.stage[key] for key in ("kind", "digest", "versions", "spec", "deps")}
    artifact.finish(job.out, {**identity, **more}, values)


def _make(job: Job) -> workers.Values:
    """Call the kind's function. A stage that is stopped, or finds the disk full, leaves what it can resume from, or nothing."""
    stage, spec, out = job.stage, job.spec, job.out
    try:
        _continue(job)
        if job.how.processes > 1:
            return workers.run_workers(stage, job.inputs, out, job.how)
        with workers.memory_named(job.how):
            return workers.load_function(stage["kind"], spec)(spec, job.inputs, out, job.how)
    except (execution.StoppedError, OSError):
        artifact.discard(out)
        raise


def _continue(job: Job) -> None:
    if shorter := continue_shorter_run(job.out, job.stage, job.spec):
        metrics.telemetry(job.out, continued_from=shorter)


def _checked_input(results: Path, ref: str, consumer: str) -> Path:
    digest, step = artifact.split_ref(ref)
    folder = artifact.find(results, digest)
    artifact.check(folder, table.read_by(consumer, folder.parent.name))
    return artifact.at_step(folder, step)


# -- a stack -----------------------------------------------------------------------------------------------------------
# Stages with `run.stack` know their peers (`Graph.write_stages`): stages of the same launch that could share a stack. The first
# process that starts makes as many as are ready and as no other has; for the others Snakemake starts a job as well, which makes
# further peers while its own stage is made elsewhere, then waits and ends. Leases of several stages are taken without waiting and
# a process that waits holds none, so that no two can wait for each other.


class _Member(NamedTuple):
    job: Job
    lease: contextlib.ExitStack
    """Closed when the stage ends."""


def _run_stacked(out: Path) -> None:
    """Make the stage of this folder in a stack; waits while another process makes it."""
    tried: set[str] = set()
    while not artifact.done(out):
        with contextlib.ExitStack() as leases:
            members = _take_members(out, tried, leases)
            tried |= {member.job.out.name for member in members}
            if members:
                _make_stack(out, members)
        if not members:
            with artifact.lease(out):
                pass


def _take_members(out: Path, tried: set[str], leases: contextlib.ExitStack) -> list[_Member]:
    """This stage, unless another process makes it, and peers that fit and were not tried, up to the size of the stack, in the
    order of digests."""
    stage = artifact.read_json(out / "stage.json")
    how, found = execution.Run(**stage["run"]), list[_Member]()
    taken: dict[str, contextlib.ExitStack] = {}  # all of them first: opening one reads its inputs
    for name in dict.fromkeys([out.name, *sorted({*stage.get("peers", ())} - tried)]):
        if len(taken) < how.stack and (name == out.name or _ready(out.parent / name)):
            lease = leases.enter_context(contextlib.ExitStack())
            if lease.enter_context(artifact.lease(out.parent / name, wait=False)):
                taken[name] = lease
    for name, lease in taken.items():
        job = _open_job(out) if name == out.name else _open_peer(out.parent / name)
        if job and job.how == how and all(_fits(one.job, job) for one in found[:1]):
            found.append(_Member(job, lease))
        else:
            lease.close()
    return sorted(found, key=lambda member: member.job.out.name)


def _open_peer(folder: Path) -> Job | None:
    """None of a peer that cannot start: its own job says why."""
    try:
        return _open_job(folder)
    except (model.UserError, model.PermanentError, OSError):
        return None


def _ready(folder: Path) -> bool:
    """Whether a stage is to be made, and all its inputs are there."""
    if artifact.done(folder) or not (folder / "stage.json").exists() or (folder / "failure.json").exists():
        return False
    refs = artifact.read_json(folder / "stage.json")["deps"].values()
    return all(any(folder.parent.parent.glob(f"*/{artifact.ref_digest(ref)}/record.json")) for ref in refs)


def _fits(one: Job, other: Job) -> bool:
    """Whether two stages can share a stack: equal as their specs say, and models of one shape and vocabulary."""

    def shape(job: Job) -> Any:
        base = job.inputs.get("init") or job.inputs.get("model")
        if base is None:
            return job.stage["deps"].get("tokenizer")
        config = base / "model" / "config.json"  # not there of a composed model
        return artifact.read_json(config) if config.exists() else None

    specs: list[Any] = [one.spec, other.spec]
    return specs[0].stack_key() == specs[1].stack_key() and shape(one) == shape(other)


def _make_stack(own: Path, members: list[_Member]) -> None:
    """Make these stages in one process; each gets its record, or its failure, when it ends. Raises what ended the own stage."""
    how, kind = members[0].job.how, members[0].job.stage["kind"]
    failure: model.UserError | model.PermanentError | None = None
    resources.limit_threads(how.threads)
    for member in members:
        _begin(member.job, stack=[each.job.out.name for each in members])
    left = dict(enumerate(members))
    with resources.share_cores(how), resources.reserve_gpus(how.gpus), resources.watch_memory() as memory:
        started = time.time()
        shares, before = dict.fromkeys(left, (0.0, 0.0)), (started, resources.cpu_seconds())
        replicas = [execution.Replica(each.job.spec, each.job.inputs, each.job.out) for each in members]
        try:
            for member in members:
                _continue(member.job)
            for number, outcome in workers.call_stacked(kind, replicas, how):
                now = (time.time(), resources.cpu_seconds())
                spent = [(new - old) / len(left) for new, old in zip(now, before, strict=True)]
                shares |= {one: (shares[one][0] + spent[0], shares[one][1] + spent[1]) for one in left}
                before, member = now, left.pop(number)
                if isinstance(outcome, dict):
                    metrics.telemetry(member.job.out, **resources.stage_telemetry(started, *shares[number], how, memory))
                    exact = replicas[number].spec.is_exact()
                    _finish(member.job, outcome, {} if exact else {"numerics": execution.STACKED})
                else:
                    _note_failure(member, outcome)
                    failure = outcome if member.job.out == own else failure
                member.lease.close()
        except (execution.StoppedError, OSError):
            for member in left.values():
                artifact.discard(member.job.out)
            raise
        except model.PermanentError as error:  # of all together, such as too little memory
            for member in left.values():
                _note_failure(member, error)
                failure = error if member.job.out == own else failure
    if failure is not None:
        raise failure


def _note_failure(member: _Member, error: model.UserError | model.PermanentError) -> None:
    """What would repeat is written down for the stage's own job; an error of the user's shows up there again."""
    LOG.error("interplay: %s: %s", member.job.stage.get("address") or member.job.stage["label"], error)
    if isinstance(error, model.PermanentError):
        artifact.write_json(member.job.out / "failure.json", {"message": str(error)})


# -- continuation ------------------------------------------------------------------------------------------------------
# A longer RL run starts from the end of a finished shorter one that is otherwise the same. This holds at a constant rate without
# warm-up (RLSpec.continues), where a step does not depend on how many follow, so that the bytes are those of a run from scratch.
# The LM trainer has no such case: its schedule, its position jumps and the steps that it logs depend on the whole budget.


def continue_shorter_run(out: Path, stage: dict[str, Any], spec: model.Model) -> str | None:
    """Where this RL stage has nothing saved, copy the final state of the longest finished run that it continues to its `resume/`;
    returns that run's digest, or None."""
    if not isinstance(spec, RLSpec) or (out / "resume").exists():
        return None
    folders = (folder for folder in sorted(out.parent.iterdir()) if folder != out)
    found = [(folder, shorter) for folder in folders if (shorter := _continued_spec(folder, stage, spec))]
    if not found:
        return None
    longest = max(found, key=lambda pair: (pair[1].steps, pair[0].name))[0]
    _copy_run(longest, out, spec)
    return longest.name


def _continued_spec(folder: Path, stage: dict[str, Any], spec: RLSpec) -> RLSpec | None:
    """The spec of a finished run with its final state that `stage` continues; None for any other."""
    if not (artifact.done(folder) and (folder / "state" / "state" / "state.json").exists()):
        return None
    try:
        record = artifact.record(folder)
        shorter = RLSpec.model_validate(record["spec"])
        if record["deps"] != stage["deps"] or not spec.continues(shorter):
            return None
        # The digest of a record of an older version of the code differs by now, and so do its bytes.
        artifact.check(folder)
        return shorter if digest.digest(stage["kind"], shorter, record["deps"]) == record["digest"] else None
    except (model.UserError, ValueError):
        return None


def _copy_run(shorter: Path, out: Path, spec: RLSpec) -> None:
    """Copy metrics and checkpoints, then the state, which is renamed into place: a kill leaves nothing that looks like a save."""
    artifact.copy_atomic(shorter / "metrics.jsonl", out / "metrics.jsonl")
    for step in artifact.kept_steps(shorter):
        if step in spec.checkpoints:
            shutil.copytree(artifact.at_step(shorter, step), out / "checkpoints" / str(step), dirs_exist_ok=True)
    part = out / "resume.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(shorter / "state", part)
    os.replace(part, out / "resume")


# -- log ---------------------------------------------------------------------------------------------------------------


class _Tee:
    """Standard error, copied to a log as far as the disk has room."""

    def __init__(self, terminal: TextIO, log: FileIO) -> None:
        self.terminal, self.log = terminal, log

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.log.write(text.encode())
        return self.terminal.write(text)

    def flush(self) -> None:
        self.terminal.flush()

    def isatty(self) -> bool:
        return self.terminal.isatty()


@contextlib.contextmanager
def _logged_to(path: Path | None) -> Iterator[None]:
    """Snakemake removes a job's log when the job starts, even while the stage runs under another Snakemake. So the text lies in a
    hidden file in the same folder, and the log is a link to it that can be removed and made again."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = path.with_name(f".{path.name}")
    with open(kept, "ab", buffering=0) as log, contextlib.redirect_stderr(_Tee(sys.stderr, log)):
        with contextlib.suppress(FileExistsError):
            path.symlink_to(kept.name)
        yield


if __name__ == "__main__":
    sys.exit(main())
