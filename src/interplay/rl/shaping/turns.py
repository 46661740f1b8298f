"""Terms that look at the turns of an episode. They are paid turn by turn: each member gives for every row a term for each of its
turns."""

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.shaping import AttemptsShaping, ImprovementShaping


def attempts(spec: AttemptsShaping, batch: Batch, now: Now) -> list[list[float]]:
    """At the last of n turns r (gamma^(n - 1) - 1) - repeats (1 - different answers / n), r being its reward (UFO,
    arXiv:2507.14295)."""
    terms = []
    for verdicts, spans in zip(batch.turns or [], batch.spans or [], strict=True):
        n = len(spans)
        given = {"".join(verdict.said.lower().split()) if verdict else "" for verdict in verdicts}
        last = spans[-1].value * (spec.gamma ** (n - 1) - 1) - spec.repeats * (1 - len(given) / n) if n else 0.0
        terms.append([0.0] * (n - 1) + [last] * (n > 0))
    return terms


def improvement(spec: ImprovementShaping, batch: Batch, now: Now) -> list[list[float]]:
    """(first - 1) r1 at the first turn and alpha (r2 - r1) at the second (SCoRe, arXiv:2409.12917); 0 where there is one."""
    terms = []
    for spans in batch.spans or []:
        values = [span.value for span in spans]
        made = [(spec.first - 1) * value for value in values[:1]]
        terms.append([*made, *(spec.alpha * (value - values[0]) for value in values[1:])])
    return terms
