"""Results that contradict each other, found by computing one from the other, without training or sampling: verdicts from
completions, counts and scores from verdicts, a record's numbers from its curves, listed states from the states."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from interplay.core import artifact, metrics
from interplay.data import sets, trajectory
from interplay.evaluate import generate, sampling, scores
from interplay.evaluate.generate_spec import GenerateSpec
from interplay.evaluate.spec import CalibrateSpec, EvaluateSpec, SelectSpec
from interplay.kinds import stages, table
from interplay.optim import distributed
from interplay.results import state
from interplay.rl import records
from interplay.rl.spec import RLSpec
from interplay.tasks.verdict import Row, Verdict
from interplay.train.spec import TrainSpec

LONGEST = 120
"""Characters of a value that is shown."""
NOT_COMPUTED = "nll"
"""Of a prompt, by the model: taken as it is."""


def contradictions(out: Path, inputs: Mapping[str, Path]) -> Iterator[str]:
    """What in a finished stage does not follow from its other files, one finding for each pair of them. `inputs`: folders by
    role. What is not here is not checked."""
    record = artifact.record(out)
    spec = table.KINDS[record["kind"]].spec
    own = [check for cls, check in CHECKS.items() if issubclass(spec, cls)]
    sets_too = [_keys] if table.makes(record["kind"]) == "problems" else []
    for check in (_states, *own, *sets_too):
        try:
            yield from check(out, record, inputs)
        except Exception as error:  # altered files may break any reader
            yield not_checked(out, error)


def not_checked(out: Path, error: Exception) -> str:
    """A line on a stage that cannot be read as what it is."""
    return f"{out}: cannot be checked ({' '.join([type(error).__name__, *str(error).splitlines()[:1]])})"


def _states(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """Kept training states by their listed checksums."""
    for one in distributed.listed_segments(out):
        folder = out / distributed.SEGMENTS / str(one["step"])
        if folder.exists() and (found := distributed.state_checksum(folder)) != one["sha256"]:
            yield f"{folder}: sha256 {found[:12]}, but {distributed.SEGMENTS}.json lists {one['sha256'][:12]}"


def _numbers(out: Path, record: dict[str, Any], found: Any, source: str) -> Iterator[str]:
    """Metrics of a record against what they are computed from, in a JSON round trip."""
    changed = stages.leaf_differences(record["metrics"], json.loads(json.dumps(found)))
    for key, (recorded, computed) in list(changed.items())[:1]:
        yield f"{out / 'record.json'}: {key} is {recorded!r}, by {source} {computed!r}"


def _columns(path: Path, known: pa.Table, computed: Mapping[str, Any], source: str) -> Iterator[str]:
    """The first row of each column that is not what it is computed to be."""
    for name, values in computed.items():
        before = known[name].to_pylist() if name in known.column_names else []
        now = pa.array(values, known.schema.field(name).type).to_pylist() if before else list(values)
        row = next((n for n, pair in enumerate(zip(before, now, strict=False)) if repr(pair[0]) != repr(pair[1])), None)
        if row is not None:
            yield f"{path}: row {row}, column {name} is {before[row]!r}, by {source} {now[row]!r}"
        elif len(before) != len(now):
            yield f"{path}: column {name} has {len(before)} rows, by {source} {len(now)}"


def _verdict_columns(verdicts: list[Verdict]) -> dict[str, list[Any]]:
    """As they are recorded."""
    return {
        "strict": [bool(one.strict) for one in verdicts],
        "answer": [bool(one.answer) for one in verdicts],
        "score": [float(one.score) for one in verdicts],
        "error": [one.error for one in verdicts],
    }


# -- evaluations -------------------------------------------------------------------------------------------------------


def _evaluation(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """Problems -> samples -> verdicts -> counts per prompt -> metrics."""
    if not ((out / "samples.parquet").exists() and (inputs["data"] / "problems.parquet").exists()):
        return
    spec, pool = EvaluateSpec.model_validate(record["spec"]), sets.load_pool([inputs["data"]])
    samples, prompts = pq.read_table(out / "samples.parquet"), pq.read_table(out / "prompts.parquet")
    rows = [row for row in pool.rows for _ in range(spec.num_samples)]
    yield from _columns(out / "samples.parquet", samples, _asked(rows, spec), "the problem set")
    if len(samples) != len(rows):
        return
    yield from _judged_again(out, samples, rows, spec)
    arrays, by_sample = scores.sample_arrays(samples, spec.num_samples), scores.by_sample_arrays(samples, spec.num_samples)
    if spec.turns and spec.episode:
        counted = trajectory.count_turns(samples.select([trajectory.SEGMENTS]), spec.episode.max_turns)
        yield from _columns(out / "samples.parquet", samples, counted.drop([trajectory.SEGMENTS]).to_pydict(), "its segments")
    nll = prompts[NOT_COMPUTED].to_numpy() if NOT_COMPUTED in prompts.column_names else None
    summed = scores.count_by_prompt(samples, arrays, nll, spec.errors, by_sample)
    yield from _columns(out / "prompts.parquet", prompts, summed.to_pydict(), "samples")
    found = scores.summarise(pool.rows, arrays, nll, by_sample)
    found |= {key: known for key, known in record["metrics"].items() if key == "layers"}  # of the model, not of samples
    found |= trajectory.answers_by_turn(samples, spec.episode.max_turns if spec.episode else 1)
    found |= trajectory.results_by_seat(samples)
    yield from _numbers(out, record, found, "samples")


def _asked(rows: list[Row], spec: EvaluateSpec) -> dict[str, list[Any]]:
    """What is listed next to each sample of its problem."""
    numbers = range(spec.first_sample, spec.first_sample + spec.num_samples)
    found = {name: [getattr(row, name) for row in rows] for name in ("index", "band", "op", "mode")}
    return {**found, "sample": [*numbers] * (len(rows) // max(1, spec.num_samples))}


def _judged_again(out: Path, samples: pa.Table, rows: list[Row], spec: EvaluateSpec) -> Iterator[str]:
    """Completions by the verifier, and what else is a function of them."""
    texts = None if spec.harness else _judged_texts(samples, spec.episode.name if spec.episode else "completion")
    if texts is None:
        return
    completions, verdicts = samples["completion"].to_pylist(), sets.judge_completions(rows, texts, spec.verify)
    again = samples.select(sampling.COLUMNS.names)
    again = scores.judge_behaviours(again, rows, completions) if spec.behaviours else again
    again = scores.judge_caps(again, rows, completions, spec) if spec.unit_caps else again
    again = scores.judge_own(again, rows, completions, verdicts, spec)
    further = {name: again[name].to_pylist() for name in again.column_names[len(sampling.COLUMNS.names) :]}
    yield from _columns(out / "samples.parquet", samples, _verdict_columns(verdicts) | further, "its completion")


def _judged_texts(kept: pa.Table, episode: str) -> list[str] | None:
    """What the verdict of each row is about: its completion, the last of several tries, or the transcript of an environment; None
    of a game, or of an episode of the user's own."""
    if episode == "completion":
        return list(kept["completion"].to_pylist())
    if episode not in ("retry", "environment") or trajectory.SEGMENTS not in kept.column_names:
        return None
    each = [trajectory.segments_of({trajectory.SEGMENTS: row}) for row in kept[trajectory.SEGMENTS].to_pylist()]
    return [row[-1].text if episode == "retry" else trajectory.transcript_of(row, calls=True) for row in each]


# -- training ----------------------------------------------------------------------------------------------------------


def _curves(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """The record of a language model's trainer by its last line and by its weights."""
    lines, known = metrics.read(out), record["metrics"]
    if not lines:
        return
    merged: dict[str, Any] = {}
    for line in lines:
        merged |= line
    held_out = {name: merged[key] for name in known["eval_loss"] if (key := f"eval_loss/{name}") in merged}
    found = {**known, "steps": merged["step"], "tokens": int(merged["tokens"]), "eval_loss": held_out}
    yield from _numbers(out, record, found, "metrics.jsonl")
    if weights := sorted((out / "model").glob("*.safetensors")):
        yield from _numbers(out, record, {**known, "parameters": sum(map(state.count_weights, weights))}, "model/")


def _policy(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """The record of an RL run by its lines, its lines by the history of prompts, and kept rollouts by the verifier."""
    lines = metrics.read(out)
    if lines:
        yield from _numbers(out, record, records.summarise_run(lines), "metrics.jsonl")
    if (out / "history.parquet").exists():
        passes: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for row in pq.read_table(out / "history.parquet").to_pylist():
            passes[row["step"]] = [passes[row["step"]][0] + row["passes"], passes[row["step"]][1] + row["n"]]
        for line in lines:
            right, of = passes[line["step"]]
            if of and metrics.round_significant(right / of) != line["strict"]:
                yield f"{out / 'metrics.jsonl'}: step {line['step']}, strict is {line['strict']}, by history.parquet {right}/{of}"
                break
    if (out / "rollouts.parquet").exists():
        yield from _rollouts(out, RLSpec.model_validate(record["spec"]), inputs)


def _rollouts(out: Path, spec: RLSpec, inputs: Mapping[str, Path]) -> Iterator[str]:
    kept = pq.read_table(out / "rollouts.parquet")
    folders = [inputs[f"data.{n}"] for n in range(len(spec.mix))]
    texts = _judged_texts(kept, spec.method.episode.name)
    if texts is None or not all((folder / "problems.parquet").exists() for folder in folders):
        return
    place = {(row.set, row.index): row for row in sets.load_pool(folders).rows}
    rows = [place[pair] for pair in zip(kept["set"].to_pylist(), kept["index"].to_pylist(), strict=True)]
    verdicts = sets.judge_completions(rows, texts, spec.verify())
    yield from _columns(out / "rollouts.parquet", kept, _verdict_columns(verdicts), "its completion")
    if (out / distributed.SEGMENTS).exists():
        yield from _kept_steps(out, kept)


def _kept_steps(out: Path, kept: pa.Table) -> Iterator[str]:
    """Rollouts next to the last kept state."""
    last = max((int(path.name) for path in (out / distributed.SEGMENTS).iterdir()), default=0)
    files = [artifact.read_json(path) for path in (out / distributed.SEGMENTS / str(last) / "steps").glob("*.json")]
    rows = sorted((row for file in files for row in file["rollouts"]), key=lambda row: row["step"])
    first = kept.slice(0, len(rows))
    yield from _columns(out / "rollouts.parquet", first, {"completion": [row["completion"] for row in rows]}, f"segments/{last}")


def _choice(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """A selection's record by its list of candidates, and its model by the one that it was copied from."""
    choice = artifact.read_json(out / "choice.json")
    found = {**choice["chosen"], "candidates": len(choice["candidates"])}
    yield from _numbers(out, record, found, "choice.json")
    files, step = artifact.record(inputs["init"])["files"], choice["chosen"]["step"]
    kept = f"checkpoints/{step}/model/"
    prefix = kept if any(name.startswith(kept) for name in files) else "model/"
    for name, (_, sha256) in record["files"].items():
        if name.startswith("model/") and files.get(prefix + name.removeprefix("model/"), ["", sha256])[1] != sha256:
            yield f"{out / name}: not the file of step {step} that {inputs['init'] / 'record.json'} lists"


def _calibration(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """The bands of a base by its pass rates on the held-out prompts."""
    if all((path / "prompts.parquet").exists() for path in inputs.values()):
        found = scores.band_metrics(CalibrateSpec.model_validate(record["spec"]), inputs)
        yield from _numbers(out, record, found, "the samples of its base")
        if artifact.read_json(out / "bands.json") != found["bands"]:
            yield f"{out / 'bands.json'}: not the bands that the samples of its base give"


def _written(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """Completions -> verdicts -> items -> the rows that a model wrote."""
    if not ((out / "samples.parquet").exists() and (inputs["data.0"] / "problems.parquet").exists()):
        return
    spec, pool = GenerateSpec.model_validate(record["spec"]), sets.load_pool([inputs["data.0"]]).rows
    samples, by_index = pq.read_table(out / "samples.parquet"), {row.index: row for row in pool}
    rows = [by_index[index] for index in samples["index"].to_pylist()]
    verdicts = sets.judge_completions(rows, samples["completion"].to_pylist(), spec.verify)
    yield from _columns(out / "samples.parquet", samples, _verdict_columns(verdicts), "the verifier")
    _, made, found = generate.rows_of_samples(spec, pool, samples)
    yield from _columns(out / "problems.parquet", sets.read_table(out), sets.table_of_rows(made).to_pydict(), "samples.parquet")
    yield from _numbers(out, record, found, "samples.parquet")


def _keys(out: Path, record: dict[str, Any], inputs: Mapping[str, Path]) -> Iterator[str]:
    """The light part of a problem set, and its numbers, by its problems."""
    if (out / "problems.parquet").exists():
        keys = pq.read_table(out / "keys.parquet")
        problems = sets.read_table(out, keys.column_names)
        yield from _columns(out / "keys.parquet", keys, problems.to_pydict(), "problems.parquet")
        ops = Counter(problems["op"].to_pylist())
        by_op = {"ops": {str(op): n for op, n in sorted(ops.items())}} if "ops" in record["metrics"] else {}
        yield from _numbers(out, record, {**record["metrics"], "size": len(problems), **by_op}, "problems.parquet")


CHECKS: dict[type[Any], Callable[[Path, dict[str, Any], Mapping[str, Path]], Iterator[str]]] = {
    CalibrateSpec: _calibration,
    EvaluateSpec: _evaluation,
    GenerateSpec: _written,
    RLSpec: _policy,
    SelectSpec: _choice,
    TrainSpec: _curves,
}
"""By the class of a stage's spec."""


# -- the first difference of two files ---------------------------------------------------------------------------------


def first_difference(known: Path, made: Path) -> str:
    """Where two files of one name first differ, and both values, as `tensor lm_head.weight [3, 7]: 0.25 -> 0.5`; empty where
    their bytes are equal."""
    if not (known.exists() and made.exists()):
        return "" if known.exists() == made.exists() else "only there" if known.exists() else "only in what was made again"
    if artifact.checksum(known) == artifact.checksum(made):
        return ""
    readers = {".safetensors": _tensor_difference, ".parquet": _row_difference, ".json": _leaf_difference}
    readers[".jsonl"] = lambda *files: line_difference(*(metrics.read(path.parent) for path in files))
    try:
        where = readers[known.suffix](known, made) if known.suffix in readers else ""
    except Exception as error:  # of a file that is damaged, in any reader
        where = f"not readable ({type(error).__name__})"
    return where or _byte_difference(known.read_bytes(), made.read_bytes())


def _tensor_difference(known: Path, made: Path) -> str:
    one, other = load_file(known), load_file(made)
    if names := sorted(one.keys() ^ other.keys()):
        return f"tensor {names[0]}: only {'there' if names[0] in one else 'in what was made again'}"
    for name, tensor in sorted(one.items()):
        again = other[name]
        if (tensor.dtype, tensor.shape) != (again.dtype, again.shape):
            return f"tensor {name}: {tensor.dtype} {list(tensor.shape)} -> {again.dtype} {list(again.shape)}"
        size = tensor.element_size()
        unlike = [one.reshape(-1).contiguous().view(torch.uint8).view(-1, size) for one in (tensor, again)]
        places = (unlike[0] != unlike[1]).any(1).nonzero()[:, 0]
        if len(places):
            at = int(places[0])
            index = [int(i) for i in torch.unravel_index(places[0], tensor.shape)]
            values = f"{tensor.reshape(-1)[at].item()!r} -> {again.reshape(-1)[at].item()!r}"
            return f"tensor {name} {index}: {values} ({len(places)} of {tensor.numel()} values differ)"
    return ""


def _row_difference(known: Path, made: Path) -> str:
    one, other = pq.read_table(known), pq.read_table(made)
    if one.column_names != other.column_names or len(one) != len(other):
        return f"{len(one)} rows of {len(one.column_names)} columns -> {len(other)} of {len(other.column_names)}"
    found = []
    for name in one.column_names:
        pairs = zip(one[name].to_pylist(), other[name].to_pylist(), strict=True)
        row, values = next(((row, pair) for row, pair in enumerate(pairs) if repr(pair[0]) != repr(pair[1])), (len(one), None))
        if values:
            found.append((row, name, values))
    return next((f"row {row}, column {name}: {_both(pair)}" for row, name, pair in sorted(found, key=lambda one: one[0])), "")


def _leaf_difference(known: Path, made: Path) -> str:
    changed = stages.leaf_differences(artifact.read_json(known), artifact.read_json(made))
    return next((f"{key}: {_both(pair)}" for key, pair in changed.items()), "")


def line_difference(known: Sequence[Mapping[str, float]], made: Sequence[Mapping[str, float]]) -> str:
    """The first difference of lines of metrics."""
    for one, other in zip(known, made, strict=False):
        for key, pair in stages.leaf_differences(one, other).items():
            return f"step {one['step']}, {key}: {_both(pair)}"
    return "" if len(known) == len(made) else f"{len(known)} lines -> {len(made)}"


def _both(pair: tuple[Any, Any]) -> str:
    """Two values, every digit of a number included."""
    return " -> ".join(repr(value) if isinstance(value, float) else str(value)[:LONGEST] for value in pair)


def _byte_difference(known: bytes, made: bytes) -> str:
    at = next((n for n, pair in enumerate(zip(known, made, strict=False)) if pair[0] != pair[1]), min(len(known), len(made)))
    before, now = ([f"{part[0]:#04x}"] if part else ["the end"] for part in (known[at : at + 1], made[at : at + 1]))
    return f"byte {at}: {before[0]} -> {now[0]}"
