"""From samples to numbers: pass@k, scores, baselines, error classes, completions of several units; and the negative
log-likelihood of gold solutions; and the bands that pass rates by op fall into. P problems, n samples each."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from scipy.optimize import isotonic_regression

from interplay.core import artifact, execution, extension, metrics
from interplay.core.model import UserError, shorten_value
from interplay.data import corpus, sets, tokenizer
from interplay.evaluate.spec import BandRule, CalibrateSpec, EvaluateSpec
from interplay.model import device, heads
from interplay.model.decoder import Decoder
from interplay.optim import distributed
from interplay.report.metric_spec import BEHAVIOURS, COUNTED, OWN, UNITS
from interplay.rollout.request import Rollouts
from interplay.rollout.seat_spec import JUDGED
from interplay.tasks.families import judge_family
from interplay.tasks.verdict import Row, Verdict, count_behaviours, pass_at_k, split_units


class Samples(NamedTuple):
    """Judged samples, each array (P,n)."""

    strict: np.ndarray
    answer: np.ndarray
    score: np.ndarray
    """Of each, in [0, 1]."""
    truncated: np.ndarray
    length: np.ndarray
    error: np.ndarray
    """Error class of each, str."""


def powers_of_two(n: int) -> list[int]:
    """1, 2, 4, ... up to n."""
    return [1 << i for i in range(n.bit_length()) if 1 << i <= n]


def answer_prior(rows: Sequence[Row]) -> np.ndarray:
    """For each problem the probability (P,) that an answer drawn from the gold answers of the other problems of its op and mode
    is right: the score of a model that knows the distribution of answers only. 0 where there is no other problem."""
    count: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        count[row.op, row.mode][row.answer] += 1
    same = np.array([count[row.op, row.mode][row.answer] for row in rows])
    total = np.array([count[row.op, row.mode].total() for row in rows])
    return (same - 1) / np.maximum(total - 1, 1)


def trivial_scores(rows: Sequence[Row]) -> np.ndarray:
    """For each problem the score (P,) of its family's trivial policy, such as citing every document; NaN for families without
    one."""
    found = []
    for row in rows:
        family = judge_family(row.family)
        found.append(family.trivial_score(family.loads(row.graph)) if family.trivial_score else np.nan)
    return np.array(found, dtype=float)


def summarise(
    rows: Sequence[Row], samples: Samples, nll: np.ndarray | None = None, by_sample: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """The record's metrics: n_prompts, n_samples, and one `cell` for all problems (`all`) and for each band, op and mode; with
    `nll` (P,) of the gold solutions and values `by_sample`, each (P,n), each cell has their means too."""
    prior, trivial = answer_prior(rows), trivial_scores(rows)
    result: dict[str, Any] = {"n_prompts": len(rows), "n_samples": samples.strict.shape[1]}

    def summarise_cell(chosen: np.ndarray) -> dict[str, Any]:
        known = nll is not None and not np.isnan(nll[chosen]).any()
        likelihood = {"nll": metrics.round_significant(nll[chosen].mean())} if nll is not None and known else {}
        means = {name: metrics.round_significant(values[chosen].mean(dtype=float)) for name, values in (by_sample or {}).items()}
        return cell(samples, prior, trivial, chosen) | likelihood | means

    result["all"] = summarise_cell(np.ones(len(rows), dtype=bool))
    for axis in ("band", "op", "mode"):
        values = np.array([str(getattr(row, axis)) for row in rows])
        names = sorted(set(values), key=lambda name: (len(name), name) if axis == "op" else (0, name))
        result[axis] = {str(name): summarise_cell(values == name) for name in names}
    return result


def cell(samples: Samples, prior: np.ndarray, trivial: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    """Numbers over the `chosen` (P,) problems: strict_pass@k, answer_pass@k (unbiased, arXiv:2107.03374, eq. 1, mean over
    problems), prior_pass@k (k draws from the answer prior, whose scores `prior` (P,) has), mean score, baseline_score (of the
    trivial policies, `trivial` (P,), where all problems have one), shares of error classes, share truncated, mean length in
    tokens."""
    n = samples.strict.shape[1]
    values: dict[str, Any] = {"n": int(chosen.sum())}
    for k in powers_of_two(n):
        values[f"strict_pass@{k}"] = metrics.round_significant(pass_at_k(n, samples.strict[chosen].sum(1), k).mean())
        values[f"answer_pass@{k}"] = metrics.round_significant(pass_at_k(n, samples.answer[chosen].sum(1), k).mean())
        values[f"prior_pass@{k}"] = metrics.round_significant((1 - (1 - prior[chosen]) ** k).mean())
    values["score"] = metrics.round_significant(samples.score[chosen].mean(dtype=float))
    if not np.isnan(trivial[chosen]).any():
        values["baseline_score"] = metrics.round_significant(trivial[chosen].mean())
    errors = Counter(samples.error[chosen].ravel().tolist())
    values["errors"] = {name: metrics.round_significant(count / errors.total()) for name, count in sorted(errors.items())}
    values["truncated"] = metrics.round_significant(samples.truncated[chosen].mean())
    values["length"] = metrics.round_significant(samples.length[chosen].mean())
    return values


# Samples of several units, judged as if sampling had stopped after the first, the second, and so on (MinD, arXiv:2505.19788).
# Sampling is autoregressive, so the text before the end of a unit is the sample that stopping there would have given.


def judge_caps(table: pa.Table, rows: Sequence[Row], completions: Sequence[str], spec: EvaluateSpec) -> pa.Table:
    """The rows of `samples.parquet` with their number of units, and for each cap whether the last unit up to it is strictly
    right, and has the right answer; a sample with fewer units keeps its last one."""
    units = [split_units(text, spec.verify.separator) for text in completions]
    judged = [
        [sets.judge_completion(spec.verify, row, unit) for unit in each[: spec.unit_caps]]
        for row, each in zip(rows, units, strict=True)
    ]
    table = table.append_column(UNITS, pa.array([len(each) for each in units], pa.int32()))
    for cap in range(1, spec.unit_caps + 1):
        capped = [each[min(cap, len(each)) - 1] for each in judged]
        for column in ("strict", "answer"):
            right = [bool(getattr(verdict, column)) for verdict in capped]
            table = table.append_column(f"{column}_cap@{cap}", pa.array(right, pa.bool_()))
    return table


def judge_own(
    table: pa.Table, rows: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict], spec: EvaluateSpec
) -> pa.Table:
    """The rows of `samples.parquet` with what each metric of the user's own says of them, a column `own:NAME` for each. Raises
    UserError where one is no finite number."""
    for one in spec.metrics:
        function = extension.load(one)
        judged = zip(rows, completions, verdicts, strict=True)
        values = [_finite(one.function, extension.call_loaded(one, function, *sample)) for sample in judged]
        table = table.append_column(f"{OWN}{one.called}", pa.array(values, pa.float64()))
    return table


def _finite(function: str, made: Any) -> float:
    number = extension.finite_number(made)
    if number is None:
        raise UserError(f"{function}: must return a finite number for each sample, not {shorten_value(made)}")
    return number


def judge_behaviours(table: pa.Table, rows: Sequence[Row], completions: Sequence[str]) -> pa.Table:
    """The rows of `samples.parquet` with the number of each behaviour of BEHAVIOURS. Raises UserError at a problem whose family
    reads no statements."""
    counts = [count_behaviours(sets.statements_of(row, text)) for row, text in zip(rows, completions, strict=True)]
    for name in BEHAVIOURS:
        table = table.append_column(name, pa.array([one[name] for one in counts], pa.int32()))
    return table


def gold_labels(rows: Sequence[Row], quantity: int) -> np.ndarray:
    """For each problem a number (P,) for a value of its gold trace, that of the answer or so many values before it; equal for
    equal values. Raises UserError where a trace has fewer."""
    values = [[one.value for one in sets.statements_of(row, row.solution) if one.value is not None] for row in rows]
    if (short := next((at for at, each in enumerate(values) if len(each) <= quantity), None)) is not None:
        few = f"the gold trace of problem {rows[short].index} states {len(values[short])} values"
        raise UserError(f"evaluate: probe.quantity = {quantity}: {few}; write less")
    return np.unique([each[-1 - quantity] for each in values], return_inverse=True)[1]


# The best of K samples by a reward model, and how far the policy is from a reference.


REWARD, KL = "reward", "sequence_kl"


class Ranker(NamedTuple):
    """What samples are ranked with."""

    scorer: heads.Scorer
    reference: Decoder | None
    dtype: torch.dtype


def load_ranker(spec: EvaluateSpec, inputs: Mapping[str, Path], how: execution.Run) -> Ranker | None:
    """Of an evaluation by_reward; None of others. Raises UserError where one of the models has another tokenizer."""
    if spec.by_reward is None:
        return None
    at = device.pick_device(how)
    scorer = heads.load_scorer(inputs[REWARD], inputs["model"], at, how.micro_batch_tokens)
    if not spec.by_reward.reference:
        return Ranker(scorer, None, getattr(torch, spec.dtype))
    tokenizer.check_same(inputs["reference"], inputs["model"])
    base = heads.load_model(inputs["reference"], at)
    if isinstance(base, heads.Composed):
        raise UserError(
            "evaluate: by_reward.reference: a model and an assistant have no log-probabilities here; name another arm"
        )
    return Ranker(scorer, base, getattr(torch, spec.dtype))


def rank_samples(table: pa.Table, ranker: Ranker, prompts: list[list[int]], drawn: Rollouts) -> pa.Table:
    """The rows of `samples.parquet` with the reward of each, and with a reference log pi - log pi_ref of its tokens together,
    whose mean is an unbiased estimate of KL(pi || pi_ref) of whole completions, in nats (Schulman's k1)."""
    asked = [prompts[request] for request in drawn.request.tolist()]
    written = drawn.written()
    table = table.append_column(REWARD, pa.array(ranker.scorer.score(asked, written), pa.float32()))
    if ranker.reference is None:
        return table
    flat = np.array([token for prompt, text in zip(asked, written, strict=True) for token in (*prompt, *text)], np.int64)
    starts = np.array([len(prompt) for prompt in asked])
    given = corpus.Encoded(flat, starts + drawn.lengths.numpy(), starts)
    nll = np.zeros(len(asked))
    for some in _split_passes(np.argsort(given.lengths, kind="stable"), given.lengths, ranker.scorer.pass_tokens):
        nll[some] = _mean_nll(ranker.reference, corpus.select_problems(given, some), ranker.dtype)
    gap = drawn.logprobs.double().sum(1).numpy() + nll * drawn.lengths.numpy()
    return table.append_column(KL, pa.array(gap, pa.float32()))


def best_of_weights(rewards: np.ndarray, k: int) -> np.ndarray:
    """(P,n): n times the chance that a sample has the largest of the `rewards` (P,n) among k of the n that are drawn without
    replacement, C(rank - 1, k - 1) / C(n, k); of equal ones the first counts as the larger. The mean over samples of weight times
    value is then the unbiased estimate of the value of the best of k (WebGPT, arXiv:2112.09332, appendix I)."""
    n = rewards.shape[1]
    chances = np.array([math.comb(rank, k - 1) / math.comb(n, k) for rank in range(n)])
    order = np.argsort(-rewards, axis=1, kind="stable")[:, ::-1]
    found = np.empty(rewards.shape)
    np.put_along_axis(found, order, np.broadcast_to(n * chances, rewards.shape), axis=1)
    return found


def by_sample_arrays(table: pa.Table, num_samples: int) -> dict[str, np.ndarray]:
    """Metric -> (P,n) of the columns of `judge_caps`, `judge_own`, `judge_behaviours`, `rank_samples`, `judged_samples` and
    `count_turns`; empty without them."""
    known = re.compile(rf"{UNITS}|{KL}|turns|calls|{'|'.join(BEHAVIOURS)}|answer_turn@.+|.+_cap@.+|{OWN}.+|{JUDGED}.+")
    names = [name for name in table.column_names if known.fullmatch(name)]
    found = {name: table[name].to_numpy().reshape(-1, num_samples) for name in names}
    if REWARD in table.column_names:
        paid = {name: table[name].to_numpy().reshape(-1, num_samples).astype(float) for name in (REWARD, "strict", "answer")}
        for k in powers_of_two(num_samples):
            weight = best_of_weights(paid[REWARD], k)
            found |= {f"{name}_best@{k}": weight * values for name, values in paid.items()}
    return found


def count_by_prompt(
    table: pa.Table, samples: Samples, nll: np.ndarray | None, errors: bool, by_sample: Mapping[str, np.ndarray]
) -> pa.Table:
    """`prompts.parquet`, the source of tables: per prompt the number of samples, of strictly right ones, and of right answers,
    and the sum of their scores. Options of the spec add `nll` (P,) of the gold solution, counts `error_CLASS` of each class of
    `errors`, sorted by name, and the sums over samples of the metrics `by_sample`, each (P,n)."""
    count = samples.strict.shape[1]
    first = table.select(["index", "band", "op", "mode"]).take(np.arange(0, len(table), count))
    columns = {"n": np.full(len(first), count), "strict": samples.strict.sum(axis=1), "answer": samples.answer.sum(axis=1)}
    columns["score"] = samples.score.sum(axis=1, dtype=float)
    if nll is not None:
        columns["nll"] = nll
    for name in sorted(set(samples.error.ravel().tolist())) if errors else ():
        columns[f"{COUNTED}{name}"] = (samples.error == name).sum(axis=1)
    for name, values in by_sample.items():
        columns[name] = values.sum(axis=1, dtype=float if values.dtype.kind == "f" else np.int64)
    for name, values in columns.items():
        first = first.append_column(name, pa.array(values))
    return first


def sample_arrays(table: pa.Table, num_samples: int) -> Samples:
    """The columns of `samples.parquet` as (P,n)."""

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy().reshape(-1, num_samples)

    return Samples(*(column(name) for name in Samples._fields))


# Negative log-likelihood of gold solutions, without sampling.


def nll_of_set(spec: EvaluateSpec, model: Path, data: Path, how: execution.Run) -> np.ndarray:
    """For each problem of a set, in its order, the mean negative log-likelihood per token (P,) float64 of its gold solution after
    its prompt, in nats. The end of sequence counts as a token of a finished solution, as in training. NaN for a problem whose
    solution has no token. Equal in every process of the stage. Raises PermanentError where a pass does not fit into memory."""
    decoder = heads.load_model(model, device.pick_device(how))
    if spec.numerics == "exact" and not isinstance(decoder, heads.Composed):
        device.exact_decoder(decoder)
    encoded = corpus.encode_problems(data, model)
    if len(encoded.lengths) != sets.read_table(data, ["index"]).num_rows:
        raise UserError(
            f"evaluate: nll = True: the solutions of {data} are transcripts, which have no single likelihood; write false"
        )
    return nll_by_problem(decoder, encoded, how.micro_batch_tokens, getattr(torch, spec.dtype))


def nll_by_problem(
    decoder: Decoder | heads.Composed, problems: corpus.Encoded, pass_tokens: int, dtype: torch.dtype
) -> np.ndarray:
    """The same for encoded problems, in passes of at most about `pass_tokens` tokens with padding. Batches have problems of
    similar length, so that the result is a function of the problems and `pass_tokens`."""
    found = np.zeros(len(problems.lengths))
    order = np.argsort(problems.lengths, kind="stable")

    def attempt(tokens: int) -> None:
        _mean_nll(decoder, corpus.select_problems(problems, _split_passes(order, problems.lengths, tokens)[-1]), dtype)

    with device.report_out_of_memory("micro_batch_tokens", pass_tokens, attempt):
        for chosen in distributed.shard_round_robin(_split_passes(order, problems.lengths, pass_tokens)):
            found[chosen] = _mean_nll(decoder, corpus.select_problems(problems, chosen), dtype)
    return distributed.all_reduce_sum(torch.from_numpy(found)).numpy()


def _split_passes(order: np.ndarray, lengths: np.ndarray, pass_tokens: int) -> list[np.ndarray]:
    """The problems of `order` (P,), shortest first, in consecutive passes of at most `pass_tokens` tokens with padding."""
    passes: list[list[int]] = [[]]
    for problem in order.tolist():
        if passes[-1] and (len(passes[-1]) + 1) * int(lengths[problem]) > pass_tokens:
            passes.append([])
        passes[-1].append(problem)
    return [np.array(one) for one in passes if one]


@torch.inference_mode()
def _mean_nll(decoder: Decoder | heads.Composed, problems: corpus.Encoded, dtype: torch.dtype) -> np.ndarray:
    """The mean NLL (B,) of each of B problems, padded on the right, which causal attention does not see."""
    count, width = len(problems.lengths), int(problems.lengths.max())
    rows = np.repeat(np.arange(count), problems.lengths)
    columns = corpus.index_ranges(np.zeros_like(problems.lengths), problems.lengths)
    ids = np.zeros((count, width), np.int64)
    ids[rows, columns] = problems.tokens
    # After an empty prompt the first token is not predicted and does not count.
    scored = columns >= np.maximum(problems.prompts, 1)[rows]
    row, column = rows[scored], columns[scored]
    parts = [decoder.base, decoder.assistant] if isinstance(decoder, heads.Composed) else [decoder]
    at = parts[0].head().device
    positions = torch.arange(width, device=at)[None]
    targets = torch.from_numpy(ids[row, column]).to(at)
    hidden = [part.hidden(torch.from_numpy(ids).to(at), positions, dtype=dtype)[row, column - 1] for part in parts]
    if isinstance(decoder, Decoder) and decoder.sums:
        losses = -decoder.token_logps(hidden[0], targets, dtype)
    else:
        logits = [part.logits(states) for part, states in zip(parts, hidden, strict=True)]
        combined = decoder.logits(*logits) if isinstance(decoder, heads.Composed) else logits[0]
        losses = F.cross_entropy(combined, targets, reduction="none")
    sums, tokens = np.bincount(row, losses.double().cpu().numpy(), count), np.bincount(row, minlength=count)
    return np.divide(sums, tokens, out=np.full(count, np.nan), where=tokens > 0)


# The `calibrate` stage: the ops that each band has for one model.


def calibrate_bands(spec: CalibrateSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `bands.json`, the ops of each band. Metrics: `band_metrics`."""
    found = band_metrics(spec, inputs)
    artifact.write_json(out / "bands.json", found["bands"])
    return found


def band_metrics(spec: CalibrateSpec, inputs: Mapping[str, Path]) -> dict[str, Any]:
    """The ops of each of the `bands`, those that are `lacking` an op of their own, and by `op` the number of prompts and the pass
    rates that the rules read, as measured; the blocks of an evaluation count as one."""
    blocks = [path for role, path in inputs.items() if role.startswith("samples.")]
    tables = [pq.read_table(block / "prompts.parquet", columns=["op", "n", "strict", "answer"]) for block in blocks]
    of = tables[0]["op"].to_numpy()
    counts = {key: sum(one[key].to_numpy() for one in tables) for key in ("n", "strict", "answer")}
    names = list(dict.fromkeys(name for rule in spec.bands.values() for name in rule))
    rates = {op: _rates({key: of_key[of == op] for key, of_key in counts.items()}, names) for op in np.unique(of).tolist()}
    bands, lacking = choose_bands(spec.bands, rates)
    by_op = {str(op): {"n": int((of == op).sum()), **found} for op, found in rates.items()}
    return {"bands": bands, "lacking": lacking, "op": by_op}


def _rates(counts: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, float]:
    """The mean of each pass rate over prompts with these counts, each (P,)."""
    pairs = ((name, name.split("_pass@")) for name in names)
    return {name: metrics.round_significant(pass_at_k(counts["n"], counts[what], int(k)).mean()) for name, (what, k) in pairs}


def choose_bands(
    rules: Mapping[str, BandRule], rates: Mapping[int, Mapping[str, float]]
) -> tuple[dict[str, list[int]], list[str]]:
    """The ops of each band by pass rates (op -> name -> rate), and the bands without an op, for which the nearest is taken."""
    ops = sorted(rates)
    measured = {name: [rates[op][name] for op in ops] for rule in rules.values() for name in rule}
    smooth = {name: dict(zip(ops, isotonic_regression(of, increasing=False).x, strict=True)) for name, of in measured.items()}

    def misses(rule: BandRule, op: int) -> float:
        return sum(max(low - smooth[name][op], smooth[name][op] - high, 0.0) for name, (low, high) in rule.items())

    bands = {band: [op for op in ops if misses(rule, op) == 0] for band, rule in rules.items()}
    lacking = [band for band, own in bands.items() if not own]
    return {band: own or [min(ops, key=lambda op: misses(rules[band], op))] for band, own in bands.items()}, lacking
