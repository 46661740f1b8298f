"""`interplay judge FILE...`: results of other tools, and the numbers of SciPy and statsmodels."""

import csv
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command_line import interplay
from conftest import ROOT
from pyarrow import parquet
from scipy import stats

from interplay.api import foreign
from interplay.core.model import UserError

FILES = Path(__file__).parent / "foreign"
"""small.eval, large.eval: logs that inspect_ai 0.3.285 wrote of two models on six problems, two epochs each. statsmodels.json: the numbers
of statsmodels 0.15 for `case`: OLS on a constant with clustered covariance (or SciPy's t test), and Holm's p-values."""
CASES = json.loads((FILES / "statsmodels.json").read_text())


def case(found: dict) -> list[foreign.Row]:
    draw, n, groups, k = np.random.default_rng(found["seed"]), found["items"], found["clusters"], len(found["systems"])
    base = draw.random(n).round(3)
    group = (np.arange(n) * 7919 % max(groups, 1)).tolist()
    scores = {"base": base}
    for j in range(k):
        shift = draw.normal(0.01 * (j + 1), 0.2, n)
        shift = shift + (draw.normal(0, 0.05, max(groups, 1))[group] if groups else 0)
        scores[f"s{j}"] = np.clip(base + shift, 0, 1).round(3)
    return [
        foreign.Row(name, "", "", str(i), f"g{group[i]}" if groups else "", float(of[i]))
        for name, of in scores.items()
        for i in range(n)
    ]


@pytest.mark.parametrize("found", CASES, ids=lambda found: str(found["seed"]))
def test_the_numbers_are_those_of_scipy_and_statsmodels(found: dict) -> None:
    made = foreign.compare_systems(case(found))
    assert len(CASES) == 20
    for one, known in zip(made, found["systems"], strict=True):
        numbers = (one.spread.mean, one.low, one.high, one.p, one.adjusted)
        assert numbers == pytest.approx([known[key] for key in ("mean", "low", "high", "p", "adjusted")], abs=1e-6)


def test_the_verdict_follows_the_adjusted_p_value_and_the_detectable_effect_the_items() -> None:
    made = foreign.compare_systems(case(CASES[4]))
    rows = {(row.system, row.item): row.score for row in case(CASES[4])}
    for one in made:
        gaps = [rows[one.system, str(i)] - rows["base", str(i)] for i in range(CASES[4]["items"])]
        assert one.p == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)
        assert one.verdict.startswith("better" if one.spread.mean > 0 else "worse") == (one.adjusted < 0.05)
        assert one.needed is not None
        assert (one.needed <= one.items) == (one.spread.detectable <= abs(one.spread.mean))


def test_inspect_logs_are_read_as_they_are_written_today() -> None:
    rows = foreign.read_files([FILES / "small.eval", FILES / "large.eval"])
    (one,) = foreign.compare_systems(rows)
    assert (one.system, one.against, one.items, one.runs) == ("mockllm/large", "mockllm/small", 6, 1)
    assert (one.score, one.baseline) == (pytest.approx(5 / 6), pytest.approx(3 / 6))


def lm_eval(root: Path, model: str, right: list[int], n: int = 40) -> Path:
    path = root / model / "samples_gsm8k_2026-11-26T04-00-00.000001.jsonl"
    path.parent.mkdir(parents=True)
    lines = []
    for name in ("strict-match", "flexible-extract"):
        for i in range(n):
            scored = float(i in right or (name == "flexible-extract" and i % 2 == 0))
            row = {"doc_id": i, "doc": {"question": f"q{i}"}, "target": "1", "arguments": {"gen_args_0": {"arg_0": f"q{i}"}}}
            row |= {"resps": [["1"]], "filtered_resps": ["1"], "filter": name, "metrics": ["exact_match"], "exact_match": scored}
            lines.append(json.dumps({**row, "doc_hash": "d", "prompt_hash": "p", "target_hash": "t"}))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_samples_of_lm_eval_are_judged_by_filter(tmp_path: Path) -> None:
    paths = [lm_eval(tmp_path, "org__small", list(range(10))), lm_eval(tmp_path, "org__large", list(range(30)))]
    (one,) = foreign.compare_systems(foreign.read_files(paths))
    assert (one.system, one.score, one.baseline, one.verdict) == ("org__large", 0.75, 0.25, "better here")
    (other,) = foreign.compare_systems(foreign.read_files(paths, "exact_match,flexible-extract"))
    assert (other.score, other.baseline) == (0.875, 0.625)


def test_rollouts_of_verifiers_are_averaged_over_an_example(tmp_path: Path) -> None:
    paths = []
    for model, right in (("small", 1), ("large", 3)):
        path = tmp_path / model / "results.jsonl"
        path.parent.mkdir()
        (path.parent / "metadata.json").write_text(json.dumps({"env_id": "gsm8k", "model": f"org/{model}"}))
        rows = [
            {
                "example_id": i,
                "prompt": [{"role": "user", "content": "q"}],
                "completion": [],
                "task": "default",
                "reward": float(n < right),
            }
            for i in range(20)
            for n in range(4)
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        paths.append(path)
    (one,) = foreign.compare_systems(foreign.read_files(paths))
    assert (one.system, one.score, one.baseline, one.items) == ("org/large", 0.75, 0.25, 20)


def table(path: Path, rows: list[dict]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_any_table_with_item_system_and_score_will_do(tmp_path: Path, ending: str) -> None:
    rows = [
        {"question_id": i, "model": model, "correct": int(i % 3 < right)}
        for model, right in (("a", 1), ("b", 2))
        for i in range(60)
    ]
    (one,) = foreign.compare_systems(foreign.read_files([table(tmp_path / f"scores{ending}", rows)]))
    assert (one.system, one.against, one.score, one.items) == ("b", "a", pytest.approx(2 / 3), 60)


def test_runs_are_replicates_and_items_of_one_system_alone_are_left_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        {"item": i, "system": name, "seed": seed, "score": float(draw.random() < rate)}
        for name, rate in (("a", 0.4), ("b", 0.6))
        for seed in range(4)
        for i in range(80 + (name == "b"))
    ]
    (one,) = foreign.compare_systems(foreign.read_files([table(tmp_path / "runs.csv", rows)]))
    assert (one.runs, one.items, one.unpaired, one.verdict) == (4, 80, 1, "better")
    assert list(foreign.lines_of([one], True))[-1] == "95 % intervals, paired by item, for any run and any item"


def test_systems_with_other_numbers_of_runs_are_refused_and_no_run_is_dropped(tmp_path: Path) -> None:
    rows = [{"item": i, "system": "a", "seed": seed, "score": seed} for seed in (0, 1) for i in range(9)]
    rows += [{"item": i, "system": "b", "seed": 0, "score": 1} for i in range(9)]
    with pytest.raises(UserError, match=r"b has 1 run and a has 2; runs are compared in pairs: give as many of each"):
        foreign.compare_systems(foreign.read_files([table(tmp_path / "runs.csv", rows)]))


def test_runs_are_paired_by_their_names_in_whichever_order_they_come(tmp_path: Path) -> None:
    def compared(seeds: list[int]) -> foreign.Compared:
        rows = [{"item": i, "system": "a", "seed": seed, "score": (i + seed) % 4 / 4} for seed in range(4) for i in range(9)]
        rows += [{"item": i, "system": "b", "seed": seed, "score": (i + seed) % 4 / 4 + 0.1} for seed in seeds for i in range(9)]
        return foreign.compare_systems(foreign.read_files([table(tmp_path / "runs.csv", rows)]))[0]

    assert compared([2, 0, 3, 1]) == compared([0, 1, 2, 3])
    assert compared([2, 0, 3, 1]).spread.between == pytest.approx(0)


def test_items_that_one_of_several_runs_lacks_are_counted_as_left_out(tmp_path: Path) -> None:
    rows = [
        {"item": i, "system": name, "seed": seed, "score": i % 2}
        for name in ("a", "b")
        for seed in (0, 1)
        for i in range(9 - seed)
    ]
    (one,) = foreign.compare_systems(foreign.read_files([table(tmp_path / "runs.csv", rows)]))
    assert (one.items, one.unpaired) == (8, 1)


def test_files_in_the_folder_of_the_command_have_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = lm_eval(tmp_path, "small", [0]), lm_eval(tmp_path, "large", [0, 1])
    monkeypatch.chdir(here.parent)
    (one,) = foreign.compare_systems(foreign.read_files([Path(here.name), Path("../large", there.name)]))
    assert (one.system, one.against) == ("large", "small")


def test_a_tie_is_shown_within_a_margin(tmp_path: Path) -> None:
    rows = [{"item": i, "system": name, "score": (i % 100) / 100} for name in ("a", "b") for i in range(400)]
    rows[-1]["score"] = 0.5
    read = foreign.read_files([table(tmp_path / "tie.csv", rows)])
    assert foreign.compare_systems(read)[0].verdict == "no information"
    assert foreign.compare_systems(read, margin=0.01)[0].verdict == "equivalent here"


def test_equal_differences_of_scores_without_bounds_show_nothing() -> None:
    rows = [foreign.Row(system, "", "", str(i), "", of + i) for system, of in (("a", 10.0), ("b", 12.0)) for i in range(20)]
    (one,) = foreign.compare_systems(rows)
    assert (np.isnan(one.low), one.p, one.verdict) == (True, 1.0, "no information")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "item,points\n1,2\n", "no column score"),
        ("a.csv", "item,score\n1,\n", "row 1: score = '' is no number"),
        ("a.csv", "item,score\n1,nan\n", "not finite"),
        ("a.csv", "item,score\n", "has no rows"),
        ("a.csv", "item,score\n1,1\n2,0\n", "one system alone, a (1 run): nothing to compare"),
        ("a.jsonl", "[1]\n", "each line must be a JSON object"),
        ("a.jsonl", "{\n", "not readable as scores"),
        ("a.eval", "no zip", "not readable as scores"),
        ("a.parquet", "no parquet", "not readable as scores"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    code, out, error = interplay(capsys, "judge", tmp_path / name)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


def test_a_log_of_inspect_without_samples_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cut.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": {"model": "m", "task": "t"}}))
        archive.writestr("summaries.json", "[]")
    with pytest.raises(UserError, match=r"cut\.eval: not readable as scores \(has no samples\)"):
        foreign.judge_files([tmp_path / "cut.eval"], None, None, None, None, False)


def test_systems_without_common_items_and_unknown_names_are_refused(tmp_path: Path) -> None:
    rows = [{"item": f"{name}{i}", "system": name, "score": 1} for name in ("a", "b") for i in range(3)]
    read = foreign.read_files([table(tmp_path / "a.csv", rows)])
    with pytest.raises(UserError, match="b and a have 0 items in common"):
        foreign.compare_systems(read)
    with pytest.raises(UserError, match="--against c: no such system"):
        foreign.compare_systems(read, "c")
    with pytest.raises(UserError, match="judge reads"):
        foreign.read_files([tmp_path / "a.txt"])


def test_no_torch_and_no_pandas_are_imported(tmp_path: Path) -> None:
    rows = [{"item": i, "system": name, "score": i % 2} for name in ("a", "b") for i in range(10)]
    code = (
        "import sys; from pathlib import Path; from interplay.api import foreign;"
        f"foreign.judge_files([Path({str(table(tmp_path / 'a.csv', rows))!r})], None, None, None, None, False);"
        "print(sorted({'torch', 'transformers', 'pandas', 'mlflow', 'hydra', 'snakemake'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout == "[]\n"
