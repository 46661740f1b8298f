"""Published formats of question-answering files, one file each: `parse(raw, where) -> Entry` makes a problem of a JSON object, or
raises ItemError."""
