"""Chat and paging services, which Apprise knows how to write to: which of them may be used, and a message to one of them.

Apprise knows others that run programs, write into the machine's log or post to any host. Allowed are those that have a fixed host, with the
parameters that their own addresses need and no more: `template=`, for one, reads a file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agents.alerts.addresses import AddressRefused
from agents.kit.work.posting import Unreachable

if TYPE_CHECKING:
    from apprise import NotifyBase

SERVICES = {
    "slack": "Slack",
    "workflows": "Teams",
    "discord": "Discord",
    "gchat": "Google Chat",
    "webex": "Webex",
    "tgram": "Telegram",
    "pagerduty": "PagerDuty",
    "opsgenie": "Opsgenie",
    "pover": "Pushover",
}
PARAMETERS = {"api-version", "sp", "sv", "sig", "key", "token", "region"}
TEAMS_HOSTS = (".logic.azure.com", ".api.powerplatform.com")
ALLOWED = (
    f"allowed: the webhook address that the service shows, or Apprise's address, of {', '.join(SERVICES.values())}; "
    "such as slack://TOKEN_A/TOKEN_B/TOKEN_C"
)


def service_of(address: str) -> NotifyBase:
    """Read the address of a service: Apprise's (``slack://…``), or the https address of a webhook that the service shows.

    Raises:
        AddressRefused: It is of none of `SERVICES`, has a space, a character beyond ASCII or a parameter that is not allowed, or is a
            host that is not of Teams in an address for Teams. Says what is allowed, without what may be secret in the address.
    """
    from apprise import Apprise, AppriseAsset

    scheme, _, rest = address.partition("://")
    is_one_word = address.isascii() and address.isprintable() and " " not in address
    if scheme not in (*SERVICES, "https") or not is_one_word:
        raise AddressRefused(f"address: not understood; {ALLOWED}")
    parameters = {part.partition("=")[0] for part in re.split("[?&;]", rest)[1:]}
    if parameters - PARAMETERS:
        raise AddressRefused(f"address: with a parameter that is not allowed; allowed: {', '.join(sorted(PARAMETERS))}")
    asset = AppriseAsset(app_id="Plumbline", app_desc="Plumbline", image_url_mask="", http_redirects=False)
    service = Apprise.instantiate(address, asset=asset)
    if service is None or SERVICES.keys().isdisjoint(service.schemas()):
        raise AddressRefused(f"address: not understood; {ALLOWED}")
    if "workflows" in service.schemas() and not service.host.endswith(TEAMS_HOSTS):
        raise AddressRefused(f"address: not of Teams; allowed: hosts that end in {' or '.join(TEAMS_HOSTS)}")
    return service


def notify(address: str, *, title: str, body: str, seconds: float) -> int:
    """Write to a service; return the HTTP status of its answer, 200 where it took the message. It takes at most `seconds`.

    Raises:
        AddressRefused: The address may not be written to.
        Unreachable: There was no answer in time, or none with a status.
    """
    from apprise import Apprise, NotifyType

    service = service_of(address)
    services = Apprise(asset=service.asset)
    services.add(service)
    # Names of agents are other people's text: they must not call a channel.
    title = title.replace("@", "@\u200b").replace("<", "‹")
    result = services.notify(
        title=title, body=body, body_format="text", notify_type=NotifyType.WARNING, timeout=seconds
    )
    if result:
        return 200
    # Apprise tells the status of an answer in its log alone, as error=403.
    answer = re.search(r"error=(\d{3})\b", " ".join(entry.message for entry in result.logs()))
    if answer is None:
        raise Unreachable(f"it was not reached, or gave no answer within {seconds:g} s")
    return int(answer[1])
