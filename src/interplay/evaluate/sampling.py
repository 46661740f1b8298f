"""The stages `evaluate` and `select`: samples of models, and the best of kept checkpoints by them.

Evaluation: n samples per problem, each judged, in shards that a killed evaluation does not repeat and that processes share. Noise
is keyed by problem and sample, and a shard is whole engine batches, so the bytes do not depend on the number of processes."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from interplay.core import artifact, execution, metrics
from interplay.core.model import UserError, nearest_name
from interplay.data import harness, sets, tokenizer as text, trajectory
from interplay.data.steps.turns import open_library
from interplay.data.trajectory import Segment
from interplay.evaluate import scores
from interplay.evaluate.spec import ENTROPY, EvaluateSpec, SampledSpec, SelectSpec
from interplay.kernels import exact
from interplay.model import device, heads
from interplay.optim import distributed
from interplay.rollout import engine, seat_spec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.judge import judged_samples, open_judge
from interplay.rollout.request import Request, Rollouts, Sampling, unpadded
from interplay.rollout.spec import CompletionEpisode
from interplay.rollout.turns import Played, Setting, of_policy
from interplay.tasks import verdict
from interplay.tasks.transcripts import UNANSWERED

SHARD_BATCHES = 4
"""Engine batches of samples per shard, about, in whole problems: enough to keep the rows of the engine filled, and few enough
seconds to lose."""


def evaluate_replicas(replicas: Sequence[execution.Replica], how: execution.Run) -> Iterator[tuple[int, engine.Outcome]]:
    """Evaluate the replicas, each with the shards that it lacks. Gives (number, outcome) of each when it ends: its files are
    written by then. Raises StoppedError after a signal."""
    return engine.run_replicas(evaluate_model, replicas, how)


def evaluate_model(
    spec: EvaluateSpec, inputs: dict[str, Path], out: Path, how: execution.Run, stack: engine.Coroutine | None = None
) -> dict[str, Any]:
    """Write `samples.parquet` (one row per sample, problems in their order) and `prompts.parquet`; return the metrics of
    `scores.summarise`, on the first process only.

    Roles: `model`, `data`. Finished shards in `out/resume/shards` are kept. `stack`: what it is as a replica. Raises StoppedError
    where a signal ends the stage before the last shard."""
    torch.set_num_threads(how.threads)
    pool, kept = sets.load_pool([inputs["data"]]), out / "resume" / "shards"
    if spec.harness:
        if not execution.is_first_rank():
            return {}
        at, batch = str(device.pick_device(how)), max(1, how.micro_batch_tokens // harness.ASSUMED_LENGTH)
        asked = harness.Asking(inputs["model"] / "model", spec.dtype, at, batch, spec.max_completion_length)
        found = harness.answer_table(spec.harness, inputs["data"], pool.rows, asked, COLUMNS)
        return _write(spec, pool.rows, found, None, out, ({}, {}))
    sample = partial(_sample, spec, inputs, pool, kept, out=out, how=how, stack=stack)
    distributed.complete_shards(kept, len(pool.rows), shard_size(spec.num_samples, how.engine_batch), sample)
    gold = scores.nll_of_set(spec, inputs["model"], inputs["data"], how) if spec.nll else None
    if not execution.is_first_rank():
        return {}
    layers: heads.Layers = {}, {}
    if spec.probe:
        given = [row.prompt for row in pool.rows], scores.gold_labels(pool.rows, spec.probe.quantity)
        placed = device.pick_device(how), how.micro_batch_tokens
        layers = heads.probe_layers(inputs["model"], inputs.get("compared"), *given, *placed)
    return _write(spec, pool.rows, distributed.read_shards(kept), gold, out, layers)


def _write(
    spec: EvaluateSpec, rows: Sequence[verdict.Row], table: pa.Table, gold: np.ndarray | None, out: Path, layers: heads.Layers
) -> dict[str, Any]:
    """The files and the metrics of an evaluation."""
    samples = scores.sample_arrays(table, spec.num_samples)
    pq.write_table(table, out / "samples.parquet", compression="zstd")
    by_sample = scores.by_sample_arrays(table, spec.num_samples)
    prompts = scores.count_by_prompt(table, samples, gold, spec.errors, by_sample)
    for name, values in layers[0].items():
        prompts = prompts.append_column(name, pa.array(values))
    pq.write_table(prompts, out / "prompts.parquet", compression="zstd")
    turns = spec.episode.max_turns if spec.episode else 1
    found = layers[1] | scores.summarise(rows, samples, gold, by_sample) | trajectory.answers_by_turn(table, turns)
    return found | trajectory.results_by_seat(table)


def _sample(
    spec: EvaluateSpec,
    inputs: dict[str, Path],
    pool: sets.Pool,
    kept: Path,
    missing: list[range],
    out: Path,
    how: execution.Run,
    stack: engine.Coroutine | None,
) -> None:
    """Sample and judge this process's part of the missing shards (ids of problems), and write them to a folder; a signal ends
    that early. Collective."""
    tokenizer, sampler, sampling = open_model(spec, inputs["model"], how, stack)
    others: dict[str, engine.Engine] = {}
    setting = Setting(
        engine=sampler,
        sampling=sampling,
        encode=partial(text.encode_texts, tokenizer),
        decode=tokenizer.decode_batch,
        verify=partial(sets.judge_completion, spec.verify),
        problem=sets.problem_of,
        reply=partial(text.chat_reply, text.tokenizer_folder(inputs["model"])),
        others=others,
        library=open_library(inputs, tokenizer),
    )
    for role in sorted(role for role in inputs if role.startswith(seat_spec.SEAT)):
        text.check_same(inputs[role], inputs["model"])
        others[role] = open_model(spec, inputs[role], how)[1]
    ranker = scores.load_ranker(spec, inputs, how)
    judge = open_judge(spec.judges(), inputs, how.judge, out, lambda folder: open_model(spec, folder, how)[1])

    def draw(ids: list[int]) -> tuple[pa.Table, int]:
        rows = [pool.rows[i] for i in ids]
        prompts = text.encode_turns(tokenizer, [row.prompt for row in rows], text.special(inputs["model"]).eos)
        keys = [sets.noise_key(row) for row in rows]
        requests = [Request(p, k, spec.first_sample, spec.num_samples) for p, k in zip(prompts, keys, strict=True)]
        played = play_episodes(spec.episode or CompletionEpisode(), setting._replace(rows=rows), requests)
        if played.turns is None:
            table = completion_rows(spec, pool, ids, played.rollouts, tokenizer)
            if ranker:
                table = scores.rank_samples(table, ranker, prompts, played.rollouts)
        else:
            table = episode_rows(spec, pool, ids, of_policy(played))
        wanted = [(row.index, spec.first_sample + i) for row in rows for i in range(spec.num_samples)]
        if [*zip(table["index"].to_pylist(), table["sample"].to_pylist(), strict=True)] != wanted:
            raise UserError(
                "evaluate: episode: must give one row that counts for each sample, in the order of what was asked for"
            )
        if judge:
            place = {pool.rows[i].index: pool.rows[i] for i in ids}
            asked = [place[index] for index in table["index"].to_pylist()]
            table = judged_samples(table, spec.judged, judge, asked, table["completion"].to_pylist())
        return table, int(played.rollouts.lengths.sum())

    with engine.closing(*others.values(), *([judge] if judge else ())):
        sample_shards(draw, sampler, kept, missing, out, stack)


def open_model(
    spec: SampledSpec, model: Path, how: execution.Run, stack: engine.Coroutine | None = None
) -> tuple[text.Tokenizer, engine.Engine, Sampling]:
    """A model's tokenizer, the engine that samples from it, and how."""
    tokenizer, special = text.load(model), text.special(model)
    whole, dtype = heads.load_model(model, device.pick_device(how)), getattr(torch, spec.dtype)
    if spec.numerics == "exact":
        if isinstance(whole, heads.Composed):
            raise UserError("evaluate: numerics = exact: does not cover a model and an assistant; write numerics: fast")
        device.exact_decoder(whole)
    sampling = Sampling(
        temperature=spec.temperature,
        top_p=spec.top_p,
        top_k=spec.top_k,
        max_completion_length=spec.max_completion_length,
        seed=spec.seed,
        eos=special.eos,
        pad=special.pad,
    )
    return tokenizer, engine.engine(spec.engine, whole, how, dtype, model / "model", stack), sampling


def sample_shards(
    draw: Callable[[list[int]], tuple[pa.Table, int]],
    sampler: engine.Engine,
    kept: Path,
    missing: list[range],
    out: Path,
    stack: engine.Coroutine | None = None,
) -> None:
    """Write this process's part of the missing shards (ids of problems) to a folder; a signal ends that early. `draw`: ids -> the
    samples, and the tokens sampled. Collective."""
    before = len(distributed.finished_shards(kept))
    distributed.barrier()  # every process lists the missing shards before any is written
    clock = stack.clock if stack else time.monotonic
    total, tokens, started = before + len(missing), 0, clock()
    progress, tally = metrics.Progress(total, "shards", before), ProgressScore(kept)
    with engine.closing(sampler), execution.defer_signals():
        for shard in distributed.shard_round_robin(missing):
            table, drawn = draw(list(shard))
            if stack:
                artifact.mark_stacked(out)
            distributed.write_shard(kept, shard, table)
            tokens += drawn
            rate = tokens * execution.world_size() / (clock() - started)
            progress.update(len(distributed.finished_shards(kept)), strict=tally.strict(), tok_per_s=rate)
            stops = (execution.stop_requested(), False)
            if any(stack.agree(stops) if stack else stops):
                break
        total_tokens = distributed.all_reduce_values(tokens)[0]
    metrics.telemetry(out, completion_tokens_per_second=total_tokens / (clock() - started))


# Samples as rows of `samples.parquet`: completion, verdict, and in episodes of several turns the answer after each turn.


COLUMNS = trajectory.schema_of(
    ["index", "sample", "band", "op", "mode", "strict", "answer", "score", "error", "length", "truncated", "completion"]
)
NATS = "nats"
"""Further column with `entropy: true`: negative log-probability of the tokens of the sample, end token included, float32 nats."""


def completion_rows(
    spec: EvaluateSpec, pool: sets.Pool, ids: list[int], rollouts: Rollouts, tokenizer: text.Tokenizer
) -> pa.Table:
    """Rows of `samples.parquet` for the rollouts of the problems `ids`, by problem and then by sample."""
    rows = [pool.rows[ids[request]] for request in rollouts.request.tolist()]
    written = rollouts.written()
    completions = tokenizer.decode_batch(written)
    verdicts = sets.judge_completions(rows, completions, spec.verify)
    table = scores.judge_own(judged_rows(rows, rollouts, verdicts, completions), rows, completions, verdicts, spec)
    if spec.behaviours:
        table = scores.judge_behaviours(table, rows, completions)
    if spec.unit_caps:
        table = scores.judge_caps(table, rows, completions, spec)
    if spec.entropy:
        logps = exact.functions(spec.numerics).summed(rollouts.logprobs.double(), 1)
        table = table.append_column(NATS, pa.array((-logps).tolist(), pa.float32()))
    if spec.keep_tokens:
        kept = zip(completions, verdicts, written, unpadded(rollouts.logprobs, rollouts.lengths), strict=True)
        each = [[Segment("action", c, answer=bool(v.answer), tokens=t, logprobs=p)] for c, v, t, p in kept]
        table = trajectory.with_segments(table, each, True)
    return table


def episode_rows(spec: EvaluateSpec, pool: sets.Pool, ids: list[int], played: Played) -> pa.Table:
    """The same for episodes of several turns: one row per episode, with its segments and the verdict of its last turn."""
    made, turns, segments = played.rollouts, played.turns or [], played.segments or []
    whole = [i for i in range(len(turns)) if played.excluded is None or not played.excluded[i]]
    request, sample = made.request[whole].tolist(), made.sample[whole].tolist()
    verdicts = [turns[i][-1].verdict or UNANSWERED for i in whole]
    own = (made.lengths if played.observed is None else made.lengths - played.observed.sum(1)).tolist()
    written: Counter[tuple[int, int]] = Counter()
    for *episode, tokens in zip(made.request.tolist(), made.sample.tolist(), own, strict=True):
        written[tuple(episode)] += tokens
    lengths = torch.tensor([written[pair] for pair in zip(request, sample, strict=True)])
    kept = made._replace(sample=made.sample[whole], truncated=made.truncated[whole], lengths=lengths)
    texts = [trajectory.joined_text(segments[i]) for i in whole]
    rows = [pool.rows[ids[i]] for i in request]
    table = scores.judge_own(judged_rows(rows, kept, verdicts, texts), rows, texts, verdicts, spec)
    if played.seats is not None:
        names = [played.seat_names[seat] for seat in played.seats[whole].tolist()]
        table = table.append_column(trajectory.SEAT, pa.array(names, pa.string()))
    table = trajectory.with_segments(table, [segments[i] for i in whole], spec.keep_tokens)
    return trajectory.count_turns(table, spec.episode.max_turns) if spec.turns and spec.episode else table


def judged_rows(
    rows: Sequence[verdict.Row], rollouts: Rollouts, verdicts: Sequence[verdict.Verdict], completions: Sequence[str]
) -> pa.Table:
    """The columns COLUMNS of samples, each with its problem's row and its verdict."""
    columns = {
        **{name: [getattr(row, name) for row in rows] for name in ("index", "band", "op", "mode")},
        "sample": rollouts.sample.tolist(),
        **{name: [getattr(one, name) for one in verdicts] for name in ("strict", "answer", "score", "error")},
        "length": rollouts.lengths.tolist(),
        "truncated": rollouts.truncated.tolist(),
        "completion": completions,
    }
    return pa.table(columns, schema=COLUMNS)


# Shards of an evaluation: consecutive problems whose samples are drawn and judged together (`optim.distributed`).


def shard_size(num_samples: int, engine_batch: int) -> int:
    """Problems of a shard: whole engine batches of samples."""
    return max(1, engine_batch // num_samples) * SHARD_BATCHES


class ProgressScore:
    """The share of right samples over all shards of a folder, of all attempts and processes; each shard is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: dict[range, tuple[int, int]] = {}
        """Right samples of a shard, and all of them."""

    def strict(self) -> float:
        """The share of strictly right samples so far; NaN where there is none."""
        for shard in distributed.finished_shards(self.folder):
            if shard not in self.read:
                column = pq.read_table(distributed.shard_file(self.folder, shard), columns=["strict"])["strict"]
                self.read[shard] = pc.sum(column).as_py() or 0, len(column)
        right, samples = (sum(counts) for counts in zip((0, 0), *self.read.values(), strict=True))
        return right / samples if samples else math.nan


# The `select` stage: the best of the kept checkpoints of a stage, as a model.


def select_checkpoint(spec: SelectSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `choice.json` (every candidate's value and the chosen one) and `model/`, a copy. Roles: see SelectSpec.

    Raises UserError where no candidate has a value."""
    trained = inputs["init"]
    last = int(artifact.record(trained)["metrics"]["steps"])
    steps = [*spec.candidates, last]
    by_samples = "evaluation.0.0" in inputs
    values = values_by_samples(spec, inputs, len(steps)) if by_samples else values_by_metrics(spec, trained, steps)
    chosen = best_candidate(values, spec.mode, spec.target)
    if chosen is None:
        raise UserError(f"select: by = {spec.by!r}: no candidate of {trained} has a value that is a number")
    model = trained / "model" if chosen == len(spec.candidates) else artifact.at_step(trained, steps[chosen]) / "model"
    (out / "model").mkdir(parents=True, exist_ok=True)
    for file in sorted(model.iterdir()):
        artifact.copy_atomic(file, out / "model" / file.name)
    rows = [{"step": step, "value": _finite(value)} for step, value in zip(steps, values, strict=True)]
    artifact.write_json(out / "choice.json", {"by": spec.by, "mode": spec.mode, "chosen": rows[chosen], "candidates": rows})
    return {**rows[chosen], "candidates": len(rows)}


def best_candidate(values: list[float], mode: str, target: float | None = None) -> int | None:
    """Index of the smallest value, the largest, or the one nearest to `target`, the first of equals; None where all are NaN.
    Infinite losses count as numbers."""
    rank = {"min": lambda value: value, "max": lambda value: -value, "nearest": lambda value: abs(value - (target or 0.0))}[mode]
    numbers = [(rank(value), place) for place, value in enumerate(values) if not math.isnan(value)]
    return min(numbers)[1] if numbers else None


def values_by_metrics(spec: SelectSpec, trained: Path, steps: list[int]) -> list[float]:
    """The value of the key in metrics.jsonl at each step; NaN where a step has none. Raises UserError when no line has the
    key."""
    lines = [line for line in metrics.read(trained) if spec.by in line]
    if not lines:
        known = sorted({key for line in metrics.read(trained) for key in line} - {"step"})
        raise UserError(f"select: by = {spec.by!r}: {trained / 'metrics.jsonl'} has no such key{nearest_name(spec.by, known)}")
    found = {line["step"]: float(line[spec.by]) for line in lines}
    return [found.get(step, math.nan) for step in steps]


def values_by_samples(spec: SelectSpec, inputs: dict[str, Path], candidates: int) -> list[float]:
    """Mean pass rate of each candidate over the problems of the band, or the entropy of its samples; the blocks of an evaluation
    count as one."""
    values = []
    for number in range(candidates):
        blocks = [path for role, path in sorted(inputs.items()) if role.startswith(f"evaluation.{number}.")]
        values.append(_entropy(spec, blocks) if spec.by == ENTROPY else _pass_rate(spec, blocks))
    return values


def _entropy(spec: SelectSpec, blocks: list[Path]) -> float:
    """Nats per token of the samples."""
    samples = _band_samples(spec, blocks, [NATS, "length"])
    nats = pc.sum(samples[NATS].cast(pa.float64())).as_py()
    return metrics.round_significant(nats / pc.sum(samples["length"]).as_py())


def _pass_rate(spec: SelectSpec, blocks: list[Path]) -> float:
    column, k = spec.by.split("_pass@")
    samples = _band_samples(spec, blocks, ["index", column]).group_by("index")
    counts = samples.aggregate([(column, "count"), (column, "sum")])
    pairs = zip(counts[f"{column}_count"].to_pylist(), counts[f"{column}_sum"].to_pylist(), strict=True)
    return metrics.round_significant(fmean(verdict.pass_at_k(n, passes, int(k)) for n, passes in pairs))


def _band_samples(spec: SelectSpec, blocks: list[Path], columns: list[str]) -> pa.Table:
    """These columns of the samples of the spec's band. Raises UserError where it has none."""
    samples = pa.concat_tables(pq.read_table(block / "samples.parquet", columns=["band", *columns]) for block in blocks)
    counted = samples.filter(pc.equal(samples["band"], spec.band)) if spec.band else samples
    if not len(counted):
        bands = sorted(set(samples["band"].to_pylist()))
        raise UserError(f"select: band = {spec.band!r}: the evaluation has no problem of it{nearest_name(str(spec.band), bands)}")
    return counted


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
