"""Every YAML key as a pydantic model, digests, and THE table of kinds. No torch."""
