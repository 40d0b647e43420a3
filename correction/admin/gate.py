"""The gate of an agent on one page: what thresholds would have done, what it is to do, what was changed, and a sentence to check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from pydantic import ValidationError

from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.panels import seconds_of, table
from agents.kit.console.site import Button
from agents.kit.llm.endpoints import provider_of
from agents.kit.text.wording import counted
from agents.kit.work.worker import alive
from agents.models import Agent, Message
from correction.admin.display import number, outcome_badge, share
from correction.admin.matrix import BY_ID, config_url, gate_url
from correction.config.configure import ConfigChange, config_history, notes_on
from correction.config.settings import GATE_DIMENSIONS, SETTINGS, ConfigError, ResolvedConfig, merge
from correction.gate.observe import CheckEstimate, estimate_check, judge_later
from correction.gate.quality_check import QualityCheck, check_quality
from correction.gate.thresholds import (
    ORIGINS,
    REPLAYABLE,
    USUALLY_REPLAYED,
    MarkCounts,
    Replay,
    Scores,
    failing,
    replay,
    wilson_interval,
)
from correction.models import AgentEvaluationConfig, CorrectionLog, GateMode, ObservedMessage
from evaluation.admin.display import MEASURE, judge_badge
from evaluation.models import is_heuristic

TRIED = range(3, 8)  # thresholds whose share stands in the table
NOT_MARKED = "no alarm below it was marked right or false alarm yet"
KINDS = {"model": "by a model", "heuristic": "offline"}
CHANGES = 5  # latest ones that are shown
READING, CHECKING = "agents.view_message", "correction.add_correctionlog"
FIELDS = ("gate_mode", *(f"gate_{d}_{what}" for d in GATE_DIMENSIONS for what in ("enabled", "threshold")))
OF_GATE = {name for one in ("gate", *GATE_DIMENSIONS, "rules") for name in BY_ID[one].fields}


def kind_of_judge() -> str:
    """The kind of judge that is set now: scores of the two kinds are not comparable."""
    return "heuristic" if is_heuristic(settings.JUDGE_MODEL) else "model"


def gate_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """The ways from an agent's page."""
    buttons = [Button(label="Gate", url=gate_url(agent), why="what it would send back; off, observe or enforce")]
    if request.user.has_perm(CHECKING):
        buttons.append(
            Button(label="Check a sentence", url=f"{gate_url(agent)}#check", why="the gate's verdict on a draft")
        )
    return buttons


@dataclass(frozen=True, slots=True)
class Choice:
    """What the form says: what is in effect, and over it what a link filled in or a person typed.

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
        """For the address of the page as it is filled in."""
        chosen = {"gate_mode": self.mode, "check": self.checked, "filled_in": 1}
        return {**chosen, "last": self.last, "judge": self.kind, **self.typed}


def read_threshold(text: str, dimension: str, config: ResolvedConfig) -> tuple[Decimal, str]:
    """Read a typed threshold; the one in effect where nothing is typed, or what is not allowed, with the reason why not."""
    try:
        read: Decimal | None = SETTINGS[f"gate_{dimension}_threshold"].read(text)
    except ConfigError as problem:
        return config.threshold(dimension), str(problem)
    return config.threshold(dimension) if read is None else read, ""


def read_choice(asked: QueryDict, config: ResolvedConfig) -> Choice:
    """What was typed or linked; everything else as it is in effect."""
    typed, thresholds, errors = {}, {}, {}
    for dimension in GATE_DIMENSIONS:
        text = asked.get(dimension, "")
        thresholds[dimension], errors[dimension] = read_threshold(text, dimension, config)
        typed[dimension] = text[:20] if errors[dimension] else number(thresholds[dimension])
    enabled = [d for d in GATE_DIMENSIONS if config[f"gate_{d}_enabled"]]
    wanted: Sequence[str] = enabled or GATE_DIMENSIONS[:1]
    if "add" in asked:  # of a link that keeps what is checked
        wanted = [*enabled, asked.get("add", "")]
    elif "check" in asked or "filled_in" in asked:
        wanted = asked.getlist("check")
    mode, last, kind = asked.get("gate_mode", ""), asked.get("last", ""), asked.get("judge", "")
    return Choice(
        mode=mode if mode in GateMode.values else config.gate_mode,
        checked=tuple(d for d in GATE_DIMENSIONS if d in wanted),
        typed=typed,
        thresholds=thresholds,
        errors=errors,
        last=int(last) if last in map(str, REPLAYABLE) else USUALLY_REPLAYED,
        kind=kind if kind in KINDS else kind_of_judge(),
    )


def changes_of_choice(
    posted: QueryDict, choice: Choice, *, own: AgentEvaluationConfig | None, defaults: AgentEvaluationConfig | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that the person changed, and what the page showed of all of them, as stored.

    Where nothing sets the mode it follows the checks, and enforces: so it is stored with the first change. What is ticked while the gate
    is switched off is not stored: it is what the replay looked at.

    Args:
        own: The row that is edited. defaults: that above it, None where the defaults are edited.

    Raises:
        ConfigError: A threshold is not allowed, or nothing is to be checked by a gate that is on.
    """
    if errors := {dimension: error for dimension, error in choice.errors.items() if error}:
        raise ConfigError(errors)
    seen = {name: SETTINGS[name].read(posted.get(f"seen-{name}", "")) for name in FIELDS}
    row = AgentEvaluationConfig(**{name: getattr(own, name, None) for name in SETTINGS} | seen)
    shown = merge(own=row, defaults=defaults)
    off = choice.mode == GateMode.OFF
    chosen: dict[str, Any] = {"gate_mode": choice.mode}
    for dimension in GATE_DIMENSIONS:
        chosen[f"gate_{dimension}_threshold"] = choice.thresholds[dimension]
        if not off:
            chosen[f"gate_{dimension}_enabled"] = dimension in choice.checked
    changes = {name: value for name, value in chosen.items() if value != shown[name]}
    if not off and not choice.checked and not shown["gate_rules_enabled"]:
        allowed = ", ".join(GATE_DIMENSIONS)
        raise ConfigError({"check": f"gate_mode {choice.mode}: tick at least one of {allowed}, or choose off"})
    if changes and shown.provenance["gate_mode"] == "built-in":
        changes["gate_mode"] = choice.mode
    return changes, seen


def queue_unjudged(agent: Agent | None, choice: Choice, *, evaluated: bool) -> int:
    """Have those of the replayed messages judged that were not on a checked dimension, or only `evaluated`; returns how many.

    Raises:
        ValueError: No dimension is checked.
    """
    if not choice.checked:
        raise ValueError(f"Tick what is to be judged: {', '.join(GATE_DIMENSIONS)}")
    got = replay(agent=agent, heuristic=is_heuristic(settings.JUDGE_MODEL), last=choice.last)
    messages = Message.objects.filter(pk__in=got.unjudged(choice.checked, evaluated=evaluated)).select_related("agent")
    return judge_later(messages=list(messages), dimensions=choice.checked)


def check_sentence(agent: Agent, draft: str, dimensions: tuple[str, ...]) -> dict[str, Any]:
    """Judge a draft as an external check, and what the page shows of it; nothing is said."""
    asked = {"draft": draft, "agent": agent.slug, "tags": {"from": "console"}}
    try:
        check = QualityCheck.model_validate(asked | ({"dimensions": list(dimensions)} if dimensions else {}))
    except ValidationError as error:
        return {"draft": draft, "problem": f"draft: {error.errors()[0]['msg']}"}
    checked = check_quality(check)
    log = CorrectionLog.objects.prefetch_related("dimension_results").get(pk=checked.log_id)
    free, cost = provider_of(checked.judge) != "anthropic", checked.cost
    return {
        "draft": draft,
        "checked": checked,
        "outcome": outcome_badge(checked.outcome),
        "results": sorted(log.dimension_results.all(), key=lambda result: (result.passed, result.dimension)),
        "judge": judge_badge(checked.judge),
        "took": seconds_of(checked.duration_ms / 1000),
        "cost": display.badge("free", "good") if free else display.money(cost.cost_usd, unpriced=cost.unpriced),
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
    """What the template shows, for one agent or (None) the defaults, which are tried on the messages of all agents."""
    got = replay(agent=agent, heuristic=choice.kind == "heuristic", last=choice.last)
    said = Message.objects.filter(pk__in=got.messages).select_related("agent", "channel").in_bulk()
    open_ones = {name: len(got.unjudged(choice.checked, evaluated=name == "all")) for name in ("new", "all")}
    if open_ones["all"] == open_ones["new"]:
        del open_ones["all"]
    newest = next((said[pk] for pk in got.messages if pk in said), None)
    needs = None
    if newest is not None and newest.agent is not None:
        needs = estimate_check(message=newest, agent=newest.agent, dimensions=choice.checked)
    waiting = ObservedMessage.objects.filter(message__in=list(got.messages), status__in=ObservedMessage.OPEN).count()
    back = got.sent_back({dimension: choice.thresholds[dimension] for dimension in choice.checked})
    by_origin = Counter(
        origin for scores in got.messages.values() for origin in {one.origin for one in scores.values()}
    )
    columns = [d for d in GATE_DIMENSIONS if any(d in scores for scores in got.messages.values())]
    return {
        "agent": agent,
        "config": config,
        "choice": choice,
        "notes": notes_on(config, agent),
        "seen": [(name, SETTINGS[name].show_stored(getattr(own, name, None))) for name in FIELDS],
        "lasts": REPLAYABLE,
        "kinds": KINDS.items(),
        "judges": [judge_badge(judge) for judge in got.judges],
        "total": len(got.messages),
        "by_origin": [(name, by_origin[name]) for name in ORIGINS if by_origin[name]],
        "cards": [_card(agent, dimension, choice, config, got) for dimension in GATE_DIMENSIONS],
        "sent_back": share(len(back), len(got.messages)),
        "sent_back_number": len(back),
        "columns": columns,
        "rows": _rows(got, columns, said, set(back), may_read=request.user.has_perm(READING)),
        "open": [(name, n, needs.calls * n if needs else 0, _cost(needs, n)) for name, n in open_ones.items() if n],
        "waiting": waiting,
        "no_worker": bool(waiting) and not alive().exists(),
        "judge_set": judge_badge(str(settings.JUDGE_MODEL)),
        "may_judge": choice.kind == kind_of_judge() and request.user.has_perm(MEASURE),
        "may_check": request.user.has_perm(CHECKING),
        "modes": GateMode.values,
        "share_observed": f"{100 * config['observe_sample_rate']:.0f} %",
        "cost_of_message": _cost_of("message", needs, choice.checked),
        "cost_of_draft": _cost_of("draft", needs, choice.checked),
        "seconds": seconds_of(needs.seconds) if needs and needs.seconds is not None else "",
        "deadlines": (config.show("gate_deadline_seconds"), config.show("gate_total_deadline_seconds")),
        "retries": config["max_correction_attempts"],
        "changes": _changes(agent),
        "logs_url": display.list_url(CorrectionLog, **({"session__agent__id__exact": agent.pk} if agent else {})),
        "config_url": config_url(agent),
    }


def _cost_of(each: str, needs: CheckEstimate | None, checked: Sequence[str]) -> SafeString | str:
    """A sentence on what checking each message or draft costs."""
    if needs is None:
        return "What that costs is estimated once there is a message."
    if not checked:
        return "Tick what is to be checked to see the cost."
    if not needs.calls:
        return "No call and no cost: the judge answers on this machine."
    calls, cost = counted(needs.calls, "call"), _cost(needs, 1000)
    return format_html("For {}: {} a {}, about {} per 1,000 {}s", ", ".join(checked), calls, each, cost, each)


def _cost(needs: CheckEstimate | None, messages: int) -> SafeString:
    if needs is None:
        return display.EMPTY
    if not needs.calls:
        return display.badge("free", "good", "the judge answers on this machine")
    if needs.cost_usd is None:
        return display.money(None, unpriced=needs.calls * messages)
    return display.money(needs.cost_usd * messages)


def _changes(agent: Agent | None) -> list[tuple[Any, list[Any], bool]]:
    """The latest changes of the gate, each with its settings and whether it can be undone: none of them was changed again."""
    newer: set[str] = set()
    shown = []
    for change in config_history(agent):
        if not OF_GATE.isdisjoint(change.changes):
            shown.append((change, settings_of(change), newer.isdisjoint(change.changes)))
        newer |= change.changes.keys()
    return shown[:CHANGES]


def settings_of(change: ConfigChange) -> list[tuple[str, str, str]]:
    """The settings of a change, as people call them, with what was stored before and after."""
    pairs = [(SETTINGS[name], before, after) for name, (before, after) in change.changes.items()]
    return [(one.label, one.show_stored(before), one.show_stored(after)) for one, before, after in pairs]


def _rows(
    got: Replay, columns: Sequence[str], said: Mapping[int, Message], back: set[int], *, may_read: bool
) -> list[dict[str, Any]]:
    """The scored messages, the lowest score first; `hidden` are those that the thresholds let pass."""
    scored = [
        (min(one.tenths for one in scores.values()), pk) for pk, scores in got.messages.items() if scores and pk in said
    ]
    return [
        {
            "hidden": pk not in back,
            "at": said[pk].said_at,
            "who": said[pk].agent,
            "text": display.shortened(said[pk].text, 200) if may_read else "",
            "tags": display.tags(said[pk].tags) if said[pk].tags else "",
            "url": transcript_url(said[pk]),
            "scores": [(d, scores.get(d), f"{scores[d].tenths / 10:g}" if d in scores else "–") for d in columns],
        }
        for _, pk in sorted(scored, key=lambda row: (row[0], -row[1]))
        for scores in [got.messages[pk]]
    ]


def _card(agent: Agent | None, dimension: str, choice: Choice, config: ResolvedConfig, got: Replay) -> dict[str, Any]:
    """One dimension: its box, its threshold and what that does, and other ones. The script counts in `counts` while a person types."""
    scores, threshold = got.dimensions.get(dimension, Scores()), choice.thresholds[dimension]
    current, drafts, tried = config.threshold(dimension), scores.messages, SafeString("")
    if drafts:
        shares = [f"{100 * failing(drafts, Decimal(limit)) / drafts.total():.0f}\N{NO-BREAK SPACE}%" for limit in TRIED]
        heads, label = ("Threshold", *map(str, TRIED)), f"{dimension}: share sent back"
        tried = table(heads, [("Sent back", *shares)], label=label, stacking=False)
    where: dict[str, object] = {"session__agent__id__exact": agent.pk} if agent is not None else {}
    marks = [(tenths, counts.right, counts.false_alarms) for tenths, counts in sorted(scores.marks.items())]
    return {
        "dimension": dimension,
        "label": BY_ID[dimension].label,
        "checked": dimension in choice.checked,
        "typed": choice.typed[dimension],
        "error": choice.errors[dimension],
        "judged": drafts.total(),
        "unscored": len(got.messages) - drafts.total(),
        "could_not": sum(dimension in asked for asked in got.tried.values()),
        "failed": share(failing(drafts, threshold), drafts.total()),
        "in_effect": number(current),
        "is_in_effect": current == threshold,
        "now": share(failing(drafts, current), drafts.total()),
        "tried": tried,
        "precision": _precision(scores.marked_below(threshold)),
        "counts": SafeString(json.dumps({"drafts": sorted(drafts.items()), "marks": marks})),  # whole numbers only
        "markable": bool(scores.marks or scores.by_origin["gate"] or scores.by_origin["observed"]),
        "marks_label": "Marked alarms" if scores.marks else "Mark some",
        "marks_url": display.list_url(CorrectionLog, **where, mark="any" if scores.marks else "none"),
        "write_url": reverse("admin:evaluation_proposition_new", args=[agent.slug]) if agent is not None else "",
    }


def _precision(marks: MarkCounts) -> str:
    """Return how many marked alarms were right, with the interval; what to do where none is marked."""
    total = marks.right + marks.false_alarms
    if not total:
        return NOT_MARKED
    low, high = wilson_interval(marks.right, total)
    interval = f"95 % interval {100 * low:.0f} to {100 * high:.0f} %"
    return f"{marks.right:,} of {total:,} marked alarms below it were right, {100 * marks.right / total:.0f} % ({interval})"
