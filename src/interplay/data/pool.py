"""Problem sets as those see them who sample and judge completions (rl, evaluate): rows joined in the order of the sets. An id is
the number of a row."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from interplay.core.model import UserError
from interplay.core.random import stream_key
from interplay.data import sets
from interplay.data.tokenizer import encode_all
from interplay.tasks.environments.transcript import MARK
from interplay.tasks.family import judge_family
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, Verdict, last_unit


class Pool(NamedTuple):
    """`rows` of all sets, and the `sizes` of each."""

    rows: list[Row]
    sizes: list[int]


def load_pool(folders: Sequence[Path]) -> Pool:
    """Read problem sets. Raises UserError when one is damaged."""
    each = [sets.rows(folder, number) for number, folder in enumerate(folders)]
    return Pool([row for rows in each for row in rows], [len(rows) for rows in each])


def encode_texts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt. Raises UserError when the tokenizer lacks a character."""
    ids, lengths = encode_all(tokenizer, list(prompts))
    flat, ends = ids.tolist(), lengths.cumsum().tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def encode_turns(tokenizer: Tokenizer, texts: Sequence[str], eos: int) -> list[list[int]]:
    """Token ids of texts that may hold turns, as an episode has them: a prompt, what the policy wrote, what it read, and so on,
    with MARK between them; an end token stands behind what it wrote. Raises UserError when the tokenizer lacks a character."""
    if not any(MARK in text for text in texts):
        return encode_texts(tokenizer, texts)
    pieces = [text.split(MARK) for text in texts]
    tokens = iter(encode_texts(tokenizer, [piece for of_text in pieces for piece in of_text]))
    return [[i for n in range(len(of_text)) for i in next(tokens) + [eos] * (n % 2)] for of_text in pieces]


def check_prompts(pool: Pool, tokenizer: Tokenizer, most: int | None) -> None:
    """Raises UserError when a prompt has more tokens than `most`, the limit that a stage sets; null: none."""
    if most is None:
        return
    longest = max(len(ids) for ids in encode_texts(tokenizer, [row.prompt for row in pool.rows]))
    if longest > most:
        raise UserError(
            f"rl: max_prompt_length = {most}: the longest prompt has {longest} tokens; raise it, or leave such rows out with a "
            "step `length`"
        )


def noise_key(row: Row) -> int:
    """What sampling noise is keyed by: the prompt's text, so that a problem samples alike in whatever set it occurs."""
    return stream_key("prompt", row.prompt)


def problem_of(row: Row) -> Any:
    """The gold of a row, as its family reads it; kept, since every turn of an episode asks for it."""
    return _problem(row.family, row.graph)


@lru_cache(maxsize=1024)
def _problem(family: str, graph: str) -> Any:
    return judge_family(family).loads(graph)


def judge_completions(options: Verify, row: Row, text: str) -> Verdict:
    """One text, of several units the last one, against the gold of a row."""
    return judge_family(row.family).verify(problem_of(row), last_unit(text, options.separator), options)


def verify(pool: Pool, ids: Sequence[int], completions: Sequence[str], options: Verify) -> list[Verdict]:
    """Judge each completion against the gold of its id."""
    return [judge_completions(options, pool.rows[i], completion) for i, completion in zip(ids, completions, strict=True)]
