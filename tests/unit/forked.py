"""Scripts in processes forked from one that has imported torch: importing it takes each longer than what it is tested for."""

import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conftest import BEHIND

SERVER = """
import json, os, sys, traceback
import torch._dynamo
from interplay.evaluate import sampling
from interplay.rl import loop
from interplay.train import lm
for line in sys.stdin:
    script, arguments, path, output = json.loads(line)
    process = os.fork()
    if not process:
        for number in (1, 2):
            os.dup2(os.open(f"{output}/{number}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv[1:], sys.path[:] = arguments, path
        try:
            exec(script, {"__name__": "__main__"})
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@functools.cache
def server() -> subprocess.Popen[bytes]:
    """One for all tests of this process; it ends with it, since its input does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*BEHIND, sys.executable, "-c", SERVER]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


class Script:
    """A script at work, as `subprocess.Popen` shows it; one at a time."""

    def __init__(self, script: str, *arguments: str) -> None:
        folder = tempfile.mkdtemp()
        self.output, self.errors = Path(folder, "1"), Path(folder, "2")
        self.returncode: int | None = None
        server().stdin.write(json.dumps([script, arguments, sys.path, folder]).encode() + b"\n")
        self.pid = self._number()

    def _number(self) -> int:
        return int(server().stdout.readline())

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        if self.returncode is None and select.select([server().stdout], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def wait(self) -> int:
        """The exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.005)
        return code

    def kill(self) -> int:
        """SIGKILL, unless it has ended; the exit code."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()
