"""Tokenizers: Hugging Face folders, used through the `tokenizers` library alone (transformers takes two seconds to import)."""

import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from interplay.core.artifact import read_json, write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import sets
from interplay.data.spec import TokenizerSpec
from interplay.tasks.family import task_family

PAD, EOS = "<pad>", "<eos>"


class Special(NamedTuple):
    """Ids of the special tokens."""

    pad: int
    eos: int


def run(spec: TokenizerSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Make `tokenizer/`: one token per character of the tasks' alphabets, one per piece of their vocabularies, or byte-level BPE
    trained on the `data.<i>` problems."""
    tasks = [spec.task, *spec.others]
    if spec.algorithm == "characters":
        tokenizer = characters("".join(dict.fromkeys("".join(task_family(task).alphabet(task) for task in tasks))))
    elif spec.algorithm == "words":
        tokenizer = words([piece for task in tasks for piece in task_family(task).vocabulary(task)])
    else:
        folders = [path for role, path in sorted(inputs.items()) if role.startswith("data")]
        if not folders:
            raise UserError("tokenizer: algorithm = 'bpe': needs problem sets to learn from; give the role data")
        tokenizer = byte_pairs(_texts(folders), spec.vocab_size, spec.digits)
        if spec.reserve:
            fill(tokenizer, spec.vocab_size)
    save(tokenizer, out / "tokenizer")
    return {"vocab_size": tokenizer.get_vocab_size()}


def _texts(folders: list[Path]) -> Iterator[str]:
    for path in folders:
        table = sets.load(path, ["prompt", "solution"])
        for prompt, solution in zip(table["prompt"].to_pylist(), table["solution"].to_pylist(), strict=True):
            yield prompt
            yield solution


def characters(alphabet: str) -> Tokenizer:
    """<pad> 0, <eos> 1, then the alphabet in order. Encoding a character outside it is an error, never a silent unknown."""
    vocabulary = {PAD: 0, EOS: 1} | {character: index for index, character in enumerate(alphabet, start=2)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (PAD, EOS)])
    return tokenizer


def words(pieces: Iterable[str]) -> Tokenizer:
    """<pad> 0, <eos> 1, printable ASCII and newline, then the pieces in order. A text is cut from its start, each time at the
    longest piece that fits, so that decoding gives back what was encoded; a character that no piece has is an error."""
    listed = [piece for piece in pieces if piece]
    singles = dict.fromkeys([*PRINTABLE, *"".join(listed)])
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([PAD, EOS, *singles, *listed]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_longest([*singles, *listed])), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (PAD, EOS)])
    return tokenizer


PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


def _longest(pieces: Iterable[str]) -> str:
    """A pattern that matches the longest of the pieces: their trie, in which each way on is tried before the end of a piece."""
    root: dict[str, Any] = {}
    for piece in pieces:
        node = root
        for character in piece:
            node = node.setdefault(character, {})
        node[""] = {}
    return _pattern(root)


def _pattern(node: dict[str, Any]) -> str:
    ways = [re.escape(character) + _pattern(below) for character, below in node.items() if character]
    return f"(?:{'|'.join(ways)})" + ("?" if "" in node else "") if ways else ""


def byte_pairs(texts: Iterator[str], vocab_size: int, digits: int | None = None) -> Tokenizer:
    """Byte-level BPE over all 256 bytes (so nothing is unknown) with <pad> 0 and <eos> 1, of vocab_size ids at most. With
    `digits`, numbers are cut into groups of so many digits first, from the left."""
    tokenizer = Tokenizer(models.BPE())
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut = [pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits}}}"), "isolated")] if digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, of_bytes]) if cut else of_bytes
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (PAD, EOS)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def fill(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Reserved tokens, which no text has, up to that many ids."""
    missing = range(tokenizer.get_vocab_size(), vocab_size)
    tokenizer.add_special_tokens([AddedToken(f"<reserved_{i}>", special=True, normalized=False) for i in missing])


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """A folder that transformers.AutoTokenizer loads as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"eos_token": EOS, "pad_token": PAD}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2**31 - 1,
    }
    write_json(folder / "tokenizer_config.json", {**settings, **special})
    write_json(folder / "special_tokens_map.json", special)


def tokenizer_folder(path: Path) -> Path:
    """Where an artifact (tokenizer or model) or a plain Hugging Face folder keeps its tokenizer. UserError when it has none."""
    for folder in (path / "tokenizer", path / "model", path):
        if (folder / "tokenizer.json").exists():
            return folder
    raise UserError(f"{path}: no tokenizer.json in it, in its tokenizer/ or in its model/; give a tokenizer or a model")


def load(path: Path) -> Tokenizer:
    """The tokenizer of an artifact or folder."""
    return Tokenizer.from_file(str(tokenizer_folder(path) / "tokenizer.json"))


def special(path: Path) -> Special:
    """Ids of padding and end of sequence. Without a padding token it is the end of sequence: padding is always masked."""
    tokenizer, config_file = load(path), tokenizer_folder(path) / "tokenizer_config.json"
    config = read_json(config_file)
    eos, pad = (_token_id(tokenizer, config.get(name)) for name in ("eos_token", "pad_token"))
    if eos is None:
        raise UserError(f"{config_file}: eos_token: missing or unknown to tokenizer.json; name its token")
    return Special(eos if pad is None else pad, eos)


def _token_id(tokenizer: Tokenizer, token: str | dict[str, Any] | None) -> int | None:
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
            return _cut(texts, pieces)
        encoded = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        return np.fromiter((i for ids in encoded for i in ids), np.uint32, int(lengths.sum())), lengths
    joined = "".join(texts)
    points = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    ids = table[np.minimum(points, len(table) - 1)]
    if len(ids) and ids.max() == UNKNOWN:
        raise _unknown(joined[int(ids.argmax())])
    return ids, np.array([len(text) for text in texts], np.int64)


def _check_characters(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Raise UserError for a character that a tokenizer of words lacks. Others know all bytes, or have a token for the unknown."""
    model = tokenizer.model
    if isinstance(model, models.WordLevel) and tokenizer.token_to_id(model.unk_token) is None:
        known = {token for token in tokenizer.get_vocab(with_added_tokens=False) if len(token) == 1}
        if strange := set().union(*texts) - known:
            raise _unknown(min(strange))


def _piece_ids(tokenizer: Tokenizer, texts: list[str]) -> dict[str, int] | None:
    """Id by piece, in order, where the tokenizer is one that `words` makes and no text spells a special token; else None."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    pieces = sorted(vocabulary.keys() - {PAD, EOS}, key=vocabulary.__getitem__)
    ours = isinstance(tokenizer.model, models.WordLevel) and words(pieces).to_str() == tokenizer.to_str()
    if not ours or any(PAD in text or EOS in text for text in texts):
        return None
    return {piece: vocabulary[piece] for piece in pieces}


def _cut(texts: list[str], pieces: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """`encode_all` with these pieces. Python's engine finds them by the same pattern in a quarter of the library's time."""
    find, id_of = re.compile(_longest(pieces)).findall, pieces.__getitem__
    ids, ends = array("I"), []
    for text in texts:
        ids.extend(map(id_of, find(text)))
        ends.append(len(ids))
    return np.frombuffer(ids, np.uint32) if ids else np.zeros(0, np.uint32), np.diff(np.array(ends, np.int64), prepend=0)


def _unknown(character: str) -> UserError:
    return UserError(f"tokenizer: it has no token for {character!r}; make the tokenizer from the task of the data")


UNKNOWN = np.iinfo(np.uint32).max


def _character_ids(tokenizer: Tokenizer) -> np.ndarray | None:
    """Id by code point, the last entry standing for all beyond, when every token is one character: a look-up is 50 times faster
    than the library's splitting by a pattern. None for other tokenizers."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    singles = {token: index for token, index in vocabulary.items() if len(token) == 1}
    if not isinstance(tokenizer.model, models.WordLevel) or len(singles) + 2 != len(vocabulary):
        return None
    table = np.full(max(ord(token) for token in singles) + 2, UNKNOWN, np.uint32)
    for token, index in singles.items():
        table[ord(token)] = index
    return table
