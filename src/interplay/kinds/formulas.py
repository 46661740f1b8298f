"""What a stage of each kind costs, in tokens, rollouts, FLOPs and bytes of memory: the formulas, one class for each.

FLOPs are 6 N for each token trained on and 2 N for each token sampled, or scored by a reference, a teacher, a lagging copy or the
policy before its update (arXiv:2001.08361), N being the number of parameters. Attention is left out. Prompts of RL, which pass
once for a whole group, count where they are known: in records, and in plans by max_prompt_length. Those of evaluations do not."""

from fractions import Fraction
from typing import NamedTuple

from interplay.kinds import memory
from interplay.kinds.memory import Json
from interplay.model.spec import Load, Memory
from interplay.rl.teach_spec import TeachSpec
from interplay.train.spec import TuneSpec


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

    def memory(self, load: Load) -> Memory | None:
        """Of a stage that holds a model of known widths; None: unknown."""
        return None

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """From the spec as JSON; `problems`: rows of its data, for kinds that sample all of them."""
        return Cost(parameters=parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """From the record's metrics."""
        return Cost(parameters=parameters)

    def charged(self, spec: Json) -> int:
        """Training tokens as arXiv:2512.07783 charges them (cost.paper_tokens)."""
        return 0


class Importing(Formula):
    """A model's files are copied, and loaded once to see that they can be."""

    def memory(self, load: Load) -> Memory | None:
        """Of the file, what is read of it, and the decoder."""
        held = 4.0 * load.size.parameters
        return Memory(memory.BASE + 3 * held, 0.0, "load", {"weights": held, "copies": 2 * held})


class Training(Formula):
    """Next-token training: a budget of tokens."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """As charged."""
        return self._trained(spec, self.charged(spec), parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The tokens counted."""
        return self._trained(record["spec"], record["metrics"]["tokens"], parameters)

    def charged(self, spec: Json) -> int:
        """The budget."""
        return int(spec["tokens"])

    def memory(self, load: Load) -> Memory | None:
        """Of passes over whole rows."""
        if "batch_tokens" not in load.spec:  # a trainer of the user's own
            return None
        rows = max(1, min(load.run.micro_batch_tokens, load.spec["batch_tokens"]) // load.length)
        tokens, length = rows * load.length, load.length if load.causal else load.length // 2
        scores = tokens * (length if length <= memory.WHOLE else length / 2 + memory.BLOCK)
        several = load.spec["batch_tokens"] > tokens
        shape = memory.Pass(tokens, tokens, 0.0 if load.run.gpus else scores)
        return memory.peak_memory(load, memory.learning_phases(load, shape, several), 1)

    def _trained(self, spec: Json, tokens: int, parameters: int | None) -> Cost:
        return with_flops(Cost(tokens=tokens, parameters=parameters), 0)


class Tuning(Training):
    """A number of steps on few data, with or without a frozen reference (train.spec.TuneSpec)."""

    def __init__(self, spec: type[TuneSpec]) -> None:
        self.spec = spec

    def charged(self, spec: Json) -> int:
        """Tokens of all steps, each prompt with a completion as long as it may be, so an upper bound."""
        typed = self.spec.model_validate(spec)
        return typed.steps * typed.rows_per_step * typed.max_length

    def memory(self, load: Load) -> Memory | None:
        """Of passes over prompts with two completions each."""
        typed = self.spec.model_validate(load.spec)
        half = min(typed.max_length, load.length) / 2
        every = 2 * typed.rows_per_step * half
        tokens = min(load.run.micro_batch_tokens, every)
        shape = memory.Pass(tokens, tokens * 2 / 3, tokens / 3 * 5 * half, tokens / 3 * 5)
        models = 1 + bool(self.spec.reference_tokens(load.spec, 1))
        return memory.peak_memory(load, memory.learning_phases(load, shape, tokens < every), models)

    def _trained(self, spec: Json, tokens: int, parameters: int | None) -> Cost:
        return with_flops(Cost(tokens=tokens, parameters=parameters), self.spec.reference_tokens(spec, tokens))


class Reinforcement(Formula):
    """Rollouts, scored by a reference where the loss has one, and passes over them."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """All completions at their cap, and prompts where they have one."""
        rollouts = spec["steps"] * spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
        sampled = rollouts * spec["max_completion_length"] * memory.turn_count(spec["method"])
        # Others than the native trainer pass a prompt before each of its completions.
        passed = rollouts if spec.get("trainer", "native") != "native" else spec["steps"] * spec["prompts_per_step"]
        return self._cost(spec, rollouts, sampled, passed * (spec.get("max_prompt_length") or 0), parameters)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The completions counted, and each prompt once for its group."""
        spec, metrics = record["spec"], record["metrics"]
        prompts = round(metrics["prompt_tokens"] / spec["method"]["allocation"]["num_generations"])
        return self._cost(spec, metrics["completions"], metrics["completion_tokens"], prompts, parameters)

    def charged(self, spec: Json) -> int:
        """All steps."""
        return round(spec["steps"] * rl_step_tokens(spec))

    def memory(self, load: Load) -> Memory | None:
        """Of rollouts, whose cache is freed before the update, and of passes over groups after their prompts."""
        spec, method = load.spec, load.spec["method"]
        if spec["engine"] not in ("native", "hf"):
            return memory.sharded_memory(load) if spec.get("trainer") == "verl" else None
        count, prompt, cap = method["allocation"]["num_generations"], load.prompt(), spec["max_completion_length"]
        own = cap * memory.turn_count(method)
        group, batch = prompt + count * own, spec["prompts_per_step"]
        groups = min(batch, max(load.run.micro_batch_tokens / group, (prompt + own) / group))
        tokens, rows = groups * group, groups * count
        pairs = groups * prompt**2 + rows * own * (prompt + own)
        shape = memory.Pass(tokens, rows * own, pairs, groups * prompt + rows * (prompt + own))
        phases = memory.learning_phases(load, shape, groups < batch)
        drawn = min(load.run.engine_batch, batch * count)
        phases["rollout"] = memory.decoding_phase(load, drawn, count, prompt, own)
        phases["rollout"] |= memory.kept_turns(load, batch * count, count, prompt)
        phases |= memory.judging_phase(load, memory.reward_terms(spec["reward"]), drawn, own)
        lagged = (method.get("decoding") or {}).get("name") == "lagged_nucleus"
        critic = 4 * bool(method.get("critic"))  # with an optimiser of its own
        others = memory.has_reference(spec) + memory.reward_models(spec["reward"]) + memory.seated_models(method)
        return memory.peak_memory(load, phases, 1 + others + lagged + critic)

    def _cost(self, spec: Json, rollouts: int, sampled: int, prompts: int, parameters: int | None) -> Cost:
        loss, passing, refers = spec["method"]["loss"], sampled + prompts, memory.has_reference(spec)
        decoding = (spec["method"].get("decoding") or {}).get("name")
        teaches = loss["num_iterations"] * (loss.get("name") == "distil")
        scorings = (loss["num_iterations"] * spec["minibatches"] > 1) + refers + teaches + (decoding == "adaptive_temperature")
        scorings += memory.reward_models(spec["reward"]) + refers * max(0, len(spec.get("references") or ()) - 1)
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
        sampled = rollouts * spec["max_completion_length"] * memory.turn_count(spec)
        return with_flops(Cost(sampled=sampled, rollouts=rollouts, parameters=parameters), 0)

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The samples counted."""
        rollouts = record["metrics"]["all"]["n"] * record["spec"]["num_samples"]
        sampled = round(rollouts * record["metrics"]["all"]["length"])
        return with_flops(Cost(sampled=sampled, rollouts=rollouts, parameters=parameters), 0)

    def memory(self, load: Load) -> Memory | None:
        """Of decoding."""
        spec = load.spec
        if spec["engine"] not in ("native", "hf", "vllm"):
            return None
        own, count = spec["max_completion_length"] * memory.turn_count(spec), spec["num_samples"]
        rows = min(load.run.engine_batch, (load.problems or load.run.engine_batch) * count)
        asked = (spec.get("judged") or {}).values()
        judges = {one["arm"] for one in asked if one.get("arm")}
        if spec["engine"] == "vllm":
            phases = {"rollout": memory.serving_phase(load, 1 + len(judges))}
        else:
            held = memory.decoding_phase(load, rows, count, load.prompt(), own)
            held |= memory.kept_turns(load, memory.SHARD * rows, count, load.prompt())
            phases = {"rollout": held} | memory.judging_phase(load, asked, rows, own)
        return memory.peak_memory(load, phases, 1 + len(judges) + memory.seated_models(spec))


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
