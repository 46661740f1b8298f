"""The `source` stage: a pretrained model from a folder, a pinned revision or a GGUF file."""

from pathlib import Path
from typing import Any

from interplay.core.artifact import model_checksum
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.spec import SourceSpec
from interplay.model.folder import TOKENIZER_FILES, copy_files, load, weight_files

# The `source` stage: a pretrained model enters the graph, from a folder or from a pinned revision on the hub.


MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json", *TOKENIZER_FILES)


def run(spec: SourceSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Copy the model into `out/model`. Raises UserError when it has changed since the plan or is one that no stage can run."""
    origin = place(spec, how)
    found = model_checksum(origin)
    if spec.sha256 and found != spec.sha256:
        raise UserError(f"{origin}: sha256 = {found}, but the plan has {spec.sha256}; restore the folder or plan the study again")
    model = out / "model"
    model.mkdir(parents=True, exist_ok=True)
    copy_files(origin, model, (*MODEL_FILES, *(path.name for path in weight_files(origin))))
    decoder = load(model)
    return {"sha256": found, "parameters": sum(parameter.numel() for parameter in decoder.parameters())}


def place(spec: SourceSpec, how: Run) -> Path:
    """Where the model lies; one on the hub is downloaded. Raises UserError where there is none."""
    if spec.sha256 and not how.path:
        raise UserError(
            f"source {spec.sha256[:12]}: not in results/; `interplay adopt FOLDER` takes it in, or give path in the study"
        )
    return Path(how.path) if how.path else _download(str(spec.hub_id), str(spec.revision))


def _download(hub_id: str, revision: str) -> Path:
    """The hub's snapshot in the local cache. Raises UserError when it can neither be reached nor found."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=[*MODEL_FILES, "*.safetensors"]))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"hub_id = {hub_id} at {revision}: not available ({reason}); check the name or the network, or give path"
        ) from None


# GGUF files, in which quantised models travel, as Hugging Face folders.


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file, dequantised to float32, and its tokenizer into `folder`. Raises UserError when the package
    `gguf` is missing or the file is none. The weights stay as rounded as the file has them."""
    # Imported here: transformers takes seconds, and few ever need it.
    try:
        import gguf  # noqa: F401  (transformers reads the file with it)
    except ImportError:
        raise UserError(f"{file}: reading GGUF needs the package gguf; pip install 'interplay[gguf]'") from None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"{file}: not readable as a GGUF model ({type(error).__name__}: {error})") from None
    model.config.dtype = "float32"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
