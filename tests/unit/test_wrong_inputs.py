"""Wrong inputs as users make them, all in one table: each is refused with exit code 2 and one line that names the place, the value
and a remedy, when the study is planned or the command is read, and never with a traceback."""

import itertools
import json
import shutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import pytest
import yaml
from command_line import interplay
from conftest import ROOT, copy_configs
from pydantic import ValidationError

import interplay as package
from interplay.core.model import Model, UserError
from interplay.kinds.table import KINDS
from interplay.study.spec import Study

LONGEST = 500
"""Characters of a refusal."""
BASE = yaml.safe_load((ROOT / "configs/study/quickstart.yaml").read_text())
del BASE["claims"]


class Wrong(NamedTuple):
    """What is wrong, and words of the refusal: of the place, the value and the remedy."""

    words: tuple[str, ...]
    edit: dict[str, Any] = {}
    """Dotted key -> value in the study; None deletes the key."""
    text: str | bytes | None = None
    """The whole file in place of the study."""
    files: dict[str, str | bytes | Path | None] = {}
    """Further files; a path: a link there; None: a folder."""
    argv: tuple[str, ...] = ("plan", "wrong", "--scale", "smoke")
    env: dict[str, str] = {}


def data(rows: str | bytes, **spec: Any) -> dict[str, Any]:
    """A study that reads the file rows.jsonl."""
    own = {"file": "rows.jsonl", "format": "jsonl", **spec}
    name = own["file"]
    return {"edit": {"data.own": own, "stages.rl.data": {"own": 1.0}}, "files": {name: rows}}


def reward(code: str, function: str = "mine.py:score", **more: Any) -> dict[str, Any]:
    """A study with a reward of its own."""
    spec = {"name": "custom", "function": function, **more}
    return {"edit": {"stages.rl.reward": spec}, "files": {"configs/study/mine.py": code} if code else {}}


EXTENDED = """defaults: [quickstart, _self_]
question: Is it at the arm's line?
arms:
  fine: {{path: [base, rl], set: {{rl.data: {{edge: 0.5, corpus: 0.5}}}}}}
  wrong: {{path: [base, rl], set: {{{arm}}}}}
claims: []
"""
TASK = {"/task@task": "op_dag"}
LIFT = {"difference": "strict_pass@1", "band": "edge", "arm": "rl_edge", "against": "base", "at_least": 0.1}
GOOD_ROW = '{"question": "1+1?", "answer": "2"}\n'
TYPOS = {
    "a key of a stage": Wrong(("study/wrong.yaml", "stages.base.tokns", "tokens"), {"stages.base.tokns": 3}),
    "a key of the study": Wrong(("study/wrong.yaml", "qestion", "question"), {"qestion": "?"}),
    "no question": Wrong(("study/wrong.yaml", "question = ' '", "in a sentence"), {"question": " "}),
    "a number that is true": Wrong(("stages.rl.steps = True", "whole number"), {"stages.rl.steps": True}),
    "a share that is false": Wrong(("stages.rl.data", "edge", "number"), {"stages.rl.data": {"edge": False, "corpus": 1.0}}),
    "a table without cells": Wrong(("tables.main.cells = []", "strict_pass@1"), {"tables.main.cells": []}),
    "a table without columns": Wrong(("tables.main.columns = []", "a band"), {"tables.main.columns": []}),
    "a claim twice": Wrong(
        ("study/wrong.yaml", "claims", "'RL helps'", "another way"), {"claims": [{"says": "RL helps", "test": LIFT}] * 2}
    ),
    "a kind that an arm sets": Wrong(
        ("arms.rl_hard.set.rl.kind", "add a stage of that kind"), {"arms.rl_hard.set": {"rl.kind": "sft"}}
    ),
    "a kind": Wrong(("stages.base.kind", "pretrian", "pretrain"), {"stages.base.kind": "pretrian"}),
    "a method as a kind": Wrong(("stages.rl.kind", "grpo", "rl"), {"stages.rl.kind": "grpo"}),
    "an option of a loss": Wrong(
        ("stages.rl.method.loss", "epsilom", "epsilon"), {"stages.rl.method": {"loss": {"epsilom": 0.1}}}
    ),
    "a file among the defaults": Wrong(
        ("method/grop", "grpo"), {"defaults": [TASK, {"/method@stages.rl.method": "grop"}, "_self_"]}
    ),
    "a study of a folder among the defaults": Wrong(
        ("defaults", "interplay/modes", "write /study/interplay/modes@_here_"), {"defaults": ["interplay/modes", "_self_"]}
    ),
    "a split": Wrong(("data.test", "tset", "test"), {"data.test.split": "tset"}),
    "the name of a reward": Wrong(("stages.rl.reward", "proces", "process"), {"stages.rl.reward": {"name": "proces"}}),
}
TWICE = {"replicate_with": "trl"}
ROUNDS = {"arms.rl_edge.path": ["base", {"repeat": 2, "stages": ["rl"]}]}
FORMS = {
    "a stage of an arm that is repeated": Wrong(
        ("stages.rl = 'x'", "keys and values"),
        {"defaults": None, "task": {"name": "op_dag"}, "stages.rl": "x", "arms.rl_edge": {"path": ["base", "rl"], **TWICE}},
    ),
    "a kind in a list": Wrong(
        ("stages.rl.kind", "no such kind"), {"stages.rl.kind": ["rl"], "arms.rl_edge": {"path": ["base", "rl"], **TWICE}}
    ),
    "a path that is a number": Wrong(("arms.rl_edge.path = 3", "a list"), {"arms.rl_edge": {"path": 3, **TWICE}}),
    "changes that are a text": Wrong(
        ("arms.rl_edge.set = 'x'", "keys and values"), {"arms.rl_edge": {"path": ["base", "rl"], "set": "x", **TWICE}}
    ),
    "a trainer that no stage has": Wrong(
        ("wrong.yaml:", "arms.base.replicate_with = 'trl'", "take it away"), {"arms.base": {"path": ["base"], **TWICE}}
    ),
    "options of a trainer": Wrong(
        ("stages.own.options = 'x'", "keys and values"), {"stages.own": {"kind": "own.py:train", "options": "x"}}
    ),
    "an axis of rounds": Wrong(("arms.rl_edge.grid = 3", "keys and values"), {**ROUNDS, "arms.rl_edge.grid": 3}),
    "a kind of rounds": Wrong(("stages.rl.kind", "no such kind"), {**ROUNDS, "stages.rl.kind": ["rl"]}),
    "what varies with rounds": Wrong(("seeds.vary.0 = ['base']", "text"), {**ROUNDS, "seeds.vary": [["base"]]}),
    "an evaluation that varies": Wrong(("seeds.vary = 'eval'", "stage that leaves a model"), {"seeds.vary": ["eval"]}),
    "one of several bands": Wrong(("data.test.bands = 'egde'", "'edge'"), {"data.test.bands": ["id", "egde"]}),
    "shares of ops": Wrong(("study/wrong.yaml", "data.edge.op_shares", "sum to 0.5"), {"data.edge.op_shares": {2: 0.5}}),
    "a column of an op": Wrong(("tables.main.columns", "op:03", "op:N"), {"tables.main.columns": ["op:03"]}),
}
REFERENCES = {
    "a stage on a path": Wrong(("arms.base.path", "bsae", "base"), {"arms.base.path": ["bsae"]}),
    "a control": Wrong(("arms.rl_edge.control", "bas", "base"), {"arms.rl_edge.control": "bas"}),
    "an arm that is its own control": Wrong(("arms.rl_edge", "control", "another"), {"arms.rl_edge.control": "rl_edge"}),
    "controls in a circle": Wrong(
        ("arms.base.control", "rl_edge", "base -> rl_edge -> base", "has none"), {"arms.base.control": "rl_edge"}
    ),
    "an arm that equals its control": Wrong(("arms.rl_hard", "rl_edge", "take one away"), {"arms.rl_hard.set": None}),
    "a band": Wrong(("data.edge", "egde", "edge"), {"data.edge.band": "egde"}),
    "a metric": Wrong(("tables.main.cells", "strict@1", "strict_pass@K"), {"tables.main.cells": ["strict@1"]}),
    "a k beyond the samples": Wrong(("strict_pass@64", "num_samples", "32"), {"tables.main.cells": ["strict_pass@64"]}),
    "an axis of a figure": Wrong(("figures.by_op.x", "ops", "op"), {"figures.by_op.x": "ops"}),
    "training on the test set": Wrong(("stages.rl", "test", "split"), {"stages.rl.data": {"test": 1.0}}),
}
TYPES = {
    "shares of one set alone": Wrong(
        ("study/wrong.yaml", "arms.rl_hard.grid.rl.data.edge", "these sum to 0.25", "{edge: 0.25, SET: rest}"),
        {"arms.rl_hard.set": None, "arms.rl_hard.grid": {"rl.data.edge": [0.25, 0.5]}},
    ),
    "shares that do not sum to one": Wrong(
        ("stages.base.data", "0.6", "sum to 1"), {"stages.base.data": {"corpus": 0.5, "edge": 0.1}}
    ),
    "a method that is none": Wrong(("rl.method", "dapoo", "dapo"), {"arms.rl_hard.set": {"rl.method": "dapoo"}}),
    "a knob that is not there": Wrong(("stages.rl.steps", "'n'", "knobs: {NAME: value}"), {"stages.rl.steps": "${knobs.n}"}),
    "a knob of itself": Wrong(
        ("stages.rl.steps", "leads back to itself", "write a value"),
        {"knobs": {"n": "${knobs.n}"}, "stages.rl.steps": "${knobs.n}"},
    ),
    "a calculation": Wrong(("stages.rl.steps", "type mul", "${knobs.NAME}"), {"stages.rl.steps": "${mul:2,3}"}),
    "a value that is left open": Wrong(("stages.rl.steps", "???", "write it"), {"stages.rl.steps": "???"}),
    "a number that is a word": Wrong(("stages.rl.steps", "'many'", "whole number"), {"stages.rl.steps": "many"}),
    "a number out of range": Wrong(("stages.rl.temperature", "-1", "greater"), {"stages.rl.temperature": -1}),
}
SYNTAX = {
    "a bracket that is not closed": Wrong(("study/wrong.yaml:3", "'['", "close it"), text="question: why\nevaluate: [eval\n"),
    "a tab": Wrong(("study/wrong.yaml:2", "tab", "spaces"), text="question: why\n\tevaluate: [eval]\n"),
    "a key twice": Wrong(("study/wrong.yaml", "question", "twice"), text="question: why\nquestion: how\n"),
    "an empty file": Wrong(("study/wrong.yaml", "empty", "interplay new"), text=""),
}
CODE = {
    "a file that is not there": Wrong(("stages.rl.reward", "no file mine.py"), **reward("")),
    "a function that is not there": Wrong(("mine.py", "score", "scores"), **reward("def scores(a, b, c): ...\n")),
    "a file that does not parse": Wrong(("mine.py", "line 1"), **reward("def score(\n")),
    "a signature that is none": Wrong(("mine.py:score", "problems, completions, verdicts"), **reward("def score(): ...\n")),
    "text without a licence": Wrong(("data.own", "licence", "CC-BY-4.0"), **data('{"text": "x"}\n', format="text")),
    "a row that is no JSON": Wrong(("data.own.file", "rows.jsonl", "line 2"), **data(GOOD_ROW + "{oops\n")),
    "rows with other keys": Wrong(
        ("data.own.file", "line 1: question is missing (there are prompt, target)", "skip"),
        **data('{"prompt": "1+1?", "target": "2"}\n'),
    ),
    "a file of rows that is not there": Wrong(
        ("nowhere.jsonl", "no such file"),
        {"data.own": {"file": "nowhere.jsonl", "format": "jsonl"}, "stages.rl.data": {"own": 1.0}},
    ),
}
PLAN = ("plan", "quickstart", "--scale", "smoke")
WORDS = {
    "a command": (("plna",), ("plna", "plan")),
    "no study": (("plan",), ("name a study", "--all")),
    "an option": ((*PLAN, "--max-hour", "1"), ("--max-hour", "--max-hours")),
    "a value that an option lacks": (("plan", "quickstart", "--scale"), ("--scale",)),
    "an argument too many": (("report", "quickstart", "laptop"), ("laptop",)),
    "a study, nearly": (("plan", "quikstart"), ("quikstart", "quickstart")),
    "a study, far off": (("plan", "zzz"), ("zzz", "known: ")),
    "a study in a folder": (("plan", "interplay/extrapolaton"), ("extrapolaton", "interplay/extrapolation")),
    "a path as a study": (("plan", "../edge"), ("../edge",)),
    "a scale": (("plan", "quickstart", "--scale", "smokey"), ("smokey", "smoke")),
    "an option of one study": (("plan", "--all", "--check", "--scale", "smoke"), ("--scale", "--all")),
    "a limit on a check": ((*PLAN, "--check", "--max-hours", "1"), ("--max-hours", "--check")),
    "every study, for what": (("plan", "--all"), ("--write", "--check")),
    "a revision": ((*PLAN, "--against", "nosuchrev"), ("--against", "nosuchrev", "git")),
    "hours": ((*PLAN, "--max-hours", "-1"), ("--max-hours", "-1")),
    "GPU-hours": ((*PLAN, "--max-gpu-hours", "many"), ("--max-gpu-hours", "many")),
    "a number of GPUs": ((*PLAN, "--gpus", "two"), ("--gpus", "two", "1,8,64")),
    "a study without results": (("report", "quickstart", "--scale", "smoke"), ("quickstart", "interplay run")),
    "an unfinished study to export": (("export", "quickstart", "--scale", "smoke", "-o", "out"), ("quickstart", "snakemake all")),
    "nothing to export": (("export", "-o", "out"), ("export", "name a study")),
    "a file that is no export": (("export", "--from", "configs/config.yaml", "-o", "out"), ("configs/config.yaml", "export")),
    "hours of a study without looks": (("settle", "quickstart", "--hours", "1"), ("quickstart.yaml", "stopping", "looks")),
    "what to register": (("register",), ("name a study", "--forecasts")),
    "hours of settle": (("settle", "quickstart", "--hours", "-1"), ("--hours", "-1")),
    "a table": (("explain", "quickstart", "mian", "base", "edge"), ("mian", "main")),
    "a row": (("explain", "quickstart", "main", "bse", "edge"), ("bse", "base")),
    "a column": (("explain", "quickstart", "main", "base", "egde"), ("egde", "edge")),
    "a metric": (("explain", "quickstart", "main", "base", "edge", "--metric", "strict"), ("strict", "strict_pass@1")),
    "a seed": (("explain", "quickstart", "main", "base", "edge", "--seed", "9"), ("9", "0")),
    "a digest": (("show", "zzzz"), ("zzzz", "digest")),
    "an arm of an address": (("show", "quickstart/rl_edg/rl@0"), ("rl_edg", "rl_edge")),
    "a stage of an address": (("show", "quickstart/rl_edge/rrl@0"), ("rrl", "rl")),
    "a seed of an address": (("show", "quickstart/rl_edge/rl@7"), ("7", "0")),
    "a stage to draw": (("lineage", "zzzz"), ("zzzz",)),
    "a side of a comparison": (("compare", "quickstart:rl_edg", "quickstart:base"), ("rl_edg", "rl_edge")),
    "a metric of a comparison": (
        ("compare", "quickstart:base", "quickstart:rl_edge", "--metric", "strct"),
        ("strct", "strict_pass@K"),
    ),
    "rollouts of nothing": (("rollouts", "zzzz"), ("zzzz", "interplay plan STUDY --stages")),
    "rollouts both ways": (("rollouts", "zzzz", "--failed", "--passed"), ("--passed", "--failed")),
    "a row of a set": (("rows", "zzzz:x"), ("zzzz", "STAGE:INDEX")),
    "a folder to adopt": (("adopt", "nowhere"), ("nowhere", "config.json")),
    "an age": (("gc", "--older-than", "old"), ("--older-than", "old")),
    "what the store does": (("store", "psh"), ("psh", "push")),
    "a store of MLflow": (("track", "sync", "--all", "--to", "nowhere://x"), ("nowhere://x", "--to")),
}
NEW_WORDS = {
    "the scale coffee": (("plan", "quickstart", "--scale", "cofee"), ("scale=cofee", "coffee")),
    "a new study's name, taken": (("new", "quickstart"), ("quickstart", "another")),
    "a new study's name, outside": (("new", "../mine"), ("../mine",)),
    "a new study's name, two words": (("new", "my study"), ("my study",)),
    "a study to extend": (("new", "mine", "--from", "quikstart"), ("quikstart", "quickstart")),
    "a new study without a name": (("new",), ("new", "name")),
    "what to list": (("list", "methds"), ("methds", "methods")),
    "a study to run": (("run", "quikstart"), ("quikstart", "quickstart")),
    "a key to run with": (("run", "quickstart", "rl.stps=3", "--scale", "smoke"), ("rl.stps", "steps")),
    "a limit to run with": (("run", "quickstart", "max_hours=many", "--scale", "smoke"), ("max_hours", "many")),
    "a profile": (("run", "quickstart", "--profile", "slrum"), ("slrum", "slurm")),
    "cores to run on": (("run", "quickstart", "--scale", "smoke", "--cores", "0"), ("--cores 0", "from 1 on", "all")),
    "cores, in short": (("run", "quickstart", "--scale", "smoke", "-c0"), ("-c 0", "from 1 on", "all")),
    "jobs to run": (("run", "quickstart", "--scale", "smoke", "--jobs", "many"), ("--jobs many", "from 1 on", "unlimited")),
    "jobs without a number": (("run", "quickstart", "--scale", "smoke", "--jobs="), ("--jobs without a value", "unlimited")),
    "a scale that a variable left empty": (("plan", "quickstart", "--scale="), ("--scale", "it is empty", "smoke")),
    "a scale without a value": (("plan", "quickstart", "scale="), ("--scale", "it is empty", "smoke")),
    "a study beside all": (("plan", "quickstart", "--all"), ("--all is every study", "quickstart")),
    "an override of a method": ((*PLAN, "rl.method=gspoo"), ("rl.method", "gspoo", "gspo")),
    "an override that is a word": ((*PLAN, "rl.steps=many"), ("rl.steps", "many", "whole number")),
    "an override of a stage": ((*PLAN, "stages.rll.steps=3"), ("rll", "rl")),
    "an override without a key": ((*PLAN, "=3"), ("=3", "KEY=VALUE")),
    "an override of the scale": ((*PLAN, "kinds.rl.stps=3"), ("kinds", "knobs")),
    "a time between frames": (("watch", "quickstart", "--every", "0"), ("--every", "0")),
    "a scale of an address": (("show", "quickstart.smokey/rl_edge/rl@0"), ("smokey", "smoke")),
    "a seed that is a word": (("show", "quickstart/rl_edge/rl@x"), ("rl@x", "rl@0")),
    "a stage to debug": (("debug", "quickstart/nope/rl@0"), ("nope/rl@0",)),
    "a stage with rows": (("rows", "quickstart/rl_edge/rl@0"), ("not made yet", "interplay run")),
    "the width of a paper": (("export", "--paper", "--width", "page", "-o", "out"), ("--width", "page", "column")),
    "a paper as a file": (("export", "quickstart", "--paper", "-o", "out.json"), ("out.json", "folder")),
    "a width without a paper": (("export", "quickstart", "--width", "text", "-o", "out"), ("--width", "--paper")),
    "the font of a paper": (("export", "quickstart", "--paper", "--font", "Tymes", "-o", "out"), ("Tymes", "times")),
    "an export over a folder": (("export", "quickstart", "--paper", "-o", "configs"), ("quickstart", "run")),
    "a summary that is not there": (("export", "--from", "nowhere.json", "-o", "out"), ("nowhere.json", "interplay export")),
}
NEW = {
    "a method by its name": Wrong(("stages.rl.method", "gspoo", "gspo"), {"stages.rl.method": "gspoo"}),
    "a method in a grid": Wrong(("rl.method", "gspoo", "gspo"), {"arms.rl_hard.grid": {"rl.method": ["grpo", "gspoo"]}}),
    "a method's member": Wrong(
        ("stages.rl.method.loss.name", "cliped", "clipped"), {"stages.rl.method": {"loss": {"name": "cliped"}}}
    ),
    "two remainders": Wrong(("stages.base.data", "rest"), {"stages.base.data": {"corpus": "rest", "edge": "rest"}}),
    "a remainder of nothing": Wrong(("stages.base.data", "rest"), {"stages.base.data": {"corpus": 1.2, "edge": "rest"}}),
    "a share that is a word": Wrong(("stages.base.data", "half"), {"stages.base.data": {"corpus": "half", "edge": "rest"}}),
    "a share that is true": Wrong(("stages.base.data", "True"), {"stages.base.data": {"corpus": True, "edge": "rest"}}),
    "a share beyond all numbers": Wrong(("stages.base.data", "edge"), {"stages.base.data": {"corpus": 10**400, "edge": "rest"}}),
    "a reward of too few parameters": Wrong(
        ("mine.py:score", "problems, completions, verdicts"), **reward("def score(problems): return []\n")
    ),
    "a reward that is no function": Wrong(("mine.py", "score"), **reward("score = 3\n")),
    "a reward without a function": Wrong(("stages.rl.reward.function", "mine.py"), **reward("def score(a): ...\n", "mine.py")),
    "a reward's option": Wrong(
        ("stages.rl.reward", "weigth", "weight"),
        **reward("def score(problems, completions, verdicts, weight=1): ...\n", options={"weigth": 2}),
    ),
    "a form of data": Wrong(("data.own.format", "jsnl", "jsonl"), **data(GOOD_ROW, format="jsnl")),
    "a file without its form": Wrong(("data.own", "format"), **data(GOOD_ROW, file="rows.txt", format=None)),
    "a mix in an arm of a study that extends another": Wrong(
        ("study/wrong.yaml:5: arms.wrong.set.rl.data", "'corpus': 0.2", "corpus: rest"),
        text=EXTENDED.format(arm="rl.data: {edge: 0.5, corpus: 0.2}"),
    ),
    "a set in such a mix": Wrong(
        ("study/wrong.yaml:5: arms.wrong.set.rl.data = 'egde'", "'edge'"),
        text=EXTENDED.format(arm="rl.data: {egde: 0.5, corpus: rest}"),
    ),
    "a remainder in such a mix": Wrong(
        ("study/wrong.yaml:5: arms.wrong.set.base.data", "-0.5"),
        text=EXTENDED.format(arm="base.data: {edge: -0.5, corpus: rest}"),
    ),
    "a key figure": Wrong(("wrong.yaml:", "key_figure", "'by_opp'", "by_op"), {"key_figure": "by_opp"}),
    "an empty file of rows": Wrong(("data.own.file", "rows.jsonl", "no items"), **data("")),
}


def premise(*words: str, **given: Any) -> Wrong:
    """A claim with a premise."""
    claim = {"says": "It lifts", "test": LIFT, "requires": [given]}
    return Wrong(("study/wrong.yaml", "claims.0", *words), {"claims": [claim]})


def recorded(*words: str, **test: Any) -> Wrong:
    """A claim about a number that a stage records."""
    return Wrong(("study/wrong.yaml", "claims.0", *words), {"claims": [{"says": "It records", "test": test}]})


REGISTER = ("register", "wrong", "--scale", "smoke")


def declared(argv: tuple[str, ...] = REGISTER, **keys: Any) -> dict[str, Any]:
    """A study with one claim, with these keys of its own; keys of the claim begin with claim_."""
    of_claim = {key.removeprefix("claim_"): keys.pop(key) for key in list(keys) if key.startswith("claim_")}
    return {"edit": {"exploratory": None, "claims": [{"says": "RL helps", "test": LIFT, **of_claim}], **keys}, "argv": argv}


def rl(**method: Any) -> dict[str, Any]:
    """A study with a method of its own."""
    return {"defaults": [TASK, "_self_"], "stages.rl.method": {"paper": "test", **method}}


PLAYED = {"name": "environment", "max_turns": 3}
SEATED = {"first": {"name": "policy"}, "second": {"name": "model", "model": "base"}}
TURNS = {
    "a source of turns": Wrong(
        ("method.advantage", "'rewrd'", "reward"),
        rl(episode=PLAYED, advantage={"name": "turns", "sources": [{"name": "rewrd"}]}),
    ),
    "a source twice": Wrong(
        ("method.advantage", "reward is there twice", "one weight"),
        rl(episode=PLAYED, advantage={"name": "turns", "sources": [{"name": "reward"}, {"name": "reward"}]}),
    ),
    "a baseline of broadcast": Wrong(
        ("method.advantage", "broadcast compares episodes", "write group"),
        rl(episode=PLAYED, advantage={"name": "turns", "propagation": {"name": "broadcast"}}),
    ),
    "credit by turns without turns": Wrong(("method", "turns", "episode"), rl(advantage={"name": "turns"})),
    "a filter of turns without turns": Wrong(("turn_filter", "episode"), rl(edits=[{"name": "turn_filter"}])),
    "ratios of turns in another loss": Wrong(
        ("importance_sampling_level = turn", "write token"),
        rl(episode=PLAYED, loss={"name": "sapo", "importance_sampling_level": "turn"}),
    ),
    "a curve of no form": Wrong(
        ("method.loss", "lin is no curve", "linear: [from, to]"), rl(loss={"name": "clipped", "beta": {"lin": [1, 0]}})
    ),
    "a temperature that ends at 0": Wrong(("temperature = 0", "1.0"), {"stages.rl.temperature": {"linear": [1.0, 0.0]}}),
    "branches of a whole group": Wrong(
        ("branch.first = 8", "less than num_generations, 8"),
        rl(allocation={"name": "fixed", "num_generations": 8}, episode={**PLAYED, "branch": {"first": 8}}),
    ),
    "branches of a window": Wrong(("branch", "window: null"), rl(episode={**PLAYED, "branch": {}, "window": 1})),
    "seats without the policy": Wrong(
        ("seats", "none is the policy's", "{name: policy}"),
        rl(episode={"name": "seats", "seats": {"first": SEATED["second"], "second": SEATED["second"]}}),
    ),
    "the model of a seat": Wrong(
        ("method.episode.seats", "'bse'", "base"),
        rl(episode={"name": "seats", "seats": {**SEATED, "second": {"name": "model", "model": "bse"}}}),
    ),
    "an order with another seat": Wrong(
        ("order", "no seat 'third'", "first, second"),
        rl(episode={"name": "seats", "seats": SEATED, "order": ["first", "third"]}),
    ),
    "a round alone": Wrong(
        ("arms.rl_hard.path.1.repeat = 1", "from 2 to 100"),
        {"arms.rl_hard.path": ["base", {"repeat": 1, "stages": ["rl"]}]},
    ),
    "a stage of a round": Wrong(
        ("arms.rl_hard.path.1.stages", "'rll'", "'rl'"), {"arms.rl_hard.path": ["base", {"repeat": 2, "stages": ["rll"]}]}
    ),
}
PILOT = {"bases": 10.0, "seeds": 5.0, "prompts": 30.0, "source": "a pilot"}
DECLARED = {
    "a registration without a pilot": Wrong(("no pilot at scale smoke", "exploratory: true"), **declared()),
    "a registration of no claim": Wrong(("makes no claims", "`claims`"), argv=REGISTER),
    "a registration that is none": Wrong(
        ("configs/registered/wrong.smoke.json", "not a registration", "git checkout"),
        **declared(exploratory=True),
        files={"configs/registered/wrong.smoke.json": "{}"},
    ),
    "a claim without power": Wrong(
        ("power 0.", "'RL helps'", "exploratory: true"),
        **declared(("plan", "wrong", "--scale", "smoke"), **{"scales.smoke": {"pilot": PILOT}}),
    ),
    "a registration without power": Wrong(
        ("power 0.", "'RL helps'", "exploratory: true"), **declared(**{"scales.smoke": {"pilot": PILOT}})
    ),
    "a forecast of nothing": Wrong(("claims.0.forecast", "probability"), **declared(claim_forecast={})),
    "a forecast the wrong way round": Wrong(("claims.0.forecast", "low < high"), **declared(claim_forecast={"interval": [9, 3]})),
    "looks that fall": Wrong(("stopping.looks", "must rise"), **declared(stopping={"looks": [6, 3]})),
    "a look at two replicates": Wrong(("stopping.looks", "3 replicates"), **declared(stopping={"looks": [2, 6]})),
    "more seeds than the last look takes": Wrong(
        ("stopping.looks", "add a look at 4"), **declared(stopping={"looks": [3]}, **{"seeds.values": [0, 1, 2, 3]})
    ),
}
JUDGE = {"name": "judge", "arm": "base", "rubric": "{completion}"}
JUDGES = {
    "a rubric that is longer than its context": Wrong(
        ("stages.rl.reward", "rubric = 5001", "max_position_embeddings, ", "shorten rubric"),
        {"stages.rl.reward": {**JUDGE, "rubric": "{completion}" + 1250 * "say "}},
    ),
    "a prompt that is longer than its context": Wrong(
        ("stages.rl.reward", "max_prompt_length = 5000", "max_position_embeddings, ", "lower max_prompt_length"),
        {"stages.rl.reward": {**JUDGE, "rubric": "{prompt}{completion}"}, "stages.rl.max_prompt_length": 5000},
    ),
    "turns that are longer than its context": Wrong(
        ("stages.rl.reward", "max_turns x max_completion_length = ", "lower max_turns x max_completion_length"),
        {
            **rl(episode={"name": "retry", "max_turns": 20}),
            "stages.rl.reward": {**JUDGE, "max_tokens": 8},
            "stages.rl.max_completion_length": 60,
        },
    ),
    "an answer that is longer than its context": Wrong(
        ("stages.rl.reward", "max_tokens = 4000", "max_position_embeddings, ", "lower max_tokens"),
        {"stages.rl.reward": {**JUDGE, "max_tokens": 4000}},
    ),
    "a completion that is longer than its context": Wrong(
        ("stages.rl.reward", "max_completion_length = 4000", "max_position_embeddings, ", "lower max_completion_length"),
        {"stages.rl.reward": JUDGE, "stages.rl.max_completion_length": 4000},
    ),
}
CREDIT = {"stages.rl.judge_credit": True}
STEPS = {
    "of another family": Wrong(
        ("stages.rl.judge_credit = True", "forward problems of op_dag", "those of mano", "take it away"),
        {**CREDIT, "data.other": {"band": "edge", "split": "rl", "task": {"name": "mano"}}, "stages.rl.data": {"other": 1.0}},
    ),
    "of reverse problems": Wrong(
        ("stages.rl.judge_credit = True", "op_dag asked in reverse alone", "take it away"),
        {**CREDIT, "task": {"modes": {"reverse": 1.0}}},
    ),
    "of a file": Wrong(
        ("stages.rl.judge_credit = True", "those of files", "take it away"),
        {**data(GOOD_ROW)["edit"], **CREDIT},
        files={"rows.jsonl": GOOD_ROW},
    ),
}
PREMISES = {
    "an arm that should act": premise("requires.0.acts", "'rl_edg'", "'rl_edge'", acts="rl_edg"),
    "a band with headroom": premise("requires.0.band", "'edgy'", "'edge'", headroom={"arm": "base", "band": "edgy"}),
    "headroom in percent": premise("high = 60", "fractions", headroom={"arm": "base", "high": 60}),
    "more samples than there are": premise("'strict_pass@64'", "lower k", headroom={"arm": "base", "value": "strict_pass@64"}),
    "a prior of a process": premise("no answer prior", "answer_pass@1", above={"arm": "base", "than": "answer_prior"}),
    "a control without its rival": premise("improves.against", "missing", improves={"arm": "rl_edge"}),
    "a control of a stage that is not there": premise(
        "requires.0.recorded",
        "'rl2'",
        "'rl'",
        improves={"arm": "rl_edge", "against": "base", "recorded": "rl2", "value": "entropy_last"},
    ),
    "a control of a stage that one arm lacks": premise(
        "requires.0.recorded",
        "'rl'",
        "no stage of base",
        improves={"arm": "rl_edge", "against": "base", "recorded": "rl", "value": "entropy_last"},
    ),
    "a number that the stage of a control does not record": premise(
        "requires.0.value",
        "'entropy_lst'",
        "'entropy_last'",
        improves={"arm": "rl_hard", "against": "rl_edge", "recorded": "rl", "value": "entropy_lst"},
    ),
    "a claim about a stage that its arm lacks": recorded(
        "test.recorded", "'rl'", "base, whose path is base", value="entropy_last", recorded="rl", arm="base", at_least=0.1
    ),
    "a claim about a stage that the other arm lacks": recorded(
        "test.recorded", "'rl'", "base", difference="entropy_last", recorded="rl", arm="rl_edge", against="base", at_least=0.1
    ),
    "a number that a stage does not record": recorded(
        "test.value", "'tokns'", "'tokens'", value="tokns", recorded="base", arm="rl_edge", at_least=1.0
    ),
    "the second number of a difference that a stage does not record": recorded(
        "test.value",
        "'reward_frst'",
        "'reward_first'",
        value="reward_last - reward_frst",
        recorded="rl",
        arm="rl_edge",
        at_least=0.1,
    ),
    "credit that is not judged": recorded(
        "test.value", "'credit/auc_last'", "rl of rl_edge", value="credit/auc_last", recorded="rl", arm="rl_edge", at_least=0.5
    ),
    "a failing number": Wrong(
        ("claims.0.fails.below", "'reward_frist'", "'reward_first'"),
        {
            "claims": [
                {"says": "x", "test": LIFT, "fails": {"recorded": "rl", "value": "reward_last", "below": "reward_frist"}},
            ]
        },
    ),
    "a premise of no kind": premise("'headrom'", "'headroom'", headrom={"arm": "base"}),
    "two premises in one": premise("one of acts", "several", acts="rl_edge", headroom={"arm": "base"}),
    "a published effect beside a bound": Wrong(
        ("claims.0", "leave at_least", "out"), {"claims": [{"says": "x", "test": LIFT, "published": {"effect": 42}}]}
    ),
    "a claim without a threshold": Wrong(
        ("claims.0", "at_least, at_most"), {"claims": [{"says": "x", "test": {**LIFT, "at_least": None}}]}
    ),
}
SWEPT = """defaults: [quickstart, _self_]
question: Which?
claims: []
arms:
  kl: {path: [base, rl], control: base, label: 'KL {beta}', color: blue, grid: {rl.method.loss.beta: [0, 0.01]}}
  loss: {path: [base, rl], control: base, grid: {rl.method: [gspo, dapo]}}
figures:
  beta: {x: rl.method.loss.beta, y: strict_pass@1, band: edge, log: true, arms: [kl]}
  plane: {form: heat, x: rl.method.loss.beta, by: rl.method, y: strict_pass@1, band: edge}
"""
LABELS = {
    "a label that two arms have": ("KL {beta}", "KL", (":5: arms.kl.label = 'KL'", "the same", "{beta}")),
    "an axis of a label": ("{beta}", "{betta}", (":5: arms.kl.label", "'betta'", "beta")),
    "a colour": ("blue", "bleu", (":5: arms.kl.color", "'bleu'", "#rrggbb")),
    "an axis that no arm has": ("x: rl.method.loss.beta", "x: rl.method.loss.bet", (":8: figures.beta.x", ".bet'", ".beta'")),
    "what training took": ("x: rl.method.loss.beta", "x: token", (":8: figures.beta.x", "'token'", "tokens")),
    "names on a logarithmic axis": ("x: rl.method.loss.beta, y: strict_pass@1, band: edge, log: true, arms: [kl]", "x: rl.method, y: strict_pass@1, log: true, arms: [loss]", (":8: figures.beta.log", "is gspo", "take log away")),
    "a heat map over one axis": ("by: rl.method, ", "", (":9: figures.plane", "write x and by")),
    "an arm of a figure": ("arms: [kl]", "arms: [kll]", (":8: figures.beta.arms", "'kll'", "'kl'")),
    "a band of a figure": ("band: edge, log", "band: egde, log", (":8: figures.beta.band", "'egde'", "'edge'")),
    "an axis with one value": ("[0, 0.01]", "[0.01]", (":8: figures.beta.x", "one value of it", "name others")),
}  # fmt: skip
RAW = (ROOT / "configs/study/quickstart.yaml").read_text()
SMOKE = (ROOT / "configs/scale/smoke.yaml").read_text()


def text(old: str, new: str, *words: str) -> Wrong:
    """The study quickstart with other text in it."""
    assert old in RAW
    return Wrong((":", *words), text=RAW.replace(old, new, 1))


def arms(**more: Any) -> dict[str, Any]:
    """A study with further arms, each of two stages."""
    return {"arms": {**BASE["arms"], **{name: {"path": ["base", "rl"], "control": "base", **arm} for name, arm in more.items()}}}


def elsewhere(argv: str, *words: str, **files: Any) -> Wrong:
    """A study that is asked for and lies nowhere."""
    named = {
        f"{path.replace('__', '/').removesuffix('/yml')}.{'yml' if path.endswith('yml') else 'yaml'}": content
        for path, content in files.items()
    }
    return Wrong(words, files=named, argv=("plan", argv, "--scale", "smoke"))


RL_LINE = "data: {edge: 1.0}}"
STEPS_3 = {"set": {"rl.steps": 3}}
OWN = {"data.own": {"file": "rows.jsonl", "format": "jsonl"}, "stages.rl.data": {"own": 1.0}}
AT_SCALE = "scales.smoke"
PAIRED = {"a.csv": "item,score\n1,0\n2,1\n", "b.csv": "item,score\n1,0\n2,1\n"}
QUICK = ("plan", "quickstart", "--scale", "smoke")
FIRST_SEEN = {
    "a study in UTF-16": Wrong(("study/wrong.yaml:1", "not UTF-8", "save it as UTF-8"), text=RAW.encode("utf-16")),
    "a study in Latin-1": Wrong(
        ("study/wrong.yaml:7", "not UTF-8", "save it as UTF-8"),
        text=RAW.replace("question: D", "question: \xe0 D").encode("latin-1"),
    ),
    "two documents": Wrong(("study/wrong.yaml:", "a second document", "keep one"), text=f"{RAW}\n---\n{RAW}"),
    "an arm called no": text("  rl_hard:", "  no:", "put yes, no, on and off in quotation marks"),
    "a tag of one's own": text("rl: {kind: rl, " + RL_LINE, "rl: !include rl.yaml", "begins with !", "take it away"),
    "a time as a number": text(RL_LINE, "data: {edge: 1.0}, steps: 1:30}", ":19:", "reads 1:30 as 90", "write 90"),
    "an octal number": text(RL_LINE, "data: {edge: 1.0}, steps: 010}", ":19:", "reads 010 as 8", "write 8"),
    "a comma in a number": text(RL_LINE, "data: {edge: 1.0}, temperature: 0,5}", ":19:", "follow a point, as in 0.5"),
    "no blank behind a colon": text("question: Does", "question:Does", "write a blank behind the ':'"),
    "a source that is a number": text(
        "source: arXiv:2512.07783, Figures 1 and 3", "source: 2025", "source = 2025", "quotation marks"
    ),
    "a folder in place of a study": elsewhere("folder", "a folder of that name", configs__study__folder=None),
    "a link to nothing": elsewhere("gone", "a link to nothing.yaml", "put the file", configs__study__gone=Path("nothing.yaml")),
    "a study that ends with yml": elsewhere("mine", "rename it to mine.yaml", configs__study__mine__yml=RAW),
    "a study beside configs": elsewhere("here.yaml", "here.yaml lies elsewhere", "move it to configs/study/here.yaml", here=RAW),
    "an op twice": Wrong(
        ("scale/tiny.yaml:", "bands.edge", "2 is given twice"),
        files={"configs/scale/tiny.yaml": SMOKE.replace("edge: [2]", "edge: [2, 2]")},
        argv=("plan", "wrong", "--scale", "tiny"),
    ),
    "an empty method": Wrong(
        ("configs/method/mine.yaml", "paper", "missing"),
        {"arms.rl_hard.set": {"rl.method": "mine"}},
        files={"configs/method/mine.yaml": ""},
    ),
    "a method within a key": Wrong(
        ("configs/method/mine.yaml:1: method", "unknown key 'method'"),
        {"arms.rl_hard.set": {"rl.method": "mine"}},
        files={"configs/method/mine.yaml": "method: {paper: x}\n"},
    ),
    "the family of a task's file": Wrong(
        ("configs/task/mine.yaml:1: name = 'op_dga'", "'op_dag'"),
        {"task": "mine", "defaults": [{"/method@stages.rl.method": "grpo"}, "_self_"]},
        files={"configs/task/mine.yaml": "name: op_dga\n"},
    ),
    "a band twice": Wrong(
        ("data.test", "id is named twice", "once"), {"data.test.bands": ["id", "id", "edge", "beyond", "hard"]}
    ),
    "a file that is a folder": Wrong(
        ("data.own.file = 'configs'", "name a file in it"), {**OWN, "data.own": {"file": "configs", "format": "jsonl"}}
    ),
    "an address as a file": Wrong(
        ("data.own.file", "https://", "hub: owner/name@revision"),
        {**OWN, "data.own": {"file": "https://huggingface.co/datasets/openai/gsm8k/train.jsonl", "format": "jsonl"}},
    ),
    "rows in UTF-16": Wrong(("data.own.file", "line 1", "not text in UTF-8", "convert"), **data(GOOD_ROW.encode("utf-16"))),
    "a compressed file": Wrong(("data.own", "compressed; unpack it"), {**OWN, "data.own": {"file": "rows.jsonl.gz"}}),
    "an answer that is NaN": Wrong(("data.own.file", "line 1", "answer is nan"), **data('{"question": "1+1?", "answer": NaN}\n')),
    "one column twice": Wrong(
        ("data.own", "'prompt' is the question and the answer", "column of each"),
        **data('{"prompt": "1+1?"}\n', fields={"question": "prompt", "answer": "prompt"}),
    ),
    "more rows than there are": Wrong(("data.own.file", "size = 9", "has 1 item", "no more"), **data(GOOD_ROW, size=9)),
    "a split without rows": Wrong(("data.own.file", "0 items of split 'rl'", "another"), **data(GOOD_ROW, split="rl")),
    "more rows than a source has": Wrong(
        ("data.more.size = 1000", "a set of 400", "lower it"),
        {"data.more": {"mix": {"edge": 1.0}, "size": 1000}, "stages.rl.data": {"more": 1.0}},
    ),
    "a vocabulary without the bytes": Wrong(
        ("tokenizer", "vocab_size = 10", "258 at least"), {"tokenizer": {"algorithm": "bpe", "vocab_size": 10}}
    ),
    "a completion that vllm cannot hold": Wrong(
        ("stages.rl.max_completion_length = 9000", "max_position_embeddings", "lower it"),
        {"stages.rl.max_completion_length": 9000, "stages.rl.engine": "vllm", "stages.rl.dtype": "float32"},
    ),
    "a stage twice on a path": Wrong(
        ("arms.rl_hard.path = 'rl'", "there twice", "{repeat: 2, stages: [rl]}"), {"arms.rl_hard.path": ["base", "rl", "rl"]}
    ),
    "an arm with an @": Wrong(("arms.rl@3", "without '@'"), arms(**{"rl@3": STEPS_3})),
    "an arm with a long name": Wrong(("arms.rrrr", "300 bytes", "at most 120"), arms(**{"r" * 300: STEPS_3})),
    "no arm": Wrong(("arms: empty", "NAME: {path: [STAGE, ...]}"), {"arms": {}, "tables": {}, "figures": {}}),
    "seeds that vary nothing": Wrong(("seeds", "vary = []", "name the stages"), {"seeds": {"values": [0, 1], "vary": []}}),
    "a million replicates": Wrong(("replicates = 1000000", "less than or equal to 1000"), {"seeds": None, "replicates": 1000000}),
    "a knob of a scale": Wrong(
        ("scales.smoke.knobs = 'm'", "known: n"),
        {"knobs": {"n": 3}, "stages.rl.steps": "${knobs.n}", AT_SCALE: {"knobs": {"m": 3}}},
    ),
    "a band of a scale": Wrong(("scales.smoke.bands.egde", "no such band", "'edge'"), {AT_SCALE: {"bands": {"egde": [2]}}}),
    "a calibrated band": Wrong(
        ("calibrate.bands = 'egde'", "'edge'"),
        {"calibrate": {"arm": "base", "evaluate": "eval", "bands": {"egde": {"strict_pass@1": [0.1, 0.5]}}}},
    ),
    "a claim without words": Wrong(("claims.0", "says", "in a sentence"), {"claims": [{"says": " ", "test": LIFT}]}),
    "a column twice": Wrong(("tables.main.columns", "id is named twice"), {"tables.main.columns": ["id", "id"]}),
    "a cell twice": Wrong(("tables.main.cells", "is named twice"), {"tables.main.cells": ["strict_pass@1", "strict_pass@1"]}),
    "a table of no arms": Wrong(("tables.main.arms = []", "leave the key out"), {"tables.main.arms": []}),
    "a table with an arm twice": Wrong(("tables.main.arms", "base is named twice"), {"tables.main.arms": ["base", "base"]}),
    "a reward in Latin-1": Wrong(
        ("stages.rl.reward", "not readable as text in UTF-8"),
        {"stages.rl.reward": {"name": "custom", "function": "mine.py:score"}},
        files={"configs/study/mine.py": "# o\xf9\n".encode("latin-1")},
    ),
    "a key twice on the command line": Wrong(
        ("rl.steps=6", "given twice", "keep one"), argv=(*QUICK, "rl.steps=5", "rl.steps=6")
    ),
    "an arm on the command line": Wrong(("arms.rl_egde", "'rl_edge'"), argv=(*QUICK, "arms.rl_egde.set.rl.steps=3")),
    "more GPUs than there are": Wrong(("--gpus", "such as 1,8,64"), argv=(*QUICK, "--gpus", "1" + "0" * 30)),
    "a lock of other keys": Wrong(("--write", "leave out KEY=VALUE"), argv=(*QUICK, "rl.steps=5", "--write")),
    "scores that are not there": Wrong(("nowhere.jsonl: no such file",), argv=("judge", "nowhere.jsonl")),
    "scores of other items": Wrong(
        ("0 items in common", "give files of the same"),
        files={**PAIRED, "b.csv": "item,score\n3,0\n4,1\n"},
        argv=("judge", "a.csv", "b.csv"),
    ),
    "a margin in percent": Wrong(("--margin 2", "not percent"), files=PAIRED, argv=("judge", "a.csv", "b.csv", "--margin", "2")),
    "options of files for a study": Wrong(
        ("judge quickstart", "--score", "name files"), argv=("judge", "quickstart", "--scale", "smoke", "--score", "x")
    ),
    "a certificate that is not there": Wrong(("nowhere.json: no such file",), argv=("verify", "--certificate", "nowhere.json")),
    "an empty profile": Wrong(
        ("--profile", "it is empty", "slurm"), argv=("run", "quickstart", "--scale", "smoke", "--profile", "")
    ),
    "the profile of a variable": Wrong(
        ("SNAKEMAKE_PROFILE=slrum", "unset it"),
        argv=("run", "quickstart", "--scale", "smoke"),
        env={"SNAKEMAKE_PROFILE": "slrum"},
    ),
    "an option that Snakemake lacks": Wrong(
        ("--dry-rn", "'--dry-run'"), argv=("run", "quickstart", "--scale", "smoke", "--dry-rn")
    ),
    "two studies to run": Wrong(("run: edge", "a study at a time"), argv=("run", "quickstart", "edge", "--scale", "smoke")),
    "a run outside of a project": Wrong(("Snakefile: no such file", "root"), argv=("run", "quickstart", "--scale", "smoke")),
}
CASES = {
    **{f"first seen: {name}": case for name, case in FIRST_SEEN.items()},
    **{f"judged steps: {name}": case for name, case in STEPS.items()},
    **PREMISES,
    **{f"a judge: {name}": case for name, case in JUDGES.items()},
    **{f"{kind}: {name}": case for kind, cases in (("typo", TYPOS), ("reference", REFERENCES)) for name, case in cases.items()},
    **{f"{kind}: {name}": case for kind, cases in (("type", TYPES), ("syntax", SYNTAX)) for name, case in cases.items()},
    **{f"own code: {name}": case for name, case in CODE.items()},
    **{f"form: {name}": case for name, case in FORMS.items()},
    **{f"declared: {name}": case for name, case in DECLARED.items()},
    **{f"words: {name}": Wrong(expected, argv=words) for name, (words, expected) in WORDS.items()},
    **{f"new words: {name}": Wrong(expected, argv=words) for name, (words, expected) in NEW_WORDS.items()},
    **{f"new: {name}": case for name, case in NEW.items()},
    **{f"turns: {name}": case for name, case in TURNS.items()},
    **{f"new label: {name}": Wrong(words, text=SWEPT.replace(old, new, 1)) for name, (old, new, words) in LABELS.items()},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Configs of the project in a folder of their own, no results."""
    folder = tmp_path_factory.mktemp("project")
    copy_configs(folder)
    shutil.copytree(ROOT / "workflows/profiles", folder / "workflows/profiles")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def study_text(edit: dict[str, Any]) -> str:
    made = json.loads(json.dumps(BASE))
    for key, value in edit.items():
        *above, last = key.split(".") if not key.startswith("arms") else key.split(".", 2)
        place = made
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
        if value is None:
            del place[last]
    return yaml.safe_dump(made, sort_keys=False)


def put(path: Path, content: str | bytes | Path | None) -> None:
    """A file with text or bytes, a link to a path, or a folder."""
    if content is None:
        path.mkdir()
    elif isinstance(content, Path):
        path.symlink_to(content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_in_one_line_with_its_remedy(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    study = study_text(case.edit) if case.text is None else case.text
    before = {path for path in project.rglob("*") if path.name != "wrong.yaml"}
    written = {"configs/study/wrong.yaml": study, **case.files}
    for file, content in written.items():
        put(project / file, content)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in case.env.items():
                patch.setenv(variable, value)
            code, _, said = interplay(capsys, *case.argv)
    finally:
        for file in written:
            (project / file).rmdir() if (project / file).is_dir() else (project / file).unlink()
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith("interplay: ")
    assert not [word for word in case.words if word not in said], said
    assert len(said) < LONGEST, said
    assert {path for path in project.rglob("*") if "__pycache__" not in str(path)} <= before, "something was begun"


def test_a_model_that_is_not_here_is_named_by_the_plan(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is shown, and refused as a launch is (tests/workflow/test_bad_input.py); locks are checked without the model."""
    source = {"kind": "source", "sha256": "0123456789ab" * 5 + "0123"}
    edit = {"stages.base": source, "seeds.vary": ["rl"], "figures.loss": None}
    file = project / "configs/study/wrong.yaml"
    file.write_text(study_text(edit))
    code, said, refused = interplay(capsys, "plan", "wrong", "--scale", "smoke")
    locked, _, _ = interplay(capsys, "plan", "wrong", "--scale", "smoke", "--write")
    checked, _, _ = interplay(capsys, "plan", "wrong", "--scale", "smoke", "--check")
    file.unlink()
    shutil.rmtree("configs/plans")
    assert (code, locked, checked) == (2, 0, 0)
    remedy = "source 0123456789ab: not in results/; import it with `interplay adopt FOLDER`, or give path in the study"
    line = next(line for line in said.split("\n\n") if line.startswith("not here: "))
    assert " ".join(line.split()) == f"not here: wrong.smoke/stages.base: {remedy}"
    assert refused == f"interplay: plan wrong at scale smoke: cannot run on this machine: {remedy}\n"


@pytest.mark.parametrize(
    ("study", "scale", "words"), [("quikstart", "smoke", ["quickstart"]), ("quickstart", "smokey", ["smoke"])]
)
def test_what_is_loaded_and_not_there_is_refused_with_the_nearest_name(
    study: str, scale: str, words: list[str], project: Path
) -> None:
    with pytest.raises(UserError) as refused:
        package.load(study, scale)
    assert not [word for word in words if word not in str(refused.value)]
    assert len(str(refused.value)) < LONGEST


def schemas(of: type[Model]) -> Iterator[type[Model]]:
    for one in of.__subclasses__():
        yield one
        yield from schemas(one)


def with_true(annotation: Any) -> Iterator[Any]:
    """Values of this type in which a number is true: the field itself, or one inside a list, mapping or union."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (int, float):
        yield True
    elif origin is Annotated:
        yield from with_true(arguments[0])
    elif origin in (Union, types.UnionType) and bool not in arguments and Any not in arguments:
        yield from itertools.chain.from_iterable(map(with_true, arguments))
    elif origin is list:
        yield from ([one] for one in with_true(arguments[0]))
    elif origin is tuple:
        yield from ([one] * len(arguments) for inner in arguments for one in with_true(inner))
    elif origin is dict:
        yield from ({"a": one} for one in with_true(arguments[1]))


def test_no_number_of_any_spec_may_be_true() -> None:
    """Python reads true as 1: `steps: true` would train for one step."""
    assert {Study, *(kind.spec for kind in KINDS.values())} <= {*schemas(Model)}
    tried = 0
    for spec in schemas(Model):
        for name, field in spec.model_fields.items():
            for value in with_true(field.annotation):
                tried += 1
                with pytest.raises(ValidationError) as refused:
                    spec.model_validate({name: value})
                kinds = {error["type"] for error in refused.value.errors() if error["loc"][:1] == (name,)}
                assert kinds & {"int_type", "float_type"}, (spec, name, value)
    assert tried > 1000


def test_there_are_as_many_as_users_made() -> None:
    new, second = ([name for name in CASES if name.startswith(word)] for word in ("new", "first seen"))
    assert len(CASES) - len(new) - len(second) + 3 >= 74
    assert len(new) >= 40
    assert len(second) >= 40
