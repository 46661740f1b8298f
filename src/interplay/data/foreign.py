"""Files of others: the table of their formats; the `dataset` stage, which makes problems of the items of such a file; and the
rollouts of other trainers."""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interplay.core import artifact, execution, model, random
from interplay.core.model import nearest_name
from interplay.data import formats, harness, sets
from interplay.data.sets import ItemError, JsonItem, read_any, read_csv, read_lines, read_members, read_parquet
from interplay.data.spec import BY_ROW, TEXTS, DatasetSpec, Defects, FieldName, split_of
from interplay.data.trajectory import Kind, Segment, Trajectory
from interplay.tasks import family, multihop, programs, qa, transcripts, verdict

# The table of formats: how a file is split into objects, and how an object becomes a problem.


class Reader(NamedTuple):
    """One format."""

    split: Callable[[Path], Iterator[JsonItem]]
    parse: Callable[[dict[str, Any], str], formats.Entry]
    """Object and place -> problem; raises ItemError."""
    family: str
    """The family that judges its rows."""
    renamed: bool = False
    """Whether a study may say what the file calls its fields."""


FORMATS: dict[str, Reader] = {
    "hotpotqa": Reader(read_members, formats.parse_hotpotqa, "multihop"),
    "2wikimultihopqa": Reader(read_members, formats.parse_twowiki, "multihop"),
    "musique": Reader(read_lines, formats.parse_musique, "multihop"),
    "gsm8k": Reader(read_lines, formats.parse_gsm8k, "qa"),
    "math": Reader(read_any, formats.parse_math, "qa"),
    "longbench": Reader(read_lines, formats.parse_longbench, "multihop"),
    "jsonl": Reader(read_lines, formats.parse_jsonl, "qa", renamed=True),
    "parquet": Reader(read_parquet, formats.parse_jsonl, "qa", renamed=True),
    "csv": Reader(read_csv, formats.parse_jsonl, "qa", renamed=True),
    "programs": Reader(read_any, formats.parse_program, "programs", renamed=True),
    "messages": Reader(read_lines, formats.parse_messages, "qa", renamed=True),
    "text": Reader(read_any, formats.parse_text, "text", renamed=True),
    "chats": Reader(read_any, formats.parse_chat, "text", renamed=True),
}


def _field(raw: Mapping[str, Any], name: str) -> Any:
    """A field of an object, or of an object in it, as `reward_model.ground_truth` of verl's files; None where there is none."""
    outer, _, inner = name.partition(".")
    if name in raw or not isinstance(raw.get(outer), dict):
        return raw.get(name)
    return _field(raw[outer], inner)


def reader_of(name: str, fields: Mapping[FieldName, str]) -> Reader:
    """The reader of a format, for a file that calls its fields otherwise."""
    reader = FORMATS[name]

    def parse(raw: dict[str, Any], where: str) -> formats.Entry:
        for own, other in fields.items():
            if own in ("question", "answer", "messages", "text", "licence") and other not in raw and _field(raw, other) is None:
                raise ItemError("missing_field", f"{own} should be in '{other}', which is missing{nearest_name(other, raw)}")
        taken = {own: _field(raw, other) for own, other in fields.items()}
        return reader.parse({**raw, **{own: item for own, item in taken.items() if item is not None}}, where)

    return reader._replace(parse=parse) if fields else reader


# The `dataset` stage: the items of a file in a published format, as problems.


PUNCTUATION = re.compile(r"""[?"']|(?<!\d)!|(?<!\d),|,(?!\d{1,2}\b)""")
"""Punctuation that does not change a question: not the comma of `(1,2)`, the mark of `5!` or other signs of arithmetic."""
REMEDY = "correct the file, or declare defects: {{{reason}: skip}}"


def read_dataset(spec: DatasetSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Metrics: items `read`, `kept` and `skipped` by reason, rows (`size`), rows by
    op; of text also rows and characters by licence. Raises UserError when the file is absent or has changed since the plan, at a
    defect that the spec refuses, and where no item or fewer than `size` remain."""
    if spec.format == "lm_eval":
        given = harness.read_task(spec, str(how.path), out)
        entries, skipped, path = len(given), Counter[str](), Path(str(how.path))
    else:
        path = find_file(spec, how)
        reader = reader_of(spec.format, fields_of(spec))
        found, skipped = read_items(path, reader, spec.defects)
        entries, given = len(found), [row_of_entry(spec, entry, reader) for entry in found]
    rows = choose_rows(spec, given, path)
    sets.write_table(sets.table_of_rows(rows), out)
    ops = Counter(row.op for row in rows)
    return {
        "read": entries + skipped.total(),
        "kept": entries,
        "skipped": dict(sorted(skipped.items())),
        "size": len(rows),
        "ops": {str(op): ops[op] for op in sorted(ops)},
        **({"licences": count_licences(spec, rows)} if spec.format in TEXTS else {}),
    }


def count_licences(spec: DatasetSpec, rows: list[verdict.Row]) -> dict[str, dict[str, int]]:
    """Licence -> its rows and their characters."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        licence = sets.problem_of(row).licence if spec.licence == BY_ROW else spec.licence
        found.setdefault(licence, Counter()).update(rows=1, characters=len(row.prompt) + len(row.solution))
    return {licence: dict(found[licence]) for licence in sorted(found)}


def fields_of(spec: DatasetSpec) -> dict[FieldName, str]:
    """What the file calls its fields. With licences by row `licence` is among them, so that a row without one is a defect."""
    return {"licence": "licence", **spec.fields} if spec.licence == BY_ROW else spec.fields


def find_file(spec: DatasetSpec, how: execution.Run) -> Path:
    """The path of the file. Raises UserError where it does not exist or its checksum is not that of the plan."""
    if how.path is None:
        raise model.UserError(
            f"dataset: the {spec.format} file with sha256 {spec.sha256} has no path; name its `file` in the study"
        )
    path = artifact.local_file(how.path)
    if not path.is_file():
        raise model.UserError(f"{path}: no such file; put the {spec.format} file with sha256 {spec.sha256} there")
    found = artifact.checksum(path)
    if found != spec.sha256:
        raise model.UserError(
            f"{path}: has sha256 {found}; put the {spec.format} file with sha256 {spec.sha256} there, or plan again"
        )
    return path


FIRST = 20
"""Items of a file that are read when a study is planned."""
SMALL = 1 << 19
"""Bytes of a file of which all items are."""


def check_first_items(path: Path, spec: DatasetSpec) -> None:
    """Raises UserError where one of the first items of a file is a defect that the study refuses, or where there is none; of a
    small file one of all items, or where it has fewer than are asked for."""
    reader, small = reader_of(spec.format, fields_of(spec)), path.stat().st_size <= SMALL
    kept, skipped = read_items(path, reader, spec.defects, None if small else FIRST)
    if not kept and not skipped:
        raise model.UserError(f"{path}: no items; a {spec.format} file holds one object at least")
    if small:
        choose_rows(spec, [row_of_entry(spec, entry, reader) for entry in kept], path)


def read_items(path: Path, reader: Reader, defects: Defects, most: int | None = None) -> tuple[list[formats.Entry], Counter[str]]:
    """All items of a file in order, or the first, without skipped ones; and those by reason. Raises UserError at a defect that
    `defects` refuses."""
    entries: list[formats.Entry] = []
    skipped: Counter[str] = Counter()
    seen: dict[str, str] = {}
    for where, raw in itertools.islice(reader.split(path), most):
        try:
            entries.append(_new_entry(reader, raw, where, seen))
        except ItemError as defect:
            if getattr(defects, defect.reason) == "refuse":
                name = defect.id or (formats.item_name(raw) if isinstance(raw, dict) else "")
                ident = f" (id {name[:80]!r})" if name else ""
                remedy = REMEDY.format(reason=defect.reason)
                if reader.renamed and defect.reason == "missing_field":
                    remedy = f"name the file's own in fields, such as {{answer: target}}, {remedy}"
                raise model.UserError(f"{path}: {where}{ident}: {defect.message}; {remedy}") from None
            skipped[defect.reason] += 1
    return entries, skipped


def _new_entry(reader: Reader, raw: dict[str, Any] | ItemError, where: str, seen: dict[str, str]) -> formats.Entry:
    """The entry of an object. Raises ItemError where it is a defect, or an earlier entry has its id (its question, where it has
    no id)."""
    if isinstance(raw, ItemError):
        raise raw
    found = reader.parse(raw, where)
    if not family.is_encodable(found.problem):
        raise ItemError("broken", "a text has a lone surrogate (half of a character)")
    ident = found.id or question_of(found)
    if ident in seen:
        same = "text" if isinstance(found.problem, transcripts.Passage) else "id"
        raise ItemError("duplicate_id", f"{seen[ident]} has the same {same}", ident)
    seen[ident] = where
    return found


def question_of(entry: formats.Entry) -> str:
    """The question of an entry; of text, all of it."""
    match entry.problem:
        case qa.Problem() | programs.Problem() as problem:
            return problem.question
        case multihop.Problem() as problem:
            return problem.item.question
    return entry.id


def question_key(text: str) -> str:
    """16 hex digits of a question in normal form, so that spelling variants are in the same split: lower case, single blanks,
    without punctuation that cannot change it. Signs are kept: 12 + 3 and 12 - 3 are two questions."""
    return _hex_digits(" ".join(PUNCTUATION.sub("", text.lower()).split()).rstrip(". "))


def _hex_digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_of_entry(spec: DatasetSpec, entry: formats.Entry, reader: Reader) -> verdict.Row:
    """The entry as a row. Its key is that of the question, or of the words of a text."""
    key = question_key(question_of(entry))
    match entry.problem:
        case qa.Problem() as problem:
            mode, graph = "open", qa.dumps(problem)
            prompt, solution, answer = qa.render(problem)
        case programs.Problem() as problem:
            mode, graph = "open", programs.dumps(problem)
            prompt, solution, answer = programs.render(problem)
        case multihop.Problem() as problem:
            mode, graph = "plain", multihop.dumps(problem)
            prompt, solution, answer = multihop.render(problem, "published")
        case transcripts.Passage() as passage:
            mode, (prompt, solution, answer) = transcripts.passage_row(passage)
            graph, key = transcripts.dumps(passage), _hex_digits(entry.id)
    return verdict.Row(0, 0, spec.band, entry.op, mode, prompt, solution, answer, graph, key, reader.family, "")


def choose_rows(spec: DatasetSpec, rows: list[verdict.Row], path: Path) -> list[verdict.Row]:
    """`size` rows of the split, in an order drawn from the seed. Raises UserError where there are fewer, or none."""
    mine = [row for row in rows if spec.split is None or split_of(row.key) == spec.split]
    part = f"of split '{spec.split}'" if spec.split else "in all"
    if not mine or (spec.size and spec.size > len(mine)):
        asked = f"size = {spec.size}: " if spec.size else ""
        remedy = "ask for no more than it has" if mine else "take another file, or split"
        raise model.UserError(f"{path}: {asked}the file has {model.plural(len(mine), 'item')} {part}; {remedy}")
    ordered = sorted(mine, key=lambda row: (random.stream_key("dataset", spec.seed, row.key), row.graph))
    return ordered[: spec.size]


# Rollouts of other trainers.


def read_foreign(path: Path) -> Iterator[Trajectory]:
    """Rollouts of other trainers, of a file or of all below a folder: TRL's `completions_*.parquet` (`log_completions`), verl's
    `<step>.jsonl` (`trainer.rollout_data_dir`) and `results.jsonl` of verifiers. What they have beyond the schema is `info/...`.
    Raises UserError in one line."""
    endings = (".parquet", ".jsonl")
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in endings]
    prompts, drawn = dict[str, int](), Counter[tuple[int | None, int]]()
    for file in sorted(files, key=lambda file: (len(file.name), file)):
        for place, row in read_any(file):
            if isinstance(row, ItemError):
                raise model.UserError(f"{file}: {place}: {row.message}")
            verl = {"input", "output", "score"} <= row.keys()
            if not verl and not ({"prompt", "completion"} <= row.keys() and row.keys() & {"advantage", "reward"}):
                raise model.UserError(f"{file}: {place}: no rollout of TRL (prompt, completion, advantage), verl or verifiers")
            try:
                one = _checked(_of_verl(row) if verl else _of_messages(row))
            except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
                raise model.UserError(f"{file}: {place}: {' '.join(str(error).split())}") from None
            index = prompts.setdefault(one.prompt or "", len(prompts))
            yield replace(one, index=index, sample=drawn[one.step, index])
            drawn[one.step, index] += 1
    if not files:
        raise model.UserError(f"{path}: no {' and no '.join(endings)} in it")


def _checked(one: Trajectory) -> Trajectory:
    """With numbers as they are kept. Raises ValueError or OverflowError where what should be text or a number is none."""
    texts = (one.prompt, *(text for part in one.segments for text in (part.text, part.tool)))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("prompt and completion should be text, and names of tools too")
    "".join(text for text in (*texts, *one.more.values()) if isinstance(text, str)).encode()  # not with half of a character
    if not all(isinstance(number, int | float | None) for number in (one.step, one.reward, one.advantage)):
        raise ValueError("step, reward and advantage should be numbers")
    if isinstance(one.step, bool) or not abs(one.step or 0) < 2**31 or (one.step or 0) % 1:  # NaN is not below either
        raise ValueError("step should be a whole number below 2**31")
    if not isinstance(one.truncated, bool | None):
        raise ValueError("is_truncated should be true or false")
    reward, advantage = (None if number is None else float(number) for number in (one.reward, one.advantage))
    return replace(one, reward=reward, advantage=advantage)


def _of_verl(row: Mapping[str, Any]) -> Trajectory:
    score, more = float(row["score"]), _info(row, ("input", "output", "score", "step"))
    return Trajectory((Segment("action", row["output"], reward=score),), row["input"], row.get("step"), reward=score, more=more)


def _of_messages(row: Mapping[str, Any]) -> Trajectory:
    """Of TRL, or of verifiers. TRL writes no total: the columns of its reward functions, all floats, follow `completion`, then
    what these log with `log_extra`. The reward is their sum, which is right for TRL's default weights of 1."""
    asked, more = _chat_segments(row["prompt"], "context"), _info(row, ("prompt", "completion", "step", "reward", "advantage"))
    segments, reward = _chat_segments(row["completion"], "action"), row.get("reward")
    if "advantage" in row:
        behind = [*row][[*row].index("completion") + 1 :]
        paid = itertools.takewhile(lambda name: name != "advantage" and isinstance(row[name], float | None), behind)
        parts = {name: row[name] for name in paid if row[name] is not None}
        more = {f"reward/{name}" if (name := key.removeprefix("info/")) in parts else key: more[key] for key in more}
        reward = float(np.nansum(list(parts.values())))
    prompt = "\n".join(one.text for one in asked)
    known = {name: row.get(key) for name, key in (("step", "step"), ("advantage", "advantage"), ("truncated", "is_truncated"))}
    context = [] if isinstance(row["prompt"], str) else asked
    return Trajectory((*context, *segments), prompt, reward=reward, **known, more=more)


def _chat_segments(value: Any, alone: Kind) -> list[Segment]:
    """A text, or the messages of a chat: those of the assistant are actions, with their calls of tools."""
    if not isinstance(value, list):
        return [Segment(alone, value or "")]
    made: list[Segment] = []
    for message in value:
        if not isinstance(message, dict) or "role" not in message:
            raise ValueError("a message should be an object with role and content")
        content, calls = message.get("content") or "", message.get("tool_calls") or []
        text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
        calls = [json.loads(call) if isinstance(call, str) else call for call in calls]
        functions = [call.get("function") or call for call in calls]
        text = "\n".join([*([text] if text or not calls else []), *(f"{one['name']}({one['arguments']})" for one in functions)])
        own = message["role"] == "assistant" and alone == "action"
        tool = functions[0]["name"] if functions else message.get("name") or ""
        turn = sum(one.kind == "action" for one in made)
        made.append(
            Segment("action", text, turn, tool=tool) if own else Segment("observation", text, max(turn - 1, 0), tool=tool)
        )
    return made if alone == "action" else [one._replace(kind=alone, turn=0) for one in made]


def _info(row: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """What else a row has: numbers and texts."""
    more = {
        f"info/{name}": value for name, value in row.items() if name not in known and isinstance(value, bool | int | float | str)
    }
    return {name: value if isinstance(value, str) else float(value) for name, value in more.items()}
