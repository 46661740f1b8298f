"""Models in GGUF files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import interplay
from conftest import ROOT
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM

from interplay.api.single import convert_gguf
from interplay.core.model import UserError
from interplay.model import folder


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=262, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def file(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a GGUF file, written with the format's own library."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = GGUFWriter(str(path), "llama")
    config = model.config
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    letters = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256)), *map(chr, range(256, 324))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|endoftext|>", "<s>", "</s>", *letters, "ab", "cd", "ef"])
    writer.add_token_merges(["a b", "c d", "e f"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(_ggml_name(name), _permuted(name, tensor, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _ggml_name(name: str) -> str:
    short = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    name = name.removeprefix("model.").replace("layers.", "blk.").replace("embed_tokens", "token_embd")
    name = "output_norm.weight" if name == "norm.weight" else name
    for long, brief in short.items():
        name = name.replace(long, brief)
    return name


def _permuted(name: str, tensor: torch.Tensor, config: LlamaConfig) -> np.ndarray:
    """GGUF stores the rows of q and k with the two halves of a rotary pair side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads:
        rows, columns = tensor.shape
        tensor = tensor.reshape(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)
    return tensor.contiguous().numpy()


def test_a_gguf_model_gives_the_logits_of_the_model_it_was_written_from(
    model: LlamaForCausalLM, file: Path, tmp_path: Path
) -> None:
    convert_gguf(file, tmp_path)
    tokens = torch.arange(3, 40)[None]
    ours = LlamaForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(ours(tokens).logits, model(tokens).logits, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in folder.load_decoder(tmp_path).parameters()) == sum(p.numel() for p in model.parameters())


def test_adopting_a_gguf_file_twice_finds_the_same_model(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    first, second = interplay(capsys, "adopt", file), interplay(capsys, "adopt", file)
    assert (first[0], second[0]) == (0, 0), first[2]
    assert first[1].startswith("adopted ")
    assert second[1].startswith("here already: ")
    record = json.loads(next(tmp_path.glob("results/source/*/record.json")).read_text())
    assert record["spec"]["sha256"] in first[1]


def test_a_file_that_is_no_gguf_is_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"broken\.gguf: not readable as a GGUF model"):
        convert_gguf(broken, tmp_path / "out")
