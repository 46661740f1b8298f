"""Lines of metrics.jsonl against the names that studies may draw."""

from pathlib import Path

from interplay.core import metrics
from interplay.core.model import Model
from interplay.kinds.table import is_logged


def unknown(kind: str, spec: Model, out: Path) -> set[str]:
    """Keys that a stage logged and that no figure could name."""
    keys = {key for line in metrics.read(out) for key in line} - {"step"}
    assert keys, f"{out} has no metrics"
    return {key for key in keys if not is_logged(kind, spec, key)}
