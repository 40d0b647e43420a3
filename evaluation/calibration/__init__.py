"""How far a judge can be trusted: people label what it scored, and the agreement is shown beside its scores.

`population` draws judgements, `shown` is what a person sees of one, `labels` and `label_files` store what people say, `agreement` compares.
"""

from evaluation.calibration.agreement import (
    agreements_text,
    calibration,
    calibration_json,
    calibration_of,
)
from evaluation.calibration.label_files import LabelFileError, export_labels, export_template, import_labels
from evaluation.calibration.labels import save_label, withdraw_label
from evaluation.calibration.population import NothingToDraw, draw_label_set

__all__ = [
    "LabelFileError",
    "NothingToDraw",
    "agreements_text",
    "calibration",
    "calibration_json",
    "calibration_of",
    "draw_label_set",
    "export_labels",
    "export_template",
    "import_labels",
    "save_label",
    "withdraw_label",
]
