"""Stages that are forked from a server: as if each had a process of its own, also where one of the three is killed."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conftest import BEHIND, ROOT, Laboratory, saves, untrained, wait_for
from test_kills import bytes_of, unmade

from interplay.core import artifact
from interplay.core.execution import EXIT
from interplay.run import forkserver

THREADS = {f"{name}_NUM_THREADS": "1" for name in forkserver.THREAD_VARIABLES} | {"VECLIB_MAXIMUM_THREADS": "1"}
SMOKE = ("--config", "study=quickstart", "scale=smoke")
WRITES_IMPORTS = """
import os, sys
def write(event, given):
    if event == "import":
        with open({!r}, "a") as file:
            file.write(f"{{os.getpid()}} {{given[0]}}\\n")
sys.addaudithook(write)
"""
"""What each process of Python does at its start: it writes every module that it loads, with its own number."""


def only(laboratory: Laboratory, kind: str) -> Path:
    """The folder of the first stage of the kind."""
    return sorted((laboratory.folder / "results" / kind).iterdir())[0]


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., forkserver.Launched]]:
    """Starts the server of a launch in the laboratory's folder."""
    started: list[forkserver.Launched] = []

    def start(laboratory: Laboratory, *kinds: str) -> forkserver.Launched:
        monkeypatch.chdir(laboratory.folder)
        for name, value in THREADS.items():
            monkeypatch.setenv(name, value)
        started.append(forkserver.Launched(list(kinds)))
        return started[-1]

    yield start
    for server in started:
        server.close()


def client(out: Path) -> subprocess.Popen[str]:
    command = [*BEHIND, sys.executable, "-IS", forkserver.__file__, "run", out.name, "--log", "log"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def answer(out: Path, **changes: str) -> str:
    """What the server says to a request for this stage, with these variables of the environment or this folder."""
    environment = {**os.environ, **{name: value for name, value in changes.items() if name != "folder"}}
    request = {"arguments": ["run", out.name], "folder": changes.get("folder", os.getcwd()), "environment": environment}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[forkserver.ADDRESS])
        socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        return connection.recv(64).decode()


def test_a_forked_stage_leaves_what_one_of_its_own_process_does_and_its_own_measurements(
    finished: Laboratory, tmp_path: Path
) -> None:
    copy = Laboratory(tmp_path)
    shutil.copytree(finished.folder / "results", copy.folder / "results", symlinks=True)
    out = only(copy, "rl")
    forked, expected = json.loads((out / "telemetry.json").read_text()), bytes_of(out)
    header, values = (finished.folder / f"benchmarks/rl/{out.name}.tsv").read_text().splitlines()
    row = dict(zip(header.split("\t"), values.split("\t"), strict=True))
    assert (float(row["cpu_time"]), float(row["max_rss"])) == (forked["seconds_cpu"], forked["peak_memory_mb"])
    unmade(out)
    alone = copy.process("python", "-m", "interplay.run.stage", "run", out.name)
    assert alone.returncode == 0, alone.stderr
    assert bytes_of(out) == expected
    telemetry = json.loads((out / "telemetry.json").read_text())
    assert forked["seconds_cpu"] > 0.1
    assert 0.2 < forked["peak_memory_mb"] / telemetry["peak_memory_mb"] < 1.5
    assert forked.keys() == telemetry.keys()


@pytest.mark.slow  # see test_resume
def test_a_sigkill_of_any_of_the_three_leaves_no_orphan_and_no_lease(finished: Laboratory, tmp_path: Path) -> None:
    """One stage, killed through its client, itself and its server in turn, each time some saves later."""
    laboratory = untrained(finished, tmp_path)
    base = only(finished, "pretrain")
    record = f"results/pretrain/{base.name}/record.json"
    out = laboratory.folder / "results/pretrain" / base.name
    command = [*BEHIND, "snakemake", record, "--profile", "local", "--cores", "2", *SMOKE]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for victim in ("client", "stage", "server"):
        before = saves(out)
        process = subprocess.Popen(command, cwd=laboratory.folder, env=laboratory.env, **quiet)
        wait_for(lambda before=before: saves(out) >= before + 3)
        found = taking_part(process)
        assert len(found) == 3
        assert found["stage"].ppid() == found["server"].pid
        found[victim].kill()
        wait_for(lambda found=found: not is_running(found["stage"]), 20)
        code = process.wait(300)
        assert not any(is_running(one) for one in found.values())
        assert (code == 0) == (victim == "server") == (out / "record.json").exists()
        assert code == 0 or saves(out) >= before + 3
    assert (out / "record.json").read_bytes() == (base / "record.json").read_bytes()
    assert artifact.read_json(out / "telemetry.json")["attempts"] == 4


def taking_part(snakemake: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """The client, the server and the stage of the one job at work."""
    found: dict[str, psutil.Process] = {}
    for one in psutil.Process(snakemake.pid).children(recursive=True):
        words = one.cmdline()
        if forkserver.__file__ in words:
            found["client"] = one
        elif "serve" in words:
            found["server" if one.ppid() == snakemake.pid else "stage"] = one
    return found


def test_signals_reach_the_stage_and_its_exit_code_the_client_and_the_server_alone_imports(
    finished: Laboratory, tmp_path: Path, serve: Callable[..., forkserver.Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory = untrained(finished, tmp_path)
    (laboratory.folder / "hook").mkdir()
    (laboratory.folder / "hook/sitecustomize.py").write_text(WRITES_IMPORTS.format(str(laboratory.folder / "imports")))
    paths = [str(laboratory.folder / "hook"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    out = laboratory.folder / "results/pretrain" / only(finished, "pretrain").name
    out.mkdir(parents=True)
    planned = artifact.read_json(only(finished, "pretrain") / "stage.json")
    artifact.write_json(out / "stage.json", {**planned, "run": {"save_minutes": 0.0}})
    server = psutil.Process(serve(laboratory, "pretrain").process.pid)
    forked = []
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        before = saves(out)
        job = client(out)
        wait_for(lambda before=before: saves(out) >= before + 2)
        (stage,) = server.children()
        forked.append(stage.pid)
        if number == signal.SIGTERM:
            for sent, stopped in ((signal.SIGTSTP, True), (signal.SIGCONT, False)):
                job.send_signal(sent)
                wait_for(lambda stage=stage, stopped=stopped: (stage.status() == psutil.STATUS_STOPPED) == stopped, 20)
        job.send_signal(number)
        _, errors = job.communicate(timeout=60)
        assert job.returncode == EXIT, errors
        assert "stopped at step" in errors
        assert not is_running(stage)
    assert (laboratory.folder / "log").read_text().count("stopped at step") == 3
    server.terminate()  # then the stage starts by itself
    job = client(out)
    _, errors = job.communicate(timeout=300)
    assert job.returncode == 0, errors
    assert (out / "record.json").read_bytes() == (only(finished, "pretrain") / "record.json").read_bytes()
    imported: dict[int, set[str]] = {}
    for line in (laboratory.folder / "imports").read_text().splitlines():
        imported.setdefault(int(line.split()[0]), set()).add(line.split()[1])
    assert "torch" in imported[server.pid] & imported[job.pid]
    last = imported[forked[-1]]  # the first may have been forked before the server had imported
    assert not last & {"torch", "numpy", "interplay.train.loop"}
    assert len(last) < len(imported[job.pid]) / 2


def test_a_server_refuses_what_would_differ_in_a_process_of_its_own(
    finished: Laboratory, tmp_path: Path, serve: Callable[..., forkserver.Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "src"
    shutil.copytree(ROOT / "src/interplay", code / "interplay", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(code))
    out = only(finished, "tokenizer")
    serve(finished, "tokenizer")
    assert answer(out) == "0"
    assert answer(out, TMPDIR=str(tmp_path)) == "0"
    assert answer(out, MLFLOW_DISABLE_TELEMETRY="true") == "0"  # as the mirror sets it in the main process after the server began
    assert answer(out, OMP_NUM_THREADS="2") == answer(out, ANY="1") == answer(out, folder="/") == forkserver.REFUSED
    planned = artifact.read_json(out / "stage.json")
    for run in ({"threads": 2}, {"processes": 2}, {"gpus": 1}):
        artifact.write_json(out / "stage.json", {**planned, "run": run})
        assert answer(out) == forkserver.REFUSED
    artifact.write_json(out / "stage.json", planned)
    assert answer(out.with_name("0" * 12)) == forkserver.REFUSED
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as broken:
        broken.connect(os.environ[forkserver.ADDRESS])
        broken.sendall(b"nothing that is JSON\n")
        assert broken.recv(64) == b""
    assert answer(out) == "0"
    (code / "interplay/core/digest.py").open("a").write("\n")
    assert answer(out) == forkserver.REFUSED


def test_where_the_path_is_too_long_for_a_socket_the_stages_of_a_shared_job_start_by_themselves(tmp_path: Path) -> None:
    results, deep = tmp_path / "results", tmp_path / ("x" * 120)
    deep.mkdir()
    artifact.write_json(results / "tokenizer" / ("1" * 12) / "record.json", {})
    shared = {"run": {}, "members": {"1" * 12: "tokenizer"}, "fork_server": True}
    artifact.write_json(results / "shared" / ("2" * 12) / "stage.json", shared)
    command = [sys.executable, "-m", "interplay.run.forkserver", "share", "2" * 12, "--results", str(results)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (results / "shared" / ("2" * 12) / "made").exists()
    assert not list(deep.iterdir())
