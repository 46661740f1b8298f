"""A decoder with heads that judge completions. Written as the folder of a sequence classifier, whose labels are the heads."""

from pathlib import Path

import torch
from torch import Tensor, nn

from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.model.shared import hidden
from interplay.store.random import key

GATE = "gate.safetensors"


class RewardModel(nn.Module):
    """Rewards (n, K) of completions by K heads, and how much each counts by the prompt."""

    def __init__(self, decoder: Decoder, heads: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.score = nn.Parameter(torch.empty(heads, decoder.shape.hidden_size))
        self.gate = nn.Parameter(torch.zeros(heads, decoder.shape.hidden_size))
        """Of zeros at the start, so that all heads count alike."""

    def forward(
        self, prompts: Tensor, lengths: Tensor, group: Tensor, tokens: Tensor, ends: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Rewards (n, K) float32 of completions, and logarithms (n, K) of the heads' weights, which sum to 1.

        prompts (G, P), padded on the right, have `lengths` (G,); completion r follows the prompt group[r]; tokens (n, T) are
        padded on the right, `ends` (n,) are their lengths. A reward is read where the last token of its completion has been
        seen, and the weights where the last of the prompt has."""
        # One more column, since the last token of a completion does not pass: it predicts nothing.
        states = hidden(self.decoder, prompts, lengths, group, nn.functional.pad(tokens, (0, 1)), dtype)
        last = states[torch.arange(len(tokens), device=tokens.device), ends].float()
        return last @ self.score.T, (states[:, 0].float() @ self.gate.T).log_softmax(-1)


def init(decoder: Decoder, heads: int, seed: int) -> RewardModel:
    """The model with heads drawn from the seed, at the decoder's own scale."""
    model = RewardModel(decoder, heads)
    with torch.no_grad():
        random = torch.Generator().manual_seed(key("init", seed, "score"))
        model.score.normal_(0.0, decoder.shape.initializer_range, generator=random)
    return model


def save(model: RewardModel, out: Path, tokenizer_folder: Path) -> None:
    """Write a folder that AutoModelForSequenceClassification loads, with a label for each head; beside it the gate of several,
    which no such class knows."""
    labels = [f"head_{head}" for head in range(len(model.score))]
    named = folder.CLASSES[model.decoder.shape.architecture].replace("ForCausalLM", "ForSequenceClassification")
    folder.describe(
        model.decoder,
        out,
        tokenizer_folder,
        architectures=[named],
        id2label={str(head): label for head, label in enumerate(labels)},
        label2id={label: head for head, label in enumerate(labels)},
    )
    if len(labels) > 1:
        folder.save_tensors({"gate.weight": model.gate}, out / GATE)
    backbone = {name: tensor for name, tensor in model.decoder.state_dict().items() if name.startswith("model.")}
    folder.save_tensors({**backbone, "score.weight": model.score}, out / "model.safetensors")
