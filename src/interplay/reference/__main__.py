"""`python -m interplay.reference docs/reference.md` writes the reference, a file named papers.md the page of papers, one named
methods.md the table of RL methods; without a file it prints the reference. `make docs` calls it for all."""

import sys
from pathlib import Path

from interplay.reference import methods, papers
from interplay.reference.render import page

PAGES = {"papers.md": papers.page, "methods.md": methods.page}


def main(argv: list[str]) -> int:
    """Write the pages to the files named, or print the reference."""
    for path in map(Path, argv):
        text = PAGES[path.name](Path.cwd()) if path.name in PAGES else page()
        path.write_text(text, encoding="utf-8")
    if not argv:
        print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
