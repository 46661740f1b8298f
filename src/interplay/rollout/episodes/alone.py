"""Episodes of one seat: answering again, and an environment."""

from collections.abc import Callable, Sequence

from interplay.rollout.episodes.play import Played, Setting, Thread, apart, go_on, left, opened, whole
from interplay.rollout.request import Request
from interplay.schema.episode import EnvironmentEpisode, RetryEpisode, Turns
from interplay.tasks.table import environment as environment_of
from interplay.tasks.turns import joined


def retry(spec: RetryEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """Each turn is judged by itself; after a wrong one, or after any, comes the feedback (UFO, arXiv:2507.14295, section 3)."""

    def answer(thread: Thread, over: bool) -> str | None:
        verdict = setting.verify(setting.rows[thread.request], thread.said[-1])
        thread.verdicts.append((thread.said[-1], verdict))
        return None if verdict.answer and not spec.always else spec.feedback

    return _played(spec, setting, asked, answer)


def environment(spec: EnvironmentEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The environment of the row's family replies to each turn; the transcript is judged where the episode ends. An environment
    is a function of the problem and of all that was said, so there is nothing to keep."""

    def answer(thread: Thread, over: bool) -> str | None:
        row = setting.rows[thread.request]
        reply = environment_of(row).reply(setting.problem(row), thread.said)
        ends = reply.done or over
        text = joined(thread.said, thread.told)
        thread.verdicts.append((text, setting.verify(row, text) if ends else None))
        return None if ends else reply.text

    return _played(spec, setting._replace(stop=spec.stop), asked, answer)


def _played(spec: Turns, setting: Setting, asked: Sequence[Request], answer: Callable[[Thread, bool], str | None]) -> Played:
    """Episodes to their end. `answer(thread, over)` judges the turn that was written last and says what is read next: None ends
    the episode, as does `over`, the last turn that is allowed or one that the length limit cut."""
    threads = opened(setting, asked)
    live: list[Thread] = threads
    for turn in range(1, spec.max_turns + 1):
        told = [answer(thread, turn == spec.max_turns or thread.truncated) for thread in live]
        rest = [
            (thread, text)
            for thread, text in zip(live, told, strict=True)
            if text is not None and turn < spec.max_turns and not thread.truncated
        ]
        if not rest:
            break
        for (thread, text), tokens in zip(rest, setting.encode([text for _, text in rest]), strict=True):
            thread.tell(text, tokens)
        live = [thread for thread, _ in rest]
        go_on(setting, asked, live, turn, spec.window)
    if spec.window is None:
        return left([whole(thread) for thread in threads], setting.sampling.pad, False)
    return left([line for thread in threads for line in apart(thread, spec.window)], setting.sampling.pad, True)
