"""Evidence on each member: the methods that name it, the tests of its equation, the committed studies that use it, and what they
found. A card is a short list below the heading of a member in the reference."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from interplay.results import locks
from interplay.rl.spec import Method
from interplay.study.plan import flat_name
from tools.reference import committed, lists

MOST = 6
"""Names that a line of a card lists."""
NO_STUDY = "no committed study uses it, so nothing is known of it but its tests"
Results = Mapping[str, Any]


class Evidence(NamedTuple):
    """What is committed, read once."""

    studies: dict[str, list[str]]
    """Member -> studies."""
    results: Mapping[str, Mapping[str, Results]]
    """Study -> scale -> committed summary."""
    methods: dict[str, Method]
    marks: dict[str, lists.Mark]
    members: dict[str, set[str]]
    """Member -> methods that name it."""
    tests: dict[str, str]
    """File below tests/unit -> its text."""


@cache
def read(root: Path) -> Evidence:
    """Everything that cards say, of the files below the root."""
    studies = locks.read_members(root / "configs")
    known = lists.methods(root)
    members: dict[str, set[str]] = {}
    for name, method in known.items():
        for member in locks.members_of(method):
            members.setdefault(member, set()).add(name)
    used = {study for users in studies.values() for study in users}
    results = {study: committed.results(root, study) for study in sorted(used)}
    tests = {path.name: path.read_text(encoding="utf-8") for path in sorted((root / "tests" / "unit").glob("test_*.py"))}
    return Evidence(studies, results, known, lists.marks(root), members, tests)


def card(found: Evidence, member: str, model: str) -> str:
    """The list below the heading of a member; `model` is the name of its class."""
    lines = []
    if users := sorted(found.members.get(member, ())):
        lines.append(f"- methods: {_listed([f'[{name}](../methods/{name}.md)' for name in users])}")
    lines.append(f"- tests: {_listed(_tests(found, member, model)) or 'those of what uses it'}")
    lines.append(f"- studies: {studies_line(found, found.studies.get(member, ()))}")
    return "\n".join(lines)


def studies_line(found: Evidence, studies: Iterable[str]) -> str:
    """Studies, each with the verdicts of its committed results; those with results first."""
    ordered = sorted(studies, key=lambda study: (not found.results.get(study), study))
    return _listed([f"`{study}` ({verdicts(found, study)})" for study in ordered]) or NO_STUDY


def verdicts(found: Evidence, study: str) -> str:
    """`7 supported, 2 withdrawn`, with a link to the tables."""
    said = []
    for scale, result in found.results.get(study, {}).items():
        counts = Counter(claim["verdict"] for claim in result["claims"])
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        said.append(f"[{scale}](../results/{flat_name(study, scale)}.json.gz): {words or 'no claim'}")
    return "; ".join(said) or committed.NOT_RUN


def _tests(found: Evidence, member: str, model: str) -> list[str]:
    """The equation tests of methods that differ from GRPO in this member, then the files that are called like
    it, or that make most of it."""
    key, _, name = member.partition(": ")
    usual = found.methods["grpo"]
    marks = [
        found.marks[method]
        for method in sorted(found.members.get(member, ()))
        if method in found.marks and key in lists.differing(found.methods[method], usual)
    ]
    listed = [f"`{mark.test.replace('.py:', '.py` `')}` ({mark.oracle})" for mark in marks]
    words = (f"{model}(", f'"name": "{name}"', f"name: {name}", f"kind: {name}")
    counts = Counter({file: sum(map(text.count, words)) for file, text in found.tests.items()})
    own = [file for file in found.tests if file.startswith(f"test_{name}")]
    files = [*own, *(file for file, count in counts.most_common(3) if count)]
    listed += [f"`{file}`" for file in files if not any(file in one for one in listed)]
    return list(dict.fromkeys(listed))


def _listed(words: list[str]) -> str:
    shown = words if len(words) <= MOST else words[: MOST // 2]
    more = f" and {len(words) - len(shown)} more" if len(words) > len(shown) else ""
    return ", ".join(shown) + more
