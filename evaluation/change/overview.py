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
from statistics import fmean
from typing import Literal, get_args

from django.core.cache import cache
from django.db.models import Max, OuterRef, Q, Subquery

from agents.builds import Tag, tag_name
from agents.kit.text.wording import day_text
from agents.models import Agent, Message
from evaluation.change.change import ChangeResult, corrected, fell_sharply
from evaluation.change.choosing import chosen_measurements
from evaluation.change.comparison import Comparison
from evaluation.change.evidence import JudgeAndProcedure, judged_last, newest_evidence, runs_of
from evaluation.change.examples import Quote, add_evidence, add_history
from evaluation.change.judge_changes import Moments, known_identities, moments_of_change
from evaluation.change.lost import Lost
from evaluation.change.measurements import Measurement
from evaluation.change.models import Baseline, Change, Evidence
from evaluation.change.stored import changes_between, current_changes, p_values_elsewhere, rows_of
from evaluation.judge.identity import JudgeIdentity, judge_changed
from evaluation.models import PROCEDURE, EvaluationRun, EvaluationScore
from evaluation.runs.shares import Share
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
        lost: Propositions of which significantly less than half as much is scored as in the baseline.
        halved: Dimensions of which less than half as much is scored, be it by chance: what is left is not called steady.
        changed: Propositions that are another one now (reworded, or their trait changed), so not compared.
        baseline_quote, candidate_quote: Messages that show what the sentence is about.
        judge_changed: A sentence where the judge was another one at the baseline, as far as is known; else empty, as of those that are not
            described.
    """

    agent: Agent
    judged: JudgeAndProcedure | None
    state: State = "never measured"
    baseline_name: str = ""
    candidate_name: str = ""
    has_baseline: bool = False
    baseline_newest: datetime | None = None
    baseline_scores: dict[str, float | None] = field(default_factory=dict)
    is_measured: bool = False
    baseline_runs: dict[str, EvaluationRun] = field(default_factory=dict)
    candidate_runs: dict[str, EvaluationRun] = field(default_factory=dict)
    dimensions: list[ChangeResult] = field(default_factory=list)
    propositions: list[Change] = field(default_factory=list)
    main: Change | None = None
    claim: str = ""
    lost: list[Lost] = field(default_factory=list)
    halved: dict[str, tuple[Share, Share]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    baseline_quote: Quote | None = None
    candidate_quote: Quote | None = None
    judge_changed: str = ""

    @property
    def persona_edited(self) -> bool:
        """Return whether the persona was another one at the baseline: a difference is then not drift alone."""
        before = {run.persona_digest for run in self.baseline_runs.values()} - {""}
        now = {run.persona_digest for run in self.candidate_runs.values()} - {""}
        return bool(before and now) and len(before | now) > 1

    @property
    def fallen(self) -> list[ChangeResult]:
        """Return the dimensions that fell significantly by more than the margin, or sharply."""
        fallen = []
        for change in self.dimensions:
            is_worse = change.worse and (change.delta or 0.0) <= -MARGIN
            if is_worse or fell_sharply(change):
                fallen.append(change)
        return fallen

    @property
    def undecided(self) -> ChangeResult | None:
        """Return the first dimension of which nothing sure can be said; None where there is none."""
        for change in self.dimensions:
            if change.verdict in ("not enough data", "possibly drifted"):
                return change
        return None

    @property
    def delta(self) -> float | None:
        """Return the mean change of the dimensions, in points; None where nothing is compared."""
        deltas = [change.delta for change in self.dimensions if change.delta is not None]
        return fmean(deltas) if deltas else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Agents, ranked by what they lost.

    Attributes:
        drifts: Those asked for (`start`, `stop`), with quotes.
        total: How many are in the state asked for.
        states: How many are in each state.
    """

    drifts: Sequence[AgentDrift]
    total: int
    states: Mapping[State, int]


def drift_overview(
    agents: Sequence[Agent],
    judged: JudgeAndProcedure | None,
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
        judged: By whom and how both were judged; None, where there is no baseline: as the agents were last.
        baseline: The newest evidence from messages with this tag; default the current baselines.
        candidate: The same; default the newest evidence from newer messages than those of the baseline.
        state: Agents in this state only; default all.
        start, stop: The places to return and describe, from 0, among the agents in this state.
        describe: Whether to look for the evaluations and claims that sentences are about.
        quotes: Whether to look for the messages behind the sentences, too.
        are_all: Whether there are no other active agents, so that none are looked for.
    """
    judged = judged or judged_last(agents)
    if judged is None:
        drifts = [AgentDrift(agent=agent, judged=None) for agent in agents]
    elif baseline is None and candidate is None:
        drifts = _stored_drifts(agents, judged, with_runs=describe)
        if are_all:
            _correct_together(drifts)
        else:
            _correct_together(drifts, p_values_elsewhere([agent.pk for agent in agents], judged))
    else:
        drifts = _drifts_of_tags(agents, judged, baseline, candidate)
        _correct_together(drifts)
    for drift in drifts:
        drift.state, drift.main = state_of(drift)
    # Within a state those who lost propositions first, then the largest fall.
    drifts.sort(key=lambda drift: (ORDER.index(drift.state), not drift.lost, drift.delta or 0.0, drift.agent.slug))
    in_state = [drift for drift in drifts if state in (None, drift.state)]
    on_page = in_state[start:stop]
    if describe:
        moments = moments_of_change()
        for drift in on_page:
            drift.judge_changed = _judge_changed(drift, moments)
        _describe(on_page, quotes=quotes, stored=baseline is None and candidate is None)
    return Overview(drifts=on_page, total=len(in_state), states=Counter(drift.state for drift in drifts))


def drift_of_comparison(agent: Agent, comparison: Comparison) -> AgentDrift:
    """Return a comparison as how its agent changed, with the verdicts of the comparison; it finds no messages.

    Args:
        agent: Whose measurements were compared.
    """
    drift = AgentDrift(
        agent=agent,
        judged=JudgeAndProcedure(judge=comparison.judge, procedure=comparison.procedure),
        baseline_name=_side_name(comparison.baseline),
        candidate_name=_side_name(comparison.candidate),
        has_baseline=True,
    )
    rows = rows_of(comparison, agent)
    _add_changes(drift, rows, _runs(rows))
    drift.propositions.sort(key=_largest_fall_first)
    drift.state, drift.main = state_of(drift)
    _describe([drift], quotes=False, stored=False)
    return drift


def drift_at(run: EvaluationRun, dimension: str, *, quotes: bool) -> AgentDrift | None:
    """Return how an agent had changed in a dimension when an evaluation ended, as stored; None where nothing of it is stored.

    Verdicts allow for all that was compared in that evaluation, and for all that is current of other active agents. It takes seven
    statements at most.

    Args:
        run: The evaluation of the agent. quotes: Whether to look for the messages that show it.
    """
    rows = list(Change.objects.filter(evaluation_run=run).order_by("dimension", "proposition"))
    if run.agent is None or all(row.dimension != dimension for row in rows):
        return None
    judged = JudgeAndProcedure(judge=run.judge, procedure=run.procedure)
    drift = AgentDrift(agent=run.agent, judged=judged, has_baseline=True)
    runs = _runs(rows)
    _add_changes(drift, rows, runs)
    _correct_together([drift], p_values_elsewhere([run.agent.pk], judged))
    drift.dimensions = [change for change in drift.dimensions if change.dimension == dimension]
    drift.propositions = [row for row in drift.propositions if row.dimension == dimension]
    drift.lost = [lost for lost in drift.lost if lost.dimension == dimension]
    drift.halved = {name: shares for name, shares in drift.halved.items() if name == dimension}
    drift.baseline_runs = {name: of_name for name, of_name in drift.baseline_runs.items() if name == dimension}
    drift.candidate_runs = {name: of_name for name, of_name in drift.candidate_runs.items() if name == dimension}
    for baseline in drift.baseline_runs.values():
        captured_at = baseline.finished_at or baseline.created_at
        drift.baseline_name = f"the baseline of {day_text(captured_at)}"
    drift.state, drift.main = state_of(drift)
    drift.judge_changed = _judge_changed(drift, moments_of_change())
    _describe([drift], quotes=quotes, stored=True)
    return drift


def _side_name(measurement: Measurement) -> str:
    """Return a measurement as people call it: ``build 41`` where its messages have tags, else ``the baseline of 20 Nov 2026``."""
    if measurement.where:
        return ", ".join(tag_name(pair) for pair in sorted(measurement.where.items()))
    return f"the {measurement.name}" if measurement.name.startswith("baseline") else measurement.name


# -- the changes of each agent
EVALUATION_COLUMNS = (
    *("where", "simulated", "persona_digest", "window_end", "finished_at", "created_at"),
    *("judge", "judge_endpoint", "served_models", "prompt_digest", *PROCEDURE),
)


def _stored_drifts(agents: Sequence[Agent], judged: JudgeAndProcedure, *, with_runs: bool) -> list[AgentDrift]:
    """Return what is stored of these agents, in five statements at most, however many they are.

    Args:
        with_runs: Whether the evaluations behind it are read, too.
    """
    drifts = {agent.pk: AgentDrift(agent=agent, judged=judged) for agent in agents}
    _add_baselines(drifts, judged)
    rows_by_agent: dict[int, list[Change]] = defaultdict(list)
    for row in current_changes(drifts, judged):
        rows_by_agent[row.agent_id].append(row)
    runs: dict[int, EvaluationRun] = {}
    if with_runs:
        runs = _runs(row for rows in rows_by_agent.values() for row in rows)
    for pk, rows in rows_by_agent.items():
        _add_changes(drifts[pk], rows, runs)
    without_baseline = [pk for pk, drift in drifts.items() if not drift.has_baseline]
    if without_baseline:
        for pk, newest in newest_evidence(without_baseline, judged).items():
            drifts[pk].candidate_runs = runs_of(newest)
            drifts[pk].is_measured = True
    return list(drifts.values())


def _add_baselines(drifts: Mapping[int, AgentDrift], judged: JudgeAndProcedure) -> None:
    """Add the current baselines of agents: the name of the one captured last, scores, and when the newest message was said.

    Args:
        drifts: By the agent's primary key.
    """
    evidence = Evidence.objects.filter(evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension"))
    baselines = Baseline.objects.filter(agent__in=drifts, judge=judged.judge, procedure=judged.procedure)
    baselines = baselines.annotate(newest=Subquery(evidence.values("newest_message_at")[:1]))
    columns = ("agent", "dimension", "score", "captured_at", "newest")
    for pk, dimension, score, captured_at, newest in baselines.order_by("captured_at", "pk").values_list(*columns):
        drift = drifts[pk]
        drift.has_baseline = True
        drift.baseline_scores[dimension] = score
        drift.baseline_name = f"the baseline of {day_text(captured_at)}"
        if newest is not None and (drift.baseline_newest is None or newest > drift.baseline_newest):
            drift.baseline_newest = newest


def _runs(rows: Iterable[Change]) -> dict[int, EvaluationRun]:
    """Return the evaluations behind these rows by primary key, without their larger columns."""
    keys: set[int] = set()
    for row in rows:
        keys |= {row.baseline_run_id, row.evaluation_run_id}
    return EvaluationRun.objects.only(*EVALUATION_COLUMNS).in_bulk(keys) if keys else {}


def _drifts_of_tags(
    agents: Sequence[Agent], judged: JudgeAndProcedure, baseline: Tag | None, candidate: Tag | None
) -> list[AgentDrift]:
    """Compare the messages of two tags, of each agent once for the same evaluations.

    An agent takes 25 ms, with 6,000 judgements 170 ms, so what two tags gave is kept for some minutes. With one tag alone nothing is
    kept: baselines change.
    """
    if baseline is None or candidate is None:
        return [_drift_of_tags(agent, judged, baseline, candidate) for agent in agents]
    pks = [agent.pk for agent in agents]
    evidence_before = newest_evidence(pks, judged, tag=baseline)
    evidence_now = newest_evidence(pks, judged, tag=candidate)
    drifts = []
    for agent in agents:
        rows_before = sorted(row.pk for row in evidence_before.get(agent.pk, {}).values())
        rows_now = sorted(row.pk for row in evidence_now.get(agent.pk, {}).values())
        compared = repr((agent.pk, judged, baseline, candidate, rows_before, rows_now))
        key = f"drift-of-tags-{hashlib.blake2s(compared.encode()).hexdigest()}"
        drift = cache.get(key)
        if drift is None:
            drift = _drift_of_tags(agent, judged, baseline, candidate)
            cache.set(key, drift)
        drifts.append(drift)
    return drifts


def _drift_of_tags(agent: Agent, judged: JudgeAndProcedure, baseline: Tag | None, candidate: Tag | None) -> AgentDrift:
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
        _add_changes(drift, rows, _runs(rows))
    elif now is not None:
        by_key = EvaluationRun.objects.only(*EVALUATION_COLUMNS).in_bulk(set(now.runs.values()))
        drift.candidate_runs = {name: by_key[pk] for name, pk in now.runs.items()}
        drift.is_measured = True
    return drift


def _add_changes(drift: AgentDrift, rows: Iterable[Change], runs: Mapping[int, EvaluationRun]) -> None:
    """Add what changed. Counts, and what was scored in one of the two only, say nothing of drift.

    Args:
        runs: The evaluations behind the rows, by primary key; empty where they are not shown.
    """
    for row in rows:
        if row.result.counted:
            continue
        if row.proposition:
            _add_proposition(drift, row)
        else:
            _add_dimension(drift, row, runs)
    drift.changed.sort()


def _add_dimension(drift: AgentDrift, row: Change, runs: Mapping[int, EvaluationRun]) -> None:
    """Add the change of a dimension as a whole."""
    drift.is_measured = True
    if runs:
        drift.baseline_runs[row.dimension] = runs[row.baseline_run_id]
        drift.candidate_runs[row.dimension] = runs[row.evaluation_run_id]
    if row.result.delta is not None or row.result.too_little_scored:
        drift.dimensions.append(row.result)
    if row.halved is not None:
        drift.halved[row.dimension] = row.halved
    drift.changed += row.reworded


def _add_proposition(drift: AgentDrift, row: Change) -> None:
    """Add the change of a proposition."""
    if row.points is not None:
        drift.propositions.append(row)
    if row.lost is not None:
        drift.lost.append(row.lost)


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
        drift.propositions.sort(key=_largest_fall_first)


def _largest_fall_first(row: Change) -> tuple[float, str, str]:
    return row.result.points or 0.0, row.dimension, row.proposition


def state_of(drift: AgentDrift) -> tuple[State, Change | None]:
    """Return the state, and the proposition that the sentence is about, if any.

    That is the largest significant fall, else the largest significant rise, else the largest possible fall. A dimension that fell
    significantly or sharply is drift, too; an agent is steady where each dimension is. A rise, or a possible fall, counts only
    where no scores are lacking.
    """
    if not drift.has_baseline:
        return "no baseline" if drift.is_measured else "never measured", None
    if not drift.is_measured:
        return "not measured since", None
    # The propositions are sorted, the largest fall first.
    falls = [row for row in drift.propositions if (row.points or 0.0) <= -MARGIN]
    main_fall = _main_fall(drift, falls)
    if main_fall is not None:
        return "drifted", main_fall
    if _lacks_scores(drift):
        return "not enough data", None
    if not drift.propositions:
        return "not comparable", None
    for row in reversed(drift.propositions):  # the largest rise first
        if (row.points or 0.0) > 0 and row.result.is_sure:
            return "improved", row
    if falls:
        return "possibly drifted", falls[0]
    if drift.undecided is not None or _has_undecided_hits(drift):
        return "not enough data", None
    return "steady", None


def _main_fall(drift: AgentDrift, falls: Sequence[Change]) -> Change | None:
    """Return the fall that makes an agent one that drifted: a significant one, else the largest of a dimension that fell as a whole.

    Args:
        falls: The propositions that fell by the margin or more, the largest fall first.
    """
    for row in falls:
        if row.result.is_sure:
            return row
    if not falls or not drift.fallen:
        return None
    for row in falls:
        if row.dimension == drift.fallen[0].dimension:
            return row
    return falls[0]


def _lacks_scores(drift: AgentDrift) -> bool:
    """Return whether so much less is scored than in the baseline that what is left cannot be called steady."""
    without_score = any(change.delta is None and change.baseline is not None for change in drift.dimensions)
    return bool(drift.lost or drift.halved or without_score)


def _has_undecided_hits(drift: AgentDrift) -> bool:
    return any(row.result.hits is not None and row.verdict != "steady" for row in drift.propositions)


# -- the evidence for it
def _judge_changed(drift: AgentDrift, moments: Moments) -> str:
    """Return in a sentence that the judge was another one at the baseline; empty where that is not known."""
    before: list[JudgeIdentity] = []
    for run in drift.baseline_runs.values():
        before += known_identities(run, moments)
    now: list[JudgeIdentity] = []
    for run in drift.candidate_runs.values():
        now += known_identities(run, moments)
    return judge_changed(before, now)


def _describe(drifts: Sequence[AgentDrift], *, quotes: bool, stored: bool) -> None:
    """Add the claims that sentences are about and the messages that show it; two statements for all where they are stored.

    Args:
        quotes: Whether messages are added, too.
        stored: Whether the changes are stored rows, which name their messages; else the messages are looked for.
    """
    mains = [drift.main for drift in drifts if drift.main is not None]
    if not mains:
        return
    if not stored and quotes:
        add_evidence(mains)
    elif not stored:
        add_history(mains)
    claims = _claims(mains)
    messages: dict[int, Message] = {}
    if quotes:
        keys = {row.baseline_quote_id for row in mains} | {row.quote_id for row in mains}
        messages = Message.objects.select_related("channel", "agent").in_bulk(keys - {None})
    for drift in drifts:
        row = drift.main
        if row is None:
            continue
        drift.claim = claims.get((row.evaluation_run_id, row.dimension, row.proposition), "")
        drift.baseline_quote = _quote(messages.get(row.baseline_quote_id or 0), row.baseline_quote_score)
        drift.candidate_quote = _quote(messages.get(row.quote_id or 0), row.quote_score)


def _quote(message: Message | None, score: int | None) -> Quote | None:
    if message is None or score is None:
        return None
    return Quote(message=message, score=score)


def _claims(rows: Iterable[Change]) -> dict[tuple[int, str, str], str]:
    """Return the claims as they were asked now; of one that names its channel, and so has several wordings, the last in the alphabet.

    Returns:
        By evaluation, dimension and proposition.
    """
    condition = Q(pk__in=[])
    for row in rows:
        condition |= Q(evaluation_run=row.evaluation_run_id, dimension=row.dimension, proposition_id=row.proposition)
    judgements = EvaluationScore.objects.filter(condition).order_by()
    claims = {}
    for run, dimension, proposition, claim in judgements.values_list(
        "evaluation_run_id", "dimension", "proposition_id"
    ).annotate(last_claim=Max("claim")):
        claims[run, dimension, proposition] = claim
    return claims
