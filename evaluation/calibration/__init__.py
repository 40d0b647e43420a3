"""How far a judge can be trusted: people label what it scored, and the agreement is shown beside its scores.

`population` draws judgements, `shown` is what a person sees of one, `labels` and `label_files` store what people say, `agreement` compares.
"""

from evaluation.calibration.agreement import (
    Calibration,
    PoweredMean,
    agreements_text,
    calibration,
    calibration_details,
    calibration_json,
    calibration_of,
    calibrations_json,
)
from evaluation.calibration.label_files import LabelFileError, export_labels, export_template, import_labels
from evaluation.calibration.labels import save_label, withdraw_label
from evaluation.calibration.population import NothingToDraw, draw_label_set

__all__ = [
    "Calibration",
    "LabelFileError",
    "NothingToDraw",
    "PoweredMean",
    "agreements_text",
    "calibration",
    "calibration_details",
    "calibration_json",
    "calibration_of",
    "calibrations_json",
    "draw_label_set",
    "export_labels",
    "export_template",
    "import_labels",
    "save_label",
    "withdraw_label",
]
