"""Time five conditions over all tensors with `mindinsight.debugger` or `tensight.debugger`, in a fresh process.

usage: python original_check.py {mindinsight,tensight} DUMP REPEATS

Prints one JSON object: seconds of each check, seconds of each check again with other thresholds, hits, tensors,
and the peak memory of the process.
"""

import importlib
import json
import resource
import sys
import time


def watchpoints(debugger, tensors, scale):
    """Return the five conditions of the benchmark; `scale` moves every threshold."""
    return [
        debugger.Watchpoint(tensors, condition)
        for condition in (
            debugger.TensorTooLargeCondition(max_gt=10.0 * scale, min_gt=0.5 * scale, mean_gt=1.0 * scale),
            debugger.TensorOverflowCondition(),
            debugger.TensorAllZeroCondition(zero_percentage_ge=90.0 / scale),
            debugger.TensorRangeCondition(
                range_start_inclusive=-0.5, range_end_inclusive=0.5, range_percentage_gt=80.0 / scale
            ),
            debugger.TensorUnchangedCondition(rtol=1e-5 * scale),
        )
    ]


def main():
    """Run the benchmark named on the command line."""
    package, dump, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    started = time.perf_counter()
    debugger = importlib.import_module(f"{package}.debugger")
    imported = time.perf_counter()
    analyzer = debugger.DumpAnalyzer(dump)
    tensors = [
        tensor
        for tensor in analyzer.select_tensors(".*", use_regex=True)
        if tensor.node.name and tensor.iteration is not None
    ]
    opened = time.perf_counter()
    seconds, again, hits = [], [], 0
    for number in range(repeats):
        for times, scale in ((seconds, 1.0), (again, 1.5 + number)):
            points = watchpoints(debugger, tensors, scale)
            begin = time.perf_counter()
            hits = len(analyzer.check_watchpoints(points))
            times.append(time.perf_counter() - begin)
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    result = {
        "import_s": imported - started,
        "open_s": opened - imported,
        "check_s": seconds,
        "again_s": again,
        "hits": hits,
        "tensors": len(tensors),
        "peak_mb": memory / 1024,
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
