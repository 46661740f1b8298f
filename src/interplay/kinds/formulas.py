"""What a stage of each kind costs, in tokens, rollouts, FLOPs and bytes of memory: the formulas, one class for each.

FLOPs are 6 N for each token trained on and 2 N for each token sampled, or scored by a reference, a teacher, a lagging copy or the
policy before its update (arXiv:2001.08361), N being the number of parameters. Attention is left out. Prompts of RL, which pass
once for a whole group, count where they are known: in records, and in plans by max_prompt_length. Those of evaluations do not."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from interplay.model.spec import Load, Memory
from interplay.rl.teach_spec import TeachSpec
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
        return Memory(BASE + 3 * held, 0.0, "load", {"weights": held, "copies": 2 * held})


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
        scores = tokens * (length if length <= WHOLE else length / 2 + BLOCK)
        several = load.spec["batch_tokens"] > tokens
        return _peak(load, _learning(load, Pass(tokens, tokens, 0.0 if load.run.gpus else scores), several), 1)

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
        shape = Pass(tokens, tokens * 2 / 3, tokens / 3 * 5 * half, tokens / 3 * 5)
        models = 1 + bool(self.spec.reference_tokens(load.spec, 1))
        return _peak(load, _learning(load, shape, tokens < every), models)

    def _trained(self, spec: Json, tokens: int, parameters: int | None) -> Cost:
        return with_flops(Cost(tokens=tokens, parameters=parameters), self.spec.reference_tokens(spec, tokens))


class Reinforcement(Formula):
    """Rollouts, scored by a reference where the loss has one, and passes over them."""

    def planned(self, spec: Json, problems: int, parameters: int | None) -> Cost:
        """All completions at their cap, and prompts where they have one."""
        rollouts = spec["steps"] * spec["prompts_per_step"] * spec["method"]["allocation"]["num_generations"]
        sampled = rollouts * spec["max_completion_length"] * _turns(spec["method"])
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
            return _sharded(load) if spec.get("trainer") == "verl" else None
        count, prompt, cap = method["allocation"]["num_generations"], load.prompt(), spec["max_completion_length"]
        own = cap * _turns(method)
        group, batch = prompt + count * own, spec["prompts_per_step"]
        groups = min(batch, max(load.run.micro_batch_tokens / group, (prompt + own) / group))
        tokens, rows = groups * group, groups * count
        pairs = groups * prompt**2 + rows * own * (prompt + own)
        shape = Pass(tokens, rows * own, pairs, groups * prompt + rows * (prompt + own))
        phases = _learning(load, shape, groups < batch)
        drawn = min(load.run.engine_batch, batch * count)
        phases["rollout"] = _decoding(load, drawn, count, prompt, own) | _kept_turns(load, batch * count, count, prompt)
        phases |= _judging(load, _rewards(spec["reward"]), drawn, own)
        lagged = (method.get("decoding") or {}).get("name") == "lagged_nucleus"
        critic = 4 * bool(method.get("critic"))  # with an optimiser of its own
        models = 1 + _refers(spec) + _reward_models(spec["reward"]) + lagged + critic + _seated(method)
        return _peak(load, phases, models)

    def _cost(self, spec: Json, rollouts: int, sampled: int, prompts: int, parameters: int | None) -> Cost:
        loss, passing, refers = spec["method"]["loss"], sampled + prompts, _refers(spec)
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

    def memory(self, load: Load) -> Memory | None:
        """Of decoding."""
        spec = load.spec
        if spec["engine"] not in ("native", "hf", "vllm"):
            return None
        own, count = spec["max_completion_length"] * _turns(spec), spec["num_samples"]
        rows = min(load.run.engine_batch, (load.problems or load.run.engine_batch) * count)
        asked = (spec.get("judged") or {}).values()
        judges = {one["arm"] for one in asked if one.get("arm")}
        if spec["engine"] == "vllm":
            phases = {"rollout": _serving(load, 1 + len(judges))}
        else:
            kept = _kept_turns(load, SHARD * rows, count, load.prompt())
            phases = {"rollout": _decoding(load, rows, count, load.prompt(), own) | kept} | _judging(load, asked, rows, own)
        return _peak(load, phases, 1 + len(judges) + _seated(spec))


class Writing(Sampling):
    """Samples of source rows, of which rows are written."""

    def realised(self, record: Json, parameters: int | None) -> Cost:
        """The samples counted."""
        metrics = record["metrics"]
        return with_flops(Cost(sampled=metrics["completion_tokens"], rollouts=metrics["samples"], parameters=parameters), 0)


def _refers(spec: Json) -> bool:
    """Whether an RL stage holds a reference."""
    loss = spec["method"]["loss"]
    named = loss["beta"] or loss.get("first_turn_beta") or loss.get("name") == "direct_advantage"
    return bool(named) or any(term.get("name") == "kl" for term in spec["method"].get("shaping", ()))


# -- memory ------------------------------------------------------------------------------------------------------------
# Of the native trainer and engine, as they are written: what autograd keeps, and what is alive with it. Lengths are the caps.

WHOLE, BLOCK = 128, 32
"""Longest sequence whose scores a CPU makes at once, and half a block of longer ones (model.attention.visible_blocks)."""
LOGITS = 1 << 24
"""Logits that are held at a time with `blockwise: true` (model.decoder.MOST_LOGITS)."""
NARROW = 192
"""Width up to which the int8 kernels compute gates again (kernels.layers.RECOMPUTED)."""
BASE, CUDA_BASE, CUDA_CONTEXT = 400e6, 3e9, 0.8e9
"""Bytes of a process without a model (measured), the same with CUDA's libraries (assumed), and what these take of the GPU (an
H100)."""
CHUNK = 16384
"""Tokens that vLLM passes at a time on a large GPU (its default, assumed)."""
SHARD = 4
"""Engine batches of an evaluation whose episodes go on together (evaluate.sampling.SHARD_BATCHES)."""
WORDS, LETTERS = 1000, 3
"""Tokens from which a vocabulary has words, and characters of a text that one of them stands for, at least."""
PROBLEM_BYTES = 3000
"""Of a problem with its graph, as objects of Python."""


class Pass(NamedTuple):
    """One pass with a gradient."""

    tokens: float
    learnt: float
    """Tokens whose logits are made."""
    pairs: float
    """Of a query and a key: attention scores of a head; 0 where none are kept."""
    keys: float = 0.0
    """Keys that are copied, with prompts once for each completion; 0: as many as tokens."""


def _copies(load: Load, gradient: bool) -> float:
    """Bytes of the weights that a pass makes next to the parameters: fused, and cast or packed."""
    matrices, fused = load.size.matrices()
    if load.width() == 2:
        return 2.0 * (matrices + load.size.vocab * load.size.width * (1 if load.size.tied else 2))
    return 4.0 * fused + (matrices * (1 + gradient) if load.spec.get("dtype") == "int8" else 0)


def _kept(load: Load, shape: Pass) -> float:
    """Bytes that autograd keeps of all layers."""
    size, spec = load.size, load.spec
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    linear = spec.get("dtype") == "int8" or spec.get("blockwise") or (load.run.gpus and not shape.keys)
    if load.run.model_dump().get("gradient_checkpointing"):
        return load.width() * (size.layers + 12) * shape.tokens * size.width
    if spec.get("dtype") == "int8":
        wide = 2 * size.mlp + (queries + 2 * keys) * size.normed if size.width > NARROW else 0
        token = 2 * size.width + 2 * queries + 2 * keys + size.heads + wide
        return 4.0 * size.layers * shape.tokens * token
    token = 4 * size.width + 2 * queries + (queries + keys) * size.normed + 4 * size.mlp
    token += 2 * size.width + queries + 2 * keys if load.run.gpus else 0  # GPUs keep the inputs of norms, and heads unsplit
    by_kernel = load.run.gpus and load.width() == 2  # model.attention.FlashRuns
    scores = 0.0 if linear or by_kernel else size.heads * shape.pairs
    copied = 2 * keys * (shape.tokens if linear else shape.keys or shape.tokens)
    return load.width() * size.layers * (shape.tokens * token + copied + scores)


def _learning(load: Load, shape: Pass, several: bool) -> dict[str, dict[str, float]]:
    """What the phases of a step hold next to the models; `several`: passes, so that gradients of earlier ones are there."""
    size, parameters = load.size, load.size.parameters
    muon = size.matrices()[0] if load.spec["optimizer"]["name"] == "muon" else 0
    moments = 4.0 * muon + 8.0 * (parameters - muon)
    # Muon holds what it looks ahead to and its updates, and of the matrices that it iterates on together two states.
    iterated = 0.0 if load.spec.get("dtype") == "int8" else 2.0 if load.run.gpus else 4.0
    ahead = 8.0 * muon + iterated * 2 * (3 * size.layers * size.width * size.mlp if muon else 0) if iterated else 4.0 * muon
    logits = shape.learnt * size.vocab
    logits = 12.0 * (min(logits, LOGITS) if load.spec.get("blockwise") else logits)
    grads, own = 4.0 * parameters, _copies(load, True)
    kept = _kept(load, shape) * (1 + 1 / size.layers)  # of the layer at hand the gradients, too
    small = 8.0 * shape.tokens * size.mlp < 2**24 and not load.run.gpus  # such blocks a CPU's allocator keeps when they are freed
    forward = {"activations": kept, "logits": logits, "gradients": grads * several, "copies": own}
    backward = {"gradients": grads + load.width() * float(parameters), "copies": own}
    update = max(forward, backward, key=lambda held: sum(held.values()))
    return {
        "update": {**update, "optimizer": moments},
        "step": {"gradients": grads, "optimizer": moments + ahead},
        "save": {"optimizer": moments, "bytes": 2 * (4.0 * parameters + moments), "heap": kept * small},
    }


def _serving(load: Load, engines: int) -> dict[str, float]:
    """What vLLM holds next to the models that the stage has read: of each engine weights of its own and the cache that it is
    given, and a pass of one."""
    cache, logits = 2.0**20 * load.run.engine_cache_mb, 8.0 * load.run.engine_batch * load.size.vocab
    copies = float(load.width() * load.size.parameters)
    return {"copies": engines * copies, "cache": engines * cache, "prefill": CHUNK * load.passing(), "logits": logits}


def _judging(load: Load, asked: Iterable[Json], rows: float, own: int) -> dict[str, dict[str, float]]:
    """The phase in which models of the study judge `rows` completions of at most `own` tokens, each asked by the longest rubric;
    none where only endpoints are asked."""
    rubrics = [one for one in asked if one.get("arm")]
    if not rubrics:
        return {}
    said = max(len(one["rubric"]) for one in rubrics) // (LETTERS if load.size.vocab > WORDS else 1)
    return {"judge": _decoding(load, rows, 1, load.prompt() + own + said, max(one["max_tokens"] for one in rubrics))}


def _decoding(load: Load, rows: float, count: int, prompt: int, own: int) -> dict[str, float]:
    """What a batch of `rows` completions of at most `own` tokens holds next to the models, `count` of each prompt."""
    size, groups = load.size, max(1.0, rows // count)
    cached = load.width() if load.run.gpus else 4  # bytes of a number
    token = 2.0 * cached * size.layers * size.kv_heads * size.head_dim
    kernels = load.spec.get("dtype") == "int8"
    together = load.run.threads * max(12, min(96, size.matrices()[0] // 2**17))
    decoded = min(rows, together) if kernels else 1.5 * rows  # a cache grows by a copy
    return {
        "copies": _copies(load, False),
        "cache": token * (groups * prompt + decoded * own),
        "prefill": groups * prompt * load.passing(),
        "logits": (4.0 if kernels else 25.0) * rows * size.vocab + 20.0 * rows * own,
    }


def _kept_turns(load: Load, episodes: float, count: int, prompt: int) -> dict[str, float]:
    """What the native engine keeps of so many episodes from turn to turn, `count` of each prompt, and once more of a batch while
    it is drawn. Of several seats each has its own history and prompt, and each model an engine with its own limit."""
    spec, size = load.spec, load.size
    method = spec.get("method") or spec
    turns, seats = _turns(method), _seats(method)
    if turns == 1 or spec["engine"] != "native" or spec.get("dtype") != "int8" or load.run.gpus:
        return {}
    token, own = 8.0 * size.layers * size.kv_heads * size.head_dim, turns * spec["max_completion_length"]
    limit = 2.0**20 * load.run.engine_cache_mb * (1 + _seated(method))
    kept = min(limit, token * episodes * (seats * (own + prompt) if seats > 1 else own + prompt / count))
    return {"kept": kept + token * min(episodes, load.run.engine_batch) * (own + prompt)}


def _peak(load: Load, phases: dict[str, dict[str, float]], models: float) -> Memory:
    """The memory of a stage by what its phases hold next to so many models."""
    weights, read = 4.0 * load.size.parameters * models, PROBLEM_BYTES * load.problems
    phases["load"] = {"copies": 8.0 * load.size.parameters}  # the file, and what is read of it
    sums = {name: sum(held.values()) for name, held in phases.items()}
    on_host = max((name for name in sums if not load.run.gpus or name in ("save", "load")), key=lambda name: sums[name])
    if not load.run.gpus:
        return Memory(BASE + read + weights + sums[on_host], 0.0, on_host, {"weights": weights, **phases[on_host]})
    phase = max((name for name in sums if name not in ("save", "load")), key=lambda name: sums[name])
    host = CUDA_BASE + read + 4.0 * load.size.parameters + sums[on_host]
    return Memory(host, CUDA_CONTEXT + weights + sums[phase], phase, {"weights": weights, **phases[phase]})


def _sharded(load: Load) -> Memory:
    """Of a machine and of one of its GPUs on verl: all GPUs share the float32 weights, gradients and moments (FSDP), those of a
    reference and a critic, too; of a layer, embedding and head a GPU holds the whole in bfloat16, twice, to fetch ahead. What
    vLLM takes is declared, of 80 GB where nothing is, and it sleeps in updates. Arithmetic, measured on no GPU."""
    run, size, models = load.run, load.size, 4 + _refers(load.spec) + 4 * bool(load.spec["method"].get("critic"))
    states = 4.0 * size.parameters / max(run.gpus, 1) * models
    whole = size.vocab * size.width * (1 if size.tied else 2) + size.parameters / size.layers
    tokens = max(run.micro_batch_tokens, load.length / run.verl.ulysses_sequence_parallel_size)
    kept, logits = _kept(load, Pass(tokens, tokens, 0.0)), 10.0 * tokens * size.vocab
    logits = min(logits, 10.0 * LOGITS) if load.spec.get("blockwise") else logits
    vllm, left = run.verl.gpu_memory_utilization * (run.gpu_memory_gb or 80) * 1e9, states * (not run.verl.offload)
    update = {"states": states, "gathered": 4.0 * whole, "activations": kept, "logits": logits}
    phases = {"update": update, "sampling": {"vllm": vllm, "states": left}}
    phase = max(phases, key=lambda name: sum(phases[name].values()))
    host = (CUDA_BASE + states - left) * run.gpus / run.nodes + PROBLEM_BYTES * load.problems + 6.0 * size.parameters
    return Memory(host, CUDA_CONTEXT + sum(phases[phase].values()), phase, phases[phase])


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
    """Reward models and judging arms among the terms, each taken to be as large as the policy."""
    return sum(one["name"] == "model" or bool(one.get("arm")) for one in _rewards(reward))


def _rewards(reward: Json) -> list[Json]:
    """The terms of a reward; of one without terms itself."""
    return [term["reward"] for key in ("gate", "sum", "product") for term in reward.get(key, ())] or [reward]


def _seated(method: Json) -> int:
    """Frozen models in the seats of an episode and past policies of its pools, each taken to be as large as the policy."""
    seats = [one for one in ((method.get("episode") or {}).get("seats") or {}).values() if one]
    roles = {role for one in seats for role in (one.get("model"), *one.get("models", ())) if role}
    return len(roles) + max((one["keep"] for one in seats if one.get("every")), default=0)


def _seats(method: Json) -> int:
    """Seats of an episode; 1 without."""
    episode = method.get("episode") or {}
    return 2 if episode.get("name") == "self_play" else max(1, len(episode.get("seats") or ()))


def _turns(spec: Json) -> int:
    """Turns that an episode has at most, notes included."""
    episode = spec.get("episode") or {}
    most = episode.get("max_turns", 1)
    turns = int(max(value for _, value in most["points"]) if isinstance(most, dict) else most)
    every = (episode.get("context") or {}).get("every")
    return turns + (turns - 1) // every if every else turns
