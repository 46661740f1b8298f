"""What Slurm is asked for beyond a stage's `run` block, from `configs/site.yaml`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from interplay.schema.base import UserError, parse
from interplay.schema.site import Site

if TYPE_CHECKING:
    import yaml


def load(configs: Path) -> Site:
    """The site, or the usual one where the file is missing or empty. Raises UserError in one line where it is wrong."""
    import yaml

    from interplay.study import files

    path = configs / "site.yaml"
    if not path.exists():
        return Site()
    root, shown = files.read(configs, path), files.name_of(configs, path)
    try:
        tree = yaml.SafeLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise files.not_yaml(error, shown) from None
    except ValueError as error:  # such as a date that no calendar has
        raise UserError(f"{shown}: not readable: {error}") from None
    try:
        return parse(Site, tree, shown)
    except UserError as error:
        told = str(error).removeprefix(f"{shown}: ")
        named = _named(told, root)
        raise UserError(f"{shown}:{files.line(named)}: {told}" if named else str(error)) from None


def _named(told: str, root: "yaml.MappingNode") -> "yaml.Node | None":
    """The key that a message starts with."""
    named = [key for key, _ in root.value if told.startswith(str(key.value))]
    return max(named, key=lambda key: len(str(key.value)), default=None)


def partition(site: Site, gpus: int) -> str:
    """Partition of a stage; empty: the cluster's own choice."""
    return (site.gpu_partition if gpus and site.gpu_partition else site.partition) or ""


def named(site: Site) -> dict[str, str]:
    """What Snakemake's executor knows by resources of their own -> the site's; what the site leaves open is not among them, since
    an empty name would be handed to `sbatch`."""
    told = {"slurm_account": site.account, "qos": site.qos, "constraint": site.constraint}
    return {name: value for name, value in told.items() if value}


def extra(site: Site) -> str:
    """Options of `sbatch` for every stage, as a shell reads them."""
    return shlex.join([f"--signal=USR1@{site.warn_seconds}", *site.options])
