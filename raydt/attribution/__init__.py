"""The rows to which a model owes its score or a prediction: what it would be without them.

The field calls this data valuation and data attribution. For a model from which rows are deleted exactly, leave-one-out
needs no training.
"""

from __future__ import annotations

from raydt.attribution.cross_validation import LabelQuality, cross_val_score_by_deletion, label_quality
from raydt.attribution.jackknife import JackknifePlusRegressor
from raydt.attribution.leave_one_out import LeaveOneOut, leave_one_out
from raydt.attribution.values import DataValues, Influence, data_values, influence

__all__ = [
    "DataValues",
    "Influence",
    "JackknifePlusRegressor",
    "LabelQuality",
    "LeaveOneOut",
    "cross_val_score_by_deletion",
    "data_values",
    "influence",
    "label_quality",
    "leave_one_out",
]
