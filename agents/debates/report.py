"""The results of a debate in four layers: decision, agent responses, evidence, metadata.

`DebateReport` is the one value that the command, the API, the console and the exports show. It is read from the tables: a
round's figures are those stored with it, and no model is asked.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from agents.debates.answers import Stance
from agents.debates.measures import STANCES, Changes, Consensus, Exit, Groupthink, Statistics, Vote
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.debates.modes import MODES, POLL
from agents.kit.commands import Cell, markdown_table
from agents.kit.llm.ledger import Totals, totals, totals_by
from agents.kit.llm.providers import is_heuristic
from agents.kit.models import LLMCall
from agents.kit.text.markdown import as_text
from agents.kit.text.wording import counted, time_text
from agents.models import Channel, Message

LONGEST_TEXT = 20_000  # characters of one text in the Markdown export; the JSON export holds all


class Spent(BaseModel):
    """Sums over model calls, those of stages such as the gate included. `cost_usd` leaves out the unpriced ones."""

    calls: int = 0
    tokens: int = Field(0, description="in, out, and read from or written to a prompt cache")
    cost_usd: Decimal = Decimal(0)
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in Spent.model_fields})


class Talking(BaseModel):
    """The effect of talking: the vote of the blind poll, that of the last round, and the cost of the rounds after the poll.

    `stances_changed`, `to_majority`, `from_majority` and `conformity` are over all rounds; `seats_changed` compares only the two votes.
    """

    poll: Vote | None = Field(description="null = no poll was held")
    last: Vote | None = Field(description="null = no round was played yet")
    same_winner: bool | None = Field(
        description="a seat that holds the stance of its role counts as in the poll; null where there is nothing to compare"
    )
    seats_changed: int | None = Field(
        description="seats whose stance in the last round is not that of the poll, nor required by their role"
    )
    seats_by_role: int = Field(
        description="seats that hold the stance of their role in the last round; they count in `last`"
    )
    stances_changed: int
    to_majority: int
    from_majority: int
    conformity: float | None = Field(
        description="share of the changes towards the majority that came without a new argument"
    )
    spent_on_poll: Spent
    spent_since: Spent = Field(description="on the rounds after the poll, their judge included")


class Decision(BaseModel):
    topic: str
    vote: Vote | None = Field(description="of the last round")
    consensus: Consensus | None = Field(description="of the last round; its `agreement` is 0 to 1, null = not known")
    groupthink: bool = Field(description="whether the last round shows groupthink; `evidence.groupthink` says why")
    what_talking_changed: Talking


class Response(BaseModel):
    """The outcome of a seat in a round; without an answer, `error` says why."""

    round: int = Field(description="0 = the blind poll")
    seat: int
    agent: str
    name: str
    role: str
    perspective: str
    label: str = Field(description="what the others call it where names are hidden")
    status: str
    stance: Stance | None
    confidence: float | None
    confidence_raw: float | None = Field(description="what it gave, where that was outside of 0 to 1")
    position: str
    reasoning: str
    citations: list[str]
    text: str = Field(description="what it said")
    violation: str = Field(description="the rule that the answer breaks; empty = none")
    error: str
    message: int | None
    run: int | None


class Remark(BaseModel):
    """A message of a person between the rounds."""

    before_round: int
    author: str
    text: str
    message: int


class Mark(BaseModel):
    """Something about a seat's answer that a reader must know."""

    round: int
    seat: int
    agent: str
    text: str


class RoundEvidence(BaseModel):
    round: int = Field(description="0 = the blind poll")
    statistics: Statistics
    vote: Vote
    changes: Changes | None = Field(description="since the round before; null in the first")
    consensus: Consensus
    groupthink: Groupthink
    exit: Exit
    spent: Spent = Field(description="on the turns of the seats, not on the judge")


class Evidence(BaseModel):
    rounds: list[RoundEvidence]
    groupthink: Groupthink | None = Field(description="of the last round")
    violations: list[Mark]
    failures: list[Mark] = Field(description="seats that gave no answer, and why")
    remarks: list[Remark]


class Seat(BaseModel):
    number: int
    agent: str
    name: str
    role: str
    perspective: str
    label: str
    model: str = Field(description="acts instead of the agent's own; empty = the agent's own")


class Metadata(BaseModel):
    id: int
    channel: str
    mode: str
    status: str
    error: str
    rounds_played: int = Field(description="the poll not counted")
    rounds_asked: int
    exit_reason: str | None
    exit_details: str
    actors: list[str] = Field(
        description="models that acted, by their calls; one that begins with offline: is a script"
    )
    real: bool = Field(description="its messages are ordinary speech of the agents")
    seats: list[Seat]
    settings: dict[str, Any]
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    spent: Spent
    spent_on_judge: Spent = Field(description="of it, on asking how far the answers agree")


class DebateReport(BaseModel):
    """A debate in four layers."""

    decision: Decision
    agent_responses: list[Response] = Field(description="in the order of rounds and seats")
    evidence: Evidence
    metadata: Metadata


def report(debate: Debate) -> DebateReport:
    """Read the results of a debate so far. It takes the same few queries whatever the number of rounds.

    Before the first round after the poll the decision has neither vote nor consensus (None).
    """
    debate = Debate.objects.select_related("channel", "created_by").get(pk=debate.pk)
    seats = {seat.pk: _seat(seat) for seat in debate.seats.select_related("agent").order_by("number")}
    # Read before the turns: a round that ends meanwhile must not appear without its answers.
    rounds = list(debate.rounds.order_by("number"))
    turns = list(debate.turns.select_related("message").order_by("round", "seat__number"))
    responses = [_response(turn, seats[turn.seat_id]) for turn in turns]
    spent_by_round = _spent_by_round(debate, turns)
    evidence = [_round_evidence(row, spent_by_round[row.number]) for row in rounds]
    # Calls of the judge belong to no turn (`run`), but to the debate.
    spent_on_judge = _spent(totals(LLMCall.objects.filter(run=None), work_id=f"debate:{debate.pk}"))
    played = [row for row in evidence if row.round > POLL]
    decision = Decision(
        topic=debate.topic,
        vote=None,
        consensus=None,
        groupthink=False,
        what_talking_changed=_talking(debate.mode, responses, evidence, spent_on_judge),
    )
    if played:
        decision.vote = played[-1].vote
        decision.consensus = played[-1].consensus
        decision.groupthink = played[-1].groupthink.detected
    return DebateReport(
        decision=decision,
        agent_responses=responses,
        evidence=Evidence(
            rounds=evidence,
            groupthink=played[-1].groupthink if played else None,
            violations=_violations(responses),
            failures=_failures(responses),
            remarks=_remarks(debate, turns),
        ),
        metadata=Metadata(
            id=debate.pk,
            channel=debate.channel.slug,
            mode=debate.mode,
            status=debate.status,
            error=debate.error,
            rounds_played=len(played),
            rounds_asked=debate.rounds_asked,
            exit_reason=debate.exit_reason or None,
            exit_details=debate.exit_details,
            actors=_actors(debate),
            real=not debate.channel.synthetic,
            seats=list(seats.values()),
            settings=debate.settings,
            created_by=debate.created_by.get_username() if debate.created_by else None,
            created_at=debate.created_at,
            started_at=debate.started_at,
            finished_at=debate.finished_at,
            spent=sum(spent_by_round.values(), spent_on_judge),
            spent_on_judge=spent_on_judge,
        ),
    )


def _actors(debate: Debate) -> list[str]:
    """Return the models that acted for the seats, by their calls."""
    calls = LLMCall.objects.filter(run__in=debate.turns.values("run"), purpose="turn").order_by()
    return sorted(calls.values_list("model", flat=True).distinct())


def _seat(seat: DebateSeat) -> Seat:
    return Seat(
        number=seat.number,
        agent=seat.agent.slug,
        name=seat.agent.display_name,
        role=seat.role,
        perspective=seat.perspective,
        label=seat.label,
        model=seat.model,
    )


def _response(turn: DebateTurn, seat: Seat) -> Response:
    """Return a seat's turn with the fields of its answer; these are empty where it gave none, or its message was deleted."""
    message = turn.message
    payload: Mapping[str, Any] = message.payload if message else {}
    return Response(
        **seat.model_dump(exclude={"number", "model"}),
        round=turn.round,
        seat=seat.number,
        status=turn.status,
        stance=payload.get("stance"),
        confidence=payload.get("confidence"),
        confidence_raw=payload.get("confidence_raw"),
        position=payload.get("position", ""),
        reasoning=payload.get("reasoning", ""),
        citations=payload.get("citations", []),
        text=message.text if message else "",
        violation=turn.violation,
        error=turn.error,
        message=turn.message_id,
        run=turn.run_id,
    )


def _violations(responses: Sequence[Response]) -> list[Mark]:
    """Return the answers that break a rule, with the rule."""
    broken = [response for response in responses if response.violation]
    return [_mark(response, response.violation) for response in broken]


def _failures(responses: Sequence[Response]) -> list[Mark]:
    """Return the seats that gave no answer in a round, with the reason."""
    failed = (DebateTurn.Status.FAILED, DebateTurn.Status.SILENT)
    missing = [response for response in responses if response.status in failed]
    return [_mark(response, response.error or response.status) for response in missing]


def _mark(response: Response, text: str) -> Mark:
    return Mark(round=response.round, seat=response.seat, agent=response.agent, text=text)


def _round_evidence(row: DebateRound, spent: Spent) -> RoundEvidence:
    """Return the figures stored with a round, and what its turns cost."""
    stored = row.statistics
    evidence = RoundEvidence(
        round=row.number,
        statistics=Statistics.model_validate({name: stored[name] for name in Statistics.model_fields}),
        vote=Vote.model_validate(stored["vote"]),
        changes=None,
        consensus=Consensus.model_validate(row.consensus),
        groupthink=Groupthink.model_validate(row.groupthink),
        exit=Exit.model_validate(row.exit),
        spent=spent,
    )
    if stored["changes"]:
        evidence.changes = Changes.model_validate(stored["changes"])
    return evidence


def _talking(
    mode: str, responses: Sequence[Response], evidence: Sequence[RoundEvidence], spent_on_judge: Spent
) -> Talking:
    """Compare the last round with the blind poll, and sum up the changes and the costs of all rounds after it.

    `same_winner` and `seats_changed` stay None where no poll was held, no round was played, or one of the two has no stances.

    Args:
        spent_on_judge: Counts to the rounds after the poll, for a poll is not judged.
    """
    talking = Talking(
        poll=None,
        last=None,
        same_winner=None,
        seats_changed=None,
        seats_by_role=0,
        stances_changed=0,
        to_majority=0,
        from_majority=0,
        conformity=None,
        spent_on_poll=Spent(),
        spent_since=spent_on_judge,
    )
    last_round = None
    conforming = 0
    for row in evidence:
        if row.round == POLL:
            talking.poll = row.vote
            talking.spent_on_poll = row.spent
        else:
            last_round = row.round
            talking.last = row.vote
            talking.spent_since += row.spent
        if row.changes is not None:
            talking.stances_changed += row.changes.stances_changed
            talking.to_majority += row.changes.to_majority
            talking.from_majority += row.changes.from_majority
            conforming += sum(change.conform for change in row.changes.moves)
    if talking.to_majority:
        talking.conformity = conforming / talking.to_majority
    if last_round is not None:
        seats = _compare_seats(mode, responses, last_round)
        talking.seats_by_role = seats.by_role
        if seats.poll and seats.last:
            talking.seats_changed = seats.changed
            talking.same_winner = _leaders(seats.poll) == _leaders(seats.last)
    return talking


@dataclass(slots=True)
class _SeatComparison:
    """The poll and the last round compared, seat by seat.

    Attributes:
        by_role: Seats that hold the stance of their role in the last round.
        poll, last: Stances of the seats in the two rounds; of those by role, that of the poll in both.
        changed: Seats that have a stance of their own in both, and not the same one.
    """

    by_role: int = 0
    poll: Counter[Stance] = field(default_factory=Counter)
    last: Counter[Stance] = field(default_factory=Counter)
    changed: int = 0


def _compare_seats(mode: str, responses: Sequence[Response], last_round: int) -> _SeatComparison:
    """Compare the stances of the last round with those of the poll. A stance that a role requires is no change of mind."""
    required = MODES[mode].required_stances if mode in MODES else {}  # a mode may not be installed any more
    in_poll = {response.seat: response.stance for response in responses if response.round == POLL and response.stance}
    seats = _SeatComparison(poll=Counter(in_poll.values()))
    for response in responses:
        if response.round != last_round or response.stance is None:
            continue
        poll_stance = in_poll.get(response.seat)
        stance: Stance | None = response.stance
        if required.get(response.role) == stance:
            seats.by_role += 1
            stance = poll_stance
        elif poll_stance and poll_stance != stance:
            seats.changed += 1
        if stance:
            seats.last[stance] += 1
    return seats


def _has_stances(vote: Vote) -> bool:
    return any(vote.counts.values())


def _leaders(counts: Mapping[Stance, int]) -> set[Stance]:
    """Return the stance that most seats hold; of a tie those that share it."""
    most = max(counts.values())
    return {stance for stance, count in counts.items() if count == most}


def _spent_by_round(debate: Debate, turns: Iterable[DebateTurn]) -> Mapping[int, Spent]:
    """Sum up what the calls of each round's turns used; a round without calls has zeros."""
    round_of_run = {turn.run_id: turn.round for turn in turns}
    calls = LLMCall.objects.filter(run__in=debate.turns.values("run"))
    spent: dict[int, Spent] = defaultdict(Spent)
    for run, sums in totals_by(calls, "run").items():
        if run in round_of_run:  # else its turn began after the turns were read
            spent[round_of_run[run]] += _spent(sums)
    return spent


def _spent(sums: Totals) -> Spent:
    tokens = sums.input_tokens + sums.output_tokens + sums.cache_read_tokens + sums.cache_write_tokens
    return Spent(calls=sums.calls, tokens=tokens, cost_usd=sums.cost_usd, unpriced=sums.unpriced)


def _remarks(debate: Debate, turns: Iterable[DebateTurn]) -> list[Remark]:
    """Return what people said, in order, each before the first round in which an answer came after it.

    What no answer came after is said before the next round.
    """
    first_positions: dict[int, int] = {}  # of the answers of each round, in the order of rounds, as turns are
    for turn in turns:
        if turn.message is not None:
            earliest = first_positions.get(turn.round, turn.message.position)
            first_positions[turn.round] = min(earliest, turn.message.position)
    next_round = max(first_positions, default=0) + 1
    messages = Message.objects.filter(channel=debate.channel_id, agent=None)
    remarks = []
    for message in messages.select_related("user").order_by("position"):
        later_rounds = [number for number, position in first_positions.items() if position > message.position]
        remarks.append(
            Remark(
                before_round=later_rounds[0] if later_rounds else next_round,
                author=message.author_name,
                text=message.text,
                message=message.pk,
            )
        )
    return remarks


def groupthink_indicators(channel: Channel) -> list[str] | None:
    """Return the indicators of groupthink in the last complete round of the channel's debate.

    None where the channel has no debate, and before its first round is complete; a blind poll is no round.
    """
    rounds = DebateRound.objects.filter(debate__channel=channel, number__gte=1).order_by("-number")
    stored = rounds.values_list("groupthink", flat=True).first()
    return Groupthink.model_validate(stored).indicators if stored else None


def as_json(report: DebateReport) -> str:
    """Return the report as JSON. Characters that a terminal or an editor hides or obeys are escaped: the value is the same."""
    text = json.dumps(report.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"
    characters = [char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text]
    return "".join(characters)


def as_markdown(report: DebateReport) -> str:
    """Return the report for people as Markdown: summary, decision, answers, evidence, metadata.

    All that agents, people and judges wrote is text in it: no markup, no links, no mentions.
    """
    paragraphs = [
        f"# {_text(report.decision.topic)}",
        *_summary_paragraphs(report),
        "## Decision",
        *_decision_paragraphs(report.decision),
        "## Answers",
        *_answer_paragraphs(report),
        "## Evidence",
        "\n".join(markdown_table(EVIDENCE_HEADS, [evidence_cells(row) for row in report.evidence.rounds])),
        "## Metadata",
        _bullets([_text(line) for line in _metadata_lines(report.metadata)]),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


EVIDENCE_HEADS = ("Round", ">Yes", ">No", ">Neutral", ">Median confidence", ">Agreement", ">Changes", ">To majority", ">Conformity",
                  "Groupthink", ">Tokens")  # fmt: skip


def evidence_cells(row: RoundEvidence) -> list[Cell]:
    """Return a round as a row of a table, under `EVIDENCE_HEADS`; None is an empty cell.

    Stances have no cells where no seat has one, changes none in the first round.
    """
    voted = _has_stances(row.vote)
    confidence = row.statistics.confidence
    cells: list[Cell] = ["poll" if row.round == POLL else str(row.round)]
    for stance in STANCES:
        cells.append(row.vote.counts[stance] if voted else None)
    cells.append(_figure(confidence.median) if confidence else None)
    cells.append(_figure(row.consensus.agreement))
    if row.changes is None:
        cells += [None, None, None]
    elif not voted:
        cells += [None, None, _figure(row.changes.conformity)]
    else:
        cells += [row.changes.stances_changed, row.changes.to_majority, _figure(row.changes.conformity)]
    cells.append(("warning", "warning") if row.groupthink.detected else "no")
    cells.append(row.spent.tokens)
    return cells


def round_name(number: int) -> str:
    return "poll" if number == POLL else f"round {number}"


def vote_line(vote: Vote | None) -> str:
    """Return a vote in words, such as ``no (yes 1, no 3, neutral 0)``."""
    if vote is None or not _has_stances(vote):
        return "no stances"
    counts = ", ".join(f"{stance} {count}" for stance, count in vote.counts.items())
    return f"{vote.winner or 'tie'} ({counts})"


def exit_line(report: DebateReport) -> str:
    """Return why the debate ended; empty while it goes on."""
    meta = report.metadata
    if not meta.exit_reason:
        return ""
    return f"Ended by {meta.exit_reason.replace('_', ' ')}: {meta.exit_details}."


def actor_line(report: DebateReport) -> str:
    """Return which script acted in place of a model; empty where only models did."""
    scripts = [model for model in report.metadata.actors if is_heuristic(model)]
    if not scripts:
        return ""
    return f"Acted by {', '.join(scripts)}, a script: it says given lines, and its stances and confidence mean nothing."


def talking_lines(talking: Talking) -> Iterator[str]:
    """Yield what talking changed, and what it cost, in sentences; of what was not held or cannot be compared there is none.

    E.g. "Blind poll: yes (yes 2, no 1, neutral 0), 1,204 tokens." or "Talking changed the vote: 1 seat answers otherwise than in the poll."
    """
    if talking.poll is not None:
        yield f"Blind poll: {vote_line(talking.poll)}, {talking.spent_on_poll.tokens:,} tokens."
    if talking.last is not None:
        since = " since the poll" if talking.poll is not None else ""
        yield f"Last round: {vote_line(talking.last)}, {talking.spent_since.tokens:,} tokens{since}."
    if talking.same_winner is not None:
        verdict = "did not change" if talking.same_winner else "changed"
        yield f"Talking {verdict} the vote: {_changed_seats(talking)}{_seats_by_role(talking)}."


def _changed_seats(talking: Talking) -> str:
    if talking.seats_changed == 1:
        return "1 seat answers otherwise than in the poll"
    return f"{talking.seats_changed or 'no'} seats answer otherwise than in the poll"


def _seats_by_role(talking: Talking) -> str:
    if not talking.seats_by_role:
        return ""
    if talking.seats_by_role == 1:
        return "; 1 seat holds the stance of a role and counts as in the poll"
    return f"; {talking.seats_by_role} seats hold the stance of a role and count as in the poll"


def _summary_paragraphs(report: DebateReport) -> Iterator[str]:
    """Yield how the debate went, who acted, and what a reader must be warned of; an empty paragraph where a script did not act."""
    meta, groupthink = report.metadata, report.evidence.groupthink
    played = counted(meta.rounds_played, "round")
    status = meta.status.replace("_", " ")
    summary = f"Debate {meta.id}, {meta.mode}: {len(meta.seats)} seats, {played}, {status}. {_text(exit_line(report))}"
    yield summary.strip()
    yield _text(actor_line(report))
    if groupthink is not None and groupthink.detected:
        indicators = "\n".join(f"> * {_text(indicator)}" for indicator in groupthink.indicators)
        yield f"> **Warning: groupthink.** {_text(groupthink.recommendation)}\n>\n{indicators}"
    if meta.error:
        yield f"Error: {_text(meta.error)}"


def _decision_paragraphs(decision: Decision) -> Iterator[str]:
    """Yield what talking changed, and how far the last round agrees, where that is known."""
    yield _bullets(talking_lines(decision.what_talking_changed))
    consensus = decision.consensus
    if consensus is None:
        return
    if consensus.agreement is not None:
        heuristic = ", heuristic" if consensus.heuristic else ""
        yield f"Agreement {consensus.agreement:.2f} (by {_text(consensus.judge)}{heuristic}). {_text(consensus.summary)}"
    if consensus.common_ground:
        yield f"Common ground:\n\n{_bullets([_text(line) for line in consensus.common_ground])}"
    if consensus.disagreements:
        yield f"Disagreements:\n\n{_bullets([_text(line) for line in consensus.disagreements])}"


def _answer_paragraphs(report: DebateReport) -> Iterator[str]:
    """Yield the answers round by round, each round after what people said before it; what they said after the last one is left out."""
    number = None
    for response in report.agent_responses:
        if response.round != number:
            number = response.round
            yield f"### {round_name(number).capitalize()}"
            for remark in report.evidence.remarks:
                if remark.before_round == number:
                    yield f"{_text(remark.author)} said before it: {_text(remark.text)}"
        yield from _response_paragraphs(response)


def _response_paragraphs(response: Response) -> Iterator[str]:
    """Yield one answer: a heading, then its parts, some perhaps empty; without a message, why there is none."""
    yield _response_heading(response)
    if response.position:
        yield f"**{_text(response.position)}**"
    yield _text(response.reasoning)
    # What was said is often one of the two again.
    if response.text and response.text not in (response.position, response.reasoning):
        yield f"Said: {_text(response.text)}"
    yield _bullets(f"Source: {_text(source)}" for source in response.citations)
    if response.violation:
        yield f"Breaks a rule: {_text(response.violation)}"
    if response.message:
        return
    if response.status == DebateTurn.Status.ANSWERED:
        yield "Its message was deleted."
    else:
        yield f"No answer ({response.status}): {_text(response.error)}"


def _response_heading(response: Response) -> str:
    """Return e.g. ``#### 2. Dwight (opposition): no, confidence 1 (it gave 1.5)``, as far as the answer has these."""
    heading = f"#### {response.seat}. {_text(response.name)}"
    if role := ", ".join(_text(name) for name in (response.role, response.perspective) if name):
        heading += f" ({role})"
    if response.stance:
        heading += f": {response.stance}"
    if response.confidence is not None:
        heading += f", confidence {response.confidence:g}"
    if response.confidence_raw is not None:
        heading += f" (it gave {response.confidence_raw:g})"
    return heading


def _metadata_lines(meta: Metadata) -> Iterator[str]:
    """Yield when the debate began, who acted, and what it used."""
    yield f"Begun {time_text(meta.created_at, zone=True)}, acted by {', '.join(meta.actors) or 'nobody yet'}"
    unpriced = f", {meta.spent.unpriced:,} calls unpriced" if meta.spent.unpriced else ""
    yield f"{meta.spent.tokens:,} tokens in {meta.spent.calls:,} calls, {meta.spent.cost_usd:.4f} US dollars{unpriced}"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _text(text: str) -> str:
    """Return text of agents, people and judges without effect in Markdown, cut where it is too long."""
    return as_text(text, LONGEST_TEXT)
