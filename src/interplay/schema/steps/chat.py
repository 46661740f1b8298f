"""The step that puts prompts into a chat model's own form."""

from typing import ClassVar, Literal

from interplay.schema.steps.step import StepModel


class ChatTemplate(StepModel):
    """Each prompt as the first message of a user, in the chat template of the model that the paths start from, up to where its
    answer begins. A model without a template is refused."""

    READS_TOKENIZER: ClassVar[bool] = True
    name: Literal["chat_template"] = "chat_template"
    system: str | None = None
    """Message of the system; null: what the template says by itself."""

    @property
    def edits(self) -> bool:
        """A template stands around the whole prompt."""
        return True
