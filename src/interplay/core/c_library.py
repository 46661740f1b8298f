"""Libraries of C files of the package: compiled for this machine at first use, kept with the bytecode, and called by ctypes.

The compiler is that of the environment variable CC, or cc, gcc, clang, or the one in the package `ziglang`. Without any there is
no library, and what it computes is computed otherwise."""

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import TypeVar

_LOG = logging.getLogger(__name__)
Library = TypeVar("Library", bound=ctypes.CDLL)


def load(kind: type[Library], folder: Path, flags: Sequence[str], loss: str) -> Library | None:
    """The library of the C files in a folder, loaded as this kind. None, with a line in the log that ends in `loss`, where there
    is no C compiler or it fails."""
    compiler = _compiler()
    if compiler is None:
        _LOG.warning("no C compiler (CC, cc, gcc, clang or the package ziglang): %s", loss)
        return None
    try:
        return kind(str(_compiled(compiler, folder, flags)))
    except (OSError, subprocess.SubprocessError) as error:
        _LOG.warning("%s does not compile %s (%s): %s", compiler[-1], folder.name, error, loss)
        return None


def _compiler() -> list[str] | None:
    """The command of a C compiler."""
    named = shlex.split(os.environ.get("CC", ""))
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    packaged = [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None
    return named or ([found] if found else packaged)


def _compiled(compiler: list[str], folder: Path, flags: Sequence[str]) -> Path:
    """The shared library of these sources, this compiler and this kind of processor."""
    sources = sorted(folder.glob("*.c"))
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout
    parts = [path.read_bytes() for path in [*sources, *sorted(folder.glob("*.h"))]]
    name = hashlib.sha256(b"\0".join([*parts, " ".join(flags).encode(), version, _processor()])).hexdigest()[:16]
    kept = Path(cache_from_source(str(folder / "__init__.py"))).parent
    for place in (kept, Path(tempfile.gettempdir()) / f"interplay-{folder.name}-{os.getuid()}"):
        path = place / f"{folder.name}.{name}.so"
        if path.exists():
            return path
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            _compile(compiler, sources, flags, path)
            return path
        except PermissionError:
            continue
    raise PermissionError(f"no folder for the library: {place}")


def _compile(compiler: list[str], sources: list[Path], flags: Sequence[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        made = Path(work) / path.name
        objects = [str(Path(work) / f"{source.stem}.o") for source in sources]
        for source, place in zip(sources, objects, strict=True):
            subprocess.run([*compiler, *flags, "-c", str(source), "-o", place], capture_output=True, check=True)
        # Linked without the flags, -fopenmp among them: functions of OpenMP and of Python are those that the process has loaded,
        # so that there is one set of threads. Its own functions come before others of these names.
        symbolic = [] if sys.platform == "darwin" else ["-Wl,-Bsymbolic"]  # as macOS links without being asked
        link = ["-shared", *symbolic, *objects, "-lm", "-o", str(made)]
        subprocess.run([*compiler, *link], capture_output=True, check=True)
        os.replace(made, path)


def _processor() -> bytes:
    """Features that distinguish kinds of processors: a library for one may stop on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine.encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "CPU part"))})).encode()
