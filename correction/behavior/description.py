"""Write the short description of an agent again after its persona changed: queued, one call, and never over what a person wrote."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction

from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Turn, complete
from agents.kit.llm.endpoints import model_of
from agents.kit.llm.providers import is_heuristic
from agents.kit.text.fences import fence, new_nonce, one_line, render_prompt, safe_and_cut
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, PersonaVersion
from agents.personas.persona import cut_persona, render_persona
from correction.behavior.models import DescriptionUpdate
from correction.behavior.postponing import MOST_ATTEMPTS, NO_TRY, after_failure, one_call, over_budget

Status, Origin = DescriptionUpdate.Status, Agent.DescriptionOrigin
PURPOSE, MECHANISM = "behavior", "behavior"
LONGEST, LONGEST_PERSONA, LONGEST_NOW = 300, 60_000, 2_000  # characters
BY_PERSON = "left as it is: a person wrote it"
OFFLINE = "left as it is: a description is written by a model, and {judge} is none"
EDITED_MEANWHILE = "left as it is: it was edited while the new one was written"
SCHEMA = {
    "type": "object",
    "properties": {"description": {"type": "string"}},
    "required": ["description"],
    "additionalProperties": False,
}
EXAMPLE = {"description": "A harbour guide who has seen every kind of weather. Short on words, long on knots."}


def queue_description(*, agent: Agent, version: PersonaVersion | None = None) -> DescriptionUpdate | None:
    """Have a worker write an agent's description again, once its persona's change is saved; None when a person wrote it."""
    if _by_person(agent):
        return None
    if DescriptionUpdate.objects.filter(agent=agent, status=Status.PENDING).exists():
        return None  # it will be written for the persona as it is by then
    update: DescriptionUpdate = DescriptionUpdate.objects.create(agent=agent, persona_version=version)
    transaction.on_commit(wake_workers)
    return update


def work_one(*, owner: str) -> bool:
    """Write the description whose turn it is; return whether there was one."""
    return do_next(DescriptionUpdate, _write, owner=owner, lease=one_call(), attempts=MOST_ATTEMPTS, handed_back=NO_TRY)


def describe_request(*, agent: Agent, work_id: str = "", nonce: str = "") -> LLMRequest:
    """Return the question for a description of the agent as its persona is now, with its present description, if any.

    Args:
        nonce: Marks what is data in the prompt; empty: a new one.
    """
    nonce = nonce or new_nonce()
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    persona_text = safe_and_cut(cut_persona(persona, LONGEST_PERSONA), 2 * LONGEST_PERSONA)
    description = safe_and_cut(agent.description, LONGEST_NOW).strip()
    text = _template(
        "agent",
        name=one_line(agent.display_name),
        persona=fence("PERSONA", persona_text, nonce),
        description=fence("DESCRIPTION", description, nonce) if description else "",
    )
    return LLMRequest(
        role="judge",
        task="describe",
        system=(Block(_template("write", most=LONGEST), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        label=Label(purpose=PURPOSE, mechanism=MECHANISM, dimension="description", agent_id=agent.pk, work_id=work_id),
        schema=SCHEMA,
        parse=_description,
        example=EXAMPLE,
        reask=True,
        max_tokens=600,
        retries=settings.LLM_EVALUATION_RETRIES,
        nonce=nonce,
    )


def _write(update: DescriptionUpdate) -> dict[str, Any]:
    """Have a model write the description; return the columns with which the work ends.

    It is left as it is where a person wrote it, the judge is an offline one, or it was edited while the model wrote; `error` says so then.
    It waits where the budget is spent, and is tried again or has failed where the call gave no answer.
    """
    agent = Agent.objects.get(pk=update.agent_id)
    judge = model_of("judge")
    if _by_person(agent):
        return {"status": Status.COMPLETED, "error": BY_PERSON}
    if is_heuristic(judge):
        return {"status": Status.COMPLETED, "error": OFFLINE.format(judge=judge)}
    if paused := over_budget(agent, judge):
        return paused
    reply = complete(describe_request(agent=agent, work_id=update.work_id), deadline=settings.LLM_EVALUATION_DEADLINE)
    fields = {"judge": judge, "call_id": reply.call_id}
    if not reply.ok:
        return {**after_failure(update, reply), **fields}
    unchanged = Agent.objects.filter(
        pk=agent.pk, description=agent.description, description_origin=agent.description_origin
    )
    if not unchanged.update(description=reply.value, description_origin=Origin.GENERATED):
        return {"status": Status.COMPLETED, "error": EDITED_MEANWHILE, **fields}
    return {"status": Status.COMPLETED, "written": True, **fields}


def _by_person(agent: Agent) -> bool:
    """Return whether a person wrote it. A description of unknown origin counts as a person's; an empty one does not."""
    return bool(agent.description) and agent.description_origin in (Origin.PERSON, Origin.UNKNOWN)


def _description(data: Any) -> str:
    """Return the description of the model's answer, on one line.

    Raises:
        InvalidAnswer: There is none, or it is longer than 300 characters.
    """
    text = data.get("description") if isinstance(data, dict) else None
    text = " ".join(text.split()) if isinstance(text, str) else ""
    if not 0 < len(text) <= LONGEST:
        raise InvalidAnswer(f"description: expected a text of 1 to {LONGEST} characters, got {len(text)}")
    return text


def _template(name: str, /, **values: Any) -> str:
    return render_prompt(f"description/{name}", **values)
