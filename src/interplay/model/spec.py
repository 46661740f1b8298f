"""Specs of model shapes, optimisers, schedules and pretrained models from outside."""

import re
from typing import Annotated, Any, Literal

from pydantic import model_validator

from interplay.core.model import Count, Model, NotNegative, Positive, Share, Since

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

    blockwise: Annotated[bool, Since(False)] = False
    """Attention by blocks of queries over sequences without padding, and logits by blocks of tokens, both made again on the way
    back: memory of a pass is linear in its length, for prompts of thousands of tokens and large vocabularies. false: scores and
    logits are kept whole. The same up to rounding; with dtype int8, whose kernels never keep scores, only logits of a large
    vocabulary differ."""

    def stack_misfit(self) -> str | None:
        """Also where attention is by blocks."""
        alone = "attention by blocks takes one model at a time; write 1, or blockwise: false"
        return alone if self.blockwise else super().stack_misfit()


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


class Optimizer(Model):
    """AdamW for all parameters, or Muon for the matrices of the layers (torch.optim.Muon) and AdamW for the rest."""

    VERSION = 2
    name: Literal["adamw", "muon"] = "muon"
    """adamw: AdamW alone; muon: both."""
    learning_rate: NotNegative = 4e-3
    """Peak rate of AdamW."""
    muon_learning_rate: NotNegative = 0.02
    """Peak rate of Muon."""
    weight_decay: NotNegative = 0.01
    """Decoupled decay of matrices."""
    adam_beta1: Share = 0.9
    """Decay of the first moment."""
    adam_beta2: Share = 0.95
    """Decay of the second moment."""
    muon_momentum: Share = 0.95
    """Momentum of Muon."""
    max_grad_norm: NotNegative = 1.0
    """Gradient norm is clipped to this; 0 leaves it alone."""


class Schedule(Model):
    """Learning rate over the run, as a factor on the peak: linear warm-up, then hold and decay."""

    name: Literal["constant", "linear", "cosine"] = "linear"
    """Shape of the decay."""
    warmup_ratio: Share = 0.02
    """Share of steps spent warming up."""
    decay_ratio: Share = 0.4
    """Share of steps, at the end, spent decaying (1.0: decay from the end of the warm-up on)."""
    min_ratio: Share = 0.0
    """Factor at the last step."""


class TuneOptimizer(Optimizer):
    """Defaults of stages that fine-tune, including RL: AdamW at a small rate without weight decay."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: NotNegative = 1e-4
    weight_decay: NotNegative = 0.0


class TuneSchedule(Schedule):
    """Defaults of such stages: a constant rate."""

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_ratio: Share = 0.0


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
