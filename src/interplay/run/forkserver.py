"""A fork server: one process of a launch on one machine, which has imported what its stages need and forks one for each.

`python -IS forkserver.py run DIGEST ...` is the client, a job's command. It takes the arguments of `interplay.run.stage` and
passes them with its standard streams to the server; signals follow. It exits as the stage does. Where there is no server, where
it refuses or dies, the client becomes `python -m interplay.run.stage`.

`python -m interplay.run.forkserver share DIGEST ...` makes the stages of a job that several share (`slurm.Shared`), with a
server of its own.

`python -m interplay.run.forkserver serve LISTENER KIND...` is the server. It has one thread, no thread of OpenMP and no CUDA
context. Its end, by SIGKILL too, ends its stages, and that of a client its stage. It refuses stages whose environment is not that
of the launch or that need several threads, a GPU or an engine of their own, and all of them once code on disk has changed."""

from __future__ import annotations

# The client is started without site-packages and imports nothing that takes time; the server imports the rest where it needs it.
import contextlib
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False  # typing's own takes a third of the client's start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ADDRESS = "INTERPLAY_FORKSERVER"
"""Environment variable: path of the server's socket."""
LAUNCHER = "INTERPLAY_LAUNCHER"
"""Environment variable: the end of a pipe whose other end `interplay run` holds."""
REFUSED = "refused"
FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
STOPPED = 75
"""Exit code of a stage that was stopped before it started; `interplay.core.execution.EXIT`."""
OWN_VARIABLES = {"TMPDIR", "TMP", "TEMPDIR", "TEMP", "PWD", "OLDPWD", "SHLVL", "_", "PS1", "LINES", "COLUMNS"}
"""Environment variables in which a stage may differ from the server: shells set them, or they are read when they are used."""
OF_MLFLOW = "MLFLOW_"
"""Prefix of others: the mirror sets some in the main process, at any time, and no stage reads them."""
THREAD_VARIABLES = ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
LIBRARIES = ("pyarrow.parquet", "pandas")
"""What stages import when they need it, after what their kinds import."""
REQUEST_SECONDS = 5.0
"""Seconds in which a client must have sent its request."""


# -- client ------------------------------------------------------------------------------------------------------------


def request_stage(arguments: list[str]) -> int:
    """Have the server run a stage; its exit code. Does not return where the stage starts by itself, or a signal ended it."""
    stopped: list[int] = []
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ[ADDRESS])
    except (KeyError, OSError):
        _start_alone(arguments, stopped)

    def forward(number: int, frame: object) -> None:
        stopped.append(number)
        connection.sendall(bytes([number]))

    def suspend(number: int, frame: object) -> None:
        connection.sendall(bytes([signal.SIGSTOP]))
        os.kill(os.getpid(), signal.SIGSTOP)
        connection.sendall(bytes([signal.SIGCONT]))

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.signal(signal.SIGTSTP, suspend)
    answer = b""
    with contextlib.suppress(OSError):  # the server died
        request = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
        socket.send_fds(connection, [request[:1]], [0, 1, 2])
        connection.sendall(request[1:] + b"\n")
        while part := connection.recv(64):
            answer += part
    if answer in (b"", REFUSED.encode()):
        _start_alone(arguments, stopped)
    code = int(answer)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _start_alone(arguments: list[str], stopped: list[int]) -> None:
    if stopped:
        sys.exit(STOPPED)
    os.execv(sys.executable, [sys.executable, "-m", "interplay.run.stage", *arguments])


# -- launch ------------------------------------------------------------------------------------------------------------


def end_with_launcher() -> None:
    """In the main process of a launch that `interplay run` started: once that is gone, by SIGKILL too, the launch and its jobs
    stop as after a SIGTERM to their process group. A pipe says so on any system; Linux's signal at a parent's death would not
    reach the jobs."""
    import threading

    if life := os.environ.pop(LAUNCHER, ""):
        threading.Thread(target=_stop_at_end, args=(int(life),), daemon=True).start()


def _stop_at_end(life: int) -> None:
    os.read(life, 1)  # `interplay run` alone holds the other end
    os.killpg(0, signal.SIGTERM)


class Launched:
    """The server of a launch, as its main process holds it. At the end of its standard input no more stages follow. Where there
    can be none, as where the path of the temporary folder is too long for a socket, stages start by themselves."""

    def __init__(self, kinds: list[str]) -> None:
        import subprocess
        import tempfile

        self.folder = ""
        self.process: subprocess.Popen[bytes] | None = None
        variables = [*(f"{name}_NUM_THREADS" for name in THREAD_VARIABLES), "VECLIB_MAXIMUM_THREADS"]  # as Snakemake sets them
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
            self.folder = tempfile.mkdtemp(prefix="interplay-")
            os.environ[ADDRESS] = os.path.join(self.folder, "socket")
            listener.bind(os.environ[ADDRESS])
            listener.listen(128)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "interplay.run.forkserver", "serve", str(listener.fileno()), *kinds],
                env={**os.environ, **dict.fromkeys(variables, "1")},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # signals to the group of the launch reach the stages by their clients, once
            )

    def close(self) -> None:
        """End the server when its stages have ended."""
        import shutil

        os.environ.pop(ADDRESS, None)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.process and self.process.stdin:
            self.process.stdin.close()
            self.process.wait()


def share(arguments: list[str]) -> int:
    """Exit code of a job that several stages share, all of them forked from one server where the site has one."""
    from interplay.core import artifact
    from interplay.run import slurm, stage

    parsed = stage.parser().parse_args(["run", *arguments])
    planned = artifact.read_json(artifact.find(parsed.results, parsed.digest) / "stage.json")
    os.environ[slurm.SHARED_JOB] = "1"  # the environment of its stages, and not of this job, which may be requeued
    server = Launched(list(dict.fromkeys(planned["members"].values()))) if planned["fork_server"] else None
    del os.environ[slurm.SHARED_JOB]
    try:
        return stage.main(["run", *arguments])
    finally:
        if server:
            server.close()


# -- server ------------------------------------------------------------------------------------------------------------


class Server:
    """Stages by the connection of their client. In a stage's process, and there alone, `turn` returns the client's request."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener: socket.socket | None = listener
        self.stages: dict[socket.socket, int] = {}
        self.environment, self.folder, self.code = dict(os.environ), os.getcwd(), code_on_disk()
        self.life = os.pipe()
        self.ended, wake = os.pipe()
        os.set_blocking(self.ended, False)
        os.set_blocking(wake, False)
        self.pipes = (*self.life, self.ended, wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def open(self) -> bool:
        """Whether there are stages, or more may come."""
        return bool(self.listener or self.stages)

    def turn(self, seconds: float | None) -> dict[str, Any] | None:
        """Wait for an event, at most so long, and handle what there is."""
        import select

        watched = [self.ended, *self.stages, *((self.listener, 0) if self.listener else ())]
        ready = select.select(watched, [], [], seconds)[0]
        if 0 in ready and not os.read(0, 1) and self.listener:
            self.listener.close()
            self.listener = None
        if self.ended in ready:
            os.read(self.ended, 4096)
            self._reap()
        for connection in [one for one in self.stages if one in ready]:
            self._pass_signals(connection)
        return self._accept() if self.listener and self.listener in ready else None

    def _reap(self) -> None:
        for connection, stage in list(self.stages.items()):
            ended, status = os.waitpid(stage, os.WNOHANG)
            if ended:
                del self.stages[connection]
                _answer(connection, str(os.waitstatus_to_exitcode(status)))

    def _pass_signals(self, connection: socket.socket) -> None:
        try:
            numbers = connection.recv(64)
        except OSError:
            numbers = b""
        stage = self.stages[connection]
        for number in numbers:
            os.kill(stage, number)
        if not numbers:
            os.killpg(stage, signal.SIGKILL)
            os.waitpid(stage, 0)
            del self.stages[connection]
            connection.close()

    def _accept(self) -> dict[str, Any] | None:
        assert self.listener is not None
        connection, _ = self.listener.accept()
        streams: list[int] = []
        try:
            connection.settimeout(REQUEST_SECONDS)
            data, streams, _, _ = socket.recv_fds(connection, 65536, 3)
            while data and not data.endswith(b"\n"):
                part = connection.recv(65536)
                data = data + part if part else b""
            request = json.loads(data or b"{}")
            if len(streams) != 3 or not self._takes(request):
                _answer(connection, REFUSED)
            elif stage := os.fork():
                with contextlib.suppress(OSError):  # it did so itself
                    os.setpgid(stage, stage)
                self.stages[connection] = stage
            else:
                connection.close()
                self._become_stage(request, streams)
                return request
        except (OSError, ValueError):
            connection.close()
        for stream in streams:
            os.close(stream)
        return None

    def _takes(self, request: dict[str, Any]) -> bool:
        """Whether the stage may be forked from here."""
        from interplay.core import artifact
        from interplay.core.model import UserError
        from interplay.run import stage

        asked, mine = (
            {name: value for name, value in one.items() if name not in OWN_VARIABLES and not name.startswith(OF_MLFLOW)}
            for one in (request.get("environment", {}), self.environment)
        )
        if asked != mine or request.get("folder") != self.folder or code_on_disk() != self.code:
            return False
        try:
            arguments = stage.parser().parse_args(request["arguments"])
            planned = artifact.read_json(artifact.find(arguments.results, arguments.digest) / "stage.json")
        except (UserError, OSError, ValueError, SystemExit):
            return False  # its own process says what is wrong
        shared = any(
            planned["run"].get(key, least) > least for key, least in (("threads", 1), ("processes", 1), ("gpus", 0), ("stack", 1))
        )
        return not shared and planned["spec"].get("engine", "native") == "native"

    def _become_stage(self, request: dict[str, Any], streams: list[int]) -> None:
        """Give this process, just forked, what one of the client's own would have."""
        import threading

        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for other in [*self.stages, *([self.listener] if self.listener else [])]:
            other.close()
        for pipe in self.pipes[1:]:
            os.close(pipe)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()  # Python's own generator does so by itself
        self.stages, self.listener = {}, None
        threading.Thread(target=_end_with_server, args=(self.life[0],), daemon=True).start()


def _answer(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # the client died
        connection.sendall(text.encode())
    connection.close()


def _end_with_server(life: int) -> None:
    os.read(life, 1)  # the server alone holds the other end
    os.killpg(0, signal.SIGKILL)


def code_on_disk() -> tuple[tuple[str, int, int], ...]:
    """Files of the package and folders that modules are found in, each with its size and time of change."""
    from pathlib import Path

    package = Path(__file__).parents[1]
    files = [os.path.join(top, name) for top, _, names in os.walk(package) if "__pycache__" not in top for name in names]
    folders = [path for path in sys.path if os.path.isdir(path) and not os.path.samefile(path, ".")]
    states = [(path, os.stat(path)) for path in sorted([*files, *folders])]
    return tuple((path, state.st_size, state.st_mtime_ns) for path, state in states)


def serve(listener: int, kinds: list[str]) -> int:
    """Serve until the launch ends and its stages have; the exit code of the server, or of the stage that this process became.

    Requests are served between imports: a stage that needs less than all of them starts earlier."""
    import importlib
    import shutil
    from functools import partial

    bound = socket.socket(fileno=listener)
    folder, server = os.path.dirname(bound.getsockname()), Server(bound)
    from interplay.run import resources, stage, workers

    resources.limit_threads(1)
    imports: list[Callable[[], object]] = [partial(workers.load_function, kind) for kind in kinds]
    imports += [partial(importlib.import_module, name) for name in LIBRARIES]
    while server.open():
        if request := server.turn(0 if imports else None):
            return stage.main(request["arguments"])
        if imports:
            imports.pop(0)()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "share":
        sys.exit(share(sys.argv[2:]))
    if sys.argv[1] == "serve":
        sys.exit(serve(int(sys.argv[2]), sys.argv[3:]))
    sys.exit(request_stage(sys.argv[1:]))
