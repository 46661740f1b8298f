"""The promises of security, held against the whole source tree; each rule is shown to bite on a line that breaks it."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from house_rules import broken

OWN_FUNCTIONS = "src/interplay/core/extension.py"
"""Where the user's own functions are made of the text that a study holds: the one place that runs text."""
ITSELF = ("tests/unit/house_rules.py", "tests/unit/test_security.py")
SERVER = re.compile(r"(0\.0\.0\.0|--(host|bind|address)[= ]['\"]?(::|\*)|http\.server(?!.*--bind[= ]127\.0\.0\.1))")
"""A server that others than this machine would reach."""


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 5
    return found


@pytest.mark.parametrize("folder", ["src", "bench", "workflows", "tests"])
def test_no_line_of_the_tree_breaks_a_rule(folder: str) -> None:
    found = {}
    for path in sources(folder) if folder != "workflows" else (ROOT / folder).rglob("*.py"):
        name = str(path.relative_to(ROOT))
        own_text = name == OWN_FUNCTIONS or folder == "tests"  # a test may evaluate what it wrote itself, as an oracle
        lines = broken(path.read_text(), own_text, folder == "src")
        if lines and name not in ITSELF:
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import pickle", "imports pickle"),
        ("import torch, pickle as p", "imports pickle"),
        ("from pickle import loads", "imports from pickle"),
        ("from cloudpickle.cloudpickle import dumps", "imports from cloudpickle.cloudpickle"),
        ("def f():\n    import joblib", "imports joblib"),
        ("import shelve", "imports shelve"),
        ("import marshal", "imports marshal"),
        ("import dill", "imports dill"),
        ("import torch\ntorch.load(path)", "pickles: torch.load"),
        ("import torch as t\nt.save(state, path)", "pickles: torch.save"),
        ("from torch import load", "imports from torch"),
        ("frame.to_pickle(path)", "pickles: frame.to_pickle"),
        ("import pandas\npandas.read_pickle(path)", "pickles: pandas.read_pickle"),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", "unpickles: allow_pickle"),
        ("import numpy as np\nnp.load(path, allow_pickle=flag)", "unpickles: allow_pickle"),
        ("eval(text)", "runs text: eval"),
        ("run = exec\nrun(text)", "runs text: exec"),
        ("compile(text, 'file', 'exec')", "runs text: compile"),
        ("__import__(name)", "runs text: __import__"),
        ("import builtins\nbuiltins.eval(text)", "runs text: builtins.eval"),
        ("import os\nos.system(text)", "asks a shell: os.system"),
        ("from os import popen as p\np(text)", "asks a shell: os.popen"),
        ("import subprocess\nsubprocess.run(text, shell=True)", "asks a shell: subprocess.run"),
        ("import subprocess\nsubprocess.Popen(text, shell=flag)", "asks a shell: subprocess.Popen"),
        ("import subprocess as s\ns.getoutput(text)", "asks a shell: subprocess.getoutput"),
        ("import yaml\nyaml.load(text)", "reads YAML that may make objects: yaml.load"),
        ("import yaml\nyaml.load(text, Loader=yaml.Loader)", "reads YAML that may make objects: yaml.load"),
        ("from yaml import load, UnsafeLoader\nload(text, UnsafeLoader)", "reads YAML that may make objects: yaml.load"),
        ("import yaml\nyaml.full_load(text)", "reads YAML that may make objects: yaml.full_load"),
        ("import yaml\nyaml.compose(text)", "reads YAML that may make objects: yaml.compose"),
        ("AutoModel.from_pretrained(name)", "does not say that it trusts no remote code: from_pretrained"),
        ("AutoModel.from_config(config)", "does not say that it trusts no remote code: from_config"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trusts remote code"),
        ("LLM(model=name, trust_remote_code=spec.trust)", "trusts remote code"),
        ("server.bind(('0.0.0.0', 80))", "binds to every network: 0.0.0.0"),
        ("run(host='::')", "binds to every network: ::"),
    ],
)
def test_a_rule_bites(line: str, what: str) -> None:
    assert any(found.endswith(f": {what}") for found in broken(line)), broken(line)


@pytest.mark.parametrize(
    "line",
    [
        "import re\nre.compile(text)",
        "import torch.nn as nn\nnn.Module().load_state_dict(state)",
        "import safetensors.torch\nsafetensors.torch.save(tensors)",
        "import numpy as np\nnp.load(path, mmap_mode='r')",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import yaml\nyaml.safe_load(text)\nyaml.compose(text, Loader=yaml.SafeLoader)",
        "import subprocess\nsubprocess.run(['git', 'show'])",
        "model.eval()",
        "AutoModel.from_pretrained(name, trust_remote_code=False)",
        "server.bind(('127.0.0.1', 80))",
    ],
)
def test_what_is_allowed_is_let_be(line: str) -> None:
    assert broken(line) == []


def test_the_one_place_that_runs_text_is_that_of_the_users_own_functions() -> None:
    source = (ROOT / OWN_FUNCTIONS).read_text()
    assert sorted(line.partition(": ")[2] for line in broken(source)) == ["runs text: compile", "runs text: exec"]
    assert broken(source, own_functions=True) == []


def test_no_command_that_is_written_down_serves_to_the_network() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [
        name for name in listed if Path(name).suffix in (".md", ".yaml", ".smk", ".toml", "") and not name.startswith("tests/")
    ]
    assert {"README.md", "Makefile", "Snakefile"} <= set(names)
    texts = {name: (ROOT / name).read_text(errors="replace") for name in names if (ROOT / name).is_file()}
    assert {name: found[0] for name, text in texts.items() if (found := SERVER.search(text))} == {}


@pytest.mark.parametrize(
    "command", ["mlflow ui --host 0.0.0.0", "mlflow server --host=*", "python -m http.server 8000", "serve --bind ::"]
)
def test_a_command_that_serves_to_the_network_is_found(command: str) -> None:
    assert SERVER.search(command)


def test_only_weights_and_tokenizers_are_downloaded_and_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fnmatch import fnmatch

    from interplay.core.execution import Run
    from interplay.model import folder
    from interplay.model.spec import SourceSpec

    asked: dict[str, list[str]] = {}

    def snapshot(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked[f"{name}@{revision}"] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    folder.find_source(SourceSpec(hub_id="owner/name", revision="f" * 40), Run())
    patterns = asked[f"owner/name@{'f' * 40}"]
    files = ["modeling_x.py", "pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt", "sub/modeling_x.py", "run.sh"]
    assert not [name for name in files if any(fnmatch(name, pattern) for pattern in patterns)]
    assert all(any(fnmatch(name, p) for p in patterns) for name in ("config.json", "model.safetensors", "tokenizer.json"))
