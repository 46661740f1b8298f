"""Speed of the generating families on one thread: problems generated and rendered, and solutions verified, per second.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/tasks.py [--profile]

Solutions are one third gold, one third gold in another valid order, one third gold with one step spoilt. `verify` judges one
solution of each problem, so that nothing of a problem was seen before and no gold is seen twice; `verify group` judges eight of
each problem, as in groups of rollouts, of problems that were judged before. Aims at op 10: 10,000 problems/s, and
50,000 solutions/s by `verify`; the share of each is printed. Of bios and taxonomy, by level, solutions are gold, and tokens are
those of a tokenizer of words.
"""

import argparse
import cProfile
import pstats
import random
import time
from collections.abc import Callable

from interplay.data import tokenizer
from interplay.tasks.facts.spec import Bios, Taxonomy
from interplay.tasks.families import task_family
from interplay.tasks.op_dag.dag import Problem, structure
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import parse_part, parse_step_cached, render
from interplay.tasks.op_dag.terse_prompts import solve
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify

OPS = (5, 10, 20)
MODES = {"forward": {"forward": 1.0}, "reverse": {"reverse": 1.0}}
GROUP = 8
AIMS = {"generate + render": 10_000, "verify": 50_000}


def rate(work: Callable[[int], object], items: int) -> float:
    """Items per CPU second; `work(i)` does item i."""
    started = time.process_time()
    for item in range(items):
        work(item)
    return items / (time.process_time() - started)


def other_order(problem: Problem, solution: str, rng: random.Random) -> str:
    """The gold solution with its evaluation in another order that respects the parents."""
    unfolded, _, rest = solution.partition("|")
    evaluated, mark, tail = rest.partition("#")
    steps = {text[0]: text for text in evaluated.split("|")[0].split(",")}
    places = {node.name: node for node in problem.nodes[: problem.necessary]}
    order: list[str] = []
    while len(order) < len(steps):
        ready = [n for n in steps if n not in order and all(problem.nodes[p].name in order for p in places[n].parents)]
        order.append(rng.choice(ready))
    equation = evaluated.partition("|")[1] + evaluated.partition("|")[2]
    return f"{unfolded}|{','.join(steps[name] for name in order)}{equation}{mark}{tail}"


def spoilt(solution: str, rng: random.Random) -> str:
    """The gold solution with one step dropped, or one character of it changed for another of its kind."""
    body, _, answer = solution.partition("#")
    steps = body.split(",")
    place = rng.randrange(len(steps))
    if rng.random() < 0.3 and len(steps) > 1:
        del steps[place]
    else:
        text = steps[place]
        spot = rng.randrange(len(text))
        kind = next((k for k in ("0123456", "abcdefghijklmnopqrstuvwxyz", "+-*") if text[spot] in k), text[spot])
        steps[place] = text[:spot] + rng.choice(kind) + text[spot + 1 :]
    return ",".join(steps) + "#" + answer


def completions(problem: Problem, solution: str, rng: random.Random) -> list[str]:
    """Eight solutions of a problem: gold, reordered and spoilt in turn."""
    kinds = (lambda: solution, lambda: other_order(problem, solution, rng), lambda: spoilt(solution, rng))
    return [kinds[number % 3]() for number in range(GROUP)]


def measure(task: OpDag, op: int, size: int) -> dict[str, float]:
    """Rates of every function at one op, in items per CPU second."""
    options, rng = Verify(), random.Random(0)
    problems = [generate(task, 1, index, op) for index in range(size)]
    shown = [render(problem, task) for problem in problems]
    groups = [completions(problem, each.solution, rng) for problem, each in zip(problems, shown, strict=True)]
    single = [rng.choice(group) for group in groups]
    pairs = [(problem, text) for problem, group in zip(problems, groups, strict=True) for text in group]
    return {
        "generate + render": rate(lambda i: render(generate(task, 0, i, op), task), size),
        "solve": rate(lambda i: solve(shown[i].prompt, task), size),
        "structure": rate(lambda i: structure(problems[i]), size),
        "verify": rate(lambda i: verify(problems[i], single[i], options), size),
        "verify group": rate(lambda i: verify(*pairs[i], options), len(pairs)),
    }


def facts(task: Bios | Taxonomy, op: int, size: int) -> dict[str, float]:
    """Rates of every function of a family about facts, in items per CPU second, and tokens of a prompt and a solution."""
    module, options = task_family(task), Verify()
    solver = module.solve
    assert solver is not None  # families of the project have one
    problems = [module.generate(task, 1, index, op) for index in range(size)]
    shown = [module.render(problem, task) for problem in problems]
    words = tokenizer.word_tokenizer(module.vocabulary(task))
    tokens = [tokenizer.encode_all(words, list(texts))[1].mean() for texts in list(zip(*shown, strict=True))[:2]]
    return {
        "generate + render": rate(lambda i: module.render(module.generate(task, 0, i, op), task), size),
        "solve": rate(lambda i: solver(shown[i].prompt, task), size),
        "structure": rate(lambda i: module.structure(problems[i]), size),
        "verify": rate(lambda i: module.verify(problems[i], shown[i].solution, options), size),
        "prompt tokens": tokens[0],
        "solution tokens": tokens[1],
    }


def measure_facts(size: int, repeats: int) -> None:
    """Measure and print bios and taxonomy, level by level."""
    levels = {"statement": [1], "parametric": [1], "contextual": [1], "iid": [2, 3], "in_context": [2, 4]}
    tasks: list[tuple[Bios | Taxonomy, int]] = [
        *((Bios.model_validate({"level": level}), op) for level, ops in levels.items() for op in ops),
        *((Taxonomy(), op) for op in (1, 4)),
    ]
    names = ("generate + render", "solve", "structure", "verify")
    print(f"{'level':10} {'op':>3} " + " ".join(f"{name:>18}" for name in names) + "  tokens")
    for task, op in tasks:
        runs = [facts(task, op, size) for _ in range(repeats)]
        best = [max(run[name] for run in runs) for name in runs[0]]
        rates = " ".join(f"{value:16,.0f}/s" for value in best[:4])
        print(f"{task.level:10} {op:3} {rates}  {best[4]:.1f} + {best[5]:.1f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="problems per figure")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many is printed")
    parser.add_argument("--profile", action="store_true", help="also print where the time goes at op 10")
    arguments = parser.parse_args()
    print(
        f"{'mode':8} {'op':>3} "
        + " ".join(f"{name:>18}" for name in ("generate + render", "solve", "structure", "verify", "verify group"))
    )
    for mode, modes in MODES.items():
        task = OpDag.model_validate({"modes": modes, "filler": (0, 40)})
        for op in OPS:
            runs = []
            for _ in range(arguments.repeats):
                parse_step_cached.cache_clear()
                parse_part.cache_clear()
                runs.append(measure(task, op, arguments.size))
            best = {name: max(run[name] for run in runs) for name in runs[0]}
            print(f"{mode:8} {op:3} " + " ".join(f"{value:16,.0f}/s" for value in best.values()), flush=True)
            if op == 10:
                for name, aim in AIMS.items():
                    print(f"    aim {name} {aim:,}/s: {'met' if best[name] >= aim else 'MISSED'}, {best[name] / aim:.0%} of it")
        if arguments.profile:
            profile(lambda task=task: measure(task, 10, arguments.size))  # type: ignore[misc]
    measure_facts(arguments.size, arguments.repeats)


def profile(work: Callable[[], object]) -> None:
    """Print the functions that take most of the time."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(16)


if __name__ == "__main__":
    main()
