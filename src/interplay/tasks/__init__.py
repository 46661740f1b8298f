"""Task families and the arithmetic of their scores. Nothing here needs torch."""
