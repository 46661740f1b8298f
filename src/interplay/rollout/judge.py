"""A language model that judges completions by a rubric: behind an HTTP endpoint, or a model of the study; and one that judges
episodes of several seats."""

import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from interplay.core import artifact, metrics, model
from interplay.data import tokenizer as text
from interplay.rollout import seat_spec as specs
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Sampling
from interplay.rollout.spec import SeatsEpisode
from interplay.rollout.turns import Setting, Thread, sample_turns
from interplay.tasks.verdict import Row

ASKED_AT_ONCE = 8
NUMBER = r"[+-]?\d*\.?\d+"
PATIENCE = (0.0, 1.0, 4.0, 15.0)
"""Seconds before each try of a question at an endpoint."""


class Asked:
    """A model of the study that judges."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        """`folder`: of its stage."""
        self.engine, self.encoder, self.special = engine, text.load(folder), text.special(folder)
        self.added = [one.content for one in self.encoder.get_added_tokens_decoder().values() if one.content]

    def answers(self, texts: Sequence[str], most: int) -> list[str]:
        """What it says to each text, of `most` tokens, the likeliest token each time. Raises UserError when its tokenizer lacks a
        character."""
        asked = [Request(prompt, i, 0, 1) for i, prompt in enumerate(text.encode_texts(self.encoder, texts))]
        drawn = self.engine.generate(asked, Sampling(0.0, 1.0, 0, most, 0, self.special.eos, self.special.pad))
        return self.encoder.decode_batch(drawn.written())

    def without_special(self, said: str) -> str:
        """A text that cannot end a turn of the judge's template: without its special tokens."""
        while found := next((token for token in self.added if token in said), None):
            said = said.replace(found, "")
        return said


class Judge:
    """Asks for scores, and keeps the answers in a file of the stage."""

    FILE = "judgements.jsonl"

    def __init__(self, url: str, out: Path, models: Mapping[str, Asked] = MappingProxyType({})) -> None:
        """`url`: the endpoint, where rubrics name none of the `models`, by role."""
        self.url, self.path, self.models = url.rstrip("/"), out / self.FILE, models
        whole = metrics.whole_lines(self.path)
        self.known: dict[str, str] = {one["key"]: one["answer"] for one in map(json.loads, whole)}
        if self.path.exists():  # answers are appended, so a line that a kill tore must go
            artifact.write_atomic(self.path, "".join(f"{line}\n" for line in whole).encode())

    def scores(self, spec: specs.Rubric, problems: Sequence[Row], completions: Sequence[str]) -> list[float]:
        """The score of each completion, in [0, 1]. Raises UserError where the endpoint refuses, or an answer holds no score."""
        own = self.models.get(spec.arm)
        said = [own.without_special(one) for one in completions] if own else completions
        texts = [_question(spec, row, one) for row, one in zip(problems, said, strict=True)]
        who = spec.arm or spec.model
        keys = [hashlib.sha256(json.dumps([who, spec.max_tokens, one]).encode()).hexdigest() for one in texts]
        fresh = {key: one for key, one in zip(keys, texts, strict=True) if key not in self.known}
        if fresh:
            answers = dict(zip(fresh, self._answers(spec, own, list(fresh.values())), strict=True))
            lines = [json.dumps({"key": key, "model": who, "answer": one}) for key, one in answers.items()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            self.known |= answers
        return [read_score(spec, self.known[key]) for key in keys]

    def _answers(self, spec: specs.Rubric, own: Asked | None, texts: list[str]) -> list[str]:
        if own:
            return own.answers(texts, spec.max_tokens)
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            return list(pool.map(partial(self._ask, spec), texts))

    def _ask(self, spec: specs.Rubric, question: str) -> str:
        """One answer; retries where the server is busy or does not answer. Raises UserError where it refuses the request."""
        asked = {"model": spec.model, "temperature": 0, "max_tokens": spec.max_tokens}
        body = json.dumps({**asked, "messages": [{"role": "user", "content": question}]}).encode()
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        address = f"{self.url}/chat/completions"
        for seconds in PATIENCE:
            time.sleep(seconds)
            try:
                with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=300) as reply:
                    found = json.load(reply)
                return str(found["choices"][0]["message"]["content"])
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    said = error.read(200).decode(errors="replace")
                    remedy = "correct the address, the name of the model, or OPENAI_API_KEY"
                    raise model.UserError(
                        f"run.judge = {self.url}: answers {error.code} to model '{spec.model}': {said}; {remedy}"
                    ) from None
                why: Exception = error
            except (OSError, ValueError, LookupError, TypeError) as error:
                why = error
        raise ConnectionError(f"run.judge = {self.url}: no answer after {len(PATIENCE)} tries ({type(why).__name__}: {why})")

    def close(self) -> None:
        """Let go of its models."""
        for one in self.models.values():
            one.engine.close()


def open_judge(
    rubrics: Sequence[specs.Rubric], inputs: Mapping[str, Path], url: str, out: Path, load: Callable[[Path], Engine]
) -> Judge | None:
    """What asks for the scores of these rubrics, whose arms are roles by now; None: nothing is asked. `load`: an engine of the
    model of a stage."""
    roles = sorted({one.arm for one in rubrics if one.arm})
    return Judge(url, out, {role: Asked(inputs[role], load(inputs[role])) for role in roles}) if rubrics else None


def judged_samples(
    table: pa.Table, rubrics: Mapping[str, specs.Rubric], judge: Judge, rows: Sequence[Row], completions: Sequence[str]
) -> pa.Table:
    """The rows of `samples.parquet` with the score that each rubric gives them, a column `judged:NAME` for each."""
    for name, rubric in sorted(rubrics.items()):
        scores = judge.scores(rubric, rows, completions)
        table = table.append_column(f"{specs.JUDGED}{name}", pa.array(scores, pa.float64()))
    return table


def _question(spec: specs.Rubric, row: Row, completion: str) -> str:
    """The rubric with its places filled in, each once: a text that holds such a place is not filled again."""
    return specs.filled(spec.rubric, {name: getattr(row, name) for name in specs.FIELDS} | {"completion": completion})


def read_score(spec: specs.Rubric, answer: str) -> float:
    """The last score of an answer, divided by the largest. Raises UserError where there is none in the range."""
    found = re.findall(spec.pattern, answer)
    number = float(found[-1]) if found and re.fullmatch(NUMBER, found[-1]) else None
    if number is not None and 0 <= number <= spec.largest:
        return number / spec.largest
    if spec.unreadable is not None:
        return spec.unreadable
    said = model.shorten_value(answer)
    remedy = f"say in the rubric to end with a number from 0 to {spec.largest:g}, correct pattern, or write unreadable: 0"
    raise model.UserError(f"judge {spec.arm or spec.model}: no score in its answer {said}; {remedy}")


# Judges among the seats of an episode.


def seat_marks(
    spec: SeatsEpisode, setting: Setting, asked: Sequence[Request], episodes: Sequence[tuple[Thread, Row, Sequence[str]]]
) -> list[float | None]:
    """What the judges among the seats pay, all together; None: there is none. `episodes`: of each the thread of its first seat,
    its row, and all turns, each with the name of its seat."""
    marks: list[float | None] = [None] * len(episodes)
    judges = [one for _, one in sorted(spec.seats.items()) if isinstance(one, specs.JudgeSeat)]
    for place, judge in enumerate(judges):
        threads = []
        for first, row, lines in episodes:
            said = {field: getattr(row, field) for field in specs.FIELDS} | {"episode": "".join(lines)}
            thread = Thread(first.request, first.sample, [])
            text = specs.filled(judge.brief, said)
            thread.observe(text, setting.encode([text], special=False)[0])
            threads.append(thread)
        sample_turns(setting._replace(engine=setting.others[judge.model]), asked, threads, spec.max_turns + place)
        for i, thread in enumerate(threads):
            found = re.search(judge.pattern, thread.said[0])
            if found and not re.fullmatch(NUMBER, found[1] or ""):
                raise model.UserError(f"judge {judge.model}: pattern '{judge.pattern}' finds {found[1]!r}, no number; correct it")
            marks[i] = (marks[i] or 0.0) + (float(found[1]) if found else 0.0)
    return marks
