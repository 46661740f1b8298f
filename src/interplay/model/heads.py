"""Models around a decoder: reward heads, value head, composed logits (ULD), and a lagged nucleus; linear probes of its layers."""

import copy
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from interplay.core import artifact, metrics, random
from interplay.core.model import UserError
from interplay.data import batches, tokenizer
from interplay.kernels import exact
from interplay.model import folder, shared_prompts
from interplay.model.decoder import Decoder

# Reward models, saved as the folder of a sequence classifier whose labels are the heads.


GATE = "gate.safetensors"


class RewardModel(nn.Module):
    """Rewards (n, K) of completions by K heads, and weights of the heads as a function of the prompt."""

    def __init__(self, decoder: Decoder, heads: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.score = nn.Parameter(torch.empty(heads, decoder.shape.hidden_size))
        self.gate = nn.Parameter(torch.zeros(heads, decoder.shape.hidden_size))
        """Initially zero, so that all heads have equal weight."""

    def forward(
        self, prompts: Tensor, lengths: Tensor, group: Tensor, tokens: Tensor, ends: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards (n, K) float32 of completions, logarithms (n, K) of the heads' weights, which sum to 1, and the states (n, T +
        1, D) before each token of a completion and after its last one.

        prompts (G, P), padded on the right, have `lengths` (G,); completion r follows the prompt group[r]; tokens (n, T) are
        padded on the right, `ends` (n,) are their lengths. A reward is read at the last token of its completion, the
        weights at the last token of the prompt."""
        # One more column, since `hidden_states` does not pass the last one.
        states = shared_prompts.hidden_states(self.decoder, prompts, lengths, group, nn.functional.pad(tokens, (0, 1)), dtype)
        last = states[torch.arange(len(tokens), device=tokens.device), ends].float()
        return last @ self.score.T, (states[:, 0].float() @ self.gate.T).log_softmax(-1), states

    def read(self, prompts: list[list[int]], completions: list[list[int]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The same of token lists, n each, without states."""
        return self.read_states(prompts, completions, dtype)[:2]

    def read_states(
        self, prompts: list[list[int]], completions: list[list[int]], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same of token lists, n each."""
        tokens, ends = batches.pad_completions(completions, self.score.device)
        distinct = shared_prompts.distinct_prompts(prompts, self.decoder.share_prompts)
        few, lengths, group = (part.to(tokens.device) for part in distinct)
        found: tuple[Tensor, Tensor, Tensor] = self(few, lengths, group, tokens, ends.to(tokens.device), dtype)
        return found


def weighted_reward(rewards: Tensor, weights: Tensor) -> Tensor:
    """The reward (n,) by which completions of one prompt are ranked: the mean over heads (n, K), weighted by exp(weights)."""
    return (weights.exp() * rewards).sum(-1)


def init_reward_model(decoder: Decoder, heads: int, seed: int) -> RewardModel:
    """The model with heads drawn from the seed, at the initial scale of the decoder."""
    model = RewardModel(decoder, heads)
    with torch.no_grad():
        stream = torch.Generator().manual_seed(random.stream_key("init", seed, "score"))
        model.score.normal_(0.0, decoder.shape.initializer_range, generator=stream)
    return model


def save_reward_model(model: RewardModel, out: Path, tokenizer_folder: Path) -> None:
    """Write a folder that AutoModelForSequenceClassification loads, with a label for each head; with several heads also the gate,
    which that class does not load."""
    labels = [f"head_{head}" for head in range(len(model.score))]
    named: dict[str, Any] = {
        "id2label": {str(head): label for head, label in enumerate(labels)},
        "label2id": {label: head for head, label in enumerate(labels)},
    }
    out.mkdir(parents=True, exist_ok=True)
    if len(labels) > 1:
        folder.save_tensors({"gate.weight": model.gate}, out / GATE)
    if isinstance(model.decoder, folder.TransformersModel):
        model.decoder.save_classifier(model.score, named, out, tokenizer_folder)
        return
    of = folder.CLASSES[model.decoder.shape.architecture].replace("ForCausalLM", "ForSequenceClassification")
    folder.write_config(model.decoder, out, tokenizer_folder, architectures=[of], **named)
    backbone = {name: tensor for name, tensor in model.decoder.state_dict().items() if name.startswith("model.")}
    folder.save_tensors({**backbone, "score.weight": model.score}, out / "model.safetensors")


def load_reward_model(at: Path) -> RewardModel:
    """The model of such a folder. Raises UserError where a file is missing or holds other tensors."""
    tensors = folder.load_tensors(at)
    if "score.weight" not in tensors:
        raise UserError(f"{at}: holds no reward model; name a stage of kind reward_model")
    score = tensors.pop("score.weight")
    foreign = folder.is_foreign(artifact.read_json(at / "config.json"))
    decoder = folder.TransformersModel(at) if foreign else Decoder(*folder.read_config(at))
    model = RewardModel(decoder, len(score))
    with torch.no_grad():
        model.score.copy_(score)
        if (at / GATE).exists():
            model.gate.copy_(safetensors.torch.load_file(at / GATE)["gate.weight"])
    if foreign:
        return model.requires_grad_(False)
    found = model.decoder.load_state_dict(tensors, strict=False)  # an output head of its own is not saved, and not used
    if found.unexpected_keys or any(name.startswith("model.") for name in found.missing_keys):
        raise UserError(f"{at}: not the tensors of its config.json, such as {[*found.unexpected_keys, *found.missing_keys][0]}")
    return model.requires_grad_(False)


class Scorer(NamedTuple):
    """A trained reward model by which other stages score completions."""

    model: RewardModel
    dtype: torch.dtype
    pass_tokens: int

    @torch.no_grad()
    def score(self, prompts: list[list[int]], completions: list[list[int]]) -> list[float]:
        """The reward of each completion after its prompt (n). Passes hold completions of about one length."""
        found = [0.0] * len(completions)
        pieces: list[list[int]] = []
        for i in sorted(range(len(completions)), key=lambda i: -len(prompts[i]) - len(completions[i])):
            first = pieces[-1][0] if pieces else i
            if not pieces or (len(pieces[-1]) + 1) * (len(prompts[first]) + len(completions[first])) > self.pass_tokens:
                pieces.append([])
            pieces[-1].append(i)
        for piece in pieces:
            read = self.model.read([prompts[i] for i in piece], [completions[i] for i in piece], self.dtype)
            for i, reward in zip(piece, weighted_reward(*read).tolist(), strict=True):
                found[i] = reward
        return found


def load_scorer(out: Path, judged: Path, at: torch.device, pass_tokens: int) -> Scorer:
    """The reward model of an artifact on a device, computed as it was trained, in passes of at most about so many tokens.
    `judged`: the model that writes. Raises UserError where it has another tokenizer."""
    tokenizer.check_same(out, judged)
    dtype = getattr(torch, artifact.record(out)["spec"]["dtype"])
    return Scorer(load_reward_model(out / "model").to(at), dtype, pass_tokens)


# Value function (critic).


class ValueHead(nn.Module):
    """A copy of a decoder with a linear head on its states. The head is initialised to 0 and its bias to `start`, so that all
    values are equal before the first step."""

    def __init__(self, policy: Decoder, start: float = 0.0) -> None:
        super().__init__()
        self.decoder = copy.deepcopy(policy).requires_grad_(True)
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights, which are replaced
            self.head = nn.Linear(policy.shape.hidden_size, 1).to(policy.head().device)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, start)

    def forward(self, states: Tensor) -> Tensor:
        """Values (...) float32 of states (..., D), those of (M, D) with numerics: exact."""
        return self.head(states.float())[..., 0] if self.sums is None else _Value.apply(states, self)

    @property
    def sums(self) -> exact.Sums | None:
        """Of gradients, with numerics: exact."""
        return self.decoder.sums


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, network: ValueHead) -> Tensor:
        ctx.states, ctx.network = states, network
        return exact.in_order(states * network.head.weight, 1) + network.head.bias

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        head, sums = ctx.network.head, ctx.network.sums
        sums.add_rows(head.weight, gradient[:, None] * ctx.states)
        sums.add_rows(head.bias, gradient)
        return gradient[:, None] * head.weight, None


# A composed model: the logits of an assistant are subtracted from those of a base (ULD, arXiv:2406.08607, eq. 3).
#
# On disk `base/` and `assistant/` are Hugging Face folders with `composition.json`; there is no `model/`, so that neither is
# mistaken for the composed model.


COMPOSITION_FILE = "composition.json"


class Composed(NamedTuple):
    """A base and the assistant whose logits are subtracted from its own; both have the same vocabulary."""

    base: Decoder
    assistant: Decoder
    logit_weight: float
    top_logit_filter: float

    def logits(self, base: Tensor, assistant: Tensor) -> Tensor:
        """Logits (..., V) of the composed model, of those of both parts. The assistant enters as log ratios to the uniform
        distribution, so that a uniform assistant changes nothing. Tokens whose probability under the base is below
        `top_logit_filter` times the largest keep the base's logits, so that noise in the assistant's tail does not promote
        them."""
        least = base.amax(-1, keepdim=True) + (math.log(self.top_logit_filter) if self.top_logit_filter else -math.inf)
        known = assistant.log_softmax(-1) + math.log(assistant.shape[-1])
        return base - self.logit_weight * known.masked_fill(base < least, 0.0)


def first_layers(decoder: Decoder, layers: int) -> Decoder:
    """A decoder of the first layers of another, with copies of its embedding, norm and head."""
    if decoder.by_rows:
        raise UserError(
            "objective = uld: transformers computes this model, and an assistant is made of our own layers; write npo"
        )
    small = Decoder(decoder.shape.model_copy(update={"num_hidden_layers": layers}), decoder.vocab_size)
    small.blockwise, small.recompute = decoder.blockwise, decoder.recompute
    weights = decoder.state_dict()
    small.load_state_dict({name: weights[name].clone() for name in small.state_dict()})
    return small


def save_composed(composed: Composed, out: Path, tokenizer_folder: Path) -> None:
    """Write `base/`, `assistant/` and the tokenizer's files into `out`, and `composition.json` last."""
    folder.save_decoder(composed.base, out / "base", tokenizer_folder)
    folder.save_decoder(composed.assistant, out / "assistant", tokenizer_folder)
    (out / "tokenizer").mkdir(exist_ok=True)
    folder.copy_files(tokenizer_folder, out / "tokenizer", folder.TOKENIZER_FILES)
    artifact.write_json(
        out / COMPOSITION_FILE, {"logit_weight": composed.logit_weight, "top_logit_filter": composed.top_logit_filter}
    )


def load_model(out: Path, device: torch.device) -> Decoder | Composed:
    """The model of an artifact, on the device: a decoder or a composed model. Raises UserError where there is neither."""
    if not (out / COMPOSITION_FILE).exists():
        return folder.load_decoder(out / "model").to(device)
    base, assistant = (folder.load_decoder(out / name).to(device) for name in ("base", "assistant"))
    options = artifact.read_json(out / COMPOSITION_FILE)
    return Composed(base, assistant, options["logit_weight"], options["top_logit_filter"])


# Nucleus masks, and a policy restricted to the nucleus of a lagged copy (NLPO, arXiv:2210.01241).


def nucleus_mask(logits: Tensor, top_p: float) -> Tensor:
    """(N, vocab) bool: the nucleus, the smallest set of likeliest tokens with total probability at least `top_p`; all tokens at
    1."""
    if top_p >= 1.0:
        return torch.ones_like(logits, dtype=torch.bool)
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = ordered.softmax(-1).cumsum(-1, dtype=torch.float64).roll(1, -1)
    before[:, 0] = 0.0
    return torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, before < top_p)


class Lagged(NamedTuple):
    """A policy and the lagged copy whose nucleus restricts it."""

    policy: Decoder
    copy: Decoder
    top_p: float

    def logits(self, policy: Tensor, copy: Tensor) -> Tensor:
        """Logits (N, vocab) to sample from: the policy's, and minus infinity outside the nucleus of the copy at temperature 1."""
        return policy.masked_fill(~nucleus_mask(copy, self.top_p), -math.inf)


# Linear probes of hidden states, and similarities between those of two models.


@torch.inference_mode()
def layer_states(out: Path, prompts: list[list[int]], device: torch.device, pass_tokens: int) -> NDArray[np.float64]:
    """(L, P, D): the output of each layer at the last token of each prompt, by transformers in float32, in passes of at most
    about so many tokens. Raises UserError for a composed model."""
    from transformers import AutoModelForCausalLM

    if not (out / "model").exists():
        raise UserError("evaluate: probe: a model and an assistant have no layers of their own; take it away")
    model: Any = AutoModelForCausalLM.from_pretrained(out / "model", dtype=torch.float32, trust_remote_code=False)
    model = model.to(device).eval()
    found: list[NDArray[np.float64] | None] = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    while order:
        width = len(prompts[order[-1]])
        chosen, order = order[-max(1, pass_tokens // width) :], order[: -max(1, pass_tokens // width)]
        ids = torch.zeros(len(chosen), width, dtype=torch.long, device=device)
        for row, i in enumerate(chosen):
            ids[row, : len(prompts[i])] = torch.tensor(prompts[i])
        ends = torch.tensor([len(prompts[i]) for i in chosen], device=device)
        seen = (torch.arange(width, device=device)[None] < ends[:, None]).long()
        states = model(ids, attention_mask=seen, output_hidden_states=True, use_cache=False).hidden_states[1:]
        last = torch.stack([of_layer[torch.arange(len(chosen)), ends - 1] for of_layer in states], 1).double().cpu().numpy()
        for row, i in enumerate(chosen):
            found[i] = last[row]
    return np.stack([one for one in found if one is not None], 1)


RIDGE = 1e-2
"""Penalty of a probe, by the number of prompts that it is fitted to; features have variance 1."""


def probed(states: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(P,): whether a ridge classifier of one-hot labels (P,), fitted on the prompts of the other parity, reads the label of each
    prompt off its states (P, D)."""
    right = np.zeros(len(labels), dtype=bool)
    for fold in (0, 1):
        train, test = (np.arange(len(labels)) % 2 == part for part in (1 - fold, fold))
        mean, scale = states[train].mean(0), states[train].std(0)
        x = (states - mean) / np.where(scale > 1e-8, scale, np.inf)
        known, classes = np.unique(labels[train], return_inverse=True)
        y = np.eye(len(known))[classes] - np.bincount(classes) / train.sum()
        weights = np.linalg.solve(x[train].T @ x[train] + RIDGE * train.sum() * np.eye(x.shape[1]), x[train].T @ y)
        guess = known[(x[test] @ weights + np.bincount(classes) / train.sum()).argmax(1)]
        right[test] = guess == labels[test]
    return right


def linear_cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Of states (P, D) and (P, E) of the same prompts: |other' one|^2 / (|one' one| |other' other|), centred, Frobenius norms
    (Kornblith et al., arXiv:1905.00414, eq. 5); NaN where one of them does not vary."""
    a, b = one - one.mean(0), other - other.mean(0)
    norms = float(np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))
    return float(np.linalg.norm(b.T @ a)) ** 2 / norms if norms else math.nan


def cosines(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """(P,): of states (P, D) of each prompt."""
    return (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))


Layers = tuple[dict[str, NDArray[np.float64]], dict[str, Any]]
"""Of probes: `probe:layer_1` and so on -> (P,), a number for each prompt; and means of all, for the record."""


def probe_layers(
    of: Path, compared: Path | None, texts: list[str], labels: NDArray[np.int64], device: torch.device, pass_tokens: int
) -> Layers:
    """Probes of each layer of a model, and with `compared` its similarities to that model's. Raises UserError where that has
    other layers or another tokenizer."""
    prompts = tokenizer.encode_texts(tokenizer.load(of), texts)
    states = layer_states(of, prompts, device, pass_tokens)
    each = {f"probe:layer_{at}": probed(layer, labels).astype(float) for at, layer in enumerate(states, 1)}
    likeliest = float(np.bincount(labels).max() / len(labels))
    means: dict[str, Any] = {"majority": metrics.round_significant(likeliest)}
    if compared is not None:
        tokenizer.check_same(compared, of)
        others = layer_states(compared, prompts, device, pass_tokens)
        if others.shape != states.shape:
            raise UserError(f"evaluate: probe.against: layers x width {others.shape[::2]} there, {states.shape[::2]} here")
        pairs = list(enumerate(zip(states, others, strict=True), 1))
        each |= {f"cosine:layer_{at}": cosines(*pair) for at, pair in pairs}
        means |= {f"cka:layer_{at}": metrics.round_significant(linear_cka(*pair)) for at, pair in pairs}
    means |= {name: metrics.round_significant(float(of_layer.mean())) for name, of_layer in each.items()}
    return each, {"layers": means}
