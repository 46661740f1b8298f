"""The `run` block: how a stage is executed. Never hashed."""

from typing import Any

from interplay.schema.base import Count, Model, Natural, NotNegative


class Run(Model):
    """Resources and execution. With the digest it fixes the bytes of a result on one kind of CPU; it never changes identity."""

    threads: Count = 1
    """CPU threads: Snakemake reserves them, torch and OpenMP use them."""
    memory_mb: Count = 3000
    """Memory that a cluster reserves."""
    runtime: Count = 120
    """Minutes that a cluster grants."""
    gpus: Natural = 0
    """GPUs that a cluster reserves."""
    micro_batch_tokens: Count = 8192
    """Most tokens in one forward-backward pass; gradients accumulate up to the batch."""
    share_prompts: bool = True
    """Pass a prompt that several completions follow once, and let them attend to it (Prefix Grouper, arXiv:2506.05433); false:
    pass it before each of them. The same but for rounding."""
    engine_batch: Count = 256
    """Sequences that decode side by side."""
    cuda_graphs: bool = False
    """On a GPU the native engine records its decoding steps and replays them as CUDA graphs: fewer launches, for small models."""
    engine_server: bool = False
    """With engine vllm: as a server on 127.0.0.1 in a process of its own, which the stage starts and ends; false: in the stage's
    process. The samples are the same."""
    engine_cache_mb: Count = 512
    """Memory of vLLM's key-value cache; with engine vllm."""
    save_minutes: NotNegative = 1.0
    """Minutes between saves to resume/."""
    keep_state: bool = True
    """Keep an RL run's final training state (three times its weights) beside the record, so that a longer run goes on from it."""
    path: str | None = None
    """Folder that a source stage copies its model from, or file that a dataset stage reads; what a study names lies below the
    project's root."""

    def stated(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON: all that a lock or a `stage.json` says."""
        return self.model_dump(exclude_defaults=True)
