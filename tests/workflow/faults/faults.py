"""Rewards that are broken on purpose."""

import random


def shuffled(problems, completions, verdicts):
    """The right rewards, dealt to the wrong completions."""
    rewards = [float(verdict.strict) for verdict in verdicts]
    random.Random("".join(completions)).shuffle(rewards)
    return rewards


def always_yes(problems, completions, verdicts):
    """A verifier that accepts everything."""
    return [1.0] * len(completions)
