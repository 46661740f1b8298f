# The one LM trainer, under its three names; and the trainers on few data.


use rule stage as pretrain with:
    output:
        update("results/pretrain/{digest}/record.json"),
    log:
        "logs/pretrain/{digest}.log",


use rule stage as midtrain with:
    output:
        update("results/midtrain/{digest}/record.json"),
    log:
        "logs/midtrain/{digest}.log",


use rule stage as sft with:
    output:
        update("results/sft/{digest}/record.json"),
    log:
        "logs/sft/{digest}.log",


use rule stage as prefer with:
    output:
        update("results/prefer/{digest}/record.json"),
    log:
        "logs/prefer/{digest}.log",


use rule stage as unlearn with:
    output:
        update("results/unlearn/{digest}/record.json"),
    log:
        "logs/unlearn/{digest}.log",


use rule stage as reward_model with:
    output:
        update("results/reward_model/{digest}/record.json"),
    log:
        "logs/reward_model/{digest}.log",


use rule stage as custom with:
    output:
        update("results/custom/{digest}/record.json"),
    log:
        "logs/custom/{digest}.log",
