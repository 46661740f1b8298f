"""DVC remotes by configuration alone: the payloads of a study go to S3 and over SSH and come back in another clone. The servers are
real ones on the loopback interface; `make test-remotes` installs what is needed."""

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Laboratory

pytestmark = pytest.mark.remotes
STUDY = ("quickstart", "--scale", "smoke")
KEYS = {"access_key_id": "keeper", "secret_access_key": "not-to-be-told"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(command: list[str], port: int, log: Path) -> "subprocess.Popen[bytes]":
    """A server that answers on the port."""
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(timeout=30)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Words for `dvc remote` that lead to a bucket."""
    import boto3

    port = free_port()
    process = serve([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, tmp_path / "s3.log")
    try:
        url = f"http://127.0.0.1:{port}"
        named = {"aws_access_key_id": KEYS["access_key_id"], "aws_secret_access_key": KEYS["secret_access_key"]}
        boto3.client("s3", endpoint_url=url, region_name="us-east-1", **named).create_bucket(Bucket="interplay")
        secret = [["modify", "--local", "there", key, value] for key, value in KEYS.items()]
        yield [["add", "-d", "there", "s3://interplay/store"], ["modify", "there", "endpointurl", url], *secret]
    finally:
        stop(process)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Words for `dvc remote` that lead to a folder behind an SSH server, which knows one key."""
    daemon = shutil.which("sshd") or "/usr/sbin/sshd"
    assert Path(daemon).exists(), "openssh-server is missing; `make test-remotes` installs it"
    port, own, host = free_port(), tmp_path / "own", tmp_path / "host"
    for key in (own, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    options = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": host,
        "AuthorizedKeysFile": f"{own}.pub",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "StrictModes": "no",
        "PidFile": "none",
        "Subsystem": "sftp internal-sftp",
    }
    (tmp_path / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where its children are confined
    process = serve([daemon, "-D", "-e", "-f", str(tmp_path / "sshd_config")], port, tmp_path / "ssh.log")
    try:
        place = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{tmp_path}/store"
        yield [["add", "-d", "there", place], ["modify", "--local", "there", "keyfile", str(own)]]
    finally:
        stop(process)


@pytest.mark.parametrize("kind", ["s3", "ssh"])
def test_payloads_come_back_from_the_remote_in_another_clone(
    kind: str, finished: Laboratory, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    remote: list[list[str]] = request.getfixturevalue(kind)
    origin = Laboratory(tmp_path / "origin")
    shutil.copytree(finished.folder / "results", origin.folder / "results", symlinks=True)
    for name in (".gitignore", ".dvcignore", "dvc.yaml"):
        shutil.copy(ROOT / name, origin.folder)
    (origin.folder / ".dvc").mkdir()
    (origin.folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    shutil.copy(ROOT / ".dvc/.gitignore", origin.folder / ".dvc")
    must(origin, "git", "init", "-q")
    for key, value in (("user.name", "a"), ("user.email", "a@b"), ("commit.gpgsign", "false")):
        must(origin, "git", "config", key, value)
    for words in remote:
        must(origin, "dvc", "remote", *words)
    must(origin, "interplay", "store", "push", *STUDY)
    must(origin, "git", "add", "-A")
    must(origin, "git", "commit", "-qm", "pushed")
    committed = must(origin, "git", "grep", "-h", "", "HEAD", "--", ".dvc")
    assert KEYS["secret_access_key"] not in committed

    must(origin, "git", "clone", "-q", ".", str(tmp_path / "clone"))
    clone = Laboratory.__new__(Laboratory)
    clone.folder, clone.env = tmp_path / "clone", origin.env
    shutil.copy(origin.folder / ".dvc/config.local", clone.folder / ".dvc")
    assert list(clone.folder.glob("results/pretrain/*/model/model.safetensors")) == []
    must(clone, "interplay", "store", "pull", *STUDY)
    for path in origin.folder.glob("results/pretrain/*/model/*"):
        assert (clone.folder / path.relative_to(origin.folder)).read_bytes() == path.read_bytes()
    assert clone.records() == finished.records()
    ran = clone.snakemake("study=quickstart", "scale=smoke")
    assert ran.returncode == 0, ran.stderr
    jobs = [line.split()[0] for line in (ran.stdout + ran.stderr).splitlines() if re.fullmatch(r"\w+ +\d+", line)]
    assert jobs == ["all", "total"], "the second machine computes nothing"
    assert not list(clone.folder.glob("results/*/*/telemetry.json"))


def must(laboratory: Laboratory, *command: str) -> str:
    done = laboratory.run(*command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
