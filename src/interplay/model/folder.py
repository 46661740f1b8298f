"""Models as Hugging Face folders (config.json, model.safetensors, generation_config.json and the tokenizer's files), without
importing transformers; the `source` stage, by which pretrained models enter."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from interplay.core import artifact, execution, metrics, random
from interplay.core.model import UserError
from interplay.data import tokenizer
from interplay.kernels import exact
from interplay.model.decoder import EAGER, Decoder, Weights
from interplay.model.spec import CLASSES, FOREIGN, Lora, Numerics, Shape, SourceSpec, is_foreign

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def init_decoder(shape: Shape, vocab_size: int, seed: int, numerics: Numerics = "fast") -> Decoder:
    """A decoder with weights from a normal distribution of `initializer_range`; the matrices that write into the residual stream
    are scaled by 1 / sqrt(2 * layers) (GPT-2). Every tensor has its own random stream, keyed by (seed, name); torch's numbers
    depend on the processor."""
    decoder = Decoder(shape, vocab_size)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = shape.initializer_range * ((2 * shape.num_hidden_layers) ** -0.5 if residual else 1.0)
            if numerics == "exact":
                exact.fill_normal(parameter, scale, "init", seed, name)
                continue
            parameter.normal_(0.0, scale, generator=torch.Generator().manual_seed(random.stream_key("init", seed, name)))
    return decoder


def save_decoder(decoder: Decoder, folder: Path, tokenizer_folder: Path, dtype: str = "float32") -> None:
    """Write `decoder`, its weights rounded to `dtype`, with the tokenizer's files as a folder that AutoModelForCausalLM and
    AutoTokenizer load. The bytes are a function of the values. Files are written atomically, the weights last."""
    if isinstance(decoder, TransformersModel):
        decoder.save(folder, tokenizer_folder, getattr(torch, dtype))
        return
    write_config(decoder, folder, tokenizer_folder, dtype=dtype)
    rounded = {name: tensor.to(getattr(torch, dtype)) for name, tensor in decoder.state_dict().items()}
    save_tensors(rounded, folder / "model.safetensors")


def write_config(decoder: Decoder, folder: Path, tokenizer_folder: Path, **more: Any) -> None:
    """Write such a folder without the weights. `more` are keys of config.json that replace those of a causal model."""
    special = _write_tokenizer(folder, tokenizer_folder)
    artifact.write_json(folder / "config.json", {**config_json(decoder, special), **more})


def _write_tokenizer(folder: Path, tokenizer_folder: Path) -> dict[str, int | None]:
    """Copy the tokenizer's files and write the tokens that end a text; returns `special_tokens`."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_files(tokenizer_folder, folder, TOKENIZER_FILES)
    special = special_tokens(tokenizer_folder)
    generation = tokenizer_folder / "generation_config.json"
    stops = artifact.read_json(generation) if generation.exists() else {k: v for k, v in special.items() if v is not None}
    artifact.write_json(folder / "generation_config.json", stops)
    return special


def save_tensors(tensors: dict[str, torch.Tensor], file: Path, every_worker: bool = False) -> None:
    """Write tensors as safetensors, atomically. Of several processes only the first writes, unless `every_worker` writes its own
    file."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    artifact.write_atomic(file, safetensors.torch.save(on_cpu, metadata={"format": "pt"}), every_worker)


def copy_files(source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copy the named files that exist, each atomically."""
    for name in names:
        if (source / name).exists() and source.resolve() != target.resolve():
            artifact.copy_atomic(source / name, target / name)


def special_tokens(tokenizer_folder: Path) -> dict[str, int | None]:
    """bos_token_id, eos_token_id and pad_token_id of a tokenizer folder; None where it has no such token."""
    described, known = artifact.read_json(tokenizer_folder / "tokenizer_config.json"), tokenizer.load(tokenizer_folder)
    return {f"{role}_token_id": tokenizer.token_id(known, described.get(f"{role}_token")) for role in ("bos", "eos", "pad")}


def config_json(decoder: Decoder, special: dict[str, int | None]) -> dict[str, Any]:
    """The content of config.json. The base of the rotary embedding occurs twice: in `rope_parameters` for transformers 5, as
    `rope_theta` for earlier versions."""
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


def load_decoder(folder: Path, lora: Lora | None = None, seed: int = 0) -> Decoder:
    """The float32 decoder of a Hugging Face folder, from one safetensors file or from shards: ours, or that of transformers where
    ours does not implement what config.json describes, or with adapters, drawn from the seed. Raises UserError when the folder, a
    file or a tensor is missing, or the model is known to neither."""
    path = folder / "config.json"
    if path.exists() and (lora or is_foreign(artifact.read_json(path))):
        return TransformersModel(folder, lora, seed)
    shape, vocab_size = read_config(folder)
    decoder = Decoder(shape, vocab_size)
    tensors = load_tensors(folder)
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
    """Shape and vocabulary size from config.json of a model that is ours. Raises UserError for a family that is not known."""
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{path}: missing; give a Hugging Face model folder")
    given = artifact.read_json(path)
    if given.get("model_type") not in CLASSES:
        able = ", ".join((*CLASSES, *FOREIGN))
        raise UserError(f"{path}: model_type = {given.get('model_type')!r} is not supported; known: {able}")
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
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


class TransformersModel(Decoder):
    """A causal model as transformers computes it, with PyTorch's fused attention. Its parameters bear the names that they have
    there, after `hf.`; dtype bfloat16 is autocast over float32 weights. What needs our layers (the engine native, stacks, integer
    operands) is refused."""

    by_rows = True

    def __init__(self, folder: Path, lora: Lora | None = None, seed: int = 0) -> None:
        nn.Module.__init__(self)
        from transformers import AutoModelForCausalLM, logging  # takes two seconds

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            found = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            why = " ".join(str(error).split())[:200]
            raise UserError(f"{folder}: transformers does not load it ({type(error).__name__}: {why})") from None
        self.hf: Any = found.eval()
        for module in self.hf.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0  # a run must repeat
        config = found.config
        heads = config.num_attention_heads
        self.shape = Shape.model_construct(
            architecture=config.model_type,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=heads,
            num_key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            intermediate_size=config.intermediate_size,
            tie_word_embeddings=config.tie_word_embeddings,
            initializer_range=config.initializer_range,
        )
        self.vocab_size, self.halves, self.sums, self.replicas = config.vocab_size, EAGER, None, 0
        self.share_prompts = self.blockwise = self.recompute = False
        self._check_head(folder)
        self.dropout = lora.dropout if lora else 0.0
        self.adapted: list[Any] = [_adapted(self.hf, lora, seed)] if lora else []
        """peft's model around `hf`, whose layers it changes in place; in a list, so that parameters count once."""

    def merged(self) -> Any:
        """transformers' model, with the adapters merged into a copy of its weights where there are some."""
        return copy.deepcopy(self.adapted[0]).merge_and_unload() if self.adapted else self.hf

    @torch.inference_mode()
    def _check_head(self, folder: Path) -> None:
        """Raises UserError where logits are not the product of states and the head, as of models that cap or scale them."""
        ids = torch.arange(4)[None] % self.vocab_size
        mine, theirs = self.logits(self.hidden(ids, torch.arange(4)[None])), self.hf(input_ids=ids).logits.float()
        if not torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4):
            raise UserError(
                f"{folder}: model_type = {self.hf.config.model_type!r}: its logits are not its states times its head "
                "(they are capped or scaled); start from another model"
            )

    def embedding(self) -> torch.Tensor:
        """The table (vocab, D) that tokens are looked up in."""
        return self.hf.get_input_embeddings().weight

    def head(self) -> torch.Tensor:
        """The output matrix (vocab, D)."""
        return self.hf.get_output_embeddings().weight

    def hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segments: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Final hidden states (B, T, D) of ids (B, T) at positions (B, T) or (1, T). Raises UserError with dtype int8."""
        if dtype == torch.int8:
            raise UserError("dtype = int8: transformers computes this model; write float32 or bfloat16")
        assert segments is None
        training = torch.is_grad_enabled() and (self.recompute or self.dropout > 0)
        if training != self.hf.training:
            self.hf.train(training)
            if self.recompute:  # by the name of transformers 5.23, or the one before
                enable = getattr(self.hf, "activation_checkpointing_enable", None) or self.hf.gradient_checkpointing_enable
                enable({"use_reentrant": False})
        # A mask of ones, since without one transformers takes a jump of the positions for the start of another sequence.
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            given = {"input_ids": ids, "position_ids": positions.expand(len(ids), -1), "attention_mask": torch.ones_like(ids)}
            return self.hf.base_model(**given, use_cache=False).last_hidden_state.to(dtype)

    def weights(self, dtype: torch.dtype) -> Weights:
        """Raises UserError: these are not weights of our layers."""
        able = ", ".join(CLASSES)
        raise UserError(f"transformers computes this model, and this needs our own layers; start from a plain {able}")

    def save(self, folder: Path, tokenizer_folder: Path, dtype: torch.dtype) -> None:
        """Write the folder as transformers does, each file atomically, the weights last."""
        _write_tokenizer(folder, tokenizer_folder)
        _save_pretrained(self.merged(), folder, dtype)

    def save_classifier(self, score: torch.Tensor, labels: dict[str, Any], folder: Path, tokenizer_folder: Path) -> None:
        """Write it with another head (K, D) as the folder of a sequence classifier. Raises UserError where there is none."""
        from transformers import AutoConfig, AutoModelForSequenceClassification

        settings = AutoConfig.for_model(**{**self.hf.config.to_dict(), **labels})
        try:
            model: Any = AutoModelForSequenceClassification.from_config(settings, trust_remote_code=False)
        except ValueError:
            kind = self.hf.config.model_type
            raise UserError(f"reward_model: transformers has no sequence classifier of model_type {kind!r}") from None
        model.base_model.load_state_dict(self.merged().base_model.state_dict())
        model.score.weight.data = score.detach().cpu()
        _write_tokenizer(folder, tokenizer_folder)
        _save_pretrained(model, folder, torch.float32)


def _adapted(model: Any, lora: Lora, seed: int) -> Any:
    if missing := metrics.without_extra("lora"):
        raise UserError(missing)
    import peft

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.stream_key("init", seed, "lora"))
        sizes: dict[str, Any] = {"r": lora.r, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        settings = peft.LoraConfig(**sizes, target_modules=lora.targets)
        try:
            return peft.get_peft_model(model, settings).eval()
        except ValueError as error:
            raise UserError(f"lora.targets = {lora.targets}: {' '.join(str(error).split())[:200]}") from None


def _save_pretrained(model: Any, folder: Path, dtype: torch.dtype) -> None:
    if not execution.is_first_rank():
        return
    with tempfile.TemporaryDirectory(prefix="interplay-") as scratch:
        rounded = {name: tensor.detach().cpu().to(dtype) for name, tensor in model.state_dict().items()}
        model.save_pretrained(scratch, state_dict=rounded, max_shard_size="100GB")
        said = {**artifact.read_json(Path(scratch) / "config.json"), "dtype": str(dtype).removeprefix("torch.")}
        artifact.write_json(folder / "config.json", said)
        artifact.copy_atomic(Path(scratch) / "model.safetensors", folder / "model.safetensors")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, sorted. Raises UserError when there is none or a listed shard is missing."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(artifact.read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    for name in names:
        if not (folder / name).exists():
            raise UserError(f"{folder / name}: missing; the folder must hold its weights as safetensors")
    return [folder / name for name in names]


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a model folder by name. Raises UserError where a file is missing or damaged."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            tensors.update(safetensors.torch.load_file(path))
        except SafetensorError as error:
            raise UserError(f"{path}: damaged ({error}); copy it again") from None
    return tensors


# The `source` stage: a pretrained model from a folder or from a pinned revision on the hub.


MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json", *TOKENIZER_FILES)


def import_model(spec: SourceSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Copy the model into `out/model`. Raises UserError when its checksum is not that of the plan, or the decoder does not
    implement it."""
    origin = find_source(spec, how)
    found = artifact.model_checksum(origin)
    if spec.sha256 and found != spec.sha256:
        raise UserError(f"{origin}: sha256 = {found}, but the plan has {spec.sha256}; restore the folder or plan the study again")
    model = out / "model"
    model.mkdir(parents=True, exist_ok=True)
    copy_files(origin, model, (*MODEL_FILES, *(path.name for path in weight_files(origin))))
    decoder = load_decoder(model)
    return {"sha256": found, "parameters": sum(parameter.numel() for parameter in decoder.parameters())}


def find_source(spec: SourceSpec, how: execution.Run) -> Path:
    """The folder of the model; one on the hub is downloaded. Raises UserError where there is none."""
    if spec.sha256 and not how.path:
        raise UserError(spec.without_folder())
    return Path(how.path) if how.path else _download(str(spec.hub_id), str(spec.revision))


def _download(hub_id: str, revision: str) -> Path:
    """The snapshot in the hub's local cache. Raises UserError when it is neither cached nor reachable."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=[*MODEL_FILES, "*.safetensors"]))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"hub_id = {hub_id} at {revision}: not available ({reason}); check the name or the network, or give path"
        ) from None
