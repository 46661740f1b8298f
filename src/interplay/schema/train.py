"""The LM trainer: pre-training, mid-training and SFT differ in data, init and loss mask only."""

from typing import Literal

from pydantic import model_validator

from interplay.schema.base import Count, Model, Natural, Share
from interplay.schema.model import Optimizer, Schedule, Shape


class PositionJumps(Model):
    """Randomised positions (after Ruoss et al., arXiv:2305.16843): at each of some characters, position ids jump ahead with a
    probability, so that the position does not tell how long a trace will be. Without it a small model ends every trace where
    the longest trained one ended, and fails at the first op beyond (docs/log.md). Inference uses plain positions."""

    characters: str = ",|?"
    """Tokens with this text may come with a jump."""
    probability: Share = 0.0
    """Chance of a jump at each; 0: plain positions."""
    largest: Count = 16
    """Jumps are uniform in 1..largest."""
    start: Share = 0.4
    """Share of the steps before the first jump: look-ups form faster on plain positions."""


class TrainSpec(Model):
    """Next-token training on a corpus. Roles: `corpus` (`corpus.0`, `corpus.1`, ... where the data come in shards); `init` (a
    model) unless `model` is given; `tokenizer` when it is; `validation` (a problem set) for the loss by band."""

    model: Shape | None = None
    """Shape of a fresh model (pretrain); null to start from the `init` role (midtrain, sft)."""
    tokens: Count
    """Training budget in tokens, padding not counted. The corpus is repeated when it is shorter."""
    batch_tokens: Count = 4096
    """Tokens per optimiser step, padding included; a whole number of rows."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay float32. bfloat16 is for GPUs, and for CPUs that have
    its instructions: on others it is thirty times slower."""
    position_jumps: PositionJumps = PositionJumps()
    eval_every: Natural = 0
    """Steps between losses on the validation set; 0: only at the end and at the kept checkpoints."""
    checkpoints: list[Count] = []
    """Steps whose weights are kept in checkpoints/<step>/model/ as part of the artifact."""
    seed: Natural = 0
    """Initial weights and data order."""

    @model_validator(mode="after")
    def _positive(self) -> "TrainSpec":
        if self.tokens < self.batch_tokens:
            raise ValueError(f"tokens ({self.tokens}) is less than one batch_tokens ({self.batch_tokens})")
        return self


class PretrainSpec(TrainSpec):
    """Training from a fresh model."""

    model: Shape


class MidtrainSpec(TrainSpec):
    """Continued training on a mixture, from the model before it."""


class SftSpec(TrainSpec):
    """Supervised fine-tuning on gold solutions, from the model before it."""
