"""The runner: `python -m interplay.run.stage run DIGEST` makes one stage from its `stage.json`."""

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

from interplay.core import artifact, metrics, stop
from interplay.core.digest import digest
from interplay.core.execution import Run
from interplay.core.model import Model, PermanentError, UserError, log_to_stderr, parse_model
from interplay.kinds import sources
from interplay.kinds.table import KINDS, read_by
from interplay.rl.spec import RLSpec
from interplay.run import resources, slurm, workers
from interplay.run.work import make

# A longer RL run goes on from a finished shorter one that is otherwise the same, so that more steps repeat none.
#
# It applies to RL at a constant rate without warm-up (RLSpec.continues), where a step does not depend on how many follow; then
# the bytes are those of a run from the start. The LM trainer has no such case: its schedule decays over the whole budget, its
# position jumps start at a share of it, and the lines of its metrics.jsonl are spread over it.


def go_on(out: Path, stage: dict[str, Any]) -> str | None:
    """Where this RL stage has nothing saved, let its `resume/` be the state at the end of the longest finished run that it
    continues; returns that run's digest, or None."""
    if stage["kind"] != "rl" or (out / "resume").exists():
        return None
    spec = RLSpec.model_validate(stage["spec"])
    found = [(other, done) for other in sorted(out.parent.iterdir()) if other != out and (done := _finished(other, stage, spec))]
    if not found:
        return None
    shorter = max(found, key=lambda pair: (pair[1].steps, pair[0].name))[0]
    _copy(shorter, out, spec)
    return shorter.name


def _finished(other: Path, stage: dict[str, Any], spec: RLSpec) -> RLSpec | None:
    """The spec of a finished run that left its state and that `stage` continues; None for any other."""
    if not (artifact.done(other) and (other / "state" / "state" / "state.json").exists()):
        return None
    try:
        record = artifact.record(other)
        shorter = RLSpec.model_validate(record["spec"])
        if record["deps"] != stage["deps"] or not spec.continues(shorter):
            return None
        # A record made by another version of the code has another digest by now, and other bytes.
        artifact.check(other)
        return shorter if digest("rl", shorter, record["deps"]) == record["digest"] else None
    except (UserError, ValueError):
        return None


def _copy(shorter: Path, out: Path, spec: RLSpec) -> None:
    """Lines and checkpoints so far, then the state under its name, at once: a kill leaves nothing that looks like a save."""
    artifact.copy_atomic(shorter / "metrics.jsonl", out / "metrics.jsonl")
    for step in artifact.kept_steps(shorter):
        if step in spec.checkpoints:
            shutil.copytree(artifact.at_step(shorter, step), out / "checkpoints" / str(step), dirs_exist_ok=True)
    part = out / "resume.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(shorter / "state", part)
    os.replace(part, out / "resume")


# The runner: `python -m interplay.run.stage run DIGEST` makes one stage, from its `stage.json` and its inputs' artifacts alone.
#
# Exit codes: 0 the record stands; 2 something the user can mend; 3 a failure that a retry would repeat; 75 a signal asked it to
# stop (SIGTERM, SIGUSR1, Ctrl-C) and it goes on when started again; 1 anything else, such as a time limit that came before
# anything was saved.


LOG = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Command line of the runner."""
    parser = argparse.ArgumentParser(prog="python -m interplay.run.stage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="make one stage")
    run.add_argument("digest")
    run.add_argument("--results", type=Path, default=Path("results"))
    run.add_argument("--log", type=Path, help="also write everything said to this file")
    args = parser.parse_args(argv)
    log_to_stderr()
    with _log(args.log):
        return _guarded(args.results, args.digest)


def _guarded(results: Path, digest: str) -> int:
    """Run the stage and turn what goes wrong into one line and an exit code."""
    before: slurm.Marks | None = None
    try:
        stop.install_handlers()
        before = slurm.marks(results, digest)
        run_stage(artifact.find(results, digest))
        return 0
    except stop.StoppedError as stopped:
        stop.ignore_signals()
        code, later = slurm.after_stop(before, slurm.marks(results, digest))
        return _fail(code, f"{stopped}; {later}")
    except UserError as error:
        return _fail(2, str(error))
    except PermanentError as error:
        artifact.write_json(artifact.find(results, digest) / "failure.json", {"message": str(error)})
        return _fail(3, str(error))
    except OSError as error:
        return _fail(
            1, f"{error.filename or results}: {error.strerror or error}; the stage goes on from its last save when started again"
        )
    except workers.WorkerError as error:
        return _fail(1, str(error))
    except Exception:
        LOG.error("%s", traceback.format_exc().rstrip())
        return 1


def _fail(code: int, message: str) -> int:
    stop.ignore_signals()
    LOG.error("interplay: %s", message)
    return code


def run_stage(out: Path) -> None:
    """Make the stage of this folder unless its record stands; waits while another process makes it."""
    with artifact.lease(out):
        if artifact.done(out):
            return
        artifact.sweep(out)
        stage = artifact.read_json(out / "stage.json")
        _refuse_known_failure(out)
        how = parse_model(Run, stage["run"], f"{out / 'stage.json'}: run")
        inputs = {role: _checked_input(out.parent.parent, ref, stage["kind"]) for role, ref in stage["deps"].items()}
        _limit_threads(how.threads)
        LOG.info("%s [%s %s]", stage["label"], stage["kind"], stage["digest"])
        made_by = {"commit": stage.get("commit", ""), "sources": sources.of_kind(stage["kind"])}
        metrics.telemetry(out, attempts=_attempts(out) + 1, host=platform.node(), **made_by)
        with resources.dealt(how.gpus), resources.watching() as memory:
            started = time.time()
            values = _work(stage, inputs, out, how)
        stop.ignore_signals()
        metrics.telemetry(out, **_telemetry(started, how, memory))
        identity = {key: stage[key] for key in ("kind", "digest", "versions", "spec", "deps")}
        artifact.finish(out, identity, values)


def _work(stage: dict[str, Any], inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Call the kind's function; a stage that is stopped or finds the disk full leaves what it can go on from, or nothing."""
    spec = parse_model(KINDS[stage["kind"]].spec, stage["spec"], f"{out / 'stage.json'}: spec")
    _refuse_other_identity(out, stage, spec)
    try:
        if shorter := go_on(out, stage):
            metrics.telemetry(out, continued_from=shorter)
        if how.processes > 1:
            return workers.run(stage, inputs, out, how)
        return make(stage["kind"], spec, inputs, out, how)
    except (stop.StoppedError, OSError):
        artifact.discard(out)
        raise


def _attempts(out: Path) -> int:
    """How often this stage was started before, killed attempts included."""
    return int(metrics.read_telemetry(out).get("attempts", 0))


def _refuse_other_identity(out: Path, stage: dict[str, Any], spec: Model) -> None:
    """The code may have moved on since the stage was planned, as while a job waited in a queue: what would be made now belongs
    under another digest."""
    now = digest(stage["kind"], spec, stage["deps"])
    if now != stage["digest"]:
        raise UserError(f"{out / 'stage.json'}: planned by other sources, by which it is {now} now; run snakemake again")


def _refuse_known_failure(out: Path) -> None:
    if (out / "failure.json").exists():
        raise PermanentError(artifact.read_json(out / "failure.json")["message"])


def _checked_input(results: Path, ref: str, consumer: str) -> Path:
    digest, step = artifact.split_ref(ref)
    folder = artifact.find(results, digest)
    artifact.check(folder, read_by(consumer, folder.parent.name))
    return artifact.at_step(folder, step)


def _limit_threads(threads: int) -> None:
    """Before torch is imported: two jobs that each take all cores run many times slower than side by side."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _telemetry(started: float, how: Run, memory: resources.Peak) -> dict[str, Any]:
    usage = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    several = {"processes": how.processes} if how.processes > 1 else {"environment": metrics.current_environment()}
    return {
        "seconds_wall": round(time.time() - started, 3),
        "seconds_cpu": round(sum(one.ru_utime + one.ru_stime for one in usage), 3),
        "peak_memory_mb": round(memory.mb(), 1),  # of all processes together
        "peak_processes": memory.processes,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "threads": how.cores(),
        "python": platform.python_version(),
        **several,  # workers tell of their own GPUs
    }


class _Tee:
    """Standard error that also goes to a log: the terminal shows progress, the log keeps everything that there is room for."""

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
def _log(path: Path | None) -> Iterator[None]:
    """Snakemake removes a job's log when the job starts, though it may be running under another Snakemake: so the text lies in a
    hidden file beside, to which the log is a link that may go and come again."""
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
