"""`python -m tools.reference FILE...` writes the generated files, `docs/reference.md`, `docs/papers.md`,
`docs/methods.md`, `dvc.yaml` and, for the folder `configs/schema`, all schemas, each known by its name; without a file it prints
the reference. `make docs` calls it for all."""

import sys
from pathlib import Path

from interplay.core.model import UserError
from tools.reference import editors, methods, papers, pipeline
from tools.reference.render import page


def main(argv: list[str]) -> int:
    """Write the files named, or print the reference."""
    root = Path.cwd()
    made = {
        "papers.md": lambda: papers.page(root),
        "methods.md": lambda: methods.page(root),
        "dvc.yaml": lambda: pipeline.text(root),
    }
    try:
        texts: dict[Path, str] = {}
        for path in map(Path, argv):
            if path.name == editors.FOLDER:
                texts |= editors.files(path.parent)
            else:
                texts[path] = made.get(path.name, page)()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not argv:
        print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
