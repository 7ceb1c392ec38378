"""`tensight run`: the script runs as if it had been started without us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tensight.cli.agent_only import agent_command_line
from tensight.cli.plain_run import COMMANDS, MODULE, RUN, TRACE, NotPlainError, read_plainly
from tensight.cli.run import run
from tensight.cli.starting import command_line, size_bytes
from tensight.cli.trace import trace
from tensight.errors import InputError

REPORT = """\
import os, sys
print(sys.argv, sys.path[0], __name__, globals().get("__file__"), type(__spec__).__name__, os.getcwd(), sys.flags)
print(sys.stdin.read())
sys.stderr.write("to stderr\\n")
"""
HEAVY = ("typer", "rich", "pydantic", "pyarrow", "fastapi", "duckdb", "httpx", "tensight.cli")


def outcome_of(command: list[str], folder: Path, stdin: str = "") -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    ended = subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def plain(*arguments: str, folder: Path, stdin: str = "") -> tuple[int, str, str]:
    return outcome_of([sys.executable, *arguments], folder, stdin)


def debugged(*arguments: str, folder: Path, stdin: str = "") -> tuple[int, str, str]:
    return outcome_of([sys.executable, "-m", "tensight", "run", *arguments], folder, stdin)


def test_a_script_sees_what_it_would_have_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPORT)
    arguments = ("train.py", "--host", "not ours", "-m", "--", "-h", "--help")
    expected = plain(*arguments, folder=tmp_path, stdin="asked")
    assert expected[0] == 0
    assert debugged(*arguments, folder=tmp_path, stdin="asked") == expected
    assert debugged("--port", "50052", *arguments, folder=tmp_path, stdin="asked") == expected


def test_a_module_a_folder_and_an_interpreter_are_run_as_python_runs_them(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("package/__init__.py", "package/__main__.py", "package/part.py"):
        (tmp_path / name).write_text(REPORT if name != "package/__init__.py" else "")
    for arguments in (("-m", "package.part", "--lr", "1"), ("-m", "package", "-x"), ("package", "-x")):
        assert debugged(*arguments, folder=tmp_path) == plain(*arguments, folder=tmp_path)
    assert debugged("python", "-m", "package.part", folder=tmp_path) == plain("-m", "package.part", folder=tmp_path)


@pytest.mark.parametrize("end", ["sys.exit(7)", "sys.exit('words')", "1 / 0", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_it_ends_as_it_would_have_ended(tmp_path: Path, end: str) -> None:
    (tmp_path / "train.py").write_text(f"import os, sys\ndef main():\n    {end}\nmain()\n")
    assert debugged("train.py", folder=tmp_path) == plain("train.py", folder=tmp_path)


def test_nothing_heavy_of_ours_is_in_the_process_and_its_children_are_debugged_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, subprocess, sys\nprint([name for name in {HEAVY} if name in sys.modules])\n"
        "print('tensight.agents' in sys.modules, *map(os.environ.get, ('TENSIGHT_CAPTURE', 'TENSIGHT_RECORD')))\n"
        "if len(sys.argv) == 1:\n    sys.exit(subprocess.call([sys.executable, __file__, 'child']))\n"
    )
    options = ("--capture", "ops", "--record", "ring:5")
    code, out, err = debugged(*options, "train.py", folder=tmp_path)
    assert (code, err) == (0, "")
    assert out == "[]\nTrue ops ring:5\n" * 2


def test_options_become_variables_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nprint(*sorted(f'{k}={v}' for k, v in os.environ.items() if k.startswith('TENSIGHT_')), sep='\\n')\n"
    )
    options = ("--host", "h", "--port", "5", "--step-on", "forward", "--break-at-start", "--recommended")
    more = ("--record", "full", "--record-folder", "r", "--on-disconnect", "wait", "--memory-budget", "1.5 GB")
    more = (*more, "--stop-on", "every", "--quiet")
    code, out, err = debugged(*options, *more, "--partial-memory", "--job", "night", "train.py", folder=tmp_path)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if not line.startswith(("TENSIGHT_RUN=", "TENSIGHT_COMMAND="))] == [
        "TENSIGHT_BREAK_AT_START=1",
        "TENSIGHT_DEBUG=1",
        "TENSIGHT_DEBUGGER_HOST=h",
        "TENSIGHT_DEBUGGER_PORT=5",
        "TENSIGHT_JOB=night",
        "TENSIGHT_MEMORY_BUDGET=1500000000",
        "TENSIGHT_ON_DISCONNECT=wait",
        "TENSIGHT_PARTIAL_MEMORY=1",
        "TENSIGHT_QUIET=1",
        "TENSIGHT_RECOMMENDED=1",
        "TENSIGHT_RECORD=full",
        f"TENSIGHT_RECORD_FOLDER={tmp_path / 'r'}",
        "TENSIGHT_STEP_ON=forward",
        "TENSIGHT_STOP_ON=every",
    ]


@pytest.mark.parametrize("size", ["WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_ranks_gets_nothing_that_would_keep_it_apart(
    tmp_path: Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(*map(os.environ.get, ('TENSIGHT_JOB', 'TENSIGHT_RUN')))\n")
    monkeypatch.setenv(size, "1")
    assert debugged("train.py", folder=tmp_path)[1].endswith(f"-{socket.gethostname()}\n")
    monkeypatch.setenv(size, "2")
    assert debugged("train.py", folder=tmp_path)[1] == "None None\n"
    assert debugged("--job", "night", "train.py", folder=tmp_path)[1] == "night None\n"


def test_ctrl_c_reaches_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal\ntry:\n    print('ready', flush=True)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    command = [sys.executable, "-m", "tensight", "run", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
        assert process.wait(60) == 0


def test_the_processes_of_a_run_have_something_in_common_that_no_other_run_has(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['TENSIGHT_RUN'], os.getpid())\n")
    for arguments in (("train.py",), ("env", "python3", "train.py")):
        code, out, err = debugged(*arguments, folder=tmp_path)
        name, process = out.split()
        assert (code, err, name) == (0, "", f"{process}-{socket.gethostname()}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train.py",), "train.py: there is no such script"),
        (("no-such-command",), "no-such-command: it is not a script or a command"),
        (("--port", "0", "python"), "the port of the debug server is 0; give 1 to 65535"),
        (("--recommended", "true", "x.py"), "true is the program /"),
        (("ls",), "ls is the program /"),
        (("--record", "ring", "python"), "record is 'ring'"),
        (("--memory-budget", "much", "python"), "the memory budget is 'much'; write for example 500MB or 2GB"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(
    tensight: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    outcome = tensight("run", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"tensight: {words}")
    assert len(outcome.err.splitlines()) == 1


def test_commands_beside_the_interpreter_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text("#!/bin/sh\n")
    torchrun.chmod(0o755)
    assert command_line(["torchrun", "--nproc-per-node", "2", "train.py"])[0] == str(torchrun)
    assert command_line(["env", "python"])[0].endswith("/env")


def test_a_script_without_a_suffix_is_run_by_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("")
    assert command_line([str(script), "x"]) == [sys.executable, str(script), "x"]
    with pytest.raises(InputError, match="no such script"):
        command_line([str(tmp_path / "env.py")])


def test_an_interpreter_that_would_not_start_the_debugger_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path / "user"))
    with pytest.raises(InputError, match=r"tensight_debug\.pth is not in .*install tensight with pip"):
        command_line(["module"], module=True)


@pytest.mark.parametrize(
    ("text", "amount"), [("12", 12), ("500MB", 500_000_000), ("2 gb", 2_000_000_000), ("0.5K", 500), ("1TB", 10**12)]
)
def test_sizes_are_read_as_people_write_them(text: str, amount: int) -> None:
    assert size_bytes(text) == amount


@pytest.mark.parametrize(("options", "command"), [(RUN, run), (TRACE, trace)])
def test_every_option_is_read_without_the_library_too(options: dict[str, Any], command: Callable[..., None]) -> None:
    hints = {name for name in get_type_hints(command) if name not in ("script", "arguments", "return")}
    assert {option.removeprefix("--").replace("-", "_") for option in (*options, MODULE[1])} == hints


def test_options_are_read_without_the_library_as_they_are_with_it() -> None:
    flags = {name: option.field for name, option in RUN.items() if option.convert is None}
    line = [
        *("--host", "h", "--port=7", "--capture", "ops", "--step-on=forward", "--record", "full", "--job", "j"),
        *("--record-folder", "/r", "--on-disconnect", "wait", "--memory-budget", "2KB", *flags),
    ]
    assert read_plainly([*line, "-m", "train", "--port", "8"], RUN) == (
        ["train", "--port", "8"],
        {
            "host": "h",
            "port": 7,
            "capture": "ops",
            "step_on": "forward",
            "record": "full",
            "job": "j",
            "record_folder": "/r",
            "on_disconnect": "wait",
            "memory_budget_bytes": 2000,
            **dict.fromkeys(flags.values(), True),
        },
        True,
    )
    assert read_plainly(["--out=/t", "--steps", "3", "--perturb", "train.py", "--out"], TRACE) == (
        ["train.py", "--out"],
        {"trace": "/t", "trace_steps": 3, "perturb": True},
        False,
    )


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", ""),
        ("--quiet", ""),
        ("--help train.py", "--help"),
        ("--port", "--port"),
        ("--port x train.py", "--port"),
        ("--capture all t.py", "--capture"),
        ("-- t.py", "--"),
        ("--ports 1 t.py", "--ports"),
        ("--quiet=1 t.py", "--quiet"),
    ],
)
def test_what_is_not_plain_is_left_to_the_library(line: str, word: str) -> None:
    with pytest.raises(NotPlainError) as caught:
        read_plainly(line.split(), RUN)
    assert caught.value.word == word


@pytest.mark.parametrize("line", ["", "-h", "run --help", "run --port 5 -h train.py", "trace -h", "--version"])
def test_the_light_agent_answers_questions(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent_command_line(line.split())
    told = capsys.readouterr().out
    name = line.partition(" ")[0]
    assert all(option in told for option in COMMANDS.get(name, ()))
    assert told.startswith("tensight-agent" if name == "--version" else "Usage: tensight")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check dump", "`tensight check` needs the full installation: `pip install .` in a checkout of Tensight"),
        ("run", "there is no script; `tensight run --help` shows its usage"),
        ("trace --setps 3 train.py", "there is no option --setps; `tensight trace --help` shows its usage"),
    ],
)
def test_the_light_agent_says_in_one_line_what_is_wrong(line: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        agent_command_line(line.split())
    assert str(caught.value) == words
