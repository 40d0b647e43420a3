"""What a threshold would have done: how many judged drafts fail, the precision of its alarms, and the scores as a histogram."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.charts import Bar, bars
from agents.models import Agent
from correction.admin.display import number, origin, share
from correction.admin.matrix import BY_ID, config_url, target_of
from correction.config.configure import in_effect
from correction.config.settings import GATE_DIMENSIONS, SETTINGS, ConfigError, ResolvedConfig
from correction.gate.thresholds import LOGGED, Scores, failing, scores_of, wilson_interval
from correction.models import CorrectionLog
from evaluation.admin.display import HEURISTIC
from evaluation.models import is_heuristic

STEP = 5  # tenths of a point that a bar is wide
HIGHEST = 90
NOT_MARKED = "no alarm below it was marked right or false alarm yet"
KINDS = {"model": "by a model", "heuristic": "offline"}


def thresholds_url(agent: Agent | None, dimension: str = "", **typed: str) -> str:
    """The page, at one dimension."""
    url = reverse("admin:correction_agentevaluationconfig_thresholds", args=[target_of(agent)])
    query = f"?{urlencode(typed)}" if typed else ""
    return f"{url}{query}#threshold-{dimension}" if dimension else f"{url}{query}"


def kind_of_judge() -> str:
    """The kind of judge that is set now: scores of the two kinds are not comparable."""
    return "heuristic" if is_heuristic(settings.JUDGE_MODEL) else "model"


def thresholds_context(agent: Agent | None, asked: QueryDict) -> dict[str, Any]:
    """What the template shows, for one agent or (None) the defaults, which are tried on the drafts of all agents."""
    kind = asked.get("judge", "")
    if kind not in KINDS:
        kind = kind_of_judge()
    config = in_effect(agent)
    total, judged = scores_of(agent=agent, heuristic=kind == "heuristic")
    previews = []
    for dimension in GATE_DIMENSIONS:
        scores = judged.get(dimension, Scores())
        shown = preview(agent, dimension, asked.get(dimension, ""), config, scores)
        use = urlencode({"mechanism": dimension, f"gate_{dimension}_threshold": shown["threshold"]})
        shown["use_url"] = f"{config_url(agent)}?{use}"
        shown["chart"] = _chart(dimension, scores, shown["value"])
        previews.append(shown)
    return {
        "agent": agent,
        "previews": previews,
        "kind": kind,
        "kinds": KINDS.items(),
        "heuristic": heuristic_badge(kind),
        "total": total,
        "most": LOGGED,
        "config_url": config_url(agent),
    }


def heuristic_badge(kind: str) -> SafeString | str:
    return display.badge("heuristic", "warning", HEURISTIC) if kind == "heuristic" else ""


def preview(agent: Agent | None, dimension: str, typed: str, config: ResolvedConfig, scores: Scores) -> dict[str, Any]:
    """What the typed threshold does to one dimension; `json` is what the script counts in while a person types.

    The one in effect counts where nothing, or nothing that is allowed, was typed; then `error` says what is wrong.
    """
    field, current, error = f"gate_{dimension}_threshold", config.threshold(dimension), ""
    threshold = current
    try:
        read: Decimal | None = SETTINGS[field].read(typed)
        threshold = current if read is None else read
    except ConfigError as problem:
        error = str(problem)
    drafts = scores.drafts
    where: dict[str, object] = {"agent__id__exact": agent.pk} if agent is not None else {}
    return {
        "dimension": dimension,
        "label": BY_ID[dimension].label,
        "value": threshold,
        "typed": typed if error else number(threshold),
        "threshold": number(threshold),
        "error": error,
        "in_effect": number(current),
        "came_from": origin(config, field),
        "failed": share(failing(drafts, threshold), drafts.total()),
        "now": share(failing(drafts, current), drafts.total()),
        "precision": _precision(*scores.marked_below(threshold)),
        "judged": drafts.total(),
        "command": f"manage.py configure {agent.slug if agent else 'defaults'} gate_mode=observe gate_{dimension}_enabled=on",
        "logs_url": display.list_url(CorrectionLog, **where),
        "marks_url": display.list_url(CorrectionLog, **where, mark="any" if scores.marks else "none"),
        "page_url": thresholds_url(agent, dimension),
        "json": _counts(scores),
    }


def _counts(scores: Scores) -> SafeString:
    """What the script counts in: nothing but whole numbers, so there is nothing to escape."""
    marks = [(tenths, *counts) for tenths, counts in sorted(scores.marks.items())]
    return SafeString(json.dumps({"drafts": sorted(scores.drafts.items()), "marks": marks}))


def _chart(dimension: str, scores: Scores, threshold: Decimal) -> SafeString | str:
    """Half a point a bar, what was held back next to what was only observed."""
    if not scores.drafts:
        return ""
    logged, observed = _binned(scores.logged), _binned(scores.observed)
    return bars(
        [Bar(label=_label(place), values=(logged[place], observed[place])) for place in range(0, HIGHEST, STEP)],
        label=f"Scores of first drafts for {dimension}, 0 to 9",
        series=("judged by the gate", "observed"),
        threshold=float(threshold),
        unit="drafts",
    )


def _binned(counts: Counter[int]) -> Counter[int]:
    """Counts by the lowest tenth of their bar; a 9 stands in the last one."""
    binned: Counter[int] = Counter()
    for tenths, count in counts.items():
        binned[min(tenths - tenths % STEP, HIGHEST - STEP)] += count
    return binned


def _label(place: int) -> str:
    end = "9" if place + STEP == HIGHEST else f"below {(place + STEP) / 10:g}"
    return f"{place / 10:g} to {end}"


def _precision(right: int, false: int) -> str:
    """How many marked alarms were right, with the interval; what to do where none is marked."""
    if not right + false:
        return NOT_MARKED
    low, high = wilson_interval(right, right + false)
    shown = f"{100 * right / (right + false):.0f} % (95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
    return f"{right:,} of {right + false:,} marked alarms below it were right, {shown}"
