"""What stages of tuning read: `prefer` and `reward_model` sets of pairs, `unlearn` what is to be forgotten and what retained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interplay.core.artifact import split_ref
from interplay.core.model import UserError, shorten_value
from interplay.data.steps.spec import CurateSpec
from interplay.study import data
from interplay.train.spec import UnlearnSpec

if TYPE_CHECKING:
    from interplay.study.expand import Expansion


MAKERS = ("preference_pairs", "rated_pairs", "conflict_pairs", "custom")
"""Steps that may make pairs; a function of the study's own may do anything."""
RATED = ("rated_pairs", "custom")
"""Those of them that may say whose taste a pair is."""
READ_RATERS = ("few_shot", "routing")
"""Keys of the spec that need pairs which do."""
PAIRS = ("data", "validation")
"""Roles that hold pairs, of kinds that read some."""
MIXES = {"data": "mix", "forget": "forget_mix", "retain": "retain_mix"}
"""Key of a study's stage that names problem sets with shares, with which their roles begin -> key of the spec that holds the
shares."""
READS = {"prefer": ("data",), "reward_model": ("data",), "unlearn": ("forget", "retain")}
"""Kind -> the keys that name what it is trained on."""


def roles(e: Expansion, entry: dict[str, Any], before: str, key: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys of the spec that the planner fills in, and the roles of the problem sets. Raises UserError where a set is missing,
    is what others are tested on, or holds no pairs where pairs are read."""
    kind: str = entry["kind"]
    spec: dict[str, Any] = {}
    deps: dict[str, str] = {}
    for word in READS[kind]:
        if word not in entry:
            raise UserError(f"{e.where}: {key}.{word}: missing; name the problem sets and their shares")
        spec[MIXES[word]], found = e.mix(entry[word], key, word)
        data.refuse_tests(e, entry[word], f"{key}.{word}")
        deps |= {f"{word}{role.removeprefix('data')}": data.decontaminated(e, one, key) for role, one in found.items()}
    if "validation" in entry:
        deps["validation"] = e.problems(entry["validation"], f"{key}.validation")
    if kind == "reward_model":
        if "validation" not in entry:
            raise UserError(f"{e.where}: {key}.validation: missing; name a set of pairs, by which the model is judged")
        if "samples" in entry:
            deps |= _samples(e, entry["samples"], before, key)
    if "data" in READS[kind]:
        needs: list[tuple[str, str, tuple[str, ...]]] = [("no pairs", "preference_pairs", MAKERS)]
        needs += [(f"no pairs with raters, which {one} reads", "rated_pairs", RATED) for one in READ_RATERS if entry.get(one)]
        for role, digest in ((role, one) for role, one in deps.items() if role.partition(".")[0] in PAIRS):
            if lacks := next((each for each in needs if not _may_hold(e, digest, each[2])), None):
                named = entry["validation"] if role == "validation" else list(entry["data"])
                raise UserError(
                    f"{e.where}: {key}.{role.partition('.')[0]} = {shorten_value(named)}: holds {lacks[0]}; "
                    f"name a set that is made with a step {lacks[1]}"
                )
    return spec, deps


def _samples(e: Expansion, name: Any, before: str, key: str) -> dict[str, str]:
    """`samples.<block>` and `prompts`: the evaluation that the evaluate stage `name` makes of the model before, and its problems.
    Raises UserError where there is no such stage."""
    if e.pick(e.entries, name, f"{key}.samples", "stage").get("kind") != "evaluate":
        raise UserError(
            f"{e.where}: {key}.samples = {shorten_value(name)}: must name an evaluate stage, whose samples are judged"
        )
    blocks = e.evaluation(e.entries, name, before, key)
    problems = e.plan.stages[blocks[0]].deps["data"]
    return {"prompts": problems, **{f"samples.{number}": block for number, block in enumerate(blocks)}}


def leads_on(e: Expansion, before: str | None, key: str) -> None:
    """What a stage starts from is a single model. Raises UserError where it is what uld leaves."""
    stage = e.plan.stages.get(split_ref(before or "")[0])
    if stage is not None and isinstance(stage.spec, UnlearnSpec) and stage.spec.objective == "uld":
        raise UserError(
            f"{e.where}: {key}: the stage before it leaves a model and an assistant (objective uld), which can be evaluated and "
            "not trained on; end the path there"
        )


def _may_hold(e: Expansion, digest: str, makers: tuple[str, ...]) -> bool:
    """Whether a set, or one that it is made of, went through one of these steps."""
    stage = e.plan.stages[digest]
    if not isinstance(stage.spec, CurateSpec):
        return False
    made = any(step.name in makers for step in stage.spec.steps)
    return made or any(_may_hold(e, dep, makers) for role, dep in stage.deps.items() if role.startswith("data."))
