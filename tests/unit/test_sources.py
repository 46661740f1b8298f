"""Source drift: what counts as another source, and which files a kind's result comes from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interplay.core.artifact import read_json, write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.spec import TokenizerSpec
from interplay.kinds import sources
from interplay.kinds.table import KINDS
from interplay.results import state
from interplay.run.stage import run_stage
from interplay.study.plan import Stage
from interplay.tasks.op_dag.spec import OpDag

CODE = '''"""What it does."""
import math
from house.inner import deep as renamed

CONSTANT = 1  # a comment


def f(x: int = 2) -> int:
    """Says so."""
    return x + CONSTANT


class C:
    """Holds things."""

    a: int = 1
    """What a is."""
'''


def house(folder: Path, code: str = CODE) -> Path:
    """A package `house` with a module, one that it imports from a package within, and one that nobody imports."""
    package = folder / "house"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py"):
        (package / name).write_text("")
    (package / "top.py").write_text(code)
    (package / "inner" / "deep.py").write_text("def late():\n    import house.lazy\n")
    (package / "lazy.py").write_text("from house.top import f, C\n")
    (package / "alone.py").write_text("import house.top\n")
    return package


def digest_of(folder: Path, code: str) -> str:
    folder.mkdir(parents=True)
    (folder / "f.py").write_text(code)
    return sources.read(folder / "f.py").digest


@pytest.mark.parametrize(
    "edited",
    [
        f"# a comment\n{CODE}",
        CODE.replace("What it does.", "Something else."),
        CODE.replace('    """Says so."""\n', ""),
        CODE.replace("What a is.", "What it was."),
        CODE.replace("\n\n\n", "\n\n\n\n\n"),
        CODE.replace("x + CONSTANT", "(\n        x\n        + CONSTANT  # so\n    )"),
    ],
)
def test_comments_layout_and_docstrings_are_no_drift(tmp_path: Path, edited: str) -> None:
    assert edited != CODE
    assert digest_of(tmp_path / "a", CODE) == digest_of(tmp_path / "b", edited)


@pytest.mark.parametrize(
    "edited",
    [
        CODE.replace("CONSTANT = 1", "CONSTANT = 2"),
        CODE.replace("CONSTANT = 1", "CONSTANT = 1.0"),
        CODE.replace("CONSTANT = 1", "CONSTANT = '1'"),
        CODE.replace("x + CONSTANT", "x - CONSTANT"),
        CODE.replace("x: int = 2", "x: int = 3"),
        CODE.replace("x + CONSTANT", "CONSTANT + x"),
        CODE.replace("a: int = 1", "b: int = 1"),
        CODE.replace("    return x", "    if x:\n        pass\n    return x"),
    ],
)
def test_any_change_of_the_code_is_drift(tmp_path: Path, edited: str) -> None:
    assert edited != CODE
    assert digest_of(tmp_path / "a", CODE) != digest_of(tmp_path / "b", edited)


def test_a_file_that_does_not_parse_counts_by_its_bytes(tmp_path: Path) -> None:
    assert digest_of(tmp_path / "a", "def f(:") != digest_of(tmp_path / "b", "def g(:")
    assert sources.read(tmp_path / "a/f.py").imports == ()


def test_what_was_kept_of_a_file_counts_for_the_same_bytes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, place = house(tmp_path), tmp_path / "kept.json"
    monkeypatch.setattr(sources, "PACKAGE", package)
    monkeypatch.setattr(sources, "_place", lambda: place)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def fresh() -> dict[str, str]:
        """As another process finds them."""
        for cached in (sources.of_module, sources.read, sources._kept):
            cached.cache_clear()
        return sources.of_module("house.top", package)

    parsed: list[bytes] = []
    parse = sources._parsed
    monkeypatch.setattr(sources, "_parsed", lambda text: (parsed.append(text), parse(text))[1])
    try:
        first = fresh()
        assert parsed
        assert place.exists()
        parsed.clear()
        assert fresh() == first
        assert not parsed
        (package / "top.py").write_text(CODE.replace("CONSTANT = 1", "CONSTANT = 2"))
        assert {name for name, digest in fresh().items() if digest != first[name]} == {"top.py"}
        assert len(parsed) == 1
        place.write_text("damaged")
        assert fresh()["lazy.py"] == first["lazy.py"]
    finally:
        for cached in (sources.of_module, sources.read, sources._kept):
            cached.cache_clear()


def test_the_files_of_a_module_are_those_that_its_imports_reach_late_ones_included(tmp_path: Path) -> None:
    found = sources.of_module("house.top", house(tmp_path))
    assert list(found) == ["inner/__init__.py", "inner/deep.py", "lazy.py", "top.py"]


def test_a_folder_with_old_bytecode_does_not_hide_the_module_of_its_name(tmp_path: Path) -> None:
    package = house(tmp_path)
    (package / "lazy" / "__pycache__").mkdir(parents=True)
    assert "lazy.py" in sources.of_module("house.top", package)


def test_every_module_that_a_stage_really_imports_is_among_the_files_of_its_kind() -> None:
    code = (
        "import json, sys; from interplay.kinds.table import KINDS; before = set(sys.modules); found = {}\n"
        "import importlib\n"
        "importlib.import_module(KINDS[sys.argv[1]].function.partition(':')[0])\n"
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith('interplay') and n not in before]))"
    )
    for kind in ("source", "problems"):
        result = subprocess.run([sys.executable, "-c", code, kind], capture_output=True, text=True, check=True)
        imported = {Path(file).relative_to(sources.PACKAGE).as_posix() for file in json.loads(result.stdout)}
        assert imported - {"__init__.py"} <= set(sources.of_kind(kind))


def test_kinds_do_not_share_what_they_do_not_import() -> None:
    assert "rl/loop.py" in sources.of_kind("rl")
    assert "rl/loop.py" not in sources.of_kind("pretrain")
    assert not any(
        name.startswith(("study/", "track/", "cli/")) for kind in set(KINDS) - {"report"} for name in sources.of_kind(kind)
    )


def test_finished_stages_are_listed_by_the_file_that_reads_otherwise_and_never_without_a_note_of_their_sources(
    tmp_path: Path,
) -> None:
    now = sources.of_kind("tokenizer")
    made_by = {
        "same": now,
        "other": {**now, "data/tokenizer.py": "0" * 12},
        "before a file joined": {name: d for name, d in now.items() if name != "tasks/family.py"},
        "with a file that is gone": {**now, "data/gone.py": "0" * 12},
        "silent": None,
    }
    for name, noted in made_by.items():
        out = tmp_path / "tokenizer" / name
        out.mkdir(parents=True)
        (out / "telemetry.json").write_text(json.dumps({"sources": noted} if noted else {}))
    found = state.drifted_stages(tmp_path, [("tokenizer", name) for name in made_by])
    assert found == {
        "data/gone.py": ["with a file that is gone"],
        "data/tokenizer.py": ["other"],
        "tasks/family.py": ["before a file joined"],
    }
    assert state.drift_advisory({}) == []
    assert "3 finished stages" in state.drift_advisory(found)[0]


# -- the runner --------------------------------------------------------------------------------------------------------


def planned(folder: Path) -> tuple[Path, Stage]:
    """A tokenizer that is planned and not made."""
    stage = Stage.make("tokenizer", TokenizerSpec(task=OpDag(letters=10, distractors=(0, 3))), {}, Run(), "tokenizer")
    out = folder / "results/tokenizer" / stage.digest
    write_json(out / "stage.json", stage.as_json())
    return out, stage


def test_a_stage_notes_the_sources_that_it_starts_from(tmp_path: Path) -> None:
    out, _ = planned(tmp_path)
    run_stage(out)
    assert read_json(out / "telemetry.json")["sources"] == sources.of_kind("tokenizer")
    assert "sources" not in read_json(out / "record.json")


def test_a_stage_that_the_code_would_file_elsewhere_by_now_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, stage = planned(tmp_path)
    monkeypatch.setattr(OpDag, "VERSION", OpDag.VERSION + 1)
    with pytest.raises(UserError, match="planned with other sources"):
        run_stage(out)
    assert not (out / "record.json").exists()
    monkeypatch.undo()
    run_stage(out)
    assert read_json(out / "record.json")["digest"] == stage.digest
