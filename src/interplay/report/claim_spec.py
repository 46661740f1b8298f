"""Claims: a sentence with its test, what was published, and the premises without which it is not tested."""

import math
from typing import Annotated, Literal

from pydantic import model_validator

from interplay.core.model import Model, Share, Since
from interplay.report.metric_spec import check_column, check_metric, find_metric, measure_of


class Test(Model):
    """What a claim asserts: `value` in a range or on one side of a bound, or `difference` of two arms on one side of a bound."""

    value: str | None = None
    """Metric of `arm` on `band`, to lie `within` [low, high], `at_least` or `at_most`; metrics and bounds are fractions, not
    percent. The interval of a share ends at 0 and at 1."""
    difference: str | None = None
    """Metric of `arm` minus that of `against`, on `band`."""
    band: str = ""
    """A band, or `op:N` for a single op."""
    recorded: Annotated[str | None, Since(None)] = None
    """In place of a band a stage of the arms' paths: the metric is a key of the metrics in its record, such as
    entropy_last of stage rl, or one minus another, `reward_last - reward_first`."""
    arm: str
    """The arm that is judged."""
    against: str | None = None
    """The arm that it is compared with, for `difference`."""
    within: tuple[float, float] | None = None
    """Range of `value`, ends included, in [0, 1] but for what is recorded."""
    at_least: float | None = None
    """Least `difference`, in [-1, 1], of nll in nats per token; or least `value`, in [0, 1] but for what is recorded."""
    at_most: float | None = None
    """Largest `difference` or `value`, likewise."""
    margin: Annotated[float | None, Since(None)] = None
    """Largest absolute `difference` that counts as none: the two are *equivalent* where the interval lies within it."""

    interval: Annotated[Literal["arms"] | None, Since(None)] = None
    """Of a `difference` of shares. arms: from the intervals of both arms, for rates below 5 %, where gains are skewed and the t
    interval misses larger ones in 6 to 10 of 100; 6 to 21 % wider from 6 bases on, with three 47 to 74. null: t."""

    @model_validator(mode="after")
    def _one_place(self) -> "Test":
        if (self.band == "") == (self.recorded is None):
            raise ValueError("give either band or recorded")
        if self.recorded is None:
            check_column(self.band)
        return self

    @property
    def arms(self) -> list[str]:
        """The arm, and the one that it is compared with."""
        return [self.arm, *([] if self.against is None else [self.against])]

    @property
    def metric(self) -> str:
        """What is judged, by itself or as a difference."""
        return str(self.value or self.difference)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that it claims, that of the margin where it claims nothing else; open sides are infinite."""
        if self.within is not None:
            return self.within
        if self.at_least is None and self.at_most is None and self.margin is not None:
            return -self.margin, self.margin
        return (-math.inf if self.at_least is None else self.at_least, math.inf if self.at_most is None else self.at_most)

    @model_validator(mode="after")
    def _margin_of_a_difference(self) -> "Test":
        if self.margin is not None and (self.difference is None or self.margin <= 0):
            raise ValueError(f"margin = {self.margin:g} must be above 0, and belongs to a difference")
        if self.interval and (self.recorded or not self.difference or not measure_of(self.difference).bounded):
            raise ValueError("interval = arms belongs to a difference of shares on a band")
        return self

    @model_validator(mode="after")
    def _one_form(self) -> "Test":
        if (self.value is None) == (self.difference is None):
            raise ValueError("give either value or difference")
        if self.recorded is None:
            check_metric(self.metric)
        if self.value is not None:
            if (found := find_metric(self.value)) and not found.alone and self.recorded is None:
                raise ValueError(
                    f"value = '{self.value}' has no range that holds for every model; claim a difference of {self.value}"
                )
            if self.against or sum(bound is not None for bound in (self.within, self.at_least, self.at_most)) != 1:
                raise ValueError("value takes one of within: [low, high], at_least, at_most, and no against")
        else:
            if self.against is None or self.within is not None or None not in (self.at_least, self.at_most):
                raise ValueError("difference takes against and one of at_least, at_most")
            if self.against == self.arm:
                raise ValueError(f"against = {self.arm!r} is the arm itself: the difference is 0; name another arm")
        return self

    @model_validator(mode="after")
    def _fractions(self) -> "Test":
        """Shares lie in [0, 1], their differences in [-1, 1]: bounds outside, or that every result meets, decide nothing."""
        if self.recorded is not None or not (measure := measure_of(self.metric)).bounded:
            return self
        low = int(measure.support[0])
        if self.within is not None:
            if not low <= self.within[0] <= self.within[1] <= 1:
                raise ValueError(f"within = {list(self.within)} must hold {low} <= low <= high <= 1: fractions, not percent")
            if self.within == (low, 1):
                raise ValueError(f"within = {list(self.within)} holds for every result; give a narrower range")
        least = -1 if self.value is None else low
        for key, bound in (("at_least", self.at_least), ("at_most", self.at_most), ("margin", self.margin)):
            if bound is not None and not least <= bound <= 1:
                raise ValueError(f"{key} = {bound:g} must lie in [{least}, 1]: fractions, not percent")
            if bound == (least if key == "at_least" else 1):
                raise ValueError(f"{key} = {bound:g} holds for every result; give a bound within ({least}, 1)")
        return self


class Published(Model):
    """An effect that was published, from which the thresholds of a claim are taken."""

    effect: float
    """The difference that was found, in the unit in which it is shown here: points, of nll nats per token."""
    source: str = ""
    """Where: paper, figure, metric."""

    @model_validator(mode="after")
    def _some_effect(self) -> "Published":
        if self.effect == 0:
            raise ValueError("effect = 0 has no sign to reproduce; claim a `margin` instead")
        return self


class Headroom(Model):
    """An arm has room on a band: neither at its floor nor at its ceiling."""

    arm: str
    """The arm, mostly the base."""
    band: str = ""
    """A band, or `op:N`; empty: that of the test."""
    low: float = 0.05
    """Least value, as a fraction: room to fall."""
    high: float = 0.95
    """Largest value: room to rise."""
    value: str | None = None
    """Metric; null: that of the test."""


class Above(Model):
    """An arm scores above a level, the whole interval."""

    arm: str
    """The arm."""
    band: str = ""
    """A band, or `op:N`; empty: that of the test."""
    than: Literal["answer_prior"] | float
    """answer_prior: what drawing answers without reading the problem scores; or a fraction."""
    value: str | None = None
    """Metric; null: that of the test. With answer_prior one of answers, such as answer_pass@1."""


class Improves(Model):
    """A positive control: an arm is better than another by so much, the whole interval."""

    arm: str
    """The arm of which it is known that it improves."""
    against: str
    """The arm that it is compared with, mostly the base."""
    by: float = 0.0
    """Least difference, as a fraction."""
    band: str = ""
    """A band, or `op:N`; empty: that of the test."""
    value: str | None = None
    """Metric; null: that of the test."""
    recorded: Annotated[str | None, Since(None)] = None
    """In place of a band a stage of both paths: `value` is a key of the metrics in its record, such as entropy_last, and more is
    better. That a treatment moved what it is to move."""


class Premise(Model):
    """What must hold for a claim to be tested; one of these."""

    acts: str | None = None
    """An arm whose training changed the weights that it started from, at more than half of the seeds."""
    headroom: Headroom | None = None
    """An arm has room to rise and to fall."""
    above: Above | None = None
    """An arm is above the answer prior, or a level."""
    improves: Improves | None = None
    """A positive control: an arm that is known to improve does."""

    @model_validator(mode="after")
    def _just_one(self) -> "Premise":
        if len(self.model_fields_set - {key for key in self.model_fields_set if getattr(self, key) is None}) != 1:
            raise ValueError("a premise is one of acts, headroom, above, improves; list several as several")
        return self

    @property
    def of(self) -> Headroom | Above | Improves | None:
        """What it measures; null where it asks whether an arm acts."""
        return self.headroom or self.above or self.improves

    @property
    def recorded(self) -> str | None:
        """The stage whose record has its value; None where it is about evaluations."""
        return self.improves.recorded if self.improves else None

    @property
    def arms(self) -> dict[str, str]:
        """Key -> arm that it names."""
        if self.of is None:
            return {"acts": str(self.acts)}
        return {key: getattr(self.of, key) for key in ("arm", "against") if hasattr(self.of, key)}

    def fault(self, test: Test) -> str:
        """What is wrong with it as a premise of this test; empty where it is sound."""
        of = self.of
        if of is None:
            return ""
        if isinstance(of, Improves) and of.arm == of.against:
            return f"against = {of.arm!r} is the arm itself; name another arm"
        if isinstance(of, Improves) and of.recorded is not None:
            return "" if of.value and not of.band else "recorded takes a value, a key of the stage's record, and no band"
        if test.recorded is not None and not (of.band and of.value):
            return "give the band and the value, since the test has none"
        metric = of.value or test.metric
        check_metric(metric)
        row = find_metric(metric)
        if isinstance(of, Above) and of.than == "answer_prior":
            return "" if row and row.baseline else f"{metric} has no answer prior; give a value that has, such as answer_pass@1"
        if isinstance(of, Headroom) and of.low >= of.high:
            return f"low = {of.low:g} must be below high = {of.high:g}"
        numbers = {key: getattr(of, key) for key in ("low", "high", "than", "by") if hasattr(of, key)}
        beyond = [f"{key} = {number:g}" for key, number in numbers.items() if not 0 <= number <= 1]
        return f"{beyond[0]} must lie in [0, 1]: fractions, not percent" if beyond and measure_of(metric).bounded else ""


class Failing(Model):
    """Which bases count as failed, by what their own runs recorded, never by the outcome: where one of them, of either arm, left
    the weights as they were or has a number that is not finite, or beyond the bound. The claim is then about the other bases, and
    states the share that fails and the mean over all next to it."""

    recorded: str
    """A stage of the arms' paths, such as rl."""
    value: str
    """A key of the metrics in its record, such as reward_last."""
    below: float | str | None = None
    """A number, or another key of the record, such as reward_first: a run fails where the value is below."""
    above: float | str | None = None
    """The same for runs that fail where it is above; one of the two."""
    most: Share = 1.0
    """Largest share of bases that may fail. A verdict for the claim needs the upper end of the share's interval at or below it;
    a lower end above it is a verdict against. 1: the share is stated and not judged."""

    @model_validator(mode="after")
    def _one_side(self) -> "Failing":
        if (self.below is None) == (self.above is None):
            raise ValueError("give one of below, above: a number, or a key of the same record")
        return self

    def numbers(self) -> dict[str, str]:
        """Its keys that name a number of the record."""
        return {key: str(getattr(self, key)) for key in ("value", "below", "above") if isinstance(getattr(self, key), str)}


class Forecast(Model):
    """What is expected of a claim before its data are there; one of these, or both."""

    interval: tuple[float, float] | None = None
    """Where the estimate will lie, so wide that it does in four of five such forecasts; in the unit in which it is shown here:
    points, of nll nats per token."""
    probability: Share | None = None
    """That the verdict will be for the claim."""

    @model_validator(mode="after")
    def _something(self) -> "Forecast":
        if self.interval is None and self.probability is None:
            raise ValueError("give interval: [low, high], or probability, or both")
        if self.interval is not None and not self.interval[0] < self.interval[1]:
            raise ValueError(f"interval = {list(self.interval)} must hold low < high")
        return self


SUPPORTED, REFUTED, EQUIVALENT, NO_INFORMATION = "supported", "refuted", "equivalent", "no information"
REPRODUCED, SAME_SIGN, CONTRADICTED = "reproduced", "same sign", "contradicted"
INDICATED, INDICATED_AGAINST = "indicated", "indicated against"
NOT_TESTED, NOT_JUDGED = "not tested", "not judged"
FOR, AGAINST = (SUPPORTED, REPRODUCED, SAME_SIGN, EQUIVALENT), (REFUTED, CONTRADICTED)
"""Verdicts of an interval that say something, for the claim and against it."""
REASONS = {
    SUPPORTED: "lies inside the claimed range",
    REFUTED: "lies outside the claimed range",
    EQUIVALENT: "lies within the margin",
    REPRODUCED: "lies between half and twice of what was published",
    SAME_SIGN: "has the sign of what was published",
    CONTRADICTED: "lies below half of what was published",
    NO_INFORMATION: "reaches across a threshold",
}
"""Verdict of an interval -> why."""


def within_margin(margin: float | None, low: float, high: float) -> bool:
    """Whether the interval [low, high] lies where a difference counts as none; never without a margin."""
    return margin is not None and -margin <= low and high <= margin


def indicated(word: str) -> str:
    """What a verdict is at most over fewer bases than it needs."""
    return INDICATED if word in FOR else INDICATED_AGAINST if word in AGAINST else word


LEAST_BASES = 3
"""Below it a verdict is at most indicated."""


class Claim(Model):
    """A sentence with a source and a statistical test."""

    says: str
    """The sentence."""
    source: str = ""
    """Paper and figure that it comes from."""
    published: Annotated[str | Published, Since("")] = ""
    """What was found there, in words; or as `{effect: 42, source: ...}` the difference, from which the verdict is then taken: of
    the interval [L, U] in its direction *contradicted* (U < effect / 2), *reproduced* (effect / 2 <= L and U <= 2 effect), *same
    sign* (L > 0), else *no information*."""
    scale_note: Annotated[str, Since("")] = ""
    """Where the scale, rather than the claim, may explain that it comes out otherwise here."""
    test: Test
    """What is measured, and without a published effect the threshold."""
    requires: Annotated[list[Premise], Since([])] = []
    """Premises and positive controls: where one fails the verdict is *not tested*, with the reason. That the arm under test acted
    is required of every claim."""
    fails: Annotated[Failing | None, Since(None)] = None
    """When a base counts as failed, where some do: the interval of a mean over all holds only once failed ones were seen."""
    forecast: Annotated[Forecast | None, Since(None)] = None
    """What is expected, which `interplay register` freezes and the report shows next to the result."""
    exploratory: Annotated[bool, Since(False)] = False
    """Whether it is asserted without the power to show it: a claim whose power is below 0.8 is refused unless it says so."""

    @model_validator(mode="after")
    def _one_threshold(self) -> "Claim":
        if not self.says.strip():
            raise ValueError("says = '' is empty; write what is claimed, in a sentence")
        test, bounded = self.test, not all(map(math.isinf, self.test.bounds))
        if isinstance(self.published, Published):
            if test.difference is None or bounded:
                raise ValueError("published.effect gives the thresholds of a difference; leave at_least, at_most and margin out")
        elif not bounded:
            raise ValueError("test: difference takes against and one of at_least, at_most, or margin, or published.effect")
        if self.fails and test.recorded is not None:
            raise ValueError("fails belongs to a claim about a band: what is recorded would be judged by itself")
        for premise in self.requires:
            if fault := premise.fault(test):
                raise ValueError(f"requires: {fault}")
        return self

    @property
    def effect(self) -> float | None:
        """The published effect, as a fraction."""
        return self.published.effect / measure_of(self.test.metric).factor if isinstance(self.published, Published) else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that it claims: with a published effect from half of it to twice; open sides are infinite."""
        if self.effect is None:
            return self.test.bounds
        low, high = sorted((self.effect / 2, self.effect * 2))
        return low, high

    @property
    def thresholds(self) -> list[float]:
        """Where the verdict changes."""
        of_margin = [] if self.test.margin is None else [-self.test.margin, self.test.margin]
        ends = dict.fromkeys([*self.bounds, *of_margin, *([] if self.effect is None else [0.0])])
        return [end for end in ends if math.isfinite(end)]

    def word(self, low: float, high: float, failing: tuple[float, float] = (0.0, 0.0)) -> str:
        """The verdict of an interval over enough bases; `failing`: the interval of the share of bases that fail."""
        most = 1.0 if self.fails is None else self.fails.most
        if failing[0] > most:
            return REFUTED if self.effect is None else CONTRADICTED
        word = self._word(low, high)
        return NO_INFORMATION if word in FOR and failing[1] > most else word

    def _word(self, low: float, high: float) -> str:
        """The first of these that holds."""
        if self.effect is not None:
            effect = abs(self.effect)
            low, high = (low, high) if self.effect > 0 else (-high, -low)
            if high < effect / 2:
                return CONTRADICTED
            if effect / 2 <= low and high <= 2 * effect:
                return REPRODUCED
            return SAME_SIGN if low > 0 else NO_INFORMATION
        least, most = self.test.bounds
        tied = within_margin(self.test.margin, low, high)
        if least <= low and high <= most:
            return EQUIVALENT if tied and self.test.at_least is self.test.at_most is None else SUPPORTED
        if high < least or low > most:
            return REFUTED
        return EQUIVALENT if tied else NO_INFORMATION
