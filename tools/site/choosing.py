"""The page on which RL method to take: docs/data/choosing.yaml, and what each method changes and costs, of its settings."""

from collections.abc import Iterator
from pathlib import Path

from interplay.rl.spec import Method
from tools.reference import lists
from tools.reference.cells import cell


def page(root: Path) -> str:
    """The page's Markdown."""
    known = lists.methods(root)
    parts = [*lists.TEXTS["choosing"], "| what you see | methods | why |\n| --- | --- | --- |"]
    for row in lists.choices(root):
        names = ", ".join(f"[{name}](../methods/{name}.md)" for name in row.methods)
        parts[-1] += f"\n| {cell(row.see)} | {names} | {cell(row.why)} |"
    parts += [
        "## What each one changes, and what it costs",
        "| method | differs from grpo in | needs in addition |\n| --- | --- | --- |",
    ]
    for name, method in known.items():
        seams = ", ".join(lists.differing(method, known["grpo"])) or "–"
        parts[-1] += f"\n| [{name}](../methods/{name}.md) | {seams} | {', '.join(needs(method, known['grpo'])) or '–'} |"
    return "\n\n".join(parts) + "\n"


def needs(method: Method, usual: Method) -> Iterator[str]:
    """What a step costs beyond that of the usual method: models, rollouts, rounds."""
    if method.critic is not None:
        yield "a value network"
    if method.refers():
        yield "a reference model"
    if method.continuation.name != usual.continuation.name:
        yield f"further sampling ({method.continuation.name})"
    if method.episode.name != usual.episode.name:
        yield f"episodes of kind {method.episode.name}"
    if any(edit.name == "dynamic_sampling" for edit in method.edits):
        yield "up to several times the rollouts of a step"
    passes = getattr(method.loss, "num_iterations", 1)
    if passes > 1:
        yield f"{passes} passes over each batch"
