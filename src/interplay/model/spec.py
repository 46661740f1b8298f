"""Specs of model shapes, of what stages compute with them, and of pretrained models from outside."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from interplay.core.execution import Run
from interplay.core.model import Count, Model, Positive, Share, Since

Dtype = Literal["float32", "bfloat16", "int8"]
"""Arithmetic of a decoder's matrix products."""

Numerics = Literal["fast", "exact"]

_REVISIONS = {"int8": 2}
"""By dtype how often its arithmetic has changed."""


class ComputeSpec(Model):
    """Of a stage that computes with a model."""

    dtype: Dtype = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay float32. bfloat16 is for GPUs, and for CPUs with
    its instructions: on others it is thirty times slower. int8 is for CPUs: the linear layers round each operand to 8 bits on
    power-of-two scales, the gradients of attention to 11, and sum exactly, so that processors agree; norms, the forward pass of
    attention and the output head stay float32. It is for models that were trained so: in a study with a stage of kind `source`
    the int8 of a scale does not hold, and the study asks for it by itself."""

    def hashed_version(self) -> int:
        """Of the arithmetic, too: where it changes, those stages alone that use it have another identity."""
        return self.VERSION + _REVISIONS.get(self.dtype, 0)

    def stack_key(self) -> tuple[Any, ...]:
        """Equal for stages of a kind that can share a stack (`run.stack`) where their models have one shape."""
        return (self.dtype, self.is_exact())

    def stack_misfit(self) -> str | None:
        """Why no stage of this spec can share a stack, with what to write instead; None where it can."""
        if (trainer := getattr(self, "trainer", "native")) != "native":
            return f"{trainer} trains one model in a process; write 1, or trainer: native"
        engine = getattr(self, "engine", "native")
        if engine != "native":
            name = engine if isinstance(engine, str) else engine.function
            return f"the engine {name} samples from one model at a time; write 1, or engine: native"
        if self.dtype == "int8" and not self.is_exact():
            return "the kernels of dtype int8 take one model at a time; write 1, numerics: exact, or dtype: bfloat16 or float32"
        return None

    def is_exact(self) -> bool:
        """Whether results are a function of the digest alone."""
        return False


class LearnSpec(ComputeSpec):
    """Of a stage whose passes have a gradient."""

    KNOWN_AS: ClassVar[Mapping[str, str]] = {
        "lr": "optimizer.learning_rate",
        "learning_rate": "optimizer.learning_rate",
        "weight_decay": "optimizer.weight_decay",
        "max_grad_norm": "optimizer.max_grad_norm",
        "lr_scheduler_type": "schedule.name",
        "warmup_ratio": "schedule.warmup_ratio",
    }
    blockwise: Annotated[bool, Since(False)] = False
    """Attention by blocks of queries over sequences without padding, and logits by blocks of tokens, both recomputed in the
    backward pass: its memory is linear in the length, for prompts of thousands of tokens and large vocabularies. false: scores
    and logits are kept whole. The same up to rounding; with dtype int8, whose kernels never keep scores, only logits of a large
    vocabulary differ."""

    def stack_misfit(self) -> str | None:
        """Also where attention is by blocks."""
        alone = "attention by blocks takes one model at a time; write 1, or blockwise: false"
        return alone if self.blockwise else super().stack_misfit()


class Lora(Model):
    """Low-rank adapters (LoRA, arXiv:2106.09685) by peft, on a model that transformers computes. Base weights are frozen, and the
    adapters are merged into them in every folder that is written."""

    r: Count = 16
    """Rank of an adapter."""
    alpha: Positive = 32.0
    """An adapter is multiplied by alpha / r."""
    dropout: Share = 0.0
    """Of the inputs of adapters, in passes with a gradient; in rl 0, since ratios compare two passes."""
    targets: list[str] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    """Names of the linear layers that have one, at their end."""


class TunedSpec(LearnSpec):
    """Of a stage that can train adapters in place of weights."""

    lora: Annotated[Lora | None, Since(None)] = None
    """Train low-rank adapters alone, by peft (`pip install -c constraints.txt -e ".[lora]"`); null: all weights."""

    @model_validator(mode="after")
    def _adapters_compute(self) -> "TunedSpec":
        if self.lora and self.dtype == "int8":
            raise ValueError("lora: transformers computes a model with adapters; write dtype: float32 or bfloat16")
        return self

    def stack_misfit(self) -> str | None:
        """Also with adapters."""
        return "adapters are trained by themselves; write 1, or lora: null" if self.lora else super().stack_misfit()


class ExactSpec(ComputeSpec):
    """Of a stage whose results can be made a function of its digest alone."""

    numerics: Annotated[Numerics, Since("fast")] = "fast"
    """fast: the bytes depend on micro-batches, processes, stacks and the kind of processor. exact, with dtype int8: they do not
    (weights, state of the optimiser, samples; docs/numerics.md says what is proven and what measured), and the trainer's
    log-probabilities are those of the engine to the last bit. On CPUs with a C compiler; what it does not cover is refused."""

    @model_validator(mode="after")
    def _exact_where_covered(self) -> "ExactSpec":
        misfit = f"dtype = {self.dtype}" if self.dtype != "int8" else self.inexact()
        if self.numerics == "exact" and misfit:
            what = "write numerics: fast, or what it covers (docs/numerics.md)"
            raise ValueError(f"numerics = exact: does not cover {misfit}; {what}")
        return self

    def is_exact(self) -> bool:
        """Whether results are a function of the digest alone."""
        return self.numerics == "exact"

    def inexact(self) -> str:
        """What of this spec numerics: exact does not cover."""
        return ""


class Shape(Model):
    """A decoder built from scratch, with Hugging Face's names. Written as a `save_pretrained` folder of that architecture."""

    architecture: Literal["llama", "qwen2", "qwen3"] = "qwen3"
    """llama: no biases; qwen2: bias on q, k, v; qwen3: RMS norm on each head's q and k."""
    hidden_size: Count
    """Width of the residual stream."""
    num_hidden_layers: Count
    """Layers."""
    num_attention_heads: Count
    """Query heads; a multiple of num_key_value_heads."""
    num_key_value_heads: Count
    """Key and value heads."""
    head_dim: Count
    """Width of a head; even."""
    intermediate_size: Count
    """Width of the feed-forward layers."""
    max_position_embeddings: Count = 1024
    """Longest sequence that the model declares."""
    rope_theta: Positive = 10000.0
    """Base of the rotary embedding."""
    rms_norm_eps: Positive = 1e-6
    """Added to the mean square before its root is taken."""
    tie_word_embeddings: bool = True
    """Whether the output layer is the embedding."""
    initializer_range: Positive = 0.02
    """Standard deviation of the initial weights."""

    @model_validator(mode="after")
    def _divides(self) -> "Shape":
        if self.num_key_value_heads < 1 or self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even (rotary embedding), not {self.head_dim}")
        return self


class ModelSize(NamedTuple):
    """What the costs of a decoder depend on. Widths are 0 where only its parameters are known."""

    parameters: int
    active: int
    """Those of them that a token passes: in a mixture of experts those of its experts. FLOPs count these."""
    vocab: int = 0
    width: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    mlp: int = 0
    """Width of the feed-forward layers that a token passes, all its experts together."""
    normed: bool = False
    """Whether queries and keys are normalised."""
    tied: bool = True

    def matrices(self) -> tuple[int, int]:
        """Parameters of the matrices of all layers, and of those that a pass fuses."""
        fused = self.width * (self.heads + 2 * self.kv_heads) * self.head_dim + 2 * self.width * self.mlp
        return self.layers * (fused + self.width * (self.heads * self.head_dim + self.mlp)), self.layers * fused


class Load(NamedTuple):
    """What the memory of a stage depends on (kinds.formulas)."""

    spec: Mapping[str, Any]
    run: Run
    size: ModelSize
    length: int
    """Most tokens of a prompt with its solution."""
    causal: bool = True
    """Whether a sequence of training fills its row, rather than being one of the problems in it."""
    problems: int = 0
    """Rows of problem sets that the process reads."""

    def width(self) -> int:
        """Bytes of an activation."""
        return 2 if self.spec.get("dtype") == "bfloat16" else 4

    def passing(self) -> float:
        """Bytes of a token in a layer of a pass without a gradient."""
        size = self.size
        return self.width() * (4.0 * size.width + 3 * size.mlp + 2 * (size.heads + 2 * size.kv_heads) * size.head_dim)

    def prompt(self) -> int:
        """Most tokens of a prompt: of what is cut at `length`, what a completion leaves."""
        stated = self.spec.get("max_prompt_length")
        return int(stated or max(self.length - self.spec["max_completion_length"], self.length // 4))


class Memory(NamedTuple):
    """Bytes of one process of a stage where it needs most."""

    host: float
    """Of the machine's memory, interpreter and libraries included."""
    device: float = 0.0
    """Of its GPU; 0 without one."""
    phase: str = ""
    """Where it needs most: load, update, step (of the optimiser), rollout, save."""
    parts: dict[str, float] = {}
    """What it holds there."""


class _Traits(NamedTuple):
    """In what the parameters of an architecture differ from Llama's."""

    qkv_bias: bool = False
    head_norms: bool = False
    full_norms: bool = False
    """Norms over all heads together."""
    expert_width: str = ""
    """Key of the width of an expert; empty: a dense model."""


ARCHITECTURES = {
    "llama": _Traits(),
    "mistral": _Traits(),
    "phi3": _Traits(),
    "qwen2": _Traits(qkv_bias=True),
    "qwen3": _Traits(head_norms=True),
    "mixtral": _Traits(expert_width="intermediate_size"),
    "olmoe": _Traits(full_norms=True, expert_width="intermediate_size"),
    "qwen2_moe": _Traits(qkv_bias=True, expert_width="moe_intermediate_size"),
    "qwen3_moe": _Traits(head_norms=True, expert_width="moe_intermediate_size"),
}
"""Hugging Face's model_type -> traits: those whose parameters `config_size` counts."""


def config_size(config: Mapping[str, Any]) -> ModelSize:
    """The size of a model from its config.json. Raises ValueError where its architecture is not among ARCHITECTURES, or a number
    is missing."""
    traits = ARCHITECTURES.get(config.get("model_type", ""))
    if traits is None:
        kind = config.get("model_type")
        raise ValueError(f"model_type = {kind!r}: its parameters are not counted; known: {', '.join(ARCHITECTURES)}")
    numbers: tuple[str, ...] = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    experts = "num_local_experts" if config.get("num_local_experts") else "num_experts"
    numbers += (experts, "num_experts_per_tok", traits.expert_width) if traits.expert_width else ()
    for name in numbers:
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise ValueError(
                f"{name} = {config.get(name)!r}: must be a number, as in the config.json of a {config['model_type']}"
            )
    width, layers, heads, mlp, vocab = (config[name] for name in numbers[:5])
    kv_heads = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or width // heads
    queries, keys = heads * size, kv_heads * size
    layer = width * (2 * queries + 2 * keys) + 2 * width
    layer += queries + 2 * keys if traits.qkv_bias else queries + 2 * keys + width if config.get("attention_bias") else 0
    layer += 2 * size if traits.head_norms else queries + keys if traits.full_norms else 0
    dense = 3 * width * mlp + (2 * mlp + width if config.get("mlp_bias") else 0)
    sparse, routed, idle = 0, 0, 0
    if traits.expert_width:
        step, plain = config.get("decoder_sparse_step") or 1, config.get("mlp_only_layers") or ()
        sparse = sum((index + 1) % step == 0 and index not in plain for index in range(layers))
        count, used, expert = config[experts], config["num_experts_per_tok"], 3 * width * config[traits.expert_width]
        shared = config.get("shared_expert_intermediate_size") or 0
        routed = count * (expert + width) + (3 * shared + 1) * width * bool(shared)
        idle = sparse * (count - used) * expert
        mlp = used * config[traits.expert_width] + shared if sparse else mlp
    tied = bool(config.get("tie_word_embeddings", False))
    parameters = layers * layer + (layers - sparse) * dense + sparse * routed + width + vocab * width * (1 if tied else 2)
    return ModelSize(
        *(parameters, parameters - idle, vocab, width, layers, heads, kv_heads, size, mlp),
        normed=traits.head_norms or traits.full_norms,
        tied=tied,
    )


CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
UNSUPPORTED = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_sliding_window": (None, False),
    "hidden_act": (None, "silu"),
}
"""Keys of config.json that change the forward pass, with the values that this decoder computes."""
FOREIGN = ("mistral", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe")
"""Values of `model_type` that transformers computes, in addition to CLASSES in what our decoder lacks."""


def is_foreign(config: Mapping[str, Any]) -> bool:
    """Whether transformers computes the model of this config.json: its family, rope scaling, attention window, biases or
    activation are not of our decoder."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    ours = rope.get("rope_type", rope.get("type", "default")) == "default"
    ours &= all(config.get(name) in allowed for name, allowed in UNSUPPORTED.items())
    return config.get("model_type") in FOREIGN or (config.get("model_type") in CLASSES and not ours)


def check_checkpoints(checkpoints: list[int], steps: int) -> None:
    """Raises ValueError where a checkpoint is not at one of the steps."""
    if outside := [step for step in checkpoints if not 1 <= step <= steps]:
        raise ValueError(f"checkpoints: {outside[0]} is not among the steps 1..{steps} of this run")


class SourceSpec(Model):
    """A pretrained model from outside. In a study: `path`, a Hugging Face folder by its path from the project's root, below it or
    through a link there, which the planner replaces by its checksum (the path goes to the run block); or a hub id at a pinned
    revision."""

    sha256: str | None = None
    """Checksum over config.json, tokenizer.json and the weight files of a folder: identity is content, not path."""
    hub_id: str | None = None
    """Hub repository, such as Qwen/Qwen2.5-0.5B."""
    revision: str | None = None
    """Commit of the hub repository, 40 hex digits: a branch name is refused, since its commit changes."""

    def without_folder(self) -> str:
        """Says that the model is not here, and the remedy."""
        remedy = "import it with `interplay adopt FOLDER`, or give path in the study"
        return f"source {str(self.sha256)[:12]}: not in results/; {remedy}"

    @model_validator(mode="after")
    def _one_source(self) -> "SourceSpec":
        if (self.sha256 is None) == (self.hub_id is None):
            raise ValueError("give either path or hub_id")
        if self.hub_id and not (self.revision and re.fullmatch("[0-9a-f]{40}", self.revision)):
            raise ValueError("a hub_id needs revision: a commit of 40 hex digits")
        if self.hub_id and (".." in self.hub_id or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.hub_id)):
            raise ValueError("hub_id must be OWNER/NAME, as on the hub; a folder goes under path")
        return self
