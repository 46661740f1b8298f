"""Parts of completions with rewards of their own: in characters as the judge of a completion knows them, in tokens as the
policy learns from them."""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer


class Span(NamedTuple):
    """A part of one completion, start..end-1, in characters or in tokens. An empty one earns its value without telling any token:
    where the format of a completion is broken, its spans count as wrong among those of the group."""

    start: int
    end: int
    position: int
    """Which of the things asked for it answers; only spans of one position are alike."""
    value: float


WHOLE = 1 << 30
"""End of a span that holds the end token, too."""


def to_tokens(tokenizer: Tokenizer, tokens: Sequence[int], text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans of a completion in tokens: a token belongs to the span that its first character lies in. `tokens` decode to
    `text`; an end token, which decodes to nothing, stands behind the last character."""
    starts = offsets(tokenizer, tokens, text)
    made = []
    for span in spans:
        inside = [place for place, start in enumerate(starts) if span.start <= start < span.end]
        made.append(span._replace(start=inside[0] if inside else 0, end=inside[-1] + 1 if inside else 0))
    return made


def offsets(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[int]:
    """First character of each token. Exact where the texts of single tokens add up to the whole; else by decoding every prefix,
    where a character of several tokens counts to the last of them."""
    pieces = tokenizer.decode_batch([[token] for token in tokens])
    if "".join(pieces) != text:
        pieces = _increments(tokenizer, tokens)
    starts, place = [], 0
    for piece in pieces:
        starts.append(place)
        place += len(piece)
    return starts


def _increments(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """What each token adds to the text of those before it."""
    texts = tokenizer.decode_batch([list(tokens[: n + 1]) for n in range(len(tokens))])
    lengths = [0, *(len(text.rstrip("\N{REPLACEMENT CHARACTER}")) for text in texts)]
    return [text[low:high] for text, low, high in zip(texts, lengths, lengths[1:], strict=False)]
