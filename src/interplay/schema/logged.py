"""What stages write into `metrics.jsonl`, by kind: what a figure with `x: step` can draw.

Names whose end depends on the study (bands, parts of a reward, a sampler's own) are known by their beginning."""

from interplay.schema.base import Model
from interplay.schema.kinds import TRAINERS, TUNERS
from interplay.schema.prefer import PreferSpec
from interplay.schema.rl import RLSpec

STEP = ("loss", "grad_norm", "lr_factor", "tokens")
"""Of every trainer."""
COMPLETIONS = ("entropy", "length", "truncated", "completion_tokens")
UPDATE = ("loss", "grad_norm", "optimizer_steps", "trained_tokens", "kl_old", "clip_fraction", "phi", "divergence", "step_error")
"""Of every update of RL; the last four where its loss has them."""
NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TRAINERS, STEP),
    "prefer": STEP,
    "unlearn": (*STEP, "forget_loss", "retain_loss", "grad_cosine", "uniform_kl"),
    "reward_model": (*STEP, "accuracy", "nll", "margin"),
    "rl": (
        *("reward", "strict", "answer", "score", "turns", "answer_first", "frac_all_pass", "frac_all_fail", "effective_ratio"),
        *COMPLETIONS,
        *("groups", "completions", "prompt_tokens", "drawn_op", "lr"),
        *UPDATE,
    ),
    "teach": (
        *("valid", "distinct", "op", "op_max", "reward", "reward_std", "reward_best", "promoted", "lr_factor"),
        *("probe_before", "probe_after", "probe_student", "student_reward", "student_gain"),
        *("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps"),
    ),
}
"""Kind -> names; kinds that are not here log nothing."""
BEGINNINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TRAINERS, ("eval_loss/",)),
    **dict.fromkeys(TUNERS, ("eval_",)),
    "prefer": ("rewards/", "logps/", "eval_"),
    "rl": ("reward/", "drawn/", "sampling/", "sampler/", "critic/"),
    "teach": ("flaw/", "teacher/"),
}
"""Kind -> what further names begin with."""
KL = "kl"
"""Logged where there is a reference, or a loss that measures it."""


def names(kind: str, spec: Model) -> tuple[str, ...]:
    """What a stage logs under names that do not depend on the study."""
    refers = isinstance(spec, RLSpec) and spec.method.loss.refers()
    measures = isinstance(spec, PreferSpec) and spec.loss_type == "kto"
    return (*NAMES.get(kind, ()), *((KL,) if refers or measures else ()))


def logs(kind: str, spec: Model, name: str) -> bool:
    """Whether a stage may log a name."""
    return name in names(kind, spec) or name.startswith(BEGINNINGS.get(kind, ()))
