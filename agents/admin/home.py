"""What the console's first page shows of agents, workers and turns, and what is missing in the set-up."""

from __future__ import annotations

from collections import Counter

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.home import (
    FAILURE_DAYS,
    MOST_HITS,
    Hit,
    HomePart,
    a_few,
    add_home,
    add_search,
    card,
    listing,
    number_link,
    since,
    step,
    up_to,
)
from agents.kit.llm.endpoints import model_of, provider_of, route_of
from agents.kit.models import WorkerHeartbeat
from agents.kit.ops.health import broker_problem
from agents.kit.work.queues import work_models
from agents.kit.work.worker import alive, silence_allowed
from agents.models import Agent, Channel, Run

MOST_AGENTS = 2_000  # counted: the newest
TURNS = 6
WENT_WRONG = (Run.Status.FAILED, Run.Status.ERRORED)
OFFLINE = "Rules and word lists judge: their scores are heuristic, and most propositions stay unscored."


def agents_card(request: HttpRequest) -> SafeString:
    """How many agents there are."""
    newest = Counter(Agent.objects.listed().order_by("-pk").values_list("is_active", flat=True)[:MOST_AGENTS])
    active, inactive = newest[True], newest[False]
    more = "+" if newest.total() == MOST_AGENTS else ""
    url = display.list_url(Agent)
    rest = display.link(f"{url}?is_active__exact=0", f"{inactive:,}{more} inactive") if inactive else ""
    return card(
        "Agents",
        figure=number_link(f"{url}?is_active__exact=1", f"{active:,}{more}"),
        unit="active",
        lines=(rest,),
    )


def workers_card(request: HttpRequest) -> SafeString:
    """How many workers live, and what waits for them."""
    workers = workers_alive()
    waits: list[object] = []
    for model in work_models():
        number = a_few(model._default_manager.filter(status=model.Status.PENDING))
        if number:
            label = f"{up_to(number)} {model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural}"
            is_listed = admin.site.is_registered(model)
            waits.append(display.link(display.list_url(model, status__exact="pending"), label) if is_listed else label)
    return card(
        "Workers",
        figure=number_link(display.list_url(WorkerHeartbeat), up_to(workers)),
        unit="alive",
        lines=[format_html("{} wait", line) for line in waits] or ["Nothing waits."],
        tone="bad" if waits and not workers else "plain",
    )


def turns_list(request: HttpRequest) -> SafeString:
    """The newest turns, and the newest that went wrong."""
    url = display.list_url(Run)
    rows = Run.objects.select_related("agent", "channel").defer("trace", "overrides", "prompt")
    wrong = rows.filter(status__in=WENT_WRONG, created_at__gte=since(24 * FAILURE_DAYS)).order_by("-created_at")[:TURNS]
    return listing(
        "Turns",
        heads=("Turn", "Agent", "What happened"),
        rows=[_turn(run) for run in rows.order_by("-pk")[:TURNS]],
        wrong=[_turn(run) for run in wrong],
        more=((url, "All turns"), (f"{url}?status__in={','.join(WENT_WRONG)}", "All that went wrong")),
        empty="No agent has taken a turn yet. This runs one:",
        command="manage.py turn AGENT --channel CHANNEL",
    )


def _turn(run: Run) -> tuple[object, ...]:
    name = display.lines(display.page_of(run, f"turn {run.pk}"), display.moment(run.created_at))
    if run.error:
        what = format_html("{} {}", display.status_badge(run), display.folded(run.error, 90))
    else:
        said = run.get_stop_reason_display() if run.stop_reason else ""
        what = format_html('{} <span class="pl-subtle">{}</span>', display.status_badge(run), said)
    if run.channel is not None:
        where = display.link(reverse("admin:agents_channel_transcript", args=[run.channel.pk]), run.channel)
        what = display.lines(what, format_html("in {}", where))
    return (name, agent_chip(run.agent), what)


def no_agents(request: HttpRequest) -> SafeString | None:
    if Agent.objects.listed().exists():
        return None
    add = reverse("admin:agents_import_add") if request.user.has_perm("agents.add_agent") else ""
    text = "An agent is a persona acted by a model. Import yours; the examples are sixteen personas with their conversations."
    return step("There are no agents", text, command="manage.py seed", url=add, label="Import personas")


def no_judge(request: HttpRequest) -> SafeString | None:
    """No model judges: a key is missing, or no model is chosen."""
    way = route_of("judge")
    if way.problem:
        return step(
            "The judge cannot be called", f"{way.problem[0].upper()}{way.problem[1:]}.", command="manage.py check"
        )
    if provider_of(model_of("judge")) != "offline":
        return None
    text = f"{OFFLINE} A key for Anthropic's API, or the address of a server that speaks it, brings a model."
    return step("No model judges", text, command="ANTHROPIC_API_KEY=… in .env")


def no_broker(request: HttpRequest) -> SafeString | None:
    problem = broker_problem()
    if not problem:
        return None
    text = f"Workers hear of nothing new: {problem}. Start the broker, or correct CELERY_BROKER_URL; until then one without it works."
    return step("The broker is down", text, command="manage.py work")


def no_worker(request: HttpRequest) -> SafeString | None:
    if workers_alive():
        return None
    text = "What is queued waits: turns, evaluations, messages to be observed, schedules that are due."
    return step(
        "No worker is alive", text, command="manage.py work", url=display.list_url(WorkerHeartbeat), label="Workers"
    )


def workers_alive() -> int:
    """The workers heard of lately; in full (with those busy for long) only where there is none."""
    heard = WorkerHeartbeat.objects.filter(stopped_at=None, seen_at__gte=timezone.now() - silence_allowed())
    return a_few(heard) or a_few(alive())


def agents_like(request: HttpRequest, typed: str) -> list[Hit]:
    """The agents with this in their name or slug."""
    rows = Agent.objects.listed().filter(Q(display_name__icontains=typed) | Q(slug__icontains=typed)).order_by("pk")
    return [(a.display_name, f"agent {a.slug}", display.page_url(a), "groups") for a in rows[:MOST_HITS]]


def channels_like(request: HttpRequest, typed: str) -> list[Hit]:
    """The channels with this in their name or slug, the newest first."""
    rows = Channel.objects.filter(Q(name__icontains=typed) | Q(slug__icontains=typed)).order_by("-pk")
    return [(c.name, f"channel {c.slug}", display.page_url(c), "forum") for c in rows[:MOST_HITS]]


add_search("agents.view_agent", agents_like)
add_search("agents.view_channel", channels_like)
add_home(
    HomePart(place="setup", order=10, permission="agents.view_agent", render=no_agents),
    HomePart(place="setup", order=20, permission="kit.view_llmcall", render=no_judge),
    HomePart(place="setup", order=30, permission="kit.view_workerheartbeat", render=no_broker),
    HomePart(place="setup", order=40, permission="kit.view_workerheartbeat", render=no_worker),
    HomePart(place="cards", order=10, permission="agents.view_agent", render=agents_card),
    HomePart(place="cards", order=80, permission="kit.view_workerheartbeat", render=workers_card),
    HomePart(place="lists", order=10, permission="agents.view_run", render=turns_list),
)
