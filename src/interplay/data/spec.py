"""Specs of generated problem sets, data sets from files, tokenizers and packed corpora."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import field_validator, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Model, Natural, Since
from interplay.core.references import Mix, check_mix
from interplay.tasks.spec import Task

SPLITS = {"test": range(0, 5), "validation": range(5, 10), "rl": range(10, 30), "train": range(30, 100)}
"""A problem belongs to the split whose range holds its structural key modulo 100. Structure ignores the names of letters and
the order of definitions, so splits are disjoint in every study, without reference to other sets."""


def split_of(key: str) -> str:
    """The split that problems with a structural key belong to."""
    return next(name for name, own in SPLITS.items() if int(key, 16) % 100 in own)


class ProblemsSpec(Model):
    """A set of generated problems: those of the stream (task, seed, 0), (task, seed, 1), ... whose structure is in the split."""

    VERSION = 3
    task: Task
    """The family and its knobs."""
    bands: dict[str, dict[int, float]]
    """Per band the share of each op; each band's shares sum to 1."""
    shares: dict[str, float]
    """Share of each band in the set; sums to 1."""
    size: Count
    """Number of problems."""
    split: Literal["train", "rl", "validation", "test"]
    """Part of the space of structures to draw from."""
    seed: Natural = 0
    """Key of the generator."""
    transform: Annotated[Extension | None, written_as(Extension)] = None
    """A function of the study's own, `function(rows, **options) -> rows`, over the finished rows (dicts of the columns)."""
    unique: bool = True
    """Drop structural duplicates (equal up to renaming of letters and reordering of definitions) within the set."""

    @field_validator("bands")
    @classmethod
    def _bands(cls, value: dict) -> dict:
        for band, ops in value.items():
            check_mix(ops, f"the op shares of band '{band}'")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "ProblemsSpec":
        check_mix(self.shares, "shares")
        if set(self.shares) != set(self.bands):
            raise ValueError(f"shares name {sorted(self.shares)} but bands name {sorted(self.bands)}")
        low, high = self.task.ops()
        outside = [op for ops in self.bands.values() for op in ops if not low <= op <= high]
        if outside:
            raise ValueError(f"op {outside[0]} lies outside the task's range {low}..{high}")
        if self.size < 1:
            raise ValueError(f"size must be at least 1, not {self.size}")
        return self


class TokenizerSpec(Model):
    """A tokenizer in Hugging Face's format, trained or tabulated for a task."""

    task: Task
    """Whose alphabet or vocabulary it must cover."""
    others: Annotated[list[Task], Since([])] = []
    """Further tasks that it must cover."""
    algorithm: Literal["characters", "words", "bpe"] = "characters"
    """characters: one token per character of the tasks' alphabets; words: one per piece of their closed vocabularies (a name, or
    the text between names, blanks included) and one per printable ASCII character, greedily the longest; bpe: byte-level,
    trained on the `data.<i>` roles."""
    vocab_size: Count = 2200
    """Size of the BPE vocabulary (arXiv:2512.07783 uses 2,200)."""
    digits: Annotated[Count | None, Since(None)] = None
    """bpe: no token has more digits than this, nor digits with other characters (arXiv:2512.07783: 3); null: numbers are merged
    like words."""
    reserve: Annotated[bool, Since(False)] = False
    """bpe: fill the vocabulary up to vocab_size with reserved tokens where the texts have fewer merges, so that a model has the
    size that the plan assumes."""

    @model_validator(mode="after")
    def _of_bpe(self) -> "TokenizerSpec":
        if self.algorithm != "bpe" and (self.digits is not None or self.reserve):
            raise ValueError(f"digits and reserve go with algorithm: bpe, not {self.algorithm}")
        return self


class CorpusSpec(Model):
    """Problem sets mixed, tokenised and packed into rows of equal length."""

    mix: Mix
    """Share of each `data.<i>` role, in order; sums to 1."""
    by: Literal["tokens", "problems"] = "tokens"
    """Whether shares count tokens (as published for pre-training) or problems (as published for RL)."""
    sequence_length: Count = 256
    """Tokens per row."""
    packing: Literal["isolated", "causal"] = "isolated"
    """isolated: problems in a row do not attend to each other, and each starts at position 0; causal: plain causal attention
    across problems (as published)."""
    loss_on: Literal["solution", "all"] = "solution"
    """Which tokens bear loss."""
    seed: Natural = 0
    """Order of the problems."""


# Data sets from files in published formats.


Format = Literal["hotpotqa", "musique", "2wikimultihopqa", "gsm8k", "jsonl"]
Split = Literal["train", "rl", "validation", "test"]
Answer = Literal["refuse", "skip"]


class Defects(Model):
    """Handling of defective items: refuse the file with a one-line error, or skip and count them."""

    broken: Answer = "refuse"
    """A line or item that is not JSON, or not of the format."""
    missing_field: Answer = "refuse"
    """An item without a question, an answer or a context."""
    unanswerable: Answer = "skip"
    """An item whose answer is declared unanswerable from its context, or whose supporting facts are not in it."""
    duplicate_id: Answer = "refuse"
    """An id that an earlier item has."""


class DatasetSpec(Model):
    """The items of one file in a published format, as problems. In a study: `file`, which the planner replaces by its checksum
    (the path goes to the run block)."""

    VERSION: ClassVar[int] = 2
    format: Format
    """hotpotqa, 2wikimultihopqa: a JSON list; musique, gsm8k, jsonl: one object a line. jsonl needs `question` and `answer`."""
    sha256: str
    """Checksum of the file: identity is content, not path."""
    band: str = "all"
    """Band of its rows."""
    split: Split | None = None
    """Part of the items, by a hash of their question; null: all."""
    size: Count | None = None
    """Number of items, in an order drawn from the seed; null: all of the split."""
    defects: Defects = Defects()
    seed: Natural = 0
    """Order of the items."""

    @field_validator("sha256")
    @classmethod
    def _checksum(cls, value: str) -> str:
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError("must be 64 hexadecimal digits, as `sha256sum FILE` prints them")
        return value
