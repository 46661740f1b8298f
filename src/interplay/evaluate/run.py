"""Run a model over a problem set: n samples per problem, each judged, in shards that a killed evaluation does not do again and
that several processes deal out among themselves. Noise is keyed by what a sample is, and a shard is whole engine batches: so the
bytes are the same, however many processes there are."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from interplay.core import execution, stop
from interplay.core.execution import Run
from interplay.core.metrics import Progress, telemetry
from interplay.data import sets
from interplay.data import tokenizer as text
from interplay.evaluate import nll, passk
from interplay.evaluate import samples as evaluate_samples
from interplay.evaluate.passk import Samples, summarise
from interplay.evaluate.samples import by_turn, judge, judged
from interplay.evaluate.spec import EvaluateSpec
from interplay.model.device import pick_device
from interplay.model.heads import load_model
from interplay.optim import distributed
from interplay.report.metric_spec import COUNTED
from interplay.rollout.engine import closing, engine
from interplay.rollout.episodes import play_episodes
from interplay.rollout.play import Setting
from interplay.rollout.request import Request, Sampling
from interplay.rollout.spec import CompletionEpisode

SHARD_BATCHES = 4
"""A shard holds whole problems with about so many engine batches of samples: enough for the engine to keep its rows filled, few
enough seconds to lose."""


def run(spec: EvaluateSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `samples.parquet` (one row per sample, problems in their order) and `prompts.parquet`; return the metrics of
    `passk.summarise`.

    Roles: `model`, `data`. Finished shards in `out/resume/shards` are kept."""
    torch.set_num_threads(how.threads)
    pool, kept = sets.load_pool([inputs["data"]]), out / "resume" / "shards"
    size = max(1, how.engine_batch // spec.num_samples) * SHARD_BATCHES
    if missing := evaluate_samples.remaining_shards(kept, len(pool.rows), size):
        _sample(spec, inputs["model"], pool, kept, missing, out, how)
        _stop_short(
            len(evaluate_samples.remaining_shards(kept, len(pool.rows), size)), len(evaluate_samples.finished_shards(kept))
        )
    gold = nll.of_set(spec, inputs["model"], inputs["data"], how) if spec.nll else None
    if not execution.is_first_rank():
        return {}
    table = evaluate_samples.read_shards(kept)
    samples = arrays(table, spec.num_samples)
    pq.write_table(table, out / "samples.parquet", compression="zstd")
    prompts = per_prompt(table, samples)
    if gold is not None:
        prompts = prompts.append_column("nll", pa.array(gold, pa.float64()))
    if spec.errors:
        prompts = with_errors(prompts, samples)
    stopped = passk.of_samples(table, spec.num_samples)
    prompts = passk.count_caps(prompts, stopped)
    pq.write_table(prompts, out / "prompts.parquet", compression="zstd")
    return summarise(pool.rows, samples, gold, stopped) | by_turn(table, spec.episode.max_turns if spec.episode else 1)


def per_prompt(table: pa.Table, samples: Samples) -> pa.Table:
    """`prompts.parquet`: one row per prompt with its samples counted, strictly right, and with the right answer, and the sum of
    their scores. What tables are made from, without the completions. Where the spec asks, it also has `nll`, of the gold
    solution, `error_CLASS` for each class of errors that occurred, the samples of it, and of samples of several units what
    `units.counted` adds."""
    count = samples.strict.shape[1]
    first = table.select(["index", "band", "op", "mode"]).take(np.arange(0, len(table), count))
    counts = {"n": np.full(len(first), count), "strict": samples.strict.sum(axis=1), "answer": samples.answer.sum(axis=1)}
    for name, values in counts.items():
        first = first.append_column(name, pa.array(values, pa.int64()))
    return first.append_column("score", pa.array(samples.score.sum(axis=1, dtype=float), pa.float64()))


def with_errors(prompts: pa.Table, samples: Samples) -> pa.Table:
    """The prompts with a column of counts for each class of errors of the samples, by name."""
    for name in sorted(set(samples.error.ravel().tolist())):
        prompts = prompts.append_column(f"{COUNTED}{name}", pa.array((samples.error == name).sum(axis=1), pa.int64()))
    return prompts


def arrays(table: pa.Table, num_samples: int) -> Samples:
    """The columns of `samples.parquet` as (P,n)."""

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy().reshape(-1, num_samples)

    return Samples(*(column(name) for name in Samples._fields))


def _sample(spec: EvaluateSpec, model: Path, pool: sets.Pool, kept: Path, missing: list[range], out: Path, how: Run) -> None:
    """Sample and judge the missing shards (ids of problems), those that fall to this process, and keep them in a folder; a signal
    ends that early. Returns once every process is there."""
    tokenizer, special = text.load(model), text.special(model)
    sampler = engine(spec.engine, load_model(model, pick_device(how)), how, getattr(torch, spec.dtype), model / "model")
    sampling = Sampling(
        temperature=spec.temperature,
        top_p=spec.top_p,
        top_k=spec.top_k,
        max_completion_length=spec.max_completion_length,
        seed=spec.seed,
        eos=special.eos,
        pad=special.pad,
    )
    setting = Setting(
        engine=sampler,
        sampling=sampling,
        encode=partial(text.encode_texts, tokenizer),
        decode=tokenizer.decode_batch,
        verify=partial(sets.judge_completion, spec.verify),
        problem=sets.problem_of,
    )
    before = len(evaluate_samples.finished_shards(kept))
    distributed.barrier()  # all have seen what is missing before the first makes any of it
    total, tokens, started = before + len(missing), 0, time.monotonic()
    progress, tally = Progress(total, "shards", before), evaluate_samples.Tally(kept)
    with closing(sampler), stop.defer_signals():
        for shard in distributed.shard_round_robin(missing):
            ids = list(shard)
            rows = [pool.rows[i] for i in ids]
            prompts = text.encode_texts(tokenizer, [row.prompt for row in rows])
            keys = [sets.noise_key(row) for row in rows]
            asked = [Request(p, k, spec.first_sample, spec.num_samples) for p, k in zip(prompts, keys, strict=True)]
            played = play_episodes(spec.episode or CompletionEpisode(), setting._replace(rows=rows), asked)
            table = judge(spec, pool, ids, played.rollouts, tokenizer) if played.turns is None else judged(pool, ids, played)
            evaluate_samples.write_shard(kept, shard, table)
            tokens += int(played.rollouts.lengths.sum())
            rate = tokens * execution.world_size() / (time.monotonic() - started)
            progress.update(len(evaluate_samples.finished_shards(kept)), strict=tally.strict(), tok_per_s=rate)
            if stop.stop_requested():
                break
        made = distributed.all_reduce_values(tokens)[0]
    telemetry(out, completion_tokens_per_second=made / (time.monotonic() - started))


def _stop_short(missing: int, finished: int) -> None:
    """Raises StoppedError where a signal left shards to be made later."""
    if missing:
        raise stop.StoppedError(f"stopped at shard {finished} of {finished + missing}")
