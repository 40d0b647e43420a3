"""Anthropic's models on Google's Vertex AI: ``vertex:MODEL``, with the Application Default Credentials that google-auth finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings

from agents.kit.llm.providers.anthropic import Platform, signed_by, without_custom_headers
from agents.kit.llm.providers.base import Failure, Route, is_installed
from agents.kit.llm.requests import Status

if TYPE_CHECKING:
    import httpx2

# Regions whose address is none of the form REGION-aiplatform.googleapis.com, as the SDK has them.
ADDRESSES = {
    "global": "https://aiplatform.googleapis.com/v1",
    "us": "https://aiplatform.us.rep.googleapis.com/v1",
    "eu": "https://aiplatform.eu.rep.googleapis.com/v1",
}


class Vertex(Platform):
    """Vertex AI in one project and region; the model is part of the address."""

    name = "vertex"
    url_setting = "ANTHROPIC_VERTEX_BASE_URL"
    path = "/projects/…/models/MODEL:rawPredict"
    hints: ClassVar[Mapping[int, str]] = {
        401: "check the Google credentials",
        403: "check the Google credentials, and whether they may use this model in this project and region",
    }

    def missing(self) -> str:
        if not settings.CLOUD_ML_REGION:
            return "no Google region is set: set CLOUD_ML_REGION, for example global"
        if not _project():
            return "no Google project is set: set ANTHROPIC_VERTEX_PROJECT_ID"
        if not is_installed("google.auth", "requests"):
            return (
                "google-auth, which finds Google's credentials, is not installed: run pip install 'anthropic[vertex]'"
            )
        return ""

    def usual_url(self) -> str:
        region = settings.CLOUD_ML_REGION
        return ADDRESSES.get(region, f"https://{region}-aiplatform.googleapis.com/v1")

    def import_sdk(self) -> None:
        super().import_sdk()
        import google.auth.transport.requests  # noqa: F401

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        import anthropic

        account = {"region": settings.CLOUD_ML_REGION, "project_id": _project(), "base_url": route.base_url}
        client = anthropic.AsyncAnthropicVertex(**account, max_retries=retries, http_client=pool, open_telemetry=False)
        signed_by(client, anthropic.AnthropicVertex(**account, open_telemetry=False))
        return without_custom_headers(client)

    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        exceptions = sys.modules.get("google.auth.exceptions")
        if exceptions is None or not isinstance(problem, exceptions.GoogleAuthError):
            return super().failure_of(problem, route)
        error = f"Google gave no credentials: {problem} (check GOOGLE_APPLICATION_CREDENTIALS)"
        if isinstance(problem, exceptions.TransportError):
            return Failure(Status.UNAVAILABLE, error)
        return Failure(Status.REJECTED, error)


def _project() -> str:
    return str(settings.ANTHROPIC_VERTEX_PROJECT_ID or os.environ.get("GOOGLE_CLOUD_PROJECT", ""))


PROVIDER = Vertex()
