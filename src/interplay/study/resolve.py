"""The value of any key of an arm's stage before its axes, and arms that split one budget between mid-training and RL."""

from fractions import Fraction
from typing import Any

from interplay.core.digest import canonical
from interplay.core.model import MOST, Model, UserError, nearest_name, parse_model, shorten_value
from interplay.data.spec import CorpusSpec
from interplay.kinds.formulas import rl_step_tokens
from interplay.kinds.table import KINDS
from interplay.study import arms, check
from interplay.study.arms import SPLIT, Combination, Own, Tree, replaced
from interplay.study.spec import Arm, BudgetSplit, Scale, Study
from interplay.study.stages import of_spec, references
from interplay.study.tune import MIXES
from interplay.tasks.spec import TaskKey

# What a stage of the study holds before its axes: the value of any key, whether it comes from arm, study, scale or schema.


def whole(study: Study, scale: Scale) -> Tree:
    """The study's stages, and the task beside them under the name `task`: what the keys of an arm lead into."""
    family = study.task.get("name")
    return {**study.stages, "task": {**(scale.tasks.get(family, {}) if isinstance(family, str) else {}), **study.task}}


def own_values(study: Study, scale: Scale, where: str) -> Own:
    """The look-up that arms are expanded with. Stages are resolved once per arm, and only those that axes ask for."""
    known: dict[tuple[int, str], Any] = {}

    def own(arm: Arm, dotted: str) -> Any:
        stage, *keys = dotted.split(".")
        if stage == SPLIT:
            return at(arm.split, keys)
        if (id(arm), stage) not in known:
            known[id(arm), stage] = resolved(scale, replaced(whole(study, scale), arm.set, f"{where}: stages"), stage, where)
        return at(known[id(arm), stage], keys)

    return own


def at(tree: Any, keys: list[str]) -> Any:
    """The value that `keys` lead to in models and mappings; None where they lead nowhere."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else getattr(tree, key, None) if isinstance(tree, Model) else None
    return tree


def resolved(scale: Scale, stages: Tree, name: str, where: str) -> Any:
    """The keys of a stage, or the task, with what scale and schema say put in."""
    if name not in stages:
        raise UserError(f"{where}: stages.{name}: no such stage{nearest_name(name, stages)}")
    entry = stages[name]
    if name == "task":
        return parse_model(TaskKey, {"task": entry}, where).task
    check.entry(entry, f"{where}: stages.{name}")
    kind = entry["kind"]
    packed = {**scale.kinds.get("corpus", {}), **references(entry).get("corpus", {})}
    corpus = _spec(CorpusSpec, packed, f"{where}: stages.{name}.corpus")
    if kind == "source":
        return entry
    given = {**scale.kinds.get(kind, {}), **of_spec(entry)}
    if kind == "teach":
        given["task"] = stages["task"]
    spec = _spec(KINDS[kind].spec, given, f"{where}: stages.{name}")
    return {
        **{field: getattr(spec, field) for field in type(spec).model_fields},
        **references(entry),
        "kind": kind,
        "corpus": corpus,
    }


def _spec(cls: type[Model], given: dict[str, Any], where: str) -> Model:
    """The spec, but for the mix, which the stage's data decide later."""
    mix = {name: [1.0] for name in MIXES.values() if name in cls.model_fields}
    return parse_model(cls, {key: value for key, value in {**given, **mix}.items() if key != "run"}, where)


# Arms that split one budget between mid-training and RL (study/spec.py: BudgetSplit): the planner sets the tokens of the one
# and the steps of the other, so that the charges of `match: {accounting: paper}` add up to the budget.


def split_combinations(study: Study, scale: Scale, where: str) -> dict[str, Combination]:
    """Every arm of the study by name, splits worked out. Raises UserError."""
    made = arms.expand(study.arms, own_values(study, scale, where), where)
    return {name: _worked_out(study, scale, one, where) if study.arms[one.group].split else one for name, one in made.items()}


def budget_shares(split: BudgetSplit) -> tuple[Fraction, Fraction]:
    """Tokens of mid-training and tokens charged to RL. Exact: 0.8 of a budget is not a hair less than four fifths of it."""
    part = Fraction(str(split.rl_share))
    return (1 - part) * (split.tokens or 0), part * (split.tokens or 0)


def _worked_out(study: Study, scale: Scale, one: Combination, where: str) -> Combination:
    """The combination with the tokens and steps that its split comes to, and without a stage that has no share."""
    arm, spot = study.arms[one.group], f"{where}: arms.{one.group}.{SPLIT}"
    split = _given(arm, one, spot)
    _on_the_path(study, arm, split, spot)
    for key in (f"{split.mid}.tokens", f"{split.rl}.steps"):
        if key in one.set:
            raise UserError(
                f"{where}: arms.{one.group}: {key} is what {SPLIT} works out; take it out of set and axes, or take {SPLIT} away"
            )
    own = {key: value for key, value in one.set.items() if not key.startswith(f"{SPLIT}.")}
    mid_tokens, rl_tokens = budget_shares(split)
    path, found = list(one.path), dict[str, Any]()
    if mid_tokens:
        batch = _split_spec(study, scale, own, split.mid, "tokens", where)["batch_tokens"]
        found[f"{split.mid}.tokens"] = _whole(mid_tokens, Fraction(batch), f"one batch of {split.mid}", split, one, spot) * batch
    else:
        path.remove(split.mid)
    if rl_tokens:
        step = rl_step_tokens(_split_spec(study, scale, own, split.rl, "steps", where))
        found[f"{split.rl}.steps"] = _whole(rl_tokens, step, f"one step of {split.rl}", split, one, spot)
    else:
        path.remove(split.rl)
    return one._replace(path=path, set={**own, **found}, worked_out=tuple(found))


def _given(arm: Arm, one: Combination, spot: str) -> BudgetSplit:
    """The split with what the axes choose of it in place."""
    assert arm.split is not None
    chosen = {key.removeprefix(f"{SPLIT}."): value for key, value in one.set.items() if key.startswith(f"{SPLIT}.")}
    split = parse_model(BudgetSplit, {**arm.split.model_dump(), **chosen}, spot)
    for name in ("tokens", "rl_share"):
        if getattr(split, name) is None:
            raise UserError(f"{spot}.{name}: missing; give it here, or as an axis, {SPLIT}.{name}")
    return split


def _on_the_path(study: Study, arm: Arm, split: BudgetSplit, spot: str) -> None:
    """Both stages stand on the path, whole, and are of the right kinds."""
    for key, name, kinds in (("mid", split.mid, ("midtrain", "sft")), ("rl", split.rl, ("rl",))):
        if name not in arm.path:
            raise UserError(
                f"{spot}.{key} = {shorten_value(name)}: not on the path of this arm, {arm.path}; put it there, or name another"
            )
        if (kind := study.stages[name]["kind"]) not in kinds:
            raise UserError(f"{spot}.{key} = {shorten_value(name)}: is a {kind} stage; name one of kind {' or '.join(kinds)}")


def _split_spec(study: Study, scale: Scale, own: dict[str, Any], stage: str, length: str, where: str) -> dict[str, Any]:
    """The spec of a stage in this arm, but for its length, which is what is sought."""
    stages = arms.replaced(whole(study, scale), {**own, f"{stage}.{length}": MOST}, f"{where}: stages")
    return {key: canonical(value) for key, value in resolved(scale, stages, stage, where).items()}


def _whole(tokens: Fraction, unit: Fraction, what: str, split: BudgetSplit, one: Combination, spot: str) -> int:
    """How many whole units the tokens come nearest to."""
    if tokens < unit:
        part = f"its share of {split.tokens:,} tokens at rl_share {split.rl_share}, {float(tokens):,.0f}"
        raise UserError(
            f"{spot}.tokens = {split.tokens}: {part}, is under {what}, {float(unit):,.0f}; raise tokens, or lower the batch"
        )
    return round(tokens / unit)
