"""Product, judge, gateway and model together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.gateway.model_server import ModelServer
from tests.gateway.product import Judge, Product
from tests.gateway.proxy import KEY, Proxy, configuration, litellm_python
from tests.machinery import free_port


class Gateway:
    """Plumbline, its judge, LiteLLM and the model behind it, inside a ``with`` block."""

    def __init__(
        self, folder: Path, database_url: str, *, guardrail: dict[str, Any] | None = None, **settings: str
    ) -> None:
        self.folder, self.database_url = folder, database_url
        self.changes, self.settings = guardrail or {}, settings
        self._running = ExitStack()

    def __enter__(self) -> Self:
        litellm_python()  # skips before anything is started
        port = free_port()
        settings = {"ACTOR_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": KEY, **self.settings}
        with self._running as running:
            self.model = running.enter_context(ModelServer())
            self.judge = running.enter_context(Judge())
            self.product = running.enter_context(
                Product(self.folder / "product", self.database_url, self.judge, **settings)
            )
            proxy = Proxy(
                self.folder / "litellm",
                configuration(self.model.url, **self.changes),
                plumbline_url=self.product.url,
                token=self.product.token,
                port=port,
            )
            self.proxy = running.enter_context(proxy)
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
