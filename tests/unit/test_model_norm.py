import torch
import torch.nn.functional as F

from interplay.model.attention import rms_norm, rotate


def test_rms_norm_is_torchs_and_its_gradient_that_of_its_values() -> None:
    x = torch.randn(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for shape in [(6,), (4, 6)]:
        weight = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
        torch.testing.assert_close(rms_norm(x, weight, 1e-6), F.rms_norm(x, (6,), None, 1e-6) * weight)
        assert torch.autograd.gradcheck(lambda a, b: rms_norm(a, b, 1e-6), (x, weight))


def test_in_bfloat16_rms_norm_stays_within_its_rounding() -> None:
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * 30
    exact = F.rms_norm(x, (64,), None, 1e-6)
    error = rms_norm(x.bfloat16(), torch.ones(64).bfloat16(), 1e-6).float() - exact
    # Three roundings to 8 bits: of x, of the inverse and of their product.
    assert (error.abs() <= 3 * 2**-8 * exact.abs() + 1e-6).all()


def test_rotation_keeps_lengths_and_its_gradient_is_that_of_its_values() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    angle = torch.randn(5, 1, 3, dtype=torch.float64, generator=generator)
    rope = torch.cat((angle.cos(), angle.cos()), -1), torch.cat((-angle.sin(), angle.sin()), -1)
    torch.testing.assert_close(rotate(x, rope).norm(dim=-1), x.norm(dim=-1))
    assert torch.autograd.gradcheck(lambda a: rotate(a, rope), (x,))
