"""Spec of rows that a model writes."""

import re
import string
from typing import Annotated, Literal

from pydantic import Field, model_validator

from interplay.core.model import Count, Model, Natural
from interplay.evaluate.spec import SampledSpec

ROW_FIELDS = ("prompt", "solution", "answer", "band", "op")
"""Fields of a source row in templates."""
OF_SAMPLE = ("text", "said")
"""Of a sample: what it wrote, and the answer that the verifier reads in it."""
SAMPLE_FIELDS = (*ROW_FIELDS, *OF_SAMPLE)
"""Of both."""


def template_fields(template: str) -> list[str]:
    """Names in a template: `{prompt}` is a field, `{{` a brace. Raises ValueError where something else is between braces."""
    parts = list(string.Formatter().parse(template))
    odd = [name for _, name, form, conversion in parts if name is not None and (form or conversion or not name.isidentifier())]
    if odd:
        raise ValueError(f"'{odd[0]}' in braces is no plain field")
    return [name for _, name, _, _ in parts if name is not None]


class VerdictFilter(Model):
    """Samples by the verdict on them against the source row's gold."""

    name: Literal["verdict"] = "verdict"
    keep: Literal["strict", "answer", "wrong"] = "strict"
    """strict: process and answer are right; answer: the answer is; wrong: there is an answer, and it is wrong."""


class FieldFilter(Model):
    """Items by what a field says, as of a judge or a label."""

    name: Literal["field"] = "field"
    field: str
    """Field of the parsed sample."""
    equals: Annotated[list[str], Field(min_length=1)]
    """What it may say; blanks around it and case do not count."""


class VotesFilter(Model):
    """Items that agree with the most frequent value of a field among those of their source row that came so far. An item
    without a value has no vote, and a tie for the first place keeps none."""

    name: Literal["votes"] = "votes"
    field: str = "said"
    """Field that is counted; answers that are equal as numbers or words count as one."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Least share of the row's votes that the winner has."""
    label: bool = False
    """Whether the winner must be the source row's answer."""


class LengthFilter(Model):
    """Items by the characters of what they write."""

    name: Literal["length"] = "length"
    low: Natural = 1
    """Least characters."""
    high: Count
    """Most characters."""


class DistinctFilter(Model):
    """Of items that write the same, but for blanks, the first."""

    name: Literal["distinct"] = "distinct"
    among: Literal["row", "all"] = "row"
    """Among the items of one source row, or of all."""


ItemFilter = Annotated[VerdictFilter | FieldFilter | VotesFilter | LengthFilter | DistinctFilter, Field(discriminator="name")]


class GenerateSpec(SampledSpec):
    """Rows that a model writes: of each source row a prompt by a template, samples of it, items that are parsed from the samples,
    and of those that pass all filters rows of a problem set. Roles: `model` and `data.0`, the source rows. A sample that reached
    the length limit is dropped, unless the stop text came before."""

    template: str = "{prompt}"
    """What the model reads, with fields of the source row: {prompt}, {solution}, {answer}, {band} and {op}; {{ and }} for
    braces. Examples of a few shots are part of it. The model's tokenizer must have its characters."""
    num_samples: Count = 4
    """Samples of each source row."""
    stop: str = ""
    """Text before which a sample ends; empty: the end token alone ends it."""
    parse: Literal["whole", "lines", "json", "pattern"] = "whole"
    """Items of a sample. whole: one, its text; lines: one for each line that is not blank; json: one, the last JSON object in it,
    whose texts and numbers are fields, but for those named as a field of the source row, `text` or `said`; pattern: one for each
    match of `pattern`. What does not parse is dropped."""
    pattern: str = ""
    """Regular expression of parse: pattern, whose named groups are fields."""
    filters: list[ItemFilter] = []
    """Filters of the items, in order; the record counts what each drops."""
    writes: Literal["solution", "prompt", "response", "question", "choice", "band"] = "solution"
    """What `text` becomes in the row that is written. solution: the source's solution, as in rejection sampling; prompt: its
    prompt, as of a rewritten question or a hint, with the source's gold; response: a solution whose prompt is what the model
    read, as of a critique: rows to be trained on, which have no gold; question: a question of its own with the answer `answer`,
    judged as those of files are; choice: a wrong option of the source's question as multiple choice, whose row needs `options`
    less one of them; band: the source's band, as of a label."""
    text: str = "{text}"
    """Template of what is written, with the fields of the source row, {text}, {said} (the answer that the verifier reads in the
    sample) and the parsed fields."""
    answer: str = ""
    """Template of the answer of writes: question."""
    options: Literal[4, 10] = 4
    """Options of writes: choice, the right one included; the most frequent wrong ones are taken."""
    per_row: Count | None = None
    """Rows that a source row gives at most, the first ones; null: all."""

    def parsed_fields(self) -> list[str] | None:
        """Fields that parsing adds; None: the sample decides."""
        return None if self.parse == "json" else list(re.compile(self.pattern).groupindex)

    @model_validator(mode="after")
    def _fits(self) -> "GenerateSpec":
        if (self.parse == "pattern") != bool(self.pattern):
            raise ValueError("pattern: goes with parse: pattern, which needs it; write both or neither")
        try:
            own = self.parsed_fields()
        except re.error as error:
            raise ValueError(f"pattern: {self.pattern!r} is no regular expression ({error})") from None
        known = None if own is None else (*SAMPLE_FIELDS, *own)
        for key, template, fields in (
            ("template", self.template, ROW_FIELDS),
            ("text", self.text, known),
            ("answer", self.answer, known),
        ):
            try:
                names = template_fields(template)
            except ValueError as error:  # of string.Formatter, too
                raise ValueError(f"{key}: {error}; write {{{{ and }}}} for braces") from None
            for name in names:
                if fields is not None and name not in fields:
                    raise ValueError(f"{key}: no field '{name}'; known: {', '.join(fields)}")
        for number, one in enumerate(self.filters):
            if not isinstance(one, FieldFilter | VotesFilter):
                continue
            if one.field in ROW_FIELDS if own is None else one.field not in (*OF_SAMPLE, *own):
                others = ["other keys of the object"] if own is None else own
                raise ValueError(
                    f"filters.{number}: no field '{one.field}' of a sample; known: {', '.join([*OF_SAMPLE, *others])}"
                )
        if (self.writes == "question") != bool(self.answer):
            raise ValueError("answer: goes with writes: question, which needs it; write both or neither")
        return self
