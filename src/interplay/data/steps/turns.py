"""Steps that make rows of logged trajectories: each turn with what came before it, a trajectory cut short as a prompt, and a
trajectory behind a prompt that says what it came to (hindsight). The step that gives rows tools. And libraries of experience:
entries made of episodes, and those of them that a prompt begins with. An entry is a row whose prompt is the text that it is found
by and whose solution is the text that is shown; so every problem set can be read as a library."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from interplay.core import model, random
from interplay.core.keys import filled
from interplay.data import sets, tokenizer as text
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import turns_spec as steps
from interplay.data.steps.turns_spec import LIBRARY, Retrieval, WithEntries
from interplay.data.trajectory import segments_of
from interplay.tasks.environments import given_tools, sandbox
from interplay.tasks.environments.spec import SearchTool
from interplay.tasks.families import judge_family, multihop_item
from interplay.tasks.family import Environment, Item, compact_json
from interplay.tasks.transcripts import MARK, TEXT, observations, policy_turns
from interplay.tasks.verdict import Row


def logged_samples(
    spec: steps.LoggedTurns, rows: Sequence[Row], inputs: StepInputs
) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    """Each row with its samples of the kind that is kept, at most `per_prompt` different texts. Raises PermanentError where a row
    has no samples."""
    for row in rows:
        if not (samples := inputs.samples.get((row.set, row.index))):
            raise model.PermanentError(f"{spec.RUN}: {inputs.row_name(row)} has no samples")
        chosen = [one for one in samples if spec.keep == "all" or bool(one[spec.by]) == (spec.keep == "right")]
        yield row, list({one["completion"]: one for one in reversed(chosen)}.values())[::-1][: spec.per_prompt]


def by_turn(spec: steps.ByTurn, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each turn: its prompt is all that the policy read and wrote before it, with MARK between the parts, its solution
    the turn. A turn that the length limit cut gives none. Counts: episodes, turns, and rows without an episode."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        counts["no_episode"] += not samples
        for one in samples:
            parts = one["completion"].split(MARK)
            ended = len(parts) - 2 * bool(one["truncated"])
            counts["episodes"] += 1
            for place in range(0, ended, 2):
                counts["turns"] += 1
                made.append(transform_row(row, spec.name, prompt=MARK.join([row.prompt, *parts[:place]]), solution=parts[place]))
    return StepResult(made, dict(counts))


def to_prompts(spec: steps.ToPrompts, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each place after a turn and what was read then; its solution is the row's own. Counts: prompts, and rows without
    one. Raises PermanentError where what is judged is a whole transcript."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        if MARK in row.solution:
            whole = f"{row.family} judges whole transcripts, so that nothing behind a cut can be judged alone"
            raise model.PermanentError(f"{spec.name}: {whole}; take the step by_turn")
        found = dict[str, None]()
        for one in samples:
            parts = one["completion"].split(MARK)
            places = range(2, len(parts), 2)
            found |= dict.fromkeys(
                MARK.join([row.prompt, *parts[:place]]) for place in (places if spec.cut == "each" else places[-1:])
            )
        counts["prompts"] += len(found)
        counts["no_prompt"] += not found
        made += [transform_row(row, spec.name, prompt=text) for text in found]
    return StepResult(made, dict(counts))


def relabel(spec: steps.Relabel, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each sample, whose prompt says what it came to. A truncated one gives none. Counts: right and wrong ones, and
    rows without any."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        ended = [one for one in samples if not one["truncated"] and one["completion"]]
        counts["no_sample"] += not ended
        for one in ended:
            right = bool(one[spec.by])
            counts["right" if right else "wrong"] += 1
            text = spec.template.replace("{reached}", spec.right if right else spec.wrong).replace("{prompt}", row.prompt)
            made.append(transform_row(row, spec.name, prompt=text, solution=one["completion"]))
    return StepResult(made, dict(counts))


# Tools for the rows of any judged family: the environment `with_tools`, documents to search, expert transcripts.


def give_tools(spec: steps.WithTools, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows of the family with_tools. Counts: documents (rows of text, which are read and not asked), expert and without_expert
    (rows with and without an expert's transcript), dropped."""
    asked = [row for row in rows if row.family != TEXT.name]
    if odd := next((row for row in asked if isinstance(judge_family(row.family), Environment)), None):
        raise model.UserError(
            f"curate: with_tools: rows of {odd.family} have an environment already; give tools to a family without one"
        )
    items = [multihop_item(row) for row in asked]
    texts = [sandbox.Document("", row.solution) for row in rows if row.family == TEXT.name]
    library = tuple(dict.fromkeys([*texts, *(one for item in items for one in documents_of(item))]))
    written, counts = compact_json([tool.model_dump(mode="json") for tool in spec.tools]), Counter({"documents": len(texts)})
    more = next((tool.others for tool in spec.tools if isinstance(tool, SearchTool)), 0)
    made = []
    for row, item in zip(asked, items, strict=True):
        question = item.question if item else row.prompt
        found = with_others(documents_of(item), question, library, more) if more else tuple(documents_of(item))
        given = given_tools.Given(row.family, row.graph, row.answer, written, found, spec.price)
        said = given_tools.transcript(given)
        counts["expert" if said else "without_expert"] += 1
        if not said and spec.without_expert == "drop":
            counts["dropped"] += 1
            continue
        shown = f"{question}\n" if item and spec.prompt == "question" else row.prompt
        columns = {"prompt": spec.instruction + shown, "graph": given_tools.dumps(given), "family": given_tools.NAME}
        made.append(transform_row(row, spec.name, solution=said or row.solution, mode=given_tools.NAME, **columns))
    return StepResult(made, dict(+counts))


def documents_of(item: Item | None) -> Sequence[sandbox.Document]:
    """The documents of a question."""
    return [sandbox.Document(one.title, one.text) for one in item.paragraphs] if item else []


def with_others(
    own: Iterable[sandbox.Document], question: str, library: tuple[sandbox.Document, ...], more: int
) -> tuple[sandbox.Document, ...]:
    """A row's own documents, and as many others that are nearest to its question, in the order of the library, which does not
    say whose a document is."""
    kept = set(own)
    near = [library[n] for n in sandbox.ranked(question, library) if library[n] not in kept][:more]
    return tuple(one for one in library if one in kept or one in set(near))


# Libraries of experience.


FILE = "entries"
"""`entries.parquet` of a curate stage: a row for each entry of its library."""


class Source(NamedTuple):
    """What an entry was made of; sources are ordered, so that an entry of several names the first."""

    stage: str
    """Digest of the set, or of the evaluation whose samples they are."""
    row: str
    """`digest:index` of its problem."""
    sample: int
    """-1: the row's own solution."""
    turn: int
    """-1: the whole episode."""
    outcome: str


class Made(NamedTuple):
    """An entry as it is made."""

    read: str
    said: str
    """The text that is shown."""
    source: Source
    row: Row


# Steps that make a library.


def library_of_rows(spec: steps.Library, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The entries of the rows' solutions. Counts: made, and repeated, those that others are equal to."""
    made = []
    for row in rows:
        source = inputs.folders[f"data.{row.set}"].name
        for turn, read, said, last in _parts(spec, row, row.solution):
            made.append(_entry(spec, row, read, said, last, Source(source, inputs.row_name(row), -1, turn, spec.right)))
    return _library(spec, made, inputs)


def library_of_samples(spec: steps.Experience, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The entries of sampled episodes. Counts: made, and repeated. The last turn of a truncated episode gives none. Raises
    PermanentError where no sample is of the kind that is kept."""
    made = []
    for row, samples in logged_samples(spec, rows, inputs):
        for one in samples:
            paid = [part.reward for part in segments_of(one) if part.kind == "action"]
            for turn, read, said, last in _parts(spec, row, one["completion"]):
                cut = turn >= 0 and one["truncated"] and turn == len(paid) - 1
                pays = turn >= 0 and (paid[turn] or 0.0) > 0
                if cut or (spec.turns != "all" and pays != (spec.turns == "paid")):
                    continue
                right = pays if spec.turns != "all" else bool(one[spec.by])
                outcome = spec.right if right else spec.wrong
                source = Source(one["evaluation"], inputs.row_name(row), one["sample"], turn, outcome)
                made.append(_entry(spec, row, read, said, last, source))
    if not made:
        kept = f"{spec.keep} by {spec.by}" + ("" if spec.turns == "all" else f" with {spec.turns} turns")
        raise model.PermanentError(f"{spec.name}: none of the episodes of {len(rows)} rows is {kept}; sample more, or keep: all")
    return _library(spec, made, inputs)


def _parts(spec: steps.EntryForm, row: Row, episode: str) -> Iterator[tuple[int, str, str, str]]:
    """(turn, what was read before it, what was said, the last turn) of each entry of an episode."""
    turns, read = policy_turns(episode), [row.prompt.rpartition(MARK)[2], *observations(episode)]
    if spec.unit == "episode":
        yield -1, read[0], episode.replace(MARK, ""), turns[-1]
    else:
        yield from ((turn, read[turn], said, said) for turn, said in enumerate(turns))


def _entry(spec: steps.EntryForm, row: Row, read: str, said: str, last: str, source: Source) -> Made:
    known = {"read": read, "said": said, "last": last, "prompt": row.prompt, "answer": row.answer, "outcome": source.outcome}
    return Made(read, filled(spec.entry, known), source, row)


def _library(spec: steps.EntryForm, made: Sequence[Made], inputs: StepInputs) -> StepResult:
    """Each entry once, in an order that does not depend on that of the rows."""
    same = (lambda one: one.said) if spec.unique == "text" else (lambda one: (one.said, one.read))
    given = Counter(same(one) for one in {(same(one), one.source[:3]): one for one in made}.values())
    first: dict[Any, Made] = {}
    for one in sorted(made, key=lambda one: (one.said, one.read, one.source)):
        first.setdefault(same(one), one)
    kept = sorted(first.values(), key=lambda one: (-given[same(one)], one.said, one.read))[: spec.size]
    reads = [one.read for one in kept]
    if spec.shuffled:
        order = inputs.random("shuffled").permutation(len(kept)).tolist()
        for place, after in zip(order, order[1:] + order[:1], strict=True):
            reads[place] = kept[after].read
    rows = [
        transform_row(one.row, str(getattr(spec, "name", "")), prompt=read, solution=one.said)
        for one, read in zip(kept, reads, strict=True)
    ]
    columns = {name: [getattr(one.source, name) for one in kept] for name in Source._fields}
    table = pa.table({"entry": range(len(kept)), "read": reads, **columns, "episodes": [given[same(one)] for one in kept]})
    return StepResult(rows, {"made": len(made), "repeated": len(made) - len(first)}, {FILE: table})


# A library as it is read.


class Library:
    """The entries of a library, as prompts of rows and contexts of episodes find them."""

    def __init__(self, rows: Sequence[Row], name: str) -> None:
        """`name`: of the set, in errors."""
        self.rows, self.name = rows, name
        self.found: dict[tuple[Any, ...], list[Row]] = {}

    @cached_property
    def index(self) -> Any:
        """That of BM25."""
        return sandbox.index(tuple(sandbox.Document("", row.prompt) for row in self.rows))

    def text(self, spec: Retrieval, query: str, row: Row) -> str:
        """What a prompt of a row begins with; empty where nothing is found. Raises UserError where there are fewer entries than
        are asked for."""
        if spec.k > len(self.rows):
            raise model.UserError(f"{self.name} has {len(self.rows)} entries and k = {spec.k}; write k: {len(self.rows)}")
        place = (spec.k, spec.by, spec.own, spec.seed, query, row.key)
        if place not in self.found:
            others = (n for n in self._ranked(spec, query) if spec.own or self.rows[n].key != row.key)
            self.found[place] = [self.rows[n] for n, _ in zip(others, range(spec.k), strict=False)]
        entries = self.found[place]
        ordered = entries if spec.by == "first" else entries[::-1]
        return spec.shown.replace("{entries}", "".join(one.solution for one in ordered)) if entries else ""

    def _ranked(self, spec: Retrieval, query: str) -> Sequence[int]:
        match spec.by:
            case "bm25":
                return sandbox.rank(query, self.index)
            case "key":
                return [n for n, row in enumerate(self.rows) if row.prompt == query]
            case "random":
                return random.generator(spec.seed, "entries", query).permutation(len(self.rows)).tolist()
        return range(len(self.rows))


def open_library(inputs: Mapping[str, Path], encoder: text.Tokenizer) -> Library | None:
    """The library of a stage; None: it reads none. Raises UserError where the tokenizer lacks a character of an entry."""
    if LIBRARY not in inputs:
        return None
    folder = inputs[LIBRARY]
    rows = sets.read_rows(folder, 0)
    try:
        text.encode_texts(encoder, [row.solution for row in rows])
    except model.UserError as error:
        raise model.UserError(f"library {folder.name}: the model has another tokenizer than its entries: {error}") from None
    return Library(rows, f"library {folder.name}")


def show_entries(spec: WithEntries, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows whose prompts begin with entries. Counts: rows that have some, and none."""
    library, counts, made = Library(inputs.against, "against"), Counter[str](), []
    for row in rows:
        shown = library.text(spec, row.prompt.rpartition(MARK)[2], row)
        counts["with_entries" if shown else "without"] += 1
        made.append(transform_row(row, spec.name, prompt=shown + row.prompt))
    return StepResult(made, dict(counts))
