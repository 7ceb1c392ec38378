"""The LeNet of the examples, which goes wrong in its sixth step; as a person's own script."""

import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent / "examples"

if __name__ == "__main__":
    sys.argv[1:] = ["--fault", "log-of-zero", *sys.argv[1:]]
    runpy.run_path(str(EXAMPLES / "lenet_mindspore.py"), run_name="__main__")
