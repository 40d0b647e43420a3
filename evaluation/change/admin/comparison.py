"""The page that compares any two measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from evaluation.calibration.admin.trust import trust
from evaluation.calibration.agreement import with_trust
from evaluation.change.admin.drift_overview import MOST_AGENTS, by_name, compare_url, read_tag, way_name
from evaluation.change.change import ChangeResult
from evaluation.change.choosing import Asked, chosen_measurements, ways_of, with_undated
from evaluation.change.comparison import Comparison, Shown, compare
from evaluation.change.evidence import Judged
from evaluation.change.examples import ComparedJudgements, Quote, lowest_scores, quotes_of
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.commands import as_text
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.summary import Share
from evaluation.statistics.difference import MARGIN

MOST_JUDGEMENTS = 20_000  # more take seconds; the command has no limit
FILES = {"csv": "text/csv", "json": "application/json"}
HEADS = ("A", "B", "Change", "95 % interval", "Verdict")
READING = "agents.view_message"
Claims = Mapping[tuple[str, str], tuple[str, bool]]


def _row(change: ChangeResult, name: SafeString | None = None) -> tuple[object, ...]:
    """A row of a change, called `name` (default: the dimension).

    It has what a reader must know of the verdict: what would decide, or why nothing does, and what its interval is of.
    """
    open_ = change.reason if change.verdict in ("possibly drifted", "not enough data") else ""
    more = f"{change.n_more:,} more {change.unit} would decide" if change.n_more else open_
    remarks: object = "; ".join(dict.fromkeys(filter(None, (more, change.interval_note))))
    if name is not None and remarks:
        remarks = display.folded(str(remarks), 36)
    tone = "plain" if change.counted else TONES[change.verdict]
    numbers = (
        (f"{change.baseline_hits} hit", f"{change.hits} hit")
        if change.hits is not None
        else (
            _number(change, change.baseline, change.baseline_share),
            _number(change, change.candidate, change.share),
        )
    )
    return (
        name or dimension_badge(change.dimension),
        *numbers,
        signed(change.points, 0 if change.counted else 2),
        interval_text(change.interval),
        format_html(
            '{} <span class="pl-subtle">{}</span>', display.badge(change.verdict, tone, change.reason), remarks
        ),
    )


def _number(change: ChangeResult, value: float | None, share: Share | None) -> SafeString:
    if change.counted and value is not None:
        return number(None, int(value), share=share)
    if change.of_words:
        return of_words(value)
    return number(value, None, share=share, why=change.reason if change.too_little_scored else "")


def _too_large(runs: Collection[int]) -> bool:
    """Whether there are too many judgements to compare for a page."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=set(runs)).order_by()
    return judgements.values("pk")[MOST_JUDGEMENTS : MOST_JUDGEMENTS + 1].exists()


SHOWN_TONES = {"worse": TONES["drifted"], "better": TONES["improved"]}
SHOWN_PAIRS = 5  # changes with messages that show them
KNOWN_TAGS = 1_000  # newest messages whose tags are offered


def _side_field(label: str, about: str) -> forms.CharField:
    known = TextInput(attrs={"list": "known-tags"})
    return forms.CharField(required=False, max_length=300, label=label, help_text=about, widget=known)


class CompareForm(forms.Form):
    """Which two measurements, and what of them."""

    agent = forms.ChoiceField(required=False, widget=Select)
    baseline = _side_field("A", "a tag such as build=40, or the number of an evaluation; empty: the baseline")
    candidate = _side_field("B", "a tag such as build=41, or the number of an evaluation; empty: the newest evaluation")
    judge = forms.ChoiceField(required=False, widget=Select, help_text="of both; any: a model before a heuristic")
    worse = forms.BooleanField(required=False, label="only worse", help_text=f"fell by {MARGIN:g} points or more")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.data.get("agent", "")
        self.whose: Agent | None = Agent.objects.filter(slug=asked).first() if asked else None
        rows = by_name().values_list("slug", "display_name")
        names = {"": "choose", **dict(rows[:MOST_AGENTS]), **({asked: self.whose.display_name} if self.whose else {})}
        self.ways = {str(way): way for way in ways_of(self.whose)} if self.whose else {}
        judges = [("", "any"), *((name, way_name(way)) for name, way in self.ways.items())]
        for name, choices in (("agent", list(names.items())), ("judge", judges)):
            self.fields[name].choices = choices  # type: ignore[attr-defined]

    def clean_baseline(self) -> Asked:
        return _asked(self.cleaned_data["baseline"])

    def clean_candidate(self) -> Asked:
        return _asked(self.cleaned_data["candidate"])

    def clean(self) -> None:
        runs = [self.cleaned_data.get(name) for name in ("baseline", "candidate")]
        if self.whose is None:
            self.whose = next((run.agent for run in runs if isinstance(run, EvaluationRun) and run.agent), None)
        if None not in runs and runs[0] == runs[1]:
            raise ValidationError("A and B are the same: nothing to compare.")

    @property
    def chosen_ways(self) -> list[Judged]:
        """How both were judged: as asked for, else in any way, the preferred one first."""
        if named := self.ways.get(self.cleaned_data["judge"]):
            return [named]
        return ways_of(self.whose) if self.whose else []

    @property
    def known(self) -> list[str]:
        """Tags of the agent's newest messages."""
        if self.whose is None:
            return []
        tagged = Message.objects.filter(agent=self.whose, synthetic=False).exclude(tags={})
        newest = tagged.order_by("-pk").values_list("tags", flat=True)[:KNOWN_TAGS]
        return sorted({f"{key}={value}" for one in newest for key, value in one.items()})


def _asked(text: str) -> Asked:
    """Read an evaluation's number or a tag.

    Raises:
        ValidationError: It is neither; names the text and what is allowed.
    """
    text = text.strip().removeprefix("#")
    if not (text.isascii() and text.isdigit()):
        return read_tag(text)
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=text[:18]).first()
    if run is None:
        raise ValidationError("There is no evaluation %(text)s.", params={"text": text[:80]})
    return run


def compare_page(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Compare the two measurements that the address names: on a page, or as a file."""
    form = CompareForm(request.GET)
    context: dict[str, Any] = {"form": form, "known": form.known}
    asked = [form.cleaned_data[name] for name in ("baseline", "candidate")] if form.is_valid() else []
    if asked and (form.whose is not None or all(isinstance(one, EvaluationRun) for one in asked)):
        try:
            before, now = chosen_measurements(form.whose, *asked, ways=form.chosen_ways)
            if before is not None and now is not None:
                runs = {*before.runs.values(), *now.runs.values()}
                if _too_large(runs):
                    raise NotComparable(
                        f"They hold more than {MOST_JUDGEMENTS:,} judgements, too many for a page; the command has no limit"
                    )
                comparison = with_undated(compare(before, now))
                claims = _claims(runs)
                if (kind := request.GET.get("export")) in FILES:
                    return _as_file(comparison, claims, str(kind))
                context |= _two(request, form, comparison, claims, before, now)
        except NotComparable as why:
            context["refused"] = display.visible(why)
        else:
            sides = zip(("baseline", "candidate"), asked, (before, now), strict=True)
            lacking = [(name, one) for name, one, side in sides if side is None]
            missing = [_missing(request, form, name, one) for name, one in lacking]
            if len(missing) == 2 and all(isinstance(one, tuple) for one in asked) and "url" in missing[1]:
                url = f"{missing[1]['url']}&{urlencode({'against': _text(asked[0])})}"
                missing = [{"words": missing[0]["words"]}, {**missing[1], "label": "Evaluate both", "url": url}]
            under_way = _under_way(form, [one for _, one in lacking])
            context["missing"] = missing if not under_way else []
            context["under_way"] = [(evaluation_link(run.pk), display.status_badge(run)) for run in under_way]
            context["live"] = f"{reverse('evaluationrun-detail', args=[under_way[0].pk])}?scores=0" if under_way else ""
            context["no_worker"] = bool(under_way) and not alive().exists()
    return model_admin.page(request, "admin/change/compare.html", "Compare two measurements", **context)


def _text(asked: Asked) -> str:
    """A tag as people write it; empty for anything else."""
    return "=".join(asked) if isinstance(asked, tuple) else ""


def _under_way(form: CompareForm, lacking: Sequence[Asked]) -> list[EvaluationRun]:
    """The evaluations of tags that were asked for and have not ended: both measurements are there when they have."""
    tags = [{one[0]: one[1]} for one in lacking if isinstance(one, tuple)]
    waiting = EvaluationRun.objects.filter(agent=form.whose, status__in=EvaluationRun.OPEN, swap_test="").order_by("pk")
    return [run for run in waiting if run.where in tags] if tags else []


def _missing(request: HttpRequest, form: CompareForm, name: str, asked: Asked) -> dict[str, str]:
    """What was not measured yet, and the page that has it measured."""
    tag, whose = _text(asked), form.whose
    what = "capture" if name == "baseline" and not tag else "evaluate"
    if tag:
        words, label = f"The messages of {whose} with {tag} have not been evaluated yet.", f"Evaluate {tag}"
    elif what == "capture":
        words, label = f"{whose} has no baseline.", "Capture a baseline"
    else:
        words, label = f"No evaluation of {whose} scored messages newer than the baseline's.", "Evaluate now"
    if whose is None or not request.user.has_perm(MEASURE):
        return {"words": words}
    url = reverse(f"admin:evaluation_agent_{what}", args=[whose.pk])
    return {"words": words, "label": label, "url": f"{url}?{urlencode({'tag': tag})}" if tag else url}


def _claims(runs: Collection[int]) -> Claims:
    """By dimension and proposition the claim, as it was asked last, and whether it is inverted."""
    of_channels = ChannelShare.objects.filter(agent_run__in=runs).values("channel_run")
    asked = EvaluationScore.objects.filter(Q(evaluation_run__in=runs) | Q(evaluation_run__in=of_channels)).order_by()
    grouped = asked.values_list("dimension", "proposition_id", "inverted").annotate(words=Max("claim"))
    return {(dimension, name): (words, inverted) for dimension, name, inverted, words in grouped}


def _two(
    request: HttpRequest,
    form: CompareForm,
    comparison: Comparison,
    claims: Claims,
    before: Measurement,
    now: Measurement,
) -> dict[str, Any]:
    """Everything the page shows of a comparison."""
    every = sorted(
        comparison.proposition_changes,
        key=lambda change: (change.points is None, change.points or 0.0, change.name),
    )
    scored = [change for change in every if (change.baseline, change.candidate) != (None, None)]
    shown = (
        [c for c in scored if c.points is not None and c.points <= -MARGIN] if form.cleaned_data["worse"] else scored
    )
    named = {name: form.data.get(name, "") for name in ("agent", "judge", "baseline", "candidate")}
    swapped = {**named, "baseline": named["candidate"], "candidate": named["baseline"]}
    may_read = request.user.has_perm(READING)
    return {
        "comparison": comparison,
        "shown": [_shown(one, before, now, claims, may_read=may_read) for one in comparison.shown],
        "missing_data": [(dimension_badge(name), line) for name, line in comparison.missing.items()],
        "judge": judged_by(Judged(judge=comparison.judge, procedure=comparison.procedure)),
        "heuristic": is_heuristic(comparison.judge),
        "trust": trust(
            comparison.judge,
            comparison.procedure,
            [change.dimension for change in comparison.dimensions],
            request.user,
            agent=comparison.target,
        ),
        "target": agent_chip(form.whose) if form.whose else display.visible(comparison.target),
        "sides": [(name, *_behind(side)) for name, side in (("A", before), ("B", now))],
        "dimensions": table(
            ("Dimension", *HEADS), [_row(change) for change in comparison.dimensions], label="By dimension"
        ),
        "propositions": table(
            ("Proposition", *HEADS),
            [
                _row(change, _named(change, now, *claims.get((change.dimension, change.proposition), ("", False))))
                for change in shown
            ],
            label="By proposition",
        ),
        "unscored": len(every) - len(scored),
        "hidden": len(scored) - len(shown),
        "pairs": _pairs(shown, before, now, claims) if may_read else [],
        "may_read": may_read,
        "left_out": [
            (why, ", ".join(names))
            for why, names in (
                ("Reworded since A, or the judge's prompt changed, so not compared", comparison.changed),
                ("Nothing could be judged by", comparison.unjudged),
                ("Scored in one of the two only, so in no change of a dimension", comparison.scored_in_one),
                ("Only in A", comparison.only_baseline),
                ("Only in B", comparison.only_candidate),
                ("Judged once over the window, so compared alone", comparison.over_window),
            )
            if names
        ],
        "swap_url": compare_url(**swapped) if all(swapped[name] for name in ("baseline", "candidate")) else "",
        "files": [(kind.upper(), compare_url(**named, export=kind)) for kind in FILES],
    }


def _behind(measured: Measurement) -> tuple[SafeString, SafeString, str]:
    """What a measurement is called, the evaluations it rests on, and of which messages it is where the name does not say so."""
    scope = measured.scope or ""
    links = format_html_join(", ", "{}", ((evaluation_link(pk),) for pk in sorted(set(measured.runs.values()))))
    return display.visible(measured.name), links, "" if scope in measured.name else scope


def _named(change: ChangeResult, now: Measurement, claim: str, inverted: bool) -> SafeString:
    """The claim in words, and its id, which leads to the judgements in B."""
    run = now.runs.get(change.dimension)
    url = display.list_url(
        EvaluationScore, run=run, dimension__exact=change.dimension, proposition_id=change.proposition
    )
    mark = display.badge("inverted", "plain", "an anti-pattern: 9 means not at all") if inverted else ""
    below = format_html(
        "{} {} {}",
        display.link(url, change.proposition, "its judgements in B"),
        dimension_badge(change.dimension),
        mark,
    )
    return display.lines(format_html('<span dir="auto">{}</span>', display.visible(claim or change.proposition)), below)


def _shown(shown: Shown, before: Measurement, now: Measurement, claims: Claims, *, may_read: bool) -> dict[str, Any]:
    """What can be said although there is no difference of scores, with messages that show it."""
    name, side = ("A", before) if shown.only_before else ("B", now)
    claim, inverted = claims.get((shown.dimension, shown.proposition), ("", False))
    rows = lowest_scores(side.runs[shown.dimension], shown.dimension, shown.proposition) if may_read else []
    return {
        "claim": claim or shown.name,
        "inverted": inverted,
        "verdict": display.badge(shown.verdict, SHOWN_TONES.get(shown.verdict, "plain")),
        "figures": shown.figures,
        "quotes": [(name, Quote(message=row.message, score=row.score or 0)) for row in rows if row.message],
    }


def _pairs(
    shown: Sequence[ChangeResult], before: Measurement, now: Measurement, claims: Claims
) -> list[dict[str, Any]]:
    """The largest changes, each with a message of A and one of B that show it."""
    moved = [c for c in shown if c.delta is not None and abs(c.delta) >= MARGIN and not c.counted]
    largest = sorted(moved, key=lambda c: (c.verdict not in ("drifted", "improved"), -abs(c.delta or 0.0), c.name))
    keys = []
    for c in largest[: 3 * SHOWN_PAIRS]:
        was, is_ = ((side.runs[c.dimension], c.dimension, c.proposition) for side in (before, now))
        keys.append(ComparedJudgements(was, is_, rose=(c.delta or 0.0) > 0))
    pairs: dict[int, dict[str, Any]] = {}  # by message of B: each shows one change
    for change, (first, second) in zip(largest, quotes_of(keys), strict=False):
        if first is not None and second is not None and second.message.pk not in pairs and len(pairs) < SHOWN_PAIRS:
            claim, inverted = claims.get((change.dimension, change.proposition), (change.proposition, False))
            pairs[second.message.pk] = {
                "claim": claim,
                "inverted": inverted,
                "change": f"{number_text(change.baseline)} → {number_text(change.candidate)}",
                "quotes": [("A", first), ("B", second)],
            }
    return list(pairs.values())


def _as_file(comparison: Comparison, claims: Claims, kind: str) -> HttpResponse:
    """The comparison as `compare --json` prints it, or a line for each dimension and proposition with the same numbers."""
    if kind == "json":
        document = comparison.model_dump()
        how = {"judge": comparison.judge, "procedure": comparison.procedure, "agent": comparison.target}
        with_trust(document["dimensions"], **how)
        text = as_text({"comparisons": [document], "not_compared": {}})
    else:
        rows = [
            {
                "target": comparison.target,
                "a": comparison.baseline.name,
                "b": comparison.candidate.name,
                "judge": comparison.judge,
                "heuristic": is_heuristic(comparison.judge),
                "procedure": comparison.procedure,
                "dimension": change.dimension,
                "proposition": change.proposition,
                "claim": claims.get((change.dimension, change.proposition), ("", False))[0],
                **change.model_dump(),
                **({"baseline_hits": str(change.baseline_hits), "hits": str(change.hits)} if change.hits else {}),
            }
            for change in (*comparison.dimensions, *comparison.proposition_changes)
        ]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = "".join(csv_lines(({name: row.get(name) for name in columns} for row in rows), columns))
    response = HttpResponse(text, content_type=f"{FILES[kind]}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="comparison-{comparison.target.removeprefix("#")}.{kind}"'
    return response
