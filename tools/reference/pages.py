"""The pages of the reference, made of the JSON Schema of the specs: every key with its type, default and meaning, and a card
for each kind and each member of a union. A definition is on the page of the first root in PAGES that leads to it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from interplay.kinds.table import KINDS
from tools.reference import cards, cells, commands, extensions, lists
from tools.reference.specs import Schema, inside, name_of, schema, unions

FOLDER = "reference"
"""Below docs/."""
MOST_LINES = 250
"""Of a page; what is longer is continued on another."""


class Page(NamedTuple):
    """A page: what it is about, and whose keys it lists."""

    name: str
    title: str
    about: str
    roots: tuple[str, ...]
    """Kinds (`kind: rl`), unions (`loss`), or models of the schema."""


PAGES = tuple(Page(**{**one, "roots": tuple(one["roots"])}) for one in lists.TEXTS["pages"])
OWN = Page("extensions", "Members of your own", lists.TEXTS["extensions"], ())
COMMANDS = Page("commands", "Commands", "Also `interplay COMMAND --help`.", ())
PLAIN = {"Study": "The study's keys", "Scale": "The scale's keys"}
"""Models whose keys are those of a file, so that their parts are called by their own keys."""
ROOT_TITLES = {"Table": "tables.<name>", "Figure": "figures.<name>", "Claim": "claims", "Site": "The site"}
LINK = re.compile(r"@@(\w+)")
"""Of a model or a union, until pages are cut."""
COMMON = 3
"""Sections that have to share a key before it is listed once for all."""
SHARED = "Keys in common"
HEAD = ("| key | type | default | meaning |", "| --- | --- | --- | --- |")
SEAM_ABOUT = "Members of the seam `{}` of an RL step ([all seams](rl.md#method)), each chosen by its `name`."


class Section(NamedTuple):
    """A heading with the keys below it."""

    title: str
    name: str
    """The model's name in the schema."""
    member: str = ""
    """What its card is about, as in `loss: clipped`; empty for parts of others."""


def pages() -> tuple[Page, ...]:
    """All pages but that of the commands; a page for each seam."""
    seams = [Page(key, f"RL: {key}", SEAM_ABOUT.format(key), (key,)) for key in unions() if key not in ("task", "steps")]
    return (*PAGES, *seams)


@cache
def sections() -> dict[str, list[Section]]:
    """Page -> its sections. A model that no root names follows the first section that refers to it."""
    found = {page.name: [section for root in page.roots for section in _of_root(root)] for page in pages()}
    placed = {section.name for listed in found.values() for section in listed}
    for listed in found.values():
        for section in listed:  # grows while it is read
            parts = []
            models = list(inside(properties(section)))
            paths = [path for path, _ in models]
            for path, name in models:
                if name not in placed:
                    placed.add(name)
                    parts.append(Section(_title(section, path, name if paths.count(path) > 1 else ""), name))
            listed[listed.index(section) + 1 : listed.index(section) + 1] = parts
    return found


def _title(section: Section, path: str, name: str) -> str:
    """`arms.<name>.split`, with the tag of the model `name` where the key holds one of several."""
    tag = schema()[1][name]["properties"]["name"]["const"] if name else ""
    inner = f"{path}: {tag}" if tag else path
    return inner if section.name in PLAIN else f"{section.title}{', ' if section.member else '.'}{inner}"


def properties(section: Section) -> dict[str, Schema]:
    """Its keys. Those of a kind are its references and what the planner does not fill in of its spec."""
    roots, defs = schema()
    own = defs[section.name].get("properties", {})
    if not section.member.startswith("kind: "):
        return dict(own)
    kind = section.member.removeprefix("kind: ")
    references = roots.get(f"references: {kind}", {})
    keys = {**own, **(defs[name_of(references["$ref"])]["properties"] if references else {})}
    keys |= {"run": keys.pop("run")} if "run" in keys else {}
    return {key: one for key, one in keys.items() if key not in KINDS[kind].planned}


@cache
def files(root: Path) -> dict[Path, str]:
    """Every page below docs/reference but the index, with its text. They are part of the site and not committed."""
    evidence = cards.read(root)
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    for page in pages():
        listed = sections()[page.name]
        common = _common(listed)
        first = ["\n".join([f"## {SHARED}", "", *HEAD, *common.values()])] if common else []
        for name, text, part in _cut(page, [*first, *(_section(evidence, section, common, page.name) for section in listed)]):
            texts[name] = text
            links |= {root: f"[{root}]({name}.md)" for root in page.roots if root in unions() and root not in links}
            for title, model, _ in (listed[place - len(first)] for place in part if place >= len(first)):
                links[model] = f"[{cells.cell(title.rpartition(', ')[2])}]({name}.md#{anchor(title)})"
    for page, more in ((OWN, extensions.blocks()), (COMMANDS, commands.blocks())):
        texts |= {name: text for name, text, _ in _cut(page, list(more))}
    made = {name: LINK.sub(lambda match: links.get(match[1], "keys"), text) for name, text in texts.items()}
    return {root / "docs" / FOLDER / f"{name}.md": text for name, text in made.items()}


def found(root: Path, words: str) -> Iterator[str]:
    """The sections whose heading has the words (`clipped`, `loss: clipped`, `kind: rl`), else the rows of keys that have them."""
    sections_of = [part for text in files(root).values() for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]
    heads = [
        part
        for part in sections_of
        if words in part.partition("\n")[0].replace(": ", " ").split() or part.startswith(f"{words}\n")
    ]
    yield from (f"## {part.rstrip()}\n" for part in heads)
    for part in sections_of if not heads else ():
        for line in part.splitlines():
            if line.startswith("| `") and words in line:
                yield f"{part.partition(chr(10))[0]}: {line.strip('| ')}"


@cache
def member_links(root: Path = Path()) -> dict[str, str]:
    """Member -> address of its card below docs/."""
    titles = {section.title: section.member for listed in sections().values() for section in listed if section.member}
    return {
        titles[title]: f"{FOLDER}/{path.name}#{anchor(title)}"
        for path, text in files(root).items()
        for title in re.findall(r"^## (.*)$", text, re.MULTILINE)
        if title in titles
    }


def anchor(title: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def index(root: Path, linked: bool) -> str:
    """docs/reference/index.md; the committed one names the pages, that of the site leads to them."""
    heads = {path.name: text.partition("\n")[0].removeprefix("# ") for path, text in files(root).items()}
    lines = [f"- [{title}]({name})" if linked else f"- {title}" for name, title in heads.items()]
    return "\n".join([*lists.TEXTS["index"], *lines, ""])


def _of_root(root: str) -> list[Section]:
    roots, defs = schema()
    if root.startswith("kind: "):
        return [Section(root, name_of(roots[root]["$ref"]), root)]
    if root in unions():
        return [Section(f"{root}: {tag}", name, f"{root}: {tag}") for tag, name in unions()[root].items()]
    name = root if root in defs else name_of(roots[root]["$ref"])
    return [Section(PLAIN.get(name, ROOT_TITLES.get(name, name.lower())), name)]


def _cut(page: Page, blocks: list[str]) -> Iterator[tuple[str, str, list[int]]]:
    """(name, text, places of its blocks) of a page and of those that continue it."""
    for number, part in enumerate(_packed(blocks), 1):
        name, title = page.name, page.title
        if number > 1:
            name, title = f"{page.name}_{number}", f"{page.title}, from {_head(blocks[part[0]])}"
        yield name, "\n\n".join([f"# {title}", page.about, *(blocks[place] for place in part)]) + "\n", part


def _head(block: str) -> str:
    """What its heading names: `needle` of `## step: needle`, `scales.tasks` of `## scales.<name>.tasks`."""
    heading = block.partition("\n")[0].removeprefix("## ").replace("`", "").replace("&lt;name&gt;.", "")
    return re.split(": |, ", heading)[-1]


def _packed(blocks: list[str]) -> list[list[int]]:
    """Places of blocks, cut so that no part is longer than a page."""
    parts: list[list[int]] = [[]]
    lines = 5
    for place, block in enumerate(blocks):
        length = len(block.splitlines()) + 1
        if lines + length > MOST_LINES and parts[-1]:
            parts.append([])
            lines = 5
        parts[-1].append(place)
        lines += length
    return parts


def _rows(section: Section) -> dict[str, str]:
    """Key -> its row of the table. What chooses the member is left out, since the heading names it."""
    required = schema()[1][section.name].get("required", ())
    found = {}
    for key, one in properties(section).items():
        if "const" not in one:
            cells_of_key = (cells.type_words(one), cells.default(one, key in required), cells.meaning(section.name, key, one))
            found[key] = f"| `{key}` | {' | '.join(cells_of_key)} |"
    return found


def _common(listed: list[Section]) -> dict[str, str]:
    """Rows that several members or kinds of a page have."""
    counts = Counter(item for section in listed if section.member for item in _rows(section).items())
    return dict(item for item, count in counts.items() if count >= COMMON)


def _section(evidence: cards.Evidence, section: Section, common: Mapping[str, str], page: str) -> str:
    parts = [f"## {cells.cell(section.title)}", cells.cell(str(schema()[1][section.name].get("description", "")))]
    if section.member:
        parts.append(cards.card(evidence, section.member, section.name))
    rows = _rows(section)
    own = [row for key, row in rows.items() if common.get(key) != row]
    if own:
        parts.append("\n".join([*HEAD, *own]))
    if shared := [f"`{key}`" for key, row in rows.items() if common.get(key) == row]:
        parts.append(f"{'Also' if own else 'Keys'}, as in [common]({page}.md#{anchor(SHARED)}): {', '.join(shared)}.")
    return "\n\n".join(part for part in parts if part)
