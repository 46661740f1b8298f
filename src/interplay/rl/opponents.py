"""The models of seats that are not the policy's: frozen ones of the graph, and past policies of the run."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch

from interplay.core import execution
from interplay.data import tokenizer as text
from interplay.model import decoder, device, folder
from interplay.optim.distributed import with_prefix
from interplay.rl.spec import RLSpec
from interplay.rollout.engine import Engine, engine, shard_engine
from interplay.rollout.seat_spec import SEAT, PoolSeat
from interplay.rollout.spec import SeatsEpisode

PAST = "past."
"""What names of past policies begin with: `past.<step>`."""


def engine_of(spec: RLSpec, model: decoder.Decoder, how: execution.Run, source: Path) -> Engine:
    """The engine of a run for a model of another stage or time."""
    return shard_engine(engine(spec.engine, model, how, getattr(torch, spec.dtype), source / "model"))


def frozen_engine(spec: RLSpec, how: execution.Run, source: Path) -> Engine:
    """The same for the model of a stage, which is not trained."""
    found = folder.load_decoder(source / "model")
    return engine_of(spec, device.place_decoder(found, how, spec.numerics, spec.blockwise).requires_grad_(False), how, source)


class Opponents:
    """Engines by name. Past policies are copies, which are saved with every checkpoint."""

    def __init__(self, spec: RLSpec, inputs: Mapping[str, Path], policy: decoder.Decoder, how: execution.Run) -> None:
        """Raises UserError where a model has another tokenizer than the policy."""
        self.spec, self.policy, self.how, self.init = spec, policy, how, inputs["init"]
        self.fixed: dict[str, Engine] = {}
        for role in sorted(role for role in inputs if role.startswith(SEAT)):
            text.check_same(inputs[role], self.init)
            self.fixed[role] = frozen_engine(spec, how, inputs[role])
        episode = spec.method.episode
        pools = [one for one in getattr(episode, "seats", {}).values() if isinstance(one, PoolSeat) and one.every]
        self.every = pools[0].every if pools else None
        self.keep = max((one.keep for one in pools), default=0)
        self.past: dict[int, tuple[decoder.Decoder, Engine]] = {}
        if self.every:
            self._add(0)

    def _add(self, step: int) -> None:
        made = copy.deepcopy(self.policy).requires_grad_(False)
        self.past[step] = made, engine_of(self.spec, made, self.how, self.init)

    def engines(self) -> dict[str, Engine]:
        """All of them."""
        return self.fixed | {f"{PAST}{step}": one for step, (_, one) in self.past.items()}

    def past_names(self) -> list[str]:
        """Of past policies, the earliest first."""
        return [f"{PAST}{step}" for step in sorted(self.past)]

    def update(self, step: int) -> None:
        """After a step: the policy joins where it is time, and the earliest leave."""
        if self.every and step % self.every == 0:
            self._add(step)
            self._leave()

    def _leave(self) -> None:
        for step in sorted(self.past)[: -self.keep]:
            self.past.pop(step)[1].close()

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights of past policies, as they are saved."""
        return {
            f"{PAST}{step}.{name}": value for step, (model, _) in self.past.items() for name, value in model.named_parameters()
        }

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what was saved."""
        steps = sorted({int(name.split(".")[1]) for name in tensors if name.startswith(PAST)})
        for step in [one for one in self.past if one not in steps]:
            self.past.pop(step)[1].close()
        for step in steps:
            if step not in self.past:
                self._add(step)
            self.past[step][0].load_state_dict(with_prefix(dict(tensors), f"{PAST}{step}."), strict=False)

    def close(self) -> None:
        """Let go of all engines."""
        for one in self.engines().values():
            one.close()


def opponents_of(spec: RLSpec, inputs: Mapping[str, Path], policy: decoder.Decoder, how: execution.Run) -> Opponents | None:
    """Those of a run; None: its episodes have none."""
    return Opponents(spec, inputs, policy, how) if isinstance(spec.method.episode, SeatsEpisode) else None
