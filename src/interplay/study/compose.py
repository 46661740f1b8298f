"""The tree of a study: what Hydra composes of its files, and what is written out in it before it is typed: stages of the user's
own, keys that differ at a scale, and rounds. Pure data: what is made here is the same study, written longer. And the scale as a
study has it."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from interplay.core.model import KeyPlace, nearest_name
from interplay.data.spec import is_whole
from interplay.kinds.study_keys import OwnTrainerReferences
from interplay.kinds.table import KINDS
from interplay.study import files, locate
from interplay.study.arms import CHANGES, split_part
from interplay.study.spec import PINNED, Calibrate, Scale, ScaleChange, Study
from interplay.train.spec import OwnTrainerSpec

LOG = logging.getLogger(__name__)

Tree = dict[str, Any]
Parts = dict[tuple[str, str], Any]
"""Studies and scales that Hydra has composed by themselves, for plans of many from the same files."""


def compose_study(
    configs: Path, study: str, scale: str, knobs: Mapping[str, Any] = MappingProxyType({}), parts: Parts | None = None
) -> Tree:
    """The tree of a study at a scale, with `knobs` that the command line turns; `parts` is what trees of the same files share.
    Raises UserError for files that Hydra cannot compose."""
    from omegaconf import OmegaConf

    files.refuse_outside(configs, {"study": study, "scale": scale})
    OmegaConf.register_new_resolver("oc.env", _no_environment, replace=True)
    try:
        composed = _by_hydra(configs, study, scale) if parts is None else _of_parts(configs, study, scale, parts)
        _turn_knobs(composed, scale, knobs)
        tree = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except Exception as error:  # Hydra and OmegaConf raise exceptions of many types for a broken file
        raise locate.diagnose_files(error, configs, study, scale) from None
    for name in _unread_knobs(composed, configs / "study" / f"{study}.yaml"):
        place = KeyPlace(f"{configs.name}/study/{study}.yaml").key("knobs", name)
        LOG.warning("%s", place.error(f"no key takes it up; write ${{knobs.{name}}} where it acts, or take it away"))
    return {str(key): value for key, value in tree.items()} if isinstance(tree, dict) else {}


def _by_hydra(configs: Path, study: str, scale: str) -> Any:
    """What Hydra composes of a study and a scale, or of one of them where the other is empty. Its import costs 0.1 s that a job,
    which never composes, need not pay."""
    from hydra import compose, initialize_config_dir

    chosen = [f"{group}={name}" if name else f"~{group}" for group, name in (("study", study), ("scale", scale))]
    with initialize_config_dir(version_base="1.3", config_dir=str(configs.resolve())):
        return compose("config", overrides=chosen)


def _of_parts(configs: Path, study: str, scale: str, parts: Parts) -> Any:
    """The same from a study and a scale that were composed by themselves and are merged as Hydra merges them: 4 ms in place of
    70. What cannot be had so is composed whole: a config.yaml of another order, and faults, for what Hydra says of them."""
    from omegaconf import OmegaConf

    try:
        if ("", "") not in parts:
            parts["", ""] = _order(configs)
        if parts["", ""] != ["study", "scale", "_self_"]:
            return _by_hydra(configs, study, scale)
        for part in ((study, ""), ("", scale)):
            if part not in parts:
                parts[part] = _by_hydra(configs, *part)
                OmegaConf.set_struct(parts[part], None)
        return OmegaConf.merge(parts[study, ""], parts["", scale])
    except Exception:
        return _by_hydra(configs, study, scale)


def _order(configs: Path) -> list[str]:
    """The groups of config.yaml's defaults; the last has the last word."""
    from omegaconf import OmegaConf

    defaults = OmegaConf.select(OmegaConf.load(configs / "config.yaml"), "defaults", default=[])
    return [one if isinstance(one, str) else str(next(iter(one))) for one in defaults]


def _no_environment(*name: str) -> str:
    """In place of OmegaConf's `${oc.env:NAME}`: what enters a study enters locks and records, which are shared."""
    raise ValueError(f"${{oc.env:{','.join(name)}}}: environment variables do not enter a study, whose records are shared")


def _turn_knobs(composed: Any, scale: str, given: Mapping[str, Any]) -> None:
    """Give the study's `${knobs.NAME}` their values at this scale, or on the command line, before anything takes them up."""
    from omegaconf import DictConfig, OmegaConf, open_dict

    changes = [composed.get("study"), OmegaConf.select(composed, f"study.scales.{scale}")]
    knobs = [change.get("knobs") for change in changes if isinstance(change, DictConfig)]
    with open_dict(composed):
        composed["knobs"] = OmegaConf.merge({}, *(one for one in knobs if isinstance(one, DictConfig)), dict(given))


def _unread_knobs(composed: Any, file: Path) -> list[str]:
    """Knobs that the study's own file declares and no key takes up, which may be a misspelt name or a use that an edit or a scale
    has taken away. Those of a recipe are for all that include it."""
    from omegaconf import OmegaConf

    if not isinstance(declared := OmegaConf.select(composed, "study.knobs"), Mapping):
        return []
    text = str(OmegaConf.to_container(composed, resolve=False))
    unread = [str(name) for name in declared if not re.search(rf"\bknobs\.{re.escape(str(name))}\b", text)]
    own = OmegaConf.select(OmegaConf.load(file), "knobs", default={}) if unread else {}
    return [name for name in unread if name in own]


# -- what is written out ---------------------------------------------------------------------------------------------------------


def own_trainers(tree: dict[str, Any]) -> dict[str, Any]:
    """The study's tree with `kind: "file.py:Name"` of a stage written out: the kind `custom`, its function, and other keys as
    options."""
    stages = tree.get("stages")
    if not isinstance(stages, dict):
        return tree
    own = {*OwnTrainerSpec.model_fields, *OwnTrainerReferences.model_fields}
    made = {}
    for name, entry in stages.items():
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if isinstance(kind, str) and ":" in kind:
            known = {key: value for key, value in entry.items() if key in own}
            options = {key: value for key, value in entry.items() if key not in own and key != "kind"}
            given = known.get("options", {})
            more = {"options": {**options, **given} if isinstance(given, dict) else given}
            entry = {**known, "kind": "custom", "function": kind, **more}
        made[name] = entry
    return {**tree, "stages": made}


def at_scale(tree: dict[str, Any], scale: str) -> dict[str, Any]:
    """The study's tree at this scale: its task and tokenizer, if the scale replaces them, and its problem sets and
    stages with the keys that differ there. What has not the form that the schema wants is left for the schema to refuse."""
    changes = tree.get("scales")
    mine = changes.get(scale) if isinstance(changes, dict) else None
    if not isinstance(mine, dict):
        return tree
    replaced = {key: mine[key] for key in ("task", "tokenizer") if mine.get(key)}
    parts = {key: _with_keys(tree.get(key), mine[key]) for key in ("data", "stages") if key in mine}
    return {**tree, **replaced, **parts}


def _with_keys(entries: Any, changes: Any) -> Any:
    """Entries by name, with the keys that change put in place, and the problem sets that are new. What else is new is left out
    here, and `declared.check_names` names it."""
    if not isinstance(entries, dict) or not isinstance(changes, dict):
        return entries
    merged = {
        name: {**old, **changes[name]} if isinstance(old, dict) and isinstance(changes.get(name), dict) else old
        for name, old in entries.items()
    }
    new = {name: change for name, change in changes.items() if name not in entries and isinstance(change, dict)}
    return {**merged, **{name: change for name, change in new.items() if is_whole(change)}}


def changed_scale(scale: Scale, change: ScaleChange | None) -> Scale:
    """The scale as a study changes it."""
    if change is None:
        return scale
    nested = {
        name: {key: {**old.get(key, {}), **new.get(key, {})} for key in {**old, **new}}
        for name, old, new in (("tasks", scale.tasks, change.tasks), ("kinds", scale.kinds, change.kinds))
    }
    return scale.model_copy(
        update={
            **nested,
            "bands": {**scale.bands, **change.bands},
            "sizes": {**scale.sizes, **change.sizes},
            "per_op": {**{split: n for split, n in scale.per_op.items() if split not in change.sizes}, **change.per_op},
            "seeds": change.seeds or scale.seeds,
            "pilot": change.pilot or scale.pilot,
        }
    )


def check_bands(study: Study, scale: str, sized: Scale, configs: Path, place: KeyPlace) -> None:
    """The bands that a study's own file gives ops at a scale are those of the scale or of a problem set; a recipe's are for all
    that include it. Raises UserError."""
    own = files.item(files.item(files.item(files.read(configs, configs.parent / place.file), "scales"), scale), "bands")
    known = {*sized.bands, *(band for data in study.data.values() for band in data.names())}
    for band in [name.value for name, _ in (own.value if own else ()) if name.value not in {*known, "<<"}]:
        what = f"no such band of the scale or of a problem set{nearest_name(band, known)}"
        raise place.key("scales", scale, "bands", band).error(what)


def with_candidates(scale: Scale, calibrate: Calibrate | None) -> Scale:
    """The scale of a study that calibrates bands: these have all ops that they may turn out to have, and its own ops of them
    go on as pinned."""
    if calibrate is None:
        return scale
    known = sorted(op for ops in scale.bands.values() for op in ops)
    candidates = dict.fromkeys(calibrate.bands, calibrate.ops or [*range(known[0], known[-1] + 1)])
    pinned = {f"{PINNED}{band}" if band in candidates else band: ops for band, ops in scale.bands.items()}
    return scale.model_copy(update={"bands": {**pinned, **candidates}})


def without_int8(scale: Scale) -> Scale:
    """The scale of a study with models from outside, which 8 bits make another model (docs/log/numerics.md); the project's own
    are as good in them as in float32. What the study itself asks for stays."""
    kinds = {
        kind: {key: value for key, value in keys.items() if (key, value) not in (("dtype", "int8"), ("numerics", "exact"))}
        for kind, keys in scale.kinds.items()
    }
    return scale.model_copy(update={"kinds": kinds})


# -- rounds: stages of a path that are repeated, each starting from the model of the one before, as stages with names of their own


SEED_STRIDE = 1000
"""Between the seeds of a stage in two rounds, so that a round draws neither the prompts nor the noise of another."""


def round_name(part: str, number: int) -> str:
    """`rl` in round 3 -> `rl_3`; `rl@200` -> `rl_3@200`. The first round has the stage's own name, and is the very stage of
    a path without rounds."""
    name, at, step = part.partition("@")
    return f"{name}_{number}{at}{step}" if number > 1 else part


def with_rounds(tree: Tree, place: KeyPlace) -> Tree:
    """The study with each `{repeat: N, stages: [...]}` of its paths written out: the stages of the rounds after the first as
    further stages, equal but for their seeds, and what arms set of a repeated stage set in all rounds in which they do not set
    something else. Raises UserError for what cannot be repeated. What has not the form of the schema is left for the schema."""
    given, stages = tree.get("arms"), tree.get("stages")
    if not isinstance(given, dict) or not isinstance(stages, dict):
        return tree
    made, most = dict[str, Any](), dict[str, int]()
    for name, arm in given.items():
        path = arm.get("path") if isinstance(arm, dict) else None
        if not isinstance(path, list) or not any(isinstance(part, dict) for part in path):
            made[name] = arm
            continue
        here = place.key("arms", name)
        parts, counts = _written_out(path, stages, here.key("path"))
        _check_axes(arm, counts, here)
        made[name] = {**arm, "path": parts, **_in_all_rounds(arm, counts)}
        most |= {stage: max(count, most.get(stage, 1)) for stage, count in counts.items()}
    if not most:
        return tree
    further = {round_name(name, n): _later(stages[name], n) for name, count in most.items() for n in range(2, count + 1)}
    if taken := [name for name in further if name in stages]:
        raise place.key("stages", taken[0]).error("is the name of a round of a repeated stage, too; rename it")
    seeds = tree.get("seeds")
    if isinstance(seeds, dict) and isinstance(named := seeds.get("vary"), list):
        rounds = {name: [round_name(name, n) for n in range(2, count + 1)] for name, count in most.items()}
        vary = [one for name in named for one in (name, *(rounds.get(name, ()) if isinstance(name, str) else ()))]
        tree = {**tree, "seeds": {**seeds, "vary": vary}}
    return {**tree, "arms": made, "stages": {**stages, **further}}


def _written_out(path: list[Any], stages: Mapping[str, Any], place: KeyPlace) -> tuple[list[Any], dict[str, int]]:
    """The path with its rounds one after another, and how often each of their stages is in it."""
    parts, counts = list[Any](), dict[str, int]()
    for number, part in enumerate(path):
        if not isinstance(part, dict):
            parts.append(part)
            continue
        spot, times, repeated = place.key(number), part.get("repeat"), part.get("stages")
        if part.keys() != {"repeat", "stages"}:
            raise spot.error("must be {repeat: TIMES, stages: [names]}", part)
        if not isinstance(times, int) or isinstance(times, bool) or not 2 <= times <= 100:
            raise spot.key("repeat").error("must be a number of rounds from 2 to 100", times)
        if not isinstance(repeated, list) or not repeated or not all(isinstance(one, str) for one in repeated):
            raise spot.key("stages").error("must be a list of stages", repeated)
        for one in repeated:
            name = split_part(one)[0]
            if name not in stages:
                raise spot.key("stages").error(f"no such stage{nearest_name(name, stages)}", one)
            kind = stages[name].get("kind") if isinstance(stages.get(name), dict) else None
            row = KINDS.get(str(kind))
            if row and (row.makes != "model" or row.starts_path or row.ends_path):
                why = f"'{name}' is a {kind} stage, which starts from no model of a round, or leaves none for the next"
                extra = "; a set names a generate or evaluate stage itself, with arm: before" if row.makes != "model" else ""
                raise spot.key("stages").error(f"{why}; repeat stages that train{extra}", one)
            if name in counts:
                raise spot.key("stages").error(f"'{name}' is repeated twice in this path; give one of them a name of its own")
            counts[name] = times
        parts += [round_name(one, n) for n in range(1, times + 1) for one in repeated]
    if twice := [name for name in counts if path.count(name)]:
        raise place.error(f"'{twice[0]}' is repeated, and is in the path by itself, too; give one of them a name of its own")
    return parts, counts


def _check_axes(arm: Tree, counts: Mapping[str, int], place: KeyPlace) -> None:
    for axis in CHANGES[1:]:
        for key in given if isinstance(given := arm.get(axis), dict) else ():
            if str(key).partition(".")[0] in counts:
                raise place.key(axis, key).error(
                    "the stage is repeated, and an axis reaches one stage; write an arm for each value"
                )


def _in_all_rounds(arm: Tree, counts: Mapping[str, int]) -> Tree:
    """`set` and `differs` of the arm, with the keys of a repeated stage for each of its rounds."""
    found = Tree()
    if isinstance(given := arm.get("set"), dict):
        found["set"] = {one: value for key, value in given.items() for one in _keys(key, counts)} | given
    if isinstance(given := arm.get("differs"), list):
        found["differs"] = [one for key in given for one in _keys(key, counts)]
    return found


def _keys(key: Any, counts: Mapping[str, int]) -> list[Any]:
    name, dot, rest = str(key).partition(".")
    return [key, *(f"{round_name(name, n)}{dot}{rest}" for n in range(2, counts.get(name, 1) + 1))]


def _later(stage: Any, number: int) -> Any:
    """A stage in a later round."""
    row = KINDS.get(str(stage.get("kind"))) if isinstance(stage, dict) else None
    if row is None or "seed" not in row.spec.model_fields:
        return stage
    seed = stage.get("seed", 0)
    return {**stage, "seed": seed + SEED_STRIDE * (number - 1)} if isinstance(seed, int) else stage


# -- arms that are repeated with another trainer -------------------------------------------------------------------------------


def with_twins(tree: Tree, place: KeyPlace) -> Tree:
    """The study with the arms of `replicate_with`, each behind the arm that it repeats. Raises UserError. What has not the form
    of the schema is left for the schema."""
    given, stages, arms = tree.get("arms"), tree.get("stages"), dict[str, Any]()
    if not isinstance(given, dict) or not isinstance(stages, dict):
        return tree
    for name, arm in given.items():
        arms[name] = arm
        trainer = arm.get("replicate_with") if isinstance(arm, dict) else None
        if trainer not in [one for row in KINDS.values() for one in row.trainers]:
            continue
        spot, twin = place.key("arms", name, "replicate_with"), f"{name}_{trainer}"
        able, changes = _with_trainer(trainer, stages, arm.get("path")), arm.get("set", {})
        if able is None or not isinstance(changes, dict):
            continue
        if twin in given:
            raise spot.error(f"adds {twin}, which is there; rename that arm", trainer)
        if not able:
            raise spot.error("no stage of its path has it; take it away", trainer)
        own = {"control": name, "set": {**changes, **{f"{stage}.trainer": trainer for stage in able}}}
        label = {"label": f"{arm['label']} ({trainer})"} if arm.get("label") else {}
        arms[twin] = {**arm, **own, **label, "replicate_with": None, "color": "", "differs": [], "coincides": ""}
    return {**tree, "arms": arms}


def _with_trainer(trainer: str, stages: Tree, path: Any) -> list[str] | None:
    """The stages of a path whose kinds have this trainer; None where the kind of one is not known."""
    names = [split_part(part)[0] for part in path if isinstance(part, str)] if isinstance(path, list) else []
    entries = {name: stages.get(name) for name in names}
    kinds = {name: str(entry.get("kind")) for name, entry in entries.items() if isinstance(entry, dict)}
    if not names or any(kinds.get(name) not in KINDS for name in names):
        return None
    return [name for name, kind in kinds.items() if trainer in KINDS[kind].trainers]
