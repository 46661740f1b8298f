"""Edits that add or drop rows: replay, gold demonstrations, dynamic sampling (DAPO, arXiv:2503.14476)."""

from typing import Any

import torch
from torch import Tensor

from interplay.rl.advantages.advantages import advantages
from interplay.rl.batch import Batch, join, take
from interplay.rl.edits.spec import Demonstrations, DynamicSampling, Replay
from interplay.rl.step_context import StepContext
from interplay.tasks.verdict import Verdict

# Edits that add rows: past completions of the same prompt, and gold solutions.


BUFFER = "replay"
"""Name in the memory: `<id>.<1 or 0>` -> past rows of a prompt that passed or failed, latest last."""
GOLD = Verdict(True, True, 1.0, "none")


def replay(spec: Replay, batch: Batch, now: StepContext) -> Batch:
    """Groups of one kind with up to `rows` past rows of the other kind (R3, section 3.1); the completions that were sampled now
    are remembered."""
    buffer = now.memory.notes.setdefault(BUFFER, {})
    passed = batch.rewards > 0
    more = []
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        kinds = set(passed[here].tolist())
        if len(kinds) == 1:
            past = buffer.get(f"{int(batch.ids[here[0]])}.{int(not kinds.pop())}", [])
            more += [_row(batch, int(here[0]), old) for old in past[-spec.rows :]]
    for i in range(len(batch)):
        kept = buffer.setdefault(f"{int(batch.ids[i])}.{int(passed[i])}", [])
        kept.append(_note(batch, i))
        del kept[: -spec.keep]
    return join([batch, *more], now.pad, same_groups=True)


def replayed(spec: Replay, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> tuple[Batch, Tensor, Tensor]:
    """Advantages of rows off policy times `scale`."""
    if batch.off_policy is None:
        return batch, advantage, bears
    return batch, torch.where(batch.off_policy[:, None], spec.scale * advantage, advantage), bears


def demonstrations(spec: Demonstrations, batch: Batch, now: StepContext) -> Batch:
    """Groups with at most `switch_gate` successes give way to one row, the gold solution; set aside, since it is compared with
    nothing (HPT, eq. 8)."""
    kept, gold = [], []
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        if int((batch.rewards[here] > 0).sum()) > spec.switch_gate:
            kept.append(here)
        else:
            gold.append(_gold(batch, int(here[0]), now))
    rows = torch.cat(kept) if kept else torch.zeros(0, dtype=torch.int64)
    return join([take(batch, rows), *gold], now.pad, same_groups=True)


def demonstrated(
    spec: Demonstrations, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext
) -> tuple[Batch, Tensor, Tensor]:
    """The advantage of gold solutions is `sft_loss_coef` at each token: at ratio 1 the gradient of their log-likelihood."""
    if batch.aside is None:
        return batch, advantage, bears
    return batch, torch.where(batch.aside[:, None] & batch.mask(), spec.sft_loss_coef, advantage).float(), bears


def _note(batch: Batch, i: int) -> dict[str, Any]:
    """A completion as JSON."""
    n = int(batch.lengths[i])
    return {
        "tokens": batch.tokens[i, :n].tolist(),
        "logprobs": batch.logprobs[i, :n].tolist(),
        "truncated": bool(batch.truncated[i]),
        "completion": batch.completions[i],
        "verdict": [*batch.verdicts[i][:-1]],
        "reward": float(batch.rewards[i]),
        "parts": {name: float(values[i]) for name, values in batch.parts.items()},
    }


def _row(batch: Batch, like: int, note: dict[str, Any]) -> Batch:
    """A past completion as a row of the group of the row `like`."""
    return _placed(
        batch,
        like,
        note["tokens"],
        logprobs=torch.tensor([note["logprobs"]]),
        truncated=torch.tensor([note["truncated"]]),
        completions=[note["completion"]],
        verdicts=[Verdict(*note["verdict"])],
        rewards=torch.tensor([note["reward"]], dtype=torch.float64),
        parts={name: torch.tensor([value], dtype=torch.float64) for name, value in note["parts"].items()},
        off_policy=torch.tensor([True]),
    )


def _gold(batch: Batch, like: int, now: StepContext) -> Batch:
    """The gold solution as a row in place of the group of the row `like`."""
    text, tokens = now.gold(int(batch.ids[like]))
    return _placed(
        batch,
        like,
        tokens,
        logprobs=torch.zeros(1, len(tokens)),
        truncated=torch.tensor([False]),
        completions=[text],
        verdicts=[GOLD],
        rewards=torch.tensor([1.0], dtype=torch.float64),
        parts={name: torch.ones(1, dtype=torch.float64) for name in batch.parts},
        aside=torch.tensor([True]),
    )


def _placed(batch: Batch, like: int, tokens: list[int], **values: Any) -> Batch:
    """A row that nobody drew in this step: `row` is -1."""
    one = take(batch, torch.tensor([like]))
    return Batch(
        row=torch.tensor([-1]),
        prompts=one.prompts,
        ids=one.ids,
        groups=one.groups,
        expected=one.expected,
        tokens=torch.tensor([tokens]),
        lengths=torch.tensor([len(tokens)]),
        **values,
    )


# Groups that tell nothing are dropped, and fresh ones drawn (DAPO, arXiv:2503.14476).


def informative(batch: Batch, now: StepContext) -> Tensor:
    """(N,) bool: rows of groups from which the policy would learn, since some token has an advantage. Completions with equal
    rewards have none, unless the advantage is of spans: these may differ where their means agree."""
    found = advantages(now.method.advantage, batch, now)
    return torch.isin(batch.groups, batch.groups[(found != 0).any(1)])


def dynamic_sampling(spec: DynamicSampling, batch: Batch, now: StepContext) -> Batch:
    """Keep informative groups only and draw as many fresh prompts as groups were lost, until the batch is full again or
    `max_num_gen_batches` rounds (the first one included) are spent (DAPO, arXiv:2503.14476, section 3.2)."""
    wanted = len(batch.groups.unique())
    kept = take(batch, informative(batch, now).nonzero()[:, 0])
    for _ in range(spec.max_num_gen_batches - 1):
        missing = wanted - len(kept.groups.unique())
        if missing == 0:
            break
        fresh = now.draw(missing)
        kept = join([kept, take(fresh, informative(fresh, now).nonzero()[:, 0])], now.pad)
    return kept
