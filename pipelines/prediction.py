"""Predictions of a saved model for a file of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.saving import load_model_arrays
from raydt.errors import InputError
