"""The channels a play is played in: found again when it was begun before, made when it was not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from agents.models import Agent, Channel, ChannelMember
from agents.persona import current_digest
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.rehearsal.situations import Situation, situations_digest
from evaluation.run_spec import PLAY

RESUMABLE_FOR = timedelta(hours=24)
SITUATION, REPEAT, TURN = "situation", "repeat", "turn"  # tags of channels and messages, beside the play's


@dataclass(frozen=True, slots=True)
class Scene:
    """A situation and repeat, its channel, and which line of the whole play its first one is (from 0)."""

    situation: Situation
    repeat: int
    channel: Channel
    first: int

    def tags(self, turn: int) -> dict[str, str]:
        """Tags of what is said about its line `turn` (from 1)."""
        return {**tags_of(self.channel), TURN: str(turn)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything about a play before anything is said."""

    id: str
    agent: Agent
    actor_model: str
    persona_digest: str
    scenes: tuple[Scene, ...]
    found: bool


def actor_of(agent: Agent, actor_model: str = "") -> str:
    """The model that plays an agent, unless another one is asked for."""
    return actor_model or agent.model_id or str(settings.ACTOR_MODEL)


def set_stage(
    *,
    agent: Agent,
    situations: Sequence[Situation],
    actor_model: str,
    repeats: int,
    name: str,
    reuse: bool,
) -> Stage:
    """The stage of an earlier play of the same that is not done with, else a new one.

    An earlier play is done with when a completed evaluation measured it, or when it is 24 hours old; with `reuse` a play that was played to
    its end is never done with.
    """
    persona = current_digest(agent)
    parts = [agent.pk, persona, situations_digest(situations), actor_model, repeats, name]
    if is_heuristic(actor_model):  # the scripted actor says its sample lines, which are no part of the persona
        parts.append(agent.sample_lines)
    same = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    prefix = f"{agent.slug[:40]}-talk-{same}-"
    with transaction.atomic():
        # Two processes that start at once must find each other's play: SQLite lets one writer in, PostgreSQL locks the agent
        # (not its key: what it says elsewhere refers to that, and does not wait).
        Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
        newest = _newest_number(prefix)
        found = bool(newest) and _goes_on(f"{same}-{newest}", prefix=f"{prefix}{newest}-", reuse=reuse)
        number = newest if found else newest + 1
        channels = _channels(agent, situations, repeats, f"{same}-{number}", f"{prefix}{number}-")
    return Stage(
        id=f"{same}-{number}",
        agent=agent,
        actor_model=actor_model,
        persona_digest=persona,
        scenes=tuple(_scenes(situations, channels)),
        found=found,
    )


def tags_of(channel: Channel) -> dict[str, str]:
    return {key: channel.tags[key] for key in (PLAY, SITUATION, REPEAT)}


def _newest_number(prefix: str) -> int:
    slugs = Channel.objects.filter(slug__startswith=prefix, synthetic=True).values_list("slug", flat=True)
    numbers = (slug.removeprefix(prefix).partition("-")[0] for slug in slugs)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _goes_on(play: str, *, prefix: str, reuse: bool) -> bool:
    """Whether the newest play of the same is gone on with."""
    channels = Channel.objects.filter(slug__startswith=prefix, synthetic=True)
    begun = channels.aggregate(latest=Max("created_at"))["latest"]
    if reuse:
        return True
    measured = EvaluationRun.objects.filter(played=True, where__play=play, status=EvaluationRun.Status.COMPLETED)
    return begun is not None and begun >= timezone.now() - RESUMABLE_FOR and not measured.exists()


def _channels(
    agent: Agent, situations: Sequence[Situation], repeats: int, play: str, prefix: str
) -> dict[tuple[str, int], Channel]:
    """The play's channels by situation and repeat; those missing are made.

    Slug and name are shown to the agent, so they tell it nothing about what comes.
    """
    known = {channel.slug: channel for channel in Channel.objects.filter(slug__startswith=prefix, synthetic=True)}
    found = {}
    for repeat in range(1, repeats + 1):
        for number, situation in enumerate(situations, 1):
            slug = f"{prefix}{number:02}-{repeat}"
            tags = {PLAY: play, SITUATION: situation.id, REPEAT: str(repeat)}
            name = f"{agent.display_name} and {situation.speaker}"
            new = Channel(slug=slug, name=name[:200], kind="private", synthetic=True, tags=tags)
            found[situation.id, repeat] = known.get(slug, new)
    Channel.objects.bulk_create([channel for channel in found.values() if channel.pk is None])
    members = [ChannelMember(channel=channel, agent=agent) for channel in found.values()]
    ChannelMember.objects.bulk_create(members, ignore_conflicts=True)
    return found


def _scenes(situations: Sequence[Situation], channels: dict[tuple[str, int], Channel]) -> Iterable[Scene]:
    by_id = {situation.id: situation for situation in situations}
    first = 0
    for (name, repeat), channel in channels.items():
        yield Scene(by_id[name], repeat, channel, first)
        first += len(by_id[name].lines)
