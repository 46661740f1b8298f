"""The metric of length_depth.yaml."""


def characters(row, completion, verdict):
    """Length of a completion, which on the terse surface is its number of tokens."""
    return len(completion)
