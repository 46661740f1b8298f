"""Which members of the RL seams go together, checked when a study is planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interplay.rl.edits.spec import Demonstrations, DynamicSampling, InformationMask, Replay
from interplay.rl.rewards.spec import OF_SPANS
from interplay.rollout.spec import CompletionEpisode, SelfPlayEpisode

if TYPE_CHECKING:
    from interplay.rl.spec import Method, RLSpec


ADVANTAGES = ("turn_returns", "igpo")
"""Advantages of turns."""
SHAPINGS = ("attempts", "improvement")
"""Shapings that read turns."""
PER_COMPLETION = {"overlong": "one completion's length", "units": "one completion's units"}
"""Shapings that make no sense of several turns -> what they look at."""
OTHER_TEXT = ("guide", "icpo", "critique")
"""Promptings and continuations that credit completions to another text than they were sampled from."""
BEGINS = ("prefix", "tree", "windows")
"""Those that judge a completion with what it was begun with."""
SHOWING = ("exit", "shown_attempt")
"""Continuations that show own attempts."""
WITHIN_GROUP = ("group", "leave_one_out", "length_baseline")
"""Advantages that know nothing of a reward but how it differs from those of its group."""


def check_compatibility(spec: RLSpec) -> str | None:
    """Why members of a method do not go with each other, in one line; None: they do."""
    return (
        check_feedback(spec)
        or check_segments(spec)
        or check_nucleus(spec)
        or check_information_mask(spec)
        or check_attempts(spec)
        or check_episode(spec)
    )


def beginning(method: Method) -> str:
    """The member that begins completions itself; empty if there is none."""
    return _first_of(method, BEGINS)


def _first_of(method: Method, names: Sequence[str]) -> str:
    """The prompting or continuation of these names, as `method.<seam> = <name>`; empty if there is none."""
    chosen = {"prompting": method.prompting.name, "continuation": method.continuation.name}
    return next((f"method.{seam} = {name}" for seam, name in chosen.items() if name in names), "")


def check_feedback(spec: RLSpec) -> str | None:
    """Why a planner's feedback does not reach a loss that learns from it."""
    tells, hears = spec.method.continuation.name == "feedback", spec.method.loss.name == "distil"
    if hears and not tells:
        given = spec.method.continuation.name
        return f"method.loss = distil: its teacher reads nothing from the continuation {given}; write feedback"
    if tells and not hears:
        return f"method.continuation = feedback: the loss {spec.method.loss.name} does not read it; write none, or distil"
    if tells and (adds := off_policy_edit(spec)):
        return f"method.edits: {adds} adds completions that the continuation feedback tells nothing of; take it away"
    return None


def check_segments(spec: RLSpec) -> str | None:
    """Why there are no steps to learn from where a loss is of steps."""
    if spec.method.loss.name == "direct_advantage" and spec.method.advantage.name != "segments":
        return f"method.loss = direct_advantage: the advantage {spec.method.advantage.name} has no steps; write segments"
    return None


def check_nucleus(spec: RLSpec) -> str | None:
    """Why there would be tokens that were not sampled in the nucleus which they are learnt in."""
    method = spec.method
    if method.decoding is None or method.decoding.name != "lagged_nucleus":
        return None
    if other := _first_of(method, OTHER_TEXT):
        return f"{other} samples from another text than lagged_nucleus masks for; take it away"
    if adds := off_policy_edit(spec):
        return f"method.edits: {adds} adds completions that lagged_nucleus did not sample; take it away"
    if method.loss.name == "distil":
        return "method.loss = distil: its teacher is of all tokens, and lagged_nucleus masks some; take that away"
    return None


def check_information_mask(spec: RLSpec) -> str | None:
    """Why an edit that goes by what a completion says cannot tell which of its tokens say it."""
    method = spec.method
    if not any(isinstance(edit, InformationMask) for edit in method.edits):
        return None
    reads, name = "method.edits: information_mask reads one whole completion", method.episode.name
    if not isinstance(method.episode, CompletionEpisode):
        return f"{reads}; the episode {name} has several, in which what is read bears no loss anyway; take it away"
    if begins := beginning(method):
        return f"{reads}; {begins} begins them; take it away"
    return None


def off_policy_edit(spec: RLSpec) -> str:
    """The first edit that trains on completions which were not sampled in the step; empty if there is none."""
    return next((edit.name for edit in spec.method.edits if isinstance(edit, Replay | Demonstrations)), "")


def check_attempts(spec: RLSpec) -> str | None:
    """Why the planner does not go with who looks at the attempts that it shows, or at the bare prompts that it does not."""
    method, continuation, advantage = spec.method, spec.method.continuation, spec.method.advantage
    shows = continuation.name in SHOWING
    if shows and advantage.name == "tracked":
        return f"method.advantage = tracked expects what bare prompts earn; the continuation {continuation.name} shows attempts"
    if continuation.name == "exit" and any(isinstance(edit, DynamicSampling) for edit in method.edits):
        return "method.continuation = exit draws once a step; leave out dynamic_sampling"
    if not any(shaping.name == "gap" for shaping in method.shaping):
        return None
    if not shows:
        shown = f"the continuation {continuation.name} shows none; write shown_attempt"
        return f"method.shaping: gap reads the attempt in a prompt; {shown}"
    within = advantage.name in WITHIN_GROUP or getattr(advantage, "baseline", "") == "group"
    if within and getattr(continuation, "references", 1) == 1:
        return (
            f"method.shaping: gap takes the same off all rewards of a group, since its completions follow one attempt, and the "
            f"advantage {advantage.name} cancels that; give the continuation shown_attempt two references at least"
        )
    return None


def check_episode(spec: RLSpec) -> str | None:
    """Why the episode does not go with the other members."""
    method = spec.method
    plays = isinstance(method.episode, SelfPlayEpisode)
    if method.advantage.name == "role" and not plays:
        return f"method.advantage = role compares a game's seats, and the episode {method.episode.name} has none; take self_play"
    if plays and spec.reward.name != "payoff":
        return f"reward = {spec.reward.name} is not what a game pays; with the episode self_play write payoff"
    plain = {"allocation": "fixed", "prompting": "plain", "continuation": "none"}
    own = [seam for seam, name in plain.items() if getattr(method, seam).name != name]
    if plays and own:
        changed = f"method.{own[0]} = {getattr(method, own[0]).name}"
        return f"{changed} makes groups of its own; with the episode self_play write {plain[own[0]]}"
    several, name = not isinstance(method.episode, CompletionEpisode), method.episode.name
    other = "; take the episode retry or environment"
    if not several:
        if method.advantage.name in ADVANTAGES:
            return f"method.advantage = {method.advantage.name} is of turns, and the episode completion has one{other}"
        if wrong := next((each.name for each in method.shaping if each.name in SHAPINGS), None):
            return f"method.shaping: {wrong} reads turns, and the episode completion has one{other}"
        if method.loss.first_turn_beta:
            return "method.loss.first_turn_beta is of turns, and the episode completion has one; write beta"
        return None
    if wrong := next((each.name for each in method.shaping if each.name in PER_COMPLETION), None):
        return f"method.shaping: {wrong} looks at {PER_COMPLETION[wrong]}; the episode {name} has several; take it away"
    if adds := off_policy_edit(spec):
        return f"method.edits: {adds} adds completions of one turn; the episode {name} has several; take it away"
    if method.advantage.name == "segments":
        return f"method.advantage = segments samples on within one turn; with the episode {name} write turn_returns"
    if method.continuation.name != "none":
        return (
            f"method.continuation = {method.continuation.name} makes completions of one turn; with the episode {name} write none"
        )
    if method.prompting.name in ("prefix", "icpo"):
        return f"method.prompting = {method.prompting.name} makes completions of one turn; with the episode {name} write plain"
    if spec.reward.name in OF_SPANS or method.advantage.name == "spans":
        reward = spec.reward.name
        return f"reward = {reward} judges parts of one completion; with the episode {name} write outcome, and turn_returns"
    window = getattr(method.episode, "window", None)
    if method.advantage.name == "igpo" and window is not None:
        return f"method.episode.window = {window}: method.advantage = igpo reads whole episodes; write null"
    level = getattr(method.loss, "importance_sampling_level", "token")
    if method.advantage.name in ADVANTAGES and level == "sequence":
        return f"method.advantage = {method.advantage.name} needs importance_sampling_level token: its advantages are of turns"
    return None
