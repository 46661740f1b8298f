"""What the command line is given and cannot take is refused in one line with exit code 2, before anything is done."""

from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay.cli import main, studies
from interplay.core import artifact


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(list(words))
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("number", ["nan", "-1", "inf", "1e400", "x", ""])
@pytest.mark.parametrize(
    "words", [("gc", "--older-than"), ("plan", "quickstart", "--max-hours"), ("plan", "quickstart", "--max-gpu-hours")]
)
def test_an_amount_is_a_number_that_is_not_negative(
    words: tuple[str, ...], number: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, *words, number).startswith(f"interplay: {words[0]}: {words[-1]} {number!r}: Input should be ")


@pytest.mark.parametrize("number", ["0", "-3", "1.5", "two", "1" + "0" * 5000])
@pytest.mark.parametrize(
    "words",
    [
        ("rollouts", "abc", "-n"),
        ("rows", "abc", "-n"),
        ("compare", "a", "b", "-n"),
        ("debug", "abc", "--steps"),
        ("audit", "op_dag", "--rows"),
    ],
)
def test_a_count_is_a_whole_number_from_one_on(
    words: tuple[str, ...], number: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, *words, number)
    assert said.startswith(f"interplay: {words[0]}: {words[-1]} '{number[:70]}")
    assert "integer" in said or "greater than or equal to 1;" in said
    assert len(said) < 300


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("op_dog",), "no such member; did you mean 'op_dag'?"),
        (("",), "neither a family, such as op_dag, nor its keys"),
        (("{name: op_dag",), "neither a family, such as op_dag, nor its keys"),
        (("[op_dag, bios]",), "neither a family, such as op_dag, nor its keys"),
        (("{name: op_dag, moduls: 7}",), "did you mean 'modulus'?"),
        (("op_dag", "--op", "99"), "--op = 99: op_dag has ops from 1 to 22"),
        (("nosuch.py:Mine",), "no file nosuch.py in the study's folder"),
    ],
)
def test_a_task_to_audit_is_a_family_or_its_keys(
    words: tuple[str, ...], says: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refusal(capsys, "audit", *words)


@pytest.mark.parametrize("digest", ["**", "*", "", "[", "/etc", "..", "a/../b", "no\0thing"])
@pytest.mark.parametrize("words", [("rows",), ("novelty", "--against", "abc")])
def test_a_digest_is_no_pattern_and_no_path(
    words: tuple[str, ...], digest: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.start(next(iter(lab.plan().stages.values())))
    said = refusal(capsys, *words, digest)
    assert "names no stage there" in said or "is neither a digest nor STUDY/ARM/STAGE@SEED" in said


@pytest.mark.parametrize("digest", ["**", "*", "", "[", "a/../b", "no\0thing"])
def test_what_rollouts_are_asked_of_is_no_pattern(digest: str, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be a path, of another trainer's files."""
    said = refusal(capsys, "rollouts", digest)
    assert "names no stage there" in said or "is neither a digest nor STUDY/ARM/STAGE@SEED" in said


def test_seeds_stand_once_and_shares_are_from_nought_on(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.edit("study/quickstart.yaml", "values: [0]", "values: [3, 0, 3]")
    assert "seeds.values = [3, 0, 3]: 3 is given twice" in refusal(capsys, "plan", "quickstart")
    lab.edit("study/quickstart.yaml", "values: [3, 0, 3]", "values: [0]")
    lab.edit("study/quickstart.yaml", "rl.data: {hard: 1.0}", "rl.data: {hard: 2.0, edge: -1.0}")
    assert "must be shares from 0 to 1; -1 is none" in refusal(capsys, "plan", "quickstart")


@pytest.mark.parametrize("content", ["[]", "{}", "3", "", '{"metrics": 3, "files": {}}', '{"metrics": {}}'])
def test_a_damaged_record_is_named_with_the_remedy(content: str, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    out = lab.finish(of_kind(lab.plan(), "rl")[0])
    (out / "record.json").write_text(content)
    assert f"interplay: results/rl/{out.name}/record.json: not " in refusal(capsys, "show", out.name)


@pytest.mark.parametrize("place", ["/proc/none/x", "plain/x"])
def test_a_place_that_cannot_be_written_is_named(place: str, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stage = of_kind(lab.plan(), "problems")[0]
    lab.finish(stage)
    Path("plain").touch()
    assert refusal(capsys, "debug", stage.digest, "--into", place).startswith(f"interplay: {place.split('/x')[0]}")


def test_an_error_of_the_system_that_is_about_no_file_is_not_hidden(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise OSError("out of luck")

    monkeypatch.setattr(artifact, "find", fail)
    with pytest.raises(OSError, match="out of luck"):
        main(["rollouts", "abc"])


def test_novelty_is_beside_a_problem_set(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stage = of_kind(lab.plan(), "evaluate")[0]
    lab.finish(stage)
    said = refusal(capsys, "novelty", stage.digest, "--against", stage.digest)
    assert said == f"interplay: novelty: --against {stage.digest} is a evaluate stage; name a problem set\n"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\xff" * 100])
def test_damaged_samples_are_refused_with_the_remedy(content: bytes, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    out = lab.finish(of_kind(lab.plan(), "evaluate")[0])
    (out / "samples.parquet").write_bytes(content)
    said = refusal(capsys, "rollouts", out.name)
    assert said.startswith(f"interplay: results/evaluate/{out.name}: not readable (")
    assert said.endswith(f"remove results/evaluate/{out.name} to make it again\n")


def test_rollouts_of_the_users_own_are_never_to_be_removed(tmp_path: Path, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/rollouts.parquet").write_bytes(b"PAR1")
    said = refusal(capsys, "rollouts", str(tmp_path / "mine"))
    assert said.startswith(f"interplay: {tmp_path / 'mine'}: not readable (")
    assert "remove" not in said


def test_segments_are_drawn_of_a_study_that_is_named(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "verify", "--segments", "2") == "interplay: verify: --segments is of a study; name one\n"


def test_an_option_of_snakemake_without_its_value_is_refused(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "run", "quickstart", "--retries")
    assert said.startswith("interplay: run: argument ")
    assert "expected one argument; see `snakemake --help`" in said


def test_what_an_option_of_snakemake_takes_is_no_key_of_the_study(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(studies, "_run_snakemake", lambda words: asked.append(words) or 0)
    options = ["--resources", "gpu=2", "stack=1", "--set-threads", "rl=2", "--keep-going"]
    assert main(["run", "quickstart", "--scale", "smoke", "--dry-run", *options, "rl.steps=3"]) == 0
    assert asked[0][1 : 1 + len(options)] == options
    assert asked[0][-1] == "set=rl.steps=3"
