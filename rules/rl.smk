# Reinforcement learning, and teaching by it.


use rule stage as rl with:
    output:
        update("results/rl/{digest}/record.json"),
    log:
        "logs/rl/{digest}.log",


use rule stage as teach with:
    output:
        update("results/teach/{digest}/record.json"),
    log:
        "logs/teach/{digest}.log",
