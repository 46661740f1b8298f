"""Rollouts over many turns at one thread: an episode of this project and the turns of TRL's GRPOTrainer over the same worlds.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/turns.py [--rounds 5]

A Qwen3 of 0.86M parameters, 8 prompts, 8 episodes each of 8 turns of exactly 16 tokens, in a world that answers each and
never ends. TRL's loop is a `rollout_func` that calls what its own tool loop calls for each turn, with the token ids of
all before it; `nothing kept` is this project's engine without its keys and values of the turns before. Contestants take
turns for `--rounds` rounds in one process; a figure is the best, in CPU time. Prefilled tokens are those of contexts that a
model passes; the least is each token once. Contestants in bfloat16 want a processor with its instructions. The GEMM floor,
explained in bench/gemm.py, is that of the least."""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gemm import DTYPES, forward_products, in_turns, print_floors, quiet, report  # bench/gemm.py
from grpo import NANO  # bench/grpo.py

from interplay.core.execution import Run
from interplay.data import problems, sets, tokenizer as text
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.rollout.engine import Engine, engine
from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.rollout.spec import EnvironmentEpisode
from interplay.rollout.turns import Setting
from interplay.tasks.families import environment_of
from interplay.tasks.spec import OwnTask, Verify
from interplay.tasks.transcripts import join_turns
from interplay.tasks.verdict import Row

PROMPTS, SAMPLES, TURNS, NEW = 8, 8, 8, 16
REPLY = "again\n"
TASK = OwnTask(
    function="patient.py:Patient",
    source=f"""
from interplay.tasks.family import Step

class Patient:
    def generate(self, rng, op):
        return rng.choices("0123456789", k=30)
    def reset(self, problem, seed):
        return "".join(problem)
    def step(self, action):
        return Step({REPLY!r})
    def vocabulary(self):
        return [*"0123456789abcdefghijklmnopqrstuvwxyz \\n"]
""",
)
"""A world that never ends."""
EPISODES = PROMPTS * SAMPLES
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=NEW, seed=0, eos=None, pad=0)
TRL = {
    "TRL float32": {},
    "TRL bfloat16 weights": {"model_init_kwargs": {"dtype": "bfloat16"}},
}


class Counted:
    """An engine that counts what it passes of contexts; a turn that reaches its length is a whole one."""

    def __init__(self, made: Engine, keeps: bool) -> None:
        self.made, self.keeps, self.read = made, keeps, 0

    def close(self) -> None:
        """Of the engine."""
        self.made.close()

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Of the engine."""
        requests = requests if self.keeps else [replace(one, kept=()) for one in requests]
        self.read += sum(len(one.prompt) - (one.kept[0].common(one.prompt) if one.kept else 0) for one in requests)
        made = self.made.generate(requests, sampling)
        return made._replace(truncated=torch.zeros_like(made.truncated))


def problem_rows() -> list[Row]:
    """Problems of one length."""
    spec = ProblemsSpec(task=TASK, bands={"b": {1: 1.0}}, shares={"b": 1.0}, size=PROMPTS, split="rl")
    return problems.first_rows(spec, Run(), PROMPTS)


def ours(place: Path, rows: list[Row], dtype: str, keeps: bool = True) -> tuple[Counted, Callable[[], float]]:
    """Episodes of the project."""
    tokens = text.load(place)
    made = Counted(engine("native", folder.load_decoder(place / "model"), Run(), DTYPES[dtype]), keeps)
    setting = Setting(
        engine=made,
        sampling=SAMPLING,
        encode=lambda texts, special=True: [one.ids for one in tokens.encode_batch(list(texts))],
        decode=tokens.decode_batch,
        rows=rows,
        verify=lambda row, said: sets.judge_completion(Verify(), row, said),
        problem=sets.problem_of,
    )
    asked = [Request(ids, number, 0, SAMPLES) for number, ids in enumerate(setting.encode([row.prompt for row in rows]))]

    def once() -> float:
        made.read = 0
        played = play_episodes(EnvironmentEpisode(max_turns=TURNS), setting, asked)
        assert [len(turns) for turns in played.turns or []] == [TURNS] * EPISODES
        return float(EPISODES * TURNS * NEW)

    return made, once


def no_reward(completions: list[str], **_: Any) -> list[float | None]:
    """Nothing."""
    return [0.0 for _ in completions]


def trl(place: Path, rows: list[Row], out: Path, options: dict[str, Any]) -> tuple[list[int], Callable[[], float]]:
    """The turns of GRPOTrainer."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    tokens, read = text.load(place), [0]
    each = [row for row in rows for _ in range(SAMPLES)]

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        starts = [one.ids for one in tokens.encode_batch(prompts)]
        worlds = [environment_of(row).begin(sets.problem_of(row)) for row in each]
        said: list[list[str]] = [[] for _ in prompts]
        seen: list[list[str]] = [[] for _ in prompts]
        ids = [list(one) for one in starts]
        for turn in range(TURNS):
            read[0] += sum(map(len, ids))
            written, _ = trainer._generate_single_turn(ids, None, {}, 1)
            for own, new, texts, action in zip(ids, written, said, tokens.decode_batch(written), strict=True):
                assert len(new) == NEW
                own += new
                texts.append(action)
            if turn + 1 < TURNS:
                replies = [world.step(texts[-1]).text for world, texts in zip(worlds, said, strict=True)]
                for own, more, texts, reply in zip(ids, tokens.encode_batch(replies), seen, replies, strict=True):
                    own += more.ids
                    texts.append(reply)
        for row, one, replies in zip(each, said, seen, strict=True):
            sets.judge_completion(Verify(), row, join_turns(one, replies))
        done = [own[len(start) :] for own, start in zip(ids, starts, strict=True)]
        return {"prompt_ids": starts, "completion_ids": done, "logprobs": None}

    config = GRPOConfig(
        output_dir=str(out),
        max_steps=1,
        per_device_train_batch_size=EPISODES,
        num_generations=SAMPLES,
        max_completion_length=NEW,
        generation_kwargs={"min_new_tokens": NEW},
        use_cpu=True,
        report_to=[],
        **{"bf16": False, **options},
    )
    trainer = GRPOTrainer(
        model=str(place / "model"),
        args=config,
        reward_funcs=no_reward,
        train_dataset=Dataset.from_list([{"prompt": row.prompt} for row in rows]),
        processing_class=AutoTokenizer.from_pretrained(place / "model", padding_side="left"),
        rollout_func=rollout,
    )

    def once() -> float:
        read[0] = 0
        rollout([row.prompt for row in each], trainer)
        return float(EPISODES * TURNS * NEW)

    return read, once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    bfloat16 = torch.cpu._is_avx512_bf16_supported()
    torch.set_num_threads(1)
    quiet()
    rows = problem_rows()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        text.build_tokenizer(TokenizerSpec(task=TASK), {}, place, Run())
        vocabulary = text.load(place).get_vocab_size()
        folder.save_decoder(folder.init_decoder(NANO, vocabulary, seed=0), place / "model", place / "tokenizer")
        mine = {f"interplay {dtype}": ours(place, rows, dtype) for dtype in DTYPES if bfloat16 or dtype != "bfloat16"}
        mine["interplay int8, nothing kept"] = ours(place, rows, "int8", keeps=False)
        peers = {
            peer: trl(place, rows, place / "trl", options) for peer, options in TRL.items() if bfloat16 or "bfloat16" not in peer
        }
        contestants = {who: once for who, (_, once) in [*mine.items(), *peers.items()]}
        prompt = [len(one.ids) for one in text.load(place).encode_batch([row.prompt for row in rows])]
        reply = len(text.load(place).encode(REPLY).ids)
        least = sum(prompt) + EPISODES * (TURNS - 1) * (reply + 1)
        products = forward_products(NANO, vocabulary, sum(prompt), PROMPTS)
        products += (TURNS - 1) * forward_products(NANO, vocabulary, EPISODES * (reply + 1), EPISODES)
        products += TURNS * (NEW - 1) * forward_products(NANO, vocabulary, EPISODES, EPISODES)
        print(
            f"{PROMPTS} prompts of {sum(prompt) / PROMPTS:.0f} tokens x {SAMPLES} episodes x {TURNS} turns of {NEW} tokens, "
            f"replies of {reply}; best of {rounds} rounds"
        )
        floors = print_floors(products, EPISODES * TURNS * NEW)
        found = report(in_turns(contestants, rounds), floors)
        for who, values in found.items():
            read = mine[who][0].read if who in mine else peers[who][0][0]
            print(f"  {who:30} {values['rate'] / NEW:8,.0f} turns/s, {read:9,} tokens prefilled ({least:,} are new to the model)")


if __name__ == "__main__":
    main()
