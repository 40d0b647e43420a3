"""Traces, caught where Sentry's transport would send them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport


class Caught(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [item.payload.json or {} for envelope in self.envelopes for item in envelope.items if item.type == kind]

    @property
    def text(self) -> str:
        return json.dumps([item.payload.json for envelope in self.envelopes for item in envelope.items])


def tree(transaction: dict[str, Any]) -> Counter[tuple[str, str]]:
    """(operation, operation of its parent) for every span of a transaction."""
    root = transaction["contexts"]["trace"]
    ops = {span["span_id"]: span["op"] for span in transaction["spans"]} | {root["span_id"]: root["op"]}
    return Counter((span["op"], ops[span["parent_span_id"]]) for span in transaction["spans"])
