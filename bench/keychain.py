"""Speed of the keychain step compared with a plain re-implementation of the released algorithm's way to fill a context.

    python bench/keychain.py [--rows 24] [--tokens 4096 16384]

Items are synthetic, of the shape of HotpotQA's: ten passages of about 110 tokens, two of them supporting. The tokenizer is
byte-level BPE trained on their text. The peer does what the released code does (arXiv:2510.19363): for each item the number of
passages grows by ten, the whole prompt is made and tokenised anew each time until it is too long, then it takes the last that
fitted and strews the pairs over its sentence stops. It neither meets the length within 2 % nor separates keys or questions.
It counts tokens with the library alone, ours as the step does. Both run in this process, in turns; prints items per second of CPU
time, and the share of the asked length that the prompts have. Aim: at least as fast as the released way."""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from interplay.data import tokenizer
from interplay.data.curate import StepInputs
from interplay.data.steps.chain import make_contexts
from interplay.data.steps.context_spec import Keychain
from interplay.tasks import multihop
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.verdict import Row

SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
PASSAGES, SENTENCES, WORDS, VOCABULARY = 10, 5, 16, 8000
RESERVED = 128
"""Tokens that the released code leaves for the answer."""


def items(number: int, random: np.random.Generator) -> list[Item]:
    """Items of ten passages with words that follow Zipf's law."""
    words = ["".join(random.choice(SYLLABLES, random.integers(1, 4))) for _ in range(VOCABULARY)]
    weights = 1 / np.arange(1, VOCABULARY + 1)
    weights /= weights.sum()

    def sentence(subject: str) -> str:
        return " ".join([subject, *(words[i] for i in random.choice(VOCABULARY, WORDS, p=weights))]) + "."

    def passage(title: str) -> Paragraph:
        return Paragraph(title, tuple(sentence(title) for _ in range(SENTENCES)))

    made = []
    for number_of_item in range(number):
        titles = [f"Topic {number_of_item} {words[random.integers(VOCABULARY)].title()} {i}" for i in range(PASSAGES)]
        passages = tuple(map(passage, titles))
        question = f"Which word is the last where {titles[0]} leads to {titles[1]}?"
        answer = passages[1].sentences[0].split()[-1].rstrip(".")
        made.append(Item(f"bench-{number_of_item}", question, (answer,), passages, ((0, 0), (1, 0)), 2, "bridge"))
    return made


def rows(made: list[Item]) -> list[Row]:
    """As a `dataset` stage gives them."""
    return [
        Row(
            0,
            i,
            "all",
            2,
            "plain",
            "",
            "",
            one.answers[0],
            multihop.dumps(multihop.plain_problem(one)),
            f"{i:016x}",
            "multihop",
            f"b:{i}",
        )
        for i, one in enumerate(made)
    ]


def released(made: list[Item], which: int, spec: Keychain, count: Callable[[str], int], random: np.random.Generator) -> str:
    """One prompt in the released way."""
    item = made[which]
    pool = [passage for other in made for passage in other.paragraphs]

    def prompt(total: int, order: np.ndarray) -> str:
        chosen = [*item.paragraphs, *(pool[i] for i in order[: max(0, total - len(item.paragraphs))])]
        mixed = [chosen[i] for i in random.permutation(len(chosen))]
        text = "\n\n".join(f"Passage {n}:\n{p.title}\n{p.text}" for n, p in enumerate(mixed, 1))
        pairs = [(random.bytes(4).hex(), random.bytes(4).hex()) for _ in range(spec.chain_count * spec.n_hops)]
        stops = [place for place, character in enumerate(text) if character in ".?\n"]
        if len(stops) < len(pairs):
            return text
        for place, pair in zip(sorted(random.permutation(stops)[: len(pairs)])[::-1], pairs, strict=True):
            text = f"{text[: place + 1]} {json.dumps(dict([pair]))}.{text[place + 1 :]}"
        return f"{text}\n\nThe chain starts from {pairs[0][0]}. Find the question and answer it in \\boxed{{}}."

    order, total = random.permutation(len(pool)), PASSAGES
    best = prompt(total, order)
    while total < len(pool):
        total += 10
        grown = prompt(total, order)
        if count(grown) + RESERVED > spec.context_tokens:
            break
        best = grown
    return best


def count_tokens(encoder: Tokenizer, text: str) -> int:
    """Tokens of a text, each of which is made."""
    return len(encoder.encode_batch_fast([text], add_special_tokens=False)[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5, help="both take turns; the best round of each is printed")
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384])
    given = parser.parse_args()
    made = items(300, np.random.default_rng(0))
    folder = Path(tempfile.mkdtemp())
    texts = (passage.text for item in made for passage in item.paragraphs)
    tokenizer.save(tokenizer.bpe_tokenizer(texts, 8000), folder / "tokenizer")
    source = rows(made)
    for tokens in given.tokens:
        spec = Keychain(chains="published_4_per_1024_hex8", context_tokens=tokens)
        count = partial(count_tokens, tokenizer.load(folder))
        ours = peer = 0.0
        for _ in range(given.rounds):
            step = StepInputs(0, {"tokenizer": folder}, 0)
            make_contexts(spec, source[:1], step)  # loads the tokenizer
            start = time.process_time()
            done = make_contexts(spec, source, step)
            ours = max(ours, len(done.rows) / (time.process_time() - start))
            start = time.process_time()
            theirs = [released(made, i, spec, count, np.random.default_rng(i)) for i in range(given.rows)]
            peer = max(peer, given.rows / (time.process_time() - start))
        near = [step.count_tokens(row.prompt) / tokens for row in done.rows[: given.rows]]
        far = [step.count_tokens(text) / tokens for text in theirs]
        print(
            f"{tokens} tokens, {spec.chain_count} chains: {ours:.1f} items/s/core ({done.counts}), length "
            f"{min(near):.3f}..{max(near):.3f} of the asked; released way {peer:.1f} items/s/core, length "
            f"{statistics.mean(far):.3f}; {ours / peer:.2f} times as fast: {'met' if ours >= peer else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
