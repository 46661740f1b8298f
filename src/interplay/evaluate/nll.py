"""How likely a model finds the gold solutions, without sampling: the mean negative log-likelihood per token."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import corpus, sets
from interplay.data.corpus import Encoded
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import device
from interplay.model.decoder import Decoder
from interplay.model.device import pick_device
from interplay.model.heads import Composed, load_model
from interplay.optim import distributed


def of_set(spec: EvaluateSpec, model: Path, data: Path, how: Run) -> np.ndarray:
    """For each problem of a set, in its order, the mean negative log-likelihood per token (P,) float64 of its gold solution after
    its prompt, in nats. The end of sequence counts as a token of a finished solution, as in training. NaN for a problem whose
    solution has no token. The same in every process of the stage. Raises PermanentError where a pass does not fit into memory."""
    decoder = load_model(model, pick_device(how))
    encoded = corpus.encode_problems(data, model)
    if len(encoded.lengths) != sets.read_table(data, ["index"]).num_rows:
        raise UserError(
            f"evaluate: nll = True: the solutions of {data} are transcripts, which have no one likelihood; write false"
        )
    return per_problem(decoder, encoded, how.micro_batch_tokens, getattr(torch, spec.dtype))


def per_problem(decoder: Decoder | Composed, problems: Encoded, pass_tokens: int, dtype: torch.dtype) -> np.ndarray:
    """The same of encoded problems; at most about `pass_tokens` tokens, padding included, go through the model at a time. Batches
    hold problems of similar length, so that the result depends on the problems and on `pass_tokens` alone."""
    found = np.zeros(len(problems.lengths))
    order = np.argsort(problems.lengths, kind="stable")

    def attempt(tokens: int) -> None:
        _means(decoder, corpus.select_problems(problems, _passes(order, problems.lengths, tokens)[-1]), dtype)

    with device.report_out_of_memory("micro_batch_tokens", pass_tokens, attempt):
        for chosen in distributed.shard_round_robin(_passes(order, problems.lengths, pass_tokens)):
            found[chosen] = _means(decoder, corpus.select_problems(problems, chosen), dtype)
    return distributed.all_reduce_sum(torch.from_numpy(found)).numpy()


def _passes(order: np.ndarray, lengths: np.ndarray, pass_tokens: int) -> list[np.ndarray]:
    """The problems of `order` (P,), shortest first, in runs whose number times whose longest stays within `pass_tokens`."""
    runs: list[list[int]] = [[]]
    for problem in order.tolist():
        if runs[-1] and (len(runs[-1]) + 1) * int(lengths[problem]) > pass_tokens:
            runs.append([])
        runs[-1].append(problem)
    return [np.array(run) for run in runs if run]


@torch.inference_mode()
def _means(decoder: Decoder | Composed, problems: Encoded, dtype: torch.dtype) -> np.ndarray:
    """The mean (B,) of each of B problems, padded at their ends, where no token that counts can see."""
    count, width = len(problems.lengths), int(problems.lengths.max())
    rows, columns = (
        np.repeat(np.arange(count), problems.lengths),
        corpus.index_ranges(np.zeros_like(problems.lengths), problems.lengths),
    )
    ids = np.zeros((count, width), np.int64)
    ids[rows, columns] = problems.tokens
    # What an empty prompt leaves unpredicted, the first token, counts for nothing.
    scored = columns >= np.maximum(problems.prompts, 1)[rows]
    row, column = rows[scored], columns[scored]
    parts = [decoder.base, decoder.assistant] if isinstance(decoder, Composed) else [decoder]
    at = parts[0].head().device
    positions = torch.arange(width, device=at)[None]
    hidden = [part.hidden(torch.from_numpy(ids).to(at), positions, dtype=dtype)[row, column - 1] for part in parts]
    logits = [part.logits(states) for part, states in zip(parts, hidden, strict=True)]
    targets = torch.from_numpy(ids[row, column]).to(at)
    whole_logits = decoder.logits(*logits) if isinstance(decoder, Composed) else logits[0]
    losses = F.cross_entropy(whole_logits, targets, reduction="none").double().cpu().numpy()
    sums, tokens = np.bincount(row, losses, count), np.bincount(row, minlength=count)
    return np.divide(sums, tokens, out=np.full(count, np.nan), where=tokens > 0)
