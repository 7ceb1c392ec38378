"""Loss curves from logs and event files of any trainer."""

from __future__ import annotations

from tensight.curves.curve import Curve, StepUnit
from tensight.curves.numbers import Decimal
from tensight.curves.reading import is_curve_folder, read_curve

__all__ = ["Curve", "Decimal", "StepUnit", "is_curve_folder", "read_curve"]
