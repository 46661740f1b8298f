"""`python -m tools.reference` writes every generated file: docs/reference/, docs/methods.md and docs/methods/, docs/papers.md,
dvc.yaml, configs/schema/ and the glossary of pages. With names it writes those alone (`make docs` calls it without)."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from interplay.core.model import UserError
from tools.reference import editors, lists, methods, pages, papers, pipeline

Texts = Mapping[Path, str]
PARTS: dict[str, Callable[[Path], Texts]] = {
    "reference": pages.files,
    "methods": methods.files,
    "glossary": lists.glossary,
    "papers": lambda root: {root / "docs" / "papers.md": papers.page(root)},
    "dvc": lambda root: {root / "dvc.yaml": pipeline.text(root)},
    "schema": lambda root: editors.files(root / "configs"),
}
FOLDERS = {"reference": "docs/reference", "methods": "docs/methods", "schema": "configs/schema"}
"""Part -> the folder that holds its files and no others."""


def main(argv: list[str]) -> int:
    """Write the parts named, or all."""
    root = Path.cwd()
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
