"""Live progress: what happens at one place, told to whoever listens. `agents.api.events` is its door to the outside."""

from agents.events.feeds import Event, Feed, Gone, Log, State, WrongCursor
from agents.events.listeners import Full, Listener, join, stop_when
from agents.events.streams import Stream

__all__ = ["Event", "Feed", "Full", "Gone", "Listener", "Log", "State", "Stream", "WrongCursor", "join", "stop_when"]
