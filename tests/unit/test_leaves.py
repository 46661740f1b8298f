"""Each leaf of a spec that enters a digest changes what a tiny run leaves, or is listed with the reason why it does not.

Identity is worth what it separates: a field that changes the digest and not the bytes makes stages run twice for nothing, and one
that never arrives (a seed, a rate) makes arms equal that a study compares. A leaf is a field of a model inside the spec of a
kind; it passes when in some base a change of it alone changes the payload or the metrics."""

import hashlib
import importlib
import itertools
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import world
from spec_mutations import mutations
from test_prefer import pair_set

from interplay.core import artifact
from interplay.core.digest import canonical, canonical_json
from interplay.core.execution import Run
from interplay.core.model import Model, PermanentError, UserError
from interplay.data import corpus
from interplay.data.spec import CorpusSpec
from interplay.kinds.table import KINDS

pytestmark = pytest.mark.slow

HOW = Run(engine_batch=32, micro_batch_tokens=800)
TRIES = 8
"""Changes of a leaf that are run at most, those of different bases in turn."""
SOURCE = (
    "def commas(problems, completions, verdicts, weight=1.0):\n"
    "    return [weight * c.count(',') / max(len(c), 1) + 0.01 * len(c) for c in completions]\n\n\n"
    "def dots(problems, completions, verdicts):\n"
    "    return [c.count('.') / max(len(c), 1) + 0.02 * len(c) for c in completions]\n"
)
HALF = "def half(rows):\n    return rows[: len(rows) // 2]\n"
COUNTS = (
    "def digits(row, completion, verdict, weight=1.0):\n    return weight * sum(c.isdigit() for c in completion) + 0.01\n\n\n"
    "def dots(row, completion, verdict):\n    return 0.02 * len(completion)\n"
)
TURNED = "def turned(row, completion, verdict):\n    return verdict._replace(answer=not verdict.answer)\n"
METRIC = {"function": "mine.py:digits", "source": COUNTS}
REWARD = {"name": "custom", "function": "mine.py:commas", "source": SOURCE}

TASK = canonical(world.TASK)
SHAPE = canonical(world.SHAPE)
SCHEDULE = {"name": "linear", "warmup_ratio": 0.25, "decay_ratio": 0.5, "min_ratio": 0.25}
ADAM = {"name": "adamw", "learning_rate": 0.01, "weight_decay": 0.1, "max_grad_norm": 0.1}
MUON = {**ADAM, "name": "muon"}
LM = {"tokens": 2000, "batch_tokens": 256, "schedule": SCHEDULE, "eval_every": 3}
JUMPS = {"position_jumps": {"probability": 0.5, "largest": 4, "start": 0.25}}
TUNE = {"steps": 8, "max_length": 128, "schedule": SCHEDULE, "optimizer": ADAM}
PAIRS = {"mix": [0.5, 0.5], "pairs_per_step": 4, **TUNE}
SIDES = {"forget_mix": [0.5, 0.5], "retain_mix": [0.5, 0.5], "problems_per_step": 4, "eval_every": 3, **TUNE}
SAMPLED = {"num_samples": 2, "max_completion_length": 8}
GROUPS = {
    "mix": [0.5, 0.5], "steps": 4, "prompts_per_step": 4, "max_completion_length": 8, "optimizer": ADAM, "schedule": SCHEDULE,
    "reward": REWARD, "keep_rollouts": 2,
}  # fmt: skip
TWICE = {"beta": 0.1, "num_iterations": 2, "entropy_coef": 0.01}
FOUR = {"name": "fixed", "num_generations": 4}


def method(**members: Any) -> dict[str, Any]:
    return {"method": {"paper": "p", "allocation": FOUR, **members}}


BASES: dict[str, list[dict[str, Any]]] = {
    "problems": [
        {
            "task": TASK, "bands": {"easy": {2: 0.5, 3: 0.5}, "hard": {4: 1.0}}, "shares": {"easy": 0.5, "hard": 0.5}, "size": 30,
            "split": "rl",
        },
        {
            "task": {**TASK, "modulus": None}, "bands": {"easy": {2: 0.5, 3: 0.5}, "hard": {4: 1.0}},
            "shares": {"easy": 0.5, "hard": 0.5}, "size": 30, "split": "rl",
        },
    ],
    "tokenizer": [{"task": TASK}],
    "corpus": [{"mix": [0.5, 0.5], "sequence_length": 128}],
    "pretrain": [{"model": SHAPE, "optimizer": ADAM, **LM}, {"model": SHAPE, "optimizer": MUON, **LM, **JUMPS}],
    "midtrain": [{"optimizer": ADAM, **LM}, {"optimizer": MUON, **LM, **JUMPS}],
    "sft": [{"optimizer": ADAM, **LM}, {"optimizer": MUON, **LM, **JUMPS}],
    "prefer": [
        {**PAIRS, "label_smoothing": 0.1, "rpo_alpha": 0.5},
        {**PAIRS, "optimizer": MUON},
        *({**PAIRS, "loss_type": name} for name in ("simpo", "cpo", "kto")),
    ],
    "unlearn": [
        SIDES,
        {**SIDES, "optimizer": MUON},
        {**SIDES, "objective": "simnpo", "simnpo_gamma": 0.5},
        {**SIDES, "objective": "uld"},
        {**SIDES, "formulation": "blur"},
        {**SIDES, "objective": "grad_diff", "formulation": "hamu"},
    ],
    "reward_model": [{**PAIRS, "heads": 2, "center_rewards_coefficient": 0.1, "eval_every": 3}, {**PAIRS, "optimizer": MUON}],
    "evaluate": [
        {**SAMPLED, "temperature": 0.9, "top_p": 0.9, "top_k": 5, "nll": True, "errors": True},
        {**SAMPLED, "entropy": True},
        {**SAMPLED, "metrics": [METRIC]},
        {**SAMPLED, "unit_caps": 3, "verify": {"separator": ","}},
        {"num_samples": 8, "max_completion_length": 12, "episode": {"name": "retry", "max_turns": 3, "feedback": "1"}},
    ],
    "rl": [
        {**GROUPS, **method(loss={"name": "clipped", **TWICE, "epsilon": 0.01, "epsilon_high": 0.02, "delta": 1.01})},
        {**GROUPS, "optimizer": MUON, "minibatches": 2, **method(loss={"name": "clipped", "importance_sampling_level": "sequence"})},
        {**GROUPS, **method(loss={"name": "clipped", "loss_type": "cispo", "epsilon_high": 5.0, "num_iterations": 2})},
        {**GROUPS, **method(episode={"name": "retry", "max_turns": 2, "feedback": "1"}, loss={"name": "clipped", "first_turn_beta": 0.1})},
    ],
}  # fmt: skip

CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    ("TrainSpec", "tokens"): {"tokens": 3000},
    ("TrainSpec", "batch_tokens"): {"batch_tokens": 384},
    ("TrainSpec", "eval_every"): {"eval_every": 2},
    ("ClippedLoss", "cispo_epsilon_low"): {"cispo_epsilon_low": 0.0},
    ("RLSpec", "max_prompt_length"): {"max_prompt_length": 500},
    ("Method", "episode"): {"episode": {"name": "retry", "feedback": "1"}},
    ("EvaluateSpec", "episode"): {"episode": {"name": "retry", "feedback": "1"}},
    ("CorpusSpec", "sequence_length"): {"sequence_length": 160},
    ("OpDag", "max_value"): {"max_value": 5},
    ("ProblemsSpec", "bands"): {"bands": {"easy": {2: 0.25, 3: 0.75}, "hard": {4: 1.0}}},
    ("ProblemsSpec", "transform"): {"transform": {"name": "custom", "function": "mine.py:half", "source": HALF}},
    ("ProblemsSpec", "shares"): {"shares": {"easy": 0.25, "hard": 0.75}},
    ("RetryEpisode", "feedback"): {"feedback": "2"},
    ("Extension", "function"): {"function": "mine.py:dots"},
    ("Extension", "source"): {"source": SOURCE.replace("0.01", "0.03")},
    ("Extension", "options"): {"options": {"weight": 2.0}},
    ("EvaluateSpec", "metrics"): {"metrics": [METRIC]},
    ("Verify", "own"): {"own": {"function": "mine.py:turned", "source": TURNED}},
    ("OwnMetric", "source"): {"source": COUNTS.replace("0.01", "0.03")},
    ("RewardModelSpec", "routing"): {"routing": {}},
}
"""Changes in place of guessed ones, which would be too small or not fit the inputs."""

KINDS_WITHOUT = {
    "source": "passes weights on; its fields name content, which is the payload",
    "dataset": "needs a published file for each format",
    "curate": "thirty steps, each with inputs of its own",
    "teach": "a run takes tens of seconds",
    "select": "chooses among finished records",
    "calibrate": "chooses bands by finished records",
    "custom": "does what the user's function does",
    "report": "a page, whose fields are its text",
}
"""Kinds that are not tested here. Of rl only the loop, the clipped loss and an episode are: the other members of its seams are in no
base."""

OWN = ("rl: OwnReward", "evaluate: OwnMetric")
"""Members of the user's own in the bases; each is read from a file."""
UNRUN: dict[str, str] = {
    "prefer: PreferSpec.few_shot": "wants pairs with raters",
    "reward_model: RewardModelSpec.routing": "wants pairs with raters",
    **{f"{member}.distribution": "wants an installed distribution" for member in OWN},
}
"""`kind: Model.field` that no base can run, and why."""

NO_LETTER = "the vocabulary has the task's letters and all digits and signs, whatever its problems are made of"
INERT: dict[str, str] = {
    "problems: OpDag.contexts": "counts the alphabets that tokenizers know; which one names the nodes is `context`",
    **{
        f"{leaf}.max_length": "refuses what is longer, and changes nothing else"
        for leaf in ("prefer: PreferSpec", "unlearn: UnlearnSpec", "reward_model: RewardModelSpec")
    },
    "rl: RLSpec.max_prompt_length": "refuses what is longer, and changes nothing else",
    "reward_model: RewardModelSpec.margin": "the pairs of these runs differ in their answers, and scores are of steps",
    **{f"{member}.version": "is of a distribution, and these functions are read from a file" for member in OWN},
    "rl: Method.paper": "says where settings come from",
    "rl: RetryEpisode.always": "is of right answers, which an untrained model does not give",
    "evaluate: Verify.operator": "is of right steps, which an untrained model does not write",
    "evaluate: Verify.extra_nodes": "is of right solutions, which an untrained model does not write",
    "evaluate: RetryEpisode.always": "is of right answers, which an untrained model does not give",
    "tokenizer: TokenizerSpec.vocab_size": "is of the algorithm bpe, which wants texts",
    **{
        f"tokenizer: OpDag.{name}": NO_LETTER
        for name in (
            "modulus", "trace", "modes", "max_parents", "branching", "copies", "constants", "max_value", "distractors", "filler",
        )
    },
}  # fmt: skip
"""`kind: Model.field` that changes the digest and no byte of these runs, and why."""


@cache
def inputs() -> dict[str, dict[str, Path]]:
    """By kind."""
    results = Path(tempfile.mkdtemp(prefix="leaves-"))
    model = world.model(results, "m" * 12)
    sets = [world.problem_set(results, letter * 12, 24, seed) for seed, letter in enumerate("ab")]
    pairs = [pair_set(results, f"{letter * 11}0") for letter in "cd"]
    roles = {"tokenizer": model, "data.0": sets[0], "data.1": sets[1]}
    corpus.build_corpus(CorpusSpec(mix=[0.5, 0.5], sequence_length=64), roles, results / "corpus", Run())
    rows = {"corpus": results / "corpus", "validation": sets[1]}
    tuned = {"init": model, "data.0": pairs[0], "data.1": pairs[1], "validation": pairs[1]}
    return {
        "problems": {},
        "tokenizer": {},
        "corpus": roles,
        "pretrain": {**rows, "tokenizer": model},
        "midtrain": {**rows, "init": model, "tokenizer": model},
        "sft": {**rows, "init": model, "tokenizer": model},
        "prefer": tuned,
        "reward_model": tuned,
        "unlearn": {"init": model, **{f"{side}.{i}": sets[i] for side in ("forget", "retain") for i in range(2)}},
        "evaluate": {"model": model, "data": sets[0]},
        "rl": {"init": model, "data.0": sets[0], "data.1": sets[1]},
    }


def left_by(kind: str, spec: Model, folder: Path) -> str:
    """A checksum over all that a run of the spec leaves."""
    module, _, function = KINDS[kind].function.partition(":")
    metrics = getattr(importlib.import_module(module), function)(spec, inputs()[kind], folder, HOW)
    found = hashlib.sha256(canonical_json(metrics).encode())
    for path in artifact.payload(folder):
        found.update(f"{path.relative_to(folder)} ".encode() + path.read_bytes())
    return found.hexdigest()


@cache
def base(kind: str, number: int) -> Model:
    return KINDS[kind].spec.model_validate(BASES[kind][number])


@cache
def untouched(kind: str, number: int) -> str:
    """What a base itself leaves."""
    with tempfile.TemporaryDirectory() as folder:
        return left_by(kind, base(kind, number), Path(folder))


@cache
def leaves(kind: str) -> dict[str, list[tuple[int, Model]]]:
    """`Model.field` -> (number of the base, the base with that field changed)."""
    found: dict[str, list[list[tuple[int, Model]]]] = {}
    for number in range(len(BASES[kind])):
        here: dict[str, list[tuple[int, Model]]] = {}
        for model, name, other in mutations(kind, base(kind, number), CHANGES):
            here.setdefault(f"{model.__name__}.{name}", []).append((number, other))
        for leaf, others in here.items():
            found.setdefault(leaf, []).append(others)
    in_turn = {leaf: itertools.chain(*itertools.zip_longest(*each)) for leaf, each in found.items()}
    return {leaf: list(filter(None, others))[:TRIES] for leaf, others in in_turn.items()}


def effects(kind: str, leaf: str) -> Iterator[bool | None]:
    """Of one change after another whether it changes what is left; None where the run is refused."""
    for number, other in leaves(kind)[leaf]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                yield left_by(kind, other, Path(folder)) != untouched(kind, number)
            except (UserError, PermanentError):
                yield None


EVERY = [(kind, leaf) for kind in BASES for leaf in leaves(kind)]


@pytest.mark.parametrize(("kind", "leaf"), EVERY, ids=[f"{kind}: {leaf}" for kind, leaf in EVERY])
def test_a_leaf_of_the_digest_changes_the_bytes_of_a_run(kind: str, leaf: str) -> None:
    name = f"{kind}: {leaf}"
    if name in INERT or name in UNRUN:
        found = list(effects(kind, leaf))
        assert True not in found, "it does change the bytes: take it out of the table"
        assert (False in found) == (name in INERT), "the wrong table"
        return
    found = []
    for effect in effects(kind, leaf):
        if effect:
            return
        found.append(effect)
    raise AssertionError("every change was refused" if set(found) == {None} else "the digest changes and no byte does")


def test_every_kind_has_a_base_or_a_reason_and_the_tables_name_leaves() -> None:
    assert set(BASES) | set(KINDS_WITHOUT) == set(KINDS)
    assert set(BASES) & set(KINDS_WITHOUT) == set()
    assert {*INERT, *UNRUN} - {f"{kind}: {leaf}" for kind, leaf in EVERY} == set()
