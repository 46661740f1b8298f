"""The lists below `docs/data/` that generated pages are made of, each read as what its schema says, and the RL methods."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from interplay.core.digest import canonical
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, UserError
from interplay.rl.spec import Method

M = TypeVar("M", bound=Model)
LISTS = ("papers", "places", "withdrawn", "superseded", "methods", "metrics", "choosing", "scores")
PAPERS, PLACES, WITHDRAWN, SUPERSEDED, METHODS, METRICS, CHOOSING, SCORES = (f"docs/data/{name}.yaml" for name in LISTS)
"""The files, as messages name them."""
CORE, TURNS, NEAR = EVIDENCE = "Placement by evidence", "Many turns", "Near fields"
"""The headings of docs/data/places.yaml: core papers, those on RL over many turns, and those of other fields whose idea has a
form in text. All are placed by evidence."""
WITHDRAWN_VERDICT = "withdrawn"
TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8"))
"""Prose of the generated pages."""


class Paper(Model):
    """A published finding and the study that asks whether it holds here."""

    title: str
    arxiv: str
    study: str
    table: str
    """Table of the study's report that answers."""
    finding: str
    """What was published, in a sentence."""
    row: str = ""
    """Its row in the contrasts of a study that several papers share."""
    note: str = ""
    """What a reader must know of the study in addition to its results."""


class Evidence(Model):
    """A paper, and the contrast of one study that shows that its method acts here: `arm` against `control`."""

    id: str = ""
    """In the list of papers that the project set out to hold; of those that are no core papers."""
    paper: str
    status: Literal["works", "partial", "out"]
    """works: the contrast ran, what it rests on held, and exchanging the member for its control's changes rollouts or gradients.
    partial: a part is here, or the contrast did not run or could show nothing. out: nothing of it is here."""
    study: str = ""
    arm: str = ""
    control: str = ""
    """The arm that lacks what the paper adds, and nothing else that matters."""
    key: str = ""
    """What that is: `<stage>.<key of its spec>`, `<stage>.data`, a stage of its own, or `path`, the order of stages."""
    ran: Literal["", "smoke", "coffee", "laptop"] = ""
    """Scale at which docs/results has both arms; smoke: they ran in tests alone, so that the row is partial."""
    test: str = ""
    """`file:function` below tests/unit, which checks the equation."""
    missing: str = ""
    """What of the paper is not here."""


class Withdrawal(Model):
    """A published verdict that the data cannot carry."""

    study: str
    scale: str
    claim: str
    """The claim's `says`."""
    verdict: Literal["supported", "indicated", "indicated against", "inconclusive", "no information", "refuted", "not judged"]
    """What was published."""
    reason: Literal["floor", "ceiling", "dead_arm", "broken_arm", "one_base", "by_construction", "premise", "wrong_test"]
    because: str
    """The evidence, in a sentence or two."""


class Superseded(Model):
    """Results of earlier plans that stay published until their studies are run again."""

    date: str
    """Since when the plans are others."""
    because: str
    """What changed in the plans, as the end of a sentence."""
    reports: dict[str, str]
    """Name of a file in docs/results without `.json.gz` -> digest of the report that it is of."""


class Mark(Model):
    """What no code can say of an RL method."""

    evidence: Literal["code", "paper", "note", "inferred"]
    """Where its equation was read: the authors' code, the paper, a third party's account; or inferred in part."""
    test: str
    """`file:function` below tests/unit, which checks the equation."""
    oracle: str = "by hand"
    """What the numbers are checked against."""


def conformance(root: Path) -> dict[str, dict[str, Any]]:
    """Method -> its file in tests/conformance: the released function, the constants of its launch script, departures, numbers."""
    files = sorted((root / "tests" / "conformance").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files if path.stem != "inputs"}


class Meaning(Model):
    """What a logged number is."""

    unit: str
    meaning: str
    watch: str
    """Its healthy range, and what a departure from it means."""


def logged(root: Path) -> dict[str, dict[str, dict[str, Meaning]]]:
    """Kind of run -> heading -> name of a logged number -> what it is."""
    return {
        kind: {
            title: {name: parse_model(Meaning, one, KeyPlace(METRICS, (kind, title, name))) for name, one in rows.items()}
            for title, rows in grouped.items()
        }
        for kind, grouped in read(root, METRICS).items()
    }


class Choice(Model):
    """What is seen in a run, and the methods that answer it."""

    see: str
    methods: tuple[str, ...]
    why: str


def choices(root: Path) -> tuple[Choice, ...]:
    """Which method when."""
    return entries(root, CHOOSING, Choice)


def marks(root: Path) -> dict[str, Mark]:
    """Method -> mark."""
    return {name: parse_model(Mark, one, KeyPlace(METHODS, (name,))) for name, one in read(root, METHODS).items()}


@lru_cache
def methods(root: Path) -> dict[str, Method]:
    """The methods of `configs/method/`, by name."""
    files = sorted((root / "configs" / "method").glob("*.yaml"))
    return {
        file.stem: parse_model(Method, yaml.safe_load(file.read_text(encoding="utf-8")), KeyPlace(file.name)) for file in files
    }


def differing(method: Method, usual: Method) -> list[str]:
    """The seams at which two methods differ."""
    keys = [key for key in Method.model_fields if key != "paper"]
    return [key for key in keys if canonical(getattr(method, key)) != canonical(getattr(usual, key))]


def entries(root: Path, name: str, kind: type[M]) -> tuple[M, ...]:
    """A list of `docs/data/` with one entry each, as what its schema says."""
    return tuple(parse_model(kind, one, place) for place, one in _listed(read(root, name), KeyPlace(name)))


def papers(root: Path) -> tuple[Paper, ...]:
    """The papers, as the page lists them."""
    return entries(root, PAPERS, Paper)


def evidence(root: Path) -> dict[str, tuple[Evidence, ...]]:
    """Heading -> its papers, in the order of the list."""
    found = read(root, PLACES)
    if not isinstance(found, dict) or found.keys() - set(EVIDENCE):
        raise UserError(f"{PLACES}: should be lists of papers under the headings {', '.join(EVIDENCE)}")
    return {
        heading: tuple(parse_model(Evidence, one, place) for place, one in _listed(listed, KeyPlace(PLACES, (heading,))))
        for heading, listed in found.items()
    }


def superseded(root: Path) -> dict[tuple[str, str], Superseded]:
    """(name of a result, digest of its report) -> why it is of an earlier plan. Empty where the file is missing."""
    found = read(root, SUPERSEDED) if (root / SUPERSEDED).exists() else []
    entries = [parse_model(Superseded, one, place) for place, one in _listed(found, KeyPlace(SUPERSEDED))]
    return {result: entry for entry in entries for result in entry.reports.items()}


def withdrawals(root: Path) -> tuple[Withdrawal, ...]:
    """The withdrawn claims; none where the file is missing."""
    found = read(root, WITHDRAWN) if (root / WITHDRAWN).exists() else []
    made = tuple(parse_model(Withdrawal, one, place) for place, one in _listed(found, KeyPlace(WITHDRAWN)))
    seen: set[tuple[str, str, str]] = set()
    for entry in made:
        key = (entry.study, entry.scale, entry.claim)
        if key in seen:
            raise UserError(f"{WITHDRAWN}: {entry.study} at {entry.scale} has the claim '{entry.claim}' twice; remove one")
        seen.add(key)
    return made


class Scores(Model):
    """A study whose scores are committed."""

    study: str
    scale: str = ""
    """Empty: that of configs/config.yaml."""


def scores(root: Path) -> tuple[Scores, ...]:
    """The studies of dvc.yaml."""
    return entries(root, SCORES, Scores)


def _listed(found: Any, place: KeyPlace) -> Iterator[tuple[KeyPlace, Any]]:
    """(place of an entry, entry)."""
    if not isinstance(found, list):
        raise place.error("should be a list")
    for number, one in enumerate(found, 1):
        yield place.key(f"entry {number}"), one


def read(root: Path, name: str) -> Any:
    """A list as it is written; UserError where it is missing or no YAML."""
    try:
        return _parsed((root / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{name}: missing; it is part of the repository") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: {error}") from None


@lru_cache(maxsize=8)
def _parsed(text: str) -> Any:
    """By its text: a page asks for the same file once per study."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def glossary(root: Path) -> dict[Path, str]:
    """The terms of docs/glossary.md with their meanings as plain text: what pages of studies explain, without the docs."""
    entries = re.findall(
        r"^- (\*\*.+?(?=\n- |\n\n|\Z))", (root / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    found: dict[str, str] = {}
    for entry in entries:
        names, _, meaning = entry.partition(": ")
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(meaning.split("\n  - ")[0].split()))
        found |= dict.fromkeys(re.findall(r"\*\*(.+?)\*\*", names), plain)
    path = root / "src" / "interplay" / "report" / "templates" / "glossary.json"
    return {path: json.dumps(found, indent=1, ensure_ascii=False) + "\n"}
