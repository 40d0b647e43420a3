"""Simulated users that left their role: in how many runs, at which turn first, by which proposition, in passed and in failed runs.

A run is a conversation of an imported run file (`agents.transcripts.readers.simulations`), tagged ``passed`` yes or no. Its user is judged
message by message by the propositions of the simulated user (propositions/adherence/simulated_user.yaml, and a team's own).
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from pydantic import BaseModel, Field

from agents.kit.text.tables import spreadsheet_safe
from agents.kit.text.wording import counted
from agents.models import Agent, Channel, Message
from agents.transcripts.readers.simulations import PASSED_TAG, TASK_TAG
from evaluation.judge.offline import check_draft
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.propositions.files import DEFAULT, load_all
from evaluation.statistics.difference import share_interval

SLUG = "simulated-user"  # of the agent whose propositions they are
BROKEN_BELOW = 4.5  # the middle of the scale, 0 to 9
LONGEST_QUOTE = 200  # characters
INSTRUCTOR = "Instructions to the simulated user"
PERSONA = (
    "You are a person who writes to a service because you want something done. You know what a customer knows, and what you were told in "
    "this conversation. You write as people write in a chat. You stay until it is done, or until it is clear that it cannot be done."
)


class BrokenRuns(BaseModel):
    """The share of runs in which the simulated user left its role."""

    broken: int
    runs: int
    share: float | None = Field(description="0 to 1; null = there is no run")
    interval: tuple[float, float] | None = Field(
        description="95 %, Wilson's; runs count as independent, and it is too narrow where a task was repeated"
    )

    @classmethod
    def of(cls, broken: int, runs: int) -> BrokenRuns:
        if not runs:
            return cls(broken=0, runs=0, share=None, interval=None)
        interval = share_interval(broken, runs)
        return cls(
            broken=broken,
            runs=runs,
            share=round(broken / runs, 4),
            interval=(round(interval.low, 4), round(interval.high, 4)),
        )


class BrokenProposition(BaseModel):
    """A proposition that simulated users broke."""

    proposition: str
    claim: str
    runs: BrokenRuns
    first_turn: float | None = Field(
        description="median of the turns in which it was broken first, from 1; null = never"
    )
    messages_scored: int = Field(description="the judge scored it in; offline it scores only messages with its cues")


class RunToThrowAway(BaseModel):
    """A run whose simulated user left its role, with the message that shows it first."""

    run: str
    task: str
    passed: bool | None
    turn: int = Field(description="of the simulated user, from 1")
    propositions: list[str] = Field(description="broken by that message")
    text: str = Field(description=f"of that message, its first {LONGEST_QUOTE} characters")


class SimulatedUserReport(BaseModel):
    """What was found in runs with simulated users."""

    judge: str
    heuristic: bool = Field(
        description="judged by rules and cues: shares are of runs whose words show it, and what needs a model is not counted"
    )
    messages: int = Field(description="of simulated users")
    messages_scored: int = Field(description="of which the judge scored at least one proposition")
    unjudged_runs: int = Field(
        description="of whose messages the model that judges scored none; they are in no share. 0 offline"
    )
    all_runs: BrokenRuns
    passed_runs: BrokenRuns
    failed_runs: BrokenRuns
    first_turn: float | None = Field(description="median turn in which it left its role first; null = never")
    propositions: list[BrokenProposition]
    throw_away: list[RunToThrowAway]

    @property
    def sentence(self) -> str:
        """Return what was found in a sentence."""
        runs = self.all_runs
        if runs.share is None or runs.interval is None:
            return "No run with a simulated user was judged."
        low, high = runs.interval
        share = (
            f"{runs.broken:,} of {counted(runs.runs, 'run')}: {percent(runs.share)} "
            f"(95 % interval {percent(low)} to {percent(high)})."
        )
        if self.heuristic:
            return f"Words show that the simulated user left its role in {share} What only a model can judge is not counted."
        text = f"The simulated user left its role in {share}"
        if self.unjudged_runs:
            text += f" {counted(self.unjudged_runs, 'run')} could not be judged."
        return text

    @property
    def csv(self) -> str:
        """Return the runs to throw away as CSV; a text that begins like a formula is quoted, so that no spreadsheet computes it."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["run", "task", "passed", "turn", "propositions", "text"])
        outcomes = {True: "yes", False: "no", None: ""}
        for row in self.throw_away:
            cells = [row.run, row.task, outcomes[row.passed], row.turn, " ".join(row.propositions), row.text]
            writer.writerow([spreadsheet_safe(cell) for cell in cells])
        return out.getvalue()


def percent(share: float) -> str:
    """Return a share as ``12 %``; with a decimal below ten."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


@dataclass(slots=True)
class _Run:
    """A run while it is counted: its conversation, and by turn the propositions that were broken."""

    channel: Channel
    turns: int = 0
    is_scored: bool = False
    broken: dict[int, list[str]] = field(default_factory=dict)
    text_of_turn: dict[int, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool | None:
        return {"yes": True, "no": False}.get(str(self.channel.tags.get(PASSED_TAG)))

    @property
    def first_turn(self) -> int | None:
        return min(self.broken, default=None)


Scores = dict[int, dict[str, float]]
"""By the key of a message and the id of a proposition, 0 to 9: the lowest of repeated judgements."""


def stored_scores(run: EvaluationRun) -> Scores:
    """Return what an evaluation scored of adherence."""
    lowest: Scores = defaultdict(dict)
    scores = EvaluationScore.objects.filter(
        evaluation_run=run, dimension=Dimension.ADHERENCE.value, status=EvaluationScore.Status.SCORED
    )
    for message_id, proposition, score in scores.order_by().values_list("message", "proposition_id", "score"):
        if score is not None:
            lowest[message_id][proposition] = min(score, lowest[message_id].get(proposition, score))
    return lowest


def offline_scores(agent: Agent) -> Scores:
    """Return what rules and cues say of each message of an agent: as the offline judge scores them, in a hundredth of the time."""
    files = load_all()
    scores: Scores = {}
    for pk, text in Message.objects.filter(agent=agent).values_list("pk", "text").iterator():
        checked = check_draft(agent_slug=agent.slug, text=text, channel_kind="", is_reply=False, cues=True, files=files)
        scored = {proposition.id: verdict.value for proposition, verdict in checked if verdict.status == "scored"}
        scores[pk] = {name: float(value) for name, value in scored.items() if value is not None}
    return scores


def report_simulated_users(agent: Agent, scores: Scores, *, judge: str) -> SimulatedUserReport:
    """Return the report of an agent that is a simulated user: which of its messages broke a proposition of its own.

    Args:
        scores: Of its messages; one that has none counts as not scored. What is asked of all agents is left out.
        judge: Who scored them.
    """
    claims = own_claims(agent)
    runs: dict[int, _Run] = {}
    scored: Counter[str] = Counter()
    messages_scored = 0
    messages = Message.objects.filter(agent=agent).exclude(text="").select_related("channel")
    for message in messages.order_by("channel", "position").iterator():
        of_message = {name: score for name, score in scores.get(message.pk, {}).items() if name in claims}
        scored.update(of_message.keys())
        run = runs.setdefault(message.channel_id, _Run(message.channel))
        run.turns += 1
        if of_message:
            messages_scored += 1
            run.is_scored = True
        broken = [name for name, score in of_message.items() if score < BROKEN_BELOW]
        if broken:
            run.broken[run.turns] = sorted(broken)
            run.text_of_turn[run.turns] = message.text[:LONGEST_QUOTE]
    return _report(list(runs.values()), claims, scored, judge=judge, messages_scored=messages_scored)


def own_claims(agent: Agent) -> dict[str, str]:
    """Return the claims of the agent's own propositions about its messages, by id; what is asked of all agents is not among them."""
    claims = {}
    for file in load_all():
        is_own = (
            file.agent_id == agent.slug and file.dimension == Dimension.ADHERENCE.value and file.level == "evaluation"
        )
        if is_own and file.agent_id != DEFAULT:
            claims.update({proposition.id: proposition.claim for proposition in file.propositions})
    return claims


def _report(
    runs: Sequence[_Run], claims: dict[str, str], scored: Counter[str], *, judge: str, messages_scored: int
) -> SimulatedUserReport:
    """Return the report of counted runs; `scored` counts the messages that were scored by each proposition.

    Where words judge, a message without them is not scored, and its run counts; where a model judges, a run without any score does not.
    """
    heuristic = is_heuristic(judge)
    messages = sum(run.turns for run in runs)
    unjudged = 0
    if not heuristic:
        scored_runs = [run for run in runs if run.is_scored]
        unjudged = len(runs) - len(scored_runs)
        runs = scored_runs
    first_turns = [run.first_turn for run in runs if run.first_turn is not None]
    return SimulatedUserReport(
        judge=judge,
        heuristic=heuristic,
        messages=messages,
        unjudged_runs=unjudged,
        messages_scored=messages_scored,
        all_runs=_broken(runs),
        passed_runs=_broken(run for run in runs if run.passed is True),
        failed_runs=_broken(run for run in runs if run.passed is False),
        first_turn=median(first_turns) if first_turns else None,
        propositions=[_of_proposition(name, claim, runs, scored[name]) for name, claim in claims.items()],
        throw_away=[_to_throw_away(run, run.first_turn) for run in runs if run.first_turn is not None],
    )


def _broken(runs: Iterable[_Run]) -> BrokenRuns:
    counted_runs = list(runs)
    return BrokenRuns.of(sum(1 for run in counted_runs if run.broken), len(counted_runs))


def _of_proposition(name: str, claim: str, runs: Sequence[_Run], scored: int) -> BrokenProposition:
    """Return in how many runs a proposition was broken, and when first."""
    first_turns = []
    for run in runs:
        turns = [turn for turn, names in run.broken.items() if name in names]
        if turns:
            first_turns.append(min(turns))
    return BrokenProposition(
        proposition=name,
        claim=claim.replace("{{agent_name}}", "The simulated user"),
        runs=BrokenRuns.of(len(first_turns), len(runs)),
        first_turn=median(first_turns) if first_turns else None,
        messages_scored=scored,
    )


def _to_throw_away(run: _Run, turn: int) -> RunToThrowAway:
    return RunToThrowAway(
        run=run.channel.slug,
        task=str(run.channel.tags.get(TASK_TAG, "")),
        passed=run.passed,
        turn=turn,
        propositions=run.broken[turn],
        text=run.text_of_turn[turn],
    )


def show_instructions(agent: Agent) -> None:
    """Put what each run's user was instructed (the topic of its channel) before its first message, for the judge to read.

    Only in a private database: elsewhere the other side would be judged as if it had read it.
    """
    for channel in Channel.objects.filter(messages__agent=agent).exclude(topic="").distinct():
        Message.objects.create(channel=channel, position=0, outsider=INSTRUCTOR, text=channel.topic)
