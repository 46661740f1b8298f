"""Calls the function of a stage's kind, in this process or in several worker processes (`run.processes`), and makes the stages of
a job that several share.

`python -m interplay.run.workers HANDOVER` is one worker. Its rank comes from torchrun's environment variables (RANK, LOCAL_RANK,
WORLD_SIZE and, without --file-rendezvous, MASTER_ADDR and MASTER_PORT), so that `torchrun --nproc-per-node N -m
interplay.run.workers HANDOVER` starts the same. HANDOVER holds `job.json`; each worker writes its outcome to `<rank>.json` there.

torchrun itself is not used: it prints a page where a stage prints one line, has exit codes of its own, and kills workers that are
still saving 30 s after a signal."""

import argparse
import contextlib
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from interplay.core import artifact, execution, metrics, model
from interplay.core.keys import parse_model
from interplay.kinds.table import KINDS, function_of
from interplay.run import slurm
from interplay.study.plan import Stage

LOG = logging.getLogger(__name__)
JOB = "job.json"
RENDEZVOUS = "rendezvous"
"""File in HANDOVER through which the workers of one machine find each other."""
COLLECTIVE_TIMEOUT = timedelta(days=30)
"""Of collectives: one worker's share of an evaluation may take hours longer than another's, and where one fails the runner ends
the others."""
POLL_INTERVAL = 0.02
"""Seconds between two looks at the workers."""
FEW_PEERS = 64
"""Stages that can share stacks and name each other in their `stage.json`."""
GRACE = 5.0
"""Seconds that the other workers have to end once one has failed or stopped."""

Values = dict[str, Any]
"""What the function of a kind returns: the metrics of its record."""


class WorkerError(Exception):
    """A worker ended for a reason that is neither the user's nor permanent. One line."""


# -- one process -------------------------------------------------------------------------------------------------------


def load_function(kind: str, spec: Any = None) -> Callable[..., Values]:
    """The function that makes a stage of that kind, with the trainer that its spec says."""
    return _load(function_of(kind, getattr(spec, "trainer", "native")))


def _load(named: str) -> Callable[..., Any]:
    module, name = named.split(":")
    # Modules are no garbage: neither their import nor the stage searches them for it, which saves an eighth of the import.
    with execution.pause_garbage_collection(), execution.delay_signals():
        function = getattr(importlib.import_module(module), name)
    gc.freeze()
    return function


def call_stacked(kind: str, replicas: list[execution.Replica], how: execution.Run) -> Iterator[tuple[int, Any]]:
    """Call the kind's function for a stack (`Kind.stacked`), or with numerics: exact, whose kernels take one model, for one
    replica after the other. Raises PermanentError when memory runs out."""
    with memory_named(how):
        if not replicas[0].spec.is_exact():
            yield from _load(KINDS[kind].stacked)(replicas, how)
            return
        for number, replica in enumerate(replicas):
            try:
                made: Any = load_function(kind)(*replica, how)
            except (model.UserError, model.PermanentError) as error:
                made = error
            yield number, made


@contextlib.contextmanager
def memory_named(how: execution.Run) -> Iterator[None]:
    """For the function of a kind: PermanentError, with the keys to lower, where memory runs out."""
    try:
        yield
    except RuntimeError as error:
        from interplay.model import device  # imports torch, which not every kind needs

        if not device.is_out_of_memory(error):
            raise
        keys = f"run.micro_batch_tokens = {how.micro_batch_tokens} (training, scoring), run.engine_batch = {how.engine_batch}"
        stack = f" or run.stack = {how.stack}" if how.stack > 1 else ""
        raise model.PermanentError(f"out of memory; lower {keys} (rollouts){stack}") from None


# -- a worker ----------------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> None:
    """Run this worker and write its outcome. Ends the process."""
    metrics.log_to_stderr()
    parser = argparse.ArgumentParser(prog="python -m interplay.run.workers", description=__doc__)
    parser.add_argument("handover", type=Path)
    parser.add_argument("--end-with-stdin", action="store_true", help="end at once when standard input ends: the runner died")
    parser.add_argument("--file-rendezvous", action="store_true", help="find the other workers through HANDOVER")
    args = parser.parse_args(argv)
    if args.end_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    execution.install_handlers()
    execution.set_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    code, outcome = _outcome(
        args.handover, f"file://{args.handover.absolute() / RENDEZVOUS}" if args.file_rendezvous else "env://"
    )
    execution.ignore_signals()
    artifact.write_atomic(args.handover / f"{execution.rank()}.json", artifact.to_json(outcome), every_worker=True)
    sys.stderr.flush()
    if code:
        os._exit(code)  # a regular exit would wait for collectives that the other workers may never join
    sys.exit(0)


def _end_with_stdin() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


def _outcome(handover: Path, rendezvous: str) -> tuple[int, Values]:
    """Exit code and outcome for the runner."""
    try:
        return 0, {"values": _worker_values(artifact.read_json(handover / JOB), rendezvous)}
    except execution.StoppedError as stopped:
        return execution.EXIT, {"stopped": str(stopped)}
    except model.UserError as error:
        return 2, {"user": str(error)}
    except model.PermanentError as error:
        return 3, {"permanent": str(error)}
    except OSError as error:
        return 1, {"os": [error.errno, error.strerror or str(error), error.filename and str(error.filename)]}
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return 1, {"error": message, "traceback": traceback.format_exc()}


def _worker_values(job: dict[str, Any], rendezvous: str) -> Values:
    """Join the process group and call the kind's function; its values from the first worker, nothing from the others."""
    import torch
    import torch.distributed as dist

    how, out = parse_model(execution.Run, job["run"], model.KeyPlace("run")), Path(job["out"])
    gpus = how.gpus > 0 and torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpus else "gloo",
        init_method=rendezvous,
        rank=execution.rank(),
        world_size=execution.world_size(),
        timeout=COLLECTIVE_TIMEOUT,
    )
    inputs = {role: Path(path) for role, path in job["inputs"].items()}
    spec = parse_model(KINDS[job["kind"]].spec, job["spec"], model.KeyPlace("spec"))
    with memory_named(how):
        values = load_function(job["kind"], spec)(spec, inputs, out, how)
    metrics.telemetry(out, environment=metrics.current_environment())
    dist.barrier()
    dist.destroy_process_group()
    return values if execution.is_first_rank() else {}


# -- several workers ---------------------------------------------------------------------------------------------------


def run_workers(stage: dict[str, Any], inputs: dict[str, Path], out: Path, how: execution.Run) -> Values:
    """Call the kind's function in `how.processes` workers. Raises the error of the worker that failed first; WorkerError where it
    was killed or failed unexpectedly, StoppedError where a signal stopped it."""
    with tempfile.TemporaryDirectory(prefix="interplay-") as folder, execution.defer_signals():
        handover = Path(folder)
        job = {"kind": stage["kind"], "spec": stage["spec"], "run": stage["run"], "out": str(out)}
        artifact.write_json(handover / JOB, {**job, "inputs": {role: str(path) for role, path in inputs.items()}})
        with _start_workers(handover, how) as workers:
            late = _wait_for(workers)
        if any(worker.returncode for worker in workers):
            raise _reason(handover, workers, late)
        return artifact.read_json(handover / "0.json")["values"]


@contextlib.contextmanager
def _start_workers(handover: Path, how: execution.Run) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The workers, none of which outlives the block; their standard error goes to that of this process. If this process is
    killed, their standard input ends and so do they."""
    command = [sys.executable, "-m", "interplay.run.workers", str(handover), "--end-with-stdin", "--file-rendezvous"]
    workers: list[subprocess.Popen[bytes]] = []
    readers: list[threading.Thread] = []
    try:
        for rank in range(how.processes):
            environment = {**os.environ, **_environment(rank, how.processes)}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
            workers.append(subprocess.Popen(command, env=environment, **pipes))
            readers.append(threading.Thread(target=_copy_lines, args=(workers[-1].stderr,), daemon=True))
            readers[-1].start()
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        for reader in readers:
            reader.join(GRACE)


def _environment(rank: int, count: int) -> dict[str, str]:
    """torchrun's variables for one machine, with collectives on the loopback interface."""
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return {**execution.LOOPBACK, **ranks, "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def _copy_lines(source: IO[bytes]) -> None:
    for line in source:
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()


def _wait_for(workers: list[subprocess.Popen[bytes]]) -> set[int]:
    """Until all have ended. A signal to this process is forwarded to each of them; once one has failed the others have GRACE
    left. Returns the ranks of those that took longer and were killed."""
    forwarded, deadline = False, float("inf")
    while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
        if execution.stop_requested() and not forwarded:
            forwarded = True
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
        if deadline == float("inf") and any(worker.returncode for worker in workers):
            deadline = time.monotonic() + GRACE
        time.sleep(POLL_INTERVAL)
    late = {rank for rank, worker in enumerate(workers) if worker.poll() is None}
    for rank in late:
        workers[rank].kill()
        workers[rank].wait()
    return late


def _reason(handover: Path, workers: list[subprocess.Popen[bytes]], late: set[int]) -> BaseException:
    """Why the stage ended: the first failure that is not a consequence of another worker's."""
    written = sorted(handover.glob("[0-9]*.json"), key=lambda file: file.stat().st_mtime_ns)
    outcomes = {int(file.stem): artifact.read_json(file) for file in written}
    for outcome in outcomes.values():
        if "user" in outcome:
            return model.UserError(outcome["user"])
        if "permanent" in outcome:
            return model.PermanentError(outcome["permanent"])
        if "os" in outcome:
            return OSError(*outcome["os"])
    stopped = [outcome["stopped"] for outcome in outcomes.values() if "stopped" in outcome]
    if stopped or execution.stop_requested():
        return execution.StoppedError(stopped[0] if stopped else "stopped")
    silent = [rank for rank in range(len(workers)) if "error" not in outcomes.get(rank, {}) and rank not in late]
    ended = [rank for rank in silent if workers[rank].returncode]
    if ended:
        code = workers[ended[0]].returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return WorkerError(
            f"worker {ended[0] + 1} of {len(workers)} {how}; the stage goes on from its last save when started again"
        )
    rank, failed = next((rank, outcome) for rank, outcome in outcomes.items() if "error" in outcome)
    sys.stderr.write(failed["traceback"])
    return WorkerError(f"worker {rank + 1} of {len(workers)}: {failed['error']}")


# -- several stages ----------------------------------------------------------------------------------------------------


def peers_of(stages: Iterable[Stage]) -> dict[str, list[str]]:
    """Of each of these stages that can share a stack (`run.stack`): those that it can share one with, itself included, in the
    order of digests; of very many, those near it, so that what is written grows with the number of stages only."""
    groups: dict[tuple[int, Any], list[str]] = {}
    for stage in stages:
        if stage.run.stack > 1:
            key = (stage.kind, stage.spec.stack_key(), stage.run.model_dump_json())  # type: ignore[attr-defined]
            groups.setdefault((stage.run.stack, key), []).append(stage.digest)
    found: dict[str, list[str]] = {}
    for (stack, _), digests in groups.items():
        digests.sort()
        size = max(FEW_PEERS, 2 * stack)
        for first in range(0, len(digests), size):
            found |= dict.fromkeys(digests[first : first + size], digests[first : first + size])
    return found


def run_shared(out: Path) -> None:
    """Make the stages of a job that they share (`slurm.Shared`), one after the other. Those that fail do not keep the others; one
    that may be for a transient reason is tried again at the end. Raises UserError where none is made, StoppedError on a signal:
    what is made by then shows in `resume/`, by which the job is requeued."""
    with artifact.lease(out):
        members = artifact.read_json(out / "stage.json")["members"]
        codes = {digest: _run_member(out, digest, kind) for digest, kind in members.items()}
        transient = [digest for digest, code in codes.items() if code == 1]
        codes |= {digest: _run_member(out, digest, members[digest]) for digest in transient}
        failed = [f"{members[digest]} {digest}" for digest, code in codes.items() if code]
        if len(failed) == len(members):
            raise model.UserError(f"none of the {len(members)} stages that share this job is made; see logs/ of {failed[0]}")
        for name in failed:
            LOG.error("interplay: not made: %s; see its log", name)
        artifact.write_atomic(out / slurm.MADE, b"")


def _run_member(out: Path, digest: str, kind: str) -> int:
    """Exit code of a stage of a shared job; notes what it made or saved."""
    results = out.parent.parent
    if artifact.done(results / kind / digest):
        return 0
    client = Path(__file__).with_name("forkserver.py")
    command = [sys.executable, "-IS", str(client), "run", digest, "--results", str(results), "--benchmarks", "benchmarks"]
    before, process = slurm.saved_files(results, digest), None
    try:
        with execution.delay_signals():
            environment = {**os.environ, slurm.SHARED_JOB: "1"}
            process = subprocess.Popen([*command, "--log", f"logs/{kind}/{digest}.log"], env=environment)
        return process.wait()
    except execution.StoppedError:
        with execution.defer_signals():
            if process:
                process.terminate()
                process.wait()
        raise
    finally:
        if artifact.done(results / kind / digest) or slurm.saved_files(results, digest) != before:
            (out / "resume").mkdir(exist_ok=True)
            (out / "resume" / digest).touch()


if __name__ == "__main__":
    main()
