"""`configs/site.yaml`: what reaches sbatch, and what is refused."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT
from lab import Lab
from pydantic import ValidationError
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options
from snakemake_interface_common.exceptions import WorkflowError

from interplay.core.model import UserError
from interplay.run import slurm
from interplay.run.graph import Graph, open_graph
from interplay.run.slurm import Site


class Job(NamedTuple):
    """What of Snakemake's jobs its executor looks at."""

    resources: dict[str, Any]


def written(folder: Path, text: str) -> Site:
    (folder / "site.yaml").write_text(text)
    return slurm.load_site(folder)


def test_the_committed_file_asks_for_nothing_of_a_site() -> None:
    assert slurm.load_site(ROOT / "configs") == Site()
    assert slurm.sbatch_options(Site()) == "--signal=USR1@120"
    assert (slurm.partition_of(Site(), 0), slurm.partition_of(Site(), 1)) == ("", "")


def test_no_file_and_an_empty_one_are_the_usual_site(tmp_path: Path) -> None:
    assert slurm.load_site(tmp_path) == Site()
    assert written(tmp_path, "# nothing\n") == Site()


def test_what_a_site_names_reaches_sbatch(tmp_path: Path) -> None:
    at = written(tmp_path, "{account: lab-7, qos: low, constraint: a100|h100, warn_seconds: 300, options: [--exclude=node7]}\n")
    assert slurm.sbatch_options(at) == "--signal=USR1@300 --exclude=node7"
    assert slurm.named_resources(at) == {"slurm_account": "lab-7", "qos": "low", "constraint": "a100|h100"}


def test_a_list_of_nodes_is_kept_from_the_shell() -> None:
    at = Site(options=["--exclude=node[1-4,7]"])
    assert slurm.sbatch_options(at) == "--signal=USR1@120 '--exclude=node[1-4,7]'"


def test_a_name_that_the_site_leaves_open_is_no_resource_at_all(tmp_path: Path) -> None:
    asked = Graph(tmp_path, []).resources()
    assert not {"slurm_account", "qos", "constraint"} & asked.keys()
    assert "qos" in Graph(tmp_path, [], Site(qos="low")).resources()


def test_whatever_the_executor_refuses_among_further_options_is_refused_here() -> None:
    """Each of its patterns is for an option's long name, and some for a short one too."""
    for pattern in get_forbidden_slurm_options():
        names = re.findall(r"--([a-z-]+)", pattern)
        assert names
        for name in names:
            with pytest.raises(ValidationError):
                Site(options=[f"--{name}=1"])
    for short in ("--nodelist=node-J", "--nodelist=node-c"):
        with pytest.raises(ValidationError):
            Site(options=[short])


@pytest.mark.parametrize("model", ["h100", "tesla_v100", "a100.80gb"])
def test_a_type_of_gpu_is_what_the_executor_takes(model: str) -> None:
    assert set_gres_string(Job({"gpu": 2, "gpu_model": Site(gpu_model=model).gpu_model})) == f" --gpus={model}:2"


def test_a_type_of_gpu_that_the_executor_refuses_is_refused_here() -> None:
    with pytest.raises(WorkflowError):
        set_gres_string(Job({"gpu": 2, "gpu_model": "a100-80gb"}))
    with pytest.raises(ValidationError):
        Site(gpu_model="a100-80gb")


@pytest.mark.parametrize(
    ("text", "without", "with_gpus"),
    [("partition: cpu", "cpu", "cpu"), ("gpu_partition: gpu", "", "gpu"), ("{partition: cpu, gpu_partition: gpu}", "cpu", "gpu")],
)
def test_stages_with_gpus_have_a_partition_of_their_own(tmp_path: Path, text: str, without: str, with_gpus: str) -> None:
    at = written(tmp_path, text)
    assert (slurm.partition_of(at, 0), slurm.partition_of(at, 2)) == (without, with_gpus)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("acount: lab", "configs/site.yaml:1: acount: unknown key 'acount'; did you mean 'account'"),
        ("qos: low\naccount: lab; rm", "configs/site.yaml:2: account = 'lab; rm'"),
        ("account: lab\nqos: low\naccount: other", "configs/site.yaml:3: 'account' occurs twice; it is in line 1 already"),
        ("options: ['--comment=a b']", "write --name=value"),
        ("options: ['--nice=$(reboot)']", "write --name=value"),
        *(
            (f'options: ["--nice={letter}"]', "write --name=value")
            for letter in ["\\t7", "(", ")", "*", "?", "#", "~", "{a,b}", "!"]
        ),
        (
            "# ours\noptions: [--qos=low]",
            "configs/site.yaml:2: options = ['--qos=low']: '--qos=low' is not set here: write the key qos",
        ),
        ("options: [--mem=7]", "memory_mb"),
        ("gpu_model: a100-80gb", "configs/site.yaml:1: gpu_model = 'a100-80gb': should be letters, digits, dots and underscores"),
        ("warn_seconds: 0", "configs/site.yaml:1: warn_seconds = 0"),
        ("- account", "configs/site.yaml:1: must hold keys and values"),
        ("account: [", "configs/site.yaml:1: not YAML"),
        ("account: 2026-13-45", "configs/site.yaml: not readable"),
        ("account: !new a", "configs/site.yaml:1: not YAML"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    with pytest.raises(UserError) as refused:
        written(folder, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stage_that_would_be_warned_as_it_starts_is_refused_before_any_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, config = Lab(tmp_path), {"study": "quickstart", "scale": "smoke"}
    monkeypatch.chdir(tmp_path)
    assert open_graph(lab.folder, config, True).targets()
    lab.edit("scale/smoke.yaml", "pretrain: {", "pretrain: {run: {runtime: 3}, ")
    with pytest.raises(SystemExit) as ended:
        open_graph(lab.folder, config, True)
    said = capsys.readouterr().err.strip()
    assert ended.value.code == 2
    assert said.startswith("interplay: configs/site.yaml: warn_seconds = 120: ")
    assert "(run.runtime: 3, kind pretrain); grant it 4 minutes or more, or warn later" in said
    assert "\n" not in said
    lab.edit("scale/smoke.yaml", "runtime: 3", "runtime: 4")
    assert open_graph(lab.folder, config, True).targets()
