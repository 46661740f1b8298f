"""A problem set in shards: what is planned, what a trainer reads, and who refuses it."""

from pathlib import Path

import numpy as np
import pytest
from conftest import copy_configs

from interplay.cli import main
from interplay.core.digest import corpus_inputs, corpus_roles, without_shard
from interplay.data import batches, corpus
from interplay.data.corpus import PackedRows
from interplay.data.spec import ProblemsSpec
from interplay.report.draw.diagram import study_graph
from interplay.report.stats import provenance
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

STUDY = """
defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_

question: Does a large corpus help?
data:
  corpus: {band: id, split: train, size: 400}
  more: {band: id, split: train, size: 400, seed: 7}
  held_out: {band: id, split: validation}
  edge: {band: edge, split: rl}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}
  rl: {kind: rl, data: {edge: 1.0}}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
evaluate: [eval]
tables:
  main: {columns: [id, edge], cells: [strict_pass@1]}
"""
WHOLE, FOUR = "size: 400}\n  more", "size: 400, shards: 4}\n  more"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_configs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(root: Path, *edits: tuple[str, str]) -> Plan:
    text = STUDY
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (root / "configs/study/large.yaml").write_text(text)
    return plan_study(root / "configs", "large", "smoke")


def of_kind(made: Plan, kind: str) -> list[Stage]:
    return [stage for stage in made.stages.values() if stage.kind == kind]


def sets(made: Plan, name: str = "data.corpus") -> list[Stage]:
    return [stage for stage in of_kind(made, "problems") if without_shard(stage.label) == name]


def refusal(root: Path, capsys: pytest.CaptureFixture[str], *edits: tuple[str, str]) -> str:
    """The one line with which the study is refused."""
    with pytest.raises(Exception) as refused:  # noqa: PT011  the command's line is what counts
        plan(root, *edits)
    assert type(refused.value).__name__ == "UserError"
    assert main(["plan", "large", "--scale", "smoke"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_a_set_in_shards_is_so_many_sets_and_corpora_and_one_training_stage_that_reads_them_all(root: Path) -> None:
    made = plan(root, (WHOLE, FOUR))
    found = sets(made)
    assert [stage.label for stage in found] == [f"data.corpus.shard{shard}" for shard in range(4)]
    specs = [stage.spec for stage in found if isinstance(stage.spec, ProblemsSpec)]
    assert [spec.size for spec in specs] == [100] * 4
    assert len({spec.seed for spec in specs}) == 4
    assert {spec.split for spec in specs} == {"train"}
    packed = of_kind(made, "corpus")
    assert [stage.deps["data.0"] for stage in packed] == [stage.digest for stage in found]
    (base,) = of_kind(made, "pretrain")
    assert corpus_inputs(base.deps) == [stage.digest for stage in packed]
    assert "corpus" not in base.deps


def test_without_shards_the_roles_are_those_of_old(root: Path) -> None:
    (base,) = of_kind(plan(root), "pretrain")
    assert {"corpus", "tokenizer", "validation"} == base.deps.keys()
    assert corpus_inputs(base.deps) == [base.deps["corpus"]]


def test_a_set_that_grows_by_shards_keeps_those_that_it_has(root: Path) -> None:
    four = {stage.digest for stage in sets(plan(root, (WHOLE, FOUR)))}
    eight = {stage.digest for stage in sets(plan(root, (WHOLE, "size: 800, shards: 8}\n  more")))}
    assert four < eight


def test_sets_of_other_seeds_share_no_shard(root: Path) -> None:
    both = ("{corpus: 1.0}", "{corpus: 0.5, more: 0.5}")
    made = plan(root, (WHOLE, FOUR), ("seed: 7", "seed: 7, shards: 4"), both)
    assert len({stage.digest for stage in [*sets(made), *sets(made, "data.more")]}) == 8
    for stage in of_kind(made, "corpus"):
        labels = {made.stages[stage.deps[role]].label.partition("shard")[2] for role in ("data.0", "data.1")}
        assert len(labels) == 1  # shard i of the one with shard i of the other


def test_each_shard_is_checked_against_the_tests(root: Path) -> None:
    made = plan(root, (WHOLE, FOUR), ("stages:\n", "decontaminate: {}\nstages:\n"))
    clean = [stage for stage in of_kind(made, "curate") if without_shard(stage.label) == "data.corpus clean"]
    assert [stage.deps["data.0"] for stage in clean] == [stage.digest for stage in sets(made)]
    assert {stage.deps["data.0"] for stage in of_kind(made, "corpus")} == {stage.digest for stage in clean}


def test_bpe_learns_from_the_first_shard(root: Path) -> None:
    made = plan(root, (WHOLE, FOUR), ("stages:\n", "tokenizer: {algorithm: bpe, vocab_size: 300}\nstages:\n"))
    (tokenizer,) = of_kind(made, "tokenizer")
    assert sets(made)[0].digest in tokenizer.deps.values()
    assert len(tokenizer.deps) == 2  # and the other set of split train


def test_the_report_rests_on_every_shard_and_a_picture_shows_them_as_one_box(root: Path) -> None:
    made = plan(root, (WHOLE, FOUR))
    assert {stage.digest for stage in sets(made)} <= made.stages[made.report].deps.keys()
    nodes, edges = study_graph(made.stages_json(), {})
    assert [(node.label, node.times) for node in nodes.values() if node.kind == "corpus"] == [("base corpus", 4)]
    assert ("corpus", 4) in [(node.label, node.times) for node in nodes.values() if node.kind == "problems"]
    assert [edge.role for edge in edges].count("corpus") == 1
    (base,) = of_kind(made, "pretrain")
    assert [role for role, _ in provenance.input_references(base.deps)] == ["corpus (4 shards)", "tokenizer", "validation"]


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ([("split: rl}", "split: rl, size: 40, shards: 4}")], "stages.rl.data = 'edge': data.edge comes in 4 shards, which only"),
        ([("split: test}", "split: test, size: 40, shards: 4}")], "stages.eval.data = 'test': data.test comes in 4 shards"),
        ([("validation}", "validation, size: 40, shards: 4}")], "stages.base.validation = 'held_out': data.held_out comes in 4"),
        (
            [(WHOLE, FOUR), ("  test:", "  few: {mix: {corpus: 1.0}}\n  test:"), ("{corpus: 1.0}, val", "{few: 1.0}, val")],
            "data.few.mix = 'corpus': data.corpus comes in 4 shards",
        ),
        ([(WHOLE, FOUR), ("{corpus: 1.0}", "{corpus: 0.5, more: 0.5}")], "equally many shards; these have corpus 4, more 1"),
        ([(WHOLE, "size: 400, shards: 3}\n  more")], "data.corpus.shards = 3: its 400 problems do not divide"),
        ([(WHOLE, "size: 400, shards: 1}\n  more")], "shards must be at least 2; omit it"),
        (
            [(WHOLE, FOUR), ("  test:", "  few: {mix: {more: 1.0}, shards: 2}\n  test:")],
            "shards does not go with a set that is made of others",
        ),
    ],
)
def test_what_reads_a_set_whole_refuses_shards_in_one_line(
    root: Path, capsys: pytest.CaptureFixture[str], edits: list[tuple[str, str]], line: str
) -> None:
    said = refusal(root, capsys, *edits)
    assert line in said
    assert said.startswith("interplay: configs/study/large.yaml:")


# -- several corpora as one --------------------------------------------------------------------------------------------


def written(folder: Path, rows: int, start: int) -> Path:
    """A corpus whose row r holds the number start + r, all but its last r % 4 columns."""
    numbers = np.arange(start, start + rows, dtype=np.uint16)[:, None] + np.zeros(8, np.uint16)
    real = np.arange(8) < 8 - np.arange(start, start + rows)[:, None] % 4
    folder.mkdir()
    for name, array in (("tokens", numbers * real), ("segments", real.astype(np.uint16)), ("loss", real.astype(np.uint8))):
        np.save(folder / f"{name}.npy", array)
    return folder


def test_several_corpora_are_read_as_one(tmp_path: Path) -> None:
    parts = [written(tmp_path / "a", 5, 0), written(tmp_path / "b", 1, 5), written(tmp_path / "c", 4, 6)]
    joined, whole = corpus.load_rows(parts), corpus.load_rows([written(tmp_path / "all", 10, 0)])
    rows = np.array([9, 0, 5, 4, 6, 5])
    for name in PackedRows._fields:
        taken = getattr(joined, name)[rows]
        assert taken.dtype == getattr(whole, name).dtype
        assert taken.tolist() == getattr(whole, name)[rows].tolist()
    assert joined.tokens.shape == (10, 8)


def test_rows_are_counted_alike_however_many_are_counted_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = corpus.load_rows([written(tmp_path / "a", 5, 0), written(tmp_path / "b", 5, 5)])
    monkeypatch.setattr(batches, "CHUNK", 3)
    assert batches.tokens_per_row(joined).tolist() == [8 - row % 4 for row in range(10)]


def test_roles_of_corpora_keep_the_order_of_shards_beyond_ten() -> None:
    roles = {role: place for place, role in enumerate(corpus_roles(12))}
    assert corpus_inputs({role: roles[role] for role in sorted(roles)}) == list(range(12))
