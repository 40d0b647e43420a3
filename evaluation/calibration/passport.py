"""The passport of a judge: may its scores be used? Decided from its stored row and the settings alone, so it costs a page no more queries.

It is decided by the ends of intervals, never by the figures themselves:

* **Usable** takes two things: kappa with people, whose interval lies above ``JUDGE_LEAST_KAPPA`` (0.60) on 20 labelled judgements or
  more of 10 conversations or more, and a swap test whose interval lies above chance (0.5). A dimension that is judged over a window has no
  texts to swap: there agreement decides alone.
* **Not usable** takes one significantly bad figure: kappa, whose interval lies below ``JUDGE_LEAST_KAPPA``; agreement with people
  significantly more than 0.1 below that of two people with each other (with enough labels every judge is significantly a little below);
  a swap test significantly below chance; or an order test that significantly moves scores by more than half a point, the change that
  elsewhere counts as none.
* **Not shown** is everything else. The passport then says which row is missing and about how many labels or texts would decide it.

Figures of an earlier model or prompt decide nothing. Precision and recall, the spread between repeats and coverage decide nothing either:
they have no limit that suits every use, and what they do to agreement is in kappa's interval already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import ceil
from typing import Any

from django.conf import settings
from django.db.models import F

from agents.kit.text.wording import counted, day_text, decimal, percentage, signed
from evaluation.calibration.agreement import MOST_WANTED, Figure, Observed, OrderShown, SwapShown
from evaluation.calibration.labels import Key
from evaluation.calibration.models import LEAST_ITEMS, JudgeCalibration
from evaluation.calibration.stored import calibration_of
from evaluation.judge.identity import JudgeIdentity
from evaluation.judge.passport import Passport, PassportRow, PassportVerdict, RowName
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore, Method
from evaluation.statistics.agreement import LEAST_CLUSTERS
from evaluation.statistics.difference import MARGIN

CHANCE = 0.5
BELOW_PEOPLE = 0.1  # of kappa: so much less than two people a judge may agree
NO_LABELS = "no human labels yet"
NOT_CHECKED = "not checked"
NOT_COMPUTED = "not computed yet"
HOW = "manage.py calibrate_judge and check_judge get what is missing."
EARLIER = "of an earlier model or prompt"
JUDGE_IS: dict[PassportVerdict, str] = {
    "usable": "judge usable",
    "not shown": "judge not shown to be usable",
    "not usable": "judge not usable",
}
TITLES: dict[RowName, str] = {
    "agreement": "Agreement with people",
    "people": "Agreement beyond that of two people",
    "swap test": "Swap test",
    "order": "Order in a call",
    "precision": "Precision of violations",
    "recall": "Recall of violations",
    "retest": "Spread between repeats",
    "coverage": "Coverage",
}


# -- deciding
def passport_of(key: Key, row: JudgeCalibration | None, *, agent: str = "") -> Passport:
    """Return the passport of a judge, procedure and dimension from its stored row; None: nothing is known of it yet.

    Args:
        agent: A slug, whose own figure of the swap test is named, too, where that is known.
    """
    stored = row or JudgeCalibration(**key._asdict())
    rows = [_agreement_row(stored)]
    if stored.annotators > 1:
        rows.append(_people_row(stored))
    if key.dimension in BY_MESSAGE:
        rows.append(_swap_row(stored, agent))
        rows.append(_order_row(stored))
    rows += _violation_rows(stored)
    rows += _observed_rows(stored)
    verdict, decided_by = _decide(rows)
    return Passport(
        **key._asdict(),
        verdict=verdict,
        decided_by=decided_by,
        rows=rows,
        identity=_identity(stored.identity),
        labels=stored.labels,
        items=stored.items,
        annotators=stored.annotators,
        earlier_labels=stored.figures.get("earlier_labels", 0),
        stale=stored.is_stale,
        computed_at=stored.computed_at.isoformat(timespec="seconds") if stored.computed_at else "",
    )


def _decide(rows: Sequence[PassportRow]) -> tuple[PassportVerdict, list[RowName]]:
    """Return the verdict, and the rows that decided it; see the module's docstring."""
    bad = [row.name for row in rows if row.verdict == "not usable"]
    if bad:
        return "not usable", bad
    needed = [row for row in rows if row.name in ("agreement", "swap test")]
    not_shown = [row.name for row in needed if row.verdict != "usable"]
    if not_shown:
        return "not shown", not_shown
    return "usable", [row.name for row in needed]


def _verdict(interval: tuple[float, float] | None, limit: float) -> PassportVerdict:
    """Return whether an interval lies above a limit, below it, or neither."""
    if interval is None:
        return "not shown"
    low, high = interval
    if low > limit:
        return "usable"
    return "not usable" if high < limit else "not shown"


def _more(value: float, interval: tuple[float, float], n: int, *, limit: float, what: str) -> str:
    """Return about how many more would take the interval off the limit, if the figure stays where it is: ``about 40 more labels``.

    The width of an interval shrinks with the root of the number.
    """
    low, high = interval
    reach = value - low if value > limit else high - value
    distance = abs(value - limit)
    if distance < 1e-9:
        return f"many more {what}s"
    more = max(1, ceil(n * (reach / distance) ** 2) - n)
    if more > MOST_WANTED:
        return f"many more {what}s"
    return f"about {counted(more, f'more {what}')}"


# -- the rows
def _identity(stored: dict[str, Any] | None) -> JudgeIdentity | None:
    return JudgeIdentity.model_validate(stored) if stored else None


def _is_earlier(row: JudgeCalibration, identity: JudgeIdentity | None) -> bool:
    """Return whether a figure is of an earlier model or prompt than the newest scores; False where either is not known."""
    newest = _identity(row.identity)
    return newest is not None and identity is not None and identity != newest


def _agreement_row(row: JudgeCalibration) -> PassportRow:
    """Return the row of kappa with people."""
    agreement = PassportRow(
        name="agreement", value=None, interval=None, n=row.items, verdict="not shown", text="", missing=""
    )
    at_least = f"at least {counted(LEAST_ITEMS, 'label')}"
    earlier = row.figures.get("earlier_labels", 0)
    if _is_earlier(row, _identity(row.figures.get("identity"))):
        agreement.text = f"{counted(row.labels, 'label is', 'labels are')} {EARLIER}"
        agreement.missing = at_least
        return agreement
    if not row.labels:
        agreement.text = NO_LABELS
        if earlier:
            agreement.text = f"{counted(earlier, 'label is', 'labels are')} {EARLIER}"
        agreement.missing = at_least
        return agreement
    if row.items < LEAST_ITEMS:
        agreement.text = f"{row.items} of {LEAST_ITEMS} labelled judgements needed"
        agreement.missing = f"at least {counted(LEAST_ITEMS - row.items, 'more label')}"
        return agreement
    labels = counted(row.labels, "label")
    if row.kappa is None:
        agreement.text = f"κ undefined, {labels}"
        agreement.missing = "labels of judgements that differ"
        return agreement
    agreement.value = row.kappa
    agreement.text = f"κ {decimal(row.kappa, 2)}, {labels}"
    if row.kappa_low is None or row.kappa_high is None:
        agreement.missing = "labels of judgements that differ more"
        return agreement
    agreement.interval = (row.kappa_low, row.kappa_high)
    agreement.text = f"κ {decimal(row.kappa, 2)} {_interval_text(agreement.interval)}, {labels}"
    conversations = row.figures.get("conversations", 0)
    if conversations < LEAST_CLUSTERS:
        agreement.text += f" of {counted(conversations, 'conversation')}"
        agreement.missing = f"labels of {counted(LEAST_CLUSTERS - conversations, 'more conversation')}"
        return agreement
    least = settings.JUDGE_LEAST_KAPPA
    agreement.verdict = _verdict(agreement.interval, least)
    if agreement.verdict == "not shown":
        agreement.missing = _more(row.kappa, agreement.interval, row.items, limit=least, what="label")
    return agreement


def _people_row(row: JudgeCalibration) -> PassportRow:
    """Return the row of the judge's agreement with people beside that of people with each other."""
    beyond = PassportRow(name="people", value=None, interval=None, n=0, verdict="not shown", text=NO_LABELS)
    if _is_earlier(row, _identity(row.figures.get("identity"))) or not row.figures.get("beyond_people"):
        return beyond
    figure = Figure.model_validate(row.figures["beyond_people"])
    beyond.value, beyond.interval, beyond.n = figure.value, figure.interval, figure.n
    if figure.value is None or figure.interval is None:
        beyond.text = figure.reason
        return beyond
    both = counted(figure.n, "judgement")
    beyond.text = f"κ {signed(figure.value, 2)} {_interval_text(figure.interval)} beside two people, {both} of two"
    beyond.verdict = _verdict(figure.interval, -BELOW_PEOPLE)
    if beyond.verdict == "not shown":
        beyond.missing = _more(figure.value, figure.interval, figure.n, limit=-BELOW_PEOPLE, what="label")
    return beyond


def _swap_row(row: JudgeCalibration, agent: str) -> PassportRow:
    """Return the row of the swap test."""
    swap = PassportRow(
        name="swap test", value=None, interval=None, n=0, verdict="not shown", text=NOT_CHECKED, missing="a swap test"
    )
    if not row.swap_test:
        return swap
    test = SwapShown.model_validate(row.swap_test)
    if _is_earlier(row, test.identity):
        swap.text = EARLIER
        swap.missing = "a new swap test"
        return swap
    swap.n = test.own_scored + test.swapped_scored
    if test.auc is None or test.interval is None:
        swap.text = f"no figure: {test.reason}"
        swap.missing = "a swap test of more texts"
        return swap
    swap.value, swap.interval = test.auc, test.interval
    swap.text = f"AUC {decimal(test.auc, 2)} {_interval_text(test.interval)} over {counted(test.agents, 'agent')}"
    if test.high_share is not None:
        swap.text += f", {percentage(test.high_share)} of swapped texts ≥ 7"
    if test.against != "agents":
        swap.text += f" ({test.against})"
    if agent in test.by_agent:
        swap.text += f"; the agent alone {decimal(test.by_agent[agent], 2)}"
    swap.text += f", of {day_text(datetime.fromisoformat(test.checked_at))}"
    swap.verdict = _verdict(test.interval, CHANCE)
    swap.missing = ""
    if swap.verdict == "not shown":
        swap.missing = f"a swap test of {_more(test.auc, test.interval, swap.n, limit=CHANCE, what='text')}"
    return swap


def _order_row(row: JudgeCalibration) -> PassportRow:
    """Return the row of the order test: the larger of its two differences decides."""
    order = PassportRow(name="order", value=None, interval=None, n=0, verdict="not shown", text=NOT_CHECKED)
    order.missing = "an order test"
    if not row.order_test:
        return order
    test = OrderShown.model_validate(row.order_test)
    if _is_earlier(row, test.identity):
        order.text = EARLIER
        order.missing = "a new order test"
        return order
    order.n = test.pairs
    figures = [figure for figure in (test.alone, test.shuffled) if figure.value is not None and figure.interval]
    if not figures:
        order.text = f"no figure: {test.alone.reason}"
        order.missing = "an order test of more messages"
        return order
    largest = max(figures, key=lambda figure: abs(figure.value or 0))
    order.value, order.interval = largest.value, largest.interval
    parts = []
    for name, figure in (("alone", test.alone), ("shuffled", test.shuffled)):
        if figure.value is not None and figure.interval is not None:
            parts.append(f"{name} {signed(figure.value, 2)} {_interval_text(figure.interval)}")
    checked_on = day_text(datetime.fromisoformat(test.checked_at))
    order.text = f"{', '.join(parts)} points, {counted(test.pairs, 'judgement')}, of {checked_on}"
    order.verdict, order.missing = _order_verdict([figure.interval for figure in figures if figure.interval])
    return order


def _order_verdict(intervals: Sequence[tuple[float, float]]) -> tuple[PassportVerdict, str]:
    """Return whether the differences are shown to stay within half a point, to exceed it, or neither; and what would decide that."""
    if any(low > MARGIN or high < -MARGIN for low, high in intervals):
        return "not usable", ""
    if all(low >= -MARGIN and high <= MARGIN for low, high in intervals):
        return "usable", ""
    return "not shown", "an order test of more messages"


def _violation_rows(row: JudgeCalibration) -> list[PassportRow]:
    """Return precision and recall of violations, where people used only the two ends of the scale."""
    rows: list[PassportRow] = []
    if _is_earlier(row, _identity(row.figures.get("identity"))):
        return rows
    names: tuple[RowName, ...] = ("precision", "recall")
    for name in names:
        if not row.figures.get(name):
            continue
        figure = Figure.model_validate(row.figures[name])
        text = figure.reason
        if figure.value is not None and figure.interval is not None:
            text = f"{decimal(figure.value, 2)} {_interval_text(figure.interval)}"
        rows.append(
            PassportRow(name=name, value=figure.value, interval=figure.interval, n=figure.n, verdict=None, text=text)
        )
    return rows


def _observed_rows(row: JudgeCalibration) -> list[PassportRow]:
    """Return the spread between repeats and the coverage, which decide nothing."""
    observed = Observed.model_validate(row.observed)
    is_known = bool(row.observed) or not row.is_stale  # else a worker computes it soon
    retest = PassportRow(
        name="retest",
        value=observed.noise,
        interval=None,
        n=observed.repeated,
        verdict=None,
        text="nothing was judged twice" if is_known else NOT_COMPUTED,
    )
    if observed.noise is not None:
        judged_twice = counted(observed.repeated, "judgement")
        retest.text = f"±{observed.noise:.2f} points between repeats of {judged_twice}"
    coverage = PassportRow(
        name="coverage",
        value=None,
        interval=None,
        n=observed.asked,
        verdict=None,
        text="nothing was judged yet" if is_known else NOT_COMPUTED,
    )
    if observed.asked:
        coverage.value = round(observed.scored / observed.asked, 4)
        evaluations = counted(observed.evaluations, "evaluation")
        coverage.text = f"{observed.scored:,} of {observed.asked:,} scored, {evaluations}"
    return [retest, coverage]


def _interval_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"[{decimal(low, 2)}, {decimal(high, 2)}]"


# -- reading them
def passports(judge: str, procedure: str, dimensions: Iterable[str], *, agent: str = "") -> list[Passport]:
    """Return the judge's passport in each of these dimensions, except those that are counted; one query.

    Args:
        agent: Slug of the one agent its verdicts are about; empty where there are several.
    """
    names = [name for name in dict.fromkeys(dimensions) if name not in COUNTED]
    if not names:
        return []
    rows = calibration_of(judge, procedure)
    return [passport_of(Key(judge, procedure, name), rows.get(name), agent=agent) for name in names]


def passports_of(runs: Sequence[EvaluationRun]) -> list[Passport]:
    """Return the passports of the judges of these evaluations in what they scored, judge by judge; what exact rules scored needs none.

    Where all are about one agent, its own figure of the swap test is named, too.
    """
    scored = EvaluationScore.objects.filter(
        evaluation_run__in=[run.pk for run in runs],
        judge=F("evaluation_run__judge"),
        status=EvaluationScore.Status.SCORED,
    )
    scored_dimensions = set(scored.order_by().values_list("evaluation_run", "dimension").distinct())
    dimensions: dict[tuple[str, str], list[str]] = {}  # by judge and procedure
    for run in runs:
        names = [name for name in run.dimensions if (run.pk, name) in scored_dimensions]
        dimensions.setdefault((run.judge, run.procedure), []).extend(names)
    slugs = {run.agent.slug for run in runs if run.agent is not None}
    agent = slugs.pop() if len(slugs) == 1 else ""
    judge_passports: list[Passport] = []
    for (judge, procedure), names in dimensions.items():
        judge_passports += passports(judge, procedure, names, agent=agent)
    return judge_passports


# -- in words and as JSON
def passport_text(passport: Passport) -> str:
    """Return a passport on one line, e.g. ``usable: κ 0.82 [0.71, 0.90], 80 labels; swap test AUC 0.91 [0.84, 0.95] over 16 agents``.

    Agreement and swap test come first, then what makes it not usable, and last what would decide it where it is not shown.
    """
    parts = []
    for row in passport.rows:
        is_main = row.name in ("agreement", "swap test")
        if not is_main and row.verdict != "not usable":
            continue
        text = row.text if row.name == "agreement" else f"{TITLES[row.name].lower()} {row.text}"
        parts.append(text)
    line = f"{passport.verdict}: {'; '.join(parts)}"
    if passport.missing:
        line += f" (missing: {', '.join(passport.missing)})"
    if passport.earlier_labels and passport.labels:
        line += f" ({counted(passport.earlier_labels, 'label is', 'labels are')} {EARLIER})"
    if passport.stale and passport.computed_at:
        line += " (to be computed again)"
    return line


def passport_lines(judge_passports: Sequence[Passport]) -> list[str]:
    """Return a sentence for each judge and procedure, with each dimension's passport. It is shown with the judge's verdicts."""
    texts: dict[str, list[str]] = {}
    for passport in judge_passports:
        texts.setdefault(_judge_name(passport), []).append(f"{passport.dimension} {passport_text(passport)}")
    lines = [f"Passport of judge {judge}: {'. '.join(parts)}." for judge, parts in texts.items()]
    if any(passport.missing for passport in judge_passports):
        lines[-1] += f" {HOW}"
    return lines


def not_usable_line(judge_passports: Iterable[Passport]) -> str:
    """Return the sentence that comes first in a verdict: which judge is not usable, and why; empty where none is."""
    parts = []
    for passport in judge_passports:
        if passport.verdict != "not usable":
            continue
        why = [f"{TITLES[row.name].lower()} {row.text}" for row in passport.rows if row.name in passport.decided_by]
        parts.append(f"{_judge_name(passport)} in {passport.dimension} ({'; '.join(why)})")
    if not parts:
        return ""
    return f"The judge is not usable: {', '.join(parts)}."


def counted_line(dimensions: Iterable[str]) -> str:
    """Return the sentence that counted dimensions have no passport; empty where none of these is counted."""
    names = [name for name in dict.fromkeys(dimensions) if name in COUNTED]
    if not names:
        return ""
    return f"What is counted has no passport: {', '.join(names)}."


def _judge_name(passport: Passport) -> str:
    if passport.procedure == Method.PLUMBLINE:
        return passport.judge
    return f"{passport.judge}, {passport.procedure}"


def with_passports(dimensions: dict[str, Any], *, judge: str, procedure: str, agent: str = "") -> None:
    """Put the judge's `passport` into each dimension of a JSON document, in place, except those that are counted. One query."""
    for passport in passports(judge, procedure, dimensions, agent=agent):
        dimensions[passport.dimension]["passport"] = passport.model_dump(mode="json")
