"""A laboratory of one's own: a copy of the project's workflow in a temporary folder, run with the real Snakemake."""

import contextlib
import copy
import fcntl
import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import forked
import psutil
import pytest
from forked import BEHIND
from hypothesis import settings
from omegaconf import OmegaConf

from interplay.core import execution
from interplay.core.artifact import last_save
from interplay.core.metrics import log_to_stderr
from interplay.study import compose as composition

log_to_stderr()  # the tests are an entry point of their own
settings.register_profile("default", deadline=None)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=20)

ROOT = Path(__file__).parent.parent
STAGE = ("python", "-m", "interplay.run.stage", "run")

LONGEST = 1800
"""Seconds of a command that takes half a minute on a free machine: it may be slow and have other work."""
LONG = ("test_faults", "test_curate_run", "test_devices", "test_devices_ends", "test_shards_of_evaluations", "test_mutations")
"""Files of long tests that do without the finished study."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that need the finished study come first, the other long ones start the second half: xdist gives each of two processes
    one half, so that neither waits for a study that the other makes, and short tests are left to balance the end."""
    needs_study = {item.path for item in items if "finished" in getattr(item, "fixturenames", ())}
    first = [item for item in items if item.path in needs_study]
    long = [item for item in items if item.path.stem in LONG and item.path not in needs_study]
    short = [item for item in items if item.path.stem not in LONG and item.path not in needs_study]
    middle = max(0, len(items) // 2 - len(first))
    items[:] = first + short[:middle] + long + short[middle:]


def pytest_collection() -> None:
    """Nothing that is imported is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What the tests have imported stays until the end: Python need not search it for garbage again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's job in the background ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def compositions() -> Iterator[None]:
    """Hydra composes a study at a scale once for files of the same content, wherever they lie: it takes four fifths of a plan. Of
    the project's own files each study and each scale is composed once. A study that differs is composed of files that were read
    once."""
    compose, known = composition.compose_study, dict[Any, dict[str, Any]]()
    load, read = OmegaConf.load, dict[str, Any]()
    own, shared = _contents(ROOT / "configs"), composition.Parts()

    def load_once(file: Any) -> Any:
        if isinstance(file, str | Path):
            with open(file, encoding="utf-8") as opened:
                return load_once(opened)
        text = file.read()
        if text in read:
            return OmegaConf.create(read[text])
        file.seek(0)
        found = load(file)
        read[text] = OmegaConf.to_container(found)
        return found

    def remembered(
        configs: Path,
        study: str,
        scale: str,
        knobs: Mapping[str, Any] = MappingProxyType({}),
        parts: composition.Parts | None = None,
    ) -> dict[str, Any]:
        key = (study, scale, repr(knobs), _contents(configs))
        if key not in known:
            known[key] = compose(configs, study, scale, knobs, shared if key[-1] == own else parts)
        return copy.deepcopy(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "compose_study", remembered)
        patch.setattr(OmegaConf, "load", staticmethod(load_once))
        yield


def _contents(configs: Path) -> bytes:
    """Hash of all YAML files and links with their places. (`os.walk` takes five times as long, of each plan.)"""
    found = hashlib.sha256()

    def add(folder: str, inside: str) -> None:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            link, yaml = entry.is_symlink(), entry.name.endswith(".yaml")
            if link or yaml:
                found.update(f"{inside}/{entry.name} {os.readlink(entry.path) if link else ''}\0".encode())
                with contextlib.suppress(OSError), open(entry.path, "rb", buffering=0) as file:
                    found.update(file.read())
            elif entry.name != "plans" and entry.is_dir():
                add(entry.path, f"{inside}/{entry.name}")

    if configs.is_dir():
        add(os.fspath(configs), "")
    return found.digest()


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restores the handlers after a test that runs a stage in this process: a stage at its end ignores signals, and the processes
    of later tests would inherit that."""
    before = {number: signal.getsignal(number) for number in execution.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def examples(number: int) -> settings:
    """So many examples of a property where each run draws others (`make test-properties`); a fifth of them, or six, where it draws
    the same ones each time (`make test`)."""
    fixed = settings.get_current_profile_name() == "ci"
    return settings(max_examples=max(min(number, 6), number // 5) if fixed else number)


def copy_configs(project: Path, locks: bool = False) -> Path:
    """The project's configs in a project of its own; without the locks, which are two files of three and which each `interplay
    plan` reads."""
    ignored = None if locks else shutil.ignore_patterns("plans")
    return Path(shutil.copytree(ROOT / "configs", project / "configs", ignore=ignored, copy_function=shutil.copyfile))


class Laboratory:
    """Snakefile, rules and configs in a folder; studies may be edited there without touching the project's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("rules", "configs", "workflows"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, copy_function=shutil.copyfile)
        shutil.copy(ROOT / "Snakefile", folder)
        for name in ("local", "slurm"):
            (folder / name).symlink_to(f"workflows/profiles/{name}")
        self.edit("configs/scale/smoke.yaml", "test: 40}", "test: 16}")  # evaluations were a third of the time of real runs
        self.env = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # each job would compile the package anew
        self.env["INTERPLAY_TRACK"] = "0"  # MLflow costs seconds of each run; tests of it switch it on
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file of the laboratory; the text must be there."""
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{file} does not contain {old!r}"
        path.write_text(text.replace(old, new))

    def command(self, *config: str, flags: tuple[str, ...] = ()) -> list[str]:
        return ["snakemake", "all", "--profile", "local", "--cores", "2", *flags, *(("--config", *config) if config else ())]

    def snakemake(self, *config: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self.run(*self.command(*config, flags=flags))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Of Snakemake, `interplay` and stages the imports are done already."""
        return forked.run(command, self.folder, self.env) or self.process(*command)

    def stage(self, digest: str, first: str = "") -> forked.Forked:
        """A stage at work that logs to `log`; to be killed or awaited."""
        made = forked.start([*STAGE, digest, "--log", "log"], self.folder, self.env, first)
        assert made
        return made

    def process(self, *command: str) -> subprocess.CompletedProcess[str]:
        """With a start of its own."""
        return subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LONGEST, check=False
        )

    def start(self, *config: str, flags: tuple[str, ...] = ()) -> forked.Forked:
        """Snakemake in the background, in a process group of its own, behind other processes as `BEHIND` says."""
        first = f"import os; os.setsid(); os.nice({BEHIND[-1]}); "
        made = forked.start(self.command(*config, flags=flags), self.folder, self.env, first, forked.Beside)
        assert made
        return made

    def make_stages(self, study: str) -> None:
        """The stages of a study at smoke without Snakemake, in processes that share the time of importing torch."""
        command = [sys.executable, "-m", "tools.contents", "make", str(self.folder / "contents.tsv"), study]
        command += ["--work", str(self.folder), "--processes", "2"]
        env = {**self.env, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def take_data(self, finished: "Laboratory", *more: str) -> None:
        """Copy the finished study's data, and stages of `more` kinds: what costs seconds and is not what a test is about."""
        for kind in ("problems", "tokenizer", "corpus", *more):
            shutil.copytree(finished.folder / "results" / kind, self.folder / "results" / kind)

    def records(self) -> dict[str, bytes]:
        """Every record by its path below results."""
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in sorted(self.folder.glob("results/*/*/record.json"))}


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path)


def untrained(finished: Laboratory, folder: Path) -> Laboratory:
    """A laboratory with the finished one's data and no models, where pre-training saves after every step and can be met at work."""
    laboratory = Laboratory(folder)
    laboratory.take_data(finished)
    laboratory.edit("configs/scale/smoke.yaml", "pretrain: {", "pretrain: {run: {save_minutes: 0.0}, ")
    return laboratory


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """A laboratory in which the quickstart study ran at smoke scale. Tests that change it work on a copy.

    Under xdist the first process that needs one makes it, for all: each takes a copy, since tests look on while others run."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    shared = (tmp_path_factory.getbasetemp().parent if worker else tmp_path_factory.getbasetemp()) / "first"
    with open(shared.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shutil.rmtree(shared.with_suffix(".part"), ignore_errors=True)  # of a process in which it failed
            making = Laboratory(shared.with_suffix(".part"))
            result = making.process(*making.command("study=quickstart", "scale=smoke"))
            assert result.returncode == 0, result.stdout + result.stderr
            making.folder.rename(shared)
    laboratory = Laboratory(tmp_path_factory.mktemp("finished"))
    for part in shared.iterdir():
        if part.is_dir() and not (laboratory.folder / part.name).exists():
            shutil.copytree(part, laboratory.folder / part.name, symlinks=True)
    return laboratory


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    """Wait until the condition holds; long enough for a machine of two cores that other work uses, too."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@contextlib.contextmanager
def ended_after(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> Iterator[None]:
    """However the block ends, the process and all that it started have ended then; each is stopped by its process id."""
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
            for one in [psutil.Process(process.pid), *started]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait(timeout=60)


@contextlib.contextmanager
def stopped_when(condition: Callable[[], bool], said: str | None = None) -> Iterator[None]:
    """SIGTERM to this process as soon as the condition holds; what runs within it raises StoppedError, which matches `said`."""

    def ask() -> None:
        while not condition():
            time.sleep(0.001)
        signal.raise_signal(signal.SIGTERM)

    execution.install_handlers()
    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(execution.StoppedError, match=said):
        yield
    asking.join()
    execution.install_handlers()


def assert_stacked_twins(stacked: dict[str, dict], alone: dict[str, dict]) -> None:
    """Records made in a stack differ from those made alone, of the same digests, in `numerics`; metrics are not compared."""
    for digest, record in stacked.items():
        assert record.keys() - alone[digest].keys() == {"numerics"}
        assert record["numerics"] == "stacked"
        assert record["files"].keys() == alone[digest]["files"].keys()


def kill_group(process: subprocess.Popen[str] | forked.Forked) -> None:
    """SIGKILL to a process and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def saves(out: Path) -> int:
    """How far the saves in resume/ reach: the last step, or the number of finished shards."""
    if saved := last_save(out):
        return int(saved["step"])
    return len(list(out.glob("resume/shards/*.parquet")))


def below(process: subprocess.Popen[str] | forked.Forked, word: str) -> list[psutil.Process]:
    """Processes that this one started, itself or through others, with the word in their command; those that ended are left out."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in one.cmdline():
                found.append(one)
    return found
