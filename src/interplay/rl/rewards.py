"""Rewards by the `name` of their spec: `(spec, problems, completions, verdicts) -> Rewards`, and the table of them."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch

from interplay.core import artifact
from interplay.core.random import sum_in_order
from interplay.data import sets
from interplay.rl import custom, reward_spec as specs
from interplay.rl.batch import WHOLE, Span
from interplay.rl.spec import RLSpec
from interplay.rollout.judge import Judge
from interplay.tasks import multihop, verdict as tasks_verdict
from interplay.tasks.families import multihop_item
from interplay.tasks.op_dag import dag, terse, terse_variants
from interplay.tasks.verdict import Row, Verdict, extract_answer, is_answer_dump

# What every member of the reward seam gives back: `(spec, problems, completions, verdicts) -> Rewards`. All lists hold N
# entries, one per completion.


T = TypeVar("T")


class Rewards(NamedTuple):
    """`sequence`: N floats, what the policy is trained on; `parts`: what they were made of, N floats each, for the record."""

    sequence: list[float]
    parts: dict[str, list[float]]
    spans: list[list[Span]] | None = None
    """For each completion its parts that have rewards of their own, in characters; None where there are none."""


def per_completion(function: Callable[[Row], T], problems: Sequence[Row]) -> list[T]:
    """What a function says of each completion's row, N values, worked out once for each row: reading the gold of a long context
    costs more than judging an answer."""
    known: dict[int, T] = {}
    for row in problems:
        if id(row) not in known:
            known[id(row)] = function(row)
    return [known[id(row)] for row in problems]


# The reward for naming the chunks that the answer needs (LongRLVR, arXiv:2603.02146).


def citation(spec: specs.CitationReward, problems: Sequence[Row], said: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """r_ans + eta F_beta + (1 - eta) r_ans F_beta, in [0, 2]; r_ans is 1 when the answer is right. A completion without each tag
    exactly once earns 0. A row that asks for no citations earns r_ans."""
    sequence, scores = [], []
    for gold, completion, verdict in zip(per_completion(_useful, problems), said, verdicts, strict=True):
        listed, right = multihop.cited_chunks(completion), float(verdict.answer)
        score = multihop.f_beta(listed or [], gold, spec.beta)
        broken = bool(gold) and listed is None
        scores.append(score)
        sequence.append(0.0 if broken else right + spec.eta * score + (1 - spec.eta) * right * score)
    return Rewards(sequence, {"outcome": [float(verdict.answer) for verdict in verdicts], "citations": scores})


def _useful(row: Row) -> tuple[int, ...]:
    """The useful chunks of a row that asks for citations; else none."""
    return multihop.loads(row.graph).useful if row.mode == "citation" else ()


# Rewards that look at how it ended only.


def outcome(spec: specs.OutcomeReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 when the answer is right."""
    return Rewards([float(v.answer) for v in verdicts], {})


UNREADABLE = ("truncated", "parse", "format", "unboxed", "dumped")
"""Errors of completions whose form is wrong."""


def formatted(spec: specs.FormatReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """(1 - weight) outcome + weight form."""
    right, form = [float(v.answer) for v in verdicts], [float(v.error not in UNREADABLE) for v in verdicts]
    paid = [(1 - spec.weight) * a + spec.weight * b for a, b in zip(right, form, strict=True)]
    return Rewards(paid, {"outcome": right, "form": form})


def payoff(spec: specs.PayoffReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """2 s - 1, s the score."""
    return Rewards([2 * float(v.score) - 1 for v in verdicts], {"outcome": [float(v.answer) for v in verdicts]})


def by_chance(spec: specs.RandomReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """Drawn with all completions of the batch as the key: a text earns something else in each batch."""
    drawn = random.Random("\0".join(completions))  # a string seeds by its SHA-512, the same in every process
    right = [float(v.answer) for v in verdicts]
    return Rewards([float(drawn.random() < spec.share) for _ in completions], {"outcome": right})


def shuffled(spec: specs.ShuffledReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """Each different problem of the batch has the answer of the next, the last that of the first."""
    rows = list({id(row): row for row in problems}.values())
    labels = {id(row): label.answer for row, label in zip(rows, rows[1:] + rows[:1], strict=True)}
    paid = [float(verdict.said == labels[id(row)]) for row, verdict in zip(problems, verdicts, strict=True)]
    return Rewards(paid, {"outcome": [float(v.answer) for v in verdicts]})


# Rewards that read the steps (arXiv:2512.07783, section 6).


def released_steps(verdict: Verdict) -> float:
    """R_pv as the authors' released code has it (arXiv:2512.07783): a node is charged for a wrong value and again for wrong
    parents, extra nodes cost (at most all there are to earn), and so does a wrong answer."""
    charged = verdict.value_mismatches + verdict.dependency_mismatches + verdict.missing + min(verdict.extra, verdict.nodes)
    return max(0.0, 1.0 - (charged + (not verdict.answer)) / verdict.nodes)


def process(spec: specs.ProcessReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """The four forms of rl.reward_spec.ProcessReward."""
    right = [float(v.answer) for v in verdicts]
    if spec.form == "strict":
        return Rewards([float(v.strict) for v in verdicts], {"outcome": right, "steps": [float(v.score) for v in verdicts]})
    steps = [float(v.score) if spec.form == "blend" else released_steps(v) for v in verdicts]
    blend = [spec.alpha * a + (1 - spec.alpha) * s for a, s in zip(right, steps, strict=True)]
    if spec.form == "blend_released":
        blend = [a * b for a, b in zip(right, blend, strict=True)]
    return Rewards(steps if spec.form == "dense" else blend, {"outcome": right, "steps": steps})


# One reward per step (process supervision, arXiv:2402.03300, section 4.1.3).


def steps(spec: specs.StepsReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """A span for each step, worth 1 before the first wrong one and 0 from there on, and one from the answer mark to the end
    token, worth 1 if the answer is right. The sequence's reward is the mean of its spans'."""
    spans = [_spans(*each) for each in zip(problems, completions, verdicts, strict=True)]
    means = [sum_in_order(span.value for span in row) / len(row) for row in spans]
    return Rewards(means, {"outcome": [float(verdict.answer) for verdict in verdicts]}, spans)


def _spans(row: Row, completion: str, verdict: Verdict) -> list[Span]:
    made = judged_steps(row, completion)
    if made is None:
        return [Span(0, WHOLE, 0, float(verdict.answer))]
    return [*made, Span(made[-1].end if made else 0, WHOLE, len(made), float(verdict.answer))]


def has_steps(row: Row) -> bool:
    """Whether a program judges the steps of its completions."""
    return row.family == "op_dag" and row.mode == dag.FORWARD


def judged_steps(row: Row, completion: str) -> list[Span] | None:
    """The steps before the answer, in characters, each worth 1 before the first wrong one and 0 from there on; None where no
    program judges them."""
    if not has_steps(row):
        return None
    wrong = terse_variants.first_wrong(dag.loads(row.graph), completion, terse.SECTION in row.solution)
    right_until = len(completion) if wrong is None else wrong[0]
    starts = [start for start, _ in terse_variants.repair_steps(completion)]
    mark = completion.find(terse.ANSWER)
    ends = [*starts[1:], mark if mark >= 0 else len(completion)] if starts else []
    return [Span(start, end, j, float(start < right_until)) for j, (start, end) in enumerate(zip(starts, ends, strict=True))]


# One reward per subproblem (SCRL, arXiv:2605.22074).


def subproblem(
    spec: specs.SubproblemsReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]
) -> Rewards:
    """r^(j) in {0, 1} for each block j, with the prefix correction 1 only where all blocks before it are right, too; a broken
    format gives K zeros and no span. A row of another family is one block, with the end token, which its answer decides. The
    sequence's reward is the mean of its blocks'; `outcome` is that of the last, which is the problem's own question."""
    spans = [_subproblems_spans(spec, problem, verdict) for problem, verdict in zip(problems, verdicts, strict=True)]
    means = [sum_in_order(span.value for span in row) / len(row) for row in spans]
    parts = {
        "outcome": [float(verdict.answer) for verdict in verdicts],
        "well_formed": [float(any(span.end for span in row)) for row in spans],
    }
    return Rewards(means, parts, spans)


def _subproblems_spans(spec: specs.SubproblemsReward, problem: Row, verdict: Verdict) -> list[Span]:
    if problem.family != "subproblems":
        return [Span(0, WHOLE, 0, float(verdict.answer))]
    if not verdict.blocks:
        return [Span(0, 0, position, 0.0) for position in range(len(terse_variants.loads(problem.graph).asked))]
    solved, spans = True, []
    for position, block in enumerate(verdict.blocks):
        solved = solved and block.right
        value = solved if spec.prefix_correction else block.right
        spans.append(Span(block.start, block.end, position, float(value)))
    return spans


# The reward for answers in words (tasks.verdict), as LoongRL and its peers give it (arXiv:2510.19363): on what stands in the box.
#
# Guarded forms pay nothing for a completion with too many boxes, for an empty answer, and for one with words in addition to the
# gold that may name something else, since a list of everything holds the answer, too.


def text_match(
    spec: specs.TextReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]
) -> Rewards:
    """Compare each answer with the golds of its row. A row that asks no question over documents, such as arithmetic, earns 1 for
    the right answer, as its family has it. The record keeps exact match and unguarded F1, too."""
    sequence, exact, f1 = [], [], []
    golds = per_completion(gold_answers, problems)
    for (texts, known), completion, verdict in zip(golds, completions, verdicts, strict=True):
        sequence.append(compare_answers(spec, completion, verdict.said, texts, known) if texts else float(verdict.answer))
        if is_answer_dump(completion) and not spec.form.endswith("_published"):
            sequence[-1] = 0.0
        exact.append(float(tasks_verdict.exact_match(verdict.said, texts) if texts else verdict.answer))
        f1.append(tasks_verdict.f1(verdict.said, texts) if texts else float(verdict.answer))
    return Rewards(sequence, {"exact": exact, "f1": f1})


def gold_answers(row: Row) -> tuple[tuple[str, ...], list[str]]:
    """Acceptable answers in words: those of the question over documents, where the row asks for its answer; else none. And the
    clauses of the documents that it needs."""
    asked = multihop_item(row)
    if asked is None:
        return (), []
    known = [clause for paragraph in asked.paragraphs for clause in tasks_verdict.clauses(paragraph.text)]
    return asked.answers if row.answer in asked.answers else (row.answer,), known


def compare_answers(spec: specs.TextReward, completion: str, said: str, texts: Sequence[str], known: Sequence[str]) -> float:
    """How near what was said is to one of these texts, by the form of the reward; `known` are clauses of the documents."""
    if spec.form == "exact":
        return float(tasks_verdict.exact_match(said, texts))
    if spec.form == "substring":
        return float(tasks_verdict.substring(said, texts, spec.extra_words, known))
    if spec.form == "substring_published":
        return float(extract_answer(completion) is not None and tasks_verdict.substring_published(said, texts))
    if spec.form == "f1_published":
        return tasks_verdict.f1(said, texts)
    return tasks_verdict.f1(said, [gold for gold in texts if not tasks_verdict.names_more(said, gold, spec.extra_words, known)])


def right_by(spec: specs.Reward, verdicts: Sequence[Verdict]) -> torch.Tensor:
    """(N,) bool: which completions are right by the verdict that a reward is about."""
    by = spec.judgement() or "answer"
    return torch.tensor([getattr(verdict, by) for verdict in verdicts], dtype=torch.bool)


# Terms that judge nothing, and the composed reward.


def form(spec: specs.FormReward, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """1 where the judge could read it."""
    return Rewards([float(v.error not in UNREADABLE) for v in verdicts], {})


def length(spec: specs.LengthReward, tokens: Sequence[int]) -> list[float]:
    """clip(alpha (budget - n) + delta, 0, 1), or -alpha |budget - n| (L1, arXiv:2503.04697, eqs. 2 and 1)."""
    saved = [spec.alpha * (spec.budget - n) for n in tokens]
    return [-abs(one) if spec.form == "exact" else min(max(one + spec.delta, 0.0), 1.0) for one in saved]


def compose(spec: specs.ComposedReward, paid: Sequence[Rewards]) -> Rewards:
    """1[all gates open] * (sum_i weight_i r_i) * (prod_j r_j), of what the terms pay, in the order of `terms`."""
    each = iter(paid)
    gate, added, factors = ([(term, next(each).sequence) for term in terms] for terms in (spec.gate, spec.sum, spec.product))
    sequence = []
    for i in range(len(paid[0].sequence)):
        total = sum_in_order(term.weight * values[i] for term, values in added) if added else 1.0
        is_open = all(values[i] > term.above for term, values in gate)
        sequence.append(total * math.prod(values[i] for _, values in factors) if is_open else 0.0)
    parts: dict[str, list[float]] = {}
    for term, one in zip(spec.terms(), paid, strict=True):
        parts |= {term.called(): one.sequence, **{f"{term.called()}/{name}": values for name, values in one.parts.items()}}
    return Rewards(sequence, parts)


def pays_turns(spec: specs.Reward) -> bool:
    """Whether turns earn what the environment pays them."""
    return isinstance(spec, specs.EnvironmentReward) or (isinstance(spec, specs.ComposedReward) and bool(spec.pays_turns()))


def by_turn(spec: specs.Reward, terms: Sequence[Rewards], place: int, paid: Sequence[float]) -> list[float]:
    """What each turn of an episode earns, whose turns the environment `paid`, by a reward that `pays_turns`; entry `place` of
    what the `terms` pay is that of the whole episode."""
    if not isinstance(spec, specs.ComposedReward):
        return list(paid)
    columns = []
    for number, (term, one) in enumerate(zip(spec.terms(), terms, strict=True)):
        value, in_sum = one.sequence[place], len(spec.gate) <= number < len(spec.gate) + len(spec.sum)
        if isinstance(term.reward, specs.EnvironmentReward) and number >= len(spec.gate):
            columns.append(list(paid))
        elif in_sum and any(isinstance(other.reward, specs.EnvironmentReward) for other in spec.sum):
            columns.append([0.0] * (len(paid) - 1) + [value])
        else:
            columns.append([value] * len(paid))
    return compose(spec, [Rewards(column, {}) for column in columns]).sequence


# The table of rewards, by the `name` of their spec.


MEMBERS: dict[str, Callable[..., Rewards]] = {
    "outcome": outcome,
    "format": formatted,
    "payoff": payoff,
    "random": by_chance,
    "shuffled": shuffled,
    "process": process,
    "subproblems": subproblem,
    "steps": steps,
    "text": text_match,
    "citation": citation,
    "form": form,
    "custom": lambda *given: Rewards(custom.own_reward(*given), {}),
}


class Graders(NamedTuple):
    """What rewards need that read more than texts and verdicts: a tokenizer, reward models, a judge."""

    tokens: Callable[[Sequence[str]], list[list[int]]]
    """Encodes texts."""
    eos: int = 0
    models: Mapping[str, Callable[[list[list[int]], list[list[int]]], list[float]]] = MappingProxyType({})
    """Role of a reward model -> its scores, as a function of the tokens of prompts and of completions."""
    judge: Judge | None = None


def score_completions(
    spec: specs.Reward,
    problems: Sequence,
    completions: Sequence[str],
    verdicts: Sequence[Verdict],
    graders: Graders | None = None,
    cut: Sequence[bool] | None = None,
    paid: Sequence[float] | None = None,
) -> Rewards:
    """Rewards by the member that `spec` names, or by all terms of a composed one. `cut`: which completions the length limit cut,
    None: none. `paid`: by the environment, None: nothing. Raises ValueError where a reward needs graders that are not given."""
    if isinstance(spec, specs.ComposedReward):
        terms = [score_completions(one, problems, completions, verdicts, graders, cut, paid) for one in specs.terms_of(spec)]
        return compose(spec, terms)
    if isinstance(spec, specs.EnvironmentReward):
        return Rewards(list(paid or [0.0] * len(completions)), {"outcome": [float(v.answer) for v in verdicts]})
    if isinstance(spec, specs.JudgeReward):
        if graders is None or graders.judge is None:
            raise ValueError(f"reward {spec.name} has no endpoint to ask")
        return Rewards(graders.judge.scores(spec, problems, completions), {})
    if isinstance(spec, specs.LengthReward | specs.ModelReward):
        if graders is None:
            raise ValueError(f"reward {spec.name} reads tokens, and there is no tokenizer")
        written = graders.tokens(completions)
        if isinstance(spec, specs.LengthReward):
            return Rewards(length(spec, [len(tokens) for tokens in written]), {})
        ends = [[] if is_cut else [graders.eos] for is_cut in cut or [False] * len(written)]
        ended = [tokens + end for tokens, end in zip(written, ends, strict=True)]
        return Rewards(graders.models[spec.model](graders.tokens([row.prompt for row in problems]), ended), {})
    return MEMBERS[spec.name](spec, problems, completions, verdicts)


# What verl calls for each completion (`custom_reward_function`), in its own environment.


def pay(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, *, job: str, **_: Any
) -> dict[str, float]:
    """The reward of one completion, and whether it is right (`acc`). `job`: the file that names the spec and its problem sets;
    `ground_truth`: the number of the problem among their rows."""
    spec, rows = _job(job)
    row = rows[int(ground_truth)]
    verdict = sets.judge_completion(spec.verify(), row, solution_str)
    paid = score_completions(spec.reward, [row], [solution_str], [verdict])
    return {"score": paid.sequence[0], "acc": float(right_by(spec.reward, [verdict])[0])}


@lru_cache(maxsize=1)
def _job(file: str) -> tuple[RLSpec, list[Row]]:
    job = artifact.read_json(Path(file))
    return RLSpec.model_validate(job["spec"]), sets.load_pool([Path(one) for one in job["data"]]).rows
