"""A provider over the network that speaks a protocol of its own: ``{"prompt": …}`` is answered by ``{"reply": …, "tokens": […]}``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import httpx2

from agents.kit.llm.providers.base import (
    Failure,
    Message,
    NoMessage,
    RemoteProvider,
    Route,
    status_of,
)
from agents.kit.llm.requests import LLMRequest, Role, Status, Usage


class Plain(RemoteProvider):
    """A server without an SDK, called by the HTTP client itself."""

    name = "plain"
    schema_field = "schema"

    def problem(self, role: Role, model: str, url: str) -> str:
        return "" if url else f"no server is set: set {role.upper()}_BASE_URL"

    def base_url(self, url: str) -> str:
        return url

    def import_sdk(self) -> None:
        pass

    def new_pool(self, route: Route, **options: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=route.base_url, **options)

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> httpx2.AsyncClient:
        return pool

    def body(self, request: LLMRequest, route: Route, *, without: Collection[str]) -> dict[str, Any]:
        texts = [block.text for block in request.system]
        for turn in request.turns:
            texts += [block.text for block in turn.blocks]
        body: dict[str, Any] = {"model": route.model_at_server, "prompt": "\n\n".join(texts)}
        if request.schema is not None and "schema" not in without:
            body["schema"] = dict(request.schema)
        return body

    async def send(
        self, client: httpx2.AsyncClient, body: Mapping[str, Any], *, headers: Mapping[str, str], seconds: float
    ) -> object:
        response = await client.post("/ask", json=body, headers=dict(headers), timeout=seconds)
        response.raise_for_status()
        return response.json()

    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        if isinstance(problem, httpx2.HTTPStatusError):
            return Failure(status_of(problem.response.status_code), f"HTTP {problem.response.status_code}")
        if isinstance(problem, httpx2.TransportError):
            return Failure(Status.UNAVAILABLE, f"no answer from {route.endpoint}")
        return None

    def read(self, answer: object) -> Message:
        if not isinstance(answer, dict) or not isinstance(answer.get("reply"), str):
            raise NoMessage("no reply")
        sent, given = answer.get("tokens", (None, None))
        return Message(text=answer["reply"], usage=Usage(input_tokens=sent, output_tokens=given))


PROVIDER = Plain()
