"""The demonstration of `make demo`: the example agents are measured, compared and gated, and the console is filled with examples."""

LABEL_SET, EXPERIMENT = "demo-planted-drift", "demo-gate-on-off"  # names of rows, beside those of `agents.seed.Demo`
