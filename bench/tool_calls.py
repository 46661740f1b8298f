"""Calls a second of each tool, and turns a second of an episode loop whose policy costs nothing: what tools add to a rollout.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/tool_calls.py [--calls 2000]

No call repeats another, so that none is remembered. An episode has four calls and an answer; each call runs the earlier
programs of its episode again, and the loop includes the verdict."""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import torch

from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.rollout.spec import EnvironmentEpisode
from interplay.rollout.turns import Setting
from interplay.tasks.environments import given_tools, sandbox
from interplay.tasks.environments.spec import PythonTool, SearchTool, SqlTool
from interplay.tasks.families import judge_family
from interplay.tasks.family import Table, compact_json
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

END = 1
PEOPLE = (Table("people", ("name", "age", "city"), tuple((f"P{n}", n, f"C{n % 5}") for n in range(12))),)
SMALL = tuple(sandbox.Document(f"T{n}", f"The town T{n} lies in land L{n % 7}, by river R{n % 3}.") for n in range(20))
LARGE = tuple(sandbox.Document(f"T{n}", f"The town T{n} lies in land L{n % 7}, by river R{n % 3}.") for n in range(10_000))


def per_second(calls: int, one: Callable[[int], object]) -> float:
    """Calls a second of wall time, after a first one."""
    one(-1)
    began = time.perf_counter()
    for number in range(calls):
        one(number)
    return calls / (time.perf_counter() - began)


class Reciter:
    """An engine that writes four programs and then the answer, a character a token."""

    def __init__(self, answer: str) -> None:
        self.answer, self.numbers = answer, itertools.count()

    def close(self) -> None:
        """There is nothing to close."""

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """What it writes behind each prompt."""
        asked = [
            (number, sample, one) for number, one in enumerate(requests) for sample in range(one.first, one.first + one.count)
        ]
        texts = [f"#{self.answer}" if one.prompt.count(10) == 4 else f"python({next(self.numbers)} + 1)" for _, _, one in asked]
        tokens = [[*map(ord, text), END] for text in texts]
        width = max(map(len, tokens))
        return Rollouts(
            request=torch.tensor([number for number, _, _ in asked]),
            sample=torch.tensor([sample for _, sample, _ in asked]),
            tokens=torch.tensor([[*row, *[0] * (width - len(row))] for row in tokens]),
            lengths=torch.tensor([len(row) for row in tokens]),
            logprobs=torch.zeros(len(tokens), width),
            truncated=torch.zeros(len(tokens), dtype=torch.bool),
        )


def turns_per_second(episodes: int) -> float:
    """Of episodes side by side, with a policy that recites."""
    problem, family = OP_DAG.generate(OpDag(), 0, 0, 2), judge_family(given_tools.NAME)
    shown = OP_DAG.render(problem, OpDag())
    tools = compact_json([PythonTool().model_dump()])
    given = given_tools.Given("op_dag", OP_DAG.dumps(problem), shown.answer, tools)
    row = Row(0, 0, "b", 2, "m", shown.prompt, "", shown.answer, given_tools.dumps(given), "0", given_tools.NAME, "")
    setting = Setting(
        engine=Reciter(shown.answer),
        sampling=Sampling(1.0, 1.0, 0, 99, 0, END, 0),
        encode=lambda texts, special=True: [list(map(ord, text)) for text in texts],
        decode=lambda rows: ["".join(map(chr, row)).rstrip("\x01") for row in rows],
        rows=[row],
        verify=lambda of, text: family.verify(given, text, Verify()),
        problem=lambda of: given,
    )
    request = Request([*map(ord, shown.prompt)], 0, 0, episodes)
    began = time.perf_counter()
    played = play_episodes(EnvironmentEpisode(max_turns=5), setting, [request])
    taken = time.perf_counter() - began
    assert all(turns[-1].verdict and turns[-1].verdict.answer for turns in played.turns or [])
    return 5 * episodes / taken


def rates(calls: int) -> Iterator[tuple[str, float]]:
    """A name and calls a second."""
    python, sql, search = PythonTool(), SqlTool(), SearchTool()
    yield "python, an expression", per_second(calls, lambda n: sandbox.run_python(f"{n} + 1", [], python))
    loop = "x = 0\nfor i in range(1000):\n    x += i * {}\nprint(x)"
    yield "python, a loop of 1000", per_second(calls // 4, lambda n: sandbox.run_python(loop.format(n), [], python))
    older = "SELECT name FROM people WHERE age > {}"
    yield (
        "sql, 12 rows",
        per_second(calls, lambda n: sandbox.run_sql(older.format(n % 12), PEOPLE, sql)),
    )
    yield "search, 20 documents", per_second(calls, lambda n: sandbox.run_search(f"town T{n}", SMALL, search))
    yield "search, 10,000 documents", per_second(calls // 20, lambda n: sandbox.run_search(f"T{n} land", LARGE, search))
    yield "an index of 20 documents", per_second(calls // 20, lambda n: sandbox.index((sandbox.Document(f"{n}", "x"), *SMALL)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    for name, rate in rates(parser.parse_args().calls):
        print(f"{name:34} {rate:9,.0f} calls/s {1e6 / rate:8,.0f} us")
    rate = turns_per_second(200)
    print(f"{'an episode loop with python':34} {rate:9,.0f} turns/s {1e6 / rate:7,.0f} us")


if __name__ == "__main__":
    main()
