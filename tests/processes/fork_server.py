"""The fork server: an interpreter that has imported what takes long to import, and forks for each start.

`forked.py` runs this file in the interpreter that a test would start, and says there when. It imports nothing of ours,
since it runs in environments that have nothing but a framework.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.machinery
import io
import json
import os
import runpy
import select
import signal
import site
import socket
import sys
import threading
import types
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

LARGEST_REQUEST_BYTES = 2**18
START_FILE = "tensight_debug.pth"
"""What the wheel puts into site-packages, for the interpreter to run when it starts."""
MOST_DESCRIPTORS = 32
"""That come with a request: those of the process, and where to report its id and its exit code."""


class Start(NamedTuple):
    """What a process is started with.

    Attributes
    ----------
    command : list of str
        The interpreter; a script, or ``-m`` and a module, or ``-c`` and code; arguments.
    environment : dict of str to str
    folder : str
        Where it runs.
    session : bool
        Whether it gets a session of its own.
    descriptors : tuple of int
        What it has open; stdin, stdout and stderr among them.
    numbers : sequence of int
        The descriptor that each of them is in the process.
    is_bound : bool
        Whether the process, and its session, is killed when nobody can read its report any more.
    """

    command: list[str]
    environment: dict[str, str]
    folder: str
    session: bool
    descriptors: tuple[int, ...]
    numbers: Sequence[int] = (0, 1, 2)
    is_bound: bool = False


def main(control: socket.socket, worker: int, modules: Sequence[str], *, deferred: bool) -> None:
    """Import modules, and fork until the test process has ended; in each child, run what it was forked for.

    Parameters
    ----------
    control : socket
        Brings a message for each start.
    worker : int
        Id of the test process.
    modules : sequence of str
        What is imported, each after those that it needs.
    deferred : bool
        Whether a child finds the modules imported only when it imports them, as in a fresh interpreter.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    # Ctrl-C is for the tests and for the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups = [(module, _import(module)) for module in modules]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # What is imported stays. A child that looked for garbage there would copy all of it, and take a second at its end.
    gc.collect()
    gc.freeze()
    start = serve(control, worker)
    signal.signal(signal.SIGINT, interrupt)
    become(start)
    ended = SystemExit()
    try:
        _run(start.command, groups if deferred else None)
    except SystemExit as raised:
        ended = raised
    # Here, where what runs at the end finds no exception that is being handled.
    end(ended)
    raise ended


def _run(command: list[str], hidden_groups: list[tuple[str, list[str]]] | None) -> None:
    """Run a command, and what it puts in its own place.

    Parameters
    ----------
    command : list of str
    hidden_groups : list of tuple or None
        The modules that it finds imported only when it imports them.
    """
    if hidden_groups is None:
        run(command)
        return
    hidden = DeferredImports(hidden_groups)
    hidden.install()
    fresh = FreshInterpreter(hidden)
    os.execve = fresh.execve
    while True:
        start_up()
        try:
            run(command)
            return
        except Replaced as replaced:
            command, environment = replaced.args
        fresh.restore(environment)


def start_up() -> None:
    """Run the line that starts the debugger where the environment asks for it, as the interpreter does at its start."""
    for folder in site.getsitepackages():
        file = os.path.join(folder, START_FILE)
        if os.path.isfile(file):
            with open(file) as lines:
                exec(lines.read(), {})  # noqa: S102 - as the interpreter does


def end(ended: SystemExit) -> None:
    """End this process as the interpreter does, but for taking down all modules: with PyTorch that is half a second.

    Returns if something could not be written; the interpreter then says so when it ends.

    Parameters
    ----------
    ended : SystemExit
        Its code is None, a number, or what is printed.
    """
    code = ended.code
    if not isinstance(code, (int, type(None))):
        print(code, file=sys.stderr)
        ended.code = code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit((code or 0) & 0xFF)


def _import(module: str) -> list[str]:
    """Import a module, and return the names of all that came with it, in order: modules are cleared in it."""
    before = set(sys.modules)
    importlib.import_module(module)
    return [name for name in sys.modules if name not in before]


def serve(control: socket.socket, worker: int) -> Start:
    """Fork for each start; return in the child. The server itself ends here, with the test process."""
    waits = select.poll()
    worker_ends = os.pidfd_open(worker)
    waits.register(control, select.POLLIN)
    waits.register(worker_ends, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    bound: dict[int, int] = {}
    while True:
        # One at a time: what is done about it may close the descriptor of another one.
        descriptor, _ = waits.poll()[0]
        if descriptor in children:
            waits.unregister(descriptor)
            child, report = children.pop(descriptor)
            if bound.pop(report, None) is not None:
                waits.unregister(report)
            _report_end(descriptor, child, report)
            continue
        if descriptor in bound:
            waits.unregister(descriptor)
            _kill(bound.pop(descriptor))
            continue
        received = receive(control) if descriptor == control.fileno() else None
        if received is None:
            os._exit(0)
        start, report = received
        child = _fork()
        if child == 0:
            control.close()
            for each in (worker_ends, report, *children, *(other for _, other in children.values())):
                os.close(each)
            return start
        for each in start.descriptors:
            os.close(each)
        _write(report, child)
        ends = os.pidfd_open(child)
        children[ends] = (child, report)
        waits.register(ends, select.POLLIN)
        if start.is_bound:
            bound[report] = child
            waits.register(report, 0)  # that nobody reads it is always said


def receive(control: socket.socket) -> tuple[Start, int] | None:
    """Return the next start, and where its process is reported; None when nobody can send any more."""
    message, descriptors, _, _ = socket.recv_fds(control, LARGEST_REQUEST_BYTES, MOST_DESCRIPTORS)
    if not message:
        return None
    *passed, report = descriptors
    return Start(**json.loads(message), descriptors=tuple(passed)), report


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads: OpenBLAS ends its own before a fork, and so does jemalloc.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _kill(child: int) -> None:
    """Kill a child, and what it started in its session, which it may not have yet."""
    os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _report_end(descriptor: int, child: int, report: int) -> None:
    os.close(descriptor)
    _, status = os.waitpid(child, 0)
    _write(report, os.waitstatus_to_exitcode(status))
    os.close(report)


def _write(report: int, number: int) -> None:
    # Whoever started it may have gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(report, b"%d\n" % number)


def become(start: Start) -> None:
    """Give this process what a process is started with."""
    if start.session:
        os.setsid()
    # One may have the number that another is to get.
    above = max((*start.descriptors, *start.numbers)) + 1
    for offset, descriptor in enumerate(start.descriptors):
        os.dup2(descriptor, above + offset)
    for descriptor in start.descriptors:
        os.close(descriptor)
    for offset, number in enumerate(start.numbers):
        os.dup2(above + offset, number)
        os.close(above + offset)
    sys.executable = start.command[0]
    _make_streams()
    os.chdir(start.folder)
    _set_environment(start.environment)
    importlib.invalidate_caches()
    random: Any = sys.modules.get("numpy.random")
    if random is not None:
        # Each process draws other random numbers; Python sees to its own ones.
        random.seed()


def _set_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _make_streams() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, server: Any) -> io.TextIOWrapper:
    """Return a standard stream as the interpreter makes it: each remembers whether it is a file, a pipe or a terminal.

    Parameters
    ----------
    number : int
        Its descriptor.
    server : file object
        That of the fork server.
    """
    buffering = 0 if isinstance(server.buffer, io.FileIO) else -1
    binary: Any = open(number, "rb" if number == 0 else "wb", buffering, closefd=False)  # noqa: SIM115 - stays open
    (binary if buffering == 0 else binary.raw).name = server.name
    stream = io.TextIOWrapper(
        binary,
        server.encoding,
        server.errors,
        newline="\n",
        line_buffering=server.line_buffering or binary.isatty(),
        write_through=server.write_through,
    )
    stream.mode = server.mode
    return stream


class DeferredImports:
    """A finder of modules that are imported, and are in `sys.modules` only from when they are asked for.

    So the first ``import torch`` of a script is noticed by whoever waits for it, and what a program finds imported is
    what it would find in a fresh interpreter.

    Parameters
    ----------
    groups : sequence of tuple
        Each module that was imported, and the names of all modules that came with it.
    """

    def __init__(self, groups: Sequence[tuple[str, list[str]]]) -> None:
        self._groups = [(module, list(filter(_is_installed, names))) for module, names in groups]
        self._hidden: dict[str, types.ModuleType] = {}

    def install(self) -> None:
        """Hide the modules."""
        for module, names in self._groups:
            self._hidden.update({name: sys.modules.pop(name) for name in names})
            package, _, name = module.rpartition(".")
            if package in self._hidden:
                delattr(self._hidden[package], name)
        sys.meta_path.insert(0, self)

    @property
    def shown(self) -> bool:
        """Whether any was asked for."""
        return len(self._hidden) < sum(len(names) for _, names in self._groups)

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Return a specification of a module that is hidden; that does not show it."""
        module = self._hidden.get(name)
        spec = getattr(module, "__spec__", None)
        if spec is None:
            return None
        found = importlib.machinery.ModuleSpec(name, _HiddenModule(self, spec), origin=spec.origin)
        found.submodule_search_locations = spec.submodule_search_locations
        found.has_location = spec.has_location
        return found

    def show(self, name: str) -> types.ModuleType:
        """Put a module back, and what came with it: all that its import would have imported."""
        module = self._hidden[name]
        place = next(place for place, (_, names) in enumerate(self._groups) if name in names)
        package = name.partition(".")[0]
        if self._groups[place][0].partition(".")[0] == package:
            shown = [other for _, names in self._groups[: place + 1] for other in names]
        else:
            # Something that the module needs was asked for by itself.
            shown = [other for other in self._groups[place][1] if other.partition(".")[0] == package]
        for other in shown:
            if other in self._hidden:
                sys.modules[other] = self._hidden.pop(other)
        return module


def _is_installed(name: str) -> bool:
    """Whether a module is none of Python's own: those may stay."""
    return name.partition(".")[0] not in sys.stdlib_module_names


class _HiddenModule:
    """A loader that shows the module; one for each, since others may replace its methods."""

    def __init__(self, hidden: DeferredImports, spec: importlib.machinery.ModuleSpec) -> None:
        self._hidden = hidden
        self._spec = spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._hidden.show(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class Replaced(BaseException):
    """This process is to run another program; has its command and its environment."""


class FreshInterpreter:
    """What a program finds that another one starts in its place, as `tensight run` does with `os.execve`.

    Parameters
    ----------
    hidden : DeferredImports
    """

    def __init__(self, hidden: DeferredImports) -> None:
        self._hidden = hidden
        self._modules = set(sys.modules)
        self._path, self._finders = list(sys.path), list(sys.meta_path)
        self._execve = os.execve

    def execve(self, path: str, command: list[str], environment: dict[str, str]) -> None:
        """Stands in for `os.execve`: run a script, a module or code here, and replace the process by anything else.

        Raises
        ------
        Replaced
            It is to be run here.
        """
        runs = len(command) > 1 and (command[1] in ("-m", "-c") or os.path.isfile(command[1]))
        if path != sys.executable or not runs or self._hidden.shown or any(map(_is_extension, self._imported())):
            self._execve(path, command, environment)
        raise Replaced(command, dict(environment))

    def restore(self, environment: dict[str, str]) -> None:
        """Forget the program that was run, for another one in an environment."""
        for name in self._imported():
            del sys.modules[name]
        sys.path[:], sys.meta_path[:] = self._path, self._finders
        os.execve = self._execve
        _make_streams()
        _set_environment(environment)
        importlib.invalidate_caches()

    def _imported(self) -> list[str]:
        return [name for name in sys.modules if name not in self._modules and _is_installed(name)]


def _is_extension(name: str) -> bool:
    """Whether a module is compiled: such a one may not be imported a second time."""
    return (getattr(sys.modules[name], "__file__", None) or "").endswith(".so")


def run(command: list[str]) -> None:
    """Run a script, a module or code as `__main__`, as the interpreter does; return or raise as that does."""
    sys.orig_argv = list(command)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins, __loader__=importlib.machinery.BuiltinImporter)
    error = _error_of(command, main)
    if error is None:
        return
    # The lines of this file are nobody's.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    raise SystemExit(1)


def _error_of(command: list[str], main: types.ModuleType) -> Exception | None:
    _, first, *rest = command
    try:
        if first == "-m":
            sys.argv, sys.path[0] = command[1:2] + rest[1:], os.getcwd()
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        elif first == "-c":
            sys.argv, sys.path[0] = command[1:2] + rest[1:], ""
            exec(compile(rest[0], "<string>", "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - what it is for
        else:
            sys.argv, sys.path[0] = command[1:], os.path.dirname(os.path.realpath(first))
            path = os.path.join(os.getcwd(), first)
            loader = importlib.machinery.SourceFileLoader("__main__", path)
            main.__dict__.update(__file__=path, __loader__=loader, __cached__=None)
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
            exec(code, main.__dict__)  # noqa: S102 - what it is for
    except Exception as error:
        return error
    return None
