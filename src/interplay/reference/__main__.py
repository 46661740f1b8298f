"""`python -m interplay.reference FILE...` writes the generated files, `docs/reference.md`, `docs/papers.md`,
`docs/methods.md`, `dvc.yaml` and, for the folder `configs/schema`, all schemas, each known by its name; without a file it prints
the reference. `make docs` calls it for all."""

import sys
from pathlib import Path

from interplay.reference import editors, methods, papers, pipeline
from interplay.reference.render import page


def main(argv: list[str]) -> int:
    """Write the files named, or print the reference."""
    root = Path.cwd()
    made = {
        "papers.md": lambda: papers.page(root),
        "methods.md": lambda: methods.page(root),
        "dvc.yaml": lambda: pipeline.text(root),
    }
    for path in map(Path, argv):
        if path.name == editors.FOLDER:
            path.mkdir(exist_ok=True)
            for file, text in editors.files(path.parent).items():
                file.write_text(text, encoding="utf-8")
            continue
        path.write_text(made.get(path.name, page)(), encoding="utf-8")
    if not argv:
        print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
