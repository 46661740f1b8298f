"""Problem sets as those see them who sample and judge completions (rl, evaluate): rows joined in the order of the sets, each
with its family's verifier at hand. An id is the number of a row."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from interplay.data import problems
from interplay.data.tokenizer import encode_all
from interplay.schema.data import ProblemsSpec
from interplay.schema.rl import Verify
from interplay.store.artifact import read_json
from interplay.store.random import key
from interplay.tasks.op_dag import Verdict
from interplay.tasks.table import family


@dataclass(frozen=True, slots=True)
class Row:
    """One problem. `set`: number of its problem set; the rest as in problems.parquet."""

    set: int
    index: int
    band: str
    op: int
    mode: str
    prompt: str
    solution: str
    answer: str
    graph: str


class Pool(NamedTuple):
    """`rows` of all sets, `sizes` of each set, and each set's task `families`."""

    rows: list[Row]
    sizes: list[int]
    families: list[ModuleType]


def load(folders: Sequence[Path]) -> Pool:
    """Read problem artifacts. Raises UserError when one is damaged."""
    rows: list[Row] = []
    sizes, families = [], []
    columns = [field.name for field in fields(Row)][1:]
    for number, folder in enumerate(folders):
        table = problems.load(folder, columns)
        values = [table[name].to_pylist() for name in columns]
        rows += [Row(number, *row) for row in zip(*values, strict=True)]
        sizes.append(table.num_rows)
        spec = ProblemsSpec.model_validate(read_json(folder / "stage.json")["spec"])
        families.append(family(spec.task))
    return Pool(rows, sizes, families)


def encode(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt. Raises UserError when the tokenizer lacks a character."""
    ids, lengths = encode_all(tokenizer, list(prompts))
    flat, ends = ids.tolist(), lengths.cumsum().tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def noise_key(row: Row) -> int:
    """What sampling noise is keyed by: the prompt's text, so that a problem samples alike in whatever set it occurs."""
    return key("prompt", row.prompt)


def verify(pool: Pool, ids: Sequence[int], completions: Sequence[str], options: Verify) -> list[Verdict]:
    """Judge each completion against the gold graph of its id."""
    problems_of: dict[int, Any] = {}
    verdicts = []
    for i, completion in zip(ids, completions, strict=True):
        module = pool.families[pool.rows[i].set]
        if i not in problems_of:
            problems_of[i] = module.loads(pool.rows[i].graph)
        verdicts.append(module.verify(problems_of[i], completion, options))
    return verdicts
