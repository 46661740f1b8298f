"""Members of the user's own, for every union: from a file beside the study and from an entry point, in the same way."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
from conftest import copy_configs
from rl_cases import now_of
from test_rl_seams import groups_of

from interplay.core import extension
from interplay.core.artifact import finish, write_json
from interplay.core.digest import canonical, digest, hashed
from interplay.core.execution import Run
from interplay.core.extension import Extension
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, PermanentError, UserError
from interplay.data import audit, tokenizer
from interplay.data.curate import curate_problems
from interplay.data.problems import generate_problems
from interplay.data.sets import judge_completion, load_pool
from interplay.data.spec import AuditSpec, ProblemsSpec, TokenizerSpec
from interplay.data.steps.spec import CurateSpec
from interplay.evaluate.scores import judge_own
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.extensions import EXTENSIONS, check_extensions
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.report.inspect.stage_view import stage_card
from interplay.rl.advantages import advantages
from interplay.rl.batch import Memory
from interplay.rl.continuation import first_requests, next_requests
from interplay.rl.draw import decode_sampling
from interplay.rl.edits import edits_after_advantage, edits_before_advantage
from interplay.rl.losses import MicroBatch, token_losses
from interplay.rl.rewards import score_completions
from interplay.rl.sampler import PromptSource
from interplay.rl.samplers import build_sampler
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import RLSpec
from interplay.rollout.engine import engine
from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Sampling
from interplay.study.expand import plan_study
from interplay.study.files import fill_extensions
from interplay.tasks import families
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.spec import OwnVerifier, Verify
from interplay.tasks.verdict import Verdict
from interplay.train import loop
from interplay.train.spec import OwnTrainerSpec
from tools.reference.extensions import examples, shown_signature

CODE = "\n".join(example.code for example in examples().values())
OPTIONS: dict[str, dict[str, Any]] = {
    "step": {"keep": 1}, "metric": {"limit": 10}, "reward": {"bonus": 0.5}, "shaping": {"cost": 0.5}, "decoding": {"temperature": 0.7},
    "allocation": {"num_generations": 4}, "prompting": {"text": "Think. "},
}  # fmt: skip
SHAPE = Shape(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=4, intermediate_size=8)
LOG = torch.log(torch.tensor([[0.5, 0.25]]))
HERE = KeyPlace("here")


def name_in(union: str) -> str:
    """The name that the table's example defines."""
    return re.split(r"\W+", examples()[union].code, maxsplit=2)[1]


def member_of(union: str, place: str) -> dict[str, Any]:
    """The example as a study writes it: `place` is `mine.py` or the name of a distribution."""
    return {"name": f"{place}:{name_in(union)}", **OPTIONS.get(union, {})}


def stage(union: str, place: str) -> tuple[type[Model], dict[str, Any]]:
    """A spec with the example in its place, as JSON."""
    own = member_of(union, place)
    rl: dict[str, Any] = {"method": {"paper": "p"}, "mix": [1.0], "steps": 2}
    if union == "transform":
        problems = {"task": {"name": "op_dag"}, "bands": {"id": {2: 1.0}}, "shares": {"id": 1.0}, "size": 4, "split": "train"}
        return ProblemsSpec, {**problems, "transform": own}
    if union == "family":
        return ProblemsSpec, {"task": own, "bands": {"id": {2: 1.0}}, "shares": {"id": 1.0}, "size": 4, "split": "train"}
    if union == "trainer":
        return OwnTrainerSpec, {"function": own["name"], "mix": [1.0]}
    if union == "verifier":
        return EvaluateSpec, {"verify": {"own": own}}
    if union == "metric":
        return EvaluateSpec, {"metrics": [own]}
    if union == "engine":
        return EvaluateSpec, {"engine": own}
    if union == "step":
        return CurateSpec, {"mix": [1.0], "steps": [own]}
    if union == "reward":
        return RLSpec, {**rl, "reward": own}
    if union == "seat":
        own = {"name": "seats", "order": ["user", "agent"], "seats": {"user": own, "agent": {"name": "policy"}}}
        return RLSpec, {**rl, "method": {"paper": "p", "episode": own}}
    key, value = {"shaping": ("shaping", [own]), "edit": ("edits", [own])}.get(union, (union, own))
    return RLSpec, {**rl, "method": {"paper": "p", key: value}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with `mine.py` and an installed distribution `their-lab` whose module holds the same code."""
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "their_lab.py").write_text(CODE)
    info = tmp_path / "their_lab-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lab\nVersion: 1.2\n")
    points = "".join(f"[interplay.{union}]\n{name_in(union)} = their_lab:{name_in(union)}\n" for union in EXTENSIONS)
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("their_lab", None)


def parsed(union: str, place: str, folder: Path) -> Model:
    cls, spec = stage(union, place)
    made = parse_model(cls, fill_extensions(spec, folder, HERE), HERE)
    check_extensions(made, HERE)
    assert hashed(parse_model(cls, canonical(made), "stage.json")) == hashed(made)
    return made


def run(union: str, spec: Any) -> Any:
    """What the member does where its stage calls it."""
    batch = groups_of([1.0, 0.0], [0.0, 0.0])
    now = now_of(**spec.method.model_dump(exclude={"paper"})) if isinstance(spec, RLSpec) else None
    if union == "verifier":
        verdict = Verdict(False, False, 0.0, "answer")
        return extension.call(spec.verify.own, SimpleNamespace(answer="7"), "so 7", verdict).answer
    if union == "metric":
        verdict = Verdict(True, True, 1.0, "none")
        return judge_own(pa.table({"index": [0]}), [None], ["seven"], [verdict], spec)["own:brevity"].to_pylist()
    if union == "engine":
        return engine(spec.engine, SimpleNamespace(), Run(engine_batch=8), torch.float32).rows
    if union == "episode":
        setting = SimpleNamespace(engine=SimpleNamespace(generate=lambda asked, sampling: [len(asked), sampling]), sampling="s")
        return play_episodes(spec.method.episode, setting, [None, None]).rollouts
    if union == "seat":
        user = extension.call(spec.method.episode.seats["user"])
        user.reset(7, 0)
        return user.act("what?")
    if union == "transform":
        return extension.call(spec.transform, [{"prompt": "a"}, {"prompt": "b"}])
    if union == "step":
        return extension.call(spec.steps[0], [{"prompt": "aa"}, {"prompt": "b"}])
    if union == "reward":
        return score_completions(spec.reward, [None], ["short"], [Verdict(True, True, 1.0, "none")]).sequence
    if union == "sampler":
        return build_sampler(spec.method.sampler, PromptSource([3], [1.0], 0)).select(2, 1)
    rows = [SimpleNamespace(prompt="a?"), SimpleNamespace(prompt="b?")]
    if union == "allocation":
        now = now_of(allocation=spec.method.allocation)
        rounds = [[(one.slot, one.n) for one in next_requests(rows, batch, done, now)] for done in (1, 2)]
        return [[(one.slot, one.n) for one in first_requests(rows, now)], *rounds]
    if union == "prompting":
        return first_requests(rows, now_of(prompting=spec.method.prompting))[0][1:4]
    if union == "continuation":
        now = now_of(continuation=spec.method.continuation)
        return [len(first_requests(rows, now)), *(len(next_requests(rows, batch, done, now)) for done in (0, 1))]
    if union == "shaping":
        return shape_rewards(batch, now_of(shaping=spec.method.shaping)).rewards.tolist()
    if union == "edit":
        bears = torch.ones_like(batch.mask())
        now = now_of(edits=spec.method.edits)
        assert edits_before_advantage(batch, now) is batch
        return edits_after_advantage(batch, torch.where(bears, -1.0, 1.0), bears, now)[2].any().item()
    if union == "advantage":
        return advantages(spec.method.advantage, batch, now)[0].tolist()
    if union == "loss":
        ones = torch.ones(1, 2)
        return token_losses(spec.method.loss, MicroBatch(LOG, LOG, ones, ones.bool()))[0].tolist()
    return decode_sampling(spec.method.decoding, Sampling(1.0, 1.0, 0, 4, 0, None, 0), Memory(1)).temperature


DOES = {
    "verifier": True,
    "metric": [0.5],
    "engine": 4,
    "episode": [2, "s"],
    "seat": "it is 7",
    "transform": [{"prompt": "a"}],
    "step": [{"prompt": "b"}],
    "reward": [1.5],
    "sampler": [0, 1],
    "allocation": [[(0, 4), (1, 4)], [(0, 4), (1, 4)], []],
    "prompting": (8, "Think. a?", "a?"),
    "continuation": [2, 1, 0],
    "edit": False,
    "loss": (-LOG).tolist(),
    "decoding": 0.7,
}


@pytest.mark.parametrize("place", ["mine.py", "their-lab"])
@pytest.mark.parametrize("union", [union for union in EXTENSIONS if union not in ("family", "trainer")])
def test_a_member_of_the_users_own_is_planned_and_runs(union: str, place: str, here: Path) -> None:
    made = run(union, parsed(union, place, here))
    if union in DOES:
        assert made == pytest.approx(DOES[union]) if isinstance(made, float) else made == DOES[union]
    elif union == "shaping":
        assert made == [1.0 - 1.5, -1.5, -1.5, -1.5]
    else:
        assert made == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("union", EXTENSIONS)
def test_text_and_version_are_identity(union: str, here: Path) -> None:
    first = [digest("rl", parsed(union, place, here), {}) for place in ("mine.py", "their-lab")]
    (here / "mine.py").write_text(CODE + "\n")
    info = here / "their_lab-1.2.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lab\nVersion: 1.3\n")
    second = [digest("rl", parsed(union, place, here), {}) for place in ("mine.py", "their-lab")]
    assert len({*first, *second}) == 4


def test_the_short_form_is_what_was_written_out_before(here: Path) -> None:
    """`name: custom` with `function` and `options` is the same stage, so nothing made before has to be made again."""
    cls, spec = stage("reward", "mine.py")
    old = {"name": "custom", "function": "mine.py:brief", "options": {"bonus": 0.5}}
    made = [parse_model(cls, fill_extensions({**spec, "reward": each}, here, HERE), HERE) for each in (spec["reward"], old)]
    assert digest("rl", made[0], {}) == digest("rl", made[1], {})
    assert hashed(made[0])["reward"] == {**old, "source": CODE}
    both = {"name": "mine.py:brief", "bonus": 0.1, "options": {"bonus": 0.5}}
    changed = parse_model(cls, fill_extensions({**spec, "reward": both}, here, HERE), HERE)
    assert digest("rl", changed, {}) == digest("rl", made[1], {}), "what a set changes is not lost"
    with pytest.raises(UserError, match="options: 3 is no mapping"):
        parse_model(cls, fill_extensions({**spec, "reward": {**both, "options": 3}}, here, HERE), HERE)


def test_another_version_than_planned_is_refused_when_the_stage_runs(here: Path) -> None:
    spec: Any = parsed("reward", "their-lab", here)
    (here / "their_lab-1.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: their-lab\nVersion: 1.3\n")
    with pytest.raises(UserError, match=r"planned with their-lab 1\.2, and 1\.3 is installed"):
        extension.load(spec.reward)


@pytest.mark.parametrize(
    ("code", "keys", "says"),
    [
        ("def f(texts): ...", {}, r"f takes \(texts\); its parameters must begin with \(problems, completions"),
        ("def f(problems, verdicts, completions): ...", {}, "must begin with"),
        ("def g(problems, completions, verdicts): ...", {}, "defines no function or class 'f'; did you mean 'g'|known: g"),
        ("def f(problems, completions, verdicts, scale=1): ...", {"scal": 2}, "takes no option 'scal'; did you mean 'scale'"),
        ("def f(problems, completions, verdicts, *, scale): ...", {}, "needs the option 'scale'"),
        ("def f(problems:", {}, "does not parse"),
        ("class f:\n    def select(self, m, step): ...", {}, "is no function"),
        (
            "class O(Model):\n    scale: float\n\ndef f(problems, completions, verdicts, options: O): ...",
            {"scal": 1},
            "takes no option 'scal'; did you mean 'scale'",
        ),
        ("class O(Model):\n    scale: float\n\ndef f(problems, completions, verdicts, options: O): ...", {}, "needs the option"),
    ],
)
def test_a_wrong_signature_is_refused_when_the_study_is_planned(code: str, keys: dict[str, Any], says: str, here: Path) -> None:
    (here / "mine.py").write_text(code)
    spec = {"method": {"paper": "p"}, "mix": [1.0], "steps": 2, "reward": {"name": "mine.py:f", **keys}}
    made = parse_model(RLSpec, fill_extensions(spec, here, HERE), HERE)
    with pytest.raises(UserError, match=rf"^here: reward\.name = 'mine\.py:f': .*({says})"):
        check_extensions(made, HERE)


@pytest.mark.parametrize(
    "code",
    [
        "def f(rows, texts, judged): ...",
        "def f(rows, completions, verdicts, scale=1.0): ...",
        "def f(*given): ...",
        "def f(rows, *others): ...",
        "def f(problems, completions, verdicts=(), /): ...",
    ],
)
def test_parameters_are_passed_by_position_and_may_have_any_names(code: str, here: Path) -> None:
    (here / "mine.py").write_text(code)
    spec = {"method": {"paper": "p"}, "mix": [1.0], "steps": 2, "reward": {"name": "mine.py:f"}}
    check_extensions(parse_model(RLSpec, fill_extensions(spec, here, HERE), HERE), HERE)


@pytest.mark.parametrize(("names", "says"), [("batch, now", ""), ("batch, time", "must begin with")])
def test_the_names_of_an_edits_parameters_say_when_it_acts(names: str, says: str, here: Path) -> None:
    (here / "mine.py").write_text(f"def f({names}): ...")
    spec = {"method": {"paper": "p", "edits": [{"name": "mine.py:f"}]}, "mix": [1.0], "steps": 2}
    made = parse_model(RLSpec, fill_extensions(spec, here, HERE), HERE)
    with pytest.raises(UserError, match=says) if says else contextlib.nullcontext():
        check_extensions(made, HERE)


def test_options_may_be_checked_by_a_model_of_the_users_own() -> None:
    code = "from interplay.core.model import Model\n\n\nclass Options(Model):\n    scale: float\n\n\n"
    code += "def f(problems, completions, verdicts, options: Options):\n    return [options.scale] * len(completions)\n"
    one = Extension(function="mine.py:f", source=code, options={"scale": 2.5})
    assert extension.call(one, [None], [""], []) == [2.5]
    with pytest.raises(UserError, match=r"mine\.py:f: scale = 'x': should be a number"):
        extension.call(one.model_copy(update={"options": {"scale": "x"}}), [None], [""], [])


def test_a_class_may_be_a_sampler(here: Path) -> None:
    code = "from interplay.rl.sampler import Sampler\n\n\nclass Last(Sampler):\n    def __init__(self, deck, back=1):\n"
    code += "        self.id = len(deck) - back\n\n    def select(self, m, step):\n        return [self.id] * m\n"
    (here / "mine.py").write_text(code)
    spec = {"method": {"paper": "p", "sampler": {"name": "mine.py:Last", "back": 2}}, "mix": [1.0], "steps": 2}
    made = parse_model(RLSpec, fill_extensions(spec, here, HERE), HERE)
    check_extensions(made, HERE)
    assert build_sampler(made.method.sampler, PromptSource([5], [1.0], 0)).select(2, 1) == [3, 3]


def test_a_study_names_its_own_reward_in_one_word(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    file = configs / "study/quickstart.yaml"
    old = "rl: {kind: rl, data: {edge: 1.0}"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, f"{old}, reward: {{name: 'mine.py:brief', bonus: 0.1}}", 1))
    (configs / "study/mine.py").write_text(CODE)
    specs = [stage.spec for stage in plan_study(configs, "quickstart", "smoke").stages.values() if isinstance(stage.spec, RLSpec)]
    assert specs[0].reward.name == "custom"
    assert specs[0].reward.options == {"bonus": 0.1}
    (configs / "study/mine.py").write_text("def brief(rows): ...\n")
    with pytest.raises(
        UserError, match=r"quickstart\.yaml:\d+: stages\.rl\.reward\.name = 'mine\.py:brief': brief takes \(rows\)"
    ):
        plan_study(configs, "quickstart", "smoke")


@pytest.mark.parametrize("union", EXTENSIONS)
def test_the_table_says_how_a_member_is_called(union: str) -> None:
    assert len(examples()[union].code.splitlines()) <= 6
    for signature, summary, returns in shown_signature(union):
        assert "->" in signature
        assert summary
        assert returns


SUMS = """
from interplay.core.random import generator
from interplay.tasks.family import Generator, Rendered
from interplay.tasks.verdict import Verdict
from typing import NamedTuple


class Sum(NamedTuple):
    terms: tuple
    mode: str = "plain"


def sums(largest=9):
    def generate(task, seed, index, op):
        return Sum(tuple(int(n) for n in generator("sums", seed, index).integers(1, largest + 1, op + 1)))

    def render(problem, task):
        answer = str(sum(problem.terms))
        return Rendered("+".join(map(str, problem.terms)) + "=", answer, answer)

    def verify(problem, completion, options):
        right = completion == str(sum(problem.terms))
        return Verdict(right, right, float(right), "none" if right else "answer")

    def loads(text):
        terms, mode = __import__("json").loads(text)
        return Sum(tuple(terms), mode)

    def structure(problem):
        return f"{hash(tuple(sorted(problem.terms))) % 2**64:016x}"

    return Generator(
        name="sums", errors=("answer",), loads=loads, verify=verify, generate=generate, render=render,
        solve=lambda prompt, task: str(eval(prompt[:-1])), structure=structure,
        vocabulary=lambda task: [*"0123456789+="],
    )
"""


def test_fresh_models_of_a_study_may_learn_a_family_of_the_users_own(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    file, old = configs / "study/quickstart.yaml", "  - /task@task: op_dag\n"
    text = file.read_text()
    assert old in text
    (configs / "study/mine.py").write_text(SUMS)
    file.write_text(text.replace(old, "") + '\ntask: {name: "mine.py:sums", largest: 4}\n')
    stages = plan_study(configs, "quickstart", "smoke").stages.values()
    assert {canonical(stage.spec)["task"]["source"] for stage in stages if stage.kind in ("problems", "tokenizer")} == {SUMS}
    for wrong, says in [("mine.py:sum", "defines no function or class 'sum'"), ("absent:sums", "no distribution 'absent'")]:
        file.write_text(text.replace(old, "") + f'\ntask: {{name: "{wrong}"}}\n')
        with pytest.raises(UserError, match=rf"quickstart\.yaml:\d+: task\.name = .*{says}"):
            plan_study(configs, "quickstart", "smoke")


def test_rl_on_a_family_of_the_users_own_waits_for_its_audit(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    file, old = configs / "study/quickstart.yaml", "  - /task@task: op_dag\n"
    (configs / "study/mine.py").write_text(SUMS)
    text = file.read_text().replace(old, "") + '\ntask: {name: "mine.py:sums", largest: 4}\n'
    file.write_text(text)
    stages = plan_study(configs, "quickstart", "smoke").stages
    audits = {stage.digest for stage in stages.values() if stage.kind == "audit"}
    trained = [stage for stage in stages.values() if stage.kind == "rl"]
    assert audits
    assert all(stage.deps["audit.0"] in audits for stage in trained)
    (report,) = [stage for stage in stages.values() if stage.kind == "report"]
    assert audits <= set(report.deps.values())  # the page has a line on them
    file.write_text(text.replace("rl: {kind: rl,", "rl: {kind: rl, accept_audit: a known fault,", 1))
    digests = [stage.digest for stage in trained]
    accepted = [stage for stage in plan_study(configs, "quickstart", "smoke").stages.values() if stage.kind == "rl"]
    assert all(stage.deps["accepted.0"] in audits and "audit.0" not in stage.deps for stage in accepted)
    assert [stage.digest for stage in accepted] == digests  # an audit decides whether a stage runs, not what it makes


@pytest.mark.parametrize(("faulty", "calibrated"), [(False, False), (True, False), (False, True)])
def test_rl_is_refused_where_the_audit_of_its_problems_failed(tmp_path: Path, faulty: bool, calibrated: bool) -> None:
    (tmp_path / "mine.py").write_text(
        SUMS.replace(
            "right = completion == str",
            "right = completion == '24' or completion == str" if faulty else "right = completion == str",
        )
    )
    bands: dict[str, Any] = {"bands": {}, "calibrated": {"id": [1, 2]}} if calibrated else {"bands": {"id": {1: 1.0}}}
    given = {**bands, "shares": {"id": 1.0}, "size": 24, "split": "train", "unique": False}
    write_json(tmp_path / "calibration" / "bands.json", {"id": [1]})
    spec = fill_extensions({**given, "task": {"name": "mine.py:sums", "largest": 40}}, tmp_path, HERE)
    made, out = parse_model(ProblemsSpec, spec, HERE), tmp_path / "set"
    generate_problems(made, {"calibration": tmp_path / "calibration"}, out, Run())
    write_json(out / "stage.json", {"digest": "a" * 12})
    finish(out, {"kind": "problems", "digest": "a" * 12, "spec": spec, "deps": {}}, {})
    folder, stage = tmp_path / "audit" / ("b" * 12), {"kind": "audit", "digest": "b" * 12, "spec": {"rows": 24}, "deps": {}}
    folder.mkdir(parents=True)
    metrics = audit.audit_set(AuditSpec(), {"data": out}, folder, Run())
    finish(folder, stage, metrics)
    assert metrics == {"rows": 24, "failed": ["constant"] if faulty else []}
    card = stage_card("b" * 12, None, {"b" * 12: stage}, [], tmp_path, tmp_path, False)
    assert ("FAILED  constant" in card, "ok      gold" in card) == (faulty, True)
    if faulty:
        with pytest.raises(PermanentError, match=r"audit\.0: the audit .* failed: constant; correct the task"):
            audit.refuse_failed({"audit.0": folder})
    audit.refuse_failed({"audit.0" if not faulty else "accepted.0": folder})


def test_a_family_of_the_users_own_generates_problems_and_judges_them_in_later_stages(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SUMS)
    given = {"bands": {"id": {1: 1.0}}, "shares": {"id": 1.0}, "size": 6, "split": "train", "unique": False}
    spec = fill_extensions({**given, "task": {"name": "mine.py:sums", "largest": 4}}, tmp_path, HERE)
    made = parse_model(ProblemsSpec, spec, HERE)
    check_extensions(made, HERE)
    generate_problems(made, {}, tmp_path / "set", Run())
    write_json(tmp_path / "set/stage.json", {"digest": "a" * 12})
    curate = parse_model(CurateSpec, {"mix": [1.0], "steps": [{"name": "take", "size": 3}]}, HERE)
    curate_problems(curate, {"data.0": tmp_path / "set"}, tmp_path / "less", Run())
    write_json(tmp_path / "less/stage.json", {"digest": "b" * 12})
    families._OWN.clear()  # as in another process
    rows = load_pool([tmp_path / "less"]).rows
    assert len(rows) == 3
    assert rows[0].family.startswith("mine.py:sums@")
    assert judge_completion(Verify(), rows[0], rows[0].answer).strict
    assert not judge_completion(Verify(), rows[0], "0").strict
    lenient = OwnVerifier(
        function="v.py:f", source="def f(row, completion, verdict):\n    return verdict._replace(answer=True)\n"
    )
    assert judge_completion(Verify(own=lenient), rows[0], "0").answer


def test_a_trainer_of_the_users_own_is_a_stage_of_a_path(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    file = configs / "study/quickstart.yaml"
    before = "  rl: {kind: rl, data: {edge: 1.0}"
    text = file.read_text().replace(before, f"  same: {{kind: 'mine.py:copied', data: {{edge: 1.0}}}}\n{before}", 1)
    file.write_text(text.replace("path: [base, rl]", "path: [base, same, rl]", 1))
    (configs / "study/mine.py").write_text(CODE)
    stages = plan_study(configs, "quickstart", "smoke").stages
    (made,) = [stage for stage in stages.values() if stage.kind == "custom"]
    assert isinstance(made.spec, OwnTrainerSpec)
    assert set(made.deps) == {"init", "data.0"}
    assert [stage.kind for stage in stages.values() if stage.deps.get("init") == made.digest] == ["rl"]
    tokenizer.build_tokenizer(TokenizerSpec(task=OpDag()), {}, tmp_path / "words", Run())
    decoder = folder.init_decoder(SHAPE, 50, 0)
    folder.save_decoder(decoder, tmp_path / "base/model", tmp_path / "words/tokenizer")
    metrics = loop.run_custom_trainer(made.spec, {"init": tmp_path / "base"}, tmp_path / "out", Run())
    assert metrics["copied"] == 1
    assert metrics["parameters"] > 0
    broken = made.spec.model_copy(update={"source": made.spec.source.replace('"copied": 1', '"copied": "x"')})
    with pytest.raises(UserError, match=r"mine\.py:copied: must return metrics, finite numbers by name; 'copied' is none"):
        loop.run_custom_trainer(broken, {"init": tmp_path / "base"}, tmp_path / "out", Run())


def test_a_library_is_compiled_elsewhere_where_the_package_cannot_be_written_and_none_of_others_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, elsewhere = tmp_path / "package", tmp_path / "elsewhere"
    for place in (package, elsewhere):
        place.mkdir()
    (package / "one.c").write_text("int one(void) { return 1; }")

    def compile_one(compiler: list[str], sources: list[Path], flags: list[str], path: Path) -> None:
        if path.is_relative_to(package):
            raise OSError(30, "Read-only file system")
        path.write_bytes(b"")

    monkeypatch.setattr(extension, "_compile", compile_one)
    monkeypatch.setattr(extension.tempfile, "tempdir", str(elsewhere))
    compiler = [sys.executable]
    made = extension._compiled(compiler, package, ())
    assert made.exists()
    assert made.is_relative_to(elsewhere)
    uid = made.parent.stat().st_uid + 1
    made.parent.rename(elsewhere / f"interplay-package-{uid}")
    monkeypatch.setattr(extension.os, "getuid", lambda: uid)
    with pytest.raises(PermissionError):
        extension._compiled(compiler, package, ())
