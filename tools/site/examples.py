"""Pages whose examples are run: `python -m tools.site.examples [--write] PAGE...` does what a page says in a project of its own,
and compares what is printed with what the page shows; with --write the page gets what is printed.

A code block with a path in its first line (`# configs/study/mine.yaml`) or as its title is a file that is written there. A line
`$ COMMAND` of a console block is run; the lines below it are its output: `...` means any lines, `…` any text within one."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from interplay.cli import main as interplay

BLOCK = re.compile(r"^```(\w+)(?: title=\"(?P<path>[\w./-]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ((?:configs|data)/[\w./-]+)\n")
OPEN = "...\n"
"""Output that is to be filled in."""
PARTS = ("Snakefile", "rules", "workflows", "local", "slurm", "dvc.yaml")
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


Runner = Callable[[Command, Path], Outcome]


def new_project(root: Path, folder: Path) -> None:
    """A copy of the project without results and plans."""
    shutil.copytree(root / "configs", folder / "configs", ignore=shutil.ignore_patterns("plans"))
    for part in (*(root / name for name in PARTS), *(root / "data").iterdir()):
        path = folder / part.relative_to(root)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(part)
    (folder / "data/external").unlink()
    (folder / "data/external").mkdir()


def steps(text: str) -> Iterator[tuple[str, str] | Command]:
    """(path, content) of each file and each command, in the order of the page."""
    for block in BLOCK.finditer(text):
        named = NAMED.match(block["text"])
        if path := block["path"] or (named and named[1]):
            yield path, block["text"]
        elif block[1] == "console":
            yield from _commands(block)


def _commands(block: re.Match[str]) -> Iterator[Command]:
    starts = [match.start() for match in re.finditer(r"^\$ ", block["text"], re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(block["text"])], strict=True):
        line, _, shown = block["text"][start:end].partition("\n")
        at = block.start("text") + start + len(line) + 1
        yield Command(line.removeprefix("$ "), shown, at, at + len(shown))


def run(command: Command, project: Path) -> Outcome:
    """Run it in the project; `interplay` in this process, where that takes no time to start."""
    words = command.line.split()
    if words[0] == "interplay" and words[1] in ("plan", "explain", "report", "show", "list"):
        said = io.StringIO()
        with contextlib.chdir(project), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = interplay(words[1:])
        return Outcome(code, said.getvalue())
    made = subprocess.run(
        command.line, shell=True, cwd=project, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return Outcome(made.returncode, made.stdout)


def agrees(shown: str, said: str) -> bool:
    """Whether the output is what the page shows."""
    parts = [re.escape(line).replace("…", ".*") for line in shown.rstrip("\n").splitlines()]
    pattern = "\n".join("(?s:.*)" if part == re.escape("...") else part.rstrip() for part in parts)
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.rstrip("\n").splitlines())) is not None


def follow(text: str, project: Path, runner: Runner = run) -> Iterator[tuple[Command, Outcome]]:
    """Do what a page says in the project."""
    for step in steps(text):
        if isinstance(step, Command):
            yield step, runner(step, project)
        else:
            path = project / step[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step[1], encoding="utf-8")


def _written(shown: str, said: str) -> str:
    """What a page is to show: all of it, or of what begins with `...` the lines behind Snakemake's own."""
    lines = said.rstrip("\n").splitlines()
    if shown.startswith("..."):
        last = max((at for at, line in enumerate(lines) if line.startswith("Elapsed time")), default=len(lines) - 5)
        lines = ["...", *lines[last + 1 :]]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Compare the pages named, or write what their commands print. They share a project, in their order; of --given FOLDER the
    files are there as well."""
    names = [word for word in argv if word.endswith(".md")]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        new_project(Path.cwd(), Path(folder))
        if "--given" in argv:
            shutil.copytree(argv[argv.index("--given") + 1], folder, dirs_exist_ok=True)
        for name in names:
            made = Path(name).read_text(encoding="utf-8")
            for command, outcome in reversed(list(follow(made, Path(folder)))):
                if command.shown == OPEN or not agrees(command.shown, outcome.said):
                    wrong += 1
                    print(f"{name}: {command.line} (exit code {outcome.code}):\n{outcome.said}", file=sys.stderr)
                    made = made[: command.start] + _written(command.shown, outcome.said) + made[command.end :]
            if "--write" in argv:
                Path(name).write_text(made, encoding="utf-8")
    return bool(wrong and "--write" not in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
