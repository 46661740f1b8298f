"""The critic of a run: the value of each state of a batch, and how it learns from what came.

The value of a token's place is that of the state before the token: of prompt and completion up to it."""

import torch

from interplay.model import heads
from interplay.model.decoder import Decoder
from interplay.model.spec import Optimizer
from interplay.optim import checkpoint, distributed, optimizer
from interplay.rl.advantages import gae
from interplay.rl.batch import Batch
from interplay.rl.policy import shard_rows, states
from interplay.rl.spec import RLSpec, ValueHead


class ValueNetwork:
    """A value head that begins as the policy with the value `start`, and its own AdamW."""

    def __init__(self, policy: Decoder, learning_rate: float, start: float = 0.0) -> None:
        self.network = heads.ValueHead(policy, start)
        self.options = Optimizer(name="adamw", learning_rate=learning_rate, weight_decay=0.0)
        self.optimizers = optimizer.build_optimizers(self.options, self.network.named_parameters())

    def apply_gradients(self) -> None:
        """One step with the gradient that was accumulated."""
        optimizer.apply_gradients(self.optimizers, list(self.network.parameters()), self.options.max_grad_norm)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and the optimiser's state."""
        return checkpoint.training_tensors(self.network, self.optimizers)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on where `tensors` was called."""
        checkpoint.restore_training(tensors, self.network, self.optimizers)


class Critic(ValueNetwork):
    """Values of the states of rollouts."""

    def __init__(self, spec: ValueHead, policy: Decoder, dtype: torch.dtype, micro_batch_tokens: int) -> None:
        super().__init__(policy, spec.learning_rate)
        self.spec, self.dtype, self.tokens = spec, dtype, micro_batch_tokens

    def values(self, batch: Batch) -> torch.Tensor:
        """(N,T) float32 without a gradient, 0 past a completion."""
        found = torch.zeros(batch.tokens.shape)
        with torch.no_grad():
            for rows in shard_rows(self.network.decoder, batch, torch.arange(len(batch)), self.tokens):
                found[rows] = self._values(batch, rows)
        return distributed.all_reduce_sum(found)

    def learn(self, batch: Batch) -> dict[str, float]:
        """`num_iterations` steps towards the lambda-returns of a batch whose `values` are known, on its finished rows. Returns
        the loss, the mean value and the share of the returns' variance that the values explained, over tokens."""
        assert batch.values is not None
        old, mask = batch.values.double(), batch.mask() & batch.finished()[:, None]
        returns = gae(old, batch, self.spec.gamma, self.spec.lam) + old
        measured = _measure(old[mask], returns[mask])
        losses = []
        for _ in range(self.spec.num_iterations if mask.any() else 0):
            loss = 0.0
            with distributed.accumulate_gradient(self.network):
                for rows in shard_rows(self.network.decoder, batch, mask.any(1).nonzero()[:, 0], self.tokens):
                    per_token = value_loss(self._values(batch, rows), old[rows], returns[rows], self.spec.cliprange_value)
                    part = (per_token * mask[rows]).sum() / mask.sum()
                    part.backward()
                    loss += float(part.detach())
            self.apply_gradients()
            losses.append(distributed.all_reduce_dict({"loss": loss})["loss"])
        return {"critic/loss": sum(losses) / max(len(losses), 1), **measured}

    def _values(self, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
        """(n,T) of some rows."""
        found, where = states(self.network.decoder, batch, rows, self.dtype)
        return torch.zeros(where.shape).masked_scatter(where, self.network(found).cpu())


def critic(spec: RLSpec, policy: Decoder, micro_batch_tokens: int) -> Critic | None:
    """The run's critic, where its method has one."""
    named = spec.method.critic
    return Critic(named, policy, getattr(torch, spec.dtype), micro_batch_tokens) if named else None


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, cliprange: float) -> torch.Tensor:
    """(n,T) 0.5 max((v - R)^2, (clip(v, old - c, old + c) - R)^2), as the reference implementation of PPO has it; c = 0:
    0.5 (v - R)^2."""
    plain = (values - returns) ** 2
    if not cliprange:
        return 0.5 * plain
    clipped = torch.minimum(torch.maximum(values, old - cliprange), old + cliprange)
    return 0.5 * torch.maximum(plain, (clipped - returns) ** 2)


def _measure(values: torch.Tensor, returns: torch.Tensor) -> dict[str, float]:
    """Of (M,) tokens."""
    if len(values) < 2:
        return {"critic/value": 0.0, "critic/explained_variance": 0.0}
    spread = float(returns.var())
    explained = 1 - float((returns - values).var()) / spread if spread else 0.0
    return {"critic/value": float(values.mean()), "critic/explained_variance": explained}
