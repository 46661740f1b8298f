"""Folders that Hugging Face reads, and Hugging Face's folders."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from interplay.core.artifact import checksum, model_checksum
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.model import folder
from interplay.model.folder import import_model
from interplay.model.spec import Shape, SourceSpec

ALPHABET = ["<pad>", "<eos>", *"abcdefgh"]


def shape(**given: object) -> Shape:
    sizes = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48
    )
    return Shape(**{**sizes, "rope_theta": 12345.0, "rms_norm_eps": 1e-5, **given})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    place = tmp_path / "tokenizer"
    place.mkdir()
    inner = Tokenizer(models.WordLevel({token: i for i, token in enumerate(ALPHABET)}, unk_token="<pad>"))
    inner.add_special_tokens(["<pad>", "<eos>"])
    inner.save(str(place / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "<eos>"}
    (place / "tokenizer_config.json").write_text(json.dumps(described))
    return place


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_what_is_saved(architecture: str, tied: bool, tmp_path: Path, tokenizer: Path) -> None:
    decoder = folder.init_decoder(shape(architecture=architecture, tie_word_embeddings=tied), len(ALPHABET), seed=3)
    folder.save_decoder(decoder, tmp_path / "model", tokenizer)
    hf, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(hf).__name__ == folder.CLASSES[architecture]
    ids = torch.tensor([[2, 5, 3, 9, 4, 4, 7]])
    torch.testing.assert_close(decoder.logits(decoder.hidden(ids, torch.arange(7)[None])), hf(ids).logits, atol=1e-5, rtol=1e-5)
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (words.pad_token_id, words.eos_token_id) == (0, 1)
    assert GenerationConfig.from_pretrained(tmp_path / "model").eos_token_id == 1


def test_the_rotary_base_is_written_for_old_and_new_transformers(tokenizer: Path, tmp_path: Path) -> None:
    folder.save_decoder(folder.init_decoder(shape(), 10, seed=0), tmp_path / "model", tokenizer)
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 12345.0
    assert AutoConfig.from_pretrained(tmp_path / "model").rope_parameters["rope_theta"] == 12345.0


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("shards", ["1GB", "10KB"])
def test_a_folder_of_transformers_loads_whole_or_in_shards(architecture: str, shards: str, tmp_path: Path) -> None:
    none = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    settings = folder.config_json(
        folder.init_decoder(shape(architecture=architecture, tie_word_embeddings=False), 10, seed=0), none
    )
    hf = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings))
    hf.save_pretrained(tmp_path / "hf", max_shard_size=shards)
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists() == (shards == "10KB")
    decoder = folder.load_decoder(tmp_path / "hf")
    assert decoder.shape == shape(architecture=architecture, tie_word_embeddings=False)
    assert all(torch.equal(value, hf.state_dict()[name]) for name, value in decoder.state_dict().items())


def test_saving_twice_gives_the_same_bytes_and_loading_the_same_weights(tmp_path: Path, tokenizer: Path) -> None:
    decoder = folder.init_decoder(shape(), 10, seed=0)
    folder.save_decoder(decoder, tmp_path / "a", tokenizer)
    folder.save_decoder(folder.load_decoder(tmp_path / "a"), tmp_path / "b", tmp_path / "a")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert all(checksum(tmp_path / "a" / name) == checksum(tmp_path / "b" / name) for name in names)


def test_initial_weights_depend_on_the_seed_and_on_nothing_else() -> None:
    torch.manual_seed(1)
    first = folder.init_decoder(shape(), 10, seed=7).state_dict()
    state = torch.get_rng_state()
    second = folder.init_decoder(shape(), 10, seed=7).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = folder.init_decoder(shape(), 10, seed=8).state_dict()
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_matrices_that_write_into_the_residual_stream_start_smaller() -> None:
    weights = folder.init_decoder(shape(hidden_size=256, intermediate_size=512, num_hidden_layers=8), 10, seed=0).state_dict()
    assert weights["model.layers.0.mlp.up_proj.weight"].std().item() == pytest.approx(0.02, rel=0.02)
    assert weights["model.layers.0.mlp.down_proj.weight"].std().item() == pytest.approx(0.02 / 4, rel=0.02)


def test_what_cannot_be_loaded_is_named_in_one_line(tmp_path: Path, tokenizer: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere/config.json: missing"):
        folder.load_decoder(tmp_path / "nowhere")
    folder.save_decoder(folder.init_decoder(shape(), 10, seed=0), tmp_path / "model", tokenizer)
    config = tmp_path / "model" / "config.json"
    good = json.loads(config.read_text())
    for change, words in (
        ({"model_type": "gpt2"}, "model_type = 'gpt2' is not supported; known: llama"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "transformers does not load it"),
        ({"num_hidden_layers": 3}, "11 tensors missing, such as model.layers.2"),
        ({"num_hidden_layers": 1}, "11 tensors unexpected, such as model.layers.1"),
        ({"vocab_size": 11}, "model.embed_tokens.weight has shape"),
    ):
        config.write_text(json.dumps({**good, **change}))
        with pytest.raises(UserError, match=words) as caught:
            folder.load_decoder(tmp_path / "model")
        assert "\n" not in str(caught.value)
    config.write_text(json.dumps(good))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(UserError, match="damaged"):
        folder.load_decoder(tmp_path / "model")


def test_a_source_is_copied_and_checked_by_content(tmp_path: Path, tokenizer: Path) -> None:
    origin = tmp_path / "origin"
    folder.save_decoder(folder.init_decoder(shape(), 10, seed=0), origin, tokenizer)
    shutil.copytree(origin, tmp_path / "elsewhere")
    digest = model_checksum(origin)
    assert digest == model_checksum(tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    metrics = import_model(SourceSpec(sha256=digest), {}, tmp_path / "out", Run(path=str(origin)))
    assert metrics["sha256"] == digest == model_checksum(tmp_path / "out" / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "out" / "model").eos_token_id == 1
    folder.save_decoder(folder.init_decoder(shape(), 10, seed=1), origin, tokenizer)
    with pytest.raises(UserError, match="restore the folder or plan the study again"):
        import_model(SourceSpec(sha256=digest), {}, tmp_path / "out", Run(path=str(origin)))
