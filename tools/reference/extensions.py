"""The reference page of members of the user's own."""

from collections.abc import Iterator

from interplay.kinds.extensions import examples, shown_signature

ABOUT = (
    'A member of your own is named where a built-in one would be, by `name: "file.py:Name"` (a function or class of a file in '
    'the study\'s folder; its text is part of the digest) or `name: "distribution:name"` (a Python entry point in the group '
    "`interplay.<union>` of an installed distribution; its version is part of the digest). Further keys are options: parameters "
    "after those below, or one parameter `options` annotated with a pydantic `Model` that checks them. Signature and options are "
    "checked when the study is planned, from the text alone. [The guide](../guide/extending.md) shows both ways."
)


def blocks() -> Iterator[str]:
    """For each union the signature, a use and an example."""
    for name, example in examples().items():
        forms = shown_signature(name)
        about = list(dict.fromkeys(what for _, what, _ in forms))
        signatures = "\n".join(f"{' '.join(signature.split())}\n    {' '.join(result.split())}" for signature, _, result in forms)
        parts = [f"## extension: {name}", " ".join(about), f"```\n{signatures}\n```"]
        yield "\n\n".join([*parts, f"```yaml\n{example.use}\n```", f"```python\n{example.code}```"])
