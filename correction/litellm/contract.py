"""What LiteLLM's generic guardrail API posts and reads: the fields that are used of it, and what its configuration may say to us."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from django.conf import settings
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from agents.kit.bodies import Body, OneOf
from correction.gate.quality_check import LONGEST_SPEAKER

LONGEST_CALL_ID = 200
SESSION_HEADERS = ("x-litellm-session-id", "x-litellm-trace-id")  # by which a client names its conversation
Text = Annotated[str, StringConstraints(strip_whitespace=False)]


def _allowed_model(model: str) -> str:
    """Return the name of a model that may be called by a holder of the token; empty = ACTOR_MODEL.

    Raises:
        ValueError: No setting allows it.
    """
    allowed = [str(settings.ACTOR_MODEL), *settings.GATE_REWRITE_MODELS]
    if model and model not in allowed:
        names = ", ".join(allowed)
        raise ValueError(f"rewrite_model {model[:80]!r}: allowed: {names}; GATE_REWRITE_MODELS lists further ones")
    return model


class Parameters(Body):
    """What the operator of the gateway says of a guardrail (`additional_provider_specific_params`)."""

    agent: str = Field(
        "", max_length=200, description="slug of the agent that speaks; default: the system message is the persona"
    )
    speaker: str = Field("", max_length=LONGEST_SPEAKER, description="name of a speaker who is no agent here")
    rewrite_model: Annotated[str, AfterValidator(_allowed_model)] = Field(
        "",
        max_length=200,
        description="model that writes failed sentences again, one of GATE_REWRITE_MODELS; default: ACTOR_MODEL",
    )
    fallback_text: Annotated[str, StringConstraints(strip_whitespace=False)] = Field(
        "", max_length=4_000, description="said in place of the best attempt where all attempts failed"
    )


class _Lenient(Body):
    """An object of LiteLLM's: what it has besides these fields is not looked at, and a field may be null."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def unknown(cls, data: dict[str, Any]) -> dict[str, str]:
        """Refuse no field: a newer LiteLLM may send more."""
        return {}


class Metadata(_Lenient):
    """What LiteLLM knows of who calls."""

    user_api_key_hash: Text | None = Field(None, description="tells the keys of LiteLLM's clients apart")
    user_api_key_end_user_id: Text | None = Field(None, description="id of the person, as the client sent it")


def _storable_id(call_id: str) -> str:
    """Return a call's id, which a client may choose; of a long one a digest."""
    if len(call_id) <= LONGEST_CALL_ID:
        return call_id
    return f"sha256:{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()}"


def _no_null(text: Any) -> Any:
    """Return the text of a choice; one that has none yet may be null."""
    return "" if text is None else text


def _nothing_known(data: Any) -> Any:
    """Return what LiteLLM knows of who calls, which may be null."""
    return {} if data is None else data


class Round(_Lenient):
    """What LiteLLM posts: before a call what was said (`request`), afterwards the texts of the reply so far (`response`)."""

    input_type: Annotated[str, OneOf("request", "response")]
    litellm_call_id: Annotated[str, AfterValidator(_storable_id)] | None = Field(
        None, description="joins the rounds of a call"
    )
    structured_messages: list[dict[str, Any]] | None = Field(None, description="the messages of the call, of a request")
    texts: list[Annotated[Text, BeforeValidator(_no_null)]] | None = Field(
        None, description="of a response: the text so far of each choice that has one"
    )
    model: Text | None = Field(None, description="of a request: the model that the client asks for")
    request_data: Annotated[Metadata, BeforeValidator(_nothing_known)] = Metadata()
    request_headers: dict[str, Text | None] | None = Field(
        None, description="headers of the call; values of those allowed"
    )
    additional_provider_specific_params: Parameters | None = None

    @property
    def parameters(self) -> Parameters:
        return self.additional_provider_specific_params or Parameters()

    def header(self, name: str) -> str:
        """Return the value of a header of the call; empty where it has none."""
        for sent, value in (self.request_headers or {}).items():
            if sent.lower() == name:
                return value or ""
        return ""

    @property
    def is_of_messages_api(self) -> bool:
        """Return whether the call came in Anthropic's protocol, of whose streams LiteLLM sends no text but the model's."""
        return bool(self.header("anthropic-version"))

    @property
    def session(self) -> str:
        """Return by which id the client names its conversation; empty where it does not."""
        for name in SESSION_HEADERS:
            session = self.header(name).strip()
            if session:
                return session
        return ""


class GuardrailAnswer(BaseModel):
    """What LiteLLM does with the reply: sends `texts` so far, each without its last `stream_holdback_chars` characters."""

    action: Annotated[str, OneOf("NONE", "GUARDRAIL_INTERVENED", "BLOCKED")] = Field(
        "NONE",
        description="GUARDRAIL_INTERVENED: a text is not the model's; BLOCKED: one failed whose stream cannot be changed",
    )
    blocked_reason: str | None = None
    texts: list[str] | None = Field(None, description="one for each that was sent, in their order; null: as they were")
    stream_holdback_chars: list[int] | None = Field(
        None, description="characters at the end of each text that wait for the next round"
    )


NOTHING_TO_SAY = GuardrailAnswer()
