"""Members of the user's own, for every union in one way: `name: "file.py:Name"`, the file lying in the study's folder, or
`name: "distribution:name"`, a Python entry point in the group `interplay.<union>` of an installed distribution. Further keys are
options. The text of the file, or the distribution's version, enters the digest.

    reward: {name: "mine.py:brevity", scale: 0.1}

A member is a function or a class. What it is called with is in the table `kinds.extensions`; options are further parameters, or
one parameter `options`, annotated with a `Model` that checks them.

Also C files of the package, at the end of this file: the other code that is loaded while a process runs."""

import ctypes
import hashlib
import importlib.metadata
import inspect
import logging
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, JsonValue

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, Since, UserError, nearest_name, plural

_LOG = logging.getLogger(__name__)
Library = TypeVar("Library", bound=ctypes.CDLL)


class Extension(Model):
    """A member of the user's own: `name: "file.py:Name"`, in a file in the study's folder, or `name: "distribution:name"`, an
    entry point of Python. Further keys are options of the function or class."""

    INEXACT: ClassVar[str] = "code of your own"
    UNION: ClassVar[str] = "transform"
    """Row of `kinds.extensions.EXTENSIONS`, and end of the group of entry points."""
    name: Literal["custom"] = "custom"
    function: str
    """`file.py:Name`, relative to the study's folder, or `distribution:name`."""
    source: str = ""
    """Full text of the file; filled in when the study is planned, so that its content is part of the identity."""
    distribution: Annotated[str, Since("")] = ""
    """Of an entry point; filled in when the study is planned."""
    version: Annotated[str, Since("")] = ""
    """Of the distribution; filled in when the study is planned."""
    options: dict[str, JsonValue] = {}
    """Passed to the function as keyword arguments."""


FILLED = ("source", "distribution", "version")
"""Keys that the planner fills in."""


def is_extension(value: Any) -> bool:
    """Whether a mapping of a study names a member of the user's own, in short form or written out."""
    if not isinstance(value, Mapping):
        return False
    name = value.get("name", "custom")
    return isinstance(name, str) and (":" in name or (name == "custom" and "function" in value))


def written_as(member: type[Extension]) -> BeforeValidator:
    """For a union with `member`: reads `{name: "file.py:Name", key: value}`. Keys that are fields of `member` are its own, others
    are options, next to those below `options`, which win: a set that changes one of a study's task writes it either way."""

    def expand(value: Any) -> Any:
        if not is_extension(value) or value.get("name", "custom") == "custom":
            return value
        fields = {key: item for key, item in value.items() if key in member.model_fields}
        options = {key: item for key, item in value.items() if key not in member.model_fields}
        if not isinstance(further := fields.pop("options", None) or {}, dict):
            raise ValueError(f"options: {further!r} is no mapping of keys to values")
        options |= further
        return {**fields, "name": "custom", "function": value["name"], **({"options": options} if options else {})}

    return BeforeValidator(expand)


def load(spec: Extension) -> Callable[..., Any]:
    """The function or class that `spec` names, of a file from the source that the spec carries: the file may have changed or be
    on another machine. Raises UserError when the source does not run, does not define it, or another version is installed."""
    return _entry_point(spec) if spec.distribution else _from_source(spec.function, spec.source)


def _from_source(function: str, source: str) -> Callable[..., Any]:
    """Not cached: each call starts from a fresh module, so that nothing it keeps there could escape a saved state."""
    file, _, name = function.rpartition(":")
    module = types.ModuleType(file.removesuffix(".py").replace("/", "."))
    try:
        exec(compile(source, file, "exec"), module.__dict__)
    except Exception as error:
        raise UserError(f"{function}: {file} does not run ({type(error).__name__}: {error})") from error
    found = module.__dict__.get(name)
    if not callable(found):
        raise UserError(f"{function}: {file} defines no function '{name}'; give file.py:function")
    return found


def entry_point(function: str, union: str) -> importlib.metadata.EntryPoint:
    """The entry point `distribution:name` of the union's group. Raises UserError when it is not installed."""
    distribution, _, name = function.partition(":")
    group = f"interplay.{union}"
    try:
        found = importlib.metadata.distribution(distribution).entry_points.select(group=group)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"install it, or write file.py:Name for a file in the study's folder (group {group})"
        raise UserError(f"{function}: no distribution '{distribution}' is installed; {remedy}") from None
    one = next((point for point in found if point.name == name), None)
    if one is None:
        known = nearest_name(name, [point.name for point in found])
        raise UserError(f"{function}: {distribution} has no entry point '{name}' in group {group}{known}")
    return one


def _entry_point(spec: Extension) -> Callable[..., Any]:
    point = entry_point(spec.function, spec.UNION)
    installed = importlib.metadata.version(spec.distribution)
    if installed != spec.version:
        planned = f"the stage was planned with {spec.distribution} {spec.version}, and {installed} is installed"
        raise UserError(f"{spec.function}: {planned}; install the one planned, or plan again")
    try:
        found = point.load()
    except Exception as error:
        raise UserError(f"{spec.function}: {point.value} cannot be imported ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise UserError(f"{spec.function}: {point.value} is no function or class")
    return found


def call(spec: Extension, *given: Any) -> Any:
    """What the function returns, or an object of the class. Raises UserError when it does not take what it is given, or fails,
    with its line."""
    return call_loaded(spec, load(spec), *given)


def call_loaded(spec: Extension, function: Callable[..., Any], *given: Any) -> Any:
    """`call` of what was loaded before."""
    options = parsed_options(spec, function)
    try:
        inspect.signature(function).bind(*given, **options)
    except TypeError as error:
        named = "".join(f", {name}" for name in options)
        raise UserError(f"{spec.function}: must take {plural(len(given), 'argument')}{named} ({error})") from None
    with errors_in(spec):
        return function(*given, **options)


@contextmanager
def errors_in(spec: Extension) -> Iterator[None]:
    """Turns what the user's code raises into UserError, one line with its place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        file = spec.function.rpartition(":")[0]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = f" at line {lines[-1]}" if lines else ""
        raise UserError(f"{spec.function}: fails{at} ({type(error).__name__}: {error})") from error


def finite_number(made: Any) -> float | None:
    """What a function returned, as a float; None where it is no finite number. Text is none, although Python can read it."""
    try:
        number = math.nan if isinstance(made, str | bytes) else float(made)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parsed_options(spec: Extension, function: Callable[..., Any]) -> dict[str, Any]:
    """The options as keyword arguments: as they are, or as one `options` where the function annotates it with a Model."""
    parameter = inspect.signature(function).parameters.get("options")
    model = parameter.annotation if parameter else None
    if isinstance(model, type) and issubclass(model, Model):
        return {"options": parse_model(model, dict(spec.options), KeyPlace(spec.function))}
    return dict(spec.options)


# Libraries of C files of the package: compiled for this machine at first use, kept with the bytecode, and called by ctypes.
#
# The compiler is that of the environment variable CC, or cc, gcc, clang, or the one in the package `ziglang`. Without any there
# is no library, and what it computes is computed otherwise.


def load_library(kind: type[Library], folder: Path, flags: Sequence[str], loss: str) -> Library | None:
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
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            if place != kept and place.stat().st_uid != os.getuid():
                continue  # what another user put there is not loaded
            if not path.exists():
                _compile(compiler, sources, flags, path)
            return path
        except OSError:  # not ours to write, a file system that is read alone, a full disk
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
