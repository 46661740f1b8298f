"""Data sets from files in published formats."""

import re
from typing import ClassVar, Literal

from pydantic import field_validator

from interplay.schema.base import Count, Model, Natural

Format = Literal["hotpotqa", "musique", "2wikimultihopqa", "gsm8k", "jsonl"]
Split = Literal["train", "rl", "validation", "test"]
Answer = Literal["refuse", "skip"]


class Defects(Model):
    """What to do about items that are not as they should be: refuse the file with one line, or skip and count them."""

    broken: Answer = "refuse"
    """A line or item that is not JSON, or not of the format."""
    missing_field: Answer = "refuse"
    """An item without a question, an answer or a context."""
    unanswerable: Answer = "skip"
    """An item whose answer is declared not to follow from its context, or whose supporting facts are not in it."""
    duplicate_id: Answer = "refuse"
    """An id that an earlier item has."""


class DatasetSpec(Model):
    """The items of one file in a published format, as problems. In a study: `file`, which the planner turns into its checksum
    (the place goes to the run block)."""

    VERSION: ClassVar[int] = 2
    format: Format
    """hotpotqa, 2wikimultihopqa: a JSON list; musique, gsm8k, jsonl: one object a line. jsonl needs `question` and `answer`."""
    sha256: str
    """Checksum of the file: identity is content, not place."""
    band: str = "all"
    """Band that its rows belong to."""
    split: Split | None = None
    """Part of the items that is taken, by a hash of their question; null: all."""
    size: Count | None = None
    """Items that are taken, in an order drawn from the seed; null: all of the split."""
    defects: Defects = Defects()
    seed: Natural = 0
    """Order of the items."""

    @field_validator("sha256")
    @classmethod
    def _checksum(cls, value: str) -> str:
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError("must be 64 hexadecimal digits, as `sha256sum FILE` prints them")
        return value
