"""Any questions and answers, one JSON object a line: `question` and `answer` (text or a number); if there, `id`, `aliases`
(further answers) and `solution` (worked text, one step a line)."""

from typing import Any

from interplay.data.formats.entry import Entry, ItemError, encodable, name, nothing_left, text
from interplay.tasks import qa
from interplay.tasks.qa.equal import equal


def parse(raw: dict[str, Any], where: str) -> Entry:
    """An item; its op is the number of lines of its solution, 1 where it has none."""
    question, answer = text(raw, "question"), text(raw, "answer", words=False)
    aliases, solution = raw.get("aliases") or [], raw.get("solution") or ""
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ItemError("broken", "aliases should be a list of texts", name(raw))
    if not isinstance(solution, str):
        raise ItemError("broken", "solution should be text", name(raw))
    if not equal(answer, [answer]):  # as of the word `the`; the letter `A` and the sign `+` are answers
        raise nothing_left("answer", answer, name(raw))
    answers = [answer, *(encodable(alias, name(raw)) for alias in aliases if alias.strip())]
    steps = tuple(line.strip() for line in encodable(solution, name(raw)).split("\n") if line.strip())
    problem = qa.Problem(question.strip(), tuple(dict.fromkeys(a.strip() for a in answers)), steps, name(raw) or where)
    return Entry(name(raw) or question, problem, max(1, len(steps)))
