"""An agent's turn: what it is shown, the tools it may use, and the stages its words pass before they are said (docs/adr/0001-layers.md)."""
