"""Speed of the prose surface on one thread, compared with the released generator and parser: problems generated and rendered, and
solutions verified, per second of CPU.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/op_dag_prose.py [--check 1000]

Released, measured on one core of the machine of docs/log.md (zero context, two layers, three themes): 268 forward and 17.5
reverse problems/s at op 10, 13,000 solutions/s parsed. `verify` judges one gold of each problem, with letters of its own, so that
nothing of a problem was seen before and no gold is seen twice; `verify group` judges eight solutions of each problem, as in
groups of rollouts: gold with letters of their own, every other one with a value spoilt. Aims at op 10: 10,000 problems/s, and
50,000 solutions/s by `verify`; the share of each is printed. `--check N` instead verifies and solves N problems of every op of
2..20 in both modes, and prints how fast those of op 10 were made and verified on the way.
"""

import argparse
import random
import re
import time

from tasks import AIMS, GROUP, OPS, rate  # bench/tasks.py

from interplay.tasks.op_dag.prose import render, structure
from interplay.tasks.op_dag.prose_parser import parse_sentence, parse_side
from interplay.tasks.op_dag.prose_problems import generate, solve
from interplay.tasks.op_dag.prose_verifier import gold, verify
from interplay.tasks.op_dag.spec import OpDagProse
from interplay.tasks.op_dag.terse import LETTERS, parse_part
from interplay.tasks.spec import Verify

MODES = ("forward", "reverse")
RELEASED = {"forward": 268.0, "reverse": 17.5}
"""Problems/s at op 10."""
PARSED = 13_000
LETTER = re.compile(r"(?<![\w'-])[A-Za-z](?![\w'-])")


def sampled(solution: str, number: int, rng: random.Random) -> str:
    """The gold with other letters; every other one says a wrong value somewhere."""
    free = iter(rng.sample(LETTERS.replace("x", ""), 51))
    known = {"x": "x"} if " as x; we don't" in solution else {}
    text = LETTER.sub(lambda found: known[found[0]] if found[0] in known else known.setdefault(found[0], next(free)), solution)
    if number % 2:
        spots = [found.start() for found in re.finditer(r"(?<= = )[0-9]", text)]
        spot = rng.choice(spots or [0])
        text = text[:spot] + str((int(text[spot]) + 1) % 10 if spots else "") + text[spot + 1 :]
    return text


def measure(task: OpDagProse, op: int, size: int) -> dict[str, float]:
    """Rates of every function at one op, in items per CPU second."""
    options, rng = Verify(), random.Random(0)
    for cache in (gold, parse_sentence, parse_side, parse_part):
        cache.cache_clear()
    problems = [generate(task, 1, index, op) for index in range(size)]
    shown = [render(problem, task) for problem in problems]
    golds = [sampled(each.solution, 0, rng) for each in shown]
    groups = [
        (problem, sampled(each.solution, number, rng))
        for problem, each in zip(problems[: size // GROUP], shown, strict=False)
        for number in range(GROUP)
    ]
    return {
        "generate + render": rate(lambda i: render(generate(task, 0, i, op), task), size),
        "solve": rate(lambda i: solve(shown[i].prompt, task), size),
        "structure": rate(lambda i: structure(problems[i]), size),
        "verify": rate(lambda i: verify(problems[i], golds[i], options), size),
        "verify group": rate(lambda i: verify(*groups[i], options), len(groups)),
    }


def check(size: int) -> None:
    """Verify and solve `size` problems of every op of 2..20 in both modes; print what is not strict or not solved, and the
    rates at op 10 next to the released ones, caches cold, everything that the work takes included."""
    options = Verify(operator=True, extra_nodes="penalised")
    for mode in MODES:
        task = OpDagProse.model_validate({"modes": {mode: 1.0}})
        wrong = keys = 0
        rates = (0.0, 0.0)
        for op in range(2, 21):
            started = time.process_time()
            problems = [generate(task, 2, index, op) for index in range(size)]
            shown = [render(problem, task) for problem in problems]
            made = time.process_time()
            strict = [verify(problem, each.solution, options).strict for problem, each in zip(problems, shown, strict=True)]
            judged = time.process_time()
            rates = (size / (made - started), size / (judged - made)) if op == 10 else rates
            keys += len({structure(problem) for problem in problems})
            solved = [
                problem.op == op and solve(each.prompt, task) == each.answer
                for problem, each in zip(problems, shown, strict=True)
            ]
            wrong += size - sum(map(all, zip(strict, solved, strict=True)))
        print(f"{mode}: {19 * size:,} golds, {wrong} not strict, of another op or not solved; {keys:,} structures")
        print_comparison(mode, *rates)


def print_comparison(mode: str, made: float, judged: float) -> None:
    """Print problems and verifications per second at op 10 and of the released ones."""
    print(f"    op 10: {made:,.0f} problems/s, released {RELEASED[mode]:,}: {made / RELEASED[mode]:,.1f} times; ", end="")
    print(f"{judged:,.0f} solutions/s verified, released {PARSED:,} parsed: {judged / PARSED:.2f} times", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="problems per figure")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many is printed")
    parser.add_argument("--check", type=int, default=0, help="verify so many golds of each op instead")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.check)
        return
    names = ("generate + render", "solve", "structure", "verify", "verify group")
    print(f"{'mode':8} {'op':>3} " + " ".join(f"{name:>18}" for name in names))
    for mode in MODES:
        task = OpDagProse.model_validate({"modes": {mode: 1.0}})
        for op in OPS:
            runs = [measure(task, op, arguments.size) for _ in range(arguments.repeats)]
            best = {name: max(run[name] for run in runs) for name in names}
            print(f"{mode:8} {op:3} " + " ".join(f"{value:16,.0f}/s" for value in best.values()), flush=True)
            if op == 10:
                print_comparison(mode, best["generate + render"], best["verify"])
                for name, aim in AIMS.items():
                    print(f"    aim {name} {aim:,}/s: {'met' if best[name] >= aim else 'MISSED'}, {best[name] / aim:.0%} of it")


if __name__ == "__main__":
    main()
