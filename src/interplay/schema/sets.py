"""The problem sets of a study: generated, read from a file, or made of others."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, model_validator

from interplay.schema.base import Count, Model, Natural
from interplay.schema.curate import STEPS
from interplay.schema.custom import Custom
from interplay.schema.dataset import Format, Split
from interplay.schema.partial import Keys, Written, partial, union_of
from interplay.schema.steps.step import StepModel
from interplay.schema.task import TaskKeys

FORMS = {
    "generated": ("band", "bands", "op_shares", "transform", "task", "seed", "shards"),
    "file": ("file", "sha256", "format", "defects"),
    "mix": ("mix", "steps"),
}
"""Keys that only one form of problem set takes; `split` goes with the first two, `size` with all."""


class SampleKeys(Keys):
    """What a step names that reads samples of its rows."""

    arm: str = ""
    """The arm whose end samples the rows."""
    evaluate: str = ""
    """The evaluate stage that says how."""


class CompareKeys(Keys):
    """What a step names that compares its rows with others."""

    against: list[str] = []
    """Problem sets to compare with."""


def _step(model: type[StepModel]) -> type[Model]:
    """A step as a study writes it."""
    reads = ((model.READS_SAMPLES, SampleKeys), (model.COMPARES, CompareKeys))
    return partial(model, f"{model.__name__}Keys", bases=tuple(keys for read, keys in reads if read))


@cache
def _steps() -> Any:
    return union_of(map(_step, STEPS.values()), "name")


@cache
def _transform() -> type[Model]:
    return partial(Custom, "TransformKeys", ("source",))


StepKeys = Annotated[dict[str, Any], Written(_steps)]
TransformKeys = Annotated[dict[str, Any], Written(_transform)]


class DataSet(Model):
    """A problem set of the study, in one of three forms: generated (`band` or `bands`), read from a file (`file` or `sha256`, and
    `format`), or made of other sets (`mix`, `steps`)."""

    model_config = ConfigDict(defer_build=True)

    band: str | None = None
    """Generated: one band of the scale. Read from a file: the band that its rows get; null: `all`."""
    bands: list[str] | None = None
    """Generated: several bands, in equal shares."""
    split: Split | None = None
    """Part of the space of problems that it is drawn from; splits never share a problem. Of a file: null for all items."""
    size: Count | None = None
    """Number of problems; null: generated, the scale's size for the split (times the number of bands), else all."""
    op_shares: dict[int, float] | None = None
    """Generated, a single band: share of each op; null: uniform."""
    transform: TransformKeys | None = None
    """Generated: a function of the study's own that maps problem rows to problem rows: {function: file.py:function}."""
    leak: bool = False
    """Whether stages may be trained on it though its split is test, as in a study of contamination; else that is refused."""
    seed: Natural = 0
    """Generated: key of the generator, by which sets of equal task, size and split hold different problems."""
    shards: Count | None = None
    """Generated: parts that the set is made in, each a set of size / shards problems with a seed and a corpus of its own, so that
    they are made side by side and each fits in memory. Only pretrain, midtrain and sft read such a set, and all sets of their mix
    have equally many. Nothing repeats within a shard (see `unique`), some problems do across shards; a transform sees one shard
    at a time; a bpe tokenizer learns from the first. A set that grows by shards of equal size keeps those that it has. Null: one
    whole set."""
    task: TaskKeys = {}
    """Generated: keys of the task that differ from the study's; with another `name`, a task of its own."""
    file: str | None = None
    """File in a published format, by its path from the project's root: below it, or through a link there to what
    lies elsewhere."""
    sha256: str | None = None
    """Checksum of the file. With it, a study can be planned where the file is not."""
    format: Format | None = None
    """Format of the file."""
    defects: dict[str, str] = {}
    """What to do about defective items of the file."""
    mix: dict[str, float] | None = None
    """Other sets and their shares."""
    steps: list[StepKeys] = []
    """What is done to the mixed rows. A step that reads samples takes `arm` (whose end samples) and `evaluate` (how); one that
    compares takes `against: [sets]`."""

    @model_validator(mode="after")
    def _one_form(self) -> "DataSet":
        if self.form == "generated":
            if (self.band is None) == (self.bands is None):
                raise ValueError("give either band or bands (or a file, or a mix of other sets)")
            if self.split is None:
                raise ValueError("split is missing; write train, rl, validation or test")
            if self.op_shares is not None and self.band is None:
                raise ValueError("op_shares needs a single band")
        if self.form == "file" and self.format is None:
            raise ValueError("format is missing; name the format of the file")
        if self.shards is not None and self.shards < 2:
            raise ValueError("shards must be at least 2; leave it out for one whole set")
        if self.leak and self.split != "test":
            raise ValueError("leak goes with split: test; take it away")
        for form, keys in FORMS.items():
            given = [key for key in keys if getattr(self, key) and not (self.form == "file" and key == "band")]
            if form != self.form and given:
                raise ValueError(f"{given[0]} does not go with a set that is {WORDS[self.form]}")
        return self

    @property
    def form(self) -> str:
        """generated, file or mix."""
        return "mix" if self.mix is not None else "file" if self.file or self.sha256 else "generated"

    def names(self) -> list[str]:
        """The bands that a generated set or a file names."""
        return [self.band] if self.band is not None else list(self.bands or ([] if self.form != "file" else ["all"]))


@cache
def _change() -> type[Model]:
    return partial(DataSet, "SetChange")


SetChange = Annotated[dict[str, Any], Written(_change)]
"""Keys of a set that differ at a scale; or a whole set."""


def is_whole(given: Mapping[str, Any]) -> bool:
    """Whether the keys make a set by themselves, not some change of another: they say where its rows come from."""
    return not {"split", "file", "sha256", "mix"}.isdisjoint(given)


WORDS = {"generated": "generated", "file": "read from a file", "mix": "made of others"}
