"""Proposals: texts that the teacher writes behind a first letter, and the problems that they pose."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from interplay.core.model import PermanentError, UserError
from interplay.core.random import generator, stream_key
from interplay.data import tokenizer as text
from interplay.data.spec import split_of
from interplay.data.tokenizer import Special
from interplay.rl.batch import Batch
from interplay.rl.teaching.spec import TeachSpec
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Sampling
from interplay.tasks.family import language_of, task_family
from interplay.tasks.spec import Task
from interplay.tasks.verdict import Row

HELD_OUT = "held_out"
"""What a proposal is called that belongs to the splits test or validation: nobody is trained on these."""
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

    Nothing stands before the first token of a text in training, so no model knows how to begin: the first letter is drawn for it,
    uniformly."""
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
