"""Write ui/openapi.json, the server's description of its API, from which the page's types are generated.

`make api` runs this. The file is committed, so that the page can be built without the server, and so that a change of
the API shows in review; a test fails when it says something else than the server.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tensight.server.http import HttpSettings, create_http_app
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace

FILE = Path(__file__).resolve().parent / "ui" / "openapi.json"
NEUTRAL = "v1"
"""Instead of the release, with which the API does not change."""


def described() -> str:
    """Return what the file must hold."""
    with tempfile.TemporaryDirectory() as workspace:
        app = create_http_app(Sessions(Workspace(Path(workspace)), None), settings=HttpSettings(version=NEUTRAL))
        return json.dumps(app.openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(described(), encoding="utf-8")
