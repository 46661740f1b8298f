"""A refusal names the file and the line where the key stands, whichever file that is, and the nearest right name."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import copy_configs
from hypothesis import given, strategies as st

from interplay.cli import main
from interplay.core.execution import Run
from interplay.core.keys import models_in, parse_model
from interplay.core.model import KeyPlace, Model, UserError, nearest_name, shorten_value
from interplay.model.trainer_spec import Optimizer
from interplay.rl.spec import Method, RLSpec
from interplay.study import choices
from interplay.study.expand import plan_study
from interplay.train.spec import PretrainSpec, SftSpec

STUDY, EDGE, BASES = "configs/study/quickstart.yaml", "configs/study/edge.yaml", "configs/study/edge_bases.yaml"
SCALE, METHOD, TASK = "configs/scale/smoke.yaml", "configs/method/grpo.yaml", "configs/task/op_dag.yaml"
RL = "rl: {kind: rl, data: {edge: 1.0}}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_configs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(root: Path, file: str, old: str, new: str) -> int:
    """Replace text in a file and return the line at which the new text ends, from 1."""
    path = root / file
    text = path.read_text()
    assert text.count(old) == 1, f"{file}: {old!r}"
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + new.count("\n") + 1


def refusal(capsys: pytest.CaptureFixture[str], study: str = "quickstart") -> str:
    """The one line with which the study is refused, without the program's name."""
    assert main(["plan", study, "--scale", "smoke"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("interplay: ")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("interplay: ").rstrip("\n")


CASES: dict[str, tuple[str, str, str, str, str]] = {
    # what: (study, file, old, new, the message behind `file:line: `)
    "a misspelt key of a stage": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, stpes: 3}",
        "stages.rl.stpes: unknown key 'stpes'; did you mean 'steps'?",
    ),
    "a key by the name that other trainers have for it": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, kl_coef: 0.1}",
        "stages.rl.kl_coef: unknown key 'kl_coef'; here it is method.loss.beta",
    ),
    "such a key within an optimizer": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, optimizer: {lr: 1.0e-4}}",
        "stages.rl.optimizer.lr: unknown key 'lr'; here it is learning_rate",
    ),
    "a key in a file that the study inherits from": (
        "edge_bases",
        EDGE,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, stpes: 3}",
        "stages.rl.stpes: unknown key 'stpes'; did you mean 'steps'? (stages.rl.stpes of study edge_bases)",
    ),
    "a key of the scale's defaults for a kind": (
        "quickstart",
        SCALE,
        "steps: 4,",
        "stpes: 4,",
        "kinds.rl.stpes: unknown key 'stpes'; did you mean 'steps'?",
    ),
    "a value of the scale": (
        "quickstart",
        SCALE,
        "id: [1, 2, 3]",
        "id: [1, two, 3]",
        "bands.id.1 = 'two': should be a whole number",
    ),
    "a key of a method's file": (
        "quickstart",
        METHOD,
        "epsilon: 0.2",
        "epsilonn: 0.2",
        "loss.epsilonn: unknown key 'epsilonn'; did you mean 'epsilon'? (stages.rl.method.loss.epsilonn of study quickstart)",
    ),
    "a value of the task's file": (
        "quickstart",
        TASK,
        "name: op_dag",
        "name: op_dga",
        "name = 'op_dga': no such member; did you mean 'op_dag'? (task.name of study quickstart)",
    ),
    "a value that an arm sets": (
        "quickstart",
        STUDY,
        "set: {rl.data: {hard: 1.0}}",
        "set: {rl.data: {hard: 1.0}, rl.steps: many}",
        "arms.rl_hard.set.rl.steps = 'many': should be a whole number (stages.rl.steps of study quickstart)",
    ),
    "a member of a union": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, reward: {name: procss}}",
        "stages.rl.reward.name = 'procss': no such member; did you mean 'process'?",
    ),
    "a key of another member of the union than the one that is named": (
        "quickstart",
        METHOD,
        "loss: {name: clipped, loss_type: dapo, epsilon: 0.2, beta: 0.0}",
        "loss: {name: direct_advantage, epsilon: 0.2, beta: 0.0}",
        "loss.epsilon: unknown key 'epsilon' of direct_advantage; known: num_iterations, use_bias_correction_kl, loss_type, "
        "mask_truncated_completions, entropy_coef, kl_estimator, loss_agg_mode, beta and 3 more; where a base or a method has it, "
        "an arm's set replaces the whole: rl.method.loss: {...} (stages.rl.method.loss.epsilon of study quickstart)",
    ),
    "a key of an arm with an empty word": (
        "quickstart",
        STUDY,
        "set: {rl.data: {hard: 1.0}}",
        "set: {rl..data: {hard: 1.0}}",
        "arms.rl_hard.set.rl..data: an empty word between dots, or after the last one; write stage.key.key",
    ),
    "a key of an arm's run block": (
        "quickstart",
        STUDY,
        "set: {rl.data: {hard: 1.0}}",
        "set: {rl.data: {hard: 1.0}, rl.run.processes: -1}",
        "arms.rl_hard.set.rl.run.processes = -1: should be greater than or equal to 1 (stages.rl.run.processes of study quickstart)",
    ),
    "a key of an arm that goes on behind the word that is unknown": (
        "quickstart",
        STUDY,
        "set: {rl.data: {hard: 1.0}}",
        "set: {rl.data: {hard: 1.0}, rl.method.critc.name: value_head}",
        "arms.rl_hard.set.rl.method.critc.name: unknown key 'critc'; did you mean 'critic'? (stages.rl.method.critc of study quickstart)",
    ),
    "a data file whose name is too long for any": (
        "quickstart",
        STUDY,
        "hard: {band: hard, split: rl}",
        f"hard: {{file: {'x' * 5000}, format: gsm8k}}",
        f"data.hard.file = '{'x' * 79}...: not readable: File name too long",
    ),
    "one of several words": (
        "quickstart",
        STUDY,
        RL,
        "rl:\n    kind: rl\n    data: {edge: 1.0}\n    dtype: bflaot16",
        "stages.rl.dtype = 'bflaot16': should be 'float32', 'bfloat16' or 'int8'; did you mean 'bfloat16'?",
    ),
    "a key that stands twice": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, kind: sft}",
        "'kind' occurs twice; it is in line 19 already",
    ),
    "a file of the defaults list": (
        "quickstart",
        STUDY,
        "/method@stages.rl.method: grpo",
        "/method@stages.rl.method: grpp",
        "defaults./method@stages.rl.method = 'grpp': no file configs/method/grpp.yaml; did you mean 'grpo'?",
    ),
    "a folder of the defaults list": (
        "quickstart",
        STUDY,
        "/method@stages.rl.method: grpo",
        "/metod@stages.rl.method: grpo",
        "defaults./metod@stages.rl.method = 'grpo': no folder configs/metod; did you mean 'method'?",
    ),
    "a study that includes itself": (
        "edge_bases",
        EDGE,
        "  - _self_",
        "  - _self_\n  - edge_bases",
        "defaults: files that include each other in a circle",
    ),
    "an item of the defaults list that is none": (
        "quickstart",
        STUDY,
        "  - _self_",
        "  - _self_\n  - 3",
        "defaults: an item is a file's name, `group: name`, or _self_",
    ),
    "a reference to a key that is not there": (
        "quickstart",
        STUDY,
        "source: arXiv:2512.07783, Figures 1 and 3",
        "source: ${nope.x}",
        "source: Interpolation key 'nope.x' not found",
    ),
    "a metric": (
        "quickstart",
        STUDY,
        "cells: [strict_pass@1]}",
        "cells: [strct_pass@1]}",
        "tables.ops.cells = ['strct_pass@1']: 'strct_pass@1' is not a metric; write strict_pass@K, answer_pass@K, score, hacked, hacked_of_right, nll, units, probe:NAME, cosine:NAME, plans, retrievals, rechecks, backtracks, strict_cap@K, answer_cap@K, turns, calls, answer_turn@K, revised_turn@K, error:none, error:CLASS, own:NAME, judged:NAME, strict_best@K, answer_best@K, reward_best@K, sequence_kl, reached_target, steps_to_target, tokens_to_target or seconds_to_target",
    ),
    "a likelihood that no evaluation scores": (
        "quickstart",
        STUDY,
        "cells: [strict_pass@1]}",
        "cells: [nll]}",
        "tables.ops.cells = 'nll': evaluation eval of base scores no gold solutions; give stages.eval `nll: true`",
    ),
    "classes of errors that no evaluation counts": (
        "quickstart",
        STUDY,
        "cells: [strict_pass@1]}",
        "cells: [error]}",
        "tables.ops.cells = 'error': evaluation eval of base counts no classes of errors; give stages.eval `errors: true`",
    ),
    "an arm that a table is against": (
        "quickstart",
        STUDY,
        "cells: [strict_pass@1]}",
        "cells: [strict_pass@1], against: bass}",
        "tables.ops.against = 'bass': no such arm; did you mean 'base'?",
    ),
    "more samples than a gain has": (
        "quickstart",
        STUDY,
        "cells: [strict_pass@1]}",
        "cells: [strict_pass@1], gain: {against: base, k: 999}}",
        "tables.ops.gain = 'strict_pass@999': evaluation eval of base has 32 samples per prompt; give it more num_samples, or lower k",
    ),
    "a number that is not finite": (
        "quickstart",
        STUDY,
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, temperature: .nan}",
        "stages.rl.temperature = nan: should be a finite number",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_file_and_line_are_named_for(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, file, old, new, message = CASES[case]
    line = edit(root, file, old, new)
    assert refusal(capsys, study) == f"{file}:{line}: {message}"


@pytest.mark.parametrize("spec", [Method, Optimizer, PretrainSpec, RLSpec, SftSpec])
def test_what_a_name_of_another_trainer_leads_to_is_a_key_here(spec: type[Model]) -> None:
    assert spec.KNOWN_AS
    for name, ours in spec.KNOWN_AS.items():
        assert name not in spec.model_fields, "a key of its own is never unknown"
        models = [spec]
        for part in ours.partition(":")[0].split("."):
            fields = [model.model_fields[part] for model in models if part in model.model_fields]
            models = [inner for field in fields for inner in models_in(field.annotation)]
            assert fields or (spec is Method and name == "name"), f"{name}: no {part} of {ours}"


def test_a_missing_value_is_named_at_the_stage_that_lacks_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, SCALE, "steps: 4, ", "")
    assert refusal(capsys) == f"{STUDY}:19: stages.rl.steps: missing; give it a value"


def test_broken_yaml_is_named_with_the_line_at_which_reading_stopped(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, STUDY, "evaluate: [eval]", "evaluate: [eval")
    assert refusal(capsys).startswith(f"{STUDY}:28: not YAML: a list that a '[' opened has no ',' or ']' here")


def test_a_broken_default_study_does_not_stop_another(root: Path) -> None:
    (root / STUDY).write_text("question: [")
    assert choices.chosen(root / "configs", {"study": "edge"}) == (["edge"], "laptop")
    assert plan_study(root / "configs", "edge", "smoke").stages


def test_a_key_of_the_snakemake_command_line_is_refused_with_the_nearest(root: Path) -> None:
    with pytest.raises(UserError, match=r"--config: stuyd: unknown key 'stuyd'; did you mean 'study'\?"):
        choices.chosen(root / "configs", {"stuyd": "edge"})


@pytest.mark.parametrize(
    ("given", "shown"),
    [({"study": None}, "study = None"), ({"study": ["edge", "ladder"]}, "study = ['edge', 'ladder']")]
    + [({"study": value}, f"study = {value!r}") for value in (True, 1.5, {"edge": 1}, "", "edge,", ",")]
    + [({"scale": None}, "scale = None")],
)
def test_what_is_no_name_is_refused_on_the_snakemake_command_line(root: Path, given: dict[str, object], shown: str) -> None:
    with pytest.raises(UserError) as caught:
        choices.chosen(root / "configs", given)
    assert str(caught.value).startswith(f"--config: {shown}: must be a name, such as ")


def test_a_key_of_the_file_for_slurm_is_refused_there_and_not_on_the_command_line(root: Path) -> None:
    line = edit(root, "configs/slurm.yaml", "scale: gpu", "scale: gpu\nsclae: gpu")
    with pytest.raises(UserError, match=rf"^configs/slurm.yaml:{line}: sclae: unknown key 'sclae'; did you mean 'scale'"):
        choices.chosen(root / "configs", {"scale": "gpu", "sclae": "gpu"})
    with pytest.raises(UserError, match=r"^--config: sclae: unknown key"):
        choices.chosen(root / "configs", {"scale": "gpu", "sclae": "laptop"})


@pytest.mark.parametrize("studies", ["quickstart", "[]", "{quickstart: 1}", "[[quickstart]]", "''", "[quickstart, '']"])
def test_the_studies_of_a_project_are_a_list(root: Path, studies: str) -> None:
    line = edit(root, "configs/config.yaml", "studies: [quickstart]", f"studies: {studies}")
    with pytest.raises(UserError) as caught:
        choices.chosen(root / "configs", {})
    assert str(caught.value) == f"configs/config.yaml:{line}: studies: must be a list of names, such as [quickstart]"


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"[" * 5000, b"defaults: 3\nstudies: [edge]", b"studies: [edge]\n" * 2, b""]
)
def test_a_main_file_that_is_none_is_refused_in_one_line(root: Path, content: bytes) -> None:
    (root / "configs/config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"^configs/config.yaml"):
        choices.chosen(root / "configs", {})


def test_the_package_itself_is_the_command(root: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "interplay", "nope"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0][:32]) == (2, "interplay: nope: no such command")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../scale/smoke", "no file configs/study/../scale/smoke.yaml"),
        ("configs/study/egde.yaml", "did you mean 'edge'?"),
        ("x" * 5000, "no file configs/study/xxx"),
        ("no\0thing", "no file configs/study/no"),
        ("edge,ladder", "did you mean 'ladder'?"),
    ],
)
def test_a_name_that_is_no_study_is_refused_even_a_path_that_leads_out(
    name: str, words: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, name)


@pytest.mark.parametrize("given", ["configs/study/edge.yaml", "./configs/study/edge.yaml", "configs/study/edge", "edge.yaml"])
def test_a_study_is_named_by_its_file_too(given: str, root: Path) -> None:
    assert plan_study(root / "configs", given, "smoke") == plan_study(root / "configs", "edge", "smoke")


def test_outside_of_a_project_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, "edge") == "configs/study: no such folder; run from the root of the project"


def test_a_message_is_one_short_line_whatever_the_value_holds(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, STUDY, RL, f'rl: {{kind: rl, data: {{edge: 1.0}}, "a\\nb{"x" * 40}": 1, dtype: "{"y" * 5000}"}}')
    assert len(refusal(capsys)) < 1000


def test_many_known_names_are_not_all_listed() -> None:
    assert nearest_name("zzzz", [f"arm_{i:03}" for i in range(500)]).endswith("and 492 more")


def test_a_right_study_is_read_once_to_see_what_it_includes_and_never_searched_for_a_line(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("searched although nothing was wrong")

    study, read = root / "configs/study/quickstart.yaml", list[object]()
    study.write_text(f"{study.read_text()}# Composed by no test before.\n")
    monkeypatch.setattr("interplay.study.files.sources", lambda *given: read.append(given))
    for name in ("locate_error", "diagnose_files"):
        monkeypatch.setattr(f"interplay.study.locate.{name}", fail)
    assert plan_study(root / "configs", "quickstart", "smoke").report
    assert len(read) == 1


# what: (old, new, the key in the file, its value as shown, how the problem begins), of the study quickstart
PARTS: dict[str, tuple[str, str, tuple[str, ...], str, str]] = {
    "an arm's name with dots": (
        "  rl_hard:",
        "  rl.hard.v2: {path: [base, rl], control: nope}\n  rl_hard:",
        ("arms", "rl.hard.v2", "control"),
        "'nope'",
        "no such arm",
    ),
    "an arm whose name continues another key of arms": (
        "  rl_hard:",
        "  rl: {path: [base, rl], control: base}\n  rl.set: {path: [base, rl], control: base, set: {rl.stpes: 3}}\n  rl_hard:",
        ("arms", "rl.set", "set", "rl.stpes"),
        "",
        "unknown key 'stpes'; did you mean 'steps'? (stages.rl.stpes of study quickstart)",
    ),
    "a value with the signs of a message": (
        "split: test",
        "split: 'test: x = y.z'",
        ("data", "test", "split"),
        "'test: x = y.z'",
        "should be 'train'",
    ),
    "an arm's value with the signs of a message": (
        "set: {rl.data: {hard: 1.0}}",
        "set: {rl.data: {hard: 1.0}, rl.dtype: 'a = b: c'}",
        ("arms", "rl_hard", "set", "rl.dtype"),
        "'a = b: c'",
        "should be 'float32', 'bfloat16' or 'int8' (stages.rl.dtype of study quickstart)",
    ),
    "an unknown key with a dot": (
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, loss.epsilon: 0.2}",
        ("stages", "rl", "loss.epsilon"),
        "",
        "unknown key 'loss.epsilon'",
    ),
    "an unknown key with the signs of a message": (
        RL,
        "rl: {kind: rl, data: {edge: 1.0}, 'a = b: c.d': 1}",
        ("stages", "rl", "a = b: c.d"),
        "",
        "unknown key 'a = b: c.d'",
    ),
    "a problem set with a dot": (
        "hard: {band: hard, split: rl}",
        "hard: {band: hard, split: rl}\n  hard.too: {band: hrad, split: rl}",
        ("data", "hard.too", "band"),
        "'hrad'",
        "no such band; did you mean 'hard'?",
    ),
    "a name with a line break": (
        "hard: {band: hard, split: rl}",
        'hard: {band: hard, split: rl}\n  "ha\\nrd": {band: hard, split: rl}',
        ("data", "ha\nrd"),
        "",
        "choose a name without '/' that can be printed",
    ),
    "an interpolation below a name with a dot": (
        "  rl_hard:",
        "  rl.v2: {path: [base, rl], control: base, set: {rl.dtype: '${nope.x}'}}\n  rl_hard:",
        ("arms", "rl.v2", "set", "rl.dtype"),
        "",
        "Interpolation key 'nope.x' not found",
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_an_error_has_its_place_value_and_problem(case: str, root: Path) -> None:
    old, new, keys, value, problem = PARTS[case]
    line = edit(root, STUDY, old, new)
    with pytest.raises(UserError) as raised:
        plan_study(root / "configs", "quickstart", "smoke")
    error = raised.value
    assert error.place == KeyPlace(STUDY, keys, line - ("rl_hard" in old))
    assert error.value == value
    assert error.problem.startswith(problem)


def test_an_error_about_a_scale_or_an_included_file_has_the_place_there(root: Path) -> None:
    line = edit(root, METHOD, "epsilon: 0.2", "epsilon: many")
    with pytest.raises(UserError) as raised:
        plan_study(root / "configs", "quickstart", "smoke")
    assert raised.value.place == KeyPlace(METHOD, ("loss", "epsilon"), line)
    assert (raised.value.value, raised.value.problem) == (
        "'many'",
        "should be a number (stages.rl.method.loss.epsilon of study quickstart)",
    )


def test_an_error_of_a_validated_value_is_below_the_given_place() -> None:
    place = KeyPlace("configs/study/a.yaml", ("stages", "r.l", "run"))
    with pytest.raises(UserError) as raised:
        parse_model(Run, {"threads": "many"}, place)
    assert raised.value.place == place.key("threads")
    assert (raised.value.value, raised.value.problem) == ("'many'", "should be a whole number")
    assert str(raised.value) == "configs/study/a.yaml: stages.r.l.run.threads = 'many': should be a whole number"


def test_an_error_about_no_key_has_no_place() -> None:
    error = UserError("configs/study/a.yaml: stages.rl = 3: text alone")
    assert (error.place, error.value, error.problem) == (None, "", str(error))


TEXT = st.text()


@given(file=TEXT, keys=st.lists(TEXT).map(tuple), line=st.integers(0, 9), value=st.none() | st.integers() | TEXT, problem=TEXT)
def test_the_parts_of_an_error_survive_any_text(file: str, keys: tuple[str, ...], line: int, value: object, problem: str) -> None:
    error = KeyPlace(file, (), line).key(*keys).error(problem, value)
    for one in (error, copy.copy(error), copy.deepcopy(error)):
        assert (one.place, one.value, one.problem) == (KeyPlace(file, keys, line), shorten_value(value), problem)
        assert str(one) == str(error)
        assert len(str(one).splitlines()) <= 1
