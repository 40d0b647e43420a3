"""The loopback server with Message Batches: what is handed in is answered when a test says so.

    with BatchServer() as server:
        ...                      # hand in
        server.end()             # answer every request of every open batch as `/v1/messages` would have, and end them
        server.end(errored={0})  # the first request is refused; `expired` and `canceled` likewise, by its number

Results are given in reverse order, as the real ones are in no order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.llm_server import LLMServer, Scripted

COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")


@dataclass
class Batch:
    """A batch as the server has it."""

    id: str
    requests: list[dict[str, Any]]
    created_at: datetime
    status: str = "in_progress"
    results: list[dict[str, Any]] = field(default_factory=list)


class BatchServer(LLMServer):
    """Also answers /v1/messages/batches and what is below it.

    Attributes:
        batches: By id, oldest first.
        asked: Method and path of every request.
        fail: Called with method and path; an HTTP status answers with that error instead.
        forget_name: Whether to drop the connection after a batch was taken.
        cut_results: How many lines of results are sent before the connection is dropped; None = all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[str, Batch] = {}
        self.asked: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], int | None] = lambda method, path: None
        self.forget_name = False
        self.cut_results: int | None = None

    # -- for tests
    def made(self) -> int:
        """How many batches were taken."""
        return len(self.batches)

    def live(self) -> int:
        """How many questions were asked one by one."""
        return sum(path == "/v1/messages" for _, path in self.asked)

    def end(
        self, *, errored: Collection[int] = (), expired: Collection[int] = (), canceled: Collection[int] = ()
    ) -> None:
        """Answer what is open, but for these requests, by their number in their batch."""
        for batch in self.batches.values():
            if batch.status == "ended":
                continue
            for number, request in enumerate(batch.requests):
                result: dict[str, Any] = {"type": "succeeded"}
                if number in errored:
                    error = {"type": "invalid_request_error", "message": "scripted refusal"}
                    result = {"type": "errored", "error": {"type": "error", "error": error, "request_id": None}}
                elif number in expired or number in canceled:
                    result = {"type": "expired" if number in expired else "canceled"}
                else:
                    body = request["params"]
                    result["message"] = json.loads(self._payload(body, self._choose(body)))
                batch.results.append({"custom_id": request["custom_id"], "result": result})
            batch.results.reverse()
            batch.status = "ended"

    # -- the server's thread
    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection, which keeps this short."""
        task = asyncio.current_task()
        assert task is not None
        self._connected.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split("\r\n")[0].split(" ")
            path = target.partition("?")[0]
            length = next(
                (line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length")),
                "0",
            )
            text = await reader.readexactly(int(length))
            self.asked.append((method, path))
            status = self.fail(method, path)
            if status is not None:
                payload = self._payload({}, Scripted(status=status))
            elif path == "/v1/messages":
                self.bodies.append(json.loads(text))
                await self._answer(self.bodies[-1], reader, writer)
                return
            else:
                status, payload = self._batches(method, path, text)
            lines = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(payload.encode())}\r\nconnection: close"
            if self.cut_results is not None and path.endswith("/results"):
                payload = "".join(line + "\n" for line in payload.splitlines()[: self.cut_results])
            writer.write(f"{lines}\r\n\r\n{payload}".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connected.discard(task)
            writer.close()

    def _batches(self, method: str, path: str, text: bytes) -> tuple[int, str]:
        parts = path.removeprefix("/v1/messages/batches").strip("/").split("/")
        if method == "POST" and parts == [""]:
            requests = json.loads(text)["requests"]
            assert len({request["custom_id"] for request in requests}) == len(requests)
            batch = Batch(f"msgbatch_{len(self.batches) + 1:02}", requests, datetime.now(UTC))
            self.batches[batch.id] = batch
            if self.forget_name:
                raise ConnectionResetError
            return 200, json.dumps(self._told(batch))
        if parts == [""]:
            newest = [self._told(batch) for batch in reversed(self.batches.values())]
            return 200, json.dumps({"data": newest, "has_more": False, "first_id": None, "last_id": None})
        found = self.batches.get(parts[0])
        if found is None:
            return 404, self._payload({}, Scripted(status=404))
        if parts[1:] == ["results"]:
            return 200, "".join(json.dumps(result) + "\n" for result in found.results)
        if parts[1:] == ["cancel"]:
            found.status = "canceling"
        return 200, json.dumps(self._told(found))

    def _told(self, batch: Batch) -> dict[str, Any]:
        counts = dict.fromkeys(COUNTS, 0)
        for result in batch.results:
            counts[result["result"]["type"]] += 1
        ended = batch.status == "ended"
        counts["processing"] = 0 if ended else len(batch.requests)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": batch.status,
            "request_counts": counts,
            "created_at": batch.created_at.isoformat(),
            "expires_at": (batch.created_at + timedelta(hours=24)).isoformat(),
            "ended_at": batch.created_at.isoformat() if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{self.url}/v1/messages/batches/{batch.id}/results" if ended else None,
        }
