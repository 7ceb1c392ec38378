"""The LeNet of the examples as a person's own script; with ``FAULT=log-of-zero`` it goes wrong in its sixth step."""

import argparse
import os
import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent / "examples"

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", help="accepted; the example has its own")
    _, others = parser.parse_known_args()
    sys.argv[1:] = [*others, "--fault", os.environ.get("FAULT", "none")]
    runpy.run_path(str(EXAMPLES / "lenet_mindspore.py"), run_name="__main__")
