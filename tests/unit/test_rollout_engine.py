"""The engines: the same samples from both, whatever the batch, with the log-probabilities of a full forward pass."""

import pytest
import torch

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.kernels import library
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.rollout.engine import Request, Rollouts, Sampling, engine
from interplay.rollout.request import split


def decoder(architecture: str = "qwen3", kv_heads: int = 2, heads: int = 4, head_dim: int = 16, vocab: int = 24) -> Decoder:
    shape = Shape(
        architecture=architecture,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=96,
        initializer_range=0.12,
    )
    return folder.init_decoder(shape, vocab, seed=0)


def requests(groups: int = 7, count: int = 4) -> list[Request]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (groups,), generator=generator).tolist()
    prompts = [torch.randint(2, 24, (length,), generator=generator).tolist() for length in lengths]
    return [Request(prompt, 1000 + index, 0, count) for index, prompt in enumerate(prompts)]


def sampling(**given: object) -> Sampling:
    usual = dict(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=40, seed=3, eos=1, pad=0)
    return Sampling(**{**usual, **given})


def equal(left: Rollouts, right: Rollouts) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}, {"eos": None}])
def test_native_and_hf_draw_the_same_samples(architecture: str, options: dict) -> None:
    model = decoder(architecture)
    ours = engine("native", model, Run(engine_batch=16)).generate(requests(), sampling(**options))
    theirs = engine("hf", model, Run(engine_batch=9)).generate(requests(), sampling(**options))
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.lengths, theirs.lengths)
    assert torch.equal(ours.truncated, theirs.truncated)
    torch.testing.assert_close(ours.logprobs, theirs.logprobs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_log_probabilities_equal_those_of_a_full_forward_pass(kv_heads: int, dtype: torch.dtype) -> None:
    model, asked, settings = decoder(kv_heads=kv_heads), requests(), sampling(temperature=0.8)
    found = engine("native", model, Run(engine_batch=12), dtype).generate(asked, settings)
    apart = []
    assert len(found.tokens) == 28
    assert found.lengths.min() < 16 < found.lengths.max(), "the test wants rows that retire and rows that outlive them"
    for row, request in enumerate(found.request.tolist()):
        prompt, length = asked[request].prompt, int(found.lengths[row])
        ids = torch.tensor([prompt + found.tokens[row, :length].tolist()])
        logits = model.logits(model.hidden(ids, torch.arange(ids.shape[1])[None], dtype=dtype))[0, len(prompt) - 1 : -1]
        expected = (logits / 0.8).log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        apart.append((found.logprobs[row, :length] - expected).detach().abs())
    # The kernels of int8 have the same operations in both; only the output head's differ.
    assert torch.cat(apart).max() < (1e-4 if dtype == torch.float32 else 1e-5)


def test_rows_end_at_the_end_token_or_at_the_length_limit() -> None:
    found = engine("native", decoder(), Run(engine_batch=16)).generate(requests(), sampling())
    assert 0 < found.truncated.sum() < len(found.truncated)
    for tokens, length, truncated, logprobs in zip(found.tokens, found.lengths, found.truncated, found.logprobs, strict=True):
        assert (1 in tokens[:length].tolist()) != bool(truncated)
        assert truncated or int(tokens[length - 1]) == 1
        assert 1 not in tokens[: length - 1].tolist()
        assert (tokens[length:] == 0).all()
        assert (logprobs[length:] == 0).all()
        assert (logprobs[:length] < 0).all()
    assert found.request.tolist() == [i for i in range(7) for _ in range(4)]
    assert found.sample.tolist() == list(range(4)) * 7


def test_a_rerun_gives_the_same_bits_and_so_do_whole_batches_on_their_own() -> None:
    sampler, asked = engine("native", decoder(), Run(engine_batch=8)), requests(groups=6)
    whole = sampler.generate(asked, sampling())
    assert equal(whole, sampler.generate(asked, sampling()))
    parts = [sampler.generate(asked[first : first + 2], sampling()) for first in range(0, 6, 2)]
    for row, (request, sample) in enumerate(zip(whole.request.tolist(), whole.sample.tolist(), strict=True)):
        part, length = parts[request // 2], int(whole.lengths[row])
        at = request % 2 * 4 + sample
        assert torch.equal(part.tokens[at, :length], whole.tokens[row, :length])
        assert torch.equal(part.logprobs[at, :length], whole.logprobs[row, :length])


def test_samples_do_not_depend_on_order_grouping_or_batch_size() -> None:
    model, asked = decoder(), requests()
    whole = engine("native", model, Run(engine_batch=64)).generate(asked, sampling())
    shuffled = [Request(r.prompt, r.key, first, count) for r in reversed(asked) for first, count in ((3, 1), (0, 3))]
    other = engine("native", model, Run(engine_batch=5)).generate(shuffled, sampling())
    place = {
        (shuffled[r].key, s): row for row, (r, s) in enumerate(zip(other.request.tolist(), other.sample.tolist(), strict=True))
    }
    for row, (request, sample) in enumerate(zip(whole.request.tolist(), whole.sample.tolist(), strict=True)):
        match, length = place[asked[request].key, sample], int(whole.lengths[row])
        assert int(other.lengths[match]) == length
        assert torch.equal(other.tokens[match, :length], whole.tokens[row, :length])


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_of_int8_log_probabilities_equal_those_of_a_forward_pass_over_long_contexts(kv_heads: int) -> None:
    model, settings = decoder(kv_heads=kv_heads), sampling(eos=None)
    generator = torch.Generator().manual_seed(0)
    asked = [Request(torch.randint(2, 24, (n,), generator=generator).tolist(), n, 0, 9) for n in (480, 500, 512, 1030)]
    found = engine("native", model, Run(), torch.int8).generate(asked, settings)
    ids = [torch.tensor([asked[r].prompt + found.tokens[i].tolist()]) for i, r in enumerate(found.request.tolist())]
    for row, whole in zip(found.logprobs, ids, strict=True):
        hidden = model.hidden(whole, torch.arange(whole.shape[1])[None], dtype=torch.int8)[0, -41:-1]
        expected = model.logits(hidden).log_softmax(-1).gather(1, whole[0, -40:, None])[:, 0]
        torch.testing.assert_close(row, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_p": 0.9, "top_k": 7}, {"temperature": 0.0}])
def test_of_int8_no_byte_depends_on_order_grouping_batch_size_or_threads(options: dict) -> None:
    model, asked, threads = decoder(), requests(20, 5), torch.get_num_threads()
    whole = engine("native", model, Run(engine_batch=100), torch.int8).generate(asked, sampling(**options))
    assert whole.lengths.min() < 16 < whole.lengths.max(), "the test wants slots that change hands"
    expected = {(asked[r].key, int(s)): [x[row] for x in whole[2:]] for row, (r, s) in enumerate(zip(*whole[:2], strict=True))}
    shuffled = [Request(r.prompt, r.key, first, count) for r in reversed(asked) for first, count in ((2, 3), (0, 2))]
    try:
        for count, rows in ((1, 7), (2, 100), (3, 64)):
            torch.set_num_threads(count)
            other = engine("native", model, Run(engine_batch=rows), torch.int8).generate(shuffled, sampling(**options))
            for row, (request, sample) in enumerate(zip(*other[:2], strict=True)):
                same = expected[shuffled[request].key, int(sample)]
                assert all(torch.equal(x[row], y) for x, y in zip(other[2:], same, strict=True))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "shape",
    [
        {"architecture": "llama", "heads": 6, "kv_heads": 1, "vocab": 150},
        {"architecture": "qwen2", "heads": 5, "kv_heads": 5, "head_dim": 48},
        {"heads": 3, "kv_heads": 3, "head_dim": 80, "vocab": 65},
        {"heads": 6, "kv_heads": 2, "head_dim": 128, "vocab": 64},
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7, "top_p": 0.9},
        {"top_k": 5},
        {"top_k": 9, "top_p": 0.5},
        {"top_k": 1},
        {"temperature": 0.0, "eos": None},
        {"max_completion_length": 1},
    ],
)
def test_kernels_draw_the_samples_that_pytorch_draws(monkeypatch: pytest.MonkeyPatch, shape: dict, options: dict) -> None:
    model, asked, settings = decoder(**shape), requests(), sampling(**options)
    ours = engine("native", model, Run(engine_batch=16), torch.int8).generate(asked, settings)
    monkeypatch.setattr(library, "usable", lambda *_: False)
    theirs = engine("native", model, Run(engine_batch=16), torch.int8).generate(asked, settings)
    # An activation in the middle of two integers is rounded to either, which may change a token and those after it.
    same = (ours.tokens == theirs.tokens).int().cumprod(1).bool()
    assert same.float().mean() > 0.8
    apart = (ours.logprobs - theirs.logprobs)[same].abs()
    assert apart.median() < 1e-5
    assert apart.max() < 5e-2


@pytest.mark.parametrize(
    ("options", "kept"), [({"top_p": 0.3}, 8), ({"top_k": 3}, 24), ({"top_k": 3, "top_p": 0.5}, 12), ({"temperature": 0.0}, 1)]
)
def test_kernels_treat_equal_logits_as_pytorch_does(monkeypatch: pytest.MonkeyPatch, options: dict, kept: int) -> None:
    model = decoder()
    with torch.no_grad():
        model.model.norm.weight.zero_()
    ours = engine("native", model, Run(), torch.int8).generate(requests(), sampling(**options))
    monkeypatch.setattr(library, "usable", lambda *_: False)
    theirs = engine("native", model, Run(), torch.int8).generate(requests(), sampling(**options))
    assert torch.equal(ours.tokens, theirs.tokens)
    assert len(ours.tokens.unique()) == kept


def test_the_engine_follows_the_decoder_as_it_trains() -> None:
    model = decoder()
    for name in ("native", "hf"):
        sampler = engine(name, model, Run())
        before = sampler.generate(requests(2), sampling())
        with torch.no_grad():
            model.model.norm.weight.mul_(1.5)
        assert not torch.equal(before.logprobs, sampler.generate(requests(2), sampling()).logprobs)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"eos": None}])
def test_steps_that_can_be_recorded_give_the_same_bits(options: dict) -> None:
    model = decoder()
    plain = engine("native", model, Run(engine_batch=16)).generate(requests(), sampling(**options))
    assert plain.lengths.max() > 33, "the test wants several blocks of the cache"
    assert equal(plain, engine("native", model, Run(engine_batch=16, gpus=1)).generate(requests(), sampling(**options)))


def test_bfloat16_rollouts_stay_near_float32_ones() -> None:
    model, settings = decoder(), sampling(max_completion_length=1)
    exact = engine("native", model, Run()).generate(requests(20, 8), settings)
    rough = engine("native", model, Run(), torch.bfloat16).generate(requests(20, 8), settings)
    same = (exact.tokens == rough.tokens)[:, 0]
    assert same.float().mean() > 0.9
    torch.testing.assert_close(exact.logprobs[same], rough.logprobs[same], atol=0.1, rtol=0.1)


def test_batches_hold_at_most_the_rows_allowed_and_every_sample_once() -> None:
    asked = [Request([2], key, 5, count) for key, count in enumerate((3, 9, 1, 4, 4))]
    batches = split(asked, 8)
    assert all(len(batch) * max(part.count for _, part in batch) <= 8 for batch in batches)
    seen = [(index, part.first + i) for batch in batches for index, part in batch for i in range(part.count)]
    assert seen == [(index, 5 + i) for index, request in enumerate(asked) for i in range(request.count)]


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match=r"engine = 'nativ'.*did you mean 'native'"):
        engine("nativ", decoder(), Run())
