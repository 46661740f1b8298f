"""Problems, tokenizers, corpora and batches."""
