"""The roles under which a trainer reads its corpora: `corpus`, or `corpus.0`, `corpus.1`, ... where its data come in shards."""

import re
from collections.abc import Mapping
from typing import TypeVar

CORPUS = "corpus"

T = TypeVar("T")


def corpus_roles(number: int) -> list[str]:
    """The roles of so many corpora; a single one keeps the plain name, so that its trainer's digest knows of no shards."""
    return [CORPUS] if number == 1 else [f"{CORPUS}.{shard}" for shard in range(number)]


def corpora(deps: Mapping[str, T]) -> list[T]:
    """What fills these roles, shards in order; empty where the stage reads no corpus."""
    return [deps[role] for role in corpus_roles(sum(is_corpus(role) for role in deps)) if role in deps]


def is_corpus(role: str) -> bool:
    """Whether the role is one of a trainer's corpora."""
    return role == CORPUS or role.startswith(f"{CORPUS}.")


DATA = ("data", "forget", "retain", "instances")
"""What the roles of problem sets begin with that a stage samples, is trained on, is judged by or unlearns."""


def is_data(role: str) -> bool:
    """Whether the role is one of a stage's problem sets, but for its validation."""
    return role.partition(".")[0] in DATA


SHARD = "shard"


def shard_label(label: str, shard: int) -> str:
    """`data.corpus` -> `data.corpus.shard3`."""
    return f"{label}.{SHARD}{shard}"


def without_shard(label: str) -> str:
    """`data.corpus.shard3` -> `data.corpus`: what shards of one set are called together."""
    return re.sub(rf"\.{SHARD}\d+(?= |$)", "", label)
