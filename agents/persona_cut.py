"""Making a rendered persona fit: what is too long is the prose, never the traits."""

from __future__ import annotations

from agents.persona import MANNER

TRAITS = "\n\n## Traits\n\n"  # as `agents.persona.render_persona` writes it
LEAST_LINE = 40  # characters kept of a trait's line however many there are


def cut_persona(persona: str, most: int) -> str:
    """A persona as `render_persona` gives it, in at most about `most` characters, with a visible mark where something is missing.

    Traits stand at its end, those that are to stop last, and what stands last would be the first to go: so the system prompt is cut,
    and where the traits alone are too long the lines of the longest, but no trait is left out.
    """
    if len(persona) <= most:
        return persona
    prose, heading, traits = persona.rpartition(TRAITS)
    if not heading:
        return _cut(persona, most)
    lines = traits.split("\n")
    if len(traits) > most // 2:
        each = max(LEAST_LINE, most // 2 // len(lines))
        lines = [line if line == MANNER else _cut(line, each) for line in lines]
    kept = "\n".join(lines)
    return _cut(prose, max(0, most - len(heading) - len(kept))) + heading + kept


def _cut(text: str, most: int) -> str:
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[:most]} [… {left_out} characters cut]"
