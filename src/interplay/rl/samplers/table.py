"""The table of samplers, by the `name` of their spec."""

from collections.abc import Callable
from typing import Any

from interplay.rl import custom
from interplay.rl.samplers.ada_rft import AdaRft
from interplay.rl.samplers.edge import EdgeOfCompetence
from interplay.rl.samplers.format_ladder import FormatLadder
from interplay.rl.samplers.gain_rl import GainRl
from interplay.rl.samplers.mixture import LearnedMixture
from interplay.rl.samplers.paced import PacedSampler
from interplay.rl.samplers.pcl import Pcl
from interplay.rl.samplers.phases import Phases
from interplay.rl.samplers.retain import RetainHardest
from interplay.rl.samplers.sampler import Deck, Sampler
from interplay.rl.samplers.single_stream import SingleStream
from interplay.rl.samplers.uniform import Uniform

MEMBERS: dict[str, Callable[[Any, Deck], Sampler]] = {
    "uniform": Uniform,
    "easy_to_hard": PacedSampler,
    "hard_first": PacedSampler,
    "edge_of_competence": EdgeOfCompetence,
    "single_stream": SingleStream,
    "retain_hardest": RetainHardest,
    "phases": Phases,
    "learned_mixture": LearnedMixture,
    "pcl": Pcl,
    "gain_rl": GainRl,
    "ada_rft": AdaRft,
    "format_ladder": FormatLadder,
    "custom": custom.Sampler,
}


def sampler(spec: Any, deck: Deck) -> Sampler:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, deck)
