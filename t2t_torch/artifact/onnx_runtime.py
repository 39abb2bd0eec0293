"""onnxruntime as it is used here: imported when it is needed, and telling nobody what it runs."""

from __future__ import annotations

import os
from typing import Any

_SILENT = "ORT_DISABLE_TELEMETRY"


def onnx_runtime() -> Any:
    """Returns the module onnxruntime.

    From 1.29 on its packages for Linux send to Microsoft which graphs are run and how, unless the
    environment has ORT_DISABLE_TELEMETRY=1 when the module is imported.  So that is set; a value
    that was set before stays.

    Raises:
      ImportError: it is not installed.
    """
    wanted = os.environ.setdefault(_SILENT, "1")
    import onnxruntime

    if wanted == "1":  # of what follows, where the module was imported before
        onnxruntime.disable_telemetry_events()
    return onnxruntime
