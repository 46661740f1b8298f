"""`python -m tools.reference` writes the generated files: docs/reference/index.md, docs/methods.md, docs/papers.md,
docs/images/verdicts.svg, those of docs/findings/ (docs/images/finding_*.svg), docs/reproduction.md with its pictures,
docs/guide/tasks.md, the members in docs/numerics.md, dvc.yaml and the glossary of pages, which are committed, and
configs/schema/ for editors (`make setup` makes it, `make docs` all). With names it writes those alone. The pages behind the
indexes are part of the site (`make site`). `python -m tools.reference find WORDS` prints what they say of a member, a key or a
method."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from interplay.core.model import UserError
from tools.reference import editors, findings, lists, methods, pages, papers, pipeline, reproduction, tasks, verdicts

Texts = Mapping[Path, str]
PARTS: dict[str, Callable[[Path], Texts]] = {
    "reference": lambda root: {root / "docs" / "reference" / "index.md": pages.index(root, linked=False)},
    "methods": lambda root: {root / "docs" / "methods.md": methods.table(root)},
    "numerics": methods.exact_page,
    "glossary": lists.glossary,
    "papers": lambda root: {root / "docs" / "papers.md": papers.page(root)},
    "verdicts": verdicts.picture,
    "findings": findings.files,
    "reproduction": reproduction.files,
    "tasks": tasks.files,
    "dvc": lambda root: {root / "dvc.yaml": pipeline.text(root)},
    "schema": lambda root: editors.files(root / "configs"),
}
FOLDERS = {"reference": "docs/reference", "reproduction": reproduction.PICTURES, "schema": "configs/schema"}
"""Part -> the folder that holds files of its own and no others."""


def main(argv: list[str]) -> int:
    """Write the parts named, or all; or print a part of the reference."""
    root = Path.cwd()
    if argv[:1] == ["find"]:
        own = root / "docs" / "methods" / f"{argv[-1]}.md"
        lines = [*pages.found(root, " ".join(argv[1:])), *filter(None, [methods.files(root).get(own)])]
        print("\n".join(lines) or f"find: no section and no key has '{' '.join(argv[1:])}'")
        return 0 if lines else 2
    try:
        made = {name: PARTS[name](root) for name in argv or PARTS}
    except KeyError as error:
        print(f"{error.args[0]}: no such part; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for name, texts in made.items():
        if name in FOLDERS:
            shutil.rmtree(root / FOLDERS[name], ignore_errors=True)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
