"""The route that LiteLLM calls as a guardrail."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import sentry_sdk
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiExample
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api.problems import Unavailable
from agents.kit.api.requests import BodyTooLarge, Tokens
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from correction.litellm.contract import GuardrailAnswer, Round
from correction.litellm.rounds import answer_round
from correction.models import CorrectionLog

logger = logging.getLogger(__name__)


class GatewayTokens(Tokens):
    """Tokens as LiteLLM sends its `api_key`: in the header ``x-api-key``, or as everywhere else."""

    def find_user_and_token(self, request: Any) -> Any:
        key = request.headers.get("x-api-key", "").strip()
        if key and "Authorization" not in request.headers:
            return self.authenticate_credentials(key)
        return super().find_user_and_token(request)


class GatewayTokensScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """Describes these tokens in the schema."""

    target_class = GatewayTokens
    name = "gatewayToken"
    priority = 1

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "header", "name": "x-api-key"}


EXAMPLE = {
    "input_type": "response",
    "litellm_call_id": "0b0a4c0e-3c4e-4d55-9b1f-3f1f7f6c2d11",
    "texts": ["I filed it. Hoor"],
    "request_data": {},
    "additional_provider_specific_params": {"agent": "angela"},
}


class Guardrail(View):
    """LiteLLM's generic guardrail API. Rounds are not counted against a limit: a refused one would end a stream. Budgets cap their cost."""

    queryset = CorrectionLog.objects.all()
    bodies: ClassVar = {"create": Round}
    authentication_classes = (GatewayTokens, SessionAuthentication)
    # Texts of models may hold what no database can; it is replaced before it is stored.
    raw = ("structured_messages", "texts", "request_headers", "request_data")
    most_bytes = 10 * 1024 * 1024  # a call may hold images, which LiteLLM sends along

    @answers(GuardrailAnswer, examples=[OpenApiExample("a reply on its way", request_only=True, value=EXAMPLE)])
    def create(self, request: Request) -> Response:
        """Answer a round of LiteLLM's generic guardrail API, beta: the gate for replies of a model while they stream.

        A `request` round stores what was said before. A `response` round brings the reply so far: its new sentences are judged, each as
        the text so far, by the gate of the `agent` that `additional_provider_specific_params` names; without one by the defaults, with
        the system message as persona. What passed is returned; the unfinished rest waits (`stream_holdback_chars`). A sentence that
        failed is written again from there by the model that the parameters name, with the gate's feedback. Unjudgeable text is let through.
        An agent's conversation is stored when five minutes passed without a round; without an agent only the verdicts are.
        """
        gateway_round: Round = self.read_body()
        assert request.user.pk is not None  # noqa: S101 (no one else has the permission)
        return Response(answer_round(gateway_round, user_id=request.user.pk))

    def handle_exception(self, exc: Exception) -> Response:
        """Answer a crash, and a call that is too large, with 503.

        LiteLLM lets the text pass then, where it is configured so (`fail_open`); any other error ends the client's reply.
        """
        if isinstance(exc, BodyTooLarge):
            return super().handle_exception(Unavailable(str(exc.detail)))
        try:
            return super().handle_exception(exc)
        except Exception:
            logger.exception("a round of LiteLLM crashed")
            sentry_sdk.capture_exception(exc)
            return super().handle_exception(Unavailable("the round could not be answered; the log says why"))
