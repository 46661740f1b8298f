"""Installs packages into the environment of the Python that runs this: by uv, in a quarter of pip's time; by pip where uv fails.

    .venv/bin/python tools/install.py -c constraints.txt "torch==2.13.0"

It runs before anything is installed, so the standard library has to do. uv does not read pip's configuration, so what that names
(indexes, folders of wheels, certificates, constraints) is passed on as options: without them a machine whose own index or folder
offers torch for CPUs would get the build for CUDA.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SECTIONS = ("global", "install", ":env:")  # of pip's configuration, later ones override
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}


def read_settings(lines: Iterable[str]) -> dict[str, str]:
    """pip's settings, from the lines of `pip config list` (`section.name='value'`)."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in lines:
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in found:
            found[section][name] = str(ast.literal_eval(value))
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def uv_options(settings: dict[str, str]) -> list[str]:
    """The same settings as options of `uv pip install`; as with pip, the best version of all indexes is taken."""
    options = ["--index-strategy", "unsafe-best-match"]
    for name, option in OPTIONS.items():
        options += [part for value in settings.get(name, "").split() for part in (option, value)]
    return options + (["--no-index"] if settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else [])


def find_uv(pip: list[str]) -> str | None:
    """Path of uv: the one on the PATH, or in this environment, where pip installs it first. None where it cannot be had."""
    own = Path(sys.executable).with_name("uv")
    if not (found := shutil.which("uv")) and not own.exists():
        subprocess.run([*pip, "install", "--quiet", "uv"], stderr=subprocess.DEVNULL, check=False)
    return found or (str(own) if own.exists() else None)


def main(arguments: list[str]) -> int:
    """Installs what `arguments` (options that pip and uv share, and requirements) name. Returns the exit status."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    configured = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = read_settings(configured.splitlines())
    if uv := find_uv(pip):
        environment = {**os.environ, **({"SSL_CERT_FILE": settings["cert"]} if "cert" in settings else {})}
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, *uv_options(settings), *arguments]
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            return 0
        print("uv failed; pip goes on", file=sys.stderr)
    return subprocess.run([*pip, "install", "--quiet", "--no-compile", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
