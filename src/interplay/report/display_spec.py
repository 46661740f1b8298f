"""Specs of tables with their contrasts, figures, and levels of learning curves: what a report displays."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from interplay.core.model import Count, Model, Natural, Positive, Share, Since, first_repeated, nearest_name
from interplay.report.claim_spec import Premise, Test
from interplay.report.metric_spec import ERROR, check_cell, check_column, check_metric, find_metric, is_of_run
from interplay.report.shown_spec import SHARE

# Tables, with pairwise comparisons: baseline, noise floor, tuning.


class Tune(Model):
    """A sweep within each arm of the study: of the combinations that differ only in the axis, the best on the tuning column, in
    the mean over seeds and by the table's first cell, stands for the arm. Each arm has as many values to choose from."""

    axis: str
    """The axis, `stage.key`, such as rl.optimizer.learning_rate."""
    band: str
    """Column to choose by: a band of the evaluations that is none of the table's columns, so that nothing is judged by the
    prompts that it was chosen by."""
    bases: Annotated[list[Natural], Since([])] = []
    """Seeds of a pilot, none of the study's: replicates with bases of their own, on which every arm has all its tries, and which
    choose and are judged nowhere. Empty: the study's own replicates choose."""


class Contrast(Model):
    """Pairwise comparisons with a baseline arm: with Holm's correction and a seed-noise floor, or, as a fight, by one primary
    outcome with Dunnett's."""

    against: str
    """The arm that the others are compared with: one of the study's, or a combination of one with axes."""
    among: list[str] | None = None
    """Arms (or combinations) that are compared with it; null: all but those of `noise`."""
    noise: list[str] = []
    """Arms, one or a list, each of which repeats one of the others with another random stream: `set: {rl.seed: 100}` adds 100 to
    the seed of stage rl. Their differences are the noise floor; with dunnett there is none."""
    correction: Literal["holm", "dunnett", "none"] = "holm"
    """dunnett: a fight. The table has one column and one cell, the primary outcome; the variance is pooled over all arms on the
    same bases, and intervals and p-values hold for all contenders together (Dunnett, 1955). holm: the p-values of all comparisons
    that the table makes are adjusted together (Holm, 1979), each with the variance of its own."""
    margin: Annotated[float | None, Since(None)] = None
    """Of a fight: the largest difference that counts as none, as a fraction. A contender whose interval lies within it is
    *equivalent*; without a margin a tie cannot be shown."""
    effect: Annotated[Share, Since(0.1)] = 0.1
    """Of a fight: the difference that it is to find, as a fraction. A plan whose replicates find it with a power below 0.8, by
    the pilot, is refused unless it is exploratory."""
    requires: Annotated[list[Premise], Since([])] = []
    """Of a fight: premises, a positive control (`improves`) among them. Where one fails no contender is tested."""
    tune: Tune | None = None
    """A sweep that each arm was given; null: combinations stand for themselves."""

    @field_validator("noise", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fight_or_floor(self) -> "Contrast":
        if self.correction != "dunnett":
            if not self.noise:
                raise ValueError(
                    "noise: name an arm that repeats another with another random stream, or take correction: dunnett"
                )
            if self.margin is not None or self.requires:
                key = "requires" if self.requires else "margin"
                raise ValueError(f"{key} belongs to a fight; add correction: dunnett")
        elif self.noise:
            raise ValueError("noise has no place in a fight, which pools the variance of all arms; take it away")
        elif not any(premise.improves for premise in self.requires):
            remedy = "such as requires: [{improves: {arm: grpo, against: base, by: 0.1}}]"
            raise ValueError(f"a fight requires a positive control that must be found, {remedy}")
        if self.margin is not None and self.margin <= 0:
            raise ValueError(f"margin = {self.margin:g} must be above 0")
        return self


class Gain(Model):
    """What an arm gained over another, split by what that one could already do: sharpening or capability."""

    against: str
    """The arm that the others are compared with, such as the base that they start from."""
    k: Count | None = None
    """Samples in which a prompt counts as newly solved or lost; null: as many as the evaluations hold."""


def _each_once(names: list[str]) -> list[str]:
    if not names:
        raise ValueError("empty; name one, or leave the key out")
    if (repeated := first_repeated(names)) is not None:
        raise ValueError(f"{repeated} is named twice; name each once")
    return names


ShownArms = Annotated[list[str], AfterValidator(_each_once)]
"""Arms that are shown, in this order."""


class Table(Model):
    """Rows are arms; columns are bands (or single ops) by cells."""

    rows: Literal["arm"] = "arm"
    """What a row is."""
    columns: list[str]
    """Bands, single ops as `op:N`, or `op` for one column per op; or names of `targets`."""
    cells: list[str]
    """Metrics, such as strict_pass@1, score, nll, hacked (right answers whose process is wrong), error:CLASS, or own:NAME of a
    function of the study's own; `error`: a cell for each class of errors that occurred; of targets such as steps_to_target."""
    arms: Annotated[ShownArms | None, Since(None)] = None
    """Arms that have a row, in this order; an arm with axes stands for its combinations. Null: all, in the study's order."""
    contrast: Annotated[Contrast | None, Since(None)] = None
    """A further table with these columns and cells: differences to one arm with the noise floor and verdicts."""
    against: Annotated[str | None, Since(None)] = None
    """The cells are differences to this arm, with their intervals; null: values."""
    gain: Annotated[Gain | None, Since(None)] = None
    """A further table with these columns: the gain in strict pass@1 as sharpening and capability, prompts newly solved and
    lost."""
    title: Annotated[str, Since("")] = ""
    """Heads the table; empty: its name."""
    caption: Annotated[str, Since("")] = ""
    """What it shows, above its notes."""

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("empty; name a band, or op")
        return _each_once([check_column(item) for item in value])

    @field_validator("cells")
    @classmethod
    def _cells(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("empty; name a metric, such as strict_pass@1")
        return _each_once([check_cell(item) for item in value])

    @model_validator(mode="after")
    def _one_kind_of_differences(self) -> "Table":
        if self.contrast is not None and self.against is not None:
            raise ValueError("against: a contrast shows differences already; take one of the two away")
        return self

    @property
    def fight(self) -> Test | None:
        """What a fight measures of each contender; null where the table is none."""
        if self.contrast is None or self.contrast.correction != "dunnett":
            return None
        return Test(difference=self.cells[0], band=self.columns[0], arm="contender", against=self.contrast.against)

    @model_validator(mode="after")
    def _one_outcome(self) -> "Table":
        if self.contrast is not None and self.contrast.correction == "dunnett":
            if self.columns == ["op"] or len(self.columns) != 1 or len(self.cells) != 1:
                said = f"columns = {self.columns}, cells = {self.cells}"
                raise ValueError(
                    f"{said}: a fight has one primary outcome; name one column and one cell, others in another table"
                )
            faults = [fault for premise in self.contrast.requires if self.fight and (fault := premise.fault(self.fight))]
            if faults:
                raise ValueError(f"contrast.requires: {faults[0]}")
        return self

    @model_validator(mode="after")
    def _judged_by_other_prompts(self) -> "Table":
        tune = self.contrast.tune if self.contrast else None
        if tune is not None:
            check_column(tune.band)
            if tune.band in self.columns:
                raise ValueError(
                    f"contrast.tune.band = '{tune.band}' is a column of this table: nothing may be judged by what it "
                    "was chosen by; tune on another band"
                )
        return self


# Figures.


class Placed(Model):
    """An arm in a figure against the values of axes."""

    arm: str
    x: float | str
    """Its value of the figure's `x`."""
    row: float | str | None = None
    """Its value of `by`, in a heat map."""
    line: str = ""
    """The arm of the study with its other axes: what one line connects."""


class Extrapolate(Model):
    """A saturating curve y = c - a (x + 1)^-b through the first points, judged by the last."""

    part: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the points, from the first on, that it is fitted to."""
    tolerance: Positive = 0.05
    """The prediction is near where it lies so close to what was observed, or within half of the interval there; in the unit of
    y, pass rates as fractions."""


SPENT = ("tokens", "flops", "seconds", "kl")
"""What training an arm took, and how far it led from a reference, as `x` of a figure."""
PLAIN = ("k", "op", "band", "length", "step", "depth")
"""Values of `x` that need no axis of arms."""
Plain = Literal["k", "op", "band", "length", "step", "depth", "tokens", "flops", "seconds", "kl"]
AxisKey = Annotated[str, Field(pattern=r"^\w+(\.\w+)+$")]
"""`stage.key` of an axis, such as rl.method.loss.beta."""


class Figure(Model):
    """pass@k curves (x: k), bars per op (x: op), lines over bands in an order (x: band) or by the length of completions (x:
    length), error classes as stacked bars (x: band, y: error), training curves or evaluations along a ladder (x: step), a score
    against the values of an axis (x: its key) or against what training took (x: tokens, flops, seconds), a heat map of arms by
    ops or bands, or of the values of two axes (form: heat)."""

    x: Plain | AxisKey
    """Samples per prompt, op, band, mean tokens of the arm's completions on a band (length), training step; depth: of needles
    (step needle with depths), in a heat map; what the training of the whole path took, as recorded (tokens trained on, FLOPs,
    seconds of the stages); kl: the square root of the mean sequence_kl of its evaluation over all test problems
    (arXiv:2210.10760), and where y is a metric @1 of the best of K also a line of the first arm's best of n, at log n - (n - 1) /
    n nats (arXiv:2009.01325); or the key of an axis as an arm declares it, such as rl.method.loss.beta or split.rl_share."""
    y: str
    """For k: strict_pass or answer_pass; for step: a key of metrics.jsonl, such as reward, loss or drawn/BAND, or a metric of the
    evaluations with `along`: a pass rate, nll, hacked, error:CLASS or own:NAME; else a metric, for band also error."""
    by: Literal["arm", "band"] | AxisKey = "arm"
    """What a line or a bar stands for; in a heat map over two axes, the key of the second, whose values are its rows; band: of
    one arm a row for each of `bands`, such as lengths of a context (x: op, depth)."""
    panel: Literal["band", "none"] = "none"
    """Whether each band has a panel of its own (x: k, step, an axis, or what training took)."""
    bands: Annotated[list[str] | None, Since(None)] = None
    """Bands from left to right (x: band), or from top to bottom (by: band), such as one task at growing lengths; or those that
    are drawn at their lengths (x: length), a panel for those of equal ops."""
    form: Annotated[Literal["usual", "heat"], Since("usual")] = "usual"
    """heat: the number in each cell, of a row per arm and a column per op or band, or of two axes."""
    against: Annotated[str | None, Since(None)] = None
    """The cells of a heat map are differences to this arm; null: values."""
    extrapolate: Annotated[Extrapolate | None, Since(None)] = None
    """Fits a saturating power law to the first part of each curve (x: step) and reports the forecast error at its end."""
    band: Annotated[str | None, Since(None)] = None
    """Band, or `op:N`, that y is measured on (x: an axis, or what training took); null: all test problems."""
    log: Annotated[bool, Since(False)] = False
    """Whether x is logarithmic (x: an axis, or what training took); 0 then has a place of its own, a step to the left of the
    other values. Values below 0 are refused."""
    arms: Annotated[ShownArms | None, Since(None)] = None
    """Arms that are drawn, in this order; an arm with axes stands for its combinations. Null: all, in the study's order."""
    title: Annotated[str, Since("")] = ""
    """Heads the figure; empty: its name."""
    caption: Annotated[str, Since("")] = ""
    """What it shows, before the caption that says how it was made."""

    @field_validator("x", mode="before")
    @classmethod
    def _known_x(cls, value: object) -> object:
        if isinstance(value, str) and "." not in value and value not in (*PLAIN, *SPENT):
            raise ValueError(
                f"no x: '{value}'; write the key of an axis, such as rl.method.loss.beta{nearest_name(value, (*PLAIN, *SPENT))}"
            )
        return value

    @model_validator(mode="after")
    def _y_fits_x(self) -> "Figure":
        if (self.x in ("band", "length") or self.by == "band") != (self.bands is not None):
            given = self.bands is not None
            raise ValueError(
                "bands belong to x: band, x: length and by: band" if given else "bands are missing; list them from left to right"
            )
        if self.bands is not None and (len(self.bands) < 2 or len(set(self.bands)) < len(self.bands)):
            raise ValueError(f"bands must be two at least, each once, not {self.bands}")
        if self.x == "k" and self.y not in ("strict_pass", "answer_pass"):
            raise ValueError(f"'{self.y}' cannot be drawn against k; write strict_pass or answer_pass")
        if self.x not in ("k", "step") and not (self.x == "band" and self.y == ERROR and self.form == "usual"):
            check_metric(self.y)
        if is_of_run(self.y):
            raise ValueError(f"'{self.y}' is a number of a target; show it in a table, and draw the curve against x: step")
        return self

    @model_validator(mode="after")
    def _keys_fit_x(self) -> "Figure":
        if self.form == "heat" and self.x in ("k", "length", "step", *SPENT):
            raise ValueError(
                f"a heat map has ops, bands or an axis as its columns; write x: op, x: band or a key, not x: {self.x}"
            )
        if self.x == "depth" and self.form != "heat":
            raise ValueError("x: depth is the columns of a heat map; write form: heat")
        if self.by == "band":
            if self.form != "heat" or self.x not in ("op", "depth") or len(self.arms or ()) != 1:
                raise ValueError("by: band is a heat map of one arm by ops or depths; write form: heat, x: depth and arms: [ARM]")
            return self
        if self.form == "heat" and self.is_axis() != (self.by != "arm"):
            raise ValueError("a heat map over two axes has the keys of both; write x and by, or take one away")
        if self.form != "heat" and self.by != "arm":
            raise ValueError("by belongs to form: heat; take it away: each arm with other axes has a line")
        if self.by == self.x:
            raise ValueError(f"by = '{self.by}' is x already; name another axis")
        if self.against is not None and self.form != "heat":
            raise ValueError("against belongs to form: heat; take it away, or draw a heat map")
        if self.extrapolate is not None and self.x != "step":
            raise ValueError("extrapolate belongs to x: step; take it away")
        if (self.band is not None or self.log) and not (self.is_axis() or self.x in SPENT):
            key = "band" if self.band is not None else "log"
            raise ValueError(f"{key} belongs to a figure against an axis, tokens, flops or seconds; take it away")
        if self.band is not None:
            check_column(self.band)
        if self.log and self.form == "heat":
            raise ValueError("log: a heat map has a column for each value; take it away")
        return self

    def is_axis(self) -> bool:
        """Whether x is an axis of arms."""
        return "." in self.x

    def along(self) -> bool:
        """Whether it shows evaluations along a training ladder."""
        found = find_metric(self.y)
        return self.x == "step" and found is not None and not found.logged


class Target(Model):
    """A level of a learning curve. Tables and claims name it in place of a band, with the metrics reached_target,
    steps_to_target, tokens_to_target and seconds_to_target: whether, and after how much, a run first came there. A run that does
    not is counted up to the horizon, where the shortest run of any arm with this stage ended."""

    stage: str
    """The RL stage whose curve it is."""
    curve: str
    """What the stage logs at each step of the prompts that it draws, such as strict, answer or reward. Arms that draw other
    prompts have other curves and are refused; or, with `evaluation`, a metric of that, such as strict_pass@1."""
    level: float = Field(gt=0, le=1)
    """Level that the smoothed curve has to reach, as a fraction."""
    window: Count | None = None
    """Points that are smoothed over: the mean of so many up to a step has to reach the level there. Null: 5 steps, or all of a
    shorter curve; 1 evaluation."""
    evaluation: str | None = None
    """An evaluate stage with `along`: the curve are its evaluations, of the same prompts for all arms."""
    band: str = ""
    """Of the evaluation: a band, or `op:N`; empty: all its prompts."""

    def points(self, there: int) -> int:
        """Points that are smoothed over, of a curve of so many."""
        return self.window or (min(5, there) if self.evaluation is None else 1)

    @model_validator(mode="after")
    def _curve_of_evaluation(self) -> "Target":
        if self.evaluation is None:
            if self.band:
                raise ValueError(f"band = '{self.band}' belongs to an evaluation; name one with along, or take it away")
            return self
        row = find_metric(check_metric(self.curve))
        if row is None or row.measure is not SHARE or row.better == "lower" or row.per == "run":
            raise ValueError(f"curve = '{self.curve}' is no share that rises as a model learns; write one, such as strict_pass@1")
        if self.band:
            check_column(self.band)
        return self
