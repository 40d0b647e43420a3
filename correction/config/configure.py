"""Changing configurations: checked, saved with who, when and why, and undone (AC-7.3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from agents.kit.llm.endpoints import model_of
from agents.kit.llm.ledger import estimate_cost
from agents.kit.llm.providers import batch_problem
from agents.kit.text.wording import time_text
from agents.kit.work.batches import why_no_batches
from agents.models import Agent
from correction.config.settings import (
    SETTINGS,
    AgentEvaluationConfig,
    ConfigError,
    GateMode,
    LeastConfidence,
    Requesters,
    ResolvedConfig,
    read_changes,
    resolve_config,
    resolve_defaults,
)
from evaluation.propositions.files import FileProblem, PropositionError, applying, load_all, problems_at_gate

LONGEST_REASON = 100
NO_OWN = "nothing set: everything is inherited"
_KINDS = {"+": "created", "~": "changed", "-": "deleted"}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One entry of a history.

    Attributes:
        history_id: What `revert` goes back to: the state *after* this change.
        changes: Field to its value before and after; None = inherit.
    """

    history_id: int
    agent_id: int | None
    at: datetime
    user: str
    reason: str
    kind: str
    changes: Mapping[str, tuple[Any, Any]]


class ConfigConflict(ConfigError):
    """Another person changed the same fields meanwhile; `errors` says to what, who and when."""


def configure(
    *,
    agent: Agent | None,
    changes: Mapping[str, Any],
    user: AbstractBaseUser | None = None,
    reason: str = "",
    check: Callable[[ResolvedConfig], None] | None = None,
    seen: Mapping[str, Any] | None = None,
) -> ResolvedConfig:
    """Change some fields of an agent's configuration, or of the defaults; the others stay, also when they are changed meanwhile.

    Args:
        agent: Whose; None for the defaults.
        changes: Field to value; None, an empty text and ``inherit`` reset it to inherit.
        user: Who; None: in a web request the signed-in user.
        reason: Why, one line of at most 100 characters, for the history.
        check: Gets the configuration as it is before the change, while no other process can change it; raises to leave it so.
        seen: What was stored of these fields when the person decided (of a field, None = inherit); None: conflicts are not looked for.

    Returns:
        The configuration in effect afterwards. Nothing is written, and no history made, where nothing changes.

    Raises:
        ConfigError: Unknown fields, values or a reason that are not allowed, what this installation cannot do, or the agent was deleted;
            nothing was changed.
        ConfigConflict: A field was changed since it was `seen`, to something else than what is asked for; nothing was changed.
    """
    values = read_changes(changes)
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise ConfigError(
            {"reason": f"reason has {len(reason)} characters: allowed: one line of at most {LONGEST_REASON}"}
        )
    with transaction.atomic():
        row = _lock_or_create_row(agent, user, values)
        if check is not None:
            check(in_effect(agent))
        if seen is not None:
            _refuse_conflicts(agent, row, values, seen)
        changed = [name for name, value in values.items() if getattr(row, name, None) != value]
        if problems := unusable({name: values[name] for name in changed}):
            raise ConfigError(problems)
        if row is not None and changed:
            for name in changed:
                setattr(row, name, values[name])
            _note_for_history(row, user, reason)
            row.save(update_fields=[*changed, "updated_at"])
    return in_effect(agent)


def unusable(changes: Mapping[str, Any]) -> dict[str, str]:
    """Return by field what this installation cannot do although the values are allowed; a value that is not new is not asked about."""
    if not changes.get("observe_by_batches"):
        return {}
    problem = batch_problem(model_of("judge"))
    if not problem:
        return {}
    allowed = "off or inherit; on with a JUDGE_MODEL whose provider has batches"
    return {"observe_by_batches": f"observe_by_batches on: {problem}; allowed: {allowed}"}


def _lock_or_create_row(
    agent: Agent | None, user: AbstractBaseUser | None, values: Mapping[str, Any]
) -> AgentEvaluationConfig | None:
    """Return the row to change, locked; a new one where there is none and something is to be set, else None.

    Raises:
        ConfigError: The agent was deleted meanwhile.
    """
    row = _lock_row(agent)
    if row is not None:
        return row
    if agent is not None and not Agent.objects.filter(pk=agent.pk).exists():
        raise ConfigError({"agent": f"there is no agent {agent.slug!r} any more: nothing was changed"})
    if all(value is None for value in values.values()):  # it inherits everything already
        return None
    return _create_row(agent, user, reason=NO_OWN)


def _refuse_conflicts(
    agent: Agent | None, row: AgentEvaluationConfig | None, values: Mapping[str, Any], seen: Mapping[str, Any]
) -> None:
    """Refuse fields that are stored neither as the person saw them nor as the person wants them.

    Args:
        row: None where nothing is stored: then each field inherits.
        values: What the person wants, by field; None = inherit.
        seen: What the person saw; a field that is not in it is not looked at.

    Raises:
        ConfigConflict: There are such fields; says who changed them, and to what.
    """
    conflicts: dict[str, str] = {}
    for name, value in values.items():
        stored = getattr(row, name, None)
        if name in seen and stored not in (seen[name], value):
            conflicts[name] = _conflict_sentence(agent, name, stored)
    if conflicts:
        raise ConfigConflict(conflicts)


def ensure_rows(*, agents: Iterable[Agent], reason: str) -> int:
    """Make the defaults row and a row per agent where there is none yet, which inherit everything; return how many were made.

    No row that is there is changed.

    Args:
        reason: For the history.
    """
    present = set(AgentEvaluationConfig.objects.values_list("agent_id", flat=True))  # None is the defaults row
    missing: list[Agent | None] = [agent for agent in agents if agent.pk not in present]
    if None not in present:
        missing.insert(0, None)
    for agent in missing:
        with transaction.atomic():
            _create_row(agent, user=None, reason=reason)
    return len(missing)


def copy_config(*, source: Agent, targets: Iterable[Agent], user: AbstractBaseUser | None = None) -> int:
    """Give the targets the source's own settings; what the source inherits they inherit, too. Return how many targets there were.

    All or none are changed; the source itself is passed over.

    Raises:
        ConfigError: A target was deleted meanwhile.
    """
    own = AgentEvaluationConfig.objects.filter(agent=source).first()
    changes = _stored_values(own)
    reason = f"copied from {source.slug}"[:LONGEST_REASON]
    others = [agent for agent in targets if agent.pk != source.pk]
    others.sort(key=lambda agent: agent.pk)  # rows are locked in one order, against deadlocks
    with transaction.atomic():
        for agent in others:
            configure(agent=agent, changes=changes, user=user, reason=reason)
    return len(others)


def config_history(agent: Agent | None, *, limit: int = 50) -> list[ConfigChange]:
    """Return the latest changes of an agent's configuration, or of the defaults, newest first."""
    # One more, with which the oldest of them is compared.
    records = _history(agent).select_related("history_user").order_by("-history_id")[: limit + 1]
    return changes_of(list(records))[:limit]


def changes_of(records: Sequence[Any]) -> list[ConfigChange]:
    """Return the changes that history records, newest first, stand for; each is compared with the record of the same agent before it.

    The oldest record of each agent is compared with nothing set: give one more than is wanted.
    """
    changes = []
    earlier_records: dict[int | None, Any] = {}  # by agent; None is the defaults
    for record in reversed(records):
        before = _stored_values(earlier_records.get(record.agent_id))
        after = _stored_values(record)
        change = ConfigChange(
            history_id=record.history_id,
            agent_id=record.agent_id,
            at=record.history_date,
            user=record.history_user.get_username() if record.history_user else "",
            reason=record.history_change_reason or "",
            kind=_KINDS[record.history_type],
            changes={name: (before[name], after[name]) for name in SETTINGS if before[name] != after[name]},
        )
        changes.append(change)
        earlier_records[record.agent_id] = record
    changes.reverse()
    return changes


def revert(*, agent: Agent | None, history_id: int, user: AbstractBaseUser | None = None) -> ResolvedConfig:
    """Set every field back to what it was after the change `history_id`; this is a change like any other.

    Raises:
        ConfigError: There is no such entry in this history.
    """
    values = _stored_values(_history_entry(agent, history_id))
    return configure(agent=agent, changes=values, user=user, reason=f"back to entry {history_id}")


def last_change(*, agent: Agent | None, user: AbstractBaseUser) -> int | None:
    """Return the newest entry of this history that `user` made; None where there is none."""
    entries = _history(agent).filter(history_user=user).order_by("-history_id")
    newest: int | None = entries.values_list("history_id", flat=True).first()
    return newest


def undo(*, agent: Agent | None, history_id: int, user: AbstractBaseUser | None = None) -> ResolvedConfig:
    """Set the fields that one change set back to what they were before it, inherit included; other fields stay.

    Raises:
        ConfigError: There is no such entry in this history, or one of its fields was changed since; nothing was changed.
    """
    entry = _history_entry(agent, history_id)
    earlier = _history(agent).filter(history_id__lt=history_id).order_by("-history_id").first()
    before = _stored_values(earlier)
    after = _stored_values(entry)
    undone = {name: before[name] for name in SETTINGS if before[name] != after[name]}
    with transaction.atomic():
        row = _lock_row(agent)
        problems = {
            name: f"{name} was changed since, so nothing was undone; see the history"
            for name in undone
            if getattr(row, name, None) != after[name]
        }
        if problems:
            raise ConfigError(problems)
        return configure(agent=agent, changes=undone, user=user, reason=f"entry {history_id} undone")


def inheritors(changes: Mapping[str, Any]) -> QuerySet[Agent]:
    """Return the agents for whom a change of the defaults counts: those that leave at least one of these fields to them."""
    inherits = Q(evaluation_config__isnull=True)
    for name in changes:
        inherits |= Q(**{f"evaluation_config__{name}__isnull": True})
    return Agent.objects.filter(inherits).order_by("display_name", "slug")


def gate_from_now_on(before: ResolvedConfig, after: ResolvedConfig) -> str:
    """Return a sentence on what the gate does from now on; empty where a change left it as it was."""
    if before.gate_mode == after.gate_mode and before.gate_dimensions == after.gate_dimensions:
        return ""
    if after.gate_is_off:
        return "The gate is off: no draft is checked from now on."
    checks = ", ".join(after.gate_dimensions)
    if after.gate_mode == GateMode.OBSERVE:
        return f"Messages are sent at once and judged for {checks} afterwards."
    return f"Drafts that fail {checks} are sent back from now on."


def notes_on(config: ResolvedConfig, agent: Agent | None = None) -> list[str]:
    """Return sentences on what has no effect: settings as they stand together, and propositions of the agent that cannot be used."""
    notes = []
    if agent is not None and not config.gate_is_off:
        for problem in _broken_propositions(agent, config.gate_dimensions):
            notes.append(f"{problem}: until that is corrected the drafts of {agent} pass unjudged")
    return [*notes, *_notes_on_gate(config), *_notes_on_budget(config), *_notes_on_requests(config)]


def _notes_on_gate(config: ResolvedConfig) -> Iterator[str]:
    """Yield sentences on settings of the gate that have no effect."""
    checks = config.gate_dimensions
    if config.gate_mode != GateMode.OFF and not checks:
        yield f"gate_mode is {config.gate_mode}, but no dimension is enabled: nothing is checked"
    if config.gate_mode == GateMode.OFF and checks:
        yield f"gate_mode is off: the enabled {', '.join(checks)} is not checked"
    if not config.gate_is_off and config["gate_total_deadline_seconds"] < config["gate_deadline_seconds"]:
        yield "gate_total_deadline_seconds is shorter than gate_deadline_seconds, and ends the judging first"
    if config["observe_by_batches"]:
        yield from _notes_on_batches(config)


def _notes_on_batches(config: ResolvedConfig) -> Iterator[str]:
    """Yield sentences on why observed messages are not judged in batches, although that is on."""
    if config.gate_mode != GateMode.OBSERVE:
        yield f"observe_by_batches is on, but gate_mode is {config.gate_mode}: only observed messages are judged in batches"
    elif problem := why_no_batches():
        yield f"observe_by_batches is on, but {problem}: observed messages are judged at once, at full price"


def _notes_on_budget(config: ResolvedConfig) -> Iterator[str]:
    """Yield sentences on settings of the budget that have no effect: a half that lacks the other, or a judge without a price."""
    budget = config["daily_budget_usd"]
    if not config["budget_enabled"]:
        if budget is not None:
            yield "daily_budget_usd is set, but budget_enabled is off: nothing is capped"
    elif budget is None:
        yield "budget_enabled is on, but daily_budget_usd is not set: nothing is capped"
    elif estimate_cost(str(settings.JUDGE_MODEL), 1, 1) is None:
        yield f"the judge {settings.JUDGE_MODEL} has no price: its calls do not count against the budget"


def _notes_on_requests(config: ResolvedConfig) -> Iterator[str]:
    """Yield sentences on settings of behaviour requests that have no effect."""
    if not config["behavior_requests_enabled"]:
        return
    names = config["behavior_named_requesters"]
    if config["behavior_requesters"] == Requesters.NAMED and not names:
        yield "behavior_requesters is named, but behavior_named_requesters is empty: no requests count"
    if config["behavior_requesters"] != Requesters.NAMED and names:
        yield f"behavior_named_requesters is set, but behavior_requesters is {config['behavior_requesters']}"
    if config["behavior_daily_limit"] == 0 and config["behavior_auto_apply"] != LeastConfidence.NEVER:
        yield "behavior_daily_limit is 0: a person decides on every request, despite behavior_auto_apply"


def _broken_propositions(agent: Agent, dimensions: Iterable[str]) -> list[FileProblem]:
    """Return what is wrong with the proposition files that the gate of an agent would need."""
    try:
        files = applying(load_all(), seeded=agent.seeded)
    except PropositionError as error:
        return error.problems
    return problems_at_gate(files, agent_slug=agent.slug, dimensions=dimensions)


def config_json(config: ResolvedConfig) -> dict[str, Any]:
    """Return the values in effect as JSON knows them, where each comes from, and what has no effect."""
    plain = dict(config.values)
    for name, value in config.values.items():
        if isinstance(value, Decimal):
            plain[name] = float(value)
    return {"config": plain, "provenance": dict(config.provenance), "notes": notes_on(config)}


def in_effect(agent: Agent | None) -> ResolvedConfig:
    """Return the configuration of an agent, or, for None, of one that sets nothing of its own."""
    return resolve_config(agent) if agent is not None else resolve_defaults()


def _conflict_sentence(agent: Agent | None, name: str, stored: Any) -> str:
    """Return a sentence on who changed a field last, when, and to what; without who and when where the latest 50 changes do not tell."""
    by = at = ""
    for change in config_history(agent):
        if name in change.changes:
            if change.user:
                by = f" by {change.user}"
            at = f" on {time_text(change.at, zone=True)}"
            break
    value = SETTINGS[name].show_stored(stored)
    return f"{name} was set to {value}{by}{at}, after this page was opened; nothing was saved"


def _stored_values(row: Any) -> dict[str, Any]:
    """Return the values that a row, or an entry of its history, sets; where there is none everything is inherited."""
    return {name: getattr(row, name, None) for name in SETTINGS}


def _history(agent: Agent | None) -> Any:
    """Return the history of an agent's configuration, or of the defaults."""
    history = AgentEvaluationConfig.history
    return history.filter(is_defaults=True) if agent is None else history.filter(agent=agent)


def _history_entry(agent: Agent | None, history_id: int) -> Any:
    """Return an entry of a history.

    Raises:
        ConfigError: There is no such entry in this history; names the latest ones.
    """
    entry = _history(agent).filter(history_id=history_id).first()
    if entry is None:
        whose = agent.slug if agent else "the defaults"
        recent = ", ".join(str(pk) for pk in _history(agent).order_by("-history_id").values_list("pk", flat=True)[:10])
        raise ConfigError(
            {"history_id": f"the history of {whose} has no entry {history_id}; the latest: {recent or 'none'}"}
        )
    return entry


def _lock_row(agent: Agent | None) -> AgentEvaluationConfig | None:
    """Return the row, locked, so that its history entry shows what other writers set; None when there is none yet."""
    rows = AgentEvaluationConfig.objects.select_for_update()
    rows = rows.order_by("pk")  # the model's own order would lock agents, too
    if agent is None:
        return rows.filter(is_defaults=True).first()
    return rows.filter(agent=agent).first()


def _create_row(agent: Agent | None, user: AbstractBaseUser | None, reason: str) -> AgentEvaluationConfig:
    """Store and return a new row that inherits everything, or return the one another writer made in between, locked.

    Args:
        agent: None: the defaults row.
        user, reason: For the history.

    Raises:
        IntegrityError: The agent is gone.
    """
    row = AgentEvaluationConfig(agent=agent, is_defaults=agent is None)
    _note_for_history(row, user, reason)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        other = _lock_row(agent)
        if other is None:
            raise  # the agent itself is gone
        return other
    return row


def _note_for_history(row: Any, user: AbstractBaseUser | None, reason: str) -> None:
    """Set what the history records of the next save. Without `user` its middleware knows who is signed in."""
    if user is not None:
        row._history_user = user
    row._change_reason = reason
