"""Playing an agent through situations: the real turn pipeline, every mechanism off, each conversation in a channel of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import sentry_sdk
from django.db.models import QuerySet
from django.utils import timezone

from agents.models import Agent, Message, Run, RunStep, owner_name
from agents.persona import current_digest
from agents.turn.orchestrator import TurnRefused, run_turn, start_turn
from agents.turn.receive import receive_message
from agents.turn.send_message import SendRefused
from evaluation.budget import why_over_budget
from evaluation.rehearsal.situations import Situation
from evaluation.rehearsal.stage import Scene, Stage, actor_of, set_stage
from evaluation.rehearsal.values import Conversation, Play

logger = logging.getLogger(__name__)

MOST_REPEATS = 20
GIVE_UP_AFTER = 3  # conversations in a row that could not be played: the model is down, the others are not tried
POLL = 0.2  # seconds between two looks at a turn that another process takes
ABANDONED = timedelta(minutes=1)  # past its lease: a worker, if there is one, would have taken the turn up

Progress = Callable[[int, int], None]


class NotPlayed(Exception):
    """A line could not be played. Its text says why."""


def play(
    *,
    agent: Agent,
    situations: Sequence[Situation],
    actor_model: str = "",
    repeats: int = 1,
    name: str = "",
    progress: Progress | None = None,
    reuse: bool = False,
) -> Play:
    """Play an agent through situations, and wait for it.

    What an interrupted play said stands; the same call goes on with the lines that are missing and with those whose turn failed. It does so
    for 24 hours, and as long as no evaluation of the play has been completed; after that the agent is played anew. A line is never said
    twice in a play, nor answered twice.

    No stage of the pipeline takes part but those marked `required`, and nothing of a play is remembered.

    Args:
        agent: Who is played; active.
        situations: What happens to it, see `load_situations`.
        actor_model: The model that acts; default the agent's own, else `ACTOR_MODEL`.
        repeats: How often each situation is played, 1 to 20.
        name: Tells apart plays that are otherwise the same.
        progress: Called with the number of lines played (or given up) so far and that of all lines.
        reuse: Take the newest play of the same, whatever its age and though it was measured, and only add what it lacks.

    Raises:
        ValueError: No situation, or repeats out of range.
    """
    if not situations:
        raise ValueError("no situation to play; allowed: at least 1")
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats {repeats}: 1 to {MOST_REPEATS}")
    with sentry_sdk.start_span(op="evaluation.play", name="play situations") as span:
        span.set_data("agent", agent.pk)
        stage = set_stage(
            agent=agent,
            situations=tuple(situations),
            actor_model=actor_of(agent, actor_model),
            repeats=repeats,
            name=name,
            reuse=reuse,
        )
        span.set_data("play", stage.id)
        conversations = _play_all(stage, progress or (lambda done, total: None))
    spoken = Message.objects.filter(channel__in=[s.channel.pk for s in stage.scenes], agent=agent, synthetic=True)
    return Play(
        id=stage.id,
        agent=agent,
        actor_model=stage.actor_model,
        persona_digest=stage.persona_digest,
        conversations=tuple(conversations),
        messages=spoken.filter(text__regex=r"\S").count(),
        taken_up=stage.found,
    )


def _play_all(stage: Stage, progress: Progress) -> list[Conversation]:
    total, done, failed = sum(len(scene.situation.lines) for scene in stage.scenes), 0, 0
    conversations: list[Conversation] = []
    for scene in stage.scenes:
        if failed >= GIVE_UP_AFTER:
            reason = f"not tried after {failed} in a row had failed"
            left = _conversation(scene, _silences(stage, scene), reason)
            conversations.append(left if left.complete else replace(left, tried=False))
        else:
            conversations.append(_play_scene(stage, scene, partial(_count_on, progress, done, total)))
            failed = 0 if conversations[-1].complete else failed + 1
        done += len(scene.situation.lines)
        progress(done, total)
    return conversations


def _count_on(progress: Progress, before: int, total: int, lines: int) -> None:
    progress(before + lines, total)


def _play_scene(stage: Stage, scene: Scene, progress: Callable[[int], None]) -> Conversation:
    silences = _silences(stage, scene)
    try:
        for turn in range(len(silences) + 1, len(scene.situation.lines) + 1):
            if current_digest(Agent.objects.get(pk=stage.agent.pk)) != stage.persona_digest:
                raise NotPlayed("the persona was changed meanwhile")
            if over := why_over_budget(stage.agent, stage.actor_model):
                raise NotPlayed(over)
            silences.append(_play_line(stage, scene, turn))
            if turn < len(scene.situation.lines):  # of the last one the caller tells
                progress(turn)
    except (NotPlayed, TurnRefused, SendRefused) as error:
        return _conversation(scene, silences, str(error))
    return _conversation(scene, silences)


def _conversation(scene: Scene, silences: Sequence[str | None], reason: str = "") -> Conversation:
    kept = [why for why in silences if why is not None]
    complete = len(silences) == len(scene.situation.lines)
    return Conversation(
        situation=scene.situation.id,
        repeat=scene.repeat,
        channel=scene.channel.slug,
        lines=len(scene.situation.lines),
        played=len(silences),
        silent=len(kept),
        silence=kept[0] if kept else "",
        reason="" if complete else reason,
    )


def _silences(stage: Stage, scene: Scene) -> list[str | None]:
    """Per line that was played before: None where the agent answered, else why it did not."""
    found: list[str | None] = []
    for turn in range(1, len(scene.situation.lines) + 1):
        run = _turns(scene, turn).last()
        if run is None or not _played(run):
            break
        found.append(_silence(run))
    return found


def _turns(scene: Scene, turn: int) -> QuerySet[Run]:
    """The turns in which the agent answered a line, or tried to."""
    key = f"{_key(scene, turn)}:"
    return Run.objects.filter(channel=scene.channel, idempotency_key__startswith=key).order_by("pk")


def _key(scene: Scene, turn: int) -> str:
    return f"play:{scene.channel.pk}:{turn}"


def _played(run: Run) -> bool:
    """Whether the turn counts: it ended by itself, or it failed after something had been said."""
    return run.status == Run.Status.COMPLETED or (run.status in Run.FINAL and run.messages.exists())


def _play_line(stage: Stage, scene: Scene, turn: int) -> str | None:
    """Say a line and have the agent answer it.

    Returns:
        Why it said nothing; None when it answered.

    Raises:
        NotPlayed: The turn failed.
    """
    said = receive_message(
        channel=scene.channel,
        outsider=scene.situation.speaker,
        text=scene.situation.lines[turn - 1],
        idempotency_key=_key(scene, turn),
        tags=scene.tags(turn),
    )
    earlier = list(_turns(scene, turn))
    if earlier and _played(earlier[-1]):  # meanwhile, by another process that plays the same
        return _silence(earlier[-1])
    attempt = len(earlier) + (not earlier or earlier[-1].status in Run.FINAL)  # one that did not end is gone on with
    overrides = {
        "stages": [],
        "model": stage.actor_model,
        "tags": scene.tags(turn),
        "scene": scene.first + turn - 1,
    }
    run = start_turn(
        agent=stage.agent,
        channel=scene.channel,
        trigger=said,
        overrides=overrides,
        idempotency_key=f"{_key(scene, turn)}:{attempt}",
    )
    run = _taken(run)
    if not _played(run):
        raise NotPlayed(run.error or f"the turn ended {run.status}")
    return _silence(run)


def _taken(run: Run) -> Run:
    """Take the turn here, or wait for the worker that was faster, or until the agent's present turn has ended.

    Raises:
        NotPlayed: The agent's present turn will not end: who took it is gone, and no worker takes it up.
    """
    owner = owner_name()
    while True:
        try:
            run = run_turn(run, owner=owner)
        except Exception:
            logger.exception("turn %s of agent %s crashed in a play", run.pk, run.agent_id)
            run.refresh_from_db()
        if run.status in Run.FINAL:
            return run
        if lost := _lost_turn(run):
            raise NotPlayed(
                f"turn {lost.pk} of {run.agent.slug} was left unfinished and holds it; manage.py work ends it"
            )
        time.sleep(POLL)


def _lost_turn(run: Run) -> Run | None:
    """Another turn that the agent of `run` is held by, although whoever took it gave no sign of life for longer than a worker waits."""
    others = Run.objects.filter(agent=run.agent_id, status=Run.Status.RUNNING).exclude(pk=run.pk)
    found: Run | None = others.filter(lease_expires_at__lt=timezone.now() - ABANDONED).first()
    return found


def _silence(run: Run) -> str | None:
    """Why a turn ended without a word; None when something was said."""
    if run.messages.exists():
        return None
    reasons = RunStep.objects.filter(run=run, kind="tool_call").order_by("-number").values_list("detail", flat=True)
    chosen = next((str(detail["reason"]) for detail in reasons if detail.get("reason")), "")
    return chosen or run.error or "it ended its turn without saying anything"
