"""The `teach` stage (SOAR, arXiv:2601.18778): proposals, a student per dataset, the teacher's reward, promotion."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer

from interplay.core import execution, random
from interplay.core.metrics import Metrics, Progress, read, telemetry
from interplay.data import sets, tokenizer as text
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.optim import distributed, optimizer
from interplay.rl import assembly, draw, group_advantages, loop, proposals, requests, sampler, samplers
from interplay.rl.batch import Batch, Memory, StepContext, seams_of
from interplay.rl.rewards import Graders
from interplay.rl.teach_spec import TeachSpec
from interplay.rl.update import Learner, update
from interplay.rollout.engine import Engine, closing, engine
from interplay.tasks.verdict import Row

# A student: its weights, its training on a dataset, and what it answers.


Weights = dict[str, torch.Tensor]


class School(NamedTuple):
    """What students share."""

    spec: TeachSpec
    student: Decoder
    """Takes the weights of whichever student is at hand."""
    references: tuple[tuple[float, Decoder], ...]
    engine: Engine
    """Samples from `student`."""
    tokenizer: Tokenizer
    special: text.Special
    files: Path
    """The folder of the tokenizer."""
    micro_batch_tokens: int


def weights(decoder: Decoder) -> Weights:
    """A copy of the parameters of a model."""
    return {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}


def become(decoder: Decoder, known: Weights) -> None:
    """Give a model these weights."""
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_(known[name])


def student_run(school: School, spec: TeachSpec, rows: Sequence[Row]) -> assembly.RunState:
    """What the RL loop works on, with a memory of its own."""
    return assembly.RunState(
        spec=spec,
        pool=sets.Pool(list(rows), [len(rows)]),
        tokenizer=school.tokenizer,
        special=school.special,
        tokenizer_files=school.files,
        engine=school.engine,
        sampler=samplers.build_sampler(
            spec.method.sampler, sampler.PromptSource(sizes=[len(rows)], mix=[1.0], seed=spec.seed, steps=spec.steps, rows=rows)
        ),
        memory=Memory(len(rows)),
        graders=Graders(partial(text.encode_texts, school.tokenizer)),
    )


def trained(school: School, rows: Sequence[Row], step: int, factor: float) -> proposals.Lines:
    """Train the student at hand on the problems of one dataset, with a fresh optimiser at `factor` of its rate. The noise is that
    of the outer `step` for all datasets, so that equal ones have equal students."""
    own = school.spec.model_copy(
        update={"seed": random.stream_key(school.spec.seed, "student", step), "steps": school.spec.inner_steps}
    )
    optimizers = optimizer.build_optimizers(own.optimizer, school.student.named_parameters(), own.dtype)
    learner = Learner(own, school.student, school.references, optimizers, school.micro_batch_tokens)
    course, seconds = student_run(school, own, rows), defaultdict[str, float](float)
    optimizer.set_lr(optimizers, factor)
    return [loop.unrecorded_step(course, learner, number, seconds)[2] for number in range(1, own.steps + 1)]


def ask(school: School, rows: Sequence[Row], n: int, *words: int | str) -> tuple[list[int], int]:
    """Of `n` completions of each problem by the student at hand the passes of each problem, and the tokens of all; equal words,
    equal noise."""
    if not rows:
        return [], 0
    spec = school.spec.model_copy(update={"seed": random.stream_key(school.spec.seed, *words)})
    place = student_run(school, spec, rows)
    asks = [requests.plain_request(slot, n, row.prompt) for slot, row in enumerate(rows)]
    found = draw.sample_rollouts(
        place, list(range(len(rows))), asks, StepContext(seams_of(spec.method), place.memory), Counter()
    ).batch
    passes = [0] * len(rows)
    for i, verdict in zip(found.ids.tolist(), found.verdicts, strict=True):
        passes[i] += verdict.strict if spec.by == "strict" else verdict.answer
    return passes, int(found.num_action_tokens().sum())


def probe(spec: TeachSpec, pool: sets.Pool, step: int) -> list[Row]:
    """The hard problems that are asked in an outer step: by the mix, none twice as long as its set has others."""
    deck = sampler.PromptSource(sizes=pool.sizes, mix=spec.mix, seed=random.stream_key(spec.seed, "probe", step))
    count = min(spec.probe_problems, len(pool.rows))
    return [pool.rows[i] for i in samplers.build_sampler(spec.method.sampler, deck).select(count, 1)]


# The loop of teaching (SOAR, arXiv:2601.18778): proposals, a student for each dataset, the teacher's reward, its update, and
# the promotion of the best student.
#
# All randomness is keyed by the outer step, so that it is a function of the teacher, its optimiser and the student before it,
# which are what a resume restores.


STUDENT = "student."
"""Names of the tensors of the student that goes on begin with it where they are saved."""


class Teacher(NamedTuple):
    """Who proposes."""

    learner: Learner
    engine: Engine
    end: int
    """The token that ends a proposal."""


class Course(NamedTuple):
    """What the steps of a run share."""

    school: School
    teacher: Teacher | None
    """None: datasets are drawn from `instances`."""
    hard: sets.Pool
    instances: list[Row]
    known: Weights
    """Of the student that the next students start from; a promotion puts others in their place."""


def teach_student(spec: TeachSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Teach and write the student's `model/`, `checkpoints/<step>/model/`, `metrics.jsonl` and `proposals.parquet`; goes on from
    `out/resume` where there is one. Roles: see TeachSpec.

    Raises UserError where the tokenizer cannot end a proposal, PermanentError at the first loss that is not finite."""
    course = assemble_course(spec, inputs, how)
    with closing(course.school.engine, *([course.teacher.engine] if course.teacher else [])):
        done = restore_course(course, out)
        teach_steps(course, out, how, done)
    become(course.school.student, course.known)
    folder.save_decoder(course.school.student, out / "model", course.school.files)
    proposals.finish(out, spec)
    return proposals.summary(read(out))


def assemble_course(spec: TeachSpec, inputs: dict[str, Path], how: execution.Run) -> Course:
    """All that a run has before its first step."""
    student, references, tokenizer, hard = assembly.load_models(spec, inputs, how)
    dtype, init = getattr(torch, spec.dtype), inputs["init"]
    base = init / "model"
    school = School(
        spec=spec,
        student=student,
        references=references,
        engine=engine(spec.engine, student, how, dtype, base),
        tokenizer=tokenizer,
        special=text.special(init),
        files=text.tokenizer_folder(init),
        micro_batch_tokens=how.micro_batch_tokens,
    )
    teacher, instances = None, []
    if spec.proposer == "teacher":
        model = device.place_decoder(folder.load_decoder(base), how, blockwise=spec.blockwise)
        own = spec.model_copy(
            update={
                "optimizer": spec.teacher_optimizer,
                "temperature": spec.teacher_temperature,
                "max_completion_length": spec.max_proposal_length,
                "minibatches": 1,
            }
        )
        optimizers = optimizer.build_optimizers(spec.teacher_optimizer, model.named_parameters(), own.dtype)
        learner = Learner(own, model, references, optimizers, how.micro_batch_tokens)
        teacher = Teacher(learner, engine(spec.engine, model, how, dtype, base), proposals.end_token(tokenizer, spec.task))
    else:
        instances = sets.read_rows(inputs["instances"], 0)
    return Course(school, teacher, hard, instances, weights(student))


def restore_course(course: Course, out: Path) -> int:
    """Put teacher and student into the state that was saved last; returns the steps behind it, 0 where none was."""
    saved = distributed.load_checkpoint(out / "resume" / "state")
    if saved is None:
        return 0
    done, tensors, _ = saved
    course.known.update(distributed.with_prefix(tensors, STUDENT))
    if course.teacher:
        learner = course.teacher.learner
        distributed.restore_training(tensors, learner.policy, learner.optimizers)
    return done


def save(course: Course, resume: Path, step: int) -> None:
    """Make the state after `step` the one to go on from."""
    tensors = {STUDENT + name: known for name, known in course.known.items()}
    if course.teacher:
        learner = course.teacher.learner
        tensors |= distributed.training_tensors(learner.policy, learner.optimizers)
    distributed.save_checkpoint(resume / "state", step, tensors, {})


def teach_steps(course: Course, out: Path, how: execution.Run, done: int) -> None:
    """Outer steps done + 1 to the last, saving to `out/resume` every `save_minutes`."""
    school, spec = course.school, course.school.spec
    metrics, progress, clock = Metrics(out, done), Progress(spec.steps, "steps", done), time.monotonic()
    with execution.save_points(how.save_minutes, steps=how.segment_steps) as saves:
        for step in range(done + 1, spec.steps + 1):
            values = one_step(course, out, step)
            metrics.write(step, **values)
            if step in spec.checkpoints:
                become(school.student, course.known)
                folder.save_decoder(school.student, out / "checkpoints" / str(step) / "model", school.files)
            progress.update(step, reward=values["reward"], valid=values["valid"], probe=values["probe_before"])
            if step < spec.steps and saves.due(step):
                metrics.sync()
                save(course, out / "resume", step)
                distributed.keep_segment(out, step, how)
                saves.made(f"step {step} of {spec.steps}")
    if spec.steps > done:
        telemetry(out, seconds_per_step=(time.monotonic() - clock) / (spec.steps - done))


def one_step(course: Course, out: Path, step: int) -> dict[str, float]:
    """Propose, train students, pay the teacher and promote; returns the step's metrics."""
    spec = course.school.spec
    factor = optimizer.lr_factor(spec.schedule, step, spec.steps)
    offered, batch = offer(course, step)
    rewards, measured = value_proposals(course, offered, step, factor)
    invalid = torch.tensor([one.row is None for one in offered])
    advantage = proposals.credited(rewards, invalid, spec.invalid_penalty)
    shared = rewards.repeat_interleave(spec.problems_per_dataset) - spec.invalid_penalty * invalid.double()
    proposals.write_step(out, step, spec, offered, shared, advantage)
    learnt = update_teacher(course.teacher, batch, shared, advantage, step, factor)
    return {**proposals.proposal_shares(offered, spec.task), **measured, **learnt, "lr_factor": factor}


def offer(course: Course, step: int) -> tuple[list[proposals.Proposal], Batch | None]:
    """The proposals of a step, g * n, dataset by dataset, or problems in place of them; and the batch of what the teacher
    wrote."""
    school, spec = course.school, course.school.spec
    if course.teacher is None:
        count = spec.datasets * spec.problems_per_dataset
        return proposals.draw_problems(course.instances, count, spec.seed, "instances", step), None
    batch = proposals.write_proposals(spec, course.teacher.engine, school.special, course.teacher.end, step, school.tokenizer)
    return proposals.read_proposals(batch.completions, spec.task), batch


def update_teacher(
    teacher: Teacher | None, batch: Batch | None, rewards: torch.Tensor, advantage: torch.Tensor, step: int, factor: float
) -> dict[str, float]:
    """Update the teacher with what its proposals earned, `rewards` and `advantage` (g * n,); returns what RL logs of an update,
    each with `teacher/` before its name, and nothing where there is no teacher."""
    if teacher is None or batch is None:
        return {}
    learner = teacher.learner
    optimizer.set_lr(learner.optimizers, factor)
    measured = proposals.of_batch(batch)
    earned = replace(batch, rewards=rewards)
    values = update(learner, earned, group_advantages.over_tokens(advantage, earned), step)
    return {f"teacher/{name}": value for name, value in {**measured, **values}.items()}


def value_proposals(
    course: Course, offered: list[proposals.Proposal], step: int, factor: float
) -> tuple[torch.Tensor, dict[str, float]]:
    """What each dataset, the valid ones of its proposals, is worth (g,) float64, and metrics; where its student is promoted, that
    one's weights are in `course.known` then."""
    school, spec = course.school, course.school.spec
    hard, spent = probe(spec, course.hard, step), proposals.Spent()
    size = spec.problems_per_dataset
    datasets = [[one.row for one in offered[k * size : (k + 1) * size] if one.row] for k in range(spec.datasets)]
    become(school.student, course.known)
    before = examine_student(school, hard, step, spent)
    learnt = learnable(school, datasets, step, spent) if spec.teacher_reward == "intrinsic" else None
    chosen = range(spec.datasets) if learnt is None else [int(learnt.argmax())]
    found = {k: graduate(course, datasets[k], hard, step, factor, spent) for k in chosen if datasets[k]}
    passes = {k: count for k, (count, _, _) in found.items()}
    after = [passes.get(k, before) for k in chosen]
    asked = len(hard) * spec.probe_samples
    rewards = proposals.grounded(before, after, asked) if learnt is None else learnt
    best = proposals.promoted(rewards, [k in found for k in range(spec.datasets)], spec.promote_threshold)
    if best is not None:
        course.known.update(found[best][1])
    rates = {
        "probe_before": before / asked,
        "probe_after": sum(after) / len(after) / asked,
        "probe_student": (before if best is None else passes[best]) / asked,
    }
    lessons = [lines for _, _, lines in found.values()]
    return rewards, {**proposals.of_rewards(rewards, best), **rates, **spent.metrics(lessons)}


def examine_student(school: School, hard: list[Row], step: int, spent: proposals.Spent) -> int:
    """Passes of the student at hand over its completions of the hard problems; the noise is the step's."""
    passes, tokens = ask(school, hard, school.spec.probe_samples, "probe", step)
    spent.asked(tokens, len(hard) * school.spec.probe_samples)
    return sum(passes)


def graduate(
    course: Course, rows: list[Row], hard: list[Row], step: int, factor: float, spent: proposals.Spent
) -> tuple[int, Weights, proposals.Lines]:
    """Train a fork of the student on a dataset, and ask it the hard problems: its passes, its weights, and its steps of RL."""
    become(course.school.student, course.known)
    lines = trained(course.school, rows, step, factor)
    spent.learnt(lines)
    return examine_student(course.school, hard, step, spent), weights(course.school.student), lines


def learnable(school: School, datasets: list[list[Row]], step: int, spent: proposals.Spent) -> torch.Tensor:
    """(g,) float64: what the student at hand, before it is trained, says of each dataset."""
    rows, n = [row for own in datasets for row in own], school.spec.method.allocation.num_generations
    passes, tokens = ask(school, rows, n, "learnable", step)
    spent.asked(tokens, len(rows) * n)
    member = [k for k, own in enumerate(datasets) for _ in own]
    return proposals.intrinsic([count / n for count in passes], member, len(datasets))
