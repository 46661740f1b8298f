"""Problem sets in a study: every form of them, what they depend on, and what their identity hangs on."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from sift_study import STUDY, enter, named, plan, refusal, write

from interplay.cli import main
from interplay.core.artifact import checksum
from interplay.data import problems
from interplay.data.steps.spec import CurateSpec
from interplay.evaluate.spec import SelectSpec
from interplay.study.expand import plan_study
from interplay.study.plan import Plan


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


MIXED = """
defaults: [/task@task: op_dag, _self_]
question: Which checkpoint is best on a mix of sets?
data:
  corpus: {band: id, split: train}
  held_out: {band: id, split: validation}
  edge: {band: edge, split: rl}
  mixed: {mix: {held_out: 1.0}}
  probe: {mix: {edge: 1.0}, size: 20}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: mixed, checkpoints: [20]}
  least: {kind: select, by: eval_loss/id, mode: min}
  best: {kind: select, by: strict_pass@1, mode: max, evaluate: ask, band: edge}
  ask: {kind: evaluate, data: probe}
  eval: {kind: evaluate, data: test}
arms: {least: {path: [base, least]}, best: {path: [base, best]}}
evaluate: [eval]
"""


def test_a_checkpoint_is_selected_by_a_band_of_a_set_that_is_made_of_others(root: Path) -> None:
    (root / "configs/study/mixed.yaml").write_text(MIXED)
    specs = [stage.spec for stage in plan_study(root / "configs", "mixed", "smoke").stages.values()]
    selected = [(spec.by, spec.band) for spec in specs if isinstance(spec, SelectSpec)]
    assert selected == [("eval_loss/id", None), ("strict_pass@1", "edge")]


# -- what a set depends on -----------------------------------------------------------------------------------------------


def test_a_filtered_set_waits_for_samples_of_its_sources_by_the_named_arm(root: Path) -> None:
    made = plan(root)
    sifted, base = named(made, "data.sifted"), named(made, "base/base@0")
    assert [step.name for step in sifted.spec.steps] == ["pass_rate", "deduplicate", "contamination"]  # type: ignore[attr-defined]
    roles = sorted(sifted.deps)
    assert roles == ["against.2.0", "data.0", "data.1", "samples.0.0.0", "samples.0.1.0"]
    for number in "01":
        probe = made.stages[sifted.deps[f"samples.0.{number}.0"]]
        assert probe.deps == {"model": base.digest, "data": sifted.deps[f"data.{number}"]}
        assert probe.spec.num_samples == 8  # type: ignore[attr-defined]
    assert sifted.deps["against.2.0"] == named(made, "data.test").digest
    models = [stage for stage in made.stages.values() if stage.kind == "rl"]
    assert len(models) == 2
    assert all(stage.deps["data.0"] == sifted.digest for stage in models)


def test_where_each_replicate_has_a_base_of_its_own_it_has_sets_of_that_bases_samples(root: Path) -> None:
    made = plan(root, ("vary: [rl]", "vary: [base, rl]"))
    for seed, name in enumerate(("data.sifted", "data.sifted@1")):
        own, base = named(made, name), named(made, f"base/base@{seed}")
        assert {made.stages[own.deps[f"samples.0.{number}.0"]].deps["model"] for number in "01"} == {base.digest}
        assert named(made, f"rl/rl@{seed}").deps["data.0"] == own.digest
    assert named(made, "data.sifted").digest == named(plan(root), "data.sifted").digest
    assert len([stage for stage in made.stages.values() if stage.label.startswith("data.edge")]) == 1


def test_what_a_model_writes_and_what_is_trained_on_it_is_of_each_replicate_where_the_model_is(root: Path) -> None:
    edits = (
        (
            "  sifted:\n    mix: {edge: 0.5, hard: 0.5}",
            "  said: {generate: write, arm: base, of: edge}\n  sifted:\n    mix: {said: 1.0}",
        ),
        ("      - {name: pass_rate, arm: base, evaluate: probe, low: 1, high: 6, of: 8}\n", ""),
        ("  probe: {kind: evaluate, data: edge, num_samples: 8}", "  write: {kind: generate, num_samples: 2}"),
    )
    made = plan(root, *edits, ("vary: [rl]", "vary: [base, rl]"))
    for seed, mark in enumerate(("", "@1")):
        said, sifted = named(made, f"data.said{mark}"), named(made, f"data.sifted{mark}")
        assert said.deps == {"model": named(made, f"base/base@{seed}").digest, "data.0": named(made, "data.edge").digest}
        assert sifted.deps["data.0"] == said.digest
        assert named(made, f"rl/rl@{seed}").deps["data.0"] == sifted.digest
    once = plan(root, *edits)
    assert [stage.label for stage in once.stages.values() if stage.kind in ("generate", "curate")] == ["data.said", "data.sifted"]


REJECTION = (
    "{name: pass_rate, arm: base, evaluate: probe, low: 1, high: 6, of: 8}",
    "{name: rejection_sampling, arm: base, evaluate: probe}",
)


def test_rejection_sampling_waits_for_samples_of_its_sources_and_is_no_way_around_the_split(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(root, REJECTION)
    assert {"samples.0.0.0", "samples.0.1.0"} <= set(named(made, "data.sifted").deps)
    said = refusal(
        root, capsys, REJECTION, ("mix: {edge: 0.5, hard: 0.5}", "mix: {test: 1.0}"), ("against: [test]", "against: [edge]")
    )
    assert "data.test, of which data.sifted is made, is of split test" in said
    said = refusal(
        root,
        capsys,
        REJECTION,
        ("  base: {path: [base]}\n", "  base: {path: [base, rl]}\n"),
        ("  rl: {path: [base, rl], control: base}", "  other: {path: [base]}"),
    )
    assert "that arm is itself trained on this set" in said


def test_samples_come_in_blocks_of_32_each_a_role(root: Path) -> None:
    rule = ("low: 1, high: 6, of: 8", "rule: cog_drift")
    made = plan(root, rule, ("num_samples: 8", "num_samples: 70"))
    sifted = named(made, "data.sifted")
    blocks = [made.stages[sifted.deps[f"samples.0.0.{block}"]].spec for block in range(3)]
    assert [(spec.first_sample, spec.num_samples) for spec in blocks] == [(0, 32), (32, 32), (64, 6)]  # type: ignore[attr-defined]


def test_a_set_under_two_names_is_one_source_whose_shares_add_up(root: Path) -> None:
    twice = ("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.25, hard: 0.5, again: 0.25}")
    made = plan(root, twice, ("  hard: {", "  again: {band: edge, split: rl}\n  hard: {"))
    assert named(made, "data.sifted").digest == named(plan(root), "data.sifted").digest


def test_a_sets_identity_hangs_on_no_name_and_no_order_of_what_it_compares_with(root: Path) -> None:
    before = named(plan(root), "data.sifted").digest
    names = ("sifted", "edge", "hard", "probe", "held_out")
    text = STUDY
    for name in names:
        text = text.replace(f"{name}:", f"{name}_:").replace(f" {name},", f" {name}_,").replace(f": {name}}}", f": {name}_}}")
    text = text.replace("band: edge_", "band: edge").replace("band: hard_", "band: hard").replace("mix: {edge:", "mix: {edge_:")
    (root / "configs/study/sift.yaml").write_text(text)
    renamed = plan_study(root / "configs", "sift", "smoke")
    assert named(renamed, "data.sifted_").digest == before
    one, other = (
        named(plan(root, ("against: [test]", f"against: [{order}]")), "data.sifted").digest
        for order in ("test, held_out", "held_out, test, test")
    )
    assert one == other != before


def test_every_step_and_source_is_part_of_the_identity(root: Path) -> None:
    edits = [
        ("how: structural", "how: exact"),
        ("high: 6", "high: 5"),
        ("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.4, hard: 0.6}"),
        ("arm: base", "arm: longer"),
        ("num_samples: 8", "num_samples: 9"),
        ("against: [test]", "against: [held_out]"),
        ("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, hard: 0.5}\n    size: 50"),
    ]
    more = ("evaluate: [eval]", "  longer: {path: [base], set: {base.tokens: 50000}}\nevaluate: [eval]")
    digests = [named(plan(root, edit, more), "data.sifted").digest for edit in edits]
    assert len({*digests, named(plan(root, more), "data.sifted").digest}) == len(edits) + 1


# -- forms of sets -------------------------------------------------------------------------------------------------------


def test_a_file_is_known_by_its_content_and_lies_where_the_study_says(root: Path) -> None:
    (root / "items.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n')
    line = ("  hard: {band: hard, split: rl}", "  hard: {file: items.jsonl, format: jsonl, band: hard, defects: {broken: skip}}")
    stage = named(plan(root, line), "data.hard")
    assert stage.kind == "dataset"
    assert stage.run.path == "items.jsonl"
    assert stage.spec.sha256 == checksum(root / "items.jsonl")  # type: ignore[attr-defined]
    assert (stage.spec.band, stage.spec.defects.broken) == ("hard", "skip")  # type: ignore[attr-defined]
    (root / "moved.jsonl").write_bytes((root / "items.jsonl").read_bytes())
    moved = named(plan(root, (line[0], line[1].replace("items", "moved"))), "data.hard")
    assert moved.digest == stage.digest
    sha = ("  hard: {band: hard, split: rl}", f"  hard: {{sha256: {stage.spec.sha256}, format: jsonl, band: hard, "  # type: ignore[attr-defined]
           "defects: {broken: skip}}")  # fmt: skip
    assert named(plan(root, sha), "data.hard").digest == stage.digest


def test_a_set_may_have_a_task_of_its_own(root: Path) -> None:
    made = plan(root, ("hard: {band: hard, split: rl}", "hard: {band: hard, split: rl, task: {operators: '+'}}"))
    tasks = {name: named(made, f"data.{name}").spec.task for name in ("edge", "hard")}  # type: ignore[attr-defined]
    assert tasks["edge"].operators == "+-"
    assert tasks["hard"].model_copy(update={"operators": "+-"}) == tasks["edge"]


def test_an_evaluation_set_of_a_known_alphabet_changes_no_tokenizer_and_one_with_new_characters_does(root: Path) -> None:
    def tokenizer(*edits: tuple[str, str]) -> str:
        return next(stage.digest for stage in plan(root, *edits).stages.values() if stage.kind == "tokenizer")

    def more(task: str) -> tuple[str, str]:
        return ("  test: {", f"  more: {{band: id, split: test, task: {task}}}\n  test: {{")

    assert tokenizer(more("{operators: '+'}")) == tokenizer()
    assert tokenizer(more("{letters: 5}")) == tokenizer()
    assert tokenizer(more("{letters: 30}")) != tokenizer()


@pytest.mark.parametrize(
    ("scale", "operations", "size", "seeds"), [("smoke", [4], 7, [3]), ("laptop", None, None, None)]
)  # fmt: skip
def test_a_study_changes_a_scale_where_it_says_and_nowhere_else(
    root: Path, scale: str, operations: Any, size: Any, seeds: Any
) -> None:
    change = {
        "bands": {"hard": [4]}, "sizes": {"rl": 7}, "seeds": [3], "kinds": {"rl": {"steps": 2}},
        "tasks": {"op_dag": {"copies": 0.0}}, "data": {"edge": {"op_shares": {3: 1.0}, "size": 9}},
    }  # fmt: skip
    text = (
        STUDY.replace("seeds: {values: [0, 1], vary: [rl]}\n", "")
        + "scales:\n  smoke: "
        + yaml.safe_dump(change).replace("\n", "\n    ").join(("\n    ", "\n"))
    )
    (root / "configs/study/sift.yaml").write_text(text)
    made, plain = (
        plan_study(root / "configs", "sift", scale),
        plan(root, ("seeds: {values: [0, 1], vary: [rl]}\n", ""), scale=scale),
    )
    if scale == "laptop":
        assert named(made, "data.sifted").digest == named(plain, "data.sifted").digest
        return
    hard, edge = named(made, "data.hard").spec, named(made, "data.edge").spec
    assert list(hard.bands["hard"]) == operations  # type: ignore[attr-defined]
    assert (hard.size, edge.size) == (size, 9)  # type: ignore[attr-defined]
    assert (hard.task.copies, hard.task.letters) == (0.0, 6)  # type: ignore[attr-defined]
    rl = next(stage for stage in made.stages.values() if stage.kind == "rl")
    assert (rl.spec.steps, rl.spec.prompts_per_step) == (2, 8)  # type: ignore[attr-defined]
    assert seeds == [3]
    assert named(made, "data.corpus").spec.size == named(plain, "data.corpus").spec.size  # type: ignore[attr-defined]


def at_smoke(root: Path, change: dict[str, Any]) -> Plan:
    """The plan of the study with what it changes at scale smoke."""
    text = STUDY + "scales:\n  smoke: " + yaml.safe_dump(change).replace("\n", "\n    ").join(("\n    ", "\n"))
    (root / "configs/study/sift.yaml").write_text(text)
    return plan_study(root / "configs", "sift", "smoke")


def test_a_scale_may_put_another_task_and_tokenizer_in_place_of_the_studys(root: Path) -> None:
    bands = {"id": [2], "edge": [3], "hard": [4]}
    other = {"name": "op_dag_prose", "themes": {"zoo": 1.0}}
    bpe = {"algorithm": "bpe", "vocab_size": 300}
    made = at_smoke(root, {"task": other, "tokenizer": bpe, "bands": bands})
    sets = [stage.spec for stage in made.stages.values() if stage.kind == "problems"]
    assert {(spec.task.name, tuple(spec.task.themes)) for spec in sets} == {("op_dag_prose", ("zoo",))}  # type: ignore[attr-defined]
    tokenizer = next(stage for stage in made.stages.values() if stage.kind == "tokenizer")
    assert (tokenizer.spec.algorithm, tokenizer.spec.vocab_size) == ("bpe", 300)  # type: ignore[attr-defined]
    assert list(tokenizer.deps.values()) == [named(made, "data.corpus").digest]
    assert {s.digest for s in plan_study(root / "configs", "sift", "laptop").stages.values() if s.kind != "report"} == {
        s.digest for s in plan(root, scale="laptop").stages.values() if s.kind != "report"
    }


def test_a_scale_may_add_sets_and_change_what_stages_take(root: Path) -> None:
    change = {
        "data": {"more": {"band": "hard", "split": "train"}},
        "stages": {"base": {"data": {"corpus": 0.25, "more": 0.75}}, "probe": {"temperature": 0.5}},
        "tokenizer": {"algorithm": "bpe", "data": ["more"]},
    }
    made = at_smoke(root, change)
    more = named(made, "data.more").digest
    base = next(stage for stage in made.stages.values() if stage.kind == "pretrain")
    corpus = made.stages[base.deps["corpus"]]
    shares = dict(zip([corpus.deps["data.0"], corpus.deps["data.1"]], corpus.spec.mix, strict=True))  # type: ignore[attr-defined]
    assert shares == {named(made, "data.corpus").digest: 0.25, more: 0.75}
    assert "validation" in base.deps  # which the stage has, and the scale leaves alone
    tokenizer = next(stage for stage in made.stages.values() if stage.kind == "tokenizer")
    assert tokenizer.deps == {"data.0": more}
    elsewhere = plan_study(root / "configs", "sift", "laptop")
    assert "data.more" not in {stage.label for stage in elsewhere.stages.values()}


def test_a_scale_may_count_problems_by_op(root: Path) -> None:
    bands = {"id": [1, 2, 3], "edge": [4]}
    made = at_smoke(root, {"per_op": {"test": 20, "rl": 7}, "bands": bands, "data": {"hard": {"size": 5}}})
    test, edge, hard = (named(made, f"data.{name}").spec for name in ("test", "edge", "hard"))
    assert (test.size, test.shares) == (80, {"id": 0.75, "edge": 0.25})  # type: ignore[attr-defined]
    assert (edge.size, hard.size) == (7, 5)  # type: ignore[attr-defined]
    places = problems.plan_places(test)  # type: ignore[arg-type]
    assert {op: sum(place.op == op for place in places) for op in range(1, 5)} == dict.fromkeys(range(1, 5), 20)


# -- tests are not trained on --------------------------------------------------------------------------------------------


def test_one_key_of_the_study_checks_all_that_is_trained_on_against_the_evaluations(root: Path) -> None:
    made = plan(root, ("stages:\n", "decontaminate: {how: [exact, structural], action: drop}\nstages:\n"))
    test = named(made, "data.test").digest
    trained = [dep for stage in made.stages.values() if stage.kind in ("corpus", "rl")
               for role, dep in stage.deps.items() if role.startswith("data.")]  # fmt: skip
    for digest in trained:
        stage = made.stages[digest]
        assert isinstance(stage.spec, CurateSpec)
        assert [(step.name, step.how, step.action) for step in stage.spec.steps] == [  # type: ignore[union-attr]
            ("contamination", ["exact", "structural"], "drop")
        ]
        assert stage.deps["against.0.0"] == test
    assert {made.stages[made.stages[digest].deps["data.0"]].label for digest in trained} == {"data.corpus", "data.sifted"}


def test_a_declared_leak_is_planned(root: Path) -> None:
    leak = ("test: {bands: [id, edge], split: test}", "test: {bands: [id, edge], split: test, leak: true}")
    made = plan(root, leak, ("{sifted: 1.0}", "{sifted: 0.5, test: 0.5}"))
    rl = next(stage for stage in made.stages.values() if stage.kind == "rl")
    assert named(made, "data.test").digest in rl.deps.values()


# -- a study without a task ----------------------------------------------------------------------------------------------

SUM = checksum(ROOT / "data/fixtures/gsm8k.jsonl")
FILES = f"""
question: Does a model from outside answer questions from a file?
data:
  test: {{file: data/fixtures/gsm8k.jsonl, sha256: {SUM}, format: gsm8k, band: id}}
stages:
  base: {{kind: source, sha256: {"ab" * 32}}}
  eval: {{kind: evaluate, data: test}}
arms:
  base: {{path: [base]}}
evaluate: [eval]
tables:
  main: {{columns: [id], cells: [answer_pass@1]}}
"""


def test_a_model_and_problems_from_outside_need_no_task(root: Path) -> None:
    write(root, text=FILES)
    made = plan_study(root / "configs", "sift", "smoke")
    assert sorted(stage.kind for stage in made.stages.values()) == ["dataset", "evaluate", "report", "source"]


@pytest.mark.parametrize(
    ("edit", "dtype"),
    [
        (("data: test}", "data: test}"), "float32"),
        (("data: test}", "data: test, dtype: int8}"), "int8"),
        (("tables:", "scales: {laptop: {kinds: {evaluate: {dtype: int8}}}}\ntables:"), "int8"),
    ],
)
def test_a_model_from_outside_is_rounded_to_8_bits_where_the_study_asks_for_it_alone(
    root: Path, edit: tuple[str, str], dtype: str
) -> None:
    write(root, edit, text=FILES)
    stages = plan_study(root / "configs", "sift", "laptop").stages.values()
    assert [stage.as_json()["spec"]["dtype"] for stage in stages if stage.kind == "evaluate"] == [dtype]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((f"base: {{kind: source, sha256: {'ab' * 32}}}", "base: {kind: pretrain, data: {test: 1.0}}"), "task is missing"),
        (
            ("  test: {file", "  more: {band: id, split: rl}\n  test: {mix: {more: 1.0}}\n  old: {file"),
            "data.more: task is missing",
        ),
    ],
)
def test_fresh_models_and_generated_sets_need_one(
    root: Path, capsys: pytest.CaptureFixture[str], edit: tuple[str, str], said: str
) -> None:
    write(root, edit, text=FILES)
    assert main(["plan", "sift", "--scale", "smoke"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "sift.yaml" in line
    assert said in line
