"""Batches of questions over a provider's SDK: submit, poll, cancel, find, read the results. Synchronous, without the database."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from agents.kit.llm.asking import describe
from agents.kit.llm.loop import background
from agents.kit.llm.providers.base import Batches, BatchState, Entry, Route
from agents.kit.llm.requests import Status

SUBMIT_SECONDS = 120.0  # megabytes go up
CHECK_SECONDS = 30.0
GRACE = 1.0  # seconds past the time allowed, in which the loop cancels what hangs
RESULTS_AT_ONCE = 200

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


def submit_batch(route: Route, requests: Sequence[tuple[str, dict[str, Any]]]) -> BatchState:
    """Submit bodies by custom id.

    Raises:
        BatchProblem: It was refused, or it is unknown whether it arrived.
    """
    return _run_in_loop(route, lambda batches, client: batches.submit(client, requests), SUBMIT_SECONDS)


def check_batch(route: Route, batch_id: str) -> BatchState:
    """Return how far a batch is; `BatchProblem` where the server does not say."""
    return _run_in_loop(route, lambda batches, client: batches.check(client, batch_id), CHECK_SECONDS)


def cancel(route: Route, batch_id: str) -> None:
    """Ask the server to stop; what was answered until then is in the results. `BatchProblem`: for example, the batch has ended."""
    _run_in_loop(route, lambda batches, client: batches.cancel(client, batch_id), CHECK_SECONDS)


def since(route: Route, begin: datetime) -> list[BatchState]:
    """Return the batches made since then, oldest first; `BatchProblem` where the server does not say."""
    return _run_in_loop(route, lambda batches, client: batches.since(client, begin), CHECK_SECONDS)


def results(route: Route, batch_id: str) -> Iterator[list[Entry]]:
    """Yield the results as they stream in, some hundred at a time, in no order.

    Raises:
        BatchProblem: They cannot be had, or stopped coming; what was yielded holds.
    """
    entries: AsyncIterator[Entry] = _run_in_loop(
        route, lambda batches, client: batches.results(client, batch_id), CHECK_SECONDS
    )

    async def next_portion(_: Batches, __: Any) -> list[Entry]:
        portion: list[Entry] = []
        while len(portion) < RESULTS_AT_ONCE:
            try:
                portion.append(await anext(entries))
            except StopAsyncIteration:
                break
        return portion

    while portion := _run_in_loop(route, next_portion, CHECK_SECONDS):
        yield portion


def _run_in_loop(route: Route, action: Callable[[Batches, Any], Awaitable[T]], seconds: float) -> T:
    """Run an action with a provider's batches and its client in the loop's thread, without retries, and return its result.

    Raises:
        BatchProblem: It failed or took longer than `seconds`; `http_status` is 0 where no HTTP answer came, 404 where there are no batches.
    """
    batches = route.remote.batches
    if batches is None:
        raise BatchProblem(Status.REJECTED, f"{route.provider.name} has no batches", 404)
    ground = background()
    client = ground.clients.get(route, retries=0)

    async def guarded() -> T:
        """Run the action, with each failure as a `BatchProblem`."""
        try:
            async with asyncio.timeout(seconds):
                return await action(batches, client)
        except TimeoutError:
            raise BatchProblem(Status.TIMEOUT, f"{route.endpoint} did not answer within {seconds:g} s") from None
        except Exception as problem:  # noqa: BLE001 (a failure is a value; unforeseen ones are logged with it)
            code = getattr(problem, "status_code", 0)
            failure = describe(problem, route, http_status=code)
            raise BatchProblem(failure.status, failure.error, code) from None

    future = ground.submit(guarded())
    try:
        return future.result(timeout=seconds + GRACE)  # a loop that is stuck does not cancel the action itself
    except (TimeoutError, concurrent.futures.CancelledError):
        future.cancel()
        raise BatchProblem(Status.TIMEOUT, f"{route.endpoint} did not answer within {seconds:g} s") from None
    except BaseException:
        future.cancel()
        raise
