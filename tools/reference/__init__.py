"""docs/reference.md, made from the schema and the command line: every key with its type, default and meaning."""
