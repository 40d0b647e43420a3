"""Who drifted, and in what: agents ranked by what they lost between a baseline and a candidate, with messages that show it.

The changes come from sums that the database makes, in as many queries for many agents as for one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from django.db import connection
from django.db.models import CharField, Count, F, IntegerField, Max, Min, OuterRef, Q, Subquery, Sum, Value, Window
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Concat, RowNumber
from django.utils import timezone
from django.utils.dateformat import format as date_format

from agents.builds import BUILD_TAGS, Tag, first_of_tags
from agents.kit.text.wording import counted, decimal, interval_text
from agents.models import Agent, Message
from evaluation.change.change import (
    HIT,
    Change,
    Lost,
    Shares,
    beyond_margin,
    change_of_hits,
    corrected,
    decided,
    fell_below_half,
    fell_sharply,
    goes_by_hits,
    lost_propositions,
)
from evaluation.change.evidence import (
    MEASURE_NEWER,
    Judged,
    Newest,
    newest_evidence,
    newest_since_baselines,
    newest_without_adherence,
    runs_of,
)
from evaluation.change.models import Baseline, Evidence
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.summary import MESSAGES, TOO_LITTLE, Share, share_counts, total, why_too_little, window_statistics
from evaluation.statistics.bootstrap import Outcomes, least_variance
from evaluation.statistics.difference import MARGIN, welch_interval, welch_p

# Those who lost most first, then those of whom something is known, then those who were not measured.
State = Literal[
    "drifted",
    "possibly drifted",
    "not enough data",
    "steady",
    "improved",
    "not comparable",
    "not measured since",
    "no baseline",
    "never measured",
]
ORDER: tuple[State, ...] = get_args(State)
SHOWN, GONE = 6.0, 4.0  # at least, at most: a claim that held and does so no more
MOST_LOST = 3  # propositions named in a sentence
_DIGITS = re.compile(r"-[0-9a-f]{6}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The two measurements of one agent.

    Attributes:
        baseline: Evaluations by dimension: those of the current baselines, or the newest of messages with a tag; `candidate`: the same of
            the newest evidence since.
        baseline_newest: When the newest message of the baseline was said.
        baseline_name, candidate_name: As people call them, e.g. ``the baseline of 3 Nov 2026``, ``build 41``.
        baseline_personas: Digests of the personas that the baseline was measured under.
        asked_in_vain: The evaluation of the newest baseline where it asked for adherence and scored too little for a baseline of it.
    """

    baseline: Mapping[str, int] = field(default_factory=dict)
    baseline_newest: datetime | None = None
    baseline_name: str = ""
    baseline_personas: frozenset[str] = frozenset()
    asked_in_vain: int | None = None
    candidate: Mapping[str, EvaluationRun] = field(default_factory=dict)
    candidate_name: str = ""

    @property
    def persona_edited(self) -> bool:
        """Whether the persona was another one at the baseline: a difference is then not drift alone."""
        digests = {run.persona_digest for run in self.candidate.values()} - {""}
        return any(before and before != digest for digest in digests for before in self.baseline_personas)


class Move(Change):
    """One proposition that was scored in both measurements, or of which hits are compared.

    Its p is corrected for all that is looked at; None where one of the two is judged once.

    Attributes:
        scored, baseline_scored: Judgements scored; `unscored` could not be judged.
        inverted: Whether a high score says that the claim does not hold.
        baseline_run, candidate_run: The evaluations the means are of.
        since: The tag that all messages of the candidate carry and none of the baseline, e.g. ``("build", "41")``.
    """

    scored: int
    baseline_scored: int
    unscored: int
    inverted: bool
    baseline_run: int
    candidate_run: int
    since: Tag | None = None

    @property
    def points(self) -> float:
        """The change; 0 where there are neither two means nor hits."""
        return super().points or 0.0

    @property
    def is_sure(self) -> bool:
        """Whether more than chance stands behind it, and it is more than nothing."""
        return abs(self.points) >= MARGIN and self.verdict in ("drifted", "improved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A message, and what it scored on the proposition of the sentence."""

    message: Message
    score: int


@dataclass(slots=True, kw_only=True)
class Card:
    """One agent.

    Attributes:
        dimensions: Each over the propositions that were asked in both and are still the same, with the verdict that `compare` gives.
        moves: Every proposition that was scored in both, the largest fall first.
        main: The one the sentence is about, if any; `claim` is its claim, as it was last asked.
        lost: Propositions of which surely less than half as much is scored as in the baseline.
        halved: Dimensions of which less than half as much is scored, be it by chance: what is left is not called steady.
        changed: Propositions that are another one now (reworded, or their trait changed), so not compared.
        baseline_quote, candidate_quote: Messages that show what the sentence is about, see `quotes_of`.
        since_at: When the agent first said something with the tag since which it changed.
    """

    agent: Agent
    judged: Judged | None
    state: State
    compared: Compared = field(default_factory=Compared)
    dimensions: Sequence[Change] = ()
    moves: Sequence[Move] = ()
    main: Move | None = None
    claim: str = ""
    lost: Sequence[Lost] = ()
    halved: Mapping[str, tuple[Share, Share]] = field(default_factory=dict)
    changed: Sequence[str] = ()
    baseline_quote: Quote | None = None
    candidate_quote: Quote | None = None
    since_at: datetime | None = None

    @property
    def fallen(self) -> list[Change]:
        """The dimensions that surely fell by more than the margin, or sharply."""
        return [d for d in self.dimensions if fell_sharply(d) or (d.worse and (d.delta or 0.0) <= -MARGIN)]

    @property
    def undecided(self) -> Change | None:
        """The first dimension of which nothing sure can be said; None where there is none."""
        return next((d for d in self.dimensions if d.verdict in ("not enough data", "possibly drifted")), None)

    @property
    def delta(self) -> float | None:
        """The mean change of the dimensions, in points; None where nothing is compared."""
        deltas = [d.delta for d in self.dimensions if d.delta is not None]
        return sum(deltas) / len(deltas) if deltas else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Cards of the places asked for, with quotes and tags; `total` cards of the state asked for, and how many agents are in each state."""

    cards: Sequence[Card]
    total: int
    states: Mapping[State, int]


def drift_overview(
    agents: Sequence[Agent],
    judged: Judged | None,
    *,
    baseline: Tag | None = None,
    candidate: Tag | None = None,
    state: State | None = None,
    start: int = 0,
    stop: int | None = None,
    quotes: bool = True,
) -> Overview:
    """Rank agents by what they lost between two measurements, and describe some of them.

    Args:
        judged: By whom and how both were judged; None: nothing was measured yet.
        baseline: The newest evidence from messages with this tag; default the current baselines.
        candidate: The same; default the newest evidence from newer messages than those of the baseline.
        state: Cards of agents in this state only; default all.
        start, stop: The places to give cards of, from 0.
        quotes: Whether to look for the messages behind the sentences.
    """
    if judged is None:
        ranked = [Card(agent=agent, judged=None, state="never measured") for agent in agents]
    else:
        ranked = _cards(agents, judged, compared_of(agents, judged, baseline=baseline, candidate=candidate))
    ranked.sort(key=lambda card: (ORDER.index(card.state), not card.lost, card.delta or 0.0, card.agent.slug))
    states = Counter(card.state for card in ranked)
    wanted = [card for card in ranked if state in (None, card.state)]
    shown = wanted[start:stop]
    if judged is not None:
        _add_evidence(shown, quotes=quotes)
    return Overview(cards=shown, total=len(wanted), states=states)


# -- which two measurements
def compared_of(
    agents: Collection[Agent], judged: Judged, *, baseline: Tag | None = None, candidate: Tag | None = None
) -> dict[int, Compared]:
    """The two measurements of each agent, by primary key, in five queries at most; arguments as of `drift_overview`."""
    pks = [agent.pk for agent in agents]
    first = _of_baselines(pks, judged) if baseline is None else _of_tag(pks, judged, baseline)
    newest: Mapping[int, Newest]
    if baseline is None and candidate is None:
        alone = [pk for pk in pks if pk not in first]
        newest = {**newest_since_baselines(list(first), judged), **(newest_evidence(alone, judged) if alone else {})}
    else:
        newest = newest_evidence(pks, judged, tag=candidate)
    compared = {}
    for pk in pks:
        of = first.get(pk, Compared(baseline_name=tag_name(baseline) if baseline else ""))
        runs = {name: run for name, run in runs_of(newest.get(pk, {})).items() if run.pk != of.baseline.get(name)}
        if candidate is None and baseline is not None and of.baseline_newest is not None:  # only of newer messages
            runs = {name: run for name, run in runs.items() if newest[pk][name].newest_message_at > of.baseline_newest}
        of = replace(of, candidate=runs, candidate_name=tag_name(candidate) if candidate else "")
        compared[pk] = _with_adherence(of)
    return compared


def _with_adherence(compared: Compared) -> Compared:
    """Add adherence that both asked for, and the baseline in vain: hits compare all the same. As `compare` has it."""
    before = compared.asked_in_vain
    if before is None or not compared.candidate:
        return compared
    newest = list(compared.candidate.values())[-1]
    if Dimension.ADHERENCE not in newest.dimensions or newest.pk == before:
        return compared
    adherence = Dimension.ADHERENCE.value
    return replace(
        compared,
        baseline={**compared.baseline, adherence: before},
        candidate={adherence: newest, **compared.candidate},
    )


def tag_name(tag: Tag) -> str:
    """``build 41``: a tag as people say it."""
    return f"{tag[0]} {tag[1]}"


def _of_baselines(agents: Collection[int], judged: Judged) -> dict[int, Compared]:
    baselines = Baseline.objects.filter(agent__in=agents, judge=judged.judge, procedure=judged.procedure)
    newest = Evidence.objects.filter(evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension"))
    by_agent: dict[int, list[Any]] = defaultdict(list)
    with_time = baselines.annotate(newest=Subquery(newest.values("newest_message_at")[:1]))
    for row in with_time.select_related("evaluation_run").order_by("captured_at", "pk"):
        by_agent[row.agent_id].append(row)
    return {
        agent: Compared(
            baseline={row.dimension: row.evaluation_run_id for row in rows},
            baseline_newest=max((row.newest for row in rows if row.newest is not None), default=None),
            baseline_name=f"the baseline of {date_format(timezone.localtime(rows[-1].captured_at), 'j M Y')}",
            baseline_personas=frozenset(row.persona_digest for row in rows),
            asked_in_vain=_asked_in_vain(rows),
        )
        for agent, rows in by_agent.items()
    }


def _asked_in_vain(baselines: Sequence[Baseline]) -> int | None:
    if any(row.dimension == Dimension.ADHERENCE for row in baselines):
        return None
    run = newest_without_adherence(row.evaluation_run for row in baselines)
    return run.pk if run is not None else None


def _of_tag(agents: Collection[int], judged: Judged, tag: Tag) -> dict[int, Compared]:
    return {
        agent: Compared(
            baseline={name: one.evaluation_run_id for name, one in newest.items()},
            baseline_newest=max(one.newest_message_at for one in newest.values()),
            baseline_name=tag_name(tag),
            baseline_personas=frozenset(one.evaluation_run.persona_digest for one in newest.values()),
        )
        for agent, newest in newest_evidence(agents, judged, tag=tag).items()
    }


def changes_since(run: EvaluationRun) -> dict[str, tuple[Change, datetime]]:
    """What a completed evaluation says of each dimension, against its baseline, else against the evaluation before it.

    Only of newer messages than that judged, by the same judge, procedure and persona; with when its newest message was said.
    """
    if run.agent is None or run.simulated or run.swap_test or run.position_bins:
        return {}
    judged = Judged(judge=run.judge, procedure=run.procedure)
    own = Evidence.objects.filter(evaluation_run=run).values_list("dimension", "newest_message_at")
    earlier = Evidence.objects.filter(agent=run.agent, judge=judged.judge, procedure=judged.procedure)
    baselines = Baseline.objects.filter(agent=run.agent, judge=judged.judge, procedure=judged.procedure)
    captured = dict(baselines.values_list("dimension", "evaluation_run"))
    before: dict[str, Evidence] = {}
    for name, newest in own:
        rows = earlier.filter(dimension=name, newest_message_at__lt=newest).exclude(evaluation_run=run)
        rows = rows.filter(evaluation_run=captured[name]) if name in captured else rows.order_by("-newest_message_at")
        of = rows.select_related("evaluation_run").first()
        if of is not None and of.evaluation_run.persona_digest == run.persona_digest:
            before[name] = of
    compared = Compared(
        baseline={name: of.evaluation_run_id for name, of in before.items()}, candidate=dict.fromkeys(before, run)
    )
    (card,) = _cards([run.agent], judged, {run.agent.pk: compared})
    return {change.dimension: (change, before[change.dimension].newest_message_at) for change in card.dimensions}


# -- what changed between them
class _Part(NamedTuple):
    """The sums of one proposition's judgements in one evaluation; from `n` to `cue_hits` of the first of each message alone."""

    weight: float
    inverted: bool
    points: float | None
    scored: int
    unscored: int
    n: int
    total: float | None
    squares: float | None
    low: float | None
    high: float | None
    cue_hits: int
    share: Share
    by_message: bool
    of_words: bool

    def of_messages(self, values: Sequence[float]) -> _Part:
        """The same by the exact statistic of repeated words, which has a figure for each message."""
        of = Outcomes(len(values), sum(values), sum(value**2 for value in values), min(values), max(values))
        return self._replace(points=of.total, scored=of.n, of_words=True, **of._asdict())

    @property
    def mean(self) -> float | None:
        return round((self.points or 0) / self.scored, 4) if self.scored else None

    @property
    def outcomes(self) -> Outcomes:
        return Outcomes(self.n, self.total or 0, self.squares or 0, self.low or 0, self.high or 0)

    @property
    def squared_errors(self) -> float:
        """Of the messages, around their mean."""
        return max(0.0, (self.squares or 0) - (self.total or 0) ** 2 / self.n)


Parts = dict[int, dict[str, dict[str, _Part]]]  # by evaluation, dimension and proposition
Digests = Mapping[int, Mapping[str, Mapping[str, str]]]


def _cards(agents: Sequence[Agent], judged: Judged, compared: Mapping[int, Compared]) -> list[Card]:
    both = [of for of in compared.values() if of.baseline and of.candidate]
    runs = {pk for of in both for pk in (*of.baseline.values(), *(run.pk for run in of.candidate.values()))}
    parts = _parts(runs)
    digests: dict[int, Any] = {}
    stored = EvaluationRun.objects.filter(pk__in=runs).order_by()
    for pk, digests[pk], figures in stored.values_list("pk", "proposition_digests", "figures"):
        for dimension, by_proposition in window_statistics(figures).items():
            for name, rows in by_proposition.items():
                if part := parts[pk][dimension].get(name):
                    parts[pk][dimension][name] = part.of_messages([row.value for row in rows])
    left_out: set[str] = set()
    cards = [_card(agent, judged, compared[agent.pk], parts, digests, left_out) for agent in agents]
    if "simulated" not in judged.procedure.split("+"):
        messages = _messages(runs, left_out)
        for card in cards:
            card.dimensions = [_decided(card, change, messages) for change in card.dimensions]
        decisions = iter(corrected([change for card in cards for change in card.dimensions], MARGIN, "dimensions"))
        for card in cards:
            card.dimensions = [next(decisions) for _ in card.dimensions]
    tested = iter(corrected([move for card in cards for move in card.moves], MARGIN, "propositions"))
    for card in cards:
        card.moves = [next(tested) for _ in card.moves]
        card.state, card.main = _state_of(card)
    return cards


def _decided(card: Card, change: Change, messages: Mapping[tuple[int, str], _Messages]) -> Change:
    """A dimension with its interval and verdict: Welch's, over messages with all their scores, as `compare` has them."""
    name, compared = change.dimension, card.compared
    of_words = [move for move in card.moves if move.dimension == name and move.of_words]
    if of_words:  # its one proposition has it already
        shown = ("interval", "verdict", "reason", "p_value", "n", "baseline_n")
        return change.model_copy(update={field: getattr(of_words[0], field) for field in shown})
    before, now = (messages.get((run, name)) for run in (compared.baseline[name], compared.candidate[name].pk))
    if change.delta is None or not before or not now or not (variances := _variances(before, now)):
        return change
    p, about = welch_p(change.delta, variances), {"n": now.n, "baseline_n": before.n}
    change = change.model_copy(update={**about, "p_value": p})
    return decided(change, welch_interval(change.delta or 0.0, variances), MARGIN, **about)


class _Messages(NamedTuple):
    """The sums of one dimension's messages in one evaluation: x the weighted scores of a message, w their weights, m = x ÷ w."""

    n: int
    x: float
    w: float
    xx: float
    xw: float
    ww: float
    m: float
    mm: float
    low: float
    high: float

    @property
    def outcomes(self) -> Outcomes:
        return Outcomes(self.n, self.m, self.mm, self.low, self.high)

    @property
    def squared_errors(self) -> float:
        """Of the messages, around the weighted mean, as `difference_p` has it."""
        ratio = self.x / self.w
        return max(0.0, self.xx - 2 * ratio * self.xw + ratio**2 * self.ww) / (self.w / self.n) ** 2


def _variances(before: _Part | _Messages, now: _Part | _Messages) -> list[tuple[float, int]]:
    """Of both means, at least `least_variance`, with their degrees of freedom; empty where one has fewer than two messages."""
    if min(before.n, now.n) < 2:
        return []
    return [
        (max(of.squared_errors / (of.n - 1), least_variance(of.outcomes, other.outcomes)) / of.n, of.n - 1)
        for of, other in ((before, now), (now, before))
    ]


_SUMS = "COUNT(*), SUM(x), SUM(w), SUM(x * x), SUM(x * w), SUM(w * w), SUM(x / w), SUM(x * x / (w * w)), MIN(x / w), MAX(x / w)"


def _messages(runs: Collection[int], left_out: Collection[str]) -> dict[tuple[int, str], _Messages]:
    """By evaluation and dimension, without the propositions left out (``RUN:DIMENSION:PROPOSITION``); one query."""
    about = {"run": F("evaluation_run"), "name": F("dimension"), "said": F("message")}
    rows = EvaluationScore.objects.filter(ONCE, evaluation_run__in=runs, count__isnull=True).order_by()
    if left_out:
        key = Concat(Cast("evaluation_run", CharField()), Value(":"), "dimension", Value(":"), "proposition_id")
        of = {int(name.partition(":")[0]) for name in left_out}  # the others need no key
        rows = rows.alias(key=key).exclude(evaluation_run__in=of, key__in=left_out)
    sums = rows.values(**about).annotate(x=Sum(F("weight") * F("score")), w=Sum("weight"))
    if not runs:
        return {}
    inner, values = sums.query.sql_with_params()
    outer = f"SELECT run, name, {_SUMS} FROM ({inner}) message WHERE w > 0 GROUP BY run, name"  # noqa: S608 (ours and Django's)
    with connection.cursor() as cursor:  # sums of sums, by group: the ORM has no such query
        cursor.execute(outer, values)
        return {(run, name): _Messages._make(row) for run, name, *row in cursor.fetchall()}


ONCE = Q(status="scored", repeat=1, message__isnull=False, score__isnull=False)


def _parts(runs: Collection[int]) -> Parts:
    scored = Q(status="scored", score__isnull=False)
    rows: Any = (
        EvaluationScore.objects.filter(evaluation_run__in=runs, count__isnull=True)
        .order_by()
        .values_list("evaluation_run", "dimension", "proposition_id", "weight", "inverted")
        .annotate(
            points=Sum("score", filter=scored),
            scored=Count("pk", filter=scored),
            unscored=Count("pk", filter=Q(status="unscored")),
            n=Count("pk", filter=ONCE),
            total=Sum("score", filter=ONCE),
            squares=Sum(F("score") * F("score"), filter=ONCE, output_field=IntegerField()),
            low=Min("score", filter=ONCE),
            high=Max("score", filter=ONCE),
            cue_hits=Count("pk", filter=ONCE & Q(score__lte=HIT)),
            **share_counts(),
            single=Count("pk", filter=MESSAGES),
        )
    )
    parts: Parts = defaultdict(lambda: defaultdict(dict))
    for run, dimension, proposition, *sums, scored_once, asked, single in rows:
        parts[run][dimension][proposition] = _Part._make([*sums, Share(scored_once, asked), bool(single), False])
    return parts


def _card(agent: Agent, judged: Judged, compared: Compared, parts: Parts, digests: Digests, left_out: set[str]) -> Card:
    """What changed, without verdicts of dimensions; what does not count in a dimension is added to `left_out`."""
    moves, changed, dimensions = list[Move](), list[str](), list[Change]()
    shares = dict[tuple[str, str], Share](), dict[tuple[str, str], Share]()
    for dimension in sorted(compared.baseline.keys() & compared.candidate.keys()):
        runs = compared.baseline[dimension], compared.candidate[dimension].pk
        before, now = (parts[run][dimension] for run in runs)
        pairs, compares = [], set()
        for name in (name for name in now if name in before):
            old, new = (digests.get(run, {}).get(dimension, {}).get(name) for run in runs)
            if None not in (old, new) and old != new:
                changed.append(f"{dimension}/{name}")
                continue
            pair = before[name], now[name]
            scored_in_both = pair[0].mean is not None and pair[1].mean is not None
            if scored_in_both:
                pairs.append(pair)
                compares.add(name)
            hits = _hits(judged, dimension, *pair)
            if hits is not None:
                move = _move(dimension, name, *pair, runs, simulated=False)
                moves.append(change_of_hits(move, *hits, MARGIN))
                continue
            if pair[0].by_message and pair[1].by_message:
                shares[0][dimension, name], shares[1][dimension, name] = pair[0].share, pair[1].share
            if scored_in_both:
                moves.append(_move(dimension, name, *pair, runs, simulated="simulated" in judged.procedure.split("+")))
        for run, of in zip(runs, (before, now), strict=True):
            left_out |= {f"{run}:{dimension}:{name}" for name, part in of.items() if name not in compares and part.n}
        if (change := _dimension(dimension, pairs, list(before.values()), list(now.values()))) is not None:
            dimensions.append(change)
    return Card(
        agent=agent,
        judged=judged,
        state="steady",
        compared=compared,
        dimensions=dimensions,
        moves=sorted(moves, key=lambda move: (move.points, move.dimension, move.proposition)),
        lost=lost_propositions(*shares),
        halved=_halved(*shares),
        changed=sorted(changed),
    )


def _hits(judged: Judged, dimension: str, before: _Part, now: _Part) -> tuple[Share, Share] | None:
    """Return the hits of both, where `compare` goes by them."""
    if dimension not in BY_ONE_MESSAGE or not is_heuristic(judged.judge):
        return None
    if "simulated" in judged.procedure.split("+") or not (before.by_message and now.by_message):
        return None
    hits = Share(before.cue_hits, before.share.asked), Share(now.cue_hits, now.share.asked)
    return hits if goes_by_hits(hits, (before.share, now.share)) else None


def _halved(before: Shares, now: Shares) -> dict[str, tuple[Share, Share]]:
    """Return by dimension the share scored before and now, where it is less than half of what it was."""
    halved = {}
    for dimension in {dimension for dimension, _ in before}:
        share, share_now = (total(of for (name, _), of in side.items() if name == dimension) for side in (before, now))
        if share_now.asked and fell_below_half(share, share_now):
            halved[dimension] = (share, share_now)
    return halved


def _move(
    dimension: str, proposition: str, before: _Part, now: _Part, runs: tuple[int, int], *, simulated: bool
) -> Move:
    """One proposition, tested by the means of its messages; what was simulated, or judged of one message alone, is not tested."""
    move = Move(
        dimension=dimension,
        proposition=proposition,
        baseline=before.mean,
        candidate=now.mean,
        verdict="not enough data",
        n=now.n,
        baseline_n=before.n,
        share=now.share,
        baseline_share=before.share,
        scored=now.scored,
        baseline_scored=before.scored,
        unscored=now.unscored,
        inverted=now.inverted,
        baseline_run=runs[0],
        candidate_run=runs[1],
        of_words=now.of_words,
    )
    variances = _variances(before, now)
    if simulated or not variances:
        return move
    delta = (now.total or 0) / now.n - (before.total or 0) / before.n
    tested = decided(move, welch_interval(delta, variances), MARGIN, n=now.n, baseline_n=before.n)
    if now.of_words:
        tested = beyond_margin(tested, MARGIN, "chance")
    return tested.model_copy(update={"p_value": welch_p(delta, variances)})


def _dimension(
    name: str, pairs: Sequence[tuple[_Part, _Part]], before: Sequence[_Part], now: Sequence[_Part]
) -> Change | None:
    """The dimension over what was scored in both; what is judged once over a window is left out where messages were judged."""
    if not (before and now):
        return None
    by_message = [pair for pair in pairs if pair[0].n or pair[1].n] or pairs
    means = [_mean(pair[n] for pair in by_message) for n in (0, 1)]
    short = [why_too_little(total(part.share for part in parts if part.by_message)) for parts in (before, now)]
    if None in means and not any(short):
        return None
    return Change(
        dimension=name,
        baseline=None if short[0] else means[0],
        candidate=None if short[1] else means[1],
        verdict="not enough data",
        reason=short[1] or short[0],
        share=total(part.share for part in now),
        baseline_share=total(part.share for part in before),
        of_words=any(pair[1].of_words for pair in by_message),
    )


def _mean(parts: Iterable[_Part]) -> float | None:
    """None where nothing was scored, or nothing of it has a weight."""
    rows = [(part.weight * part.scored, part.mean) for part in parts if part.mean is not None]
    weights = sum(weight for weight, _ in rows)
    return round(sum(weight * mean for weight, mean in rows) / weights, 4) if weights else None


def _state_of(card: Card) -> tuple[State, Move | None]:
    """The state, and the main move: the largest sure fall, else the largest sure rise, else the largest fall there may be.

    A dimension that fell, surely or sharply, is drift too; it is steady where each dimension surely is.
    """
    compared, moves = card.compared, card.moves
    falls = [move for move in moves if move.points <= -MARGIN]
    sure = [move for move in falls if move.is_sure]
    rises = [move for move in reversed(moves) if move.points > 0 and move.is_sure]
    short = any(d.reason and d.baseline is not None and d.delta is None for d in card.dimensions)
    lacking = bool(card.lost or card.halved or short)
    if not compared.baseline:
        return "no baseline" if compared.candidate else "never measured", None
    if not compared.candidate:
        return "not measured since", None
    if sure:
        return "drifted", sure[0]
    if falls and card.fallen:
        return "drifted", next((move for move in falls if move.dimension == card.fallen[0].dimension), falls[0])
    if lacking or not moves:
        return "not enough data" if lacking else "not comparable", None
    if rises:
        return "improved", rises[0]
    if falls:
        return "possibly drifted", falls[0]
    if card.undecided is not None or any(move.hits is not None and move.verdict != "steady" for move in moves):
        return "not enough data", None
    return "steady", None


# -- the evidence for it, each in one or two queries for all cards
Key = tuple[int, str, str]  # evaluation, dimension, proposition


def _add_evidence(cards: Sequence[Card], *, quotes: bool) -> None:
    moves = [card.main for card in cards if card.main is not None]
    keys = [(_key(move, now=False), _key(move, now=True), move.points > 0) for move in moves]
    shown = iter(quotes_of(keys) if quotes else [(None, None)] * len(keys))
    claims, tags = _claims(moves), tags_since(moves)
    asked = {move.baseline_run for move in moves if _key(move, now=True) not in tags}
    before = dict(EvaluationRun.objects.filter(pk__in=asked).order_by().values_list("pk", "where"))
    for card in cards:
        if (main := card.main) is not None:
            key = _key(main, now=True)
            was, now = before.get(main.baseline_run, {}), card.compared.candidate[main.dimension].where
            # Of what was judged over whole windows: the tag that each of the two asked for.
            asked_for = ((tag, now[tag]) for tag in BUILD_TAGS if tag in now and was.get(tag, now[tag]) != now[tag])
            card.main = main.model_copy(update={"since": tags.get(key) or next(asked_for, None)})
            card.claim = claims.get(key, "")
            card.baseline_quote, card.candidate_quote = next(shown)
    since = {card.agent.pk: card.main.since for card in cards if card.main is not None and card.main.since is not None}
    first = first_of_tags(list(since)) if since else {}
    for card in cards:
        card.since_at = first.get((card.agent.pk, since[card.agent.pk])) if card.agent.pk in since else None


def quotes_of(changes: Sequence[tuple[Key, Key, bool]]) -> list[tuple[Quote | None, Quote | None]]:
    """Two messages for each change (judgements before and now, whether it rose): the best before and the worst now, or the reverse."""
    best = _extremes([now if rose else before for before, now, rose in changes], F("score").desc())
    worst = _extremes([before if rose else now for before, now, rose in changes], F("score").asc())
    messages = Message.objects.select_related("channel", "agent").in_bulk(
        {row["message"] for row in (*best.values(), *worst.values())}
    )

    def quote(row: Mapping[str, Any] | None) -> Quote | None:
        message = messages.get(row["message"]) if row else None
        return Quote(message=message, score=row["score"]) if row and message else None

    pairs = [(worst.get(b), best.get(n)) if rose else (best.get(b), worst.get(n)) for b, n, rose in changes]
    return [(quote(before), quote(now)) for before, now in pairs]


def _key(move: Move, *, now: bool) -> Key:
    return (move.candidate_run if now else move.baseline_run, move.dimension, move.proposition)


def _rows_of(keys: Iterable[Key]) -> Any:
    where = Q(pk__in=[])
    for run, dimension, proposition in keys:
        where |= Q(evaluation_run=run, dimension=dimension, proposition_id=proposition)
    return EvaluationScore.objects.filter(where).order_by()


def _extremes(keys: Iterable[Key], by_score: Any) -> dict[Key, dict[str, Any]]:
    """The judgement of each that comes first by its score; of equals that of the newest message."""
    place = Window(
        RowNumber(),
        partition_by=[F("evaluation_run"), F("dimension"), F("proposition_id")],
        order_by=[by_score, F("message").desc()],
    )
    rows = _rows_of(keys).filter(status="scored", score__isnull=False, message__isnull=False)
    first = rows.annotate(place=place).filter(place=1).values(*_KEY, "message", "score")
    return {_key_of(row): row for row in first}


_KEY = ("evaluation_run", "dimension", "proposition_id")


def _key_of(row: Mapping[str, Any]) -> Key:
    return row["evaluation_run"], row["dimension"], row["proposition_id"]


def _claims(moves: Iterable[Move]) -> dict[Key, str]:
    """The claims as they were asked now; of one that names its channel, and so has several wordings, the last in the alphabet."""
    rows = _rows_of(_key(move, now=True) for move in moves)
    return {_key_of(row): row["words"] for row in rows.values(*_KEY).annotate(words=Max("claim"))}


def tags_since(moves: Sequence[Move]) -> dict[Key, Tag]:
    """The tag that every judged message carries now and none carried before; where there are several the first of `BUILD_TAGS`."""
    tagged = {f"tag_{key}": KeyTextTransform(key, "message__tags") for key in BUILD_TAGS}
    rows = _rows_of(_key(move, now=now) for move in moves for now in (False, True))
    rows = rows.filter(status="scored", message__isnull=False).annotate(**tagged)
    seen: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.values(*_KEY, *tagged).distinct():
        seen[_key_of(row)].append(row)
    tags = {}
    for move in moves:
        before, now = (seen[_key(move, now=is_now)] for is_now in (False, True))
        for key in BUILD_TAGS:
            values, others = ({row[f"tag_{key}"] for row in rows} for rows in (now, before))
            if len(values) == 1 and None not in values and others and not values & others:
                tags[_key(move, now=True)] = (key, str(values.pop()))
                break
    return tags


# -- one sentence per agent, made from its scores alone; a proposition is called by its id, no verb is guessed from its words
def short_name(proposition: str, agent: str, dimension: str = "") -> str:
    """A proposition's id without what every id of its kind begins with: ``michael-no-lists`` is *no lists*."""
    name = proposition
    for start in ("trait", "default", agent, dimension):
        if start and name.startswith(f"{start}-") and len(name) > len(start) + 1:
            name = name[len(start) + 1 :]
            name = _DIGITS.sub("", name) if start == "trait" else name
    return re.sub(r"[-_\s]+", " ", name).strip() or proposition


def sentence_of(card: Card) -> str:
    """How the agent changed, with the scores behind it; where there are none it says what is missing."""
    compared, slug = card.compared, card.agent.slug
    baseline, candidate = compared.baseline_name, compared.candidate_name
    if card.state == "never measured":
        asked = [f"of {name}" for name in (baseline, candidate) if name]
        return (
            f"There is no evaluation {' and none '.join(asked)}."
            if asked
            else "Not measured yet: there is no baseline."
        )
    if card.state == "no baseline":
        missing = f"no evaluation of {baseline}" if baseline else "no baseline"
        return f"Measured ({candidate_words(card)}), but there is {missing} to compare it with."
    if card.state == "not measured since":
        newest = compared.baseline_newest
        of = f" ({date_format(timezone.localtime(newest), 'j M Y H:i')})" if newest is not None else ""
        why = f"no evaluation scored a message newer than its newest{of}; {MEASURE_NEWER}"
        return f"Not measured since {baseline}: {f'there is no evaluation of {candidate}' if candidate else why}."
    if card.state == "not comparable":
        return f"Measured, but nothing was scored both in {baseline} and now."
    if card.state == "not enough data":
        lacking = [d for d in card.dimensions if d.reason and d.delta is None]
        if short := [f"{d.dimension.replace('_', ' ')}: {d.reason}" for d in lacking]:
            return f"Not enough data for {'; '.join(short).replace(f'{TOO_LITTLE}: ', '')}."
        if not card.lost and card.halved:
            shares = [f"{name.replace('_', ' ')} {was} → {now}" for name, (was, now) in card.halved.items()]
            return f"Not enough data: judgements scored {', '.join(shares)} since {baseline}."
        if not card.lost and (open_ := card.undecided) is not None:
            return f"Not enough data to call it steady: {dimension_words(open_)}{_between(open_)} since {baseline}."
        lost = [f"“{short_name(one.proposition, slug, one.dimension)}” {one.before} → {one.now}" for one in card.lost]
        more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
        return f"Not enough data: judgements scored {', '.join(lost[:MOST_LOST])}{more} since {baseline}."
    if card.main is not None:
        what = _verb(card.main, f"“{short_name(card.main.proposition, slug, card.main.dimension)}”")
        if card.state == "possibly drifted":
            what = f"Possibly {what[0].lower()}{what[1:]}"
        since = tag_name(card.main.since) if card.main.since is not None else baseline
        return f"{what}: {numbers_of(card.main)} since {since}."
    least = card.moves[0]
    if least.points >= 0:
        return f"Steady: no proposition fell since {baseline} ({', '.join(map(dimension_words, card.dimensions))})."
    label = short_name(least.proposition, slug, least.dimension)
    return f"Steady: the largest fall is “{label}”: {numbers_of(least)} since {baseline}."


def _between(change: Change) -> str:
    return f" ({interval_text(change.interval)})" if change.interval is not None else ""


def dimension_words(change: Change) -> str:
    """E.g. ``adherence 7.2 → 6.9``."""
    return f"{change.dimension.replace('_', ' ')} {numbers_of(change)}"


def numbers_of(change: Change) -> str:
    """E.g. ``8.1 → 3.2``, or ``words 8.1 → 3.2``."""
    if change.hits is not None:
        return f"hits in {change.baseline_hits} → {change.hits} messages"
    scores = ("–" if score is None else decimal(score) for score in (change.baseline, change.candidate))
    return f"{'words ' if change.of_words else ''}{' → '.join(scores)}"


def why_drifted(card: Card) -> str:
    """How sure the card's sentence is: how much was judged, and whether that decides; of a fall of a dimension as a whole, that."""
    move = card.main
    if move is None:
        return ""
    of = next((d for d in card.fallen if d.dimension == move.dimension), None)
    if of is not None and not move.is_sure and card.state == "drifted":
        return f"as a whole {dimension_words(of)}{_between(of)}, more than chance explains"
    if not (move.baseline_n and move.n):
        return "judged once over the whole window: one judgement decides nothing"
    if move.hits is not None:
        judged = f"{counted(move.baseline_n, 'message')} in the baseline, {move.n:,} now"
    else:
        what = "message" if move.of_words else "judgement"
        judged = f"{counted(move.baseline_scored, what)} in the baseline, {move.scored:,} now"
    judged = f"by the words repeated in {judged}" if move.of_words else judged
    sure = (
        "more than chance explains, among all propositions compared" if move.is_sure else "too few to tell from chance"
    )
    return f"{judged}; {sure}"


def _verb(move: Move, label: str) -> str:
    """Of an inverted claim a high score says that it does not hold."""
    if move.points > 0:
        return f"{'Less' if move.inverted else 'More'} {label}"
    turned = (move.baseline or 0.0) >= SHOWN and (move.candidate or 0.0) <= GONE
    if move.inverted:
        return f"Slipped into {label}" if turned else f"More {label}"
    if turned:
        return f"Broke {label}" if label.startswith("“no ") else f"Stopped {label}"
    return f"Less {label}"


def candidate_words(card: Card) -> str:
    """When and over what the candidate was measured, of several evaluations by dimension; empty without one."""
    compared = card.compared
    if compared.candidate and compared.candidate_name:
        return compared.candidate_name
    names: dict[EvaluationRun, list[str]] = {}
    for name, run in sorted(compared.candidate.items(), key=lambda item: item[1].pk):
        names.setdefault(run, []).append(name.replace("_", " "))
    words = {}
    for run in names:
        day = date_format(timezone.localtime(run.window_end or run.finished_at or run.created_at), "j M Y")
        words[run] = ", ".join(filter(None, (tag_words(run), day)))
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{', '.join(sorted(of))}: {words[run]}" for run, of in names.items())


def tag_words(run: EvaluationRun) -> str:
    """The tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    return "" if run.simulated else ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
