"""The methods of configs/method: each is what its page says, differs from GRPO where it says so, and no two are one."""

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_rl_update as toy
import torch
import turn_cases as turns
from rl_cases import batch_of, now_of

from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data.tokenizer import Special
from interplay.data.trajectory import Segment
from interplay.rl.advantages import advantages, critic
from interplay.rl.assembly import lagged_policy
from interplay.rl.batch import Batch, Memory, Span, StepContext
from interplay.rl.continuation import first_requests, kept_rollouts, next_requests
from interplay.rl.draw import sampling, update_decoding as learnt_decoding
from interplay.rl.edit_spec import TokenBudget
from interplay.rl.edits import edits_after_advantage, edits_before_advantage
from interplay.rl.policy import scores
from interplay.rl.sampler import Outcome, PromptSource
from interplay.rl.samplers import build_sampler
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner, update
from interplay.rollout.engine import engine
from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Request
from interplay.tasks.environments.games import Board
from interplay.tasks.verdict import BOX
from tools.reference import lists, methods
from tools.reference.lists import differing

ROOT = Path(__file__).parents[2]
METHODS = lists.methods(ROOT)
MARKS = lists.marks(ROOT)
GRPO = METHODS["grpo"]
OTHERS = [name for name in METHODS if name != "grpo"]


def test_the_table_is_what_code_and_results_say_and_every_method_has_a_page() -> None:
    assert (ROOT / "docs/methods.md").read_text() == methods.table(ROOT), "run `make docs`"
    assert {path.stem for path in methods.files(ROOT)} == set(METHODS)


def test_a_page_has_the_whole_method_and_links_to_the_card_of_each_member() -> None:
    page = methods.files(ROOT)[ROOT / "docs" / "methods" / "ppo.md"]
    assert "paper: arXiv:1707.06347" in page
    assert "| critic | [value_head](../reference/critic.md#critic-value_head) |" in page
    assert "`methods/showdown`" in page


def test_every_method_has_a_test_of_its_equation_that_exists() -> None:
    assert set(MARKS) == set(METHODS)
    for mark in MARKS.values():
        file, name = mark.test.split(":")
        tree = ast.parse((ROOT / "tests" / "unit" / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, mark.test


def test_no_two_methods_are_one() -> None:
    seen: dict[str, str] = {}
    for name, method in METHODS.items():
        told = str({key: value for key, value in canonical(method).items() if key != "paper"})
        assert told not in seen, f"{name} is {seen[told]}"
        seen[told] = name


# --- what a method does to a fixed batch, seam by seam ---

TOKENS = torch.tensor([[1, 2, 3, 3, 3], [1, 2, 4, 5, 0], [1, 6, 7, 0, 0], [1, 2, 8, 9, 3]] * 3)
LENGTHS = [5, 4, 3, 5] * 3
REWARDS = [1.0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1]
GROUPS = [i // 4 for i in range(12)]
ROWS = [
    SimpleNamespace(set=0, index=n, prompt=f"p{n}|", solution=f"s{n},t{n}#{n}", key=f"{n:x}", family="kuhn", answer="7")
    for n in range(3)
]


def batch(rewards: list[float] = REWARDS) -> Batch:
    g = torch.Generator().manual_seed(0)
    spans = [[Span(0, 2, 0, float(i % 2)), Span(2, 3, 1, float(i % 3 == 0))] for i in range(12)]
    return batch_of(
        rewards,
        GROUPS,
        LENGTHS,
        tokens=TOKENS,
        logprobs=-torch.rand(12, 5, generator=g),
        truncated=torch.tensor([length == 5 for length in LENGTHS]),
        spans=spans,
        completions=["b)\ncalc(1+1)#2?#2" if i % 4 == 0 else "b)\n" for i in range(12)],
        expected=torch.rand(12, generator=g, dtype=torch.float64),
        values=torch.rand(12, 5, generator=g),
        shown=torch.tensor([1.0, 0.0, float("nan")] * 4, dtype=torch.float64),
        parts={"outcome": torch.tensor(rewards), "steps": torch.rand(12, generator=g)},
    )


def now(method: Method, memory: Memory) -> StepContext:
    entropy = torch.rand(12, 5, generator=torch.Generator().manual_seed(1))
    given: dict[str, Any] = {"rows": ROWS, "gold": lambda i: ("gold", [i, 2]), "max_completion_length": 5, "progress": 0.5}
    given |= {"encode": lambda text: [1], "likelihood": lambda contexts, texts: [-len(c) * sum(c) % 7.0 for c in contexts]}
    given |= {"offsets": lambda tokens, text: list(range(len(tokens)))}
    given |= {"draw": lambda m: batch([1.0, 0, 1, 0] * 3), "memory": memory}
    given |= {"collisions": lambda batch: batch.logprobs.exp() ** 2 + 0.1}
    given |= {"reference": lambda batch: batch.logprobs - 0.5}
    given |= {"continued": lambda rows, places, n: torch.tensor([0.5 + 0.1 * kept for _, kept in places])}
    at = now_of(entropy=entropy, **given)
    return replace(at, method=method)


def turned(found: Batch) -> Batch:
    """Its first two tokens a turn, for which some are paid, and the rest another, which is worth what the row is."""
    lengths = found.lengths.tolist()
    spans = [[Span(0, 2, 0, float(i % 2)), Span(2, n, 1, float(found.rewards[i]))] for i, n in enumerate(lengths)]
    episodes = [
        (
            Segment("action", f"ask({i % 3})", 0, reward=float(i % 2)),
            Segment("observation", "ab"[i % 2], 0),
            Segment("action", BOX, 1),
        )
        for i in range(len(lengths))
    ]
    said = [verdict._replace(said=str(i % 2)) for i, verdict in enumerate(found.verdicts)]
    return replace(found, spans=spans, turns=[[verdict, verdict] for verdict in said], verdicts=said, segments=episodes)


def acted(method: Method) -> Any:
    board = Board("random", "X...O....", 0)
    rows = [turns.row(text, answer, "tic_tac_toe") for text, answer in (("p|", "4"), ("q|", "7"))]
    setting = turns.setting(lambda text, sample: f"{len(text) % 7}$", rows)._replace(problem=lambda row: board)
    played = play_episodes(method.episode, setting, turns.asked(rows, 2))
    return played.rollouts.tokens.tolist(), [len(requests) for requests, _ in setting.engine.asked]


def asked(method: Method) -> Any:
    memory = Memory(12)
    told = []
    for step in range(1, 5):
        at = replace(now(method, memory), step=step)
        first = first_requests(ROWS, at)
        found = batch()
        kept = kept_rollouts(found, at)
        told += [first, next_requests(ROWS, found, 0, at), kept.row.tolist(), kept.teacher]
    return told


def rewarded(method: Method) -> Any:
    at = now(method, Memory(12))
    batches = [batch(rewards) for rewards in (REWARDS, REWARDS[::-1])]
    if any("several_turns" in spec.needs() for spec in method.shaping):
        batches = [turned(found) for found in batches]
    return [(found.rewards.tolist(), found.spans) for found in (shape_rewards(each, at) for each in batches)]


def after_edits(method: Method) -> Any:
    small = [TokenBudget(tokens=20) if isinstance(edit, TokenBudget) else edit for edit in method.edits]  # 51 tokens here
    at = now(method.model_copy(update={"edits": small}), Memory(12))
    told = []
    for rewards in (REWARDS, REWARDS[::-1]):
        kept = edits_before_advantage(replace(batch(rewards), spans=None), at)
        kept, advantage, bears = edits_after_advantage(kept, advantages(GRPO.advantage, kept, at), kept.mask(), at)
        told.append((kept.row.tolist(), advantage.tolist(), bears.tolist()))
    return told


def valued(method: Method) -> Any:
    if method.advantage.name == "role":
        return advantages(method.advantage, replace(batch(), seats=torch.arange(12) % 2), now(method, Memory(12))).tolist()
    found = turned(batch()) if "several_turns" in method.advantage.needs() else batch()
    return advantages(method.advantage, found, now(method, Memory(12))).tolist()


def drawn(method: Method) -> Any:
    draws = build_sampler(method.sampler, PromptSource([30], [1.0], 0))
    told = []
    for step in range(1, 4):
        told.append(draws.select(5, step))
        draws.observe(step, [Outcome(i, (float(i % 2),) * 4, 4 * (i % 2), 4 * (i % 2)) for i in told[-1]])
    return told


def learnt(method: Method) -> Any:
    """Where plain gradient descent takes a small model in a step of two minibatches, whose ratios begin all over the place."""
    policy = toy.decoder()
    spec = RLSpec(method=GRPO, mix=[1.0], steps=1, prompts_per_step=4, minibatches=2, max_completion_length=toy.LONGEST)
    plain = {"optimizer": spec.optimizer.model_copy(update={"max_grad_norm": 0.0}), "method": method}
    spec = spec.model_copy(update=plain)
    references = ((1.0, toy.decoder(seed=1)),) if method.loss.refers() else ()
    learner = Learner(spec, policy, references, [torch.optim.SGD(policy.parameters(), lr=0.05)], 10**6)
    found = toy.batch_of(toy.REWARDS)
    with torch.no_grad():
        logp = scores(policy, found, torch.arange(len(found)), 1.0, torch.float32).logp
    sides = torch.tensor([0.5, 0.9, 1.0, 1.1, 1.24, 1.5, 20.0])  # of every bound
    ratios = sides[torch.randint(len(sides), logp.shape, generator=torch.Generator().manual_seed(5))]
    found = replace(found, logprobs=logp - ratios.log(), off_policy=torch.ones(len(found), dtype=torch.bool))
    found = replace(
        found, teacher=[[3, *prompt] for prompt in found.prompts], steps=torch.arange(toy.LONGEST).expand(logp.shape) // 2
    )
    update(learner, found, advantages(GRPO.advantage, found, now_of()), 1)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach().tolist()


def sampled(method: Method) -> Any:
    """What a small model writes, once the decoding has learnt from a batch that is less certain than it."""
    policy = toy.decoder()
    spec = RLSpec.model_construct(method=method, temperature=1.0, max_completion_length=12, seed=0)
    memory, special = Memory(12), Special(eos=1, pad=0)
    world: Any = SimpleNamespace(spec=spec, memory=memory, special=special)
    learnt_decoding(method.decoding, batch(), now(method, memory))
    asked = [Request([1, 2, 3 + i], i, 0, 16) for i in range(4)]
    found = engine("native", lagged_policy(method.decoding, policy) or policy, Run()).generate(asked, sampling(world, 2))
    return found.tokens.tolist(), found.logprobs.tolist()


def judged(method: Method) -> Any:
    """What the critic makes of the batch that it learnt from."""
    judge = critic(method.critic, toy.decoder(), "float32", 10**6)
    if judge is None:
        return None
    found = turned(toy.batch_of(toy.REWARDS))
    judge.learn(replace(found, values=judge.values(found)))
    return judge.values(found).tolist()


SEAMS = {
    "sampler": drawn,
    "allocation": asked,
    "prompting": asked,
    "continuation": asked,
    "episode": acted,
    "shaping": rewarded,
    "edits": after_edits,
    "advantage": valued,
    "loss": learnt,
    "critic": judged,
    "decoding": sampled,
    "minibatches": lambda method: RLSpec(method=method, mix=[1.0], steps=1).minibatches,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_differs_from_grpo_at_every_seam_that_it_names(name: str) -> None:
    seams = differing(METHODS[name], GRPO)
    assert seams
    for seam in seams:
        own = GRPO.model_copy(update={seam: getattr(METHODS[name], seam)})
        assert SEAMS[seam](own) != SEAMS[seam](GRPO), seam


@pytest.mark.parametrize("name", METHODS)
def test_a_method_can_be_planned_with_a_reward_that_fits_it(name: str) -> None:
    reward = {"name": {"spans": "steps", "role": "payoff"}.get(METHODS[name].advantage.name, "process")}
    RLSpec.model_validate({"method": METHODS[name], "reward": reward, "mix": [1.0], "steps": 1})
