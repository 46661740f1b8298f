"""The language-model trainer: pre-training, mid-training and SFT; the losses that others share: cross-entropy of a batch and on
held-out problems by band."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from interplay.core import execution, metrics, random
from interplay.core.digest import corpus_inputs
from interplay.core.model import UserError
from interplay.data import batches, corpus, sets, tokenizer
from interplay.kernels import exact
from interplay.model import attention, decoder, device, folder
from interplay.optim import distributed
from interplay.train import loop
from interplay.train.spec import PositionJumps, TrainSpec

# Randomised positions: jumps of the position ids, so that a model cannot infer the length of a trace from its positions.


def jumping_tokens(spec: PositionJumps, tokenizer: Tokenizer) -> np.ndarray:
    """Ids of the tokens that may come with a jump; characters without a token are skipped."""
    ids = [tokenizer.token_to_id(character) for character in spec.characters]
    return np.array([token for token in ids if token is not None], dtype=np.int64)


def draw_jumps(
    spec: PositionJumps, tokens: np.ndarray, jumping: np.ndarray, seed: int, step: int, steps: int
) -> np.ndarray | None:
    """Jumps of the positions at tokens (rows, T) in step 1..steps; None before `start` and without jumps.

    A function of seed and step, so that a resumed run draws the same jumps."""
    if not spec.probability or step <= spec.start * steps:
        return None
    stream = random.generator("jumps", seed, step)
    hit = np.isin(tokens, jumping) & (stream.random(tokens.shape) < spec.probability)
    return hit * stream.integers(1, spec.largest + 1, tokens.shape)


# The trainer of pre-training, mid-training and SFT, which differ in data, init and loss mask, all of them spec.
#
# A step trains on `batch_tokens` of rows (whole rows, in an order drawn from the seed) in micro-batches of `micro_batch_tokens`;
# its loss is the mean over all its tokens that bear loss, independent of micro-batches. Nothing is random after the init, so a
# resumed run needs only weights and optimiser state to end with the bytes of an uninterrupted run.


EVAL_LOSS = "eval_loss/"
"""Prefix of the metric of a band's held-out loss."""


class Setup(NamedTuple):
    """Constants of a run."""

    rows: corpus.PackedRows
    per_row: np.ndarray
    """(rows,) tokens of each row without padding."""
    rows_per_step: int
    rows_per_pass: int
    steps: int
    dtype: torch.dtype
    device: torch.device
    tokenizer: Path
    """The tokenizer's folder, copied into every model that is saved."""
    jumping: np.ndarray
    """Ids of the tokens at which positions may jump."""
    unit: int | None = None
    """With numerics: exact, rows of a step whose gradient is made by itself."""


def train_language_model(
    spec: TrainSpec, inputs: dict[str, Path], out: Path, how: execution.Run, run: loop.Runner = loop.run_training
) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, resuming from `out/resume` where there is one.

    Roles: see TrainSpec. Raises UserError where batch or checkpoints do not fit the corpus, PermanentError at the first loss or
    gradient that is not finite."""
    loop.seed_torch(how, spec.seed)
    setup = prepare(spec, inputs, how)
    model = device.place_decoder(initial_model(spec, inputs), how, spec.numerics, spec.blockwise)
    batches_of = batches.Prefetcher(partial(make_step, spec, setup), setup.steps, setup.device)
    job = training_job(spec, inputs, how, setup, model, lambda step: step_gradient(setup, model, batches_of(step)))
    return finish(job, setup, run(job, out, how), out)


def training_job(
    spec: TrainSpec,
    inputs: dict[str, Path],
    how: execution.Run,
    setup: Setup,
    model: decoder.Decoder,
    gradient: Callable[[int], dict[str, float]],
) -> loop.TrainingJob:
    """What the training loop needs; `gradient` is that of a step, see there."""
    width = setup.rows.tokens.shape[1]
    held_out = load_validation(inputs["validation"], setup.tokenizer, width) if "validation" in inputs else None

    def held_out_loss(of: Validation) -> dict[str, float]:
        losses = loss_by_band(model, of, how.micro_batch_tokens, setup.dtype, setup.device)
        return {f"{EVAL_LOSS}{band}": value for band, value in losses.items()}

    return loop.TrainingJob(
        spec,
        model,
        setup.steps,
        step_gradient=gradient,
        save=lambda path: folder.save_decoder(model, path, setup.tokenizer, spec.save_dtype),
        evaluate=partial(held_out_loss, held_out) if held_out else None,
        eval_every=spec.eval_every,
        setup=setup,
    )


def finish(job: loop.TrainingJob, setup: Setup, result: loop.TrainingResult, out: Path) -> dict[str, Any]:
    """Write `model/` and telemetry; the metrics of the record."""
    job.save(out / "model")
    loop.write_throughput(out, result, cast(decoder.Decoder, job.model), setup.dtype)
    rounded = {name.removeprefix(EVAL_LOSS): value for name, value in metrics.round_values(result.evaluated).items()}
    parameters = sum(p.numel() for p in job.model.parameters())
    return {"steps": setup.steps, "tokens": result.tokens, "parameters": parameters, "eval_loss": rounded}


def prepare(spec: TrainSpec, inputs: dict[str, Path], how: execution.Run) -> Setup:
    """Rows and steps. The last step is the first after which at least `tokens` tokens, padding excluded, were trained on. Raises
    UserError where batch or checkpoints do not fit the corpus."""
    rows = corpus.load_rows(corpus_inputs(inputs))
    width = rows.tokens.shape[1]
    if spec.batch_tokens % width:
        raise UserError(f"train: batch_tokens = {spec.batch_tokens}: must be a multiple of the corpus' sequence_length, {width}")
    per_row, rows_per_step = batches.tokens_per_row(rows), spec.batch_tokens // width
    steps = batches.steps_for(spec.tokens, per_row, rows_per_step, spec.seed)
    if outside := [step for step in spec.checkpoints if not 1 <= step <= steps]:
        raise UserError(f"train: checkpoints: {outside[0]} is not among the steps 1..{steps} of this run")
    source = inputs["tokenizer"] if spec.model else inputs["init"]
    per_pass = distributed.batch_limit(max(1, how.micro_batch_tokens // width), rows_per_step)
    unit = max(1, exact.BLOCK_ROWS // width) if spec.numerics == "exact" else None
    return Setup(
        rows=rows,
        per_row=per_row,
        rows_per_step=rows_per_step,
        rows_per_pass=per_pass if unit is None else -(-per_pass // unit) * unit,
        steps=steps,
        dtype=getattr(torch, spec.dtype),
        device=device.pick_device(how),
        tokenizer=tokenizer.tokenizer_folder(source),
        jumping=jumping_tokens(spec.position_jumps, tokenizer.load(source)),
        unit=unit,
    )


def initial_model(spec: TrainSpec, inputs: dict[str, Path]) -> decoder.Decoder:
    """A fresh model of the spec's shape, or the one of the `init` role."""
    if spec.model is None:
        return folder.load_decoder(inputs["init"] / "model", getattr(spec, "lora", None), spec.seed)
    return folder.init_decoder(spec.model, tokenizer.load(inputs["tokenizer"]).get_vocab_size(), spec.seed, spec.numerics)


class StepData(NamedTuple):
    """The data of a step."""

    rows: np.ndarray
    """(rows,) row numbers of the corpus, over all processes."""
    jumps: np.ndarray | None
    """(rows, T): jumps of the positions."""
    passes: list[batches.Batch]
    """Micro-batches of this process."""


def make_step(spec: TrainSpec, setup: Setup, step: int) -> StepData:
    """The data of step `step` of 1..steps."""
    return split_step(setup, *step_rows(spec, setup, step))


def step_rows(spec: TrainSpec, setup: Setup, step: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows (rows,) of step `step` of 1..steps, and the jumps of their positions (rows, T)."""
    per_step = setup.rows_per_step
    rows = batches.rows_between(len(setup.per_row), spec.seed, (step - 1) * per_step, step * per_step)
    return rows, draw_jumps(spec.position_jumps, setup.rows.tokens[rows], setup.jumping, spec.seed, step, setup.steps)


def split_step(setup: Setup, rows: np.ndarray, jumps: np.ndarray | None = None) -> StepData:
    """A step on these rows, split into micro-batches."""
    places = pass_slices(len(rows), setup.rows_per_pass)
    return StepData(rows, jumps, [_batch(setup, rows, jumps, some) for some in places])


def _batch(setup: Setup, rows: np.ndarray, jumps: np.ndarray | None, places: slice) -> batches.Batch:
    some, jumping, units = rows[places], None if jumps is None else jumps[places], None
    if setup.unit is not None:
        units = np.add.reduceat(setup.per_row[some], np.arange(0, len(some), setup.unit)).tolist()
    return batches.batch_of_rows(setup.rows, some, setup.device, jumping, units)


def step_gradient(setup: Setup, model: decoder.Decoder, step: StepData) -> dict[str, float]:
    """Accumulate the gradient of a step; its loss (nats per token) and tokens."""
    return {"loss": backward(model, setup, step), "tokens": int(setup.per_row[step.rows].sum())}


def backward(model: decoder.Decoder, setup: Setup, step: StepData) -> float:
    """Accumulate the gradient of the mean loss over all tokens of the step that bear loss; returns that loss."""

    def attempt(tokens: int) -> None:
        batch = _batch(setup, step.rows, step.jumps, slice(max(1, tokens // width)))
        token_losses(model, batch, setup.dtype).sum().backward()

    def one_pass(batch: batches.Batch) -> torch.Tensor:
        # A function, so that its graph is freed with its frame when memory does not suffice.
        losses = token_losses(model, batch, setup.dtype)
        if model.sums:
            losses.backward(torch.full_like(losses, 1.0 / count))
            return torch.tensor(exact.total(losses), dtype=torch.float64)
        mean = losses.sum() / count
        mean.backward()
        return mean.detach()

    width = setup.rows.tokens.shape[1]
    count = max(1, int(distributed.all_reduce_sum(torch.tensor(sum(len(batch.targets) for batch in step.passes)))))
    total = torch.zeros((), device=setup.device, dtype=torch.float64 if model.sums else torch.float32)
    with (
        distributed.accumulate_gradient(model),
        device.report_out_of_memory("micro_batch_tokens", setup.rows_per_pass * width, attempt),
    ):
        for batch in step.passes:
            total += one_pass(batch)
    return distributed.all_reduce_sum(total).item() / (count if model.sums else 1)


def pass_slices(rows: int, size: int) -> list[slice]:
    """The slices of the rows of a step that are the micro-batches of this process, of `size` rows each."""
    return [slice(start, min(start + size, rows)) for start in distributed.shard_round_robin(range(0, rows, size))]


def token_losses(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """Cross-entropy of each token of a batch that bears loss, (M,) float32, in nats. Of a stack (replicas, M), 0 where the batch
    is padded."""
    hidden = target_states(model, batch, dtype)
    if dtype == torch.int8:
        blocks = _blocks(batch)
        some = None if blocks is None else torch.searchsorted(batch.before, blocks)
        return -model.token_logps(hidden, batch.targets, dtype, blocks=some)
    if model.blockwise:
        return -model.token_logps(hidden, batch.targets, dtype)
    logits = model.logits(hidden, dtype)
    each = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=batches.IGNORED)
    return each.view(batch.targets.shape)


def target_logits(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """The logits (M, vocab) float32 from which the tokens of a batch that bear loss are predicted; of a stack (replicas, M,
    vocab)."""
    return model.logits(target_states(model, batch, dtype), dtype)


def target_states(model: decoder.Decoder, batch: batches.Batch, dtype: torch.dtype) -> Tensor:
    """The final hidden states (M, D) from which the tokens of a batch that bear loss are predicted; of a stack (replicas, M, D).

    Matrix products run over all tokens at once and attention per bucket; the last MLP and the logits are computed for tokens that
    bear loss only."""
    if model.by_rows:
        sizes = [count * length for count, length in batch.buckets]
        parts = zip(batch.ids.split(sizes), batch.positions.split(sizes), batch.buckets, strict=True)
        states = [model.hidden(ids.view(size), places.view(size), dtype=dtype).flatten(0, 1) for ids, places, size in parts]
        return torch.cat(states)[batch.before]
    weights = model.weights(dtype)
    over_runs = weights.over_runs()
    blocks = _blocks(batch)
    if over_runs is None or (over_runs is attention.blockwise_attention and batch.ids.is_cuda):  # fused kernels keep no scores
        attend = _attend_each(weights, batch.buckets)
    else:
        attend = attention.attend_buckets(over_runs, batch.buckets, blocks)
    rope = weights.rotary(model.shape, batch.positions, dtype)
    return decoder.forward(model.shape, weights, batch.ids, rope, attend, batch.before)


def _blocks(batch: batches.Batch) -> Tensor | None:
    return None if batch.units is None else exact.unit_blocks(batch.units)


def _attend_each(weights: decoder.Weights, sizes: list[tuple[int, int]]) -> attention.Attend:
    """Attention bucket by bucket, of all replicas of a stack together."""
    replicas = len(weights.embedding) if weights.embedding.ndim == 3 else 1
    buckets = [weights.attention((replicas * count, length)) for count, length in sizes]
    rows = [count * length for count, length in sizes]

    def attend(layer: int, qk: Tensor, v: Tensor) -> Tensor:
        parts = zip(buckets, qk.split(rows, -3), v.split(rows, -3), strict=True)
        return torch.cat([attend_bucket(layer, *part) for attend_bucket, *part in parts], -2)

    return attend


# Held-out problems.


class Validation(NamedTuple):
    """Held-out problems as tokens, sorted by length."""

    encoded: corpus.Encoded
    bands: list[str]
    band_of: np.ndarray
    """(problems,) int64: index into `bands`."""


def load_validation(data: Path, tokenizer_of: Path, width: int) -> Validation:
    """The problems of a set, encoded by the tokenizer of a folder; each turn of a transcript counts as one, as does each piece of
    `width` tokens of a document."""
    encoded, rows = corpus.encode_pieces(data, tokenizer_of, width)
    bands, band_of = np.unique(sets.read_table(data, ["band"])["band"].to_pylist(), return_inverse=True)
    band_of = band_of[rows]
    by_length = np.argsort(encoded.lengths, kind="stable")
    return Validation(corpus.select_problems(encoded, by_length), bands.tolist(), band_of[by_length])


@torch.no_grad()
def loss_by_band(
    model: decoder.Decoder, held_out: Validation, pass_tokens: int, dtype: torch.dtype, device: torch.device
) -> dict[str, float]:
    """Mean loss per solution token of each band, in nats, in passes of about `pass_tokens` tokens."""
    total, count = np.zeros(len(held_out.bands)), np.zeros(len(held_out.bands))
    pass_of = np.cumsum(held_out.encoded.lengths) // pass_tokens
    for number in distributed.shard_round_robin(np.unique(pass_of).tolist()):
        chosen = np.flatnonzero(pass_of == number)
        part = corpus.select_problems(held_out.encoded, chosen)
        first = np.maximum(part.prompts, 1)  # documents have no prompt, and nothing predicts their first token
        solution = corpus.index_ranges(np.zeros_like(part.lengths), part.lengths) >= np.repeat(first, part.lengths)
        batch = batches.batch_of_sequences(batches.Sequences(part.tokens, part.lengths, solution), device)
        losses = token_losses(model, batch, dtype).double().cpu().numpy()
        losses = np.rint(losses / exact.STEP) * exact.STEP if model.sums else losses
        bands = held_out.band_of[chosen][batch.sequence]
        total += np.bincount(bands, losses, len(total))
        count += np.bincount(bands, minlength=len(count))
    for sums in (total, count):
        distributed.all_reduce_sum(torch.from_numpy(sums))
    return {band: float(total[i] / count[i]) for i, band in enumerate(held_out.bands)}
