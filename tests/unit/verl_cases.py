"""Files of a package `verl` that take verl's place in a process: they read the configuration that verl would, and leave the files
that verl leaves. What verl itself says of a configuration is tested where it is installed."""

from pathlib import Path

TRAINER = """
import importlib.util, json, os, sys
from pathlib import Path

import pyarrow.parquet as pq
import yaml

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
tree = yaml.safe_load((Path(given["--config-dir"]) / f"{given['--config-name']}.yaml").read_text())
work, rollout = Path(given["--config-dir"]), tree["actor_rollout_ref"]["rollout"]
with open(work / "starts.jsonl", "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "pid": os.getpid()}) + "\\n")
own = tree["reward"]["custom_reward_function"]
spec = importlib.util.spec_from_file_location("own_reward", own["path"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
pay = getattr(module, own["name"])
class_ = tree["data"].get("custom_cls")
rows, places = pq.read_table(tree["data"]["train_files"][0]).to_pylist(), Path(tree["trainer"]["default_local_dir"])
tracker, dumps = places / "latest_checkpointed_iteration.txt", Path(tree["trainer"]["rollout_data_dir"])
if class_:
    found = importlib.util.spec_from_file_location("own_data", class_["path"])
    module_of_data = importlib.util.module_from_spec(found)
    found.loader.exec_module(module_of_data)
    rows = getattr(module_of_data, class_["name"])(tree["data"]["train_files"], tokenizer=None, max_samples=-1)
first, size = int(tracker.read_text()) if tracker.exists() else 0, tree["data"]["train_batch_size"]
dies = os.environ.get("DIES", "") if not (work / "died").exists() else ""
dumps.mkdir(exist_ok=True)
log = open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0)
for step in range(first + 1, tree["trainer"]["total_training_steps"] + 1):
    if dies == f"hang {step}":
        import time
        (work / "died").touch()
        time.sleep(600)
    made = []
    for place, row in enumerate(rows[i] for i in range((step - 1) * size, step * size)):
        truth, text = row["reward_model"]["ground_truth"], module._job(own["reward_kwargs"]["job"])[1]
        for sample in range(rollout["n"]):
            output = text[int(truth)].solution[: None if (sample + step) % 2 else 3]
            paid = pay(row["data_source"], output, truth, row["extra_info"], **own["reward_kwargs"])
            said = {"input": row["prompt"][0]["content"], "output": output, "gts": truth, "score": paid["score"], "step": step}
            made.append({**said, "uid": f"{step}-{place}_{sample}_0"})
    if step % tree["trainer"]["save_freq"] == 0 or step == tree["trainer"]["total_training_steps"]:
        (places / f"global_step_{step}" / "actor").mkdir(parents=True, exist_ok=True)
        tracker.write_text(str(step))
    if dies == f"saved {step}":
        (work / "died").touch()
        sys.exit("out of luck")
    (dumps / f"{step}.jsonl").write_text("".join(json.dumps(one) + "\\n" for one in made))
    values = {"actor/entropy": 0.5, "timing_s/step": 2.0}
    if tree["trainer"].get("critic_warmup", 0) <= step:
        values |= {"actor/pg_loss": 0.1 * step, "actor/grad_norm": 1.0, "actor/lr": 1e-3}
    log.write(json.dumps({"step": step, "data": values}).encode() + b"\\n")
"""
MERGER = """
import json, shutil, sys
from pathlib import Path

given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "merge" and Path(given["--local_dir"]).is_dir()
tree = Path(given["--local_dir"]).parents[2] / "verl.yaml"
import yaml
shutil.copytree(yaml.safe_load(tree.read_text())["actor_rollout_ref"]["model"]["path"], given["--target_dir"])
(Path(given["--target_dir"]) / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
"""


def stand_in(place: Path) -> Path:
    """The folder to put on PYTHONPATH."""
    (place / "verl" / "trainer").mkdir(parents=True)
    for name in ("verl/__init__.py", "verl/trainer/__init__.py"):
        (place / name).touch()
    (place / "verl/trainer/main_ppo.py").write_text(TRAINER)
    (place / "verl/model_merger.py").write_text(MERGER)
    return place
