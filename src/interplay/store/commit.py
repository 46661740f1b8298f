"""The project's git commit: recorded beside what was made, never hashed."""

import os
import subprocess


def current() -> str:
    """The commit of the folder we stand in, with `-dirty` where tracked files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # looking on never stands in the way of somebody's commit
    try:
        found = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return found.stdout.strip()
