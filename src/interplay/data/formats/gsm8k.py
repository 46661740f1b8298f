"""GSM8K (arXiv:2110.14168): `question, answer`, the answer a worked solution with `<<48/2=24>>` marks, whose last line is
`#### 24`."""

import re
from typing import Any

from interplay.data.formats.entry import Entry, ItemError, name, text
from interplay.tasks import qa
from interplay.tasks.qa.number import values

_NOTE = re.compile(r"<<[^<>]*>>")
_FINAL = "####"


def parse(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is the number of lines of its solution."""
    question, worked = text(raw, "question"), text(raw, "answer", words=False)
    before, mark, after = worked.rpartition(_FINAL)
    gold = after.strip().replace(",", "")
    if not mark or not gold:
        raise ItemError("missing_field", f"answer has no final line '{_FINAL} <number>'", name(raw))
    if not values(gold):
        raise ItemError("broken", f"final answer {gold[:40]!r} is not a number", name(raw))
    steps = tuple(line for line in (_NOTE.sub("", line).strip() for line in before.split("\n")) if line)
    problem = qa.Problem(question.strip(), (gold,), steps, name(raw) or where)
    return Entry(name(raw) or question, problem, max(1, len(steps)))
