"""Plan evaluations: store what is asked for as rows to judge, or find the unfinished run to resume."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Q
from django.utils import timezone
from pydantic import BaseModel, ConfigDict

from agents.kit.bulk import insert_values
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.providers import is_remote
from agents.kit.models import LLMCall
from agents.kit.text.fences import one_line
from agents.kit.work.batches import is_waiting
from agents.models import Agent, Channel, Message
from agents.personas.persona import current_digest, render_persona
from evaluation.dimensions import OF_PERSONA, Dimension
from evaluation.judge.identity import prompt_digest
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, ChannelShare, EvaluationRun, EvaluationScore, SwapHalf
from evaluation.propositions.files import LoadedFile, PropositionError, load_all, propositions_for
from evaluation.propositions.schema import Proposition, digest_of_each, fill, propositions_digest
from evaluation.propositions.traits import with_traits
from evaluation.runs.failures import reopen_failed
from evaluation.runs.spec import RunSpec
from evaluation.runs.swaps import choose_swaps, swapped_texts
from evaluation.scorers import SCORERS
from evaluation.scorers.selection import messages_of_agent
from evaluation.scorers.subjects import ChannelSubject, Item, Subject
from evaluation.windows import MessageWindow, parse_history, parse_window

ENOUGH_MESSAGES = 10  # of an agent; for one with fewer, conversations are simulated


def has_little_speech(spec: RunSpec) -> bool:
    """Return whether the agent has fewer than 10 messages. A spec that names tags wants real speech, however little."""
    if spec.agent is None or spec.where or spec.history_where or spec.simulated:
        return False
    messages = messages_of_agent(agent=spec.agent, window=MessageWindow())[:ENOUGH_MESSAGES]
    return len(messages) < ENOUGH_MESSAGES


MOST_CHANNELS = 20  # per agent: those in which it said most
_FIELDS_OF_AGENTS_ALONE = (  # of `RunSpec`; an agent's channels do not share them
    *("agent", "channel", "dimensions", "samples", "simulated", "actor_model", "situations"),
    *("history", "history_where", "position_bins", "few_shot"),
)


class ChannelOfAgent(NamedTuple):
    """The spec of one of an agent's channels, and the number of the agent's messages there."""

    spec: RunSpec
    messages: int


def channel_specs(spec: RunSpec) -> list[ChannelOfAgent]:
    """Return what an agent's evaluation measures in its channels (same window, tags and procedure): the 20 in which it said most.

    The channel with most of its messages comes first. ``last:N`` are then the channel's last N messages. Empty for a channel's spec,
    without channel dimensions, and when speech was simulated, which an agent does alone.
    """
    dimensions = tuple(name for name in spec.dimensions if name in CHANNEL_DIMENSIONS)
    if spec.agent is None or not dimensions or spec.simulated:
        return []
    spoken = messages_of_agent(agent=spec.agent, window=spec.window, where=spec.where)
    counted = spoken.order_by().values_list("channel").annotate(n=Count("pk")).order_by("-n", "channel")
    messages_by_channel = dict(counted[:MOST_CHANNELS])
    channels = Channel.objects.in_bulk(list(messages_by_channel))
    shared = {
        field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in _FIELDS_OF_AGENTS_ALONE
    }
    specs: list[ChannelOfAgent] = []
    for pk, messages in messages_by_channel.items():
        channel_spec = RunSpec(channel=channels[pk], dimensions=dimensions, **shared)
        specs.append(ChannelOfAgent(channel_spec, messages))
    return specs


RESUMABLE_FOR = timedelta(hours=24)
PAUSED_FOR = timedelta(days=7)  # a run that waits for its agent's budget resumes on a later day
RESUMABLE = (EvaluationRun.Status.FAILED, EvaluationRun.Status.ERRORED, EvaluationRun.Status.PAUSED_BUDGET)
UNFINISHED = ("pending", "running", "failed", "errored", "paused_budget")
PLANNING_LOCK = 0x504C414E  # the number of this lock among the advisory locks of the database


def wait_for_other_plans() -> None:
    """Wait until no other transaction makes evaluation runs; until this one ends the others wait.

    SQLite lets one writer in anyhow. Locks of agents and channels would hold up what is said there, and could deadlock.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PLANNING_LOCK])


_ITEMS_AT_ONCE = 500  # rows of one INSERT


def insert_items(run: EvaluationRun, propositions: Mapping[str, Sequence[Proposition]]) -> None:
    """Store a pending row for each judgement of a run, and in the run how many messages are judged and the texts it swaps.

    Args:
        propositions: By dimension; each of the run's own dimensions is there.
    """
    subject = subject_of(run)
    if isinstance(subject, ChannelSubject):
        variables = dict.fromkeys(("agent_name", "channel_name"), one_line(subject.name))
    else:
        variables = {"agent_name": subject.agent.display_name}
    items_by_dimension = _plan_items(run, subject, propositions)
    sampled: set[int] = set()
    some_are_kept_by_chance = Channel.objects.filter(inclusion_probability__lt=1).exists()
    for dimension, items in items_by_dimension.items():
        shared = {p.id: _columns_of_proposition(p, variables) for p in propositions[dimension]}
        remaining = repeated(items, run.repeats)
        while portion := list(islice(remaining, _ITEMS_AT_ONCE)):
            weights = _inclusion_weights(portion) if some_are_kept_by_chance else {}
            rows = []
            for item in portion:
                weight = weights.get(item.message_id, 1.0)
                columns = shared[item.proposition.id]
                rows.append((item.message_id, item.compared_with_id, item.repeat, weight, *columns))
            insert_values(EvaluationScore(evaluation_run=run), _COLUMNS_OF_ITEM, rows)
            sampled.update(item.message_id for item in portion if item.message_id is not None)
    run.sample_size = len(sampled) or _messages_judged_at_once(subject, propositions)
    run.save(update_fields=["sample_size", "swaps"])


def _messages_judged_at_once(
    subject: Subject | ChannelSubject, propositions: Mapping[str, Sequence[Proposition]]
) -> int:
    """Return how many messages of the window are judged together: all where ideas are counted, else as many as a proposition shows."""
    over_window = [name for name in propositions if Dimension(name).kind.judged_by == "window"]
    if not over_window:
        return 0
    in_window = subject.messages().count()
    judged = 0
    for name in over_window:
        for proposition in propositions[name]:
            events = in_window if name in COUNTED else proposition.first_n + proposition.last_n
            judged = max(judged, min(in_window, events))
    return judged


def _inclusion_weights(items: Sequence[Item]) -> dict[int | None, float]:
    """Return for how many messages each of the items' messages stands, by its primary key; those of conversations kept by chance alone."""
    messages = Message.objects.filter(
        pk__in={item.message_id for item in items if item.message_id is not None},
        channel__inclusion_probability__lt=1,
    )
    probabilities = messages.order_by().values_list("pk", "channel__inclusion_probability")
    return {pk: 1.0 / probability for pk, probability in probabilities}


def _plan_items(
    run: EvaluationRun, subject: Subject | ChannelSubject, propositions: Mapping[str, Sequence[Proposition]]
) -> dict[str, Iterable[Item]]:
    """Return what is to be judged in each dimension.

    Tests of a judge judge single messages only. The shuffled part changes the order of propositions. The swapped half chooses
    a text for each message (`run.swaps`, not stored here), and leaves out those for which there is none.
    """
    planned: dict[str, Iterable[Item]] = {}
    for name in run.own_dimensions:
        planned[name] = SCORERS[name].plan(subject, propositions[name])
    if not run.swap_test:
        return planned
    # Only a text that was said in one message can be swapped, not a whole window.
    of_messages: dict[str, list[Item]] = {}
    message_ids: set[int] = set()
    for name, items in planned.items():
        of_messages[name] = [item for item in items if item.message_id is not None]
        message_ids.update(item.message_id for item in of_messages[name] if item.message_id is not None)
    if run.swap_test == SwapHalf.SHUFFLED:
        return {name: _shuffled(message_items, seed=run.seed) for name, message_items in of_messages.items()}
    if run.swap_test != SwapHalf.SWAPPED or not isinstance(subject, Subject):
        return dict(of_messages)
    run.swaps = choose_swaps(subject.agent, sorted(message_ids), seed=run.seed)
    swapped: dict[str, Iterable[Item]] = {}
    for name, message_items in of_messages.items():
        swapped[name] = [item for item in message_items if str(item.message_id) in run.swaps]
    return swapped


def _shuffled(items: Sequence[Item], *, seed: int) -> list[Item]:
    """Return the items message by message, those of each message in another order than before."""
    by_message: dict[tuple[int | None, int | None], list[Item]] = {}
    for item in items:
        by_message.setdefault((item.message_id, item.compared_with_id), []).append(item)
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    shuffled: list[Item] = []
    for of_message in by_message.values():
        rng.shuffle(of_message)
        shuffled += of_message
    return shuffled


def repeated(items: Iterable[Item], repeats: int) -> Iterator[Item]:
    """Yield each item as often as it is judged; a rule is exact, so its items are judged once."""
    for item in items:
        yield item
        if item.proposition.rule is None:
            for number in range(2, repeats + 1):
                yield replace(item, repeat=number)


_COLUMNS_OF_ITEM = (
    *("message_id", "compared_with_id", "repeat", "inclusion_weight"),
    *("dimension", "proposition_id", "claim", "weight", "inverted", "of_ten", "recommendations", "over_window"),
)


def _columns_of_proposition(proposition: Proposition, variables: dict[str, str]) -> tuple[Any, ...]:
    """Return the last columns of `_COLUMNS_OF_ITEM`, which the judgements of a proposition have in common."""
    claim = proposition.claim
    # The channel of a message is known when it is judged; the claim is filled then.
    if "channel_name" not in claim or "channel_name" in variables:
        claim = fill(claim, variables)
    return (
        proposition.dimension,
        proposition.id,
        claim,
        proposition.weight,
        proposition.inverted,
        proposition.of_ten,
        proposition.recommendations,
        proposition.over_window,
    )


def propositions_asked(
    target: Agent | Channel, dimension: str, *, hard: bool = False, files: Sequence[LoadedFile] | None = None
) -> list[Proposition]:
    """Load the propositions of a run about an agent or a channel, as files and traits are now.

    In a hard run all are hard but anti-patterns, rules and what is counted.

    Args:
        files: What `load_all` returned; None reads them.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    agent = target if isinstance(target, Agent) else None
    seeded = agent is not None and agent.seeded
    propositions = propositions_for(agent_slug=target.slug, dimension=dimension, files=files, seeded=seeded)
    if agent is not None and dimension == OF_PERSONA:
        propositions = with_traits(propositions, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
    if not hard or dimension in COUNTED:
        return propositions
    hardened: list[Proposition] = []
    for proposition in propositions:
        can_be_hard = not proposition.inverted and not proposition.rule
        hardened.append(replace(proposition, hard=True) if can_be_hard else proposition)
    return hardened


def subject_of(run: EvaluationRun) -> Subject | ChannelSubject:
    """Return the agent or channel as this run looks at it; the same when the run resumes later.

    Raises:
        ValueError: The run has no target, or its dimensions are not those of a channel.
    """
    window = replace(parse_window(run.window), start=run.window_start, end=run.window_end)
    if run.agent is None:
        if run.channel is None:
            raise ValueError(f"evaluation run {run.pk} has no target")
        if set(run.dimensions) - set(CHANNEL_DIMENSIONS):
            raise ValueError(f"evaluation run {run.pk} targets a channel, not an agent")
        return ChannelSubject(channel=run.channel, window=window, where=run.where, seed=run.seed)
    history = replace(parse_history(run.history), start=run.history_start, end=run.history_end)
    return Subject(
        agent=run.agent,
        persona=render_persona(system_prompt=run.agent.system_prompt, traits=run.agent.traits.all()),
        window=window,
        where=run.where,
        samples=run.samples,
        seed=run.seed,
        history=history,
        history_where=run.history_where,
        simulated=run.simulated,
        position_bins=tuple((first, last) for first, last in run.position_bins),
        heuristic=run.is_heuristic,
        swapped=swapped_texts(run) if run.swaps else {},
    )


def _columns_of_run(spec: RunSpec) -> dict[str, Any]:
    """Return what a spec asks for as the columns of a run; `window` and `history` as words, without their times, and no `scope`."""
    columns = {field.name: getattr(spec, field.name) for field in fields(spec) if field.name != "scope"}
    columns["dimensions"] = list(spec.dimensions)
    columns["judge"] = spec.judge_model
    columns["window"] = spec.window.spec
    columns["history"] = spec.history.spec
    columns["additional_context"] = dict(spec.additional_context)
    columns["position_bins"] = [list(bounds) for bounds in spec.position_bins]
    columns["situations"] = [dict(situation) for situation in spec.situations]
    return columns


@dataclass(frozen=True, slots=True)
class Plan:
    """A spec with everything it depends on loaded: propositions (from `files`), persona and their digests."""

    spec: RunSpec
    propositions: dict[str, list[Proposition]]
    persona_digest: str
    proposition_digest: str
    files: Sequence[LoadedFile] = ()

    @property
    def spec_digest(self) -> str:
        """Return a digest that is equal for requests that judge the same things in the same way; it finds the run to resume."""
        spec = self.spec
        columns = _columns_of_run(spec)
        columns["batch"] = None  # does not count: a batch asks the same questions in another way
        columns["agent"] = spec.agent.pk if spec.agent else None
        columns["channel"] = spec.channel.pk if spec.channel else None
        columns["dimensions"] = sorted(spec.dimensions)
        columns["schedule"] = None
        if spec.schedule:
            # Each time a schedule fires, it asks for a new evaluation.
            columns["schedule"] = (spec.schedule.pk, spec.schedule.last_fired_at)
        columns["scope"] = spec.scope
        columns["digests"] = (self.persona_digest, self.proposition_digest)
        return hashlib.sha256(json.dumps(columns, sort_keys=True, default=str).encode()).hexdigest()


def make_plan(spec: RunSpec, *, files: Sequence[LoadedFile] | None = None) -> Plan:
    """Load what a run needs: the propositions of its own dimensions, and the digest of the persona (empty for a channel).

    `files` is what `load_all` returned, for callers that plan several runs at once; None reads them.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    if files is None:
        files = load_all()
    propositions: dict[str, list[Proposition]] = {}
    loaded: list[Proposition] = []
    for dimension in spec.own_dimensions:
        propositions[dimension] = propositions_asked(spec.target, dimension, hard=spec.hard, files=files)
        loaded += propositions[dimension]
    persona = current_digest(spec.agent) if spec.agent is not None else ""
    return Plan(spec, propositions, persona, propositions_digest(loaded), files)


def with_usable_files(specs: Sequence[RunSpec]) -> tuple[list[RunSpec], dict[str, PropositionError]]:
    """Return the specs whose proposition files can be used, and for the slugs of the others why not.

    Raises:
        PropositionError: A folder does not exist.
    """
    files = load_all()
    usable: list[RunSpec] = []
    broken: dict[str, PropositionError] = {}
    for spec in specs:
        seeded = spec.agent is not None and spec.agent.seeded
        try:
            for dimension in spec.dimensions:
                propositions_for(agent_slug=spec.target.slug, dimension=dimension, files=files, seeded=seeded)
            usable.append(spec)
        except PropositionError as error:
            broken[spec.target.slug] = error
    return usable, broken


class PreparedRun(NamedTuple):
    """The stored run for a spec, and whether it is an earlier one that is resumed."""

    run: EvaluationRun
    resumed: bool


@dataclass(frozen=True, slots=True)
class PreparedChannel:
    """The stored run for a channel. Agents that are prepared together share it."""

    spec: RunSpec
    run: EvaluationRun


def prepare_run(spec: RunSpec, *, channels: list[PreparedChannel] | None = None) -> PreparedRun:
    """Return the unfinished run of the last 24 hours (paused for a budget: 7 days) that asked for the same, else a new one.

    Args:
        channels: The runs of channels prepared so far, to which new ones are added; agents that are prepared together share them.
    """
    return prepare_plan(make_plan(spec), channels=channels)


def prepare_plan(plan: Plan, *, channels: list[PreparedChannel] | None = None) -> PreparedRun:
    """Return the unfinished run that asked for the same as this plan, else store a new one; `channels` as for `prepare_run`.

    Unfinished are runs of the last 24 hours, those paused for a budget of the last 7 days; also one that completed with failed calls, which
    are pending again. The runs of the agent's channels are prepared with it.
    """
    with transaction.atomic():
        wait_for_other_plans()
        earlier = _earlier_run_to_resume(plan.spec_digest)
        run = earlier or create_run(plan)
        # The questions are the same in batches and not: a resumed run asks as this plan does, unless it waits for a batch already.
        if run.batch != plan.spec.batch and not is_waiting(run.work_id):
            run.batch = plan.spec.batch
            run.save(update_fields=["batch"])
    link_channels(run, plan, [] if channels is None else channels)
    return PreparedRun(run, resumed=earlier is not None)


def _earlier_run_to_resume(spec_digest: str) -> EvaluationRun | None:
    """Return the newest run that asked for the same and is not finished: of the last 24 hours, or paused for a budget in the last 7 days.

    Without one, the newest of the last 24 hours if it completed with failed calls: what failed is made pending again, and so is the run.
    None where nothing is to be resumed.
    """
    now = timezone.now()
    unfinished = EvaluationRun.objects.filter(spec_digest=spec_digest, status__in=UNFINISHED)
    recent = Q(created_at__gte=now - RESUMABLE_FOR)
    paused = Q(status="paused_budget", created_at__gte=now - PAUSED_FOR)
    run: EvaluationRun | None = unfinished.filter(recent | paused).order_by("-pk").first()
    return run or _reopened_with_failed_calls(spec_digest, now - RESUMABLE_FOR)


def link_channels(run: EvaluationRun, plan: Plan, channels: list[PreparedChannel]) -> None:
    """Have the channel dimensions of an agent's run measured in the channels it spoke in, each once for all its agents.

    Their runs are planned and linked to it; nothing is done where it has links already, or needs none.

    Args:
        channels: As for `prepare_run`.
    """
    specs = channel_specs(plan.spec)
    if not specs or run.channel_shares.exists():
        return
    shares: list[ChannelShare] = []
    for channel_spec, messages in specs:
        channel_run = _channel_run(channel_spec, channels, plan.files)
        shares.append(ChannelShare(agent_run=run, channel_run=channel_run, messages=messages))
    ChannelShare.objects.bulk_create(shares, ignore_conflicts=True)  # another process may prepare the same run


def _channel_run(spec: RunSpec, channels: list[PreparedChannel], files: Sequence[LoadedFile]) -> EvaluationRun:
    """Return the run for a channel from those prepared so far; prepare it if it is not among them."""
    for prepared in channels:
        if prepared.spec == spec:
            return prepared.run
    run = prepare_plan(make_plan(spec, files=files)).run
    channels.append(PreparedChannel(spec, run))
    return run


def _reopened_with_failed_calls(spec_digest: str, since: datetime) -> EvaluationRun | None:
    """Reopen the newest run since then if it completed but calls failed, its own or those of its channels' runs; return it, else None.

    What failed is pending again, and so are the runs, so that only that is asked. A channel's run that is unfinished is reason enough, too.
    Cancelled runs are passed over.
    """
    runs = EvaluationRun.objects.filter(spec_digest=spec_digest, created_at__gte=since).exclude(status="cancelled")
    run: EvaluationRun | None = runs.order_by("-pk").first()
    if run is None or run.status != EvaluationRun.Status.COMPLETED:
        return None
    is_open = bool(reopen_failed(run))
    for channel_run in run.channel_runs.all():
        if channel_run.status in UNFINISHED:
            is_open = True
        elif reopen_failed(channel_run):
            _make_pending(channel_run)
            is_open = True
    if not is_open:
        return None
    _make_pending(run)
    return run


def _make_pending(run: EvaluationRun) -> None:
    run.status = EvaluationRun.Status.PENDING
    run.save(update_fields=["status"])


def new_run(plan: Plan) -> EvaluationRun:
    """Return a run as it would be stored; nothing is written."""
    spec = plan.spec
    return EvaluationRun(
        **_columns_of_run(spec),
        judge_endpoint=route_of("judge", spec.judge_model).endpoint,
        prompt_digest=prompt_digest(
            spec.judge_model, method=spec.method, double_check=spec.double_check, dimensions=spec.own_dimensions
        ),
        window_start=spec.window.start,
        window_end=spec.window.end,
        history_start=spec.history.start,
        history_end=spec.history.end,
        persona_digest=plan.persona_digest,
        proposition_digest=plan.proposition_digest,
        proposition_digests=digest_of_each(plan.propositions),
        spec_digest=plan.spec_digest,
    )


def create_run(plan: Plan) -> EvaluationRun:
    """Store a new run with its items as pending rows; one that waits for a simulation has none yet."""
    run = new_run(plan)
    with transaction.atomic():
        run.save()
        if not plan.spec.awaits_simulation:
            insert_items(run, plan.propositions)
    return run


_COLUMNS_PLANNED_LATER = (  # of a run that waited for a simulation
    *("simulated", "actor_model", "repeats", "where", "samples", "window", "window_start", "window_end"),
    *("history", "history_start", "history_end", "history_where"),
    *("persona_digest", "proposition_digest", "proposition_digests", "spec_digest"),
)


def plan_later(run: EvaluationRun, spec: RunSpec, *, owner: str) -> bool:
    """Plan a run that waited for a simulation, now that it is known what to judge, and leave it to be judged.

    Returns:
        Whether `owner` still held it; if not, nothing was changed.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    plan = make_plan(spec)
    planned = new_run(plan)
    values = {name: getattr(planned, name) for name in _COLUMNS_PLANNED_LATER}
    with transaction.atomic():
        wait_for_other_plans()
        if not run.finish(owner=owner, status=EvaluationRun.Status.PENDING, **values):
            return False
        insert_items(run, plan.propositions)
        link_channels(run, plan, [])
    return True


# -- how long answers are
OUTPUT_TOKENS_PER_CLAIM = 160  # a few sentences of reasoning; an assumption, said so where it is shown
ENOUGH_CALLS = 20  # of a judge: from here on the mean of its answers is better than the assumption
NEWEST_RUNS = 50  # of a judge, whose answers are measured
NEWEST_CALLS = 2_000  # of these runs


class AnswerLength(BaseModel):
    """Output tokens of an answered proposition: the mean of so many calls in the ledger; an assumption where these are 0."""

    model_config = ConfigDict(frozen=True)

    tokens: int = OUTPUT_TOKENS_PER_CLAIM
    measured_calls: int = 0


def answer_length(judge: str) -> AnswerLength:
    """Measure how long this judge's answers to a proposition were in its newest evaluations; assume it where there are too few calls."""
    if not is_remote(judge):  # offline and replayed answers say nothing of a model's
        return AnswerLength()
    runs = EvaluationRun.objects.filter(judge=judge).order_by("-pk").values_list("pk", flat=True)[:NEWEST_RUNS]
    calls = LLMCall.objects.filter(
        work_id__in=[f"evaluation_run:{pk}" for pk in runs],
        purpose="evaluation",
        model=judge,
        status=LLMCall.Status.OK,
        output_tokens__isnull=False,
    ).exclude(dimension__in=COUNTED)  # a list, not an answer to a proposition
    claims = calls.annotate(claims=Count("evaluation_scores")).filter(claims__gt=0).order_by("-pk")
    rows = list(claims.values_list("output_tokens", "claims")[:NEWEST_CALLS])
    if len(rows) < ENOUGH_CALLS:
        return AnswerLength()
    total_tokens = sum(output_tokens or 0 for output_tokens, _ in rows)
    total_claims = sum(number for _, number in rows)
    tokens = round(total_tokens / total_claims)
    return AnswerLength(tokens=tokens, measured_calls=len(rows))
