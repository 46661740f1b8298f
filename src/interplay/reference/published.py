"""Which published findings this project asks about, and which study of `configs/study` asks: what `docs/papers.md` places and
`dvc.yaml` makes the tables of."""

from typing import NamedTuple


class Paper(NamedTuple):
    """A published finding and the study that asks whether it holds here."""

    title: str
    arxiv: str
    study: str
    table: str
    """Table of the study's report that answers."""
    finding: str
    """What was published, in a sentence."""
    row: str = ""
    """Its row in the contrasts of a study that several papers share."""


PAPERS = (
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL", "2512.07783", "edge", "main",
        "RL lifts a model where its pre-training left headroom and the task lies at the edge of what it can do, and hardly "
        "elsewhere.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL, in minutes", "2512.07783", "quickstart", "main",
        "The same at the smallest size that shows it.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: extrapolation", "2512.07783", "interplay/extrapolation", "main",
        "RL on problems at the edge widens what can be solved there and beyond; RL within what was pre-trained, or beyond the "
        "edge, does not.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: pre-training", "2512.07783", "interplay/pretraining", "main",
        "Pre-training saturates what it trains on and lifts what lies beyond hardly at all.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: exposure", "2512.07783", "interplay/hard_exposure", "main",
        "RL at the edge pays even where pre-training saw next to nothing of its hardest ops, and reaches further where it saw "
        "more.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: rewards", "2512.07783", "interplay/process_rewards", "main",
        "Rewards for right steps beside the right answer lift pass@1 and, on the hardest ops, pass@128, and cut structural "
        "errors.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: one budget", "2512.07783", "interplay/budget_split", "main",
        "At one budget a light share of RL after mid-training is best at the edge, and a heavy one beyond it; mid-training and "
        "RL together reach further than RL alone.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: contexts", "2512.07783", "interplay/contexts", "main",
        "RL carries reasoning over to another context where pre-training held a few seeds of it, even of the easiest problems "
        "alone, and does not where it held none.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: contexts again", "2512.07783", "interplay/context_bases", "main",
        "The same, asked here over three bases of each mix, so that the luck of a base is not taken for that of RL.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: modes", "2512.07783", "interplay/modes", "main",
        "Pass rates are told over forward and reverse questions together; here each mode stands by itself, beside the answer "
        "prior.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: paper and code", "2512.07783", "interplay/deviations", "main",
        "Nothing: the paper does not say which of the differences between its text and its released code matter.",
    ),
    Paper(
        "RFT", "2308.01825", "interplay/before_rl", "main",
        "Fine-tuning on a model's own right solutions lifts it beyond what it was when it wrote them.",
    ),
    Paper(
        "LoongRL", "2510.19363", "loongrl/keychain", "chain",
        "RL on questions hidden behind chains of keys teaches reasoning over long contexts that carries over to longer ones, "
        "more than "
        "the same amount of plain multi-hop questions does.",
    ),
    Paper(
        "LongRLVR", "2603.02146", "longrlvr/citation", "main",
        "A reward for citing the useful chunks gives long-context RL a signal where the answer alone gives none.",
    ),
    Paper(
        "From Atomic to Composite", "2512.01970", "atomic/composite", "main",
        "RL composes skills that it never saw composed only where fine-tuning taught the atoms first; fine-tuning on "
        "composites fits "
        "them and does not generalise.",
    ),
    Paper(
        "Cog-DRIFT", "2604.04767", "cog_drift/ladder", "main",
        "Problems that are never solved become trainable when put as multiple choice or cloze, and what is learnt carries over "
        "to the "
        "open form.",
    ),
    Paper(
        "SCRL", "2605.22074", "scrl/subproblems", "main",
        "Rewarding the solved prefix of verifiable subproblems, normalised position by position, beats the outcome alone.",
    ),
    Paper(
        "InT", "2601.14209", "scrl/subproblems", "main",
        "Fine-tuning on a short correction right after the first wrong step, before RL, gives hard problems a start.",
        "int",
    ),
    Paper(
        "Prompt Curriculum Learning", "2510.01135", "curricula/showdown", "main",
        "Drawing prompts whose predicted pass rate is near one half learns as much in less time as drawing and filtering.",
        "pcl",
    ),
    Paper(
        "DRIVE", "2511.06307", "curricula/showdown", "main",
        "After uniform RL, a stage that keeps only the hardest prompts with many rollouts lifts hard tasks further.",
        "retain_hardest",
    ),
    Paper(
        "QwenLong-L1", "2505.17667", "curricula/showdown", "main",
        "Phases of growing context length, with the difficult prompts of earlier phases carried along, stabilise long-context "
        "RL.",
        "phases",
    ),
    Paper(
        "GAIN-RL", "2506.02281", "curricula/showdown", "main",
        "Drawing prompts in the order of how concentrated the angles of their hidden states are speeds RL up more than "
        "twofold.",
        "gain_rl",
    ),
    Paper(
        "D3S", "2509.22115", "curricula/showdown", "main",
        "Keeping the samples whose advantages vary most, and of them the tokens with the largest advantage times entropy, "
        "learns more "
        "from fewer tokens.",
        "d3s",
    ),
    Paper(
        "Single-stream Policy Optimization", "2509.13232", "curricula/showdown", "main",
        "One rollout per prompt with a tracked baseline and prioritised sampling beats groups.",
        "single_stream",
    ),
    Paper(
        "DisCO", "2505.12366", "methods/showdown", "rollouts",
        "Scores of right completions are raised against those of wrong ones directly, within a constraint on the step, which "
        "beats GRPO and its kin by 7 points on average.",
        "disco",
    ),
    Paper(
        "GSPO", "2507.18071", "methods/showdown", "rollouts",
        "Ratios of whole sequences in place of those of tokens train more stably and to higher scores than GRPO.",
        "gspo",
    ),
    Paper(
        "CISPO", "2506.13585", "methods/showdown", "rollouts",
        "Capping the weights of tokens in place of dropping their gradients reaches DAPO's scores in half the steps.",
        "cispo",
    ),
    Paper(
        "DAPO", "2503.14476", "methods/showdown", "rollouts",
        "A raised upper clip, dropping groups that say nothing, the mean over tokens and a length penalty beat GRPO.",
        "dapo",
    ),
    Paper(
        "Pass@k training", "2508.10751", "methods/showdown", "rollouts",
        "Paying groups for the best of k explores more, and pass@1 does not suffer.",
        "pass_k",
    ),
    Paper(
        "RLOO", "2402.14740", "methods/showdown", "rollouts",
        "REINFORCE with the other completions' mean as baseline is as good as PPO or better.",
        "rloo",
    ),
    Paper(
        "PPO", "1707.06347", "methods/showdown", "rollouts",
        "Several clipped passes over a batch with advantages from a critic.",
        "ppo",
    ),
    Paper(
        "Tricks or Traps (Lite PPO)", "2508.08221", "methods/lite_ppo", "main",
        "Two of RL's many tricks, the batch's deviation and the mean over tokens, do as well as all of GRPO's and DAPO's.",
    ),
    Paper(
        "HAPO", "2505.11225", "methods/length_sign", "main",
        "Paid for being shorter than the shortest right answer to the same question so far, a model answers 33 to 59 % shorter "
        "for 2 to 5 points.",
    ),
    Paper(
        "Kimi k1.5", "2501.12599", "methods/length_sign", "main",
        "A length term within the group keeps right answers short.",
    ),
    Paper(
        "HPT (a unified view of post-training)", "2509.04419", "methods/zero_variance", "fight",
        "Learning a demonstration where all rollouts fail, and from rollouts elsewhere, beats SFT, RL and one after the other.",
        "hpt",
    ),
    Paper(
        "Guide", "2506.13923", "methods/zero_variance", "fight",
        "Hints for prompts at which all rollouts fail, learnt from as if they had not been given, solve more than GRPO does.",
        "guide",
    ),
    Paper(
        "R^3", "2601.19620", "methods/zero_variance", "fight",
        "Past successes brought back into groups that fail keep GRPO learning from hard prompts.",
        "r3",
    ),
    Paper(
        "COPO", "2508.04138", "methods/zero_variance", "fight",
        "Comparing prompts with each other, too, gives an advantage to groups that all pass or all fail.",
        "copo",
    ),
    Paper(
        "Beyond the 80/20 rule", "2506.01939", "methods/entropy_sign", "fight",
        "The fifth of tokens with the highest entropy carries what RL learns: the gradient of these alone is as good as that of "
        "all, and better in large models.",
        "top",
    ),
    Paper(
        "The entropy mechanism of RL", "2505.22617", "methods/entropy_sign", "fight",
        "RL pays for reward with entropy and ends when that is spent; holding back the tokens of highest covariance (KL-Cov, "
        "Clip-Cov) keeps it and ends higher.",
        "kl_cov",
    ),
    Paper(
        "GTPO (trajectories)", "2508.03772", "methods/entropy_sign", "fight",
        "Sparing the tokens that right and wrong completions share, and dropping uncertain completions, trains more stably than "
        "GRPO and to higher scores.",
        "gtpo_conflict",
    ),
    Paper(
        "GTPO (entropy)", "2508.04349", "methods/entropy_sign", "fight",
        "Paying right completions by how uncertain their tokens were assigns credit better than one advantage for all of them.",
        "gtpo_entropy",
    ),
    Paper(
        "NPO", "2404.05868", "methods/unlearn", "main",
        "Negative preference optimisation forgets what it is to forget and keeps the rest, where gradient ascent destroys the "
        "model.",
    ),
    Paper(
        "DPO", "2305.18290", "methods/preference", "main",
        "Learning from pairs needs neither a reward model nor RL, and does better than learning the chosen completions alone.",
    ),
    Paper(
        "InstructGPT (reward models)", "2203.02155", "methods/reward", "main",
        "A reward model learns from pairs which of two completions is preferred, also where it never saw the question.",
    ),
)  # fmt: skip
