"""The metrics of an evaluation, and of a learning curve, that tables, figures and claims can show."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from interplay.core.model import nearest_name
from interplay.evaluate.spec import EvaluateSpec
from interplay.report.shown_spec import (
    ATTEMPTS,
    COMPLETION_NATS,
    FRACTION,
    NATS,
    RETURNED,
    SECONDS,
    SHARE,
    SIGNED,
    STEPS,
    TOKENS,
    TURNS,
    Measure,
    logged_measure,
)
from interplay.rollout.seat_spec import JUDGED

UNITS = "units"
"""Column with the number of units of the samples."""
ERROR = "error"
"""All error classes: a cell of a table, and the y of a figure, that becomes one for each class that occurred."""
COUNTED = "error_"
"""Prefix of a class of errors in the name of the column of `prompts.parquet` that counts it."""
OWN = "own:"
"""Prefix of a metric of the user's own, in a study, in records and as the name of a column."""
ERRORS = (
    *("none", "value", "operator", "dependency", "missing_node", "extra_node"),
    *("wrong_hop", "missing_hop", "order", "extra", "chain", "step", "citation", "subproblem", "format"),
    *("ignorance", "over_inclusion"),
    *("answer", "unboxed", "dumped", "parse", "raised", "truncated"),
    *("illegal", "made_up", "move", "process", "query", "chance"),
)
"""Classes of the task families in the order in which they are drawn: right, wrong in a step, wrong in the answer or its form;
then those of environments."""


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What knowing nothing scores: a row beneath a table."""

    name: str
    key: str
    """Of the record of an evaluation; {} is the K of the metric."""
    note: str


PRIOR = Baseline(
    "answer prior",
    "prior_pass@{}",
    "Answer prior: what drawing answers from their distribution, without reading the problem, would score.",
)
TRIVIAL = Baseline(
    "trivial policy",
    "baseline_score",
    "Trivial policy: the score of one fixed way to answer that reads nothing, such as citing every document.",
)
BASELINES = (PRIOR, TRIVIAL)
Per = Literal["sample", "draw", "right answer", "prompt", "run"]
"""sample: mean over samples; draw: the unbiased chance that one of K samples is right; right answer: a share of the samples whose
answer is right; prompt: there is one number per prompt; run: one per run, read off its learning curve (`Target`)."""


class Setting(NamedTuple):
    """What a metric needs of an evaluation. {} in a text is the K, the CLASS or the NAME of the metric."""

    written: str
    """As the spec of an evaluation writes it."""
    lacks: str
    """What an evaluation without the setting does not do."""
    met: Callable[[EvaluateSpec, str], bool]
    """Whether the spec of an evaluation has it, for a K, CLASS or NAME."""


def own_names(evaluation: EvaluateSpec) -> list[str]:
    """Names of the metrics of the user's own that the spec of an evaluation has, without their prefix."""
    return [*(one.called for one in evaluation.metrics), *(evaluation.harness.names.values() if evaluation.harness else ())]


NOTHING = Setting("", "", lambda evaluation, argument: True)
SCORED_GOLD = Setting("nll: true", "scores no gold solutions", lambda evaluation, argument: evaluation.nll)
COUNTED_ERRORS = Setting("errors: true", "counts no classes of errors", lambda evaluation, name: evaluation.errors)
COUNTED_UNITS = Setting("unit_caps: 1", "counts no units", lambda evaluation, argument: evaluation.unit_caps > 0)
BY_TURN = Setting("turns: true", "counts no turns", lambda evaluation, argument: evaluation.turns)
TURN_K = Setting(
    "turns: true",
    "has no turn {} to judge",
    lambda one, k: one.turns and one.episode is not None and int(k) <= one.episode.max_turns,
)
BEHAVING = Setting("behaviours: true", "counts no behaviours", lambda evaluation, argument: evaluation.behaviours)
PROBED = Setting("probe: {{}}", "probes no layers", lambda evaluation, argument: evaluation.probe is not None)
COMPARED = Setting("probe: {{against: ARM}}", "compares no layers", lambda one, _: bool(one.probe and one.probe.against))
CAPPED = Setting("unit_caps: {}", "judges no stop after unit {}", lambda evaluation, cap: evaluation.unit_caps >= int(cap))
RANKED = Setting(
    "by_reward: {{model: ARM}}",
    "ranks no best of {}",
    lambda evaluation, k: (
        evaluation.by_reward is not None and int(k) in (1 << n for n in range(min(evaluation.num_samples, 32).bit_length()))
    ),
)
REFERRED = Setting(
    "by_reward: {{model: ARM, reference: ARM}}",
    "measures no divergence from a reference",
    lambda evaluation, argument: evaluation.by_reward is not None and bool(evaluation.by_reward.reference),
)
JUDGED_BY = Setting("judged: {{{}: {{...}}}}", "has no judge called '{}'", lambda evaluation, name: name in evaluation.judged)
OWNED = Setting(
    'metrics: [{{name: "file.py:{}"}}]',
    "computes no metric '{}' of its own",
    lambda evaluation, name: name in own_names(evaluation),
)


@dataclasses.dataclass(frozen=True)
class Metric:
    """One row. {} in a text is the K, the CLASS or the NAME in the given name."""

    name: str
    """As a study writes it, with K for a number from 1 on, CLASS for a class of errors and NAME for a function of the user's
    own."""
    measure: Measure
    better: Literal["higher", "lower"]
    column: str
    """Of `prompts.parquet`: summed over the samples of a prompt."""
    less: str = ""
    """A column that is taken away from it."""
    per: Per = "sample"
    needs: Setting = NOTHING
    """Setting of an evaluation that has it."""
    leads: bool = False
    """Whether it comes first in a table, a few of it side by side."""
    alone: bool = True
    """Whether a value says something without another one to compare it with."""
    logged: bool = False
    """Whether training logs a key of that name, which figures along steps then show."""
    baseline: Baseline | None = None
    label: str = ""
    """In place of the name in headings and axes."""
    note: str = ""
    """What must be known to read it."""
    argument: str = ""
    """The K, CLASS or NAME; empty in the table of rows."""

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Of names that mean this row; `error` by itself means all classes."""
        given = re.escape(self.name).replace("@K", "@([1-9][0-9]*)").replace(":CLASS", "(?::(.+))?")
        return re.compile(given.replace(":NAME", r":([^\W\d]\w*)"))

    @property
    def samples(self) -> int:
        """Samples per prompt that it needs."""
        return int(self.argument) if self.per == "draw" else 1

    @property
    def setting(self) -> str:
        """What an evaluation needs to have it, as its spec writes it; empty: nothing."""
        return self.needs.written.format(self.argument)

    @property
    def lacks(self) -> str:
        """What an evaluation without the setting does not do."""
        return self.needs.lacks.format(self.argument)

    def met_by(self, evaluation: EvaluateSpec) -> bool:
        """Whether the spec of an evaluation has the setting."""
        return self.needs.met(evaluation, self.argument)


PASS = "Strict: every step and the answer are right. Answer: the final answer is right, however it was reached."
SCORED = "Score: mean over samples of how much is right, from 0 to 100; what counts is the task family's to say."
HACKED = "Hacked: the answer is right and the process is not, as a share of all samples (answer minus strict pass@1)."
HACKED_OF_RIGHT = "Hacked of right: the same as a share of the samples whose answer is right."
NLL = "Nll: mean negative log-likelihood per token of the gold solutions after their prompts; lower is better."
COUNTS = "Units: mean number of attempts in a sample, each of which ends in an answer."
BEHAVIOURS = ("plans", "retrievals", "rechecks", "backtracks")
PROBES = "Probe: prompts at whose end a layer's linear classifier finds the value. Cosine: of its states with the other arm's."
BEHAVED = "Plans, retrievals, rechecks, backtracks: counted in what each sample states (`behaviours` of the evaluation)."
STOPPED = "Cap@K: samples stopped after K units (attempts with an answer), judged by the last one that is left."
BY_TURNS = (
    "Turns and calls of tools: means per episode. Answer_turn@K: the answer is right after K turns, or the last one of fewer; "
    "revised_turn@K: that less answer_turn@1, which falls where right answers are given up."
)
CLASSES = "Error classes: shares of samples by their first error; error:none is strictly right."
OWN_MEANS = "Own metrics: means over samples of what functions of the study return; in comparisons more is better."
JUDGEMENTS = "Judged: mean score that a language model gives by a rubric of the study, from 0 to 100; no verifier checks it."
BEST = (
    "Best@K: of K samples the one of the largest learned reward, unbiased over draws of K; at K = 1 the samples themselves. The "
    "learned reward is what the reward model says; strict and answer are the verifier's."
)
DIVERGED = "KL: mean over samples of log pi - log pi_ref of whole completions, an unbiased estimate of KL(pi || pi_ref)."
REACHED = (
    "Reached: share of runs whose smoothed curve came to the level of the target before the horizon, which is where the shortest "
    "of the runs that have this curve ended."
)
UNTIL = (
    "To target: what a run spent until it reached the target, and up to the horizon where it did not, a restricted mean (Royston "
    "and Parmar, BMC Medical Research Methodology 13, 2013): no run is left out. Tokens are those generated and those trained on."
)
TIMED = "CPU seconds are of the stage's telemetry, shared out by tokens: they depend on the machine, and no digest fixes them."

METRICS = (
    Metric("strict_pass@K", SHARE, "higher", "strict", per="draw", leads=True, note=PASS),
    Metric("answer_pass@K", SHARE, "higher", "answer", per="draw", leads=True, baseline=PRIOR, note=PASS),
    Metric("score", SHARE, "higher", "score", leads=True, logged=True, baseline=TRIVIAL, note=SCORED),
    Metric("hacked", SHARE, "lower", "answer", "strict", note=HACKED),
    Metric("hacked_of_right", SHARE, "lower", "answer", "strict", per="right answer", note=HACKED_OF_RIGHT),
    Metric("nll", NATS, "lower", "nll", per="prompt", needs=SCORED_GOLD, alone=False, note=NLL),
    Metric(UNITS, ATTEMPTS, "lower", UNITS, needs=COUNTED_UNITS, note=COUNTS),
    Metric("probe:NAME", SHARE, "higher", "probe:{}", per="prompt", needs=PROBED, label="probe {}", note=PROBES),
    Metric("cosine:NAME", FRACTION, "higher", "cosine:{}", per="prompt", needs=COMPARED, label="cosine {}", note=PROBES),
    *(Metric(name, RETURNED, "higher", name, needs=BEHAVING, note=BEHAVED) for name in BEHAVIOURS),
    *(Metric(f"{of}_cap@K", SHARE, "higher", f"{of}_cap@{{}}", needs=CAPPED, note=STOPPED) for of in ("strict", "answer")),
    *(Metric(name, TURNS, "lower", name, needs=BY_TURN, note=BY_TURNS) for name in ("turns", "calls")),
    Metric("answer_turn@K", SHARE, "higher", "answer_turn@{}", needs=TURN_K, note=BY_TURNS),
    Metric("revised_turn@K", SIGNED, "higher", "answer_turn@{}", "answer_turn@1", needs=TURN_K, note=BY_TURNS),
    Metric("error:none", SHARE, "higher", "error_none", needs=COUNTED_ERRORS, label="no error", note=CLASSES),
    Metric("error:CLASS", SHARE, "lower", "error_{}", needs=COUNTED_ERRORS, label="{}", note=CLASSES),
    Metric("own:NAME", RETURNED, "higher", "own:{}", needs=OWNED, label="{}", note=OWN_MEANS),
    Metric("judged:NAME", SHARE, "higher", f"{JUDGED}{{}}", needs=JUDGED_BY, label="{} (judged)", note=JUDGEMENTS),
    *(Metric(f"{of}_best@K", SHARE, "higher", f"{of}_best@{{}}", needs=RANKED, note=BEST) for of in ("strict", "answer")),
    Metric("reward_best@K", RETURNED, "higher", "reward_best@{}", needs=RANKED, label="learned reward best@{}", note=BEST),
    Metric("sequence_kl", COMPLETION_NATS, "lower", "sequence_kl", needs=REFERRED, label="KL", note=DIVERGED),
    Metric("reached_target", SHARE, "higher", "reached_target", per="run", label="reached", note=REACHED),
    Metric("steps_to_target", STEPS, "lower", "steps_to_target", per="run", note=UNTIL),
    Metric("tokens_to_target", TOKENS, "lower", "tokens_to_target", per="run", note=UNTIL),
    Metric("seconds_to_target", SECONDS, "lower", "seconds_to_target", per="run", note=f"{UNTIL} {TIMED}"),
)
GAINS = ("gain", "sharpening", "capability", "sharpening_split", "capability_split", "newly_solved", "lost")
"""Columns of a table of gains (`stats.gain`): differences and shares of prompts."""


@functools.cache
def find_metric(name: str) -> Metric | None:
    """The row of a name, with its K, CLASS or NAME filled in; None where it names no metric of evaluations."""
    found = ((row, row.pattern.fullmatch(name)) for row in METRICS)
    row, match = next(((row, match) for row, match in found if match), (None, None))
    if row is None or match is None:
        return None
    argument = next(filter(None, match.groups()), "")
    texts = {key: getattr(row, key).format(argument) for key in ("column", "label")}
    return dataclasses.replace(row, name=name, argument=argument, **texts)


def metric_row(name: str) -> Metric:
    """The row of a name that was checked before."""
    found = find_metric(name)
    assert found is not None, name
    return found


def is_gain(name: str) -> bool:
    """Whether this names a column of a table of gains."""
    return name.partition("@")[0] in GAINS


def measure_of(name: str) -> Measure:
    """How a metric of evaluations, a column of a table of gains, or what a run logs, is written."""
    if is_gain(name):
        return SHARE
    found = find_metric(name)
    return found.measure if found else logged_measure(name)


def metric_heading(name: str) -> str:
    """`strict_pass@8` reads `strict pass@8`, `error:missing_node` reads `missing node`."""
    found = find_metric(name)
    return ((found.label if found else "") or name).replace("_", " ")


def lower_is_better(name: str) -> bool:
    """Whether less of it is what a study hopes for."""
    found = find_metric(name)
    return found is not None and found.better == "lower"


def is_pass_rate(name: str) -> bool:
    """Whether this names a pass rate, `strict_pass@K` or `answer_pass@K`."""
    found = find_metric(name)
    return found is not None and found.per == "draw"


def is_of_run(name: str) -> bool:
    """Whether this names a metric of a run, on a target in place of a band."""
    found = find_metric(name)
    return found is not None and found.per == "run"


def metric_names() -> list[str]:
    """What a study can write, such as strict_pass@K."""
    return [each.name for each in METRICS]


def check_column(value: str) -> str:
    """A band, or `op:N` for a single op."""
    if value.startswith("op:") and not re.fullmatch("op:(0|[1-9][0-9]*)", value):
        raise ValueError(f"'{value}' is not a column; write a band or op:N with N a number")
    return value


def check_metric(value: str) -> str:
    """The name of a row, its K, CLASS or NAME filled in."""
    found = find_metric(value)
    if value.startswith(f"{ERROR}:") and found and found.argument and found.argument not in ERRORS:
        raise ValueError(f"'{found.argument}' is not a class of errors{nearest_name(found.argument, ERRORS)}")
    if found and value != ERROR:
        return value
    bare = next((each.name for each in METRICS if re.fullmatch(rf"{each.name}(_pass|_cap)?(@.*)?", value)), None)
    if bare:
        raise ValueError(f"'{value}' is not a metric: there is one {bare} for any number of samples; write {bare}")
    *most, last = metric_names()
    raise ValueError(f"'{value}' is not a metric; write {', '.join(most)} or {last}")


def check_cell(value: str) -> str:
    """A metric, or `error` for one cell per class of errors that occurred."""
    return value if value == ERROR else check_metric(value)
