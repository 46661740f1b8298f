"""`interplay open` as a process of its own, over a folder."""

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from browser import FLAGS, browser

TIMED = ("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000")
"""Flags for pages that are files."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Served:
    """A running page."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, method: str = "GET", headers: dict[str, str] | None = None, **query: object) -> Answer:
        asked = f"{self.url}{path.lstrip('/')}{f'?{urllib.parse.urlencode(query)}' if query else ''}"
        request = urllib.request.Request(asked, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read().decode())


class Tab:
    """A page in a real browser, in real time: Chromium, controlled through its debugging pipe."""

    def __init__(self, url: str, profile: Path, width: int = 1400) -> None:
        commands, self.write_end = os.pipe()
        self.read_end, messages = os.pipe()
        flags = [flag for flag in FLAGS if flag not in ("--dump-dom", *TIMED)]
        command = [browser(), *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        shell = ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{messages}', "bash", *command]
        self.process = subprocess.Popen(
            shell, pass_fds=(commands, messages), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(messages)
        self.buffer, self.count, self.session, self.errors = b"", 0, "", list[str]()
        self.navigations = 0
        made = self.send("Target.createTarget", url="about:blank")
        self.session = self.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)["sessionId"]
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.send("Runtime.enable")
        self.send("Log.enable")
        self.send("Page.enable")
        self.go(url)

    def go(self, url: str) -> None:
        """Open a page; returns when it has replaced the last one, so that what is evaluated next is evaluated in it."""
        answer = self.send("Page.navigate", url=url)
        assert "errorText" not in answer, answer

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        request = {"id": self.count, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while (answer := self._next_message()).get("id") != self.count:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _next_message(self) -> dict[str, Any]:
        """An answer or an event; errors of the page and navigations are kept."""
        while b"\0" not in self.buffer:
            self.buffer += os.read(self.read_end, 1 << 20)
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = dict(json.loads(text))
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(json.dumps(message["params"]))
        self.navigations += message.get("method") == "Page.frameNavigated"
        return message

    def follow(self, selector: str) -> None:
        """Click a link; returns when its page has replaced this one."""
        before = self.navigations
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        while self.navigations == before:
            self._next_message()

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def shows(self, words: str) -> bool:
        return words in str(self.js("document.body?.innerText ?? ''"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.write_end)
        os.close(self.read_end)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Start it on a free port and end it as Ctrl-C does."""
    command = [sys.executable, "-m", "interplay", "open"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    assert process.stderr
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line + process.stderr.read()
        yield Served(found[0])
    finally:
        process.terminate()
        process.wait(30)
