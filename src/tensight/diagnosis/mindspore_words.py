"""What rules write differently of trainings on MindSpore, where their sentences name calls of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.diagnosis.rule import Words

_NOT_HELD: Words = (
    "{count} parameters that the loss is computed from are in no optimizer: {names}",
    "{count} 个参与计算损失的参数不在任何优化器中：{names}",
)
_TAKES: Words = ("each takes {momentum:.2g} of the new batch", "每次取新批次的 {momentum:.2g}")

ADVICE: Mapping[str, Words] = {
    "no-gradients": (
        "Compute the loss from the network's output with operators of MindSpore, within the function that value_and_grad"
        " differentiates: stop_gradient, Tensor.asnumpy() and Tensor.item() end the graph",
        "在 value_and_grad 求导的函数内，用 MindSpore 算子从网络输出计算损失：stop_gradient、Tensor.asnumpy() 和 Tensor.item() 会截断计算图",
    ),
    "no-gradient": (
        "Look for what ends the graph behind them: ops.stop_gradient, Tensor.asnumpy(), or a layer that is never called",
        "查找在它们之后截断计算图的地方：ops.stop_gradient、Tensor.asnumpy()，或从未被调用的层",
    ),
    "zero-gradient": (
        "Follow them back from the loss: a unit that is always off (ReLU), a factor that is 0, a softmax over one unit, a"
        " bprop that returns zeros, or two factors that both begin at 0",
        "从损失向后追踪：始终关闭的单元 (ReLU)、等于 0 的因子、只有一个单元的 softmax、返回零的 bprop，或两个初始都为 0 的因子",
    ),
    "not-in-optimizer": (
        "Give them to the optimizer and to value_and_grad (net.trainable_params(), after the last change of the network;"
        " layers in a list belong into an nn.CellList), or freeze them with requires_grad = False",
        "把它们交给优化器和 value_and_grad (在网络最后一次修改之后调用 net.trainable_params()；列表中的层应放入 nn.CellList)，"
        "或用 requires_grad = False 冻结",
    ),
    "frozen-since": (
        "If this is not meant: look for requires_grad = False, or for a function that evaluates, saves or exports, and"
        " does not switch gradients on again",
        "如果不是有意为之：查找 requires_grad = False，或评估、保存、导出后没有重新打开梯度的函数",
    ),
    "clipped-scaled": (
        "Unscale the gradients before clipping: loss_scaler.unscale(grads)",
        "裁剪前先取消缩放：loss_scaler.unscale(grads)",
    ),
    "gradients-repeated": (
        "Compute the gradients of each step before its update, once each",
        "每一步先计算梯度再更新，各一次",
    ),
    "gradients-still-scaled": (
        "Call loss_scaler.unscale(grads) before the optimizer, or give the optimizer its loss_scale",
        "在优化器之前调用 loss_scaler.unscale(grads)，或为优化器设置 loss_scale",
    ),
    "batch-repeated": (
        "Iterate over one iterator: next(data.create_tuple_iterator()) in the loop begins anew each time",
        "使用同一个迭代器遍历：循环中的 next(data.create_tuple_iterator()) 每次都重新开始",
    ),
    "one-class": (
        "Use one unit with a sigmoid (BCEWithLogitsLoss), or two with a softmax",
        "用一个单元加 sigmoid (BCEWithLogitsLoss)，或两个单元加 softmax",
    ),
    "softmax-axis": ("Give the axis of the classes (axis=1, or axis=-1)", "指定类别轴 (axis=1 或 axis=-1)"),
    "replicas-differ": (
        "Average the gradients (nn.DistributedGradReducer), and set the same seed on all ranks, or broadcast the weights",
        "平均梯度 (nn.DistributedGradReducer)，并在各 rank 设置相同的种子或广播权重",
    ),
    "ranks-same-data": (
        "Give the data set num_shards and shard_id, or another seed for the data of each rank",
        "为数据集设置 num_shards 和 shard_id，或为各 rank 的数据设置不同的种子",
    ),
    "ranks-gradients": (
        "Divide by the number of ranks once: nn.DistributedGradReducer does it if mean is True",
        "只除以 rank 数一次：mean 为 True 时 nn.DistributedGradReducer 会求平均",
    ),
    "learning-rate-zero": (
        "Check the learning rate with which the optimizer was made, and for how many steps its schedule was",
        "检查创建优化器时的学习率，以及其调度的总步数",
    ),
    "learning-rate-collapsed": (
        "Check for how many steps the schedule was made: it counts updates, not epochs",
        "检查调度的总步数：它按更新次数而不是 epoch 计数",
    ),
    "evaluation-mode": (
        "Call net.set_train() before training, after loading and after each evaluation",
        "在训练之前、加载之后以及每次评估之后调用 net.set_train()",
    ),
    "training-mode": (
        "Call net.set_train(False) before evaluating, and net.set_train() afterwards",
        "评估前调用 net.set_train(False)，之后调用 net.set_train()",
    ),
    "mode-left": ("Call net.set_train() after evaluating or sampling", "在评估或采样之后调用 net.set_train()"),
    "norm-momentum": (
        "Use the default: momentum=0.9 of nn.BatchNorm1d … 3d, momentum=0.1 of mindspore.mint.nn",
        "使用默认值：nn.BatchNorm1d … 3d 为 momentum=0.9，mindspore.mint.nn 为 momentum=0.1",
    ),
    "tied-apart": (
        "Use the parameter itself in both (output.weight = embedding.embedding_table), after loading the network",
        "两处使用同一个参数 (output.weight = embedding.embedding_table)，并在加载网络之后进行",
    ),
    "scale-by-depth": (
        "Initialise each layer by its width (HeUniform, XavierUniform), or normalise between layers",
        "按每层宽度初始化 (HeUniform、XavierUniform)，或在层间归一化",
    ),
    "optimizer-of-others": (
        "Make the optimizer from the parameters of the network that is trained, after its last change",
        "在最后一次修改之后，用所训练网络的参数创建优化器",
    ),
    "update-without-effect": (
        "Write values into parameters with ops.assign: after set_data or load_param_into_net in the course of a training,"
        " optimizers may go on with what was there before",
        "用 ops.assign 写入参数：训练过程中使用 set_data 或 load_param_into_net 之后，优化器可能继续使用之前的数据",
    ),
    "optimizer-never-steps": ("Call each optimizer with its gradients", "用各自的梯度调用每个优化器"),
}
"""Advice, by the rule."""

MESSAGES: Mapping[tuple[str, str], Words] = {
    ("not-in-optimizer", "within"): _NOT_HELD,
    ("not-in-optimizer", "among"): _NOT_HELD,
    ("optimizer-of-others", "others"): (
        "{group} updates {unknown} parameters of no network that runs, while {names} are in no optimizer",
        "{group} 更新 {unknown} 个不属于任何运行中网络的参数，而 {names} 不在任何优化器中",
    ),
    ("activation-twice", "cross_entropy"): (
        "{activation} before {loss_function}, which applies its own softmax: the scores are squashed into 0 … 1 first",
        "{loss_function} 自带 softmax，而之前又用了 {activation}：分数先被压缩到 0 … 1",
    ),
    ("activation-twice", "bce"): (
        "{activation} before {loss_function}, which applies its own sigmoid",
        "{loss_function} 自带 sigmoid，而之前又用了 {activation}",
    ),
    ("activation-twice", "labels"): (
        "softmax before {loss_function}: its outputs sum to 1, and several labels can be true",
        "{loss_function} 之前使用了 softmax：其输出之和为 1，而可能有多个标签为真",
    ),
    ("activation-twice", "clipped"): (
        "{activation} before {loss_function}: it takes a range from the scores",
        "{loss_function} 之前使用了 {activation}：它限制了分数的范围",
    ),
    ("norm-momentum", "never"): (
        "The running statistics of {count} modules never move: {names}",
        "{count} 个模块的运行统计量从不更新：{names}",
    ),
    ("norm-momentum", "last"): (
        "The running statistics of {count} modules are those of the last batch alone: {names}",
        "{count} 个模块的运行统计量只来自最后一个批次：{names}",
    ),
    ("norm-momentum", "keras"): (
        "The running statistics of {count} modules follow almost the last batch alone: {names}",
        "{count} 个模块的运行统计量几乎只跟随最后一个批次：{names}",
    ),
    ("mode-left", "left"): (
        "{model} is trained in evaluation mode from step {step} on: what depends on the mode no longer acts",
        "{model} 从第 {step} 步起在评估模式下训练：依赖模式的部分不再起作用",
    ),
}
"""Sentences, by the rule and the key of the sentence."""

EVIDENCE: Mapping[tuple[str, str], Words] = {
    ("not-in-optimizer", "nested"): (
        "the loss is computed from them; layers in a plain list or dictionary are no part of the network",
        "损失由它们计算得到；普通列表或字典中的层不属于网络",
    ),
    ("norm-momentum", "never"): _TAKES,
    ("norm-momentum", "last"): _TAKES,
    ("norm-momentum", "keras"): (
        "each takes {momentum:.2g} of the new batch; momentum is the share that nn.BatchNorm1d … 3d keep, but the share of the"
        " new batch in PyTorch and mindspore.mint",
        "每次取新批次的 {momentum:.2g}；momentum 在 nn.BatchNorm1d … 3d 中是保留的比例，而在 PyTorch 和 mindspore.mint 中是新批次的比例",
    ),
}
"""Evidence, by the rule and the key of the sentence."""
