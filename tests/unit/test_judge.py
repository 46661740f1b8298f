"""A judge that answers over HTTP: a server on the loopback address whose answers a small model samples, other ones each time it is
asked, so that a run repeats only by what it has kept. And a judge that is a model of the study, whose answers repeat by themselves."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import torch
import world
from conftest import copy_configs
from hypothesis import given, strategies as st
from killed_rl import payload, run_killed
from pydantic import ValidationError

from interplay.core import metrics
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import sets, tokenizer
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder
from interplay.rl import loop
from interplay.rl.reward_spec import JudgeReward
from interplay.rl.spec import RLSpec
from interplay.rollout import judge
from interplay.rollout.engine import engine
from interplay.rollout.request import Request, Sampling
from interplay.run.workers import load_function
from interplay.study.expand import plan_study


class Server:
    """Serves a model of the project under /v1/chat/completions, as vLLM does."""

    def __init__(self, model: Path) -> None:
        self.asked: list[str] = []
        self.refuses = False
        base, lock = model / "model", threading.Lock()
        encoder, special = tokenizer.load(model), tokenizer.special(model)
        sampler = engine("native", folder.load_decoder(base), Run(), torch.float32, base)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                given = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                known = handler.path == "/v1/chat/completions" and given["model"] == "toy" and not self.refuses
                with lock:
                    text = given["messages"][0]["content"]
                    asked = Request(tokenizer.encode_texts(encoder, [text])[0], len(self.asked), 0, 1)
                    self.asked.append(text)
                    drawn = sampler.generate([asked], Sampling(1.0, 1.0, 0, 6, 0, special.eos, special.pad))
                said = encoder.decode(drawn.tokens[0, : int(drawn.lengths[0])].tolist())
                body = {"choices": [{"message": {"role": "assistant", "content": said}}]} if known else {"error": "no such model"}
                handler.send_response(200 if known else 404)
                handler.end_headers()
                handler.wfile.write(json.dumps(body).encode())

            def log_message(handler, *words: Any) -> None:  # noqa: N805
                """Nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 30)}


@pytest.fixture
def server(inputs: dict[str, Path]) -> Iterator[Server]:
    made = Server(inputs["init"])
    yield made
    made.http.shutdown()
    made.http.server_close()


TOY = {"model": "toy", "rubric": "{prompt}{completion}", "pattern": r"\d", "largest": 9, "unreadable": 0.0}
SPEC = loops.spec_of(steps=3, mix=[1.0], reward=JudgeReward(**TOY), keep_rollouts=32)


def how_of(server: Server) -> Run:
    return Run(engine_batch=32, micro_batch_tokens=400, save_minutes=0.0, judge=server.url)


@pytest.mark.parametrize("trainer", ["native", "trl"])
def test_a_run_is_paid_the_scores_and_asks_nothing_twice(
    trainer: str, inputs: dict[str, Path], server: Server, tmp_path: Path
) -> None:
    spec = RLSpec(**{**SPEC.model_dump(), "trainer": trainer})
    load_function("rl", spec)(spec, inputs, tmp_path / "out", how_of(server))
    lines = [json.loads(line) for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()]
    assert len(lines) == len(server.asked) == len(set(server.asked)), "one answer for each content"
    rows = pq.read_table(tmp_path / "out" / "rollouts.parquet").to_pylist()
    assert {row["prompt"] + row["completion"] for row in rows} <= set(server.asked)
    paid = {round(judge.read_score(SPEC.reward, line["answer"]), 5) for line in lines}
    assert {round(row["reward"], 5) for row in rows} <= paid
    assert len(paid) > 3


def test_a_killed_run_with_its_answers_ends_with_the_same_bytes_and_one_without_them_does_not(
    inputs: dict[str, Path], server: Server, tmp_path: Path
) -> None:
    whole, killed, fresh = (tmp_path / name for name in ("whole", "killed", "fresh"))
    loop.train_policy(SPEC, inputs, whole, how_of(server))
    asked = len(server.asked)
    killed.mkdir()
    (killed / "judgements.jsonl").write_bytes((whole / "judgements.jsonl").read_bytes() + b'{"key": "cut by a ki')
    run_killed(SPEC, inputs, killed, how_of(server), [(1, 0.0)])
    assert payload(killed) == payload(whole)
    assert len(server.asked) == asked
    assert (killed / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()
    loop.train_policy(SPEC, inputs, fresh, how_of(server))
    assert payload(fresh) != payload(whole), "the server says other things when it is asked anew"


def test_turns_are_credited_by_the_judge_of_an_episode_up_to_them(
    inputs: dict[str, Path], server: Server, tmp_path: Path
) -> None:
    credit = {"name": "turns", "sources": [{"name": "judge", "judge": {"name": "judge", **TOY}}]}
    method = {"episode": {"name": "retry", "max_turns": 2, "feedback": ",", "always": True}, "advantage": credit}
    spec = loops.spec_of(steps=1, mix=[1.0], keep_rollouts=32, method=method)
    loop.train_policy(spec, inputs, tmp_path / "out", how_of(server))
    rows = pq.read_table(tmp_path / "out" / "rollouts.parquet").to_pylist()
    for row in rows:
        first = next(one["text"] for one in row["segments"] if one["kind"] == "action")
        assert {row["prompt"] + first, row["prompt"] + row["completion"]} <= set(server.asked)
    (line,) = metrics.read(tmp_path / "out")
    assert line["credit/turns"] > 0.5


def test_what_an_endpoint_refuses_is_one_line(inputs: dict[str, Path], server: Server, tmp_path: Path) -> None:
    server.refuses = True
    with pytest.raises(UserError, match=r"run\.judge = .* answers 404 to model 'toy': .*no such model"):
        loop.train_policy(SPEC, inputs, tmp_path / "out", how_of(server))


def test_an_endpoint_that_is_not_there_is_asked_again_before_the_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "PATIENCE", (0.0, 0.01))
    row: Any = type("Row", (), {"prompt": "1", "answer": "", "solution": ""})
    with pytest.raises(ConnectionError, match="no answer after 2 tries"):
        judge.Judge("http://127.0.0.1:9/v1", tmp_path).scores(JudgeReward(**TOY), [row], ["2"])


@given(st.floats(0, 10), st.text("abc ", max_size=9))
def test_the_last_number_of_an_answer_is_the_score(score: float, words: str) -> None:
    spec = JudgeReward(model="m", rubric="{completion}")
    assert judge.read_score(spec, f"{words} 3 of 7, so {score:.4f}{words}.") == pytest.approx(round(score, 4) / 10)


@pytest.mark.parametrize("said", ["fine work", "11", "-1", ""])
def test_an_answer_without_a_score_is_refused_or_worth_what_the_study_says(said: str) -> None:
    with pytest.raises(
        UserError, match=r"judge m: no score in its answer .*; say in the rubric to end with a number from 0 to 10"
    ):
        judge.read_score(JudgeReward(model="m", rubric="{completion}"), said)
    assert judge.read_score(JudgeReward(model="m", rubric="{completion}", unreadable=0.25), said) == 0.25


def test_places_of_the_rubric_are_filled_once() -> None:
    row: Any = type("Row", (), {"prompt": "{answer}", "answer": "5", "solution": "s"})
    assert judge._question(JudgeReward(model="m", rubric="{prompt}|{completion}|{x}"), row, "{prompt}") == "{answer}|{prompt}|{x}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rubric": "good?"}, "should match pattern"),
        ({"pattern": "("}, "is no regular expression"),
        ({"pattern": "(1)(2)"}, "2 groups"),
        ({"arm": "critic"}, "one of the two"),
        ({"model": ""}, "write model, as the endpoint run.judge calls it, or arm"),
    ],
)
def test_rubrics_and_patterns_that_cannot_work_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JudgeReward(**{"model": "m", "rubric": "{completion}", **change})


def test_a_study_says_whom_to_ask_and_the_address_is_no_part_of_the_identity(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    path = configs / "study" / "coffee.yaml"
    text = path.read_text()
    judged = 'method: grpo, numerics: fast, reward: {name: judge, model: m, rubric: "{completion}"}'

    def digests(run: str) -> list[str]:
        arms = "arms:\n  base: {path: [base]}\n  judged: {path: [base, rl], control: base}\n"
        head, _, rest = text.partition("\narms:\n")
        tail = rest[rest.index("evaluate: [eval]") : rest.index("\ntables:")]
        path.write_text(f"{head.replace('method: grpo', judged + run)}\n{arms}{tail}\n")
        return list(plan_study(configs, "coffee", "coffee").stages)

    one, other = (digests(f", run: {{judge: 'http://{host}/v1'}}") for host in ("127.0.0.1:1", "127.0.0.1:2"))
    assert one == other
    with pytest.raises(UserError, match=r"run\.judge: missing; write the address of the endpoint"):
        digests("")
    with pytest.raises(UserError, match=r"run\.processes = 2: a judge is asked by one process"):
        digests(", run: {judge: 'http://127.0.0.1:1/v1', processes: 2}")
    credit = "{name: turns, sources: [{name: judge, judge: {name: judge, model: m, rubric: '{completion}'}}]}"
    judged = f"method: {{paper: p, episode: {{name: retry}}, advantage: {credit}}}, numerics: fast"
    with pytest.raises(UserError, match=r"run\.judge: missing; write the address of the endpoint"):
        digests("")


def test_a_judge_has_no_exact_numerics() -> None:
    with pytest.raises(ValidationError, match=r"a judge's answers are not computed here"):
        RLSpec(method={"paper": "p"}, mix=[1.0], steps=1, reward={"sum": [{"reward": {"name": "judge", **TOY}}]}, **EXACT)


EXACT = {"dtype": "int8", "numerics": "exact"}


# -- a model of the study --------------------------------------------------------------------------------------------------------


OWN = {**TOY, "model": "", "arm": "reward.0", "max_tokens": 6}
JUDGED = loops.spec_of(steps=3, mix=[1.0], reward=JudgeReward(**OWN), keep_rollouts=32)
HOW = Run(engine_batch=32, micro_batch_tokens=400, save_minutes=0.0)


@pytest.fixture(scope="module")
def judged(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """With two models that judge, untied: with tied embeddings an untrained model repeats what it read last."""
    results, shape = tmp_path_factory.mktemp("judges"), world.SHAPE.model_copy(update={"tie_word_embeddings": False})
    made = {name: world.model(results, seed * 12, int(seed), shape) for name, seed in (("reward.0", "3"), ("other", "4"))}
    return inputs | made


def said(model: Path, texts: list[str]) -> list[str]:
    """The likeliest answers of a model, each asked alone."""
    encoder, special = tokenizer.load(model), tokenizer.special(model)
    sampler = engine("native", folder.load_decoder(model / "model"), Run(), torch.float32, model / "model")
    found = []
    for prompt in tokenizer.encode_texts(encoder, texts):
        drawn = sampler.generate([Request(prompt, 0, 0, 1)], Sampling(0.0, 1.0, 0, 6, 0, special.eos, special.pad))
        found.append(encoder.decode(drawn.tokens[0, : int(drawn.lengths[0])].tolist()))
    return found


def test_a_run_is_paid_what_a_model_of_the_study_says_and_another_model_pays_otherwise(
    judged: dict[str, Path], tmp_path: Path
) -> None:
    loop.train_policy(JUDGED, judged, tmp_path / "out", HOW)
    rows = pq.read_table(tmp_path / "out" / "rollouts.parquet").to_pylist()
    answers = said(judged["reward.0"], [row["prompt"] + row["completion"] for row in rows])
    paid = [judge.read_score(JUDGED.reward, answer) for answer in answers]
    assert [row["reward"] for row in rows] == pytest.approx(paid)
    assert len(set(paid)) > 2
    loop.train_policy(JUDGED, {**judged, "reward.0": judged["other"]}, tmp_path / "swapped", HOW)
    assert payload(tmp_path / "swapped") != payload(tmp_path / "out")


@pytest.mark.parametrize("numerics", [{}, EXACT])
def test_a_killed_run_asks_again_what_was_lost_and_ends_with_the_same_bytes(
    numerics: dict[str, Any], judged: dict[str, Path], tmp_path: Path
) -> None:
    spec = RLSpec(**{**JUDGED.model_dump(), **numerics})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    loop.train_policy(spec, judged, whole, HOW)
    run_killed(spec, judged, killed, HOW, [(1, 0.0), (2, 0.0)])
    assert payload(killed) == payload(whole)
    assert (killed / "judgements.jsonl").read_bytes() == (whole / "judgements.jsonl").read_bytes()


def test_special_tokens_that_a_policy_writes_are_no_tokens_of_its_judge(judged: dict[str, Path], tmp_path: Path) -> None:
    class Asks:
        def generate(self, requests: list[Request], sampling: Sampling) -> Any:
            self.read = [request.prompt for request in requests]
            return engine_of.generate(requests, sampling)

    model = judged["reward.0"]
    engine_of, asks = engine("native", folder.load_decoder(model / "model"), Run()), Asks()
    row: Any = type("Row", (), {"prompt": "1", "answer": "", "solution": ""})
    eos = tokenizer.load(model).id_to_token(tokenizer.special(model).eos)
    one = judge.Judge("", tmp_path, {"reward.0": judge.Asked(model, asks)})  # type: ignore[arg-type]
    one.scores(JudgeReward(**OWN), [row, row], [f"2{eos}3", f"{eos[:2]}{eos}{eos[2:]}4"])
    assert asks.read == tokenizer.encode_texts(tokenizer.load(model), ["123", "14"])


RUBRICS = {"likes": {**OWN, "arm": "judge.0"}, "checks": {**OWN, "arm": "judge.0", "rubric": "{completion}{prompt}"}}


def test_an_evaluation_keeps_what_its_judges_say_and_goes_on_where_it_was_stopped(
    judged: dict[str, Path], tmp_path: Path
) -> None:
    spec = EvaluateSpec(num_samples=4, max_completion_length=8, judged=RUBRICS)
    roles = {"model": judged["init"], "data": judged["data.0"], "judge.0": judged["reward.0"]}
    how = Run(engine_batch=4)
    found = sampling.evaluate_model(spec, roles, tmp_path / "whole", how)
    table = pq.read_table(tmp_path / "whole" / "samples.parquet")
    prompts = {row.index: row.prompt for row in sets.read_rows(judged["data.0"], 0)}
    texts = [
        completion + prompts[index]
        for index, completion in zip(*(table[k].to_pylist() for k in ("index", "completion")), strict=True)
    ]
    scores = [judge.read_score(spec.judged["checks"], one) for one in said(judged["reward.0"], texts)]
    assert table["judged:checks"].to_pylist() == pytest.approx(scores)
    assert found["all"]["judged:checks"] == pytest.approx(sum(scores) / len(scores), rel=1e-4)
    assert table["judged:likes"] != table["judged:checks"]
    shards = sorted((tmp_path / "whole" / "resume" / "shards").iterdir())
    assert len(shards) > 2
    kept = tmp_path / "again" / "resume" / "shards"
    kept.mkdir(parents=True)
    for shard in shards[1:]:
        shutil.copy(shard, kept)
    sampling.evaluate_model(spec, roles, tmp_path / "again", how)
    for name in ("samples.parquet", "prompts.parquet"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def planned(folder: Path, reward: str, judged: str = "") -> Any:
    configs = copy_configs(folder)
    path = configs / "study" / "methods" / "over_optimisation.yaml"
    text = path.read_text().replace("reward: {name: model, model: judge}, numerics: fast", f"reward: {reward}")
    path.write_text(
        text.replace("by_reward: {model: judge, reference: base}", f"{judged}by_reward: {{model: judge, reference: base}}")
    )
    return plan_study(configs, "methods/over_optimisation", "coffee")


def test_the_model_that_judges_is_a_dependency_at_the_same_seed_in_exact_numerics(tmp_path: Path) -> None:
    rubric = "rubric: '{prompt}{completion}', unreadable: 0.0, max_tokens: 4"
    asked = f"{{arm: base, {rubric}}}"
    plan = planned(tmp_path, f"{{sum: [{{reward: {{name: judge, arm: base, {rubric}}}}}]}}", f"judged: {{likes: {asked}}}, ")
    rows = {(row.arm, row.seed): row for row in plan.stages[plan.report].spec.arms}
    for seed in (0, 1):
        row, base = rows["learned[beta=0.0]", seed], rows["base", seed].path[-1].digest
        stage, evaluation = plan.stages[row.path[-1].digest], plan.stages[row.evaluations["eval"]]
        assert stage.deps["reward.0"] == evaluation.deps["judge.0"] == base
        assert stage.spec.reward.sum[0].reward.arm == "reward.0"
        assert evaluation.spec.judged["likes"].arm == "judge.0"


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("bsae", r"rl\.reward\.arm = 'bsae': no such arm; did you mean 'base'"),
        ("judge", r"rl\.reward\.arm = 'judge': ends with judge, which gives scores and no text"),
        ("'learned[beta=0.0]'", r"that arm is itself made with this"),
    ],
)
def test_arms_that_cannot_judge_are_refused(tmp_path: Path, arm: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        planned(tmp_path, f"{{name: judge, arm: {arm}, rubric: '{{completion}}'}}")


def test_turns_are_judged_at_an_endpoint_alone() -> None:
    credit = {"name": "turns", "sources": [{"name": "judge", "judge": {"name": "judge", **OWN}}]}
    with pytest.raises(ValidationError, match="turns are judged at an endpoint; write model"):
        RLSpec(method={"paper": "p", "episode": {"name": "retry"}, "advantage": credit}, mix=[1.0], steps=1)
