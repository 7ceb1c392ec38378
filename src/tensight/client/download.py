"""Downloads of large bodies, resumed as often as needed, into memory or into a file."""

from __future__ import annotations

import io
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from tensight.client.connection import RETRY_AFTER_S
from tensight.client.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from tensight.client.connection import Connection

_RANGE = re.compile(r"bytes (\d{1,18})-")


def fetch_to_memory(connection: Connection, path: str, **parameters: Any) -> memoryview:
    """Return a body as writable bytes."""
    target = io.BytesIO()
    _fetch(connection, path, parameters, target, "", lambda _: None)
    return target.getbuffer()


def fetch_to_file(connection: Connection, path: str, target: Path, **parameters: Any) -> None:
    """Write a body to a file, which appears only when it is complete.

    What arrived before an interruption, also of this process, stays beside it in ``.NAME.part``. The next call resumes
    from there if the server still has the same content.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    partial = target.with_name(f".{target.name}.part")
    state = target.with_name(f".{target.name}.part.json")
    source = [connection.url, path, parameters]
    tag = _known_tag(state, source) if partial.exists() else ""

    def note(new_tag: str) -> None:
        state.write_text(json.dumps({"source": source, "etag": new_tag}), encoding="utf-8")

    with partial.open("ab" if tag else "wb") as file:
        _fetch(connection, path, parameters, file, tag, note)
    os.replace(partial, target)
    state.unlink(missing_ok=True)


def _known_tag(state: Path, source: list[Any]) -> str:
    try:
        saved = json.loads(state.read_text(encoding="utf-8"))
        return str(saved["etag"]) if saved["source"] == source else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _fetch(
    connection: Connection,
    path: str,
    parameters: dict[str, Any],
    target: BinaryIO,
    tag: str,
    note: Callable[[str], None],
) -> None:
    """Fetch the whole body; give up after several interruptions in a row without progress."""
    pauses = list(RETRY_AFTER_S)
    while True:
        before = target.tell()
        try:
            with connection.stream(path, _wanted(before, tag), **parameters) as response:
                tag = response.headers.get("etag", "")
                note(tag)
                _seek_to_body(target, response)
                for piece in response.iter_raw():
                    target.write(piece)
            return
        except UnreachableError:
            if tag and target.tell() > before:
                pauses = list(RETRY_AFTER_S)
            if not pauses:
                raise
            if not tag:
                _start_anew(target)
            time.sleep(pauses.pop(0))


def _wanted(done: int, tag: str) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    if done and tag:
        # Fetch the last byte again: a range that begins at the end of a complete file would be an error.
        headers |= {"Range": f"bytes={done - 1}-", "If-Range": tag}
    return headers


def _seek_to_body(target: BinaryIO, response: httpx.Response) -> None:
    """Seek to the position at which the body begins."""
    match = _RANGE.match(response.headers.get("content-range", "")) if response.status_code == 206 else None
    if match is not None and int(match[1]) <= target.tell():
        target.truncate(int(match[1]))
        target.seek(int(match[1]))
    else:
        _start_anew(target)


def _start_anew(target: BinaryIO) -> None:
    target.seek(0)
    target.truncate()
