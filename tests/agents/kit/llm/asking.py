"""Requests that the tests of this package send."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agents.kit.llm import Block, Label, LLMRequest, Reply, Tool, Turn
from agents.kit.models import LLMCall

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "enum": [7, *range(10)]}, "reason": {"type": "string"}},
    "required": ["score", "reason"],
    "additionalProperties": False,
}

SEND = Tool(
    name="send_message",
    description="Say something.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
LOOK = Tool(name="look_around", description="See who is here.", input_schema={"type": "object", "properties": {}})


class Score(BaseModel):
    """What a judge answers in these tests."""

    model_config = ConfigDict(strict=True, extra="forbid")

    score: Annotated[int, Field(ge=0, le=9)]
    reason: str


def judge_request(**changes: Any) -> LLMRequest:
    """A request of the judge for a score from 0 to 9."""
    fields: dict[str, Any] = {
        "role": "judge",
        "task": "score",
        "system": (Block("You judge.", cache=True),),
        "turns": (Turn("user", (Block("Did Ada stay in character?"),)),),
        "schema": SCHEMA,
        "parse": Score.model_validate,
        "example": {"score": 3, "reason": "invented"},
        "label": Label(purpose="evaluation", dimension="adherence", work_id="evaluation_run:1"),
    }
    return LLMRequest(**(fields | changes))


def text_request(**changes: Any) -> LLMRequest:
    """A request of the actor for free text."""
    return judge_request(**({"role": "actor", "task": "act", "schema": None, "parse": None, "example": None} | changes))


def act_request(**changes: Any) -> LLMRequest:
    """A request of the actor that may use tools."""
    return text_request(**({"tools": (SEND, LOOK)} | changes))


def asking(word: str, **changes: Any) -> LLMRequest:
    """A question whose word stands in its ledger row too."""
    label = Label(purpose="gate", dimension=word, work_id="gate_session:1", **changes.pop("label", {}))
    return text_request(turns=(Turn("user", (Block(word),)),), label=label, **changes)


def text_of(message: dict[str, Any]) -> str:
    """The first text of a message as it was sent, by whichever protocol."""
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def word_of(body: dict[str, Any]) -> str:
    return text_of(body["messages"][-1])


def row_of(reply: Reply) -> LLMCall:
    """The ledger row of a reply."""
    assert reply.call_id is not None, "the call has no ledger row"
    return LLMCall.objects.get(pk=reply.call_id)
