"""Trainers of methods/contexts: an example in the prompt whose embeddings are tuned while all weights are frozen, and weights of
sources that are learnt from losses on a target."""

import torch

from interplay.data import sets, tokenizer
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.train.prefer import completion_logps

PLACES = "~^`|<>=+*&%$#@!;"
"""Tokens of the prompt that no text of the task has: each holds the embedding of a token of the example."""


def prefixed(rows):
    """Prompts after these tokens."""
    return [{**row, "prompt": PLACES + row["prompt"]} for row in rows]


def nll(decoder, prompts, completions):
    """Mean over completions of -log p per token."""
    lengths = torch.tensor([len(one) for one in completions], dtype=torch.float32)
    return -(completion_logps(decoder, prompts, completions, torch.float32) / lengths).mean()


def encoded(folder_of, inputs):
    """Rows of a problem set with the tokens of their prompts and solutions, which end."""
    rows = sets.read_rows(folder_of, 0)
    encoder, eos = tokenizer.load(inputs["init"]), tokenizer.special(inputs["init"]).eos
    prompts = tokenizer.encode_texts(encoder, [row.prompt for row in rows])
    return rows, prompts, [[*ids, eos] for ids in tokenizer.encode_texts(encoder, [row.solution for row in rows])]


def project(delta, radius):
    """Rows (n, D) of at most this length."""
    return delta * (radius / delta.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)


def untied(decoder):
    """The same model whose output matrix is no more its embedding: else a token that holds another's embedding would be as likely
    as that to be written."""
    loose = Decoder(decoder.shape.model_copy(update={"tie_word_embeddings": False}), decoder.vocab_size)
    weights = decoder.state_dict()
    loose.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()})
    return loose


def tune_prompt(spec, inputs, out, how, radius=0.5, context_weight=0.1, steps=40, rows_per_step=8, rate=0.1):
    """Context-aware prompt tuning: the embeddings of a labelled example before the prompt go down the gradient of the loss of the
    solutions, and `context_weight` times that of the example's own label, by `rate` a step in all, and stay within `radius` of
    those of its tokens (projected gradient descent). The first row is the example; with radius 0 it stays an example in the
    context."""
    decoder = untied(folder.load_decoder(inputs["init"] / "model")).requires_grad_(False)
    rows, prompts, solutions = encoded(inputs["data.0"], inputs)
    places = prompts[0][: len(PLACES)]
    example, label = (prompts[0][len(PLACES) :] + solutions[0])[-len(PLACES) :], solutions[0]
    table = decoder.model.embed_tokens.weight.requires_grad_(True)
    start = table.detach()[example].clone()
    with torch.no_grad():
        table[places] = start
    order, found = torch.Generator().manual_seed(spec.seed), 0.0
    for _ in range(steps):
        chosen = (1 + torch.randperm(len(rows) - 1, generator=order)[:rows_per_step]).tolist()
        loss = nll(decoder, [prompts[i] for i in chosen], [solutions[i] for i in chosen])
        found = loss.item()
        (loss + context_weight * nll(decoder, [places[: -len(label)]], [label])).backward()
        moved = table.grad[places]
        with torch.no_grad():
            table[places] = start + project(table[places] - rate * moved / moved.norm().clamp(min=1e-12) - start, radius)
        table.grad = None
    folder.save_decoder(decoder, out / "model", tokenizer.tokenizer_folder(inputs["init"]))
    return {"prompt_loss": found, "distance": float((table.detach()[places] - start).norm(dim=1).max())}


def source_step(theta, rewards, rate):
    """Logits (K,) of the sources after a step up the gradient of sum_k w_k r_k, w their softmax, of rewards (K,) in units of
    their largest."""
    weights = theta.softmax(0)
    paid = rewards / rewards.abs().max().clamp(min=1e-12)
    return theta + rate * weights * (paid - (weights * paid).sum())


def learn_sources(
    spec, inputs, out, how, target="", learned=True, steps=24, rows_per_step=8, rate=1e-3, inner_rate=0.05, policy_rate=1.0
):
    """Training on all sources but the set whose band is `target`, weighed by a policy over them: a source is paid by how much a
    step of its own gradient lowers the loss on the target (Meta-RTL, without its LSTM and its meta-learner's inner tasks).
    learned: false weighs all alike."""
    decoder = folder.load_decoder(inputs["init"] / "model")
    read = [encoded(inputs[f"data.{i}"], inputs) for i in range(len(spec.mix))]
    sources = [one for one in read if one[0][0].band != target]
    (aim,) = [one for one in read if one[0][0].band == target]
    weights, theta = list(decoder.parameters()), torch.zeros(len(sources))
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    order = torch.Generator().manual_seed(spec.seed)

    def loss_on(data):
        chosen = torch.randperm(len(data[0]), generator=order)[:rows_per_step].tolist()
        return nll(decoder, [data[1][i] for i in chosen], [data[2][i] for i in chosen])

    for _ in range(steps):
        asked = order.get_state()
        before = loss_on(aim).item()
        gradients, rewards = [], []
        for source in sources:
            gradients.append(torch.autograd.grad(loss_on(source), weights))
            later = order.get_state()
            with torch.no_grad():
                torch._foreach_add_(weights, gradients[-1], alpha=-inner_rate)
                order.set_state(asked)  # the same rows of the target
                rewards.append(before - loss_on(aim).item())
                torch._foreach_add_(weights, gradients[-1], alpha=inner_rate)
            order.set_state(later)
        share = theta.softmax(0)
        for weight, *of_sources in zip(weights, *gradients, strict=True):
            weight.grad = sum(part * one for part, one in zip(share, of_sources, strict=True))
        optimizer.step()
        theta = source_step(theta, torch.tensor(rewards), policy_rate) if learned else theta
    folder.save_decoder(decoder, out / "model", tokenizer.tokenizer_folder(inputs["init"]))
    bands = [source[0][0].band for source in sources]
    return {
        "target_loss": before,
        **{f"weight_{band}": part for band, part in zip(bands, theta.softmax(0).tolist(), strict=True)},
    }
