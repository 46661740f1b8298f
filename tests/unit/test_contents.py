"""The comparison of what stages leave compares each stage once, and a changed content is found."""

from tools.contents import Line, content_verdict, pairs


def line(label: str, digest: str, files: str = "f") -> Line:
    return Line("study", label, "problems", digest, "m", files)


def verdicts(before: list[Line], after: list[Line]) -> list[str]:
    return sorted(content_verdict(one, other) for one, other in pairs(before, after))


def test_stages_that_share_a_label_are_compared_each_with_its_own() -> None:
    before = [line("data.test", "a"), line("data.test", "b")]
    assert verdicts(before, before) == ["equal", "equal"]
    assert verdicts(before, [line("data.test", "a"), line("data.test", "b", "other")]) == ["equal", "files differ"]


def test_a_stage_whose_digest_moved_is_found_by_its_label_unless_that_is_ambiguous() -> None:
    assert verdicts([line("rl", "a")], [line("rl", "b")]) == ["equal, digest moved"]
    assert verdicts([line("rl", "a")], [line("rl", "b", "other")]) == ["files differ"]
    assert verdicts([line("rl", "a")], [line("rl", "b"), line("rl", "c")]) == ["only after", "only after", "only before"]


def test_a_changed_metric_differs_though_the_files_are_equal() -> None:
    assert verdicts([line("rl", "a")], [line("rl", "a")._replace(metrics="other")]) == ["metrics differ"]
