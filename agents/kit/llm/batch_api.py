"""Anthropic's Message Batches over the SDK: submit, poll, cancel, find, read the results. Synchronous, without the database."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from agents.kit.llm.anthropic_api import describe, text_of, usage_of
from agents.kit.llm.endpoints import Route
from agents.kit.llm.loop import Trace, background
from agents.kit.llm.requests import Status, Usage, short_line

if TYPE_CHECKING:
    from anthropic.resources.messages import AsyncBatches
    from anthropic.types.messages import MessageBatch

SUBMIT_SECONDS = 120.0  # megabytes go up
LOOK_SECONDS = 30.0
GRACE = 1.0  # seconds past the time allowed, in which the loop cancels what hangs
RESULTS_AT_ONCE = 200
LISTED_AT_ONCE = 100

T = TypeVar("T")


class BatchProblem(Exception):
    """The server did not do what it was asked to. `http_status` is 0 where there was no answer."""

    def __init__(self, status: Status, error: str, http_status: int = 0) -> None:
        super().__init__(error)
        self.status, self.http_status = status, http_status

    @property
    def is_refusal(self) -> bool:
        """Return whether the server said no. Then nothing was begun; after any other failure it may have been."""
        return 400 <= self.http_status < 500 and self.http_status not in (408, 409, 429)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the results: `result` is succeeded, errored, expired or canceled."""

    custom_id: str
    result: str
    text: str = ""
    stop_reason: str = ""
    served_model: str = ""
    usage: Usage = field(default_factory=Usage)
    error: str = ""


def submit_batch(destination: Route, requests: Sequence[tuple[str, dict[str, Any]]]) -> MessageBatch:
    """Submit bodies by custom id.

    Raises:
        BatchProblem: It was refused, or it is unknown whether it arrived.
    """
    entries: Any = [{"custom_id": name, "params": body} for name, body in requests]
    return _run_in_loop(destination, lambda batches: batches.create(requests=entries), SUBMIT_SECONDS)


def look(destination: Route, batch_id: str) -> MessageBatch:
    """Return how far a batch is; `BatchProblem` where the server does not say."""
    return _run_in_loop(destination, lambda batches: batches.retrieve(batch_id), LOOK_SECONDS)


def cancel(destination: Route, batch_id: str) -> None:
    """Ask the server to stop; what was answered until then is in the results. `BatchProblem`: for example, the batch has ended."""
    _run_in_loop(destination, lambda batches: batches.cancel(batch_id), LOOK_SECONDS)


def since(destination: Route, begin: datetime) -> list[MessageBatch]:
    """Return the batches made since then, oldest first; `BatchProblem` where the server does not say."""

    async def newest(batches: AsyncBatches) -> list[MessageBatch]:
        batches_since = []
        async for batch in batches.list(limit=LISTED_AT_ONCE):
            if batch.created_at < begin:
                break
            batches_since.append(batch)
        return batches_since[::-1]

    return _run_in_loop(destination, newest, LOOK_SECONDS)


def size_of(batch: MessageBatch) -> int:
    """Return how many requests a batch has."""
    return sum(batch.request_counts.model_dump(exclude_unset=True).values())


def results(destination: Route, batch_id: str) -> Iterator[list[Entry]]:
    """Yield the results as they stream in, some hundred at a time, in no order.

    Raises:
        BatchProblem: They cannot be had, or stopped coming; what was yielded holds.
    """
    lines: Any = _run_in_loop(destination, lambda batches: batches.results(batch_id), LOOK_SECONDS)

    async def next_portion(_: Any) -> list[Any]:
        portion: list[Any] = []
        while len(portion) < RESULTS_AT_ONCE:
            try:
                portion.append(await anext(lines))
            except StopAsyncIteration:
                break
        return portion

    while portion := _run_in_loop(destination, next_portion, LOOK_SECONDS):
        yield [_entry(line) for line in portion]


def _run_in_loop(destination: Route, action: Callable[[AsyncBatches], Awaitable[T]], seconds: float) -> T:
    """Run an action of the SDK's batches in the loop's thread, without retries, and return its result.

    Raises:
        BatchProblem: It failed or took longer than `seconds`; `http_status` is 0 where no HTTP answer came.
    """
    ground = background()
    client = ground.clients.get(base_url=destination.base_url, key=destination.key, retries=0)

    import httpx2  # of the SDK, which does not wrap what breaks off a stream

    async def guarded() -> T:
        """Run the action, with each failure as a `BatchProblem`."""
        try:
            async with asyncio.timeout(seconds):
                return await action(client.messages.batches)
        except TimeoutError:
            raise BatchProblem(Status.TIMEOUT, f"{destination.endpoint} did not answer within {seconds:g} s") from None
        except httpx2.TransportError as problem:
            error = short_line(f"{destination.endpoint} broke off: {type(problem).__name__}: {problem}")
            raise BatchProblem(Status.UNAVAILABLE, error) from None
        except Exception as problem:  # noqa: BLE001 (a failure is a value; unforeseen ones are logged with it)
            code = getattr(problem, "status_code", 0)
            trace = Trace(limiter=ground.limiter(destination.base_url), give_up_at=0.0, http_status=code)
            raise BatchProblem(*describe(problem, destination, trace), code) from None

    future = ground.submit(guarded())
    try:
        return future.result(timeout=seconds + GRACE)  # a loop that is stuck does not cancel the action itself
    except (TimeoutError, concurrent.futures.CancelledError):
        future.cancel()
        raise BatchProblem(Status.TIMEOUT, f"{destination.endpoint} did not answer within {seconds:g} s") from None
    except BaseException:
        future.cancel()
        raise


def _entry(line: Any) -> Entry:
    """Return a line of the results as an entry; what is not succeeded, expired or canceled, or cannot be read, is errored."""
    name, result = str(getattr(line, "custom_id", "") or ""), getattr(line, "result", None)
    kind = str(getattr(result, "type", "") or "")
    message = getattr(result, "message", None)
    content = getattr(message, "content", None)
    if kind == "succeeded" and isinstance(content, list):
        return Entry(
            name,
            kind,
            text=text_of(content),
            stop_reason=str(getattr(message, "stop_reason", None) or ""),
            served_model=str(getattr(message, "model", None) or ""),
            usage=usage_of(message),
        )
    if kind in ("expired", "canceled"):
        return Entry(name, kind)
    said = getattr(getattr(getattr(result, "error", None), "error", None), "message", None)
    return Entry(name, "errored", error=short_line(str(said or "the server gave no reason")))
