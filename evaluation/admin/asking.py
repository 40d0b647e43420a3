"""The pages that have agents measured: what can be chosen, as the commands declare it, and what it would take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from django import forms
from django.conf import settings
from django.core.management.base import CommandError
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.forms import Takes, as_query, option
from agents.kit.console.site import GrowingTextarea, Select
from agents.kit.llm.endpoints import problem_of, provider_of
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.admin.display import evaluation_link, judge_badge
from evaluation.budget import why_over_budget
from evaluation.commands import answer_words, how_asked
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun
from evaluation.propositions.files import PropositionError, YamlProblems, default_dimensions
from evaluation.runs.control import judges_offered
from evaluation.runs.estimate import Estimate, SimulationEstimate, estimate_all, estimate_simulation, estimated
from evaluation.runs.planning import ENOUGH, RunSpec, has_little_speech
from evaluation.scorers.subjects import DEFAULT_BINS, parse_bins
from evaluation.simulation.conversations import why_not_simulated
from evaluation.simulation.situations import Situation, load_situations

MOST_SAMPLES = 500  # messages, from a page; the command line takes more
MOST_AGENTS = 100  # at a time
MOST_JUDGED = 4_000  # messages times repeats
FOLDED = (
    *("by", "bins", "simulate", "situations", "actor_model", "repeats", "seed", "per_call", "hard", "double_check"),
    *("method", "history", "history_where"),
)
Read = TypeVar("Read")


def agents_asked_for(names: str) -> list[Agent]:
    """Return the agents of a field ``agents``.

    Raises:
        ValueError: There is no such agent, or there are too many at once.
    """
    try:
        agents = find_agents(names)
    except UnknownAgent as error:
        raise ValueError(f"agents {error}") from None
    if not 1 <= len(agents) <= MOST_AGENTS:
        raise ValueError(f"agents {names}: {len(agents):,} agents; allowed: 1 to {MOST_AGENTS} at a time")
    return agents


def judge_field() -> forms.ChoiceField:
    """A choice of the judges that may be chosen from outside of this machine."""

    def judges() -> list[tuple[str, str]]:
        return [(name, f"{name} (configured)" if name == settings.JUDGE_MODEL else name) for name in judges_offered()]

    about = "scores by different judges are never compared"
    return forms.ChoiceField(choices=judges, widget=Select, initial=lambda: settings.JUDGE_MODEL, help_text=about)


@cache
def measuring() -> type[forms.Form]:
    """The options of ``manage.py evaluate`` that say what is measured, and how."""
    of = partial(option, "evaluate")
    about_dimensions = "a baseline is compared with, dimension by dimension: choose those it has"
    about_samples = (
        f"most messages drawn from those chosen, 1 to {MOST_SAMPLES}; more make a surer number and cost more"
    )
    simulated = "Plumbline's situations are said to the agent, or those below, and its answers are measured"
    fields: dict[str, forms.Field] = {
        "dimensions": forms.MultipleChoiceField(
            choices=Dimension.choices, widget=forms.CheckboxSelectMultiple, help_text=about_dimensions
        ),
        "samples": of("samples", label="Messages", min_value=1, max_value=MOST_SAMPLES, help_text=about_samples),
        "where": of("where", label="Only messages tagged", help_text="such as build=41; several with commas"),
        "against": of(
            "where", label="And, to compare with, those tagged", help_text="such as build=40: an evaluation of its own"
        ),
        "window": of("window"),
        "judge": judge_field(),
        "by": forms.BooleanField(required=False, label="By position", help_text=of("by").help_text),
        "bins": of("bins", label="Stretches of positions"),
        "simulate": forms.BooleanField(required=False, label="Simulate conversations first", help_text=simulated),
        "situations": forms.CharField(
            required=False, widget=GrowingTextarea, max_length=100_000, label="Situations of your own",
            help_text="YAML as of evaluate --simulate FILE; empty = those that come with Plumbline",
        ),
        "actor_model": of("actor_model", label="Model that acts"),
        **{name: of(name) for name in FOLDED[-8:]},
    }  # fmt: skip
    return type("MeasuringForm", (forms.Form,), fields)


def measuring_form(request: HttpRequest, *, usual: Collection[str]) -> forms.Form:
    """The form, filled in: with the dimensions that are `usual` (none: all), and with what the address names (``?tag=build=41``)."""
    try:
        every = default_dimensions()
        problem = ""
    except PropositionError as error:
        every, problem = (), f"proposition files cannot be used: {error}"
    chosen: dict[str, object] = {"dimensions": [d for d in every if d in usual] or list(every)}
    if "against" in request.GET:  # two builds are compared by what the agent itself said
        chosen["dimensions"] = [d for d in every if d not in CHANNEL_DIMENSIONS]
    if tags := request.GET.getlist("tag"):
        chosen["where"] = ",".join(tags)
    form = measuring()(as_query(request, measuring(), chosen))
    if problem:
        form.add_error(None, problem)
    return form


def specs_of(form: forms.Form, agent: Agent, *, is_baseline: bool) -> list[RunSpec]:
    """What a valid form asks for: an evaluation, and before it the one that it is to be compared with, where that is asked for.

    Raises:
        ValueError: It makes no sense; begins with the name of the field.
    """
    given = form.cleaned_data
    against, where = given["against"], given["where"]
    if against and (is_baseline or against == where or not where):
        raise ValueError(
            "against compares the messages of two tags, such as build=41 with build=40; a baseline has none"
        )
    every = (against, where) if against else (where,)
    return [_spec({**given, "where": tags}, agent, is_baseline=is_baseline) for tags in every]


def _spec(given: Mapping[str, Any], agent: Agent, **more: Any) -> RunSpec:
    if given["samples"] * given["repeats"] > MOST_JUDGED:
        raise ValueError(
            f"samples {given['samples']}: at most {MOST_JUDGED // given['repeats']:,} with {given['repeats']} repeats"
        )
    asked = asked_in(given)
    if given["simulate"] or given["situations"].strip():
        if asked["where"] or given["window"] != "all":
            raise ValueError(
                "simulate measures all that was simulated; tags and window choose from what was said before"
            )
        more |= {"simulated": True, "actor_model": given["actor_model"]}
        own = given["situations"].strip()
        situations = read_yaml(own, load_situations, "situations") if own else ()
        more["situations"] = tuple(one.model_dump(mode="json") for one in situations)
    elif given["actor_model"]:
        raise ValueError("actor_model is for simulations")
    if given["by"]:
        try:
            more["position_bins"] = parse_bins(given["bins"] or DEFAULT_BINS)
        except ValueError as error:
            raise ValueError(f"bins {str(error).removeprefix('bins ')}") from None
    return RunSpec(agent=agent, judge=given["judge"], **asked, **more)


def asked_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec, read from a form as the commands read their options.

    Raises:
        ValueError: They make no sense.
    """
    lists = {name: [given[name]] if given[name] else [] for name in ("where", "history_where")}
    options = {**given, **lists, "dimensions": ",".join(given["dimensions"])}
    options |= {"window": given["window"] or "all", "history": given["history"] or "before"}
    try:
        return how_asked(options)
    except CommandError as error:
        raise ValueError(str(error)) from None
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None


def read_yaml(text: str, read: Any, name: str) -> Any:
    """Read a text as a file that `read` takes.

    Raises:
        ValueError: It cannot be used; begins with the name.
    """
    with TemporaryDirectory(prefix="plumbline-") as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            return read(path)
        except YamlProblems as problems:
            raise ValueError(f"{name} {str(problems).replace(str(path), 'YAML')}") from None


# -- what it takes
def measuring_takes(specs: Sequence[RunSpec], *, dropped_tags: str = "") -> Takes:
    """Calls, tokens and dollars before anything is asked; nothing is stored. A cost that is not known is *unpriced*.

    Args:
        dropped_tags: Tags that choose the messages of the agent's baseline, and that its new one would not ask for.

    Raises:
        ValueError: Proposition files cannot be used.
    """
    spec = specs[-1]
    agent = spec.agent
    assert agent is not None  # noqa: S101 (the pages are of agents)
    is_little, warnings = has_little_speech(spec), list[object]()
    not_simulated = why_not_simulated(agent, spec.actor_model) if is_little or spec.simulated else ""
    acting: SimulationEstimate | None = None
    try:
        if (is_little or spec.simulated) and not not_simulated:
            chosen = [Situation.model_validate(one) for one in spec.situations]
            acting, judging = estimate_simulation(
                spec, situations=chosen or load_situations(), actor_model=spec.actor_model,
                repeats=spec.repeats if chosen else 1,
            )  # fmt: skip
            every = [judging]
        else:
            every = estimate_all(specs)
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None
    if is_little and acting:
        warnings.append(
            f"The agent has fewer than {ENOUGH} messages: a worker simulates conversations with it first, and judges what it says in them."
        )
    elif is_little and not_simulated:
        warnings.append(
            f"The agent has fewer than {ENOUGH} messages; these are judged, however few. It is {display.visible(not_simulated)}."
        )
    if over := why_over_budget(agent, spec.judge_model):
        warnings.append(f"{over}. The evaluation would pause until there is room.")
    if dropped_tags:
        warnings.append(
            f"The baseline is of messages with {display.visible(dropped_tags)}; this one would be of messages with any."
        )
    running = EvaluationRun.objects.filter(agent=agent, status__in=EvaluationRun.OPEN).order_by("-pk")[:5]
    if under_way := format_html_join(", ", "{}", ((evaluation_link(run.pk),) for run in running)):
        warnings.append(format_html("Under way already: {}.", under_way))
    stays = (
        "The new baseline takes the place of the old one in these dimensions when it has succeeded, and not before."
        if spec.is_baseline
        else "Baselines stay as they are."
    )
    return takes(
        [("Agent", agent_chip(agent))],
        every,
        acting=acting,
        warnings=warnings,
        note=f"{stays} It can be cancelled while it runs; what was judged stays.",
        why_not=not_simulated if spec.simulated else "",
    )


def takes(
    facts: Sequence[tuple[str, object]],
    every: Sequence[Estimate],
    *,
    acting: SimulationEstimate | None = None,
    warnings: Sequence[object] = (),
    note: str = "",
    why_not: str = "",
) -> Takes:
    """What these evaluations would take, and the simulation before."""
    judge, total = every[0].judge, estimated(every)
    costs = [total.cost_usd, acting.cost_usd if acting else 0]
    unpriced = total.calls + (acting.calls if acting else 0) if None in costs else 0
    is_paid = provider_of(judge) == "anthropic"
    free = sum(one.without_a_call for one in every)
    judged = display.lines(f"{sum(one.judgements for one in every):,}", f"{free:,} without a call")
    shown: list[tuple[str, object]] = [*facts, ("Judge", judge_badge(judge)), ("Judgements", judged)]
    if is_paid:
        shown.append(("Calls of the judge", f"{total.calls:,}"))
        shown.append(("Tokens of the judge, in and out", f"{total.input_tokens:,} · {total.output_tokens:,}"))
    else:
        shown.append(("Calls of the judge", "none: it answers on this machine"))
    if acting:
        shown.append(("Calls to simulate conversations first", f"{acting.calls:,}"))
        shown.append(("Tokens of the simulation, in and out", f"{acting.input_tokens:,} · {acting.output_tokens:,}"))
    costly = is_paid or (acting is not None and provider_of(acting.actor_model) == "anthropic")
    money = display.money(None if unpriced else sum(filter(None, costs)), unpriced=unpriced)  # type: ignore[arg-type]
    shown.append(("Cost, estimated", money if costly else display.badge("free", "good")))
    answers = answer_words(every)
    how = f"Tokens are a quarter of the characters of the very prompts{f', and {answers}' if answers else ''}; "
    how += "the prompt cache is not counted on. "
    if not any(one.judgements for one in every):
        warnings = (*warnings, "Nothing would be judged: no message fits these choices.")
    said = [*warnings, *([display.visible(no_key)] if (no_key := problem_of("judge", judge)) else [])]
    return Takes(facts=shown, warnings=said, note=(how if costly else "") + note, why_not=why_not)
