"""What a stage of kind `teach` reads beside its hard problems: the task of its proposals, or the problems in place of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interplay.core.artifact import split_ref
from interplay.core.model import UserError
from interplay.core.references import corpus_inputs
from interplay.data.spec import CorpusSpec, TokenizerSpec
from interplay.kinds.table import is_trainer
from interplay.study import data
from interplay.tasks.family import families_with_language

if TYPE_CHECKING:
    from interplay.study.expand import Expansion


def roles(e: Expansion, entry: dict[str, Any], before: str, key: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys of the spec that the planner fills in, and the role `instances` where the stage names a set. Raises UserError where
    the family cannot be read, where a set is what others are tested on, or where the model before cannot write problems."""
    name = e.task.get("name")
    if name not in (known := families_with_language()):
        able = ", ".join(known)
        raise UserError(f"{e.where}: {key}: proposals are read as problems of task {name}, which has no parser; known: {able}")
    drawn = entry.get("proposer") == "instances"
    if drawn != ("instances" in entry):
        told = "instances: missing; name a problem set" if drawn else "instances: the teacher proposes; write proposer: instances"
        raise UserError(f"{e.where}: {key}.{told}")
    if drawn:
        chosen = e.problems(entry["instances"], f"{key}.instances")
        data.refuse_tests(e, [entry["instances"]], f"{key}.instances")
        return {"task": e.task}, {"instances": data.decontaminated(e, chosen, key)}
    _writes(e, before, key)
    return {"task": e.task}, {}


def _writes(e: Expansion, before: str, key: str) -> None:
    """Raises UserError where nothing that the model before was trained on bore loss on its prompts. Of a source model
    nothing is known."""
    taught, stage = False, e.plan.stages[split_ref(before)[0]]
    while True:
        if is_trainer(stage.kind):
            specs = [e.plan.stages[corpus].spec for corpus in corpus_inputs(stage.deps)]
            taught |= any(isinstance(s, CorpusSpec) and s.loss_on == "all" for s in specs)
        if "init" not in stage.deps:
            break
        stage = e.plan.stages[split_ref(stage.deps["init"])[0]]
    if not taught and stage.kind != "source":
        needs = "corpus: {loss_on: all} to a stage before it, or instances"
        raise UserError(f"{e.where}: {key}: no corpus taught the model to write problems; give {needs}")
    spec = e.plan.stages[stage.deps["tokenizer"]].spec if "tokenizer" in stage.deps else None
    if isinstance(spec, TokenizerSpec) and spec.algorithm == "bpe":
        raise UserError(f"{e.where}: tokenizer.algorithm = 'bpe': {key} ends proposals at a token of one character; write words")
