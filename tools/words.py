"""Lint for the words of the text: `python -m tools.words` refuses words that no reader would search for, with the
standard wording for each. It reads code, comments, error texts, templates, written pages and the comments of configs,
identifiers included (`as_told` is found, `untold` is not)."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = {
    "told": "reported, given, received, said",
    "tells?": "report, state, show, print, distinguish",
    "foretells?|foretold": "predict, estimate, forecast",
    "alike": "equal, similar, the same, both",
    "besides?": "next to, with, in addition to, except",
    "nobody": "no one, no user, no process; or the passive",
    "somebody": "someone, a user, another process",
    "everybody": "everyone, all users, all processes",
    "whoever": "the user who, any process that",
    "whatever": "any, regardless of, all that",
    "mend(?:s|ed|ing)?": "fix, correct, repair",
    "dealt": "assigned round-robin, sharded, allocated, distributed",
    "hears?|heard": "receive, handle",
    "deafen(?:s|ed|ing)?": "ignore signals",
    "aside": "excluded, separate, stored elsewhere",
    r"apart(?! from\b)": "separate, separated, distinguished, except",
    r"hangs? on": "depends on",
    r"slips? of the pen": "typo",
    r"c[ao]mes? of": "results from, is the result of",
    r"stands?(?! for\b|-)": "is, is written, is listed, lies",
}
"""Pattern of a word -> how the field says it."""
FOUND = re.compile(rf"(?<![a-z])(?:{'|'.join(f'({pattern})' for pattern in WORDS)})(?![a-z])", re.IGNORECASE)
EVERYWHERE = (
    "Makefile",
    "README.md",
    "Snakefile",
    "bench/",
    "data/external/",
    "docs/",
    "rules/",
    "src/",
    "tools/",
    "workflows/",
)
"""Files, and folders with what lies below them, of which each line is read."""
COMMENTS = ("configs/",)
"""YAML of which comments are read: the values of a study are hashed, and its claims may quote a paper."""
EXEMPT = ("docs/images/", "docs/log/", "docs/log.md", "docs/results/", "docs/papers.md", "docs/guide/tasks.md", "tools/words.py")
"""Pictures, history, exported results, and the pages that quote claims, titles and problems."""
QUOTED = re.compile(r"arxiv|https?://|^\s*(?:- )?(?:claim|now|arm|control|test): ", re.IGNORECASE)
"""A line that cites a paper may hold its title, and one of docs/data a claim, an arm or a test as it is named."""


CONTENTS = re.compile(r'never_apart|["`]alike["`]|`told`|`test_\w+`|`test_alike\.py`|spec\.told|\btold: (?=Share)')
"""Keys of records and of studies: contents that digests cover, and no prose."""


def findings(name: str, text: str) -> Iterator[str]:
    """`FILE:LINE: word; write: ...` for each word that the table refuses."""
    for number, line in enumerate(text.splitlines(), 1):
        if name.startswith(COMMENTS):
            line = line.partition("#")[2]
        if QUOTED.search(line):
            continue
        for match in FOUND.finditer(CONTENTS.sub("", line)):
            wording = list(WORDS.values())[match.lastindex - 1] if match.lastindex else ""
            yield f"{name}:{number}: {match[0]}; write: {wording}"


def covered(root: Path) -> list[str]:
    """The tracked files that the lint reads, relative to the root, links left out."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        name
        for name in listed
        if name.startswith(EVERYWHERE) or (name.startswith(COMMENTS) and name.endswith(".yaml"))
        if not name.startswith(EXEMPT) and (root / name).is_file() and not (root / name).is_symlink()
    ]


def main(argv: list[str]) -> int:
    """Print the findings below the folders named, or of all files; 1 if there are any."""
    root = Path.cwd()
    names = [name for name in covered(root) if not argv or name.startswith(tuple(argv))]
    found = [line for name in names for line in findings(name, (root / name).read_text(encoding="utf-8"))]
    print("\n".join([*found, f"{len(found)} refused words in {len(names)} files"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
