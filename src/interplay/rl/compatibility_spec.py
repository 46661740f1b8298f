"""Which members of RL's seams go together: they declare capabilities (`NEEDS`, `PROVIDES`, `REFUSES`), which one rule checks."""

from collections.abc import Iterable, Mapping, Sequence

from interplay.core.extension import Extension
from interplay.core.model import Model

CAPABILITIES = {
    "begun_completions": "begins completions itself",
    "critic": "estimates the value of each token",
    "distillation": "learns from a teacher over all tokens",
    "first_turn": "has a first turn for first_turn_beta",
    "equal_groups": "samples equally many completions of every prompt",
    "every_prompt": "draws every prompt once per epoch",
    "extra_draws": "may draw several times a step",
    "bare_prompts": "samples from the prompts as they are",
    "game_payoff": "pays what a game pays",
    "one_round": "keeps one round of completions",
    "other_completions": "adds completions that were not sampled in this step",
    "other_text": "samples from another text than the one that is learnt",
    "pass_rates": "expects a pass rate of each prompt",
    "reads_critic": "reads the values of a critic",
    "reads_rollouts": "reads more of a completion than its advantage",
    "seats": "plays the seats of a game",
    "sequence_ratios": "has one ratio per completion (importance_sampling_level: sequence; write token)",
    "several_turns": "has several turns",
    "shaped_rewards": "adds a term to rewards",
    "shown_attempts": "shows own attempts in the context",
    "single_completions": "samples one completion a prompt (num_generations = 1; give 2 at least)",
    "spans": "judges parts of a completion",
    "stateful_steps": "keeps a state from step to step",
    "steps": "has an advantage for each reasoning step",
    "teacher_context": "gives the teacher of a loss its context",
    "varied_attempts": "shows different attempts to a group, or compares rewards across groups",
    "windowed_turns": "reads a window of its turns (window; write null)",
}
"""Capability -> what a member that provides it does."""

Members = Sequence[tuple[str, Model]]
"""Each chosen member with its place, such as `method.loss = clipped`."""


def check_compatibility(members: Members, seams: Mapping[str, Iterable[type[Model]]]) -> str | None:
    """Why members do not go together, in one line; None: they do. `seams`: the classes of each seam, for the remedy."""
    provided = {word for _, member in members for word in member.provides()}
    for place, member in members:
        for word in sorted(member.needs() - provided):
            return f"{place} needs a member that {CAPABILITIES[word]}{_remedy(word, seams)}"
    for place, member in members:
        for other, another in members:
            if refused := sorted(member.refuses() & another.provides()):
                return f"{place} does not go with {other}, which {CAPABILITIES[refused[0]]}; change one of them"
    return None


def _remedy(word: str, seams: Mapping[str, Iterable[type[Model]]]) -> str:
    """`; write method.sampler = pcl or phases`: the members that provide a capability with any options."""
    found = {
        seam: [one.model_fields["name"].default for one in classes if word in one.PROVIDES and not issubclass(one, Extension)]
        for seam, classes in seams.items()
    }
    return "".join(f"; write {seam} = {', '.join(names)}" for seam, names in found.items() if names)
