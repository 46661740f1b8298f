"""Settings by the name of a file, remainder shares, and keys of a study on the command line: they plan what the same study plans
with everything written out."""

from pathlib import Path

import pytest
from key_order import meaning, reversed_maps
from lab import SCALE, Lab
from ruamel.yaml import YAML

from interplay.core.keys import fill_rest
from interplay.core.model import MOST_NAMED, UserError, nearest_name
from interplay.study import choices, expand
from interplay.study.plan import Plan

STUDY = """
task: op_dag
question: Which loss?
data:
  corpus: {band: id, split: train}
  edge: {band: edge, split: rl}
  more: {band: edge, split: train}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, model: pico, data: {corpus: 1.0}}
  mid: {kind: midtrain, data: {more: 0.2, corpus: rest}}
  rl: {kind: rl, data: {edge: 1.0}, method: grpo}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  loss: {path: [base, rl], grid: {rl.method: [grpo, gspo, dr_grpo]}}
  mix: {path: [base, mid, rl], grid: {mid.data.more: [0.1, 0.9, 1.0]}}
  own: {path: [base, rl], set: {rl.method: dapo, rl.method.sampler: pcl, rl.method.loss.beta: 0.1}}
evaluate: [eval]
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    (made.configs / "study/choice.yaml").write_text(STUDY)
    return made


def written_out(lab: Lab) -> Plan:
    """The plan of the study with every file and every share in its place."""

    def file(path: str) -> dict:
        return YAML(typ="safe").load((lab.configs / f"{path}.yaml").read_text())

    tree = YAML(typ="safe").load(STUDY)
    tree["task"], tree["stages"]["base"]["model"] = file("task/op_dag"), file("model/pico")
    tree["stages"]["rl"]["method"], tree["stages"]["mid"]["data"] = file("method/grpo"), {"more": 0.2, "corpus": 0.8}
    arms = {
        f"loss_{name}": {"path": ["base", "rl"], "set": {"rl.method": file(f"method/{name}")}} for name in ("gspo", "dr_grpo")
    }
    for more, corpus in ((0.1, 0.9), (0.9, 0.1)):
        arms[f"mix_{more:g}"] = {"path": ["base", "mid", "rl"], "set": {"mid.data": {"more": more, "corpus": corpus}}}
    arms["mix_all"] = {"path": ["base", "mid", "rl"], "set": {"mid.data": {"more": 1.0}}}
    given = {"rl.method": file("method/dapo"), "rl.method.sampler": file("curriculum/pcl"), "rl.method.loss.beta": 0.1}
    arms |= {"own": {"path": ["base", "rl"], "set": given}, "loss_grpo": {"path": ["base", "rl"]}}
    tree["arms"] = {"base": {"path": ["base"]}, **arms}
    with (lab.configs / "study/written.yaml").open("w") as out:
        YAML(typ="safe").dump(tree, out)
    return lab.plan("written")


def test_names_of_files_and_remainders_have_the_digests_of_what_they_stand_for(lab: Lab) -> None:
    short, long = lab.plan("choice"), written_out(lab)
    assert set(short.stages) - {short.report} == set(long.stages) - {long.report}


def test_arms_of_a_grid_over_methods_are_called_by_the_methods(lab: Lab) -> None:
    found = {stage.label.partition("/")[0] for stage in lab.plan("choice").stages.values()}
    assert {"loss[method=gspo]", "loss[method=dr_grpo]", "mix[more=0.9]"} <= found


def test_a_plan_by_names_does_not_depend_on_the_order_of_keys(lab: Lab) -> None:
    with (lab.configs / "study/turned.yaml").open("w") as out:
        YAML(typ="safe").dump(reversed_maps(YAML(typ="safe").load(STUDY)), out)
    (own, asked), (turned, other) = meaning(lab.plan("choice")), meaning(lab.plan("turned"))
    assert own == turned
    assert {**asked, "study": ""} == {**other, "study": ""}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("method: grpo}", "method: grp}", "12: stages.rl.method = 'grp': no file configs/method/grp.yaml; did you mean 'grpo'?"),
        ("[grpo, gspo,", "[grpo, gsop,", "16: arms.loss.grid.rl.method = 'gsop': no file configs/method/gsop.yaml; did you mean 'gspo'?"),
        ("sampler: pcl", "sampler: plc", "18: arms.own.set.rl.method.sampler = 'plc': no file configs/curriculum/plc.yaml; did you mean 'pcl'?"),
        ("model: pico", "model: pica", "10: stages.base.model = 'pica': no file configs/model/pica.yaml; did you mean 'pico'?"),
        ("task: op_dag", "task: op_dog", "2: task = 'op_dog': no file configs/task/op_dog.yaml; did you mean 'op_dag'?"),
        ("rl: {kind: rl,", "rl: {kind: grpo,", "12: stages.rl.kind = 'grpo': 'grpo' is a method of RL; write kind: rl, method: grpo"),
        ("corpus: rest}", "corpus: 0.4}", "these sum to 0.5; change one, or write `corpus: rest` (stages.mid.data of study choice)"),
        ("more: 0.2, corpus: rest}", "more: 1.2, corpus: rest}", "nothing is left for 'corpus: rest': the other shares sum to 1.2; lower one"),
        ("more: 0.2, corpus: rest}", "more: rest, corpus: rest}", "'more' and 'corpus' both take the rest; give one of them a share"),
        ("Which loss?", "'${knobs.m}'\nknobs: {k: 1}", "3: question: no knob is called 'm'; known: k"),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_refused_with_line_and_remedy(lab: Lab, old: str, new: str, said: str) -> None:
    lab.edit("study/choice.yaml", old, new)
    with pytest.raises(UserError) as error:
        lab.plan("choice")
    assert str(error.value).startswith("configs/study/choice.yaml:")
    assert str(error.value).endswith(said)


def test_a_file_of_a_group_that_includes_others_is_named_with_the_way_to_take_it_in(lab: Lab) -> None:
    (lab.configs / "method/mine.yaml").write_text("defaults: [grpo]\npaper: mine\n")
    lab.edit("study/choice.yaml", "method: grpo}", "method: mine}")
    with pytest.raises(UserError, match="take it in under defaults, as /method@PLACE: mine"):
        lab.plan("choice")


# -- keys on the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "old", "new"),
    [
        (["rl.method=gspo"], "/method@stages.rl.method: grpo", "/method@stages.rl.method: gspo"),
        (["rl.steps=7"], "rl: {kind: rl,", "rl: {kind: rl, steps: 7,"),
        (["stages.rl.steps=7"], "rl: {kind: rl,", "rl: {kind: rl, steps: 7,"),
        (["rl.optimizer.learning_rate=1e-3"], "rl: {kind: rl,", "rl: {kind: rl, optimizer: {learning_rate: 0.001},"),
        (["mid.data={edge: 0.3, corpus: rest}"], "mid: {kind: midtrain, data: {edge: 0.5, corpus: 0.5}", "mid: {kind: midtrain, data: {edge: 0.3, corpus: 0.7}"),
        (["seeds.values=[4,5]"], "seeds: {values: [0, 1, 2]", "seeds: {values: [4, 5]"),
        (["arms.gold.set.gold.tokens=10240"], "gold: {path: [base, gold]", "gold: {set: {gold.tokens: 10240}, path: [base, gold]"),
    ],
)  # fmt: skip
def test_a_key_on_the_command_line_gives_the_digests_of_the_edited_file(lab: Lab, given: list[str], old: str, new: str) -> None:
    found = expand.plan_study(lab.configs, "edge", SCALE, given)
    before = lab.plan("edge")
    lab.edit("study/edge.yaml", old, new)
    assert found.lock() == lab.plan("edge").lock() != before.lock()


def test_a_key_on_the_command_line_wins_over_what_the_study_changes_at_the_scale(lab: Lab) -> None:
    name = "interplay/budget_split"
    found = expand.plan_study(lab.configs, name, SCALE, ["knobs.budget=153600"])
    lab.edit(f"study/{name}.yaml", "knobs: {budget: 76800", "knobs: {budget: 153600")
    assert found.lock() == lab.plan(name).lock()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rl.stepz=3", "command line: rl.stepz: unknown key 'stepz'; did you mean 'steps'?"),
        ("rl.steps=-3", "command line: rl.steps = -3: should be greater than or equal to 1"),
        ("rl.method=gsop", "command line: rl.method = 'gsop': no file configs/method/gsop.yaml; did you mean 'gspo'?"),
        ("rl.data={edge: 0.5}", "command line: rl.data = {'edge': 0.5}: a mix must be shares that sum to 1; these sum to 0.5; name the set that has the rest, as in {edge: 0.5, SET: rest}"),
        ("golt.steps=3", "command line: golt.steps: no stage and no key of the study is called 'golt'; did you mean 'gold'?"),
        ("rl.steps=1,2", "command line: rl.steps=1,2: several values; give an arm a grid, or a list in brackets"),
        ("rl.steps", "command line: rl.steps: must be KEY=VALUE, such as rl.steps=10 or rl.method=gspo"),
        ("/method@stages.rl.method=gspo", "groups are chosen by their key here; write rl.method=gspo or task=op_dag_prose"),
    ],
)  # fmt: skip
def test_a_wrong_key_on_the_command_line_is_refused(lab: Lab, given: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        expand.plan_study(lab.configs, "edge", SCALE, [given])
    assert str(error.value).endswith(said)


def test_snakemake_takes_the_same_keys() -> None:
    assert choices.given_keys({"set": "rl.steps=3 'rl.data={edge: 1.0}'"}) == ["rl.steps=3", "rl.data={edge: 1.0}"]
    assert choices.given_keys({"set": ["rl.steps=3"]}) == ["rl.steps=3"]
    with pytest.raises(UserError, match="config: set = 3: must be KEY=VALUE"):
        choices.given_keys({"set": 3})


# -- shares and names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [number / 100 for number in range(100)])
def test_a_remainder_is_the_decimal_that_one_would_write(share: float) -> None:
    assert fill_rest({"a": share, "b": "rest"}) == {"a": share, "b": round(1 - share, 2)}


def test_at_most_eight_names_are_listed_the_nearest_first() -> None:
    said = nearest_name("zz9", [f"name{number}" for number in range(30)] + ["z"])
    assert said.startswith("; known: z, ")
    assert said.endswith(f"and {31 - MOST_NAMED} more")
    assert said.count(",") == MOST_NAMED - 1
