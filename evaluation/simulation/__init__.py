"""Synthetic conversations that measure an agent before anybody has talked to it (AC-6.5.2).

`situations` reads what is said to the agent; `conversations` says it, line by line, in channels marked synthetic, and makes a
`RunSpec` of the answers; `estimate` says what that would cost, `queued` does it for evaluations that wait for a worker.
"""

from evaluation.simulation.conversations import (
    ENOUGH,
    MOST_REPEATS,
    Conversation,
    Simulation,
    SimulationEstimate,
    actor_of,
    estimate_simulation,
    has_little_speech,
    simulate,
    simulate_where_little,
    simulation_spec,
    simulations_json,
)
from evaluation.simulation.situations import Situation, load_situations

__all__ = [
    "ENOUGH",
    "MOST_REPEATS",
    "Conversation",
    "Simulation",
    "SimulationEstimate",
    "Situation",
    "actor_of",
    "estimate_simulation",
    "has_little_speech",
    "load_situations",
    "simulate",
    "simulate_where_little",
    "simulation_spec",
    "simulations_json",
]
