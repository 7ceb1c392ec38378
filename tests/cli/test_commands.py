from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.cli.origin import print_source
from tensight.cli.output import console
from tensight.sessions.records import Frame

Run = Callable[..., Any]
INF = "Default/network-Loss/network-SickNetwork/energy-EnergyFeature/Log-op0"


def test_the_demo_names_every_planted_sickness_its_line_and_its_code(tensight: Run, planted: dict[str, Any]) -> None:
    outcome = tensight("demo", "--scenario", "dump")
    assert (outcome.code, outcome.err) == (0, "")
    sick = planted["sick-2.10.0"]["planted"]
    for kind in ("nan", "inf", "dead_relu", "exploding_gradient"):
        assert sick[kind]["operator"] in outcome.out
        assert f"sick_network.py:{sick[kind]['line']}" in outcome.out
    assert "log_energy = self.log(energy)" in outcome.out


def test_info_says_what_the_dump_holds_and_says_it_again_from_its_cache(tensight: Run, dump_210: Path) -> None:
    first, second = tensight("info", dump_210), tensight("info", dump_210)
    assert first == second
    assert first.code == 0
    assert "MindSpore 2.10.0 on CPU" in first.out
    assert "1,220 files" in first.out
    assert "1-4" in first.out
    data = json.loads(tensight("info", dump_210, "--json").out)
    assert (data["framework_version"], data["ranks"][0]["unmatched"]) == ("2.10.0", 0)


def test_a_plain_line_of_info_does_what_any_other_does(tensight: Run, dump_210: Path, tmp_path: Path) -> None:
    # With "=" the library reads it that reads the lines of all commands.
    folder = tmp_path / "elsewhere"
    for options in ([], ["--json"]):
        plain = tensight("info", dump_210, "--cache-dir", folder, *options)
        assert plain.code == 0
        assert plain == tensight("info", *options, f"--cache-dir={folder}", dump_210)
    assert folder.exists()
    # What is not plain is refused as in any other command, or explained.
    for wrong in ([], [dump_210, dump_210], [dump_210, "--cache-dir"], [dump_210, "--jason"]):
        outcome = tensight("info", *wrong)
        assert (outcome.code, outcome.out) == (2, "")
        assert "─ Error ─" in outcome.err
    assert "Show what a dump contains" in tensight("info", "--help").out


def test_a_plain_line_of_info_needs_no_library_of_commands(dump_210: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.argv = ['tensight', 'info', {str(dump_210)!r}, '--cache-dir', {str(tmp_path)!r}]\n"
    code += "from tensight.cli import main\nmain()\n"
    code += "print([name for name in ('typer', 'pydantic', 'pyarrow', 'duckdb') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_info_notices_a_new_file(tensight: Run, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.10.0")
    before = json.loads(tensight("info", dump, "--json").out)["ranks"][0]["files"]
    next(dump.rglob("*.npy")).unlink()
    assert json.loads(tensight("info", dump, "--json").out)["ranks"][0]["files"] == before - 1


def test_check_exits_with_1_when_something_hits_and_0_when_nothing_does(tensight: Run, dump_210: Path) -> None:
    assert tensight("check", dump_210).code == 1
    nothing = tensight("check", dump_210, "--watch", "tensor_too_large(max_gt=1e30)")
    assert nothing.code == 0
    assert "Nothing hit" in nothing.out


def test_check_says_when_it_inspected_nothing(tensight: Run, dump_210: Path) -> None:
    outcome = tensight("check", dump_210, "--watch", "TO", "--on", "no-such-node")
    assert outcome.code == 2
    assert "tensor_overflow() looked at nothing: no tensor's node has 'no-such-node'" in " ".join(outcome.out.split())


def test_nothing_found_says_in_what(tensight: Run, dump_210: Path, dump_210_second: Path) -> None:
    check = ("check", dump_210, "--watch", "tensor_too_large(max_gt=1e30)", "--steps", "1,2")
    inspected = json.loads(tensight(*check, "--json").out)["inspected"]
    assert (inspected["steps"], inspected["ranks"]) == ([1, 2], [0])
    assert inspected["tensors"] > inspected["nodes"] > 0
    words = f"Nothing hit in {inspected['tensors']} tensors of {inspected['nodes']} nodes, steps 1-2, rank 0."
    assert words in tensight(*check).out
    origin = ("origin", dump_210_second, "--kind", "nan", "--kind", "inf")
    inspected = json.loads(tensight(*origin, "--json").out)["inspected"]
    outcome = tensight(*origin)
    assert f"no NaN or Inf begins in {inspected['tensors']:,} tensors of {inspected['nodes']} nodes" in outcome.out
    assert outcome.code == 0


LOOKING = (("check",), ("check", "--json"), ("check", "--format", "csv"), ("origin",), ("origin", "--json"), ("stats",))


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_where_no_tensor_can_be_read_nothing_is_a_success(
    tensight: Run, dump_copy: Callable[[str], Path], damage: str
) -> None:
    dump = dump_copy("sick-2.10.0")
    for file in dump.rglob("*.npy"):
        if damage == "missing":
            file.unlink()
        else:
            os.truncate(file, 40)
    for command, *options in LOOKING:
        outcome = tensight(command, dump, *options)
        assert outcome.code == 2, (command, options)
        reason = "no tensor to look at" if damage == "missing" else "could not be read"
        assert reason in outcome.err
        assert "Nothing hit" not in outcome.out
        assert "No anomaly found" not in outcome.out
    problems = json.loads(tensight("info", dump, "--json").out)["problems"]
    assert any("no tensor was dumped" in problem["what"] for problem in problems) == (damage == "missing")


def test_without_graphs_no_origin_is_looked_for_and_anomalies_are_counted(
    tensight: Run, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    shutil.rmtree(dump / "rank_0" / "graphs")
    outcome = tensight("origin", dump)
    assert outcome.code == 2
    assert "No anomaly found" not in outcome.out
    data = json.loads(tensight("origin", dump, "--json").out)
    assert data["inspected"]["tensors"] == 0
    assert data["without_node"]["nan"] > 0
    assert tensight("nodes", dump, "Conv").code == 2
    # The values need no graph.
    assert tensight("check", dump).code == 1


def test_truncated_files_are_listed_by_info_and_counted_where_nothing_hit(
    tensight: Run, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    truncated = sorted(dump.rglob("*.output.*.npy"))[:30]
    for file in truncated:
        os.truncate(file, file.stat().st_size - 1)
    listed = {problem["where"] for problem in json.loads(tensight("info", dump, "--json").out)["problems"]}
    assert {str(file.relative_to(dump)) for file in truncated} <= listed
    outcome = tensight("check", dump, "--watch", "tensor_too_large(max_gt=1e30)", "--on", ".")
    inspected = json.loads(
        tensight("check", dump, "--watch", "tensor_too_large(max_gt=1e30)", "--on", ".", "--json").out
    )["inspected"]
    assert outcome.code == 0
    assert inspected["unreadable"] > 0
    assert f"{inspected['unreadable']} tensors could not be read" in outcome.out


def test_a_check_that_could_be_made_nowhere_is_no_success(tensight: Run, dump_210: Path) -> None:
    # There is no step before the first.
    outcome = tensight("check", dump_210, "--watch", "weight_not_changed", "--steps", "1")
    assert outcome.code == 2
    assert "nothing could be decided" in outcome.err


def test_check_names_the_graph_where_there_are_several(
    tensight: Run, dump_210: Path, unpacked: Callable[[str], Path]
) -> None:
    several = tensight("check", unpacked("healthy-2.0.0"), "--watch", "tensor_all_zero(zero_percentage_ge=100)")
    assert "kernel_graph_4" in several.out
    assert "graph" not in tensight("check", dump_210, "--watch", "TO").out


def test_convert_counts_what_it_converts_and_what_it_copies(tensight: Run, dump_210: Path, tmp_path: Path) -> None:
    outcome = tensight("convert", dump_210, tmp_path / "converted")
    assert "Converted 0 tensors and copied 1,220 npy files" in " ".join(outcome.out.split())


def test_check_can_ask_for_several_steps_in_a_row(tensight: Run, dump_210: Path) -> None:
    once = json.loads(tensight("check", dump_210, "--watch", "TO", "--json").out)
    lasting = json.loads(tensight("check", dump_210, "--watch", "TO persist=2", "--json").out)
    assert lasting["watchpoints"][0]["check"] == "tensor_overflow() persist=2"
    assert 0 < lasting["hits"] < once["hits"]


def test_check_prints_hits_as_json_and_csv_that_agree(tensight: Run, dump_210: Path) -> None:
    arguments = ("check", dump_210, "--watch", "TO", "--on", "energy", "--steps", "3")
    data = json.loads(tensight(*arguments, "--json").out)
    rows = list(csv.DictReader(io.StringIO(tensight(*arguments, "--format", "csv").out)))
    hits = [hit for point in data["watchpoints"] for hit in point["hits"]]
    assert data["hits"] == len(hits) == len(rows) > 0
    assert [(hit["node"], str(hit["slot"])) for hit in hits] == [(row["node"], row["slot"]) for row in rows]
    assert hits[0]["node"] == INF
    assert hits[0]["source"]["line"] == 31


def test_each_on_belongs_to_the_watch_at_its_place(tensight: Run, dump_210: Path) -> None:
    data = json.loads(
        tensight(
            "check", dump_210, "--watch", "TO", "--on", "/Log-op0", "--watch", "TZ", "--on", "^no such node$", "--json"
        ).out
    )
    assert [point["tensors"] for point in data["watchpoints"]] == [4, 0]
    assert tensight("check", dump_210, "--on", "Log").code == 2


def test_recommended_and_own_watchpoints_can_be_combined(tensight: Run, dump_210: Path) -> None:
    alone = json.loads(tensight("check", dump_210, "--json").out)["watchpoints"]
    both = json.loads(tensight("check", dump_210, "--recommended", "--watch", "TL(max_gt=5)", "--json").out)[
        "watchpoints"
    ]
    assert [point["check"] for point in both] == [*(point["check"] for point in alone), "tensor_too_large(max_gt=5)"]


def test_origin_names_the_operator_and_its_line(tensight: Run, dump_200: Path, planted: dict[str, Any]) -> None:
    outcome = tensight("origin", dump_200, "--kind", "inf")
    sick = planted["sick-2.0.0"]["planted"]["inf"]
    assert outcome.code == 0
    assert sick["operator"] in outcome.out
    assert f"{sick['file']}:{sick['line']}" in outcome.out
    (found,) = json.loads(tensight("origin", dump_200, "--kind", "inf", "--json").out)["origins"]
    assert (found["node"], found["step"], found["certain"]) == (sick["operator"], sick["first_iteration"] + 1, True)


def test_origin_of_a_healthy_run_says_that_there_is_none(tensight: Run, dump_210_second: Path) -> None:
    outcome = tensight("origin", dump_210_second, "--kind", "nan", "--kind", "inf")
    assert "No anomaly found" in outcome.out


def test_origin_shows_the_lines_around_when_it_is_told_where_the_script_is(
    tensight: Run, dump_210: Path, tmp_path: Path
) -> None:
    script = Path(__file__).parents[1] / "fixtures" / "scripts" / "sick_network.py"
    outcome = tensight("origin", dump_210, "--kind", "inf", "--source-root", script.parent)
    assert "energy = self.energy(images * images, 1)" in outcome.out
    assert "is not in" not in outcome.out


def test_a_wrong_folder_of_scripts_costs_no_line_of_code(
    tensight: Run, dump_210: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = tensight("origin", dump_210, "--kind", "inf", "--source-root", tmp_path)
    assert "self.log(energy)" in outcome.out
    gone = Frame(file="/gone/model.py", line=12, code="return self.log(energy)")
    print_source(console(), gone, str(tmp_path))
    told = capsys.readouterr().out
    assert "→ return self.log(energy)" in told
    assert "model.py with this line is not in" in told


def test_nodes_are_found_by_name_type_kind_and_stack(tensight: Run, dump_210: Path) -> None:
    def names(*arguments: str) -> list[str]:
        return [node["name"] for node in json.loads(tensight("nodes", dump_210, *arguments, "--json").out)["nodes"]]

    assert names("energy-EnergyFeature/Log") == [INF]
    assert INF in names("log", "--by", "type", "--ignore-case")
    assert INF in names("self.log(energy)", "--by", "stack")
    assert "network.fc2.weight" in names("weight", "--by", "kind")
    assert names("^network.fc[12].bias$", "--regex") == ["network.fc1.bias", "network.fc2.bias"] or names(
        "^network.fc[12].bias$", "--regex"
    ) == ["network.fc2.bias", "network.fc1.bias"]


def test_stats_sorts_and_answers_sql(tensight: Run, dump_210: Path) -> None:
    rows = json.loads(tensight("stats", dump_210, "--sort", "l2_norm", "--top", "3", "--json").out)
    assert len(rows) == 3
    assert rows[0]["l2_norm"] >= rows[1]["l2_norm"] >= rows[2]["l2_norm"]
    sql = "select count(*) as n, sum(file_bytes) as bytes from tensors"
    (total,) = json.loads(tensight("stats", dump_210, "--sql", sql, "--json").out)
    assert total["n"] == 1220
    assert total["bytes"] == sum(path.stat().st_size for path in dump_210.rglob("*.npy"))
    assert "zeros_percent" in tensight("stats", dump_210).out
    assert f"{total['bytes']:,}" in tensight("stats", dump_210, "--sql", sql).out


@pytest.mark.parametrize(
    "sql",
    ["select nothing from tensors", "drop", "select * from read_csv('/etc/passwd')", "copy tensors to 'x.csv'", ""],
)
def test_sql_that_is_wrong_or_reaches_outside_is_refused(sql: str, tensight: Run, dump_210: Path) -> None:
    outcome = tensight("stats", dump_210, "--sql", sql)
    assert outcome.code == 2
    assert outcome.err.startswith("tensight: the query")


def test_show_prints_statistics_values_and_slices(tensight: Run, dump_210: Path) -> None:
    outcome = tensight("show", dump_210, "network.fc2.weight@2")
    assert outcome.code == 0
    assert "float32" in outcome.out
    assert "█" in outcome.out
    data = json.loads(tensight("show", dump_210, "network.fc2.weight@2", "--slice", "[0, 0:2]", "--json").out)
    (path,) = dump_210.glob("rank_0/Sick/0/1/Parameter.network_fc2_weight.*.npy")
    assert data["values"] == np.load(path)[0, 0:2].tolist()
    assert data["statistics"]["count"] == 2


def test_show_writes_nan_and_inf_as_words(tensight: Run, dump_210: Path) -> None:
    data = json.loads(tensight("show", dump_210, f"{INF}:0@3", "--json").out)
    assert "-Infinity" in json.dumps(data["values"])


def test_compare_steps_shows_how_a_weight_moved(tensight: Run, dump_210: Path) -> None:
    moved = json.loads(tensight("compare-steps", dump_210, "network.fc2.weight", 1, 2, "--json").out)
    first, second = (
        np.load(next(dump_210.glob(f"rank_0/Sick/0/{step}/Parameter.network_fc2_weight.*.npy"))).astype(np.float64)
        for step in (0, 1)
    )
    assert moved["change"]["mean_abs_change"] == pytest.approx(np.abs(second - first).mean())
    assert "identical" in tensight("compare-steps", dump_210, "network.dead.conv.bias", 1, 2).out


def test_export_writes_tensors_numpy_reads(tensight: Run, dump_210: Path, tmp_path: Path) -> None:
    outcome = tensight("export", dump_210, "--npz", "--on", "fc2.bias", "--steps", "2", "--out", tmp_path)
    assert outcome.code == 0
    (path,) = tmp_path.glob("*.npz")
    with np.load(path, allow_pickle=False) as stored:
        assert "0/kernel_graph0/network.fc2.bias:0@2" in stored.files
    again = tensight("export", dump_210, "--npz", "--on", "fc2.bias", "--out", tmp_path)
    assert again.code == 2
    assert "exists" in again.err


def test_export_writes_a_workbook(tensight: Run, dump_210: Path, tmp_path: Path) -> None:
    import openpyxl

    assert tensight("export", dump_210, "--xlsx", "--out", tmp_path).code == 0
    (path,) = tmp_path.glob("*.xlsx")
    book = openpyxl.load_workbook(path, read_only=True)
    assert "operator" in book.sheetnames
    book.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "nowhere"), "nowhere"),
        (("check", "DUMP", "--watch", "no_such_condition()"), "no_such_condition"),
        (("check", "DUMP", "--watch", "tensor_too_large(max_gt=x)"), "max_gt"),
        (("check", "DUMP", "--watch", "tensor_all_zero(zero_percentage_ge=120)"), "zero_percentage_ge"),
        (("check", "DUMP", "--ranks", "1-"), "--ranks"),
        (("check", "DUMP", "--ranks", "5"), "rank 5"),
        (("check", "DUMP", "--watch", "TO", "--on", "("), "regular expression"),
        (("nodes", "DUMP", "(", "--regex"), "regular expression"),
        (("show", "DUMP", "no.such.weight"), "no.such.weight"),
        (("show", "DUMP", "network.fc2.weight@77"), "step 77"),
        (("show", "DUMP", "weight"), "could be"),
        (("show", "DUMP", "network.fc2.weight", "--slice", "[0, 99]"), "99"),
        (("show", "DUMP", "network.fc2.weight", "--slice", "import os"), "import os"),
        (("stats", "DUMP", "--sort", "nothing"), "nothing"),
        (("export", "DUMP"), "--xlsx or --npz"),
        (("origin", "DUMP", "--explosion-limit", "-1"), "positive"),
    ],
)
def test_wrong_input_gives_one_line_that_names_it_and_exit_code_2(
    arguments: tuple[str, ...], message: str, tensight: Run, dump_210: Path
) -> None:
    outcome = tensight(*(str(dump_210) if part == "DUMP" else part for part in arguments))
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    # A condition that cannot be read is shown with a mark below the place.
    assert len(outcome.err.strip().splitlines()) == (3 if "cannot read the check" in outcome.err else 1)


def test_a_folder_that_is_no_dump_says_what_a_dump_looks_like(tensight: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    outcome = tensight("info", tmp_path / "empty")
    assert outcome.code == 2
    assert "rank_" in outcome.err


def test_problems_are_listed_on_stderr_and_the_rest_is_analysed(
    tensight: Run, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    next(dump.glob("rank_0/Sick/0/0/*output*.npy")).write_bytes(b"garbage")
    outcome = tensight("check", dump, "--watch", "TO")
    assert outcome.code == 1
    assert "1 problem in this dump" in outcome.err


def test_a_closed_pipe_is_no_error(dump_210: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tensight nodes {dump_210} '' --limit 1000 --json | head -1"
    environment = os.environ | {"TENSIGHT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_help_imports_no_numeric_library() -> None:
    code = "import sys; sys.argv = ['tensight', '--help']\nfrom tensight.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([name for name in ('numpy', 'pyarrow', 'duckdb', 'google.protobuf') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("command", ["run", "trace", "check", "search", "start", "compare", "compare runs"])
def test_flags_are_listed_without_a_value(tensight: Run, command: str) -> None:
    outcome = tensight(*command.split(), "--help")
    assert "--help" in outcome.out
    assert "bool" not in outcome.out
