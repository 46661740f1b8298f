"""Choices made in a word: settings by the name of a file (`rl.method: gspo` is configs/method/gspo.yaml), in a stage, a scale, an
arm's `set` or an axis; keys of a study that the command line gives (`interplay plan edge rl.method=gspo`); and the studies and
the scale to build."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interplay.core.keys import group_of
from interplay.core.model import KeyPlace, Model, UserError, nearest_name
from interplay.kinds.table import KINDS, MODELS
from interplay.study import arms, files
from interplay.study.spec import MOST_REPLICATES, SEED, Study

Tree = dict[str, Any]
LIMITS = ("max_gpu_hours", "max_hours")
"""Keys of `snakemake --config` that refuse a launch which would take longer."""
SHARED_MINUTES = "shared_minutes"
"""Key of `configs/slurm.yaml`."""
Choose = Callable[[str, str, KeyPlace], Any]
"""(group, name, key) -> the settings of the file."""


# -- the number of replicates ------------------------------------------------------------------------------------------------


def with_replicates(tree: Tree, scale: str, replaces: bool = False) -> Tree:
    """The study with `replicates: N`, of it or of it at this scale, written out as `seeds`: 0 to N - 1 for every stage that is
    trained, in place of other seeds where it `replaces` them. What has not the form of the schema is left for the schema."""
    scales = _entries(tree, "scales")
    count, own = _entries(scales, scale).get("replicates", tree.get("replicates")), tree.get("seeds") is not None
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_REPLICATES or (own and not replaces):
        return tree
    stages = {name: stage for name, stage in _entries(tree, "stages").items() if isinstance(stage, dict)}
    vary = [name for name, stage in stages.items() if _is_seeded(stage)]
    others = {name: _without(change) if isinstance(change, dict) else change for name, change in scales.items()}
    more = {"scales": others} if others else {}
    return {**_without(tree), **more, "seeds": {"values": [*range(count)], "vary": vary}}


def _without(tree: Tree) -> Tree:
    return {key: value for key, value in tree.items() if key != "replicates"}


def _is_seeded(stage: Tree) -> bool:
    """Whether a stage leaves a model that depends on a seed."""
    kind = stage.get("kind")
    if kind not in MODELS:
        return False
    return "seed" in KINDS[kind].spec.model_fields or SEED in str(stage.get("path", ""))


# -- settings by the name of a file --------------------------------------------------------------------------------------------


def fill_names(tree: Tree, configs: Path, study: KeyPlace, scale: KeyPlace) -> Tree:
    """The composed tree with the settings of files in place of their names. Raises UserError for a name of no file. What has not
    the form of the schema is left for the schema to refuse."""

    def choose(group: str, name: str, place: KeyPlace) -> arms.Named:
        return _settings(configs, group, name, place)

    found = dict(tree)
    if isinstance(given := tree.get("study"), dict):
        found["study"] = _of_study(given, configs, choose, study)
    if isinstance(given := tree.get("scale"), dict):
        found["scale"] = {**given, **_kinds(given, choose, scale)}
    return found


def _settings(configs: Path, group: str, name: str, place: KeyPlace) -> arms.Named:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if name not in (known := names(configs / group)):
        raise place.error(f"no file {configs.name}/{group}/{name[:80]}.yaml{nearest_name(name, known)}", name)
    path = configs / group / f"{name}.yaml"
    if files.item(files.read(configs, path), "defaults") is not None:
        remedy = f"take it in under defaults, as /{group}@PLACE: {name}"
        raise place.error(f"{files.place_of(configs, path).file} includes other files; {remedy}", name)
    try:
        return arms.Named(name, OmegaConf.to_container(OmegaConf.load(path), resolve=True))
    except OmegaConfBaseException as error:
        raise files.place_of(configs, path).error(str(error).splitlines()[0]) from None


def names(folder: Path) -> list[str]:
    """Names of the files of a folder and of those below it: their paths without the ending."""
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml") if path.is_file())


@cache
def named_keys(spec: type[Model]) -> dict[str, str]:
    """Dotted keys of a spec that may hold the name of a file, outer ones first -> the group of the file."""
    found = {}
    for key, field in spec.model_fields.items():
        if group := group_of(field):
            found[key] = group
        if isinstance(field.annotation, type) and issubclass(field.annotation, Model):
            found |= {f"{key}.{inner}": group for inner, group in named_keys(field.annotation).items()}
    return found


def _of_study(tree: Tree, configs: Path, choose: Choose, place: KeyPlace) -> Tree:
    kinds = {name: entry.get("kind") for name, entry in _entries(tree, "stages").items() if isinstance(entry, dict)}
    for name, kind in kinds.items():
        if isinstance(kind, str) and kind not in KINDS and kind in names(configs / "method"):
            at = place.key("stages", name, "kind")
            raise at.error(f"'{kind}' is a method of RL; write kind: rl, method: {kind}", kind)
    found = {**tree, **_parts(tree, kinds, choose, place)}
    for scale, change in _entries(tree, "scales").items():
        if isinstance(change, dict):
            at = place.key("scales", scale)
            change = {**change, **_parts(change, kinds, choose, at), **_kinds(change, choose, at)}
            found["scales"] = {**found["scales"], scale: change}
    for name, arm in _entries(tree, "arms").items():
        if isinstance(arm, dict):
            found["arms"] = {**found["arms"], name: _arm(arm, kinds, choose, place.key("arms", name))}
    return found


def _parts(tree: Tree, kinds: Mapping[str, Any], choose: Choose, place: KeyPlace) -> Tree:
    """What a study and its changes at a scale have in common: task, stages and problem sets."""
    found = _within(tree, "", named_keys(Study), choose, place)
    found = {key: found[key] for key in named_keys(Study) if key in found}
    for part, keys in (("stages", kinds), ("data", dict.fromkeys(_entries(tree, "data"), "data"))):
        if entries := _entries(tree, part):
            found[part] = {
                name: _within(entry, "", _keys_of(keys.get(name)), choose, place.key(part, name))
                for name, entry in entries.items()
            }
    return found


def _keys_of(kind: Any) -> Mapping[str, str]:
    if kind == "data":
        return {"task": "task"}
    return named_keys(KINDS[kind].spec) if isinstance(kind, str) and kind in KINDS else {}


def _kinds(tree: Tree, choose: Choose, place: KeyPlace) -> Tree:
    """Keys of kinds, which a scale gives."""
    entries = _entries(tree, "kinds")
    return {
        "kinds": {kind: _within(entry, "", _keys_of(kind), choose, place.key("kinds", kind)) for kind, entry in entries.items()}
    } if entries else {}  # fmt: skip


def _arm(arm: Tree, kinds: Mapping[str, Any], choose: Choose, place: KeyPlace) -> Tree:
    def at_key(dotted: str, value: Any, here: KeyPlace) -> Any:
        stage, _, rest = dotted.partition(".")
        return _within(value, rest, _keys_of(kinds.get(stage)), choose, here)

    def each(entries: Any, here: KeyPlace) -> Any:
        """Lists of values by key."""
        if not isinstance(entries, dict):
            return entries
        return {
            key: [at_key(key, item, here.key(key)) for item in values] if isinstance(values, list) else values
            for key, values in entries.items()
        }

    found = dict(arm)
    if isinstance(given := arm.get("set"), dict):
        found["set"] = {key: at_key(key, value, place.key("set", key)) for key, value in given.items()}
    for part in ("grid", "zip", "one_at_a_time"):
        if part in arm:
            found[part] = each(arm[part], place.key(part))
    for key, axis in _entries(arm, "nested").items():
        if isinstance(axis, dict):
            at = place.key("nested", key)
            more = each({key: axis.get("values")}, at)
            found["nested"] = {**found["nested"], key: {**axis, "values": more[key], "under": each(axis.get("under"), at)}}
    if isinstance(given := arm.get("exclude"), list):
        found["exclude"] = [
            {key: at_key(key, value, place.key("exclude", number, key)) for key, value in entry.items()}
            if isinstance(entry, dict) else entry
            for number, entry in enumerate(given)
        ]  # fmt: skip
    return found


def _within(value: Any, at: str, keys: Mapping[str, str], choose: Choose, place: KeyPlace) -> Any:
    """The value at a dotted key of a spec (empty: the spec itself) with the settings of the files that it names."""
    if isinstance(value, str):
        return choose(keys[at], value, place) if at in keys else value
    if not isinstance(value, dict) or isinstance(value, arms.Named):
        return value
    inner = {key.partition(".")[0] for key in (key.removeprefix(f"{at}." if at else "") for key in keys if _below(key, at))}
    return {
        key: _within(item, f"{at}.{key}" if at else key, keys, choose, place.key(key)) if key in inner else item
        for key, item in value.items()
    }


def _below(key: str, at: str) -> bool:
    return not at or key.startswith(f"{at}.")


def _entries(tree: Tree, key: str) -> Tree:
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


# -- keys on the command line --------------------------------------------------------------------------------------------------

COMMAND_LINE = "command line"
"""In messages, in place of a file."""
CHANGED = {"replicates": 1, "stages": 3, "data": 3, "knobs": 2, "task": 1, "tokenizer": 1}
"""Parts of a study that its scales change, and how many keys lead to what a scale replaces whole."""


class Given(NamedTuple):
    """`KEY=VALUE` as the command line has it."""

    text: str
    key: str
    value: Any


def parse_given(texts: Iterable[str]) -> list[Given]:
    """`rl.steps=10`, in Hydra's grammar. Raises UserError."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, found = OverridesParser.create(), list[Given]()
    for text in texts:
        place = KeyPlace(COMMAND_LINE, (text,))
        if "=" not in text or text.startswith(("~", "=")):
            raise place.error("must be KEY=VALUE, such as rl.steps=10 or rl.method=gspo")
        if "@" in text.partition("=")[0] or text.startswith("/"):
            raise place.error("groups are chosen by their key here; write rl.method=gspo or task=op_dag_prose")
        try:
            read = parser.parse_override(text)
        except HydraException as error:
            why = str(error).splitlines()[0]
            raise place.error(f"not read as KEY=VALUE ({why}); quote a value with blanks or signs") from None
        if read.is_sweep_override():
            raise place.error("several values; give an arm a grid, or a list in brackets")
        if str(read.key_or_group) in [one.key for one in found]:
            raise place.error("its key is given twice; keep one of them")
        found.append(Given(text, str(read.key_or_group), read.value()))
    return found


def given_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys of studies in `--config set="rl.steps=10 rl.method=gspo"`, or in a list of such texts. Raises UserError."""
    found = config.get("set", [])
    if not isinstance(found, (str, list)) or not all(isinstance(item, str) for item in found):
        raise KeyPlace("--config", ("set",)).error('must be KEY=VALUE, such as set="rl.steps=10 rl.method=gspo"', found)
    try:
        return shlex.split(found) if isinstance(found, str) else found
    except ValueError as error:
        raise KeyPlace("--config", ("set",)).error(f"{error}; close the quotation", found) from None


def with_given(tree: Tree, given: Iterable[Given], scale: str) -> Tree:
    """The study with these keys put in place, which win over what it changes at the scale. `KEY` is that of a stage, as in an
    arm's `set`, or one of the study itself. Raises UserError where the study has no such key."""
    known = [*_entries(tree, "stages"), *Study.model_fields]
    for one in given:
        place, first = KeyPlace(COMMAND_LINE, (one.key,)), one.key.partition(".")[0]
        if first not in known:
            remedy = nearest_name(first, known)
            raise place.error(f"no stage and no key of the study is called '{first}'{remedy}")
        keys = _keys_of_given(one)
        inner = keys[0] in ("stages", "data", "arms", "tables", "figures") and len(keys) > 2
        if inner and keys[1] not in (parts := _entries(tree, keys[0])):
            raise place.error(f"the study has no {keys[0]}.{keys[1]}{nearest_name(keys[1], parts)}")
        replaced = ("scales", scale, *keys[: CHANGED.get(keys[0], 0)])
        at = ("scales", scale, *keys) if keys[0] in CHANGED and _has(tree, replaced) else keys
        tree = dict(arms.put_value(tree, list(at), one.value, place))
    return tree


def _keys_of_given(given: Given) -> tuple[str, ...]:
    first, *rest = given.key.split(".")
    keys = (first, *rest) if first in Study.model_fields else ("stages", first, *rest)
    if keys[0] == "arms" and len(keys) > 4:  # arms.NAME.set.STAGE.KEY: the key of `set` has the dots
        return (*keys[:3], ".".join(keys[3:]))
    return keys


def _has(tree: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True


def on_command_line(error: UserError, given: Iterable[Given]) -> UserError | None:
    """The error, where it is about a key that the command line gives; else None."""
    if (place := error.place) is None:
        return None
    for one in given:
        keys = _keys_of_given(one)
        if place.keys[: len(keys)] == keys:
            shown = KeyPlace(COMMAND_LINE, (*one.key.split("."), *place.keys[len(keys) :]))
            return type(error)(error.problem, shown, error.value)
    return None


def hour_limits(config: Mapping[str, Any]) -> dict[str, float]:
    """Hours that a launch may need at most, as given on the command line. Raises UserError when one is not a number."""
    return {key: _number(config[key], "hours", KeyPlace("--config", (key,))) for key in LIMITS if key in config}


def shared_minutes(config: Mapping[str, Any], configs: Path = Path("configs")) -> float:
    """Minutes of a Slurm job that several short stages share; 0: none do. Raises UserError when it is not a number."""
    place = _given(configs, config, SHARED_MINUTES) if SHARED_MINUTES in config else KeyPlace(configs.name)
    return _number(config.get(SHARED_MINUTES, 0), "minutes", place)


def _number(value: Any, unit: str, place: KeyPlace) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not number >= 0:
        raise place.error(f"must be a number of {unit}, 0 or more", value)
    return number


# -- the studies and the scale ------------------------------------------------------------------------------------------------


def chosen(configs: Path, config: Mapping[str, Any]) -> tuple[list[str], str]:
    """The studies and the scale to build: from the command line's `study=` and `scale=`, else from `configs/config.yaml`."""
    known = ["study", "scale", "set", "finished", SHARED_MINUTES, *LIMITS]
    if unknown := sorted(set(config) - set(known)):
        raise _given(configs, config, unknown[0]).error(f"unknown key '{unknown[0]}'{nearest_name(unknown[0], known)}")
    given = {key: _text(configs, config, key) for key in ("study", "scale") if key in config}
    if len(given) == 2:
        return given["study"].split(","), given["scale"]
    studies, scale = default_choice(configs)
    return given["study"].split(",") if "study" in given else studies, given.get("scale", scale)


def _text(configs: Path, config: Mapping[str, Any], key: str) -> str:
    """The name of a scale, or the names of studies with commas between them."""
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not all(str(value).split(",")):
        example = "edge, or edge,ladder for two of them" if key == "study" else "laptop"
        raise _given(configs, config, key).error(f"must be a name, such as {example}", value)
    return str(value)


def _given(configs: Path, config: Mapping[str, Any], key: str) -> KeyPlace:
    """Where a key of Snakemake's configuration comes from: the file that the profile for Slurm reads, else the command line."""
    file = configs / "slurm.yaml"
    try:
        node = files.item(files.read(configs, file), key)
        if node is not None and yaml.safe_load(file.read_text(encoding="utf-8"))[key] == config[key]:
            return files.at_line(files.place_of(configs, file), node).key(key)
    except (UserError, yaml.YAMLError):  # Snakemake has read it already, or was not asked to
        pass
    return KeyPlace("--config", (key,))


def default_choice(configs: Path) -> tuple[list[str], str]:
    """Studies and scale of `configs/config.yaml`."""
    root, place = files.read(configs, configs / "config.yaml"), files.place_of(configs, configs / "config.yaml")
    listed, entries = files.item(root, "studies"), files.item(root, "defaults")
    scales = [files.item(entry, "scale") for entry in (entries.value if isinstance(entries, yaml.SequenceNode) else [])]
    scale = next((node.value for node in scales if isinstance(node, yaml.ScalarNode)), None)
    if listed is None or scale is None:
        raise place.error("must hold studies: [name, ...] and, in its defaults, scale: name")
    names = [node.value for node in listed.value if isinstance(node, yaml.ScalarNode)] if listed.id == "sequence" else []
    if not names or len(names) < len(listed.value) or not all(names):
        raise files.at_line(place, listed).key("studies").error("must be a list of names, such as [quickstart]")
    return names, str(scale)
