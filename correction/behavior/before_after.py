"""Judge one trait on an agent's last messages before a moment and on the next ones after it: did the behaviour change?

The claim is that a message shows the trait, however strong it is to be, and the judge is not shown the persona: so that both samples are
judged by the same question, and the judge does not know what to expect: the message that asked for the change is not shown either.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.db.models import F, OuterRef, Q, Subquery

from agents.kit.llm import Label, estimate_tokens, ledger
from agents.kit.llm.ledger import Totals
from agents.kit.llm.providers import is_remote
from agents.kit.text.fences import new_nonce
from agents.models import Agent, Message
from agents.personas.persona import TraitLike
from evaluation.budget import why_over_budget
from evaluation.change.change import ChangeResult, Sample, change_of, mean_of
from evaluation.dimensions import OF_PERSONA
from evaluation.judge.asking import ask_all
from evaluation.judge.questions import Question, build_request
from evaluation.judge.verdicts import Verdict, unscored
from evaluation.propositions.traits import presence
from evaluation.runs.planning import OUTPUT_TOKENS_PER_CLAIM
from evaluation.scorers.context import Context, Event, Window
from evaluation.scorers.reading import PlainMessage, read_plain_messages
from evaluation.scorers.subjects import event_of
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import MARGIN

PURPOSE = "before_after"
ALL_MESSAGES = Q()
READ_PER_WANTED = 3  # messages read for each that is wanted: some are blank, some belong to the other sample
MESSAGES_OF_CONTEXT = 2  # messages shown before the one judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When a persona was changed (`at`), by the persona version number `version` (None: it was not stored).

    `since`: when what it changed was changed the time before (None: never); `until`: when that was changed again (None: it holds).
    """

    at: datetime
    since: datetime | None = None
    until: datetime | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class MessageVerdict:
    """A message with the judge's verdict."""

    message: Message
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The messages that would be judged, and the cost.

    Attributes:
        wanted: Messages wanted before and after.
        before, after: Those there are, oldest first.
        unseen: Keys of messages that the judge is not shown.
        calls, input_tokens, output_tokens: What judging them would take; nothing for a judge on this machine.
        cost_usd: US dollars; None when unpriced.
    """

    agent: Agent
    trait: TraitLike
    judge: str
    wanted: int
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    unseen: frozenset[int] = field(default=frozenset())

    @property
    def waits(self) -> str:
        """Return what is missing, e.g. ``not yet: 3 of 10 messages since``; empty when it can be judged in full."""
        if len(self.after) < self.wanted:
            return f"not yet: {len(self.after)} of {self.wanted} messages since"
        return "" if self.before else "the agent said nothing before"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """The scores of a trait, 0 to 9, before and after, and the change of the means.

    Its interval takes messages as independent; neighbours of one conversation are not, so it is too narrow where they are alike.
    """

    plan: Plan
    before: tuple[MessageVerdict, ...]
    after: tuple[MessageVerdict, ...]
    change: ChangeResult
    spent: Totals

    @property
    def verdict(self) -> str:
        """``more``, ``less``, ``no change shown`` (the interval holds zero), or ``not enough data``."""
        interval = self.change.interval
        if interval is None:
            return "not enough data"
        if interval.low > 0:
            return "more"
        return "less" if interval.high < 0 else "no change shown"

    @property
    def reason(self) -> str:
        """Return why there is no difference, or no interval of it; empty when there is."""
        return "" if self.change.interval else self.change.reason


def plan_before_after(
    *,
    agent: Agent,
    trait: TraitLike,
    moments: Moments,
    n: int,
    model: str = "",
    unseen: Collection[int] = (),
    within: Q = ALL_MESSAGES,
) -> Plan:
    """Return what judging the last `n` messages before a change and the first `n` after it would take. Asks no model.

    A judge that answers in this process costs nothing: calls and tokens are 0 then.

    Args:
        agent: Whose messages: what it really said, nothing that was simulated.
        trait: What to look for.
        moments: The change, and what limits the messages before and after it.
        model: Overrides the configured judge; empty: that one.
        unseen: Keys of messages that the judge is not shown, such as the one that asked for the change.
        within: Which of the agent's messages count, such as those of one channel.
    """
    judge = model or str(settings.JUDGE_MODEL)
    before, after = samples(agent, moments, n, within)
    tokens: list[int] = []  # of each paid call
    if is_remote(judge):
        questions = _questions(agent, trait, (*before, *after), judge, Label(purpose="estimate"), unseen)
        tokens = [estimate_tokens(build_request(question)) for question in questions]
    return Plan(
        agent=agent,
        trait=trait,
        judge=judge,
        wanted=n,
        before=before,
        after=after,
        calls=len(tokens),
        input_tokens=sum(tokens),
        output_tokens=len(tokens) * OUTPUT_TOKENS_PER_CLAIM,
        cost_usd=_estimated_cost(judge, tokens),
        unseen=frozenset(unseen),
    )


def _estimated_cost(judge: str, input_tokens: Sequence[int]) -> Decimal | None:
    """Return what calls with so many tokens would cost, in US dollars; None where one has no price."""
    return ledger.sum_if_all_priced(ledger.estimate_cost(judge, sent, OUTPUT_TOKENS_PER_CLAIM) for sent in input_tokens)


def judge_before_after(
    plan: Plan, *, work_id: str = "", done: Callable[[int], None] = lambda judged: None
) -> BeforeAfter:
    """Judge what was planned, also when fewer messages than wanted were said since; every call has its row in the ledger.

    Args:
        work_id: Of the ledger rows; default one of its own.
        done: Called with the number of messages just judged.

    Returns:
        No difference without a score in each sample, no interval with fewer than two in one. Where a sample has no message, or the
        budget is spent, nothing is judged, and the change's `reason` says why.
    """
    work_id = work_id or f"{PURPOSE}:{secrets.token_hex(8)}"
    before: tuple[MessageVerdict, ...] = ()
    after: tuple[MessageVerdict, ...] = ()
    why_not = _why_not_judged(plan)
    if not why_not:
        label = Label(purpose=PURPOSE, dimension=OF_PERSONA, agent_id=plan.agent.pk, work_id=work_id)
        verdicts = _ask_judge(plan, label, done)
        before = tuple(MessageVerdict(message, verdicts[message.pk]) for message in plan.before)
        after = tuple(MessageVerdict(message, verdicts[message.pk]) for message in plan.after)
    change = change_of(_scores_of_sample(before), _scores_of_sample(after), dimension=OF_PERSONA, margin=MARGIN)
    if why_not:
        change = change.model_copy(update={"reason": why_not})
    return BeforeAfter(plan=plan, before=before, after=after, change=change, spent=ledger.totals(work_id=work_id))


def _why_not_judged(plan: Plan) -> str:
    """Return why nothing is judged: a sample is empty, or the budget is spent; else empty."""
    if not plan.before or not plan.after:
        return plan.waits or "there is nothing to judge"
    return why_over_budget(plan.agent, plan.judge) or ""


def _ask_judge(plan: Plan, label: Label, done: Callable[[int], None]) -> dict[int, Verdict]:
    """Ask the judge about each message of a plan; return the verdicts by the message's key."""
    messages = (*plan.before, *plan.after)
    verdicts = {message.pk: unscored("not judged") for message in messages}
    for answered in ask_all(_questions(plan.agent, plan.trait, messages, plan.judge, label, plan.unseen)):
        verdicts[answered.question.items[0]] = answered.verdicts[0]
        done(1)
    return verdicts


def _questions(
    agent: Agent, trait: TraitLike, messages: Sequence[Message], judge: str, label: Label, unseen: Collection[int]
) -> Iterator[Question]:
    """Yield the question of each message: does it show the trait? The judge is shown up to two messages before it, none of `unseen`."""
    proposition = presence(trait)
    nonce = new_nonce()
    contexts = messages_before(agent, messages, unseen)
    for message in messages:
        context = Context(
            agent_name=agent.display_name,
            window=Window(contexts[message.pk], 0, ()),
            message=Event("action", agent.display_name, message.text),
            channel_name=str(message.channel),
        )
        yield Question(
            propositions=(proposition,),
            context=context,
            label=label,
            model=judge,
            nonce=nonce,
            window_shown_once=True,
            items=(message.pk,),
        )


def _scores_of_sample(verdicts: Iterable[MessageVerdict]) -> Sample:
    """Return the scores of a sample; what was not scored is in no mean.

    Of conversations that were kept by chance whole ones were drawn, and each weighs as it was likely to be kept.
    """
    scored = [each for each in verdicts if each.verdict.status == "scored" and each.verdict.value is not None]
    is_sampled = any(each.message.channel.inclusion_probability < 1 for each in scored)
    observations = []
    for each in scored:
        cluster = f"message:{each.message.pk}"
        if is_sampled:
            cluster = f"conversation:{each.message.channel_id}"
        weight = each.message.channel.inclusion_weight
        observations.append(Observation(float(each.verdict.value or 0), weight, cluster))
    return Sample(score=mean_of(observations), observations=observations)


# -- which messages
def samples(
    agent: Agent, moments: Moments, n: int, within: Q = ALL_MESSAGES
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the agent's last `n` messages before the change and the first `n` after it, oldest first, without blank and simulated ones.

    A message belongs to the persona it was spoken with: the answer of a turn that began before the change belongs before it, also
    where it was sent later. Imported messages have no version and go by their time; those without a time are left out.
    """
    messages = (
        Message.objects.filter(within, agent=agent, synthetic=False).exclude(text="").select_related("channel", "agent")
    )
    messages = messages.annotate(spoken_with=F("persona_version__number"))
    earlier, later = messages.filter(sent_at__lte=moments.at), messages.filter(sent_at__gt=moments.at)
    if moments.since is not None:
        earlier = earlier.filter(sent_at__gt=moments.since)
    if moments.until is not None:
        later = later.filter(sent_at__lte=moments.until)
    newest_first = earlier.order_by("-sent_at", "-pk")[: READ_PER_WANTED * n]
    before = [message for message in newest_first if message.text.strip()]
    before.reverse()
    after: list[Message] = []
    for message in later.order_by("sent_at", "pk")[: READ_PER_WANTED * n]:
        if not message.text.strip():
            continue
        if _spoken_before(moments.version, message.spoken_with):
            before.append(message)
        else:
            after.append(message)
    return tuple(before[-n:]), tuple(after[:n])


def _spoken_before(version: int | None, spoken_with: int | None) -> bool:
    """Return whether a message was spoken with an older version of the persona; not where either is unknown."""
    if version is None or spoken_with is None:
        return False
    return spoken_with < version


# -- the messages before them
def messages_before(
    agent: Agent, messages: Sequence[Message], unseen: Collection[int] = ()
) -> dict[int, tuple[Event, ...]]:
    """Return the last messages before each message in its channel, oldest first, by the message's key; in two queries.

    Args:
        messages: Some hundred at most, of any channels.
        unseen: Keys of messages that are never shown.

    Returns:
        At most two for each, nothing that was simulated; an empty tuple where nothing stood before it.
    """
    real = Message.objects.filter(synthetic=False).exclude(pk__in=unseen)
    earlier = real.filter(channel=OuterRef("channel"), position__lt=OuterRef("position")).order_by("-position")
    columns = {}
    for number in range(MESSAGES_OF_CONTEXT):
        columns[f"before_{number}"] = Subquery(earlier.values("pk")[number : number + 1])
    stored = Message.objects.filter(pk__in=[message.pk for message in messages])
    keys: set[int] = set()
    for row in stored.annotate(**columns).values_list(*columns):
        keys.update(key for key in row if key is not None)
    by_channel: dict[int, list[PlainMessage]] = defaultdict(list)
    for context_message in read_plain_messages(Message.objects.filter(pk__in=keys).order_by("position")):
        by_channel[context_message.channel_id].append(context_message)
    events = {}
    for message in messages:
        rows = [row for row in by_channel[message.channel_id] if row.position < message.position]
        events[message.pk] = tuple(event_of(agent, row) for row in rows[-MESSAGES_OF_CONTEXT:])
    return events
