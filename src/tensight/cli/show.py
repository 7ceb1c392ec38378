"""`tensight show` and `tensight compare-steps`: the values of one tensor, and its change between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensight.cli.options import DumpArgument, Json
from tensight.cli.output import console, number, print_json, print_problems, size, table
from tensight.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from tensight.dumps import StatisticRow, TensorFile, TracedRow
    from tensight.tensors import TensorStatistics

MOST_PRINTED = 1000
BAR_WIDTH = 40
BINS = 16
Rank = Annotated[int | None, typer.Option("--rank", help="Rank. Default: the first that has the tensor.")]


def show(
    dump: DumpArgument,
    tensor: Annotated[
        str, typer.Argument(metavar="TENSOR", help="For example conv1.weight@3, Conv2D-op61:0@2 or ReLU-op3:input.0@2.")
    ],
    slice_: Annotated[
        str | None,
        typer.Option("--slice", metavar='"[0, :, 0:8]"', help="Which part to print, one entry for each dimension."),
    ] = None,
    rank: Rank = None,
    json: Json = False,
) -> None:
    """Show the values of one tensor: statistics, histogram, numbers."""
    from rich.markup import escape

    from tensight.dumps import open_dump, read_tensor
    from tensight.tensors import histogram, parse_slice, statistics

    opened = open_dump(dump)
    file = opened.find(tensor, rank)
    if file.recorded is not None:
        _show_recorded(file, file.recorded, json=json)
        print_problems(opened.problems if not json else ())
        return
    values = read_tensor(file)
    part = values if slice_ is None else values[parse_slice(slice_, values.shape)]
    part_statistics = statistics(part)
    if json:
        print_json(
            {
                "address": str(file.address) if file.address is not None else None,
                "file": file.path,
                "slice": slice_,
                "statistics": statistics_data(part_statistics),
                "values": part.tolist() if part.size <= MOST_PRINTED else None,
            }
        )
        return
    out = console()
    _print_heading(out, file, values)
    if slice_ is not None:
        out.print(f"  part {escape(slice_)}: shape {list(part.shape)}")
    _print_statistics(out, part_statistics)
    if part_statistics.finite_count > 1 and values.dtype.kind not in "b":
        bars = histogram(part, bins=BINS)
        _print_histogram(out, bars.counts.tolist(), bars.edges.tolist())
    _print_values(out, part)
    print_problems(opened.problems)


def _show_recorded(file: TensorFile, recorded: StatisticRow | TracedRow, *, json: bool) -> None:
    """Show the recorded statistics of a tensor without values."""
    from rich.markup import escape

    from tensight.dumps import TracedRow

    about = {"dtype": recorded.data_type, "shape": list(recorded.shape), "size_bytes": recorded.data_size}
    if json:
        address = str(file.address) if file.address is not None else None
        recorded_data = {**about, "statistics": dict(recorded.values)}
        print_json({"address": address, "file": file.path, "slice": None, "recorded": recorded_data, "values": None})
        return
    out = console()
    out.print(f"[bold]{escape(str(file.address or file.op_name))}[/]")
    kind = f"{recorded.data_type}, shape {list(recorded.shape)}, {size(recorded.data_size)}"
    out.print(f"  {escape(f'{file.op_type}, {kind}')}")
    what = f"Only statistics were recorded, in {escape(file.name)}"
    if isinstance(recorded, TracedRow):
        what = "A trace has statistics and a hash of the content"
    out.print(f"  [yellow]{what}; there are no values to show.[/]")
    for name, value in recorded.values.items():
        shown = value if isinstance(value, str) else number(value, 6)
        out.print(f"  {escape(f'{name:20s} {shown}')}")
    if file.older:
        out.print(f"  [yellow]recorded {len(file.older) + 1} times in this step; the newest is shown[/]")


def compare_steps(
    dump: DumpArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A tensor without its step, for example conv1.weight.")],
    first: Annotated[int, typer.Argument(metavar="I", help="The earlier step.")],
    second: Annotated[int, typer.Argument(metavar="J", help="The later step.")],
    rank: Rank = None,
    json: Json = False,
) -> None:
    """Show how a tensor moved from step I to step J."""
    from tensight.dumps import open_dump, read_tensor
    from tensight.tensors import MEASURES, changes, statistics

    if "@" in node:
        raise InputError(f"{node!r}: leave out the step, it follows as I and J")
    opened = open_dump(dump)
    files = [opened.find(f"{node}@{step}", rank) for step in (first, second)]
    before, after = (read_tensor(file) for file in files)
    if before.shape != after.shape:
        raise InputError(
            f"{node} has shape {before.shape} at step {first} and {after.shape} at {second}: nothing to compare"
        )
    moved = changes(after, before)
    sides = [statistics(before), statistics(after)]
    data = {
        "mean_abs_change": moved.mean_abs_change,
        "mean_abs_previous": moved.mean_abs_previous,
        "update_ratio": moved.update_ratio,
        "max_abs_change": moved.max_abs_change,
        "l2_change": moved.l2_change,
        "required_rtol": moved.required_rtol,
    }
    if json:
        print_json({"first": statistics_data(sides[0]), "second": statistics_data(sides[1]), "change": data})
        return
    out = console()
    _print_heading(out, files[1], after)
    rows = table("", f"step {first}", f"step {second}", right=(f"step {first}", f"step {second}"))
    for name in (*MEASURES, "zero_count", "nan_count", "pos_inf_count", "neg_inf_count"):
        rows.add_row(name, *(number(getattr(side, name)) for side in sides))
    out.print(rows)
    for name, value in data.items():
        out.print(f"  {name:18s} {number(value)}")
    if sides[0].content_hash == sides[1].content_hash:
        out.print("  [yellow]The two are identical.[/]")


def statistics_data(statistics: TensorStatistics) -> dict[str, object]:
    """Return statistics as JSON data."""
    return {**statistics.as_row(), "shape": list(statistics.shape)}


def _print_heading(out: Console, file: TensorFile, values: NDArray[Any]) -> None:
    from rich.markup import escape

    out.print(f"[bold]{escape(str(file.address or file.name))}[/]")
    out.print(f"  {escape(file.op_type)}, {values.dtype}, shape {list(values.shape)}, {size(values.nbytes)}")
    if file.older:
        out.print(f"  [yellow]written {len(file.older) + 1} times in this step; the newest is shown[/]")


def _print_statistics(out: Console, statistics: TensorStatistics) -> None:
    fields = ("count", "min", "max", "mean", "std", "l2_norm", "zero_count", "negative_count", "positive_count")
    bad = ("nan_count", "pos_inf_count", "neg_inf_count")
    rows = table(*(name.removesuffix("_count") for name in (*fields, *bad)))
    values = {name: getattr(statistics, name) for name in (*fields, *bad)}
    rows.add_row(
        *(number(values[name]) for name in fields),
        *(f"[red]{number(values[name])}[/]" if values[name] else "0" for name in bad),
    )
    out.print(rows)


def _print_histogram(out: Console, counts: list[int], edges: list[float]) -> None:
    most = max(counts, default=0)
    if not most or edges[0] == edges[-1]:
        return
    for amount, low, high in zip(counts, edges, edges[1:], strict=False):
        bar = "█" * round(BAR_WIDTH * amount / most) or ("▏" if amount else "")
        out.print(f"  {number(low, 4):>11} … {number(high, 4):<11} [cyan]{bar:<{BAR_WIDTH}}[/] {amount:,}")
    out.print()


def _print_values(out: Console, values: NDArray[np.generic]) -> None:
    import numpy as np
    from rich.markup import escape

    with np.printoptions(
        precision=5, threshold=MOST_PRINTED if values.size <= MOST_PRINTED else 50, linewidth=out.width - 4
    ):
        for line in str(values).splitlines():
            out.print(f"  {escape(line)}", soft_wrap=True)
