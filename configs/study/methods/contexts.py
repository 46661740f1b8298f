"""Steps of curation for methods/contexts: ranked lists, pairs of constraints, spoiled contexts, and forms of a prompt. Rows are
those of bios and of the step conflict_pairs, whose facts are sentences such as `Ada's boss is Eva. `"""

SPOILED = "Rumour: "
WAYS = "Read or recall?\n"


def lone(rows):
    """Rows without their rejected completion: what is said of them is to stay as it is."""
    return [{**row, "rejected": ""} for row in rows]


def ranked(rows):
    """Lists: what is right, then the rejected completion, then the answer to another row's question."""
    made = []
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        worst = row["solution"].replace(row["answer"], other["answer"])
        if worst not in (row["solution"], row["rejected"]):
            made.append({**row, "rejected": f"{row['rejected']}\x1e{worst}"})
    return made


def said(completion):
    """The answer in the box of a completion."""
    return completion.rpartition("{")[2].rstrip("}")


def intra(rows):
    """Pairs of prompts for one completion, within a sample: a context that says what it answers is preferred to one that says
    what the other completion answers. What the two prompts share is the prompt, the rest of each is put before its completion, so
    that a reward model reads the very same texts. Rows whose context does not say the answer are dropped."""
    made = []
    for row in rows:
        good, bad = said(row["solution"]), said(row["rejected"])
        before, found, after = row["prompt"].partition(row["solution"].partition(good)[0] + good)
        if not found:
            continue
        shared = before + found[: -len(good)]
        for text, own, other in ((row["solution"], good, bad), (row["rejected"], bad, good)):
            made.append({**row, "prompt": shared, "solution": own + after + text, "rejected": other + after + text})
    return made


def inter(rows):
    """Pairs of two instructions, across samples: two questions, each after its own context; a completion that answers both is
    preferred to one that errs in either, in turn the second and the first."""
    made = []
    for number, (row, other) in enumerate(zip(rows[::2], rows[1::2], strict=False)):
        worse = (row["solution"], other["rejected"]) if number % 2 == 0 else (row["rejected"], other["solution"])
        both = {"prompt": row["prompt"] + other["prompt"], "solution": f"{row['solution']} {other['solution']}"}
        made.append({**row, **both, "rejected": " ".join(worse)})
    return made


def spoil(rows, sentences=1, named=False):
    """Before the question of a contextual row, at the end of its context, `sentences` rumours that contradict what the context
    says of the facts that are asked. `named`: the solution begins with the rumours, before it answers without them."""
    names = sorted({row["answer"] for row in rows})
    made = []
    for row in rows:
        context, _, question = row["prompt"].rpartition(". ")
        fact = row["solution"].partition(" \\boxed")[0].rpartition(". ")[2].rstrip(".")
        head, _, truth = fact.rpartition(" ")
        others = [name for name in names if name not in (truth, row["answer"])]
        start = row["index"] % len(others)
        rumours = "".join(f"{SPOILED}{head} {others[(start + k) % len(others)]}. " for k in range(sentences))
        told = rumours if named else ""
        made.append({**row, "prompt": f"{context}. {rumours}{question}", "solution": told + row["solution"]})
    return made


def choose(rows, named=False):
    """After the question the ways to answer it. `named`: the solution begins with the one that suits, before it goes that way."""
    made = []
    for row in rows:
        way = "Read. " if row["mode"] == "contradicting" else "Recall. "
        made.append({**row, "prompt": row["prompt"] + WAYS, "solution": (way if named else "") + row["solution"]})
    return made


def formed(rows, form="structure"):
    """Before each prompt the structure of a solution, in which every name is a blank, or with form `example` another question
    with its solution."""
    made = []
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        blank = "X's R is Y. \\boxed{Y}\n"
        made.append(
            {**row, "prompt": (blank if form == "structure" else f"{other['prompt']}{other['solution']}\n") + row["prompt"]}
        )
    return made
