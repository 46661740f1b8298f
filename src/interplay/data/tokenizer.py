"""Tokenizers as Hugging Face folders: training, saving, loading and encoding, without importing transformers, which takes two
seconds."""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from interplay.core import artifact, execution
from interplay.core.model import PermanentError, UserError
from interplay.data import sets
from interplay.data.spec import TokenizerSpec
from interplay.tasks.families import task_family
from interplay.tasks.transcripts import MARK

PAD, EOS = "<pad>", "<eos>"


class Special(NamedTuple):
    """Ids of the special tokens."""

    pad: int
    eos: int


def build_tokenizer(spec: TokenizerSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `tokenizer/`: one token per character of the tasks' alphabets, one per piece of their vocabularies, or byte-level BPE
    trained on the `data.<i>` problems. Raises UserError where BPE has no problem set to be trained on."""
    tasks = [spec.task, *spec.others]
    if spec.algorithm == "characters":
        tokenizer = character_tokenizer("".join(dict.fromkeys("".join(task_family(task).alphabet(task) for task in tasks))))
    elif spec.algorithm == "words":
        tokenizer = word_tokenizer([piece for task in tasks for piece in task_family(task).vocabulary(task)])
    else:
        folders = [path for role, path in sorted(inputs.items()) if role.startswith("data")]
        if not folders:
            raise UserError("tokenizer: algorithm = 'bpe': needs problem sets to be trained on; give the role data")
        tokenizer = bpe_tokenizer(_texts(folders), spec.vocab_size, spec.digits)
        if spec.reserve:
            reserve_tokens(tokenizer, spec.vocab_size)
    save(tokenizer, out / "tokenizer")
    return {"vocab_size": tokenizer.get_vocab_size()}


def _texts(folders: list[Path]) -> Iterator[str]:
    for path in folders:
        table = sets.read_table(path, ["prompt", "solution"])
        for prompt, solution in zip(table["prompt"].to_pylist(), table["solution"].to_pylist(), strict=True):
            yield prompt
            yield solution


def character_tokenizer(alphabet: str) -> Tokenizer:
    """<pad> 0, <eos> 1, then the alphabet in order. Encoding a character outside it is an error, never a silent unknown."""
    return _split_tokenizer([PAD, EOS, *alphabet], r"[\s\S]")


def word_tokenizer(pieces: Iterable[str]) -> Tokenizer:
    """<pad> 0, <eos> 1, printable ASCII and newline, then the pieces in order. A text is segmented from its
    start, greedily by the longest piece that fits, so that decoding inverts encoding; a character in no piece is an error."""
    listed = [piece for piece in pieces if piece]
    singles = dict.fromkeys([*PRINTABLE, *"".join(listed)])
    return _split_tokenizer(dict.fromkeys([PAD, EOS, *singles, *listed]), _longest([*singles, *listed]))


def _split_tokenizer(tokens: Iterable[str], pattern: str) -> Tokenizer:
    """The tokenizer whose tokens are the matches of a pattern; ids are the places of the tokens."""
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(_special_tokens(PAD, EOS))
    return tokenizer


PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


def _longest(pieces: Iterable[str]) -> str:
    """A regular expression that matches the longest of the pieces: their trie, whose branches are tried before the end of a
    piece."""
    root: dict[str, Any] = {}
    for piece in pieces:
        node = root
        for character in piece:
            node = node.setdefault(character, {})
        node[""] = {}
    return _pattern(root)


def _pattern(node: dict[str, Any]) -> str:
    branches = [re.escape(character) + _pattern(below) for character, below in node.items() if character]
    return f"(?:{'|'.join(branches)})" + ("?" if "" in node else "") if branches else ""


def bpe_tokenizer(texts: Iterator[str], vocab_size: int, digits: int | None = None) -> Tokenizer:
    """Byte-level BPE over all 256 bytes (so no text has an unknown token) with <pad> 0 and <eos> 1, of at most vocab_size ids.
    With `digits`, numbers are first split into groups of that many digits, from the left."""
    tokenizer = Tokenizer(models.BPE())
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut = [pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits}}}"), "isolated")] if digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, of_bytes]) if cut else of_bytes
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=_special_tokens(PAD, EOS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def reserve_tokens(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Add reserved tokens, which occur in no text, up to `vocab_size` ids."""
    missing = range(tokenizer.get_vocab_size(), vocab_size)
    tokenizer.add_special_tokens(_special_tokens(*(f"<reserved_{i}>" for i in missing)))


def _special_tokens(*texts: str) -> list[AddedToken]:
    return [AddedToken(text, special=True, normalized=False) for text in texts]


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder that transformers.AutoTokenizer loads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"eos_token": EOS, "pad_token": PAD}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2**31 - 1,
    }
    artifact.write_json(folder / "tokenizer_config.json", {**settings, **special})
    artifact.write_json(folder / "special_tokens_map.json", special)


def tokenizer_folder(path: Path) -> Path:
    """The tokenizer's folder of an artifact (tokenizer or model) or of a Hugging Face folder. Raises UserError when there is
    none."""
    for folder in (path / "tokenizer", path / "model", path):
        if (folder / "tokenizer.json").exists():
            return folder
    raise UserError(f"{path}: no tokenizer.json in it, in its tokenizer/ or in its model/; give a tokenizer or a model")


def load(path: Path) -> Tokenizer:
    """The tokenizer of an artifact or folder. Raises UserError when there is none."""
    return Tokenizer.from_file(str(tokenizer_folder(path) / "tokenizer.json"))


def check_same(path: Path, other: Path) -> None:
    """Raises UserError where two artifacts have different tokenizers, so that tokens of one mean nothing to the other."""
    if load(path).to_str() != load(other).to_str():
        raise UserError(f"{path}: has another tokenizer than {other}; name a model of the same source")


def special(path: Path) -> Special:
    """Ids of padding and end of sequence. A tokenizer without a padding token pads with the end of sequence, since padding is
    always masked. Raises UserError when it has no end of sequence."""
    tokenizer, config_file = load(path), tokenizer_folder(path) / "tokenizer_config.json"
    config = artifact.read_json(config_file)
    eos, pad = (token_id(tokenizer, config.get(name)) for name in ("eos_token", "pad_token"))
    if eos is None:
        raise UserError(f"{config_file}: eos_token: missing or unknown to tokenizer.json; name its token")
    return Special(eos if pad is None else pad, eos)


def token_id(tokenizer: Tokenizer, token: str | dict[str, Any] | None) -> int | None:
    """Id of a special token as tokenizer_config.json writes it: its text, or an object with `content`."""
    text = token["content"] if isinstance(token, dict) else token
    return tokenizer.token_to_id(text) if text else None


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of all texts end to end (total,) uint32, and the length of each (N,) int64. No special tokens are added.

    Raises UserError when a tokenizer of characters or words meets a character that it lacks."""
    table = _character_ids(tokenizer)
    if table is None:
        _check_characters(tokenizer, texts)
        if pieces := _piece_ids(tokenizer, texts):
            return _encode_pieces(texts, pieces)
        encoded = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        return np.fromiter((i for ids in encoded for i in ids), np.uint32, int(lengths.sum())), lengths
    joined = "".join(texts)
    points = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    ids = table[np.minimum(points, len(table) - 1)]
    if len(ids) and ids.max() == UNKNOWN:
        raise _unknown_character(joined[int(ids.argmax())])
    return ids, np.array([len(text) for text in texts], np.int64)


def _check_characters(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Raise UserError for a character that a tokenizer of words lacks. Others encode all bytes, or have an unknown token."""
    model = tokenizer.model
    if isinstance(model, models.WordLevel) and tokenizer.token_to_id(model.unk_token) is None:
        known = {token for token in tokenizer.get_vocab(with_added_tokens=False) if len(token) == 1}
        if strange := set().union(*texts) - known:
            raise _unknown_character(min(strange))


def _piece_ids(tokenizer: Tokenizer, texts: list[str]) -> dict[str, int] | None:
    """Id by piece, in order, where the tokenizer is one of `word_tokenizer` and no text spells a special token; else None."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    pieces = sorted(vocabulary.keys() - {PAD, EOS}, key=vocabulary.__getitem__)
    ours = isinstance(tokenizer.model, models.WordLevel) and word_tokenizer(pieces).to_str() == tokenizer.to_str()
    if not ours or any(PAD in text or EOS in text for text in texts):
        return None
    return {piece: vocabulary[piece] for piece in pieces}


def _encode_pieces(texts: list[str], pieces: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """`encode_all` with these pieces. Python's `re` takes a quarter of the library's time for the same pattern."""
    find, id_of = re.compile(_longest(pieces)).findall, pieces.__getitem__
    ids, ends = array("I"), []
    for text in texts:
        ids.extend(map(id_of, find(text)))
        ends.append(len(ids))
    return np.frombuffer(ids, np.uint32) if ids else np.zeros(0, np.uint32), np.diff(np.array(ends, np.int64), prepend=0)


def _unknown_character(character: str) -> UserError:
    return UserError(f"tokenizer: no token for {character!r}; make the tokenizer from the task of the data")


UNKNOWN = np.iinfo(np.uint32).max


def _character_ids(tokenizer: Tokenizer) -> np.ndarray | None:
    """Id by code point, the last entry for all larger ones, when every token is one character: a look-up is 50 times faster than
    the library's split by a pattern. None for other tokenizers."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    singles = {token: index for token, index in vocabulary.items() if len(token) == 1}
    if not isinstance(tokenizer.model, models.WordLevel) or len(singles) + 2 != len(vocabulary):
        return None
    table = np.full(max(ord(token) for token in singles) + 2, UNKNOWN, np.uint32)
    for token, index in singles.items():
        table[ord(token)] = index
    return table


def encode_texts(tokenizer: Tokenizer, prompts: Sequence[str], special: bool = True) -> list[list[int]]:
    """Token ids of each prompt. `special`: whether a text such as `<eos>` is the special token of that name; else its characters
    are encoded. Raises UserError when the tokenizer lacks a character."""
    tokenizer.encode_special_tokens = not special
    try:
        ids, lengths = encode_all(tokenizer, list(prompts))
    finally:
        tokenizer.encode_special_tokens = False
    flat, ends = ids.tolist(), lengths.cumsum().tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def encode_turns(tokenizer: Tokenizer, texts: Sequence[str], eos: int) -> list[list[int]]:
    """Token ids of texts that may hold turns, as an episode has them: prompt, action, observation, action, ..., separated by
    MARK. An end token follows each action. Raises UserError when the tokenizer lacks a character."""
    if not any(MARK in text for text in texts):
        return encode_texts(tokenizer, texts)
    pieces = [text.split(MARK) for text in texts]
    tokens = iter(encode_texts(tokenizer, [piece for of_text in pieces for piece in of_text]))
    return [[i for n in range(len(of_text)) for i in next(tokens) + [eos] * (n % 2)] for of_text in pieces]


@lru_cache(maxsize=4)
def chat_tokenizer(folder: Path) -> Any:
    """The library's tokenizer of a folder with a chat template. Raises PermanentError where it has none."""
    # Imported here, since the import takes two seconds. The library runs the template in a sandbox.
    from transformers import AutoTokenizer

    chat = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not chat.chat_template:
        raise PermanentError(f"{folder} has no chat template; start from a chat model, or read texts as they are")
    return chat


SPOKEN = "spoken by the assistant"
"""A turn whose end in the template's text is where a reply begins."""


def chat_reply(folder: Path, role: Literal["user", "tool"], text: str, ended: bool) -> str:
    """What a chat model reads after a turn of its own: the difference that a message of this role makes to the template's text,
    up to where the assistant speaks again; without the end token where the turn `ended` in it. Special tokens in `text` are left
    out. Raises PermanentError where the template does not write the assistant's turn as it was."""
    chat = chat_tokenizer(folder)
    special = [token for token in (*chat.all_special_tokens, *chat.get_added_vocab()) if token]
    while found := next((token for token in special if token in text), None):
        text = text.replace(found, "")
    said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": SPOKEN}, {"role": role, "content": text}]
    whole = str(chat.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
    _, spoken, after = whole.partition(SPOKEN)
    if not spoken:
        raise PermanentError(f"{folder}: its chat template does not write the assistant's turns; read texts as they are")
    return after.removeprefix(chat.eos_token or "") if ended else after


def check_prompt_lengths(tokenizer: Tokenizer, prompts: Sequence[str], limit: int | None) -> None:
    """Raises UserError when a prompt has more than `limit` tokens; None: no limit."""
    if limit is None:
        return
    longest = max(len(ids) for ids in encode_turns(tokenizer, list(prompts), 0))
    if longest > limit:
        raise UserError(
            f"rl: max_prompt_length = {limit}: the longest prompt has {longest} tokens; raise it, or drop such rows with a step "
            "`length`"
        )


# The number of tokens of a text, without the tokens.


_BLANK = re.compile(r"(?<=\S) (?=\S)")
MOST_WORDS = 1 << 18
"""Words whose tokens are kept."""


def token_counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    """A function from a text to its number of tokens, without special ones. Where the tokenizer cuts every text before a single
    blank, the tokens of words are kept: a text of known words takes a fifth of the time."""

    def whole(text: str) -> int:
        return len(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    return WordCounter(whole).count if _cuts_at_blanks(tokenizer) else whole


def _cuts_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether a token that holds a blank between two other characters that are no blanks begins with it, so that a text has as
    many tokens as its words, each with the blank before it. True of byte-level BPE with its own pattern, with or without a cut of
    numbers."""
    altered = (tokenizer.normalizer, tokenizer.truncation, tokenizer.padding)
    if not isinstance(tokenizer.model, models.BPE) or any(each is not None for each in altered):
        return False
    if any(" " in token.content or token.rstrip for token in tokenizer.get_added_tokens_decoder().values()):
        return False
    state = json.loads(tokenizer.pre_tokenizer.__getstate__()) if tokenizer.pre_tokenizer else {}
    *cuts, last = state["pretokenizers"] if state.get("type") == "Sequence" else [state]
    numbers = [cut.get("type") == "Digits" or str(cut.get("pattern")).startswith(r"{'Regex': '\\p{N}{1,") for cut in cuts]
    return all(numbers) and last.get("type") == "ByteLevel" and last["use_regex"] and not last["add_prefix_space"]


class WordCounter:
    """Counts tokens word by word."""

    def __init__(self, whole: Callable[[str], int]) -> None:
        self.whole = whole
        """Tokens of any text."""
        self.sizes: dict[str, int] = {}
        """Word -> its tokens with a blank before it."""

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        first, *words = text.split(" ")
        new = [first, *set(words).difference(self.sizes)]
        if "" in new or list(map(str.strip, new)) != new:
            first, *words = _BLANK.split(text)  # a blank next to another one is part of a word
            new = [first, *set(words).difference(self.sizes)]
        if len(self.sizes) > MOST_WORDS:
            self.sizes.clear()
            new = [first, *set(words)]
        self.sizes.update({word: self.whole(f" {word}") for word in new[1:]})
        return self.whole(first) + sum(map(self.sizes.__getitem__, words))
