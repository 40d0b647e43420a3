"""People and talk: agents with their personas, channels, messages, and the turns in which agents answer.

A message arrives in `turn` (or, from elsewhere, through `transcripts`); each agent it is addressed to takes a turn, and what passes the
stages of `TURN_PIPELINE` becomes a message. `debates`, `swarm` and `alerts` are apps of their own. `kit` lies below all of it and knows
no agent; `evaluation` and `correction` lie above, and nothing here imports them.
"""
