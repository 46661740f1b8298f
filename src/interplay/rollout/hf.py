"""The `hf` engine: transformers' own model and `generate`, with this project's noise. Slow; the reference for `native`."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from interplay.core.execution import Run
from interplay.model.decoder import Decoder
from interplay.model.folder import config_json
from interplay.rollout.request import Request, Rollouts, Sampling, assemble, draw_tokens, join, split, uniform_noise


class _Draw(LogitsProcessor):
    """Draws the next tokens itself and leaves `generate`, which is greedy, no other choice."""

    def __init__(self, noise: torch.Tensor, sampling: Sampling) -> None:
        self.noise, self.sampling = noise, sampling
        self.logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens, logprobs = draw_tokens(scores.float(), self.noise[:, len(self.logprobs)], self.sampling)
        self.logprobs.append(logprobs)
        return torch.full_like(scores, float("-inf")).scatter_(1, tokens[:, None], 0.0)


class HuggingFace:
    """Samples from transformers' model of the decoder's shape, with the decoder's weights as they are at each call."""

    def __init__(self, decoder: Decoder, how: Run, dtype: torch.dtype) -> None:
        self.decoder, self.rows = decoder, how.engine_batch
        none: dict[str, int | None] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        settings = config_json(decoder, none)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings), trust_remote_code=False)
        self.model = model.to(decoder.head().device, dtype).eval()

    @torch.inference_mode()
    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests; the same requests give the same bits."""
        self.model.load_state_dict(self.decoder.state_dict(), strict=not self.decoder.shape.tie_word_embeddings)
        return join([self._complete(batch, sampling) for batch in split(requests, self.rows)], sampling)

    def close(self) -> None:
        """Nothing is held."""

    def _complete(self, batch: list[tuple[int, Request]], sampling: Sampling) -> Rollouts:
        device = self.model.device
        rows = [(r.prompt, r.key, r.first + i) for _, r in batch for i in range(r.count)]
        longest = max(len(prompt) for prompt, _, _ in rows)
        ids = torch.tensor([[sampling.pad] * (longest - len(p)) + p for p, _, _ in rows], device=device)
        seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _, _ in rows], device=device)
        length = sampling.max_completion_length
        noise = uniform_noise(sampling.seed, [key for _, key, _ in rows], [sample for _, _, sample in rows], length)
        drawing = _Draw(torch.from_numpy(noise).to(device), sampling)
        output = self.model.generate(
            input_ids=ids,
            attention_mask=seen,
            do_sample=False,
            max_new_tokens=length,
            eos_token_id=sampling.eos,
            pad_token_id=sampling.pad,
            logits_processor=LogitsProcessorList([drawing]),
        )
        return assemble(batch, output[:, longest:], torch.stack(drawing.logprobs, 1), sampling)
