"""The page's files, as browsers get them: addresses, caching, compression, headers, and nothing from elsewhere."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.serving import WITHIN_S, Served, served

TOKEN = "correct-horse-battery-staple"  # noqa: S105 - of a test
SCRIPT = "document.title = 'Tensight';\n" * 100
PREFIX = "/team/tensight"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build writes, with something beside it that is nobody's business."""
    folder = tmp_path_factory.mktemp("installed") / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Tensight</title>")
    (folder / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "assets" / "index-Ab12.js").write_text(SCRIPT)
    (folder / "assets" / "index-Ab12.js.gz").write_bytes(gzip.compress(SCRIPT.encode(), mtime=0))
    (folder / "assets" / "index-Cd34.css").write_text("body { margin: 0 }")
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "assets" / "link.txt").symlink_to(folder.parent / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    workspace = tmp_path_factory.mktemp("workspace")
    with served(workspace, page_folder=built, url_path_prefix=PREFIX, token=TOKEN) as server:
        yield server


@pytest.fixture
def browser(server: Served) -> Iterator[httpx.Client]:
    """Of somebody who knows no token; all addresses are below the prefix."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}{PREFIX}", timeout=WITHIN_S) as client:
        yield client


def raw_answer(server: Served, path: str) -> str:
    """Return the answer to a request whose path nobody tidies up on the way."""
    with socket.create_connection(("127.0.0.1", server.port), WITHIN_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode("latin-1"))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer.decode("latin-1")


@pytest.mark.parametrize("path", ["/", "/?run=1&step=2&node=a%2Fb", "/index.html"])
def test_the_page_is_at_the_prefix_and_needs_no_token(browser: httpx.Client, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<title>Tensight</title>" in answer.text


def test_what_the_page_asks_for_needs_the_token(browser: httpx.Client) -> None:
    assert browser.get("/api/v1/server").status_code == 401


def test_the_prefix_without_a_slash_leads_to_the_page_with_its_query(browser: httpx.Client, server: Served) -> None:
    answer = httpx.get(f"http://127.0.0.1:{server.port}{PREFIX}?run=1&node=a%2Fb%20c")
    assert (answer.status_code, answer.headers["Location"]) == (307, f"{PREFIX}/?run=1&node=a%2Fb%20c")


def test_without_a_prefix_the_page_is_at_the_root(built: Path, tmp_path: Path) -> None:
    with served(tmp_path, page_folder=built) as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}").text.startswith("<!doctype html>")
        assert httpx.get(f"http://127.0.0.1:{server.port}/assets/index-Cd34.css").text == "body { margin: 0 }"


def test_the_page_is_asked_for_each_time_and_sent_when_it_changed(browser: httpx.Client, built: Path) -> None:
    first = browser.get("/")
    assert first.headers["Cache-Control"] == "no-cache"
    again = browser.get("/", headers={"If-None-Match": f'"old", W/{first.headers["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    page = built / "index.html"
    before, times = page.read_text(), page.stat()
    try:
        # A new release: as long as the old one, and as packagers like it, as old.
        page.write_text(before.replace("Tensight", "TENSIGHT"))
        os.utime(page, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert browser.get("/", headers={"If-None-Match": first.headers["ETag"]}).status_code == 200
    finally:
        page.write_text(before)


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/assets/index-Ab12.js", "text/javascript; charset=utf-8"),
        ("/assets/index-Cd34.css", "text/css; charset=utf-8"),
    ],
)
def test_assets_are_kept_for_ever(browser: httpx.Client, path: str, media_type: str) -> None:
    answer = browser.get(path)
    assert answer.headers["Content-Type"] == media_type
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert browser.get(path, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_an_icon_is_sent_as_one_and_asked_for_each_time(browser: httpx.Client) -> None:
    answer = browser.get("/icon.svg")
    assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == ("image/svg+xml", "no-cache")


def test_assets_travel_compressed_where_that_is_accepted(browser: httpx.Client) -> None:
    packed = browser.get("/assets/index-Ab12.js", headers={"Accept-Encoding": "br, gzip"})
    plain = browser.get("/assets/index-Ab12.js", headers={"Accept-Encoding": "identity"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Type"] == plain.headers["Content-Type"]
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) == len(SCRIPT)
    assert packed.text == plain.text == SCRIPT
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    assert "Content-Encoding" not in browser.get("/assets/index-Cd34.css").headers


def test_the_head_of_a_file_can_be_asked_for(browser: httpx.Client) -> None:
    for path in ("/", "/assets/index-Cd34.css"):
        answer = browser.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%5c..%5csecret.txt",
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2fetc%2fpasswd",
        "/assets/%2fetc%2fpasswd",
        "/assets//etc/passwd",
        "/assets/link.txt",
        "/assets/index-Ab12.js%00.css",
        "/assets/%ff%fe",
        "/assets/" + "x" * 5000,
        "/assets/",
        "/assets",
        "/..",
        "/.",
        "/nothing.js",
        "/index.html/",
    ],
)
def test_no_spelling_of_a_path_leads_out_of_the_page(server: Served, path: str) -> None:
    answer = raw_answer(server, PREFIX + path)
    assert answer.split(" ", 2)[1] == "404", answer[:300]
    assert '"code":"not-found"' in answer


def test_nothing_can_be_done_to_a_page_but_reading_it(browser: httpx.Client) -> None:
    for path in ("/", "/assets/index-Cd34.css", "/icon.svg"):
        answer = browser.post(path, json={})
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_a_name_that_was_made_to_point_here_gets_no_page_either(browser: httpx.Client) -> None:
    assert browser.get("/", headers={"Host": "evil.example"}).status_code == 403
    frame = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert browser.get("/assets/index-Ab12.js", headers=frame).status_code == 403


@pytest.mark.parametrize("path", ["/", "/assets/index-Ab12.js", "/icon.svg", "/nothing.js"])
def test_browsers_run_nothing_from_elsewhere_and_show_the_page_in_no_frame(browser: httpx.Client, path: str) -> None:
    headers = browser.get(path).headers
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert "script-src" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8080", "'self' ws://127.0.0.1:8080 wss://127.0.0.1:8080"),
        ("localhost", "'self' ws://localhost wss://localhost"),
        ("[::1]:8080", "'self'"),
    ],
)
def test_the_page_may_connect_only_to_its_own_host(browser: httpx.Client, host: str, allowed: str) -> None:
    policy = browser.get("/", headers={"Host": host}).headers["Content-Security-Policy"]
    assert policy.endswith(f"; connect-src {allowed}")


def test_an_installation_without_a_page_says_so_and_its_api_answers(tmp_path: Path) -> None:
    with served(tmp_path / "workspace", page_folder=tmp_path / "nothing") as server, server.client() as client:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/")
        assert answer.status_code == 503
        assert "make page" in answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        assert httpx.get(f"http://127.0.0.1:{server.port}/assets/index-Ab12.js").status_code == 404
        assert client.get("/server").status_code == 200
