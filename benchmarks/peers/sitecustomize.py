"""Attaches the peers of benchmarks/diagnosis.py to a training that is not changed for them: `attaching.py`.

Python imports this when it starts (the folder is in PYTHONPATH).
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "programs" / "start" / "sitecustomize.py"))

if os.environ.get("PEERS_FOLDER") and "resource_tracker" not in " ".join(sys.orig_argv):
    import attaching

    attaching.attach()
