"""Ask a Plumbline server over HTTP: check drafts, hand in what was said, export spans. Needs the standard library alone."""

from plumbline_client.client import Check, Client
from plumbline_client.http import PlumblineError, Refused, Unavailable

__all__ = ["Check", "Client", "PlumblineError", "Refused", "Unavailable"]
