"""What a stage of each kind costs, in tokens, rollouts and floating-point operations: the formulas, one class for each.

FLOPs are 6 N for each token trained on and 2 N for each token sampled, or scored by a reference, a teacher, a lagging copy or the
policy before its update (arXiv:2001.08361), N being the number of parameters. Attention is left out. Prompts of RL, which pass
once for a whole group, count where they are known: in records, not in plans; those of evaluations are left out."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from interplay.rl.spec import TeachSpec
from interplay.train.spec import TuneSpec

Json = Mapping[str, Any]


class Cost(NamedTuple):
    """One stage's cost. What holds no model costs nothing here and has 0 parameters."""

    tokens: int = 0
    """Tokens trained on, once per pass over them, prompts included; padding not counted."""
    sampled: int = 0
    """Completion tokens sampled. Planned: every completion as long as it may be, so an upper bound."""
    rollouts: int = 0
    """Completions sampled. Planned: one round of generation per step, though dynamic sampling may draw more."""
    flops: int | None = 0
    """None where the parameters are unknown."""
    parameters: int | None = 0
    """Of the model that the stage trains, samples from or passes on; None: unknown, such as a source model not yet read."""


class Formula:
    """The cost of one kind of stage; that of kinds which train and sample nothing."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """From the spec as JSON; `problems`: rows of its data, for kinds that sample all of them."""
        return Cost(parameters=parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """From the record's metrics."""
        return Cost(parameters=parameters)

    def charged(self, spec: Json) -> int:
        """Training tokens as arXiv:2512.07783 charges them (cost.paper_tokens)."""
        return 0


class Training(Formula):
    """Next-token training: a budget of tokens."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """The budget."""
        return with_flops(Cost(tokens=spec["tokens"], parameters=parameters), 0)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The tokens counted."""
        return with_flops(Cost(tokens=record["metrics"]["tokens"], parameters=parameters), 0)

    def charged(self, spec: Json) -> int:
        """The budget."""
        return int(spec["tokens"])


class Tuning(Formula):
    """A number of steps on few data, with or without a frozen reference (train.spec.TuneSpec)."""

    def __init__(self, spec: type[TuneSpec]) -> None:
        self.spec = spec

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """Every prompt with a completion as long as it may be, so an upper bound."""
        return self._tuned(spec, self.charged(spec), parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The tokens counted."""
        return self._tuned(record["spec"], record["metrics"]["tokens"], parameters)

    def charged(self, spec: Json) -> int:
        """Tokens of all steps, at their caps."""
        typed = self.spec.model_validate(spec)
        return typed.steps * typed.rows_per_step * typed.max_length

    def _tuned(self, spec: Json, tokens: int, parameters: int | None) -> Cost:
        return with_flops(Cost(tokens=tokens, parameters=parameters), self.spec.reference_tokens(spec, tokens))


class Reinforcement(Formula):
    """Rollouts, scored by a reference where the loss has one, and passes over them."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """All completions at their cap."""
        rollouts = spec["steps"] * spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
        sampled = rollouts * spec["max_completion_length"] * _turns(spec["method"])
        return self._cost(spec, rollouts, sampled, 0, parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The completions counted, and each prompt once for its group."""
        spec, metrics = record["spec"], record["metrics"]
        prompts = round(metrics["prompt_tokens"] / spec["method"]["allocation"]["num_generations"])
        return self._cost(spec, metrics["completions"], metrics["completion_tokens"], prompts, parameters)

    def charged(self, spec: Json) -> int:
        """All steps."""
        return round(spec["steps"] * rl_step_tokens(spec))

    def _cost(self, spec: Json, rollouts: int, sampled: int, prompts: int, parameters: int | None) -> Cost:
        loss, passing = spec["method"]["loss"], sampled + prompts
        refers = bool(loss["beta"] or loss.get("first_turn_beta") or loss.get("name") == "direct_advantage")
        refers |= any(term.get("name") == "kl" for term in spec["method"].get("shaping", ()))
        decoding = (spec["method"].get("decoding") or {}).get("name")
        teaches = loss["num_iterations"] * (loss.get("name") == "distil")
        scorings = (loss["num_iterations"] * spec["minibatches"] > 1) + refers + teaches + (decoding == "adaptive_temperature")
        scorings += _reward_models(spec["reward"]) + refers * max(0, len(spec.get("references") or ()) - 1)
        if decoding == "lagged_nucleus":  # its copy decodes, and passes with every pass
            scorings = 2 * scorings + loss["num_iterations"] + 1
        cost = Cost(tokens=passing * loss["num_iterations"], sampled=sampled, rollouts=rollouts, parameters=parameters)
        return with_flops(cost, prompts + passing * scorings)


class Teaching(Formula):
    """Rollouts of students and proposals of a teacher; some are trained on, others only judge."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """All texts at their caps."""
        typed = TeachSpec.model_validate(spec)
        learnt, judged = taught_tokens(typed)
        rollouts = typed.steps * (typed.learning_rollouts() + typed.judging_rollouts() + typed.proposals())
        return self._cost(typed, learnt, learnt + judged, rollouts, parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The texts counted."""
        typed, metrics = TeachSpec.model_validate(record["spec"]), record["metrics"]
        rollouts = metrics["completions"] + typed.steps * typed.proposals()
        sampled = metrics["completion_tokens"] + metrics["proposal_tokens"]
        return self._cost(typed, metrics["tokens"], sampled, rollouts, parameters)

    def charged(self, spec: Json) -> int:
        """As of RL for all completions and proposals that something is trained on, and a third for those only sampled."""
        learnt, judged = taught_tokens(TeachSpec.model_validate(spec))
        return round(Fraction(5 * learnt + judged, 3))

    def _cost(self, spec: TeachSpec, learnt: int, sampled: int, rollouts: int, parameters: int | None) -> Cost:
        passes = spec.method.loss.num_iterations
        scorings = (passes * spec.minibatches > 1) + spec.method.refers()
        cost = Cost(tokens=learnt * passes, sampled=sampled, rollouts=rollouts, parameters=parameters)
        return with_flops(cost, learnt * scorings)


class Sampling(Formula):
    """Samples over a problem set."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """All samples at their cap."""
        rollouts = problems * spec["num_samples"]
        sampled = rollouts * spec["max_completion_length"] * _turns(spec)
        return with_flops(Cost(sampled=sampled, rollouts=rollouts, parameters=parameters), 0)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The samples counted."""
        rollouts = record["metrics"]["all"]["n"] * record["spec"]["num_samples"]
        sampled = round(rollouts * record["metrics"]["all"]["length"])
        return with_flops(Cost(sampled=sampled, rollouts=rollouts, parameters=parameters), 0)


class Writing(Sampling):
    """Samples of source rows, of which rows are written."""

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The samples counted."""
        metrics = record["metrics"]
        return with_flops(Cost(sampled=metrics["completion_tokens"], rollouts=metrics["samples"], parameters=parameters), 0)


def with_flops(cost: Cost, scored: int) -> Cost:
    """The cost with its FLOPs; `scored`: tokens that a model only scores."""
    if cost.parameters is None:
        return cost._replace(flops=None)
    return cost._replace(flops=cost.parameters * (6 * cost.tokens + 2 * (cost.sampled + scored)))


def taught_tokens(spec: TeachSpec) -> tuple[int, int]:
    """Completion and proposal tokens of a stage of kind `teach` that something is trained on, and further ones that are sampled;
    each text as long as it may be."""
    learnt = spec.learning_rollouts() * spec.max_completion_length + spec.proposals() * spec.max_proposal_length
    return spec.steps * learnt, spec.steps * spec.judging_rollouts() * spec.max_completion_length


def rl_step_tokens(spec: Json) -> Fraction:
    """What `cost.paper_tokens` charges for one step of an RL spec."""
    rollouts = spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
    cap = (spec.get("max_prompt_length") or 0) + spec["max_completion_length"]
    return Fraction(5 * rollouts * cap, 3)


def _reward_models(reward: Json) -> int:
    """Reward models among the terms, each taken to be as large as the policy."""
    terms = [term["reward"] for key in ("gate", "sum", "product") for term in reward.get(key, ())]
    return sum(one["name"] == "model" for one in terms or [reward])


def _turns(spec: Json) -> int:
    """Turns that an episode has at most."""
    return int((spec.get("episode") or {}).get("max_turns", 1))
