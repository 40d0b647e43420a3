"""Who answers a request: one module of this package per provider, found by autodiscovery. A new provider is a new module and nothing else.

A module sets `PROVIDER` to an object of a class of `base`, whose `name` stands before the colon in the names of its models.

* A `LocalProvider` answers in this process: `answer` (see `offline`, `replay`).
* A `RemoteProvider` answers over the network, by an SDK that nothing else imports. It says what is missing (`problem`) and where it
  is (`base_url`, `key`), makes the client (`import_sdk`, `new_pool`, `new_client`), builds a `body` and sends it (`send`), names the
  SDK's errors (`failure_of`), reads what came back (`read`), and says what a server takes (`takes_temperature`, `blamed`,
  `suspect`, `own_url`).
* Where it has batches, `batches` is an object of a class of `base.Batches`; without one, batches are refused at every door.

Slots, deadlines, what a server refuses, the second question, ledger and breaker are the same for all, and written once
(`agents.kit.llm.asking`). Code above asks `is_remote`, `is_priced` and the like by a model's name, and never compares names of providers.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from agents.kit.llm.providers.base import LONGEST_NAME, LocalProvider, Provider, RemoteProvider


@cache
def providers() -> dict[str, Provider]:
    """Return all providers by their names.

    Raises:
        ValueError: A name is longer than the ledger's column.
    """
    by_name: dict[str, Provider] = {}
    for module in pkgutil.iter_modules(__path__):
        provider = getattr(import_module(f"{__name__}.{module.name}"), "PROVIDER", None)
        if provider is None:
            continue
        if len(provider.name) > LONGEST_NAME:
            raise ValueError(f"the name of the provider {provider.name!r} is longer than {LONGEST_NAME} characters")
        by_name[provider.name] = provider
    return by_name


@cache
def default_provider() -> Provider:
    """Return the provider of the models whose name has no provider before a colon."""
    return next(provider for provider in providers().values() if provider.is_default)


def provider_of(model: str) -> Provider:
    """Return the provider that a model's name begins with, as in ``offline:NAME``, else the default one.

    Names of models may have colons of their own, such as ``llama3:8b``.
    """
    name, colon, _ = model.partition(":")
    if not colon:
        return default_provider()
    return providers().get(name) or default_provider()


def is_remote(model: str) -> bool:
    """Return whether calls of `model` go over the network."""
    return provider_of(model).is_remote


def is_priced(model: str) -> bool:
    """Return whether calls of `model` cost money, by the prices that are stored."""
    return provider_of(model).is_priced


def is_heuristic(model: str) -> bool:
    """Return whether rules and scripts of ours answer for `model`, in place of a model."""
    return provider_of(model).is_heuristic


def reads_files(model: str) -> bool:
    """Return whether `model` names a file of this machine: only who works on the machine may name one."""
    return provider_of(model).reads_files


def providers_with_batches() -> list[str]:
    """Return the names of the providers whose questions can go in batches."""
    return [name for name, provider in providers().items() if getattr(provider, "batches", None) is not None]


def batch_problem(model: str) -> str:
    """Return why questions to `model` cannot go in batches; empty where they can."""
    provider = provider_of(model)
    if not isinstance(provider, RemoteProvider):
        return f"{model} takes no batches: it is not asked over a network"
    if provider.batches is None:
        return f"{model} takes no batches: its provider {provider.name} has none"
    return ""


__all__ = [
    "LocalProvider",
    "Provider",
    "RemoteProvider",
    "batch_problem",
    "default_provider",
    "is_heuristic",
    "is_priced",
    "is_remote",
    "provider_of",
    "providers",
    "providers_with_batches",
    "reads_files",
]
