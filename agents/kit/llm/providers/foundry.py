"""Anthropic's models on Microsoft Foundry (Azure): ``foundry:DEPLOYMENT``, with the resource's API key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings

from agents.kit.llm.providers.anthropic import Platform, without_custom_headers
from agents.kit.llm.providers.base import Route, key_fault

if TYPE_CHECKING:
    import httpx2


class Foundry(Platform):
    """A resource of Foundry; its deployments are named like models."""

    name = "foundry"
    url_setting = "ANTHROPIC_FOUNDRY_BASE_URL"
    hints: ClassVar[Mapping[int, str]] = {
        401: "check ANTHROPIC_FOUNDRY_API_KEY",
        403: "check ANTHROPIC_FOUNDRY_API_KEY, and whether the resource has this deployment",
    }
    request_id_headers = ("request-id", "apim-request-id", "x-ms-request-id")

    def missing(self) -> str:
        key = settings.ANTHROPIC_FOUNDRY_API_KEY
        if not settings.ANTHROPIC_FOUNDRY_RESOURCE and not settings.ANTHROPIC_FOUNDRY_BASE_URL:
            return "no resource of Foundry is set: set ANTHROPIC_FOUNDRY_RESOURCE"
        if not key:
            return "no key of Foundry is set: set ANTHROPIC_FOUNDRY_API_KEY"
        if fault := key_fault(key):
            return f"ANTHROPIC_FOUNDRY_API_KEY {fault}"
        return ""

    def usual_url(self) -> str:
        return f"https://{settings.ANTHROPIC_FOUNDRY_RESOURCE}.services.ai.azure.com/anthropic"

    def key(self) -> str:
        return str(settings.ANTHROPIC_FOUNDRY_API_KEY)

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        import anthropic

        client = anthropic.AsyncAnthropicFoundry(
            api_key=route.key, base_url=route.base_url, max_retries=retries, http_client=pool, open_telemetry=False
        )
        return without_custom_headers(client)


PROVIDER = Foundry()
