"""What Slurm is asked for beyond a stage's `run` block, from `configs/site.yaml`."""

from pathlib import Path

from interplay.schema.base import UserError, parse
from interplay.schema.site import Site


def load(configs: Path) -> Site:
    """The site, or the usual one where the file is missing or empty. Raises UserError in one line where it is wrong."""
    import yaml

    path, shown = configs / "site.yaml", f"{configs.name}/site.yaml"
    if not path.exists():
        return Site()
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{shown}: not readable: {error}") from None
    return parse(Site, {} if tree is None else tree, shown)


def partition(site: Site, gpus: int) -> str:
    """Partition of a stage; empty: the cluster's own choice."""
    return (site.gpu_partition if gpus and site.gpu_partition else site.partition) or ""


def extra(site: Site) -> str:
    """Options of `sbatch` for every stage."""
    named = {"account": site.account, "qos": site.qos}
    told = [f"--{name}={value}" for name, value in named.items() if value]
    return " ".join([f"--signal=USR1@{site.warn_seconds}", *told, *site.options])
