"""The demonstration of `make demo`: `story` tells on one screen what was measured, `demo_data` fills the console's pages.

`demonstration` has the scenes that are shown when they are asked for (`manage.py demo --scene debate`).
"""

LABEL_SET, EXPERIMENT = "demo-planted-drift", "demo-gate-on-off"  # names of rows, beside those of `agents.seed.Demo`
GATE_CHANNEL = "demo-gate"  # where the story's two drafts pass the gate
