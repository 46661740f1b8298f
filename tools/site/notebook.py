"""A notebook as a page: its texts, its code, and the outputs that were committed with it. `python -m tools.site.notebook FILE...`
runs notebooks, of a study whose results are here, and writes their outputs into them, pictures in few colours."""

import base64
import io
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COLOURS = 24
"""Of a kept picture: lines and text need no more, and it takes a quarter of the room."""


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


def main(names: list[str]) -> int:
    """Run each notebook and keep its outputs."""
    import nbformat
    from nbclient import NotebookClient

    for name in names:
        notebook = nbformat.read(name, as_version=4)
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": Path(name).parent}}
        ).execute()
        for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
            cell.metadata = {}
            for output in (output for output in cell.outputs if "image/png" in output.get("data", {})):
                output.data = {"image/png": smaller(output.data["image/png"])}
        nbformat.write(notebook, name)
    return 0


def smaller(encoded: str) -> str:
    """A PNG in base64 with fewer colours."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB").quantize(COLOURS).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
