"""A page in a real browser: Chromium without a window and without a network, and a script that uses the page and returns its result."""

import base64
import gzip
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000", "--dump-dom"]


WATCH = '<script>window.errors = []; addEventListener("error", (event) => errors.push(event.message));</script>'
USE = """<script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
(async () => {
  let outcome;
  try { await wait(100); outcome = {value: await (async () => {SCRIPT})()}; } catch (error) { outcome = {error: String(error.stack)}; }
  outcome.errors = window.errors;
  outcome.requests = performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !/^(data|blob):/.test(name));
  parent.postMessage(JSON.stringify(outcome), "*");
})();
</script>"""
FRAME = """<!doctype html><iframe src="{address}" style="width:{width}px;height:900px;border:0"></iframe><pre id="outcome"></pre>
<script>addEventListener("message", (event) => (document.getElementById("outcome").textContent = event.data))</script>"""
"""A window has no less than 500 pixels, a frame in it has."""


def browser() -> str:
    """Its path; skips the test where there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium, or CHROMIUM=path)")
    return str(found)


def use(page: Path, script: str, width: int = 1400, dark: bool = False) -> Any:
    """What the body of an async function `script` returns in the page, as JSON; `wait(ms)` is there. Errors of the page's own scripts
    and requests beyond the file are failures."""
    chrome = browser()
    used, frame = page.with_name(f"{page.stem}.used.html"), page.with_name(f"{page.stem}.frame.html")
    text = page.read_text().replace("<head>", f"<head>{WATCH}", 1)
    used.write_text(text.replace("</body>", USE.replace("SCRIPT", script) + "</body>"))
    frame.write_text(FRAME.format(width=width, address=used.as_uri()))
    seen = ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [chrome, *FLAGS, *seen, f"--user-data-dir={page.with_name('profile')}", "--window-size=1500,1000", frame.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    outcome = json.loads(html.unescape(re.search(r'<pre id="outcome">(.*?)</pre>', dom, re.DOTALL)[1]))
    assert not outcome.get("error"), outcome["error"]
    assert (outcome["errors"], outcome["requests"]) == ([], [])
    return outcome["value"]


def read_provenance(page: str) -> dict[str, Any]:
    """What a click on a cell of a page shows, as the page holds it."""
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="provenance">(.*?)</script>', page)[1])))
