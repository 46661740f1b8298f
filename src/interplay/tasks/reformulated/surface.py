r"""How a question in another format reads.

Of op_dag, in the characters that it has anyway: what is given beside the question stands in brackets before the `|` that ends
the prompt, and its solution is that of the open question. Of `..?c|` with the answer 12:

    four_choice   ..?c(a)3(b)12(c)11(d)13|   ..#12     `#b` and `#(b)12` are right, too
    cloze         ..?c(1_)|                  ..#12
    true_false    ..?c(=13)|                 ..#-      `+` for a statement that holds, `-` for one that does not

Other families read as text, before the last line where that ends in a colon (what follows it is the model's to write)."""

from dataclasses import replace

from interplay.tasks.op_dag.render import ANSWER, CLOSE, EQUALS, OPEN, SECTION
from interplay.tasks.reformulated.form import CHOICES, CLOZE, HIDDEN, KEYS, TRUE_FALSE, Form
from interplay.tasks.row import Row

TERSE = "op_dag"
SAYS = {"op_dag": ("+", "-")}
"""Family -> what stands for true and false; other families have the words."""
WORDS = ("true", "false")


def says(family: str) -> tuple[str, str]:
    """What an answer to a statement must be, where it holds and where it does not."""
    return SAYS.get(family, WORDS)


def render(row: Row, form: Form) -> tuple[str, str, str]:
    """Prompt, solution and answer of a row in this form; the stored answer stays the gold value, but for true_false."""
    prompt = _terse(row.prompt, form) if form.family == TERSE else _text(row.prompt, form)
    if form.format != TRUE_FALSE:
        return prompt, row.solution, row.answer
    said = says(form.family)[form.statement != form.gold]
    return prompt, _replaced_last(row.solution, form.gold, said), said


def opened(row: Row, form: Form) -> Row:
    """The row of the open question that `form` was made of, as far as its question goes: family, gold, and the prompt without
    what the form added."""
    lines = _lines(form)
    added = _given(form) if form.family == TERSE else "\n".join(lines) + "\n" if lines else ""
    head, _, rest = row.prompt.rpartition(added) if added else ("", "", row.prompt)
    return replace(row, family=form.family, graph=form.graph, answer=form.gold, prompt=head + rest)


def _terse(prompt: str, form: Form) -> str:
    return prompt.removesuffix(SECTION) + _given(form) + SECTION


def _given(form: Form) -> str:
    if form.format in CHOICES:
        return "".join(f"{OPEN}{key}{CLOSE}{option}" for key, option in zip(KEYS, form.options, strict=False))
    if form.format == CLOZE:
        return f"{OPEN}{form.mask}{CLOSE}"
    return f"{OPEN}{EQUALS}{form.statement}{CLOSE}" if form.format == TRUE_FALSE else ""


def _text(prompt: str, form: Form) -> str:
    """The prompt with what the form adds, each part on a line of its own."""
    if not (lines := _lines(form)):
        return prompt
    head, newline, last = prompt.rpartition("\n")
    if last.endswith(":"):
        return "\n".join([*([head] if newline else []), *lines, last])
    return prompt + ("" if prompt.endswith("\n") else "\n") + "\n".join(lines) + "\n"


def _lines(form: Form) -> list[str]:
    if form.format in CHOICES:
        options = [f"({key}) {option}" for key, option in zip(KEYS, form.options, strict=False)]
        return ["Options:", *options, "Answer with one of them."]
    if form.format == CLOZE:
        return [f"The answer looks like this, with {HIDDEN} for each hidden character: {form.mask}"]
    if form.format == TRUE_FALSE:
        return [f"Proposed answer: {form.statement}", "Is it right? Answer true or false."]
    return []


def _replaced_last(text: str, old: str, new: str) -> str:
    """The text with `new` for the last `old`, which is where a solution answers."""
    before, found, after = text.rpartition(old)
    return before + new + after if found else f"{text}{ANSWER}{new}"
