"""Rounds as LiteLLM posts them, and what a client receives: its streaming loop in short, without LiteLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.utils import timezone

from agents.kit.models import LLMCall, owner_name
from correction.litellm.ending import work_one
from correction.litellm.models import IDLE, GatedReply
from tests.api_client import Program
from tests.evaluation.judging import entry, tail_of

ROUTE = "/api/litellm/beta/litellm_basic_guardrail_api"
ASKED = [{"role": "system", "content": "You are Ada, a dry and careful clerk."}, {"role": "user", "content": "Well?"}]


def chunks_of(text: str, size: int) -> list[str]:
    """A text in pieces of so many characters; 0 = whole."""
    step = size or len(text) or 1
    return [text[start : start + step] for start in range(0, len(text), step)]


class Underflow(AssertionError):
    """A text was returned that does not begin with what is out: LiteLLM ends the stream with an error."""


class Ended(AssertionError):
    """The stream ends with an error."""


@dataclass
class Call:
    """One call through the gateway.

    Attributes:
        sent: What the client received of each choice.
        post: Posts a body; returns the answer.
    """

    post: Callable[[dict[str, Any]], dict[str, Any]]
    parameters: dict[str, Any] = field(default_factory=dict)
    messages: Sequence[dict[str, Any]] = tuple(ASKED)
    headers: dict[str, str] = field(default_factory=dict)
    end_user: str = ""
    key: str = ""
    model: str = "m"
    call_id: str = field(default_factory=lambda: str(uuid4()))
    sent: dict[int, str] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def body(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The body of one round."""
        caller = {"user_api_key_hash": self.key, "user_api_key_end_user_id": self.end_user}
        body: dict[str, Any] = {
            "input_type": kind, "litellm_call_id": self.call_id, "litellm_trace_id": "x", "litellm_version": "1.108.7",
            "structured_messages": None, "images": None, "tools": None, "texts": [], "tool_calls": None, "model": self.model,
            "request_data": {name: value for name, value in caller.items() if value},
            "request_headers": {"host": "gateway", "authorization": "[present]", **self.headers},
            "additional_provider_specific_params": self.parameters,
        }  # fmt: skip
        return body | fields

    def round(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Post one round."""
        answer = self.post(self.body(kind, **fields))
        self.answers.append(answer)
        return answer

    def begin(self) -> None:
        """The round before the call."""
        texts = [message["content"] for message in self.messages if isinstance(message.get("content"), str)]
        assert self.round("request", structured_messages=list(self.messages), texts=texts)["action"] == "NONE"

    def response(self, *texts: str, is_last: bool = False) -> None:
        """A round with the texts so far: what extends the texts that are out goes out, but for what is held back."""
        answer = self.round("response", texts=list(texts))
        if answer["action"] == "BLOCKED":
            raise Ended(answer["blocked_reason"])
        got = answer.get("texts") or list(texts)
        held = answer.get("stream_holdback_chars") or [0] * len(got)
        assert len(got) == len(texts)
        for choice, text in enumerate(got):
            out = self.sent.get(choice, "")
            if not text.startswith(out):
                raise Underflow(f"{out!r} is out, and the text is now {text!r}")
            end = len(text) if is_last else max(len(out), len(text) - held[choice])
            self.sent[choice] = text[:end]

    def stream(self, chunks: Iterable[str], *, rate: int = 1) -> str:
        """Stream a reply in chunks, with a round at every so many and one at the end; return what the client received."""
        text = ""
        for number, chunk in enumerate(chunks, 1):
            text += chunk
            if number % rate == 0:
                self.response(text)
        self.response(text, is_last=True)
        return self.sent[0]


def call(client: Program, *, announced: bool = True, **fields: Any) -> Call:
    """A call whose first round was posted, if it is to be; `agent` and such are parameters of the guardrail."""
    of_call = ("messages", "headers", "end_user", "key", "model", "call_id", "sent")
    known = {name: fields.pop(name) for name in of_call if name in fields}

    def post(body: dict[str, Any]) -> dict[str, Any]:
        answer = client.post(ROUTE, body)
        assert answer.status_code == 200, answer.content
        got: dict[str, Any] = answer.json()
        return got

    made = Call(post, parameters=fields, **known)
    if announced:
        made.begin()
    return made


def asked_judge() -> int:
    """How many questions judges were asked."""
    return LLMCall.objects.filter(role="judge").count()


def judging(
    *, default: Any = 8, actor: Sequence[str | dict[str, Any]] = (), **values: Any
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A server that is judge and actor: it scores what is judged by the words in it, and goes on with these texts, one after the other.

    Args:
        default: Score of a text with none of the words. A dict instead of a number is the complete scripted reply.
        values: Word to score.
    """
    drafts = iter(actor)

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if "output_config" not in body:
            draft = next(drafts)
            return draft if isinstance(draft, dict) else {"text": draft}
        judged = tail_of(body)
        value = next((value for word, value in values.items() if word in judged), default)
        return value if isinstance(value, dict) else {"json": entry(value)}

    return respond


def end_replies() -> None:
    """Let every reply be over, and a worker store all of them."""
    GatedReply.objects.filter(status="pending").update(lease_expires_at=timezone.now() - IDLE)
    while work_one(owner=owner_name()):
        GatedReply.objects.filter(status="pending").update(lease_expires_at=timezone.now() - IDLE)
