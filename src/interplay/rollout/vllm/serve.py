"""The process of the server: `python -m interplay.rollout.vllm.serve ARGUMENTS`, vLLM's own with one more way to end.

Its standard input is a pipe whose other end the stage holds and never writes to. When the stage is gone, however it went, the
pipe is at its end, and the server's whole process group, which is its own, goes too."""

import os
import runpy
import signal
import sys
import threading


def _end_with_the_stage() -> None:
    sys.stdin.buffer.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_stage, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
