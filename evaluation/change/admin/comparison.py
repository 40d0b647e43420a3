"""The page that compares any two measurements."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Max, Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.panels import table
from agents.kit.console.site import ModelAdmin, Select, TextInput
from agents.kit.text.tables import csv_lines
from agents.kit.text.wording import interval_text, signed
from agents.kit.text.wording import number as number_text
from agents.kit.work.worker import alive
from agents.models import Agent, Message
from evaluation.admin.display import (
    MEASURE,
    TONES,
    dimension_badge,
    evaluation_link,
    judged_by,
    number,
    of_words,
)
from evaluation.calibration.admin.trust import not_usable, trust
from evaluation.calibration.passport import passports
from evaluation.change.admin.drift_overview import (
    INVERTED,
    MOST_AGENTS,
    by_name,
    compare_url,
    drift_sparkline,
    judge_name,
    read_tag,
    scores_behind,
)
from evaluation.change.change import ChangeResult
from evaluation.change.choosing import Asked, chosen_measurements, ways_of, with_note_on_undated
from evaluation.change.comparison import Comparison, Shown, compare, one_sided
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.examples import ComparedJudgements, Quote, lowest_scores, preceding_messages, quotes_of
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.change.overview import drift_of_comparison
from evaluation.change.sentences import channel_predicate, predicate_of, since_of, why_drifted
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.shares import NOTHING, Share
from evaluation.statistics.difference import MARGIN
from evaluation.wording import p_text

MOST_JUDGEMENTS = 20_000  # more take seconds; the command has no limit
MOST_PAIRS = 5  # changes with messages that show them
MOST_TAGGED = 1_000  # newest messages whose tags are offered
SHOWN_TONES = {"worse": TONES["drifted"], "better": TONES["improved"]}
CHANGE_HEADINGS = ("A", "B", "Change", "95 % interval", "Verdict")
PROPOSITION_HEADINGS = ("Proposition", "A", "B", "Change", "Verdict")
READ_MESSAGES = "agents.view_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a judge was asked of a proposition; `inverted`: it should not hold."""

    text: str
    inverted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPair:
    """Two measurements and their comparison, as the page shows them: A and B, with the claims by dimension and proposition."""

    baseline: Measurement
    candidate: Measurement
    comparison: Comparison
    claims: Mapping[tuple[str, str], Claim]

    def claim(self, dimension: str, proposition: str) -> Claim:
        """Return what was asked; the name where no judgement has it."""
        unknown = Claim(text=proposition or dimension, inverted=False)
        return self.claims.get((dimension, proposition), unknown)


# -- what is asked for
def _side_field(label: str, about: str) -> forms.CharField:
    with_known_tags = TextInput(attrs={"list": "known-tags"})
    return forms.CharField(required=False, max_length=300, label=label, help_text=about, widget=with_known_tags)


class CompareForm(forms.Form):
    """Which two measurements are compared, and what of them is shown."""

    agent = forms.ChoiceField(required=False, widget=Select)
    baseline = _side_field("A", "a tag such as build=40, or the number of an evaluation; empty: the baseline")
    candidate = _side_field("B", "a tag such as build=41, or the number of an evaluation; empty: the newest evaluation")
    judge = forms.ChoiceField(required=False, widget=Select, help_text="of both; any: a model before a heuristic")
    changed = forms.BooleanField(
        required=False,
        label="show only what changed",
        help_text=f"by {MARGIN:g} points or more, significantly, or scored on one side only",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        slug = self.data.get("agent", "")
        self.chosen_agent: Agent | None = Agent.objects.filter(slug=slug).first() if slug else None
        names = {"": "choose"}
        names.update(by_name().values_list("slug", "display_name")[:MOST_AGENTS])  # the chosen one may be none of them
        self.judges: dict[str, JudgeAndProcedure] = {}
        if self.chosen_agent is not None:
            names[slug] = self.chosen_agent.display_name
            self.judges = {str(judged): judged for judged in ways_of(self.chosen_agent)}
        judge_choices = [("", "any")]
        judge_choices += [(name, judge_name(judged)) for name, judged in self.judges.items()]
        self.fields["agent"].choices = list(names.items())  # type: ignore[attr-defined]
        self.fields["judge"].choices = judge_choices  # type: ignore[attr-defined]

    def clean_baseline(self) -> Asked:
        return _read_side(self.cleaned_data["baseline"])

    def clean_candidate(self) -> Asked:
        return _read_side(self.cleaned_data["candidate"])

    def clean(self) -> None:
        """Take the agent from an evaluation that was named, and refuse to compare something with itself."""
        sides = (self.cleaned_data.get("baseline"), self.cleaned_data.get("candidate"))
        for side in sides:
            if self.chosen_agent is None and isinstance(side, EvaluationRun):
                self.chosen_agent = side.agent
        if sides[0] is not None and sides[0] == sides[1]:
            raise ValidationError("A and B are the same: nothing to compare.")

    @property
    def names_both(self) -> bool:
        """Return whether it says which two: of an agent, or two evaluations (which may be of a channel)."""
        if not self.is_valid():
            return False
        if self.chosen_agent is not None:
            return True
        sides = (self.cleaned_data["baseline"], self.cleaned_data["candidate"])
        return all(isinstance(side, EvaluationRun) for side in sides)

    @property
    def chosen_judges(self) -> list[JudgeAndProcedure]:
        """Return by whom both were judged: as asked for, else in all ways of the agent, the preferred first; none without an agent."""
        chosen = self.judges.get(self.cleaned_data["judge"])
        if chosen is not None:
            return [chosen]
        return ways_of(self.chosen_agent) if self.chosen_agent else []

    @property
    def known_tags(self) -> list[str]:
        """Return the tags of the agent's newest messages, as they are typed."""
        if self.chosen_agent is None:
            return []
        tagged = Message.objects.filter(agent=self.chosen_agent, synthetic=False).exclude(tags={})
        pairs = set()
        for tags in tagged.order_by("-pk").values_list("tags", flat=True)[:MOST_TAGGED]:
            pairs |= {f"{key}={value}" for key, value in tags.items()}
        return sorted(pairs)


def _read_side(text: str) -> Asked:
    """Read an evaluation's number (also as ``#7``) or a tag; return None for an empty text.

    Raises:
        ValidationError: It is neither, or there is no such evaluation; names the text and what is allowed.
    """
    text = text.strip().removeprefix("#")
    if not (text.isascii() and text.isdigit()):
        return read_tag(text)
    # No primary key has more than 18 digits; a database refuses to look for a larger number.
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=text[:18]).first()
    if run is None:
        raise ValidationError("There is no evaluation %(text)s.", params={"text": text[:80]})
    return run


# -- the page
def compare_page(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show the comparison of the two measurements that the address names, or what is missing for it; with ``export=csv`` send it as CSV.

    Where the form names no two, or has errors, it stands alone; a comparison that is refused is a sentence on the page.
    """
    form = CompareForm(request.GET)
    context: dict[str, Any] = {"form": form, "known": form.known_tags}
    if form.names_both:
        try:
            baseline, candidate = chosen_measurements(
                form.chosen_agent,
                form.cleaned_data["baseline"],
                form.cleaned_data["candidate"],
                ways=form.chosen_judges,
            )
            if baseline is None or candidate is None:
                context |= _what_is_missing(request, form, baseline, candidate)
            else:
                pair = _compare(baseline, candidate)
                if request.GET.get("export") == "csv":
                    return _csv_response(pair)
                context |= _comparison_context(request, form, pair)
        except NotComparable as why:
            context["refused"] = display.visible(why)
    return model_admin.page(request, "admin/change/compare.html", "Compare two measurements", **context)


def _compare(baseline: Measurement, candidate: Measurement) -> ComparedPair:
    """Compare two measurements, with the claims as the judge was asked them, and a note on how many messages have no time.

    Raises:
        NotComparable: They do not compare, or are too large for a page.
    """
    runs = {*baseline.runs.values(), *candidate.runs.values()}
    judgements = EvaluationScore.objects.filter(evaluation_run__in=runs).order_by()
    is_too_large = judgements.values("pk")[MOST_JUDGEMENTS : MOST_JUDGEMENTS + 1].exists()
    if is_too_large:
        raise NotComparable(
            f"They hold more than {MOST_JUDGEMENTS:,} judgements, too many for a page; the command has no limit"
        )
    return ComparedPair(
        baseline=baseline,
        candidate=candidate,
        comparison=with_note_on_undated(compare(baseline, candidate)),
        claims=_claims_asked_in(runs),
    )


def _claims_asked_in(runs: Collection[int]) -> dict[tuple[str, str], Claim]:
    """Return the claims by dimension and proposition; of one with several wordings the last in the alphabet.

    Args:
        runs: Primary keys of evaluations; those of their agents' channels are looked at, too.
    """
    of_channels = ChannelShare.objects.filter(agent_run__in=runs).values("channel_run")
    scores = EvaluationScore.objects.filter(Q(evaluation_run__in=runs) | Q(evaluation_run__in=of_channels)).order_by()
    grouped = scores.values_list("dimension", "proposition_id", "inverted").annotate(text=Max("claim"))
    claims = {}
    for dimension, proposition, inverted, text in grouped:
        claims[dimension, proposition] = Claim(text=text or proposition, inverted=inverted)
    return claims


# -- what was not measured
def _what_is_missing(
    request: HttpRequest, form: CompareForm, baseline: Measurement | None, candidate: Measurement | None
) -> dict[str, Any]:
    """Return for the template what was not measured yet, with the pages that have it measured, or what is being measured."""
    missing = []
    missing_tags = []
    for name, measurement in (("baseline", baseline), ("candidate", candidate)):
        if measurement is not None:
            continue
        tag = _tag_text(form.cleaned_data[name])
        if tag:
            missing_tags.append(tag)
        missing.append(_missing_side(request, form, name, tag))
    under_way = _under_way(form, missing_tags)
    if under_way:
        return {
            "under_way": [(evaluation_link(run.pk), display.status_badge(run)) for run in under_way],
            # The page asks there about the first of them, and is fetched again when the answer changes.
            "live": f"{reverse('evaluationrun-detail', args=[under_way[0].pk])}?scores=0",
            "no_worker": not alive().exists(),
        }
    if len(missing_tags) == 2 and "url" in missing[1]:  # with an address: the user may evaluate
        # One button has both evaluated: the page of the second asks for the first, too.
        against = urlencode({"against": missing_tags[0]})
        missing[1] |= {"label": "Evaluate both", "url": f"{missing[1]['url']}&{against}"}
        missing[0] = {"words": missing[0]["words"]}
    return {"missing": missing}


def _missing_side(request: HttpRequest, form: CompareForm, name: str, tag: str) -> dict[str, str]:
    """Return what was not measured yet, and the page that has it measured, for those who may; without an agent only what is missing.

    Args:
        name: Of the side: ``baseline`` or ``candidate``.
        tag: That its messages should have, as ``build=41``; empty: none was asked for.
    """
    agent = form.chosen_agent
    page = "evaluate"
    if tag:
        words = f"The messages of {agent} with {tag} have not been evaluated yet."
        label = f"Evaluate {tag}"
    elif name == "baseline":
        words = f"{agent} has no baseline."
        label = "Capture a baseline"
        page = "capture"
    else:
        words = f"No evaluation of {agent} scored messages newer than the baseline's."
        label = "Evaluate now"
    if agent is None or not request.user.has_perm(MEASURE):
        return {"words": words}
    url = reverse(f"admin:evaluation_agent_{page}", args=[agent.pk])
    if tag:
        url = f"{url}?{urlencode({'tag': tag})}"
    return {"words": words, "label": label, "url": url}


def _tag_text(side: Asked) -> str:
    """Return a tag as people write it; empty for anything else."""
    return "=".join(side) if isinstance(side, tuple) else ""


def _under_way(form: CompareForm, tags: Sequence[str]) -> list[EvaluationRun]:
    """Return the agent's evaluations of one of these tags alone that have not ended: both measurements are there when they have."""
    if not tags:
        return []
    waiting = EvaluationRun.objects.filter(agent=form.chosen_agent, status__in=EvaluationRun.OPEN, swap_test="")
    under_way = []
    for run in waiting.order_by("pk"):
        if len(run.where) == 1 and any(f"{key}={value}" in tags for key, value in run.where.items()):
            under_way.append(run)
    return under_way


# -- a comparison, for the template
def _comparison_context(request: HttpRequest, form: CompareForm, pair: ComparedPair) -> dict[str, Any]:
    """Return everything the page shows of a comparison."""
    comparison = pair.comparison
    every = sorted(comparison.proposition_changes, key=_largest_fall_first)  # those without a difference last
    scored = [change for change in every if change.baseline is not None or change.candidate is not None]
    changed = [change for change in scored if _is_change(change)]
    listed = changed if form.cleaned_data["changed"] else scored
    may_read = request.user.has_perm(READ_MESSAGES)
    dimensions = [change.dimension for change in comparison.dimensions]
    judge_passports = passports(comparison.judge, comparison.procedure, dimensions, agent=comparison.target)
    one_sided_findings = _one_sided_findings(comparison)
    to_show = [*comparison.shown, *one_sided_findings[:MOST_PAIRS]]
    findings = [_shown_context(finding, pair, may_read=may_read) for finding in to_show]
    pairs = _message_pairs(scored, pair) if may_read else []
    _add_preceding_messages([*findings, *pairs])
    return {
        **_sentence_context(comparison, form.chosen_agent),
        "comparison": comparison,
        "findings": findings,
        "more_one_sided": [finding.name for finding in one_sided_findings[MOST_PAIRS:]],
        "missing_data": [(dimension_badge(name), line) for name, line in comparison.missing.items()],
        "judge": judged_by(JudgeAndProcedure(judge=comparison.judge, procedure=comparison.procedure)),
        "heuristic": is_heuristic(comparison.judge),
        "not_usable": not_usable(judge_passports),
        "trust": trust(judge_passports, request.user),
        "sides": [_side_context("A", pair.baseline), _side_context("B", pair.candidate)],
        "dimensions": table(
            ("Dimension", *CHANGE_HEADINGS),
            [_dimension_row(change) for change in comparison.dimensions],
            label="By dimension",
        ),
        "propositions": table(
            PROPOSITION_HEADINGS,
            [_proposition_row(change, pair) for change in listed],
            label="By proposition",
        ),
        "unscored": len(every) - len(scored),
        "only_changed": form.cleaned_data["changed"],
        "changed": len(changed),
        "scored": len(scored),
        "pairs": pairs,
        "may_read": may_read,
        "left_out": _left_out(comparison),
        "command": _command(form, pair),
        **_urls(form),
    }


def _command(form: CompareForm, pair: ComparedPair) -> str:
    """Return the command that prints the same comparison: of two evaluations, else of two tags; empty where there is none."""
    runs = [set(side.runs.values()) for side in (pair.baseline, pair.candidate)]
    if all(len(of_side) == 1 for of_side in runs):
        older, newer = (of_side.pop() for of_side in runs)
        return f"manage.py compare --runs {older} {newer}"
    tags = [_tag_text(form.cleaned_data[name]) for name in ("baseline", "candidate")]
    if form.chosen_agent is None or not all(tags):
        return ""
    return shlex.join(
        ["manage.py", "compare", f"--agents={form.chosen_agent.slug}", f"--a={tags[0]}", f"--b={tags[1]}"]
    )


def _sentence_context(comparison: Comparison, chosen: Agent | None) -> dict[str, Any]:
    """Return the sentence that the page begins with, and what it is about.

    Args:
        chosen: The agent in the form; where two evaluations of another one are named, the sentence is about that one.
    """
    agent = chosen
    if agent is None or agent.slug != comparison.target:
        agent = Agent.objects.filter(slug=comparison.target).first()
    if agent is None:  # of a channel
        return {"who": display.isolated(comparison.target), "sentence": channel_predicate(comparison)}
    drift = drift_of_comparison(agent, comparison)
    return {
        "who": agent_chip(agent),
        "sentence": predicate_of(drift),
        "drift": drift,
        "certainty": why_drifted(drift),
        "scores_url": scores_behind(drift.main),
        "sparkline": drift_sparkline(drift.main, since=since_of(drift)) if drift.main is not None else "",
    }


def _is_change(change: ChangeResult) -> bool:
    """Return whether a proposition changed: significantly, by the margin or more, or from scored to unscored or back."""
    if change.verdict in ("drifted", "improved"):
        return True
    if change.points is not None:
        return abs(change.points) >= MARGIN
    return one_sided(change) is not None


def _one_sided_findings(comparison: Comparison) -> list[Shown]:
    """Return the propositions that are scored on one side only, the largest share first; without those that hits compare.

    Those of a dimension that is scored on one side only as a whole are left out: the dimension is a finding of its own.
    """
    whole = {finding.dimension for finding in comparison.shown if not finding.proposition}
    findings = []
    for change in comparison.proposition_changes:
        finding = one_sided(change) if change.hits is None else None
        if finding is not None and change.dimension not in whole:
            scored, unscored = change.share, change.baseline_share
            if finding.only_before:
                scored, unscored = change.baseline_share, change.share
            figures = (
                f"{finding.figures}, {unscored or NOTHING} judgements scored in {'B' if finding.only_before else 'A'}"
            )
            share = (scored or NOTHING).value or 0.0
            findings.append((share, finding.model_copy(update={"figures": figures})))
    findings.sort(key=lambda row: (-row[0], row[1].name))
    return [finding for _, finding in findings]


def _add_preceding_messages(contexts: Sequence[dict[str, Any]]) -> None:
    """Add to all quotes the messages that they answered, in two statements."""
    messages = []
    for context in contexts:
        messages += [quote.message for _, quote in context["quotes"]]
    heard_by_message = preceding_messages(messages)
    for context in contexts:
        context["quotes"] = [
            (side, replace(quote, heard=heard_by_message.get(quote.message.pk))) for side, quote in context["quotes"]
        ]


def _largest_fall_first(change: ChangeResult) -> tuple[bool, float, str]:
    return change.points is None, change.points or 0.0, change.name


def _urls(form: CompareForm) -> dict[str, str]:
    """Return the addresses of the same comparison the other way round, as a file, and with what changed alone or with all."""
    fields = {name: form.data.get(name, "") for name in ("agent", "judge", "baseline", "candidate", "changed")}
    urls = {
        "csv_url": compare_url(**fields, export="csv"),
        "swap_url": "",
        "changed_url": compare_url(**{**fields, "changed": "on"}),
        "every_url": compare_url(**{**fields, "changed": ""}),
    }
    if fields["baseline"] and fields["candidate"]:
        swapped = {**fields, "baseline": fields["candidate"], "candidate": fields["baseline"]}
        urls["swap_url"] = compare_url(**swapped)
    return urls


def _left_out(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the propositions that are in no change of a dimension, by the reason."""
    reasons = (
        ("Reworded since A, or the judge's prompt changed, so not compared", comparison.changed),
        ("Nothing could be judged by", comparison.unjudged),
        ("Only in A", comparison.only_baseline),
        ("Only in B", comparison.only_candidate),
        ("Judged once over the window, so compared alone", comparison.over_window),
    )
    return [(why, ", ".join(names)) for why, names in reasons if names]


def _side_context(side: str, measurement: Measurement) -> tuple[str, SafeString, SafeString, str]:
    """Return A or B, its name, links to the evaluations it rests on, and its messages (``7d``; empty: all, or the name says so)."""
    runs = sorted(set(measurement.runs.values()))
    links = format_html_join(", ", "{}", ((evaluation_link(pk),) for pk in runs))
    scope = measurement.scope or ""
    if scope in measurement.name:
        scope = ""
    return side, display.visible(measurement.name), links, scope


def _shown_context(finding: Shown, pair: ComparedPair, *, may_read: bool) -> dict[str, Any]:
    """Return what can be said although there is no difference of scores, for those who may read messages with some that show it.

    They are the lowest of B; of a score in A alone those of A. `name` tells them apart, as in the address of the judgements.
    """
    side, measurement = ("A", pair.baseline) if finding.only_before else ("B", pair.candidate)
    quotes = []
    if may_read:
        for row in lowest_scores(measurement.runs[finding.dimension], finding.dimension, finding.proposition):
            if row.message:
                quotes.append((side, Quote(message=row.message, score=row.score or 0)))
    claim = pair.claim(finding.dimension, finding.proposition)
    return {
        "name": finding.name,
        "claim": claim.text or finding.name,
        "inverted": claim.inverted,
        "verdict": display.badge(finding.verdict, SHOWN_TONES.get(finding.verdict, "plain")),
        "figures": finding.figures,
        "quotes": quotes,
    }


def _message_pairs(listed: Sequence[ChangeResult], pair: ComparedPair) -> list[dict[str, Any]]:
    """Return up to five changes of at least the margin, each with a message of A and one of B that show it.

    Significant changes come first, then the largest. A message of B shows one change only; counts, and changes that no two messages
    show, are left out.
    """
    moved = []
    for change in listed:
        if change.delta is not None and abs(change.delta) >= MARGIN and not change.counted:
            moved.append(change)
    moved.sort(key=_significant_and_largest_first)
    moved = moved[: 3 * MOST_PAIRS]  # not all have messages
    keys = []
    for change in moved:
        before = (pair.baseline.runs[change.dimension], change.dimension, change.proposition)
        now = (pair.candidate.runs[change.dimension], change.dimension, change.proposition)
        keys.append(ComparedJudgements(before, now, rose=(change.delta or 0.0) > 0))
    pairs: dict[int, dict[str, Any]] = {}
    for change, (first, second) in zip(moved, quotes_of(keys), strict=True):
        if first is None or second is None or second.message.pk in pairs:
            continue
        if len(pairs) == MOST_PAIRS:
            break
        claim = pair.claim(change.dimension, change.proposition)
        pairs[second.message.pk] = {
            "claim": claim.text,
            "inverted": claim.inverted,
            "change": f"{number_text(change.baseline)} → {number_text(change.candidate)}",
            "quotes": [("A", first), ("B", second)],
        }
    return list(pairs.values())


def _significant_and_largest_first(change: ChangeResult) -> tuple[bool, float, str]:
    is_open = change.verdict not in ("drifted", "improved")
    return is_open, -abs(change.delta or 0.0), change.name


# -- rows of the tables
def _dimension_row(change: ChangeResult) -> tuple[object, ...]:
    return dimension_badge(change.dimension), *_change_cells(change, "; ".join(_remarks(change)))


def _proposition_row(change: ChangeResult, pair: ComparedPair) -> tuple[object, ...]:
    """Return a row that begins with the claim in words, and its id, which leads to the judgements in B."""
    claim = pair.claim(change.dimension, change.proposition)
    url = display.list_url(
        EvaluationScore,
        run=pair.candidate.runs.get(change.dimension),
        dimension__exact=change.dimension,
        proposition_id=change.proposition,
    )
    link = display.link(url, change.proposition, "its judgements in B")
    inverted = display.badge("anti-pattern", "plain", INVERTED) if claim.inverted else ""
    name = display.lines(
        format_html('<span dir="auto">{}</span>', display.visible(claim.text)),
        format_html("{} {} {}", link, dimension_badge(change.dimension), inverted),
    )
    before, now, points, _, verdict = _change_cells(change, _folded_statistics(change))
    return name, before, now, points, verdict


def _folded_statistics(change: ChangeResult) -> SafeString:
    """Return the interval and the remarks on a proposition, one click away; empty without any."""
    statistics = []
    if change.interval is not None:
        statistics.append(f"95 % interval {interval_text(change.interval)}")
    if change.p_adjusted is not None:
        statistics.append(f"p {p_text(change.p_adjusted)}, corrected for all propositions here")
    statistics += _remarks(change)
    if not statistics:
        return SafeString("")
    return format_html(
        '<details class="pl-folded"><summary>how sure</summary><div class="pl-text" dir="auto">{}</div></details>',
        display.visible("; ".join(statistics)),
    )


def _remarks(change: ChangeResult) -> list[str]:
    """Return what a reader must know of the verdict: what would decide, or why nothing does, and what its interval is of."""
    remarks = []
    if change.n_more:
        remarks.append(f"{change.n_more:,} more {change.unit} would decide")
    elif change.verdict in ("possibly drifted", "not enough data") and change.reason:
        remarks.append(change.reason)
    if change.interval_note and change.interval_note not in remarks:
        remarks.append(change.interval_note)
    return remarks


def _change_cells(change: ChangeResult, remarks: object) -> tuple[object, ...]:
    """Return the cells of a change that stand below `CHANGE_HEADINGS`."""
    if change.hits is not None:
        before: object = f"{change.baseline_hits} hit"
        now: object = f"{change.hits} hit"
    else:
        before = _score_cell(change, change.baseline, change.baseline_share)
        now = _score_cell(change, change.candidate, change.share)
    tone = "plain" if change.counted else TONES[change.verdict]
    verdict = display.badge(change.verdict, tone, change.reason)
    return (
        before,
        now,
        signed(change.shown_points, 0 if change.counted else 1),
        interval_text(change.interval),
        format_html('{} <span class="pl-subtle">{}</span>', verdict, remarks),
    )


def _score_cell(change: ChangeResult, score: float | None, share: Share | None) -> SafeString:
    """Return a score as a cell: a meter, a count, or the statistic of repeated words."""
    if change.counted and score is not None:
        return number(None, int(score), share=share)
    if change.of_words:
        return of_words(score)
    return number(score, None, share=share, why=change.reason if change.too_little_scored else "")


# -- as a file
def _csv_response(pair: ComparedPair) -> HttpResponse:
    """Return a line for each dimension and proposition, with the numbers of `compare --json`."""
    comparison = pair.comparison
    rows = [_csv_row(change, pair) for change in (*comparison.dimensions, *comparison.proposition_changes)]
    empty_row: dict[str, Any] = {}  # with the columns of all rows: counts have one more
    for row in rows:
        empty_row |= dict.fromkeys(row)
    lines = csv_lines(({**empty_row, **row} for row in rows), list(empty_row))
    response = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    filename = f"comparison-{comparison.target.removeprefix('#')}.csv"
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def _csv_row(change: ChangeResult, pair: ComparedPair) -> dict[str, Any]:
    """Return a row of the CSV file: what was compared, then the change as JSON has it; hits as text, e.g. ``7 of 24``."""
    comparison = pair.comparison
    claim = pair.claims.get((change.dimension, change.proposition))
    row = {
        "target": comparison.target,
        "a": comparison.baseline.name,
        "b": comparison.candidate.name,
        "judge": comparison.judge,
        "heuristic": is_heuristic(comparison.judge),
        "procedure": comparison.procedure,
        "dimension": change.dimension,
        "proposition": change.proposition,
        "claim": claim.text if claim else "",
        **change.model_dump(),
    }
    if change.hits:
        row |= {"baseline_hits": str(change.baseline_hits), "hits": str(change.hits)}
    return row
