"""`docs/guide/tasks.md`, the primer on tasks, and `docs/images/op_dag.svg`, the graph of its problem: every problem, solution and
verdict is generated, and the text around them is in texts.yaml."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from interplay.data import formats, sets, tokenizer
from interplay.data.curate import StepInputs
from interplay.data.steps.chain import make_contexts
from interplay.data.steps.context_spec import Keychain
from interplay.tasks import multihop
from interplay.tasks.facts.spec import Bios, Capo, Taxonomy
from interplay.tasks.families import task_family
from interplay.tasks.op_dag import dag, spec
from interplay.tasks.spec import Brevo, Lano, Task, Verify
from interplay.tasks.verdict import Row
from tools.reference import lists

TASK = spec.OpDag(modulus=5, operators="+-*", letters=10, constants=(0, 4), branching=0.45, copies=0.2, distractors=(0, 2))
"""The task of the study `demo`."""
FAMILY = task_family(TASK)
INDEX = 22
"""A problem with a node that is read twice, and two distractors."""
COLUMN, LINE, RADIUS = 130, 78, 19
"""Of the drawing."""
DASHED = ' stroke-dasharray="4 4"'
EDGE = 'fill="none" stroke="#5f6b7a" marker-end="url(#to)"'
Graph = dag.Problem


def files(root: Path) -> dict[Path, str]:
    """The page and its figure."""
    return {root / "docs/guide/tasks.md": page(root), root / "docs/images/op_dag.svg": drawn(problem())}


def problem() -> Graph:
    """The worked problem."""
    made = FAMILY.generate(TASK, 0, INDEX, 5)
    assert isinstance(made, dag.Problem)
    return made


def page(root: Path) -> str:
    """The primer's Markdown."""
    texts, shown = lists.TEXTS["tasks"], problem()
    written = FAMILY.render(shown, TASK)
    longer = FAMILY.render(shown, TASK.model_copy(update={"length": (43, 43), "asks_length": True}))
    parts = [
        texts["head"],
        f"```text\n{written.prompt}\n```",
        texts["read"].format(question=shown.nodes[shown.goal].name),
        "\n".join(_definitions(shown)),
        "![The dependency graph of the problem, distractors dashed](../images/op_dag.svg)",
        texts["graph"].format(op=shown.op),
        f"```text\n{written.solution}\n```",
        texts["solution"],
        *_judged(shown, written.solution),
        texts["verdict"],
        texts["bands"],
        texts["length"],
        f"```text\n{longer.prompt}\n{longer.solution}\n```",
        texts["length_judged"],
        texts["prose"],
        texts["bios"],
        *(_example(Bios(level="iid"), 3, 2), texts["taxonomy"], _example(Taxonomy(), 3, 3)),
        *(texts["skills"], _example(Brevo(), 0, 5), texts["lano"], _example(Lano(), 0, 3), texts["capo"], _example(Capo(), 0, 6)),
        texts["bits"],
        texts["keychain"],
        _keychain(root),
        texts["qa"],
        f"```text\n{(root / 'data/fixtures/gsm8k.jsonl').read_text(encoding='utf-8').partition(chr(10))[0]}\n```",
        texts["others"],
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _definitions(shown: Graph) -> Iterator[str]:
    """The definitions of the prompt in plain notation."""
    assert FAMILY.plain_problem is not None
    yield "| in the prompt | reads | needed |\n| --- | --- | --- |"
    spans = FAMILY.render(shown, TASK).prompt.partition("?")[0].split(",")
    for text, (reads, needed) in zip(spans, FAMILY.plain_problem(shown).given, strict=True):
        yield f"| `{text}` | {reads} | {'yes' if needed else 'no: a distractor'} |"


def _judged(shown: Graph, gold: str) -> Iterator[str]:
    """Completions with their verdicts."""
    plan, _, worked = gold.partition("|")
    steps, _, answer = worked.partition("#")
    first, *rest = steps.split(",")
    wrong = rest[0][:-1] + str((int(rest[0][-1]) + 1) % 5)
    completions = {
        "the reference solution": gold,
        "a wrong value in a step, and the right answer": f"{plan}|{','.join([first, wrong, *rest[1:]])}#{answer}",
        "a step left out, and the right answer": f"{plan}|{','.join([first, *rest[1:]])}#{answer}",
        "the right steps and a wrong answer": f"{plan}|{steps}#{(int(answer) + 1) % 5}",
        "cut off": f"{plan}|{first}",
    }
    assert FAMILY.plain_steps is not None
    rows = ["| completion | what it is | strict | answer | score | error class | what is wrong |", f"|{' --- |' * 7}"]
    for about, text in completions.items():
        found = FAMILY.verify(shown, text, Verify())
        marks = ("yes" if found.strict else "no", "yes" if found.answer else "no", f"{found.score:.2f}", f"`{found.error}`")
        why = "; ".join(f"`{step.text}`: {step.wrong}" for step in FAMILY.plain_steps(shown, text) if step.wrong)
        rows.append(f"| `{text.replace('|', chr(92) + '|')}` | {about} | {' | '.join(marks)} | {why} |")
    yield "\n".join(rows)


def _example(task: Task, index: int, op: int) -> str:
    family = task_family(task)
    written = family.render(family.generate(task, 0, index, op), task)
    return f"```text\n{written.prompt.rstrip()}\n\n{written.solution}\n```"


def _keychain(root: Path) -> str:
    """A chained item of the HotpotQA fixture, with the fewest characters that fit."""
    rows = []
    for number, (place, raw) in enumerate(sets.read_members(root / "data/fixtures/hotpotqa.json")):
        assert isinstance(raw, dict)
        plain = multihop.plain_problem(formats.read_hotpotqa(raw, place))
        shown = multihop.render(plain, "published")
        key = f"{number:016x}"
        rows.append(Row(0, number, "all", 2, "plain", *shown, multihop.dumps(plain), key, "multihop", f"{'a' * 12}:{number}"))
    chain = Keychain(context_tokens=1400, n_chains=2, n_hops=2, key_format="short")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(tokenizer.character_tokenizer("".join(map(chr, range(10, 127)))), Path(folder) / "tokenizer")
        made = make_contexts(chain, rows, StepInputs(0, {"tokenizer": Path(folder)}, 0)).rows[0]
    return f"```text\n{made.prompt.rstrip()}\n\n{made.solution}\n```"


def drawn(shown: Graph) -> str:
    """The graph as SVG: leaves on the left, the goal on the right, distractors dashed below."""
    places = _layout(shown)
    width = COLUMN * (1 + max(x for x, _ in places))
    height = int(LINE * (1 + max(y for _, y in places))) + 50
    marks = [
        "<style>text{font:15px sans-serif;fill:#1c2430}.s{font-size:12px;fill:#5f6b7a}</style>",
        '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#5f6b7a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, node in enumerate(shown.nodes):
        dash = DASHED if place >= shown.necessary else ""
        marks += [f'<path d="{_arrow(places[parent], places[place])}" {EDGE}{dash}/>' for parent in node.parents]
    assert FAMILY.plain_problem is not None
    reads = {place: text for place, (text, _) in zip(shown.order, FAMILY.plain_problem(shown).given, strict=True)}
    for place in range(len(shown.nodes)):
        x, y = _centre(*places[place])
        fill, edge, dash = ("#e3ebff", "#3f6fd8", "") if place < shown.necessary else ("#f4f5f7", "#9aa3af", DASHED)
        wide = 3.5 if place == shown.goal else 1.5
        marks.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="{fill}" stroke="{edge}" stroke-width="{wide}"{dash}/>')
        marks.append(f'<text x="{x}" y="{y + 5}" text-anchor="middle">{shown.nodes[place].name}</text>')
        value = f" = {shown.values[place]}" if place < shown.necessary and shown.nodes[place].parents else ""
        marks.append(
            f'<text class="s" x="{x}" y="{y + RADIUS + 16}" text-anchor="middle">{reads[place].partition(" = ")[2]}{value}</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    return "\n".join([head, "<title>Dependency graph</title>", *marks, "</svg>"]) + "\n"


def _arrow(start: tuple[int, float], end: tuple[int, float]) -> str:
    """The path of an edge, from rim to rim; one that passes other columns bends upwards."""
    (x, y), (to_x, to_y) = _centre(*start), _centre(*end)
    bend = 46 * (end[0] - start[0] - 1)
    control = ((x + to_x) / 2, (y + to_y) / 2 - bend)
    points = []
    for (here_x, here_y), room in (((x, y), RADIUS), ((to_x, to_y), RADIUS + 3)):
        length = ((control[0] - here_x) ** 2 + (control[1] - here_y) ** 2) ** 0.5
        points.append((here_x + room * (control[0] - here_x) / length, here_y + room * (control[1] - here_y) / length))
    (first_x, first_y), (last_x, last_y) = points
    return f"M{first_x:.1f} {first_y:.1f}Q{control[0]:.1f} {control[1]:.1f} {last_x:.1f} {last_y:.1f}"


def _layout(shown: Graph) -> list[tuple[int, float]]:
    """(column, line) of each node: a column beyond its parents', distractors below the necessary nodes."""
    columns: list[int] = []
    lines: list[float] = []
    for place, node in enumerate(shown.nodes):
        columns.append(1 + max((columns[parent] for parent in node.parents), default=-1))
        taken = [lines[other] for other in range(place) if columns[other] == columns[place]]
        lines.append(max([line + 1 for line in taken], default=0.0 if place < shown.necessary else 1.0))
    return list(zip(columns, lines, strict=True))


def _centre(column: int, line: float) -> tuple[int, int]:
    return COLUMN // 2 + COLUMN * column, int(52 + LINE * line)
