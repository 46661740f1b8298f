"""Prompts in a chat model's own form."""

from interplay.data.steps.step import Inputs, Made, changed
from interplay.data.tokenizer import tokenizer_folder
from interplay.schema.base import PermanentError
from interplay.schema.steps.chat import ChatTemplate
from interplay.tasks.row import Row


def chat_template(spec: ChatTemplate, rows: list[Row], inputs: Inputs) -> Made:
    """Render every prompt. Raises PermanentError where the model has no template."""
    # Imported here: two seconds that no other step need pay. The template runs in the library's sandbox.
    from transformers import AutoTokenizer

    folder = tokenizer_folder(inputs.folders["tokenizer"])
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer.chat_template:
        raise PermanentError(f"chat_template: {folder} has no chat template; take the step away, or start from a chat model")
    before = [{"role": "system", "content": spec.system}] if spec.system is not None else []

    def rendered(prompt: str) -> str:
        messages = [*before, {"role": "user", "content": prompt}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    return Made([changed(row, "chat_template", prompt=rendered(row.prompt)) for row in rows], {"changed": len(rows)})
