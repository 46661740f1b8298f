"""Commands and scripts in processes forked from one that has imported what they need: importing takes each longer than what it is
tested for. Arguments, environment, folder, output and exit code are those of a process of its own."""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

BEHIND = ["nice", "-n", "5"]
"""Put before a command that a test means to kill at a moment: on a busy machine the test then sees the moment before it has passed."""

SERVER = "import forked; forked.serve()"


def serve() -> None:
    """Import the modules that are named, then fork a process for each line of the input: its number, and later its exit code; of
    one that runs beside others the exit code is asked for."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    warm_up()
    gc.freeze()
    for line in sys.stdin:
        given = json.loads(line)
        if asked := given.get("ended"):
            ended, status = os.waitpid(asked, os.WNOHANG)
            print(os.waitstatus_to_exitcode(status) if ended else "", flush=True)
            continue
        process = os.fork()
        if not process:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number in (1, 2):
                os.dup2(os.open(f"{given['output']}/{number}", os.O_WRONLY | os.O_CREAT), number)
            os.chdir(given["folder"])
            sys.path[:] = given["path"]
            subprocess._fork_exec = functools.partial(fork_exec, subprocess._fork_exec)  # type: ignore[attr-defined]
            become(given["script"], given["arguments"], given["environment"])
        print(process, flush=True)
        if not given["beside"]:
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def warm_up() -> None:
    """What each process would do once more: pydantic writes the schemas of specs at their first use, and a stage reads which files
    it may have used."""
    from interplay.kinds import sources, table

    for kind in table.KINDS:
        sources.of_kind(kind)
    if (expand := sys.modules.get("interplay.study.expand")) is not None:
        expand.plan_study(Path(__file__).parent.parent / "configs", "quickstart", "smoke")


def become(script: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """What the forked process does. It ends as any does, but for taking apart all that was imported."""
    sys.stdin, sys.argv[:] = os.fdopen(0, closefd=False), arguments
    os.environ.clear()
    os.environ.update(environment)
    code: Any = 0
    try:
        exec(script, {"__name__": "__main__"})
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else bool(error.code)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fork_exec(
    exec_it: Callable[..., int], words: Sequence[str], executables: Any, close: bool, keep: Sequence[int], *more: Any
) -> int:
    """In place of what `subprocess` starts a process with: Snakemake of `interplay run` and the fork server of a launch are forked,
    too. Both would import for seconds what is imported here."""
    folder, environment, streams, report, session, group = more[0], more[1], more[2:8], more[9], more[11], more[12]
    script = INSIDE.get(tuple(words[1:3])) if words[0] == sys.executable else None
    given = dict(os.environ) if environment is None else dict(map(os.fsdecode, one.split(b"=", 1)) for one in environment)
    if script is None or not same_python(given, PATHS):
        return exec_it(words, executables, close, keep, *more)
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        # In the parent too, as a shell does: the caller may signal the process group before the child calls setpgid.
        if group >= 0:
            with contextlib.suppress(OSError):
                os.setpgid(process, group or process)
        return process
    os.chdir(folder or os.curdir)
    gc.freeze()  # a file that is collected would close a number that is another's by then
    for number, stream in enumerate([os.dup(one) if one >= 0 else -1 for one in (streams[0], streams[3], streams[5])]):
        if stream >= 0:
            os.dup2(stream, number)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2 and (number == report or number not in keep):
            with contextlib.suppress(OSError):
                os.close(number)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    if session:
        os.setsid()
    if group >= 0:
        os.setpgid(0, group)
    atexit._clear()
    become(script, [words[2], *words[3:]], given)
    raise AssertionError


STAGES = (
    "torch._dynamo",
    "pandas",
    "pyarrow.dataset",
    "interplay.evaluate.sampling",
    "interplay.rl.loop",
    "interplay.train.lm",
    "interplay.run.stage",
)
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
    *STAGES,
)
ENTRY = "import sys; from {} import main; sys.exit(main())"
ENTRIES = {
    ("snakemake",): (COMMANDS, ENTRY.format("snakemake.cli")),
    ("interplay",): (COMMANDS, ENTRY.format("interplay.cli")),
    ("dvc",): (COMMANDS, ENTRY.format("dvc.cli")),
    ("python", "-m", "interplay.run.stage"): (STAGES, ENTRY.format("interplay.run.stage")),
}
"""First words of a command -> what its process imports beforehand, and what it then does."""
INSIDE = {
    ("-m", "snakemake"): ENTRY.format("snakemake.cli"),
    ("-m", "interplay.run.forkserver"): "import sys; from interplay.run.forkserver import serve; "
    "sys.exit(serve(int(sys.argv[2]), sys.argv[3:]))",
}
"""Words behind `python` of what such a process starts -> what is then done in a fork of it."""


PATHS = ("PYTHONPATH", "PYTHONSAFEPATH")


def same_python(environment: Mapping[str, str], variables: Sequence[str] = (*PATHS, "OMP_NUM_THREADS")) -> bool:
    """Whether Python would be set up as it is here."""
    return all(environment.get(name) == os.environ.get(name) for name in variables)


@functools.cache
def server(imports: Sequence[str]) -> subprocess.Popen[bytes]:
    """One for all tests of this process; it ends with it, since its input does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*(BEHIND if imports is STAGES else ()), sys.executable, "-c", SERVER, *imports]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


class Forked:
    """A process at work, as `subprocess.Popen` shows it; one at a time of each server, but for those `beside` others."""

    beside = False

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
        given = {"script": script, "arguments": arguments, "path": sys.path, "output": output, "beside": self.beside}
        of.stdin.write(json.dumps({**given, "folder": str(folder), "environment": dict(environment)}).encode() + b"\n")
        self.pid = self._number()

    def _number(self) -> int:
        return int(self.server.stdout.readline())

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        if self.returncode is None and select.select([self.server.stdout], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def wait(self, seconds: float = 1800) -> int:
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


class Beside(Forked):
    """A process in a group of its own, while its server goes on."""

    beside = True

    def poll(self) -> int | None:
        if self.returncode is None:
            self.server.stdin.write(json.dumps({"ended": self.pid}).encode() + b"\n")
            said = self.server.stdout.readline().strip()
            self.returncode = int(said) if said else None
        return self.returncode


class Script(Forked):
    """A script of training, RL or sampling."""

    def __init__(self, script: str, *arguments: str) -> None:
        super().__init__(server(STAGES), script, ["-c", *arguments], Path.cwd(), os.environ)


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], first: str = "", kind: type[Forked] = Forked
) -> Forked | None:
    """The command at work, behind what is to be done `first`; None where none of the servers can be its parent: another program, or
    other settings of Python."""
    for words, (imports, script) in ENTRIES.items():
        if same_python(environment) and tuple(command[: len(words)]) == words:
            return kind(server(imports), first + script, [words[-1], *command[len(words) :]], folder, environment)
    return None


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """As `start`, when it has ended."""
    made = start(command, folder, environment)
    if made is None:
        return None
    ended = subprocess.CompletedProcess(command, made.wait(), made.output.read_text(), made.errors.read_text())
    shutil.rmtree(made.output.parent)
    return ended
