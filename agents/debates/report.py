"""What a debate came to, in four layers: decision, agent responses, evidence, metadata.

`DebateReport` is the one value that the command, the API, the console and the exports show. It is read from the tables: a
round's figures are those stored with it, and no model is asked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from agents.debates.answers import Stance
from agents.debates.measures import STANCES, Changes, Consensus, Exit, Groupthink, Statistics, Vote
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.debates.modes import MODES, POLL
from agents.kit.commands import Cell, markdown_table
from agents.kit.llm.endpoints import provider_of
from agents.kit.llm.ledger import Totals, totals, totals_by
from agents.kit.models import LLMCall
from agents.kit.text.markdown import as_text
from agents.models import Channel, Message

LONGEST = 20_000  # characters of one text in the Markdown export; the JSON export holds all


class Spent(BaseModel):
    """Sums over model calls, those of stages such as the gate included. `cost_usd` leaves out the unpriced ones."""

    calls: int = 0
    tokens: int = Field(0, description="in, out, and read from or written to a prompt cache")
    cost_usd: Decimal = Decimal(0)
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in Spent.model_fields})


class Talking(BaseModel):
    """What talking changed: the vote of the blind poll beside that of the last round, and what the rounds after the poll used.

    `stances_changed`, `to_majority`, `from_majority` and `conformity` are over all rounds; `seats_changed` compares only the two votes.
    """

    poll: Vote | None = Field(description="null = no poll was held")
    last: Vote | None = Field(description="null = no round was played yet")
    same_winner: bool | None = Field(description="null where there is nothing to compare")
    seats_changed: int | None = Field(
        description="seats whose stance in the last round is not that of the poll, nor required by their role"
    )
    seats_by_role: int = Field(
        description="seats that hold the stance of their role in the last round; they count in `last`"
    )
    stances_changed: int
    to_majority: int
    from_majority: int
    conformity: float | None = Field(description="share of the changes towards the majority without new content words")
    spent_on_poll: Spent
    spent_since: Spent = Field(description="on the rounds after the poll, their judge included")


class Decision(BaseModel):
    topic: str
    vote: Vote | None = Field(description="of the last round")
    consensus: Consensus | None = Field(description="of the last round; its `agreement` is 0 to 1, null = not known")
    groupthink: bool = Field(description="whether the last round shows groupthink; `evidence.groupthink` says why")
    what_talking_changed: Talking


class Response(BaseModel):
    """What became of a seat in a round; without an answer, `error` says why."""

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
    """What a person said between the rounds."""

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
    """Read what a debate came to so far. It takes the same few queries whatever the number of rounds."""
    debate = Debate.objects.select_related("channel", "created_by").get(pk=debate.pk)
    seats = {seat.pk: _seat(seat) for seat in debate.seats.select_related("agent").order_by("number")}
    # Read before the turns: a round that ends meanwhile is not shown without its answers.
    rounds = list(debate.rounds.order_by("number"))
    turns = list(debate.turns.select_related("message").order_by("round", "seat__number"))
    responses = [_response(turn, seats[turn.seat_id]) for turn in turns]
    spent = _spent_by_round(debate, turns)
    evidence = [_evidence_of(row, spent[row.number]) for row in rounds]
    played = [row for row in evidence if row.round > POLL]
    last = played[-1] if played else None
    judging = _spent(totals(LLMCall.objects.filter(run=None), work_id=f"debate:{debate.pk}"))
    acted = LLMCall.objects.filter(run__in=debate.turns.values("run"), purpose="turn").order_by()
    failed = (DebateTurn.Status.FAILED, DebateTurn.Status.SILENT)
    return DebateReport(
        decision=Decision(
            topic=debate.topic,
            vote=last.vote if last else None,
            consensus=last.consensus if last else None,
            groupthink=last is not None and last.groupthink.detected,
            what_talking_changed=_talking(debate.mode, responses, evidence, judging),
        ),
        agent_responses=responses,
        evidence=Evidence(
            rounds=evidence,
            groupthink=last.groupthink if last else None,
            violations=[_mark(one, one.violation) for one in responses if one.violation],
            failures=[_mark(one, one.error or one.status) for one in responses if one.status in failed],
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
            actors=sorted(acted.values_list("model", flat=True).distinct()),
            real=not debate.channel.synthetic,
            seats=list(seats.values()),
            settings=debate.settings,
            created_by=debate.created_by.get_username() if debate.created_by else None,
            created_at=debate.created_at,
            started_at=debate.started_at,
            finished_at=debate.finished_at,
            spent=sum(spent.values(), judging),
            spent_on_judge=judging,
        ),
    )


def _seat(seat: DebateSeat) -> Seat:
    columns = ("number", "role", "perspective", "label", "model")
    own = {name: getattr(seat, name) for name in columns}
    return Seat(**own, agent=seat.agent.slug, name=seat.agent.display_name)


def _response(turn: DebateTurn, seat: Seat) -> Response:
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


def _mark(response: Response, text: str) -> Mark:
    return Mark(round=response.round, seat=response.seat, agent=response.agent, text=text)


def _evidence_of(row: DebateRound, spent: Spent) -> RoundEvidence:
    stored = row.statistics
    return RoundEvidence(
        round=row.number,
        statistics=Statistics.model_validate({name: stored[name] for name in Statistics.model_fields}),
        vote=Vote.model_validate(stored["vote"]),
        changes=Changes.model_validate(stored["changes"]) if stored["changes"] else None,
        consensus=Consensus.model_validate(row.consensus),
        groupthink=Groupthink.model_validate(row.groupthink),
        exit=Exit.model_validate(row.exit),
        spent=spent,
    )


def _talking(mode: str, responses: Sequence[Response], evidence: Sequence[RoundEvidence], judging: Spent) -> Talking:
    required = MODES[mode].required_stances if mode in MODES else {}
    poll = next((row for row in evidence if row.round == POLL), None)
    last = evidence[-1] if evidence and evidence[-1].round > POLL else None
    voted = poll is not None and last is not None and any(poll.vote.counts.values()) and any(last.vote.counts.values())
    before = {one.seat: one.stance for one in responses if poll and one.round == poll.round}
    latest = [one for one in responses if last and one.round == last.round and one.stance]
    after = {one.seat: one.stance for one in latest if required.get(one.role) != one.stance}
    both = [seat for seat in after if before.get(seat)]
    moves = [move for row in evidence if row.changes for move in row.changes.moves]
    towards = sum(move.to_majority for move in moves)
    return Talking(
        poll=poll.vote if poll else None,
        last=last.vote if last else None,
        same_winner=_leaders(poll.vote) == _leaders(last.vote) if poll and last and voted else None,
        seats_changed=sum(before[seat] != after[seat] for seat in both) if voted else None,
        seats_by_role=len(latest) - len(after),
        stances_changed=len(moves),
        to_majority=towards,
        from_majority=sum(move.from_majority for move in moves),
        conformity=sum(move.conform for move in moves) / towards if towards else None,
        spent_on_poll=poll.spent if poll else Spent(),
        spent_since=sum((row.spent for row in evidence if row.round > POLL), judging),
    )


def _leaders(vote: Vote) -> set[Stance]:
    """The winner of a vote; of a tie the stances that share it."""
    most = max(vote.counts.values())
    return {stance for stance, count in vote.counts.items() if count == most}


def _spent_by_round(debate: Debate, turns: Iterable[DebateTurn]) -> Mapping[int, Spent]:
    """What the turns of each round used."""
    spent: dict[int, Spent] = defaultdict(Spent)
    rounds = {turn.run_id: turn.round for turn in turns}
    calls = LLMCall.objects.filter(run__in=debate.turns.values("run"))
    for run, sums in totals_by(calls, "run").items():
        if run in rounds:  # else its turn has ended since
            spent[rounds[run]] += _spent(sums)
    return spent


def _spent(sums: Totals) -> Spent:
    tokens = sums.input_tokens + sums.output_tokens + sums.cache_read_tokens + sums.cache_write_tokens
    return Spent(calls=sums.calls, tokens=tokens, cost_usd=sums.cost_usd, unpriced=sums.unpriced)


def _remarks(debate: Debate, turns: Iterable[DebateTurn]) -> list[Remark]:
    """What people said, each before the first round in which an answer came after it."""
    rows = Message.objects.filter(channel=debate.channel_id, agent=None).select_related("user").order_by("position")
    first: dict[int, int] = {}
    for turn in turns:
        if turn.message is not None:
            first[turn.round] = min(first.get(turn.round, turn.message.position), turn.message.position)
    return [
        Remark(
            before_round=next((number for number, at in first.items() if at > row.position), max(first, default=0) + 1),
            author=row.author_name,
            text=row.text,
            message=row.pk,
        )
        for row in rows
    ]


def groupthink_indicators(channel: Channel) -> list[str] | None:
    """Return the indicators of groupthink in the last complete round of the channel's debate.

    None where the channel has no debate, and before its first round is complete; a blind poll is no round.
    """
    rounds = DebateRound.objects.filter(debate__channel=channel, number__gte=1).order_by("-number")
    stored = rounds.values_list("groupthink", flat=True).first()
    return Groupthink.model_validate(stored).indicators if stored else None


def as_json(report: DebateReport) -> str:
    """The report as text. Characters that a terminal or an editor hides or obeys are written as escapes: the value stays the same."""
    text = json.dumps(report.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def as_markdown(report: DebateReport) -> str:
    """The report for people. Everything that agents, people and judges wrote is text in it: no markup, no links, no mentions."""
    decision, meta = report.decision, report.metadata
    seats = f"{len(meta.seats)} seats, {meta.rounds_played} {'round' if meta.rounds_played == 1 else 'rounds'}"
    parts = [
        f"# {_text(decision.topic)}",
        f"Debate {meta.id}, {meta.mode}: {seats}, {meta.status.replace('_', ' ')}. {_text(exit_line(report))}".strip(),
        _text(actor_line(report)),
        *_warning(report.evidence.groupthink),
        *([f"Error: {_text(meta.error)}"] if meta.error else []),
        "## Decision",
        *_decision(decision),
        "## Answers",
        *_answers(report),
        "## Evidence",
        "\n".join(markdown_table(EVIDENCE_HEADS, [evidence_cells(row) for row in report.evidence.rounds])),
        "## Metadata",
        _bullets(map(_text, _metadata(meta))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


EVIDENCE_HEADS = ("Round", ">Yes", ">No", ">Neutral", ">Median confidence", ">Agreement", ">Changes", ">To majority", ">Conformity",
                  "Groupthink", ">Tokens")  # fmt: skip


def evidence_cells(row: RoundEvidence) -> list[Cell]:
    """A round as a row of a table, under `EVIDENCE_HEADS`."""
    counts, changes, confidence = row.vote.counts, row.changes, row.statistics.confidence
    voted = any(counts.values())
    return [
        str(row.round) if row.round else "poll",
        *(counts[stance] if voted else None for stance in STANCES),
        _figure(confidence.median if confidence else None),
        _figure(row.consensus.agreement),
        changes.stances_changed if changes and voted else None,
        changes.to_majority if changes and voted else None,
        _figure(changes.conformity if changes else None),
        ("warning", "warning") if row.groupthink.detected else "no",
        row.spent.tokens,
    ]


def round_name(number: int) -> str:
    return f"round {number}" if number else "poll"


def vote_line(vote: Vote | None) -> str:
    """A vote in words, such as ``no (yes 1, no 3, neutral 0)``."""
    if vote is None or not any(vote.counts.values()):
        return "no stances"
    return f"{vote.winner or 'tie'} ({', '.join(f'{stance} {count}' for stance, count in vote.counts.items())})"


def exit_line(report: DebateReport) -> str:
    meta = report.metadata
    return f"Ended by {meta.exit_reason.replace('_', ' ')}: {meta.exit_details}." if meta.exit_reason else ""


def actor_line(report: DebateReport) -> str:
    """Who acted, where that was a script and no model; else empty."""
    scripts = [model for model in report.metadata.actors if provider_of(model) == "offline"]
    if not scripts:
        return ""
    return f"Acted by {', '.join(scripts)}, a script: it says given lines, and its stances and confidence mean nothing."


def talking_lines(talking: Talking) -> Iterator[str]:
    """What talking changed, and what it cost, in sentences."""
    if talking.poll is not None:
        yield f"Blind poll: {vote_line(talking.poll)}, {talking.spent_on_poll.tokens:,} tokens."
    if talking.last is not None:
        since = " since the poll" if talking.poll is not None else ""
        yield f"Last round: {vote_line(talking.last)}, {talking.spent_since.tokens:,} tokens{since}."
    if talking.same_winner is not None:
        verdict = "did not change" if talking.same_winner else "changed"
        seats = "1 seat answers" if talking.seats_changed == 1 else f"{talking.seats_changed or 'no'} seats answer"
        by_role = talking.seats_by_role
        roles = (
            f"; {'1 seat holds' if by_role == 1 else f'{by_role} seats hold'} the stance of a role" if by_role else ""
        )
        yield f"Talking {verdict} the vote: {seats} otherwise than in the poll{roles}."


def _decision(decision: Decision) -> Iterator[str]:
    yield _bullets(talking_lines(decision.what_talking_changed))
    if (agreed := decision.consensus) is None:
        return
    if agreed.agreement is not None:
        by = f"by {_text(agreed.judge)}{', heuristic' if agreed.heuristic else ''}"
        yield f"Agreement {agreed.agreement:.2f} ({by}). {_text(agreed.summary)}"
    for title, lines in (("Common ground", agreed.common_ground), ("Disagreements", agreed.disagreements)):
        if lines:
            yield f"{title}:\n\n{_bullets(map(_text, lines))}"


def _warning(groupthink: Groupthink | None) -> Iterator[str]:
    if groupthink is not None and groupthink.detected:
        indicators = _bullets(map(_text, groupthink.indicators)).replace("* ", "> * ")
        yield f"> **Warning: groupthink.** {_text(groupthink.recommendation)}\n>\n{indicators}"


def _answers(report: DebateReport) -> Iterator[str]:
    number = None
    for one in report.agent_responses:
        if one.round != number:
            number = one.round
            yield f"### {round_name(number).capitalize()}"
            yield from (
                f"{_text(remark.author)} said before it: {_text(remark.text)}"
                for remark in report.evidence.remarks
                if remark.before_round == number
            )
        role = ", ".join(_text(name) for name in (one.role, one.perspective) if name)
        stance = f": {one.stance}" if one.stance else ""
        sure = f", confidence {one.confidence:g}" if one.confidence is not None else ""
        raw = f" (it gave {one.confidence_raw:g})" if one.confidence_raw is not None else ""
        yield f"#### {one.seat}. {_text(one.name)}{f' ({role})' if role else ''}{stance}{sure}{raw}"
        yield f"**{_text(one.position)}**" if one.position else ""
        yield _text(one.reasoning)
        yield f"Said: {_text(one.text)}" if one.text and one.text not in (one.position, one.reasoning) else ""
        yield _bullets(f"Source: {_text(source)}" for source in one.citations)
        yield f"Breaks a rule: {_text(one.violation)}" if one.violation else ""
        if one.status == DebateTurn.Status.ANSWERED and not one.message:
            yield "Its message was deleted."
        elif not one.message:
            yield f"No answer ({one.status}): {_text(one.error)}"


def _metadata(meta: Metadata) -> Iterator[str]:
    yield f"Begun {meta.created_at:%Y-%m-%d %H:%M %Z}, acted by {', '.join(meta.actors) or 'nobody yet'}"
    unpriced = f", {meta.spent.unpriced:,} calls unpriced" if meta.spent.unpriced else ""
    yield f"{meta.spent.tokens:,} tokens in {meta.spent.calls:,} calls, {meta.spent.cost_usd:.4f} US dollars{unpriced}"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _text(text: str) -> str:
    return as_text(text, LONGEST)
