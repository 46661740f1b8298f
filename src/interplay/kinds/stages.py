"""Stages given as JSON (stage.json, a record, a line of a lock or plan): their identity, their settings as flat `dotted.key:
value` pairs, and what they cost."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from interplay.core import artifact, execution
from interplay.core.digest import canonical, canonical_json, corpus_inputs, first_name, hashed_deps
from interplay.core.keys import models_in, parse_model
from interplay.core.model import KeyPlace, Model, Since, UserError
from interplay.kinds.formulas import Cost, Sampling
from interplay.kinds.table import KINDS, is_trainer
from interplay.model.spec import Load, Memory, ModelSize, config_size

# The identity of a stage that is given as JSON (stage.json, a record, a line of plan.json), whichever version of the code
# wrote it.


def digest_of_content(stage: Mapping[str, Any]) -> str:
    """The digest that the stage's own kind, versions, spec and dependencies give: what it was filed under, unless it was
    altered."""
    content = [stage["kind"], stage["versions"], hashed_json(stage, first_name), hashed_deps(stage["deps"])]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


def hashed_json(stage: Mapping[str, Any], spelt: Callable[[type[Model], str], str] = lambda _, name: name) -> Any:
    """The stage's spec without fields that joined later and hold what older specs did. A spec written before a field joined lacks
    it, one written after holds its old value, and both are the same spec. A renamed field has its present name, or the one that
    `spelt` gives to a field of a model."""
    kind = KINDS.get(stage["kind"])
    return _pruned(stage["spec"], [kind.spec], spelt) if kind else stage["spec"]


def _pruned(value: Any, models: list[type[Model]], spelt: Callable[[type[Model], str], str]) -> Any:
    """`value` less its old-valued later fields; `models` are those that the schema allows at this place."""
    if isinstance(value, list):
        return [_pruned(item, models, spelt) for item in value]
    if not isinstance(value, dict):
        return value
    member = _member(value, models)
    if member is None:  # a mapping: its values are what the schema describes
        return {key: _pruned(item, models, spelt) for key, item in value.items()}
    found, names = {}, _present_names(member)
    for key, item in value.items():
        name = names.get(str(key), str(key))
        field = member.model_fields.get(name)
        if field is None:
            found[key] = item
        elif not any(isinstance(mark, Since) and canonical(mark.value) == item for mark in field.metadata):
            found[spelt(member, name)] = _pruned(item, models_in(field.annotation), spelt)
    return found


def _present_names(model: type[Model]) -> dict[str, str]:
    """First name of each field -> its name today."""
    return {first_name(model, name) or name: name for name in model.model_fields}


def _member(value: dict[str, Any], models: list[type[Model]]) -> type[Model] | None:
    """The model that a JSON object was written from: by its `name` among the members of a union, else the one whose required
    fields it has and which has all of its keys; None for a mapping."""
    tagged = [m for m in models if "name" in m.model_fields and value.get("name") in get_args(m.model_fields["name"].annotation)]
    return next((model for model in tagged or models if _fits(value, model)), None)


def _fits(value: dict[str, Any], model: type[Model]) -> bool:
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    names = _present_names(model)
    return required <= {names.get(key, key) for key in value} <= set(model.model_fields)


class Numerics(NamedTuple):
    """How the bytes of a result depend on the machine."""

    name: str
    holds: str
    """What is known of them; nothing claims more."""
    model: bool = True
    """Whether a model is computed with."""


EXACT = "int8, exact"
"""The class that does not depend on the machine."""


def numerics_class(record: Mapping[str, Any]) -> Numerics:
    """Of a finished stage, by its record: what computed it, in which precision, and whether in a stack."""
    spec = record["spec"]
    engine, dtype, how = spec.get("engine", "native"), spec.get("dtype"), artifact.numerics_of(dict(record))
    if own := sorted(str(value) for key, value in flat_leaves(spec).items() if key.rpartition(".")[2] == "function" and value):
        return Numerics(f"own code, {own[0]}", "depends on its code; nothing is proven of it")
    if (trainer := spec.get("trainer", "native")) != "native":
        return Numerics(f"{trainer}, {dtype}", "the trainer's kernels decide; nothing is proven to repeat elsewhere")
    if asks_endpoint(spec):
        return Numerics("judged", "the answers of its judge are kept with it; asked anew they may differ")
    if harness := spec.get("harness"):
        of = f"{harness['name']} {harness['version']}, {dtype}"
        return Numerics(of, "transformers' kernels decide; nothing is proven to repeat elsewhere")
    if engine != "native":
        return Numerics(f"{engine}, {dtype}", "the engine's kernels decide; its samples are not proven to repeat elsewhere")
    if dtype is None:
        return Numerics("no model", "computed without the products of a model; no difference between machines is known", False)
    if spec.get("numerics") == "exact":
        return Numerics(EXACT, "equal with any batches, threads, processes and x86-64 instructions tested (docs/numerics.md)")
    if dtype == "int8":
        return Numerics("int8, fast", "equal with any number of threads; on other processors, run blocks or libraries not proven")
    alone = "rounding depends on which stages shared the stack" if how != "alone" else "equal on one kind of processor"
    return Numerics(f"{dtype}, {how}", f"{alone}, with the same run block and libraries; on others not proven")


def asks_endpoint(spec: Any) -> bool:
    """Whether some rubric of a spec is judged behind an endpoint."""
    if isinstance(spec, Mapping):
        return bool(spec.get("rubric") and spec.get("model")) or any(map(asks_endpoint, spec.values()))
    return isinstance(spec, list) and any(map(asks_endpoint, spec))


# Specs as flat `dotted.key: value` pairs: what people compare and what tables show.


def flat_leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted key -> scalar. A list of scalars and an empty container count as one value."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        items = [(str(index), item) for index, item in enumerate(value)]
    if not items:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in flat_leaves(item, f"{path}.{name}" if path else name).items()}


def non_default_leaves(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a spec (as JSON) that are not the defaults of its kind's schema; all of them when the schema has moved on so
    far that the spec no longer fits it."""
    try:
        model = parse_model(KINDS[kind].spec, spec, KeyPlace(kind))
    except (UserError, KeyError):
        return flat_leaves(spec)
    usual = flat_leaves(_defaults(model))
    return {key: value for key, value in flat_leaves(canonical(model)).items() if key not in usual or usual[key] != value}


def _defaults(model: Model) -> dict[str, Any]:
    """The defaults of the model. Where another member of a union than the default one was chosen, the defaults of that member,
    without its name."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        usual = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, Model) and type(usual) is not type(value):
            found[name] = {key: item for key, item in _defaults(value).items() if key != "name"}
        elif not field.is_required():
            found[name] = canonical(usual)
    return found


def leaf_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys at which two trees differ -> (value in a, value in b); ABSENT where a tree lacks the key."""
    one, other = flat_leaves(a), flat_leaves(b)
    keys = dict.fromkeys([*one, *other])
    pairs = {key: (one.get(key, ABSENT), other.get(key, ABSENT)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


class _Absent:
    def __repr__(self) -> str:
        return "-"


ABSENT = _Absent()
"""In place of a value where a tree has no such key."""


# What stages cost (`formulas`): planned, from their specs, or realised, from their records.


NOT_LETTERS = 24
"""Tokens of op_dag's character vocabulary other than letters: two special ones, ten digits, three operators, nine signs."""


def planned_costs(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
    """Planned cost by digest of stages in JSON (`kind`, `spec`, `deps`; dependencies first): stage.json or records; a source has
    what `model_sizes` reads. A dependency that is not among them is unknown."""
    found, sizes = dict[str, Cost](), model_sizes(stages)
    for digest, stage in stages.items():
        row, size = KINDS[stage["kind"]], sizes[digest]
        sampled = next((dep for role, dep in stage["deps"].items() if role in ("data", "data.0")), "")
        problems = planned_size(sampled, stages) if isinstance(row.cost, Sampling) else 0
        # FLOPs grow with the parameters that a token passes; the others are there, and passed by other tokens.
        active = size.active if size else None if _holds_model(stage) else 0
        found[digest] = row.cost.planned(stage["spec"], problems, active)._replace(parameters=size.parameters if size else active)
    return found


def realised_cost(record: Mapping[str, Any], parameters: int | None) -> Cost:
    """Cost of a finished stage from its record's metrics; `parameters` are those of its planned cost."""
    return KINDS[record["kind"]].cost.realised(record, record["metrics"].get("parameters", parameters))


def paper_tokens(kind: str, spec: Mapping[str, Any]) -> int:
    """Training tokens as arXiv:2512.07783 (section 5) charges them: a trainer's budget, and for RL (5/3) N r L, the pre-training
    tokens whose FLOPs equal rolling out, scoring by a reference and updating on N prompts with r completions, each charged at the
    cap L and not at its realised length; of tuning on pairs, which the paper has not, the tokens at their caps; of teaching the
    same as of RL for all completions and proposals that something is trained on, and a third for those that are sampled alone. 0
    for kinds that do not train."""
    return KINDS[kind].cost.charged(spec)


def share_reached(spec: Mapping[str, Any], step: int | None) -> float:
    """Share of a stage's planned budget that is spent once the model of `step` is there; 1 at its end (None)."""
    if step is None:
        return 1.0
    return min(1.0, step / spec["steps"] if "steps" in spec else step * spec["batch_tokens"] / spec["tokens"])


def shape_size(shape: Mapping[str, Any], vocab_size: int) -> ModelSize:
    """Of a decoder of that shape (`model.spec.Shape` as JSON)."""
    return config_size({**shape, "model_type": shape["architecture"], "vocab_size": vocab_size})


def vocabulary_size(tokenizer: Mapping[str, Any]) -> int:
    """Tokens of a tokenizer, from its spec: exact for op_dag's characters, else the size that a BPE would have."""
    known = tokenizer["algorithm"] == "characters" and "letters" in tokenizer["task"]
    task = tokenizer["task"]
    return task["letters"] * task.get("contexts", 1) + NOT_LETTERS if known else tokenizer["vocab_size"]


def model_sizes(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, ModelSize | None]:
    """Size of the model that each stage makes or reads, by digest (dependencies first); None where it is unknown or there is
    none. Of the record, of the shape that a trainer is given, of a source's config.json (`config`), or of the model that the
    stage starts from."""
    found: dict[str, ModelSize | None] = {}
    for digest, stage in stages.items():
        size, counted = _shape_of(stage, stages, found), stage.get("metrics", {}).get("parameters")
        if counted is not None:  # a model of which only this is known counts as dense
            idle = size.parameters - size.active if size else 0
            size = (size or ModelSize(counted, counted))._replace(parameters=counted, active=counted - idle)
        found[digest] = size
    return found


def _shape_of(
    stage: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], found: Mapping[str, ModelSize | None]
) -> ModelSize | None:
    deps = {role: artifact.ref_digest(dep) for role, dep in stage["deps"].items()}
    if is_trainer(stage["kind"]) and stage["spec"].get("model"):
        tokenizer = stages.get(deps.get("tokenizer", ""))
        return shape_size(stage["spec"]["model"], vocabulary_size(tokenizer["spec"])) if tokenizer else None
    if "config" in stage:
        with contextlib.suppress(ValueError):
            return config_size(stage["config"])
    return found.get(next((deps[role] for role in ("init", "model") if role in deps), ""))


ASSUMED_PROMPT = 1024
"""Tokens of a prompt where nothing bounds them: neither a corpus that the model was trained on nor max_prompt_length."""


def peak_memories(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Memory | None]:
    """What one process of each stage holds where it needs most, by digest (dependencies first); None where that is unknown, as of
    kinds that hold no model and of the trainer trl. Of a stack it is all of it."""
    found, sizes, lengths = dict[str, Memory | None](), model_sizes(stages), dict[str, tuple[int, bool]]()
    for digest, stage in stages.items():
        deps = {role: artifact.ref_digest(dep) for role, dep in stage["deps"].items()}
        spec, size, run = stage["spec"], sizes[digest], execution.Run(**stage.get("run", {}))
        packed = next((stages[dep]["spec"] for dep in corpus_inputs(deps) if dep in stages), None)
        before = lengths.get(next((deps[role] for role in ("init", "model") if role in deps), ""))
        if packed is not None:
            before = packed["sequence_length"], packed["packing"] == "causal"
        elif spec.get("max_prompt_length"):
            before = spec["max_prompt_length"] + spec["max_completion_length"], True
        if before:
            lengths[digest] = before
        length, causal = before or (ASSUMED_PROMPT + spec.get("max_completion_length", 0), True)
        problems = sum(
            planned_size(dep, stages) for role, dep in deps.items() if role.partition(".")[0] in ("data", "validation")
        )
        found[digest] = None
        if size and size.width and spec.get("trainer", "native") in ("native", "verl"):
            load = Load(spec, run, size, length, causal, problems)
            made = KINDS[stage["kind"]].cost.memory(load)
            found[digest] = made and made._replace(host=made.host * run.stack, device=made.device * run.stack)
    return found


def _holds_model(stage: Mapping[str, Any]) -> bool:
    return KINDS[stage["kind"]].makes == "model" or not {"init", "model"}.isdisjoint(stage["deps"])


def planned_size(digest: str, stages: Mapping[str, Mapping[str, Any]]) -> int:
    """Rows of a problem set as far as the plan fixes it: of a mix without a size, those of the sets that it is made of; 0:
    unknown."""
    stage = stages.get(digest)
    if stage is None:
        return 0
    if stage["spec"].get("size") is not None:
        return int(stage["spec"]["size"])
    return sum(planned_size(dep, stages) for role, dep in stage["deps"].items() if role.startswith("data."))


# One digest, two contents: what another store holds under the digest of a stage that is here.


def other_contents(results: Path, out: Path) -> Iterator[str]:
    """One digest, two contents: other records of a finished stage, kept with a study or with the project, that list other files
    or metrics than its own."""
    kept = (results / artifact.STUDIES).glob(f"*/records/{out.parent.name}/{out.name}/record.json")
    shipped = results.parent / artifact.SHIPPED / out.parent.name / out.name / "record.json"
    for path in [*sorted(kept), *([shipped] if shipped.exists() else [])]:
        if said := differing_records(out, path.parent):
            yield said


def differing_records(one: Path, other: Path) -> str:
    """In what two records of one digest differ, in one line; empty where both have the same content. Light files count by their
    rows: scores that were committed are written anew."""
    known = [artifact.record(folder) for folder in (one, other)]
    names = sorted(key for key in leaf_differences(*(each["metrics"] for each in known)))
    files = dict.fromkeys(name for each in known for name in each["files"])
    unlike = [name for name in files if known[0]["files"].get(name) != known[1]["files"].get(name)]
    unlike = [name for name in unlike if not _same_rows(one / name, other / name)]
    if not (names or unlike):
        return ""
    each = " and ".join(f"{at} ({numerics_class(record).name})" for at, record in zip((one, other), known, strict=True))
    what = ", ".join([*unlike, *names][:3]) + (" and more" if len(unlike) + len(names) > 3 else "")
    return f"{one.parent.name}/{one.name}: one digest, two contents: {each} differ in {what}; keep one, remove the other"


def _same_rows(one: Path, other: Path) -> bool:
    """Of two tables."""
    if one.suffix != ".parquet" or not (one.exists() and other.exists()):
        return False
    import pyarrow.parquet as pq  # not for a plan

    return bool(pq.read_table(one).equals(pq.read_table(other)))
