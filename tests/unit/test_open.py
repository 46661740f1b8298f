"""`interplay open`: what it answers, to whom, and that it writes nothing."""

import json
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lab import Lab, of_kind
from report_study import arm, spec
from served import Served, serving

from interplay.core import artifact, metrics as core_metrics
from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.serve import data
from interplay.study.plan import Plan, Stage

OF_OTHERS = "f" * 12
HOSTILE = "<script>alert(1)</script>"
ROWS = [
    {"index": 7, "sample": 0, "strict": True, "answer": True, "score": 1.0, "error": "none", "completion": "a=1+2;a=3"},
    {"index": 7, "sample": 1, "strict": False, "answer": False, "score": 0.5, "error": "value", "completion": "a=1+2;a=4"},
    {"index": 7, "sample": 2, "strict": False, "answer": False, "score": 0.5, "error": "value", "completion": "a=1+2;a=4"},
    {"index": 8, "sample": 0, "strict": False, "answer": False, "score": 0.0, "error": "parse", "completion": HOSTILE},
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The quickstart at smoke: base and data done, one RL stage with curves, the other failed, an evaluation with samples."""
    lab = Lab(tmp_path_factory.mktemp("open"))
    plan = lab.plan()
    lab.finish_all(plan, but=("rl", "evaluate", "report"))
    for stage in (*of_kind(plan, "evaluate"), *of_kind(plan, "report")):
        artifact.write_json(lab.out(stage) / "stage.json", stage.as_json())
    good, bad = of_kind(plan, "rl")
    lines = [{"step": step + 1, "reward": step / 10, "effective_ratio": 0.0, "ratio_max": math.inf} for step in range(6)]
    lines[1] |= {"ratio_max": 1.5}
    lines[2] |= {"ratio_max": math.nan}
    (lab.start(good) / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for step in (2, 10):
        row = {
            "step": step,
            "set": 0,
            "index": 1,
            "error": "value",
            "prompt": f"of step {step}",
            "completion": "x",
            "reward": 0.0,
        }
        artifact.write_json(lab.out(good) / f"resume/steps/{step}.json", {"rollouts": [row], "history": []})
    (lab.results / "rl" / OF_OTHERS).mkdir()
    artifact.write_json(lab.start(bad) / "failure.json", {"message": f"step 3: loss nan {HOSTILE}"})
    artifact.write_json(lab.out(bad) / "telemetry.json", {"attempts": 1})
    log = lab.folder / "logs/rl" / f"{bad.digest}.log"
    log.parent.mkdir(parents=True)
    log.write_text("first line\nlast line\n")
    evaluation = of_kind(plan, "evaluate")[0]
    (problems,) = {stage.digest for stage in of_kind(plan, "problems") if stage.digest == evaluation.deps["data"]}
    gold = [{"index": index, "prompt": f"problem {index}", "solution": "a=1+2;a=3", "answer": "3"} for index in (7, 8)]
    pq.write_table(pa.Table.from_pylist(gold), lab.results / "problems" / problems / "problems.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS), lab.finish(evaluation) / "samples.parquet")
    (lab.out(of_kind(plan, "evaluate")[1]) / "samples.parquet").write_bytes(b"PAR1")
    return lab


@pytest.fixture(scope="module")
def page(lab: Lab) -> Iterator[Served]:
    before = tree(lab.folder)
    with serving(lab.folder) as served:
        yield served
    assert tree(lab.folder) == before, "it wrote something"


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


SMOKE = {"study": "quickstart", "scale": "smoke"}


def test_studies_are_listed_with_what_was_launched(page: Served) -> None:
    found = {one["study"]: one for one in page.get("api/studies").json()}
    (run,) = found["quickstart"]["runs"]
    assert (run["scale"], run["failed"], run["finished"]) == ("smoke", 1, False)
    assert found["edge"]["runs"] == []


def test_a_study_names_what_failed_why_and_the_command_and_no_time_left(page: Served) -> None:
    found = page.get("api/state", **SMOKE).json()
    (failed,) = [row for row in found["stages"] if row["state"] == "failed"]
    assert failed["address"] == "quickstart.smoke/rl_hard/rl@0"
    assert failed["detail"] == f"step 3: loss nan {HOSTILE}"
    assert failed["debug"] == "interplay debug quickstart.smoke/rl_hard/rl@0"
    assert (found["left"], found["running"]) == (None, False)
    assert found["next"] == "interplay run quickstart --scale smoke"


def test_curves_come_with_their_arms_and_follow_the_choice(page: Served) -> None:
    found = page.get("api/curves", **SMOKE).json()
    (one,) = found["series"]
    assert (found["metric"], one["arm"], one["seed"]) == ("reward", "rl_edge", 0)
    assert one["y"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert page.get("api/curves", metric="effective_ratio", **SMOKE).json()["series"][0]["y"] == [0.0] * 6
    (broken,) = page.get("api/curves", metric="ratio_max", **SMOKE).json()["series"]
    assert (broken["x"], broken["y"]) == ([2], [1.5])  # JSON has no number for the others


def test_a_stage_has_its_log_and_cause(lab: Lab, page: Served) -> None:
    digest = of_kind(lab.plan(), "rl")[1].digest
    found = page.get(f"api/stage/{digest}", **SMOKE).json()
    assert (found["state"], found["log"]) == ("failed", "first line\nlast line")
    text = page.get(f"stage/{digest}", **SMOKE).text
    assert "rl_hard/rl@0" in text
    assert HOSTILE not in text


def test_completions_are_filtered_by_error_class_and_differ_from_the_reference_where_they_do(lab: Lab, page: Served) -> None:
    path = f"api/rollouts/{of_kind(lab.plan(), 'evaluate')[0].digest}"
    assert page.get(path).json()["errors"] == {"value": 2, "none": 1, "parse": 1}
    found = page.get(path, error="value").json()
    assert (found["total"], found["distinct"]) == (2, 1)
    (row,) = found["rows"]
    assert (row["count"], row["prompt"]) == (2, "problem 7")
    assert [part for part, differs in row["wrote"] if differs] == ["4"]
    assert [part for part, differs in row["gold"] if differs] == ["3"]
    assert [one["problem"] for one in page.get(path, problem=8).json()["rows"]] == [8]


def test_a_running_stage_shows_the_completions_of_its_last_steps(lab: Lab, page: Served) -> None:
    digest = of_kind(lab.plan(), "rl")[0].digest
    found = page.get(f"api/rollouts/{digest}").json()
    assert (found["steps"], found["total"]) == ([2, 10], 2)
    assert page.get(f"api/rollouts/{digest}", step=10).json()["rows"][0]["prompt"] == "of step 10"
    absent = of_kind(lab.plan(), "rl")[1].digest
    assert page.get(f"api/rollouts/{absent}").status == 404


def test_a_damaged_file_of_completions_is_named(lab: Lab, page: Served) -> None:
    answer = page.get(f"api/rollouts/{of_kind(lab.plan(), 'evaluate')[1].digest}")
    assert answer.status == 404
    assert "Parquet" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "stage/../../etc/passwd",
        "report/..%2f..%2fetc",
        "static/..%2fapp.py",
        "static/base.html.jinja",
        "api/rollouts/%2e%2e",
        "api/rollouts/0123456789ab",
        f"api/stage/{OF_OTHERS}?study=quickstart&scale=smoke",
        "api/state?study=../quickstart&scale=smoke",
        "api/state",
        "api/compare?a=x&b=y",
        "results/rl",
    ],
)
def test_what_is_no_study_and_no_digest_is_not_there(path: str, page: Served) -> None:
    answer = page.get(path)
    assert answer.status == 404
    assert "Traceback" not in answer.text
    assert "root:" not in answer.text


def test_it_answers_to_its_own_name_and_to_reading_alone(page: Served) -> None:
    assert page.get("/", headers={"Host": "evil.example"}).status == 400
    assert page.get("/", headers={"Host": "localhost"}).status == 200
    assert {page.get("/", method).status for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}
    answer = page.get("api/studies", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert (
        "default-src 'none'; script-src 'self'"
        in {name.lower(): value for name, value in answer.headers.items()}["content-security-policy"]
    )


def test_every_asset_is_its_own(page: Served) -> None:
    for path in ("/", "static/open.js", "static/open.css"):
        text = page.get(path).text
        assert "https://" not in text
        assert text.count("http://") == text.count("http://www.w3.org")


def test_a_port_that_is_taken_and_a_folder_that_is_no_project_are_refused(page: Served, lab: Lab, tmp_path: Path) -> None:
    import subprocess
    import sys

    port = page.url.rsplit(":", 1)[1].strip("/")
    for folder, words, said in (
        (lab.folder, ["--port", port], f"--port {port}: "),
        (tmp_path, [], "run from the root of the project"),
    ):
        done = subprocess.run([sys.executable, "-m", "interplay", "open", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_an_arm_of_the_same_stages_is_named_with_the_one_that_stands_for_it() -> None:
    """As a grid's arm at the value that the study has anyway: its stages and curves are those of the other."""
    paths = {"rl": "m{}", "other": "n{}", "swept[beta=0]": "m{}", "half": "m0"}
    arms = [
        arm(name, seed, ["base:pretrain:b", f"rl:rl:{end.format(seed)}"], "e") for name, end in paths.items() for seed in (0, 1)
    ]
    assert data.equal_arms(spec(arms)) == [("swept[beta=0]", "rl")]


def test_arms_whose_curves_are_the_same_are_named_and_a_shared_stage_is_drawn_once(tmp_path: Path) -> None:
    """As on the static page: of a stage that arms share, and of different stages with equal curves."""
    values = {"b": [1.0, 2.0], "m": [3.0, 4.0], "n": [3.0, 4.0], "o": [3.0, 5.0]}
    for digest, rewards in values.items():
        folder = tmp_path / "results/rl" / digest
        folder.mkdir(parents=True)
        folder.joinpath("metrics.jsonl").write_text("".join(f'{{"step": {at}, "reward": {r}}}\n' for at, r in enumerate(rewards)))
    arms = [arm(name, 0, ["base:rl:b", f"rl:rl:{digest}"], "e") for name, digest in (("one", "m"), ("two", "n"), ("three", "o"))]
    arms += [arm("base", 0, ["base:rl:b"], "e"), arm("again", 0, ["base:rl:b", "rl:rl:m"], "e")]
    stages = {digest: Stage("rl", Model(), {}, Run(), digest, digest) for digest in values}
    plan = Plan("s", "smoke", {**stages, "r": Stage("report", spec(arms), {}, Run(), "report", "r")}, "r")
    plans = dict.fromkeys(data.series_of(plan), plan)
    place = data.Place(tmp_path, tmp_path / "results", tmp_path)

    last = data.curves(place, plans, data.LAST, "reward")
    assert [one["arm"] for one in last["series"]] == ["one", "two", "three", "base"]
    assert last["same"] == [["one", "two", "again"]]
    base = data.curves(place, plans, "base", "reward")
    assert [one["arm"] for one in base["series"]] == ["one"]
    assert base["same"] == [["one", "two", "three", "base", "again"]]


def test_all_curves_of_a_stage_whose_last_line_is_of_an_evaluation_are_offered(tmp_path: Path) -> None:
    folder = tmp_path / "results/pretrain/p"
    folder.mkdir(parents=True)
    folder.joinpath("metrics.jsonl").write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 2, "eval_loss/id": 3.0}\n'
    )
    stages = {"p": Stage("pretrain", Model(), {}, Run(), "p", "p")}
    report = Stage("report", spec([arm("base", 0, ["base:pretrain:p"], "e")]), {}, Run(), "report", "r")
    plan = Plan("s", "smoke", {**stages, "r": report}, "r")
    place = data.Place(tmp_path, tmp_path / "results", tmp_path)
    found = data.curves(place, dict.fromkeys(data.series_of(plan), plan), data.LAST, "")
    assert found["metrics"] == ["loss", "eval_loss/id"]
    assert [(one["x"], one["y"]) for one in found["series"]] == [([1, 2], [2.0, 1.0])], "the loss is shown first"


def test_a_study_that_cannot_be_read_any_more_leaves_the_others_to_be_compared(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for study in ("quickstart", "edge"):
        for stage in lab.plan(study).stages.values():
            if not (lab.out(stage) / "stage.json").exists():
                artifact.write_json(lab.out(stage) / "stage.json", stage.as_json())
    place = data.Place(lab.configs, lab.results, tmp_path / "logs")
    assert {one["study"] for one in data.arm_names(place)} == {"quickstart", "edge"}
    (report,) = of_kind(lab.plan("edge"), "report")
    whole = report.as_json()
    other = lab.results / "report" / OF_OTHERS
    artifact.write_json(other / "stage.json", {**whole, "digest": OF_OTHERS, "spec": {**whole["spec"], "gone": 1}})
    assert {one["study"] for one in data.arm_names(place)} == {"quickstart"}


def test_of_a_curve_that_grows_the_last_reading_alone_is_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text("")
    tracemalloc.start()
    for step in range(1, 41):
        with file.open("a") as handle:
            handle.write("".join(f"{json.dumps({'step': step, **{str(n): n + 0.5 for n in range(100)}})}\n" for _ in range(5)))
        assert len(data.read_lines(tmp_path)) == 5 * step
    kept, _ = tracemalloc.get_traced_memory()
    again = core_metrics.read(tmp_path)
    assert kept < 3 * (tracemalloc.get_traced_memory()[0] - kept)
    tracemalloc.stop()
    assert len(again) == 200


def test_stages_of_one_label_are_named_by_the_seeds_that_they_are_made_for() -> None:
    """As the corpora of bases with tokenizers of their own; where seeds do not distinguish them, by what they go into."""

    def names(readers: dict[str, str]) -> list[str]:
        made = [Stage("corpus", Model(), {}, Run(), "stages.gold.corpus", digest) for digest in readers]
        made += [Stage("sft", Model(), {"corpus": digest}, Run(), label, f"from {digest}") for digest, label in readers.items()]
        made += [Stage("report", Model(), {digest: digest for digest in readers}, Run(), "report", "r")]
        return [*data.stage_names({stage.digest: stage for stage in made}).values()][: len(readers)]

    assert names({"a": "sft/gold@0"}) == ["stages.gold.corpus"]
    assert names({"a": "sft/gold@0", "b": "sft/gold@1"}) == ["stages.gold.corpus@0", "stages.gold.corpus@1"]
    assert names({"a": "one/gold@0", "b": "two/gold@0"}) == [
        "stages.gold.corpus of one/gold@0",
        "stages.gold.corpus of two/gold@0",
    ]


def test_of_a_studys_file_the_question_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/mine.yaml").write_text("defaults:\n- demo\nquestion: >\n  Does it\n\n  help?\nstages: {not closed\n")
    assert data.question(tmp_path, "mine") == "Does it\nhelp?\n"


@pytest.mark.parametrize("text", [b"defaults: [other, _self_]\n", b"question: \xff\n"])
def test_a_study_of_a_file_that_leads_nowhere_has_no_question(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/mine.yaml").write_bytes(text)
    (tmp_path / "study/other.yaml").write_text("defaults: [mine, _self_]\n")
    assert data.question(tmp_path, "mine") == ""


def test_a_study_without_a_question_has_that_of_the_study_which_it_extends_in_whichever_form_it_names_it() -> None:
    configs = Path(__file__).parents[2] / "configs"
    for study, extended in (("cog_drift/llama3b", "cog_drift/qwen4b"), ("interplay/context_bases", "interplay/contexts")):
        assert "question:" not in (configs / "study" / f"{study}.yaml").read_text()
        assert data.question(configs, study) == data.question(configs, extended) != ""
