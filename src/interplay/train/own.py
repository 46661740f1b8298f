"""Trainers of the user's own: the kind `custom`, which a study writes as `kind: "file.py:Name"` (core.extension)."""

import math
from pathlib import Path
from typing import Any

from interplay.core import execution, extension, model
from interplay.model.folder import load_decoder
from interplay.train.spec import OwnTrainerSpec


def run(spec: OwnTrainerSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Call `function(spec, inputs, out, how, **options) -> metrics`. The function writes the model to `out/model` in the format
    of Hugging Face; `inputs` are folders by role: `init` (a model, in `init/model`) and `data.<i>` (problem sets). Metrics: those
    returned, `tokens` (the budget, unless returned) and `parameters`. Raises UserError where metrics are no finite numbers or no
    model is left."""
    made = extension.call(spec, spec, inputs, out, how)
    wrong = not isinstance(made, dict) or [name for name, value in made.items() if not _is_metric(name, value)]
    if wrong:
        what = f"{wrong[0]!r} is none" if isinstance(wrong, list) else f"it returned {type(made).__name__}"
        raise model.UserError(f"{spec.function}: must return metrics, finite numbers by name; {what}")
    decoder = load_decoder(out / "model")
    return {"tokens": spec.tokens, "parameters": sum(weight.numel() for weight in decoder.parameters()), **made}


def _is_metric(name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, (int, float)) and math.isfinite(value)
