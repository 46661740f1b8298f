"""The spec of a report: all that a study answers with, its controls, matched budgets, looks, pilot and registration."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from interplay.core.artifact import make_ref
from interplay.core.model import Count, Model, Share, Since
from interplay.report.claim_spec import LEAST_BASES, Claim
from interplay.report.display_spec import Figure, Placed, Table, Target
from interplay.report.metric_spec import check_column, check_metric, lower_is_better
from interplay.report.shown_spec import ArmShown, readable

# Who is compared in a table with a contrast, as the planner found it.


class Try(Model):
    """One arm that may stand for a contender."""

    arm: str
    value: str = ""
    """Value of the tuned axis; empty without tuning."""


class Contender(Model):
    """A row of a contrast."""

    name: str
    tries: list[Try]
    """In the order of the arms; one without tuning."""


class Lineup(Model):
    """Who is compared in one table, as the planner found it."""

    against: str
    """A contender."""
    contenders: list[Contender]
    twins: dict[str, str]
    """Arm that repeats another with another random stream -> the other."""


# Controls, matched budgets, looks and registration.


def _rises(value: str) -> str:
    if lower_is_better(check_metric(value)):
        raise ValueError(f"a gain is more of it, and of '{value}' less is better; write another, such as strict_pass@1")
    return value


ControlKind = Literal["random", "format", "labels", "prior", "none", "sft"]


class Controls(Model):
    """What else may explain that an arm gains by RL, each an arm of its own, called `control_` and its kind, that is compared
    with it. `controls: standard` is about the first claim that compares an arm after RL with what its RL started from."""

    of: str
    """The arm whose gain is to be explained: its path leads through RL."""
    against: str
    """The arm that ends where this RL starts, over which it gains."""
    band: Annotated[str, AfterValidator(check_column)]
    """A band, or `op:N`, on which gains are measured."""
    value: Annotated[str, AfterValidator(_rises)] = "strict_pass@1"
    """Metric of the gains."""
    among: Annotated[list[ControlKind], Field(min_length=1)] = ["random", "format", "labels", "prior", "none", "sft"]
    """random: the same RL, paid by chance; format: paid for readable answers, right or wrong; labels: paid for the answer of
    another problem; none: no RL, and other samples; sft: SFT on gold solutions of the same problems, on as many tokens as RL may
    train on. prior needs no arm: what answers score that are drawn without reading the problem."""

    @property
    def arms(self) -> dict[str, str]:
        """Kind -> its arm, of those that have one."""
        return {kind: f"control_{kind}" for kind in self.among if kind != "prior"}


class Match(Model):
    """Arms that are to be compared at equal budgets. With `paper` accounting a plan that breaks it is refused; `realised` is
    judged from the records, and claims that compare arms of a match that failed are not judged."""

    budget: Literal["tokens", "flops", "rollouts"]
    """tokens: trained on; flops: of training, with sampling and scoring in RL; rollouts: completions sampled by RL."""
    accounting: Literal["paper", "realised"] = "realised"
    """paper: as planned, RL charged as (5/3) N r L training tokens at the length cap L (arXiv:2512.07783, section 5), and 6
    FLOPs per parameter and token of these; realised: what the records say was trained on and sampled."""
    tolerance: Share = 0.05
    """Most that the smallest budget may lie below the largest, as a share of it; of the means over seeds."""
    among: list[str]
    """Arms, two at least."""
    stages: list[str] | None = None
    """Stages that count, by name; null: those of the paths but for what all these arms share."""

    @model_validator(mode="after")
    def _several(self) -> "Match":
        if len(set(self.among)) < 2 or len(set(self.among)) < len(self.among):
            raise ValueError(f"among must name two different arms at least, each once, not {self.among}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie in [0, 1), not {self.tolerance}")
        return self


class Stopping(Model):
    """When claims are judged while replicates are added, as group-sequential tests: alpha is spent over the looks by a function
    of the kind of O'Brien and Fleming (Lan and DeMets, Biometrika 70, 1983), and beta, for futility, likewise."""

    looks: Annotated[list[Count], Field(min_length=1)]
    """Numbers of replicates at which claims are judged, in order, such as [6, 12, 24]; the last is the most that are made. The
    replicates of a look are the first of `seeds.values`."""
    alpha: float = Field(default=0.05, gt=0, le=0.2)
    """Chance of a wrong verdict over all looks, both directions together."""
    beta: float | None = Field(default=0.2, ge=0.05, le=0.5)
    """Chance, spent over the looks, to give up wrongly on an effect that the last look would find with power 1 - beta; null:
    never give up."""

    @field_validator("looks")
    @classmethod
    def _in_order(cls, value: list[int]) -> list[int]:
        if value != sorted(set(value)):
            raise ValueError(f"looks = {value} must rise, such as [6, 12, 24]")
        if value[0] < LEAST_BASES:
            raise ValueError(f"looks = {value} must begin at {LEAST_BASES} replicates or more, which a verdict needs")
        return value


class Pilot(Model):
    """What a pilot measured of the difference of two arms in strict pass@1 at the edge, from which `interplay plan` says what the
    planned replicates can find: standard deviations in points."""

    bases: float
    """Between bases, the run on each included."""
    seeds: float
    """Between runs on one base."""
    prompts: float
    """Between prompts; as measured on one base an upper bound, since it holds the noise of samples."""
    contenders: tuple[float, float] | None = None
    """Between bases and between prompts, of two arms that train stages of the same kinds on one base, pooled over such pairs: for
    claims and fights about such arms. Null: those above, which are of an arm and its base."""
    source: str
    """What they were measured from."""


class Change(Model):
    """A key that differs from what was registered."""

    key: str
    """`claims[RL lifts the edge].test.at_least`, `stages.rl.steps`; of a claim that was added the claim alone."""
    before: str
    """As JSON; empty: absent."""
    after: str

    def said(self, without: str = "") -> str:
        """In words, the key without its beginning."""
        return f"{self.key.removeprefix(without)}: {self.before or 'absent'} → {self.after or 'absent'}"


class Registration(Model):
    """A registration as the planner found it, and what was changed since."""

    file: str
    """Its path in the project."""
    date: str
    """Of the first registration, UTC."""
    commit: str
    """At which it was written; empty outside git."""
    late: bool
    """Whether there were results of the treatment already."""
    again: list[str] = []
    """Dates of later registrations, after data."""
    changes: list[Change] = []
    exploratory: bool = False
    """Whether the study says so of all its claims."""
    edited: bool = False
    """Whether the file itself was edited since it was written."""


class ReportStage(Model):
    """One stage on an arm's path."""

    name: str
    kind: str
    digest: str
    step: Annotated[int | None, Since(None)] = None
    """The kept checkpoint from which the path goes on; null: the end."""

    def ref(self) -> str:
        """The model with which the path goes on, as a dependency."""
        return make_ref(self.digest, self.step)


class ReportRung(Model):
    """One evaluation along a training ladder."""

    evaluation: str
    """Its name in the study."""
    stage: str
    """Name of the stage whose models are evaluated."""
    step: int | None
    """0: the model it starts from; null: its end, where only its record says which step that is."""
    digest: str


class ReportArm(Model):
    """One arm at one seed: its path and its evaluations."""

    arm: str
    seed: int
    control: str | None = None
    path: list[ReportStage]
    evaluations: dict[str, str]
    """Evaluation name -> digest."""
    rungs: Annotated[list[ReportRung], Since([])] = []
    """Evaluations along stages of the path."""
    calibration: Annotated[str, Since("")] = ""
    """Digest of the stage that chose the ops of bands for this replicate; empty: all are pinned."""
    calibrated: Annotated[list[str], Since([])] = []
    """Calibrated bands that stages of the path were trained on."""

    def digests(self) -> list[str]:
        """Its stages: the path, then the evaluations."""
        return [*(stage.digest for stage in self.path), *self.evaluations.values()]

    def evaluated(self) -> list[str]:
        """Its evaluations, then those along stages."""
        return [*self.evaluations.values(), *(rung.digest for rung in self.rungs)]

    def among(self, digests: Collection[str]) -> list[str]:
        """Those of these stages that are its own: evaluations, then the path."""
        return [one for one in (*self.evaluations.values(), *(part.digest for part in self.path)) if one in digests]


class ReportSpec(Model):
    """All that the report shows. Roles: every stage it reads, named by its digest."""

    VERSION: ClassVar[int] = 6
    """2: curves in panels by kind of stage; 3: overlaps by origin, baselines of scores; 4: of evaluations that hold a column the
    first with enough samples, and a path from an earlier checkpoint continues no arm that goes on to the end; 5: a band that one
    set names is never read off the ops of another; 6: intervals for any base and any prompt, verdicts that need three bases,
    premises."""

    study: str
    scale: str
    question: str
    source: str = ""
    arms: list[ReportArm]
    bands: dict[str, list[int]]
    """Ops of each band."""
    trained_ops: dict[str, list[int]]
    """Per arm, the ops in the data of any stage of its path."""
    tables: dict[str, Table]
    figures: dict[str, Figure]
    key_figure: Annotated[str, Since("")] = ""
    """The figure that the page shows below its claims; empty: the first that is drawn."""
    claims: list[Claim]
    match: Annotated[list[Match], Since([])] = []
    """Budgets that arms share."""
    blocks: Annotated[dict[str, list[str]], Since({})] = {}
    """Digest of an evaluation -> digests of the stages with its further samples: they count as one."""
    lineups: Annotated[dict[str, Lineup], Since({})] = {}
    """Table with a contrast -> who is compared in it."""
    trained_sets: Annotated[dict[str, list[str]], Since({})] = {}
    """Per arm the digests of all sets in the data of any stage of its path, where some sets of the study are files or curated:
    whose ops the plan does not determine."""
    controls: Annotated[Controls | None, Since(None)] = None
    """What else may explain a gain, with the arms that it needs."""
    lacking: Annotated[Literal["not tested", "left out"], Since("not tested")] = "not tested"
    """What becomes of a claim on a calibrated band that some base has not."""
    shown: Annotated[dict[str, ArmShown], Since({})] = {}
    """Arms with a label or a colour of their own."""
    placed: Annotated[dict[str, list[Placed]], Since({})] = {}
    """Figure against axes -> where its arms are."""
    stopping: Annotated[Stopping | None, Since(None)] = None
    """Null: claims are judged once, with all replicates."""
    registration: Annotated[Registration | None, Since(None)] = None
    """Null: the study is not registered."""
    tuning: Annotated[list[ReportArm], Since([])] = []
    """Tries of tuned arms on the bases of a pilot."""
    targets: Annotated[dict[str, Target], Since({})] = {}
    """Levels of learning curves, by the names that are written in place of bands."""

    def label_of(self, arm: str) -> str:
        """What an arm is called in tables and figures."""
        return (self.shown[arm].label if arm in self.shown else "") or readable(arm)

    def arm_names(self) -> list[str]:
        """The arms in the order of the study."""
        return list(dict.fromkeys(row.arm for row in self.arms))

    def rows_of(self, *arms: str | None) -> list[ReportArm]:
        """These arms at each of their seeds, in the order of the study."""
        return [row for row in self.arms if row.arm in arms]

    def changes_of(self, claim: Claim) -> tuple[str, ...]:
        """`test.at_least: 0.1 → 0.05`, what of a claim differs from what was registered."""
        at, changes = f"claims[{claim.says}]", self.registration.changes if self.registration else []
        of = (at, f"targets.{claim.test.band}.")
        return tuple(one.said(f"{at}.") if one.key != at else "added" for one in changes if one.key.startswith(of))

    def blocks_of(self, digest: str) -> list[str]:
        """The stages that hold the samples of an evaluation, itself first."""
        return [digest, *self.blocks.get(digest, [])]


# Which stages of which arms a matched budget counts, and the spread of their budgets.


def matched_stages(match: Match, rows: Iterable[ReportArm]) -> dict[str, list[ReportStage]]:
    """Stages that count, by arm of `among`, given all arms at one seed. What all of them share would only dilute a difference:
    it is left out unless `stages` names it."""
    paths = {row.arm: row.path for row in rows if row.arm in match.among}
    if match.stages is not None:
        return {arm: [stage for stage in path if stage.name in match.stages] for arm, path in paths.items()}
    each = [{(stage.digest, stage.step) for stage in path} for path in paths.values()]
    shared = set.intersection(*each) if len(each) > 1 else set()
    return {arm: [stage for stage in path if (stage.digest, stage.step) not in shared] for arm, path in paths.items()}


def budget_spread(numbers: Mapping[str, float]) -> float:
    """How far the smallest lies below the largest, as a share of the largest; 0 where there is nothing to compare."""
    largest = max(numbers.values(), default=0)
    return (largest - min(numbers.values())) / largest if largest else 0.0
