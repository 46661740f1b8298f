"""`python -m tools.site` assembles pages in site/pages and builds site/html, with no network (`make site` calls it). Links and
anchors that lead nowhere, and addresses of other hosts that a page would fetch, end it with exit code 1."""

import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path

from interplay.core.model import UserError
from tools.site import sources

SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme would fetch for the search of pages that are opened as files; worker.js does it here."""
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video)[^>]*\ssrc=[\"']?(https?://[^\"'\s>]+)"
    r"|<link[^>]*rel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*href=[\"']?(https?://[^\"'\s>]+)"
)
"""An address of another host that a page loads by itself."""


def main() -> int:
    """Assemble, build, check."""
    root = Path.cwd()
    folder = root / "site"
    try:
        made = sources.assemble(root)
        sources.write(folder, made, sources.configuration(root, made))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if wrong := build(folder):
        print(wrong, file=sys.stderr)
        return 1
    print(f"{folder / 'html' / 'index.html'}: {sum(name.endswith('.md') for name in made)} pages")
    return 0


def build(folder: Path) -> str:
    """Build `html` of the `pages` in the folder; what is wrong with links, anchors and fetched addresses, or nothing."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})
    if built.returncode:
        return built.stdout + built.stderr.partition("Traceback")[0]
    return "\n".join(_finish(folder / "html"))


def _finish(html: Path) -> list[str]:
    """Make the search local in each page; a line for each address that a page would fetch from elsewhere."""
    found = []
    for path in sorted(html.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        if SHIM in text:
            here = posixpath.relpath("worker.js", path.relative_to(html).parent.as_posix())
            text = text.replace(SHIM, here)
            path.write_text(text, encoding="utf-8")
        found += [f"{path}: fetches {next(filter(None, match))}" for match in FETCHED.findall(text)]
    return found


if __name__ == "__main__":
    sys.exit(main())
