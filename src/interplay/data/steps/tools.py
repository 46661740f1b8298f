"""The step that gives rows of any judged family tools: the environment `with_tools`, documents to search, expert transcripts."""

from collections import Counter
from collections.abc import Iterable, Sequence

from interplay.core.model import UserError
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps import spec as steps
from interplay.tasks import transcripts
from interplay.tasks.environments import given_tools, sandbox
from interplay.tasks.family import Environment, Item, compact_json, judge_family, multihop_item
from interplay.tasks.spec import SearchTool
from interplay.tasks.verdict import Row


def give_tools(spec: steps.WithTools, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows of the family with_tools. Counts: documents (rows of text, which are read and not asked), expert and without_expert
    (rows with and without an expert's transcript), dropped."""
    asked = [row for row in rows if row.family != transcripts.TEXT.name]
    if odd := next((row for row in asked if isinstance(judge_family(row.family), Environment)), None):
        raise UserError(
            f"curate: with_tools: rows of {odd.family} have an environment already; give tools to a family without one"
        )
    items = [multihop_item(row) for row in asked]
    texts = [sandbox.Document("", row.solution) for row in rows if row.family == transcripts.TEXT.name]
    library = tuple(dict.fromkeys([*texts, *(one for item in items for one in documents_of(item))]))
    written, counts = compact_json([tool.model_dump(mode="json") for tool in spec.tools]), Counter({"documents": len(texts)})
    more = next((tool.others for tool in spec.tools if isinstance(tool, SearchTool)), 0)
    made = []
    for row, item in zip(asked, items, strict=True):
        question = item.question if item else row.prompt
        found = with_others(documents_of(item), question, library, more) if more else tuple(documents_of(item))
        given = given_tools.Given(row.family, row.graph, row.answer, written, found, spec.price)
        said = given_tools.transcript(given)
        counts["expert" if said else "without_expert"] += 1
        if not said and spec.without_expert == "drop":
            counts["dropped"] += 1
            continue
        shown = f"{question}\n" if item and spec.prompt == "question" else row.prompt
        columns = {"prompt": spec.instruction + shown, "graph": given_tools.dumps(given), "family": given_tools.NAME}
        made.append(transform_row(row, spec.name, solution=said or row.solution, mode=given_tools.NAME, **columns))
    return StepResult(made, dict(+counts))


def documents_of(item: Item | None) -> Sequence[sandbox.Document]:
    """The documents of a question."""
    return [sandbox.Document(one.title, one.text) for one in item.paragraphs] if item else []


def with_others(
    own: Iterable[sandbox.Document], question: str, library: tuple[sandbox.Document, ...], more: int
) -> tuple[sandbox.Document, ...]:
    """A row's own documents, and as many others that are nearest to its question, in the order of the library, which does not
    say whose a document is."""
    kept = set(own)
    near = [library[n] for n in sandbox.ranked(question, library) if library[n] not in kept][:more]
    return tuple(one for one in library if one in kept or one in set(near))
