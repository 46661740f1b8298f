"""`configs/site.yaml`: what reaches sbatch, and what is refused."""

from pathlib import Path

import pytest
from conftest import ROOT

from interplay.schema.base import UserError
from interplay.schema.site import Site
from interplay.study import site


def written(folder: Path, text: str) -> Site:
    (folder / "site.yaml").write_text(text)
    return site.load(folder)


def test_the_committed_file_asks_for_nothing_of_a_site() -> None:
    assert site.load(ROOT / "configs") == Site()
    assert site.extra(Site()) == "--signal=USR1@120"
    assert (site.partition(Site(), 0), site.partition(Site(), 1)) == ("", "")


def test_no_file_and_an_empty_one_are_the_usual_site(tmp_path: Path) -> None:
    assert site.load(tmp_path) == Site()
    assert written(tmp_path, "# nothing\n") == Site()


def test_what_a_site_names_reaches_sbatch(tmp_path: Path) -> None:
    at = written(tmp_path, "account: lab-7\nqos: low\nwarn_seconds: 300\noptions: [--exclude=node7, --constraint=a100]\n")
    assert site.extra(at) == "--signal=USR1@300 --account=lab-7 --qos=low --exclude=node7 --constraint=a100"


@pytest.mark.parametrize(
    ("text", "without", "with_gpus"),
    [("partition: cpu", "cpu", "cpu"), ("gpu_partition: gpu", "", "gpu"), ("{partition: cpu, gpu_partition: gpu}", "cpu", "gpu")],
)
def test_stages_with_gpus_have_a_partition_of_their_own(tmp_path: Path, text: str, without: str, with_gpus: str) -> None:
    at = written(tmp_path, text)
    assert (site.partition(at, 0), site.partition(at, 2)) == (without, with_gpus)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("acount: lab", "configs/site.yaml: acount: unknown key 'acount'; did you mean 'account'"),
        ("account: lab; rm", "configs/site.yaml: account = 'lab; rm'"),
        ("options: ['--comment=a b']", "write --name=value"),
        ("options: ['$(reboot)']", "write --name=value"),
        ("warn_seconds: 0", "configs/site.yaml: warn_seconds = 0"),
        ("- account", "configs/site.yaml"),
        ("account: [", "configs/site.yaml: not readable"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    with pytest.raises(UserError) as refused:
        written(folder, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
