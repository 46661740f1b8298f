"""Tables, text, the page and the files of a report."""
