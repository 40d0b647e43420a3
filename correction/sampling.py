"""Sample conversations: at the door, before anything of them is stored, and of those stored the ones that are observed.

A conversation is kept or left out as a whole, by a hash of its channel's slug: every machine decides alike, also when it comes again. What
is kept stands for 1 ÷ its chance in means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from django.db.models import F, Q
from django.utils import timezone

from agents.models import Agent, Channel
from agents.transcripts.sampling import Draw, conversation_fraction
from correction.config.settings import (
    AgentEvaluationConfig,
    IngestKeep,
    ResolvedConfig,
    resolve_all,
    resolve_defaults,
)
from correction.models.sampling import SampledDay

KEEPING = "keep"
OBSERVING = "observe"
UNSEEN = 0.5  # conversations that a day without any kept one counts as: fewer than one was expected


def find_sampler() -> Sampler | None:
    """Return what draws new conversations; None where no configuration samples them."""
    sampling = AgentEvaluationConfig.objects.filter(ingest_keep__in=[IngestKeep.RATE, IngestKeep.QUOTA])
    return Sampler() if sampling.exists() else None


def is_observed(slug: str, rate: Decimal | float) -> bool:
    """Return whether a conversation belongs to the share (0 to 1) that is observed: always the same answer for the same conversation."""
    return conversation_fraction(slug, OBSERVING) < rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    """The chance of a new conversation of an agent to be kept.

    Attributes:
        value: Above 0 to 1.
        why: The setting it comes from, for people; empty where all are kept.
        day: The row of a quota, whose conversations are counted.
    """

    value: float
    why: str = ""
    day: SampledDay | None = None


class Sampler:
    """Draws the new conversations of one batch.

    Of a conversation with several agents the largest of their rates decides; where none has spoken yet it is that of the defaults.
    """

    def __init__(self) -> None:
        self._days: dict[str, list[SampledDay]] = {}  # by slug of a kept conversation: the rows that count it
        self._draws: dict[str, Draw] = {}

    def draw(self, agents_by_slug: Mapping[str, Collection[int]]) -> Mapping[str, Draw]:
        """Return by slug what is decided of the conversations that are not stored yet and are not surely kept."""
        stored = set(Channel.objects.filter(slug__in=agents_by_slug).values_list("slug", flat=True))
        new: dict[str, Sequence[int | None]] = {}
        for slug, agents in agents_by_slug.items():
            if slug not in stored:
                new[slug] = sorted(agents) or [None]
        rates = _rates({agent for speaking in new.values() for agent in speaking}, today=timezone.now().date())
        for slug, speaking in new.items():
            rates_of_conversation = [rates[agent] for agent in speaking]
            largest = max(rates_of_conversation, key=lambda rate: rate.value)
            if not largest.why:
                continue
            is_kept = conversation_fraction(slug, KEEPING) < largest.value
            self._draws[slug] = Draw(kept=is_kept, probability=largest.value, why=largest.why)
            self._days[slug] = [rate.day for rate in rates_of_conversation if rate.day is not None]
        return self._draws

    def count_begun(self, slugs: Collection[str]) -> None:
        """Count the conversations that begin, in the rows of their agents' days."""
        kept: dict[int, int] = {}
        seen: dict[int, float] = {}
        for slug in slugs:
            for day in self._days.get(slug, ()):
                kept[day.pk] = kept.get(day.pk, 0) + 1
                seen[day.pk] = seen.get(day.pk, 0.0) + 1 / self._draws[slug].probability
        for pk in sorted(kept):  # in one order everywhere, so that two transactions do not wait for each other
            SampledDay.objects.filter(pk=pk).update(kept=F("kept") + kept[pk], seen=F("seen") + seen[pk])


def _rates(agents: Collection[int | None], *, today: date) -> dict[int | None, _Rate]:
    """Return the rate of each agent (pk), and of None: of conversations in which no agent spoke yet."""
    configs: dict[int | None, ResolvedConfig] = {}
    names: dict[int | None, str] = {None: "the defaults"}
    keys = [agent for agent in agents if agent is not None]
    if keys:
        rows = Agent.objects.filter(pk__in=keys).select_related("evaluation_config").order_by("pk")
        for agent, config in resolve_all(rows):
            configs[agent.pk] = config
            names[agent.pk] = agent.slug
    if None in agents:
        configs[None] = resolve_defaults()
    by_quota = {key: config for key, config in configs.items() if config["ingest_keep"] == IngestKeep.QUOTA}
    days = _days(by_quota, today=today) if by_quota else {}
    rates: dict[int | None, _Rate] = {}
    for key, config in configs.items():
        if config["ingest_keep"] == IngestKeep.RATE:
            why = f"ingest_keep of {names[key]} is rate: {config.show('ingest_rate')}"
            rates[key] = _Rate(value=float(config["ingest_rate"]), why=why)
        elif key in days:
            day = days[key]
            why = f"ingest_keep of {names[key]} is quota: {config.show('ingest_quota')} a day, today's rate {day.rate:.3g}"
            rates[key] = _Rate(value=day.rate, why=why, day=day)
        else:
            rates[key] = _Rate(value=1.0)
    return rates


def _days(configs: Mapping[int | None, ResolvedConfig], *, today: date) -> dict[int | None, SampledDay]:
    """Return today's row of each of these agents, made where this is the first conversation of its day.

    Of processes that make one at once the first fixes the rate, and the others read it.
    """
    days = _stored_days(configs, since=today)
    missing = {agent: config for agent, config in configs.items() if agent not in days}
    if not missing:
        return days
    days_before = _stored_days(missing, since=today - timedelta(days=1))
    made = []
    for agent in sorted(missing, key=lambda agent: agent or 0):
        rate = _rate_of_day(missing[agent], days_before.get(agent))
        made.append(SampledDay(agent_id=agent, day=today, rate=rate))
    SampledDay.objects.bulk_create(made, ignore_conflicts=True)
    return days | _stored_days(missing, since=today)


def _stored_days(agents: Collection[int | None], *, since: date) -> dict[int | None, SampledDay]:
    """Return the newest row of each of these agents that is not older than this day."""
    keys = [agent for agent in agents if agent is not None]
    whose = Q(agent__in=keys)
    if None in agents:
        whose |= Q(agent__isnull=True)
    rows = SampledDay.objects.filter(whose, day__gte=since).order_by("day")
    return {row.agent_id: row for row in rows}


def _rate_of_day(config: ResolvedConfig, day_before: SampledDay | None) -> float:
    """Return the rate of a day: the quota ÷ the conversations of the day before, at most 1; `ingest_rate` where there is no such day."""
    if day_before is None:
        return float(config["ingest_rate"])
    seen = max(day_before.seen, UNSEEN / day_before.rate)
    quota: int = config["ingest_quota"]
    return min(1.0, quota / seen)
