"""A question of another family in another form: multiple choice, with a mask over its answer, or as a statement to judge
(Cog-DRIFT, arXiv:2604.04767). The steps of a solution stay the inner family's to judge; what is said in the end is read here."""

from interplay.tasks.reformulated.chance import chance
from interplay.tasks.reformulated.form import FORMATS, Form, dumps, loads
from interplay.tasks.reformulated.surface import render
from interplay.tasks.reformulated.verify import verify

__all__ = ["FORMATS", "Form", "chance", "dumps", "loads", "render", "verify"]
