"""The route that LiteLLM calls as a guardrail."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiExample
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api.requests import Tokens
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from agents.kit.bodies import as_api_error
from agents.kit.refusals import Refused
from correction.litellm.contract import GuardrailAnswer, Round
from correction.litellm.rounds import answer_round
from correction.models import CorrectionLog


class GatewayTokens(Tokens):
    """Tokens as LiteLLM sends its `api_key`: in the header ``x-api-key``, or as everywhere else."""

    def authenticate(self, request: Any) -> Any:
        key = request.META.get("HTTP_X_API_KEY", "").strip()
        if key and "HTTP_AUTHORIZATION" not in request.META:
            request.META["HTTP_AUTHORIZATION"] = f"{self.keyword} {key}"
        return super().authenticate(request)


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
    most_bytes = 20_000_000  # a call may hold images, which LiteLLM sends along

    @answers(GuardrailAnswer, examples=[OpenApiExample("a reply on its way", request_only=True, value=EXAMPLE)])
    def create(self, request: Request) -> Response:
        """Answer a round of LiteLLM's generic guardrail API, beta: the gate for replies of a model while they stream.

        A `request` round stores what was said before. A `response` round brings the reply so far: its new sentences are judged, each as
        the text so far, by the gate of the `agent` that `additional_provider_specific_params` names; without one by the defaults, with
        the system message as persona. What passed is returned; the unfinished rest waits (`stream_holdback_chars`). A sentence that
        failed is written again from there by the agent's model, with the gate's feedback. What cannot be judged passes.
        """
        asked: Round = self.read_body()
        try:
            return Response(answer_round(asked, user=request.user))
        except Refused as refused:
            raise as_api_error(refused) from None
