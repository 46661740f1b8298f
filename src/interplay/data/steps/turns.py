"""Steps that make rows of logged trajectories: each turn with what came before it, a trajectory cut short as a prompt, and a
trajectory behind a prompt that says what it came to (hindsight)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from interplay.core import model
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import spec as steps
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Row


def logged_samples(
    spec: steps.LoggedTurns, rows: Sequence[Row], inputs: StepInputs
) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    """Each row with its samples of the kind that is kept, at most `per_prompt` different texts. Raises PermanentError where a row
    has no samples."""
    for row in rows:
        if not (samples := inputs.samples.get((row.set, row.index))):
            raise model.PermanentError(f"{spec.RUN}: {inputs.row_name(row)} has no samples")
        chosen = [one for one in samples if spec.keep == "all" or bool(one[spec.by]) == (spec.keep == "right")]
        yield row, list({one["completion"]: one for one in reversed(chosen)}.values())[::-1][: spec.per_prompt]


def by_turn(spec: steps.ByTurn, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each turn: its prompt is all that the policy read and wrote before it, with MARK between the parts, its solution
    the turn. A turn that the length limit cut gives none. Counts: episodes, turns, and rows without an episode."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        counts["no_episode"] += not samples
        for one in samples:
            parts = one["completion"].split(MARK)
            ended = len(parts) - 2 * bool(one["truncated"])
            counts["episodes"] += 1
            for place in range(0, ended, 2):
                counts["turns"] += 1
                made.append(transform_row(row, spec.name, prompt=MARK.join([row.prompt, *parts[:place]]), solution=parts[place]))
    return StepResult(made, dict(counts))


def to_prompts(spec: steps.ToPrompts, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each place after a turn and what was read then; its solution is the row's own. Counts: prompts, and rows without
    one. Raises PermanentError where what is judged is a whole transcript."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        if MARK in row.solution:
            whole = f"{row.family} judges whole transcripts, so that nothing behind a cut can be judged alone"
            raise model.PermanentError(f"{spec.name}: {whole}; take the step by_turn")
        found = dict[str, None]()
        for one in samples:
            parts = one["completion"].split(MARK)
            places = range(2, len(parts), 2)
            found |= dict.fromkeys(
                MARK.join([row.prompt, *parts[:place]]) for place in (places if spec.cut == "each" else places[-1:])
            )
        counts["prompts"] += len(found)
        counts["no_prompt"] += not found
        made += [transform_row(row, spec.name, prompt=text) for text in found]
    return StepResult(made, dict(counts))


def relabel(spec: steps.Relabel, rows: list[Row], inputs: StepInputs) -> StepResult:
    """A row for each sample, whose prompt says what it came to. A truncated one gives none. Counts: right and wrong ones, and
    rows without any."""
    made, counts = [], Counter[str]()
    for row, samples in logged_samples(spec, rows, inputs):
        ended = [one for one in samples if not one["truncated"] and one["completion"]]
        counts["no_sample"] += not ended
        for one in ended:
            right = bool(one[spec.by])
            counts["right" if right else "wrong"] += 1
            text = spec.template.replace("{reached}", spec.right if right else spec.wrong).replace("{prompt}", row.prompt)
            made.append(transform_row(row, spec.name, prompt=text, solution=one["completion"]))
    return StepResult(made, dict(counts))
