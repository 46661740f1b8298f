"""Where each paper of the field that the project set out to hold has its place, or why it has none. `docs/papers.md` shows it."""

from typing import NamedTuple


class Place(NamedTuple):
    """One paper. A place is named as the code names it, so that a test can look it up."""

    paper: str
    methods: tuple[str, ...] = ()
    """Of configs/method."""
    studies: tuple[str, ...] = ()
    """Of configs/study."""
    kinds: tuple[str, ...] = ()
    """Kinds of stages, where the paper is one."""
    why: str = ""
    """What of it is here or is not, where there is more to say."""


MODELS = "needs a language model as judge, rater or rewriter, which has no verifier here"
SEARCH = "needs a search engine or a web to act in"
USERS = "needs simulated users, patients or players that talk"
MEMORY = "a memory that the model writes is a context manager; `window` alone is here"
TURN_REWARD = "a turn reward of its own; `turn_returns` takes any that an environment pays, and this one is not among them"

STAGES = (
    Place(
        "Interplay (pre-, mid-training, RL)", studies=("interplay/extrapolation", "interplay/contexts", "interplay/budget_split")
    ),
    Place("From Atomic to Composite", studies=("atomic/composite",)),
    Place("LongRLVR", studies=("longrlvr/citation",)),
    Place("LoongRL (KeyChain)", studies=("loongrl/keychain", "smollm2/keychain_gsm8k")),
    Place("Cog-DRIFT", studies=("cog_drift/ladder",)),
    Place("SCRL", methods=("scrl",), studies=("scrl/subproblems",)),
    Place("InT", studies=("interplay/before_rl",), why="the arm `mended_rl`: prefix and one corrected step, before RL"),
    Place("RL and traversal of hierarchies", studies=("taxonomy/recall",)),
    Place("Prompt curriculum learning", studies=("curricula/showdown",)),
    Place("DRIVE", studies=("curricula/showdown",)),
    Place("QwenLong-L1", studies=("curricula/showdown",), why="its phases; no warm-up SFT"),
    Place("GAIN-RL", studies=("curricula/showdown",)),
    Place("Single-stream policy optimisation", methods=("spo_single",), studies=("curricula/showdown",)),
    Place("D3S", methods=("d3s",), studies=("curricula/showdown",)),
    Place("Tricks or Traps (Lite PPO)", methods=("lite_ppo",), studies=("methods/lite_ppo",)),
    Place("Retraining equivalence", studies=("methods/unlearn",), why="the order of stages as arms"),
    Place(
        "Ring-lite (C3PO)",
        methods=("c3po",),
        why="the token budget; a select stage chooses where RL starts by the entropy of samples (`by: entropy`)",
    ),
    Place("R^3", methods=("r3",), studies=("methods/zero_variance",)),
    Place("Guide", methods=("guide",), studies=("methods/zero_variance",)),
    Place("HPT, unified view", methods=("hpt",), studies=("methods/zero_variance",)),
    Place("COPO", methods=("copo",), studies=("methods/zero_variance",)),
    Place("GTPO (trajectories)", methods=("gtpo_conflict",), studies=("methods/entropy_sign",)),
    Place("HAPO (history)", methods=("hapo_length",), studies=("methods/length_sign",)),
    Place(
        "SOAR",
        kinds=("teach",),
        studies=("methods/soar",),
        why="inferred from a note of it: shared rewards and promotion; the solver answers the teacher's questions",
    ),
    Place("Kimi k1.5", methods=("kimi_length",), studies=("methods/length_sign",), why="its length term; not its mirror descent"),
    Place("DisCO", methods=("disco", "disco_ratio"), studies=("methods/showdown",)),
)
METHODS = (
    Place("ICPO (in-context steered)", methods=("icpo",)),
    Place("MiroMind-M1 (CAMPO)", methods=("campo",)),
    Place("SKILL0; ICRL (tool use)", methods=("icrl",), why="in-context examples that are annealed, without tools"),
    Place("HAPO (heterogeneous tokens)", methods=("hapo_token",), why="without its token-level group average"),
    Place("ExIt", methods=("exit",), why="histories by variance; without self-divergence and its bonus of diversity"),
    Place("PIT", methods=("pit",), why="the gap of the verifier's scores; no reward model of gaps, since none judges here"),
    Place("Segment policy optimisation", methods=("spo_segment", "spo_tree")),
    Place(
        "Direct advantage policy optimisation",
        methods=("direct_advantage",),
        why="gains of steps from continuations themselves, where the paper trains a critic on them",
    ),
    Place("GeometryZero (GCPO)", methods=("gcpo",), why="a call of the calculator in the place of an auxiliary line"),
    Place("DistIL", methods=("distil",), why="its objective token by token, without the gradient of the sequence"),
    Place("XRPO", methods=("xrpo",)),
    Place("RL4LMs (NLPO)", methods=("nlpo",), why="the method; not its tasks and their metrics as rewards"),
    Place("A-GRAE", methods=("a_grae",)),
    Place("Truncated PPO", methods=("t_ppo",)),
    Place("Prefix Grouper", why="an option of execution, on unless `run: {share_prompts: false}`; no method"),
    Place("UFO (try again)", methods=("ufo",)),
    Place("SCoRe", methods=("score_first", "score"), why="its two phases are two RL stages of a path"),
    Place("IGPO", methods=("igpo",)),
    Place("SPIRAL", methods=("spiral",)),
    Place(
        "SSRL",
        methods=("ssrl",),
        studies=("methods/self_search",),
        why="task `self_search`: facts by heart, and a dictionary as the real search; no pre-trained knowledge of the world",
    ),
    Place("ULD", kinds=("unlearn",), studies=("methods/unlearn",)),
    Place("BLUR", kinds=("unlearn",), studies=("methods/unlearn",)),
    Place("HAMU", kinds=("unlearn",), studies=("methods/unlearn",)),
    Place(
        "MiCRo",
        kinds=("reward_model",),
        studies=("methods/reward", "methods/raters"),
        why="the mixture, and its routing by Hedge from a few labelled pairs; raters are programs",
    ),
    Place("FSPO", kinds=("prefer",), studies=("methods/raters",), why="`few_shot`; raters are programs, and no user description"),
    Place(
        "KnowPO",
        kinds=("prefer",),
        studies=("methods/knowledge_conflict",),
        why="the step `conflict_pairs`; people and facts, so that programs write what its language models do",
    ),
    Place(
        "MinD",
        methods=("mind",),
        studies=("methods/mind",),
        why="the program writes the traces in units (the step `units`) where a language model rewrites chains of thought; "
        "accuracy after 1, 2, 3 units is `strict_cap@K`; the price on units is inferred",
    ),
    Place("DeepMiner", why="its sliding window is `window` of the episodes; its questions from the web are not here"),
    Place("ProMed; DiagGym; DoctorAgent-RL", why="20 questions over hidden attributes is their small form, `twenty_questions`"),
    Place(
        "ARTIST; ReTool; TGRL; R1-Code-Interpreter", why="tools and outcome rewards: the environment `calculator`; no code is run"
    ),
    Place("ASearcher; IterResearch; Fathom-DeepResearch; MiroThinker", why=f"look-ups alone: `bios_search`; the rest {SEARCH}"),
    Place("MARS (self-play)", methods=("spiral",), why="zero-sum games; cooperative ones are not here"),
    Place("EPO (entropy-regularised)", methods=("grpo",), why="`entropy_coef` over turns; without its smoothing by history"),
    Place("Dr. Kernel (TRLOO)", why="`turn_returns` with group means; without leaving the turn itself out"),
    Place("A2TGPO", methods=("igpo",), why="`normalise: per_position`; without its clip by turn"),
    Place("AgentFlow; WebAgent-R1; Demystifying agentic RL; LOOP", why="outcome credited to every turn: any group advantage"),
    Place("G-RA", why="the answer gate of the process reward is its form with one turn"),
)
NOT_HERE = (
    Place("RISE; Cobalt", why="starts from own past attempts: `exit` and `reflection` are the nearest"),
    Place(
        "PBSD; RLTF; Interactive ICL from feedback",
        why="`distil` is the nearest; no credit by turn, no second tries as targets",
    ),
    Place("DeepSearch; BFS-Prover-V2", why="tree search in RL: `tree` grows evenly; no frontier and no cache of solutions"),
    Place("SearchLLM", why="a gate on the answer is an option of the process reward; its conditions on search are not here"),
    Place("IRPO; MAPL; CARM; RLVF", kinds=("prefer",), why="preferences by rank or rubric, of which none are here"),
    Place(
        "CLEAR; RW-Steering",
        why="spoiled and contradicting contexts are steps (`poison`, `conflict_pairs`); no probe finds them, no tag marks them",
    ),
    Place("LongRM; GC-RM; BR-RM", kinds=("reward_model",), why="scores at growing length or of hidden states are not built"),
    Place("Empathy-R1; Kardia-R1; MPO; Zhongjing", why=MODELS),
    Place("MRP; Meta Prompting; CPT-Prompt; DSP; CC-Gen", why="prompts that are chosen, written or tuned around a frozen model"),
    Place("Meta-RTL", why="learned shares of sets are the sampler `learned_mixture`; no meta-transfer"),
    Place("Rewiring Experts", why="mixtures of experts alone"),
    Place("TTT-Discover", why="RL on the test problem itself, which a study here may not train on"),
    Place("MatchTIR; SIOP; InfoPO; MAPO; HiPER; SeeUPO; POAD; REFUEL; ArCHer", why=TURN_REWARD),
    Place(
        "AgentGym-RL; SPEAR; AEPO; ARPO; EARL; SimpleTIR; LongxShort; A^2FM; INSPO",
        why="schedules, branches or filters of turns; not built",
    ),
    Place("MEM1; MemAct; Mem-alpha; SUPO; ACE; SLEA-RL; ContextEvolve; StateAct", why=MEMORY),
    Place("Meow-Tea-Taro; Early Experience; Auto-built tool environments; LESER", why="text worlds beyond the five small ones"),
    Place(
        "Retroformer; EPO (strategic); CoDA; MasHost; MARS-SQL; AI-SearchPlanner; LSPO",
        why="several models that act on each other",
    ),
    Place("MUA-RL; DialTree-RPO; Doctor-R1; ChatR1; context drift", why=USERS),
    Place(
        "EVOLvE; RAG fetch policy; iterative retrieval; TRAD; knowledge-graph agents; context engineering",
        why="bandits, retrieval or workflows without training of the model",
    ),
    Place("CoSineVerifier", why="a trained verifier; verifiers here are programs"),
)
PLACES: dict[str, tuple[Place, ...]] = {
    "With a study": STAGES,
    "As a method, a kind or an environment": METHODS,
    "Not here": NOT_HERE,
}
"""Heading -> papers."""


def section() -> str:
    """The part of docs/papers.md."""
    parts = ["## Where each paper stands"]
    for heading, places in PLACES.items():
        lines = [f"| {place.paper} | {_where(place)} | {place.why} |" for place in places]
        parts.append("\n".join([f"### {heading}", "", "| paper | where | |", "| --- | --- | --- |", *lines]))
    return "\n\n".join(parts)


def _where(place: Place) -> str:
    named = [("method", place.methods), ("study", place.studies), ("kind", place.kinds)]
    return "; ".join(f"{what} {', '.join(f'`{name}`' for name in names)}" for what, names in named if names)
