"""The verdict as one comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evaluation.change.comparison import Change
from evaluation.change.position import PositionProfile
from evaluation.ci.findings import Findings, WorstMessage
from evaluation.ci.gather import AgentResult
from evaluation.ci.headline import headline, outcome, sign
from evaluation.ci.limits import Limits
from evaluation.ci.notes import notes_of, without_score
from evaluation.ci.report import Report
from evaluation.ci.report_json import coverage
from evaluation.ci.spending import spent_line
from evaluation.ci.texts import as_code
from evaluation.ci.verdict import least_scores
from evaluation.coverage import percent, with_share
from evaluation.models import COUNTED, is_heuristic
from evaluation.wording import counted, interval_text, signed

MARKER = "<!-- plumbline -->"  # what the workflow finds its own comment by
MOST_CHARACTERS = 60_000  # a comment on GitHub holds 65,536
MOST_ROWS = 30


def markdown(report: Report) -> str:
    """The whole comment; what others wrote stands in it as code only."""
    judge, results, findings, limits = report.judge, report.results, report.findings, report.limits
    heuristic = " (*heuristic*: exact rules and word cues, no LLM)" if is_heuristic(judge) else ""
    parts = [
        MARKER,
        f"### {sign(findings)} Persona check: {outcome(findings)}",
        f"{counted(len(results), 'agent')}, judged by {as_code(judge)}{heuristic}. {headline(findings)}",
        *_unjudged(findings),
        *_lacking(findings),
        *_table(findings),
        *_worst(findings),
        *_open(findings),
        *_scores(results),
        *_by_position(list(report.by_position.values())),
        *_notes(results),
        *_silent(results, findings),
        spent_line(report),
        _how(results, limits),
    ]
    return shortened("\n\n".join(part for part in parts if part) + "\n")


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The comment, cut between two lines with a note where it is longer than `most` and the note; what is folded is closed again."""
    if len(text) <= most:
        return text
    kept = text[:most].rpartition("\n")[0]
    closed = "\n\n</details>" * (kept.count("<details>") - kept.count("</details>"))
    cut = f"*Cut: {len(text) - len(kept):,} of {len(text):,} characters; the JSON report holds all.*"
    return f"{kept}{closed}\n\n{cut}\n"


def _unjudged(findings: Findings) -> Iterator[str]:
    if findings.unjudged:
        lines = [
            f"* {as_code(found.agent) or 'all agents'}{f' {found.dimension}' if found.dimension else ''}: {as_code(found.why)}"
            for found in findings.unjudged[:MOST_ROWS]
        ]
        yield "\n".join(["**Not judged enough to say:**", "", *lines, *_more(len(findings.unjudged))])


def _lacking(findings: Findings) -> Iterator[str]:
    """What is scored too little now, with both shares."""
    if findings.lacking:
        head = ["Agent", "Dimension", "Proposition", "Scored before", "Scored now", "Why"]
        rows = [
            [
                as_code(found.agent),
                found.dimension,
                as_code(found.proposition) or "all",
                percent(found.before) or "–",
                percent(found.now) or "–",
                as_code(found.why),
            ]
            for found in findings.lacking
        ]
        yield "\n".join(["**Not enough data:**", "", *_grid(head, rows[:MOST_ROWS]), *_more(len(rows))])


def _table(findings: Findings) -> Iterator[str]:
    rows = []
    seen = set()
    for r in findings.regressions:
        if r.scope == "dimension" and r.change.proposition and (r.agent, r.whole.dimension) not in seen:
            rows.append([as_code(r.agent), r.whole.dimension, "all", *_change(r.whole), "**worse**"])
        seen.add((r.agent, r.whole.dimension))
        claim = as_code(r.change.proposition) or "all"
        rows.append([as_code(r.agent), r.whole.dimension, claim, *_change(r.change), "**worse**"])
        for c in r.fell_most:
            rows.append([as_code(r.agent), c.dimension, as_code(c.proposition), *_change(c), "fell most, not surely"])
    for f in findings.fading:
        low, high = f.interval
        turns = f"turns {f.first} → {f.last}"
        rows.append(
            [
                as_code(f.agent),
                f.dimension,
                turns,
                "",
                "",
                f"{signed(f.delta)} ({signed(low)} to {signed(high)})",
                "**fades**",
            ]
        )
    for b in findings.below:
        rows.append(
            [
                as_code(b.agent),
                b.dimension,
                f"lowest: {as_code(b.proposition)}" if b.proposition else "all",
                "",
                with_share(f"{b.score:.1f}", b.share),
                "",
                f"**below {b.threshold:g}**",
            ]
        )
    if rows:
        head = ["Agent", "Dimension", "Proposition", "Baseline", "Now", "Change (95 %)", "Verdict"]
        yield "\n".join([*_grid(head, rows[:MOST_ROWS]), *_more(len(rows))])


def _worst(findings: Findings) -> Iterator[str]:
    entries = [(r.agent, r.change.proposition or r.whole.dimension, r.worst) for r in findings.regressions]
    entries += [(b.agent, b.proposition, b.worst) for b in findings.below]
    lines = [_message(agent, name, worst) for agent, name, worst in entries[:MOST_ROWS] if worst is not None]
    if lines:
        yield _details("Lowest-scored messages", "\n".join(dict.fromkeys(lines)))


def _message(agent: str, proposition: str, worst: WorstMessage) -> str:
    place = f" at {as_code(worst.place)}" if worst.place else ""
    why = f"<br>{as_code(worst.reasoning, 300)}" if worst.reasoning else ""
    return f"* {as_code(agent)} {as_code(proposition)} scored {worst.score}{place}: {as_code(worst.text)}{why}"


def _open(findings: Findings) -> Iterator[str]:
    if findings.undecided:
        head = ["Agent", "Dimension", "Baseline", "Now", "Change (95 %)", "Why"]
        rows = [
            [
                as_code(found.agent),
                found.change.dimension,
                *_change(found.change),
                ("**suspected regression**: " if found.suspected else "") + as_code(found.why),
            ]
            for found in findings.undecided
        ]
        yield _details(f"Cannot tell yet: {len(rows)}", "\n".join([*_grid(head, rows[:MOST_ROWS]), *_more(len(rows))]))
    if findings.without_baseline:
        lines = [f"* {as_code(agent)}: {as_code(why)}" for agent, why in findings.without_baseline[:MOST_ROWS]]
        lines += _more(len(findings.without_baseline))
        yield _details(f"Without a baseline: {len(findings.without_baseline)}", "\n".join(lines))


def _scores(results: Sequence[AgentResult]) -> Iterator[str]:
    dimensions = list(dict.fromkeys(d for result in results for d in result.run.dimensions))
    rows = [
        [
            as_code(result.agent),
            with_share(_number(result.summary.overall_score), result.summary.share),
            *(_cell(result, dimension) for dimension in dimensions),
            str(sum(found.unscored for found in result.coverage.values())),
        ]
        for result in results
    ]
    if rows:
        yield _details("All scores", "\n".join(_grid(["Agent", "Overall", *dimensions, "Unscored"], rows)))


def _cell(result: AgentResult, dimension: str) -> str:
    score, change = result.score(dimension), result.change(dimension)
    if score is None:
        return with_share("–", result.share(dimension))
    text = f"{score:.0f}" if dimension in COUNTED else f"{score:.1f}"
    text = with_share(text, result.share(dimension))
    return text if change is None or change.delta is None else f"{text} ({signed(change.delta)})"


def _by_position(profiles: Sequence[PositionProfile]) -> Iterator[str]:
    names = list(dict.fromkeys(row.name for p in profiles for found in p.dimensions for row in found.bins))
    rows = [
        [
            as_code(p.agent),
            found.dimension,
            *(with_share(_number(row.score.value), row.share) for row in found.bins),
            found.within.decision.verdict,
        ]
        for p in profiles
        for found in p.dimensions
    ]
    if rows:
        head = ["Agent", "Dimension", *(f"Positions {name}" for name in names), "In the same conversations"]
        yield _details("By position", "\n".join([*_grid(head, rows[:MOST_ROWS]), *_more(len(rows))]))


def _notes(results: Sequence[AgentResult]) -> Iterator[str]:
    if notes := notes_of(results):
        lines = [f"* {as_code(', '.join(agents))}: {as_code(note, 400)}" for note, agents in notes.items()]
        yield _details("Notes on the comparison", "\n".join([*lines[:MOST_ROWS], *_more(len(lines))]))


def _silent(results: Sequence[AgentResult], findings: Findings) -> Iterator[str]:
    if found := without_score(results, findings):
        lines = [f"* {as_code(', '.join(agents))}: {as_code(why, 400)}" for why, agents in found.items()]
        yield _details("Without a score", "\n".join([*lines[:MOST_ROWS], *_more(len(lines))]))


def _how(results: Sequence[AgentResult], limits: Limits) -> str:
    found = coverage(results)
    lines = [
        "Scores are 0 to 9, higher is better; ideas are counted. The percentage is the share of the judgements that were scored, "
        "of the propositions this judge can score at all.",
        f"{counted(found.scored, 'judgement')} scored, {found.trivial:,} trivial, {found.failed:,} failed "
        f"({found.failed_share:.0%} of what this judge could judge), {counted(found.beyond_judge, 'needs', 'need')} an LLM judge, "
        f"{found.not_evaluable:,} not evaluable.",
        f"A regression is a fall of {limits.regression_delta:g} points or more that is sure among all that was compared (95 %, Holm). "
        f"A change within ±{limits.margin:g} is none.",
        *([f"Least scores: {least_scores(limits)}."] if limits.thresholds else []),
    ]
    return _details("How it was measured", "\n".join(f"* {line}" for line in lines))


def _change(change: Change) -> list[str]:
    delta = "" if change.delta is None else signed(change.delta)
    reach = f" ({interval_text(change.interval)})" if change.interval else ""
    scores = (change.baseline, change.baseline_share), (change.candidate, change.share)
    return [*(with_share(_number(score), share) for score, share in scores), delta + reach]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; cells must be clean already."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _more(n: int) -> list[str]:
    return ["", f"… and {n - MOST_ROWS} more"] if n > MOST_ROWS else []


def _details(title: str, body: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"
