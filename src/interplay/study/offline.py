"""Samples that an RL stage's sampler learns from before the first step: the `offline` key of the stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interplay.core.model import Model, UserError, shorten_value
from interplay.rl.samplers.spec import reads_offline

if TYPE_CHECKING:
    from interplay.study.expand import Expansion


def roles(e: Expansion, name: Any, data: dict[str, str], before: str, key: str) -> dict[str, str]:
    """`offline.<set>.<part>` -> an evaluation, as the evaluate stage `name` has it, of the model `before` the stage on each
    of its problem sets. Raises UserError when there is no such stage."""
    if e.pick(e.entries, name, f"{key}.offline", "stage").get("kind") != "evaluate":
        raise UserError(
            f"{e.where}: {key}.offline = {shorten_value(name)}: must name an evaluate stage, which says how to sample"
        )
    made = {role.removeprefix("data."): e.evaluation(e.entries, name, before, key, digest) for role, digest in data.items()}
    return {f"offline.{number}.{part}": one for number, parts in made.items() for part, one in enumerate(parts)}


def check(sampler: Model, name: str, where: str) -> None:
    """Raises UserError when the sampler learns nothing from samples: they would be made, and enter the identity, for nothing."""
    if not reads_offline(sampler):
        member = getattr(sampler, "name", "")
        raise UserError(f"{where}.offline = {name!r}: the sampler {member} learns nothing from samples; take it away")
