"""Text that others wrote, such as a completion or a line of a data file, shown on a terminal without being obeyed by it."""

import logging
import re
import sys

_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 control characters but for the tab and the end of a line, marks that turn the direction of writing, rarer ends of
lines, and halves of surrogate pairs, which no stream can encode."""


def visible(text: str) -> str:
    """The text with what a terminal would obey written out: a character ESC becomes the four characters \\x1b."""
    return _ORDERS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def say(text: str, end: str = "\n") -> None:
    """Print a result that was asked for, visibly."""
    print(visible(text), end=end)


class StderrHandler(logging.Handler):
    """Messages as plain lines on what is standard error at the moment: a stage's log takes its place while the stage runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, visibly."""
        print(visible(self.format(record)), file=sys.stderr, flush=True)


def log_to_stderr() -> None:
    """Called by each entry point, once or more: what the modules of `interplay` log reaches standard error."""
    logger = logging.getLogger("interplay")
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        logger.addHandler(StderrHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False
