"""Models as Hugging Face folders: `init`, `save` and `load` of config.json, model.safetensors, generation_config.json and the
tokenizer's files, without importing transformers."""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor

from interplay.core.artifact import copy_atomic, read_json, write_atomic, write_json
from interplay.core.model import UserError
from interplay.core.random import stream_key
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.optim import sharding

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
UNSUPPORTED = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_sliding_window": (None, False),
    "hidden_act": (None, "silu"),
}
"""Keys of config.json that change the forward pass, with the values that this decoder computes."""


def init(shape: Shape, vocab_size: int, seed: int) -> Decoder:
    """A decoder with weights from a normal distribution of `initializer_range`; the matrices that write into the residual stream
    are scaled by 1 / sqrt(2 * layers) (GPT-2). Every tensor has a stream of its own, keyed by (seed, name)."""
    decoder = Decoder(shape, vocab_size)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = shape.initializer_range * ((2 * shape.num_hidden_layers) ** -0.5 if residual else 1.0)
            parameter.normal_(0.0, scale, generator=torch.Generator().manual_seed(stream_key("init", seed, name)))
    return decoder


def save(decoder: Decoder, folder: Path, tokenizer_folder: Path) -> None:
    """Write `decoder` with the tokenizer's files as a folder that AutoModelForCausalLM and AutoTokenizer load. Bytes depend on
    the values alone. Each file appears whole, the weights last. All processes of a stage come here together."""
    describe(decoder, folder, tokenizer_folder)
    save_tensors(sharding.state(decoder), folder / "model.safetensors")


def describe(decoder: Decoder, folder: Path, tokenizer_folder: Path, **more: Any) -> None:
    """Write all of such a folder but the weights. `more` are keys of config.json that replace those of a causal model."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_files(tokenizer_folder, folder, TOKENIZER_FILES)
    special = special_tokens(tokenizer_folder)
    write_json(folder / "config.json", {**config(decoder, special), **more})
    generation = tokenizer_folder / "generation_config.json"
    stops = read_json(generation) if generation.exists() else {k: v for k, v in special.items() if v is not None}
    write_json(folder / "generation_config.json", stops)


def save_tensors(tensors: dict[str, Tensor], file: Path, every_worker: bool = False) -> None:
    """Write tensors as safetensors; the file appears whole. Of several processes of a stage the first alone writes, unless
    `every_worker` has a file of its own."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(file, safetensors.torch.save(whole, metadata={"format": "pt"}), every_worker)


def copy_files(source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copy those of the named files that exist; each appears whole."""
    for name in names:
        if (source / name).exists() and source.resolve() != target.resolve():
            copy_atomic(source / name, target / name)


def special_tokens(tokenizer_folder: Path) -> dict[str, int | None]:
    """bos_token_id, eos_token_id and pad_token_id of a tokenizer folder; None where it names no such token."""
    described = read_json(tokenizer_folder / "tokenizer_config.json")
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    ids: dict[str, int | None] = {}
    for role in ("bos", "eos", "pad"):
        token = described.get(f"{role}_token")
        text = token["content"] if isinstance(token, dict) else token
        ids[f"{role}_token_id"] = None if text is None else tokenizer.token_to_id(text)
    return ids


def config(decoder: Decoder, special: dict[str, int | None]) -> dict[str, Any]:
    """config.json. The base of the rotary embedding stands twice: `rope_parameters` since transformers 5, `rope_theta` before."""
    shape = decoder.shape.model_dump()
    name = shape.pop("architecture")
    return {
        **shape,
        **special,
        "architectures": [CLASSES[name]],
        "attention_dropout": 0.0,
        "dtype": "float32",
        "hidden_act": "silu",
        "model_type": name,
        "rope_parameters": {"rope_theta": shape["rope_theta"], "rope_type": "default"},
        "use_cache": True,
        "vocab_size": decoder.vocab_size,
    }


def load(folder: Path) -> Decoder:
    """The float32 decoder of a Hugging Face folder, from one safetensors file or from shards. Raises UserError when the folder, a
    file or a tensor is missing, and when this decoder would not compute what config.json describes."""
    shape, vocab_size = read_config(folder)
    decoder = Decoder(shape, vocab_size)
    tensors = _tensors(folder)
    if shape.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    wanted = dict(decoder.named_parameters())
    found = {name for name in tensors if not name.endswith("rotary_emb.inv_freq")}
    for problem, names in (("missing", wanted.keys() - found), ("unexpected", found - wanted.keys())):
        if names:
            raise UserError(
                f"{folder}: {len(names)} tensors {problem}, such as {min(names)}; give the weights of a {shape.architecture}"
            )
    with torch.no_grad():
        for name, parameter in wanted.items():
            if parameter.shape != tensors[name].shape:
                raise UserError(
                    f"{folder}: {name} has shape {list(tensors[name].shape)}; config.json says {list(parameter.shape)}"
                )
            parameter.copy_(tensors[name])
    return decoder


def read_config(folder: Path) -> tuple[Shape, int]:
    """Shape and vocabulary size that config.json describes. Raises UserError when they are not ones that the decoder computes."""
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{path}: missing; give a Hugging Face model folder")
    given = read_json(path)
    if given.get("model_type") not in CLASSES:
        raise UserError(f"{path}: model_type = {given.get('model_type')!r} is not supported; known: {', '.join(CLASSES)}")
    for name, allowed in UNSUPPORTED.items():
        if given.get(name) not in allowed:
            raise UserError(f"{path}: {name} = {given[name]!r} is not supported; it must be {allowed[1]!r}")
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UserError(f"{path}: rope_type = {kind!r} is not supported; it must be 'default'")
    heads = given["num_attention_heads"]
    known = {name: given[name] for name in Shape.model_fields if name in given}
    known |= {
        "architecture": given["model_type"],
        "num_key_value_heads": given.get("num_key_value_heads") or heads,
        "head_dim": given.get("head_dim") or given["hidden_size"] // heads,
        "rope_theta": rope.get("rope_theta", given.get("rope_theta", 10000.0)),
        "tie_word_embeddings": given.get("tie_word_embeddings", False),
    }
    return Shape(**known), given["vocab_size"]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, sorted. Raises UserError when there is none or a listed shard is missing."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    for name in names:
        if not (folder / name).exists():
            raise UserError(f"{folder / name}: missing; the folder must hold its weights as safetensors")
    return [folder / name for name in names]


def _tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            tensors.update(safetensors.torch.load_file(path))
        except SafetensorError as error:
            raise UserError(f"{path}: damaged ({error}); copy it again") from None
    return tensors
