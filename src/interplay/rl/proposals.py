"""Proposals of a teacher: how they are written, read, rewarded and recorded."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer

from interplay.core import model, random
from interplay.data import spec as data_spec, tokenizer as text
from interplay.rl import group_advantages, policy, records
from interplay.rl.batch import Batch
from interplay.rl.teach_spec import TeachSpec
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Sampling
from interplay.tasks.families import language_of, task_family
from interplay.tasks.spec import Task
from interplay.tasks.verdict import Row

HELD_OUT = "held_out"
"""What a proposal is called that belongs to the splits test or validation: these are never trained on."""
TRAINED_ON = ("train", "rl")
BAND = "proposed"


class Proposal(NamedTuple):
    """One text. Either a problem or a flaw is there."""

    text: str
    row: Row | None
    """The problem, with the solver's answer."""
    flaw: str
    """Why it is none: a flaw of the family's, or HELD_OUT; empty where it is one."""


def write_proposals(spec: TeachSpec, engine: Engine, special: text.Special, end: int, step: int, tokenizer: Tokenizer) -> Batch:
    """What the teacher writes in an outer step: g * n texts, dataset by dataset, one group, without rewards.

    There is nothing before the first token of a text in training, so no model knows how to begin: the first letter is drawn for
    it, uniformly."""
    sampling = Sampling(
        temperature=spec.teacher_temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=spec.max_proposal_length,
        seed=random.stream_key(spec.seed, "propose", step),
        eos=end,
        pad=special.pad,
    )
    letters, count = language_of(spec.task).starts(spec.task), spec.proposals()
    first = [letters[i] for i in random.generator(spec.seed, "begin", step).integers(len(letters), size=count)]
    prompts = text.encode_texts(tokenizer, first)
    asks = [Request(ids, random.stream_key("proposal"), number, 1) for number, ids in enumerate(prompts)]
    rollouts = engine.generate(asks, sampling)
    longest = int(rollouts.lengths.max())
    texts = rollouts.written()
    return policy.unjudged(
        prompts,
        rollouts.tokens[:, :longest],
        rollouts.lengths,
        logprobs=rollouts.logprobs[:, :longest],
        truncated=rollouts.truncated,
        completions=[letter + rest for letter, rest in zip(first, tokenizer.decode_batch(texts), strict=True)],
    )


def read_proposals(texts: Sequence[str], task: Task) -> list[Proposal]:
    """What each text poses, answered by the family's solver, which reads nothing but the text."""
    return [_read(text, number, task) for number, text in enumerate(texts)]


def _read(text: str, number: int, task: Task) -> Proposal:
    found, family = language_of(task).read(text, task), task_family(task)
    if isinstance(found, str):
        return Proposal(text, None, found)
    structure = family.structure(found)
    if data_spec.split_of(structure) not in TRAINED_ON:
        return Proposal(text, None, HELD_OUT)
    shown = family.render(found, task)
    if family.answer(task, found, shown.prompt) != shown.answer:
        raise model.PermanentError(f"{task.name}: parser and solver read {shown.prompt!r} differently")
    row = Row(
        set=0,
        index=number,
        band=BAND,
        op=found.op,
        mode=found.mode,
        prompt=shown.prompt,
        solution=shown.solution,
        answer=shown.answer,
        graph=family.dumps(found),
        key=structure,
        family=task.name,
        origin="",
    )
    return Proposal(text, row, "")


def draw_problems(rows: Sequence[Row], count: int, *words: int | str) -> list[Proposal]:
    """Problems of a set in place of proposals, none twice as long as there are others."""
    order = [int(i) for i in random.generator(*words).permutation(len(rows))]
    return [Proposal(rows[i].prompt, rows[i], "") for i in (order * -(-count // len(order)))[:count]]


def proposal_shares(found: Sequence[Proposal], task: Task) -> dict[str, float]:
    """`valid` and `flaw/<name>`, shares of all proposals; of the valid ones `distinct`, the share of structures that are not
    repeats, and `op`, `op_max`, their mean and largest op, 0 where none is valid."""
    rows, counts = [one.row for one in found if one.row], Counter(one.flaw for one in found)
    return {
        "valid": len(rows) / len(found),
        **{f"flaw/{name}": counts[name] / len(found) for name in (*language_of(task).flaws, HELD_OUT)},
        "distinct": len({row.key for row in rows}) / max(len(rows), 1),
        "op": sum(row.op for row in rows) / max(len(rows), 1),
        "op_max": float(max((row.op for row in rows), default=0)),
    }


def end_token(tokenizer: Tokenizer, task: Task) -> int:
    """The token at which a proposal ends. Raises UserError where the tokenizer has other tokens that hold its text."""
    end = language_of(task).end
    ids = text.encode_texts(tokenizer, [end])[0]
    others = [token for token, number in tokenizer.get_vocab().items() if end in token and [number] != ids]
    if len(ids) != 1 or others:
        raise model.UserError(
            f"teach: the tokenizer has no token of its own for {end!r}, which ends a proposal; take a model with a tokenizer of "
            "characters or words"
        )
    return ids[0]


# What datasets are worth to the teacher, what each proposal is credited with, and which student goes on.


def grounded(before: int, after: Sequence[int], asked: int) -> torch.Tensor:
    """(g,) float64: the pass rate of each dataset's student less that of the one that all started from, over `asked` completions
    of hard problems; `before` and `after` count passes."""
    return (torch.tensor(after, dtype=torch.float64) - before) / asked


def intrinsic(rates: Sequence[float], dataset: Sequence[int], datasets: int) -> torch.Tensor:
    """(g,) float64: the mean of p (1 - p) over the valid proposals of each dataset, 0 where there is none; `rates` are their p,
    `dataset` says whose each is."""
    p, member = torch.tensor(rates, dtype=torch.float64), torch.tensor(dataset, dtype=torch.int64)
    empty = torch.zeros(datasets, dtype=torch.float64)
    sums = empty.index_add(0, member, p * (1 - p))
    return sums / empty.index_add(0, member, torch.ones_like(p)).clamp(min=1)


def credited(rewards: torch.Tensor, invalid: torch.Tensor, penalty: float) -> torch.Tensor:
    """(g * n,) float64: the advantage of each proposal, dataset by dataset. Of `rewards` (g,): the dataset's less the mean of the
    other datasets' (RLOO, arXiv:2402.14740, eq. 7), shared by all of its proposals; and of the `penalty` for being `invalid`
    (g * n,) bool: its own less the mean of the other proposals'."""
    shared = _compared(rewards).repeat_interleave(len(invalid) // len(rewards))
    return shared + _compared(-penalty * invalid.double())


def promoted(rewards: torch.Tensor, trained: Sequence[bool], threshold: float) -> int | None:
    """The dataset whose student goes on: the best of those that a student was trained on, the first of equals, if its reward is
    `threshold` at least; None: the student stays as it was."""
    able = [k for k, was in enumerate(trained) if was]
    best = max(able, key=lambda k: (float(rewards[k]), -k), default=None)
    return best if best is not None and float(rewards[best]) >= threshold else None


def _compared(values: torch.Tensor) -> torch.Tensor:
    """Each value less the mean of the others."""
    one_group, counted = torch.zeros(len(values), dtype=torch.int64), torch.ones(len(values), dtype=torch.bool)
    return group_advantages.left_out(values, one_group, counted)


# Records of a run of teaching.


Lines = list[dict[str, float]]
"""Metrics of each step of RL on a dataset."""


PROPOSALS = pa.schema(
    [
        ("step", pa.int32()),
        ("dataset", pa.int32()),
        ("text", pa.string()),
        ("flaw", pa.string()),
        ("op", pa.int32()),
        ("answer", pa.string()),
        ("reward", pa.float32()),
        ("advantage", pa.float32()),
    ]
)
"""`flaw`: why it is no problem, empty where it is one; `op` and `answer`: of a problem, else 0 and empty."""


class Spent:
    """What a step samples and trains on, as it goes along."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(TeachSpec.TOTALS, 0.0)

    def asked(self, tokens: int, completions: int) -> None:
        """Completions that nothing is trained on."""
        self.sums["completions"] += completions
        self.sums["completion_tokens"] += tokens

    def learnt(self, lines: Lines) -> None:
        """A student's steps of RL."""
        for name in ("completions", "prompt_tokens", "completion_tokens", "optimizer_steps"):
            self.sums[name] += random.sum_in_order(line[name] for line in lines)
        self.sums["tokens"] += sum(line["completion_tokens"] for line in lines)

    def metrics(self, lessons: Sequence[Lines]) -> dict[str, float]:
        """All sums, and of the students' last steps `student_reward`, the mean reward, and `student_gain`, how much more that is
        than in their first; 0 where none was trained."""
        count = max(len(lessons), 1)
        last, first = (random.sum_in_order(lines[at]["reward"] for lines in lessons) / count for at in (-1, 0))
        return {**self.sums, "student_reward": last, "student_gain": last - first}


def of_rewards(rewards: torch.Tensor, best: int | None) -> dict[str, float]:
    """`reward`, `reward_std` (Bessel-corrected) and `reward_best` of the datasets (g,), and whether a student was `promoted`."""
    return {
        "reward": float(rewards.mean()),
        "reward_std": float(group_advantages.spread(rewards)),
        "reward_best": float(rewards.max()),
        "promoted": float(best is not None),
    }


def of_batch(batch: Batch) -> dict[str, float]:
    """What RL logs of completions, of proposals: entropy per token in nats, tokens of each, share that the limit cut, and all
    tokens."""
    mask = batch.mask()
    return {
        "entropy": float(-(batch.logprobs * mask).sum(dtype=torch.float64) / mask.sum()),
        "length": float(batch.lengths.double().mean()),
        "truncated": float(batch.truncated.double().mean()),
        "completion_tokens": float(batch.lengths.sum()),
    }


def write_step(
    out: Path, step: int, spec: TeachSpec, proposals: Sequence[Proposal], rewards: torch.Tensor, advantage: torch.Tensor
) -> None:
    """Keep `keep_rollouts` proposals, chosen by (seed, step). `rewards` and `advantage` (g * n,)."""
    kept = records.kept_rows(spec.seed, step, len(proposals), spec.keep_rollouts)
    records.save_step(out, step, [_entry(step, spec, proposals[i], i, rewards, advantage) for i in kept])


def _entry(step: int, spec: TeachSpec, one: Proposal, i: int, rewards: torch.Tensor, advantage: torch.Tensor) -> dict[str, Any]:
    return {
        "step": step,
        "dataset": i // spec.problems_per_dataset,
        "text": one.text,
        "flaw": one.flaw,
        "op": one.row.op if one.row else 0,
        "answer": one.row.answer if one.row else "",
        "reward": float(rewards[i]),
        "advantage": float(advantage[i]),
    }


def finish(out: Path, spec: TeachSpec) -> None:
    """Join the steps' files into the table."""
    rows = [row for step in records.read_steps(out, spec.steps) for row in step]
    pq.write_table(pa.Table.from_pylist(rows, schema=PROPOSALS), out / "proposals.parquet")


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's metrics from the lines of metrics.jsonl: totals over the run, promotions, what the teacher wrote, and means
    over the first and the last tenth."""
    totals = records.total_values(lines, TeachSpec.TOTALS)
    written = int(sum(line.get("teacher/completion_tokens", 0) for line in lines))
    totals["tokens"] += written
    counts = {"steps": len(lines), **records.total_values(lines, ("promoted",)), "proposal_tokens": written}
    return {**counts, **totals, **records.mean_of_ends(lines, TeachSpec.MEANS)}
