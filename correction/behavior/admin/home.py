"""The step on the console's first page that says whose requests to behave differently are not read."""

from __future__ import annotations

from django.db.models import Exists
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.kit.console.home import Answers, HomePart, Questions, add_home, since, step
from agents.models import about_watched_agents
from correction.admin.matrix import config_url
from correction.behavior.models import BehaviorRequest
from correction.models import AgentEvaluationConfig

DAYS = 7
HEAR = "manage.py configure defaults behavior_requesters=anyone"


def count_unheard(request: HttpRequest) -> Questions:
    """Ask whether requests were refused because of who wrote them, where nobody decided whose count."""
    decided = AgentEvaluationConfig.objects.filter(is_defaults=True, behavior_requesters__isnull=False)
    refused = BehaviorRequest.objects.filter(
        about_watched_agents(),
        status=BehaviorRequest.Status.CANCELLED,
        created_at__gte=since(24 * DAYS),
        error__contains="(behavior_requesters)",
    ).exclude(agent__evaluation_config__behavior_requesters__isnull=False)
    return {"people unheard": Exists(refused.filter(~Exists(decided)))}


def people_unheard(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Advise to decide who may ask, where people who may not wrote to agents and nobody decided it; else None."""
    if not answers["people unheard"]:
        return None
    may = request.user.has_perm("correction.change_agentevaluationconfig")
    return step(
        "Requests of people who are no members do not count",
        "They wrote to agents in the last 7 days, and were not read for behaviour requests: by default only users who are members of the "
        "channel count, outsiders of a bridge do not. behavior_requesters decides; what a stranger asks for then holds for that person "
        "alone (behavior_scope). A value of your own, also members, removes this step.",
        command=HEAR,
        url=config_url(agent=None) if may else "",
        label="Change the defaults",
    )


add_home(
    HomePart(
        place="setup", order=80, permission="behavior.view_behaviorrequest", asks=count_unheard, render=people_unheard
    )
)
