"""Tables, figures, claims and the page that a study answers with. The only package that imports pandas, scipy and matplotlib."""
