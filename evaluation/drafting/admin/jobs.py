"""Serve the page that asks for suggestions of propositions, with the newest ones."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, as_query, ask, request_form
from agents.kit.console.panels import table
from agents.kit.console.site import Button, add_pages
from agents.kit.llm import Label, estimate_tokens, ledger
from agents.kit.llm.endpoints import problem_of
from agents.models import Agent
from agents.personas.persona import render_persona
from evaluation.admin.display import MEASURE
from evaluation.admin.jobs import newest_job
from evaluation.drafting.editing import NO_FOLDER, team_folder
from evaluation.drafting.jobs import SuggestionsRequest, model_choices, queue_suggestions
from evaluation.drafting.suggesting import suggestions_request
from evaluation.models import Job, Proposition
from evaluation.runs.request import refuse_judge

WRITE = "evaluation.change_proposition"
MODEL_NEEDED = "It takes a model: set ANTHROPIC_API_KEY or JUDGE_MODEL. Without one, write propositions by hand."
TOKENS_PER_SUGGESTION = 200  # an assumption, said so where it is shown


SuggestingForm = request_form(SuggestionsRequest)


def suggest_page(request: HttpRequest) -> HttpResponse:
    """Show the form of suggestions and the newest ones, then what they would cost; once that is confirmed, queue the job.

    Raises:
        PermissionDenied: The user may not ask for evaluations; or confirms without the right to change propositions.
    """
    if not request.user.has_perm(MEASURE):
        raise PermissionDenied
    proposition_admin: Any = admin.site.get_model_admin(Proposition)
    may_write = request.user.has_perm(WRITE)
    models = model_choices()
    form = SuggestingForm(as_query(request, SuggestingForm, {"model": models[0][0]} if models else {}))

    def agents() -> list[Agent]:
        body: SuggestionsRequest = form.asked
        return body.find_few_agents()

    def queue() -> str:
        if not may_write:
            raise PermissionDenied
        request_body = form.asked
        refuse_judge(request_body.model, field="model")
        queue_suggestions(agents=agents(), most=request_body.max, model=request_body.model, user=user_of(request))
        return reverse("admin:evaluation_job_suggest")

    return ask(
        proposition_admin, request, form, title="Suggest propositions", verb="Suggest", do=queue,
        preview=lambda: _suggesting_preview(agents(), form.asked.max, form.asked.model, may_write=may_write),
        about="A model reads each persona and suggests what to measure, with the words it comes from. Nothing is judged before you "
        "accept it.",
        back=(reverse("admin:evaluation_proposition_changelist"), "Back to the propositions"),
        newest=newest_job(request, Job.Kind.SUGGESTIONS, suggested),
    )  # fmt: skip


def _suggesting_preview(agents: list[Agent], most: int, model: str, *, may_write: bool) -> CostPreview:
    """Estimate a call per agent; its tokens are a quarter of the persona's characters, and an assumption for the answer.

    Raises:
        ValueError: No model is named.
    """
    if not model:
        raise ValueError(MODEL_NEEDED)
    input_tokens = 0
    for agent in Agent.objects.filter(pk__in=[agent.pk for agent in agents]).prefetch_related("traits"):
        input_tokens += _prompt_tokens(agent, most, model)
    output_tokens = len(agents) * most * TOKENS_PER_SUGGESTION
    cost = ledger.estimate_cost(model, input_tokens, output_tokens)  # None: the model's price is not known
    unpriced_calls = len(agents) if cost is None else 0
    return CostPreview(
        facts=[
            ("Agents", display.isolated(_some_names(agents))),
            ("Calls of the model", f"{len(agents):,}"),
            ("Tokens, in and out", f"{input_tokens:,} · {output_tokens:,}"),
            ("Cost, estimated", display.money(cost, unpriced=unpriced_calls)),
        ],
        note=f"Assumed: {TOKENS_PER_SUGGESTION} tokens per suggestion. What you reject is not suggested again.",
        why_not=_why_not_asked(model) if may_write else "Asking for it takes the right to change propositions.",
    )


def _prompt_tokens(agent: Agent, most: int, model: str) -> int:
    """Return about how many tokens the request about an agent has; the claims it has already are left out."""
    request = suggestions_request(
        name=agent.display_name,
        persona=render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()),
        existing=(),
        most=most,
        label=Label(purpose="estimate"),
        model=model,
        nonce="estimate",
    )
    return estimate_tokens(request)


def _some_names(agents: list[Agent]) -> str:
    """Return the names of up to five agents, and how many more there are."""
    names = ", ".join(agent.display_name for agent in agents[:5])
    return f"{names} and {len(agents) - 5} more" if len(agents) > 5 else names


def _why_not_asked(model: str) -> str:
    """Return why suggestions cannot be asked for; empty when they can."""
    if team_folder() is None:
        return NO_FOLDER
    return MODEL_NEEDED if problem_of("judge", model) else ""


def suggested(job: Job) -> SafeString:
    """Return a table of what was suggested so far, agent by agent, and whether more is to come."""
    rows = []
    for row in job.result.get("agents", []):
        agent = display.link(reverse("admin:evaluation_proposition_change", args=[row["agent"]]), row["agent"])
        rows.append((agent, f"{row['written']}", f"{row['dropped']}", display.visible(row["why"])))
    heads = ("Agent", "Suggestions", "Could not be used", "Why there are no more")
    context = {
        "table": table(heads, rows, label="What was suggested"),
        "is_open": job.status in Job.OPEN,
        "propositions": reverse("admin:evaluation_proposition_changelist"),
    }
    return SafeString(render_to_string("admin/drafting/suggested.html", context))


def suggest_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """Return the button that leads from an agent's page to this one."""
    if not request.user.has_perm(WRITE):
        return []
    url = f"{reverse('admin:evaluation_job_suggest')}?{urlencode({'agents': agent.slug})}"
    return [Button(label="Suggest propositions", url=url, why="a model reads the persona; asks first")]


def _urls() -> list[URLPattern]:
    page = admin.site.admin_view(suggest_page)
    return [path("evaluation/proposition/suggest/", page, name="evaluation_job_suggest")]


add_pages(_urls)
