"""What a hit means and what to try next, for every condition."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensight.watchpoints.catalogue import condition
from tensight.watchpoints.checks import ConditionCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from tensight.watchpoints.conditions import Condition


class BilingualText(str):
    """An English text with its Chinese translation.

    Parameters
    ----------
    english, chinese : str

    Attributes
    ----------
    chinese : str
    """

    chinese: str

    def __new__(cls, english: str, chinese: str) -> Self:
        """Create the English text, with the Chinese text as an attribute."""
        text = super().__new__(cls, english)
        text.chinese = chinese
        return text


@dataclass(frozen=True, slots=True)
class Advice:
    """Help with a hit.

    Attributes
    ----------
    titles : tuple of str
        Display name of the condition, in English and in Chinese.
    summary : str
        One sentence: what the condition says about the training.
    steps : tuple of str
        What to do next, most promising first.
    """

    titles: tuple[str, str]
    summary: str
    steps: tuple[str, ...]


_UPSTREAM = BilingualText(
    "Look at the inputs of the operator that produced this tensor in the same step: if one of them is already"
    " abnormal, go on from there, upstream, until the inputs are sound and the output is not. The page's banner,"
    " `session.origins()` and `tensight origin` do this walk.",
    "查看产生该张量的算子在同一步的输入：如果某个输入已经异常，就从那里继续向上游追查，直到输入正常而输出异常为止。页面上的横幅、`session.origins()` 与 `tensight origin` 会完成这一追查。",
)
_LEARNING_RATE_HIGH = BilingualText(
    "Lower the learning rate by a factor of 3 to 10, or lengthen the warm-up, and see whether the hit comes"
    " later or not at all.",
    "将学习率降低到原来的 1/3 至 1/10，或延长预热，看命中是否推迟或消失。",
)
_LEARNING_RATE_LOW = BilingualText(
    "Print the learning rate that the optimizer uses in this step: it may be too low, or a schedule may have"
    " brought it to zero.",
    "打印优化器在这一步使用的学习率：可能过低，或已被调度策略降为零。",
)
_GRADIENT_LARGE = BilingualText(
    "Check the gradients of this weight with gradient_too_large; if they are large, clip them by their global"
    " norm and look for the layer where they grow.",
    "用 gradient_too_large 检查该权重的梯度；如果梯度很大，按全局范数裁剪，并找出梯度开始变大的层。",
)
_GRADIENT_SMALL = BilingualText(
    "Check the gradients of this weight with gradient_vanishing; if they are tiny or zero, the cause lies"
    " between the loss and this layer.",
    "用 gradient_vanishing 检查该权重的梯度；如果很小或为零，原因位于损失与该层之间。",
)
_OPTIMIZER = BilingualText(
    "Check the optimizer: its hyper-parameters (epsilon, betas, momentum, weight decay), its moments for"
    " non-finite or huge values, and whether loss scaling is undone before the update.",
    "检查优化器：超参数（epsilon、beta、动量、权重衰减），动量等状态是否有非有限值或极大值，以及更新之前是否还原了 loss scale。",
)
_FROZEN = BilingualText(
    "Make sure that the weight is meant to be trained and reaches the optimizer: requires_grad is on, its"
    " parameter group includes it, and nothing detaches or stops its gradient.",
    "确认该权重应当参与训练并且交给了优化器：requires_grad 已打开，所在参数组包含它，并且没有操作截断或停止它的梯度。",
)
_BEFORE_UPDATE = BilingualText(
    "Look at the weight before this update: if it was already out of range in the first step, the"
    " initialization or the loaded checkpoint is the cause.",
    "查看本次更新之前的权重：如果第一步就已超出范围，原因在于初始化或加载的 checkpoint。",
)
_DATA = BilingualText(
    "Look at the batch of this step: values that are not normalised, missing ones coded as huge numbers, or a"
    " label outside the expected range.",
    "查看这一步的数据批次：是否有未归一化的值、用极大数表示的缺失值，或超出预期范围的标签。",
)
_PRECISION = BilingualText(
    "If the tensor is float16, compare its size with 65504, the largest float16: compute this operator in"
    " float32 or bfloat16, or adjust the loss scale.",
    "如果张量是 float16，将其大小与 float16 的最大值 65504 比较：改用 float32 或 bfloat16 计算该算子，或调整 loss scale。",
)
_DIVISION = BilingualText(
    "Look for a division by zero, a logarithm or a square root of zero or less, or an exponential of a large"
    " number at the operator's line of code; clamp the argument or add a small constant.",
    "检查该算子所在的代码行：是否除以零、对零或负数取对数或开方、对很大的数取指数；限制自变量的范围或加上一个小常数。",
)

_WEIGHT_RANGE_STEPS = (_BEFORE_UPDATE, _LEARNING_RATE_HIGH, _GRADIENT_LARGE, _OPTIMIZER)
_OVERFLOW_STEPS = (_UPSTREAM, _DIVISION, _PRECISION, _DATA)

ADVICE: Mapping[str, Advice] = MappingProxyType(
    {
        "weight_initialization": Advice(
            ("Weight initialization", "权重初始化"),
            BilingualText(
                "A weight starts with values from which training may never move: all zero, or unusually large.",
                "权重的初始值可能使训练无法推进：全为零，或异常地大。",
            ),
            (
                BilingualText(
                    "Check the initializer of this layer in the script; weights of dense and convolution layers"
                    " usually start from a Xavier or He distribution, only biases and normalisation shifts from"
                    " zero.",
                    "检查脚本中该层的初始化方法：全连接层和卷积层的权重通常采用 Xavier 或 He 分布，只有偏置和归一化层的平移参数才从零开始。",
                ),
                BilingualText(
                    "If a checkpoint is loaded, compare names and shapes of its entries with the network's: an"
                    " entry that was not found leaves the weight as it was constructed.",
                    "如果加载了 checkpoint，请将其中各项的名称和形状与网络对照：未找到的项会使权重保持构造时的值。",
                ),
                BilingualText(
                    "Check the order of construction, loading and any copying or quantising of weights: a later"
                    " step may overwrite a good initialization.",
                    "检查权重的构造、加载以及复制或量化的先后顺序：后面的步骤可能覆盖了正确的初始值。",
                ),
            ),
        ),
        "weight_overflow": Advice(
            ("Weight overflow", "权重溢出"),
            BilingualText(
                "A weight holds NaN or infinite elements; every later step computes with them and the training is"
                " lost from here on.",
                "权重含有 NaN 或无穷大的元素；此后每一步都会用到它们，训练从此失效。",
            ),
            (
                BilingualText(
                    "Find the first step with a hit and look at the gradient of this weight there: if it is not"
                    " finite, the page's banner, `session.origins()` and `tensight origin` name where that began.",
                    "找到首次命中的那一步，查看该权重在那一步的梯度：如果梯度不是有限值，页面上的横幅、`session.origins()` 与 `tensight origin` 会给出异常的起源。",
                ),
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
                BilingualText(
                    "Go back to the last checkpoint before the first hit: values that are not finite do not recover.",
                    "回到首次命中之前的最后一个 checkpoint：变为非有限值的元素无法恢复。",
                ),
            ),
        ),
        "weight_too_large": Advice(
            ("Weight too large", "权重过大"),
            BilingualText(
                "A weight has grown beyond the limit that was set, which points to an unstable update.",
                "权重超出了设定的上限，说明更新不稳定。",
            ),
            _WEIGHT_RANGE_STEPS,
        ),
        "weight_too_small": Advice(
            ("Weight too small", "权重过小"),
            BilingualText(
                "A weight has shrunk or drifted below the limit that was set, so its layer may propagate almost nothing.",
                "权重低于设定的下限，该层可能几乎不再传递信息。",
            ),
            (
                _BEFORE_UPDATE,
                BilingualText(
                    "Lower the weight decay: with little gradient it pulls a weight towards zero in every step.",
                    "降低权重衰减：梯度很小时，它会在每一步把权重拉向零。",
                ),
                _LEARNING_RATE_LOW,
                _GRADIENT_SMALL,
                _OPTIMIZER,
            ),
        ),
        "weight_not_changed": Advice(
            ("Weight not changed", "权重未变化"),
            BilingualText(
                "A weight is the same as one step before, within the tolerance: the layer is not learning.",
                "在容差范围内，权重与上一步相同：该层没有在学习。",
            ),
            (
                _FROZEN,
                _LEARNING_RATE_LOW,
                _GRADIENT_SMALL,
                BilingualText(
                    "Check whether this step was skipped, as loss scaling does after an overflow, or lies between"
                    " two updates of gradient accumulation.",
                    "检查这一步是否被跳过（溢出后 loss scale 会跳过更新），或处于梯度累积的两次更新之间。",
                ),
                _OPTIMIZER,
            ),
        ),
        "weight_change_too_large": Advice(
            ("Weight change too large", "权重变化过大"),
            BilingualText(
                "One update has moved a weight by a large part of its own size, which often comes before divergence.",
                "一次更新使权重变化了自身大小的很大一部分，这往往是发散的前兆。",
            ),
            (
                BilingualText(
                    "See whether it happens only in the first updates of a weight that starts at zero; that is harmless.",
                    "看这种情况是否只出现在从零开始的权重的最初几次更新中；若是则无害。",
                ),
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
            ),
        ),
        "weight_change_too_small": Advice(
            ("Weight change too small", "权重变化过小"),
            BilingualText(
                "One update has moved a weight by a negligible part of its own size: the layer learns very slowly"
                " or not at all.",
                "一次更新对权重的改变微乎其微：该层学得很慢，或根本没有学习。",
            ),
            (_LEARNING_RATE_LOW, _GRADIENT_SMALL, _FROZEN, _OPTIMIZER),
        ),
        "gradient_exploding": Advice(
            ("Gradient exploding", "梯度爆炸"),
            BilingualText(
                "A gradient holds NaN or infinite elements, and the next update would carry them into the weights.",
                "梯度含有 NaN 或无穷大的元素，下一次更新会把它们带入权重。",
            ),
            (
                _UPSTREAM,
                BilingualText(
                    "Check the loss of this step: if it is not finite, the cause lies in the forward pass.",
                    "检查这一步的损失：如果不是有限值，原因在前向计算中。",
                ),
                _DIVISION,
                _PRECISION,
            ),
        ),
        "gradient_too_large": Advice(
            ("Gradient too large", "梯度过大"),
            BilingualText(
                "A gradient exceeds the limit that was set; the update that follows may throw the weights off.",
                "梯度超过设定的上限；随后的更新可能使权重失控。",
            ),
            (
                _UPSTREAM,
                BilingualText(
                    "Compare the gradients along the backward pass: where they start to grow from layer to layer,"
                    " look at the initialization and at missing normalisation.",
                    "沿反向传播路径比较梯度：从哪一层开始逐层变大，就检查那里的初始化以及是否缺少归一化。",
                ),
                BilingualText(
                    "Clip gradients by their global norm.",
                    "按全局范数裁剪梯度。",
                ),
                _DATA,
            ),
        ),
        "gradient_vanishing": Advice(
            ("Gradient vanishing", "梯度消失"),
            BilingualText(
                "A gradient is so small that the layers behind it hardly learn.",
                "梯度过小，其后的各层几乎不再学习。",
            ),
            (
                _UPSTREAM,
                BilingualText(
                    "Look at the activation functions on the way: a saturated tanh or sigmoid and a dead ReLU pass"
                    " no gradient back; activation_range shows them.",
                    "查看沿途的激活函数：饱和的 tanh 或 sigmoid、失活的 ReLU 不会回传梯度；activation_range 可以发现它们。",
                ),
                BilingualText(
                    "In a deep network without residual connections or normalisation, add them, or choose another"
                    " initialization.",
                    "对于没有残差连接或归一化的深层网络，请加上它们，或换一种初始化方法。",
                ),
                BilingualText(
                    "In float16, small gradients round to zero: raise the loss scale or use bfloat16.",
                    "在 float16 中，很小的梯度会舍入为零：提高 loss scale，或使用 bfloat16。",
                ),
            ),
        ),
        "activation_range": Advice(
            ("Activation range", "激活值范围"),
            BilingualText(
                "An activation function works outside its useful range, for example a saturated tanh or a ReLU that"
                " is almost always off.",
                "激活函数工作在有效范围之外，例如饱和的 tanh，或几乎总是关闭的 ReLU。",
            ),
            (
                BilingualText(
                    "Look at the input of the activation function: if it is far from zero, find out what shifted or"
                    " scaled it, starting with the weight and bias of the layer before.",
                    "查看激活函数的输入：如果远离零，找出使其平移或放大的原因，先从前一层的权重和偏置查起。",
                ),
                BilingualText(
                    "Put a normalisation layer before the activation function, or reduce the scale of the initialization.",
                    "在激活函数之前加归一化层，或减小初始化的幅度。",
                ),
                BilingualText(
                    "For a ReLU that is off for the whole batch: lower the learning rate, start biases at or above"
                    " zero, or use a leaky variant.",
                    "如果 ReLU 对整个批次都关闭：降低学习率，让偏置从零或正值开始，或改用带泄漏的变体。",
                ),
                _UPSTREAM,
            ),
        ),
        "tensor_overflow": Advice(
            ("Tensor overflow", "张量溢出"),
            BilingualText(
                "A tensor holds NaN or infinite elements.",
                "张量含有 NaN 或无穷大的元素。",
            ),
            _OVERFLOW_STEPS,
        ),
        "operator_overflow": Advice(
            ("Operator overflow", "算子溢出"),
            BilingualText(
                "The device reported that this operator exceeded the range of its number format while computing,"
                " even if its output looks finite.",
                "设备报告该算子在计算过程中超出了数值格式的范围，即使输出看起来是有限值。",
            ),
            (
                _UPSTREAM,
                _PRECISION,
                BilingualText(
                    "Check the operator's intermediate sums: a long reduction or a large product overflows before"
                    " the result is scaled back.",
                    "检查算子的中间求和：较长的归约或较大的乘积会在结果缩放回来之前溢出。",
                ),
                BilingualText(
                    "With dynamic loss scaling, a rare overflow is expected; many in a row mean that the scale does"
                    " not settle.",
                    "使用动态 loss scale 时，偶尔溢出属于正常；连续多次溢出说明 loss scale 未能稳定。",
                ),
            ),
        ),
        "tensor_too_large": Advice(
            ("Tensor too large", "张量过大"),
            BilingualText(
                "A tensor exceeds the limit that was set.",
                "张量超过设定的上限。",
            ),
            (_UPSTREAM, _DATA, _PRECISION),
        ),
        "tensor_too_small": Advice(
            ("Tensor too small", "张量过小"),
            BilingualText(
                "A tensor lies below the limit that was set.",
                "张量低于设定的下限。",
            ),
            (
                _UPSTREAM,
                _DATA,
                BilingualText(
                    "In float16, numbers below about 6e-8 round to zero: compute this operator in float32.",
                    "在 float16 中，小于约 6e-8 的数会舍入为零：改用 float32 计算该算子。",
                ),
            ),
        ),
        "tensor_all_zero": Advice(
            ("Tensor all zero", "张量全为零"),
            BilingualText(
                "All elements of a tensor are zero, or more than allowed, so it propagates no information.",
                "张量全为零，或零值多于允许的比例，不再传递任何信息。",
            ),
            (
                BilingualText(
                    "Decide whether zeros are normal here: a mask, a counter, a bias or a moment before its first update.",
                    "判断这里为零是否正常：掩码、计数器、首次更新之前的偏置或动量。",
                ),
                _UPSTREAM,
                BilingualText(
                    "If the inputs are not zero, look for a dead ReLU, a multiplication by an empty mask, dropout"
                    " with a rate of 1, or an integer division.",
                    "如果输入不为零，检查是否有失活的 ReLU、与空掩码相乘、比率为 1 的 dropout，或整数除法。",
                ),
                _DATA,
            ),
        ),
        "unintended_zeros": Advice(
            ("Unintended zeros", "意外全零"),
            BilingualText(
                "A tensor is all zero although its inputs are not: the network propagates no information from here on.",
                "张量全为零，而其计算来源并非如此：网络从这里开始不再传递任何信息。",
            ),
            (
                BilingualText(
                    "Look at the inputs of the operator: an empty or inverted mask, a dead ReLU, dropout with a rate of 1,"
                    " an integer division, or an index that always selects padding turns them into zeros.",
                    "查看该算子的输入：空掩码或取反的掩码、失活的 ReLU、比率为 1 的 dropout、整数除法，或总是取到填充值的索引，都会使结果为零。",
                ),
                BilingualText(
                    "In float16, numbers below about 6e-8 round to zero: compute this operator in float32.",
                    "在 float16 中，小于约 6e-8 的数会舍入为零：改用 float32 计算该算子。",
                ),
                BilingualText(
                    "If the zeros are intended, as in a branch that is temporarily disabled, exclude the operator from the"
                    " watchpoint.",
                    "如果这些零值是有意为之（例如暂时关闭的分支），请将该算子移出监测点。",
                ),
            ),
        ),
        "tensor_range": Advice(
            ("Tensor range", "张量取值范围"),
            BilingualText(
                "The values of a tensor are distributed differently than expected.",
                "张量取值的分布与预期不同。",
            ),
            (
                _UPSTREAM,
                BilingualText(
                    "Look at the tensor's histogram: one far outlier, a shift of everything, and a collapse to one"
                    " value have different causes.",
                    "查看张量的直方图：单个远离群体的值、整体平移、全部收缩为一个值，原因各不相同。",
                ),
                _DATA,
            ),
        ),
        "dead_units": Advice(
            ("Dead units", "神经元失活"),
            BilingualText(
                "Many units of an activation function are zero for the whole batch: they propagate nothing, and no"
                " gradient revives them.",
                "激活函数的许多神经元对整个批次输出为零：不再传递任何信息，也没有梯度能使其恢复。",
            ),
            (
                BilingualText(
                    "Look at the bias of the layer before, and at the shift of a normalisation between them: if it is far"
                    " below zero, find the update, or the initialization, that made it so.",
                    "查看前一层的偏置，以及其间归一化层的平移参数：如果远小于零，找出造成这一结果的更新或初始化。",
                ),
                _LEARNING_RATE_HIGH,
                BilingualText(
                    "Use a leaky variant of the function, or put a normalisation layer before it.",
                    "改用该函数的带泄漏变体，或在其前加归一化层。",
                ),
                _GRADIENT_LARGE,
            ),
        ),
        "saturated_units": Advice(
            ("Saturated units", "神经元饱和"),
            BilingualText(
                "Many units of an activation function are at their limits for almost the whole batch, where it passes back"
                " hardly any gradient.",
                "激活函数的许多神经元对几乎整个批次都处于极限值，几乎不回传梯度。",
            ),
            (
                BilingualText(
                    "Look at the input of the activation function: if it is far from zero, find out what scaled it,"
                    " starting with the weight of the layer before and with data that are not normalised.",
                    "查看激活函数的输入：如果远离零，找出使其放大的原因，先从前一层的权重和未归一化的数据查起。",
                ),
                BilingualText(
                    "Reduce the scale of the initialization, or put a normalisation layer before the function.",
                    "减小初始化的幅度，或在该函数之前加归一化层。",
                ),
                _LEARNING_RATE_HIGH,
            ),
        ),
        "weights_differ": Advice(
            ("Weights differ between ranks", "各卡权重不一致"),
            BilingualText(
                "Ranks that train one network together have different values of a weight: from here on each trains a"
                " different network.",
                "共同训练一个网络的各卡持有不同的权重值：从此各卡训练的是各自的网络。",
            ),
            (
                BilingualText(
                    "Find the first step with a hit: if it is the start, the ranks were initialised differently (seeds, a"
                    " checkpoint that only one of them loaded).",
                    "找到首次命中的那一步：如果是在开始时，说明各卡的初始化不同（随机种子，或只有其中一卡加载了 checkpoint）。",
                ),
                BilingualText(
                    "Make sure that every rank runs the same operators, and that gradients are reduced for all parameters;"
                    " a module called outside of the wrapper is not.",
                    "确认每张卡运行相同的算子，并且所有参数的梯度都经过归约；在封装之外调用的模块不会参与归约。",
                ),
                BilingualText(
                    "If each rank computes the weight separately, such as a running mean, exclude it from the watchpoint.",
                    "如果该权重本来就由每张卡各自统计（例如滑动平均），请将其移出监测点。",
                ),
            ),
        ),
        "unintended_overflow": Advice(
            ("Unintended overflow", "意外溢出"),
            BilingualText(
                "A tensor holds NaN or infinite elements that were not written by a mask.",
                "张量含有并非掩码写入的 NaN 或无穷大元素。",
            ),
            _OVERFLOW_STEPS,
        ),
        "weight_growth": Advice(
            ("Weight growth", "权重骤增"),
            BilingualText(
                "One update has made a weight many times larger, which hardly any training survives.",
                "一次更新使权重增大了许多倍，几乎没有训练能够承受。",
            ),
            (
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
                BilingualText(
                    "See whether something else than the optimizer writes to the weight: a callback, weight averaging, a"
                    " checkpoint that is loaded.",
                    "检查是否有优化器以外的代码写入该权重：回调函数、权重平均、加载 checkpoint。",
                ),
            ),
        ),
        "gradient_growth": Advice(
            ("Gradient growth", "梯度骤增"),
            BilingualText(
                "A gradient is far larger than any before it.",
                "梯度远大于此前的任何梯度。",
            ),
            (
                BilingualText(
                    "Look at the batch of this step, and at its loss: one sample with a wrong label or a huge value can do"
                    " this.",
                    "查看这一步的数据批次及其损失：一个标签错误或数值极大的样本就可能造成这种情况。",
                ),
                _LEARNING_RATE_HIGH,
                BilingualText(
                    "Clip gradients by their global norm.",
                    "按全局范数裁剪梯度。",
                ),
                _UPSTREAM,
            ),
        ),
        "gradient_imbalance": Advice(
            ("Gradient imbalance", "梯度失衡"),
            BilingualText(
                "Layers far from the loss get gradients that are many orders of magnitude smaller, or larger, than those"
                " near it.",
                "远离损失的层所得到的梯度，比靠近损失的层小（或大）许多个数量级。",
            ),
            (
                BilingualText(
                    "Compare the gradients along the backward pass: they shrink, or grow, from layer to layer where"
                    " activations saturate, weights are too small or too large, or nothing normalises.",
                    "沿反向传播路径比较梯度：在激活函数饱和、权重过小或过大、缺少归一化的地方，梯度会逐层缩小或放大。",
                ),
                BilingualText(
                    "In a deep network without residual connections or normalisation, add them, or choose another"
                    " initialization.",
                    "对于没有残差连接或归一化的深层网络，请加上它们，或换一种初始化方法。",
                ),
                BilingualText(
                    "In a recurrent network, shorten the sequence, clip gradients, or use gates.",
                    "对于循环网络，缩短序列、裁剪梯度，或使用门控结构。",
                ),
                _PRECISION,
            ),
        ),
    }
)
"""Advice for each condition except the legacy ones."""

_LEGACY = {"nan": "tensor_overflow", "inf": "tensor_overflow"}
_LEGACY |= dict.fromkeys(("max_gt", "min_gt", "mean_gt"), "tensor_too_large")
_LEGACY |= dict.fromkeys(("max_lt", "min_lt", "mean_lt"), "tensor_too_small")
_LEGACY |= dict.fromkeys(("max_min_gt", "max_min_lt", "sd_gt", "sd_lt"), "tensor_range")


def advice(subject: str | Condition | ConditionCheck) -> Advice:
    """Return what a hit of a condition means and what to do next.

    Parameters
    ----------
    subject : str, Condition or ConditionCheck
        A condition, its id or abbreviation, or a check of it. A legacy condition has the advice of its replacement; a
        condition that a user registered has its own meaning and the general steps.

    Returns
    -------
    Advice
        Always with at least one step.

    Raises
    ------
    InputError
        There is no such condition.
    """
    chosen = subject.condition if isinstance(subject, ConditionCheck) else subject
    declared = condition(chosen) if isinstance(chosen, str) else chosen
    text = ADVICE.get(_LEGACY.get(declared.id, declared.id))
    if text is not None:
        return text
    return Advice(
        (declared.id, declared.id), declared.meaning or f"The condition {declared.id} hit.", (_UPSTREAM, _DATA)
    )
