"""Hydra composes one study at one scale, once; pydantic makes it typed. Everything after works on the typed study."""

from pathlib import Path
from typing import Any

from interplay.schema.base import UserError, nearest, parse
from interplay.schema.study import Scale, Study


def studies(configs: Path) -> list[str]:
    """Names of all studies: the paths below `configs/study`, without the ending."""
    return sorted(str(p.relative_to(configs / "study").with_suffix("")) for p in (configs / "study").rglob("*.yaml"))


def scales(configs: Path) -> list[str]:
    """Names of all scales."""
    return sorted(p.stem for p in (configs / "scale").glob("*.yaml"))


def chosen(configs: Path, config: dict[str, Any]) -> tuple[list[str], str]:
    """The studies and the scale to build: from the command line's `study=` and `scale=`, else from `configs/config.yaml`."""
    defaults = _compose(configs, [])
    names = str(config["study"]).split(",") if "study" in config else list(defaults["studies"])
    scale = str(config.get("scale", _default_scale(configs)))
    unknown = sorted(set(config) - {"study", "scale"})
    if unknown:
        raise UserError(f"--config: unknown key '{unknown[0]}'{nearest(unknown[0], ['study', 'scale'])}")
    return names, scale


def load(configs: Path, study: str, scale: str) -> tuple[Study, Scale]:
    """Compose and validate. Raises UserError in one line for anything that is not as the schema says."""
    _known(configs / "study", study)
    _known(configs / "scale", scale)
    tree = _compose(configs, [f"study={study}", f"scale={scale}"])
    where = f"{configs.name}/study/{study}.yaml"
    return parse(Study, tree["study"], where), parse(Scale, tree["scale"], f"{configs.name}/scale/{scale}.yaml")


def _known(folder: Path, name: str) -> None:
    if not (folder / f"{name}.yaml").exists():
        known = [str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml")]
        raise UserError(f"{folder.name}={name}: no file {folder.parent.name}/{folder.name}/{name}.yaml{nearest(name, known)}")


def _compose(configs: Path, overrides: list[str]) -> dict[str, Any]:
    # Imported here: Hydra costs 0.1 s that a job, which never composes, need not pay.
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(configs.resolve())):
            tree = OmegaConf.to_container(compose("config", overrides=overrides), resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise UserError(f"{configs.name}: {' '.join(str(error).split())}") from None
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _default_scale(configs: Path) -> str:
    from omegaconf import OmegaConf

    defaults = OmegaConf.load(configs / "config.yaml").defaults
    return next(str(item["scale"]) for item in defaults if hasattr(item, "get") and "scale" in item)
