"""Who drifted, and in what: agents ranked by what they lost between a baseline and a candidate, with messages that show it.

The changes are rows that were stored when the evaluations ended (`stored`); those between the messages of two tags are computed when they
are asked for, by the same function. An agent's state is a function of its rows; `sentences` puts it into words.
"""

from __future__ import annotations

import hashlib
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
from agents.models import Agent, Message
from evaluation.change.change import ChangeResult, corrected, fell_sharply
from evaluation.change.choosing import chosen_measurements
from evaluation.change.evidence import Judged, newest_evidence, runs_of
from evaluation.change.examples import Quote, add_evidence
from evaluation.change.lost import Lost
from evaluation.change.models import Baseline, Change, Evidence
from evaluation.change.stored import chances_elsewhere, changes_between, current_changes
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import Share
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
    are_all: bool = False,
) -> Overview:
    """Rank agents by what they lost between two measurements, and describe some of them.

    Verdicts are corrected over a family of comparisons, as those of `compare` are. Between baselines and newest evidence the family is
    all active agents, so that every page says the same of an agent; between tags it is the agents asked for.

    Args:
        judged: By whom and how both were judged; None: nothing was measured yet.
        baseline: The newest evidence from messages with this tag; default the current baselines.
        candidate: The same; default the newest evidence from newer messages than those of the baseline.
        state: Agents in this state only; default all.
        start, stop: The places to describe, from 0.
        describe: Whether to look for the evaluations and claims that sentences are about.
        quotes: Whether to look for the messages behind the sentences, too.
        are_all: Whether there are no other active agents, so that none are looked for.
    """
    if judged is None:
        drifts = [AgentDrift(agent=agent, judged=None) for agent in agents]
    elif baseline is None and candidate is None:
        drifts = _stored_drifts(agents, judged, with_runs=describe)
        others = ([], []) if are_all else chances_elsewhere([agent.pk for agent in agents], judged)
        _correct_together(drifts, others)
    else:
        drifts = _drifts_of_tags(agents, judged, baseline, candidate)
        _correct_together(drifts)
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


def _correct_together(
    drifts: Sequence[AgentDrift], elsewhere: tuple[Sequence[float], Sequence[float]] = ((), ())
) -> None:
    """Have all verdicts allow for all that is compared at once, the dimensions and the propositions for themselves.

    Args:
        elsewhere: The p values of the dimensions, and of the propositions, of other agents that are compared, too.
    """
    p_dimensions, p_propositions = elsewhere
    dimensions = [change for drift in drifts for change in drift.dimensions]
    rows = [row for drift in drifts for row in drift.propositions]
    corrected_dimensions = iter(corrected(dimensions, MARGIN, "dimensions", elsewhere=p_dimensions))
    corrected_results = corrected([row.result for row in rows], MARGIN, "propositions", elsewhere=p_propositions)
    for row, result in zip(rows, corrected_results, strict=True):
        row.result = result
    for drift in drifts:
        drift.dimensions = [next(corrected_dimensions) for _ in drift.dimensions]
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
