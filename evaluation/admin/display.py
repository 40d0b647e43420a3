"""Show judges, dimensions and scores in the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.capability import declared_list
from agents.kit.console import display
from agents.kit.console.columns import VALUE_DISPLAYS
from agents.kit.console.display import Tone
from agents.kit.templatetags.display import register as templates
from evaluation.models import (
    RULE_JUDGE,
    Dimension,
    EvaluationRun,
    EvaluationScore,
    Method,
    SwapHalf,
    is_heuristic,
)
from evaluation.runs.numbers import DimensionSummary, PropositionSummary
from evaluation.runs.shares import Share, percent
from evaluation.statistics.difference import Verdict

SCORE_TONES: dict[str, Tone] = {"scored": "good", "trivial": "plain", "unscored": "warning", "pending": "plain"}
SIMULATED = "+simulated"  # how a procedure of simulated speech ends
SIMULATED_HINT = "said in a simulated conversation: it is in no figure of real speech"
SWAP_HINT = "made to test the judge: in no figure of the agent"
MEASURE = "evaluation.add_evaluationrun"  # the permission to have something measured
TONES: dict[Verdict, Tone] = {
    "drifted": "bad",
    "possibly drifted": "warning",
    "steady": "good",
    "improved": "good",
    "not enough data": "plain",
}
LOW = 4  # scores below are bad
HIGH = 6  # scores below are middling
HEURISTIC = "scores by word lists and statistics: not comparable with a model's"


def judge_badge(judge: str) -> SafeString:
    """Show the judge's name; offline judges are marked *heuristic*, exact rules *rule*."""
    if not judge:
        return display.EMPTY
    if judge == RULE_JUDGE:
        return display.badge("rule", "info", "an exact rule, no judge")
    if is_heuristic(judge):
        label = display.badge("heuristic", "warning", HEURISTIC)
        return format_html(
            '<span class="pl-judge">{} <span class="pl-subtle">{}</span></span>',
            label,
            display.visible(judge.partition(":")[2]),
        )
    return display.badge(judge, "accent", "a model judged")


def baseline_badge() -> SafeString:
    return display.badge("baseline", "info", "captured as a baseline")


def dimension_badge(dimension: str) -> SafeString:
    label = Dimension(dimension).label if dimension in Dimension.values else "not a known dimension"
    return display.badge(dimension.replace("_", " "), "plain", str(label))


VALUE_DISPLAYS.update({"judge": judge_badge, "dimension": dimension_badge, "seed": display.visible})
VALUE_DISPLAYS.update(
    dict.fromkeys(("persona_digest", "proposition_digest", "spec_digest"), display.folded)
)  # these wrap


def coverage_mark(share: Share | None) -> SafeString | str:
    """Show the share of judgements scored, as ``· 57 % scored``, for the cell of a score; empty where there was nothing to score."""
    if share is None or share.value is None:
        return ""
    hint = f"{share} judgements scored, of the propositions this judge can score at all"
    return format_html(' <span class="pl-subtle pl-share" title="{}">· {} scored</span>', hint, percent(share))


def meter(value: float | None, digits: int = 1, *, share: Share | None = None, why: str = "") -> SafeString:
    """Show a score of 0 to 9 as a number and a bar, with the share scored; a dash when there is none, with the reason as its title."""
    if value is None:
        return format_html(
            '<span class="pl-score" title="{}">{}{}</span>',
            why or "nothing was scored",
            display.EMPTY,
            coverage_mark(share),
        )
    number = f"{value:.{digits}f}"
    return format_html(
        '<span class="pl-score"><span class="pl-number">{}</span><meter min="0" max="9" low="{}" high="{}" optimum="9"'
        ' value="{}" aria-label="{} of 9"></meter>{}</span>',
        *(number, LOW, HIGH),
        f"{value:.2f}",
        number,
        coverage_mark(share),
    )


def overall_meter(score: float | None, dimensions: Mapping[str, float], *, share: Share | None = None) -> SafeString:
    """Show an overall score; where a dimension is lower it is named, in its own tone: a mean does not hide what fell.

    Lower is what is lower as shown, with one decimal. Otherwise there is a bar instead, and a dash without a score.
    """
    if score is None or not dimensions:
        return meter(score, share=share)
    name, lowest = min(dimensions.items(), key=lambda item: item[1])
    if round(lowest, 1) >= round(score, 1):
        return meter(score, share=share)
    tone: Tone = "plain"
    if lowest < LOW:
        tone = "bad"
    elif lowest < HIGH:
        tone = "warning"
    mark = display.badge(f"{name.replace('_', ' ')} {lowest:.1f}", tone, "the lowest of its dimensions")
    return format_html('<span class="pl-number">{}</span> {}{}', f"{score:.1f}", mark, coverage_mark(share))


def of_words(value: float | None) -> SafeString:
    """Show the statistic of repeated words that a comparison goes by: no score, so neither with a bar nor with a share scored."""
    if value is None:
        return meter(None)
    hint = "of repeated words alone, 0 (all repeat) to 9 (none do): an exact statistic, not a score"
    return format_html(
        '<span class="pl-number">{}</span> <span class="pl-subtle" title="{}">· variety of words</span>',
        f"{value:.1f}",
        hint,
    )


def number(
    score: float | None, count: int | None, *, digits: int = 1, share: Share | None = None, why: str = ""
) -> SafeString:
    """Show a score with its bar, or a count, which has no upper end and so no bar."""
    if count is None:
        return meter(score, digits=digits, share=share, why=why)
    return format_html(
        '<span class="pl-score"><span class="pl-number">{}</span>{}</span>', f"{count:,}", coverage_mark(share)
    )


def procedure_badge(procedure: str, repeats: int = 1) -> SafeString:
    """Show how it was judged, a badge for each thing that is not the usual way; empty where nothing is.

    Simulated speech, parts of tests of the judge and repeats have badges of their own; what is left of the procedure, such as
    ``plumbline+hard``, has one.
    """
    how = procedure.removesuffix(SIMULATED)
    marks: list[tuple[str, Tone, str]] = []
    if procedure.endswith(SIMULATED):
        marks.append(("simulated", "warning", SIMULATED_HINT))
    for half in SwapHalf:
        if how.endswith(f"+{half.value}"):
            how = how.removesuffix(f"+{half.value}")
            marks.append((f"judge test: {half.value.replace('-', ' ')}", "warning", SWAP_HINT))
    if how != Method.PLUMBLINE:
        marks.append((how, "info", "compares only with scores judged the same way"))
    if repeats > 1:
        marks.append((f"mean of {repeats}", "info", "judgements per item"))
    return format_html_join(" ", "{}", ((display.badge(label, tone, hint),) for label, tone, hint in marks))


def judged_by(row: Any) -> SafeString:
    """Show the judge and procedure of `row` (anything that has both)."""
    procedure = procedure_badge(row.procedure)
    return format_html("{} {}", judge_badge(row.judge), procedure) if procedure else judge_badge(row.judge)


def evaluation_link(pk: int) -> SafeString:
    return display.page_of(EvaluationRun(pk=pk), f"evaluation {pk}")


def target(run: EvaluationRun) -> SafeString:
    """Show the agent or channel that an evaluation measured."""
    if run.channel is not None:
        return display.link(reverse("admin:agents_channel_transcript", args=[run.channel.pk]), run.channel)
    return agent_chip(run.agent)


def judged_counts(scored: int | None, trivial: int | None, unscored: int | None, pending: int | None) -> SafeString:
    """Show how many judgements were scored, and how many were not; with those still to come while there are any."""
    others: list[str] = []
    for count, label in ((trivial, "trivial"), (unscored, "unscored"), (pending, "pending")):
        if count:
            others.append(f"{count:,} {label}")
    scored_text = format_html('<span class="pl-number">{} scored</span>', f"{scored or 0:,}")
    return display.lines(scored_text, " · ".join(others))


def counts(summary: DimensionSummary | PropositionSummary) -> SafeString:
    """Show how many judgements of a summary were scored, and how many were not."""
    return judged_counts(summary.scored, summary.trivial, summary.unscored, summary.pending)


def verdict(score: EvaluationScore) -> SafeString:
    """Show a score's number and status. A trivial 9 has no number: it is in no mean."""
    label = display.badge(score.get_status_display(), SCORE_TONES.get(score.status, "plain"), score.reason)
    if score.status == EvaluationScore.Status.SCORED:
        return format_html('<span class="pl-verdict">{}{}</span>', number(score.score, score.count, digits=0), label)
    return label


def simulated_by(run: EvaluationRun) -> SafeString | str:
    """Show the model that acted; nothing for real speech."""
    if not run.simulated:
        return ""
    if run.awaits_simulation:
        return "a worker simulates conversations first: the agent has too few messages"
    return display.badge(run.actor_model or "unknown", "plain", "the model that acted")


def judge_badges(judge: str, procedure: str, dimensions: Sequence[str]) -> dict[str, SafeString]:
    """Return what is known of a judge in these dimensions; apps above list functions of the same arguments in `judge_badges`."""
    of_apps = [import_string(path)(judge, procedure, dimensions) for path in declared_list("judge_badges")]
    return {name: format_html_join(" ", "{}", [(badges[name],) for badges in of_apps]) for name in dimensions}


# For templates that load "display".
for template_filter in (dimension_badge, evaluation_link, judge_badge, judged_by, meter, verdict):
    templates.filter(template_filter.__name__, template_filter)
