"""Start a debate, ask for rounds, play them, and cancel it.

A round is one turn per seat and then a result, written once. Everything between can be done twice without harm: a seat's turn is queued
under one key per round, what became of it is stored when it has ended, and the result is written together with the debate's next status.
So a debate that was killed goes on where it stopped, and two that play the same debate do not ask a seat twice. A turn is queued only while
the debate is leased, in one transaction: when a debate is cancelled, its turns are all known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

from django.conf import settings as django_settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import Field, ValidationError

from agents.debates.answers import Answer
from agents.debates.consensus import judge_consensus
from agents.debates.measures import (
    MOST_ROUNDS,
    Consensus,
    Criteria,
    Exit,
    changes,
    check_exit,
    groupthink,
    statistics,
    vote,
)
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.debates.modes import POLL, Mode, answer_of, labels_for, mode_of
from agents.kit.llm.endpoints import problem_of, route_of
from agents.kit.models.lease import LeaseLost
from agents.kit.running import pause, retry_on_outage, side_by_side
from agents.kit.text.fences import fault_of
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Agent, Channel, ChannelMember, Message, Run, RunStep
from agents.models.conversations import FieldRefused, UnknownAgent, find_agent
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.orchestrator import cancel as cancel_turn
from agents.turn.receive import receive_message

MOST_SEATS = 20
TOPIC_CHARACTERS = 2_000
LEASE = timedelta(minutes=10)  # renewed before each seat's turn, and while one waits for it
WAIT = 0.2  # seconds between two looks at a debate that another worker has

ExtraRounds = Annotated[int, Field(ge=0, le=10)]

Status, Outcome = Debate.Status, DebateTurn.Status
NOT_ENDED = (Debate.WAITING, *Debate.OPEN, Status.ERRORED)  # what crashed can go on
Progress = Callable[[DebateTurn | DebateRound], None]
T = TypeVar("T")


class DebateRefused(FieldRefused):
    """The debate cannot be started or go on."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(field, why)
        self.names_nothing = field in ("agents", "models", "debate")


class Settings(Criteria):
    """How a debate is played: when it ends (`Criteria`), and what is done around its rounds.

    Attributes:
        poll: Ask every seat before the first round, without showing it another's answer (round 0).
        judge: Ask the judge after each round how far the answers agree.
        extra_rounds_on_groupthink: Rounds played at most where the debate would end and groupthink is detected.
        config: What the mode itself is given, e.g. the perspectives of an expert panel.
    """

    poll: bool = True
    judge: bool = True
    extra_rounds_on_groupthink: ExtraRounds = 0
    config: dict[str, Any] = Field(default_factory=dict)

    @property
    def most_rounds(self) -> int:
        """Rounds that are played at most, the poll not counted."""
        return self.max_rounds + self.extra_rounds_on_groupthink


def settings_of(debate: Debate) -> Settings:
    """The settings of a stored debate."""
    return Settings.model_validate(debate.settings)


# -- starting
def start_debate(
    *,
    topic: str,
    mode: str,
    agents: Sequence[Agent | str],
    rounds: int = 5,
    models: Mapping[str, str] | None = None,
    real: bool = False,
    user: AbstractBaseUser | None = None,
    **settings: Any,
) -> Debate:
    """Make a debate with its channel and seats; it waits until rounds are asked for. Nothing is written when it is refused.

    Args:
        topic: The question, 1 to 2,000 characters.
        mode: One of `MODES`.
        agents: Agents, or their slugs, in the order of the seats; 2 to 20 different ones, active and not busy.
        rounds: Most rounds, the poll not counted, 1 to 100.
        models: The model that acts for a seat, by number of the seat or slug of the agent.
        real: Whether its messages are ordinary speech of the agents. Otherwise they are marked synthetic.
        user: Who started it.
        settings: Further fields of `Settings`, and of the mode's own configuration (`perspectives`, `assignment`, `seed`).

    Raises:
        DebateRefused: An argument is not allowed.
    """
    topic = topic.strip()
    if not 1 <= len(topic) <= TOPIC_CHARACTERS:
        raise DebateRefused("topic", f"{len(topic):,} characters; allowed: 1 to {TOPIC_CHARACTERS:,}")
    if fault := fault_of(topic):
        raise DebateRefused("topic", fault)
    try:
        rules = mode_of(mode)
    except ValueError as error:
        raise DebateRefused("mode", str(error)) from None
    chosen = checked_settings(rules, rounds, settings)
    seated = _agents(rules, agents)
    acting = _models(seated, models or {})
    try:
        perspectives = rules.perspectives(len(seated), chosen.config)
    except ValidationError as error:
        raise _refused(error) from None
    except ValueError as error:
        raise DebateRefused("perspectives", str(error)) from None
    with transaction.atomic():
        channel = _new_channel(topic, synthetic=not real)
        debate: Debate = Debate.objects.create(
            channel=channel, mode=mode, topic=topic, settings=chosen.model_dump(mode="json"), created_by=user
        )
        DebateSeat.objects.bulk_create(
            DebateSeat(
                debate=debate,
                number=number,
                agent=agent,
                role=rules.get_agent_role(number, len(seated)),
                perspective=perspective,
                label=label,
                model=acting.get(number, ""),
            )
            for number, (agent, perspective, label) in enumerate(
                zip(seated, perspectives, labels_for(seated), strict=True), 1
            )
        )
        ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in seated)
    return debate


def checked_settings(rules: Mode, rounds: int, given: Mapping[str, Any]) -> Settings:
    """The settings of a debate as they were given.

    Raises:
        DebateRefused: One is unknown or has a value that is not allowed.
    """
    own = {name: value for name, value in given.items() if name in Settings.model_fields and name != "config"}
    config = {name: value for name, value in given.items() if name not in own and name != "config"}
    config = {**(given.get("config") or {}), **config}
    if unknown := next((name for name in config if name not in rules.config.model_fields), ""):
        allowed = ({*Settings.model_fields, *rules.config.model_fields} - {"config", "max_rounds"}) | {"rounds"}
        raise DebateRefused(unknown, f"not a setting of {rules.name}; allowed: {', '.join(sorted(allowed))}")
    try:
        return Settings.model_validate({**own, "max_rounds": rounds, "config": config})
    except ValidationError as error:
        raise _refused(error) from None


def _refused(error: ValidationError) -> DebateRefused:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"])).replace("max_rounds", "rounds")
    allowed = f"; allowed: 1 to {MOST_ROUNDS}" if name == "rounds" else ""
    return DebateRefused(name, f"{str(first['input'])[:80]!r}: {first['msg'].removeprefix('Value error, ')}{allowed}")


def _agents(rules: Mode, named: Sequence[Agent | str]) -> list[Agent]:
    try:
        agents = [agent if isinstance(agent, Agent) else find_agent(agent) for agent in named]
    except UnknownAgent as error:
        raise DebateRefused("agents", str(error)) from None
    most = f"{rules.min_seats} to {MOST_SEATS} different agents"
    if not rules.min_seats <= len(agents) <= MOST_SEATS:
        raise DebateRefused("agents", f"{len(agents)} named; allowed in the mode {rules.name}: {most}")
    slugs = [agent.slug for agent in agents]
    if twice := next((slug for slug in slugs if slugs.count(slug) > 1), None):
        raise DebateRefused("agents", f"{twice!r} is named twice; allowed: {most}")
    for agent in agents:
        if not agent.is_active:
            raise DebateRefused("agents", f"{agent.slug!r} is inactive; allowed: active agents")
        if busy := _busy(agent):
            raise DebateRefused("agents", f"{agent.slug!r} is busy ({busy}); allowed: agents that act nowhere else now")
    return agents


def _busy(agent: Agent) -> str:
    """Where the agent acts at the moment; empty when it is free."""
    if debate := Debate.objects.filter(seats__agent=agent, status__in=Debate.OPEN).first():
        return f"debate {debate.pk} is {debate.status}"
    run = Run.objects.filter(agent=agent, status=Run.Status.RUNNING).select_related("channel").first()
    return f"turn {run.pk} in {run.channel.slug if run.channel else 'a deleted channel'}" if run else ""


def silent_offline(debate: Debate) -> list[str]:
    """Return the slugs of the seats that would say nothing: a script acts for them, and their agents have no sample lines to say."""
    script = settings_of(debate).config.get("script", {})
    return [
        seat.agent.slug
        for seat in debate.seats.select_related("agent").order_by("number")
        if lacks_lines(seat.agent, seat.model) and not script.get(str(seat.number))
    ]


def lacks_lines(agent: Agent, model: str = "") -> bool:
    """Whether a script acts for the agent and has no line to say."""
    scripted = route_of("actor", model or agent.model_id).provider == "offline"
    return scripted and not any(line.strip() for line in agent.sample_lines)


def _models(agents: Sequence[Agent], models: Mapping[str, str]) -> dict[int, str]:
    """Number of the seat to the model that acts there."""
    names = {name: number for number, agent in enumerate(agents, 1) for name in (str(number), agent.slug)}
    acting: dict[int, str] = {}
    for name, model in models.items():
        if name not in names:
            raise DebateRefused("models", f"there is no seat {name!r}; allowed: {', '.join(names)}")
        if not 0 < len(model.strip()) <= 200:
            raise DebateRefused("models", f"the model of seat {name} is {model[:80]!r}; allowed: 1 to 200 characters")
        if problem := problem_of("actor", model.strip()):
            raise DebateRefused("models", f"the model of seat {name} cannot be called: {problem}")
        acting[names[name]] = model.strip()
    return acting


def _new_channel(topic: str, *, synthetic: bool) -> Channel:
    """Make a channel for a debate. Its slug is counted, not random: what a seat is shown can be replayed.

    It does not hold words of the question: slug and tags stay when the question is erased.
    """
    newest = Debate.objects.order_by("-pk").values_list("channel__slug", flat=True).first() or ""
    suffix = newest.rpartition("-")[2]
    number = int(suffix) if suffix.isdecimal() else 0
    while True:
        number += 1
        slug = f"{Debate.TAG}-{number}"
        with suppress(IntegrityError), transaction.atomic():
            channel: Channel = Channel.objects.create(
                slug=slug,
                name=topic[:200],
                kind=Channel.Kind.DEBATE,
                topic=topic,
                tags={Debate.TAG: slug},
                synthetic=synthetic,
            )
            return channel


# -- between the rounds
def ask_rounds(debate: Debate, rounds: int | None = 1) -> Debate:
    """Queue so many more rounds of a waiting debate (None = to its end); a worker plays them, or `play`.

    The poll comes with the first round and does not count. A debate that is being played, or queued, stays as it is. One that crashed
    goes on where it stopped.

    Raises:
        DebateRefused: It has ended, or the number is out of range.
    """
    most = settings_of(debate).most_rounds
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise DebateRefused("rounds", f"{rounds}; allowed: 1 to {MOST_ROUNDS}")
    played = DebateRound.objects.filter(debate=debate).exclude(number=POLL).count()
    waiting = Debate.objects.filter(pk=debate.pk, status__in=(Debate.WAITING, Status.ERRORED))
    queued = waiting.update(status=Status.PENDING, rounds_asked=most if rounds is None else min(most, played + rounds))
    debate.refresh_from_db()
    if queued:
        transaction.on_commit(wake_workers)
    elif debate.status not in Debate.OPEN:
        raise DebateRefused("debate", f"debate {debate.pk} has ended ({debate.status}); allowed: one that waits")
    return debate


def cancel(debate: Debate) -> Debate:
    """End a debate: at once, or before the next seat's turn where it is being played. It cannot go on.

    Its turns are cancelled, too: those that wait do not begin, one that has begun ends before its next step. What was said stays. A
    debate that is cancelled already stays as it is.

    Raises:
        DebateRefused: It has ended.
    """
    going_on = Debate.objects.filter(pk=debate.pk, status__in=NOT_ENDED)
    ended = {"status": Status.CANCELLED, "lease_owner": "", "lease_expires_at": None, "finished_at": timezone.now()}
    with transaction.atomic():
        if going_on.update(**ended):
            for run in Run.objects.filter(channel=debate.channel_id, status__in=Run.OPEN):
                cancel_turn(run)
            for turn in debate.turns.filter(status=Outcome.PENDING).select_related("seat"):
                run = Run.objects.filter(idempotency_key=_key(turn)).first()
                became = _outcome(debate, run) if run else {}
                if became.get("message") is None and (run is None or run.status in Run.OPEN):
                    became |= {"status": Outcome.FAILED, "error": "the debate was cancelled"}
                DebateTurn.objects.filter(pk=turn.pk, status=Outcome.PENDING).update(**became)
    debate.refresh_from_db()
    if debate.status != Status.CANCELLED:
        raise DebateRefused("debate", f"debate {debate.pk} has ended ({debate.status}); allowed: one that has not")
    return debate


def add_message(
    debate: Debate, *, text: str, user: AbstractBaseUser | None = None, outsider: str = "", idempotency_key: str = ""
) -> Message:
    """Say something to the seats between two rounds, as a person in the audience. See `receive_message`.

    Raises:
        DebateRefused: A round is being played, or the debate has ended.
        SendRefused: It cannot be said.
    """
    debate.refresh_from_db()
    if debate.status != Debate.WAITING:
        raise DebateRefused(
            "debate", f"debate {debate.pk} is {debate.status}; allowed: one that waits for its next round"
        )
    return receive_message(
        channel=debate.channel,
        user=user,
        outsider=outsider,
        text=text,
        idempotency_key=idempotency_key,
        tags=dict(debate.channel.tags),
    )


Said = Sequence[tuple[DebateTurn, Answer]]


def _said(debate: Debate) -> Said:
    """The answers of all rounds, in the order of seats."""
    turns = DebateTurn.objects.filter(debate=debate, status=Outcome.ANSWERED, message__isnull=False)
    ordered = turns.select_related("seat", "message").order_by("round", "seat__number")
    return [(turn, answer) for turn in ordered if (answer := answer_of(turn)) is not None]


# -- playing
def play(debate: Debate, *, owner: str, progress: Progress | None = None) -> Debate:
    """Play the rounds that were asked for, here, or wait until the worker that has the debate has played them.

    Args:
        owner: The lease's name, see `owner_name`.
        progress: Called with each `DebateTurn` that has ended and each `DebateRound`; not for those that another worker played. It may be
            called in other threads.

    Returns:
        The debate as it is then.
    """
    while debate.status in Debate.OPEN:
        if debate.is_leased_by(owner) or debate.acquire(owner=owner, lease=LEASE):
            carry_out(debate, lambda debate: _play(debate, owner, progress or _silent), owner=owner)
        else:
            pause(WAIT)
        debate.refresh_from_db()
    return debate


def work_one(*, owner: str) -> bool:
    """Play the debate that has waited longest; return whether there was one."""
    return do_next(Debate, lambda debate: _play(debate, owner, _silent), owner=owner, lease=LEASE)


def _silent(event: DebateTurn | DebateRound) -> None:
    """Show nothing."""


def _play(debate: Debate, owner: str, progress: Progress) -> None:
    """Play a leased debate, round by round, until it ends or has no more rounds to play; its status is stored with its last round."""
    settings, rules = settings_of(debate), mode_of(debate.mode)
    seats = list(debate.seats.select_related("agent").order_by("number"))
    while debate.is_leased_by(owner):
        rounds = list(debate.rounds.order_by("number"))
        number = rounds[-1].number + 1 if rounds else POLL if settings.poll else 1
        if number > debate.rounds_asked:
            debate.finish(owner=owner, status=Debate.WAITING)
            return
        groups = [seats] if number == POLL else rules.groups(seats)
        for group in groups:
            _play_group(debate, number, group, owner, progress)
        progress(_end_round(debate, number, settings, rounds, groups, owner))


def _renew(debate: Debate, owner: str) -> None:
    if not debate.extend_lease(owner=owner, lease=LEASE):
        raise LeaseLost(f"debate {debate.pk} is not held by {owner} any more")


def _while_leased(debate: Debate, owner: str, write: Callable[[], T]) -> T:
    """Write something that can be written twice, unless the debate is not ours any more or was cancelled: then nothing.

    Raises:
        LeaseLost: Nothing was written.
    """

    def both() -> T:
        with transaction.atomic():
            _renew(debate, owner)
            return write()

    return retry_on_outage(both)


def _wait_on(debate: Debate, owner: str) -> None:
    """Renew the lease while another worker has a seat's turn. In a cancelled debate only its end is awaited: what it says is stored."""
    try:
        _renew(debate, owner)
    except LeaseLost:
        if not Debate.objects.filter(pk=debate.pk, status=Status.CANCELLED).exists():
            raise


def _play_group(debate: Debate, number: int, group: Sequence[DebateSeat], owner: str, progress: Progress) -> None:
    """Have the seats of a group answer side by side in a round, but for those that have, and store what became of them."""
    missing = [DebateTurn(debate=debate, round=number, seat=seat) for seat in group]
    _while_leased(debate, owner, lambda: DebateTurn.objects.bulk_create(missing, ignore_conflicts=True))
    pending = debate.turns.filter(round=number, seat__in=group, status=Outcome.PENDING).select_related("seat__agent")
    jobs = [partial(_take_turn, debate, turn, owner, progress) for turn in pending.order_by("seat__number")]
    limit = 1 if django_settings.WORKER_THREADS == 1 else len(group)
    side_by_side(jobs, limit)


def _take_turn(debate: Debate, turn: DebateTurn, owner: str, progress: Progress) -> None:
    """Have a seat answer, and store what became of it."""
    run = None
    try:
        run = _while_leased(debate, owner, lambda: _queued(debate, turn))
        became = _outcome(debate, finish_turn(run, waiting=partial(_wait_on, debate, owner)))
    except TurnRefused as error:
        if run is not None:
            cancel_turn(run)
        became = {"status": Outcome.FAILED, "error": str(error)}
    for name, value in became.items():
        setattr(turn, name, value)
    turn.save(update_fields=["run", "message", "status", "violation", "error"])
    progress(turn)


def _key(turn: DebateTurn) -> str:
    return f"debate:{turn.debate_id}:{turn.round}:{turn.seat.number}"


def _queued(debate: Debate, turn: DebateTurn) -> Run:
    """The seat's turn in this round, queued once."""
    seat = turn.seat
    place = {"debate": debate.pk, "round": turn.round, "seat": seat.number}
    tags = {**debate.channel.tags, "round": str(turn.round), "seat": str(seat.number)}
    try:
        return start_turn(
            agent=seat.agent,
            channel=debate.channel,
            overrides={"debate": place, "tags": tags, **({"model": seat.model} if seat.model else {})},
            idempotency_key=_key(turn),
        )
    except TurnRefused:  # it may have spoken before it left
        run: Run | None = Run.objects.filter(idempotency_key=_key(turn)).first()
        if run is None:
            raise
        return run


def _outcome(debate: Debate, run: Run) -> dict[str, Any]:
    """What became of a seat's turn: columns of `DebateTurn`."""
    message = run.messages.filter(channel=debate.channel_id).order_by("position").first()
    if message is not None:
        status, violation, error = Outcome.ANSWERED, str(message.payload.get("violation", "")), ""
    else:
        violation, (status, error) = "", _without_answer(run)
    return {"run": run, "message": message, "status": status, "violation": violation, "error": error}


def _without_answer(run: Run) -> tuple[DebateTurn.Status, str]:
    """What became of a turn that said nothing, and why."""
    if run.status != Run.Status.COMPLETED:
        return Outcome.FAILED, run.error or f"its turn ended {run.status}"
    reasons = RunStep.objects.filter(run=run, kind="tool_call").order_by("-number").values_list("detail", flat=True)
    chosen = next((str(detail["reason"]) for detail in reasons if detail.get("reason")), "")
    return Outcome.SILENT, chosen or run.error or "it ended its turn without an answer"


def _end_round(
    debate: Debate,
    number: int,
    settings: Settings,
    earlier: Sequence[DebateRound],
    groups: Sequence[Sequence[DebateSeat]],
    owner: str,
) -> DebateRound:
    """Say what a round came to, and store it together with what the debate does next.

    Raises:
        LeaseLost: The debate is not ours any more.
    """
    said = _said(debate)
    rounds: dict[int, list[Answer]] = {}
    for turn, answer in said:
        rounds.setdefault(turn.round, []).append(answer)
    answers = rounds.get(number, [])
    consensus = Consensus(agreement=None)
    if number != POLL and settings.judge:
        _renew(debate, owner)
        consensus = judge_consensus(debate, number, answers)
    judged = None if consensus.heuristic else consensus.agreement
    suspicion = groupthink(answers if number != POLL else [], judged)  # a blind poll is no group
    played = [each for each in earlier if each.number != POLL]
    exits = Exit(ends=False)
    if number != POLL:
        exits = check_exit(
            [rounds.get(each, []) for each in range(1, number + 1)],
            [*(each.consensus.get("agreement") for each in played), consensus.agreement],
            settings,
            groupthink=suspicion,
            extra_rounds=settings.extra_rounds_on_groupthink,
            extra_played=sum(bool(each.exit["details"]) for each in played),  # it went on although a criterion held
        )
    if exits.reason == "consensus" and consensus.heuristic:
        exits = exits.model_copy(update={"details": f"{exits.details}, by stances and words (heuristic)"})
    free = answers
    if earlier and earlier[-1].number == POLL:  # a stance that a role requires is no change of mind
        required = mode_of(debate.mode).required_stances
        free = [answer for answer in answers if required.get(answer.role) != answer.stance]
    moved = changes(rounds.get(number - 1, []), free, _seen(debate, number, groups, said)) if earlier else None
    counted = {
        **statistics(answers).model_dump(mode="json"),
        "vote": vote(answers).model_dump(mode="json"),
        "changes": moved.model_dump(mode="json") if moved else None,
    }
    row = DebateRound(
        debate=debate,
        number=number,
        consensus=consensus.model_dump(mode="json"),
        groupthink=suspicion.model_dump(mode="json"),
        statistics=counted,
        exit=exits.model_dump(mode="json"),
    )
    ending: dict[str, Any] = {}
    if not answers:
        ending = {"status": Status.FAILED, "error": _why_none(debate, number)}
    elif exits.ends:
        ending = {"status": Status.COMPLETED, "exit_reason": exits.reason, "exit_details": exits.details}
    elif number >= debate.rounds_asked:
        ending = {"status": Debate.WAITING}
    held = Debate.objects.filter(pk=debate.pk, status=Status.RUNNING, lease_owner=owner)
    with transaction.atomic():
        if not (
            debate.finish(owner=owner, **ending) if ending else held.update(lease_expires_at=timezone.now() + LEASE)
        ):
            raise LeaseLost(f"debate {debate.pk} is not held by {owner} any more")
        row.save(force_insert=True)
    return row


def _seen(debate: Debate, number: int, groups: Sequence[Sequence[DebateSeat]], said: Said) -> dict[int, list[str]]:
    """What each seat could read before it answered in a round, or had said itself."""
    before, now = [debate.topic], dict[int, list[str]]()
    for seat in (seat for group in groups for seat in group):
        before += [seat.agent.display_name, seat.agent.slug, seat.label]
    before += Message.objects.filter(channel=debate.channel_id, agent=None).values_list("text", flat=True)
    for turn, answer in said:
        texts = [turn.message.text if turn.message else "", answer.position, answer.reasoning]
        if turn.round < number:
            before += texts
        else:
            now[answer.seat] = texts
    seen: dict[int, list[str]] = {}
    for group in groups:
        seen |= {seat.number: list(before) for seat in group}
        before += [text for seat in group for text in now.get(seat.number, ())]
    return seen


def _why_none(debate: Debate, number: int) -> str:
    turns = (
        DebateTurn.objects.filter(debate=debate, round=number).select_related("seat__agent").order_by("seat__number")
    )
    reasons = "; ".join(f"{turn.seat.agent.slug}: {turn.error[:200]}" for turn in turns)
    return f"no seat answered in {'the poll' if number == POLL else f'round {number}'} ({reasons})"
