"""Which repair works, for how many turns, and at what cost: the report of a laboratory, drawn from the judgements of its forks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from django.db.models import Count, Sum
from pydantic import BaseModel, ConfigDict, Field

from agents.kit.models import LLMCall
from agents.kit.text.wording import counted, difference
from agents.models import Agent, Message
from evaluation.change.change import ChangeResult, Probability, Sample, change_of, corrected, mean_of
from evaluation.dimensions import BY_ONE_MESSAGE, OF_PERSONA, Dimension
from evaluation.experiments.asking import QuestionOutcome, asked_in, asking_work_id
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.scenario import Arm, Scenario
from evaluation.experiments.starting import BEFORE_TAG, STEP_TAG
from evaluation.models import RULE_JUDGE, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.statistics.bootstrap import Interval, Observation
from evaluation.statistics.change_point import DAYS_PER_MONTH, SAFETY, Point, find_drops
from evaluation.statistics.difference import ALPHA, MARGIN
from evaluation.statistics.half_life import HalfLife, half_life

KEPT_FROM = 5.0  # mean score of a proposition over a fork, from which on its messages keep it
MOST_NAMED = 5  # rules that are stated and broken
HEURISTIC = "the scores are an offline judge's, and no claim rests on them"
NOT_COMPARED = "The repairs are compared once everything was judged."
ONE_LOOK = timedelta(days=1)

Verdict = Literal["repairs", "harms", "no effect", "not shown", "heuristic"]
VERDICTS: Mapping[str, Verdict] = {"improved": "repairs", "drifted": "harms", "steady": "no effect"}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Lasting(_Frozen):
    """For how many turns a repair keeps at least half of its first effect, with the 95 % interval over forks.

    Attributes:
        turns, low, high: Of `of` turns that were played. Whichever is as many had not ended by then: read it as "at least".
    """

    turns: int
    low: int
    high: int
    of: int

    @classmethod
    def from_half_life(cls, value: HalfLife) -> Lasting:
        return cls(turns=value.turns, low=value.low, high=value.high, of=value.measured)


class RepairEffect(_Frozen):
    """One dimension in an arm beside the control.

    Attributes:
        mean, control_mean: Scores, 0 to 9, over all turns after the fork; None where nothing was scored.
        delta: Arm minus control. `interval`: 95 %, whole forks drawn. `p`: corrected for all arms and dimensions (Holm).
        forks, control_forks: That have scores.
        verdict: ``repairs`` and ``harms`` are significant; ``no effect``: significantly within half a point of none; ``heuristic``: an
            offline judge's scores, of which nothing is claimed; else ``not shown``, and `why` says what is lacking.
        lasting: Only of a repair, in dimensions that are judged message by message.
    """

    dimension: str
    label: str
    mean: float | None = None
    control_mean: float | None = None
    delta: float | None = None
    interval: tuple[float, float] | None = None
    p: Probability | None = None
    forks: int = 0
    control_forks: int = 0
    verdict: Verdict = "not shown"
    why: str = ""
    lasting: Lasting | None = None

    @property
    def shown_delta(self) -> float | None:
        """Return the delta to show beside the two scores: their difference as they are shown."""
        return difference(self.control_mean, self.mean, 2)


class AnswerAgreement(_Frozen):
    """How far an agent gives the same answer when it is asked the same again on the same fork.

    Attributes:
        agree: Pairs of answers that agree, of `pairs` of which that is known. `unknown`: of which it is not.
        silent: How often it was asked and said nothing.
        heuristic: They were compared by their words alone.
    """

    agree: int = 0
    pairs: int = 0
    unknown: int = 0
    silent: int = 0
    heuristic: bool = False

    @property
    def share(self) -> float | None:
        return self.agree / self.pairs if self.pairs else None


class RuleTable(_Frozen):
    """What an agent says of its rules, and whether it keeps them: each rule on each fork is counted once.

    Attributes:
        states_breaks: It knows the rule and violates it.
        unknown: Rules that nothing was scored of, or of which the answers could not be judged.
        knows_but_violates: The rules (ids of propositions) that are most often stated and broken, with the number of forks.
        heuristic: An offline judge looked for the rules in the answers, or scored what was said: no claim rests on it.
    """

    states_keeps: int = 0
    states_breaks: int = 0
    silent_keeps: int = 0
    silent_breaks: int = 0
    unknown: int = 0
    knows_but_violates: dict[str, int] = Field(default_factory=dict)
    heuristic: bool = False

    @property
    def n(self) -> int:
        return self.states_keeps + self.states_breaks + self.silent_keeps + self.silent_breaks


class LabArm(_Frozen):
    """What came of the forks of one arm; the first arm is the control, and has no effects.

    Attributes:
        turns: Taken in all its forks. `usd`: of the calls of these turns, gate and other stages among them; None where one is unpriced.
        extra_usd: What a turn costs more than one of the control.
        questions_usd: What asking the control questions and judging their answers cost.
        by_turn: Mean score by turn after the fork, by dimension, over its forks; None where a turn has none.
    """

    name: str
    label: str
    forks: int
    turns: int
    usd: float | None = None
    usd_per_turn: float | None = None
    extra_usd: float | None = None
    questions_usd: float | None = None
    effects: list[RepairEffect] = Field(default_factory=list)
    answers: AnswerAgreement = Field(default_factory=AnswerAgreement)
    rules: RuleTable = Field(default_factory=RuleTable)
    by_turn: dict[str, list[float | None]] = Field(default_factory=dict)


class DriftOnset(_Frozen):
    """Since when the agent has drifted, as the real conversation and then the control show it.

    Attributes:
        turn: Of the agent, counted from the beginning of the conversation; None: no lasting fall was found, and `why` says more.
        before, after: Mean scores. `of`: turns that have a score, among those from `first` to `last`.
        after_fork: Whether it began on the forks, not in the real conversation.
    """

    dimension: str
    turn: int | None = None
    before: float | None = None
    after: float | None = None
    first: int = 1
    last: int = 0
    of: int = 0
    after_fork: bool = False
    why: str = ""


class LabReport(_Frozen):
    """What a laboratory came to.

    Attributes:
        sentence: The first line: which repair works, for how long, at what cost.
        channel, position: Where the conversation was forked; it was only read. `turn`: the agent's last one before the fork.
        turns: Played on each fork; in `replayed` of them the real messages that followed were said again.
        measuring_usd: Cost of judging what was said, in all arms; None where a call is unpriced.
    """

    sentence: str
    agent: str
    agent_name: str
    channel: str
    position: int
    turn: int
    turns: int
    replayed: int
    questions: int
    heuristic: bool
    measuring_usd: float | None = None
    onsets: list[DriftOnset] = Field(default_factory=list)
    arms: list[LabArm] = Field(default_factory=list)

    @property
    def is_compared(self) -> bool:
        """Return whether arms were compared; they are not before everything was judged."""
        return any(arm.effects for arm in self.arms)

    @property
    def repairs(self) -> list[LabArm]:
        """Return the arms but for the control."""
        return list(self.arms[1:])


def lab_report(
    experiment: Experiment,
    scenario: Scenario,
    environments: Sequence[ExperimentEnvironment],
    runs: Sequence[EvaluationRun],
    *,
    judge: str,
    is_judged: bool,
) -> LabReport:
    """Return what a laboratory came to.

    Args:
        runs: Its evaluations by this judge.
        is_judged: Whether nothing more will be judged. Until then arms are not compared and no judgement is read: looks at a part of the
            forks would find differences by chance more often than the verdicts promise.
    """
    judgements = list(_judgements(runs)) if is_judged else []
    after = [judgement for judgement in judgements if judgement.turn is not None]
    slug, _, position = scenario.start_from.rpartition("@")
    agent = Agent.objects.filter(slug=scenario.cast[0]).first()
    agent_name = agent.display_name if agent is not None else scenario.cast[0]
    turn = 0
    if agent is not None:
        turn = Message.objects.filter(channel__slug=slug, position__lte=int(position), agent=agent).count()
    dimensions = [str(measured.id) for measured in scenario.dimensions]
    effects: dict[str, list[RepairEffect]] = {}
    onsets: list[DriftOnset] = []
    if is_judged:
        effects = compare_arms(after, [arm.name for arm in scenario.arms], dimensions, judge=judge, seed=scenario.seed)
        onsets = _onsets(judgements, scenario, _turns_before(judgements, agent, turn), turn, judge=judge)
    # The answers were read by the experiment's own judge, whoever scored what was said.
    arms = _arms(
        scenario,
        environments,
        after,
        effects,
        answers_heuristic=is_heuristic(experiment.judge),
        rules_heuristic=is_heuristic(experiment.judge) or is_heuristic(judge),
    )
    result = LabReport(
        sentence="",
        agent=scenario.cast[0],
        agent_name=agent_name,
        channel=slug,
        position=int(position),
        turn=turn,
        turns=len(scenario.steps),
        replayed=sum(bool(step.replays) for step in scenario.steps),
        questions=len(scenario.lab.questions) if scenario.lab else 0,
        heuristic=is_heuristic(judge),
        measuring_usd=_usd_of_work([run.work_id for run in runs]),
        onsets=onsets,
        arms=arms,
    )
    return result.model_copy(update={"sentence": sentence_of(result)})


# -- judgements
@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One scored judgement.

    Attributes:
        fork: Primary key of the environment. `turn`: after the fork, from 1; 0: the fork was judged as a whole; None: it is of a message
            that was said before the fork, at `position`.
        exact: Whether a rule scored it, not a judge.
    """

    arm: str
    fork: int
    dimension: str
    proposition: str
    message: int | None
    turn: int | None
    position: int
    score: float
    weight: float
    exact: bool


def _judgements(runs: Sequence[EvaluationRun]) -> Iterator[Judgement]:
    """Yield the scored judgements of these evaluations; those of messages that were deleted since are left out."""
    were_before = {run.pk for run in runs if BEFORE_TAG in run.where}
    rows = EvaluationScore.objects.filter(
        evaluation_run__in=[run.pk for run in runs], status=EvaluationScore.Status.SCORED, score__isnull=False
    )
    columns = (
        "evaluation_run",
        "evaluation_run__environment_link__environment",
        "evaluation_run__environment_link__environment__arm",
        "dimension",
        "proposition_id",
        "message",
        "message__tags",
        "message__position",
        "score",
        "weight",
        "judge",
    )
    for row in rows.order_by("pk").values_list(*columns):
        run, fork, arm, dimension, proposition, message, tags, position, score, weight, judge = row
        is_of_message = dimension in BY_ONE_MESSAGE
        if is_of_message and message is None:
            continue
        turn: int | None = 0
        if run in were_before:
            turn = None
        elif message is not None:
            turn = int(tags.get(STEP_TAG, 0))
        yield Judgement(
            arm=arm,
            fork=fork,
            dimension=dimension,
            proposition=proposition,
            message=message,
            turn=turn,
            position=position or 0,
            score=score,
            weight=weight,
            exact=judge == RULE_JUDGE,
        )


# -- effects
def compare_arms(
    judgements: Sequence[Judgement], arms: Sequence[str], dimensions: Sequence[str], *, judge: str, seed: int = 0
) -> dict[str, list[RepairEffect]]:
    """Return for each arm but the first, the control, its effect in each dimension; all are tested at once.

    Forks are what is drawn: turns of one are not independent.
    """
    control, *repairs = arms
    observations: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    inexact: set[str] = set()  # dimensions with scores that are not of rules
    for judgement in judgements:
        cluster = f"conversation:{judgement.fork}"
        observation = Observation(judgement.score, judgement.weight, cluster, item=judgement.message)
        observations[judgement.arm, judgement.dimension].append(observation)
        if not judgement.exact:
            inexact.add(judgement.dimension)
    arm_and_dimension: list[tuple[str, str]] = []
    changes: list[ChangeResult] = []
    for arm in repairs:
        for dimension in dimensions:
            arm_and_dimension.append((arm, dimension))
            changes.append(_change(observations[control, dimension], observations[arm, dimension], dimension=dimension))
    heuristics = {name for name in inexact if is_heuristic(judge)}
    tested = [change for change in changes if change.dimension not in heuristics]
    verdicts = iter(corrected(tested, MARGIN, "arms and dimensions"))
    effects: dict[str, list[RepairEffect]] = {arm: [] for arm in repairs}
    for (arm, dimension), change in zip(arm_and_dimension, changes, strict=True):
        if dimension in heuristics:
            unclaimed = {"verdict": "heuristic", "why": HEURISTIC, "p": None, "interval": None}
            effect = _effect(change).model_copy(update=unclaimed)
        else:
            effect = _effect(next(verdicts))
        if effect.verdict == "repairs" and dimension in BY_ONE_MESSAGE:
            lasting = half_life(
                _scores_by_turn(judgements, arm, dimension),
                _scores_by_turn(judgements, control, dimension),
                seed=seed,
            )
            if lasting is not None:
                effect = effect.model_copy(update={"lasting": Lasting.from_half_life(lasting)})
        effects[arm].append(effect)
    return effects


def _change(control: Sequence[Observation], treatment: Sequence[Observation], *, dimension: str) -> ChangeResult:
    return change_of(
        Sample(score=mean_of(control), observations=control),
        Sample(score=mean_of(treatment), observations=treatment),
        dimension=dimension,
        margin=MARGIN,
    )


def _effect(change: ChangeResult) -> RepairEffect:
    """Return a change from the control to an arm as the effect of that arm."""
    verdict = VERDICTS.get(change.verdict, "not shown")
    return RepairEffect(
        dimension=change.dimension,
        label=str(Dimension(change.dimension).label),
        mean=change.candidate,
        control_mean=change.baseline,
        delta=change.delta,
        interval=_ends(change.interval),
        p=change.p_adjusted,
        forks=change.n,
        control_forks=change.baseline_n,
        verdict=verdict,
        why=_why_not_shown(change) if verdict == "not shown" else "",
    )


def _why_not_shown(change: ChangeResult) -> str:
    """Return what is lacking for a verdict, in the words of a laboratory."""
    if change.baseline is None or change.candidate is None:
        return "nothing was scored in one of the two"
    if change.interval is None:
        return "it takes at least 2 forks of each arm"
    if change.n_more is not None:
        return f"some {counted(change.n_more, 'more fork')} of each arm could decide it"
    if change.interval.low > 0 or change.interval.high < 0:  # taken back, for all that is tested at once
        return change.reason
    return "the interval is too wide"


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (round(interval.low, 4), round(interval.high, 4))


def _scores_by_turn(judgements: Sequence[Judgement], arm: str, dimension: str) -> list[dict[int, float]]:
    """Return the mean score of each turn after the fork, a dictionary for each fork of an arm."""
    sums: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for judgement in judgements:
        if (judgement.arm, judgement.dimension) == (arm, dimension) and judgement.turn:
            weighted = sums[judgement.fork][judgement.turn]
            weighted[0] += judgement.weight * judgement.score
            weighted[1] += judgement.weight
    conversations = []
    for fork in sorted(sums):
        conversations.append({turn: points / weight for turn, (points, weight) in sorted(sums[fork].items()) if weight})
    return conversations


# -- arms
def _arms(
    scenario: Scenario,
    environments: Sequence[ExperimentEnvironment],
    judgements: Sequence[Judgement],
    effects: Mapping[str, list[RepairEffect]],
    *,
    answers_heuristic: bool,
    rules_heuristic: bool,
) -> list[LabArm]:
    asks = scenario.lab.asks if scenario.lab is not None else 0
    arms: list[LabArm] = []
    for arm in scenario.arms:
        forks = [environment for environment in environments if environment.arm == arm.name and environment.figures]
        turns = int(sum(environment.figures.get("turns", 0) for environment in forks))
        usd = _sum_if_all_known([environment.figures.get("usd_in_all") for environment in forks])
        per_turn = usd / turns if usd is not None and turns else None
        control_per_turn = arms[0].usd_per_turn if arms else None
        extra = None
        if per_turn is not None and control_per_turn is not None:
            extra = per_turn - control_per_turn
        arms.append(
            LabArm(
                name=arm.name,
                label=arm.label or arm.name,
                forks=len(forks),
                turns=turns,
                usd=usd,
                usd_per_turn=per_turn,
                extra_usd=extra,
                questions_usd=_questions_usd(forks),
                effects=effects.get(arm.name, []),
                answers=_agreement(forks, asks=asks, heuristic=answers_heuristic),
                rules=_rule_table(forks, judgements, heuristic=rules_heuristic),
                by_turn=_by_turn(arm, scenario, judgements),
            )
        )
    return arms


def _by_turn(arm: Arm, scenario: Scenario, judgements: Sequence[Judgement]) -> dict[str, list[float | None]]:
    means: dict[str, list[float | None]] = {}
    for measured in scenario.dimensions:
        if measured.id in BY_ONE_MESSAGE:
            means[str(measured.id)] = _mean_by_turn(judgements, arm.name, str(measured.id), turns=len(scenario.steps))
    return means


def _mean_by_turn(judgements: Sequence[Judgement], arm: str, dimension: str, *, turns: int) -> list[float | None]:
    """Return the mean over the forks of an arm for each turn after the fork; None where a turn has no score."""
    conversations = _scores_by_turn(judgements, arm, dimension)
    means: list[float | None] = []
    for turn in range(1, turns + 1):
        scores = [conversation[turn] for conversation in conversations if turn in conversation]
        means.append(round(sum(scores) / len(scores), 4) if scores else None)
    return means


def _agreement(forks: Sequence[ExperimentEnvironment], *, asks: int, heuristic: bool) -> AnswerAgreement:
    agree = disagree = unknown = silent = 0
    for fork in forks:
        for outcome in map(QuestionOutcome.model_validate, fork.answers):
            agree += outcome.agreements.count(True)
            disagree += outcome.agreements.count(False)
            unknown += outcome.agreements.count(None)
            silent += asks - outcome.answers
    return AnswerAgreement(agree=agree, pairs=agree + disagree, unknown=unknown, silent=silent, heuristic=heuristic)


def _rule_table(
    forks: Sequence[ExperimentEnvironment], judgements: Sequence[Judgement], *, heuristic: bool
) -> RuleTable:
    """Return whether rules were stated, and kept, on each fork; `KEPT_FROM` says from which mean score on a fork keeps one."""
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for judgement in judgements:
        if judgement.dimension == OF_PERSONA:  # another dimension may have a proposition of the same name
            scores[judgement.fork, judgement.proposition].append(judgement.score)
    counts = {"states_keeps": 0, "states_breaks": 0, "silent_keeps": 0, "silent_breaks": 0}
    unknown = 0
    violated: dict[str, int] = defaultdict(int)
    for fork in forks:
        for rule, stated in _stated(fork).items():
            of_rule = scores[fork.pk, rule]
            if stated is None or not of_rule:
                unknown += 1
                continue
            is_kept = sum(of_rule) / len(of_rule) >= KEPT_FROM
            counts[f"{'states' if stated else 'silent'}_{'keeps' if is_kept else 'breaks'}"] += 1
            if stated and not is_kept:
                violated[rule] += 1
    most_first = sorted(violated.items(), key=lambda item: (-item[1], item[0]))
    return RuleTable(**counts, unknown=unknown, knows_but_violates=dict(most_first[:MOST_NAMED]), heuristic=heuristic)


def _stated(fork: ExperimentEnvironment) -> dict[str, bool | None]:
    """Return of each rule that was looked for whether any answer on a fork states it; None where none could be judged."""
    stated: dict[str, bool | None] = {}
    for outcome in map(QuestionOutcome.model_validate, fork.answers):
        for rule, is_stated in outcome.states.items():
            if is_stated or stated.get(rule) is None:
                stated[rule] = is_stated
    return stated


# -- cost
def _questions_usd(forks: Sequence[ExperimentEnvironment]) -> float | None:
    """Return what the answers to control questions and their judging cost; None where a call is unpriced."""
    slugs = [asked_in(fork.channel.slug) for fork in forks]
    answering = _usd_of(LLMCall.objects.filter(run__channel__slug__in=slugs))
    judging = _usd_of_work([asking_work_id(fork.pk) for fork in forks])
    return _sum_if_all_known([answering, judging])


def _usd_of_work(work_ids: Sequence[str]) -> float | None:
    return _usd_of(LLMCall.objects.filter(work_id__in=work_ids))


def _usd_of(calls: object) -> float | None:
    sums = calls.aggregate(usd=Sum("cost_usd"), priced=Count("cost_usd"), calls=Count("pk"))  # type: ignore[attr-defined]
    if sums["priced"] != sums["calls"]:
        return None
    return float(sums["usd"] or 0)


def _sum_if_all_known(amounts: Sequence[float | None]) -> float | None:
    priced = [amount for amount in amounts if amount is not None]
    return math.fsum(priced) if len(priced) == len(amounts) else None


# -- onset
def _turns_before(judgements: Sequence[Judgement], agent: Agent | None, turn: int) -> dict[int, int]:
    """Return which turn of the agent each message before the fork was, by its position in the fork that was judged.

    Args:
        turn: The agent's last one before the fork.
    """
    forks = {judgement.fork for judgement in judgements if judgement.turn is None}
    channels = ExperimentEnvironment.objects.filter(pk__in=forks).values("channel")
    messages = Message.objects.filter(channel__in=channels, agent=agent, tags__has_key=BEFORE_TAG).order_by("-position")
    positions = messages.values_list("position", flat=True)
    return {position: turn - number for number, position in enumerate(positions)}


def _onsets(
    judgements: Sequence[Judgement], scenario: Scenario, turns_before: Mapping[int, int], turn: int, *, judge: str
) -> list[DriftOnset]:
    """Return since when the agent has drifted in each dimension that is judged message by message."""
    control = scenario.arms[0].name
    onsets = []
    for measured in scenario.dimensions:
        name = str(measured.id)
        if name not in BY_ONE_MESSAGE:
            continue
        is_exact = all(judgement.exact for judgement in judgements if judgement.dimension == name)
        if is_heuristic(judge) and not is_exact:
            onsets.append(
                DriftOnset(dimension=name, why="since when it is lower is not said of an offline judge's scores")
            )
        else:
            onsets.append(find_onset(name, judgements, control, turns_before, turn=turn, turns=len(scenario.steps)))
    return onsets


def find_onset(
    dimension: str,
    judgements: Sequence[Judgement],
    control: str,
    turns_before: Mapping[int, int],
    *,
    turn: int,
    turns: int,
) -> DriftOnset:
    """Return since when the scores have been lower: of the real messages before the fork, then of the control's turns.

    Of several lasting falls the last one is named. Turns without a score are left out, and are counted all the same.

    Args:
        control: The arm to which nothing is done.
        turns_before: The agent's turns before the fork, by the position of their message.
        turn: The last of these. `turns`: played on each fork.
    """
    scores = _means_before(dimension, judgements, turns_before)
    for number, mean in enumerate(_mean_by_turn(judgements, control, dimension, turns=turns), turn + 1):
        if mean is not None:
            scores[number] = mean
    looked_at = list(scores)
    first, last = (looked_at[0], looked_at[-1]) if looked_at else (1, 0)
    start = datetime(2000, 1, 1, tzinfo=UTC)
    points = [Point(start + number * ONE_LOOK, score) for number, score in enumerate(scores.values())]
    # One false alarm in as many turns as give these a chance of 5 % to have one.
    turns_per_false_alarm = len(points) / ALPHA
    series = max(1, math.ceil(turns_per_false_alarm / (SAFETY * DAYS_PER_MONTH)))
    scan = find_drops(points, every=ONE_LOOK, series=series)
    if not scan.alarms:
        why = scan.reason or "no lasting fall was found"
        return DriftOnset(dimension=dimension, first=first, last=last, of=len(points), why=why)
    alarm = scan.alarms[-1]
    since = looked_at[alarm.onset]
    return DriftOnset(
        dimension=dimension,
        turn=since,
        before=round(alarm.before, 2),
        after=round(alarm.after, 2),
        first=first,
        last=last,
        of=len(points),
        after_fork=since > turn,
    )


def _means_before(dimension: str, judgements: Sequence[Judgement], turns_before: Mapping[int, int]) -> dict[int, float]:
    """Return the mean score of each turn before the fork, in order, as far as they were judged."""
    by_position: dict[int, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        is_before = judgement.turn is None and judgement.position in turns_before
        if is_before and judgement.dimension == dimension:
            by_position[judgement.position].append(judgement)
    return {turns_before[position]: _weighted_mean(by_position[position]) for position in sorted(by_position)}


def _weighted_mean(judgements: Sequence[Judgement]) -> float:
    weight = math.fsum(judgement.weight for judgement in judgements)
    return math.fsum(judgement.weight * judgement.score for judgement in judgements) / weight


# -- in words
def sentence_of(report: LabReport) -> str:
    """Return which repair works, for how long and at what cost.

    E.g. "A reminder repairs Nora's persona adherence for 12 turns [8, 16], at $0.0040 more a turn; gate=enforce: not shown."
    """
    if not report.is_compared:
        return NOT_COMPARED
    verdicts = {effect.verdict for arm in report.repairs for effect in arm.effects}
    if verdicts == {"heuristic"}:
        return f"No repair is shown to work or not to: {HEURISTIC}."
    parts = [_arm_sentence(report, arm) for arm in report.repairs]
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _arm_sentence(report: LabReport, arm: LabArm) -> str:
    effects: list[str] = []
    for effect in arm.effects:
        if effect.verdict == "repairs":
            effects.append(f"repairs {report.agent_name}'s {effect.label.lower()}{_for_turns(effect.lasting)}")
        elif effect.verdict == "harms":
            effects.append(f"harms {report.agent_name}'s {effect.label.lower()}")
    if effects:
        return f"{arm.label} {' and '.join(effects)}, {cost_text(arm)}"
    verdicts = list(dict.fromkeys(effect.verdict for effect in arm.effects))
    named = ["an offline judge's scores" if verdict == "heuristic" else verdict for verdict in verdicts]
    return f"{arm.label}: {', '.join(named) or 'not shown'}"


def _for_turns(lasting: Lasting | None) -> str:
    return "" if lasting is None else f" for {lasting_text(lasting)}"


def lasting_text(lasting: Lasting) -> str:
    """Return how long a repair holds, e.g. ``12 turns [8, 16]``, ``at least 20 turns [15, ≥ 20]``."""
    high = f"≥ {lasting.high}" if lasting.high >= lasting.of else str(lasting.high)
    low = f"≥ {lasting.low}" if lasting.low >= lasting.of else str(lasting.low)
    interval = "" if lasting.low >= lasting.of else f" [{low}, {high}]"
    turns = counted(lasting.turns, "turn")
    return f"at least {turns}{interval}" if lasting.turns >= lasting.of else f"{turns}{interval}"


def cost_text(arm: LabArm) -> str:
    """Return what a turn of an arm costs more than one of the control, e.g. ``at $0.0040 more a turn``."""
    if arm.extra_usd is None:
        return "at an unpriced cost"
    if arm.extra_usd == 0:
        return "at no further cost"
    more_or_less = "more" if arm.extra_usd > 0 else "less"
    if abs(arm.extra_usd) < 0.00005:  # it would read as nothing
        return f"at under $0.0001 {more_or_less} a turn"
    return f"at ${abs(arm.extra_usd):.4f} {more_or_less} a turn"


def onset_text(onset: DriftOnset) -> str:
    """Return since when the agent has drifted, in a sentence."""
    label = Dimension(onset.dimension).label
    looked_at = f"turns {onset.first} to {onset.last}"
    if onset.of < onset.last - onset.first + 1:
        looked_at += f", {onset.of} of which have a score"
    if onset.turn is None:
        return f"{label}: {onset.why} ({looked_at})." if onset.of else f"{label}: {onset.why}."
    where = "on the forks of the control" if onset.after_fork else "in the real conversation"
    return f"{label} has been lower since turn {onset.turn}, {where}: {onset.before:.1f} before, {onset.after:.1f} since ({looked_at})."
