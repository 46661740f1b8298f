"""The `run` block: how a stage is executed. Never hashed."""

from interplay.schema.base import Model


class Run(Model):
    """Resources and execution. With the digest it fixes the bytes of a result on one kind of CPU; it never changes identity."""

    threads: int = 1
    """CPU threads: Snakemake reserves them, torch and OpenMP use them."""
    memory_mb: int = 3000
    """Memory that a cluster reserves."""
    runtime: int = 120
    """Minutes that a cluster grants."""
    gpus: int = 0
    """GPUs that a cluster reserves."""
    micro_batch_tokens: int = 8192
    """Most tokens in one forward-backward pass; gradients accumulate up to the batch."""
    engine_batch: int = 256
    """Sequences that decode side by side."""
    save_minutes: float = 1.0
    """Minutes between saves to resume/."""
    keep_state: bool = True
    """Keep an RL run's final training state (three times its weights) beside the record, so that a longer run goes on from it."""
    path: str | None = None
    """Folder that a source stage copies its model from."""
