"""One reward per step (process supervision, arXiv:2402.03300, section 4.1.3)."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.rl.spans import WHOLE, Span
from interplay.schema.reward import StepsReward
from interplay.tasks import op_dag
from interplay.tasks.op_dag.render import ANSWER, SECTION
from interplay.tasks.op_dag.repair import first_wrong
from interplay.tasks.op_dag.repair import steps as places
from interplay.tasks.row import Row
from interplay.tasks.verdict import Verdict


def steps(spec: StepsReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]) -> Rewards:
    """A span for each step, worth 1 before the first wrong one and 0 from there on, and one from the answer mark to the end
    token, worth 1 if the answer is right. The sequence's reward is the mean of its spans'."""
    spans = [_spans(*each) for each in zip(problems, completions, verdicts, strict=True)]
    means = [sum(span.value for span in row) / len(row) for row in spans]
    return Rewards(means, {"outcome": [float(verdict.answer) for verdict in verdicts]}, spans)


def _spans(row: Row, completion: str, verdict: Verdict) -> list[Span]:
    if row.family != "op_dag" or row.mode != "forward":
        return [Span(0, WHOLE, 0, float(verdict.answer))]
    wrong = first_wrong(op_dag.loads(row.graph), completion, SECTION in row.solution)
    right_until = len(completion) if wrong is None else wrong.start
    starts = [start for start, _ in places(completion)]
    mark = completion.find(ANSWER)
    ends = [*starts[1:], mark if mark >= 0 else len(completion)] if starts else []
    made = [Span(start, end, j, float(start < right_until)) for j, (start, end) in enumerate(zip(starts, ends, strict=True))]
    return [*made, Span(ends[-1] if ends else 0, WHOLE, len(made), float(verdict.answer))]
