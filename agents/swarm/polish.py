"""Polish a draft: ask the swarm's post phases, in one call or one after the other, and refuse a rewriting that changes what it says.

A call that fails, is late or is refused costs nothing but its time: the draft, or what it had become by then, is sent.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from pydantic import BaseModel, ConfigDict

from agents.kit import llm
from agents.kit.llm.requests import object_schema
from agents.kit.text import edits
from agents.kit.text.fences import fault_of, fence, indented, neutral, one_line, render_prompt
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
_OPENING = re.compile(
    r"(?:^|(?<=[.!?]\s)|(?<=\n))(?:in conclusion|to sum(?:mari[sz]e| up)|in summary|all in all)[,:][ \t]+(\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What every polisher is shown beside the draft.

    Attributes:
        message: The person's, that is answered.
        preferences: How they like to be answered, as text.
        outcomes: What the swarm's tools did in this turn.
        uncertain: Whether the numbers of the reply are uncertain, so that one may be repeated.
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
        return _WANTS_LIST.search(self.message) is not None


@dataclass(slots=True)
class Polished:
    """What polishing made of a draft.

    Attributes:
        text: To be sent.
        replaced: Why safety or error recovery put another answer in the place of the draft; empty when they did not.
        steps: Each rewriting: phase, text, and why it was refused; empty where it was used.
        failed: Calls without a usable answer: phase, status and error.
        milliseconds: By phase.
        heuristic: Made by rules, without a model.
    """

    text: str
    replaced: str = ""
    steps: list[dict[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    milliseconds: dict[str, int] = field(default_factory=dict)
    heuristic: bool = False

    @property
    def rejected(self) -> list[dict[str, str]]:
        return [step for step in self.steps if step["why"]]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    text: str
    replaced_by: str = ""
    reason: str = ""


def executor_of(swarm: Swarm) -> str:
    """How the swarm polishes: combined, sequential or off. `TURN_SWARM_POST` decides for all swarms where it is set."""
    return str(settings.TURN_SWARM_POST or swarm.post_executor)


def polish(
    turn: Turn, draft: str, phases: Sequence[SwarmPhase], material: Material, *, executor: str, deadline: float
) -> Polished:
    """Have a draft polished.

    Args:
        turn: Its agent and model are asked. No transaction may be open.
        phases: The enabled post phases, in order.
        executor: ``combined``, ``sequential`` or ``off``.
        deadline: Seconds for all calls together.
    """
    done, end = Polished(draft), time.monotonic() + deadline
    groups = [list(phases)] if executor == Swarm.Executor.COMBINED else [[phase] for phase in phases]
    for group in groups if executor != Swarm.Executor.OFF and phases else ():
        name = "post" if executor == Swarm.Executor.COMBINED else group[0].name
        begun = time.monotonic()
        if end <= begun:
            done.failed.append(f"{name}: no time left")
            break
        reply = llm.complete(_request(turn, done.text, group, material, name), deadline=end - begun)
        done.milliseconds[name] = round((time.monotonic() - begun) * 1000)
        if not reply.ok:
            done.failed.append(f"{name}: {reply.status}: {reply.error}")
            continue
        answer: _Answer = reply.value
        text = answer.text.strip()
        done.heuristic = done.heuristic or reply.provider == "offline"
        if text == done.text.strip() and not answer.replaced_by:
            continue
        why = _refusal(draft, answer, group, material)
        done.steps.append({"phase": name, "text": text, "why": why})
        if why:
            continue
        done.text = text
        if answer.replaced_by:
            done.replaced = f"{answer.replaced_by}: {' '.join(answer.reason.split())}"
            break
    return done


def _refusal(draft: str, answer: _Answer, phases: Sequence[SwarmPhase], material: Material) -> str:
    """Why an answer may not be said in place of the draft; empty when it may. Every phase is held to what the agent wrote."""
    text = answer.text.strip()
    if fault := fault_of(text):
        return fault
    if answer.replaced_by:
        return _replacement_refused(draft, answer, phases, material)
    bullets = len(_BULLET.findall(text))
    if bullets > max(MOST_BULLETS, len(_BULLET.findall(draft))) and not material.wants_list:
        return f"it has {bullets} bullet points; allowed: {MOST_BULLETS}, unless the person asks for a list"
    if echo := _echoed(draft, text):
        if not material.uncertain:
            return f"it repeats the number {echo[0]}, which is not uncertain"
        if len(echo) > 1:
            return f"it repeats the numbers {' and '.join(echo[:2])}; allowed: one, once"
    return guards.refusal(
        draft,
        text,
        message=material.message,
        preferences=material.preferences,
        names=material.names,
        rules=material.rules,
    )


def _replacement_refused(draft: str, answer: _Answer, phases: Sequence[SwarmPhase], material: Material) -> str:
    """A replacement may say something else, but not with facts of its own, and only for a cause that can be seen."""
    if answer.replaced_by not in {SAFETY, RECOVERY} & {phase.name for phase in phases}:
        return f"{one_line(answer.replaced_by)} may not replace a draft; allowed: {SAFETY}, {RECOVERY}"
    if not answer.reason.strip():
        return "it replaces the draft without a reason"
    if answer.replaced_by == RECOVERY and all(outcome.ok for outcome in material.outcomes):
        return "it recovers from an error, and no tool failed"
    known = parse_text("\n".join([draft, material.message, *(outcome.answer for outcome in material.outcomes)]))
    other = parse_text(answer.text)
    for guard in (edits.numbers, edits.dates, edits.links, edits.code, edits.form):
        if added := guard(known, other).added:
            return f"it replaces the draft and adds {added[0]}, which nobody named"
    return ""


def _echoed(draft: str, text: str) -> list[str]:
    """The numbers that stand in a text more often than in the draft, each as often as it is added; new ones aside."""
    before, after = Counter(_NUMBER.findall(draft)), Counter(_NUMBER.findall(_BULLET.sub("", text)))
    return [number for number, n in after.items() for _ in range(n - before[number]) if number in before]


# -- what is asked
def _request(
    turn: Turn, draft: str, phases: Sequence[SwarmPhase], material: Material, mechanism: str
) -> llm.LLMRequest:
    agent, run = turn.agent, turn.run
    replacers = [phase.name for phase in phases if phase.name in (SAFETY, RECOVERY)]
    instructions = render_prompt("swarm/polish", name=one_line(agent.display_name), phases=phases, replacers=replacers)
    return llm.LLMRequest(
        role="actor",
        task="swarm_polish",
        model=Overrides.of(turn.overrides).model or agent.model_id,
        system=(llm.Block(instructions, cache=True),),
        turns=(llm.Turn("user", (llm.Block(_shown(draft, material, turn.nonce)),)),),
        schema=_schema(replacers),
        parse=_Answer.model_validate,
        temperature=min(phase.temperature for phase in phases),
        max_tokens=MAX_TOKENS,
        nonce=turn.nonce,
        facts={"draft": draft, "list": material.wants_list},
        label=llm.Label(
            purpose="swarm",
            mechanism=mechanism,
            agent_id=agent.pk,
            run_id=run.pk if run is not None else None,
            work_id=f"run:{run.pk}" if run is not None else "",
        ),
    )


def _shown(draft: str, material: Material, nonce: str) -> str:
    """Everything the polishers read of this turn; what people, agents and tools wrote is fenced."""

    def lines(ok: bool) -> str:
        return "\n".join(
            f"{outcome.name}: {indented(outcome.answer, OUTCOME_CHARACTERS)}"
            for outcome in material.outcomes
            if outcome.ok is ok
        )

    parts = {
        "message": ("MESSAGE", indented(material.message, 4_000)),
        "draft": ("DRAFT", neutral(draft, max(len(draft), 1))[0]),
        "preferences": ("PREFERENCES", indented(material.preferences, 4_000)),
        "outcomes": ("TOOLS", lines(True)),
        "errors": ("ERRORS", lines(False)),
    }
    fenced = {name: fence(title, body, nonce) if body else "" for name, (title, body) in parts.items()}
    return render_prompt("swarm/draft", **fenced, uncertain=material.uncertain, list=material.wants_list)


def _schema(replacers: Sequence[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {"text": {"type": "string"}}
    if replacers:
        properties |= {"replaced_by": {"type": "string", "enum": ["", *replacers]}, "reason": {"type": "string"}}
    return object_schema(properties)


# -- without a model
def offline(request: llm.LLMRequest) -> Mapping[str, Any]:
    """Polish by rules (responder for the task ``swarm_polish``): drop empty openings, and join a long list that nobody asked for."""
    text = str(request.facts["draft"])
    text = _OPENING.sub(lambda opening: opening[1].upper(), text)
    lines = text.split("\n")
    bullets = [n for n, line in enumerate(lines) if _BULLET.match(line)]
    in_a_row = bool(bullets) and bullets == list(range(bullets[0], bullets[0] + len(bullets)))
    if len(bullets) > MOST_BULLETS and in_a_row and not request.facts["list"]:
        items = [_BULLET.sub("", lines[n]).strip().rstrip(".;,") for n in bullets]
        lines[bullets[0] : bullets[-1] + 1] = ["; ".join(items) + "."]
        text = "\n".join(lines)
    return {"text": text, "replaced_by": "", "reason": ""}
