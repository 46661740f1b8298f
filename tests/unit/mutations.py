"""Random damage to the YAML files of a study: to their structure, and to their text. The same seed gives the same damage."""

import copy
import datetime
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

RICH = """
defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_

question: Does every part of the algebra survive damage?
data:
  corpus: {band: id, split: train}
  held_out: {band: id, split: validation}
  edge: {band: edge, split: rl, op_shares: {3: 1.0}}
  mixed: {bands: [id, edge], split: rl, size: 50, transform: {function: 'own.py:rows'}}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out, run: {threads: 1}, checkpoints: [20, 40]}
  best: {kind: select, by: eval_loss/id, mode: min}
  top: {kind: select, by: strict_pass@1, mode: max, evaluate: eval, band: edge}
  mid: {kind: midtrain, data: {edge: 0.5, corpus: 0.5}, corpus: {packing: causal}}
  rl: {kind: rl, data: {edge: 1.0}, reward: {name: custom, function: 'own.py:score', options: {scale: 2}}}
  eval: {kind: evaluate, data: test, num_samples: 40}
  ladder: {kind: evaluate, data: test, along: base, num_samples: 4}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
  lr: {path: [base, rl], grid: {rl.optimizer.learning_rate: [0.001, 0.002], rl.steps: [2, 3]}}
  step: {path: [base, rl], zip: {rl.steps: [5, 6], rl.minibatches: [1, 2]}, control: base}
  around: {path: [base, rl], set: {rl.keep_rollouts: 3}, one_at_a_time: {rl.temperature: [0.8, 1.2], rl.minibatches: [2, 4]}}
  inside:
    path: [base, mid]
    set: {task.copies: 0.1}
    grid: {mid.tokens: [20000, 30000]}
    nested: {mid.batch_tokens: {under: {mid.tokens: [30000]}, values: [512, 2048]}}
    exclude: [{mid.tokens: 30000, mid.batch_tokens: 512}]
  early: {path: [base@20, rl], control: rl}
  chosen: {path: [base, best, mid], differs: [mid.data]}
  passed: {path: [base, top, mid], set: {mid.data: {edge: 1.0}}}
evaluate: [eval, ladder]
seeds: {values: [0, 1], vary: [rl, mid]}
match:
  - {budget: rollouts, accounting: paper, tolerance: 0.9, among: [rl, 'step[steps=5,minibatches=1]']}
tables:
  main: {columns: [id, edge], cells: [strict_pass@1]}
figures:
  curve: {x: step, y: loss}
  along: {x: step, y: strict_pass@1}
  ks: {x: k, y: strict_pass, panel: band}
claims:
  - says: It lifts
    test: {difference: strict_pass@1, band: edge, arm: rl, against: base, at_least: 0.1}
"""
OWN = "def rows(rows):\n    return rows\n\n\ndef score(rows, completions, verdicts, scale=1):\n    return [0.0 for _ in completions]\n"

VALUES: list[Callable[[random.Random], Any]] = [
    lambda _: None,
    lambda _: True,
    lambda _: False,
    lambda r: r.choice([0, -1, 1, 2, 7, 10**6, 10**30, -(10**30)]),
    lambda r: r.choice([0.0, -0.0, -0.5, 0.5, 1e308, 1e-308, float("nan"), float("inf"), float("-inf")]),
    lambda r: r.choice(
        ["", " ", "x", "many", "null", "~", "1e-5", "1.0", "true", "\u00e9\u4e2d\U0001f600", "a\nb", "\t", "a.b.c", "-", "[", "%"]
    ),
    lambda r: r.choice(
        ["${oops}", "${question}", "${oc.env:HOME}", "???", "${", "x" * 5000, "op:3", "op:", "op:x", "strict_pass@0"]
    ),
    lambda r: r.choice([[], {}, [None], {"a": None}, [[]], [{}], {"": 1}, {"a": {"b": {"c": 1}}}, {1: 2}, {None: 1}, {True: 1}]),
    lambda r: deep(r.choice([5, 50, 100])),
    lambda r: list(range(r.choice([3, 300]))),
    lambda _: datetime.date(2026, 11, 20),
    lambda _: b"\x00\xff",
    lambda r: {"name": "custom", "function": function(r)},
    lambda r: r.choice(
        [
            "base",
            "rl",
            "mid",
            "eval",
            "edge",
            "id",
            "corpus",
            "test",
            "task",
            "pretrain",
            "source",
            "evaluate",
            "report",
            "select",
        ]
    ),
    lambda r: {r.choice(["base", "rl", "eval", "task", "edge", "data"]): r.choice([1.0, 0.5, None, "x", [1], {}])},
]
KEYS = [
    "",
    " ",
    "a.b",
    "x",
    "kind",
    "data",
    "name",
    "run",
    "task",
    "set",
    "\u4e2d",
    "a\nb",
    "[0]",
    "base",
    "rl",
    "rl[x=1]",
    "/",
    "..",
    "null",
    "1",
    "_self_",
    "defaults",
    "seed",
    "mix",
    "function",
    "path",
]


def deep(levels: int) -> Any:
    """Nested lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def function(r: random.Random) -> Any:
    """Names of functions, most of them outside the study's folder or not there."""
    return r.choice(
        [
            "own.py:score",
            "own.py:nothing",
            "../../../etc/passwd:root",
            "/etc/passwd:root",
            "own.py",
            "own.py:",
            ":",
            "",
            ".:f",
            "..:f",
            "/dev/zero:f",
            "own.py:score:score",
            "own.py:a b",
            "missing.py:f",
            "\x00:f",
            "x" * 400 + ".py:f",
            "../study/own.py:score",
            "own.py/x:f",
            3,
            None,
            [],
            {},
        ]
    )


def places(tree: Any) -> list[tuple[Any, ...]]:
    """Paths of all values below the top, but for those inside very deep ones."""
    found: list[tuple[Any, ...]] = [()]
    for path in found:
        here = at(tree, path)
        pairs = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else []
        found += [(*path, key) for key in pairs if len(path) < 9]
    return found[1:]


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path."""
    for key in path:
        tree = tree[key]
    return tree


def hurt_structure(tree: Any, r: random.Random) -> None:
    """One change to a random place of the tree."""
    here = places(tree)
    if not here:
        return
    path = r.choice(here)
    parent, key = at(tree, path[:-1]), path[-1]
    if r.random() < 0.4:
        parent[key] = alike(parent[key], [at(tree, place) for place in here], r)
        return
    match r.randrange(9):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[misspelt(str(key), r)] = parent.pop(key)
        case 2 if isinstance(parent, list):
            parent.append(parent[key])
        case 3 if isinstance(parent[key], list):
            r.shuffle(parent[key])
        case 4:
            other = r.choice(here)
            if path[: len(other)] != other and other[: len(path)] != path:
                parent[key], at(tree, other[:-1])[other[-1]] = at(tree, other), parent[key]
        case 5:
            parent[key] = copy.deepcopy(at(tree, r.choice(here)))
        case 6 if isinstance(tree.get("arms"), dict) and tree["arms"]:
            arm = tree["arms"][r.choice(list(tree["arms"]))]
            if isinstance(arm, dict):
                name = r.choice(["control", "path", "set", "grid", "zip", "one_at_a_time", "nested", "exclude", "differs"])
                arm[name] = r.choice([r.choice(list(tree["arms"])), r.choice(VALUES)(r), {"rl.steps": r.choice(VALUES)(r)}])
        case 7 if isinstance(parent[key], dict):
            parent[key][r.choice(KEYS)] = r.choice(VALUES)(r)
        case _:
            parent[key] = r.choice(VALUES)(r)


def alike(value: Any, others: list[Any], r: random.Random) -> Any:
    """Another value of the same type, so that the damage gets past the checks of types."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return r.choice([0, -1, 1, 2, 3, 5, 64, 1000, 10**12, 10**400, -value, value + 1])
    if isinstance(value, float):
        return r.choice([0.0, 1.0, -value, value / 3, value * 10, 1e-300, 1e300, 0.5])
    if isinstance(value, list):
        return r.choice(
            [
                [],
                value[:1],
                value[::-1],
                value + value,
                value[1:],
                [*value, *(other for other in others if isinstance(other, str))][:9],
            ]
        )
    if isinstance(value, dict):
        dropped = r.choice([*value, None])
        return r.choice(
            [
                {},
                {key: item for key, item in value.items() if key != dropped},
                *(other for other in others if isinstance(other, dict)),
            ]
        )
    return copy.deepcopy(r.choice([other for other in others if isinstance(other, type(value))]))


def misspelt(word: str, r: random.Random) -> str:
    """A slip of the pen, or another word."""
    if len(word) > 2 and r.random() < 0.6:
        spot = r.randrange(len(word) - 1)
        return r.choice(
            [word[:spot] + word[spot + 1] + word[spot] + word[spot + 2 :], word[:spot] + word[spot + 1 :], word + word[-1]]
        )
    return r.choice(KEYS)


def hurt_text(text: str, r: random.Random) -> str:
    """One change to the text."""
    lines = text.split("\n")
    spot = r.randrange(len(lines))
    place = r.randrange(len(text) + 1)
    match r.randrange(9):
        case 0:
            lines.insert(spot, r.choice(lines))
        case 1:
            del lines[spot]
        case 2:
            other = r.randrange(len(lines))
            lines[spot], lines[other] = lines[other], lines[spot]
        case 3:
            lines[spot] = r.choice([" ", "\t", "  ", "- ", "? ", "&a ", "*a", "!!python/name:os.system ", "!x "]) + lines[spot]
        case 4:
            return text[:place] + r.choice(list("{}[]:,-&*!|>'\"%@`#?\x00\x07\u2028\ufeff\U0001f600\n\t \\")) + text[place:]
        case 5:
            return text[:place] + text[place + r.choice([1, 2, 20]) :]
        case 6:
            return text[:place]
        case 7:
            lines.insert(
                spot,
                r.choice(
                    [
                        "---",
                        "...",
                        "<<: *a",
                        "<<: {a: b}",
                        "# @package _global_",
                        "hydra: {run: {dir: /tmp/x}}",
                        "&a [*a]",
                        "  - override /scale: laptop",
                    ]
                ),
            )
        case _:
            return text.replace(
                ": ",
                ": " + r.choice(["[" * 2000, *("[" * depth + "]" * depth + " #" for depth in (200, 260, 320, 900))]),
                r.choice([1, 2, 9]),
            )
    return "\n".join(lines)


def damaged(text: str, r: random.Random) -> str:
    """A file's text after one to three changes."""
    if r.random() < 0.25:
        return hurt_text(text, r)
    tree = yaml.safe_load(text)
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        hurt_structure(tree, r)
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=r.random() < 0.5)
    return hurt_text(text, r) if r.random() < 0.1 else text


def write_rich(configs: Path) -> None:
    """A study that uses every part of the algebra, with functions of its own."""
    (configs / "study/rich.yaml").write_text(RICH)
    (configs / "study/own.py").write_text(OWN)
