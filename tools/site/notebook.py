"""A notebook as a page: its texts, its code, and the outputs that were committed with it."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """The page's Markdown. Pictures are part of the page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(block for cell in cells for block in _blocks(cell)) + "\n"


def _blocks(cell: Mapping[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"~~~~python\n{text}\n~~~~"
    for output in cell.get("outputs", ()):
        yield _output(output)


def _output(output: Mapping[str, Any]) -> str:
    """The richest form that a page can show."""
    data = output.get("data", {})
    if "image/png" in data:
        kept = base64.b64encode(base64.b64decode(data["image/png"])).decode()
        return f'<img alt="output of the cell above" src="data:image/png;base64,{kept}">'
    if "text/html" in data:
        return f'<div class="output">{"".join("".join(data["text/html"]).splitlines())}</div>'
    return f"~~~~text\n{''.join(output.get('text') or data.get('text/plain', ''))}\n~~~~"
