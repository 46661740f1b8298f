"""Two decoders as one model: the logits of an assistant are taken off those of the other (ULD, arXiv:2406.08607, eq. 3).

On disk `base/` and `assistant/` are Hugging Face folders beside `composition.json`, and there is no `model/`, so that nobody
takes one of them for the whole."""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.store.artifact import read_json, write_json

FILE = "composition.json"


class Composed(NamedTuple):
    """A model and the assistant whose logits are taken off its own; both know the same tokens."""

    base: Decoder
    assistant: Decoder
    logit_weight: float
    top_logit_filter: float

    def logits(self, base: Tensor, assistant: Tensor) -> Tensor:
        """Logits (..., V) of the whole. Those of the assistant count as log ratios to knowing nothing, so that where it is
        uniform the model stays as it is. Tokens that the model finds less likely than `top_logit_filter` times its likeliest
        keep their own, so that noise in the assistant's tail makes none of them likely."""
        least = base.amax(-1, keepdim=True) + (math.log(self.top_logit_filter) if self.top_logit_filter else -math.inf)
        known = assistant.log_softmax(-1) + math.log(assistant.shape[-1])
        return base - self.logit_weight * known.masked_fill(base < least, 0.0)


def first_layers(decoder: Decoder, layers: int) -> Decoder:
    """A decoder of the first layers of another, with copies of its embedding, norm and head."""
    small = Decoder(decoder.shape.model_copy(update={"num_hidden_layers": layers}), decoder.vocab_size)
    whole = decoder.state_dict()
    small.load_state_dict({name: whole[name].clone() for name in small.state_dict()})
    return small


def save(composed: Composed, out: Path, tokenizer_folder: Path) -> None:
    """Write `base/`, `assistant/` and the tokenizer's files into `out`, and `composition.json` last."""
    folder.save(composed.base, out / "base", tokenizer_folder)
    folder.save(composed.assistant, out / "assistant", tokenizer_folder)
    (out / "tokenizer").mkdir(exist_ok=True)
    folder.copy_files(tokenizer_folder, out / "tokenizer", folder.TOKENIZER_FILES)
    write_json(out / FILE, {"logit_weight": composed.logit_weight, "top_logit_filter": composed.top_logit_filter})


def whole(out: Path, device: torch.device) -> Decoder | Composed:
    """What a stage's artifact holds, on the device: a single model, or such a pair. Raises UserError where it holds neither."""
    if not (out / FILE).exists():
        return folder.load(out / "model").to(device)
    base, assistant = (folder.load(out / name).to(device) for name in ("base", "assistant"))
    options = read_json(out / FILE)
    return Composed(base, assistant, options["logit_weight"], options["top_logit_filter"])
