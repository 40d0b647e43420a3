"""What an experiment came to: gains, harms and costs of each treatment beside the control, and whether it was treated at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from pydantic import BaseModel, ConfigDict, Field

from evaluation.calibration.agreement import trust_notes
from evaluation.dimensions import CHANNEL_DIMENSIONS, Dimension
from evaluation.dimensions import COUNTED as COUNTED_BY_JUDGE
from evaluation.experiments.compare import Comparison, Measure, Row, Values, compare_family
from evaluation.experiments.measuring import STOPPED, evaluations
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.published import Figure, figures
from evaluation.experiments.scenario import Arm, Scenario
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
        trust: How far the judge can be trusted in what it scored, in sentences, as known when the report is read.
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
    trust: list[str] = Field(default_factory=list)


def report(experiment: Experiment, *, judge: str = "") -> ExperimentReport:
    """Compare the arms. Stored in the experiment once everything is judged.

    Args:
        judge: By the evaluations of another judge, see `rescore`.
    """
    if experiment.report and not judge:
        made = ExperimentReport.model_validate(experiment.report)
    else:
        made = _made(experiment, judge or experiment.judge)
        if not made.unfinished and not judge:
            Experiment.objects.filter(pk=experiment.pk).update(report=made.model_dump(mode="json"))
    return made.model_copy(update={"trust": _trust(experiment, made.judge)})


def _trust(experiment: Experiment, judge: str) -> list[str]:
    dimensions: dict[str, list[str]] = {}  # by procedure
    for run in evaluations(experiment).filter(judge=judge):
        dimensions.setdefault(run.procedure, []).extend(run.dimensions)
    return [note for how, names in sorted(dimensions.items()) for note in trust_notes(judge, how, names)]


def _made(experiment: Experiment, judge: str) -> ExperimentReport:
    scenario = Scenario.model_validate(experiment.scenario)
    environments = list(experiment.environments.select_related("channel").order_by("repeat", "number", "arm"))
    counted = _counted(environments)
    judged, waiting = _judged(experiment, environments, scenario, judge)
    arms = [_arm(arm, [one for one in environments if one.arm == arm.name]) for arm in scenario.arms]
    heuristic = is_heuristic(judge)
    measures = [
        Measure(id=str(one.id), label=_label(one.id, hard=one.hard), unit=_unit(one.id), heuristic=heuristic)
        for one in scenario.dimensions
    ]
    control, seed = scenario.arms[0].name, experiment.seed
    rows = []
    for values, kind in (
        (judged, measures),
        (counted, [one for one in COUNTED if one.id in counted]),
    ):  # each is a family of its own
        family = [
            Comparison(measure, values[measure.id][arm.name], values[measure.id][control])
            for arm in scenario.arms[1:]
            for measure in kind
        ]
        rows += compare_family(family, seed=seed)
    left = [one for one in environments if one.status not in ExperimentEnvironment.FINAL]
    left += [one for one in environments if one.status == ExperimentEnvironment.Status.ERRORED]
    unfinished = f"{len(left)} of {len(environments)} conversations to play" if left else waiting
    if experiment.cancelled_at is not None:
        unfinished = "it was cancelled"
    elif unfinished and experiment.paused:
        unfinished += f"; paused: {experiment.paused}"
    differences = list(_differences(judged, control, environments))
    return ExperimentReport(
        id=experiment.pk,
        name=experiment.name,
        title=scenario.title,
        judge=judge,
        actor_model=experiment.actor_model,
        heuristic=heuristic,
        unfinished=unfinished,
        void=[] if left else list(_void(scenario.arms, arms)),
        arms=arms,
        rows=rows,
        cost_per_point=_cost_per_point(rows),
        most_for=sorted((one for one in differences if one.difference > 0), key=_by_size)[:MOST_SHOWN],
        published=figures().get(scenario.published, {}),
        most_against=sorted((one for one in differences if one.difference < 0), key=_by_size)[:MOST_SHOWN],
    )


def _by_size(one: Conversation) -> tuple[float, str, str, int]:
    return -abs(one.difference), one.measure, one.arm, one.environment


def _label(dimension: Dimension, *, hard: bool) -> str:
    return f"{dimension.label}{' (hard)' if hard else ''}"


def _unit(dimension: str) -> str:
    return "conversations" if dimension in CHANNEL_DIMENSIONS else "agents"


def _arm(arm: Arm, environments: Sequence[ExperimentEnvironment]) -> ArmReport:
    counters: dict[str, int] = defaultdict(int)
    for one in environments:
        for name, n in one.counters.items():
            counters[name] += n
    acted = any(n and _is_trace(name, arm) for name, n in counters.items())
    spent = [one.figures.get("usd_in_all") for one in environments if one.figures]
    return ArmReport(
        name=arm.name,
        planned=len(environments),
        environments=sum(one.status == ExperimentEnvironment.Status.COMPLETED for one in environments),
        turns=sum(one.figures.get("turns", 0) for one in environments),
        missing=sum(len(one.missing) for one in environments),
        messages=sum(one.figures.get("messages", 0) for one in environments),
        counters=dict(sorted(counters.items())),
        treated=acted if arm.treatment else None,
        usd=None if None in spent else sum(usd for usd in spent if usd is not None),
    )


def _is_trace(counter: str, arm: Arm) -> bool:
    stage, _, name = counter.partition(".")
    return stage in arm.treatment and name in ACTED.get(stage, (name,))


def _void(arms: Sequence[Arm], reports: Sequence[ArmReport]) -> Iterator[str]:
    for arm, played in zip(arms, reports, strict=True):
        if played.treated is False:
            wanted = ", ".join(f"{stage}.{name}" for stage in arm.treatment for name in ACTED.get(stage, ("*",)))
            yield f"{arm.name} was not treated: none of {wanted} was counted in {played.turns} turns"


def _differences(
    judged: Mapping[str, Mapping[str, Values]], control: str, environments: Sequence[ExperimentEnvironment]
) -> Iterator[Conversation]:
    """The difference of each environment's means, by dimension and treatment."""
    channels: dict[tuple[str, int], list[str]] = defaultdict(list)
    for one in environments:
        channels[one.arm, one.number].append(one.channel.slug)
    for measure, by_arm in judged.items():
        for arm, values in by_arm.items():
            for number, scores in values.values.items():
                others = by_arm[control].values.get(number)
                if arm != control and scores and others:
                    yield Conversation(
                        measure=measure,
                        arm=arm,
                        environment=number,
                        difference=sum(scores) / len(scores) - sum(others) / len(others),
                        treatment=channels[arm, number],
                        control=channels[control, number],
                    )


def _cost_per_point(rows: Sequence[Row]) -> dict[str, float]:
    more = {row.treatment.arm: row.delta for row in rows if row.measure == "usd" and row.delta is not None}
    return {
        f"{row.treatment.arm}.{row.measure}": more[row.treatment.arm] / row.delta
        for row in rows
        if row.verdict == "gain" and row.delta and row.treatment.arm in more and row.measure in Dimension.values
    }


# -- values
def _judged(
    experiment: Experiment, environments: Sequence[ExperimentEnvironment], scenario: Scenario, judge: str
) -> tuple[dict[str, dict[str, Values]], str]:
    """Scores by dimension, arm and environment, and what is still to be judged."""
    hard = {str(one.id): one.hard for one in scenario.dimensions}
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for one in environments:
        for dimension in hard:
            expected[dimension, one.arm] += 1 if dimension in CHANNEL_DIMENSIONS else len(one.agents)
    scores: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    runs = list(
        evaluations(experiment).filter(judge=judge).select_related("environment_link__environment").order_by("pk")
    )
    still = sum(run.status in (*EvaluationRun.OPEN, *STOPPED) for run in runs)
    judged = [run for run in runs if run.status == EvaluationRun.Status.COMPLETED]
    for first in range(0, len(judged), MOST_AT_ONCE):
        for summary in summarize_all(judged[first : first + MOST_AT_ONCE]):
            place = summary.run.environment_link.environment
            for dimension, measured in summary.dimensions.items():
                value = measured.count if dimension in COUNTED_BY_JUDGE else measured.score
                if value is not None and hard.get(dimension) is summary.run.hard:
                    scores[dimension, place.arm][place.number].append(float(value))
    values = {
        dimension: {
            arm.name: Values(
                arm.name,
                dict(scores[dimension, arm.name]),
                expected[dimension, arm.name] - sum(map(len, scores[dimension, arm.name].values())),
            )
            for arm in scenario.arms
        }
        for dimension in hard
    }
    if not runs:
        return values, "nothing was judged yet"
    return values, f"{still} of {len(runs)} evaluations to judge" if still else ""


def _counted(environments: Sequence[ExperimentEnvironment]) -> dict[str, dict[str, Values]]:
    """What is counted without a judge, one value for each environment; what no environment has, or is 0 in all, is left out.

    A value is missing in an arm where another arm has one of the same environment.
    """
    counted = {}
    for measure in COUNTED:
        values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        places = {(one.repeat, one.number) for one in environments if measure.id in one.figures}
        for one in environments:
            if (value := one.figures.get(measure.id)) is not None:
                values[one.arm][one.number].append(value)
        every = [value for by in values.values() for some in by.values() for value in some]
        if every and (any(every) or measure.id in ("rules", "silence", "repetition")):
            arms = dict.fromkeys(one.arm for one in environments)
            counted[measure.id] = {
                arm: Values(arm, dict(values[arm]), len(places) - sum(map(len, values[arm].values()))) for arm in arms
            }
    return counted


# -- figures for people
def rounded(value: float | None, places: int = 2) -> str:
    """A figure with so many decimals, halves away from zero as tables in papers have them; a dash for None."""
    if value is None:
        return "–"
    step = Decimal(1).scaleb(-places)
    return str(Decimal(repr(round(value, 10))).quantize(step, rounding=ROUND_HALF_UP))


def p_text(p: float | None) -> str:
    """A p to three decimals; ``<.001`` below."""
    return "–" if p is None else "<.001" if p < 0.0005 else f"{p:.3f}"[1:] if p < 0.9995 else "1.000"


def groups(shown: ExperimentReport) -> Iterator[tuple[str, str, list[Row]]]:
    """Treatment, heading (gains, harms, no difference …, cost) and rows, in the order of the report."""
    for arm in dict.fromkeys(row.treatment.arm for row in shown.rows):
        rows = [row for row in shown.rows if row.treatment.arm == arm]
        of_cost = [row for row in rows if row.measure in COSTS]
        others = [row for row in rows if row.measure not in COSTS]
        sure = [row for row in others if row.verdict in ("gain", "harm")]
        unsure = [row for row in others if row not in sure]
        for title, wanted in (("Gains", "gain"), ("Harms", "harm")):
            yield arm, title, [row for row in sure if row.verdict == wanted]
        for title, wanted in (
            ("Not sure, a gain if anything", "gain"),
            ("Not sure, a harm if anything", "harm"),
            ("Others", ""),
        ):
            yield arm, title, [row for row in unsure if row.leaning == wanted]
        yield arm, "Cost", of_cost
