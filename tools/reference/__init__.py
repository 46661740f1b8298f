"""The generated pages of docs/, made from the schema and the command line: every key with its type, default and meaning."""
