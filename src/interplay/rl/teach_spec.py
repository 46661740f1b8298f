"""Spec of teaching: a model learns to pose the problems that teach another one."""

from typing import Annotated, ClassVar, Literal

from pydantic import model_validator

from interplay.core.model import Count, NotNegative, Since, curves_in
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl.spec import RLSpec
from interplay.tasks.spec import Task

MOST_LEARNABLE = 0.25
"""The largest p (1 - p)."""


class TeachSpec(RLSpec):
    """A teacher proposes problems, a student takes a few steps of RL on them, and the teacher is paid for what that did to the
    student's pass rate on hard problems that it never sees (SOAR, arXiv:2601.18778). Both start from `init`. The teacher writes
    prompts, each behind a first letter that is drawn for it, as a model can that was trained with `loss_on: all`; those that the
    task's parser refuses are left out, and the task's solver says what is right (in the paper the teacher answers its own
    questions). Both learn with `method`, the teacher with its loss alone. What is inferred: that the proposals of a dataset share
    its reward, that students have a fresh optimiser each time, and when one is promoted. The keys of RL are the students', but
    for `steps` (outer steps, each with one update of the teacher and at most one promotion), `mix` (of the hard problems that are
    asked), `keep_rollouts` (proposals of an outer step kept in proposals.parquet) and `seed` (also of proposals and of which hard
    problems are asked). Roles: `init` (a model), `data.<i>` (the hard problems, nothing of which is trained on) and `instances`
    (problems in place of proposals)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"every_prompt", "equal_groups", "bare_prompts", "one_round"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns", "stateful_steps", "reads_rollouts", "learned_reward"})
    """A student's few steps leave no room for a state, and proposals have nothing but their advantage."""
    TOTALS: ClassVar[tuple[str, ...]] = ("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps")
    MEANS: ClassVar[tuple[str, ...]] = (
        *("valid", "distinct", "op", "reward", "reward_std", "probe_before", "probe_after", "probe_student", "student_reward"),
    )
    lora: Annotated[Literal[None], Since(None)] = None
    """A teacher and its student train all weights."""
    numerics: Annotated[Literal["fast"], Since("fast")] = "fast"
    """exact does not cover this kind."""
    trainer: Annotated[Literal["native"], Since("native")] = "native"
    """No other teaches."""
    references: Annotated[Literal[None], Since(None)] = None
    """Students and teacher are held to the model that they start from."""
    task: Task
    """The family and its knobs, by which proposals are read and answered."""
    proposer: Literal["teacher", "instances"] = "teacher"
    """instances: no teacher; datasets are drawn from the problem set that the stage names under `instances`, as a control."""
    teacher_reward: Literal["grounded", "intrinsic"] = "grounded"
    """What a dataset is worth. grounded: the student's pass rate on hard problems after training on it, less that before;
    intrinsic: the mean of p (1 - p) over its valid proposals, p the student's pass rate on each, and only the best dataset of a
    step is trained on."""
    datasets: Count = 4
    """Candidate datasets per outer step (g), which the teacher's advantages compare."""
    problems_per_dataset: Count = 32
    """Proposals in each (n)."""
    inner_steps: Count = 10
    """Steps of RL that a student takes on a dataset."""
    probe_problems: Count = 32
    """Hard problems that are asked, drawn anew for each outer step; all where there are fewer."""
    probe_samples: Count = 8
    """Completions of each, before and after with the same noise."""
    by: Literal["strict", "answer"] = "strict"
    """What counts as passing: the whole solution, or the answer alone."""
    promote_threshold: float = 0.01
    """The student of the best dataset is the student of the next outer step, and of the end, when its reward reaches this."""
    invalid_penalty: NotNegative = 0.1
    """Taken off the reward of a proposal that is no problem (ours: the paper was not seen to have it)."""
    max_proposal_length: Count = 128
    """Tokens after which a proposal is cut."""
    teacher_temperature: NotNegative = 1.0
    """Of the proposals; above 0."""
    teacher_optimizer: TuneOptimizer = TuneOptimizer()
    """Of the teacher."""

    @model_validator(mode="after")
    def _pays(self) -> "TeachSpec":
        if found := next(curves_in(self), None):
            raise ValueError(f"{found[0]}: is a curve over a run, and students and their teacher have no one run; write a number")
        if self.proposer == "teacher" and self.datasets < 2:
            raise ValueError("datasets = 1: the teacher's advantages compare datasets; give 2 at least")
        if self.teacher_reward == "intrinsic" and self.promote_threshold > MOST_LEARNABLE:
            over = f"p (1 - p) is at most {MOST_LEARNABLE}"
            raise ValueError(f"promote_threshold = {self.promote_threshold}: {over}, so that no student would be promoted")
        if self.teacher_temperature == 0:
            raise ValueError("teacher_temperature = 0 makes all proposals equal: nothing is learnt; write 1.0")
        return self

    def students(self) -> int:
        """Datasets of an outer step that a student is trained on."""
        return self.datasets if self.teacher_reward == "grounded" else 1

    def learning_rollouts(self) -> int:
        """Completions of an outer step that students are trained on."""
        return self.students() * self.inner_steps * self.prompts_per_step * self.method.allocation.num_generations

    def judging_rollouts(self) -> int:
        """Completions of an outer step that say how good students are or how learnable proposals; nothing is trained on them."""
        asked = (1 + self.students()) * self.probe_problems * self.probe_samples
        if self.teacher_reward == "grounded":
            return asked
        return asked + self.datasets * self.problems_per_dataset * self.method.allocation.num_generations

    def recorded(self) -> tuple[str, ...]:
        """Of the outer steps, and what the teacher wrote."""
        return (*super().recorded(), "promoted", "proposal_tokens")

    def proposals(self) -> int:
        """Texts that the teacher writes in an outer step."""
        return self.datasets * self.problems_per_dataset if self.proposer == "teacher" else 0
