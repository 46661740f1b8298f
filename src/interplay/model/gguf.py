"""GGUF files, in which quantised models travel, as Hugging Face folders."""

from pathlib import Path

from interplay.schema.base import UserError


def convert(file: Path, folder: Path) -> None:
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
