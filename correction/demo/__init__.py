"""What `make demo` shows: the example agents are measured, compared and gated, and the console is filled with examples."""
