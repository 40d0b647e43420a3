"""Voice line-ups: can the agents of a channel be told apart by how they write? Measured in the background, one row per line-up."""
