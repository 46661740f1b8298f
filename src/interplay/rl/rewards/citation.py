"""The reward for naming the chunks that the answer needs (LongRLVR, arXiv:2603.02146)."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards, per_completion
from interplay.schema.reward import CitationReward
from interplay.tasks import multihop
from interplay.tasks.multihop.citation import cited, f_beta
from interplay.tasks.row import Row
from interplay.tasks.verdict import Verdict


def citation(spec: CitationReward, problems: Sequence[Row], said: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """r_ans + eta F_beta + (1 - eta) r_ans F_beta, in [0, 2]; r_ans is 1 when the answer is right. A completion without each tag
    exactly once earns 0. A row that asks for no citations earns r_ans."""
    sequence, scores = [], []
    for gold, completion, verdict in zip(per_completion(_useful, problems), said, verdicts, strict=True):
        listed, right = cited(completion), float(verdict.answer)
        score = f_beta(listed or [], gold, spec.beta)
        broken = bool(gold) and listed is None
        scores.append(score)
        sequence.append(0.0 if broken else right + spec.eta * score + (1 - spec.eta) * right * score)
    return Rewards(sequence, {"outcome": [float(verdict.answer) for verdict in verdicts], "citations": scores})


def _useful(row: Row) -> tuple[int, ...]:
    """The useful chunks of a row that asks for citations; else none."""
    return multihop.loads(row.graph).useful if row.mode == "citation" else ()
