import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from interplay.model.trainer_spec import Optimizer
from interplay.optim import optimizer
from interplay.optim.optimizer import Muon


def tiny_model() -> nn.Module:
    """Named as Hugging Face names things: two layers with a square, a tall and a wide matrix, an embedding and norms."""
    torch.manual_seed(0)

    def layer() -> nn.ModuleDict:
        return nn.ModuleDict(
            {"q": nn.Linear(6, 6, bias=True), "up": nn.Linear(6, 12, bias=False), "down": nn.Linear(12, 6, bias=False)}
        )

    layers = nn.ModuleList([layer(), layer()])
    return nn.ModuleDict(
        {"model": nn.ModuleDict({"embed_tokens": nn.Embedding(9, 6), "layers": layers, "norm": nn.LayerNorm(6, bias=False)})}
    )


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


@pytest.mark.parametrize("arithmetic", [torch.bfloat16, None], ids=["bfloat16", "float32 of a CPU"])
def test_muon_takes_the_path_of_torch_muon(arithmetic: torch.dtype | None) -> None:
    torch.manual_seed(0)
    own = [nn.Parameter(torch.randn(shape)) for shape in [(8, 8), (24, 8), (8, 24), (8, 8), (24, 8)]]
    theirs = copy.deepcopy(own)
    optimizers = [
        Muon(own, lr=0.02, weight_decay=0.1, momentum=0.9, arithmetic=arithmetic),
        torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.9),
    ]
    start = [p.detach().clone() for p in own]
    for step in range(5):
        for mine, other in zip(own, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=torch.Generator().manual_seed(step))
            other.grad = mine.grad.clone()
        for each in optimizers:
            each.step()
    for mine, other, first in zip(own, theirs, start, strict=True):
        # torch's iterates in bfloat16 (8 bits): the paths agree to about 1 % of the way gone.
        assert (mine - other).norm() < 0.01 * (other - first).norm()


def test_muon_moves_a_square_matrix_by_the_rate_along_every_direction() -> None:
    p = nn.Parameter(torch.zeros(16, 16))
    optimizer_ = Muon([p], lr=0.5, weight_decay=0.0)
    p.grad = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
    optimizer_.step()
    # The iteration brings singular values near 1, within 0.5 .. 1.5 (Jordan 2024).
    singular = torch.linalg.svdvals(p.detach()) / 0.5
    assert singular.min() > 0.4
    assert singular.max() < 1.5


def test_muon_gets_the_matrices_of_the_layers_and_adamw_the_rest() -> None:
    model = tiny_model()
    muon, adamw = optimizer.build_optimizers(Optimizer(name="muon", weight_decay=0.3), model.named_parameters())
    names = {id(p): name for name, p in model.named_parameters()}
    in_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    decayed = {names[id(p)] for group in adamw.param_groups for p in group["params"] if group["weight_decay"]}
    spared = {names[id(p)] for group in adamw.param_groups for p in group["params"] if not group["weight_decay"]}
    assert in_muon == {f"model.layers.{i}.{m}.weight" for i in (0, 1) for m in ("q", "up", "down")}
    assert decayed == {"model.embed_tokens.weight"}
    assert spared == {"model.norm.weight", "model.layers.0.q.bias", "model.layers.1.q.bias"}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_learning_rate_zero_leaves_every_weight_as_it_was(name: str) -> None:
    model = tiny_model()
    before = copy.deepcopy(model.state_dict())
    optimizers = optimizer.build_optimizers(Optimizer(name=name, weight_decay=0.5), model.named_parameters())
    optimizer.set_lr(optimizers, 0.0)
    give_gradients(model, 1)
    optimizer.apply_gradients(optimizers, list(model.parameters()), 1.0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_set_lr_scales_each_peak() -> None:
    optimizers = optimizer.build_optimizers(
        Optimizer(name="muon", learning_rate=0.004, muon_learning_rate=0.02), tiny_model().named_parameters()
    )
    optimizer.set_lr(optimizers, 0.5)
    optimizer.set_lr(optimizers, 0.25)
    rates = {type(o).__name__: o.param_groups[0]["lr"] for o in optimizers}
    assert rates == {"Muon": pytest.approx(0.005), "AdamW": pytest.approx(0.001)}


def test_gradients_are_clipped_to_the_norm_and_the_norm_before_is_returned() -> None:
    p = nn.Parameter(torch.tensor([0.0, 0.0]))
    sgd = torch.optim.SGD([p], lr=1.0)
    p.grad = torch.tensor([3.0, 4.0])
    assert optimizer.apply_gradients([sgd], [p], 1.0).item() == pytest.approx(5.0)
    assert p.tolist() == pytest.approx([-0.6, -0.8], abs=1e-5)
    p.grad = torch.tensor([3.0, 4.0])
    optimizer.apply_gradients([sgd], [p], 0.0)
    assert p.tolist() == pytest.approx([-3.6, -4.8], abs=1e-5)
    assert p.grad is None


def test_an_update_and_its_state_need_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from interplay.model.trainer_spec import Optimizer\n"
        "from interplay.optim import optimizer\n"
        "weights = torch.nn.Parameter(torch.ones(2, 2))\n"
        "rules = optimizer.build_optimizers(Optimizer(name='muon'), [('model.layers.0.w', weights), ('norm', torch.nn.Parameter(torch.ones(2)))])\n"
        "weights.grad = torch.ones(2, 2)\n"
        "optimizer.apply_gradients(rules, [weights], 1.0)\n"
        "for rule in rules: rule.load_state_dict(rule.state_dict())\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
