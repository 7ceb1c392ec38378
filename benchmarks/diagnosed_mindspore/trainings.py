"""Trainings on MindSpore: what is wrong with each, and where; see ../diagnosed/cases.py.

`FAULTY` have a planted fault each; `HEALTHY` have none. Those with "graph" in their name run in GRAPH_MODE.
"""

from __future__ import annotations

from cases import Case, Healthy

FAULTY = (
    Case("outputs", "classifier", "softmax-first", ("output-and-loss",), ("softmax",), "nn.Softmax()] if"),
    Case("outputs", "classifier-graph", "softmax-in-graph", ("output-and-loss",), ("softmax",), "nn.Softmax(axis=-1)"),
    Case("outputs", "likelihood", "scores-for-nll", ("output-and-loss",), ("nll",), "return scores"),
    Case("outputs", "likelihood-graph", "scores-for-nll", ("output-and-loss",), ("nll",), "return scores"),
    Case("outputs", "likelihood", "axis-of-batch", ("output-and-loss",), ("axis",), "axis=0"),
    Case("outputs", "likelihood-graph", "axis-of-batch", ("output-and-loss",), ("axis",), "axis=0"),
    Case("outputs", "labels-graph", "sigmoid-twice", ("output-and-loss",), ("sigmoid",), "nn.Sigmoid()] if"),
    Case("outputs", "labels", "softmax-over-labels", ("output-and-loss",), ("softmax",), "nn.Softmax() if"),
    Case("outputs", "regression", "column-against-row", ("broadcasting",), ("mseloss", "32×32"), "values[:, 0]"),
    Case("outputs", "regression-graph", "pairs-in-graph", ("broadcasting",), ("mseloss", "32×32"), "values[:, 0]"),
    Case("outputs", "bounded-graph", "beyond-tanh", ("targets", "output-and-loss"), ("tanh",), "values * 4"),
    Case("outputs", "signed", "negated", ("loss",), ("negated", "crossentropyloss", "cross_entropy"), "ops.neg(loss)"),
    Case("outputs", "reduction", "not-reduced", ("scaling",), ("cross_entropy", "summed"), 'chosen = "none"'),
    Case("optimizers", "stack", "plain-list", ("not-in-optimizer",), ("list", "hidden"), '{"hidden": layers}'),
    Case("optimizers", "stack-graph", "layer-left-out", ("not-in-optimizer",), ("layers.1",), 'startswith("layers.1")'),
    Case("optimizers", "replaced", "head-replaced-later", ("not-in-optimizer", "optimizer"), ("head",)),
    Case("optimizers", "other-network", "of-the-spare", ("optimizer",), ("adam",), "spare if"),
    Case("optimizers", "rate-graph", "rate-zero", ("learning-rate",), ("adam",), "rate = 0.0"),
    Case("optimizers", "schedule", "ends-early", ("learning-rate",), ("adam",), "steps = 25"),
    Case("optimizers", "listed-graph", "list-of-zeros", ("learning-rate",), ("momentum",), "count = 20"),
    Case("optimizers", "decay-graph", "decay-takes-all", ("undone",), ("adamweightdecay",), "decay = 20.0"),
    Case("optimizers", "clipped", "clipped-away", ("clipping",), ("sgd",), "limit = 1e-6"),
    Case("optimizers", "clipped-graph", "clipped-in-graph", ("clipping",), ("sgd",), "limit = 1e-6"),
    Case("optimizers", "scaled", "not-unscaled", ("scaling",), ("sgd",), "scaler.unscale(gradients)"),
    Case("optimizers", "overflowing", "infinite-factor", ("loss", "scaling"), ("inf", "loss scale"), 'float("inf")'),
    Case("optimizers", "half", "below-half-an-ulp", ("precision",), ("0.weight",), "rate = 1e-6"),
    Case("optimizers", "restored", "restored-each-step", ("undone",), ("first.weight",), "ops.assign(weight"),
    Case("optimizers", "restored", "loaded-meanwhile", ("optimizer",), ("first.weight",), "ms.load_param_into_net", 21),
    Case("optimizers", "restored-graph", "set-back-in-graph", ("undone",), ("first.weight",), "weight.set_data"),
    Case("optimizers", "anew", "made-in-the-loop", ("optimizer",), ("adam",), "optimizer = nn.Adam"),
    Case("networks", "encoder", "gradient-stopped", ("gradient-cut",), ("body",), "ops.stop_gradient"),
    Case("networks", "encoder-graph", "stopped-in-graph", ("gradient-cut",), ("body",), "ops.stop_gradient"),
    Case("networks", "encoder-graph", "never-active", ("gradient-zero",), ("body",), "x - 100.0"),
    Case("networks", "frozen-later", "frozen-by-export", ("frozen",), ("body",), "requires_grad = False", 31),
    Case("networks", "normalised", "never-set-to-train", ("mode",), ("layers.1", "layers.3")),
    Case("networks", "normalised-graph", "evaluating-in-graph", ("mode",), ("layers.1", "layers.3"), "set_train(fault"),
    Case("networks", "normalised", "momentum-of-pytorch", ("normalisation",), ("layers.1",), "Normalised(0.1"),
    Case("networks", "evaluated", "left-in-evaluation", ("mode",), ("layers.1", "layers.3"), "set_train(False)", 31),
    Case("networks", "language", "two-ahead", ("targets",), ("crossentropy", "cross_entropy", "two"), "ahead = 2"),
    Case("networks", "tied", "tied-by-copy", ("tied-weights",), ("embedding",), "output.weight.set_data"),
    Case("networks", "constant-graph", "all-units-equal", ("initialization",), ("0.weight",), "initializer(0.05"),
    Case("networks", "data-set", "same-batch", ("data",), ("encoder",), "next(data.create_tuple_iterator())"),
    Case("networks", "model-graph", "sorted-by-class", ("data",), ("batch",), "np.argsort"),
    Case("networks", "unscaled", "targets-in-grams", ("targets",), ("targets",), "values * 1e4"),
)

HEALTHY = (
    *(
        Healthy("outputs", program)
        for program in (
            *("classifier", "classifier-graph", "likelihood", "likelihood-graph", "labels", "labels-graph"),
            *("regression", "regression-graph", "bounded-graph", "signed", "reduction"),
        )
    ),
    Healthy("outputs", "one-hot", "output-and-loss"),
    Healthy("outputs", "attention-graph", "output-and-loss"),
    *(
        Healthy("optimizers", program)
        for program in (
            *("stack", "stack-graph", "replaced", "other-network", "rate-graph", "schedule", "listed-graph"),
            *("decay-graph", "clipped", "clipped-graph", "scaled", "overflowing", "half", "restored", "restored-graph"),
            "anew",
        )
    ),
    Healthy("optimizers", "warm-up-graph", "learning-rate"),
    Healthy("optimizers", "turns", "optimizer"),
    Healthy("optimizers", "accumulated", "accumulated-gradients"),
    *(
        Healthy("networks", program)
        for program in (
            *("encoder", "encoder-graph", "normalised", "normalised-graph", "evaluated", "language", "tied"),
            *("constant-graph", "data-set", "model-graph", "unscaled", "deep-graph", "frozen-later"),
        )
    ),
    Healthy("networks", "frozen-body", "not-in-optimizer"),
    Healthy("networks", "frozen-body-graph", "frozen"),
    Healthy("networks", "kept-statistics", "mode"),
    Healthy("networks", "zeros-at-first", "initialization"),
)
