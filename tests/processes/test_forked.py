"""What is forked runs as if it had been started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.processes.forked import DEBUG_SERVER, PYTORCH, ForkServerError, Imports, popen, run
from tests.processes.process_end import ProcessEnd

PATIENCE_S = 180
NUMPY = Imports(("numpy", "numpy.ma", "numpy.random"), chosen=("OPENBLAS_NUM_THREADS", "PYTHONUNBUFFERED"))
REPORT = """\
import os, signal, sys, threading
installed = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sys.argv, sys.orig_argv[1:], sys.path, sys.flags, __name__, __doc__, globals().get("__file__"))
print(type(__loader__), __spec__ and __spec__.name, sys.modules["__main__"].__dict__ is globals())
print(sorted(installed))
print([type(finder) for finder in sys.meta_path if "fork" not in repr(finder)])
print(os.getcwd(), sorted(os.environ.items()), os.getpgid(0) == os.getpid())
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
print([thread.name for thread in threading.enumerate()])
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
print(repr(sys.stdin.read()))
for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
    print(stream, stream.line_buffering, stream.write_through, stream.buffer, stream.seekable(), stream.closed)
sys.stdout.reconfigure(errors="backslashreplace")
sys.stderr.write("to stderr\\n")
def go():
    import here
go()
"""
HERE = """\
import sys
print(sys._getframe(1).f_code.co_name, __file__)
raise SystemExit(len(sys.argv))
"""


def started(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


def forked(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    return run(command, NUMPY, capture_output=True, text=True, timeout=PATIENCE_S, **options)


def code(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", text, *arguments]


def output(text: str, **options: Any) -> str:
    """Return what forked code prints; its parent is not this process."""
    ended = forked(code(f"import os; assert os.getppid() != {os.getpid()}\n{text}"), **options)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.rstrip("\n")


def outcome(ended: subprocess.CompletedProcess[str]) -> tuple[int, list[str], str]:
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a script, a package that can be run, and what they import."""
    for name in ("folder/package/__init__.py", "folder/package/__main__.py", "folder/train.py", "here.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name.endswith("__init__.py") else REPORT if name != "here.py" else HERE)
    (tmp_path / "folder/here.py").write_text(HERE)
    (tmp_path / "link.py").symlink_to("folder/train.py")
    return tmp_path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["folder/train.py", "-m", "x"], "."),
        (["train.py"], "folder"),
        (["link.py", "1"], "."),
        (["../link.py"], "folder"),
        (["-m", "package", "--host", "-c"], "folder"),
        (["-m", "package.__main__"], "folder"),
        (["-c", REPORT, "-m", "1"], "."),
    ],
)
def test_a_program_finds_what_it_finds_when_it_is_started(
    programs: Path, words: list[str], folder: str, unbuffered: str
) -> None:
    command = [sys.executable, *words]
    (programs / "stdin").write_text("typed")
    outcomes = []
    environment = {**os.environ, "TENSIGHT_ONE": "of this test", "PYTHONUNBUFFERED": unbuffered}
    for start in (started, forked):
        with open(programs / "stdin") as stdin:
            outcomes.append(outcome(start(command, cwd=programs / folder, env=environment, stdin=stdin)))
    assert len(outcomes[0][1]) == 16
    assert outcomes[0] == outcomes[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "text",
    [
        "pass",
        "raise SystemExit(7)",
        "raise SystemExit('a word')",
        "import sys; sys.exit()",
        "import os; os._exit(5)",
        "import os; os.abort()",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "def f():\n    1 / 0\ntry:\n    f()\nexcept ArithmeticError as error:\n    raise ValueError('x') from error",
        "a = = b",
        "import sys\nsys.excepthook = lambda kind, error, trace: print(kind, error, trace.tb_lineno)\nint('x')",
        "import atexit\natexit.register(print, 'at the end')\nprint('before', end='')",
        "import threading as t\nt.Thread(target=lambda: (t.main_thread().join(), print('last'))).start()\n1/0",
        "import os\nos.close(1)\nprint('nowhere')",
    ],
)
def test_it_ends_as_it_ends_when_it_is_started(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    for command in (code(text), [sys.executable, str(tmp_path / "train.py")]):
        assert outcome(forked(command)) == outcome(started(command))


def test_an_interrupted_one_ends_by_the_signal() -> None:
    text = "import signal\nprint('ready', flush=True)\nsignal.pause()"
    with popen(code(text), NUMPY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_is_a_negative_exit_code(ended_by: signal.Signals) -> None:
    process = popen(code("input()"), NUMPY, stdin=subprocess.PIPE)
    process.send_signal(ended_by)
    assert process.wait(PATIENCE_S) == process.poll() == process.returncode == -ended_by
    process.kill()
    process.communicate()


def test_a_session_of_its_own_can_be_ended_as_one() -> None:
    text = "import os; print(os.getsid(0) == os.getpid(), flush=True); os.fork(); input()"
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    with popen(code(text), NUMPY, text=True, **options) as process:
        assert process.stdout
        assert process.stdout.readline() == "True\n"
        os.killpg(process.pid, signal.SIGKILL)
        # Both have gone: nobody holds the pipe.
        assert process.stdout.read() == ""
    assert process.returncode == -signal.SIGKILL


def test_streams_are_those_that_were_asked_for(tmp_path: Path) -> None:
    text = "import sys; print(input()); sys.stderr.write('wrong')"
    with open(tmp_path / "all", "w+") as file:
        options = {"stdout": file, "stderr": subprocess.STDOUT}
        with popen(code(text), NUMPY, stdin=subprocess.PIPE, text=True, **options) as process:
            assert process.communicate("typed\n", timeout=PATIENCE_S) == (None, None)
        file.seek(0)
        assert sorted(file.read().split()) == ["typed", "wrong"]
    with popen(code("print('bytes')"), NUMPY, stdout=subprocess.PIPE) as process:
        assert process.communicate(timeout=PATIENCE_S) == (b"bytes\n", None)


def test_one_leaves_nothing_to_the_next() -> None:
    first = """
    import builtins, numpy, os, sys
    builtins.left = sys.left = numpy.left = sys.modules["left"] = os.environ["LEFT"] = "left"
    numpy.linalg = None
    print("left" in vars(numpy))
    """
    assert output(textwrap.dedent(first)) == "True"
    text = """
    import builtins, numpy, os, sys
    print([hasattr(one, "left") for one in (builtins, sys, numpy)], "left" in sys.modules, "LEFT" in os.environ)
    print(numpy.linalg.__name__)
    """
    expected = "[False, False, False] False False\nnumpy.linalg"
    assert output(textwrap.dedent(text)) == expected


def test_each_draws_other_random_numbers() -> None:
    text = "import random, numpy, uuid; print(random.random(), numpy.random.rand(), uuid.uuid4())"
    drawn = [output(text).split() for _ in range(2)]
    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_an_import_is_noticed_where_the_program_imports() -> None:
    text = """
    import importlib.util, sys
    from tensight.agents.launch import when_imported
    when_imported("numpy", lambda: print("noticed", numpy_there()))
    numpy_there = lambda: "numpy" in sys.modules
    print(numpy_there(), importlib.util.find_spec("numpy").origin == importlib.util.find_spec("numpy").origin)
    print(numpy_there(), importlib.util.find_spec("numpy").submodule_search_locations is None)
    import numpy
    print(numpy_there(), "numpy.ma" in sys.modules, "ma" in vars(numpy), numpy.__spec__.loader is numpy.__loader__)
    import numpy.ma as masked
    print(masked is numpy.ma is sys.modules["numpy.ma"], masked.array([1], mask=[True]).sum())
    """
    expected = [
        "False True",
        "False False",
        "noticed True",
        "True False False True",
        "True --",
    ]
    assert output(textwrap.dedent(text)).splitlines() == expected


REPLACED = """\
import os, sys
installed = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
changing = ("TENSIGHT_RUN", "TENSIGHT_COMMAND")
environment = sorted((name, text) for name, text in os.environ.items() if name not in changing)
print(sys.argv, sys.orig_argv, sys.path, __name__, __file__, sorted(installed), environment)
print(sys.stdout, sys.stdin.read(), os.environ["TENSIGHT_RUN"].startswith(f"{os.getpid()}-"))
print([type(finder) for finder in sys.meta_path if "fork" not in repr(finder)])
import numpy, tensight
print(sorted({name for name in sys.modules if name.startswith("tensight")}))
sys.stderr.write(str("fork_server" in open("/proc/self/cmdline").read()))
raise ValueError("at the end")
"""


def test_what_tensight_run_becomes_is_run_in_the_same_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPLACED)
    words = ["-m", "tensight", "run", "--port", "9", "--capture", "ops", "train.py", "--port", "1", "x"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TENSIGHT_")}
    ends = []
    for start in (started, forked):
        with open(tmp_path / "train.py") as stdin:
            ends.append(start([sys.executable, *words], cwd=tmp_path, stdin=stdin, env=environment))
    assert ends[0].stdout.splitlines()[0].startswith("['train.py', '--port', '1', 'x']")
    assert (ends[0].returncode, ends[0].stdout) == (ends[1].returncode, ends[1].stdout)
    assert ends[1].stderr == ends[0].stderr.replace("False", "True")


def test_what_replaces_itself_when_it_has_imported_is_started() -> None:
    then = "import sys; print('numpy' in sys.modules, 'fork_' + 'server.py' in open('/proc/self/cmdline').read())"
    text = f"import numpy, sys; os.execve(sys.executable, [sys.executable, '-c', {then!r}], os.environ)"
    assert output(text) == "False False"


def test_modules_are_cleared_at_the_end_in_the_order_in_which_they_were_imported() -> None:
    text = "import sys, numpy, numpy.ma; print([name for name in sys.modules if name.startswith('numpy')])"
    assert outcome(forked(code(text))) == outcome(started(code(text)))


def test_what_is_not_deferred_is_there_at_once() -> None:
    imports = Imports(("numpy",), deferred=False)
    ended = run(
        code("import sys; print('numpy' in sys.modules)"), imports, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.stdout == "True\n"


def test_variables_that_libraries_read_when_they_are_imported_are_there_by_then() -> None:
    text = "import os, numpy; print(os.environ['OPENBLAS_NUM_THREADS'], len(os.listdir('/proc/self/task')))"
    assert output(text, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}) == "1 1"


def test_variables_that_a_program_sets_before_it_imports_are_set_only_by_then() -> None:
    imports = Imports(("numpy",), variables=(("OPENBLAS_NUM_THREADS", "1"),))
    text = "import os, numpy; print(os.environ.get('OPENBLAS_NUM_THREADS'), len(os.listdir('/proc/self/task')))"
    ended = run(code(text), imports, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout == "None 1\n"


TORCH = """
import torch
torch.set_num_threads(2)
weights = torch.ones(300, 300, requires_grad=True)
(weights @ weights).sum().backward()
torch.optim.SGD([weights], 0.1).step()
print(torch.get_num_threads(), float(weights.grad.sum()), torch.linalg.norm(weights.detach()).isfinite().item())
"""
ARROW = """
import numpy, pyarrow.compute
numbers = numpy.ones((300, 300))
print(float((numbers @ numbers).sum()), pyarrow.compute.sum(pyarrow.array(numbers.ravel())))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("imports", "text", "printed"),
    [(PYTORCH, TORCH, "2 54000000.0 True"), (DEBUG_SERVER, ARROW, "27000000.0 90000.0")],
)
def test_what_computes_in_threads_does_so_in_a_child(imports: Imports, text: str, printed: str) -> None:
    ended = run(code(text), imports, capture_output=True, text=True, timeout=PATIENCE_S)
    assert outcome(ended) == (0, [printed], "")


@pytest.mark.parametrize("variable", ["TENSIGHT_DEBUG", "ENABLE_MS_DEBUGGER"])
def test_the_debugger_waits_for_an_import_where_the_environment_asks_for_it(variable: str) -> None:
    text = "import sys; print([type(finder) for finder in sys.meta_path if 'tensight' in type(finder).__module__])"
    environment = {**os.environ, variable: "1"}
    assert output(text, env=environment) == started(code(text), env=environment).stdout.strip() != "[]"
    assert output(text) == "[]"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ([sys.executable, "-W", "ignore", "-c", "import os; print(os.getppid())"], {}),
        (["env", sys.executable, "-c", "import os; print(os.getppid())"], {}),
        (code("import os; print(os.getppid())"), {"umask": 0o77}),
        (code("import os; print(os.getppid())"), {"env": {**os.environ, "COVERAGE_PROCESS_START": "pyproject.toml"}}),
        (code("import os; print(os.getppid())"), {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}),
        (code("import os; print(os.getppid())"), {"env": {**os.environ, "OMP_NUM_THREADS": "3"}}),
        (code("import os; print(os.getppid())"), {"env": {**os.environ, "TENSIGHT_KERNELS": "portable"}}),
    ],
)
def test_what_cannot_be_forked_is_started(command: list[str], options: dict[str, Any]) -> None:
    assert forked(command, **options).stdout.split() == [str(os.getpid())]


def test_where_a_script_is_missing_the_interpreter_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(tmp_path / "train.py")]
    assert outcome(forked(command)) == outcome(started(command))


def test_one_that_takes_too_long_is_killed() -> None:
    reads, writes = os.pipe()
    with pytest.raises(subprocess.TimeoutExpired):
        run(code("input()"), NUMPY, stdin=reads, timeout=0.1)
    os.close(reads)
    with pytest.raises(BrokenPipeError):
        os.write(writes, b"nobody reads")
    os.close(writes)


def test_an_exit_code_that_is_none_of_success_is_an_error_where_that_is_asked() -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        run(code("print('x'); exit(3)"), NUMPY, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert (error.value.returncode, error.value.stdout) == (3, "x\n")


def test_what_cannot_be_imported_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ForkServerError, match="no_such_module"):
        popen(code("pass"), Imports(("no_such_module",)))
    assert "No module named 'no_such_module'" in capfd.readouterr().err


TESTS = """
import os, signal, sys
from tests.processes.forked import Imports, popen
process = popen([sys.executable, "-c", "print(__import__('os').getppid(), flush=True)"], Imports(()))
process.wait()
END
"""


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        # Somebody has a copy of its descriptors, and lives longer.
        "os.fork() or (os.closerange(0, 3), signal.sigtimedwait([], 10), os._exit(0)); os.kill(os.getpid(), 9)",
    ],
)
def test_the_server_ends_with_its_test_process_however_that_ends(end: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = TESTS.replace("END", end)
    with subprocess.Popen(code(program), stdout=subprocess.PIPE, text=True, env=environment) as tests:
        assert tests.stdout
        server = int(tests.stdout.readline())
        end = ProcessEnd(server)
        tests.stdout.read()
    assert end.comes_within(PATIENCE_S)


def test_one_that_was_started_by_another_thread_is_awaited_by_several() -> None:
    def wait(process: subprocess.Popen[Any]) -> int:
        return process.wait(PATIENCE_S)

    with ThreadPoolExecutor(8) as threads:
        processes = list(threads.map(lambda number: popen(code(f"exit({number})"), NUMPY), range(4)))
        assert list(threads.map(wait, processes * 4)) == [0, 1, 2, 3] * 4
