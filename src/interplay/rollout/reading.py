"""Episodes in which a long prompt is read in chunks, with a note that is rewritten after each (MemAgent, arXiv:2507.02259)."""

import re
from collections.abc import Sequence

from interplay.core.model import UserError
from interplay.rollout.request import Request
from interplay.rollout.spec import ReadingEpisode
from interplay.rollout.turns import Played, Setting, Thread, go_on, left, parted_rows
from interplay.tasks.verdict import Row


def reading(spec: ReadingEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """A turn for each chunk of the prompt, whose text is the next note, and one that answers and is judged."""
    threads = [Thread(number, one.first + i, []) for number, one in enumerate(asked) for i in range(one.count)]
    each = [_chunks(spec, setting, row) for row in setting.rows]
    for turn in range(max((len(chunks) for _, chunks in each), default=0) + 1):
        live = [one for one in threads if turn <= len(each[one.request][1])]
        for one in live:
            question, chunks = each[one.request]
            template, chunk = (spec.read, chunks[turn]) if turn < len(chunks) else (spec.answered, [])
            # What a model wrote spells no special token.
            note = setting.encode([one.said[-1]], special=False)[0] if one.said else setting.encode([spec.note])[0]
            said = {"{question}": setting.encode([question])[0], "{note}": note, "{chunk}": chunk}
            pieces = [piece for piece in re.split(r"(\{(?:question|note|chunk)\})", template) if piece]
            tokens = [token for piece in pieces for token in (said[piece] if piece in said else setting.encode([piece])[0])]
            one.replace_history(tokens, setting.decode([tokens])[0])
        go_on(setting, asked, live, turn)
        for one in live:
            answers = turn == len(each[one.request][1])
            judged = (one.said[-1], setting.verify(setting.rows[one.request], one.said[-1])) if answers else ("", None)
            one.verdicts.append(judged)
            one.notes |= set() if answers else {turn}
    rows = [line for one in threads for line in parted_rows(one, spec.trained)]
    return left(rows, setting.sampling.pad, True)


def _chunks(spec: ReadingEpisode, setting: Setting, row: Row) -> tuple[str, list[list[int]]]:
    """The question of a prompt, and the tokens of each chunk of what is before it."""
    text, mark, question = row.prompt.rpartition(spec.divide)
    if not mark:
        raise UserError(f"episode.divide = {spec.divide!r}: the prompt of row {row.index} does not hold it")
    (tokens,) = setting.encode([text])
    chunks = [tokens[start : start + spec.chunk] for start in range(0, len(tokens), spec.chunk)]
    if len(chunks) >= spec.max_turns:
        must = f"row {row.index} has {len(chunks)} chunks; write {len(chunks) + 1}, or a larger chunk"
        raise UserError(f"episode.max_turns = {spec.max_turns}: {must}")
    return mark + question, chunks
