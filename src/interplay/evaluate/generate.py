"""The stage `generate`: a model writes rows. Of each source row a prompt is made by a template and sampled, the samples are
parsed into items, items pass filters, and what is left is written as rows of a problem set.

Samples are drawn in shards, as those of an evaluation: a killed stage does not repeat them, and since the noise is keyed by
prompt and sample, it ends with the bytes of an uninterrupted one. All after the sampling is a pure function of the samples.

`samples.parquet` has every sample with its verdict, `items.parquet` every item with its source row, sample, template, votes, the
filter that dropped it, and the row that it became: the provenance of each row."""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from interplay.core import artifact, execution, model, random
from interplay.data import curate, sets, tokenizer as text
from interplay.data.foreign import question_key
from interplay.data.spec import split_of
from interplay.data.steps import reformulate
from interplay.evaluate import generate_spec as specs, sampling
from interplay.optim import distributed
from interplay.rollout import engine
from interplay.rollout.request import Request
from interplay.tasks import family, qa, transcripts, verdict
from interplay.tasks.reformulated import same_answer

NAME = "generate"
"""In a row's transforms."""


def generate_rows(spec: specs.GenerateSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet`, `keys.parquet`, `samples.parquet` and `items.parquet`; metrics, on the first process only: source
    rows, samples and their tokens, items, what each filter dropped, and rows (`size`). Roles: `model`, `data.0`. Raises
    StoppedError where a signal ends the stage before the last shard, PermanentError where no row is left."""
    torch.set_num_threads(how.threads)
    pool, kept = sets.load_pool([inputs["data.0"]]).rows, out / "resume" / "shards"
    sample = partial(sample_rows, spec, inputs["model"], pool, kept, out=out, how=how)
    distributed.complete_shards(kept, len(pool), sampling.shard_size(spec.num_samples, how.engine_batch), sample)
    if not execution.is_first_rank():
        return {}
    table = distributed.read_shards(kept)
    items, rows, found = rows_of_samples(spec, pool, table)
    if not rows:
        raise model.PermanentError(f"generate: {len(items)} items of {len(table)} samples give no row: {found['dropped']}")
    out.mkdir(parents=True, exist_ok=True)
    sets.write_table(sets.table_of_rows(rows), out)
    pq.write_table(table, out / "samples.parquet", compression="zstd")
    source = artifact.read_json(inputs["data.0"] / "stage.json")["digest"]
    pq.write_table(items_table(spec, source, pool, items), out / "items.parquet", compression="zstd")
    return found


def rows_of_samples(
    spec: specs.GenerateSpec, pool: Sequence[verdict.Row], table: pa.Table
) -> tuple[list["Item"], list[verdict.Row], dict[str, Any]]:
    """The items and rows of samples, and the metrics."""
    items = filter_items(spec, pool, items_of(spec, pool, table))
    rows = write_items(spec, pool, items)
    dropped = Counter(item.dropped for item in items if item.dropped)
    tokens = sum(table["length"].to_pylist())
    counts = {"sources": len(pool), "samples": len(table), "completion_tokens": tokens, "items": len(items)}
    return items, rows, {**counts, "dropped": dict(sorted(dropped.items())), "size": len(rows)}


# Samples.


def render_template(template: str, row: verdict.Row, /, **fields: str) -> str:
    """A template with the fields of a row and further ones."""
    own = {name: str(getattr(row, name)) for name in specs.ROW_FIELDS}
    return template.format(**{**own, **fields})


def sample_rows(
    spec: specs.GenerateSpec,
    folder: Path,
    pool: Sequence[verdict.Row],
    kept: Path,
    missing: list[range],
    out: Path,
    how: execution.Run,
) -> None:
    """Sample the rows of the missing shards. Collective."""
    encoder, sampler, drawing = sampling.open_model(spec, folder, how)

    def draw(ids: list[int]) -> tuple[pa.Table, int]:
        rows = [pool[i] for i in ids]
        said = [render_template(spec.template, row) for row in rows]
        prompts = text.encode_texts(encoder, said)
        keys = [random.stream_key("prompt", one) for one in said]
        requests = [Request(prompt, key, 0, spec.num_samples) for prompt, key in zip(prompts, keys, strict=True)]
        made = sampler.generate(requests, drawing)
        texts = encoder.decode_batch(made.written())
        asked = made.request.tolist()
        table = samples_table(spec, [rows[i] for i in asked], made, texts)
        return table.append_column("prompt", pa.array([said[i] for i in asked])), int(made.lengths.sum())

    sampling.sample_shards(draw, sampler, kept, missing, out)


def samples_table(spec: specs.GenerateSpec, rows: Sequence[verdict.Row], made: engine.Rollouts, texts: Sequence[str]) -> pa.Table:
    """Samples as an evaluation keeps them, each up to the stop text and judged against the gold of its source row."""
    stopped = [bool(spec.stop) and spec.stop in one for one in texts]
    ended = [one.partition(spec.stop)[0] if stop else one for one, stop in zip(texts, stopped, strict=True)]
    verdicts = sets.judge_completions(rows, ended, spec.verify)
    kept = made._replace(truncated=made.truncated & ~torch.tensor(stopped))
    table = sampling.judged_rows(rows, kept, verdicts, ended)
    return table.append_column("said", pa.array([one.said for one in verdicts], pa.string()))


# Items.


@dataclass
class Item:
    """What one sample wrote, or a part of it."""

    place: int
    """Number of its source row in the pool."""
    sample: int
    number: int
    """Of the item in its sample."""
    right: tuple[bool, bool]
    """Of the sample: strict, answer."""
    fields: dict[str, str]
    """`text`, `said` and the parsed fields."""
    dropped: str = ""
    """Why it became no row; empty where it did."""
    votes: tuple[int, int] = (0, 0)
    """For the value that it has, and of all of its row."""
    rows: list[int] = field(default_factory=list)
    """Numbers of the rows that it became, or is an option of."""


def items_of(spec: specs.GenerateSpec, pool: Sequence[verdict.Row], table: pa.Table) -> list[Item]:
    """Items in the order of source rows and samples. A sample without one has one that is dropped."""
    place_of = {row.index: place for place, row in enumerate(pool)}
    found = []
    for one in table.to_pylist():
        parsed = [] if one["truncated"] else list(parse_sample(spec, one["completion"]))
        why = "truncated" if one["truncated"] else "" if parsed else "unparsed"
        for number, fields in enumerate(parsed or [{}]):
            known = {"text": one["completion"], "said": one["said"], **fields}
            found.append(Item(place_of[one["index"]], one["sample"], number, (one["strict"], one["answer"]), known, why))
    return found


def parse_sample(spec: specs.GenerateSpec, said: str) -> Iterator[dict[str, str]]:
    """The fields of each item of a sample's text."""
    match spec.parse:
        case "whole":
            yield {}
        case "lines":
            yield from ({"text": line.strip()} for line in said.split("\n") if line.strip())
        case "json":
            if (found := last_object(said)) and family.is_encodable(found):
                # {answer} of a template is the source row's in any case: an object without one would else take it for its own.
                own = {key: value for key, value in found.items() if key not in specs.SAMPLE_FIELDS}
                yield {key: str(value) for key, value in own.items() if isinstance(value, str | int | float)}
        case "pattern":
            yield from ({key: value or "" for key, value in one.groupdict().items()} for one in re.finditer(spec.pattern, said))


def last_object(said: str) -> dict[str, Any] | None:
    """The last JSON object of a text that is not inside another one."""
    found, at = None, said.find("{")
    while at >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(said, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = value
        at = said.find("{", end)
    return found


# Filters.


def filter_items(spec: specs.GenerateSpec, pool: Sequence[verdict.Row], items: list[Item]) -> list[Item]:
    """The items, each with the filter that dropped it. Items of a sample that did not parse, or lack a field of what is to be
    written, are dropped first."""
    wanted = {*specs.template_fields(spec.text), *specs.template_fields(spec.answer)} - {*specs.ROW_FIELDS}
    for item in items:
        if not item.dropped and not wanted <= item.fields.keys():
            item.dropped = "unparsed"
        elif not item.dropped and not written_text(spec, pool, item).strip():
            item.dropped = "empty"
    for number, one in enumerate(spec.filters):
        passing = [item for item in items if not item.dropped]
        for item in _failing(one, spec, pool, passing):
            item.dropped = f"{number} {one.name}"
    return items


def written_text(spec: specs.GenerateSpec, pool: Sequence[verdict.Row], item: Item) -> str:
    """What an item writes."""
    return render_template(spec.text, pool[item.place], **item.fields)


def _failing(one: specs.ItemFilter, spec: specs.GenerateSpec, pool: Sequence[verdict.Row], items: list[Item]) -> list[Item]:
    """The items that a filter drops."""
    match one:
        case specs.VerdictFilter():
            return [item for item in items if not _as_judged(one, item)]
        case specs.FieldFilter():
            known = {value.strip().casefold() for value in one.equals}
            return [item for item in items if item.fields.get(one.field, "").strip().casefold() not in known]
        case specs.LengthFilter():
            return [item for item in items if not one.low <= len(written_text(spec, pool, item)) <= one.high]
        case specs.DistinctFilter():
            return list(_repeats(one, spec, pool, items))
    by_row = itertools.groupby(items, key=lambda item: item.place)
    return [item for place, part in by_row for item in _outvoted(one, pool[place], list(part))]


def _as_judged(one: specs.VerdictFilter, item: Item) -> bool:
    strict, answer = item.right
    return {"strict": strict, "answer": answer, "wrong": not answer and bool(item.fields["said"])}[one.keep]


def _repeats(
    one: specs.DistinctFilter, spec: specs.GenerateSpec, pool: Sequence[verdict.Row], items: list[Item]
) -> Iterator[Item]:
    seen: set[tuple[int, str]] = set()
    for item in items:
        key = (item.place if one.among == "row" else -1, " ".join(written_text(spec, pool, item).split()))
        if key in seen:
            yield item
        seen.add(key)


def _outvoted(one: specs.VotesFilter, row: verdict.Row, items: list[Item]) -> list[Item]:
    """Counts the votes of a row's items, and gives those that are not for the winner."""
    values: list[tuple[str, list[Item]]] = []
    for item in items:
        value = item.fields.get(one.field, "")
        group = next((group for known, group in values if same_answer(value, known)), None) if value.strip() else []
        if group is None:
            values.append((value, group := []))
        group.append(item)
    counts = sorted((len(group) for _, group in values), reverse=True)
    total = sum(counts)
    for _, group in values:
        for item in group:
            item.votes = (len(group), total)
    winner = next(((value, group) for value, group in values if len(group) == counts[0]), None)
    lost = winner is None or counts[0] / total < one.share or counts[1:2] == counts[:1]
    if winner is None or lost or (one.label and not same_answer(winner[0], row.answer)):
        return items
    return [item for item in items if all(item is not other for other in winner[1])]


# Rows.


def write_items(spec: specs.GenerateSpec, pool: Sequence[verdict.Row], items: list[Item]) -> list[verdict.Row]:
    """The rows that the items become, in their order; each item learns its rows, or why it has none."""
    if spec.writes == "choice":
        return _write_choices(spec, pool, items)
    rows: list[verdict.Row] = []
    given = Counter[int]()
    write = _writer(spec)
    for item in items:
        if item.dropped:
            continue
        if spec.per_row is not None and given[item.place] == spec.per_row:
            item.dropped = "per_row"
            continue
        row = write(pool[item.place], item, written_text(spec, pool, item))
        if row is None:
            item.dropped = "held_out"
            continue
        given[item.place] += 1
        item.rows.append(len(rows))
        rows.append(row)
    return rows


def _writer(spec: specs.GenerateSpec) -> Callable[[verdict.Row, Item, str], verdict.Row | None]:
    def column(row: verdict.Row, item: Item, said: str) -> verdict.Row:
        return curate.transform_row(row, NAME, **{spec.writes: said})

    def response(row: verdict.Row, item: Item, said: str) -> verdict.Row:
        gold = transcripts.dumps(transcripts.Passage(""))
        columns = {"prompt": render_template(spec.template, row), "solution": said, "answer": "", "graph": gold}
        return curate.transform_row(row, NAME, mode="response", family=transcripts.TEXT.name, **columns)

    def question(row: verdict.Row, item: Item, said: str) -> verdict.Row | None:
        """None for a question of a split that models are tested on or chosen by."""
        answer = render_template(spec.answer, row, **item.fields).strip()
        problem = qa.Problem(said.strip(), (answer,))
        prompt, solution, answer = qa.render(problem)
        key = question_key(said)
        if split_of(key) in ("test", "validation"):
            return None
        columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": qa.dumps(problem), "key": key}
        return curate.transform_row(replace(row, op=1), NAME, mode="open", family=qa.QA.name, **columns)

    return {"response": response, "question": question}.get(spec.writes, column)


def _write_choices(spec: specs.GenerateSpec, pool: Sequence[verdict.Row], items: list[Item]) -> list[verdict.Row]:
    """Source rows as multiple choice, with what was written most often as wrong options."""
    wrong: list[Counter[str]] = [Counter() for _ in pool]
    for item in items:
        if not item.dropped:
            wrong[item.place][written_text(spec, pool, item).strip()] += 1
    ordered = [[text for text, _ in counts.most_common()] for counts in wrong]
    made = reformulate.choices_of(pool, ordered, spec.options, NAME, spec.seed)
    number = {place: n for n, place in enumerate(sorted(made))}
    for item in items:
        if not item.dropped:
            row = made.get(item.place)
            options = reformulate.wrong_options(row) if row else []
            said = written_text(spec, pool, item).strip()
            used = row is not None and said in options
            item.rows += [number[item.place]] if used else []
            item.dropped = "" if used else "not_an_option" if row else "too_few_options"
    return [made[place] for place in sorted(made)]


def items_table(spec: specs.GenerateSpec, source: str, pool: Sequence[verdict.Row], items: list[Item]) -> pa.Table:
    """`items.parquet`."""
    template = hashlib.sha256(spec.template.encode()).hexdigest()[:12]
    columns = {
        "source": pa.array([f"{source}:{pool[item.place].index}" for item in items]),
        "sample": pa.array([item.sample for item in items], pa.int32()),
        "item": pa.array([item.number for item in items], pa.int32()),
        "template": pa.array([template] * len(items)),
        "fields": pa.array([json.dumps(item.fields, ensure_ascii=False) for item in items]),
        "votes": pa.array([item.votes[0] for item in items], pa.int32()),
        "voted": pa.array([item.votes[1] for item in items], pa.int32()),
        "dropped": pa.array([item.dropped for item in items]),
        "rows": pa.array([item.rows for item in items], pa.list_(pa.int64())),
    }
    return pa.table(columns)
