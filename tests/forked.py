"""Commands and scripts in processes forked from one that has imported what they need: importing takes each longer than what it is
tested for. Arguments, environment, folder, output and exit code are those of a process of its own."""

import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

BEHIND = ["nice", "-n", "5"]
"""Put before a command that a test means to kill at a moment: on a busy machine the test then sees the moment before it has passed."""

SERVER = """
import atexit, gc, importlib, json, os, sys, threading, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
for line in sys.stdin:
    given = json.loads(line)
    process = os.fork()
    if not process:
        break
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number in (1, 2):
    os.dup2(os.open(f"{given['output']}/{number}", os.O_WRONLY | os.O_CREAT), number)
sys.stdin, sys.argv[:], sys.path[:] = open(0), given["arguments"], given["path"]
os.chdir(given["folder"])
os.environ.clear()
os.environ.update(given["environment"])
code = 0
try:
    exec(given["script"], {"__name__": "__main__"})
except SystemExit as error:
    code = error.code if isinstance(error.code, int) else bool(error.code)
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
except BaseException:
    traceback.print_exc()
    code = 1
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
"""What comes after the loop is done by the forked process. It ends as any does, but for taking apart all that was imported."""

STAGES = ("torch._dynamo", "interplay.evaluate.sampling", "interplay.rl.loop", "interplay.train.lm", "interplay.run.stage")
COMMANDS = (
    "snakemake.cli",
    "dvc.cli",
    "dvc.repo",
    "hydra",
    "interplay.cli",
    "interplay.run.graph",
    "interplay.study.expand",
    "interplay.report.draw.figures",
    "interplay.report.stats.estimate",
)
ENTRY = "import sys; from {} import main; sys.exit(main())"
ENTRIES = {
    ("snakemake",): (COMMANDS, ENTRY.format("snakemake.cli")),
    ("interplay",): (COMMANDS, ENTRY.format("interplay.cli")),
    ("dvc",): (COMMANDS, ENTRY.format("dvc.cli")),
    ("python", "-m", "interplay.run.stage"): (STAGES, ENTRY.format("interplay.run.stage")),
}
"""First words of a command -> what its process imports beforehand, and what it then does."""


@functools.cache
def server(imports: Sequence[str]) -> subprocess.Popen[bytes]:
    """One for all tests of this process; it ends with it, since its input does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*(BEHIND if imports is STAGES else ()), sys.executable, "-c", SERVER, *imports]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


class Forked:
    """A process at work, as `subprocess.Popen` shows it; one at a time of each server."""

    def __init__(
        self,
        of: subprocess.Popen[bytes],
        script: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        output = tempfile.mkdtemp()
        self.output, self.errors, self.server = Path(output, "1"), Path(output, "2"), of
        self.returncode: int | None = None
        given = {"script": script, "arguments": arguments, "path": sys.path, "output": output}
        of.stdin.write(json.dumps({**given, "folder": str(folder), "environment": dict(environment)}).encode() + b"\n")
        self.pid = self._number()

    def _number(self) -> int:
        return int(self.server.stdout.readline())

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        if self.returncode is None and select.select([self.server.stdout], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def wait(self, seconds: float = 600) -> int:
        """The exit code; SIGKILL when it takes too long."""
        end = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL; the exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait()


class Script(Forked):
    """A script of training, RL or sampling."""

    def __init__(self, script: str, *arguments: str) -> None:
        super().__init__(server(STAGES), script, ["-c", *arguments], Path.cwd(), os.environ)


def start(command: Sequence[str], folder: Path, environment: Mapping[str, str], first: str = "") -> Forked | None:
    """The command at work, behind what is to be done `first`; None where none of the servers can be its parent: another program, or
    other settings of Python."""
    same = all(environment.get(name) == os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH", "OMP_NUM_THREADS"))
    for words, (imports, script) in ENTRIES.items():
        if same and tuple(command[: len(words)]) == words:
            return Forked(server(imports), first + script, [words[-1], *command[len(words) :]], folder, environment)
    return None


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """As `start`, when it has ended."""
    made = start(command, folder, environment)
    if made is None:
        return None
    ended = subprocess.CompletedProcess(command, made.wait(), made.output.read_text(), made.errors.read_text())
    shutil.rmtree(made.output.parent)
    return ended
