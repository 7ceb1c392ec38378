"""The facts of a training's steps, beside its tensors: the one declaration of their columns, and the tables of a run.

A table has one row for each item (a parameter, a loss, an optimizer's group ...) of each step in which it was read.
Adapters add blocks of rows; rules read whole columns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from tensight.diagnosis.findings import ReportedRule

_T = TypeVar("_T")
Kind = Literal["number", "count", "flag", "text", "hash"]

DTYPES: Mapping[Kind, Any] = {
    "number": np.float64,
    "count": np.int64,
    "flag": np.bool_,
    "text": object,
    "hash": np.uint64,
}
MISSING: Mapping[Kind, object] = {"number": np.nan, "count": -1, "flag": False, "text": "", "hash": 0}
"""The values of unknown facts."""


class Fact(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    name : str
    kind : {"number", "count", "flag", "text", "hash"}
        Its values if unknown are NaN, -1, False, "" and 0.
    meaning : str
    """

    name: str
    kind: Kind
    meaning: str


SCHEMA: Mapping[str, tuple[Fact, ...]] = {
    "steps": (
        Fact("name", "text", 'always "step"'),
        Fact("backward_passes", "count", "backward passes since the step before"),
        Fact("updates", "count", "updates by optimizers"),
        Fact("is_skipped", "flag", "a loss scaler skipped the update"),
        Fact("scale", "number", "factor of the loss scaler; NaN without one"),
        Fact("update_line", "text", "where the optimizer is called"),
        Fact("batches", "count", "number of batches of the longest loader of data; -1 if there is none"),
        Fact("batch_size", "count", "its batch size; -1 if it has none"),
        Fact("workers", "count", "number of processes in which a loader reads a stream (IterableDataset)"),
        Fact(
            "checkpoint_line",
            "text",
            "where a block runs under reentrant checkpointing without an input that requires gradients",
        ),
        Fact("clips", "count", "calls of functions that clip gradients"),
        Fact("drop_line", "text", "where a function dropped elements in the first steps"),
        Fact("drawn_line", "text", "where numbers were drawn from a distribution that depends on weights"),
        Fact("drop_rate", "number", "the highest probability with which a function dropped them; NaN if none did"),
        Fact("unscaled_passes", "count", "backward passes from a loss that was not scaled, beside those that were"),
        Fact("unscaled_line", "text", "where the last of them begins"),
        Fact("clip_line", "text", "where such a function is called first"),
        Fact("clips_of_none", "count", "those when no backward pass had run since the last update"),
    ),
    "losses": (
        Fact("name", "text", "which backward pass of the step: loss, loss 2 ..."),
        Fact("value", "number", "value of the tensor from which the backward pass began, before it was scaled"),
        Fact("finds_gradients", "flag", "parameters had gradients that were not 0 before the backward pass"),
        Fact("is_connected", "flag", "a parameter is reached from it"),
        Fact("function", "text", "the function that made it"),
        Fact("line", "text", "where the backward pass begins"),
        Fact("elements", "count", "number of elements whose mean it is; -1 if that is unknown"),
        Fact("made_line", "text", "where it was computed, in the first steps"),
        Fact("rounding", "number", "by how much it may differ from the computed value, if it was printed; else NaN"),
    ),
    "logs": (
        Fact("name", "text", "the file from which the facts were read, if no training was watched"),
        Fact("unit", "text", "what its steps count: step, epoch or entry"),
        Fact(
            "is_moving",
            "flag",
            "its losses need not fall: those of two models against each other, or of reinforcement learning",
        ),
        Fact("is_late", "flag", "it begins in the midst of a training"),
        Fact("is_complete", "flag", "its last step is the last one of the training"),
        Fact("begins", "text", "steps at which it goes back to an earlier step, separated by spaces"),
        Fact("stages", "text", "steps at which it names a new stage, task or length of its data, separated by spaces"),
    ),
    "checkpoints": (
        Fact("name", "text", "a file or folder, if no training was watched"),
        Fact("step_known", "flag", "its step is that of the training, and no number of the file"),
        Fact("counter", "number", "number of updates that its optimizer counts; NaN if it has no optimizer"),
        Fact("scale", "number", "the loss scale in it; NaN if there is none"),
    ),
    "saved": (
        Fact("name", "text", "a tensor of a checkpoint"),
        Fact("role", "text", "parameter, moment, step, statistics (of a normalization), or other"),
        Fact("slot", "text", "which moment, as exp_avg_sq"),
        Fact("parameter", "text", "of which parameter"),
        Fact("axes", "count", "number of its axes"),
        Fact("elements", "count", "number of elements"),
        Fact("not_finite", "count", "those that are NaN or infinite; of masks, those that are not -Inf"),
        Fact("zeros", "count", "those that are 0"),
        Fact("lowest", "number", "smallest element"),
        Fact("highest", "number", "greatest element"),
        Fact("norm", "number", "L2 norm"),
        Fact("moved", "count", "1 if an element differs from the checkpoint before, 0 if none does; -1 if unknown"),
        Fact("has_state", "flag", "the optimizer in the checkpoint has a state of it"),
    ),
    "evaluations": (
        Fact("name", "text", "a loss or a measure on data that are not trained on, as cross_entropy or eval_accuracy"),
        Fact("value", "number", "its value in one evaluation: the mean over the batches of that"),
        Fact(
            "function", "text", "the function of a loss, as in loss_functions; accuracy; loss, if a model computes it"
        ),
        Fact("is_loss", "flag", "it is a loss: lower is better"),
        Fact("is_skill", "flag", "higher is better, as for an accuracy; neither is set if that is unknown"),
        Fact("batches", "count", "number of batches; -1 if that is unknown"),
        Fact("line", "text", "where it is computed"),
        Fact(
            "input_shape", "text", "shape of the first input of the model in the first batch; empty if it is no numbers"
        ),
        Fact("input_mean", "number", "mean of that input, over the batches"),
        Fact("input_deviation", "number", "its standard deviation, as a mean over the batches"),
        Fact("rounding", "number", "by how much it may differ from the computed value, if it was printed; else NaN"),
    ),
    "loss_functions": (
        Fact("name", "text", "which loss function of the step, as cross_entropy, or mse_loss 2"),
        Fact(
            "function",
            "text",
            "cross_entropy, nll_loss, bce, bce_with_logits, mse_loss, l1_loss, smooth_l1_loss, kl_div, ctc_loss,"
            " soft_cross_entropy (a share for each class), dice (an output overlapping its target), gaussian_kl (the"
            " divergence of a normal distribution), triplet (a hinge of the difference of two distances), cosine,"
            " logistic (a softplus, or a logarithm of a sigmoid, of what a layer puts out), or policy_gradient (a"
            " logarithm of a probability times a difference that leads to weights, too)",
        ),
        Fact("called", "text", "its name as the script calls it, if that is another one"),
        Fact("loss", "text", "the loss in which it ends"),
        Fact("factor", "number", "by which what it returned was multiplied before the backward pass, if known"),
        Fact("is_alone", "flag", "the loss is what it returned, times a factor"),
        Fact("is_of_pairs", "flag", "its input is a product of two matrices neither of which is a parameter"),
        Fact("pair_scale", "number", "by which such products of vectors of length 1 are multiplied; NaN if unknown"),
        Fact("is_of_layer", "flag", "its input is what a layer puts out"),
        Fact("is_of_outputs", "flag", "it is a distance of two tensors both of which require gradients"),
        Fact("is_of_equals", "flag", "those are the same bit for bit"),
        Fact("given_by", "text", "the model whose output was given to the model whose output is its input"),
        Fact("leads_on", "flag", "the graph leads on to that model"),
        Fact("line", "text", "where it is called; empty if unknown"),
        Fact("before", "text", "the functions that made its input, the last one first, separated by spaces"),
        Fact("before_axis", "count", "the axis of the first softmax among them"),
        Fact("before_size", "count", "number of elements along that axis"),
        Fact("before_line", "text", "where the first activation among them is called"),
        Fact("classes", "count", "the size of the axis of classes"),
        Fact("class_axis", "count", "its axis"),
        Fact("reduction", "text", "none, mean or sum"),
        Fact("input_shape", "text", "shape of its input, as 8x10"),
        Fact("made_shape", "text", "shape of its input before it was expanded to that"),
        Fact("input_min", "number", "smallest input"),
        Fact("input_max", "number", "greatest input"),
        Fact("input_deviation", "number", "standard deviation of the inputs"),
        Fact("input_spread", "number", "the same between samples only, over their elements"),
        Fact("row_mass", "number", "mean of the sums of the exponentials of the input over the classes"),
        Fact("target_shape", "text", "shape of the target"),
        Fact("target_row_sum", "number", "mean of the sums of the rows of a target with two axes"),
        Fact("target_classes", "text", "the classes among the targets"),
        Fact("target_counts", "text", "how often each of them is one"),
        Fact("target_min", "number", "smallest target"),
        Fact("target_max", "number", "greatest target"),
        Fact("target_mean", "number", "mean of the targets"),
        Fact("target_variance", "number", "variance of the targets"),
        Fact("target_spread", "number", "standard deviation of the targets between samples, over their elements"),
        Fact("target_distinct", "count", "distinct values among the targets, up to 4096"),
        Fact("target_is_whole", "flag", "all targets are whole numbers"),
        Fact("features", "count", "size of the samples in which the targets were looked for; -1 if they were not"),
        Fact("copied", "text", "the first of these features of which the targets are a multiple plus a constant"),
        Fact(
            "related",
            "number",
            "mean square of the correlations of the targets with the other features, times the number of samples: about"
            " 1 if they have nothing to do with each other",
        ),
        Fact(
            "empty",
            "number",
            "share of the pictures or signals, each with a target, that have one value everywhere; NaN for others",
        ),
        Fact("empty_usual", "number", "share of the most usual target among the targets of those"),
        Fact("ignored", "number", "share of the targets that are ignored"),
        Fact("ignored_index", "count", "the class that is ignored; -1 if none can be"),
        Fact("class_weights", "text", "weights of the classes among the targets, in their order; empty if all are 1"),
        Fact(
            "true_weight", "number", "how many times as much a true label counts as a false one, if that is one number"
        ),
        Fact("weightless", "number", "share of the targets whose class has weight 0"),
        Fact("offset", "count", "by how many positions the targets are ahead of the ids that the model read; -1"),
        Fact("padding", "number", "share of the targets that are padding, where the model reads padding"),
        Fact("padding_index", "count", "the id that the embedding takes for padding; -1 if there is none"),
        Fact(
            "padding_words",
            "number",
            "share of the targets that count at ids between others that the embedding takes for padding",
        ),
        Fact(
            "same_rows",
            "number",
            "share of the rows that are the same in its input and its target, where both are chosen from tables; NaN",
        ),
        Fact("outside", "number", "share of the targets that the output cannot reach"),
        Fact("alignment", "number", "of cosine: length of the mean of the vectors on one side, 1 if all are the same"),
        Fact("answer", "number", "of logistic: towards which it leads, 0 or 1"),
        Fact("margin", "number", "of triplet: what it is if all outputs are the same"),
        Fact("divergence", "number", "of gaussian_kl: the divergence from the standard normal distribution, by sample"),
        Fact(
            "hidden_ignored",
            "number",
            "share of the targets that are ignored at a mask token between words; NaN if unknown",
        ),
        Fact("later_ignored", "number", "share of the words after the last target that counts, if the first counts"),
        Fact("ends_ignored", "number", "share of the sequences whose last id, that of padding, is ignored as a target"),
    ),
    "groups": (
        Fact("name", "text", "the group, as SGD group 0"),
        Fact("optimizer", "text", "the optimizer, as SGD, or Adam 2"),
        Fact("rate", "number", "learning rate"),
        Fact("decay", "number", "weight decay"),
        Fact("made_line", "text", "where the script makes the optimizer"),
        Fact("maximizes", "flag", "it raises the loss (maximize=True)"),
        Fact("parameters", "count", "number of its parameters"),
        Fact("unknown", "count", "those that belong to no model that ran"),
        Fact("norm_backward", "number", "gradient norm after the backward pass, divided by the loss scale"),
        Fact("norm_update", "number", "gradient norm as the optimizer read it"),
        Fact("backward_passes", "count", "backward passes since its last update"),
        Fact("is_repeated", "flag", "its gradients are bit for bit those of its last update"),
        Fact("is_cleared", "flag", "gradients of a backward pass were gone when it updated"),
        Fact(
            "cleared_between",
            "count",
            "backward passes since its last update whose gradients the next one did not find",
        ),
        Fact("is_unscaled", "flag", "it does not update through a loss scaler"),
        Fact("is_new", "flag", "it updates for the first time, and others of its class have kept a state"),
        Fact(
            "accumulates", "count", "backward passes for each update, as an Accelerator that prepared its model expects"
        ),
        Fact("is_prepared", "flag", "that Accelerator has prepared the optimizer, too"),
    ),
    "rates": (
        Fact("name", "text", "the group, as SGD group 0"),
        Fact("optimizer", "text", "the optimizer"),
        Fact("rate", "number", "learning rate"),
        Fact("initial_rate", "number", "the rate with which a scheduler began"),
    ),
    "generators": (
        Fact("name", "text", "a random generator that the longest loader copies to its processes, as Pictures.rng"),
        Fact("type", "text", "its class"),
        Fact("used_in", "text", "the function that draws numbers from it there, and where that is defined"),
        Fact("line", "text", "where the script makes the loader"),
        Fact("workers", "count", "number of its processes"),
        Fact("batches", "count", "number of its batches; -1 if that is unknown"),
        Fact("is_persistent", "flag", "its processes go on in the next epoch"),
    ),
    "leaves": (
        Fact("name", "text", "a tensor that gets gradients and is no parameter of a model that was named"),
        Fact("shape", "text", "as 8x10"),
        Fact("is_held", "flag", "an optimizer holds it"),
    ),
    "made": (
        Fact("name", "text", "a part of a model"),
        Fact("line", "text", "where the script makes it, or gives it to the model"),
    ),
    "loads": (
        Fact("name", "text", "a call of load_state_dict, or of from_pretrained of transformers, as Net 1"),
        Fact("module", "text", "the class of the module"),
        Fact("line", "text", "where it is called"),
        Fact("keys", "count", "number of tensors that were given"),
        Fact("unexpected", "count", "those that the module does not have"),
        Fact("missing", "count", "number of tensors of the module that were not given"),
        Fact(
            "missing_share",
            "number",
            "which share these are of its elements or its layers, whichever is less; 0 for one layer",
        ),
        Fact("renamed", "count", "those not expected that are missing ones by name, but for a prefix or a part of it"),
        Fact("renamed_share", "number", "which share these are, in the same way"),
        Fact("example", "text", "one of them, and the missing one"),
        Fact("fingerprint", "hash", "of sampled elements of what was given"),
        Fact("is_pretrained", "flag", "whether it was from_pretrained"),
    ),
    "files": (
        Fact("name", "text", "a dictionary of weights in a file that was read before the first update"),
        Fact("file", "text", "the name of the file"),
        Fact("line", "text", "where torch.load reads it"),
        Fact("module", "text", "the class of the model that has such weights, by names, but for a prefix, and shapes"),
        Fact("keys", "count", "number of tensors in the dictionary"),
        Fact("matching", "count", "those that the model has, by name and shape; without those of one value"),
        Fact("equal", "count", "those of them that are in the model when the first update begins"),
        Fact("distance", "number", "median of their distances from the weights of the model, relative to their norms"),
        Fact("is_given", "flag", "whether they were loaded into that model, or into a part of it"),
        Fact("optimizer_states", "count", "number of weights of which the file has the state of an optimizer"),
        Fact("updates", "count", "how many updates these states count; -1 if they do not"),
        Fact("optimizer_resumed", "count", "number of those of which optimizers have one; -1 if the file has none"),
        Fact("position", "count", "position of a schedule in the file; 0 if it has none, or that is at its start"),
        Fact("position_resumed", "count", "the largest position of a schedule; -1 if there is none in either"),
    ),
    "schedules": (
        Fact("name", "text", "the class of the scheduler"),
        Fact("made_line", "text", "where the script makes it"),
        Fact("optimizer", "text", "the optimizer"),
        Fact("position", "count", "how often it was stepped"),
        Fact("length", "count", "after how many steps it ends, or turns; -1 if unknown"),
        Fact("last_milestone", "count", "the position of its last change; -1 if it has no such"),
        Fact("mode", "text", "min or max, of a schedule that follows a measure"),
        Fact("best", "number", "the best value of that measure so far"),
    ),
    "parameters": (
        Fact("name", "text", "its name in the model"),
        Fact("module", "text", "the module that holds it"),
        Fact("module_type", "text", "the class of that module"),
        Fact("model", "count", "number of its model"),
        Fact("shape", "text", "as 8x10"),
        Fact("dtype", "text", "as bfloat16"),
        Fact("elements", "count", "number of elements"),
        Fact("is_trainable", "flag", "requires a gradient"),
        Fact("optimizers", "count", "number of optimizers that update it in this step"),
        Fact("is_updated_apart", "flag", "a backward pass ran between its updates by two of them"),
        Fact("optimizer", "text", "the last of them"),
        Fact("owners", "count", "number of optimizers that hold it"),
        Fact("rate", "number", "its learning rate"),
        Fact("gradient", "count", "0 none, 1 exactly 0, 2 some; -1 unknown"),
        Fact("is_cleared", "flag", "it had a gradient after the last backward pass, and none at the update"),
        Fact("is_unused", "flag", "no module that holds it was called in this step, although others were"),
        Fact("is_used_unread", "flag", "one was called with gradients in steps before it that were not read"),
        Fact("is_read", "flag", "a loss was computed from it, although its gradient is unknown"),
        Fact(
            "cut",
            "text",
            "what ends the graph between it and a loss, as detach or no_grad, in the first steps; unread, if no tensor"
            " that is computed from it is used in a loss, and left, if one was detached",
        ),
        Fact("is_left_out", "flag", "it is in a part that a model of a library holds, and that is unused or unread"),
        Fact("cut_line", "text", "where that is called"),
        Fact("gradient_norm", "number", "L2 norm of its gradient"),
        Fact("norm", "number", "L2 norm before the update"),
        Fact("moved", "number", "share of its elements that the update changed"),
        Fact("lost", "number", "share of its elements with a gradient that the update did not change"),
        Fact("change", "number", "L2 norm of its change by the update, over its own"),
        Fact("turn", "number", "cosine of the angle between its change by this update and by the one before"),
        Fact("is_kept", "flag", "the gradient that the last update used was not cleared before the next backward pass"),
        Fact("is_moved_outside", "flag", "it was changed between the last update and this one"),
        Fact("undone", "number", "share of what the last update moved that was back at its value before that"),
        Fact(
            "at_limit", "number", "share of its elements that are its lowest or greatest one, if it was changed outside"
        ),
        Fact("restored", "hash", "of the values, if they changed to those of an earlier step"),
        Fact("is_nested", "flag", "its module is no part of the model, but is called in it"),
        Fact("is_zero", "flag", "all of its sampled elements are 0; not read while it is trained"),
        Fact("is_initial", "flag", "its values are evenly spread as by an initialization, and no optimizer updates it"),
        Fact("equal_units", "flag", "all its rows, or those of each gate if recurrent, are the same, and not 0"),
        Fact("fingerprint", "hash", "of sampled elements before the update"),
    ),
    "modules": (
        Fact("name", "text", "its name in the model"),
        Fact("type", "text", "its class"),
        Fact("is_training", "flag", "in training mode"),
        Fact("mode_line", "text", "where its mode was set last"),
        Fact("rate", "number", "probability of dropout; NaN if it has none"),
        Fact("momentum", "number", "of running statistics; NaN if it has none"),
        Fact("has_statistics", "flag", "it has running statistics"),
        Fact("parent_is_training", "flag", "the module that holds it is in training mode"),
        Fact("is_trained", "flag", "an optimizer has updated a parameter of it, or of its parent if it has none"),
        Fact("switch", "count", "an attribute requires_grad of the module itself: 1 or 0; -1 if there is none"),
        Fact("is_frozen", "flag", "it has that attribute, and none of its parameters requires a gradient"),
        Fact("has_weights", "flag", "it has parameters"),
        Fact("is_fixed", "flag", "none of its parameters requires a gradient"),
        Fact("statistics", "hash", "of sampled elements of its running means"),
        Fact("calls", "count", "calls of it in training mode with gradients switched on, if it has running statistics"),
        Fact("apart", "number", "distance of the means of its inputs in two of those, in standard deviations"),
    ),
    "calls": (
        Fact("name", "text", "the outermost module that was called, as Net"),
        Fact("called", "text", "its model as the script calls it, and where, as self.generator (gan.py:31)"),
        Fact(
            "also_called",
            "text",
            "the same by another name, in the same function, as targets and averages have",
        ),
        Fact("model", "count", "number of its model; -1 if it belongs to none"),
        Fact("calls", "count", "calls of it in the step"),
        Fact("with_gradients", "count", "those with gradients switched on"),
        Fact("used", "count", "those whose output a backward pass has reached; -1 if that is unknown"),
        Fact("is_last_used", "flag", "one of them is the last"),
        Fact("is_alike", "flag", "the inputs of all of those have the same shape, and none requires gradients"),
        Fact("in_training", "count", "those in training mode with gradients switched off"),
        Fact("evaluated", "count", "distinct inputs of those, up to 64"),
        Fact("drops", "count", "distinct inputs, in evaluation mode, of which a function dropped elements"),
        Fact("samples", "flag", "one of those was given several times"),
        Fact("drop_line", "text", "where that function is called"),
        Fact("input_shape", "text", "shape of the first input"),
        Fact("input_min", "number", "smallest value of the first inputs of its calls; NaN if there are too many"),
        Fact("input_max", "number", "greatest value"),
        Fact("input_mean", "number", "mean of the first input of its first call with gradients; NaN of ids"),
        Fact("input_deviation", "number", "standard deviation of that"),
        Fact("holds_nan", "flag", "an input of those holds NaN"),
        Fact("spread", "number", "standard deviation of its first output between samples, over its features"),
        Fact("is_twice", "flag", "it was given the same twice, or two equal halves of a batch, and put out the same"),
        Fact("is_constant", "flag", "each input has one value everywhere, and the first ones of all calls the same"),
        Fact("is_ids", "flag", "the first input holds whole numbers"),
        Fact("is_training", "flag", "the module was in training mode in its last call"),
        Fact("is_causal", "flag", "its name says that it predicts the next word"),
        Fact("fingerprint", "hash", "of the first input of the first call with gradients"),
        Fact("is_trained", "flag", "an optimizer updates a parameter of it"),
    ),
    "models": (
        Fact("name", "text", "the copy"),
        Fact("kind", "text", "module or dictionary; alias, if it is the trained model itself by another name"),
        Fact("is_known", "flag", "it was read in an earlier step"),
        Fact("is_average", "flag", "its name is that of an average or a target"),
        Fact("dtype", "text", "as bfloat16"),
        Fact("twin", "text", "a trained model with parameters of the same names and shapes"),
        Fact("moved", "flag", "it has changed since the step before"),
        Fact("is_equal", "flag", "it is bit for bit its twin"),
        Fact("distance", "number", "L2 distance to its twin, over the norm of that"),
        Fact("first_distance", "number", "the same when it was first read"),
        Fact(
            "pace", "number", "share of the way to its twin that it went since it was last read: 1 if it became equal"
        ),
        Fact("stuck", "number", "share of its elements that differ from the twin and did not move"),
        Fact("is_written_back", "flag", "it was written into its twin after the last update"),
        Fact("leaves_statistics", "flag", "its running statistics stood still while those of the twin moved"),
    ),
    "ties": (
        Fact("name", "text", "two parameters that were equal when the training began"),
        Fact("first", "text", "the one"),
        Fact("second", "text", "the other"),
        Fact("kind", "text", "equal, transposed, shared (memory), or declared by the model's configuration"),
        Fact("is_tied", "flag", "they share their memory"),
        Fact("is_equal", "flag", "they are equal"),
        Fact("is_trained", "flag", "both require gradients"),
    ),
    "repeated": (
        Fact("name", "text", "a container whose entries are all the same module"),
        Fact("type", "text", "the class of that module"),
        Fact("count", "count", "number of entries"),
        Fact("chained", "count", "how often the module was given what it had put out itself"),
    ),
    "experts": (
        Fact(
            "name", "text", "modules that are alike, beside a matrix that may score them, or one that has all experts"
        ),
        Fact("type", "text", "their class"),
        Fact("router", "text", "the module that has this matrix, if its name is that of a router"),
        Fact("count", "count", "their number"),
        Fact("rows", "text", "how many rows each of them is given in the step"),
        Fact("taken", "count", "how many rows there are to be given"),
    ),
    "views": (
        Fact("name", "text", "a view whose axes have the sizes of others of its input, as 8x20x24 as 8x24x20"),
        Fact("kind", "text", "swapped, heads_apart or heads_together"),
        Fact("line", "text", "where it is made"),
    ),
    "cancelling": (
        Fact("name", "text", "a sum that adds and subtracts the same tensor"),
        Fact("line", "text", "where it is"),
    ),
    "derivatives": (
        Fact("name", "text", "a derivative that is computed without a graph, and how it is used"),
        Fact("kind", "text", "term: added to the loss; residual: to another derivative in it; used: otherwise"),
        Fact("line", "text", "where it is computed"),
        Fact("sum_line", "text", "where it is added, or used otherwise"),
    ),
    "cells": (
        Fact("name", "text", "a module that is called again with what it has put out"),
        Fact("type", "text", "its class"),
        Fact("attached", "count", "calls in which the graph leads on from its state to the call before"),
        Fact("detached", "count", "calls in which it does not"),
        Fact("used", "count", "calls of it to which a loss leads"),
        Fact("line", "text", "where its state is detached"),
    ),
    "layers": (
        Fact("name", "text", "a layer with a matrix, or a normalization, in the order of their first calls"),
        Fact("type", "text", "its class"),
        Fact("deviation", "number", "standard deviation of what it put out in its first call"),
        Fact("has_input", "flag", "what it was given in its first call was not 0 everywhere"),
        Fact("normalised", "count", "over how many elements it computes each mean and variance; -1 if it does not"),
        Fact("samples", "count", "over how many samples a batch normalization does; -1 for others"),
        Fact(
            "pixels",
            "text",
            "of the first one: how the pixels of 8 bits that it is given were scaled, if wrongly, as MNIST, MNIST or"
            " not divided, MNIST",
        ),
        Fact(
            "mixed",
            "number",
            "of the first one: share of the pictures that are smooth only if read as rows, columns, channels; NaN for"
            " others",
        ),
        Fact(
            "lookups", "count", "of an embedding with at least 1000 rows: number of ids that it is given; -1 for others"
        ),
        Fact("distinct", "count", "number of distinct ones; -1 if none makes up half of them"),
        Fact("common_id", "count", "the id that occurs most often"),
        Fact("common", "number", "its share of the ids that are no padding, at nine of ten positions at least"),
        Fact("activation", "text", "the function that made its input: relu, tanh or sigmoid; empty for others"),
        Fact("units", "count", "size of the axis of features of that input"),
        Fact("silent", "count", "after a relu: features that are 0 for all samples; -1 for others"),
        Fact("saturated", "number", "after a tanh or sigmoid: share of elements within a hundredth of its ends"),
        Fact(
            "spread",
            "number",
            "standard deviation of its input between samples, over its features, as a share of the root of its mean"
            " square",
        ),
    ),
    "recurrent": (
        Fact("name", "text", "a recurrent layer of PyTorch"),
        Fact("type", "text", "its class"),
        Fact("shape", "text", "shape of its input, if that has three axes"),
        Fact("is_batch_first", "flag", "the first axis is that of the samples, and not that of time"),
        Fact("is_bidirectional", "flag", "it reads each sequence from its end, too"),
    ),
    "attentions": (
        Fact("name", "text", "an attention layer of PyTorch, or if there is none a call of its function"),
        Fact("is_of_itself", "flag", "its queries and keys are the same tensor, or as many"),
        Fact("is_masked", "flag", "it is given a mask of pairs of positions, or is causal"),
        Fact("positions", "count", "number of keys of a sequence"),
        Fact("line", "text", "where the function was called last, in the first steps"),
        Fact("masked", "text", "what its mask of keys hides: padding, words (all but padding), or something else"),
    ),
    "weightings": (
        Fact("name", "text", "a softmax of products of two tensors, with which others are weighed, in the first steps"),
        Fact("keys", "count", "number of weights of a query"),
        Fact("greatest", "number", "the greatest of them, as a mean over the queries"),
        Fact("line", "text", "where a softmax is called"),
    ),
    "probes": (
        Fact("name", "text", "an experiment with a model on one batch, numbered if there are several models"),
        Fact(
            "probe",
            "text",
            "evaluation, samples, inputs, positions, order, arrangement, padding, backward, resume, loss, pairs, rates;"
            " all, if none was possible",
        ),
        Fact("model", "text", "the class of the model"),
        Fact("outcome", "text", "pass, fail, warn or untried"),
        Fact("why", "text", "why it could not be tried, or what was seen; of a failure, its kind"),
        Fact("inputs", "text", "the inputs of the model, or the parts of its state, that it is about"),
        Fact("count", "count", "how many inputs, features, positions, functions, or steps"),
        Fact("total", "count", "of how many, or of how many samples"),
        Fact(
            "change",
            "number",
            "by how much an output changed that should not; a derivative, as a function computes it; the lowest loss,"
            " a resumed one, or the one after some updates with the learning rate of the training",
        ),
        Fact("scale", "number", "by how much one changed that should; that derivative as measured; the first loss"),
        Fact("factor", "number", "by what the learning rate was multiplied with which the loss fell further"),
        Fact("other", "number", "that loss after as many updates"),
        Fact("function", "text", "the function of PyTorch, or the one of the script, where that begins"),
        Fact("line", "text", "where that is called, or the class of a state is defined"),
        Fact("module", "text", "the innermost module around it"),
    ),
    "ranks": (
        Fact("name", "text", "rank 0, rank 1 ..."),
        Fact("weights", "hash", "of sampled elements of all parameters before the update"),
        Fact("batch", "hash", "of the first input"),
        Fact("norm_backward", "number", "norm of all gradients after the backward pass"),
        Fact("norm", "number", "norm of all gradients as the optimizers read them"),
        Fact("world", "count", "number of ranks"),
        Fact("loader_line", "text", "where the script makes its longest loader of data"),
        Fact("called", "text", "the first model that was called, and where, as self.model (train.py:31)"),
    ),
}

NUMBERS = frozenset(
    f"{subject}.{fact.name}" for subject, schema in SCHEMA.items() for fact in schema if fact.kind == "number"
)
"""The facts that are numbers, as ``losses.value``."""

OPTIONAL = frozenset(
    (
        *("attentions", "cells", "recurrent", "layers", "leaves", "loads", "files", "schedules", "modules", "models"),
        *("repeated", "ties", "ranks", "probes", "views", "evaluations", "logs", "checkpoints", "saved", "weightings"),
        *("experts", "generators", "derivatives", "cancelling"),
    )
)
"""Subjects that many trainings do not have."""


def sizes_of(shape: str) -> list[int]:
    """Return the sizes of a shape that is given as 8x10."""
    return [int(size) for size in shape.split("x") if size]


FIRST_STEPS, LAST_STEPS = 32, 96
"""Maximum number of the first and last blocks of a table that are kept."""

_BEFORE_JUMP, _AFTER_JUMP = 24, 16
"""Number of steps before and after the largest jump of a loss whose blocks are kept, too."""

_JUMP = 3.0
"""How many times the usual loss before it a jump is."""

_FEWEST, _MOST_ROWS = 4, 64_000
"""Of large blocks fewer are kept: as many as have this number of rows together, but at least so many."""

MOST_BYTES = 1 << 28
"""Maximum memory of the facts of a process; further ones are left out."""

Block = Mapping[str, NDArray[Any]]
"""The rows of a subject in a step, by columns; a fact that no row has may be left out."""


def block_of(subject: str, rows: Sequence[Mapping[str, Any]]) -> Block:
    """Return rows in columns; a fact that only some of the rows have is unknown for the others."""
    return {
        fact.name: np.array([row.get(fact.name, MISSING[fact.kind]) for row in rows], DTYPES[fact.kind])
        for fact in SCHEMA[subject]
        if any(fact.name in row for row in rows)
    }


def _bytes_of(block: Block) -> int:
    texts = sum(len(text) for column in block.values() if column.dtype == object for text in column.tolist())
    return texts + sum(column.nbytes for column in block.values())


class Table:
    """The rows of a subject, in blocks of one step each.

    Parameters
    ----------
    schema : sequence of Fact
    keeps_all : bool
        Whether all blocks are kept, and not the first and the last ones.

    Attributes
    ----------
    bytes : int
        Memory of its blocks.
    """

    def __init__(self, schema: Sequence[Fact], *, keeps_all: bool = False) -> None:
        self.schema = schema
        self._keeps_all = keeps_all
        self._first: list[tuple[int, Block]] = []
        self._kept: list[tuple[int, Block]] = []
        self._last: deque[tuple[int, Block]] = deque()
        self._kept_steps = range(0)
        self._met: set[str] = set()
        self._begins: set[int] = set()
        self._columns: dict[str, NDArray[Any]] = {}
        self._panels: dict[str, NDArray[Any]] = {}
        self._names: list[str] = []
        self.bytes = 0

    def add(self, step: int, block: Block) -> None:
        """Add the rows of a step; facts that they lack are unknown."""
        amount = len(block["name"])
        if not amount:
            return
        block = {
            fact.name: block[fact.name]
            if fact.name in block
            else np.full(amount, MISSING[fact.kind], DTYPES[fact.kind])
            for fact in self.schema
        }
        most = max(_FEWEST, _MOST_ROWS // amount)
        # Since when an item is there can be told as long as its first block is kept.
        if len(self._begins) < FIRST_STEPS and not self._met.issuperset(names := block["name"].tolist()):
            self._met.update(names)
            self._begins.add(step)
        if self._keeps_all or len(self._first) < min(FIRST_STEPS, most):
            self._first.append((step, block))
        else:
            while len(self._last) >= min(LAST_STEPS, most):
                old_step, old = self._last.popleft()
                if self._is_kept(old_step) and len(self._kept) < most:
                    self._kept.append((old_step, old))
                else:
                    self.bytes -= _bytes_of(old)
            self._last.append((step, block))
        self.bytes += _bytes_of(block)
        self._forget_columns()

    def keep(self, steps: range) -> None:
        """Keep the blocks of some steps even when they are no longer among the last, instead of those named before."""
        self._kept_steps = steps
        self.bytes -= sum(_bytes_of(block) for step, block in self._kept if not self._is_kept(step))
        self._kept = [(step, block) for step, block in self._kept if self._is_kept(step)]
        self._forget_columns()

    def _is_kept(self, step: int) -> bool:
        return step in self._kept_steps or step in self._begins

    def _forget_columns(self) -> None:
        self._columns.clear()
        self._panels.clear()
        self._names.clear()

    def __len__(self) -> int:
        return len(self["name"])

    @property
    def _blocks(self) -> list[tuple[int, Block]]:
        return [*self._first, *self._kept, *self._last]

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of which there are rows, in order, each once."""
        return np.array([step for step, _ in self._blocks], np.int64)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column over all rows; `step` is one, too."""
        column = self._columns.get(name)
        if column is None:
            blocks = self._blocks
            if name == "step":
                pieces = [np.full(len(block["name"]), step, np.int64) for step, block in blocks]
            else:
                pieces = [block[name] for _, block in blocks]
            kinds: Mapping[str, Kind] = {fact.name: fact.kind for fact in self.schema}
            column = np.concatenate(pieces) if pieces else np.zeros(0, DTYPES[kinds.get(name, "count")])
            self._columns[name] = column
        return column

    @property
    def names(self) -> list[str]:
        """The names of all items, in the order in which they first appear."""
        if not self._names:
            self._names = list(dict.fromkeys(self["name"].tolist()))
        return self._names

    def panel(self, name: str) -> NDArray[Any]:
        """Return a column as a table of its own.

        Returns
        -------
        ndarray, shape (steps, items)
            In the order of `steps` and `names`; of several rows of an item in a step the last one; unknown where an
            item has no row.
        """
        panel = self._panels.get(name)
        if panel is None:
            kind = next(fact.kind for fact in self.schema if fact.name == name)
            positions = {item: position for position, item in enumerate(self.names)}
            blocks = self._blocks
            panel = np.full((len(blocks), len(positions)), MISSING[kind], DTYPES[kind])
            for at, (_, block) in enumerate(blocks):
                panel[at, [positions[item] for item in block["name"].tolist()]] = block[name]
            self._panels[name] = panel
        return panel

    def present(self) -> NDArray[np.bool_]:
        """Return which items have a row in which step: shape (steps, items)."""
        positions = {item: position for position, item in enumerate(self.names)}
        blocks = self._blocks
        present = np.zeros((len(blocks), len(positions)), np.bool_)
        for at, (_, block) in enumerate(blocks):
            present[at, [positions[item] for item in block["name"].tolist()]] = True
        return present

    def chosen(self, mask: NDArray[np.bool_]) -> list[str]:
        """Return the names of the items that a mask over them chooses."""
        return [name for name, is_chosen in zip(self.names, mask.tolist(), strict=True) if is_chosen]

    def first_step(self, mask: ArrayLike) -> int:
        """Return the first of the steps that a mask over them chooses; it must choose one."""
        return int(self.steps[np.flatnonzero(mask)[0]])

    def last(self, name: str) -> dict[str, Any]:
        """Return the last known value of a fact, by item."""
        return dict(zip(self["name"].tolist(), self[name].tolist(), strict=True))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows, with their steps."""
        columns = {"step": self["step"].tolist(), **{fact.name: self[fact.name].tolist() for fact in self.schema}}
        for at in range(len(columns["step"])):
            yield {name: values[at] for name, values in columns.items()}


class Jumps:
    """The jumps of a loss: values that are several times the usual one before them."""

    def __init__(self) -> None:
        self._before: deque[float] = deque(maxlen=_BEFORE_JUMP)
        self._largest = _JUMP

    def is_jump(self, value: float) -> bool:
        """Whether the next value of the loss jumps."""
        return self._ratio(value) > _JUMP

    def is_largest(self, value: float) -> bool:
        """Whether the next value of the loss jumps, and further than any did before."""
        ratio = self._ratio(value)
        is_largest = ratio > self._largest
        self._largest = max(self._largest, ratio)
        return is_largest

    def _ratio(self, value: float) -> float:
        if not math.isfinite(value):
            return 0.0
        # NumPy's median takes a hundred times as long for so few numbers.
        usual = sorted(self._before)[_BEFORE_JUMP // 2] if len(self._before) == _BEFORE_JUMP else 0.0
        ratio = value / usual if usual > 0 else 0.0
        if ratio > _JUMP:
            # What follows at once belongs to this jump.
            self._before.clear()
        self._before.append(value)
        return ratio


class Facts:
    """All that is known of a run beside its tensors.

    Parameters
    ----------
    rank : int
    keeps_all : bool
        Whether all steps are kept, as of logs, which have few facts of each.

    Attributes
    ----------
    rank : int
    is_over : bool
        Whether the training has ended, so that nothing follows.
    framework : str
        With which it trains, as in `tensight.frameworks`.
    absent : dict of str to str
        Facts that are not read of this training, and why: a subject, or a column as ``groups.is_cleared``.
    reported : tuple of ReportedRule
        What rules of the user have found in the training.
    """

    def __init__(self, rank: int = 0, *, keeps_all: bool = False) -> None:
        self.rank = rank
        self._keeps_all = keeps_all
        self.is_over = False
        self.framework = "torch"
        self.absent: dict[str, str] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Forget everything that was added."""
        self.reported: tuple[ReportedRule, ...] = ()
        self._tables = {name: Table(schema, keeps_all=self._keeps_all) for name, schema in SCHEMA.items()}
        self._derived: dict[Callable[[Facts], Iterable[Any]], list[Any]] = {}
        self._jumps = Jumps()

    def __getitem__(self, subject: str) -> Table:
        """Return the table of a subject."""
        return self._tables[subject]

    def add(self, subject: str, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add what was read of a subject in a step."""
        if rows:
            self.add_block(subject, step, block_of(subject, rows))

    def add_block(self, subject: str, step: int, block: Block) -> None:
        """Add the same in columns."""
        if sum(table.bytes for table in self._tables.values()) < MOST_BYTES:
            self._tables[subject].add(step, block)
            self._derived.clear()
            if subject == "losses" and "value" in block and self._jumps.is_largest(float(block["value"][0])):
                for table in self._tables.values():
                    table.keep(range(step - _BEFORE_JUMP, step + _AFTER_JUMP))

    def derived(self, derive: Callable[[Facts], Iterable[_T]]) -> list[_T]:
        """Return all that a function yields from these facts; it is called once, though several rules need it."""
        if derive not in self._derived:
            self._derived[derive] = list(derive(self))
        return self._derived[derive]

    @property
    def is_log(self) -> bool:
        """Whether they were read from a log or from checkpoints, and no training was watched."""
        return len(self["logs"]) > 0 or len(self["checkpoints"]) > 0

    @property
    def last_step(self) -> int:
        """The last step of which anything is known; 0 if nothing is."""
        steps = self["steps"].steps
        return int(steps[-1]) if len(steps) else 0

    @property
    def update_line(self) -> str:
        """Where an optimizer was called last; empty if that is unknown."""
        return str(next(filter(None, reversed(self["steps"]["update_line"].tolist())), ""))

    @property
    def loss_line(self) -> str:
        """Where the first loss is computed, or else where its backward pass begins; empty if neither is known."""
        lines = (*self["loss_functions"]["line"].tolist(), *self["losses"]["line"].tolist())
        return str(next(filter(None, lines), ""))
