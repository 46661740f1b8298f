"""The process of the server: `python -m interplay.rollout.vllm.serve ARGUMENTS`, vLLM's own with one more way to end.

Its standard input is a pipe whose other end the stage holds and never writes to. When the stage is gone, however it went, the
pipe is at its end, and the server's whole process group, which is its own, goes too, with the folder of its socket."""

import os
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path


def _end_with_the_stage() -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(Path(sys.argv[sys.argv.index("--uds") + 1]).parent, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    # The warning of a time limit, which is for the stage: where it reaches all that a job runs, its default would end the server.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_stage, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
