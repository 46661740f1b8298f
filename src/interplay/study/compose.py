"""Hydra composes one study at one scale, once; pydantic makes it typed. Everything after works on the typed study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from interplay.core.model import KeyPlace, UserError, nearest_name, parse_model
from interplay.data.spec import is_whole
from interplay.kinds.study_keys import OwnTrainerReferences
from interplay.study import files, locate, spec
from interplay.train.spec import OwnTrainerSpec

LIMITS = ("max_gpu_hours", "max_hours")
"""Keys of `snakemake --config` that refuse a launch which would take longer."""


def studies(configs: Path) -> list[str]:
    """Names of all studies: the paths below `configs/study`, without the ending."""
    return _names(configs / "study")


def scales(configs: Path) -> list[str]:
    """Names of all scales."""
    return _names(configs / "scale")


def chosen(configs: Path, config: Mapping[str, Any]) -> tuple[list[str], str]:
    """The studies and the scale to build: from the command line's `study=` and `scale=`, else from `configs/config.yaml`."""
    known = ["study", "scale", *LIMITS]
    if unknown := sorted(set(config) - set(known)):
        raise _given(configs, config, unknown[0]).error(f"unknown key '{unknown[0]}'{nearest_name(unknown[0], known)}")
    given = {key: _text(configs, config, key) for key in ("study", "scale") if key in config}
    if len(given) == 2:
        return given["study"].split(","), given["scale"]
    studies, scale = _defaults(configs)
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


def limits(config: Mapping[str, Any]) -> dict[str, float]:
    """Hours that a launch may need at most, as given on the command line. Raises UserError when one is not a number."""
    return {key: _hours(key, config[key]) for key in LIMITS if key in config}


def _hours(key: str, value: Any) -> float:
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = -1.0
    if not hours >= 0:
        raise KeyPlace("--config", (key,)).error("must be a number of hours", value)
    return hours


def load(configs: Path, study: str, scale: str) -> tuple[spec.Study, spec.Scale]:
    """Compose and validate. Raises UserError in one line for anything that is not as the schema says."""
    _known(configs / "study", study)
    _known(configs / "scale", scale)
    tree = _compose(configs, study, scale)
    places = {"study": KeyPlace(f"{configs.name}/study/{study}.yaml"), "scale": KeyPlace(f"{configs.name}/scale/{scale}.yaml")}
    for group, place in places.items():
        if not isinstance(tree.get(group), dict):
            raise place.error("must hold keys and values, such as `question: ...`, and no `# @package` line")
    study_given = _at_scale(own_trainers(tree["study"]), scale)
    typed = parse_model(spec.Study, study_given, places["study"])
    for name in typed.scales:
        if name not in scales(configs):
            raise places["study"].key("scales", name).error(f"no such scale{nearest_name(name, scales(configs))}")
    return typed, _changed(parse_model(spec.Scale, tree["scale"], places["scale"]), typed.scales.get(scale))


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
            entry = {**known, "kind": "custom", "function": kind, "options": {**options, **known.get("options", {})}}
        made[name] = entry
    return {**tree, "stages": made}


def _at_scale(tree: dict[str, Any], scale: str) -> dict[str, Any]:
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
    here, and `check.names` names it."""
    if not isinstance(entries, dict) or not isinstance(changes, dict):
        return entries
    merged = {
        name: {**old, **changes[name]} if isinstance(old, dict) and isinstance(changes.get(name), dict) else old
        for name, old in entries.items()
    }
    new = {name: change for name, change in changes.items() if name not in entries and isinstance(change, dict)}
    return {**merged, **{name: change for name, change in new.items() if is_whole(change)}}


def _changed(scale: spec.Scale, change: spec.ScaleChange | None) -> spec.Scale:
    """The scale as the study changes it."""
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
        }
    )


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml") if path.is_file())


def _known(folder: Path, name: str) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; run from the root of the project")
    known = _names(folder)
    if name not in known:
        file = f"{folder.parent.name}/{folder.name}/{name[:80]}.yaml"
        plain = name.removesuffix(".yaml").removeprefix(f"{folder.parent.name}/{folder.name}/")
        raise UserError(f"{folder.name}={name[:80]}: no file {file}{nearest_name(plain, known)}")


def _compose(configs: Path, study: str, scale: str) -> dict[str, Any]:
    # Imported here: Hydra costs 0.1 s that a job, which never composes, need not pay.
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    files.confined(configs, {"study": study, "scale": scale})
    OmegaConf.register_new_resolver("oc.env", _no_environment, replace=True)
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(configs.resolve())):
            composed = compose("config", overrides=[f"study={study}", f"scale={scale}"])
            _turn_knobs(composed, scale)
            tree = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except Exception as error:  # Hydra and OmegaConf raise exceptions of many types for a broken file
        raise locate.diagnosed(error, configs, study, scale) from None
    return {str(key): value for key, value in tree.items()} if isinstance(tree, dict) else {}


def _no_environment(*name: str) -> str:
    """In place of OmegaConf's `${oc.env:NAME}`: what enters a study enters locks and records, which are shared."""
    raise ValueError(f"${{oc.env:{','.join(name)}}}: environment variables do not enter a study, whose records are shared")


def _turn_knobs(composed: Any, scale: str) -> None:
    """Give the study's `${knobs.NAME}` their values at this scale, before anything takes them up."""
    from omegaconf import DictConfig, OmegaConf, open_dict

    changes = [composed.get("study"), OmegaConf.select(composed, f"study.scales.{scale}")]
    knobs = [change.get("knobs") for change in changes if isinstance(change, DictConfig)]
    with open_dict(composed):
        composed["knobs"] = OmegaConf.merge({}, *(given for given in knobs if isinstance(given, DictConfig)))


def _defaults(configs: Path) -> tuple[list[str], str]:
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
