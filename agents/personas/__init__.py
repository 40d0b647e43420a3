"""Personas in: our YAML or JSON, prompt files, character cards, TinyTroupe. Formats: docs/reference/personas.md."""
