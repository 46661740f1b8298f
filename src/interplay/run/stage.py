"""The runner: `python -m interplay.run.stage run DIGEST` makes one stage from its `stage.json` and its inputs' artifacts alone.

Exit codes: 0 the record exists; 2 an error that the user can fix; 3 a failure that a retry would repeat; 75 stopped by a signal
(SIGTERM, SIGUSR1, Ctrl-C), goes on when started again; 1 anything else, such as a time limit before the first save."""

import argparse
import contextlib
import logging
import os
import platform
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from interplay.core import artifact, digest, execution, metrics, model
from interplay.kinds import sources, table
from interplay.rl.spec import RLSpec
from interplay.run import resources, slurm, workers

LOG = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Command line of the runner."""
    parser = argparse.ArgumentParser(prog="python -m interplay.run.stage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="make one stage")
    run.add_argument("digest")
    run.add_argument("--results", type=Path, default=Path("results"))
    run.add_argument("--log", type=Path, help="also write standard error to this file")
    args = parser.parse_args(argv)
    model.log_to_stderr()
    with _logged_to(args.log):
        return _exit_code(args.results, args.digest)


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


def run_stage(out: Path) -> None:
    """Make the stage of this folder unless its record exists; waits while another process makes it."""
    with artifact.lease(out):
        if artifact.done(out):
            return
        artifact.sweep(out)
        stage = artifact.read_json(out / "stage.json")
        if (out / "failure.json").exists():
            raise model.PermanentError(artifact.read_json(out / "failure.json")["message"])
        how = model.parse_model(execution.Run, stage["run"], model.KeyPlace(f"{out / 'stage.json'}", ("run",)))
        inputs = {role: _checked_input(out.parent.parent, ref, stage["kind"]) for role, ref in stage["deps"].items()}
        _limit_threads(how.threads)
        LOG.info("%s [%s %s]", stage["label"], stage["kind"], stage["digest"])
        attempts = int(metrics.read_telemetry(out).get("attempts", 0)) + 1  # killed attempts included
        made_by = {"commit": stage.get("commit", ""), "sources": sources.of_kind(stage["kind"])}
        metrics.telemetry(out, attempts=attempts, host=platform.node(), **made_by)
        with resources.share_cores(how), resources.reserve_gpus(how.gpus), resources.watch_memory() as memory:
            started = time.time()
            values = _make(stage, inputs, out, how)
        execution.ignore_signals()
        metrics.telemetry(out, **_telemetry(started, how, memory))
        identity = {key: stage[key] for key in ("kind", "digest", "versions", "spec", "deps")}
        artifact.finish(out, identity, values)


def _make(stage: dict[str, Any], inputs: dict[str, Path], out: Path, how: execution.Run) -> workers.Values:
    """Call the kind's function. A stage that is stopped, or finds the disk full, leaves what it can resume from, or nothing."""
    spec = model.parse_model(table.KINDS[stage["kind"]].spec, stage["spec"], model.KeyPlace(f"{out / 'stage.json'}", ("spec",)))
    # The sources may have changed since the stage was planned, as while a job waited in a queue.
    if (now := digest.digest(stage["kind"], spec, stage["deps"])) != stage["digest"]:
        raise model.UserError(f"{out / 'stage.json'}: planned with other sources; its digest is {now} now; run snakemake again")
    try:
        if shorter := continue_shorter_run(out, stage, spec):
            metrics.telemetry(out, continued_from=shorter)
        if how.processes > 1:
            return workers.run_workers(stage, inputs, out, how)
        return workers.call_function(stage["kind"], spec, inputs, out, how)
    except (execution.StoppedError, OSError):
        artifact.discard(out)
        raise


def _checked_input(results: Path, ref: str, consumer: str) -> Path:
    digest, step = artifact.split_ref(ref)
    folder = artifact.find(results, digest)
    artifact.check(folder, table.read_by(consumer, folder.parent.name))
    return artifact.at_step(folder, step)


def _limit_threads(threads: int) -> None:
    """Before torch is imported: two jobs that each use all cores run many times slower than with half of them each. Threads that
    wait for each other sleep, since one that spins takes the core that the other needs where a neighbour runs."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _telemetry(started: float, how: execution.Run, memory: resources.Peak) -> dict[str, Any]:
    usage = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    # Workers write the environment of their own GPUs.
    more = {"processes": how.processes} if how.processes > 1 else {"environment": metrics.current_environment()}
    return {
        "seconds_wall": round(time.time() - started, 3),
        "seconds_cpu": round(sum(one.ru_utime + one.ru_stime for one in usage), 3),
        "peak_memory_mb": round(memory.mib(), 1),  # of all processes together
        "peak_processes": memory.processes,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "threads": how.cores(),
        **({"borrowed_core_seconds": round(borrowed, 3)} if (borrowed := execution.borrowed_seconds()) else {}),
        "python": platform.python_version(),
        **more,
    }


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
