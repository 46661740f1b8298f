"""New weights for a vLLM that runs: what a worker learns to do beside what it can (its `worker_extension_cls`)."""

from typing import Any

import safetensors.torch
from torch import Tensor


class Refresh:
    """Mixed into vLLM's worker."""

    model_runner: Any

    def take(self, given: "dict[str, Tensor] | str") -> None:
        """Replace the weights by those given by name, or by those of a safetensors file."""
        weights = safetensors.torch.load_file(given) if isinstance(given, str) else given
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        model = self.model_runner.get_model()
        if model.config.tie_word_embeddings:
            # vLLM reloads the embedding alone. The head shares its tensor, but on a CPU it multiplies by a packed copy.
            model.lm_head.weight = model.model.embed_tokens.weight
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)
