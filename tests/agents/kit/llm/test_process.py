"""One loop and one pool of connections per process, also after a fork, and a quiet end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path

import pytest

from agents.kit.llm import Status, complete, complete_many, ledger, loop
from tests.agents.kit.llm.asking import judge_request, text_request
from tests.llm_server import LLMServer

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.django_db
def test_repeated_calls_share_one_connection_whatever_their_retries(llm_server: LLMServer) -> None:
    for retries in (0, 2, 0, 1, 2):
        assert complete(text_request(retries=retries)).ok
    list(complete_many([text_request()], deadline=5))

    assert llm_server.connections == 1


@pytest.mark.django_db
def test_a_closed_loop_is_replaced_on_the_next_call(llm_server: LLMServer) -> None:
    assert complete(text_request()).ok
    loop.close()
    assert llm_server.wait_until(lambda: llm_server.open_connections == 0)

    assert complete(text_request()).ok
    assert llm_server.connections == 2


@pytest.mark.django_db
def test_closing_the_loop_ends_calls_in_flight(llm_server: LLMServer) -> None:
    llm_server.always(hang=True)

    def close_in_flight() -> None:
        assert llm_server.wait_until(lambda: llm_server.inflight == 1)
        loop.close()

    closer = threading.Thread(target=close_in_flight)
    closer.start()

    reply = complete(text_request(), deadline=10)

    closer.join(30)
    assert (reply.status, reply.error) == (Status.UNAVAILABLE, "the process is shutting down")


@pytest.mark.django_db
def test_a_forked_child_makes_calls_of_its_own(llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(text_request()).ok
    monkeypatch.setattr(ledger, "record_all", lambda calls: [1] * len(calls))  # the connection is the parent's

    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if complete(judge_request(), deadline=10).ok else 1)
        except BaseException:  # noqa: BLE001 (nothing may return into the test run)
            traceback.print_exc()
            os._exit(2)

    assert exit_code(child, within=60) == 0
    assert llm_server.connections == 2
    assert complete(text_request()).ok  # and the parent's connection still works
    assert llm_server.connections == 2


def exit_code(child: int, within: float) -> int:
    """Wait for a child process; kill it when it takes too long."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail(f"the child did not end within {within} s")


def test_a_process_ends_at_once_and_without_a_word(llm_server: LLMServer) -> None:
    script = textwrap.dedent("""
        import sys, threading, time
        import django
        django.setup()
        from agents.kit.llm import Block, Label, LLMRequest, Turn, complete, complete_many, ledger
        ledger.record_all = lambda calls: [1] * len(calls)
        def ask():
            turns = (Turn("user", (Block("hello"),)),)
            return LLMRequest(role="actor", task="act", system=(), turns=turns, label=Label(purpose="test"))
        assert complete(ask()).ok
        left_hanging = complete_many([ask(), ask()], deadline=60)
        assert next(left_hanging)[1].ok
        sys.stdout.write("done")
    """)
    llm_server.reply(text="one")
    llm_server.reply(text="two")
    llm_server.always(hang=True)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
        "ACTOR_BASE_URL": llm_server.url,
        "ACTOR_MODEL": "test-model",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "default,ignore::DeprecationWarning,ignore::PendingDeprecationWarning",
    }

    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done", "")


@pytest.mark.slow
def test_garbage_collections_do_not_visit_the_sdk() -> None:
    script = textwrap.dedent("""
       import gc, sys
       import django
       django.setup()
       from agents.kit.llm import warm_up
       warm_up("actor")
       assert gc.isenabled()
       sys.stdout.write(str(len(gc.get_objects())))
    """)
    environment = {
        **os.environ,
        "ACTOR_BASE_URL": "http://127.0.0.1:1",
        "ACTOR_MODEL": "test-model",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }

    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)

    assert int(ended.stdout) < 20_000, ended.stderr  # of some 200,000 that the SDK and Django make
