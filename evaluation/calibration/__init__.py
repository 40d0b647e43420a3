"""How far a judge can be trusted: people label what it scored, and the agreement stands beside its scores."""

from evaluation.calibration.as_json import calibration_details, calibration_json, calibrations_json
from evaluation.calibration.figures import calibration
from evaluation.calibration.label_files import LabelFileError, export_labels, export_template, import_labels
from evaluation.calibration.labels import save_label, withdraw_label
from evaluation.calibration.population import NothingToDraw, draw_label_set
from evaluation.calibration.stored import calibration_of
from evaluation.calibration.values import Agreement, Calibration, PoweredMean, agreements_text

__all__ = [
    "Agreement",
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
