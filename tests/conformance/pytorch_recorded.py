"""Asks the same of a recorded PyTorch training with the original's DumpAnalyzer and with ours.

    python pytorch_recorded.py FOLDER --golden tests/conformance/golden

Runs in the environment with mindinsight 2.0.0 and writes the golden answers about the recorded run in FOLDER; the tests
import `answers` and ask ours about one that they record themselves.
"""

import argparse
import json
import os

GOLDEN = "pytorch-recorded.json"


def watchpoints(api, tensors):
    """Conditions of each kind: of values, of counts, and of what changed since the step before."""
    return [
        api.Watchpoint(tensors, condition)
        for condition in (
            api.TensorTooLargeCondition(max_gt=500),
            api.TensorTooSmallCondition(abs_mean_lt=0.01),
            api.TensorRangeCondition(range_start_inclusive=-0.1, range_end_inclusive=0.1, range_percentage_gt=60),
            api.TensorAllZeroCondition(zero_percentage_ge=40),
            api.TensorOverflowCondition(),
            api.TensorChangeAboveThresholdCondition(abs_mean_update_ratio_gt=0.05),
            api.TensorUnchangedCondition(rtol=1e-3),
        )
    ]


def rounded(value):
    """Four digits: the last ones depend on the processor."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def hit_of(hit):
    """A hit as plain data."""
    detail = hit.get_hit_detail()
    measured = [] if detail is None else [[p.name, rounded(p.actual_value)] for p in detail.param_dict if p.hit]
    tensor = hit.tensor
    return [tensor.node.name, tensor.slot, tensor.iteration, hit.get_threshold().name, hit.error_code, measured]


def values_of(tensor):
    """Shape of a tensor and how large it is in all, or nothing if it was not recorded."""
    value = tensor.value()
    return None if value is None else [list(value.shape), rounded(float(abs(value.astype("float64")).sum()))]


def answers(api, folder):
    """What a person is told about a recorded run; `api` is either package."""
    analyzer = api.DumpAnalyzer(folder)
    operators = sorted(node.name for node in analyzer.select_nodes(".", use_regex=True))
    tensors = analyzer.select_tensors(".", use_regex=True)
    hits = analyzer.check_watchpoints(watchpoints(api, tensors))
    linear = analyzer.select_nodes("Default/fc2/Linear_fc2-op0")[0]
    return {
        "iterations": analyzer.get_iterations(),
        "nodes": operators,
        "inputs of a node": sorted(node.name for node in analyzer.get_input_nodes(linear)),
        "outputs of a node": sorted(node.name for node in analyzer.get_output_nodes(linear)),
        "line of a node": [[os.path.basename(frame.file_path), frame.line_no] for frame in linear.stack],
        "hits": sorted((hit_of(hit) for hit in hits), key=json.dumps),
        "values": sorted(
            [tensor.node.name, tensor.slot, tensor.iteration, values_of(tensor)]
            for tensor in tensors
            if tensor.iteration == 2
        ),
    }


def main():
    import mindinsight.debugger

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--golden", required=True)
    options = parser.parse_args()
    told = answers(mindinsight.debugger, options.folder)
    lines = ",\n".join(json.dumps(what) + ": " + json.dumps(answer, sort_keys=True) for what, answer in told.items())
    with open(os.path.join(options.golden, GOLDEN), "w") as file:
        file.write("{\n" + lines + "\n}\n")
    print("recorded", len(told["hits"]), "hits of the original's analyzer in a recorded PyTorch training")


if __name__ == "__main__":
    main()
