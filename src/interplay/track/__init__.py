"""MLflow as a mirror of what the records say, for looking at studies. Records are the truth; a mirror can be made again."""
