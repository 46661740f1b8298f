"""Rows of episodes of several turns: what each turn earns, and where it stands."""

from collections.abc import Sequence
from typing import NamedTuple

from interplay.rl.rewards.reward import Rewards
from interplay.rl.rewards.table import score
from interplay.rl.spans import Span
from interplay.rollout.episodes.play import Played
from interplay.schema.reward import Reward
from interplay.tasks.row import Row
from interplay.tasks.turns import UNANSWERED
from interplay.tasks.verdict import Verdict


class Earned(NamedTuple):
    """What N rows are worth: the verdict of their episode, its reward with its parts, and each turn's verdict."""

    verdicts: list[Verdict]
    rewards: Rewards
    """`spans` in tokens, one for each turn."""
    turns: list[list[Verdict | None]]


def earned(spec: Reward, played: Played, rows: Sequence[Row]) -> Earned:
    """Each turn that answers is paid by the reward as a completion is, the others earn 0; an episode is worth its last turn.
    `rows`: the problem of each row. Raises ValueError where episodes have one turn."""
    if played.turns is None:
        raise ValueError("an episode of one turn is paid as a whole")
    each = [(i, turn) for i, of_row in enumerate(played.turns) for turn in of_row if turn.verdict is not None]
    paid = score(spec, [rows[i] for i, _ in each], [t.judged for _, t in each], [t.verdict for _, t in each if t.verdict])
    found = {(i, turn.number): place for place, (i, turn) in enumerate(each)}
    last = [found.get((i, turns[-1].number)) if turns else None for i, turns in enumerate(played.turns)]
    spans = []
    for i, of_row in enumerate(played.turns):
        values = [paid.sequence[found[i, t.number]] if (i, t.number) in found else 0.0 for t in of_row]
        spans.append([Span(t.start, t.end, t.number, value) for t, value in zip(of_row, values, strict=True)])
    return Earned(
        verdicts=[turns[-1].verdict or UNANSWERED if turns else UNANSWERED for turns in played.turns],
        rewards=Rewards(
            [0.0 if place is None else paid.sequence[place] for place in last],
            {name: [0.0 if place is None else values[place] for place in last] for name, values in paid.parts.items()},
            spans,
        ),
        turns=[[turn.verdict for turn in turns] for turns in played.turns],
    )
