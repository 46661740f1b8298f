"""Pages whose examples are run: `python -m tools.site.examples [--write] PAGE...` does what a page says in a project of its own,
and compares what is printed with what the page shows; with --write the page gets what is printed.

A code block whose first line is a comment with a path (`# configs/study/mine.yaml`) is a file that is written there. A line
`$ COMMAND` of a console block is run; the lines below it are its output: `...` means any lines, `…` any text within one."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from interplay.cli import main as interplay

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ((?:configs|data)/[\w./-]+)\n")
PARTS = ("Snakefile", "rules", "workflows", "local", "slurm", "data", "dvc.yaml")
"""What a project needs in addition to configs/."""


class Command(NamedTuple):
    """A command of a page with the output that the page shows, and where that is in its text."""

    line: str
    shown: str
    start: int
    end: int


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    said: str


def new_project(root: Path, folder: Path) -> None:
    """A copy of the project without results and plans."""
    shutil.copytree(root / "configs", folder / "configs", ignore=shutil.ignore_patterns("plans"))
    for name in PARTS:
        (folder / name).symlink_to(root / name)


def steps(text: str) -> Iterator[tuple[str, str] | Command]:
    """(path, content) of each file and each command, in the order of the page."""
    for block in BLOCK.finditer(text):
        if named := NAMED.match(block[2]):
            yield named[1], block[2]
        elif block[1] == "console":
            yield from _commands(block)


def _commands(block: re.Match[str]) -> Iterator[Command]:
    starts = [match.start() for match in re.finditer(r"^\$ ", block[2], re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(block[2])], strict=True):
        line, _, shown = block[2][start:end].partition("\n")
        at = block.start(2) + start + len(line) + 1
        yield Command(line.removeprefix("$ "), shown, at, at + len(shown))


def run(command: Command, project: Path) -> Outcome:
    """Run it in the project; `interplay` in this process, where that takes no time to start."""
    words = command.line.split()
    if words[0] == "interplay" and words[1] in ("plan", "explain", "report", "show", "list"):
        said = io.StringIO()
        with contextlib.chdir(project), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = interplay(words[1:])
        return Outcome(code, said.getvalue())
    made = subprocess.run(command.line, shell=True, cwd=project, capture_output=True, text=True, check=False)
    return Outcome(made.returncode, made.stdout + made.stderr)


def agrees(shown: str, said: str) -> bool:
    """Whether the output is what the page shows."""
    parts = [re.escape(line).replace("…", ".*") for line in shown.rstrip("\n").splitlines()]
    pattern = "\n".join("(?s:.*)" if part == re.escape("...") else part.rstrip() for part in parts)
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.rstrip("\n").splitlines())) is not None


def follow(text: str, project: Path) -> Iterator[tuple[Command, Outcome]]:
    """Do what a page says in the project."""
    for step in steps(text):
        if isinstance(step, Command):
            yield step, run(step, project)
        else:
            path = project / step[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step[1], encoding="utf-8")


def main(argv: list[str]) -> int:
    """Compare each page named, or write what its commands print."""
    wrong = 0
    for name in (word for word in argv if word != "--write"):
        text = made = Path(name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            new_project(Path.cwd(), Path(folder))
            for command, outcome in reversed(list(follow(text, Path(folder)))):
                if not agrees(command.shown, outcome.said):
                    wrong += 1
                    print(f"{name}: {command.line} (exit code {outcome.code}):\n{outcome.said}", file=sys.stderr)
                    made = made[: command.start] + outcome.said.rstrip("\n") + "\n" + made[command.end :]
        if "--write" in argv:
            Path(name).write_text(made, encoding="utf-8")
    return bool(wrong and "--write" not in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
