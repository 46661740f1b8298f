"""How much memory a stage needs where it needs most: what its phases hold, and what of a spec decides it.

Of the native trainer and engine, as they are written: what autograd keeps, and what is alive with it. Lengths are the caps."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from interplay.model.spec import Load, Memory

Json = Mapping[str, Any]

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


def weight_copies(load: Load, gradient: bool) -> float:
    """Bytes of the weights that a pass makes next to the parameters: fused, and cast or packed."""
    matrices, fused = load.size.matrices()
    if load.width() == 2:
        return 2.0 * (matrices + load.size.vocab * load.size.width * (1 if load.size.tied else 2))
    return 4.0 * fused + (matrices * (1 + gradient) if load.spec.get("dtype") == "int8" else 0)


def kept_activations(load: Load, shape: Pass) -> float:
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


def learning_phases(load: Load, shape: Pass, several: bool) -> dict[str, dict[str, float]]:
    """What the phases of a step hold next to the models; `several`: passes, so that gradients of earlier ones are there."""
    size, parameters = load.size, load.size.parameters
    muon = size.matrices()[0] if load.spec["optimizer"]["name"] == "muon" else 0
    moments = 4.0 * muon + 8.0 * (parameters - muon)
    # Muon holds what it looks ahead to and its updates, and of the matrices that it iterates on together two states.
    iterated = 0.0 if load.spec.get("dtype") == "int8" else 2.0 if load.run.gpus else 4.0
    ahead = 8.0 * muon + iterated * 2 * (3 * size.layers * size.width * size.mlp if muon else 0) if iterated else 4.0 * muon
    logits = shape.learnt * size.vocab
    logits = 12.0 * (min(logits, LOGITS) if load.spec.get("blockwise") else logits)
    grads, own = 4.0 * parameters, weight_copies(load, True)
    kept = kept_activations(load, shape) * (1 + 1 / size.layers)  # of the layer at hand the gradients, too
    small = 8.0 * shape.tokens * size.mlp < 2**24 and not load.run.gpus  # such blocks a CPU's allocator keeps when they are freed
    forward = {"activations": kept, "logits": logits, "gradients": grads * several, "copies": own}
    backward = {"gradients": grads + load.width() * float(parameters), "copies": own}
    update = max(forward, backward, key=lambda held: sum(held.values()))
    return {
        "update": {**update, "optimizer": moments},
        "step": {"gradients": grads, "optimizer": moments + ahead},
        "save": {"optimizer": moments, "bytes": 2 * (4.0 * parameters + moments), "heap": kept * small},
    }


def serving_phase(load: Load, engines: int) -> dict[str, float]:
    """What vLLM holds next to the models that the stage has read: of each engine weights of its own and the cache that it is
    given, and a pass of one."""
    cache, logits = 2.0**20 * load.run.engine_cache_mb, 8.0 * load.run.engine_batch * load.size.vocab
    copies = float(load.width() * load.size.parameters)
    return {"copies": engines * copies, "cache": engines * cache, "prefill": CHUNK * load.passing(), "logits": logits}


def judging_phase(load: Load, asked: Iterable[Json], rows: float, own: int) -> dict[str, dict[str, float]]:
    """The phase in which models of the study judge `rows` completions of at most `own` tokens, each asked by the longest rubric;
    none where only endpoints are asked."""
    rubrics = [one for one in asked if one.get("arm")]
    if not rubrics:
        return {}
    said = max(len(one["rubric"]) for one in rubrics) // (LETTERS if load.size.vocab > WORDS else 1)
    return {"judge": decoding_phase(load, rows, 1, load.prompt() + own + said, max(one["max_tokens"] for one in rubrics))}


def decoding_phase(load: Load, rows: float, count: int, prompt: int, own: int) -> dict[str, float]:
    """What a batch of `rows` completions of at most `own` tokens holds next to the models, `count` of each prompt."""
    size, groups = load.size, max(1.0, rows // count)
    cached = load.width() if load.run.gpus else 4  # bytes of a number
    token = 2.0 * cached * size.layers * size.kv_heads * size.head_dim
    kernels = load.spec.get("dtype") == "int8"
    together = load.run.threads * max(12, min(96, size.matrices()[0] // 2**17))
    decoded = min(rows, together) if kernels else 1.5 * rows  # a cache grows by a copy
    return {
        "copies": weight_copies(load, False),
        "cache": token * (groups * prompt + decoded * own),
        "prefill": groups * prompt * load.passing(),
        "logits": (4.0 if kernels else 25.0) * rows * size.vocab + 20.0 * rows * own,
    }


def kept_turns(load: Load, episodes: float, count: int, prompt: int) -> dict[str, float]:
    """What the native engine keeps of so many episodes from turn to turn, `count` of each prompt, and once more of a batch while
    it is drawn. Of several seats each has its own history and prompt, and each model an engine with its own limit."""
    spec, size = load.spec, load.size
    method = spec.get("method") or spec
    turns, seats = turn_count(method), seat_count(method)
    if turns == 1 or spec["engine"] != "native" or spec.get("dtype") != "int8" or load.run.gpus:
        return {}
    token, own = 8.0 * size.layers * size.kv_heads * size.head_dim, turns * spec["max_completion_length"]
    limit = 2.0**20 * load.run.engine_cache_mb * (1 + seated_models(method))
    kept = min(limit, token * episodes * (seats * (own + prompt) if seats > 1 else own + prompt / count))
    return {"kept": kept + token * min(episodes, load.run.engine_batch) * (own + prompt)}


def peak_memory(load: Load, phases: dict[str, dict[str, float]], models: float) -> Memory:
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


def sharded_memory(load: Load) -> Memory:
    """Of a machine and of one of its GPUs on verl: all GPUs share the float32 weights, gradients and moments (FSDP), those of a
    reference and a critic, too; of a layer, embedding and head a GPU holds the whole in bfloat16, twice, to fetch ahead. What
    vLLM takes is declared, of 80 GB where nothing is, and it sleeps in updates. Arithmetic, measured on no GPU."""
    run, size, models = load.run, load.size, 4 + has_reference(load.spec) + 4 * bool(load.spec["method"].get("critic"))
    states = 4.0 * size.parameters / max(run.gpus, 1) * models
    whole = size.vocab * size.width * (1 if size.tied else 2) + size.parameters / size.layers
    tokens = max(run.micro_batch_tokens, load.length / run.verl.ulysses_sequence_parallel_size)
    kept, logits = kept_activations(load, Pass(tokens, tokens, 0.0)), 10.0 * tokens * size.vocab
    logits = min(logits, 10.0 * LOGITS) if load.spec.get("blockwise") else logits
    vllm, left = run.verl.gpu_memory_utilization * (run.gpu_memory_gb or 80) * 1e9, states * (not run.verl.offload)
    update = {"states": states, "gathered": 4.0 * whole, "activations": kept, "logits": logits}
    phases = {"update": update, "sampling": {"vllm": vllm, "states": left}}
    phase = max(phases, key=lambda name: sum(phases[name].values()))
    host = (CUDA_BASE + states - left) * run.gpus / run.nodes + PROBLEM_BYTES * load.problems + 6.0 * size.parameters
    return Memory(host, CUDA_CONTEXT + sum(phases[phase].values()), phase, phases[phase])


# How many models, seats and turns a spec has.


def has_reference(spec: Json) -> bool:
    """Whether an RL stage holds a reference."""
    loss = spec["method"]["loss"]
    named = loss["beta"] or loss.get("first_turn_beta") or loss.get("name") == "direct_advantage"
    return bool(named) or any(term.get("name") == "kl" for term in spec["method"].get("shaping", ()))


def reward_models(reward: Json) -> int:
    """Reward models and judging arms among the terms, each taken to be as large as the policy."""
    return sum(one["name"] == "model" or bool(one.get("arm")) for one in reward_terms(reward))


def reward_terms(reward: Json) -> list[Json]:
    """The terms of a reward; of one without terms itself."""
    return [term["reward"] for key in ("gate", "sum", "product") for term in reward.get(key, ())] or [reward]


def seated_models(method: Json) -> int:
    """Frozen models in the seats of an episode and past policies of its pools, each taken to be as large as the policy."""
    seats = [one for one in ((method.get("episode") or {}).get("seats") or {}).values() if one]
    roles = {role for one in seats for role in (one.get("model"), *one.get("models", ())) if role}
    return len(roles) + max((one["keep"] for one in seats if one.get("every")), default=0)


def seat_count(method: Json) -> int:
    """Seats of an episode; 1 without."""
    episode = method.get("episode") or {}
    return 2 if episode.get("name") == "self_play" else max(1, len(episode.get("seats") or ()))


def turn_count(spec: Json) -> int:
    """Turns that an episode has at most, notes included."""
    episode = spec.get("episode") or {}
    most = episode.get("max_turns", 1)
    turns = int(max(value for _, value in most["points"]) if isinstance(most, dict) else most)
    every = (episode.get("context") or {}).get("every")
    return turns + (turns - 1) // every if every else turns
