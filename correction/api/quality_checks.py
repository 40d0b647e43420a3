"""The gate as a service: another program's draft is judged, and nothing is said or made."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.kit.api.requests import SENDS
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from correction.gate.quality_check import Checked, QualityCheck, check_quality
from correction.gate.sessions import SessionRefused
from correction.models import CorrectionLog


class CheckAnswer(Checked):
    """What became of a draft."""

    log: str = Field(description="the attempt in the correction logs")


EXAMPLE = {
    "persona": {"name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk. You never cheer."},
    "trajectory": [{"name": "Bob", "text": "Where is my file?", "kind": "stimulus"}],
    "draft": "Hooray, I found your file!!!",
    "dimensions": ["adherence"],
    "thresholds": {"adherence": 6.5},
    "deadline_seconds": 4,
}


class QualityChecks(View):
    """The gate as a service."""

    queryset = CorrectionLog.objects.all()
    bodies: ClassVar = {"create": QualityCheck}
    throttle_scope = SENDS
    most_bytes = 500_000  # what a judge is shown costs by its length

    @answers(CheckAnswer, examples=[OpenApiExample("a draft out of character", request_only=True, value=EXAMPLE)])
    def create(self, request: Request) -> Response:
        """Judge a draft of your own agent: scores, a verdict, and feedback for the next attempt. Nothing is said, no agent is needed.

        Say who would speak: `persona` (a text, or `system_prompt`, `name` and `traits`), or an `agent` of this installation. `trajectory`
        is what was said before. When the verdict is `rejected`, write another draft with `feedback` in mind and send it with the
        `session`: feedback asks for more with each attempt. `attempts_left` 0 is advice: whether to say the draft, the `best_attempt` or
        nothing is yours to decide.

        What cannot be judged within `deadline_seconds` is let through: `fully_judged` is false, `outcome` says why. Scores are never made
        up. A `heuristic` score comes from an offline judge. Every check is logged with its cost under the source `external`, in no figure
        of the gate's own messages. The persona and the trajectory are not stored.
        """
        body: QualityCheck = self.read_body()
        try:
            checked = check_quality(body)
        except SessionRefused as error:
            raise ValidationError({"session": [str(error)]}) from None
        log = reverse("correctionlog-detail", [checked.log_id], request=request)
        return Response(CheckAnswer(**dict(checked), log=log))
