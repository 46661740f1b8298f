"""The `source` stage: a pretrained model enters the graph, from a folder or from a pinned revision on the hub."""

import hashlib
from pathlib import Path
from typing import Any

from interplay.model.folder import TOKENIZER_FILES, copy_files, load, weight_files
from interplay.schema.base import UserError
from interplay.schema.data import SourceSpec
from interplay.schema.run import Run
from interplay.store.artifact import checksum

MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json", *TOKENIZER_FILES)


def weights_checksum(folder: Path) -> str:
    """sha256, in hex, over names and contents of config.json, tokenizer.json and the weight files: what it is, not where."""
    files = [folder / "config.json", folder / "tokenizer.json", *weight_files(folder)]
    for path in files:
        if not path.exists():
            raise UserError(f"{path}: missing; give a Hugging Face folder with config.json, safetensors and tokenizer.json")
    return hashlib.sha256("".join(f"{path.name} {checksum(path)}\n" for path in files).encode()).hexdigest()


def run(spec: SourceSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Copy the model into `out/model`. Raises UserError when it has changed since the plan or is one that no stage can run."""
    origin = Path(spec.path) if spec.path else _download(str(spec.hub_id), str(spec.revision))
    found = weights_checksum(origin)
    if spec.sha256 and found != spec.sha256:
        raise UserError(f"{origin}: sha256 = {found}, but the plan has {spec.sha256}; restore the folder or plan the study again")
    model = out / "model"
    model.mkdir(parents=True, exist_ok=True)
    copy_files(origin, model, (*MODEL_FILES, *(path.name for path in weight_files(origin))))
    decoder = load(model)
    return {"sha256": found, "parameters": sum(parameter.numel() for parameter in decoder.parameters())}


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
