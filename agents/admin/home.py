"""Missing steps of the set-up on the console's first page, and the search for agents and channels."""

from __future__ import annotations

from django.db.models import Exists, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import (
    MOST_HITS,
    Answers,
    Hit,
    HomePart,
    Questions,
    add_home,
    add_search,
    step,
)
from agents.kit.llm.endpoints import model_of, route_of
from agents.kit.llm.providers import is_heuristic
from agents.kit.models import WorkerHeartbeat
from agents.kit.ops.health import broker_problem
from agents.kit.work.worker import alive, silence_allowed
from agents.models import Agent, Channel

OFFLINE = "Rules and word lists judge: their scores are heuristic, and most propositions stay unscored."


def ask_for_agents(request: HttpRequest) -> Questions:
    """Ask whether there are agents."""
    return {"agents": Exists(Agent.objects.listed())}


def ask_for_workers(request: HttpRequest) -> Questions:
    """Ask whether a worker was heard of lately, and whether there is one that has not stopped."""
    running = WorkerHeartbeat.objects.filter(stopped_at=None)
    return {
        "worker heard": Exists(running.filter(seen_at__gte=timezone.now() - silence_allowed())),
        "worker not stopped": Exists(running),
    }


def no_agents(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step to import agents, where there are none."""
    if answers["agents"]:
        return None
    add = reverse("admin:agents_import_add") if request.user.has_perm("agents.add_agent") else ""
    text = "An agent is a persona acted by a model. Import yours; the examples are sixteen personas with their conversations."
    return step("There are no agents", text, command="manage.py seed", url=add, label="Import personas")


def no_judge(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step to get a judge, where no model judges or the one that is set cannot be called."""
    problem = route_of("judge").problem
    if problem:
        return step("The judge cannot be called", f"{problem[0].upper()}{problem[1:]}.", command="manage.py check")
    if not is_heuristic(model_of("judge")):
        return None
    text = f"{OFFLINE} A key, or the address of a server, brings a model: see .env.example."
    return step("No model judges", text, command="ANTHROPIC_API_KEY=… in .env")


def no_broker(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step to start the broker, where it is down."""
    problem = broker_problem()
    if not problem:
        return None
    text = f"Workers hear of nothing new: {problem}. Start the broker, or correct CELERY_BROKER_URL; until then one without it works."
    return step("The broker is down", text, command="manage.py work")


def no_worker(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step to start a worker, where none is alive."""
    if answers["worker heard"]:
        return None
    # It may be silent because it is busy for long; that takes a look at all tables of work.
    if answers["worker not stopped"] and alive().exists():
        return None
    text = "What is queued waits: turns, evaluations, messages to be observed, schedules that are due."
    return step(
        "No worker is alive", text, command="manage.py work", url=display.list_url(WorkerHeartbeat), label="Workers"
    )


def agents_like(request: HttpRequest, typed: str) -> list[Hit]:
    """Return the agents with this text in their name or slug."""
    rows = Agent.objects.listed().filter(Q(display_name__icontains=typed) | Q(slug__icontains=typed)).order_by("pk")
    return [
        Hit(agent.display_name, f"agent {agent.slug}", display.page_url(agent), "groups") for agent in rows[:MOST_HITS]
    ]


def channels_like(request: HttpRequest, typed: str) -> list[Hit]:
    """Return the channels with this text in their name or slug, the newest first."""
    rows = Channel.objects.filter(Q(name__icontains=typed) | Q(slug__icontains=typed)).order_by("-pk")
    return [
        Hit(channel.name, f"channel {channel.slug}", display.page_url(channel), "forum") for channel in rows[:MOST_HITS]
    ]


add_search("agents.view_agent", agents_like)
add_search("agents.view_channel", channels_like)
add_home(
    HomePart(place="setup", order=10, permission="agents.view_agent", asks=ask_for_agents, render=no_agents),
    HomePart(place="setup", order=20, permission="kit.view_llmcall", render=no_judge),
    HomePart(place="setup", order=30, permission="kit.view_workerheartbeat", render=no_broker),
    HomePart(place="setup", order=40, permission="kit.view_workerheartbeat", asks=ask_for_workers, render=no_worker),
)
