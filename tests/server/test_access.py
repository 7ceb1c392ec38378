"""Who may use the HTTP API: hosts, origins, tokens, and bounds of what is sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tensight.errors import InputError
from tensight.server.http_settings import HttpSettings
from tests.server.serving import WITHIN_S, Served, served

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "correct-horse-battery-staple"  # noqa: S105 - of a test


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """On the loopback, without a token."""
    with served(tmp_path_factory.mktemp("workspace"), allowed_hosts=("training.example",)) as server:
        yield server


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("workspace"), token=TOKEN, url_path_prefix="/team/tensight") as server:
        yield server


@pytest.fixture(scope="module")
def client(open_server: Served) -> Iterator[httpx.Client]:
    with open_server.client() as client:
        yield client


@pytest.fixture
def stranger(locked_server: Served) -> Iterator[httpx.Client]:
    """A client of the locked server that knows no token."""
    with locked_server.client() as client:
        yield client


def error_of(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert set(error) == {"code", "message", "where"}
    assert error["message"]
    return response.status_code, error["code"]


def ask_raw(server: Served, *lines: str) -> str:
    """Send a request as it is written here, and return the status line and all that follows."""
    request = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")
    with socket.create_connection(("127.0.0.1", server.port), WITHIN_S) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer.decode("latin-1")


# --- hosts: DNS rebinding ---


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8080", "[::1]:9", "training.example:80"])
def test_a_host_that_the_server_goes_by_is_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/server", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "evil.example@127.0.0.1",
        "127.0.0.1:port",
        "127.0.0.1, evil.example",
        "10.0.0.7",
        "[::2]",
        "",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(client: httpx.Client, host: str) -> None:
    assert error_of(client.get("/server", headers={"Host": host})) == (403, "forbidden")


def test_two_hosts_are_refused(open_server: Served) -> None:
    answer = ask_raw(open_server, "GET /api/v1/server HTTP/1.1", "Host: 127.0.0.1", "Host: evil.example")
    assert answer.split(" ", 2)[1] in ("400", "403")


def test_no_host_is_refused(open_server: Served) -> None:
    assert ask_raw(open_server, "GET /api/v1/server HTTP/1.0").split(" ", 2)[1] in ("400", "403")


def test_a_server_bound_to_every_address_answers_to_addresses_but_not_to_names(tmp_path: Path) -> None:
    with served(tmp_path, allowed_hosts=("0.0.0.0",), token=TOKEN) as server, server.client() as client:  # noqa: S104
        for host, status in (("10.0.0.7:8080", 401), ("[fe80::7]", 401), ("evil.example", 403)):
            assert client.get("/server", headers={"Host": host}).status_code == status


def test_an_address_may_be_allowed_as_people_write_it(tmp_path: Path) -> None:
    with served(tmp_path, allowed_hosts=("fe80::7", "Training.Example")) as server, server.client() as client:
        for host in ("[fe80::7]:8080", "training.example"):
            assert client.get("/server", headers={"Host": host}).status_code == 200


# --- origins: forged requests ---


def test_the_servers_own_page_may_use_it(client: httpx.Client, open_server: Served) -> None:
    own = f"http://127.0.0.1:{open_server.port}"
    assert client.get("/server", headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:1",
        "https://127.0.0.1.evil.example",
        "http://localhost",
        "null",
        "",
        "file://",
        "http://user@127.0.0.1",
    ],
)
def test_a_page_of_another_origin_may_not(client: httpx.Client, origin: str) -> None:
    assert error_of(client.get("/server", headers={"Origin": origin})) == (403, "forbidden")
    assert error_of(client.post("/sessions", json={"dump": "x"}, headers={"Origin": origin})) == (403, "forbidden")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_loads_for_another_site_is_refused_even_without_an_origin(
    client: httpx.Client, site: str
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert error_of(client.get("/dumps?refresh=true", headers=headers)) == (403, "forbidden")


def test_a_link_on_another_page_may_lead_here(client: httpx.Client) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/server", headers=headers).status_code == 200
    assert error_of(client.post("/sessions", json={"dump": "x"}, headers=headers)) == (403, "forbidden")


def test_no_other_origin_is_ever_allowed_to_read(client: httpx.Client) -> None:
    preflight = client.options(
        "/sessions", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert preflight.status_code == 403
    assert not any(name.startswith("access-control-") for name in preflight.headers)


# --- tokens ---


@pytest.mark.parametrize("path", ["/server", "/sessions", "/sessions/1/tensor/file?address=x", "/openapi.json", "/no"])
def test_nothing_of_the_api_is_told_without_the_token(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path)
    assert error_of(answer) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "given",
    [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", f"Basic {TOKEN}", TOKEN, "Bearer \xe9\xff"],
)
def test_a_wrong_token_is_refused(stranger: httpx.Client, given: str) -> None:
    headers = {b"Authorization": given.encode("latin-1")}
    answer = stranger.get("/server", headers=headers)
    assert error_of(answer) == (401, "unauthorized")
    is_given = bool(given.partition(" ")[2])
    assert ("is not that of this server" if is_given else "needs its access token") in answer.json()["error"]["message"]


def test_the_token_opens(stranger: httpx.Client) -> None:
    assert stranger.get("/server", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_token_that_everybody_knows_is_none() -> None:
    with pytest.raises(InputError, match="empty"):
        HttpSettings(token="")


def test_a_login_sets_a_cookie_that_opens_and_that_no_page_can_read(stranger: httpx.Client) -> None:
    login = stranger.post("/login", json={"token": TOKEN})
    cookie = login.headers["Set-Cookie"]
    assert login.status_code == 204
    assert {"HttpOnly", "SameSite=strict", "Path=/team/tensight/api/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert stranger.get("/server").status_code == 200


def test_a_wrong_login_sets_nothing(stranger: httpx.Client) -> None:
    login = stranger.post("/login", json={"token": "guess"})
    assert error_of(login) == (401, "unauthorized")
    assert "Set-Cookie" not in login.headers
    assert stranger.get("/server").status_code == 401


@pytest.mark.parametrize("value", ["", "guess", TOKEN])
def test_a_made_up_cookie_does_not_open(stranger: httpx.Client, value: str) -> None:
    stranger.cookies.set("tensight_token", value)
    assert error_of(stranger.get("/server")) == (401, "unauthorized")


@pytest.mark.parametrize("path", ["/login/", "/login/../server", "/login%2f..%2fserver", "//login", "/LOGIN"])
def test_no_spelling_of_the_logins_path_opens_another(locked_server: Served, path: str) -> None:
    answer = ask_raw(locked_server, f"GET /team/tensight/api/v1{path} HTTP/1.1", "Host: 127.0.0.1")
    assert answer.split(" ", 2)[1] == "401"


def test_a_login_of_another_page_is_refused(stranger: httpx.Client) -> None:
    login = stranger.post("/login", json={"token": TOKEN}, headers={"Origin": "http://evil.example"})
    assert error_of(login) == (403, "forbidden")


# --- WebSockets ---


def refused_with(url: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refusal, connect(url, open_timeout=WITHIN_S, **options):
        pass
    return refusal.value.response.status_code


def test_a_websocket_of_another_site_is_refused(open_server: Served) -> None:
    url = f"{open_server.websocket_url}/events/stream"
    assert refused_with(url, origin=Origin("http://evil.example")) == 403


def test_a_websocket_to_a_foreign_host_is_refused(open_server: Served) -> None:
    with socket.create_connection(("127.0.0.1", open_server.port)) as connection:
        url = open_server.websocket_url.replace("127.0.0.1", "evil.example")
        assert refused_with(f"{url}/events/stream", sock=connection) == 403


def test_a_websocket_needs_the_token(locked_server: Served) -> None:
    url = f"{locked_server.websocket_url}/events/stream"
    assert refused_with(url) == 401
    assert refused_with(url, subprotocols=[Subprotocol("bearer.guess")]) == 401
    assert refused_with(url, additional_headers={"Authorization": "Bearer guess"}) == 401


@pytest.mark.parametrize("offered", [["tensight", f"bearer.{TOKEN}"], [f"bearer.{TOKEN}"]])
def test_a_page_sends_a_websockets_token_as_a_protocol(locked_server: Served, offered: list[Subprotocol]) -> None:
    with connect(f"{locked_server.websocket_url}/events/stream", subprotocols=offered) as websocket:
        assert websocket.subprotocol == offered[0]


def test_a_program_sends_a_websockets_token_as_a_header(locked_server: Served) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with connect(f"{locked_server.websocket_url}/events/stream", additional_headers=headers):
        pass


# --- bodies ---


def test_a_body_beyond_the_limit_is_not_read(client: httpx.Client) -> None:
    assert error_of(client.post("/sessions", json={"dump": "x" * 2**20})) == (413, "body-too-large")


def test_a_body_that_does_not_say_its_length_is_bounded_too(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"dump": "'
        for _ in range(20):
            yield b"x" * 2**16

    answer = client.post("/sessions", content=pieces(), headers={"Content-Type": "application/json"})
    assert error_of(answer) == (413, "body-too-large")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_must_be_declared_as_json(client: httpx.Client, media_type: str) -> None:
    answer = client.post("/sessions", content=b'{"dump": "x"}', headers={"Content-Type": media_type})
    assert error_of(answer) == (415, "content-type-invalid")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"dump": NaN}',
        b'{"dump": "\\ud800"}',
        b'{"dump": "\xff"}',
        b"[" * 10_000,
        b"1" * 5000,
        b'{"dump": 1}',
        b'{"dump": ""}',
        b"{}",
    ],
)
def test_a_body_that_makes_no_sense_is_explained(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/sessions", content=body, headers={"Content-Type": "application/json"})
    assert error_of(answer) == (422, "input-invalid")


def test_a_client_that_leaves_in_the_middle_of_a_body_harms_nobody(client: httpx.Client, open_server: Served) -> None:
    with socket.create_connection(("127.0.0.1", open_server.port)) as connection:
        lines = ["POST /api/v1/sessions HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 100", "", '{"dump"']
        connection.sendall("\r\n".join(lines).encode())
    assert client.get("/server").status_code == 200


# --- what every answer carries ---


@pytest.mark.parametrize("path", ["/server", "/sessions/7", "/no-such-path", "/openapi.json"])
def test_every_answer_has_the_headers_that_browsers_heed(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_an_unknown_path_and_a_wrong_method_are_answered_in_the_error_model(client: httpx.Client) -> None:
    assert error_of(client.get("/no-such-path")) == (404, "not-found")
    assert error_of(client.put("/server", json={})) == (405, "method-invalid")
    assert client.delete("/server").headers["Allow"] == "GET"
    assert client.patch("/sessions", json={}).headers["Allow"] == "GET, POST"
    assert client.post("/sessions/1/tensor/file", json={}).headers["Allow"] == "GET, HEAD"


def test_a_path_of_bytes_that_are_no_text_is_answered(open_server: Served) -> None:
    answer = ask_raw(open_server, "GET /api/v1/%ff%fe%ed%a0%80 HTTP/1.1", "Host: 127.0.0.1")
    assert answer.split(" ", 2)[1] == "404"
