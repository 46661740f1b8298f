"""A PostgreSQL and an MLflow server before it, on the loopback interface, in a folder that goes with them."""

import glob
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SECRET = "not-to-be-told"
"""Password of the store: nothing that is written or printed may hold it."""


def tools() -> Path | None:
    """Folder of initdb and postgres; Debian keeps them out of the path."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    return Path(found[-1]) if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """One cluster of PostgreSQL, which refuses to be run by root: then it is the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        found = tools()
        assert found, "PostgreSQL is missing; `make test-postgres` installs it"
        self.bin, self.folder, self.port = found, folder / "postgres", free_port()
        self.user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        self.process: subprocess.Popen[bytes] | None = None

    def uri(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg2://keeper:{SECRET}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """An empty database; returns its URI."""
        command = [self.bin / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "keeper", database]
        subprocess.run(command, env={**os.environ, "PGPASSWORD": SECRET}, check=True, capture_output=True)
        return self.uri(database)

    def start(self) -> None:
        self.folder.mkdir()
        password = self.folder / "password"
        password.write_text(SECRET)
        if self.user:
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data = self.folder / "data"
        make = ["initdb", "-D", str(data), "-U", "keeper", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"]
        subprocess.run([self.bin / make[0], *make[1:]], cwd=self.folder, check=True, capture_output=True, **self.user)
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder, "fsync": "off"}
        command = [
            self.bin / "postgres",
            "-D",
            data,
            *(word for key, value in options.items() for word in ("-c", f"{key}={value}")),
        ]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self.user)
        wait_for_port(self.port)

    def stop(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGINT)  # "fast": sessions are ended
            self.process.wait(timeout=30)


class Server:
    """`mlflow server` with that store."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store, self.port = folder, store, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """On the same port each time; waits until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": self.store, "MLFLOW_DISABLE_TELEMETRY": "true"}
        with open(self.folder / "server.log", "ab") as log:
            options = {"cwd": self.folder, "env": environment, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, start_new_session=True, **options)
        wait_for_port(self.port, seconds=180)
        urllib.request.urlopen(f"{self.uri}/health", timeout=60).close()

    def stop(self) -> None:
        """It and its workers."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(timeout=60)


def wait_for_port(port: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
