"""What an experiment came to: gains, harms and costs of each treatment beside the control, and whether it was treated at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from pydantic import BaseModel, ConfigDict, Field

from agents.kit.text.wording import decimal, difference
from evaluation.calibration.passport import passports
from evaluation.dimensions import CHANNEL_DIMENSIONS, Dimension
from evaluation.dimensions import COUNTED as COUNTED_BY_JUDGE
from evaluation.experiments.compare import Comparison, Measure, Row, Values, compare_family
from evaluation.experiments.measuring import STOPPED, evaluations
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.published import Figure, figures
from evaluation.experiments.repairs import LabReport, lab_report
from evaluation.experiments.scenario import Arm, Measured, Scenario
from evaluation.experiments.starting import BEFORE_TAG
from evaluation.judge.passport import Passport
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.summary import summarize_all

MOST_SHOWN = 3  # conversations for and against
MOST_AT_ONCE = 1_000  # evaluations whose scores are read together
# What a stage's counters must show for its arm to have been treated: the stage changed what was said, or what was read.
ACTED: Mapping[str, tuple[str, ...]] = {
    "gate": ("sent_back", "forced_through"),
    "repetition": ("suppressed",),
    "interventions": ("fired",),
    "calibration": ("pre", "main"),
    "polish": ("polished", "replaced"),
    "debate": ("shown_in_full", "shown_in_short"),
}
# Counted without a judge, per environment: id, label, unit, which way is a gain.
COUNTED = (
    Measure(id="rules", label="Rules kept", unit="share of messages", better="higher"),
    Measure(id="silence", label="Silence", unit="share of turns", better="lower"),
    Measure(id="repetition", label="Repetition", unit="share of n-grams", better="lower"),
    Measure(id="length", label="Length", unit="words a message", better=""),
    Measure(id="seconds", label="Time", unit="seconds a turn", better="lower"),
    Measure(id="tokens", label="Tokens", unit="tokens a message", better="lower"),
    Measure(id="usd", label="Cost", unit="US dollars a message", better="lower"),
)
COSTS = ("seconds", "tokens", "usd")
SHOWN_AT_ZERO = ("rules", "silence", "repetition")  # 0 in all arms is a finding

ValuesByMeasure = Mapping[str, Mapping[str, Values]]  # by measure, then by arm


class ArmReport(BaseModel):
    """What was played of an arm.

    Attributes:
        environments: Played to their end, of `planned`. `turns`: taken; `missing`: that failed. `messages`: said.
        counters: What the stages did, ``stage.counter`` to a number. `treated`: None for a control; False: nothing was done to it.
        usd: Of all its calls, None where one is unpriced.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    planned: int
    environments: int
    turns: int
    missing: int
    messages: int
    counters: dict[str, int] = Field(default_factory=dict)
    treated: bool | None = None
    usd: float | None = None


class Conversation(BaseModel):
    """An environment whose difference between the arms is large: its number, the difference, and the channels of treatment and control."""

    model_config = ConfigDict(frozen=True)

    measure: str
    arm: str
    environment: int
    difference: float
    treatment: list[str]
    control: list[str]


class ExperimentReport(BaseModel):
    """What an experiment came to.

    Attributes:
        void: Why nothing can be said of the treatments; the first line of every form of the report.
        rows: Dimensions, then what is counted without a judge; those of a treatment together.
        cost_per_point: US dollars more per message for one point more, by ``arm.dimension``; only of gains.
        most_for, most_against: The conversations that speak most for and against, by dimension.
        published: The paper's figures of the same experiment by dimension; another model played and judged, so only signs compare.
        unfinished: What is still to be played or judged, in a sentence; empty = all is done.
        passports: The judge's, in what it scored, as known when the report is read.
        lab: What came of the forks, where the experiment is a laboratory; then there are no `rows`, for all is one conversation.
    """

    model_config = ConfigDict(frozen=True)

    id: int
    name: str
    title: str = ""
    judge: str
    actor_model: str = ""
    heuristic: bool
    paired: bool = True
    unfinished: str = ""
    void: list[str] = Field(default_factory=list)
    arms: list[ArmReport] = Field(default_factory=list)
    rows: list[Row] = Field(default_factory=list)
    cost_per_point: dict[str, float] = Field(default_factory=dict)
    most_for: list[Conversation] = Field(default_factory=list)
    most_against: list[Conversation] = Field(default_factory=list)
    published: dict[str, Figure] = Field(default_factory=dict)
    passports: list[Passport] = Field(default_factory=list)
    lab: LabReport | None = Field(None, exclude_if=lambda lab: lab is None)


def report(experiment: Experiment, *, judge: str = "") -> ExperimentReport:
    """Return how the arms compare: the stored report where there is one, else a new one, stored once nothing more is judged.

    `passports` are read again each time, for the judge may have been checked since.

    Args:
        judge: Compares the evaluations of another judge, see `rescore`; such a report is never stored. Empty = the experiment's own.
    """
    if experiment.report and not judge:
        result = ExperimentReport.model_validate(experiment.report)
    else:
        result = _compute_report(experiment, judge or experiment.judge)
        is_final = not result.unfinished or experiment.cancelled_at is not None
        if is_final and not judge:
            stored = result.model_dump(mode="json")
            Experiment.objects.filter(pk=experiment.pk).update(report=stored)
            result = ExperimentReport.model_validate(stored)  # as it is read from now on
    return result.model_copy(update={"passports": _passports(experiment, result.judge)})


def _passports(experiment: Experiment, judge: str) -> list[Passport]:
    """Return the judge's passports in what it judged."""
    dimensions: dict[str, list[str]] = {}  # by procedure
    for run in evaluations(experiment).filter(judge=judge):
        dimensions.setdefault(run.procedure, []).extend(run.dimensions)
    judge_passports: list[Passport] = []
    for procedure, names in sorted(dimensions.items()):
        judge_passports += passports(judge, procedure, names)
    return judge_passports


def _compute_report(experiment: Experiment, judge: str) -> ExperimentReport:
    """Return the report by the evaluations of a judge, without `passports`; `void` only once everything was played."""
    scenario = Scenario.model_validate(experiment.scenario)
    environments = list(experiment.environments.select_related("channel").order_by("repeat", "number", "arm"))
    runs = list(
        evaluations(experiment).filter(judge=judge).select_related("environment_link__environment").order_by("pk")
    )
    to_judge = _to_judge(runs)
    arms = [_arm_report(arm, environments) for arm in scenario.arms]
    unplayed = _unplayed(environments)
    rows: list[Row] = []
    differences: list[Conversation] = []
    lab = None
    if scenario.lab is None:
        judged = _judged_values(runs, environments, scenario)
        counted = _counted_values(environments)
        rows = _rows(scenario, judged, counted, judge=judge, seed=experiment.seed)
        differences = _differences(judged, scenario.arms[0].name, environments)
    else:
        is_judged = experiment.cancelled_at is not None or not (unplayed or to_judge)
        lab = lab_report(experiment, scenario, environments, runs, judge=judge, is_judged=is_judged)
    result = ExperimentReport(
        id=experiment.pk,
        name=experiment.name,
        title=scenario.title,
        judge=judge,
        actor_model=experiment.actor_model,
        heuristic=is_heuristic(judge),
        unfinished=_unfinished(experiment, unplayed=unplayed, played=len(environments), to_judge=to_judge),
        arms=arms,
        rows=rows,
        cost_per_point=_cost_per_point(rows),
        most_for=_largest([conversation for conversation in differences if conversation.difference > 0]),
        most_against=_largest([conversation for conversation in differences if conversation.difference < 0]),
        published=figures().get(scenario.published, {}),
        lab=lab,
    )
    if unplayed:  # what is still to be played may yet leave traces of a treatment
        return result
    return result.model_copy(update={"void": _untreated_arms(scenario.arms, arms)})


def _rows(scenario: Scenario, judged: ValuesByMeasure, counted: ValuesByMeasure, *, judge: str, seed: int) -> list[Row]:
    """Compare each treatment with the control; rows of what is judged come first, then those of what is counted without a judge.

    Each of the two is a family of comparisons, whose p values are corrected together.

    Args:
        judged, counted: Values by measure and arm; a counted measure that is not in `counted` has no row.
    """
    judged_measures = [
        Measure(
            id=str(measured.id),
            label=_label(measured),
            unit="conversations" if measured.id in CHANNEL_DIMENSIONS else "agents",
            heuristic=is_heuristic(judge),
        )
        for measured in scenario.dimensions
    ]
    counted_measures = [measure for measure in COUNTED if measure.id in counted]
    judged_family = _comparisons(scenario, judged_measures, judged)
    counted_family = _comparisons(scenario, counted_measures, counted)
    return compare_family(judged_family, seed=seed) + compare_family(counted_family, seed=seed)


def _comparisons(scenario: Scenario, measures: Sequence[Measure], values: ValuesByMeasure) -> list[Comparison]:
    """Return a comparison with the control, the first arm, for each treatment and measure."""
    control, *treatments = [arm.name for arm in scenario.arms]
    comparisons = []
    for treatment in treatments:
        for measure in measures:
            by_arm = values[measure.id]
            comparisons.append(Comparison(measure, by_arm[treatment], by_arm[control]))
    return comparisons


def _label(measured: Measured) -> str:
    return f"{measured.id.label} (hard)" if measured.hard else str(measured.id.label)


def _unplayed(environments: Sequence[ExperimentEnvironment]) -> int:
    """Return the number of environments that are still to be played; one that crashed is, for it can be resumed."""
    status = ExperimentEnvironment.Status
    ended = set(ExperimentEnvironment.FINAL) - {status.ERRORED}
    return sum(environment.status not in ended for environment in environments)


def _unfinished(experiment: Experiment, *, unplayed: int, played: int, to_judge: str) -> str:
    """Say what is still to be done, and why it is paused; empty when everything is done.

    Args:
        unplayed: Conversations still to be played, of `played` in all.
        to_judge: What is still to be judged, in words; said only once everything was played.
    """
    if experiment.cancelled_at is not None:
        return "it was cancelled"
    unfinished = f"{unplayed} of {played} conversations to play" if unplayed else to_judge
    if unfinished and experiment.paused:
        return f"{unfinished}; paused: {experiment.paused}"
    return unfinished


# -- arms
def _arm_report(arm: Arm, all_environments: Sequence[ExperimentEnvironment]) -> ArmReport:
    """Return the sums over an arm's environments, played or not, and whether it was treated.

    `treated` is True where a counter of one of its treatment's stages shows that the stage acted, None for a control. An environment that
    was not played has no figures and adds nothing.
    """
    environments = [environment for environment in all_environments if environment.arm == arm.name]
    completed = ExperimentEnvironment.Status.COMPLETED
    counters: Counter[str] = Counter()
    for environment in environments:
        counters.update(environment.counters)
    result = ArmReport(
        name=arm.name,
        planned=len(environments),
        environments=sum(environment.status == completed for environment in environments),
        turns=sum(environment.figures.get("turns", 0) for environment in environments),
        missing=sum(len(environment.missing) for environment in environments),
        messages=sum(environment.figures.get("messages", 0) for environment in environments),
        counters=dict(sorted(counters.items())),
        usd=_usd(environments),
    )
    if not arm.treatment:
        return result
    treated = any(count and _is_trace(name, arm) for name, count in counters.items())
    return result.model_copy(update={"treated": treated})


def _usd(environments: Sequence[ExperimentEnvironment]) -> float | None:
    """Return what the calls of environments cost; None where one that was played has an unpriced call."""
    total = 0.0
    for environment in environments:
        if not environment.figures:  # not played
            continue
        usd = environment.figures.get("usd_in_all")
        if usd is None:
            return None
        total += usd
    return total


def _is_trace(counter: str, arm: Arm) -> bool:
    """Return whether a counter shows that a stage of the arm's treatment did something."""
    stage, _, name = counter.partition(".")
    return stage in arm.treatment and name in ACTED.get(stage, (name,))


def _untreated_arms(arms: Sequence[Arm], reports: Sequence[ArmReport]) -> list[str]:
    """Say which arms were not treated, and what was looked for."""
    problems = []
    for arm, played in zip(arms, reports, strict=True):
        if played.treated is not False:  # treated, or a control (None)
            continue
        traces = [f"{stage}.{name}" for stage in arm.treatment for name in ACTED.get(stage, ("*",))]
        problems.append(f"{arm.name} was not treated: none of {', '.join(traces)} was counted in {played.turns} turns")
    return problems


# -- conversations that speak for and against
def _differences(
    judged: ValuesByMeasure, control: str, environments: Sequence[ExperimentEnvironment]
) -> list[Conversation]:
    """Return the difference of the means of each environment and the one of its number in the control, by dimension and treatment.

    Scores of all repeats go into a mean. Environments without a score in one of the two arms are left out.
    """
    channels: dict[tuple[str, int], list[str]] = defaultdict(list)
    for environment in environments:
        channels[environment.arm, environment.number].append(environment.channel.slug)
    differences = []
    for measure, by_arm in judged.items():
        control_values = by_arm[control].values
        for arm, treatment in by_arm.items():
            if arm == control:
                continue
            for number, scores in treatment.values.items():
                control_scores = control_values.get(number)
                if not scores or not control_scores:
                    continue
                differences.append(
                    Conversation(
                        measure=measure,
                        arm=arm,
                        environment=number,
                        difference=sum(scores) / len(scores) - sum(control_scores) / len(control_scores),
                        treatment=channels[arm, number],
                        control=channels[control, number],
                    )
                )
    return differences


def _largest(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Return the few (`MOST_SHOWN`) whose difference is the largest, whatever its sign; the largest first."""

    def by_size(conversation: Conversation) -> tuple[float, str, str, int]:
        return -abs(conversation.difference), conversation.measure, conversation.arm, conversation.environment

    return sorted(conversations, key=by_size)[:MOST_SHOWN]


def _cost_per_point(rows: Sequence[Row]) -> dict[str, float]:
    """Return the US dollars that a message costs more for one point more, by ``arm.dimension``; below 0 where it costs less.

    Only of gains in dimensions, for measures counted without a judge have no points; and only of arms whose cost is known.
    """
    more_usd = {row.treatment.arm: row.delta for row in rows if row.measure == "usd" and row.delta is not None}
    costs = {}
    for row in rows:
        arm = row.treatment.arm
        if row.verdict == "gain" and row.delta and arm in more_usd and row.measure in Dimension.values:
            costs[f"{arm}.{row.measure}"] = more_usd[arm] / row.delta
    return costs


# -- values
def _judged_values(
    runs: Sequence[EvaluationRun], environments: Sequence[ExperimentEnvironment], scenario: Scenario
) -> dict[str, dict[str, Values]]:
    """Return the scores of each dimension and arm, and how many are missing."""
    values = scores_of(runs, scenario)
    by_measure: dict[str, dict[str, Values]] = {}
    for measured in scenario.dimensions:
        dimension = str(measured.id)
        by_arm = {}
        for arm in scenario.arms:
            scores = values[dimension, arm.name]
            missing = _expected_scores(dimension, arm, environments) - _count_values(scores)
            by_arm[arm.name] = Values(arm.name, dict(scores), missing)
        by_measure[dimension] = by_arm
    return by_measure


def _to_judge(runs: Sequence[EvaluationRun]) -> str:
    """Return what is still to be judged, in words; empty when nothing is."""
    if not runs:
        return "nothing was judged yet"
    waiting = sum(run.status in (*EvaluationRun.OPEN, *STOPPED) for run in runs)
    return f"{waiting} of {len(runs)} evaluations to judge" if waiting else ""


def _expected_scores(dimension: str, arm: Arm, environments: Sequence[ExperimentEnvironment]) -> int:
    """Return how many scores an arm should have: one for each conversation, or one for each agent."""
    of_arm = [environment for environment in environments if environment.arm == arm.name]
    if dimension in CHANNEL_DIMENSIONS:
        return len(of_arm)
    return sum(len(environment.agents) for environment in of_arm)


def _count_values(values: Mapping[int, Sequence[float]]) -> int:
    return sum(len(of_environment) for of_environment in values.values())


def scores_of(runs: Sequence[EvaluationRun], scenario: Scenario) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Return the scores of completed evaluations, by dimension and arm, and there by the environment's number.

    A dimension that is counted by the judge has its count for a score. What was not scored is left out, and so are scores that were not
    judged in the mode, hard or not, which the scenario wants for the dimension.
    """
    hard = {str(measured.id): measured.hard for measured in scenario.dimensions}
    scores: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    # What was said before the fork of a laboratory is of no arm.
    after = [run for run in runs if BEFORE_TAG not in run.where]
    completed = [run for run in after if run.status == EvaluationRun.Status.COMPLETED]
    for start in range(0, len(completed), MOST_AT_ONCE):
        for summary in summarize_all(completed[start : start + MOST_AT_ONCE]):
            environment = summary.run.environment_link.environment
            for dimension, measured in summary.dimensions.items():
                value = measured.count if dimension in COUNTED_BY_JUDGE else measured.score
                if value is not None and hard.get(dimension) is summary.run.hard:
                    scores[dimension, environment.arm][environment.number].append(float(value))
    return scores


def _counted_values(environments: Sequence[ExperimentEnvironment]) -> dict[str, dict[str, Values]]:
    """Return what is counted without a judge, one value for each environment.

    A measure that no environment has is left out, and one that is 0 in all, but for those in `SHOWN_AT_ZERO`. An arm misses a value where
    another arm has one for the environment of the same repeat and number.
    """
    arms = dict.fromkeys(environment.arm for environment in environments)
    counted = {}
    for measure in COUNTED:
        measured = [environment for environment in environments if environment.figures.get(measure.id) is not None]
        if not measured:
            continue
        is_zero = not any(environment.figures[measure.id] for environment in measured)
        if is_zero and measure.id not in SHOWN_AT_ZERO:
            continue
        # An environment and its likes in the other arms have the same repeat and number.
        expected = len({(environment.repeat, environment.number) for environment in measured})
        counted[measure.id] = {arm: _arm_values(measure, arm, measured, expected) for arm in arms}
    return counted


def _arm_values(measure: Measure, arm: str, measured: Sequence[ExperimentEnvironment], expected: int) -> Values:
    """Return an arm's figures by the number of the environment (one for each repeat), and how many of those expected are missing."""
    values: dict[int, list[float]] = defaultdict(list)
    for environment in measured:
        if environment.arm == arm:
            values[environment.number].append(environment.figures[measure.id])
    return Values(arm, dict(values), missing=expected - _count_values(values))


# -- figures for people
def rounded(value: float | None, places: int = 2) -> str:
    """Return a figure with so many decimals, halves away from zero as tables in papers have them; a dash for None."""
    return "–" if value is None else decimal(float(_rounded(value, places)), places)


def _rounded(value: float, places: int) -> Decimal:
    step = Decimal(1).scaleb(-places)
    return Decimal(repr(round(value, 10))).quantize(step, rounding=ROUND_HALF_UP)


def shown_difference(control: float | None, treatment: float | None, places: int = 2) -> float | None:
    """Return the difference to show beside two figures that are `rounded`; None where one is missing."""
    if control is None or treatment is None:
        return None
    return difference(float(_rounded(control, places)), float(_rounded(treatment, places)), places)


def p_text(p: float | None) -> str:
    """Return a p to three decimals without the zero before the point; ``<.001`` below."""
    if p is None:
        return "–"
    if p < 0.0005:
        return "<.001"
    if p >= 0.9995:
        return "1.000"
    return f"{p:.3f}"[1:]


HEADINGS = ("Gains", "Harms", "Inconclusive: possible gain", "Inconclusive: possible harm", "Others", "Cost")


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of one treatment under one heading: gains, harms, inconclusive ones, others, cost."""

    arm: str
    heading: str
    rows: list[Row]


def groups(report: ExperimentReport) -> Iterator[RowGroup]:
    """Yield the groups of rows of each treatment, in the order of the report; some are empty.

    A row is in one group: costs whatever their verdict, others by their verdict, and those without a gain or harm by which way they lean.
    """
    for arm in dict.fromkeys(row.treatment.arm for row in report.rows):
        rows_by_heading: dict[str, list[Row]] = {heading: [] for heading in HEADINGS}
        for row in report.rows:
            if row.treatment.arm == arm:
                rows_by_heading[_heading(row)].append(row)
        for heading, rows in rows_by_heading.items():
            yield RowGroup(arm, heading, rows)


def _heading(row: Row) -> str:
    if row.measure in COSTS:
        return "Cost"
    if row.verdict == "gain":
        return "Gains"
    if row.verdict == "harm":
        return "Harms"
    return f"Inconclusive: possible {row.leaning}" if row.leaning else "Others"
