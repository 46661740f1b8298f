"""Edge of competence: prompts that pass about half of the time."""

from collections.abc import Sequence

import numpy as np

from interplay.rl.samplers.draws import whole
from interplay.rl.samplers.sampler import Deck, Outcome
from interplay.rl.samplers.tracked import Tracked
from interplay.rl.samplers.tracker import Tracker
from interplay.schema.samplers.adaptive import EdgeSampler


class EdgeOfCompetence(Tracked):
    """Candidates by the mix; of those that were never drawn a share, of the others those nearest to the target. Where one kind
    falls short, the other fills up."""

    name = "edge_of_competence"

    def __init__(self, spec: EdgeSampler, deck: Deck) -> None:
        super().__init__(deck, Tracker(len(deck), (spec.prior, spec.prior)))
        self.spec = spec
        self.tracker.add(deck.offline)

    def choose(self, m: int, step: int, stream: np.random.Generator) -> list[int]:
        """m of the candidates, which come in random order: equally good ones are drawn uniformly."""
        untaken = int((self.prior > 0).sum()) - len(set(self.taken))
        wanted = untaken if self.spec.candidates is None else min(round(self.spec.candidates * m), untaken)
        candidates = np.array(list(dict.fromkeys(self.draw(stream, self.prior, max(wanted, m)))))
        known = self.tracker.seen[candidates]
        fresh, old = candidates[~known], candidates[known]
        old = old[np.argsort(self._distance(self.tracker.value()[old]), kind="stable")]
        explored = min(max(whole(stream, self.spec.explore * m), m - len(old)), len(fresh))
        chosen = [*fresh[:explored], *old[: m - explored]]
        return chosen if len(chosen) == m else [*chosen, *self.draw(stream, self.prior, m - len(chosen))]

    def _distance(self, rate: np.ndarray) -> np.ndarray:
        low, high = self.spec.band or (self.spec.target, self.spec.target)
        return np.maximum(np.maximum(low - rate, rate - high), 0.0)

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Evidence ages by a step at the first observation of each."""
        if self.calls == 1 and self.spec.half_life is not None:
            self.tracker.fade(0.5 ** (1 / self.spec.half_life))
        super().observe(step, outcomes)
