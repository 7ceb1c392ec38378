"""What a forking interpreter is started with runs in a forked process, for which the one that was started stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.forking_interpreter import forking_interpreter
from tests.processes.process_end import ProcessEnd

pytestmark = pytest.mark.long

PATIENCE_S = 180
PARENT = "import os, sys; print(os.getppid(), sys.executable, sys.argv, flush=True); "


def shell(command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{forking_interpreter().folder}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [forking_interpreter().python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_programs_of_a_shell_are_forked_and_so_is_what_they_start() -> None:
    again = "import subprocess; subprocess.run([sys.executable, '-c', sys.argv[1], 'b'], check=True)"
    ended = shell(f'''python -c "{PARENT}{again}" "{PARENT}"''')
    assert ended.stderr == ""
    (first, *outer), (second, *inner) = (line.split(maxsplit=2) for line in ended.stdout.splitlines())
    assert first == second != str(os.getpid())
    assert outer[0] == inner[0] == str(forking_interpreter().python)
    assert inner[1] == "['-c', 'b']"


def test_streams_descriptors_folder_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "seventh").write_text("seven")
    code = "import os, sys; print(sys.stdin.read() + open(7).read(), os.getcwd()); sys.exit(3)"
    ended = shell(f"printf one | python -c '{code}' 7<seventh", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, f"oneseven {tmp_path}\n", "")


def test_console_scripts_are_run() -> None:
    ended = shell("tensight --version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("tensight ")


def test_what_cannot_be_forked_is_run_as_it_is() -> None:
    ended = shell('python -X dev -c "import sys; print(sys.flags.dev_mode, sys.executable)"')
    assert (ended.returncode, ended.stdout) == (0, f"True {sys.executable}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_forked_process_and_the_one_that_stands_for_it(number: signal.Signals) -> None:
    with started("import os, signal; print(os.getpid(), flush=True); signal.pause()") as process:
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == -number
    assert forked != process.pid
    assert ProcessEnd(forked).comes_within(PATIENCE_S)


def test_a_signal_that_the_command_handles_goes_to_it() -> None:
    # Blocked until it waits: a handler would run after the call that waits, if the signal came just before.
    code = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\nprint('ready', flush=True)\n"
        "signal.sigwait({signal.SIGTERM})\nexit(7)\n"
    )
    with started(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(PATIENCE_S) == 7


def test_a_crash_is_the_end_of_both() -> None:
    with started("import os; os.abort()") as process:
        assert process.wait(PATIENCE_S) == -signal.SIGABRT


def test_where_the_one_that_stands_for_it_is_killed_the_forked_process_is_too() -> None:
    with started("import os, signal; print(os.getpid(), flush=True); signal.pause()") as process:
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert ProcessEnd(forked).comes_within(PATIENCE_S)
