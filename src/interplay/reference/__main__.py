"""`python -m interplay.reference docs/reference.md` writes the page; without a file it prints it. `make docs` calls it."""

import sys
from pathlib import Path

from interplay.reference.render import page


def main(argv: list[str]) -> int:
    """Write the page to the file named, or print it."""
    if argv:
        Path(argv[0]).write_text(page(), encoding="utf-8")
    else:
        print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
