"""Functions of the user's own, named in a study."""

from typing import Literal

from interplay.schema.base import Model


class Custom(Model):
    """A function of the user's: `file.py:function`, the file lying beside the study's YAML."""

    name: Literal["custom"] = "custom"
    function: str
    """`file.py:function`, relative to the study's folder."""
    source: str = ""
    """Full source of the file; filled in when the study is planned, so that its content is part of the identity."""
    options: dict[str, float | int | str | bool] = {}
    """Passed to the function as keyword arguments."""
