"""One reward per subproblem (SCRL, arXiv:2605.22074)."""

from collections.abc import Sequence

from interplay.rl.rewards.reward import Rewards
from interplay.rl.spans import WHOLE, Span
from interplay.schema.reward import SubproblemsReward
from interplay.tasks import subproblems
from interplay.tasks.row import Row
from interplay.tasks.verdict import Verdict


def subproblem(
    spec: SubproblemsReward, problems: Sequence[Row], completions: Sequence[str], verdicts: Sequence[Verdict]
) -> Rewards:
    """r^(j) in {0, 1} for each block j, with the prefix correction 1 only where all blocks before it are right, too; a broken
    format gives K zeros and no span. A row of another family is one block, with the end token, which its answer decides. The
    sequence's reward is the mean of its blocks'; `outcome` is that of the last, which is the problem's own question."""
    spans = [_spans(spec, problem, verdict) for problem, verdict in zip(problems, verdicts, strict=True)]
    means = [sum(span.value for span in row) / len(row) for row in spans]
    parts = {
        "outcome": [float(verdict.answer) for verdict in verdicts],
        "well_formed": [float(any(span.end for span in row)) for row in spans],
    }
    return Rewards(means, parts, spans)


def _spans(spec: SubproblemsReward, problem: Row, verdict: Verdict) -> list[Span]:
    if problem.family != "subproblems":
        return [Span(0, WHOLE, 0, float(verdict.answer))]
    if not verdict.blocks:
        return [Span(0, 0, position, 0.0) for position in range(len(subproblems.loads(problem.graph).asked))]
    solved, spans = True, []
    for position, block in enumerate(verdict.blocks):
        solved = solved and block.right
        value = solved if spec.prefix_correction else block.right
        spans.append(Span(block.start, block.end, position, float(value)))
    return spans
