"""What a threshold would have done: the scores of judged drafts as a histogram, the threshold in it, and the precision of its alarms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
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
from correction.config.settings import (
    CONFIG_FIELDS,
    GATE_DIMENSIONS,
    ConfigError,
    ResolvedConfig,
    resolve_config,
    resolve_defaults,
)
from correction.gate.thresholds import LOGGED, Scores, failing, scores_of, wilson_interval
from correction.models import CorrectionLog
from evaluation.admin.display import HEURISTIC
from evaluation.models import is_heuristic

STEP = 5  # tenths of a point that a bar is wide
HIGHEST = 90
MOST_AGENTS = 20  # of those with most drafts, that are told apart
NOT_MARKED = "no alarm below it was marked right or false alarm yet"
KINDS = {"model": "by a model", "heuristic": "offline"}


def thresholds_url(agent: Agent | None, dimension: str = "", **typed: str) -> str:
    """The page, at one dimension."""
    url = reverse("admin:correction_agentevaluationconfig_thresholds", args=[target_of(agent)])
    query = f"?{urlencode(typed)}" if typed else ""
    return f"{url}{query}#threshold-{dimension}" if dimension else f"{url}{query}"


def thresholds_context(agent: Agent | None, asked: QueryDict) -> dict[str, Any]:
    """What the template shows, for one agent or (None) the defaults, which are tried on the drafts of all agents."""
    kind = asked.get("judge", "")
    if kind not in KINDS:
        kind = "heuristic" if is_heuristic(settings.JUDGE_MODEL) else "model"
    config = resolve_config(agent) if agent is not None else resolve_defaults()
    total, by_dimension = scores_of(agent=agent, heuristic=kind == "heuristic")
    names = _names(by_dimension) if agent is None else {}
    return {
        "agent": agent,
        "name": display.agent_chip(agent) if agent else "",
        "previews": [
            _preview(agent, dimension, asked.get(dimension, ""), config, by_dimension.get(dimension, Scores()), names)
            for dimension in GATE_DIMENSIONS
        ],
        "kind": kind,
        "kinds": KINDS.items(),
        "heuristic": display.badge("heuristic", "warning", HEURISTIC) if kind == "heuristic" else "",
        "total": total,
        "most": LOGGED,
        "config_url": config_url(agent),
    }


def _preview(
    agent: Agent | None, dimension: str, typed: str, config: ResolvedConfig, scores: Scores, names: Mapping[int, str]
) -> dict[str, Any]:
    """One dimension, ready to be shown: `json` is what the script counts in, the rest is shown without it as well."""
    field = f"gate_{dimension}_threshold"
    in_effect = config.threshold(dimension)
    threshold, error = _read(field, typed, in_effect)
    drafts = scores.drafts
    right, false = scores.marked_below(threshold)
    where: dict[str, object] = {"agent__id__exact": agent.pk} if agent is not None else {}
    use = urlencode({"mechanism": BY_ID[dimension].id, field: number(threshold)})
    return {
        "dimension": dimension,
        "field_id": f"threshold-{dimension}-typed",
        "typed": typed if error else number(threshold),
        "threshold": number(threshold),
        "error": error,
        "in_effect": number(in_effect),
        "came_from": origin(config, field),
        "failed": share(failing(drafts, threshold), drafts.total()),
        "now": share(failing(drafts, in_effect), drafts.total()),
        "precision": _precision(right, false),
        "judged": drafts.total(),
        "command": f"manage.py configure {agent.slug if agent else 'defaults'} gate_mode=observe gate_{dimension}_enabled=on",
        "logs_url": display.list_url(CorrectionLog, **where),
        "marks_url": display.list_url(CorrectionLog, **where, mark="any" if scores.marks else "none"),
        "use_url": f"{config_url(agent)}?{use}",
        "chart": _chart(dimension, scores, threshold),
        "agents": [
            {
                "name": display.isolated(name),
                "failed": share(failing(scores.by_agent[pk], threshold), total),
                "place": place,
            }
            for place, (pk, name, total) in enumerate(_ranked(scores, names))
        ],
        "json": _numbers(scores, names),
    }


def _numbers(scores: Scores, names: Mapping[int, str]) -> SafeString:
    """What the script counts in: nothing but whole numbers, so there is nothing to escape."""
    numbers = {
        "drafts": sorted(scores.drafts.items()),
        "marks": [(tenths, *counts) for tenths, counts in sorted(scores.marks.items())],
        "agents": [sorted(scores.by_agent[pk].items()) for pk, _, _ in _ranked(scores, names)],
    }
    return SafeString(json.dumps(numbers))


def _read(field: str, typed: str, in_effect: Decimal) -> tuple[Decimal, str]:
    """The typed threshold; the one in effect where nothing, or nothing that is allowed, was typed, with what is wrong."""
    try:
        value: Decimal | None = CONFIG_FIELDS[field].read(typed)
    except ConfigError as problem:
        return in_effect, str(problem)
    return in_effect if value is None else value, ""


def _chart(dimension: str, scores: Scores, threshold: Decimal) -> SafeString | str:
    """Half a point a bar, what was held back beside what was only observed."""
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


def _ranked(scores: Scores, names: Mapping[int, str]) -> list[tuple[int, str, int]]:
    """Agents with the most drafts first: key, name, drafts."""
    ranked = sorted(
        ((pk, counts.total()) for pk, counts in scores.by_agent.items() if pk in names), key=lambda one: -one[1]
    )
    return [(pk, names[pk], total) for pk, total in ranked[:MOST_AGENTS]]


def _names(by_dimension: Mapping[str, Scores]) -> dict[int, str]:
    keys = {pk for scores in by_dimension.values() for pk in scores.by_agent}
    return dict(Agent.objects.filter(pk__in=keys).values_list("pk", "display_name"))
