"""Show the gate of an agent on one page: what thresholds would have done, what it is to do, what was changed, and a sentence to check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Count, Q
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from pydantic import ValidationError

from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.panels import seconds_of, table
from agents.kit.console.site import Button
from agents.kit.llm.providers import is_priced
from agents.kit.text.wording import counted
from agents.kit.work.worker import alive
from agents.models import Agent, Message
from correction.admin.display import failed_first, number, outcome_badge, share
from correction.admin.matrix import BY_ID, config_url, gate_url
from correction.admin.sessions import TYPED_TAGS
from correction.config.configure import ConfigChange, config_history, notes_on
from correction.config.settings import GATE_DIMENSIONS, SETTINGS, ConfigError, ResolvedConfig, merge
from correction.gate.observe import CheckEstimate, estimate_check, judge_later
from correction.gate.quality_check import QualityCheck, check_quality
from correction.gate.stage import judges_in_batches
from correction.gate.thresholds import (
    ORIGINS,
    REPLAYABLE,
    USUALLY_REPLAYED,
    MarkCounts,
    Replay,
    Score,
    Scores,
    replay,
    wilson_interval,
)
from correction.models import AgentEvaluationConfig, CorrectionLog, GateMode, ObservedMessage
from evaluation.admin.display import MEASURE, judge_badge
from evaluation.models import is_heuristic

COMPARED_THRESHOLDS = range(3, 8)  # thresholds whose share of failures stands in the table
NOT_MARKED = "no alarm below it was marked right or false alarm yet"
KINDS = {"model": "by a model", "heuristic": "offline"}  # of judges
CHANGES_SHOWN = 5
READ_PERMISSION = "agents.view_message"
CHECK_PERMISSION = "correction.add_correctionlog"
FORM_FIELDS = ["gate_mode"]  # the settings that the page's form changes
for _dimension in GATE_DIMENSIONS:
    FORM_FIELDS += [f"gate_{_dimension}_enabled", f"gate_{_dimension}_threshold"]
GATE_SETTINGS = {name for mechanism in ("gate", *GATE_DIMENSIONS, "rules") for name in BY_ID[mechanism].fields}


def kind_of_judge() -> str:
    """Return the kind of judge that is set now: scores of the two kinds are not comparable."""
    return "heuristic" if is_heuristic(settings.JUDGE_MODEL) else "model"


def gate_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """Return the buttons of an agent's page that lead here."""
    buttons = [
        Button(
            label="Set the gate",
            url=gate_url(agent),
            why="what it would send back; off, observe or enforce",
            main=True,
        )
    ]
    if request.user.has_perm(CHECK_PERMISSION):
        why = "the gate's verdict on a sentence that you type"
        buttons.append(Button(label="Check", url=f"{gate_url(agent)}#check", why=why, main=True))
    return buttons


@dataclass(frozen=True, slots=True)
class Choice:
    """The state of the form: what is in effect, and over it what a link filled in or a person typed.

    Attributes:
        checked: Dimensions whose box is ticked.
        typed: The text of each threshold. thresholds: their values. errors: why a text is not allowed, or empty.
        last, kind: How many messages are replayed, and whose scores: `KINDS`.
    """

    mode: str
    checked: tuple[str, ...]
    typed: Mapping[str, str]
    thresholds: Mapping[str, Decimal]
    errors: Mapping[str, str]
    last: int
    kind: str

    @property
    def query(self) -> dict[str, Any]:
        """Return the parameters of the page's address as it is filled in."""
        return {
            "gate_mode": self.mode,
            "check": self.checked,
            "filled_in": 1,  # says that the boxes are those of `check`, also where none is ticked
            "last": self.last,
            "judge": self.kind,
            **self.typed,
        }


@dataclass(frozen=True, slots=True)
class ReadThreshold:
    """A threshold of the form. `error` says why what was typed is not allowed, or is empty."""

    value: Decimal
    error: str = ""


def read_threshold(text: str, dimension: str, config: ResolvedConfig) -> ReadThreshold:
    """Read a typed threshold; where nothing is typed, or what is not allowed, the one in effect stands for it."""
    in_effect = config.threshold(dimension)
    try:
        typed: Decimal | None = SETTINGS[f"gate_{dimension}_threshold"].read(text)
    except ConfigError as error:
        return ReadThreshold(in_effect, str(error))
    return ReadThreshold(in_effect if typed is None else typed)


def read_choice(query: QueryDict, config: ResolvedConfig) -> Choice:
    """Read what was typed or linked; everything else, and what is not allowed, is as it is in effect.

    The error of a threshold that is not allowed is kept beside its text.
    """
    typed: dict[str, str] = {}
    thresholds: dict[str, Decimal] = {}
    errors: dict[str, str] = {}
    for dimension in GATE_DIMENSIONS:
        text = query.get(dimension, "")
        threshold = read_threshold(text, dimension, config)
        thresholds[dimension] = threshold.value
        errors[dimension] = threshold.error
        typed[dimension] = text[:20] if threshold.error else number(threshold.value)
    checked = _read_checked(query, config)
    mode = query.get("gate_mode", "")
    last = query.get("last", "")
    kind = query.get("judge", "")
    return Choice(
        mode=mode if mode in GateMode.values else config.gate_mode,
        checked=tuple(dimension for dimension in GATE_DIMENSIONS if dimension in checked),
        typed=typed,
        thresholds=thresholds,
        errors=errors,
        last=int(last) if last in map(str, REPLAYABLE) else USUALLY_REPLAYED,
        kind=kind if kind in KINDS else kind_of_judge(),
    )


def _read_checked(query: QueryDict, config: ResolvedConfig) -> Sequence[str]:
    """Read which dimensions are ticked."""
    enabled = [dimension for dimension in GATE_DIMENSIONS if config[f"gate_{dimension}_enabled"]]
    if "add" in query:  # of a link that keeps what is checked
        return [*enabled, query.get("add", "")]
    if "check" in query or "filled_in" in query:
        return query.getlist("check")
    return enabled or GATE_DIMENSIONS[:1]


@dataclass(frozen=True, slots=True)
class FormChanges:
    """The settings that a person changed, and what the page showed of all of its fields, as stored."""

    changes: Mapping[str, Any]
    seen: Mapping[str, Any]


def changes_of_choice(
    posted: QueryDict, choice: Choice, *, own: AgentEvaluationConfig | None, defaults: AgentEvaluationConfig | None
) -> FormChanges:
    """Compare what the person chose with what the page showed.

    Where nothing sets the mode it follows the checks, and enforces: so it is stored with the first change. What is ticked while the gate
    is switched off is not stored: it is what the replay looked at.

    Args:
        own: The row that is edited; None where it is not stored yet.
        defaults: The row above it; None where the defaults are edited.

    Returns:
        What is to be stored, and what the page showed, by which a conflict with another person is found.

    Raises:
        ConfigError: A threshold is not allowed, or nothing is to be checked by a gate that is on.
    """
    errors = {dimension: error for dimension, error in choice.errors.items() if error}
    if errors:
        raise ConfigError(errors)
    seen = {name: SETTINGS[name].read(posted.get(f"seen-{name}", "")) for name in FORM_FIELDS}
    stored = {name: getattr(own, name, None) for name in SETTINGS}
    # What the page showed as in effect: another person may have changed the mode since.
    page_config = merge(own=AgentEvaluationConfig(**{**stored, **seen}), defaults=defaults)
    gate_is_on = choice.mode != GateMode.OFF
    if gate_is_on and not choice.checked and not page_config["gate_rules_enabled"]:
        allowed = ", ".join(GATE_DIMENSIONS)
        raise ConfigError({"check": f"gate_mode {choice.mode}: tick at least one of {allowed}, or choose off"})
    chosen: dict[str, Any] = {"gate_mode": choice.mode}
    for dimension in GATE_DIMENSIONS:
        chosen[f"gate_{dimension}_threshold"] = choice.thresholds[dimension]
        if gate_is_on:
            chosen[f"gate_{dimension}_enabled"] = dimension in choice.checked
    changes = {name: value for name, value in chosen.items() if value != page_config[name]}
    if changes and page_config.provenance["gate_mode"] == "built-in":  # nothing sets it: it followed the checks
        changes["gate_mode"] = choice.mode
    return FormChanges(changes, seen)


def queue_unjudged(agent: Agent | None, choice: Choice, *, evaluated: bool) -> int:
    """Queue the replayed messages that were not judged on at least one checked dimension; return how many.

    Args:
        agent: Whose; None: those of all agents.
        evaluated: True: also those that only an evaluation judged, which is an estimate of the gate's judgement.

    Raises:
        ValueError: No dimension is checked.
    """
    if not choice.checked:
        raise ValueError(f"Tick what is to be judged: {', '.join(GATE_DIMENSIONS)}")
    replayed = replay(agent=agent, heuristic=is_heuristic(settings.JUDGE_MODEL), last=choice.last)
    unjudged = replayed.unjudged(choice.checked, evaluated=evaluated)
    messages = Message.objects.filter(pk__in=unjudged).select_related("agent")
    return judge_later(messages=list(messages), dimensions=choice.checked)


def check_sentence(agent: Agent, draft: str, dimensions: tuple[str, ...]) -> dict[str, Any]:
    """Judge a draft as an external check and return what the page shows of it; it is logged, and nothing is sent.

    Where the draft is not allowed: the draft with the `problem` alone.

    Args:
        dimensions: Empty: those of the agent's configuration.
    """
    body: dict[str, Any] = {"draft": draft, "agent": agent.slug, "tags": TYPED_TAGS}
    if dimensions:
        body["dimensions"] = list(dimensions)
    try:
        check = QualityCheck.model_validate(body)
    except ValidationError as error:
        return {"draft": draft, "problem": f"draft: {error.errors()[0]['msg']}"}
    checked = check_quality(check)
    log = CorrectionLog.objects.prefetch_related("dimension_results").get(pk=checked.log_id)
    cost = display.money(checked.cost.cost_usd, unpriced=checked.cost.unpriced)
    if not is_priced(checked.judge):
        cost = display.badge("free", "good")
    return {
        "draft": draft,
        "checked": checked,
        "outcome": outcome_badge(checked.outcome),
        "results": failed_first(log.dimension_results.all()),
        "judge": judge_badge(checked.judge),
        "took": seconds_of(checked.duration_ms / 1000),
        "cost": cost,
        "log": display.page_of(log, "Its log entry"),
    }


def gate_context(
    request: HttpRequest,
    agent: Agent | None,
    choice: Choice,
    *,
    own: AgentEvaluationConfig | None,
    config: ResolvedConfig,
) -> dict[str, Any]:
    """Return what the template shows, for one agent or (None) the defaults, which are tried on the messages of all agents.

    Args:
        own: The row that is edited; None where it is not stored yet.
        config: What is in effect.
    """
    replayed = replay(agent=agent, heuristic=choice.kind == "heuristic", last=choice.last)
    messages = Message.objects.filter(pk__in=replayed.messages).select_related("agent", "channel").in_bulk()
    estimate = _estimate_for_newest(replayed, messages, choice)
    open_rows = ObservedMessage.objects.filter(message__in=list(replayed.messages), status__in=ObservedMessage.OPEN)
    counts = open_rows.aggregate(
        waiting=Count("pk", filter=Q(waits_since=None)), in_batch=Count("pk", filter=Q(waits_since__isnull=False))
    )
    waiting = counts["waiting"]
    of_agent: dict[str, object] = {"session__agent__id__exact": agent.pk} if agent is not None else {}
    return {
        "agent": agent,
        "config": config,
        "choice": choice,
        "notes": notes_on(config, agent),
        "seen": [(name, SETTINGS[name].show_stored(getattr(own, name, None))) for name in FORM_FIELDS],
        "lasts": REPLAYABLE,
        "kinds": KINDS.items(),
        "judges": [judge_badge(judge) for judge in replayed.judges],
        "total": len(replayed.messages),
        "by_origin": _messages_by_origin(replayed),
        "cards": [_dimension_card(agent, dimension, choice, config, replayed) for dimension in GATE_DIMENSIONS],
        **_replayed_messages(replayed, messages, choice, may_read=request.user.has_perm(READ_PERMISSION)),
        "open": _judge_buttons(replayed, choice, estimate),
        "waiting": waiting,
        "waiting_for_batch": counts["in_batch"],
        "no_worker": bool(waiting) and not alive().exists(),
        "judge_set": judge_badge(str(settings.JUDGE_MODEL)),
        "may_judge": choice.kind == kind_of_judge() and request.user.has_perm(MEASURE),
        "may_check": request.user.has_perm(CHECK_PERMISSION),
        "modes": GateMode.values,
        "in_batches": judges_in_batches(config),
        "share_observed": f"{100 * config['observe_sample_rate']:.0f} %",
        "cost_of_message": _cost_sentence("message", estimate, choice.checked),
        "cost_of_draft": _cost_sentence("draft", estimate, choice.checked),
        "seconds": seconds_of(estimate.seconds) if estimate and estimate.seconds is not None else "",
        "deadlines": (config.show("gate_deadline_seconds"), config.show("gate_total_deadline_seconds")),
        "retries": config["max_correction_attempts"],
        "changes": _latest_changes(agent),
        "logs_url": display.list_url(CorrectionLog, **of_agent),
        "config_url": config_url(agent),
    }


def _estimate_for_newest(replayed: Replay, messages: Mapping[int, Message], choice: Choice) -> CheckEstimate | None:
    """Estimate what checking the newest of the messages takes; None where there is none."""
    for pk in replayed.messages:
        message = messages.get(pk)
        if message is not None and message.agent is not None:
            return estimate_check(message=message, agent=message.agent, dimensions=choice.checked)
    return None


def _messages_by_origin(replayed: Replay) -> list[tuple[str, int]]:
    """Count the messages that have a score of each origin."""
    counts: Counter[str] = Counter()
    for scores in replayed.messages.values():
        counts.update({score.origin for score in scores.values()})
    return [(origin, counts[origin]) for origin in ORIGINS if counts[origin]]


def _judge_buttons(
    replayed: Replay, choice: Choice, estimate: CheckEstimate | None
) -> list[tuple[str, int, int, SafeString]]:
    """Return the buttons that have messages judged: each with its name, how many messages, their calls and cost; none for no message.

    ``new`` are those not judged at all, ``all`` also those that only an evaluation judged, where that are more.

    Args:
        estimate: For one message; None where none could be made: then calls are 0, and the cost is a dash.
    """
    new = len(replayed.unjudged(choice.checked))
    with_evaluated = len(replayed.unjudged(choice.checked, evaluated=True))
    numbers = {"new": new}
    if with_evaluated != new:
        numbers["all"] = with_evaluated
    buttons = []
    for name, number_of_messages in numbers.items():
        if number_of_messages:
            calls = estimate.calls * number_of_messages if estimate else 0
            buttons.append((name, number_of_messages, calls, _cost_of_checks(estimate, number_of_messages)))
    return buttons


def _cost_sentence(kind: str, estimate: CheckEstimate | None, checked: Sequence[str]) -> SafeString | str:
    """Return a sentence on what checking each message or draft (`kind`) costs, or why that is not known.

    Such as ``For adherence: 1 call a draft, about $1.20 per 1,000 drafts``.
    """
    if estimate is None:
        return "What that costs is estimated once there is a message."
    if not checked:
        return "Tick what is to be checked to see the cost."
    if not estimate.calls:
        return "No call and no cost: the judge answers on this machine."
    calls = counted(estimate.calls, "call")
    cost = _cost_of_checks(estimate, 1000)
    return format_html("For {}: {} a {}, about {} per 1,000 {}s", ", ".join(checked), calls, kind, cost, kind)


def _cost_of_checks(estimate: CheckEstimate | None, messages: int) -> SafeString:
    """Return what checking so many messages costs."""
    if estimate is None:
        return display.EMPTY
    if not estimate.calls:
        return display.badge("free", "good", "the judge answers on this machine")
    if estimate.cost_usd is None:
        return display.money(None, unpriced=estimate.calls * messages)
    return display.money(estimate.cost_usd * messages)


def _latest_changes(agent: Agent | None) -> list[tuple[ConfigChange, list[tuple[str, str, str]], bool]]:
    """Return the latest changes of the gate, each with its settings and whether it can be undone: none of them was changed again."""
    changed_later: set[str] = set()
    changes = []
    for change in config_history(agent):
        if not GATE_SETTINGS.isdisjoint(change.changes):
            changes.append((change, settings_of(change), changed_later.isdisjoint(change.changes)))
        changed_later |= change.changes.keys()
    return changes[:CHANGES_SHOWN]


def settings_of(change: ConfigChange) -> list[tuple[str, str, str]]:
    """Return the settings of a change, as people call them, with what was stored before and after."""
    rows = []
    for name, (before, after) in change.changes.items():
        setting = SETTINGS[name]
        rows.append((setting.label, setting.show_stored(before), setting.show_stored(after)))
    return rows


def _replayed_messages(
    replayed: Replay, messages: Mapping[int, Message], choice: Choice, *, may_read: bool
) -> dict[str, Any]:
    """Return how many messages fail the chosen thresholds, and all scored messages, the lowest score first, of equal ones the newest.

    `hidden` are those that the thresholds let pass: the script shows them where a person types others.
    """
    thresholds = {dimension: choice.thresholds[dimension] for dimension in choice.checked}
    failed = replayed.sent_back(thresholds)
    failing = replayed.failing(thresholds)
    scored = [pk for pk, scores in replayed.messages.items() if scores and pk in messages]
    scored.sort(key=lambda pk: (min(score.tenths for score in replayed.messages[pk].values()), -pk))
    columns = [
        dimension for dimension in GATE_DIMENSIONS if any(dimension in scores for scores in replayed.messages.values())
    ]
    rows = []
    for pk in scored:
        row = _message_row(messages[pk], replayed.messages[pk], columns, may_read=may_read)
        rows.append({**row, "hidden": pk not in failed, "weight": replayed.weights[pk]})
    return {
        "sent_back": share(failing.number, failing.total, failing.share),
        "sent_back_number": failing.number,
        "weight": sum(replayed.weights.values()),
        "columns": columns,
        "rows": rows,
    }


def _message_row(
    message: Message, scores: Mapping[str, Score], columns: Sequence[str], *, may_read: bool
) -> dict[str, Any]:
    """Return a message with its score in each column, a dash where it has none; its text only where the user may read it."""
    cells = []
    for dimension in columns:
        score = scores.get(dimension)
        cells.append((dimension, score, f"{score.tenths / 10:g}" if score else "–"))
    return {
        "at": message.said_at,
        "who": message.agent,
        "text": display.shortened(message.text, 200) if may_read else "",
        "tags": display.tags(message.tags) if message.tags else "",
        "url": transcript_url(message),
        "scores": cells,
    }


def _dimension_card(
    agent: Agent | None, dimension: str, choice: Choice, config: ResolvedConfig, replayed: Replay
) -> dict[str, Any]:
    """Return what the page shows of one dimension: its box, its threshold, how many messages that and other ones send back, and marks.

    Args:
        agent: None: the page of the defaults.
    """
    scores = replayed.dimensions.get(dimension, Scores())
    counts = scores.messages
    threshold = choice.thresholds[dimension]
    in_effect = config.threshold(dimension)
    failing = scores.failing(threshold)
    failing_in_effect = scores.failing(in_effect)
    of_agent: dict[str, object] = {"session__agent__id__exact": agent.pk} if agent is not None else {}
    return {
        "dimension": dimension,
        "label": BY_ID[dimension].label,
        "checked": dimension in choice.checked,
        "typed": choice.typed[dimension],
        "error": choice.errors[dimension],
        "judged": counts.total(),
        "unscored": len(replayed.messages) - counts.total(),
        "could_not": sum(dimension in dimensions for dimensions in replayed.tried.values()),
        "failed": share(failing.number, failing.total, failing.share),
        "in_effect": number(in_effect),
        "is_in_effect": in_effect == threshold,
        "now": share(failing_in_effect.number, failing_in_effect.total, failing_in_effect.share),
        "tried": _compared_thresholds(dimension, scores),
        "precision": _precision_words(scores.marked_below(threshold)),
        "counts": _counts_for_script(scores),
        "markable": bool(scores.marks or scores.by_origin["gate"] or scores.by_origin["observed"]),
        "marks_label": "Marked alarms" if scores.marks else "Mark some",
        "marks_url": display.list_url(CorrectionLog, **of_agent, mark="any" if scores.marks else "none"),
        "write_url": reverse("admin:evaluation_proposition_new", args=[agent.slug]) if agent is not None else "",
    }


def _compared_thresholds(dimension: str, scores: Scores) -> SafeString:
    """Return a table of the share that whole thresholds would send back; empty where nothing is scored."""
    shares = []
    for threshold in COMPARED_THRESHOLDS:
        share_sent_back = scores.failing(Decimal(threshold)).share
        if share_sent_back is None:
            return SafeString("")
        shares.append(f"{100 * share_sent_back:.0f}\N{NO-BREAK SPACE}%")
    heads = ("Threshold", *map(str, COMPARED_THRESHOLDS))
    return table(heads, [("Sent back", *shares)], label=f"{dimension}: share sent back", stacking=False)


def _counts_for_script(scores: Scores) -> SafeString:
    """Return as JSON what the script counts in while a person types: numbers only, so nothing needs escaping."""
    drafts = sorted(scores.messages.items())
    weights = sorted(scores.weights.items())
    marks = [(tenths, counts.right, counts.false_alarms) for tenths, counts in sorted(scores.marks.items())]
    return SafeString(json.dumps({"drafts": drafts, "weights": weights, "marks": marks}))


def _precision_words(marks: MarkCounts) -> str:
    """Return how many marked alarms were right, with the interval; what to do where none is marked."""
    total = marks.right + marks.false_alarms
    if not total:
        return NOT_MARKED
    low, high = wilson_interval(marks.right, total)
    interval = f"95 % interval {100 * low:.0f} to {100 * high:.0f} %"
    return f"{marks.right:,} of {total:,} marked alarms below it were right, {100 * marks.right / total:.0f} % ({interval})"
