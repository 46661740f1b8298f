"""The table of curation steps, by the `name` of their spec."""

from collections.abc import Callable
from typing import Any

from interplay.data.steps.sift import take
from interplay.data.steps.step import Inputs, Made
from interplay.tasks.row import Row

STEPS: dict[str, Callable[[Any, list[Row], Inputs], Made]] = {"take": take}
