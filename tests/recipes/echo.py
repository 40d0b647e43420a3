"""A provider that answers ``echo:TEXT`` with the text."""

from __future__ import annotations

from agents.kit.llm.providers.base import LocalAnswer, LocalProvider
from agents.kit.llm.requests import LLMRequest, read_answer


class Echo(LocalProvider):
    """Answers with what stands after the colon."""

    name = "echo"

    def answer(self, request: LLMRequest, model: str, digest: str) -> LocalAnswer:
        text = self.bare_name(model)
        answer = read_answer(request, text=text, stop_reason="end_turn")
        return LocalAnswer(answer=answer, text=text, stop_reason="end_turn", served_model=model)


PROVIDER = Echo()
