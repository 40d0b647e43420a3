"""Agents, workers and missing steps of the set-up on the console's first page."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import (
    MOST_COUNTED,
    MOST_HITS,
    Answers,
    CountUpTo,
    Hit,
    HomePart,
    Questions,
    add_home,
    add_search,
    card,
    count_of_work,
    number_link,
    step,
    up_to,
)
from agents.kit.llm.endpoints import model_of, route_of
from agents.kit.llm.providers import is_heuristic
from agents.kit.models import WorkerHeartbeat
from agents.kit.ops.health import broker_problem
from agents.kit.work.queues import work_models
from agents.kit.work.worker import alive, silence_allowed
from agents.models import Agent, Channel

MOST_AGENTS = 2_000  # counted
OFFLINE = "Rules and word lists judge: their scores are heuristic, and most propositions stay unscored."


def count_agents(request: HttpRequest) -> Questions:
    """Ask how many agents there are."""
    return {
        "active agents": CountUpTo(Agent.objects.listed().filter(is_active=True), MOST_AGENTS),
        "inactive agents": CountUpTo(Agent.objects.listed().filter(is_active=False), MOST_AGENTS),
    }


def agents_card(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the card with the number of active agents, and below it that of the inactive ones, where there are any."""
    active = answers["active agents"]
    inactive = answers["inactive agents"]
    url = display.list_url(Agent)
    line: SafeString | str = ""
    if inactive:
        line = display.link(f"{url}?is_active__exact=0", f"{display.count_up_to(inactive, MOST_AGENTS)} inactive")
    return card(
        "Agents",
        figure=number_link(f"{url}?is_active__exact=1", display.count_up_to(active, MOST_AGENTS)),
        unit="active",
        lines=(line,),
    )


def count_workers(request: HttpRequest) -> Questions:
    """Ask how many workers were heard of lately."""
    heard = WorkerHeartbeat.objects.filter(stopped_at=None, seen_at__gte=timezone.now() - silence_allowed())
    return {"workers": CountUpTo(heard)}


def workers_alive(answers: Answers) -> int:
    """Return the number of workers heard of lately; of those busy for long only where there is none."""
    return answers["workers"] or alive()[: MOST_COUNTED + 1].count()


def count_work(request: HttpRequest) -> Questions:
    """Ask also how much work waits in each table."""
    waiting = {model._meta.label: count_of_work(model, model.Status.PENDING) for model in work_models()}
    return {**count_workers(request), **waiting}


def workers_card(request: HttpRequest, answers: Answers) -> SafeString:
    """Return the card with the number of workers that are alive, and what waits for them; it is red where work waits and none is."""
    workers = workers_alive(answers)
    waiting: list[object] = []
    for model in work_models():
        number = answers[model._meta.label]
        if not number:
            continue
        name = model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural
        label: object = f"{up_to(number)} {name}"
        if admin.site.is_registered(model):
            label = display.link(display.list_url(model, status__exact="pending"), label)
        waiting.append(format_html("{} wait", label))
    is_stuck = bool(waiting) and not workers
    return card(
        "Workers",
        figure=number_link(display.list_url(WorkerHeartbeat), up_to(workers)),
        unit="alive",
        lines=waiting or ["Nothing waits."],
        tone="bad" if is_stuck else "plain",
    )


def no_agents(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step to import agents, where there are none."""
    if answers["active agents"] or answers["inactive agents"]:
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
    if workers_alive(answers):
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
    HomePart(place="setup", order=10, permission="agents.view_agent", asks=count_agents, render=no_agents),
    HomePart(place="setup", order=20, permission="kit.view_llmcall", render=no_judge),
    HomePart(place="setup", order=30, permission="kit.view_workerheartbeat", render=no_broker),
    HomePart(place="setup", order=40, permission="kit.view_workerheartbeat", asks=count_workers, render=no_worker),
    HomePart(place="cards", order=10, permission="agents.view_agent", asks=count_agents, render=agents_card),
    HomePart(place="cards", order=80, permission="kit.view_workerheartbeat", asks=count_work, render=workers_card),
)
