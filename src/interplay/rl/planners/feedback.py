"""What is known of a completion once it is judged, in a context of its own (DistIL, arXiv:2606.05152)."""

from dataclasses import replace

from interplay.data import pool as pools
from interplay.data.steps.decompose import goal_first
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.planner import FeedbackPlanner
from interplay.tasks.op_dag.repair import repair
from interplay.tasks.row import Row
from interplay.tasks.verdict import Verdict


def told(spec: FeedbackPlanner, row: Row, completion: str, verdict: Verdict) -> str | None:
    """The feedback on a completion; None: there is nothing to say."""
    if spec.feedback == "gold":
        return row.solution
    if verdict.strict:
        return None
    mended = repair(pools.problem(row), completion, goal_first(row)) if row.family == "op_dag" else None
    return mended.prefix + mended.step if mended else row.solution


def feedback_settled(spec: FeedbackPlanner, batch: Batch, now: Now) -> Batch:
    """With what the teacher reads before each completion."""
    known: dict[str, list[int]] = {}
    contexts = []
    for i, completion, verdict, prompt in zip(batch.ids.tolist(), batch.completions, batch.verdicts, batch.prompts, strict=True):
        feedback = told(spec, now.rows[i], completion, verdict)
        if feedback is None:
            contexts.append(prompt)
            continue
        text = spec.template.replace("{feedback}", feedback).replace("{prompt}", now.rows[i].prompt)
        if text not in known:
            known[text] = now.encode(text)
        contexts.append(known[text])
    return replace(batch, teacher=contexts)
