"""The table of all commands, and the parser that runs them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Annotated, Any, NamedTuple

import typer
import typer.core

from tensight.cli.exit_codes import Stopped


class Entry(NamedTuple):
    """The description of a command without importing it: importing all commands takes as long as a small command.

    Attributes
    ----------
    function : str
        Module in `tensight.cli` and function, with a dot between.
    summary : str
        The first line of its docstring.
    section : str
        Section of the help.
    script_last : bool
        Whether everything after the script's name is passed to the script.
    """

    function: str
    summary: str
    section: str
    script_last: bool = False


TRAININGS, SERVER, DUMPS = "Trainings", "Debug server", "Dumps and recordings"
"""Sections of the help."""

COMMANDS = {
    "demo": Entry(
        "demo.demo",
        "Train a small PyTorch network in which something goes wrong, and name the operator and the line of code.",
        TRAININGS,
    ),
    "run": Entry(
        "run.run",
        "Run a training script under the debugger, unchanged: everything after its name is its own.",
        TRAININGS,
        script_last=True,
    ),
    "trace": Entry(
        "trace.trace",
        "Run a training script and write statistics and content hashes of everything it computes, for each rank.",
        TRAININGS,
        script_last=True,
    ),
    "selftest": Entry(
        "selftest.selftest",
        "Run a training with and without the debugger, and tell whether the result is the same and what it costs.",
        TRAININGS,
        script_last=True,
    ),
    "search": Entry(
        "search.search",
        "Search hyper-parameters: trials run under the debugger, and trials with anomalies are pruned at once.",
        TRAININGS,
    ),
    "diagnose": Entry(
        "diagnose.diagnose",
        "Say why a training does not learn: run it for a while, or read what it has recorded.",
        TRAININGS,
        script_last=True,
    ),
    "explain": Entry(
        "explain.explain",
        "Say what a rule of `tensight diagnose` finds, what it is silent about, and what to do; or list all rules.",
        TRAININGS,
    ),
    "doctor": Entry(
        "doctor.doctor",
        "Run a training a few times: whether it is repeatable, and what experiments with its models show.",
        TRAININGS,
        script_last=True,
    ),
    "start": Entry(
        "start.start",
        "Start the debug server: training processes attach to it, browsers and programs drive them.",
        SERVER,
    ),
    "stop": Entry(
        "stop.stop",
        "Stop the debug server of a workspace, and wait until it has ended; waiting training processes are notified.",
        SERVER,
    ),
    "status": Entry(
        "status.status",
        "Show the debug server of a workspace and its sessions; exits with 1 if none is running.",
        SERVER,
    ),
    "info": Entry("info.info", "Show what a dump contains: framework, graphs, ranks, steps, files.", DUMPS),
    "check": Entry(
        "check.check",
        "Check watchpoints on every tensor; exit code 1 when something hits. See also: check checkpoint.",
        DUMPS,
    ),
    "origin": Entry(
        "origin.origin",
        "Name the operator and the line of code where NaN, Inf, an explosion or all-zero values began.",
        DUMPS,
    ),
    "nodes": Entry("nodes.nodes", "Find nodes by name, operator type, kind, or a line of their stack.", DUMPS),
    "stats": Entry(
        "stats.stats",
        "Show the statistics of all tensors: the largest, those with most zeros, or whatever a query asks.",
        DUMPS,
    ),
    "show": Entry("show.show", "Show the values of one tensor: statistics, histogram, numbers.", DUMPS),
    "compare-steps": Entry("show.compare_steps", "Show how a tensor moved from step I to step J.", DUMPS),
    "export": Entry("export.export", "Write graphs (--xlsx) or tensors (--npz) into a file for other tools.", DUMPS),
    "convert": Entry(
        "convert.convert", "Write a dump anew with every binary tensor as an npy file that NumPy opens.", DUMPS
    ),
}
COMPARISONS = ("compare_checkpoints.checkpoints", "compare_losses.losses", "compare_runs.runs", "compare_setups.setups")
COMPARE = "Compare two runs, checkpoints, loss curves or set-ups."


def stoppable(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that raises `Stopped` on Ctrl-C."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            raise Stopped from None

    return run


class _PlainFlags:
    """Lists flags as such: newer versions of typer print ``<bool>`` beside them, as if they had a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, and the option for the help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(_PlainFlags, typer.core.TyperCommand):
    """A command that lists its flags as such."""


class _Comparisons(_PlainFlags, typer.core.TyperGroup):
    """The commands of `compare`."""


def command_of(function: str, **settings: Any) -> Any:
    """Return the command for a function in a module of `tensight.cli`, written ``module.function``."""
    module, _, name = function.partition(".")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(cls=PlainCommand, context_settings=settings)(
        stoppable(getattr(importlib.import_module(f"tensight.cli.{module}"), name))
    )
    return typer.main.get_command(single)


def _comparisons() -> Any:
    compare = typer.Typer(
        name="compare",
        cls=_Comparisons,
        help=COMPARE,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
    )
    for function in COMPARISONS:
        module, _, name = function.partition(".")
        compare.command(cls=PlainCommand)(stoppable(getattr(importlib.import_module(f"tensight.cli.{module}"), name)))
    return typer.main.get_command(compare)


class _LateCommands(MutableMapping[str, Any]):
    """Commands by their names, each imported on first use."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a command."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        """Add an existing command object."""
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        """Raise NotImplementedError: commands cannot be removed."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        """Return the names, in the order in which they are listed."""
        return iter((*COMMANDS, "compare"))

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(COMMANDS) + 1

    def _make(self, name: str) -> Any:
        if name == "compare":
            return _comparisons()
        entry = COMMANDS[name]
        command = command_of(entry.function, **({"allow_interspersed_args": False} if entry.script_last else {}))
        command.name = name
        return command


class _Commands(_PlainFlags, typer.core.TyperGroup):
    """The commands, including `check checkpoint`, whose first word is also a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _LateCommands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command at the start of the words; a dump called "checkpoint" is checked as ./checkpoint."""
        if args[:2] == ["check", "checkpoint"]:
            command = command_of("compare_checkpoints.checkpoint", help_option_names=list(HELP))
            return "check checkpoint", command, args[2:]
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help from names and summaries; importing rich would take longer than everything else."""
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.help or "")
        options = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        sections = {"Options": options}
        for name, entry in COMMANDS.items():
            sections.setdefault(entry.section, []).append((name, entry.summary))
        sections["Comparisons"] = [("compare", COMPARE)]
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


HELP = ("-h", "--help")
app = typer.Typer(
    name="tensight",
    cls=_Commands,
    help="Find the operator and the line of code where a tensor of a training run went wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": list(HELP)},
)


def version(is_requested: bool) -> None:
    """Print the installed version and exit, if requested."""
    if is_requested:
        from tensight.installations import described

        typer.echo(described("tensight"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print version, commit and kernels.")
    ] = False,
) -> None:
    """Find the operator and the line of code where a tensor of a training run went wrong."""


command_line = typer.main.get_command(app)
"""Parses a command line and runs the command. Calling `app` would rebuild it each time."""
