r"""The reward for answers in words (tasks.text), as LoongRL and its peers give it (arXiv:2510.19363): on what stands in the box.

Guarded forms pay nothing for a completion with too many boxes, for an empty answer, and for one with more words beside the gold
than are allowed, since a list of everything holds the answer, too."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards, per_completion
from interplay.schema.reward import TextReward
from interplay.tasks import text
from interplay.tasks.answer import dumped, extract
from interplay.tasks.row import Row
from interplay.tasks.table import item
from interplay.tasks.verdict import Verdict


def text_match(spec: TextReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """Compare each answer with the golds of its row. A row that asks no question over documents, such as arithmetic, earns 1 for
    the right answer, as its family has it. The record keeps exact match and unguarded F1 beside it."""
    sequence, exact, f1 = [], [], []
    for texts, completion, verdict in zip(per_completion(golds, problems), completions, verdicts, strict=True):
        sequence.append(pay(spec, completion, verdict, texts))
        exact.append(float(text.exact_match(verdict.said, texts) if texts else verdict.answer))
        f1.append(text.f1(verdict.said, texts) if texts else float(verdict.answer))
    return Rewards(sequence, {"exact": exact, "f1": f1})


def golds(row: Row) -> tuple[str, ...]:
    """Acceptable answers in words: those of the question over documents, where the row asks for its answer; else none."""
    asked = item(row)
    if asked is None:
        return ()
    return asked.answers if row.answer in asked.answers else (row.answer,)


def pay(spec: TextReward, completion: str, verdict: Verdict, texts: Sequence[str]) -> float:
    """What one answer earns; `texts` are the acceptable ones in words."""
    if dumped(completion) and not spec.form.endswith("_published"):
        return 0.0
    if not texts:
        return float(verdict.answer)
    return compared(spec, completion, verdict.said, texts)


def compared(spec: TextReward, completion: str, said: str, texts: Sequence[str]) -> float:
    """How near what was said is to one of these texts, by the form of the reward."""
    if spec.form == "exact":
        return float(text.exact_match(said, texts))
    if spec.form == "substring":
        return float(text.substring(said, texts, spec.extra_words))
    if spec.form == "substring_published":
        return float(extract(completion) is not None and text.substring_published(said, texts))
    if spec.form == "f1_published":
        return text.f1(said, texts)
    words = len(text.normalise(said).split())
    return text.f1(said, [gold for gold in texts if words <= len(text.normalise(gold).split()) + spec.extra_words])
