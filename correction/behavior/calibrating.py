"""What makes probabilities and levels of confidence of cross-validated sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST = 30  # answers that a share is measured on


def calibration(sums: Floats, targets: Floats) -> tuple[float, float]:
    """Slope and shift that make probabilities of cross-validated sums (Platt 1999, with his prior)."""
    import numpy as np
    from scipy.optimize import minimize

    asked, denied = float(targets.sum()), float(len(targets) - targets.sum())
    goal = np.where(targets == 1, (asked + 1) / (asked + 2), 1 / (denied + 2))

    def loss(pair: Floats) -> float:
        f = pair[0] * sums + pair[1]
        return float(np.sum(np.logaddexp(0.0, f) - goal * f))

    found = minimize(loss, np.array([1.0, 0.0]), method="BFGS").x
    return round(float(found[0]), 3), round(float(found[1]), 3)


def cut_for(scores: Floats, right: Floats, share: float, *, least: float) -> float:
    """The smallest score from which on at least `share` of the answers are right; 1.01, which no probability reaches, if there is none."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    shares = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    good = [i for i in range(FEWEST - 1, len(order)) if shares[i] >= share and scores[order[i]] >= least]
    return round(float(scores[order[max(good)]]), 4) if good else 1.01
