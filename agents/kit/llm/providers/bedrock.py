"""Anthropic's models on Amazon Bedrock: ``bedrock:MODEL``, with the credentials that boto3 finds, or a Bedrock API key."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings

from agents.kit.llm.providers.anthropic import Platform, signed_by, without_custom_headers
from agents.kit.llm.providers.base import Failure, Route, is_installed, key_fault
from agents.kit.llm.requests import Status

if TYPE_CHECKING:
    import httpx2

NO_CREDENTIALS = "Could not resolve AWS credentials"  # what the SDK says where boto3 finds none


class Bedrock(Platform):
    """Bedrock's runtime in one region; the model is part of the address, and requests are signed."""

    name = "bedrock"
    url_setting = "ANTHROPIC_BEDROCK_BASE_URL"
    path = "/model/MODEL/invoke"
    hints: ClassVar[Mapping[int, str]] = {
        401: "check the AWS credentials",
        403: "check the AWS credentials, and whether they may invoke this model in this region",
    }
    request_id_headers = ("x-amzn-requestid", "request-id")

    def missing(self) -> str:
        if not _region():
            return "no AWS region is set: set AWS_REGION"
        if fault := key_fault(settings.AWS_BEARER_TOKEN_BEDROCK):
            return f"AWS_BEARER_TOKEN_BEDROCK {fault}"
        if not settings.AWS_BEARER_TOKEN_BEDROCK and not is_installed("boto3", "botocore"):
            return "boto3, which signs requests to Bedrock, is not installed: run pip install 'anthropic[bedrock]'"
        return ""

    def usual_url(self) -> str:
        return f"https://bedrock-runtime.{_region()}.amazonaws.com"

    def key(self) -> str:
        return str(settings.AWS_BEARER_TOKEN_BEDROCK)

    def import_sdk(self) -> None:
        super().import_sdk()
        if not settings.AWS_BEARER_TOKEN_BEDROCK:
            import boto3  # noqa: F401
            import botocore.auth  # noqa: F401

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        import anthropic

        account: dict[str, Any] = {"aws_region": _region(), "api_key": route.key or None, "base_url": route.base_url}
        client = anthropic.AsyncAnthropicBedrock(**account, max_retries=retries, http_client=pool, open_telemetry=False)
        if not route.key:
            signed_by(client, anthropic.AnthropicBedrock(**account, open_telemetry=False))
        return without_custom_headers(client)

    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        if _is_botocores(problem) or NO_CREDENTIALS in str(problem):
            return Failure(Status.REJECTED, f"the request cannot be signed: {problem} (check the AWS credentials)")
        return super().failure_of(problem, route)


def _region() -> str:
    return str(settings.AWS_REGION or os.environ.get("AWS_DEFAULT_REGION", ""))


def _is_botocores(problem: Exception) -> bool:
    exceptions = sys.modules.get("botocore.exceptions")
    return exceptions is not None and isinstance(problem, exceptions.BotoCoreError)


PROVIDER = Bedrock()
