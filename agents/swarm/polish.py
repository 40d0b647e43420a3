"""Polish a draft: ask the swarm's post phases, in one call or one after the other, and refuse a rewriting that changes what it says.

A call that fails, is late or is refused costs nothing but its time: the draft, or what it had become by then, is sent.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.conf import settings
from pydantic import BaseModel, ConfigDict

from agents.kit import llm
from agents.kit.llm.providers import is_heuristic
from agents.kit.llm.requests import object_schema
from agents.kit.text import edits
from agents.kit.text.fences import fault_of, fence, indented, one_line, render_prompt, safe_and_cut
from agents.kit.text.reading import parse_text
from agents.swarm import guards
from agents.swarm.models import Swarm, SwarmPhase
from agents.swarm.phases import RECOVERY, SAFETY
from agents.turn.pipeline import Overrides, ToolOutcome, Turn

MOST_BULLETS = 5
MAX_TOKENS = 4096
OUTCOME_CHARACTERS = 1_000

_BULLET = re.compile(r"^[ \t]*(?:[-*•–]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
_WANTS_LIST = re.compile(r"\b(?:list|bullets?|bullet points?|enumerate|itemi[sz]e|checklist|steps)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_EMPTY_OPENING = re.compile(
    r"(?:^|(?<=[.!?]\s)|(?<=\n))(?:in conclusion|to sum(?:mari[sz]e| up)|in summary|all in all)[,:][ \t]+(?P<first_letter>\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What every polisher is shown beside the draft.

    Attributes:
        message: The person's, that is answered.
        preferences: How they like to be answered, as text.
        outcomes: What the swarm's tools did in this turn.
        uncertain: Whether the numbers of the reply are uncertain, so that each may be repeated once.
        names: Of those who talk here, which are names wherever they stand.
        rules: Of the agent, from `swarm_guards`; a rewriting must keep those that the draft keeps.
    """

    message: str
    preferences: str = ""
    outcomes: Sequence[ToolOutcome] = ()
    uncertain: bool = False
    names: Collection[str] = ()
    rules: Sequence[Callable[[str], bool]] = ()

    @property
    def wants_list(self) -> bool:
        """Return whether the person asked for a list."""
        return _WANTS_LIST.search(self.message) is not None


@dataclass(frozen=True, slots=True)
class PolishCall:
    """The phases that one call asks, under the name that traces and the ledger use."""

    name: str
    phases: Sequence[SwarmPhase]


Outcome = Literal["unchanged", "changed", "replaced", "refused", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class PolishStep:
    """What became of one call, or of one that was not made (``skipped``).

    Attributes:
        text: That it answered, where that is another one than it was given. `why`: it was refused, failed or skipped.
    """

    call: PolishCall
    outcome: Outcome
    text: str = ""
    why: str = ""


@dataclass(slots=True)
class PolishResult:
    """What polishing made of a draft.

    Attributes:
        text: To be sent.
        steps: One for each call, in order.
        milliseconds: By phase.
        heuristic: Made by rules, without a model.
    """

    text: str
    steps: list[PolishStep] = field(default_factory=list)
    milliseconds: dict[str, int] = field(default_factory=dict)
    heuristic: bool = False

    @property
    def replaced(self) -> str:
        """Return why safety or error recovery put another answer in the place of the draft; empty when they did not."""
        return next((step.why for step in self.steps if step.outcome == "replaced"), "")

    @property
    def rejected(self) -> list[dict[str, str]]:
        """Return each rewriting that was refused: phase, text, why."""
        refused = [step for step in self.steps if step.outcome == "refused"]
        return [{"phase": step.call.name, "text": step.text, "why": step.why} for step in refused]

    @property
    def failed(self) -> list[str]:
        """Return the calls without a usable answer: phase, status and error."""
        return [f"{step.call.name}: {step.why}" for step in self.steps if step.outcome == "failed"]


class PolishAnswer(BaseModel):
    """The answer of polishers: the text, and which phase replaced the draft and why, where one did."""

    model_config = ConfigDict(strict=True)

    text: str
    replaced_by: str = ""
    reason: str = ""


def executor_of(swarm: Swarm) -> str:
    """Return how the swarm polishes: combined, sequential or off. `TURN_SWARM_POST` decides for all swarms where it is set."""
    return str(settings.TURN_SWARM_POST or swarm.post_executor)


def calls_for(phases: Sequence[SwarmPhase], executor: str) -> list[PolishCall]:
    """Return the calls that ask these phases: none, one for all of them, or one for each."""
    if executor == Swarm.Executor.OFF or not phases:
        return []
    if executor == Swarm.Executor.COMBINED:
        return [PolishCall("post", phases)]
    return [PolishCall(phase.name, [phase]) for phase in phases]


def polish(
    turn: Turn, draft: str, phases: Sequence[SwarmPhase], material: Material, *, executor: str, deadline: float
) -> PolishResult:
    """Have a draft polished. Nothing is raised for a call that fails, is late or is refused: the result names it, and the text stays.

    Each call is given what the one before made of the draft, but held to the draft itself. A replacement of the draft ends it.

    Args:
        turn: Its agent and model are asked. No transaction may be open.
        phases: The enabled post phases, in order.
        executor: ``combined``, ``sequential`` or ``off``.
        deadline: Seconds for all calls together.
    """
    result = PolishResult(draft)
    if executor == Swarm.Executor.OFF and phases:
        result.steps.append(PolishStep(PolishCall("post", phases), "skipped", why="polishing is off"))
    end = time.monotonic() + deadline
    for call in calls_for(phases, executor):
        started = time.monotonic()
        if result.replaced:
            result.steps.append(PolishStep(call, "skipped", why="the draft was replaced before"))
            continue
        if end <= started:
            result.steps.append(PolishStep(call, "failed", why="no time left"))
            continue
        reply = llm.complete(_request(turn, result.text, call, material), deadline=end - started)
        result.milliseconds[call.name] = round((time.monotonic() - started) * 1000)
        if reply.ok and is_heuristic(reply.model):
            result.heuristic = True
        step = _step_of(reply, call, before=result.text, draft=draft, material=material)
        result.steps.append(step)
        if step.outcome in ("changed", "replaced"):
            result.text = step.text
    return result


def _step_of(reply: llm.Reply, call: PolishCall, *, before: str, draft: str, material: Material) -> PolishStep:
    """Return what became of a call.

    Args:
        before: The text that it was given. `draft`: what the agent wrote, to which its answer is held.
    """
    if not reply.ok:
        return PolishStep(call, "failed", why=f"{reply.status}: {reply.error}")
    answer: PolishAnswer = reply.value
    text = answer.text.strip()
    if text == before.strip() and not answer.replaced_by:
        return PolishStep(call, "unchanged")
    why_refused = _why_refused(draft, answer, call.phases, material)
    if why_refused:
        return PolishStep(call, "refused", text, why_refused)
    if answer.replaced_by:
        return PolishStep(call, "replaced", text, f"{answer.replaced_by}: {' '.join(answer.reason.split())}")
    return PolishStep(call, "changed", text)


def _why_refused(draft: str, answer: PolishAnswer, phases: Sequence[SwarmPhase], material: Material) -> str:
    """Return why an answer may not be said in place of the draft; empty when it may. Every phase is held to what the agent wrote.

    A replacement for safety or after an error is judged as one; any other text must keep what the draft says, without a longer list or
    repeated numbers.
    """
    text = answer.text.strip()
    fault = fault_of(text)
    if fault:
        return fault
    if answer.replaced_by:
        return _why_replacement_refused(draft, answer, phases, material)
    return (
        _why_list_refused(draft, text, material)
        or _why_repetition_refused(draft, text, material)
        or guards.refusal(
            draft,
            text,
            message=material.message,
            preferences=material.preferences,
            names=material.names,
            rules=material.rules,
        )
    )


def _why_list_refused(draft: str, text: str, material: Material) -> str:
    """Return why a list is too long: specification 003 allows five bullet points, unless the person asked for a list.

    A rewriting may keep as many as the draft has. Empty when it is not too long.
    """
    bullets = len(_BULLET.findall(text))
    allowed = max(MOST_BULLETS, len(_BULLET.findall(draft)))
    if bullets <= allowed or material.wants_list:
        return ""
    return f"it has {bullets} bullet points; allowed: {MOST_BULLETS}, unless the person asks for a list"


def _why_repetition_refused(draft: str, text: str, material: Material) -> str:
    """Return why numbers may not be repeated: specification 003 allows each once, where the numbers are uncertain."""
    repeated = _repeated_numbers(draft, text)
    if not repeated:
        return ""
    if not material.uncertain:
        return f"it repeats the number {next(iter(repeated))}, which is not uncertain"
    for number, times in repeated.items():
        if times > 1:
            return f"it repeats the number {number} {times} times; allowed: once"
    return ""


def _why_replacement_refused(draft: str, answer: PolishAnswer, phases: Sequence[SwarmPhase], material: Material) -> str:
    """Return why an answer may not replace the draft: it needs a cause that can be seen, and may bring no facts of its own.

    Facts are numbers, dates, links, code and the like that neither the draft, the person nor a tool named. Empty when it may.
    """
    if answer.replaced_by not in _replacing_phases(phases):
        return f"{one_line(answer.replaced_by)} may not replace a draft; allowed: {SAFETY}, {RECOVERY}"
    if not answer.reason.strip():
        return "it replaces the draft without a reason"
    if answer.replaced_by == RECOVERY and all(outcome.ok for outcome in material.outcomes):
        return "it recovers from an error, and no tool failed"
    tool_answers = [outcome.answer for outcome in material.outcomes]
    sources = parse_text("\n".join([draft, material.message, *tool_answers]))
    replacement = parse_text(answer.text)
    for guard in (edits.numbers, edits.dates, edits.links, edits.code, edits.form):
        added = guard(sources, replacement).added
        if added:
            return f"it replaces the draft and adds {added[0]}, which nobody named"
    return ""


def _replacing_phases(phases: Iterable[SwarmPhase]) -> list[str]:
    """Return the names of those phases that may put another answer in the place of a draft."""
    return [phase.name for phase in phases if phase.name in (SAFETY, RECOVERY)]


def _repeated_numbers(draft: str, text: str) -> dict[str, int]:
    """Return how often a text repeats numbers of the draft, by number: how much more often each stands there."""
    in_draft = Counter(_NUMBER.findall(draft))
    in_text = Counter(_NUMBER.findall(_BULLET.sub("", text)))  # "1." before a line of a list repeats nothing
    repeated: dict[str, int] = {}
    for number, count in in_text.items():
        if number in in_draft and count > in_draft[number]:
            repeated[number] = count - in_draft[number]
    return repeated


# -- what is asked
def _request(turn: Turn, draft: str, call: PolishCall, material: Material) -> llm.LLMRequest:
    """Return the request that asks the phases of one call; its temperature is the lowest of theirs."""
    agent = turn.agent
    run_id = turn.run.pk if turn.run is not None else None
    replacers = _replacing_phases(call.phases)
    instructions = render_prompt(
        "swarm/polish", name=one_line(agent.display_name), phases=call.phases, replacers=replacers
    )
    return llm.LLMRequest(
        role="actor",
        task="swarm_polish",
        model=Overrides.of(turn.overrides).model or agent.model_id,
        system=(llm.Block(instructions, cache=True),),
        turns=(llm.Turn("user", (llm.Block(material_prompt(draft, material, turn.nonce)),)),),
        schema=_schema(replacers),
        parse=PolishAnswer.model_validate,
        temperature=min(phase.temperature for phase in call.phases),
        max_tokens=MAX_TOKENS,
        nonce=turn.nonce,
        facts={"draft": draft, "list": material.wants_list},
        label=llm.Label(
            purpose="swarm",
            mechanism=call.name,
            agent_id=agent.pk,
            run_id=run_id,
            work_id=f"run:{run_id}" if run_id is not None else "",
        ),
    )


def material_prompt(draft: str, material: Material, nonce: str) -> str:
    """Render everything the polishers read of this turn; what people, agents and tools wrote is fenced.

    The draft is whole; the message and the preferences are cut at 4,000 characters, each tool's answer at `OUTCOME_CHARACTERS`. What
    is empty has no fence.
    """

    def fenced(title: str, body: str) -> str:
        return fence(title, body, nonce) if body else ""

    return render_prompt(
        "swarm/draft",
        message=fenced("MESSAGE", indented(material.message, 4_000)),
        draft=fenced("DRAFT", safe_and_cut(draft, limit=max(len(draft), 1))),  # never cut
        preferences=fenced("PREFERENCES", indented(material.preferences, 4_000)),
        outcomes=fenced("TOOLS", _outcome_lines(outcome for outcome in material.outcomes if outcome.ok)),
        errors=fenced("ERRORS", _outcome_lines(outcome for outcome in material.outcomes if not outcome.ok)),
        uncertain=material.uncertain,
        list=material.wants_list,
    )


def _outcome_lines(outcomes: Iterable[ToolOutcome]) -> str:
    return "\n".join(f"{outcome.name}: {indented(outcome.answer, OUTCOME_CHARACTERS)}" for outcome in outcomes)


def _schema(replacers: Sequence[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {"text": {"type": "string"}}
    if replacers:
        properties |= {"replaced_by": {"type": "string", "enum": ["", *replacers]}, "reason": {"type": "string"}}
    return object_schema(properties)


# -- without a model
def offline(request: llm.LLMRequest) -> Mapping[str, Any]:
    """Polish by rules (responder for the task ``swarm_polish``): drop empty openings, and join a long list that nobody asked for."""
    text = _EMPTY_OPENING.sub(lambda opening: opening["first_letter"].upper(), str(request.facts["draft"]))
    if not request.facts["list"]:
        text = _with_long_list_joined(text)
    return {"text": text, "replaced_by": "", "reason": ""}


def _with_long_list_joined(text: str) -> str:
    """Return a text whose only list, where it has more than five bullet points in a row, is one line: ``milk; bread; six eggs.``

    Other texts are returned as they are, also when a line that is no bullet point stands between others.
    """
    lines = text.split("\n")
    bullets = [number for number, line in enumerate(lines) if _BULLET.match(line)]
    if len(bullets) <= MOST_BULLETS:
        return text
    first, last = bullets[0], bullets[-1]
    if bullets != list(range(first, last + 1)):
        return text
    items = [_BULLET.sub("", lines[number]).strip().rstrip(".;,") for number in bullets]
    return "\n".join([*lines[:first], "; ".join(items) + ".", *lines[last + 1 :]])
