"""Edit seam: what is done to a batch before it is trained on. One file per idea."""
