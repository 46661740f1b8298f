"""Specs of generated problem sets, data sets from files, tokenizers and packed corpora, and of the problem sets of a study."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from interplay.core.extension import FILLED, Extension, written_as
from interplay.core.keys import SHARES, ByName, Mix, RestOf, Written, fill_rest, partial_model
from interplay.core.model import Count, Model, Natural, Since, first_repeated
from interplay.data.steps.spec import StepKeys
from interplay.tasks.spec import Task, TaskKeys

Split = Literal["train", "rl", "validation", "test"]

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
    bands: dict[str, Annotated[dict[int, float], SHARES]]
    """Per band the share of each op; each band's shares sum to 1."""
    shares: Annotated[dict[str, float], SHARES]
    """Share of each band in the set; sums to 1."""
    size: Count
    """Number of problems."""
    split: Split
    """Part of the space of structures to draw from."""
    seed: Natural = 0
    """Key of the generator."""
    calibrated: Annotated[dict[str, list[Count]], Since({})] = {}
    """Further bands, whose ops are those that the stage of role `calibration` chose; per band the ops that it chose from."""
    transform: Annotated[Extension | None, written_as(Extension)] = None
    """A function of the study's own, `function(rows, **options) -> rows`, over the finished rows (dicts of the columns)."""
    unique: bool = True
    """Drop structural duplicates (equal up to renaming of letters and reordering of definitions) within the set."""

    @model_validator(mode="after")
    def _consistent(self) -> "ProblemsSpec":
        if set(self.shares) != (named := {*self.bands, *self.calibrated}):
            raise ValueError(f"shares name {sorted(self.shares)} but bands name {sorted(named)}")
        low, high = self.task.ops()
        outside = [op for ops in [*self.bands.values(), *self.calibrated.values()] for op in ops if not low <= op <= high]
        if outside:
            raise ValueError(f"op {outside[0]} lies outside the task's range {low}..{high}")
        return self


LEAST_BPE = 258
"""Tokens of a byte-level vocabulary without merges: 256 bytes, <pad> and <eos>."""


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
        if self.algorithm == "bpe" and self.vocab_size < LEAST_BPE:
            raise ValueError(f"vocab_size = {self.vocab_size}: must be {LEAST_BPE} at least, the bytes and two marks")
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


Format = Literal[
    "hotpotqa",
    "musique",
    "2wikimultihopqa",
    "gsm8k",
    "jsonl",
    "parquet",
    "csv",
    "messages",
    "text",
    "chats",
    "lm_eval",
    "math",
    "longbench",
    "programs",
]
LM_EVAL_VERSION = "0.4.13"
"""Version of lm-eval whose tasks are read and run."""
TEXTS: tuple[Format, ...] = ("text", "chats")
"""Formats without questions: what trainers of language models read, and nothing else."""
OWN_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".parquet": "parquet", ".csv": "csv"}
"""Ending of a file -> its format, where the study names none."""
FieldName = Literal["id", "question", "answer", "aliases", "solution", "messages", "text", "licence", "tests"]
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
    """An id that an earlier item has; of documents and chats, the text of an earlier one."""
    near_empty: Annotated[Answer, Since("refuse")] = "refuse"
    """A document with fewer than 20 letters and digits, or a chat with an empty message."""


BY_ROW = "by row"
"""Licence of a file whose rows name theirs."""


class AuditSpec(Model):
    """What the verifier of a problem set pays to completions that did not do the work. Role: `data`, the set. The planner makes
    such a stage for each set of a task from outside that an rl stage draws from; where a check fails, the rl stage is refused."""

    VERSION: ClassVar[int] = 2
    """Since 2 episodes of environments are played."""

    rows: Annotated[Count, Field(ge=8)] = 24
    """Rows of the set that are judged, the first."""


class DatasetSpec(Model):
    """The items of one file in a published format, as problems. In a study: `file`, which the planner replaces by its checksum
    (the path goes to the run block)."""

    VERSION: ClassVar[int] = 2
    format: Format
    """hotpotqa, 2wikimultihopqa: a JSON list; musique, gsm8k, jsonl, messages: one object a line; parquet, csv: a row; math:
    MATH and AIME, by lines or rows; longbench: its parts with questions, by lines; programs: one object a line, `question` and
    `tests`, a list of `assert EXPRESSION == VALUE`, and `solution`, a program, if known (MBPP: {question: text, tests:
    test_list, solution: code}), judged by running what a completion writes. jsonl, parquet and csv need `question` and
    `answer`, and may have `id`, `aliases` and `solution`; a question may be a list of chat messages, whose last one of a user
    counts. messages: a chat that ends with the assistant's solution; the answer is in its box, behind its last `####`, or all
    of it, unless the row has `answer`. text, chats: no questions but a document, `text`, or a chat of any number of turns,
    `messages`, per row of JSONL or Parquet; pretrain, midtrain and sft read them, of chats to learn what the assistant says.
    lm_eval: a task of lm-eval, for evaluate with `harness: lm_eval`: a YAML file of the project, or the name of one of
    lm-eval's own in place of a file."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Checksum of the file, 64 hexadecimal digits as `sha256sum FILE` prints them: identity is content, not path. Of a task
    of lm-eval that of all files of the project that it reads; of one of its own that of its name and lm-eval's version."""
    band: str = "all"
    """Band of its rows."""
    split: Split | None = None
    """Part of the items, by a hash of their question; null: all."""
    size: Count | None = None
    """Number of items, in an order drawn from the seed; null: all of the split."""
    defects: Defects = Defects()
    seed: Natural = 0
    """Order of the items."""
    fields: Annotated[dict[FieldName, str], Since({})] = {}
    """Of jsonl, parquet, csv, messages, programs, text and chats: what the file calls its fields, such as {question: prompt,
    answer: target}; a dot leads into an object, as in verl's files: {question: prompt, answer: reward_model.ground_truth}."""
    licence: Annotated[str, Since("")] = ""
    """Licence of the file, such as `CC-BY-4.0`, or `by row`: each row names its own in the field `licence`. The record counts
    rows and characters by licence."""
    origin: Annotated[str, Since("")] = ""
    """Where the file comes from: an address with a revision, a collection, or how it was made."""

    def hashed_version(self) -> int:
        """One more of questions whose answers are compared as mathematics: what is not worked out is not right; and one of chats,
        whose question is before the answer, which may be 0 and is not behind any #."""
        compared = self.format not in ("hotpotqa", "musique", "2wikimultihopqa", "longbench")
        return self.VERSION + compared + (self.format == "messages")

    @model_validator(mode="after")
    def _own_fields(self) -> "DatasetSpec":
        if self.fields and self.format not in (*OWN_FORMATS.values(), "messages", "programs", *TEXTS):
            raise ValueError(f"fields: {self.format} has fields of its own; take them away")
        if "question" in self.fields and self.fields["question"] == self.fields.get("answer"):
            raise ValueError(f"fields: '{self.fields['question']}' is the question and the answer; name the column of each")
        if self.format in TEXTS:
            remedies = {"licence": "name it, such as CC-BY-4.0, or write `by row`", "origin": "say where the file comes from"}
            if lacking := [key for key in remedies if not getattr(self, key).strip()]:
                raise ValueError(f"{lacking[0]}: missing, and text of others has one; {remedies[lacking[0]]}")
        elif self.licence == BY_ROW:
            raise ValueError(f"licence: `{BY_ROW}` goes with format: text or chats, whose rows may name it")
        return self


# The harness that asks the items of its tasks.


class LmEval(Model):
    """lm-eval, which asks, reads and scores the answers to a task of its own (data of `format: lm_eval`) with its model `hf`. Of
    several processes one works."""

    name: Literal["lm_eval"] = "lm_eval"
    version: Literal["0.4.13"] = "0.4.13"
    """Version of lm-eval."""
    num_fewshot: Natural | None = None
    """Examples before each item; null: as the task says. A task that says 0 keeps 0."""
    metrics: list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(,[\w-]+)?$")]] = []
    """Numbers of an item, by their names in lm-eval's tables: `acc_norm`, `exact_match,strict-match`. The first is the score, and
    an answer of score 1 is right; all are shown as own:NAME, such as `own:acc_norm` and `own:exact_match_strict_match`. Empty:
    the task's first one is the score."""

    @property
    def names(self) -> dict[str, str]:
        """Name of a metric -> the one that a study shows it by, without its prefix."""
        return {name: re.sub(r"\W", "_", name) for name in self.metrics}


def _in_words(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Harness = Annotated[LmEval, BeforeValidator(_in_words, json_schema_input_type=str | LmEval)]


# Problem sets of a study: generated, read from a file, or made from others.


FORMS = {
    "generated": ("band", "bands", "op_shares", "transform", "task", "seed", "shards"),
    "file": ("file", "hub", "sha256", "format", "defects", "fields", "licence", "origin"),
    "mix": ("mix", "steps"),
    "written": ("generate", "arm", "of"),
}
"""Keys that only one form of problem set takes; `split` goes with the first two, `size` with all."""


TransformKeys = Annotated[dict[str, Any], Written(cache(lambda: partial_model(Extension, "TransformKeys", FILLED)))]


class DataSet(Model):
    """A problem set of the study, in one of four forms: generated (`band` or `bands`), read from a file (`file`, `hub` or
    `sha256`, and `format`), made of other sets (`mix`, `steps`), or written by a model (`generate`, `arm`, `of`)."""

    band: str | None = None
    """Generated: one band of the scale. Read from a file: the band that its rows get; null: `all`."""
    bands: Annotated[list[str], Field(min_length=1)] | None = None
    """Generated: several bands, in equal shares."""
    split: Split | None = None
    """Part of the space of problems that it is drawn from; splits never share a problem. Of a file: null for all items."""
    size: Count | None = None
    """Number of problems; null: generated, the scale's size for the split (times the number of bands), else all."""
    op_shares: Annotated[dict[int, float], SHARES] | None = None
    """Generated, a single band: share of each op; null: uniform."""
    transform: TransformKeys | None = None
    """Generated: a function of the study's own that maps problem rows to problem rows: {function: file.py:function}."""
    leak: bool = False
    """Whether stages may be trained on it though its split is test, as in a study of contamination; otherwise refused."""
    seed: Natural = 0
    """Generated: key of the generator, by which sets of equal task, size and split hold different problems."""
    shards: Count | None = None
    """Generated: parts of the set, each a set of size / shards problems with a seed and a corpus of its own, so that they are
    made in parallel and each fits in memory. Only pretrain, midtrain and sft read such a set, and all sets of their mix have
    equally many. Nothing repeats within a shard (see `unique`), some problems do across shards; a transform sees one shard at a
    time; a bpe tokenizer learns from the first. A set that grows by shards of equal size keeps its existing shards. Null: one
    set."""
    task: Annotated[TaskKeys, ByName("task")] = {}
    """Generated: keys of the task that differ from the study's; with another `name`, a task of its own."""
    file: str | None = None
    """File in a published format, by its path from the project's root, below it or through a link there."""
    hub: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+@[\w.-]+/.+$")] | None = None
    """In place of `file`: one of a data set on the Hugging Face hub at a revision, `owner/name@revision/path/in/it.parquet`. It
    comes from the hub's cache, or is downloaded when the study is planned; its content is its identity."""
    sha256: str | None = None
    """Checksum of the file. With it, a study can be planned where the file is not."""
    format: Format | None = None
    """Format of the file; null: by its ending, .jsonl, .parquet or .csv."""
    fields: dict[str, str] = {}
    """What the file calls `question`, `answer`, `id`, `aliases`, `solution`, `messages`, `text` or `licence`: {question: prompt,
    answer: target}."""
    defects: dict[str, str] = {}
    """Handling of defective items of the file."""
    licence: str = ""
    """Licence of the file, such as `CC-BY-4.0`, or `by row`; documents and chats need it."""
    origin: str = ""
    """Where the file comes from: an address with a revision, a collection, or how it was made; documents and chats need it."""
    mix: Annotated[dict[str, float], BeforeValidator(fill_rest, json_schema_input_type=RestOf)] | None = None
    """Other sets and their shares, of which one may be `rest`."""
    steps: list[StepKeys] = []
    """Steps applied to the mixed rows. A step that reads samples takes `arm` (whose final model samples) and `evaluate` (how);
    one that compares takes `against: [sets]`."""
    generate: str = ""
    """Stage of kind generate, by which a model writes the rows."""
    arm: str = ""
    """The arm whose final model writes them, at the same seed: a set for each model that replicates have; `before`: the model
    that the stage which reads the set starts from, so that each round of a repeated stage has rows of its own."""
    of: str = ""
    """The set of their source rows."""

    @model_validator(mode="after")
    def _one_form(self) -> "DataSet":
        if self.form == "generated":
            if (self.band is None) == (self.bands is None):
                raise ValueError("give either band or bands (or a file, or a mix of other sets)")
            if (repeated := first_repeated(self.bands or ())) is not None:
                raise ValueError(f"bands: {repeated} is named twice; name each once, and give shares by a mix of several sets")
            if self.split is None:
                raise ValueError("split is missing; write train, rl, validation or test")
            if self.op_shares is not None and self.band is None:
                raise ValueError("op_shares needs a single band")
        if self.form == "file" and self.file_format() is None:
            packed = (self.file or self.hub or "").endswith((".gz", ".bz2", ".xz", ".zst", ".zip"))
            raise ValueError("the file is compressed; unpack it" if packed else "format is missing; name the format of the file")
        if self.form == "written" and not self.arm:
            raise ValueError("arm is missing; name the arm whose model writes")
        if self.form == "written" and not self.of:
            raise ValueError("of is missing; name the source set")
        if self.file and self.hub:
            raise ValueError("file and hub both name a file; keep one of them")
        if self.shards is not None and self.shards < 2:
            raise ValueError("shards must be at least 2; omit it for one set")
        if self.leak and self.split != "test":
            raise ValueError("leak goes with split: test; remove it")
        for form, keys in FORMS.items():
            given = [key for key in keys if getattr(self, key) and not (self.form == "file" and key == "band")]
            if form != self.form and given:
                raise ValueError(f"{given[0]} does not go with a set that is {WORDS[self.form]}")
        return self

    @property
    def form(self) -> str:
        """generated, file, mix or written."""
        if self.generate:
            return "written"
        return "mix" if self.mix is not None else "file" if self.file or self.hub or self.sha256 else "generated"

    def file_format(self) -> Format | None:
        """The format of the file: as it is named, or by its ending."""
        return self.format or OWN_FORMATS.get(PurePath(self.file or self.hub or "").suffix)

    def names(self) -> list[str]:
        """The bands that a generated set or a file names."""
        return [self.band] if self.band is not None else list(self.bands or ([] if self.form != "file" else ["all"]))

    def sources(self) -> list[str]:
        """Names of the sets that it is made of."""
        return [self.of] if self.of else list(self.mix or {})


SetChange = Annotated[dict[str, Any], Written(cache(lambda: partial_model(DataSet, "SetChange")))]
"""Keys of a set that differ at a scale; or a complete set."""


def is_whole(given: Mapping[str, Any]) -> bool:
    """Whether the keys define a complete set rather than changes of another: they name the source of its rows."""
    return not {"split", "file", "hub", "sha256", "mix", "generate"}.isdisjoint(given)


WORDS = {"generated": "generated", "file": "read from a file", "mix": "made of others", "written": "written by a model"}
