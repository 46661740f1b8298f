"""A finished study for others: one folder that explains itself (page, answers, records, plan, settings, environment, checksums),
and what a paper needs of it: figures as PDF and PGF at the width of a column, tables, BibTeX of what it builds on, and a
`paper.tex` that puts them together and compiles."""

import importlib.metadata
import os
import platform
import re
import shutil
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib import font_manager
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter

from interplay.core import artifact, model
from interplay.report.display_spec import Figure
from interplay.report.draw import figures, style
from interplay.report.stats import contrast, frame, provenance
from interplay.report.write import answers, headline, latex, page, summary
from interplay.report.write.text import latex_text
from interplay.results import payloads
from interplay.study.plan import Plan

TIMES = "times"
"""The font of most venues: STIX in figures, which has its shapes, and mathptmx in the text."""
MINUS = re.compile(r"(?<![\w.])-(?=\d)")
IDS = re.compile(r"\b\d{4}\.\d{4,5}\b")
"""arXiv ids."""
ENTRY = re.compile(r"@\w+\{(?P<key>[^,]+),.*?eprint = \{(?P<id>[^}]+)\}.*?\n\}", re.DOTALL)


class Layout(NamedTuple):
    """Widths of a paper, in inches."""

    width: float
    """Of a column."""
    page: float
    """Of the text of a page."""
    across: int
    """Panels side by side in a figure."""


LAYOUTS = {"column": Layout(3.25, 6.75, 2), "text": Layout(5.5, 5.5, 4)}
"""column: two columns, as at ICML and ACL; text: one, as at NeurIPS and ICLR."""
WIDER = 1.1
"""Computer Modern next to Times, whose widths the tables are fitted by."""
MOST_BARS = 40
"""In a column; a figure with more is as wide as the page."""


class Look(NamedTuple):
    """What the author chooses."""

    width: Literal["column", "text"] = "column"
    font: str = TIMES


class _Template(string.Template):
    delimiter = "@"


def check_font(font: str) -> str:
    """The family that figures are drawn in. Raises UserError for one that matplotlib does not find."""
    if font == TIMES:
        return "STIXGeneral"
    known = sorted(set(font_manager.get_font_names()))
    if font not in known:
        raise model.UserError(f"--font = '{font}': no such font here{model.nearest_name(font, [TIMES, *known])}")
    return font


def papers_of_plan(plan: Plan, source: str) -> list[str]:
    """arXiv ids of the study's source and of the methods of its stages, in that order."""
    methods = [str(getattr(getattr(stage.spec, "method", None), "paper", "")) for stage in plan.stages.values()]
    return list(dict.fromkeys(IDS.findall(" ".join([source, *methods]))))


def fill_paper(part: Path, made: answers.Answer, claims: Sequence[Mapping[str, Any]], papers: Sequence[str], look: Look) -> None:
    """Write everything into `part`. `papers`: arXiv ids of what the study builds on, beyond those of its claims."""
    layout, spec = LAYOUTS[look.width], made.results.spec
    used = list(dict.fromkeys([*papers, *IDS.findall(" ".join(str(claim.get("source", "")) for claim in claims))]))
    entries = bibliography(used)
    drawn = draw_figures(part / "figures", made.results, list(made.drawings), layout, check_font(look.font))
    type_width = 1.0 if look.font == TIMES else WIDER
    room = latex.Room(72 * layout.width / type_width, 72 * layout.page / type_width)
    floats = {name: latex.grid_float(name, grid) for name, grid in made.grids.items() if grid.cells}
    floats |= {name: latex.contrast_float(name, one) for name, one in made.contrasts.items() if one.blocks}
    for name, one in floats.items():
        artifact.write_atomic(part / "tables" / f"{name}.tex", latex.table_latex(one, room).encode())
    if claims:
        shown = latex.claims_latex(claims, lambda source: _cite(source, entries), room)
        artifact.write_atomic(part / "tables" / "claims.tex", shown.encode())
    artifact.write_atomic(part / "references.bib", "\n\n".join([*(entry for _, entry in entries.values()), ""]).encode())
    later = [name for name in floats if _is_further(name, made)]
    text = _Template((style.TEMPLATES / "paper.tex").read_text(encoding="utf-8")).substitute(
        columns="twocolumn" if layout.page > layout.width else "onecolumn",
        page=f"{layout.page}in",
        font="\\usepackage[T1]{fontenc}\n\\usepackage{mathptmx}" if look.font == TIMES else f"% figures: {look.font}",
        title=latex_text(spec.question),
        setup=_setup(made.results, entries, papers),
        results=_answer(made) + _results(claims, [name for name in floats if name not in later], drawn),
        cited=_bibliography([key for key, _ in entries.values()]),
        further="\n\\onecolumn\n\\appendix\n\\section{Further results}\\suppressfloats[t]\n" + _inputs("tables", later)
        if later
        else "",
    )
    artifact.write_atomic(part / "paper.tex", text.encode())


def _bibliography(keys: Sequence[str]) -> str:
    """What is used but not cited is in it, too; BibTeX refuses an empty one."""
    style_line = "\\bibliographystyle{unsrtnat}\n\\bibliography{references}"
    return f"\\nocite{{{','.join(keys)}}}\n{style_line}" if keys else ""


def _is_further(name: str, made: answers.Answer) -> bool:
    """Whether a table belongs behind the others: differences, gains, and the values of arms of which a contrast chooses."""
    named = [other for other in made.grids if name.startswith(f"{other}_")]
    return name in made.grids and (bool(named) or f"{name}{contrast.SUFFIX}" in made.contrasts)


def _setup(results: frame.Results, entries: Mapping[str, tuple[str, str]], papers: Iterable[str]) -> str:
    spec = results.spec
    seeds = len({arm.seed for arm in spec.arms})
    said = f"The study {spec.study} at scale {spec.scale}, over {model.plural(seeds, 'seed')}"
    cited = [entries[paper][0] for paper in papers if paper in entries]
    paths = {arm.arm: " → ".join(stage.name for stage in arm.path) for arm in spec.arms}
    settings: dict[tuple[str, str], list[str]] = {}
    for arm, path in paths.items():
        name, _, setting = arm.partition("[")
        settings.setdefault((name, path), []).append(setting.removesuffix("]"))
    similar: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (name, path), each in settings.items():
        similar.setdefault((path, tuple(each)), []).append(name)
    arms = [
        ", ".join(names) + (f" ({path})" if path else "") + (f" with {_values(each)}" if any(each) else "")
        for (path, each), names in similar.items()
    ]
    text = f"{latex_text(said)}" + (rf", builds on \cite{{{','.join(cited)}}}" if cited else "")
    return rf"{text}. {{\sloppy Its arms: {latex.breakable_text('; '.join(arms))}.\par}}"


def _values(settings: Sequence[str]) -> str:
    """`beta=0.1, 0.3` of one axis, else each combination."""
    axes = {setting.partition("=")[0] for setting in settings}
    if len(axes) > 1 or any("," in setting for setting in settings):
        return " or ".join(settings)
    return f"{axes.pop()}={', '.join(setting.partition('=')[2] for setting in settings)}"


def _answer(made: answers.Answer) -> str:
    """What the page of the study begins with, as text; nothing where the claims are not judged here."""
    if not made.judged:
        return ""
    top = headline.make_headline(made)
    verdict = f" ({top.verdict.word})" if top.verdict else ""
    said = " ".join([f"{top.lead}{verdict}: {top.details}", *top.others])
    return latex_text(MINUS.sub("−", said)) + "\n\n"


def _results(claims: Sequence[Mapping[str, Any]], floats: Sequence[str], drawn: Sequence[str]) -> str:
    said = []
    if claims:
        counts = Counter(claim["verdict"] for claim in claims)
        found = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        said.append(rf"Of {model.plural(len(claims), 'claim')} that the study states: {found} (Table~\ref{{tab:claims}}).")
    said += [rf"The numbers are in {_refs('Table', 'tab', floats)}."] if floats else []
    said += [rf"{_refs('Figure', 'fig', drawn)} show{'s' if len(drawn) == 1 else ''} them."] if drawn else []
    tables_first = [*(["claims"] if claims else []), *floats]
    return "\n".join([" ".join(said), "", _inputs("tables", tables_first), _inputs("figures", drawn)])


def _refs(word: str, prefix: str, names: Sequence[str]) -> str:
    refs = [rf"\ref{{{prefix}:{name}}}" for name in names]
    return f"{word}{'~' if len(refs) == 1 else 's '}{model.join_names(refs)}"


def _inputs(folder: str, names: Sequence[str]) -> str:
    return "\n".join(rf"\input{{{folder}/{name}}}" for name in names)


# Figures.


def draw_figures(out: Path, results: frame.Results, names: Sequence[str], layout: Layout, family: str) -> list[str]:
    """Draw the figures of these names into `out`, PGF only where LaTeX is there to measure its type, each with a file that
    sets it with its caption; returns the names of those that show something."""
    drawn = []
    out.mkdir(parents=True, exist_ok=True)
    look = {"font.family": [family], "font.size": 8, "axes.titlesize": 8, "axes.titleweight": "normal", "legend.fontsize": 7}
    look |= {"axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "axes.edgecolor": "#555555"}
    look |= {"xtick.major.size": 2.5, "ytick.major.size": 2.5, "xtick.minor.size": 1.5, "pdf.fonttype": 42}
    look |= {"pgf.texsystem": "pdflatex", "pgf.rcfonts": False}
    for name in names:
        figure = results.spec.figures[name]
        wide = layout.page > layout.width and _needs_page(results, figure)
        size, across = (layout.page, style.MOST_ACROSS) if wide else (layout.width, layout.across)
        with style.drawn_for(style.Medium(size, across, {**style.STYLE, **look})):
            canvas, caption, _ = figures.draw_canvas(results, figure)
            if canvas is None:
                continue
            canvas.savefig(out / f"{name}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
            if shutil.which("pdflatex"):
                _save_pgf(canvas, out / f"{name}.pgf")
        kind, said = "figure*" if wide else "figure", latex_text(caption[:1].upper() + caption[1:])
        lines = [rf"\begin{{{kind}}}[htbp]", r"\centering", rf"\includegraphics{{{name}.pdf}}", rf"\caption{{{said}}}"]
        lines += [rf"\label{{fig:{name}}}", rf"\end{{{kind}}}", ""]
        artifact.write_atomic(out / f"{name}.tex", "\n".join(lines).encode())
        drawn.append(name)
    return drawn


def _needs_page(results: frame.Results, figure: Figure) -> bool:
    """Whether a figure would be too dense in a column: many panels, bars or cells."""
    if figure.panel == "band":
        return len(frame.bands(results)) > 2
    places = len(figure.bands or []) if figure.x == "band" else len(frame.ops(results)) if figure.x == "op" else 0
    return places * (len(results.spec.arm_names()) if figure.form == "usual" else 6) > MOST_BARS


def _save_pgf(canvas: Canvas, path: Path) -> None:
    """As PGF, whose text LaTeX sets: names are escaped, also those that a formatter holds."""
    for axis in canvas.axes:
        for formatter in (axis.xaxis.get_major_formatter(), axis.yaxis.get_major_formatter()):
            if isinstance(formatter, FixedFormatter):
                formatter.seq = [latex_text(label) for label in formatter.seq]
    for text in canvas.findobj(Text):
        text.set_text(latex_text(text.get_text()))
    canvas.savefig(path)


# BibTeX.


def bibliography(ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """By arXiv id: key and entry. One that is not in our list has no title and no authors."""
    known = {found["id"]: (found["key"], found[0]) for found in ENTRY.finditer((style.TEMPLATES / "references.bib").read_text())}
    return {one: known.get(one) or (f"arxiv{one}", _bare_entry(one)) for one in ids}


def _bare_entry(one: str) -> str:
    lines = [f"title = {{arXiv:{one}}}", f"year = {{20{one[:2]}}}", f"eprint = {{{one}}}", "archivePrefix = {arXiv}"]
    return f"@misc{{arxiv{one},\n  " + ",\n  ".join(lines) + ",\n}"


def _cite(source: str, entries: Mapping[str, tuple[str, str]]) -> str:
    keys = [entries[one][0] for one in IDS.findall(source)]
    return rf"~\cite{{{','.join(keys)}}}" if keys else ""


MARK = "export.json"
"""A file that marks a folder as an export, which a later one may replace."""

README = Path(__file__).parent.parent / "templates" / "export.txt"


def write_export(plan: Plan, configs: Path, results: Path, out: Path) -> None:
    """Write the export into `out`, which appears whole or not at all; an older export there is replaced, anything else is not.

    Raises UserError when the study is not finished or `out` is no export."""
    report = answers.finished_report(plan, results)
    _write_whole(out, lambda part: _fill(part, plan, configs, results, report))


def write_drawn(path: Path, out: Path) -> None:
    """Write tables and figures of a summary (`write.summary`) into `out` with an index of them, under the same conditions."""

    made, known = summary.read_summary(path), artifact.read_json(path)
    lines = [f"# {known['study']} at scale {known['scale']}", "", known["question"], ""]
    lines += [f"- {claim['verdict']}: {claim['says']}" for claim in known["claims"]]
    lines += [f"\n![{name}](figures/{name}.svg)\n\n{one.caption}" for name, one in made.drawings.items() if one.svg]
    lines += ["", *(f"- [{name}](tables/{name}.md)" for name in (*made.grids, *made.contrasts))]

    def fill(part: Path) -> None:
        answers.write_answers(made, part)
        (part / "claims.json").unlink()
        artifact.write_atomic(part / "README.md", ("\n".join(lines) + "\n").encode())
        artifact.write_json(part / MARK, {"from": path.name})

    _write_whole(out, fill)


def paper_of_study(plan: Plan, results: Path, out: Path, look: Look) -> None:
    """The paper of a finished study."""
    answers.finished_report(plan, results)
    spec = plan.report_spec()
    made = answers.answer_study(frame.read_results(spec, answers.report_inputs(plan, results)))
    _write_paper(made, answers.claims_json(made.judged), papers_of_plan(plan, spec.source), out, look)


def paper_of_summary(path: Path, plan: Plan | None, out: Path, look: Look) -> None:
    """The paper of a summary (`write.summary`), which has no training curves; `plan`: of its study, for what that builds on."""
    made, known = summary.read_summary(path), artifact.read_json(path)
    papers = papers_of_plan(plan, plan.report_spec().source) if plan else []
    _write_paper(made, known["claims"], papers, out, look)


def _write_paper(made: answers.Answer, claims: Sequence[Mapping], papers: list[str], out: Path, look: Look) -> None:
    def fill(part: Path) -> None:
        fill_paper(part, made, claims, papers, look)
        artifact.write_json(part / MARK, {"study": made.results.spec.study, "scale": made.results.spec.scale})

    _write_whole(out, fill)


def _write_whole(out: Path, fill: Callable[[Path], None]) -> None:
    if out.is_symlink() or (out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists()))):
        raise model.UserError(f"{out}: not an export; name a folder that is new, empty or an older export")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        fill(part)
        _replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, plan: Plan, configs: Path, results: Path, report: Path) -> None:
    files: dict[str, payloads.Content] = {
        **payloads.kept_files(results, plan),
        **{n: report / n for n in artifact.record(report)["files"]},
    }
    for folder, name in (("study", plan.study), ("scale", plan.scale)):
        files[f"settings/{folder}/{name}.yaml"] = configs / folder / f"{name}.yaml"
    title = f"Interplay: {plan.study}"
    spec, inputs = plan.report_spec(), answers.report_inputs(plan, results)
    of = provenance.of_inputs(spec, inputs)  # with its hours and without the names of machines
    telemetry = {digest: {key: value for key, value in known.items() if key != "host"} for digest, known in of.telemetry.items()}
    made = answers.answer_study(frame.read_results(spec, inputs))
    files["index.html"] = page.render_page(made, of._replace(telemetry=telemetry), []).encode()
    facts = {"question": spec.question, "study": plan.study, "scale": plan.scale}
    text = README.read_text(encoding="utf-8").format(title=title, rule="=" * len(title), **facts)
    files["README.txt"] = text.encode()
    packages = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions() if dist.metadata["Name"]}
    lines = [f"{name}=={version}\n" for name, version in sorted(packages.items(), key=lambda item: item[0].lower())]
    files["requirements.txt"] = "".join(lines).encode()
    payloads.write_folder(part, files)
    about = {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "commit": artifact.current_commit() or "not from a git repository",
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    artifact.write_json(part / MARK, about)
    names = sorted(str(path.relative_to(part)) for path in part.rglob("*") if path.is_file())
    artifact.write_atomic(part / "SHA256SUMS", "".join(f"{artifact.checksum(part / name)}  {name}\n" for name in names).encode())


def _replace(part: Path, out: Path) -> None:
    """Put `part` in the place of `out`; an older one is moved away first and removed after."""
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    shutil.rmtree(old, ignore_errors=True)
