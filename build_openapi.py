"""Write what the page is made of besides its sources: ui/openapi.json, the server's description of its API, from which
its types are generated, and ui/src/api/statistics.json, the names of statistics and their words.

`make api` runs this. The files are committed, so that the page can be built without the server, and so that a change
shows in review; a test fails when they say something else than the server.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tensight.server.http import HttpSettings, create_http_app
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tensight.tensors import schema

UI = Path(__file__).resolve().parent / "ui"
NEUTRAL = "v1"
"""Instead of the release, with which the API does not change."""


def files() -> dict[Path, str]:
    """Return what each file must hold."""
    return {UI / "openapi.json": _described(), UI / "src" / "api" / "statistics.json": _json(schema.as_json())}


def _described() -> str:
    with tempfile.TemporaryDirectory() as workspace:
        app = create_http_app(Sessions(Workspace(Path(workspace)), None), settings=HttpSettings(version=NEUTRAL))
        return _json(app.openapi(), sort_keys=True)


def _json(value: Any, **how: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, **how) + "\n"


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
