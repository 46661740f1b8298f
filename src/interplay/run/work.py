"""One of several processes of a stage: `python -m interplay.run.work HANDOVER`, as `interplay.run.workers` starts it. It speaks
torchrun's language (RANK, LOCAL_RANK, WORLD_SIZE and, where it is not told to meet the others in HANDOVER, MASTER_ADDR and
MASTER_PORT), so that `torchrun --nproc-per-node N -m interplay.run.work HANDOVER` starts the same.

HANDOVER holds `job.json`; each process leaves its outcome beside it as `<rank>.json`."""

import argparse
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from interplay.core import artifact, execution, metrics, stop
from interplay.core.execution import Run
from interplay.core.model import Model, PermanentError, UserError, log_to_stderr, parse_model
from interplay.kinds.table import KINDS

JOB = "job.json"
MEETING = "meeting"
"""File in HANDOVER through which the processes find each other."""
PATIENCE = timedelta(days=30)
"""For which one waits for the others: a share of an evaluation may take hours longer than another, and where one fails whoever
started them ends the rest."""


def main(argv: list[str] | None = None) -> None:
    """Do this process's part and leave the outcome. Ends the process."""
    log_to_stderr()
    parser = argparse.ArgumentParser(prog="python -m interplay.run.work", description=__doc__)
    parser.add_argument("handover", type=Path)
    parser.add_argument("--lifeline", action="store_true", help="end at once when standard input ends: whoever started this died")
    parser.add_argument("--meet-here", action="store_true", help="find the other processes through HANDOVER")
    args = parser.parse_args(argv)
    if args.lifeline:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    stop.install_handlers()
    execution.set_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    code, outcome = _outcome(args.handover, f"file://{args.handover.absolute() / MEETING}" if args.meet_here else "env://")
    stop.ignore_signals()
    artifact.write_atomic(args.handover / f"{execution.rank()}.json", artifact.to_json(outcome), every_worker=True)
    sys.stderr.flush()
    if code:
        os._exit(code)  # the others may never answer again: leaving them in order would mean waiting for them
    sys.exit(0)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(1)


def _outcome(handover: Path, meeting: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what the runner is told."""
    try:
        return 0, {"values": _values(artifact.read_json(handover / JOB), meeting)}
    except stop.StoppedError as stopped:
        return stop.EXIT, {"stopped": str(stopped)}
    except UserError as error:
        return 2, {"user": str(error)}
    except PermanentError as error:
        return 3, {"permanent": str(error)}
    except OSError as error:
        return 1, {"os": [error.errno, error.strerror or str(error), error.filename and str(error.filename)]}
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return 1, {"error": said, "traceback": traceback.format_exc()}


def _values(job: dict[str, Any], meeting: str) -> dict[str, Any]:
    """What the kind's function returns here."""
    import torch
    import torch.distributed as dist

    how, out = parse_model(Run, job["run"], "run"), Path(job["out"])
    gpus = how.gpus > 0 and torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # What lies on the CPU travels by gloo, what lies on a GPU by NCCL.
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpus else "gloo",
        init_method=meeting,
        rank=execution.rank(),
        world_size=execution.world_size(),
        timeout=PATIENCE,
    )
    inputs = {role: Path(path) for role, path in job["inputs"].items()}
    values = make(job["kind"], parse_model(KINDS[job["kind"]].spec, job["spec"], "spec"), inputs, out, how)
    metrics.telemetry(out, environment=metrics.current_environment())
    dist.barrier()
    dist.destroy_process_group()
    return values if execution.is_first_rank() else {}


def make(kind: str, spec: Model, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """What the kind's function returns. Raises PermanentError where memory does not suffice, also for what `memory.enough` does
    not watch over."""
    try:
        return function(kind)(spec, inputs, out, how)
    except RuntimeError as error:
        from interplay.model import device  # brings torch, which not every kind needs

        if not device.full(error):
            raise
        keys = f"run.micro_batch_tokens = {how.micro_batch_tokens} (training, scoring), run.engine_batch = {how.engine_batch}"
        raise PermanentError(f"out of memory; lower {keys} (rollouts)") from None


def function(kind: str) -> Callable[..., dict[str, Any]]:
    """What makes a stage of that kind."""
    module, name = KINDS[kind].function.split(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    main()
