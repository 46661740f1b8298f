"""The sources of the site: the written pages below docs/, README.md as the first page, and generated pages; their links, and the
navigation."""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from interplay.core.model import UserError
from tools.reference import methods, pages, papers
from tools.site import choosing, gallery, metrics, notebook

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
HEADING = re.compile(r"^# (.*)$", re.MULTILINE)
FENCES = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
SHOWN = {".yaml": "yaml", ".py": "python", ".json": "json", ".smk": "python", ".js": "javascript"}
"""Suffix -> language of files outside docs/ that a page links to; each becomes a page that shows it."""
FILES = "files"
"""Folder of those pages."""
OWN_PAGES = {
    r"configs/method/(.*)\.yaml": "methods/{}.md",
    r"configs/study/(.*)\.yaml": "gallery/{}.md",
    r"docs/data/(metrics|choosing)\.yaml": "reference/{}.md",
}
"""Files -> the page on them, which a link leads to, except from that page."""
INDEX = "docs/reference/index.md"
"""The committed index, whose anchors name pages of the reference: `index.md#loss` leads to the page on losses."""
WHOLE = ("results/", "images/", "log/")
"""Folders below docs/ whose files are copied as they are, when a page links to them."""


def assemble(root: Path) -> dict[str, str | bytes]:
    """Path below the site's pages -> content: all pages with links that hold on the site, and the files that they link to."""
    texts = _texts(root)
    made: dict[str, str | bytes] = {}
    for name, (text, origin) in texts.items():
        made[name] = relink(root, name, text, origin, texts, made)
    made["site.css"] = (root / "tools/site/site.css").read_text(encoding="utf-8")
    made["worker.js"] = (root / "tools/site/worker.js").read_text(encoding="utf-8")
    return made


def _texts(root: Path) -> dict[str, tuple[str, str]]:
    """Page -> (text, folder relative to the root from which its links lead)."""
    docs = root / "docs"
    written = {path: path.read_text(encoding="utf-8") for path in sorted(docs.rglob("*.md"))}
    written |= {path.with_suffix(".md"): notebook.page(path) for path in sorted((docs / "notebooks").glob("*.ipynb"))}
    written[docs / pages.FOLDER / "index.md"] = pages.index(root, linked=True)
    written[docs / "papers" / "claims.md"] = papers.claim_page(root)
    written[docs / pages.FOLDER / "metrics.md"] = metrics.page(root)
    written[docs / pages.FOLDER / "choosing.md"] = choosing.page(root)
    found = {"index.md": ((root / "README.md").read_text(encoding="utf-8"), ".")}
    for path, text in {**written, **pages.files(root), **methods.files(root), **gallery.files(root)}.items():
        found[path.relative_to(docs).as_posix()] = (text, path.parent.relative_to(root).as_posix())
    return found


def relink(root: Path, page: str, text: str, origin: str, texts: Mapping[str, Any], made: dict[str, str | bytes]) -> str:
    """The text with links that hold on the site; what is linked outside the pages is added to `made`."""

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(origin, target))
        if path == INDEX and f"reference/{anchor}.md" in texts:
            path, anchor = f"docs/reference/{anchor}.md", ""
        to = _place(root, page, path, texts, made)
        if to is None:
            raise UserError(f"{origin}/{posixpath.basename(page)}: link to {match[2]}: {path} does not exist")
        address = posixpath.relpath(to, posixpath.dirname(page) or ".")
        return f"{match[1]}({address}{'#' + anchor if anchor else ''})"

    parts = FENCES.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def _place(root: Path, page: str, path: str, texts: Mapping[str, Any], made: dict[str, str | bytes]) -> str | None:
    """Where the site has a file of the repository; None where there is no such file."""
    inner = path.removeprefix("docs/")
    for pattern, of in OWN_PAGES.items():
        if (match := re.fullmatch(pattern, path)) and (own := of.format(match[1].replace("/", "_"))) in texts and own != page:
            return own
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        if (name := re.sub(r"\.ipynb$", ".md", inner)) in texts:
            return name
        if inner.startswith(WHOLE) and (root / path).is_file():
            made[inner] = (root / path).read_bytes()
            return inner
    if not (root / path).is_file():
        return None
    name, language = f"{FILES}/{path}.md", SHOWN.get(Path(path).suffix, "text")
    content = (root / path).read_text(encoding="utf-8").rstrip("\n")
    made[name] = f"# {path}\n\n~~~~{language}\n{content}\n~~~~\n"
    return name


def configuration(root: Path, made: Mapping[str, str | bytes]) -> str:
    """The site's configuration with every page in its navigation. Raises UserError for a page that no entry names."""
    config = yaml.safe_load((root / "tools/site/mkdocs.yml").read_text(encoding="utf-8"))
    named = set(_entry_pages(config["nav"]))
    config["nav"] = [_entry(one, made, named) for one in config["nav"]]
    shown = set(_entry_pages(config["nav"]))
    lost = [name for name in made if name.endswith(".md") and name not in shown and not name.startswith(f"{FILES}/")]
    if lost:
        raise UserError(f"tools/site/mkdocs.yml: nav has no entry for {', '.join(sorted(lost))}")
    return yaml.safe_dump(config, sort_keys=False, width=200)


def _entry_pages(entry: Any) -> Iterator[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for inner in entry.values():
            yield from _entry_pages(inner)
    else:
        for inner in entry:
            yield from _entry_pages(inner)


def _entry(entry: Any, made: Mapping[str, str | bytes], named: set[str]) -> Any:
    if isinstance(entry, list):
        return [_entry(one, made, named) for one in entry]
    if isinstance(entry, dict):
        return {title: _entry(inner, made, named) for title, inner in entry.items()}
    if not entry.endswith("/*"):
        return entry
    folder = entry.removesuffix("*")
    listed = [name for name in made if name.startswith(folder) and name.endswith(".md") and name not in named]
    listed.sort(key=lambda name: (name != f"{folder}index.md", list(made).index(name)))
    return [{_title(str(made[name]), name): name} for name in listed]


def _title(text: str, name: str) -> str:
    found = HEADING.search(text)
    if not found:
        raise UserError(f"{name}: no heading of the first level")
    return found[1].replace("`", "")


def write(folder: Path, made: Mapping[str, str | bytes], config: str) -> None:
    """Write pages and configuration; a file whose content is as it was keeps its date, so that a second build is quick."""
    target = folder / "pages"
    for name, content in made.items():
        data = content.encode() if isinstance(content, str) else content
        path = target / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for path in target.rglob("*"):
        if path.is_file() and os.path.relpath(path, target) not in made:
            path.unlink()
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
