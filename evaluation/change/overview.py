"""Who drifted, and in what: agents ranked by what they lost between a baseline and a candidate, with messages that show it.

The changes are rows that were stored when the evaluations ended (`stored`); those between the messages of two tags are computed when they
are asked for, by the same function. An agent's state and sentence are functions of its rows.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from django.core.cache import cache
from django.db.models import Max, OuterRef, Q, Subquery
from django.utils import timezone
from django.utils.dateformat import format as date_format

from agents.builds import Tag
from agents.kit.text.wording import counted, decimal, interval_text
from agents.models import Agent, Message
from evaluation.change.change import ChangeResult, Lost, corrected, fell_sharply
from evaluation.change.choosing import chosen_measurements
from evaluation.change.evidence import MEASURE_NEWER, Judged, newest_evidence, runs_of
from evaluation.change.examples import Quote, add_evidence
from evaluation.change.models import Baseline, Change, Evidence
from evaluation.change.stored import changes_between, current_changes
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import TOO_LITTLE, Share
from evaluation.statistics.difference import MARGIN

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


@dataclass(slots=True, kw_only=True)
class AgentDrift:
    """How one agent changed between two measurements.

    Attributes:
        baseline_name, candidate_name: As people call them, e.g. ``the baseline of 3 Nov 2026``, ``build 41``; the latter is empty for the
            newest evidence.
        has_baseline: Whether there is something to compare with; `baseline_newest` is when its newest message was said, and
            `baseline_scores` are its scores by dimension.
        is_measured: Whether something was measured that could be compared.
        baseline_runs, candidate_runs: The evaluations that are compared, by dimension; only of those that are described.
        dimensions: Over the propositions that were asked in both and are still the same, with the verdict that `compare` gives.
        propositions: Those that were scored in both, or of which hits are compared, the largest fall first.
        main: The one the sentence is about, if any; `claim` is its claim, as it was last asked.
        lost: Propositions of which surely less than half as much is scored as in the baseline.
        halved: Dimensions of which less than half as much is scored, be it by chance: what is left is not called steady.
        changed: Propositions that are another one now (reworded, or their trait changed), so not compared.
        baseline_quote, candidate_quote: Messages that show what the sentence is about.
    """

    agent: Agent
    judged: Judged | None
    state: State = "never measured"
    baseline_name: str = ""
    candidate_name: str = ""
    has_baseline: bool = False
    baseline_newest: datetime | None = None
    baseline_scores: dict[str, float | None] = field(default_factory=dict)
    is_measured: bool = False
    baseline_runs: Mapping[str, EvaluationRun] = field(default_factory=dict)
    candidate_runs: Mapping[str, EvaluationRun] = field(default_factory=dict)
    dimensions: Sequence[ChangeResult] = ()
    propositions: Sequence[Change] = ()
    main: Change | None = None
    claim: str = ""
    lost: Sequence[Lost] = ()
    halved: Mapping[str, tuple[Share, Share]] = field(default_factory=dict)
    changed: Sequence[str] = ()
    baseline_quote: Quote | None = None
    candidate_quote: Quote | None = None

    @property
    def persona_edited(self) -> bool:
        """Whether the persona was another one at the baseline: a difference is then not drift alone."""
        before = {run.persona_digest for run in self.baseline_runs.values()} - {""}
        now = {run.persona_digest for run in self.candidate_runs.values()} - {""}
        return any(digest != other for digest in before for other in now)

    @property
    def fallen(self) -> list[ChangeResult]:
        """The dimensions that surely fell by more than the margin, or sharply."""
        return [d for d in self.dimensions if fell_sharply(d) or (d.worse and (d.delta or 0.0) <= -MARGIN)]

    @property
    def undecided(self) -> ChangeResult | None:
        """The first dimension of which nothing sure can be said; None where there is none."""
        return next((d for d in self.dimensions if d.verdict in ("not enough data", "possibly drifted")), None)

    @property
    def delta(self) -> float | None:
        """The mean change of the dimensions, in points; None where nothing is compared."""
        deltas = [d.delta for d in self.dimensions if d.delta is not None]
        return sum(deltas) / len(deltas) if deltas else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The agents of the places asked for, with quotes; `total` in the state asked for, and how many agents are in each state."""

    drifts: Sequence[AgentDrift]
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
    describe: bool = True,
    quotes: bool = True,
) -> Overview:
    """Rank agents by what they lost between two measurements, and describe some of them.

    Verdicts allow for all that is looked at together, as those of `compare` do.

    Args:
        judged: By whom and how both were judged; None: nothing was measured yet.
        baseline: The newest evidence from messages with this tag; default the current baselines.
        candidate: The same; default the newest evidence from newer messages than those of the baseline.
        state: Agents in this state only; default all.
        start, stop: The places to describe, from 0.
        describe: Whether to look for the evaluations and claims that sentences are about.
        quotes: Whether to look for the messages behind the sentences, too.
    """
    if judged is None:
        drifts = [AgentDrift(agent=agent, judged=None) for agent in agents]
    elif baseline is None and candidate is None:
        drifts = _stored_drifts(agents, judged, with_runs=describe)
    else:
        drifts = _drifts_of_tags(agents, judged, baseline, candidate)
    _look_at_together(drifts)
    for drift in drifts:
        drift.state, drift.main = state_of(drift)
    drifts.sort(key=lambda drift: (ORDER.index(drift.state), not drift.lost, drift.delta or 0.0, drift.agent.slug))
    states = Counter(drift.state for drift in drifts)
    wanted = [drift for drift in drifts if state in (None, drift.state)]
    shown = wanted[start:stop]
    if describe:
        _describe(shown, quotes=quotes, stored=baseline is None and candidate is None)
    return Overview(drifts=shown, total=len(wanted), states=states)


# -- the changes of each agent
READ = ("where", "simulated", "persona_digest", "window_end", "finished_at", "created_at")  # of an evaluation


def _stored_drifts(agents: Sequence[Agent], judged: Judged, *, with_runs: bool) -> list[AgentDrift]:
    """What is stored of these agents, in five statements at most, however many they are."""
    drifts = {agent.pk: AgentDrift(agent=agent, judged=judged) for agent in agents}
    _add_baselines(drifts, judged)
    rows: dict[int, list[Change]] = defaultdict(list)
    for row in current_changes(drifts, judged):
        rows[row.agent_id].append(row)
    runs = _runs(row for of_agent in rows.values() for row in of_agent) if with_runs else {}
    for pk, of_agent in rows.items():
        _fill(drifts[pk], of_agent, runs)
    without = [pk for pk, drift in drifts.items() if not drift.has_baseline]
    for pk, newest in (newest_evidence(without, judged) if without else {}).items():
        drifts[pk].candidate_runs, drifts[pk].is_measured = runs_of(newest), True
    return list(drifts.values())


def _add_baselines(drifts: Mapping[int, AgentDrift], judged: Judged) -> None:
    newest = Evidence.objects.filter(evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension"))
    baselines = Baseline.objects.filter(agent__in=drifts, judge=judged.judge, procedure=judged.procedure)
    baselines = baselines.annotate(newest=Subquery(newest.values("newest_message_at")[:1]))
    about = ("agent", "dimension", "score", "captured_at", "newest")
    for pk, dimension, score, captured_at, at in baselines.order_by("captured_at", "pk").values_list(*about):
        drift = drifts[pk]
        drift.baseline_scores[dimension] = score
        drift.has_baseline = True
        drift.baseline_name = f"the baseline of {date_format(timezone.localtime(captured_at), 'j M Y')}"
        drift.baseline_newest = max(filter(None, (drift.baseline_newest, at)), default=None)


def _runs(rows: Iterable[Change]) -> dict[int, EvaluationRun]:
    """The evaluations behind these rows by primary key, without their larger columns."""
    keys = {pk for row in rows for pk in (row.baseline_run_id, row.evaluation_run_id)}
    return EvaluationRun.objects.only(*READ).in_bulk(keys) if keys else {}


def _drifts_of_tags(
    agents: Sequence[Agent], judged: Judged, baseline: Tag | None, candidate: Tag | None
) -> list[AgentDrift]:
    """Compare the messages of two tags, of each agent once for the same evaluations.

    An agent takes 25 ms, with 6,000 judgements 170 ms, so what two tags gave is kept for some minutes.
    """
    if baseline is None or candidate is None:
        return [_drift_of_tags(agent, judged, baseline, candidate) for agent in agents]
    pks = [agent.pk for agent in agents]
    both = [newest_evidence(pks, judged, tag=tag) for tag in (baseline, candidate)]
    drifts = []
    for agent in agents:
        evidence = [sorted(each.pk for each in newest.get(agent.pk, {}).values()) for newest in both]
        compared = repr((agent.pk, judged, baseline, candidate, evidence))
        key = f"drift-of-tags-{hashlib.blake2s(compared.encode()).hexdigest()}"
        drift = cache.get(key)
        if drift is None:
            drift = _drift_of_tags(agent, judged, baseline, candidate)
            cache.set(key, drift)
        drifts.append(drift)
    return drifts


def _drift_of_tags(agent: Agent, judged: Judged, baseline: Tag | None, candidate: Tag | None) -> AgentDrift:
    """Compare the messages of two tags, as the page that compares does; without a tag the baseline, or the newest evidence."""
    before, now = chosen_measurements(agent, baseline, candidate, ways=[judged])
    drift = AgentDrift(agent=agent, judged=judged, has_baseline=before is not None)
    if baseline is not None:
        drift.baseline_name = tag_name(baseline)
    else:
        _add_baselines({agent.pk: drift}, judged)
    if candidate is not None:
        drift.candidate_name = tag_name(candidate)
    if before is not None and now is not None:
        rows = changes_between(agent, before, now)  # without a tag the newest may be what it is compared with
        rows = [row for row in rows if row.evaluation_run_id != row.baseline_run_id]
        _fill(drift, rows, _runs(rows))
    elif now is not None:
        by_key = EvaluationRun.objects.only(*READ).in_bulk(set(now.runs.values()))
        drift.candidate_runs = {name: by_key[pk] for name, pk in now.runs.items()}
        drift.is_measured = True
    return drift


def _fill(drift: AgentDrift, rows: Sequence[Change], runs: Mapping[int, EvaluationRun]) -> None:
    """Add what changed. Counts, and what was scored in one of the two only, say nothing of drift."""
    rows = [row for row in rows if not row.result.counted]
    of_dimensions = [row for row in rows if not row.proposition]
    drift.is_measured = bool(of_dimensions)
    if runs:
        drift.baseline_runs = {row.dimension: runs[row.baseline_run_id] for row in of_dimensions}
        drift.candidate_runs = {row.dimension: runs[row.evaluation_run_id] for row in of_dimensions}
    results = [row.result for row in of_dimensions]
    drift.dimensions = [d for d in results if d.delta is not None or d.too_little_scored]
    drift.propositions = [row for row in rows if row.proposition and row.points is not None]
    drift.lost = [lost for row in rows if row.proposition and (lost := row.lost) is not None]
    drift.halved = {row.dimension: halved for row in of_dimensions if (halved := row.halved) is not None}
    drift.changed = sorted(name for row in of_dimensions for name in row.reworded)


def _look_at_together(drifts: Sequence[AgentDrift]) -> None:
    """Have all verdicts allow for all that is compared here, the dimensions and the propositions for themselves."""
    dimensions = iter(corrected([d for drift in drifts for d in drift.dimensions], MARGIN, "dimensions"))
    rows = [row for drift in drifts for row in drift.propositions]
    for row, result in zip(rows, corrected([row.result for row in rows], MARGIN, "propositions"), strict=True):
        row.result = result
    for drift in drifts:
        drift.dimensions = [next(dimensions) for _ in drift.dimensions]
        drift.propositions = sorted(
            drift.propositions, key=lambda row: (row.result.points, row.dimension, row.proposition)
        )


def state_of(drift: AgentDrift) -> tuple[State, Change | None]:
    """Return the state, and the main proposition: the largest sure fall, else the largest sure rise, else the largest possible fall.

    A dimension that fell, surely or sharply, is drift too; it is steady where each dimension surely is.
    """
    if not drift.has_baseline:
        return "no baseline" if drift.is_measured else "never measured", None
    if not drift.is_measured:
        return "not measured since", None
    falls = [row for row in drift.propositions if (row.points or 0.0) <= -MARGIN]
    sure = [row for row in falls if row.result.is_sure]
    if sure:
        return "drifted", sure[0]
    if falls and drift.fallen:
        fallen = drift.fallen[0].dimension
        return "drifted", next((row for row in falls if row.dimension == fallen), falls[0])
    without_score = any(d.delta is None and d.baseline is not None for d in drift.dimensions)
    if drift.lost or drift.halved or without_score:
        return "not enough data", None
    if not drift.propositions:
        return "not comparable", None
    rises = [row for row in reversed(drift.propositions) if (row.points or 0.0) > 0 and row.result.is_sure]
    if rises:
        return "improved", rises[0]
    if falls:
        return "possibly drifted", falls[0]
    undecided_hits = any(row.result.hits is not None and row.verdict != "steady" for row in drift.propositions)
    if drift.undecided is not None or undecided_hits:
        return "not enough data", None
    return "steady", None


# -- the evidence for it
def _describe(drifts: Sequence[AgentDrift], *, quotes: bool, stored: bool) -> None:
    """Add the claims that sentences are about and the messages that show it; two statements for all where they are stored."""
    mains = [drift.main for drift in drifts if drift.main is not None]
    if not mains:
        return
    if not stored:
        add_evidence(mains)
    claims = _claims(mains)
    keys = {pk for row in mains for pk in (row.baseline_quote_id, row.quote_id) if pk is not None}
    messages = Message.objects.select_related("channel", "agent").in_bulk(keys) if quotes else {}
    for drift in drifts:
        if (main := drift.main) is not None:
            drift.claim = claims.get((main.evaluation_run_id, main.dimension, main.proposition), "")
            drift.baseline_quote = _quote(messages.get(main.baseline_quote_id or 0), main.baseline_quote_score)
            drift.candidate_quote = _quote(messages.get(main.quote_id or 0), main.quote_score)


def _quote(message: Message | None, score: int | None) -> Quote | None:
    return Quote(message=message, score=score) if message is not None and score is not None else None


def _claims(rows: Iterable[Change]) -> dict[tuple[int, str, str], str]:
    """The claims as they were asked now; of one that names its channel, and so has several wordings, the last in the alphabet."""
    asked = Q(pk__in=[])
    for row in rows:
        asked |= Q(evaluation_run=row.evaluation_run_id, dimension=row.dimension, proposition_id=row.proposition)
    about = ("evaluation_run_id", "dimension", "proposition_id")
    words = EvaluationScore.objects.filter(asked).order_by().values_list(*about).annotate(words=Max("claim"))
    return {(run, dimension, proposition): claim for run, dimension, proposition, claim in words}


def tag_name(tag: Tag) -> str:
    """``build 41``: a tag as people say it."""
    return f"{tag[0]} {tag[1]}"


# -- one sentence per agent, made from its scores alone; a proposition is called by its id, no verb is guessed from its words
def short_name(proposition: str, agent: str, dimension: str = "") -> str:
    """A proposition's id without what every id of its kind begins with: ``michael-no-lists`` is *no lists*."""
    name = proposition
    for start in ("trait", "default", agent, dimension):
        if start and name.startswith(f"{start}-") and len(name) > len(start) + 1:
            name = name[len(start) + 1 :]
            name = _DIGITS.sub("", name) if start == "trait" else name
    return re.sub(r"[-_\s]+", " ", name).strip() or proposition


def sentence_of(drift: AgentDrift) -> str:
    """Return how the agent changed, with the scores behind it; where there are none it says what is missing."""
    baseline, candidate = drift.baseline_name, drift.candidate_name
    if drift.state == "never measured":
        asked = [f"of {name}" for name in (baseline, candidate) if name]
        if asked:
            return f"There is no evaluation {' and none '.join(asked)}."
        return "Not measured yet: there is no baseline."
    if drift.state == "no baseline":
        missing = f"no evaluation of {baseline}" if baseline else "no baseline"
        return f"Measured ({candidate_words(drift)}), but there is {missing} to compare it with."
    if drift.state == "not measured since":
        return f"Not measured since {baseline}: {_why_not_since(drift)}."
    if drift.state == "not comparable":
        return f"Measured, but nothing was scored both in {baseline} and now."
    if drift.state == "not enough data":
        return f"Not enough data{_what_is_lacking(drift)}."
    if drift.main is not None:
        what = _verb(drift.main, f"“{_name(drift, drift.main)}”")
        if drift.state == "possibly drifted":
            what = f"Possibly {what[0].lower()}{what[1:]}"
        since = tag_name(drift.main.since) if drift.main.since is not None else baseline
        return f"{what}: {numbers_of(drift.main.result)} since {since}."
    least = drift.propositions[0]
    if (least.points or 0.0) >= 0:
        return f"Steady: no proposition fell since {baseline} ({', '.join(map(dimension_words, drift.dimensions))})."
    return f"Steady: the largest fall is “{_name(drift, least)}”: {numbers_of(least.result)} since {baseline}."


def _name(drift: AgentDrift, row: Change) -> str:
    return short_name(row.proposition, drift.agent.slug, row.dimension)


def _why_not_since(drift: AgentDrift) -> str:
    if drift.candidate_name:
        return f"there is no evaluation of {drift.candidate_name}"
    at = drift.baseline_newest
    said = f" ({date_format(timezone.localtime(at), 'j M Y H:i')})" if at is not None else ""
    return f"no evaluation scored a message newer than its newest{said}; {MEASURE_NEWER}"


def _what_is_lacking(drift: AgentDrift) -> str:
    """Of what too little was scored, or what is not decided."""
    unscored = [f"{d.dimension.replace('_', ' ')}: {d.reason}" for d in drift.dimensions if d.delta is None]
    if unscored:
        return f" for {'; '.join(unscored).replace(f'{TOO_LITTLE}: ', '')}"
    since = f"since {drift.baseline_name}"
    if drift.lost:
        lost = []
        for each in drift.lost[:MOST_LOST]:
            lost.append(
                f"“{short_name(each.proposition, drift.agent.slug, each.dimension)}” {each.before} → {each.now}"
            )
        more = f" and {len(drift.lost) - MOST_LOST} more" if len(drift.lost) > MOST_LOST else ""
        return f": judgements scored {', '.join(lost)}{more} {since}"
    if drift.halved:
        shares = [f"{name.replace('_', ' ')} {was} → {now}" for name, (was, now) in drift.halved.items()]
        return f": judgements scored {', '.join(shares)} {since}"
    if (undecided := drift.undecided) is not None:
        return f" to call it steady: {dimension_words(undecided)}{_between(undecided)} {since}"
    hits = next(row for row in drift.propositions if row.result.hits is not None)
    return f" to call it steady: “{_name(drift, hits)}” {numbers_of(hits.result)} {since}"


def _between(change: ChangeResult) -> str:
    return f" ({interval_text(change.interval)})" if change.interval is not None else ""


def dimension_words(change: ChangeResult) -> str:
    """E.g. ``adherence 7.2 → 6.9``."""
    return f"{change.dimension.replace('_', ' ')} {numbers_of(change)}"


def numbers_of(change: ChangeResult) -> str:
    """E.g. ``8.1 → 3.2``, or ``words 8.1 → 3.2``."""
    if change.hits is not None:
        return f"hits in {change.baseline_hits} → {change.hits} messages"
    scores = ("–" if score is None else decimal(score) for score in (change.baseline, change.candidate))
    return f"{'words ' if change.of_words else ''}{' → '.join(scores)}"


def why_drifted(drift: AgentDrift) -> str:
    """Return how sure the sentence is: how much was judged, and whether that decides; of a fall of a dimension as a whole, that."""
    main = drift.main
    if main is None:
        return ""
    result = main.result
    whole = next((d for d in drift.fallen if d.dimension == main.dimension), None)
    if whole is not None and not result.is_sure and drift.state == "drifted":
        return f"as a whole {dimension_words(whole)}{_between(whole)}, more than chance explains"
    if result.unit == "repeats":
        return "judged once over the whole window: one judgement decides nothing"
    if result.hits is not None:
        judged = f"{counted(main.baseline_n, 'message')} in the baseline, {main.n:,} now"
    elif result.of_words:
        judged = f"by the words repeated in {counted(main.baseline_n, 'message')} in the baseline, {main.n:,} now"
    else:
        judged = f"{counted(main.baseline_scored, 'judgement')} in the baseline, {main.scored:,} now"
    if result.is_sure:
        return f"{judged}; more than chance explains, among all propositions compared"
    return f"{judged}; too few to tell from chance"


def _verb(row: Change, label: str) -> str:
    """Of an inverted claim a high score says that it does not hold."""
    if (row.points or 0.0) > 0:
        return f"{'Less' if row.inverted else 'More'} {label}"
    turned = (row.baseline or 0.0) >= SHOWN and (row.candidate or 0.0) <= GONE
    if row.inverted:
        return f"Slipped into {label}" if turned else f"More {label}"
    if turned:
        return f"Broke {label}" if label.startswith("“no ") else f"Stopped {label}"
    return f"Less {label}"


def candidate_words(drift: AgentDrift) -> str:
    """When and over what the candidate was measured, of several evaluations by dimension; empty without one."""
    if drift.candidate_runs and drift.candidate_name:
        return drift.candidate_name
    dimensions: dict[EvaluationRun, list[str]] = {}
    for name, run in sorted(drift.candidate_runs.items(), key=lambda item: item[1].pk):
        dimensions.setdefault(run, []).append(name.replace("_", " "))
    words = {}
    for run in dimensions:
        day = date_format(timezone.localtime(run.window_end or run.finished_at or run.created_at), "j M Y")
        words[run] = ", ".join(filter(None, (tag_words(run), day)))
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{', '.join(sorted(names))}: {words[run]}" for run, names in dimensions.items())


def tag_words(run: EvaluationRun) -> str:
    """The tags of the messages it was asked for, e.g. ``build 41``; those of a simulation are its own."""
    return "" if run.simulated else ", ".join(tag_name(pair) for pair in sorted(run.where.items()))
