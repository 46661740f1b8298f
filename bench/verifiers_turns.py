"""Rollouts over many turns of verifiers' own loop, over the world, the model and the engine of bench/turns.py.

    python -m venv hub && hub/bin/pip install -e . verifiers==0.4.0 uv
    OMP_NUM_THREADS=1 hub/bin/python bench/verifiers_turns.py [--samples 8]

verifiers plays an episode by a program of its own (harness `null`, runtime `subprocess`), which asks an OpenAI-compatible
endpoint by way of its proxy. The endpoint is here: it answers all that wait in one batch of the native engine, in a process of
its own. An episode of the project calls the engine itself. CPU seconds are those of the loop, with its programs, and of the
endpoint."""

import argparse
import asyncio
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import turns  # bench/turns.py
from grpo import NANO  # bench/grpo.py

from interplay.core.execution import Run
from interplay.data import tokenizer as text
from interplay.data.spec import TokenizerSpec
from interplay.model import folder
from interplay.rollout.engine import engine
from interplay.rollout.request import Request

GATHER = 0.02
"""Seconds that the endpoint waits for others once it is asked."""


def serve(place: Path) -> None:
    """Answer until the process is ended: prints the port, and on GET the CPU seconds so far."""
    encoder, made = text.load(place), engine("native", folder.load_decoder(place / "model"), Run())
    waiting: queue.Queue[tuple[list[int], queue.Queue[str]]] = queue.Queue()

    def answer() -> None:
        number = 0
        while True:
            asked = [waiting.get()]
            time.sleep(GATHER)
            while not waiting.empty():
                asked.append(waiting.get())
            requests = [Request(ids, number + i, 0, 1) for i, (ids, _) in enumerate(asked)]
            number += len(asked)
            drawn = made.generate(requests, turns.SAMPLING)
            for (_, back), said in zip(asked, encoder.decode_batch(drawn.tokens.tolist()), strict=True):
                back.put(said)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(time.process_time())

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ids = encoder.encode("".join(one["content"] for one in given["messages"])).ids
            back: queue.Queue[str] = queue.Queue()
            waiting.put((ids, back))
            said, finished = {"role": "assistant", "content": back.get()}, {"index": 0, "finish_reason": "stop"}
            usage = {"prompt_tokens": len(ids), "completion_tokens": turns.NEW, "total_tokens": len(ids) + turns.NEW}
            known = {"id": "0", "created": 0, "model": given["model"], "usage": usage}
            if not given.get("stream"):
                return self.reply({**known, "object": "chat.completion", "choices": [{**finished, "message": said}]})
            chunk = json.dumps({**known, "object": "chat.completion.chunk", "choices": [{**finished, "delta": said}]})
            self.reply(f"data: {chunk}\n\ndata: [DONE]\n\n", "text/event-stream")

        def reply(self, said: Any, form: str = "application/json") -> None:
            body = (said if form == "text/event-stream" else json.dumps(said)).encode()
            self.send_response(200)
            self.send_header("Content-Type", form)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            """Nothing."""

    threading.Thread(target=answer, daemon=True).start()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(http.server_port, flush=True)
    http.serve_forever()


async def play(place: Path, url: str, samples: int) -> int:
    """The episodes of verifiers. Turns that were played."""
    import verifiers.v1 as vf
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig
    from verifiers.v1.utils import loaders

    taskset = {"id": "interplay-tasks", "problems": {"name": "patient.py:Patient"}, "folder": str(place), "size": turns.PROMPTS}
    player = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": turns.TURNS}
    env = loaders.load_environment(loaders.resolve_env_config({"taskset": taskset, "player": player}))
    sampling = vf.SamplingConfig(temperature=1.0, max_tokens=turns.NEW)
    asked = ModelContext("nano", EvalClientConfig(base_url=url, api_key_var="NANO_KEY"), sampling)
    slots = [slot for task in env.taskset for slot in env.slots(task, samples)]
    async with env.serving():
        found = await asyncio.gather(*(env.run_slot(slot, asked) for slot in slots))
    for one in found:
        if not one.ok:
            raise RuntimeError(f"{one.errors} {[trace.errors for trace in one.traces]}")
    return sum(int(one.traces[0].metrics["turns"]) for one in found)


def spent() -> float:
    """CPU seconds of this process and of the programs that it has ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    import urllib.request

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=turns.SAMPLES, help="episodes of a prompt")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve)
    os.environ["NANO_KEY"] = "none"
    turns.SAMPLES, turns.EPISODES = given.samples, turns.PROMPTS * given.samples
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "patient.py").write_text(turns.TASK.source)
        text.build_tokenizer(TokenizerSpec(task=turns.TASK), {}, place, Run())
        decoder = folder.init_decoder(NANO, text.load(place).get_vocab_size(), seed=0)
        folder.save_decoder(decoder, place / "model", place / "tokenizer")
        _, once = turns.ours(place, turns.problem_rows(), "float32")
        before = spent()
        once()
        own = spent() - before
        with subprocess.Popen([sys.executable, __file__, "--serve", name], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                root = f"http://127.0.0.1:{int(server.stdout.readline())}"
                at_first = json.load(urllib.request.urlopen(root))
                before = spent()
                played = asyncio.run(play(place, f"{root}/v1", given.samples))
                loop = spent() - before
                endpoint = json.load(urllib.request.urlopen(root)) - at_first
            finally:
                server.terminate()
    print(f"{turns.EPISODES} episodes of {turns.TURNS} turns of {turns.NEW} tokens, one thread, float32")
    print(f"  interplay   {turns.EPISODES * turns.TURNS / own:8,.0f} turns/s of CPU, the model's included")
    rate = played / (loop + endpoint)
    print(f"  verifiers   {rate:8,.1f} turns/s of CPU: {loop:.1f} s of its loop, {endpoint:.1f} s of the endpoint")


if __name__ == "__main__":
    main()
