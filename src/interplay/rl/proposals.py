"""Proposals of a teacher: how they are written, read and recorded."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from torch import Tensor

from interplay.core.artifact import read_json, write_atomic
from interplay.core.metrics import round_values
from interplay.core.model import PermanentError, UserError
from interplay.core.random import generator, stream_key
from interplay.data import tokenizer as text
from interplay.data.spec import split_of
from interplay.data.tokenizer import Special
from interplay.rl.batch import Batch
from interplay.rl.group_advantages import spread
from interplay.rl.teach_spec import TeachSpec
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Sampling
from interplay.tasks.family import language_of, task_family
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


def write_proposals(spec: TeachSpec, engine: Engine, special: Special, end: int, step: int, tokenizer: Tokenizer) -> Batch:
    """What the teacher writes in an outer step: g * n texts, dataset by dataset, one group, without rewards.

    There is nothing before the first token of a text in training, so no model knows how to begin: the first letter is drawn for
    it, uniformly."""
    sampling = Sampling(
        temperature=spec.teacher_temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=spec.max_proposal_length,
        seed=stream_key(spec.seed, "propose", step),
        eos=end,
        pad=special.pad,
    )
    letters, count = language_of(spec.task).starts(spec.task), spec.proposals()
    first = [letters[i] for i in generator(spec.seed, "begin", step).integers(len(letters), size=count)]
    prompts = text.encode_texts(tokenizer, first)
    rollouts = engine.generate([Request(ids, stream_key("proposal"), number, 1) for number, ids in enumerate(prompts)], sampling)
    longest = int(rollouts.lengths.max())
    texts = [row[:n] for row, n in zip(rollouts.tokens.tolist(), rollouts.lengths.tolist(), strict=True)]
    return Batch(
        row=torch.arange(count),
        ids=torch.zeros(count, dtype=torch.int64),
        groups=torch.zeros(count, dtype=torch.int64),
        prompts=prompts,
        tokens=rollouts.tokens[:, :longest],
        lengths=rollouts.lengths,
        logprobs=rollouts.logprobs[:, :longest],
        truncated=rollouts.truncated,
        completions=[letter + rest for letter, rest in zip(first, tokenizer.decode_batch(texts), strict=True)],
        verdicts=[],
        rewards=torch.zeros(count, dtype=torch.float64),
        parts={},
    )


def read_proposals(texts: Sequence[str], task: Task) -> list[Proposal]:
    """What each text poses, answered by the family's solver, which reads nothing but the text."""
    return [_read(text, number, task) for number, text in enumerate(texts)]


def _read(text: str, number: int, task: Task) -> Proposal:
    found, family = language_of(task).read(text, task), task_family(task)
    if isinstance(found, str):
        return Proposal(text, None, found)
    structure = family.structure(found)
    if split_of(structure) not in TRAINED_ON:
        return Proposal(text, None, HELD_OUT)
    shown = family.render(found, task)
    if family.answer(task, found, shown.prompt) != shown.answer:
        raise PermanentError(f"{task.name}: parser and solver read {shown.prompt!r} differently")
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
    order = [int(i) for i in generator(*words).permutation(len(rows))]
    return [Proposal(rows[i].prompt, rows[i], "") for i in (order * -(-count // len(order)))[:count]]


def flaws(task: Task) -> tuple[str, ...]:
    """All that may be wrong with a proposal."""
    return (*language_of(task).flaws, HELD_OUT)


def proposal_shares(found: Sequence[Proposal], task: Task) -> dict[str, float]:
    """`valid` and `flaw/<name>`, shares of all proposals; of the valid ones `distinct`, the share of structures that are not
    repeats, and `op`, `op_max`, their mean and largest op, 0 where none is valid."""
    rows, counts = [one.row for one in found if one.row], Counter(one.flaw for one in found)
    return {
        "valid": len(rows) / len(found),
        **{f"flaw/{name}": counts[name] / len(found) for name in flaws(task)},
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
        raise UserError(
            f"teach: the tokenizer has no token of its own for {end!r}, which ends a proposal; take a model with a tokenizer of "
            "characters or words"
        )
    return ids[0]


# Records of a run of teaching.


Lines = list[dict[str, float]]
"""Metrics of each step of RL on a dataset."""


class Asked(NamedTuple):
    """Completions of some problems by the student at hand."""

    passes: list[int]
    """Of each problem."""
    tokens: int
    """Sampled."""


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
TOTALS = ("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps")
"""Values of a step that a record sums over the run."""
MEANS = ("valid", "distinct", "op", "reward", "reward_std", "probe_before", "probe_after", "probe_student", "student_reward")
"""Values whose means over the first and the last tenth of the run are in its record."""


class Spent:
    """What a step samples and trains on, as it goes along."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(TOTALS, 0.0)

    def asked(self, found: Asked, completions: int) -> None:
        """Completions that nothing is trained on."""
        self.sums["completions"] += completions
        self.sums["completion_tokens"] += found.tokens

    def learnt(self, lines: Lines) -> None:
        """A student's steps of RL."""
        for name in ("completions", "prompt_tokens", "completion_tokens", "optimizer_steps"):
            self.sums[name] += sum(line[name] for line in lines)
        self.sums["tokens"] += sum(line["completion_tokens"] for line in lines)

    def metrics(self, lessons: Sequence[Lines]) -> dict[str, float]:
        """All sums, and of the students' last steps `student_reward`, the mean reward, and `student_gain`, how much more that is
        than in their first; 0 where none was trained."""
        count = max(len(lessons), 1)
        last, first = (sum(lines[at]["reward"] for lines in lessons) / count for at in (-1, 0))
        return {**self.sums, "student_reward": last, "student_gain": last - first}


def of_rewards(rewards: Tensor, best: int | None) -> dict[str, float]:
    """`reward`, `reward_std` (Bessel-corrected) and `reward_best` of the datasets (g,), and whether a student was `promoted`."""
    return {
        "reward": float(rewards.mean()),
        "reward_std": float(spread(rewards)),
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


def write_step(out: Path, step: int, spec: TeachSpec, proposals: Sequence[Proposal], rewards: Tensor, advantage: Tensor) -> None:
    """Keep `keep_rollouts` proposals, chosen by (seed, step). `rewards` and `advantage` (g * n,)."""
    order = generator(spec.seed, "keep", step).permutation(len(proposals))[: spec.keep_rollouts]
    kept = [_entry(step, spec, proposals[i], i, rewards, advantage) for i in np.sort(order).tolist()]
    write_atomic(out / "resume" / "steps" / f"{step}.json", json.dumps(kept).encode())


def _entry(step: int, spec: TeachSpec, one: Proposal, i: int, rewards: Tensor, advantage: Tensor) -> dict[str, Any]:
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
    rows = [row for step in range(1, spec.steps + 1) for row in read_json(out / "resume" / "steps" / f"{step}.json")]
    pq.write_table(pa.Table.from_pylist(rows, schema=PROPOSALS), out / "proposals.parquet")


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's metrics from the lines of metrics.jsonl: totals over the run, promotions, what the teacher wrote, and means
    over the first and the last tenth."""
    totals = {name: int(sum(line[name] for line in lines)) for name in TOTALS}
    written = int(sum(line.get("teacher/completion_tokens", 0) for line in lines))
    totals["tokens"] += written
    tenth = max(1, len(lines) // 10)
    ends = {"first": lines[:tenth], "last": lines[-tenth:]}
    means = {f"{name}_{end}": sum(line[name] for line in some) / len(some) for end, some in ends.items() for name in MEANS}
    counts = {"steps": len(lines), "promoted": int(sum(line["promoted"] for line in lines)), "proposal_tokens": written}
    return {**counts, **totals, **round_values(means)}
