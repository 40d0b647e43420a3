"""The real LiteLLM proxy, unmodified, with a guardrail in front of a scripted model.

Its 125 packages are no dependency of Plumbline. `LITELLM_PYTHON` names the interpreter of a virtual environment that has
``litellm[proxy]``; with `LITELLM=1` one is made in ``.local/litellm``. Without either these tests are skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tests.machinery import ROOT, answers, free_port, wait_until

VERSION = "1.108.7"  # the newest that these tests have passed with
KEY = "sk-of-the-proxy"
CLIENT = Path(__file__).parent / "openai_client.py"
HOST = "plumbline.example.org"
EXAMPLE = ROOT / "docs" / "examples" / "litellm.yaml"


def litellm_python() -> Path:
    """Return a Python that has LiteLLM, or skip the test."""
    named = os.environ.get("LITELLM_PYTHON")
    if named:
        return Path(named)
    if os.environ.get("LITELLM") != "1":
        pytest.skip("neither LITELLM_PYTHON names a Python with litellm[proxy], nor LITELLM=1 asks to install it")
    return _installed(ROOT / ".local" / "litellm")


def _installed(folder: Path) -> Path:
    """Make a virtual environment with LiteLLM, once for all processes of the tests."""
    python = folder / "bin" / "python"
    installed = folder / VERSION
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"litellm[proxy]=={VERSION}"], check=True)
            installed.touch()
    return python


def configuration(model_url: str, **changes: Any) -> dict[str, Any]:
    """Return the configuration of the how-to, with the scripted model behind every name.

    Args:
        model_url: The scripted model's server.
        changes: Parameters of the guardrail that differ; `parameters` are ours, passed on as they are.
    """
    config: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    for model in config["model_list"]:
        model["litellm_params"].update(model="openai/scripted", api_base=f"{model_url}/v1", api_key="none")
    guardrail = config["guardrails"][0]["litellm_params"]
    guardrail["additional_provider_specific_params"].update(changes.pop("parameters", {}))
    guardrail.update(changes)
    # Else it answers /v1/messages through OpenAI's other interface, which the scripted model does not speak.
    config["litellm_settings"]["use_chat_completions_url_for_anthropic_messages"] = True
    return config


class Proxy:
    """A proxy that runs inside a ``with`` block."""

    def __init__(
        self, folder: Path, config: dict[str, Any], *, plumbline_url: str, token: str, port: int | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.plumbline = {"PLUMBLINE_URL": plumbline_url, "PLUMBLINE_TOKEN": token, "PLUMBLINE_HOST": HOST}
        self.python = litellm_python()
        self.folder = folder
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.file = folder / "litellm.yaml"
        self.file.write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [str(self.python.parent / "litellm"), "--config", str(self.file)]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
        environment = {**kept, **self.plumbline, "HOME": str(self.folder), "LITELLM_MASTER_KEY": KEY}
        environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}  # it asks nobody outside
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, timeout=120, what=f"LiteLLM answers; its log is {self._log}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    @property
    def _log(self) -> Path:
        return self.folder / "litellm.log"

    @property
    def log(self) -> str:
        """Return what the proxy wrote."""
        return self._log.read_text(errors="replace")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return answers(f"{self.url}/health/liveliness")

    def ask(
        self, requests: Sequence[dict[str, Any]], *, at_once: int = 1, timeout: float = 600
    ) -> list[dict[str, Any]]:
        """Return what OpenAI's SDK saw of each request's reply; see `openai_client`."""
        order = {"base_url": f"{self.url}/v1", "key": KEY, "at_once": at_once, "requests": list(requests)}
        return ask_with_sdk(self.python, order, timeout=timeout)


def ask_with_sdk(python: Path, order: dict[str, Any], *, timeout: float = 600) -> list[dict[str, Any]]:
    """Run `openai_client` and return its lines."""
    done = subprocess.run(
        [str(python), "-I", str(CLIENT)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
