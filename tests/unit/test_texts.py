"""Text of others: documents and chats from JSONL and Parquet, their licences, their place in a study, and what is trained on."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lab import Lab, of_kind

from interplay.core.artifact import checksum, write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import corpus, foreign, sets, tokenizer
from interplay.data.spec import CorpusSpec, DatasetSpec, TokenizerSpec
from interplay.tasks import transcripts
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.verdict import Row
from tools import texts

SAID = {"licence": "CC-BY-4.0", "origin": "written for this test"}
DOCUMENTS = [{"text": f"Document {n} has words about the number {n * 37}.\n" * (1 + n % 7)} for n in range(300)]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is two and three?"},
    {"role": "assistant", "content": "Five."},
    {"role": "user", "content": "And one more?"},
    {"role": "assistant", "content": "Six."},
    {"role": "user", "content": "Thanks."},
]


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
    return path


def read(path: Path, out: Path, **spec: Any) -> tuple[dict[str, Any], list[Row]]:
    metrics = foreign.read_dataset(DatasetSpec(sha256=checksum(path), **{**SAID, **spec}), {}, out, Run(path=str(path)))
    write_json(out / "stage.json", {"digest": "d" * 12})
    return metrics, sets.read_rows(out, 0)


@pytest.mark.parametrize("name", ["texts.jsonl", "texts.parquet"])
def test_documents_become_rows_in_splits_by_their_content(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, [{"body": row["text"], "id": n} for n, row in enumerate(DOCUMENTS)])
    parts = {
        split: read(path, tmp_path / split, format="text", fields={"text": "body"}, split=split)
        for split in ("train", "rl", "validation", "test")
    }
    found = [row.solution for _, rows in parts.values() for row in rows]
    assert sorted(found) == sorted(row["text"] for row in DOCUMENTS)
    assert len(parts["train"][1]) > 150
    assert all(row.prompt == row.answer == "" and row.op == 0 for _, rows in parts.values() for row in rows)
    train = parts["train"][0]
    assert train["licences"] == {
        "CC-BY-4.0": {"rows": train["size"], "characters": sum(len(r.solution) for r in parts["train"][1])}
    }


def test_licences_by_row_are_counted_and_none_may_lack(tmp_path: Path) -> None:
    rows = [{**row, "licence": ["MIT", "BSD-3-Clause"][n % 2]} for n, row in enumerate(DOCUMENTS)]
    metrics, _ = read(write(tmp_path / "a.jsonl", rows), tmp_path / "a", format="text", licence="by row")
    assert {name: count["rows"] for name, count in metrics["licences"].items()} == {"MIT": 150, "BSD-3-Clause": 150}
    del rows[7]["licence"]
    with pytest.raises(UserError, match="line 8: licence should be in 'licence', which is missing"):
        read(write(tmp_path / "b.jsonl", rows), tmp_path / "b", format="text", licence="by row")


@pytest.mark.parametrize(
    ("row", "said", "reason"),
    [
        (b'{"text": "caf\xe9 and more than enough words here"}\n', "line 2: not text in UTF-8", "broken"),
        (b'{"text": "caf\xef\xbf\xbd and more than enough words here"}\n', "line 2: text was not decoded: character 4", "broken"),
        ({"text": " ... 12 ... \n"}, "line 2: text has 2 letters and digits", "near_empty"),
        ({"text": " ".join(DOCUMENTS[0]["text"].split())}, "line 2 (id 'Document 0", "duplicate_id"),
        ({"content": "x"}, "line 2: text is missing (there are content)", "missing_field"),
        ({"text": "two parts \x1e of more than twenty letters"}, "line 2: a text has the character U+001E", "broken"),
    ],
)
def test_a_defective_document_is_named_by_line_and_skipped_where_that_is_declared(
    row: Any, said: str, reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "texts.jsonl", [DOCUMENTS[0], row, *DOCUMENTS[1:5]])
    with pytest.raises(UserError) as caught:
        read(path, tmp_path / "refused", format="text")
    assert said in str(caught.value)
    assert f"{{{reason}: skip}}" in str(caught.value)
    metrics, rows = read(path, tmp_path / "skipped", format="text", defects={reason: "skip"})
    assert (metrics["read"], metrics["skipped"], len(rows)) == (6, {reason: 1}, 5)


@pytest.mark.parametrize("key", ["licence", "origin"])
def test_text_without_licence_or_origin_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key}: missing"):
        DatasetSpec(format="text", sha256="0" * 64, **{**SAID, key: " "})


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A tokenizer that was trained on the documents."""
    read(write(tmp_path / "texts.jsonl", DOCUMENTS), tmp_path / "learnt", format="text")
    spec = TokenizerSpec(task=OpDag(), algorithm="bpe", vocab_size=300)
    tokenizer.build_tokenizer(spec, {"data.0": tmp_path / "learnt"}, tmp_path / "tokenizer", Run())
    return tmp_path / "tokenizer"


def test_documents_are_cut_and_their_pieces_give_all_of_their_tokens(encoder: Path, tmp_path: Path) -> None:
    whole = corpus.encode_problems(tmp_path / "learnt", encoder)
    pieces, rows = corpus.encode_pieces(tmp_path / "learnt", encoder, 32)
    assert whole.lengths.max() > 64
    assert pieces.lengths.max() == 32
    assert not pieces.prompts.any()
    assert np.array_equal(np.bincount(rows, pieces.lengths), whole.lengths)
    assert np.array_equal(pieces.tokens, whole.tokens)
    spec = CorpusSpec(mix=[1.0], sequence_length=32)
    metrics = corpus.build_corpus(spec, {"tokenizer": encoder, "data.0": tmp_path / "learnt"}, tmp_path / "corpus", Run())
    assert metrics["tokens"] == len(whole.tokens)
    assert metrics["loss_tokens"] == len(whole.tokens) - len(pieces.lengths)  # all but the first of each piece


def test_a_chat_is_learnt_where_the_assistant_speaks(encoder: Path, tmp_path: Path) -> None:
    _, [row] = read(write(tmp_path / "chats.jsonl", [{"messages": CHAT}]), tmp_path / "chats", format="chats")
    assert row.prompt == "system: Be brief.\nuser: What is two and three?\nassistant: "
    assert transcripts.policy_turns(row.solution) == ["Five.", "Six."]
    spec = CorpusSpec(mix=[1.0], sequence_length=256)
    corpus.build_corpus(spec, {"tokenizer": encoder, "data.0": tmp_path / "chats"}, tmp_path / "corpus", Run())
    rows, text = corpus.load_rows([tmp_path / "corpus"]), tokenizer.load(encoder)
    learnt = [text.decode(np.asarray(rows.tokens[0])[(rows.segments[0] == n) & (rows.loss[0] == 1)].tolist()) for n in (1, 2)]
    assert sorted(learnt) == ["Five.", "Six."]


def test_an_altering_template_is_refused() -> None:
    said = [(message["role"], message["content"]) for message in CHAT[:5]]
    with pytest.raises(ValueError, match="message 5: the template alters"):
        transcripts.chat_pieces(said, lambda before: f"{len(before)} messages ")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    write(Path("data/docs.jsonl"), DOCUMENTS)
    edit = "  test: {bands: [id, edge, beyond, hard], split: test}"
    docs = "file: data/docs.jsonl, format: text, licence: CC-BY-4.0, origin: a test"
    made.edit("study/quickstart.yaml", edit, f"{edit}\n  docs: {{{docs}, split: train}}\n  held: {{{docs}, split: validation}}")
    return made


def test_a_study_trains_on_text_beside_problems_and_is_judged_on_held_out_text(lab: Lab) -> None:
    lab.edit(
        "study/quickstart.yaml", "data: {corpus: 1.0}, validation: held_out}", "data: {corpus: 0.5, docs: 0.5}, validation: held}"
    )
    lab.edit(
        "study/quickstart.yaml", "\nstages:", "\ntokenizer: {algorithm: bpe, vocab_size: 400, data: [corpus, docs]}\n\nstages:"
    )
    plan = lab.plan()
    assert {stage.spec.split for stage in of_kind(plan, "dataset")} == {"train", "validation"}
    [packed] = of_kind(plan, "corpus")
    assert packed.spec.mix == [0.5, 0.5]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (
            "eval: {kind: evaluate, data: test}",
            "eval: {kind: evaluate, data: test}\n  own: {kind: evaluate, data: docs}",
            "stages.own.data",
        ),
        ("data: {edge: 1.0}", "data: {docs: 1.0}", "stages.rl.data"),
    ],
)
def test_what_asks_is_refused_of_text(lab: Lab, old: str, new: str, key: str) -> None:
    lab.edit("study/quickstart.yaml", old, new)
    lab.edit("study/quickstart.yaml", "evaluate: [eval] ", "evaluate: [own, eval] " if "own" in new else "evaluate: [eval] ")
    with pytest.raises(UserError, match=f"{key} = .*ask nothing") as caught:
        lab.plan()
    assert "name a set of problems" in str(caught.value)


def test_the_file_of_installed_packages_is_read_without_a_defect_and_names_each_licence(tmp_path: Path) -> None:
    found = list(itertools.islice(texts.rows(Counter()), 40))
    assert all(row["licence"] and row["package"].count("==") == 1 for row in found)
    path = write(tmp_path / "packages.jsonl", found)
    metrics, rows = read(path, tmp_path / "out", format="text", licence="by row")
    assert (metrics["read"], metrics["kept"], metrics["skipped"]) == (40, 40, {})
    assert {sets.problem_of(row).licence for row in rows} == {row["licence"] for row in found}
