"""The reference page of members of the user's own."""

from collections.abc import Iterator

from interplay.kinds.extensions import examples, shown_signature


def blocks() -> Iterator[str]:
    """For each union the signature, a use and an example."""
    for name, example in examples().items():
        forms = shown_signature(name)
        about = list(dict.fromkeys(what for _, what, _ in forms))
        signatures = "\n".join(f"{' '.join(signature.split())}\n    {' '.join(result.split())}" for signature, _, result in forms)
        parts = [f"## extension: {name}", " ".join(about), f"```\n{signatures}\n```"]
        yield "\n\n".join([*parts, f"```yaml\n{example.use}\n```", f"```python\n{example.code}```"])
