from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, strategies as st
from tokenizers import pre_tokenizers

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import problems, sets, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.tasks.op_dag.spec import OpDag


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("problems")
    spec = ProblemsSpec(task=OpDag(), bands={"id": {2: 0.5, 5: 0.5}}, shares={"id": 1.0}, size=100, split="train")
    problems.generate_problems(spec, {}, out, Run())
    return out


def test_characters_are_one_token_each_after_pad_and_eos(tmp_path: Path, data: Path) -> None:
    tokenizer.build_tokenizer(TokenizerSpec(task=OpDag()), {}, tmp_path, Run())
    encoder = tokenizer.load(tmp_path)
    assert (encoder.token_to_id("<pad>"), encoder.token_to_id("<eos>")) == (0, 1) == tokenizer.special(tmp_path)
    for row in sets.read_table(data).to_pylist():
        ids = encoder.encode(row["prompt"] + row["solution"]).ids
        assert len(ids) == len(row["prompt"] + row["solution"])
        assert min(ids) > 1
        assert encoder.decode(ids) == row["prompt"] + row["solution"]


@pytest.mark.parametrize("algorithm", ["characters", "words", "bpe"])
def test_the_folder_loads_in_transformers_and_gives_the_same_ids(tmp_path: Path, data: Path, algorithm: str) -> None:
    from transformers import AutoTokenizer

    spec = TokenizerSpec(task=OpDag(), algorithm=algorithm, vocab_size=300)
    metrics = tokenizer.build_tokenizer(spec, {"data.0": data}, tmp_path, Run())
    theirs = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    text = sets.read_table(data)["prompt"][0].as_py()
    assert theirs(text)["input_ids"] == tokenizer.load(tmp_path).encode(text).ids
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert (theirs.pad_token_id, theirs.eos_token_id, len(theirs)) == (0, 1, metrics["vocab_size"])


@pytest.mark.parametrize("algorithm", ["characters", "words", "bpe"])
def test_made_twice_the_bytes_are_equal(tmp_path: Path, data: Path, algorithm: str) -> None:
    spec = TokenizerSpec(task=OpDag(), algorithm=algorithm, vocab_size=350)
    for name in ("one", "two"):
        tokenizer.build_tokenizer(spec, {"data.0": data}, tmp_path / name, Run())
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "one/tokenizer" / file).read_bytes() == (tmp_path / "two/tokenizer" / file).read_bytes()


def test_bpe_learns_merges_up_to_its_size_and_decodes_what_it_encodes(tmp_path: Path, data: Path) -> None:
    metrics = tokenizer.build_tokenizer(
        TokenizerSpec(task=OpDag(), algorithm="bpe", vocab_size=300), {"data.0": data}, tmp_path, Run()
    )
    assert 258 < metrics["vocab_size"] <= 300
    encoder = tokenizer.load(tmp_path)
    text = "a3,ba+3?b|Ünknown words, too"
    assert encoder.decode(encoder.encode(text).ids) == text


def test_numbers_are_cut_in_groups_of_digits_and_reserved_tokens_fill_the_vocabulary(tmp_path: Path, data: Path) -> None:
    spec = TokenizerSpec(task=OpDag(), algorithm="bpe", vocab_size=2000, digits=3, reserve=True)
    assert tokenizer.build_tokenizer(spec, {"data.0": data}, tmp_path, Run())["vocab_size"] == 2000
    encoder = tokenizer.load(tmp_path)
    taught = tokenizer.bpe_tokenizer(iter(["so 1234 = 1234 and 12345 = 12345; " * 50]), 300, digits=3)
    assert taught.encode("so 1234 = 12345").tokens == ["so", "Ġ", "123", "4", "Ġ=", "Ġ", "123", "45"]
    text = "a3,b1234?|Ünknown words, too"
    ids = encoder.encode(text).ids
    assert encoder.decode(ids) == text
    first = encoder.token_to_id("<reserved_1999>")
    assert first == 1999
    assert max(ids) < encoder.get_vocab_size() - sum(token.startswith("<reserved_") for token in encoder.get_vocab())


@pytest.mark.parametrize("algorithm", ["characters", "words", "bpe"])
def test_encoding_all_texts_at_once_equals_encoding_each(tmp_path: Path, data: Path, algorithm: str) -> None:
    tokenizer.build_tokenizer(TokenizerSpec(task=OpDag(), algorithm=algorithm, vocab_size=300), {"data.0": data}, tmp_path, Run())
    encoder = tokenizer.load(tmp_path)
    texts = [*sets.read_table(data)["solution"].to_pylist(), ""]
    ids, lengths = tokenizer.encode_all(encoder, texts)
    each = [encoder.encode(text).ids for text in texts]
    assert lengths.tolist() == [len(e) for e in each]
    assert ids.tolist() == [i for e in each for i in e]
    assert ids.dtype == np.uint32


def test_a_character_outside_the_alphabet_is_named() -> None:
    encoder = tokenizer.character_tokenizer("abc")
    for strange in ("ä", "d", "€"):
        with pytest.raises(UserError, match=f"no token for '{strange}'"):
            tokenizer.encode_all(encoder, ["ab", f"c{strange}"])


def test_bpe_without_data_and_a_folder_without_tokenizer_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs problem sets"):
        tokenizer.build_tokenizer(TokenizerSpec(task=OpDag(), algorithm="bpe"), {}, tmp_path, Run())
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        tokenizer.load(tmp_path)


def test_special_tokens_are_read_as_hugging_face_writes_them(tmp_path: Path) -> None:
    from interplay.core.artifact import write_json

    tokenizer.save(tokenizer.character_tokenizer("ab"), tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": {"content": "<eos>", "special": True}, "pad_token": None})
    assert tokenizer.special(tmp_path) == (1, 1)
    write_json(tmp_path / "tokenizer_config.json", {"pad_token": "<pad>"})
    with pytest.raises(UserError, match="eos_token: missing"):
        tokenizer.special(tmp_path)


WORDS = [
    "so",
    "Ada's",
    "1234",
    " ",
    "  ",
    "\n",
    "\t",
    "\n\n",
    "x.",
    "é",
    "\u3000",
    "<eos>",
    '{"a1b2": "c3"}.',
    "can't",
    "Ä",
    "_",
    "日本",
]


@lru_cache
def cutting(digits: int | None) -> tokenizers.Tokenizer:
    return tokenizer.bpe_tokenizer(iter(["so can't Ada's x. 1234 été {\"a\": " * 9]), 320, digits=digits)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.lists(st.sampled_from(WORDS)).map("".join) | st.text())
@pytest.mark.parametrize("digits", [None, 1, 3])
def test_tokens_counted_by_words_are_as_many_as_those_of_the_whole_text(digits: int | None, text: str) -> None:
    counter = tokenizer.token_counter(cutting(digits))
    expected = len(cutting(digits).encode(text, add_special_tokens=False))
    assert [counter(text), counter(text)] == [expected, expected]  # the second time with its words known


def test_only_tokenizers_that_cut_at_blanks_are_counted_by_words() -> None:
    """Where tokens may hold blanks, as with metaspaces or words of ours, the whole text is encoded."""
    text, known = "so Key 1 so", tokenizer.word_tokenizer(["so Key ", "so"])
    assert tokenizer.token_counter(known)(text) == len(known.encode(text, add_special_tokens=False)) == 4
    wide = tokenizer.bpe_tokenizer(iter(["so so so so " * 50]), 300)
    wide.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert tokenizer.token_counter(wide)(text) == len(wide.encode(text, add_special_tokens=False))
    cut = cutting(None)
    assert isinstance(tokenizer.token_counter(cut).__self__, tokenizer.WordCounter)  # type: ignore[attr-defined]
