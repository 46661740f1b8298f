"""What is wrong with a problem set of a study is refused in one line, with file and line."""

from pathlib import Path

import pytest
from sift_study import enter, refusal

CASES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "training on a set of split test": (
        [("{corpus: 1.0}", "{corpus: 0.5, test: 0.5}")],
        "21: stages.base.data = 'test': data.test is of split test, which nothing is trained on; take another split, or declare "
        "leak: true there",
    ),
    "training on a set made of one of split test": (
        [("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, test: 0.5}")],
        "22: stages.rl.data = 'sifted': data.test, of which data.sifted is made, is of split test, which nothing is trained on; "
        "take another split, or declare leak: true there",
    ),
    "a leak of another split": (
        [("edge: {band: edge, split: rl}", "edge: {band: edge, split: rl, leak: true}")],
        "11: data.edge = {'band': 'edge', 'split': 'rl', 'leak': True}: leak goes with split: test; remove it",
    ),
    "a set made of itself": (
        [("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, sifted: 0.5}")],
        "13: data.sifted: made of itself: sifted -> sifted; take one of them away",
    ),
    "sets made of each other": (
        [("hard: {band: hard, split: rl}", "hard: {mix: {sifted: 1.0}}")],
        "made of itself: sifted -> hard -> sifted; take one of them away",
    ),
    "a set that is compared with itself": (
        [("against: [test]", "against: [sifted]")],
        "made of itself: sifted -> sifted; take one of them away",
    ),
    "an arm trained on a set that needs its samples": (
        [("arm: base", "arm: rl")],
        "16: data.sifted.steps.0.arm = 'rl': that arm is itself trained on this set; name one that is not",
    ),
    "an unknown arm": ([("arm: base", "arm: bse")], "16: data.sifted.steps.0.arm = 'bse': no such arm; did you mean 'base'?"),
    "an unknown evaluation": (
        [("evaluate: probe", "evaluate: prob")],
        "16: data.sifted.steps.0.evaluate = 'prob': no such stage; did you mean 'probe'?",
    ),
    "samples of a stage that draws none": (
        [("evaluate: probe", "evaluate: rl")],
        "16: data.sifted.steps.0.evaluate = 'rl': is a rl stage; name one of kind evaluate",
    ),
    "fewer samples than are counted": (
        [("num_samples: 8", "num_samples: 4")],
        "16: data.sifted.steps.0: counts 8 samples of each row, and its evaluation draws 4; set num_samples: 8 there",
    ),
    "a rule that wants more than the scale draws": (
        [("low: 1, high: 6, of: 8", "rule: cog_drift"), (", num_samples: 8", "")],
        "16: data.sifted.steps.0: counts 64 samples of each row, and its evaluation draws 32; set num_samples: 64 there",
    ),
    "a pass rate without an arm": (
        [("arm: base, evaluate: probe, ", "evaluate: probe, ")],
        "16: data.sifted.steps.0.arm: missing; name the arm whose end samples the rows",
    ),
    "a comparison with nothing": (
        [("name: contamination, against: [test]", "name: contamination")],
        "18: data.sifted.steps.2.against: missing; name the problem sets to compare with",
    ),
    "a comparison with what is no list": (
        [("against: [test]", "against: test")],
        "18: data.sifted.steps.2.against = 'test': should be a list",
    ),
    "a comparison with an unknown set": (
        [("against: [test]", "against: [tset]")],
        "18: data.sifted.steps.2.against = 'tset': no such problem set; did you mean 'test'?",
    ),
    "a key that the step does not read": (
        [("how: structural}", "how: structural, against: [test]}")],
        "17: data.sifted.steps.1.against: unknown key 'against' of deduplicate; known: how, n, name, threshold",
    ),
    "a misspelt step": (
        [("name: deduplicate", "name: dedupliacte")],
        "17: data.sifted.steps.1.name = 'dedupliacte': no such member; did you mean 'deduplicate'?",
    ),
    "a misspelt key of a step": (
        [("how: structural", "hwo: structural")],
        "17: data.sifted.steps.1.hwo: unknown key 'hwo'; did you mean 'how'?",
    ),
    "a mix that does not sum to one": (
        [("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, hard: 0.6}")],
        "14: data.sifted.mix = {'edge': 0.5, 'hard': 0.6}: a mix must be shares that sum to 1; these sum to 1.1; change one, or write `hard: rest`",
    ),
    "an unknown set in a mix": (
        [("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, hadr: 0.5}")],
        "14: data.sifted.mix = 'hadr': no such problem set; did you mean 'hard'?",
    ),
    "a set in two forms": (
        [("mix: {edge: 0.5, hard: 0.5}", "mix: {edge: 0.5, hard: 0.5}\n    band: id")],
        "13: data.sifted: band does not go with a set that is made of others",
    ),
    "a file without its format": (
        [("hard: {band: hard, split: rl}", "hard: {file: x.txt}")],
        "12: data.hard = {'file': 'x.txt'}: format is missing; name the format of the file",
    ),
    "a file that is not there": (
        [("hard: {band: hard, split: rl}", "hard: {file: x.jsonl, format: jsonl}")],
        "12: data.hard.file = 'x.jsonl': no such file; put it there, or give its sha256 as well",
    ),
    "a band and bands": (
        [("edge: {band: edge, split: rl}", "edge: {band: edge, bands: [id], split: rl}")],
        "11: data.edge = {'band': 'edge', 'bands': ['id'], 'split': 'rl'}: give either band or bands "
        "(or a file, or a mix of other sets)",
    ),
    "a set without a split": (
        [("edge: {band: edge, split: rl}", "edge: {band: edge}")],
        "11: data.edge = {'band': 'edge'}: split is missing; write train, rl, validation or test",
    ),
    "a task of another family with a key that it lacks": (
        [("edge: {band: edge, split: rl}", "edge: {band: edge, split: rl, task: {modulos: 5}}")],
        "11: data.edge.task.modulos: unknown key 'modulos'; did you mean 'modulus'?",
    ),
    "a change at a scale that is not there": (
        [("tables:\n", "scales: {smok: {seeds: [1]}}\ntables:\n")],
        "30: scales.smok: no such scale; did you mean 'smoke'?",
    ),
    "a change of a set that is not there": (
        [("tables:\n", "scales: {smoke: {data: {edeg: {size: 3}}}}\ntables:\n")],
        "30: scales.smoke.data = 'edeg': no such problem set; did you mean 'edge'?",
    ),
    "an empty band at a scale": (
        [("tables:\n", "scales: {smoke: {bands: {edge: []}}}\ntables:\n")],
        "30: scales.smoke.bands.edge = []: should hold more items",
    ),
    "a misspelt key of a set at a scale": (
        [("tables:\n", "scales: {smoke: {data: {edge: {szie: 3}}}}\ntables:\n")],
        "30: scales.smoke.data.edge.szie: unknown key 'szie'; did you mean 'size'? (data.edge.szie of study sift)",
    ),
    "a misspelt key of a kind at a scale": (
        [("tables:\n", "scales: {smoke: {kinds: {rl: {stpes: 3}}}}\ntables:\n")],
        "30: scales.smoke.kinds.rl.stpes: unknown key 'stpes'; did you mean 'steps'?",
    ),
    "decontamination by a set that is trained on": (
        [("stages:\n", "decontaminate: {against: [corpus]}\nstages:\n")],
        "22: stages.base.data: one of the sets that decontaminate compares with; train on another",
    ),
    "decontamination by a set that is not there": (
        [("stages:\n", "decontaminate: {against: [tset]}\nstages:\n")],
        "20: decontaminate.against = 'tset': no such problem set; did you mean 'test'?",
    ),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_with_a_set_is_refused_with_file_and_line(
    case: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edits, message = CASES[case]
    said = refusal(root, capsys, *edits)
    if message[0].isdigit():
        assert said == f"configs/study/sift.yaml:{message}"
    else:
        assert said.startswith("configs/study/sift.yaml:")
        assert said.endswith(message)
