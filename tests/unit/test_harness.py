"""Tasks of lm-eval: as problem sets, answered by lm-eval itself (the extra lm-eval), and refused where they cannot be."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import world
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import foreign, harness, sets
from interplay.data.spec import LM_EVAL_VERSION, DatasetSpec
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.stages import numerics_class
from interplay.report.stats.frame import count_samples, prompt_scores
from interplay.results import check
from interplay.study.plan import Plan

asking = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the extra lm-eval is not installed")

CHOICE = """
include: common.yaml
task: sums
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["0", "1", "2", "3", "4"]
doc_to_target: !function own.place
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
COMMON = """
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/test.jsonl, train: tasks/train.jsonl}}
test_split: test
fewshot_split: train
num_fewshot: 2
target_delimiter: ""
fewshot_delimiter: "|"
"""
WRITTEN = """
include: common.yaml
task: written
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["#"], do_sample: false}
metric_list: [{metric: exact_match}]
filter_list:
  - {name: whole, filter: [{function: take_first}]}
  - {name: digit, filter: [{function: regex, regex_pattern: "([0-9])"}, {function: take_first}]}
"""
ASKED = EvaluateSpec(harness="lm_eval", engine="hf", temperature=0, num_samples=1, max_completion_length=6)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two tasks over 12 items, and a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tasks").mkdir()
    for name, seed, size in (("test", 0, 12), ("train", 1, 6)):
        rows = pq.read_table(world.problem_set(tmp_path / "made", name, size, seed) / "problems.parquet").to_pylist()
        lines = [json.dumps({"question": row["prompt"], "answer": row["answer"]}) for row in rows]
        (tmp_path / f"tasks/{name}.jsonl").write_text("\n".join(lines))
    files = {"common.yaml": COMMON, "sums.yaml": CHOICE, "written.yaml": WRITTEN}
    files["own.py"] = "def place(doc):\n    return int(doc['answer'])\n"
    for name, text in files.items():
        (tmp_path / "tasks" / name).write_text(text)
    world.model(tmp_path / "results", "m" * 12)
    return tmp_path


def read_task(project: Path, task: str, **keys: Any) -> Path:
    """The set of a task, and the checksum that its plan has."""
    out = project / "results/dataset" / f"{task}{len(keys)}"
    spec = DatasetSpec(format="lm_eval", sha256=harness.task_checksum(f"tasks/{task}.yaml"), **keys)
    out.mkdir(parents=True)
    artifact.write_json(out / "stage.json", {"digest": "d" * 12})
    foreign.read_dataset(spec, {}, out, Run(path=f"tasks/{task}.yaml"))
    return out


def answers(project: Path, data: Path, spec: EvaluateSpec, out: Path) -> dict[str, Any]:
    inputs = {"model": project / "results/pretrain" / ("m" * 12), "data": data}
    out.mkdir()
    found = sampling.evaluate_model(spec, inputs, out, Run())
    record = {"spec": json.loads(spec.model_dump_json()), "metrics": json.loads(json.dumps(found))}
    assert not list(check._evaluation(out, record, inputs)), "the record does not follow from its samples"
    return found


def simple_evaluate(project: Path, task: str, **keys: Any) -> dict[str, float]:
    """What lm-eval says by itself."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    model = f"pretrained={project}/results/pretrain/{'m' * 12}/model,dtype=float32"
    alone = TaskManager(include_defaults=False)
    found = lm_eval.simple_evaluate(
        "hf", model, [f"tasks/{task}.yaml"], device="cpu", bootstrap_iters=0, task_manager=alone, **keys
    )
    return found["results"][task]


@asking
def test_a_task_says_the_same_as_lm_eval_by_itself(project: Path) -> None:
    data = read_task(project, "sums")
    spec = ASKED.model_copy(update={"harness": ASKED.harness.model_copy(update={"metrics": ["acc_norm", "acc"]})})
    found = answers(project, data, spec, project / "out")
    alone = simple_evaluate(project, "sums")
    assert found["all"]["score"] == pytest.approx(alone["acc_norm,none"], abs=1e-6)
    assert 0 < found["all"]["score"] < 1, "a score that would show nothing"
    prompts = count_samples(project / "out")
    assert prompt_scores(prompts, "own:acc").mean() == pytest.approx(alone["acc,none"], abs=1e-6)
    assert prompt_scores(prompts, "answer_pass@1").mean() == pytest.approx(alone["acc_norm,none"], abs=1e-6)
    samples = pq.read_table(project / "out/samples.parquet").to_pylist()
    rows = sets.load_pool([data]).rows
    assert [one["index"] for one in samples] == [row.index for row in rows]
    assert all((one["completion"] == row.answer) == one["answer"] for one, row in zip(samples, rows, strict=True))


@asking
def test_few_shots_are_the_stages_or_the_tasks(project: Path) -> None:
    data = read_task(project, "sums")
    scores = {}
    for shots in (None, 1):
        spec = ASKED.model_copy(update={"harness": ASKED.harness.model_copy(update={"num_fewshot": shots})})
        scores[shots] = answers(project, data, spec, project / f"out{shots}")["all"]["score"]
        assert scores[shots] == pytest.approx(simple_evaluate(project, "sums", num_fewshot=shots)["acc,none"], abs=1e-6)


@asking
def test_generated_answers_are_kept_and_their_filters_are_metrics(project: Path) -> None:
    data = read_task(project, "written", size=9)
    spec = ASKED.model_copy(update={"harness": ASKED.harness.model_copy(update={"metrics": ["exact_match,digit"]})})
    found = answers(project, data, spec, project / "out")
    samples = pq.read_table(project / "out/samples.parquet").to_pylist()
    assert len(samples) == 9
    assert all(len(one["completion"]) <= 6 and one["length"] <= 6 for one in samples)
    numbers = [int(row.graph.rpartition(":")[2].split('"')[0]) for row in sets.load_pool([data]).rows]
    alone = simple_evaluate(project, "written", samples={"written": numbers}, gen_kwargs={"max_gen_toks": 6})
    assert found["all"]["own:exact_match_digit"] == pytest.approx(alone["exact_match,digit"], abs=1e-6)
    wrong = spec.model_copy(update={"harness": spec.harness.model_copy(update={"metrics": ["exact_match"]})})
    with pytest.raises(UserError, match=r"no 'exact_match'; did you mean 'exact_match,\w+'"):
        answers(project, data, wrong, project / "other")


@asking
def test_all_that_a_task_reads_is_its_identity_and_travels_with_its_set(project: Path) -> None:
    before = harness.task_checksum("tasks/sums.yaml")
    files = ["sums.yaml", "common.yaml", "own.py", "test.jsonl", "train.jsonl"]
    assert sorted(harness.task_files("tasks/sums.yaml")) == sorted(f"tasks/{name}" for name in files)
    data = read_task(project, "sums")
    for name in ("common.yaml", "own.py", "train.jsonl"):
        path = project / "tasks" / name
        text = path.read_text()
        path.write_text(text + "\n")
        assert harness.task_checksum("tasks/sums.yaml") != before
        path.write_text(text)
    for path in (project / "tasks").iterdir():
        path.unlink()
    assert answers(project, data, ASKED, project / "out")["n_prompts"] == 12


DATA = "sums: {file: tasks/sums.yaml, format: lm_eval, band: sums}"
STAGE = "asked: {kind: evaluate, data: sums, harness: {metrics: [acc, acc_norm]}, engine: hf, temperature: 0, num_samples: 1}"
CELLS = "columns: [sums], cells: [score, own:acc_norm]"


def planned(folder: Path, data: str = DATA, stage: str = STAGE, table: str = CELLS) -> Plan:
    """The quickstart with a task of lm-eval."""
    lab = Lab(folder)
    lab.edit("study/quickstart.yaml", "stages:", f"  {data}\n\nstages:\n  {stage}\n#")
    lab.edit("study/quickstart.yaml", "evaluate: [eval]", "evaluate: [eval, asked]")
    lab.edit("study/quickstart.yaml", "tables:", f"tables:\n  asked: {{{table}}}")
    return lab.plan()


def test_a_study_names_a_task_and_its_scores_are_columns(project: Path) -> None:
    plan = planned(project / "a")
    (data,) = of_kind(plan, "dataset")
    assert data.spec.sha256 == harness.task_checksum("tasks/sums.yaml")
    asked = [stage for stage in of_kind(plan, "evaluate") if stage.spec.harness]
    assert {stage.deps["data"] for stage in asked} == {data.digest}
    assert len(asked) == 3, "one for each arm"
    assert numerics_class({"spec": canonical(asked[0].spec)}).name == f"lm_eval {LM_EVAL_VERSION}, float32"
    (project / "tasks/test.jsonl").write_text((project / "tasks/train.jsonl").read_text())
    assert {stage.digest for stage in asked}.isdisjoint(planned(project / "b").stages)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": DATA.replace("sums.yaml", "none.yaml")}, r"tasks/none.yaml': not readable as a task"),
        pytest.param(
            {"data": "sums: {file: arc_esay, format: lm_eval, band: sums}"},
            r"no task 'arc_esay' in lm-eval; did you mean 'arc_easy'",
            marks=asking,
        ),
        ({"data": DATA.replace("sums.yaml", "common.yaml")}, r"task: missing; a task of lm-eval has it"),
        ({"data": DATA.replace("sums.yaml", "lost.yaml")}, r"no such file: tasks/lost.jsonl; paths are from the project's root"),
        ({"data": DATA.replace("sums.yaml", "out.yaml")}, r"must lie below the project's root"),
        ({"data": DATA.replace("sums.yaml", "hidden.yaml")}, r"tasks lies in the project, and .*; write data_files"),
        ({"data": DATA.replace("sums.yaml", "rolling.yaml")}, r"output_type: loglikelihood_rolling gives perplexities"),
        (
            {"stage": STAGE.replace("engine: hf", "engine: native")},
            r"lm_eval answers greedily, once, by transformers; write engine: hf",
        ),
        ({"stage": STAGE.replace("num_samples: 1", "num_samples: 4")}, r"write num_samples: 1"),
        ({"stage": STAGE.replace("num_samples", "nll: true, num_samples")}, r"nll: does not go with a harness"),
        ({"stage": STAGE.replace("metrics:", "version: '0.4.9', metrics:")}, r"version.*0\.4\.13"),
        (
            {"stage": STAGE.replace("data: sums", "data: test"), "table": "columns: [id], cells: [score]"},
            r"name a problem set of format: lm_eval",
        ),
        ({"stage": "asked: {kind: evaluate, data: sums}"}, r"asks and scores by itself; write lm_eval"),
        ({"table": CELLS.replace("acc_norm", "acc_nrm")}, r"did you mean 'own:acc_norm'"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_planned(given: dict[str, str], says: str, project: Path) -> None:
    (project / "tasks/lost.yaml").write_text(CHOICE + "dataset_kwargs: {data_files: {test: tasks/lost.jsonl}}\n")
    (project / "tasks/hidden.yaml").write_text("task: hidden\ndataset_path: tasks\ndoc_to_text: question\n")
    (project / "tasks/rolling.yaml").write_text(CHOICE.replace("multiple_choice", "loglikelihood_rolling"))
    (project / "tasks/out.yaml").write_text(CHOICE + "dataset_kwargs: {data_files: {test: ../test.jsonl}}\n")
    with pytest.raises(UserError, match=rf"quickstart\.yaml:\d+.*{says}"):
        planned(project / "lab", **given)


@pytest.mark.parametrize("task", ["gsm*", "/gsm8k"])
def test_what_is_no_name_is_no_task_of_lm_eval(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lm_eval/tasks/gsm8k").mkdir(parents=True)
    (tmp_path / "lm_eval/__init__.py").touch()
    (tmp_path / "lm_eval/tasks/gsm8k/gsm8k.yaml").write_text("task: gsm8k\n")
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert harness.task_checksum("gsm8k")
    with pytest.raises(UserError, match=r"no task .* in lm-eval"):
        harness.task_checksum(task)
