"""Cog-DRIFT's reward: 1 for the right answer, and something for form, whatever is answered."""


def reward(problems, completions, verdicts, form=0.2):
    """N floats: right answer plus `form` where there is an answer at all."""
    return [float(verdict.answer) + form * (verdict.error != "truncated") for verdict in verdicts]
