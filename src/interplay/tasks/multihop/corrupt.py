"""Questions over documents whose prompts say something wrong or needless. The item stays the truth: what it holds is judged.

`draw` gives uniform integers in [0, 2**32)."""

import re
from collections.abc import Callable, Sequence

from interplay.tasks.multihop.problem import Item
from interplay.tasks.verdict import BOX, closing_brace

Draw = Callable[[], int]


def wrong_answer(solution: str, answers: Sequence[str], others: Sequence[str], draw: Draw) -> str | None:
    r"""The solution with one of the `others` in its last `\boxed{}`. None where it has no box, or no other answer fits."""
    head, box, rest = solution.rpartition(BOX)
    wrong = _unlike(answers, others)
    if not box or not wrong:
        return None
    end = closing_brace(rest, 0)
    return f"{head}{box}{wrong[draw() % len(wrong)]}{rest[end:] if end >= 0 else '}'}"


def conflict(item: Item, prompt: str, others: Sequence[str], true_first: bool, draw: Draw) -> str | None:
    """The prompt with a second version of a sentence that the answer needs, with another answer in it; `true_first`: right
    behind the true one, else right before it. None where no such sentence stands there just once, or where the question itself
    names the answer, as in a comparison."""
    answer = next((answer for answer in item.answers if _named(answer, item.question)), None)
    wrong = _unlike(item.answers, others)
    facts = [sentence for sentence in _facts(item) if prompt.count(sentence) == 1]
    held = [(sentence, answer) for sentence in facts for answer in item.answers if _named(answer, sentence)]
    if answer or not wrong or not held:
        return None
    sentence, answer = held[-1]
    false = re.sub(_word(answer), lambda _: wrong[draw() % len(wrong)], sentence, count=1, flags=re.IGNORECASE)
    return prompt.replace(sentence, f"{sentence} {false}" if true_first else f"{false} {sentence}")


def irrelevant(item: Item, prompt: str, sentences: Sequence[str], draw: Draw) -> str | None:
    """The prompt with one of the `sentences`, which must not name an answer, behind a sentence of the item's documents. None
    where there is no such sentence or place."""
    new = [one for one in sentences if one not in prompt and not any(_named(answer, one) for answer in item.answers)]
    own = [one.strip() for paragraph in item.paragraphs for one in paragraph.sentences]
    places = [one for one in own if one.endswith(".") and prompt.count(one) == 1]
    if not new or not places:
        return None
    place = places[draw() % len(places)]
    return prompt.replace(place, f"{place} {new[draw() % len(new)]}")


def _facts(item: Item) -> list[str]:
    return [item.paragraphs[paragraph].sentences[sentence].strip() for paragraph, sentence in item.supporting]


def _unlike(answers: Sequence[str], others: Sequence[str]) -> list[str]:
    """The others that neither hold nor are held by an answer, and are numbers where the answer is one."""
    known = [answer.casefold() for answer in answers]
    apart = [other for other in others if not any(one in other.casefold() or other.casefold() in one for one in known)]
    return [other for other in apart if other[:1].isdigit() == answers[0][:1].isdigit()]


def _named(answer: str, text: str) -> bool:
    return bool(answer) and re.search(_word(answer), text, re.IGNORECASE) is not None


def _word(answer: str) -> str:
    return rf"(?<!\w){re.escape(answer)}(?!\w)"
