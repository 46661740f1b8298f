"""What a study names lies below the project's root, and nothing of the machine around it enters."""

from pathlib import Path

import pytest
from conftest import ROOT
from lab import Lab, of_kind

from interplay.core.model import UserError

STUDY = "study/quickstart.yaml"
SET = "hard: {band: hard, split: rl}"
BASE = "base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}"
DEFAULTS = "  - _self_"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A project, with a data file and a YAML file that lie outside of it."""
    made = Lab(tmp_path / "project")
    (tmp_path / "items.jsonl").write_bytes((ROOT / "data/fixtures/gsm8k.jsonl").read_bytes())
    (tmp_path / "outside.yaml").write_text("source: elsewhere\n")
    monkeypatch.chdir(made.folder)
    return made


def refused(lab: Lab, old: str, new: str, file: str = STUDY) -> str:
    lab.edit(file, old, new)
    with pytest.raises(UserError) as caught:
        lab.plan()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", ["/etc/passwd", "../items.jsonl", "data/../../items.jsonl", '"items\\e[2J.jsonl"'])
def test_a_data_file_outside_the_project_is_refused_whether_or_not_it_is_there(lab: Lab, path: str) -> None:
    message = refused(lab, SET, f"hard: {{file: {path}, format: gsm8k, sha256: {'e' * 64}}}")
    assert message.startswith("configs/study/quickstart.yaml:14: data.hard.file = '")
    assert "must lie below the project's root; link what lies elsewhere, as by `ln -s " in message
    assert message.isprintable()


@pytest.mark.parametrize("path", ["/models/base", "../base", "models/../../base"])
def test_a_model_outside_the_project_is_refused(lab: Lab, path: str) -> None:
    message = refused(lab, BASE, f"base: {{kind: source, path: {path}}}")
    assert f"configs/study/quickstart.yaml:18: stages.base.path = '{path}': must lie below the project's root" in message


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (STUDY, BASE, f"base: {{kind: source, sha256: {'e' * 64}, run: {{path: /models/base}}}}"),
        ("scale/smoke.yaml", "kinds:\n", f"kinds:\n  source: {{sha256: {'e' * 64}, run: {{path: /models/base}}}}\n"),
    ],
)
def test_a_run_block_is_no_way_around(lab: Lab, file: str, old: str, new: str) -> None:
    if file != STUDY:
        lab.edit(STUDY, BASE, "base: {kind: source}")
    assert "run.path = '/models/base': must lie below the project's root" in refused(lab, old, new, file)


def test_a_data_file_that_cannot_be_read_is_refused_in_one_line(lab: Lab) -> None:
    Path("items.jsonl").symlink_to("/proc/self/mem")
    message = refused(lab, SET, "hard: {file: items.jsonl, format: gsm8k}")
    assert message == "configs/study/quickstart.yaml:14: data.hard.file = 'items.jsonl': not readable: Input/output error"


def test_a_link_below_the_root_is_followed_and_the_digest_is_that_of_the_content(lab: Lab) -> None:
    Path("items.jsonl").write_bytes(Path("../items.jsonl").read_bytes())
    lab.edit(STUDY, SET, "hard: {file: items.jsonl, format: gsm8k}")
    (copied,) = of_kind(lab.plan(), "dataset")
    Path("data").mkdir()
    Path("data/linked.jsonl").symlink_to(Path("../items.jsonl").resolve())
    lab.edit(STUDY, "file: items.jsonl", "file: data/linked.jsonl")
    (linked,) = of_kind(lab.plan(), "dataset")
    assert (copied.digest, copied.run.path) == (linked.digest, "items.jsonl")
    assert linked.run.path == "data/linked.jsonl"


@pytest.mark.parametrize(
    "entry",
    [
        "../../../outside@more",
        "/study/../../../outside@more",
        "/{outside}@more",
        "/task@more: ../../../outside",
        "/task@more: {outside}",
        "optional /task@more: ../../../outside",
    ],
)
def test_a_study_includes_no_file_from_outside_the_folder_of_studies(lab: Lab, entry: str, tmp_path: Path) -> None:
    message = refused(lab, DEFAULTS, f"  - {entry.replace('{outside}', str(tmp_path / 'outside'))}\n{DEFAULTS}")
    assert message.startswith("configs/study/quickstart.yaml:5: defaults")
    assert "leads out of the folder of the studies" in message


UP = "${oc.decode:.}./${oc.decode:.}./${oc.decode:.}./outside"
"""To a reader of the text no file; to Hydra, which resolves it, one above the project."""


@pytest.mark.parametrize(("file", "place"), [(STUDY, DEFAULTS), ("config.yaml", DEFAULTS), ("task/op_dag.yaml", "name: op_dag")])
@pytest.mark.parametrize(
    "entry",
    [
        f"optional /task@_here_: {UP}",
        f"optional /task@_here_: ['{UP}']",
        f"/task@_here_: '{UP}'",
        f"'/task/{UP}@_here_'",
        "optional /task@${oc.decode:more}: op_dag",
    ],
)
def test_no_item_of_a_defaults_list_holds_an_interpolation(lab: Lab, file: str, place: str, entry: str) -> None:
    head = "defaults:\n" if place != DEFAULTS else ""
    message = refused(lab, place, f"{head}  - {entry}\n{place}", file)
    assert message.startswith(f"configs/{file}:")
    assert "an interpolation cannot choose a file; write its name out" in message


def test_a_file_whose_name_hydra_would_resolve_is_no_study(lab: Lab) -> None:
    (lab.configs / "study/${oc.decode:edge}.yaml").write_text("question: Which?\n")
    with pytest.raises(UserError, match="a file's name holds no"):
        lab.plan("${oc.decode:edge}")


@pytest.mark.parametrize(
    "text",
    [
        "x: &x {defaults: [/task@more: ../../../outside]}\n<<: *x\n",
        "!!merge x: {defaults: [/task@more: ../../../outside]}\n",
        "<<: {hydra: {searchpath: [more]}}\n",
    ],
)
@pytest.mark.parametrize("file", [STUDY, "config.yaml", "task/op_dag.yaml"])
def test_a_defaults_list_does_not_come_in_by_a_merge(lab: Lab, file: str, text: str) -> None:
    path = lab.configs / file
    path.write_text(f"{path.read_text()}\n{text}")
    with pytest.raises(UserError, match=r"a file's own first keys are written out, not merged"):
        lab.plan()


@pytest.mark.parametrize("name", ['"null"', '"~"', "!!binary b3V0c2lkZQ=="])
def test_a_name_that_hydra_reads_otherwise_hides_no_file(lab: Lab, name: str) -> None:
    for file in ("null", "~"):
        (lab.configs / f"task/{file}.yaml").write_text("defaults: [/task@more: ../../../outside]\n")
    message = refused(lab, DEFAULTS, f"  - optional /task@more: {name}\n{DEFAULTS}")
    assert "leads out of the folder of the studies" in message or "must be the name of a file, as text" in message


def test_what_the_main_file_includes_is_read_as_far_as_it_leads(lab: Lab) -> None:
    (lab.configs / "task/more.yaml").write_text("defaults: [/task@more: ../../../outside]\n")
    message = refused(lab, DEFAULTS, f"  - task@more: more\n{DEFAULTS}", "config.yaml")
    assert message.startswith("configs/task/more.yaml:1: defaults./task@more = '../../../outside'")


def test_a_file_that_hydra_brings_along_is_not_composed(lab: Lab) -> None:
    message = refused(lab, DEFAULTS, f"  - optional /hydra/job_logging@more: disabled\n{DEFAULTS}")
    assert "hydra/job_logging: only the files of the folder of the studies are composed" in message


@pytest.mark.parametrize("link", ["task/linked.yaml", "linked"])
def test_a_yaml_file_is_not_reached_through_a_link_out_of_the_folder(lab: Lab, link: str, tmp_path: Path) -> None:
    (lab.configs / link).symlink_to(tmp_path / ("outside.yaml" if link.endswith(".yaml") else ""), target_is_directory=True)
    entry = "/task@more: linked" if link.endswith(".yaml") else "/linked@more: outside"
    message = refused(lab, DEFAULTS, f"  - {entry}\n{DEFAULTS}")
    assert message.startswith(
        f"configs/{'task/linked' if link.endswith('.yaml') else 'linked/outside'}.yaml: a link that leads out"
    )


def test_a_project_adds_no_folder_to_where_studies_are_composed_from(lab: Lab, tmp_path: Path) -> None:
    addition = f"hydra: {{searchpath: ['file://{tmp_path}']}}\nstudies:"
    assert "configs/config.yaml:7: hydra: only the files of configs/ are composed" in refused(
        lab, "studies:", addition, "config.yaml"
    )


def test_an_environment_variable_does_not_enter_a_study(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_marker")
    message = refused(lab, "question: Does", "question: ${oc.env:HF_TOKEN} Does")
    assert message == (
        "configs/study/quickstart.yaml:7: question: ${oc.env:HF_TOKEN}: environment variables do not enter a study, whose "
        "records are shared"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  main: {columns", "  ../../main: {columns"),
        ("  loss: {x", '  "loss\\e[2J": {x'),
        ("  rl_edge: {path", "  ../rl_edge: {path"),
        ("  eval: {kind", "  a/b: {kind"),
        ("  held_out: {band", "  ..: {band"),
    ],
)
def test_a_name_is_no_path(lab: Lab, old: str, new: str) -> None:
    message = refused(lab, old, new)
    assert "choose a name without '/' that can be printed" in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("hub_id: ../../models/base, revision: " + "f" * 40, "OWNER/NAME"),
        ("hub_id: /models/base, revision: " + "f" * 40, "OWNER/NAME"),
        ("hub_id: Qwen/Qwen2.5-0.5B, revision: main", "a commit of 40 hex digits"),
        ("hub_id: Qwen/Qwen2.5-0.5B, revision: " + "../" * 13 + "x", "a commit of 40 hex digits"),
    ],
)
def test_a_model_of_the_hub_is_named_by_its_owner_and_a_commit(lab: Lab, keys: str, says: str) -> None:
    assert says in refused(lab, BASE, f"base: {{kind: source, {keys}}}")


@pytest.mark.parametrize("file", ["/etc/hostname", "../outside.py", "sub/../../outside.py"])
def test_a_function_lies_beside_the_study(lab: Lab, file: str) -> None:
    (lab.configs / "outside.py").write_text("def score(): ...\n")
    reward = f"reward: {{name: custom, function: '{file}:score'}}"
    message = refused(lab, "rl: {kind: rl, data: {edge: 1.0}}", f"rl: {{kind: rl, data: {{edge: 1.0}}, {reward}}}")
    assert "must be file.py:Name, the file in the study's folder" in message


def test_a_function_is_not_reached_through_a_link(lab: Lab) -> None:
    (lab.folder / "outside.py").write_text("def score(): ...\n")
    (lab.configs / "study/mine.py").symlink_to(lab.folder / "outside.py")
    reward = "reward: {name: custom, function: 'mine.py:score'}"
    message = refused(lab, "rl: {kind: rl, data: {edge: 1.0}}", f"rl: {{kind: rl, data: {{edge: 1.0}}, {reward}}}")
    assert "must be file.py:Name, the file in the study's folder" in message
