"""The tokenizer of words: closed vocabularies of long pieces beside printable ASCII."""

import string
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from interplay.core.model import UserError
from interplay.data import tokenizer

PIECES = ["Ada", "Adaba", "Bo", "'s boss is ", ". ", "?\n", "Who is ", "the boss of ", "\\boxed{", '{"', '": "', '"}.', "."]
WORDS = tokenizer.word_tokenizer(PIECES)
ASCII = string.digits + string.ascii_letters + string.punctuation + " \n"


def tokens(text: str) -> list[str]:
    return WORDS.encode(text, add_special_tokens=False).tokens


def longest_first(text: str, known: set[str]) -> list[str]:
    """The definition, written down: the longest known piece at the start, then the rest."""
    found = []
    while text:
        piece = max((piece for piece in known if text.startswith(piece)), key=len)
        found.append(piece)
        text = text[len(piece) :]
    return found


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(ASCII, max_size=8)), max_size=30).map("".join))
def test_any_text_of_pieces_and_ascii_is_cut_at_the_longest_piece_and_comes_back_whole(text: str) -> None:
    ids, lengths = tokenizer.encode_all(WORDS, [text])
    assert WORDS.decode(ids.tolist()) == text
    assert lengths.tolist() == [len(ids)]
    assert [WORDS.id_to_token(i) for i in ids.tolist()] == longest_first(text, {*PIECES, *ASCII})


def test_a_fact_is_four_tokens_and_a_name_within_a_longer_one_does_not_cut_it() -> None:
    assert tokens("Ada's boss is Bo. ") == ["Ada", "'s boss is ", "Bo", ". "]
    assert tokens("AdabaAda") == ["Adaba", "Ada"]
    assert tokens("Adab") == ["Ada", "b"]
    assert tokens('{"Ada": "Bo"}.') == ['{"', "Ada", '": "', "Bo", '"}.']


def test_padding_and_end_come_first_and_every_printable_character_has_a_token() -> None:
    assert (WORDS.token_to_id("<pad>"), WORDS.token_to_id("<eos>")) == (0, 1)
    assert all(tokens(character) == [character] for character in ASCII)
    assert WORDS.get_vocab_size() == 2 + len(ASCII) + len([piece for piece in PIECES if len(piece) > 1])


def test_a_character_that_no_piece_has_is_named_and_one_of_a_piece_is_known() -> None:
    with pytest.raises(UserError, match="no token for 'ß'"):
        tokenizer.encode_all(WORDS, ["Ada", "Ada is groß"])
    grand = tokenizer.word_tokenizer(["groß"])
    assert grand.decode(tokenizer.encode_all(grand, ["ß groß"])[0].tolist()) == "ß groß"


def test_the_same_pieces_twice_change_nothing() -> None:
    assert tokenizer.word_tokenizer([*PIECES, *PIECES, ""]).to_str() == WORDS.to_str()


def test_transformers_cuts_the_same_way(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save(WORDS, tmp_path / "tokenizer")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    text = "Who is the boss of Adaba?\nAdaba's boss is Bo. \\boxed{Bo} ~[x]^$|\\ 7"
    assert theirs(text)["input_ids"] == tokenizer.encode_all(tokenizer.load(tmp_path), [text])[0].tolist()
    assert theirs.decode(theirs(text)["input_ids"]) == text


def test_many_texts_at_once_have_the_tokens_that_the_library_gives_each_alone() -> None:
    texts = ["Ada's boss is Bo. ", "", "Adab", "Who is <eos>?\n"]
    for batch in (texts[:3], texts):  # the last one spells a special token, which stays one
        ids, lengths = tokenizer.encode_all(WORDS, batch)
        alone = [WORDS.encode(text, add_special_tokens=False).ids for text in batch]
        assert lengths.tolist() == [len(each) for each in alone]
        assert ids.tolist() == [i for each in alone for i in each]
