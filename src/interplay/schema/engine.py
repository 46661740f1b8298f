"""Engines: which can sample what."""

from interplay.schema.model import Shape

VLLM_CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Widths of a head that attention of vLLM 0.32 computes on a CPU; others end its first pass."""


def vllm_misfit(shape: Shape, on_cpu: bool) -> str | None:
    """Why vLLM does not compute a model of this shape; None: it does."""
    head = shape.head_dim
    if on_cpu and head not in VLLM_CPU_HEAD_DIMS:
        return f"the model's head_dim is {head}, and on a CPU vLLM computes {', '.join(map(str, VLLM_CPU_HEAD_DIMS))}"
    if shape.architecture == "qwen2" and head * shape.num_attention_heads != shape.hidden_size:
        return f"the model's head_dim is {head}, and vLLM takes that of a qwen2 for hidden_size / num_attention_heads"
    return None
