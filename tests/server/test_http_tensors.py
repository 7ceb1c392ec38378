"""Tensors over HTTP, on a dump that MindSpore really wrote: slices, pictures, statistics, files that are resumed."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.server.serving import WITHIN_S, Opened, Served, opened, served

SICK = "sick-2.0.0"
WEIGHT = "0/kernel_graph_0/network.fc1.weight:0"


@pytest.fixture(scope="module")
def server(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("workspace"), unpacked(SICK).parent) as server:
        yield server


@pytest.fixture(scope="module")
def session(server: Served) -> Iterator[Opened]:
    """The dump at step 3; nothing here moves it."""
    with server.client() as client:
        session = opened(client, SICK)
        session.command("go_to_step", steps=3)
        yield session


@pytest.fixture(scope="module")
def log(planted: dict[str, Any]) -> str:
    """Address, without step, of the output in which the first infinity is."""
    return f"0/kernel_graph_0/{planted[SICK]['planted']['inf']['operator']}:0"


@pytest.fixture(scope="module")
def conv(session: Opened) -> str:
    """Address of a tensor with four dimensions in the step shown."""
    rows = session.get("/statistics", limit=1000, sort="size_bytes", descending=True)["rows"]
    address: str = next(row["address"] for row in rows if len(row["statistics"]["shape"]) == 4)
    return address


@pytest.fixture(scope="module")
def dumped(unpacked: Callable[[str], Path]) -> Callable[[str, int], NDArray[Any]]:
    """What MindSpore wrote of the first output of an operator in an iteration."""

    def load(operator: str, iteration: int) -> NDArray[Any]:
        name = operator.rpartition("/")[2]
        (path,) = unpacked(SICK).glob(f"rank_0/Sick/0/{iteration}/*.{name}.*.output.0.*.npy")
        loaded: NDArray[Any] = np.load(path)
        return loaded

    return load


def values(session: Opened, address: str, **parameters: Any) -> NDArray[Any]:
    answer = session.ask("GET", "/tensor/values", params={"address": address, "format": "npy", **parameters})
    assert answer.status_code == 200, answer.text
    loaded: NDArray[Any] = np.load(io.BytesIO(answer.content))
    return loaded


# --- what there is ---


def test_the_tensors_of_a_node_are_listed_with_their_statistics(session: Opened, log: str) -> None:
    tensors = session.get("/tensors", node=log.split("/", 2)[2].rpartition(":")[0])
    assert [(one["io"], one["step"], one["status"]) for one in tensors] == [
        ("input", 3, "available"),
        ("output", 3, "available"),
    ]
    assert tensors[1]["address"] == f"{log}@3"
    assert tensors[1]["statistics"]["neg_inf_count"] == 1
    earlier = session.get("/tensors", node=tensors[1]["node"], step=1)
    assert earlier[1]["statistics"]["neg_inf_count"] == 0


def test_the_statistics_of_a_step_are_a_table_that_can_be_sorted_and_searched(session: Opened) -> None:
    page = session.get("/statistics", sort="max", descending=True, limit=20)
    largest = [row["statistics"]["max"] for row in page["rows"] if row["statistics"]["max"] is not None]
    assert largest == sorted(largest, reverse=True)
    assert page["total"] > 20
    found = session.get("/statistics", query="LOG-OP", limit=100)
    assert {row["node"].rpartition("/")[2] for row in found["rows"]} == {"Log-op144"}
    assert session.get("/statistics", step=1, query="log-op144")["rows"][0]["step"] == 1
    assert session.refused("GET", "/statistics", 422, params={"sort": "colour"})


def test_a_tensor_is_followed_over_the_steps(session: Opened, log: str, planted: dict[str, Any]) -> None:
    rows = session.get("/tensor/history", address=log)
    assert [row["step"] - 1 for row in rows] == planted[SICK]["iterations"]
    assert [row["statistics"]["neg_inf_count"] > 0 for row in rows[:3]] == [False, False, True]


# --- slices ---


def test_an_iteration_is_not_taken_for_a_step(session: Opened) -> None:
    for path, node in (("/tensors", {"node": "Default/x"}), ("/statistics", {})):
        answer = session.ask("GET", path, params={"iteration": 0, **node})
        assert answer.status_code == 422
        assert "counts from 1" in answer.text


def test_an_address_without_step_is_that_of_the_step_shown(
    session: Opened, log: str, dumped: Callable[[str, int], NDArray[Any]]
) -> None:
    for address, iteration in ((log, 2), (f"{log}@1", 0)):
        np.testing.assert_array_equal(values(session, address), dumped("Log-op144", iteration))


def test_all_forms_say_the_same(session: Opened, log: str) -> None:
    expected = values(session, log)
    parameters = {"address": log}
    raw = session.ask("GET", "/tensor/values", params={**parameters, "format": "raw"})
    shape = tuple(map(int, raw.headers["X-Tensight-Shape"].split(",")))
    dtype = np.dtype(raw.headers["X-Tensight-Dtype"])
    np.testing.assert_array_equal(np.frombuffer(raw.content, dtype).reshape(shape), expected)
    arrow = session.ask("GET", "/tensor/values", params={**parameters, "format": "arrow"})
    column = pa.ipc.open_stream(arrow.content).read_all()["value"].to_numpy()
    np.testing.assert_array_equal(column.reshape(shape), expected)
    words = session.get("/tensor/values", **parameters)
    assert words[0] == ["-Infinity"]
    np.testing.assert_array_equal(np.array(words[1:]), expected[1:])


def test_a_slice_is_cut_where_it_is_asked_for(session: Opened, conv: str) -> None:
    answer = session.ask("GET", "/tensor/values", params={"address": conv, "slice": "[0, -1, 0:2, :]", "format": "npy"})
    whole = np.load(io.BytesIO(session.ask("GET", "/tensor/file", params={"address": conv}).content))
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), whole[0, -1, 0:2, :])
    assert answer.headers["X-Tensight-Tensor-Shape"] == ",".join(map(str, whole.shape))
    by_default = values(session, conv)
    np.testing.assert_array_equal(by_default, whole[0, 0])


def test_the_previous_value_and_the_difference_are_computed(
    session: Opened, log: str, dumped: Callable[[str, int], NDArray[Any]]
) -> None:
    current, before = dumped("Log-op144", 2).astype(float), dumped("Log-op144", 1).astype(float)
    np.testing.assert_array_equal(values(session, log, which="previous"), before)
    np.testing.assert_array_equal(values(session, log, which="difference"), current - before)
    cut = values(session, log, which="difference", tolerance=1.0)
    assert np.count_nonzero(cut[np.isfinite(cut)]) == 0


def test_more_elements_than_the_limit_are_refused(session: Opened, conv: str) -> None:
    message = session.refused(
        "GET", "/tensor/values", 422, params={"address": conv, "slice": "[:, :, :, :]", "limit": 10}
    )
    assert "10" in message


# --- pictures, distributions, statistics ---


def test_a_heat_map_keeps_what_is_extreme(session: Opened, log: str, conv: str) -> None:
    assert session.get("/tensor/heat-map", address=log)[0] == ["-Infinity"]
    answer = session.ask("GET", "/tensor/heat-map", params={"address": conv, "rows": 2, "columns": 3, "format": "npy"})
    picture, whole = np.load(io.BytesIO(answer.content)), values(session, conv)
    assert (picture.shape, picture.dtype) == ((2, 3), np.float32)
    assert np.abs(picture).max() == np.abs(whole.astype(np.float32)).max()


def test_what_is_not_finite_is_found_and_slices_are_mapped(session: Opened, log: str, conv: str) -> None:
    whole = values(session, log)
    (index,) = (list(map(int, place)) for place in np.argwhere(~np.isfinite(whole)))
    for find in ("first", "next", "previous"):
        element = session.get("/tensor/element", address=log, find=find)
        assert (element["index"], element["value"]) == (index, "-inf")
    assert session.get("/tensor/element", address=log, find="next", slice=str(index))["index"] == index
    nothing = {"address": conv, "index": None, "value": ""}
    assert session.get("/tensor/element", address=conv, find="next") == nothing
    largest = session.get("/tensor/element", address=conv, find="largest")["index"]
    everything = values(session, conv, slice="[:, :, :, :]")
    assert np.abs(everything.astype(float))[tuple(largest)] == np.abs(everything.astype(float)).max()
    answer = session.ask("GET", "/tensor/slices", params={"address": conv, "format": "npy"})
    extreme, non_finite, number = np.load(io.BytesIO(answer.content))
    assert extreme.shape == everything.shape[:2]
    assert np.abs(extreme).max() == np.abs(everything.astype(float)).max()
    assert (non_finite.max(), number.max()) == (0, extreme.size - 1)


def test_a_histogram_counts_the_finite_elements(session: Opened, log: str) -> None:
    histogram = session.get("/tensor/histogram", address=log, bins=5)
    assert len(histogram["counts"]) == 5
    assert len(histogram["edges"]) == 6
    assert sum(histogram["counts"]) == 3


def test_statistics_are_those_of_the_values(session: Opened, log: str) -> None:
    whole = values(session, log).astype(float)
    finite = whole[np.isfinite(whole)]
    statistics = session.get("/tensor/statistics", address=log)["statistics"]
    assert (statistics["count"], statistics["neg_inf_count"]) == (4, 1)
    assert statistics["mean"] == pytest.approx(finite.mean())
    assert statistics["max"] == finite.max()


def test_a_difference_comes_with_the_statistics_of_both_sides(session: Opened, log: str) -> None:
    both = session.get("/tensor/statistics", address=log, which="difference")
    assert both["current"] == session.get("/tensor/statistics", address=log)["statistics"]
    assert both["previous"] == session.get("/tensor/statistics", address=log, which="previous")["statistics"]
    assert both["statistics"]["count"] == both["current"]["count"]


def test_nothing_finite_is_null_and_never_nan(session: Opened) -> None:
    answer = session.ask("GET", "/statistics", params={"step": 4, "limit": 1000})
    all_nan = [
        statistics
        for row in answer.json()["rows"]
        if (statistics := row["statistics"])["nan_count"] == statistics["count"] > 0
    ]
    assert all_nan
    assert {statistics["mean"] for statistics in all_nan} == {None}
    assert b"NaN" not in answer.content
    assert b"Infinity" not in answer.content


# --- files ---


@pytest.fixture
def file(session: Opened, conv: str) -> tuple[str, bytes, str]:
    """Path of a file, its bytes, and its tag."""
    path = str(httpx.URL("/tensor/file", params={"address": conv}))
    answer = session.ask("GET", path)
    assert answer.status_code == 200
    return path, answer.content, answer.headers["ETag"]


def test_a_file_is_what_was_dumped(session: Opened, log: str, dumped: Callable[[str, int], NDArray[Any]]) -> None:
    answer = session.ask("GET", "/tensor/file", params={"address": log})
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), dumped("Log-op144", 2))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="Log-op144.output.0.rank-0.step-3.npy"'
    assert int(answer.headers["Content-Length"]) == len(answer.content)


def test_head_tells_size_and_tag_without_the_content(session: Opened, file: tuple[str, bytes, str]) -> None:
    path, whole, tag = file
    head = session.ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert (int(head.headers["Content-Length"]), head.headers["ETag"]) == (len(whole), tag)
    assert head.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=100-", 100, None),
        ("bytes=-5", -5, None),
        ("bytes=5-99999999", 5, None),
        ("bytes=-99999999", 0, None),
    ],
)
def test_a_range_of_a_file_is_sent(
    session: Opened, file: tuple[str, bytes, str], asked: str, start: int, end: int | None
) -> None:
    path, whole, _ = file
    answer = session.ask("GET", path, headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == whole[start:end]
    first = range(len(whole))[start]
    assert answer.headers["Content-Range"] == f"bytes {first}-{first + len(answer.content) - 1}/{len(whole)}"


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=-0"])
def test_a_range_outside_of_the_file_cannot_be_sent(session: Opened, file: tuple[str, bytes, str], asked: str) -> None:
    path, whole, _ = file
    answer = session.ask("GET", path, headers={"Range": asked})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, f"bytes */{len(whole)}")
    assert answer.json()["error"]["where"] == "header.range"


@pytest.mark.parametrize(
    "asked", ["bytes=5-2", "bytes=0-1,5-6", "lines=1-2", "bytes=x-y", "bytes=-", "bytes=1-2-3", f"bytes={'9' * 400}-"]
)
def test_a_range_that_makes_no_sense_is_ignored(session: Opened, file: tuple[str, bytes, str], asked: str) -> None:
    path, whole, _ = file
    answer = session.ask("GET", path, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, whole)


def test_a_broken_download_is_resumed(server: Served, session: Opened, file: tuple[str, bytes, str]) -> None:
    path, whole, tag = file
    with socket.create_connection(("127.0.0.1", server.port), WITHIN_S) as connection:
        target = f"/api/v1{session.path}{path}"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < 100:
            got += connection.recv(50)
    part = got.partition(b"\r\n\r\n")[2]
    rest = session.ask("GET", path, headers={"Range": f"bytes={len(part)}-", "If-Range": tag})
    assert rest.status_code == 206
    assert part + rest.content == whole


@pytest.mark.parametrize("other", ['"another"', "Sat, 01 Jan 2000 00:00:00 GMT", 'W/"weak"'])
def test_a_file_that_is_no_longer_the_same_is_sent_from_the_beginning(
    session: Opened, file: tuple[str, bytes, str], other: str
) -> None:
    path, whole, _ = file
    answer = session.ask("GET", path, headers={"Range": "bytes=10-", "If-Range": other})
    assert (answer.status_code, answer.content) == (200, whole)


def test_a_file_that_is_known_is_not_sent_again(session: Opened, file: tuple[str, bytes, str]) -> None:
    path, _, tag = file
    answer = session.ask("GET", path, headers={"If-None-Match": f'"x", {tag}'})
    assert (answer.status_code, answer.content) == (304, b"")


def test_each_step_of_a_tensor_is_a_file_of_its_own(session: Opened, log: str) -> None:
    addresses = [f"{log}@{step}" for step in (1, 2, 3)]
    tags = {session.ask("HEAD", "/tensor/file", params={"address": one}).headers["ETag"] for one in addresses}
    assert len(tags) == 3


# --- what there is not ---


@pytest.mark.parametrize("path", ["values", "heat-map", "slices", "element", "histogram", "statistics", "file"])
@pytest.mark.parametrize(
    "address", ["0/kernel_graph_0/no:0", "9/kernel_graph_0/x:0", "0/no/x:0", f"{WEIGHT}@77", "0/kernel_graph_0/../..:0"]
)
def test_what_was_not_dumped_is_not_found(session: Opened, path: str, address: str) -> None:
    assert session.refused("GET", f"/tensor/{path}", 404, params={"address": address})


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/tensor/values", {"slice": "[0"}),
        ("/tensor/values", {"slice": "[0, 0, 0, 0, 0]"}),
        ("/tensor/values", {"slice": "x" * 4097}),
        ("/tensor/values", {"slice": "[99:, :, :, :]"}),
        ("/tensor/values", {"limit": 0}),
        ("/tensor/values", {"limit": 1_000_001}),
        ("/tensor/values", {"format": "pickle"}),
        ("/tensor/values", {"which": "next"}),
        ("/tensor/values", {"tolerance": 2}),
        ("/tensor/values", {"tolerance": "nan"}),
        ("/tensor/heat-map", {"rows": 4097}),
        ("/tensor/heat-map", {"columns": 0}),
        ("/tensor/heat-map", {"slice": "[:, :, :, :]"}),
        ("/tensor/slices", {"slice": "[:, :, :, :]"}),
        ("/tensor/slices", {"rows": 1025}),
        ("/tensor/element", {"find": "nan"}),
        ("/tensor/element", {"find": "next", "slice": "[0, 0, :, :]"}),
        ("/tensor/histogram", {"bins": 10_001}),
        ("/tensor/histogram", {"bins": 0}),
    ],
)
def test_what_makes_no_sense_is_refused(session: Opened, conv: str, path: str, parameters: dict[str, Any]) -> None:
    assert session.refused("GET", path, 422, params={"address": conv, **parameters})


@pytest.mark.parametrize("address", ["", "conv1", "0/g/n", "0/g/n:x", "0/g/n:0@", "-1/g/n:0", "9999999999/g/n:0"])
def test_what_is_no_address_is_refused(session: Opened, address: str) -> None:
    assert session.refused("GET", "/tensor/values", 422, params={"address": address})
