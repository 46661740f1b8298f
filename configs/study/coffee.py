"""The reward of the arm `brief` of coffee.yaml."""


def brief(problems, completions, verdicts, per_character=0.0):
    """1 for a right answer, less a price for every character."""
    return [v.answer - per_character * len(c) for v, c in zip(verdicts, completions, strict=True)]
