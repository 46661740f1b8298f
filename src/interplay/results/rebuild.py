"""The plan that a commit had, with every spec: a lock names stages by their digests and leaves the specs out. The commit's own
sources plan the commit's configs, in a temporary folder, so the working tree and git's index are left as they are.

Only commands that somebody types come here. A job reads its stage.json."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import interplay
from interplay.core.model import UserError
from interplay.study.plan import lock_path, parse_lock

Stages = Mapping[str, dict[str, Any]]
EXPORTED = ("configs", "src", "data")
"""What a plan is made from. Files that git does not track, such as data sets, are linked from the working tree."""
COMMITS = 3
"""Commits that wrote a lock and are looked at, the latest first."""


def last_agreed(study: str, scale: str, configs: Path) -> tuple[str, Stages]:
    """The last commit whose configs give the lock that it holds, and its stages by digest, dependencies first. In a shallow clone
    the oldest commit counts as the one that wrote every file.

    Raises UserError, which says why, when there is none."""
    path = lock_path(configs, study, scale)
    wrote = _git("log", "-n", str(COMMITS), "--format=%H", "--", str(path)).decode().split()
    head = _git("rev-parse", "--verify", "HEAD").decode().strip()
    why = "no commit holds it"
    for commit in dict.fromkeys([*wrote[:1], head, *wrote[1:]]):
        try:
            locked = lock_at(commit, path)
            found = planned(commit, study, scale, locked)
        except UserError as error:
            why = str(error)
            continue
        if set(found) == set(locked):
            return commit, found
        why = f"the configs of commit {commit[:12]} give other stages than its lock"
    raise UserError(why)


def lock_at(revision: str, path: Path) -> Stages:
    """Stages of a lock by digest at a commit, tag or branch. Raises UserError when git, the commit or the lock is missing."""
    try:
        text = _git("show", "--end-of-options", f"{revision}:./{path.as_posix()}")
        return parse_lock(json.loads(text)).stages
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError):  # JSON's error is a ValueError
        raise UserError(f"{path}: not a lock at that commit") from None


def planned(revision: str, study: str, scale: str, locked: Stages) -> Stages:
    """The stages of a study by digest as a commit plans them; `locked` is the commit's lock. Raises UserError when the commit's
    configs cannot be planned any more."""
    if all("spec" in stage for stage in locked.values()):  # locks held specs at first
        return locked
    commit = _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="interplay-plan-") as name:
        folder = Path(name)
        _export(commit, folder)
        sources = folder / "src" if (folder / "src/interplay").is_dir() else Path(interplay.__file__).parents[1]
        paths = [str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "interplay", "plan", study, "--scale", scale, "--specs"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UserError(f"commit {commit[:12]} cannot be planned here: {said[-1] if said else f'exit code {done.returncode}'}")
    return {stage["digest"]: stage for stage in json.loads(done.stdout)["stages"]}


def _export(commit: str, folder: Path) -> None:
    """Write the commit's files below `folder`, and link what git does not track."""
    tracked = _git("ls-tree", "--name-only", commit).decode().splitlines()
    files = _git("archive", "--format=tar", commit, *(name for name in EXPORTED if name in tracked))
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files, check=True)
    for entry in Path().iterdir():
        if entry.name not in (".git", "configs", "src"):
            _link(entry.absolute(), folder / entry.name)


def _link(entry: Path, place: Path) -> None:
    if not os.path.lexists(place):
        place.symlink_to(entry)
    elif place.is_dir() and not place.is_symlink() and entry.is_dir():
        for inner in entry.iterdir():
            _link(inner, place / inner.name)


def _git(*words: str) -> bytes:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", *words], env=quiet, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(said[0].removeprefix("fatal: ") if said else f"git {words[0]} ended with {done.returncode}")
    return done.stdout
