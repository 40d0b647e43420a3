"""Sample conversations: at the door, before anything of them is stored, and of those stored the ones that are observed.

A conversation is kept or left out as a whole, by a hash of its channel's slug: every machine decides alike, also when it comes again. What
is kept stands for 1 ÷ its chance in means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.db.models import F, OuterRef, Q, Subquery
from django.utils import timezone

from agents.models import Agent, Channel, ChannelMember, Message
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
SAMPLING = (IngestKeep.RATE, IngestKeep.QUOTA)
# Conversations that a day without any kept one counts as: fewer than one was expected.
LEAST_SEEN = 0.5


def find_sampler() -> Sampler | None:
    """Return what draws new conversations; None where no configuration samples them."""
    sampling = AgentEvaluationConfig.objects.filter(ingest_keep__in=SAMPLING)
    return Sampler() if sampling.exists() else None


def is_observed(slug: str, rate: Decimal | float) -> bool:
    """Return whether a conversation belongs to the share (0 to 1) that is observed: always the same answer for the same conversation."""
    return conversation_fraction(slug, OBSERVING) < rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    """The chance of a new conversation of an agent to be kept.

    Attributes:
        value: Above 0 to 1.
        setting: The setting it comes from, for people; empty where all are kept.
        day: The row of a quota, whose conversations are counted.
    """

    value: float
    setting: str = ""
    day: SampledDay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredChannel:
    """What is known of a channel that is stored already.

    Attributes:
        probability: The chance with which it was kept, above 0 to 1.
        is_heard_today: Whether a message of it was stored today (UTC).
        members: Its member agents (pk): those who have spoken in it.
    """

    probability: float
    is_heard_today: bool
    members: set[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """A conversation that counts once in an agent's day.

    Attributes:
        day: The row of the agent's quota.
        begins: Whether the agent speaks in it for the first time.
    """

    day: SampledDay
    begins: bool


class Sampler:
    """Draws the conversations of one batch.

    Of a conversation with several agents the largest of their rates decides.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[_Count]] = {}  # by slug of a kept conversation
        self._draws: dict[str, Draw] = {}
        self._new: set[str] = set()

    def draw(self, agents_by_slug: Mapping[str, Collection[int]]) -> Mapping[str, Draw]:
        """Return by slug what is decided of the conversations that some setting samples; a stored one is kept.

        The probability of a stored one is that of its first draw, or today's where that is larger: with today's it would have begun now.
        """
        now = timezone.now()
        stored = _stored_channels(agents_by_slug, today=now.date())
        self._new = set(agents_by_slug) - set(stored)
        counted: dict[str, dict[int | None, bool]] = {}
        keys: set[int | None] = set()
        for slug, agents in agents_by_slug.items():
            counted[slug] = _agents_to_count(agents, stored.get(slug))
            keys.update(_speaking(agents))
            keys.update(counted[slug])
        rates = _rates(keys, today=now.date())
        for slug, agents in agents_by_slug.items():
            largest = max((rates[agent] for agent in _speaking(agents)), key=lambda rate: rate.value)
            if not largest.setting:
                continue
            self._draws[slug] = _draw(slug, largest, stored.get(slug))
            self._counts[slug] = []
            for agent, begins in counted[slug].items():
                day = rates[agent].day
                if day is not None:
                    self._counts[slug].append(_Count(day=day, begins=begins))
        return self._draws

    def count_kept(self, slugs: Collection[str], *, begun: Collection[str]) -> None:
        """Count kept conversations in the rows of their agents' days, each once a day.

        Args:
            slugs: Those that have new messages.
            begun: Those of them that begin with these. Another that was new when it was drawn was begun, and counted, by another process.
        """
        kept: dict[int, int] = {}
        seen: dict[int, float] = {}
        for slug in slugs:
            if slug in self._new and slug not in begun:
                continue
            for count in self._counts.get(slug, ()):
                pk = count.day.pk
                kept[pk] = kept.get(pk, 0) + count.begins
                seen[pk] = seen.get(pk, 0.0) + 1 / self._draws[slug].probability
        for pk in sorted(kept):  # in one order everywhere, so that two transactions do not wait for each other
            SampledDay.objects.filter(pk=pk).update(kept=F("kept") + kept[pk], seen=F("seen") + seen[pk])


def _speaking(agents: Collection[int]) -> list[int | None]:
    """Return these agents (pk) in their order; None alone where no agent speaks."""
    if not agents:
        return [None]
    return [*sorted(agents)]


def _draw(slug: str, rate: _Rate, stored: _StoredChannel | None) -> Draw:
    """Decide about a conversation by the rate that holds for it."""
    if stored is not None:
        return Draw(kept=True, probability=max(stored.probability, rate.value), setting=rate.setting)
    is_kept = conversation_fraction(slug, KEEPING) < rate.value
    return Draw(kept=is_kept, probability=rate.value, setting=rate.setting)


def _stored_channels(slugs: Iterable[str], *, today: date) -> dict[str, _StoredChannel]:
    """Return, by slug, those of these channels that are stored."""
    midnight = datetime(today.year, today.month, today.day, tzinfo=UTC)
    latest = Message.objects.filter(channel=OuterRef("pk")).order_by("-position").values("created_at")[:1]
    channels = Channel.objects.filter(slug__in=slugs).annotate(heard_at=Subquery(latest))
    stored: dict[str, _StoredChannel] = {}
    for slug, probability, heard_at in channels.values_list("slug", "inclusion_probability", "heard_at"):
        is_heard_today = heard_at is not None and heard_at >= midnight
        stored[slug] = _StoredChannel(probability=probability, is_heard_today=is_heard_today, members=set())
    if stored:
        members = ChannelMember.objects.filter(channel__slug__in=stored, agent__isnull=False)
        for slug, agent in members.values_list("channel__slug", "agent_id"):
            stored[slug].members.add(agent)
    return stored


def _agents_to_count(speaking: Collection[int], stored: _StoredChannel | None) -> dict[int | None, bool]:
    """Return the agents (pk; None: no agent) in whose day a conversation counts now, each with whether it begins to speak in it.

    A conversation counts once a day in the day of each of its agents: with its first message of the day, and where an agent joins.
    """
    if stored is None:
        return dict.fromkeys(_speaking(speaking), True)
    counted: dict[int | None, bool] = {}
    if not stored.is_heard_today:
        counted.update(dict.fromkeys(_speaking(stored.members), False))
    for agent in sorted(speaking):
        if agent not in stored.members:
            counted[agent] = True
    return counted


def _rates(agents: Collection[int | None], *, today: date) -> dict[int | None, _Rate]:
    """Return the rate of each agent (pk), and of None: of conversations in which no agent spoke yet.

    Where the defaults do not set `ingest_keep`, the latter is the smallest rate of any agent: a larger one would let what an agent's rate
    left out begin in its middle, with the next message of a person.
    """
    configs: dict[int | None, ResolvedConfig] = {}
    names: dict[int | None, str] = {None: "the defaults"}
    condition = Q(pk__in=[agent for agent in agents if agent is not None])
    takes_smallest = False
    if None in agents:
        defaults = resolve_defaults()
        takes_smallest = defaults.provenance["ingest_keep"] != "defaults"
        if takes_smallest:
            condition |= Q(is_active=True, evaluation_config__ingest_keep__in=SAMPLING)
        else:
            configs[None] = defaults
    rows = Agent.objects.filter(condition).select_related("evaluation_config").order_by("pk")
    for agent, config in resolve_all(rows):
        configs[agent.pk] = config
        names[agent.pk] = agent.slug
    by_quota = {key: config for key, config in configs.items() if config["ingest_keep"] == IngestKeep.QUOTA}
    days = _days(by_quota, today=today) if by_quota else {}
    rates: dict[int | None, _Rate] = {}
    for key, config in configs.items():
        rates[key] = _rate(config, days.get(key), name=names[key])
    if takes_smallest:
        rates[None] = _smallest(rates.values())
    return rates


def _rate(config: ResolvedConfig, day: SampledDay | None, *, name: str) -> _Rate:
    """Return the rate that holds now by an agent's configuration and, for a quota, the row of its day."""
    if config["ingest_keep"] == IngestKeep.RATE:
        setting = f"ingest_keep of {name} is rate: {config.show('ingest_rate')}"
        return _Rate(value=float(config["ingest_rate"]), setting=setting)
    if day is None:
        return _Rate(value=1.0)
    rate = _rate_now(day, quota=config["ingest_quota"])
    setting = f"ingest_keep of {name} is quota: {config.show('ingest_quota')} a day, today's rate {rate:.3g}"
    return _Rate(value=rate, setting=setting, day=day)


def _smallest(rates: Iterable[_Rate]) -> _Rate:
    """Return the smallest of the rates that some setting gives, for conversations of no agent; all are kept where there is none."""
    sampled = [rate for rate in rates if rate.setting]
    if not sampled:
        return _Rate(value=1.0)
    smallest = min(sampled, key=lambda rate: rate.value)
    return _Rate(value=smallest.value, setting=f"no agent speaks, and the smallest rate decides: {smallest.setting}")


def _rate_now(day: SampledDay, *, quota: int) -> float:
    """Return the rate of a day, halved when twice, four times, eight times … the quota has begun: a flood is not stored."""
    halvings = max(0, (day.kept // quota).bit_length() - 1)
    return day.rate * 0.5**halvings


def _days(configs: Mapping[int | None, ResolvedConfig], *, today: date) -> dict[int | None, SampledDay]:
    """Return today's row of each of these agents, made where this is the first conversation of its day.

    Of processes that make one at once the first fixes the rate, and the others read it.
    """
    days = {row.agent_id: row for row in _stored_days(configs, first=today, last=today)}
    missing = {agent: config for agent, config in configs.items() if agent not in days}
    if not missing:
        return days
    days_before: dict[int | None, list[SampledDay]] = {}
    for row in _stored_days(missing, first=today - SampledDay.LOOKED_AT, last=today - timedelta(days=1)):
        days_before.setdefault(row.agent_id, []).append(row)
    new_days = []
    for agent in sorted(missing, key=lambda agent: agent or 0):
        rate = _rate_of_day(missing[agent], days_before.get(agent, ()))
        new_days.append(SampledDay(agent_id=agent, day=today, rate=rate))
    SampledDay.objects.bulk_create(new_days, ignore_conflicts=True)
    return days | {row.agent_id: row for row in _stored_days(missing, first=today, last=today)}


def _stored_days(agents: Collection[int | None], *, first: date, last: date) -> list[SampledDay]:
    """Return the rows of these agents from the first to the last of these days."""
    condition = Q(agent__in=[agent for agent in agents if agent is not None])
    if None in agents:
        condition |= Q(agent__isnull=True)
    return list(SampledDay.objects.filter(condition, day__gte=first, day__lte=last))


def _rate_of_day(config: ResolvedConfig, days_before: Sequence[SampledDay]) -> float:
    """Return the rate of a day: the quota ÷ the conversations of the fullest day before, at most 1; `ingest_rate` where there is none.

    The fullest of a week, so that after a quiet Sunday a Monday does not keep everything.
    """
    if not days_before:
        return float(config["ingest_rate"])
    expected = max(max(day.seen, LEAST_SEEN / day.rate) for day in days_before)
    quota: int = config["ingest_quota"]
    return min(1.0, quota / expected)
