"""How often two equal arms look different, and how often a real difference is seen: the naive test beside the clustered one."""

from __future__ import annotations

import math
import random
import time

EXPERIMENTS, ENVIRONMENTS, AGENTS, ALIKE, EFFECT = 200, 24, 4, 0.3, 0.8


def measure_null() -> None:
    """Print the share of positives without an effect, and with one of 0.8 standard deviations of pairs of environments."""
    from rich.console import Console
    from rich.table import Table

    from evaluation.statistics.arms import environments_needed

    began = time.perf_counter()
    between = math.sqrt(2 * (ALIKE + (1 - ALIKE) / AGENTS))  # of the differences of pairs
    chance = random.Random(20)
    needed = environments_needed(EFFECT * between, _arm(chance, 2_000, 0), _arm(chance, 2_000, 0)) or 0
    table = Table(
        title=f"{EXPERIMENTS} seeded experiments, {AGENTS} agents in each environment, intraclass correlation {ALIKE}"
    )
    for heading in ("What", "Naive", "Clustered", "Wanted"):
        table.add_column(heading)
    naive, clustered = _positives(chance, ENVIRONMENTS, 0.0)
    table.add_row(
        f"no effect, {ENVIRONMENTS} environments an arm", str(naive), str(clustered), "clustered 5 to 18, naive > 20"
    )
    naive, clustered = _positives(chance, needed, EFFECT * between)
    wanted = f"clustered >= 80 % ({EXPERIMENTS * 8 // 10}, less chance)"
    table.add_row(
        f"d = {EFFECT} between pairs, {needed} an arm as the power line asks", str(naive), str(clustered), wanted
    )
    console = Console()
    console.print(table)
    console.print(f"{time.perf_counter() - began:.1f} s")


def _positives(chance: random.Random, environments: int, higher: float) -> tuple[int, int]:
    from evaluation.statistics.arms import permutation_p, welch

    naive = clustered = 0
    for seed in range(EXPERIMENTS):
        a, b = _arm(chance, environments, higher), _arm(chance, environments, 0.0)
        test, p = welch(_flat(a), _flat(b)), permutation_p(a, b, seed=seed)
        naive += test is not None and test.p < 0.05
        clustered += p is not None and p < 0.05
    return naive, clustered


def _flat(arm: dict[int, list[float]]) -> list[float]:
    return [score for scores in arm.values() for score in scores]


def _arm(chance: random.Random, environments: int, higher: float) -> dict[int, list[float]]:
    arm = {}
    for number in range(environments):
        shared = higher + chance.gauss(0, math.sqrt(ALIKE))
        arm[number] = [shared + chance.gauss(0, math.sqrt(1 - ALIKE)) for _ in range(AGENTS)]
    return arm
