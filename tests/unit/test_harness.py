"""Tasks of lm-eval: as problem sets, answered by lm-eval itself, and refused where they cannot be."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import world
from conftest import ROOT
from lab import Lab

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import harness, problems, sets
from interplay.data.spec import DatasetSpec
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.report.stats.frame import count_samples, prompt_scores
from interplay.results import check

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
    problems.read_dataset(spec, {}, out, Run(path=f"tasks/{task}.yaml"))
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

    model = f"pretrained={project}/results/pretrain/{'m' * 12}/model,dtype=float32"
    found = lm_eval.simple_evaluate("hf", model, [f"tasks/{task}.yaml"], device="cpu", bootstrap_iters=0, **keys)
    return found["results"][task]


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


def test_few_shots_are_the_stages_or_the_tasks(project: Path) -> None:
    data = read_task(project, "sums")
    scores = {}
    for shots in (None, 1):
        spec = ASKED.model_copy(update={"harness": ASKED.harness.model_copy(update={"num_fewshot": shots})})
        scores[shots] = answers(project, data, spec, project / f"out{shots}")["all"]["score"]
        assert scores[shots] == pytest.approx(simple_evaluate(project, "sums", num_fewshot=shots)["acc,none"], abs=1e-6)


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


def test_all_that_a_task_reads_is_its_identity_and_travels_with_its_set(project: Path) -> None:
    before = harness.task_checksum("tasks/sums.yaml")
    assert harness.task_files("tasks/sums.yaml") == [
        *("tasks/sums.yaml", "tasks/common.yaml", "tasks/own.py", "tasks/test.jsonl", "tasks/train.jsonl")
    ] or set(harness.task_files("tasks/sums.yaml")) == {
        f"tasks/{n}" for n in ("sums.yaml", "common.yaml", "own.py", "test.jsonl", "train.jsonl")
    }
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


def test_a_study_names_a_task_and_its_score_is_a_column(project: Path) -> None:
    lab = Lab(project / "lab")
    lab.edit(
        "study/quickstart.yaml",
        "hard: {band: hard, split: rl}",
        "hard: {band: hard, split: rl}\n  sums: {file: tasks/sums.yaml, format: lm_eval, band: sums}",
    )
    lab.edit(
        "study/quickstart.yaml",
        "stages:\n",
        "stages:\n  asked: {kind: evaluate, data: sums, harness: {name: lm_eval, metrics: [acc, acc_norm]}, engine: hf, temperature: 0, num_samples: 1}\n",
    )
    text = (ROOT / "configs/study/quickstart.yaml").read_text()
    assert "evaluate: [" in text
