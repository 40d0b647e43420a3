"""Drafting: `suggesting` has a model suggest propositions from a persona, `trying` shows what one proposition scores on a few messages."""
