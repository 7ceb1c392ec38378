"""Which programs there are, what is wrong with each, and where.

`CASES` have a planted fault each; `HEALTHY` have none, though some look as if they had.
``python benchmarks/diagnosis.py`` runs them all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A program with a fault.

    Attributes
    ----------
    script : str
        In this folder, without its suffix.
    program : str
        The first argument of the script.
    fault : str
        What follows ``--fault``.
    categories : tuple of str
        Those that may be named for it, the most fitting first.
    places : tuple of str
        One of them, in lower case, must appear in what the finding names or tells.
    line : str
        A part of the faulty line that is unique in the script; empty where the fault is no single line.
    since : int
        The step of any optimizer since which it is so; 0 is from the beginning on.
    report : str
        Where somebody had this trouble, where it was taken from there.
    unsure : str
        Why the category or the place may be argued about; empty where they may not.
    rules : tuple of str
        Those that may be named for it; empty where any of an accepted category may.
    is_probed : bool
        Whether experiments are made with it.
    """

    script: str
    program: str
    fault: str
    categories: tuple[str, ...]
    places: tuple[str, ...]
    line: str = ""
    since: int = 0
    report: str = ""
    unsure: str = ""
    rules: tuple[str, ...] = ()
    is_probed: bool = False

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.script, self.program, self.fault)))

    @property
    def family(self) -> str:
        return "probed" if self.script in ("faulty", "healthy") else self.script

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.program, "--fault", self.fault) if self.fault else (self.program,)


@dataclass(frozen=True)
class Healthy:
    """A program without a fault.

    Attributes
    ----------
    script : str
        In this folder, without its suffix.
    program : str
        The first argument of the script.
    resembles : str
        The category of a fault that it looks like; empty for twins of faulty programs, and where it looks like none.
    is_probed : bool
        Whether experiments are made with it.
    """

    script: str
    program: str
    resembles: str = ""
    is_probed: bool = False

    @property
    def name(self) -> str:
        return f"{self.script}/{self.program}"

    @property
    def family(self) -> str:
        return "probed" if self.script in ("faulty", "healthy") else self.script

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.program,)


_GRAPHS = (
    Case(
        "graphs",
        "regression",
        "new-tensor",
        ("gradient-cut",),
        ("0.weight", "4.weight", "tensor", "loss", "all"),
        "torch.tensor(loss.item()",
    ),
    Case("graphs", "autoencoder", "detached", ("gradient-cut",), ("encoder", "detach"), "z = z.detach()"),
    Case("graphs", "pooling", "numpy", ("gradient-cut",), ("features", "detach", "numpy"), "a = maps.detach().numpy()"),
    Case(
        "graphs", "residual", "data", ("gradient-cut",), ("blocks.2", "data", "detach"), "self.mlp(self.norm(x)).data"
    ),
    Case(
        "graphs",
        "checkpointed",
        "reentrant",
        ("gradient-cut",),
        ("blocks", "checkpoint"),
        "checkpoint(block, x, use_reentrant",
        report="https://github.com/huggingface/transformers/issues/21381",
    ),
    Case(
        "graphs", "seq2seq", "no-grad-method", ("gradient-cut",), ("encoder", "no_grad"), "state = self.extract(source)"
    ),
    Case(
        "graphs",
        "vq",
        "hard-lookup",
        ("gradient-cut",),
        ("down", "argmin", "argmax", "codes"),
        "return self.up(q), codebook",
    ),
)

_OPTIMIZERS = (
    Case("optimizers", "stack", "python-list", ("not-in-optimizer",), ("linear", "hidden"), "self.hidden = layers"),
    Case(
        "optimizers",
        "lazy",
        "built-in-forward",
        ("not-in-optimizer",),
        ("projection",),
        "self.projection = nn.Linear(x.shape[1], 32)",
    ),
    Case("optimizers", "groups", "exhausted", ("not-in-optimizer",), ("bias", "norm"), "params = model.parameters()"),
    Case(
        "optimizers",
        "best-copy",
        "of-the-copy",
        ("not-in-optimizer", "optimizer"),
        ("rmsprop", "0.weight", "conv", "optimizer"),
        "optimizer = optim.RMSprop(",
    ),
    Case(
        "optimizers",
        "reinstantiated",
        "made-again",
        ("not-in-optimizer", "optimizer"),
        ("adam", "gru", "weight_ih", "linear", "optimizer"),
        "rnn, head = nn.GRU(4, 24, batch_first=True), nn.Linear",
        report="https://github.com/spro/practical-pytorch/issues/9",
    ),
    Case(
        "optimizers",
        "query",
        "no-parameter",
        ("not-in-optimizer",),
        ("query", "mul", "[1, 16]", "tensor"),
        "self.query = torch.zeros(1, 16, requires_grad=True)",
    ),
    Case(
        "optimizers",
        "two",
        "both-on-encoder",
        ("optimizer",),
        ("0.0", "encoder", "sgd", "adamw"),
        "opt_head = optim.SGD(model.parameters(), lr=0.05)",
    ),
    Case(
        "optimizers",
        "listed",
        "listed-twice",
        ("optimizer",),
        ("backbone", "sgd"),
        "list(net.backbone.parameters()) + list(net.parameters())",
    ),
    Case(
        "optimizers",
        "rebuilt",
        "every-batch",
        ("optimizer",),
        ("adam", "optimizer"),
        "optimizer = optim.Adam(net.parameters(), lr=2e-3)",
        since=1,
    ),
    Case(
        "optimizers",
        "reloaded",
        "model-replaced",
        ("not-in-optimizer", "optimizer"),
        ("adam", "0.weight", "linear", "optimizer"),
        "model = build().train()",
        since=30,
    ),
    Case(
        "optimizers",
        "resized",
        "after-the-optimizer",
        ("not-in-optimizer", "optimizer"),
        ("embedding",),
        "layer.weight = nn.Parameter(wider)",
    ),
    Case(
        "optimizers",
        "adversaries",
        "wrong-network",
        ("optimizer", "not-in-optimizer"),
        ("discriminator", "generator", "adam", "linear", "0.weight"),
        "d_opt = optim.Adam(generator.parameters()",
    ),
    Case(
        "optimizers",
        "materialised",
        "before-to-empty",
        ("not-in-optimizer", "optimizer"),
        ("up.weight", "mid.weight", "out.weight", "sgd", "meta"),
        "",
    ),
)

_ADAPTERS = (
    Case(
        "adapters",
        "lora",
        "zero-a",
        ("gradient-zero", "initialization"),
        ("lora_",),
        "inject(model, r=8, alpha=32, zero_a=True)",
        since=41,
    ),
    Case(
        "adapters",
        "lora",
        "one-matrix",
        ("gradient-zero", "frozen"),
        ("lora_",),
        'p.requires_grad_("lora_A" in name)',
        since=41,
    ),
    Case(
        "adapters",
        "peft",
        "optimizer-before",
        ("not-in-optimizer", "optimizer"),
        ("lora_", "modules_to_save", "classifier", "adamw"),
        "get_peft_model(model, peft_config=config)",
    ),
    Case(
        "adapters",
        "controlnet",
        "zero-after-zero",
        ("gradient-zero", "initialization"),
        ("zero_out",),
        "self.zero_out = nn.Sequential(zero_conv(16), zero_conv(16))",
    ),
    Case(
        "adapters",
        "finetune",
        "head-after",
        ("not-in-optimizer", "optimizer"),
        ("fc",),
        "nn.Linear(model.fc.in_features, CLASSES)",
    ),
)

_SCHEDULES = (
    Case("schedules", "step-decay", "per-batch", ("learning-rate",), ("sgd", "steplr", "lr", "group"), since=20),
    Case(
        "schedules",
        "linear-decay",
        "ended",
        ("learning-rate",),
        ("adamw", "lambdalr", "lr", "group"),
        "total = EPOCHS",
        since=12,
    ),
    Case("schedules", "warmup", "never-stepped", ("learning-rate",), ("adamw", "lambdalr", "lr", "group")),
    Case(
        "schedules",
        "noam",
        "integer-division",
        ("learning-rate",),
        ("adam", "lr", "group"),
        "scale = min(it // 400, 1)",
    ),
    Case(
        "schedules",
        "layerwise",
        "zero-group",
        ("learning-rate",),
        ("sgd", "group", "0.0", "0.weight", "backbone"),
        "lr // divide_backbone_by",
    ),
    Case(
        "schedules",
        "plateau",
        "mode-max",
        ("learning-rate",),
        ("adam", "reducelronplateau", "lr", "group"),
        'mode="max"',
    ),
    Case(
        "schedules",
        "resumed",
        "rate-of-the-checkpoint",
        ("learning-rate",),
        ("adamw", "lr", "group"),
        'optimizer.load_state_dict(checkpoint["optimizer"])',
        since=60,
    ),
    Case(
        "schedules",
        "exponential",
        "each-iteration",
        ("learning-rate",),
        ("adam", "exponentiallr", "lr", "group"),
        since=40,
    ),
    Case(
        "schedules",
        "epoch-warmup",
        "stepped-per-epoch",
        ("learning-rate",),
        ("adamw", "lambdalr", "lr", "group"),
        report="https://github.com/galilai-group/stable-worldmodel/issues/280",
    ),
)

_HEADS = (
    Case(
        "heads",
        "classifier",
        "softmax",
        ("output-and-loss",),
        ("softmax", "cross_entropy", "crossentropyloss"),
        "x = F.softmax(x, dim=1)",
    ),
    Case(
        "heads",
        "classifier",
        "sigmoid",
        ("output-and-loss",),
        ("sigmoid", "cross_entropy", "crossentropyloss"),
        "x = torch.sigmoid(x)",
    ),
    Case(
        "heads",
        "binary",
        "sigmoid-before",
        ("output-and-loss",),
        ("sigmoid", "binary_cross_entropy", "bcewithlogits"),
        "layers.append(nn.Sigmoid())",
    ),
    Case(
        "heads",
        "binary",
        "softmax-of-one",
        ("output-and-loss", "gradient-zero"),
        ("softmax", "0.weight", "4.weight", "linear"),
        "layers.append(nn.Softmax(dim=1))",
    ),
    Case(
        "heads",
        "segmentation",
        "wrong-axis",
        ("output-and-loss",),
        ("softmax", "nll_loss", "nllloss"),
        "Segmenter(axis=-1)",
    ),
    Case(
        "heads",
        "batch-axis",
        "over-the-batch",
        ("output-and-loss",),
        ("softmax", "nll_loss", "nllloss"),
        "F.log_softmax(scores, dim=0)",
    ),
    Case(
        "heads",
        "tagger",
        "probabilities",
        ("output-and-loss",),
        ("softmax", "nll_loss", "nllloss"),
        "return F.softmax(tag_space, dim=-1)",
    ),
    Case(
        "heads",
        "distillation",
        "kl-of-probabilities",
        ("output-and-loss",),
        ("softmax", "kl_div"),
        "guess = F.softmax(student(x[i]) / T, dim=1)",
        since=61,
    ),
    Case(
        "heads",
        "multilabel",
        "softmax-of-labels",
        ("output-and-loss",),
        ("softmax", "binary_cross_entropy"),
        "F.binary_cross_entropy(torch.softmax(out, 1)",
    ),
)

_TARGETS = (
    Case("targets", "house-prices", "not-scaled", ("targets",), ("sigmoid", "mse_loss", "mseloss", "target")),
    Case(
        "targets",
        "behaviour-cloning",
        "outside-tanh",
        ("targets",),
        ("tanh", "pow", "mean", "target"),
        "action = policy(obs[rows])",
    ),
    Case("targets", "temperatures", "celsius", ("targets",), ("relu", "l1_loss", "target")),
    Case(
        "targets",
        "table",
        "shuffled-apart",
        ("targets", "loss", "data"),
        ("cross_entropy", "loss", "target"),
        "y = y[torch.randperm(len(y))]",
        since=100,
    ),
    Case(
        "targets",
        "frames",
        "one-behind",
        ("targets", "loss", "data"),
        ("cross_entropy", "loss", "target"),
        "labels[1:]",
        since=60,
        unsure="only that nothing general is learnt can be seen",
    ),
    Case(
        "targets",
        "grades",
        "class-by-mse",
        ("targets",),
        ("mse_loss", "target"),
        "F.mse_loss(out.squeeze(1), kinds[i].float())",
    ),
    Case(
        "targets",
        "scene",
        "real-class-ignored",
        ("targets",),
        ("cross_entropy", "nll_loss", "ignore", "target"),
        "ignore_index = 1",
    ),
    Case(
        "targets",
        "named-entities",
        "all-ignored",
        ("targets",),
        ("cross_entropy", "nll_loss", "ignore", "target"),
        "labels = torch.where(first, -100, -100)",
    ),
    Case(
        "targets",
        "pairs",
        "same-partner",
        ("targets", "loss"),
        ("cross_entropy", "target", "loss"),
        "target = torch.zeros(32",
    ),
)

_BROADCASTING = (
    Case("broadcasting", "housing", "column", ("broadcasting",), ("mse_loss", "mseloss", "sub")),
    Case(
        "broadcasting",
        "quantile",
        "squeezed",
        ("broadcasting",),
        ("sub", "pinball"),
        "pinball(net(x[i]).squeeze(-1), y[i])",
    ),
    Case("broadcasting", "dqn", "gathered", ("broadcasting",), ("smooth_l1", "sub"), since=1),
    Case(
        "broadcasting",
        "weighted",
        "weights-in-a-column",
        ("broadcasting",),
        ("mul", "weight"),
        "weight = weight.unsqueeze(1)",
    ),
    Case(
        "broadcasting",
        "masked-series",
        "last-step",
        ("broadcasting",),
        ("sub", "mse"),
        "(forecast[:, -1] - series[:, -1])",
    ),
)

_ACCUMULATION = (
    Case(
        "accumulation",
        "accumulate",
        "not-divided",
        ("scaling",),
        ("sgd", "backward", "accumul", "loss"),
        since=1,
        unsure="a sum over small batches is no fault with a rate to match",
    ),
    Case(
        "accumulation",
        "accumulate",
        "divided-twice",
        ("scaling",),
        ("sgd", "grad", "accumul", "div"),
        "p.grad /= accumulation_steps",
    ),
    Case(
        "accumulation",
        "accumulate",
        "cleared-each-time",
        ("accumulated-gradients",),
        ("sgd", "zero_grad", "grad"),
        since=1,
    ),
    Case(
        "accumulation",
        "large-batch",
        "never-reached",
        ("accumulated-gradients", "optimizer"),
        ("adamw", "zero_grad", "step", "grad"),
        since=1,
    ),
    Case(
        "accumulation",
        "forgotten",
        "no-zero-grad",
        ("accumulated-gradients",),
        ("sgd", "zero_grad", "grad"),
        since=1,
    ),
    Case(
        "accumulation",
        "forgotten",
        "zeroed-before-step",
        ("accumulated-gradients",),
        ("sgd", "zero_grad", "grad"),
        "optimizer.zero_grad(set_to_none=False)",
    ),
    Case(
        "accumulation",
        "two-parts",
        "one-part-only",
        ("accumulated-gradients",),
        ("linear", "weight", "grad", "[112, 32]"),
        since=1,
    ),
    Case(
        "accumulation",
        "manual",
        "by-hand",
        ("accumulated-gradients",),
        ("grad", "[5, 1]", "backward", "zero"),
        since=1,
        unsure="there is no optimizer",
    ),
    Case(
        "accumulation",
        "summed",
        "sum",
        ("scaling", "loss"),
        ("sum", "cross_entropy", "sgd"),
        'nn.CrossEntropyLoss(reduction="sum")',
        unsure="a sum is no fault with a rate to match",
    ),
    Case(
        "accumulation",
        "scaled",
        "without-scaler-step",
        ("scaling", "clipping"),
        ("scaler", "sgd", "scale"),
        unsure="the limit by value hides what the scale does",
    ),
)

_PRECISION = (
    Case(
        "precision",
        "language",
        "tiny-rate",
        ("precision",),
        ("weight", "wte", "adamw", "bfloat16", "blocks"),
        "lr = 1e-5 if fault",
        report="https://github.com/pytorch/ao/pull/1124",
    ),
    Case("precision", "halved", "half", ("precision",), ("weight", "sgd", "float16"), "net.half(), images.half()"),
    Case(
        "precision",
        "years",
        "large-offset",
        ("precision",),
        ("adam", "[1]", "group 1", "offset"),
        "torch.tensor([16_800_100.0])",
    ),
    Case(
        "precision",
        "autocast",
        "no-scaler",
        ("precision", "gradient-zero", "scaling"),
        ("weight", "layers", "first", "float16", "half"),
        'enabled=fault != "no-scaler"',
    ),
    Case(
        "precision",
        "running-gradient",
        "no-master",
        ("precision",),
        ("weight", "adam", "bfloat16"),
        "lr=1e-5 if fault",
        report="https://github.com/meta-pytorch/torchtune/issues/2254",
    ),
)

_CLIPPING = (
    Case("clipping", "perceptron", "clipped-away", ("clipping",), ("clip", "sgd", "norm"), "max_norm = 1e-5 if fault"),
    Case(
        "clipping",
        "regression",
        "always-at-its-limit",
        ("clipping",),
        ("clip", "sgd", "norm"),
        "clip_grad_norm_(model.parameters(), 0.1)",
    ),
    Case(
        "clipping",
        "recurrent",
        "before-backward",
        ("clipping",),
        ("clip", "norm"),
        since=1,
        unsure="the training goes well without the limit, too",
    ),
    Case("clipping", "half", "before-unscaling", ("clipping", "scaling"), ("clip", "scal", "norm")),
    Case("clipping", "by-value", "tiny-value", ("clipping",), ("clip", "sgd", "value"), "clip_value = 1e-6 if fault"),
    Case("clipping", "late", "after-the-step", ("clipping",), ("clip", "norm")),
)

_UNDONE = (
    Case(
        "undone",
        "best-so-far",
        "restored",
        ("undone",),
        ("weight", "load_state_dict", "copy", "parameters"),
        "best_loss = 0.0 if fault",
        since=9,
    ),
    Case("undone", "clamped", "clamped", ("undone",), ("weight", "clamp"), "bound = 1e-3 if fault"),
    Case("undone", "decayed", "weight-decay", ("undone",), ("weight", "adamw", "decay"), "weight_decay=100.0"),
    Case("undone", "swapped", "not-restored", ("undone", "averages"), ("weight", "copy", "parameters"), since=4),
    Case(
        "undone",
        "federated",
        "loaded-each-batch",
        ("undone",),
        ("weight", "load_state_dict", "copy", "parameters"),
        since=1,
    ),
    Case("undone", "sharpness", "weights-back-after", ("undone",), ("weight", "copy", "parameters"), since=1),
)

_FROZEN = (
    Case("frozen", "by-name", "too-many", ("frozen",), ("layer2", "layer10"), 'freeze(model, ["stem", "layer"])'),
    Case("frozen", "warm-head", "wrong-way", ("frozen",), ("encoder",), "p.requires_grad = epoch < 2", since=30),
    Case(
        "frozen",
        "unfreeze-module",
        "attribute-of-the-module",
        ("frozen",),
        ("encoder",),
        "model.encoder.requires_grad = True",
    ),
    Case(
        "frozen",
        "gradual",
        "only-at-first",
        ("not-in-optimizer",),
        ("0.weight", "1.weight", "2.weight"),
        "torch.optim.Adam([p for p in stages.parameters() if p.requires_grad]",
        since=40,
    ),
    Case("frozen", "adversarial", "never-thawed", ("frozen",), ("critic", "linear", "0.weight", "2.weight"), since=1),
)

_AVERAGES = (
    Case("averages", "ema", "never-updated", ("averages",), ("average", "module", "modelema")),
    Case(
        "averages",
        "ema",
        "bfloat16",
        ("averages", "precision"),
        ("average", "module", "modelema"),
        "ModelEma(model, decay, dtype=torch.bfloat16)",
        report="https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415",
    ),
    Case("averages", "ema", "reversed", ("averages",), ("average", "module", "modelema"), "ema.mul_(1 - self.decay)"),
    Case(
        "averages",
        "ema",
        "without-buffers",
        ("averages", "normalisation"),
        ("running", "average", "module", "buffers"),
        "buffers=False",
        unsure="the average has running statistics of its own that never move",
    ),
    Case(
        "averages",
        "dqn",
        "alias",
        ("averages",),
        ("target", "policy", "0.weight", "sequential"),
        "target_net = policy_net",
        unsure="one network under two names: a debugger sees only that no target network is there",
    ),
    Case(
        "averages",
        "dqn",
        "never-synchronised",
        ("averages",),
        ("target", "0.weight", "2.weight", "sequential"),
        "sync_every = 10_000 if fault",
    ),
    Case(
        "averages",
        "soft-target",
        "wrong-direction",
        ("averages", "undone"),
        ("target", "critic", "0.weight", "sequential"),
        "p.copy_(tau * t",
    ),
    Case(
        "averages",
        "byol",
        "momentum-of-one",
        ("averages",),
        ("target", "0.weight", "sequential"),
        "momentum = 1 if fault",
    ),
)

_LOSSES = (
    Case(
        "losses",
        "by-hand",
        "sign",
        ("loss",),
        ("loss", "mean"),
        "loss = log_probs[torch.arange(32), y[i]].mean()",
    ),
    Case(
        "losses",
        "too-fast",
        "rate-too-large",
        ("loss", "learning-rate"),
        ("loss", "mse_loss", "sgd"),
        "lr = 0.013 if fault",
        since=5,
    ),
    Case(
        "losses",
        "collapse",
        "rate-too-large",
        ("loss", "gradient-zero", "learning-rate"),
        ("loss", "mse_loss", "0.weight", "2.weight", "relu", "adam"),
        "lr = 3.0 if fault",
        since=1,
    ),
    Case(
        "losses",
        "ascent",
        "maximised",
        ("loss", "optimizer"),
        ("loss", "huber", "adamw", "maximize"),
        "maximize=True",
    ),
    Case(
        "losses",
        "vae",
        "sign-of-kl",
        ("loss",),
        ("loss", "sub", "mean"),
        "loss = reconstruction - kl",
        since=20,
        unsure="the loss falls without end",
    ),
    Case(
        "losses",
        "triplets",
        "swapped",
        ("loss",),
        ("loss", "triplet"),
        "criterion(anchor, negative, positive)",
        since=20,
    ),
    Case(
        "losses",
        "dropped",
        "drops-everything",
        ("loss", "gradient-zero", "mode"),
        ("dropout", "loss", "0.weight", "2.weight"),
        "keep = 0.0 if fault",
    ),
    Case(
        "losses",
        "bandit",
        "sign-of-the-return",
        ("loss",),
        ("loss", "mean"),
        "loss = (policy.log_prob(arms) * advantage).mean()",
        since=20,
        unsure="that the reward falls is nowhere but in what is printed",
    ),
)

_NORMALISATION = (
    Case(
        "normalisation",
        "classifier",
        "momentum-zero",
        ("normalisation",),
        ("bn1", "bn2"),
        'options = {"momentum": 0.0}',
    ),
    Case("normalisation", "classifier", "momentum-of-keras", ("normalisation",), ("bn1", "bn2"), '"momentum": 0.99'),
    Case("normalisation", "classifier", "batch-of-one", ("normalisation",), ("bn1", "bn2"), "batch_size = 1"),
    Case("normalisation", "domains", "one-norm-for-both", ("normalisation",), ("bn1", "bn2"), since=1),
    Case(
        "normalisation",
        "one-unit",
        "norm-of-one-unit",
        ("normalisation", "gradient-zero"),
        ("norm", "body"),
        "self.norm = nn.LayerNorm(1)",
    ),
    Case(
        "normalisation",
        "pooled",
        "a-group-for-each-channel",
        ("normalisation", "gradient-zero"),
        ("norm", "squeeze", "conv"),
        "nn.GroupNorm(32, 32) if fault",
    ),
)

_MODES = (
    Case("modes", "train", "never-back", ("mode",), ("net", "bn1", "drop", "train", "eval"), since=10),
    Case("modes", "train", "tested-in-training-mode", ("mode",), ("net", "bn1", "drop", "train", "eval"), since=10),
    Case("modes", "scratch", "eval-all-along", ("mode",), ("sequential", "batchnorm", "dropout", "eval")),
    Case("modes", "functional", "functional-dropout", ("mode",), ("dropout",), "h = F.dropout(h, 0.5)", since=10),
    Case(
        "modes",
        "samples",
        "after-a-sample",
        ("mode",),
        ("functional", "dropout", "train", "eval"),
        since=30,
        unsure="the dropout is a function of the module's mode",
    ),
)

_LANGUAGE = (
    Case(
        "language",
        "finetune",
        "shifted-twice",
        ("targets",),
        ("label", "loss", "cross_entropy", "target"),
        "batch[:, 1:].contiguous()",
    ),
    Case(
        "language",
        "padded",
        "pad-is-eos",
        ("targets",),
        ("label", "loss", "cross_entropy", "target", "ignore"),
        "text.masked_fill(text == EOS, -100)",
        report="https://github.com/mlabonne/llm-course/issues/33",
        unsure="the end is a token that is an input and never a target",
    ),
    Case(
        "language",
        "padded",
        "padding-counted",
        ("targets",),
        ("label", "loss", "cross_entropy", "target", "padding"),
        "text, labels = wide, wide",
    ),
    Case(
        "language",
        "instructions",
        "answers-masked",
        ("targets",),
        ("label", "loss", "cross_entropy", "target", "ignore"),
        "labels[i, :] = -100",
    ),
    Case(
        "language",
        "own",
        "not-shifted",
        ("targets",),
        ("label", "loss", "cross_entropy", "target"),
        "ids.reshape(-1))",
        unsure="a token autoencoder has its inputs as targets, too",
    ),
    Case("language", "tied", "cloned", ("tied-weights",), ("emb", "head"), "nn.Parameter(self.emb.weight.clone())"),
    Case(
        "language",
        "tied",
        "by-data",
        ("tied-weights", "optimizer"),
        ("emb", "head"),
        "self.head.weight.data = self.emb.weight.data",
    ),
    Case("language", "tied-gpt2", "head-replaced", ("tied-weights",), ("lm_head", "wte"), "model.lm_head = head"),
    Case(
        "language",
        "tied-autoencoder",
        "copied-transpose",
        ("tied-weights",),
        ("encoder", "decoder"),
        "encoder.weight.detach().t().clone()",
        unsure="transposed copies",
    ),
)

_INITIALIZATION = (
    Case(
        "initialization",
        "own-layer",
        "never-ran",
        ("initialization", "gradient-zero"),
        ("0.weight", "2.weight", "gate", "gated"),
    ),
    Case(
        "initialization",
        "deep",
        "too-large",
        ("initialization", "gradient-zero"),
        ("layers",),
        "nn.init.normal_(m.weight, 0.0, 1.0)",
    ),
    Case(
        "initialization",
        "deep",
        "too-small",
        ("initialization", "gradient-zero"),
        ("layers",),
        "nn.init.normal_(m.weight, 0.0, 0.005)",
    ),
    Case(
        "initialization",
        "constant",
        "all-units-equal",
        ("initialization",),
        ("0.weight", "2.weight", "linear"),
        "nn.init.constant_(layer.weight, 0.1)",
    ),
    Case(
        "initialization",
        "rectified",
        "all-units-dead",
        ("gradient-zero", "initialization", "activations"),
        ("0.weight", "0.bias", "2.weight", "2.bias", "relu", "conv"),
        "nn.init.constant_(m.bias, -20.0)",
    ),
    Case(
        "initialization",
        "binarised",
        "zero-backward",
        ("gradient-zero",),
        ("first", "zerosign", "sign"),
        "return torch.zeros_like(grad)",
    ),
)

_DATA = (
    Case(
        "data",
        "first-batch",
        "always-the-first",
        ("data",),
        ("batch", "input", "step", "data"),
        "inputs, targets = next(iter(loader))",
        since=1,
        unsure="who tries whether a network can learn one batch by heart does the same",
    ),
    Case(
        "data",
        "photographs",
        "integer-division",
        ("data",),
        ("input", "0.weight", "conv", "constant"),
        "image = self.bytes[index] // 255",
    ),
    Case(
        "data",
        "sensors",
        "not-normalised",
        ("data", "gradient-zero", "initialization"),
        ("input", "0.weight", "tanh", "linear"),
        "inputs = raw",
    ),
    Case(
        "data",
        "sorted-rows",
        "not-shuffled",
        ("data", "targets"),
        ("target", "label", "batch", "class", "data"),
        'shuffle=fault != "not-shuffled"',
    ),
    Case(
        "data",
        "unknown-words",
        "all-unknown",
        ("data",),
        ("input", "embedding", "0.weight", "constant"),
        "vocabulary.get(w.upper(), 0)",
    ),
)

_RANKS = (
    Case(
        "ranks",
        "ddp",
        "same-data",
        ("ranks",),
        ("rank", "data", "batch", "input"),
        "loader = DataLoader(dataset, batch_size=32)",
    ),
    Case(
        "ranks",
        "ddp",
        "wrapper-bypassed",
        ("ranks",),
        ("rank", "fc1", "ddp", "module", "distributed"),
        "outputs = model.module(inputs)",
        report="https://github.com/jingyaogong/minimind/pull/854",
    ),
    Case(
        "ranks",
        "ddp",
        "averaged-again",
        ("ranks", "scaling"),
        ("rank", "fc1", "grad", "all_reduce"),
        "p.grad /= WORLD * WORLD",
    ),
    Case("ranks", "manual", "replicas-differ", ("ranks",), ("rank", "fc1", "weight"), "torch.manual_seed(seed + rank)"),
    Case("ranks", "manual", "not-averaged", ("ranks",), ("rank", "fc1", "grad", "weight"), since=1),
    Case("ranks", "summed", "sum-not-divided", ("ranks", "scaling"), ("rank", "fc1", "grad", "all_reduce"), since=0),
)

_LOOPS = (
    Case(
        "loops",
        "trainer",
        "shifted-by-the-collator",
        ("targets",),
        ("label", "loss", "cross_entropy", "target"),
        '"labels": t[1:]',
    ),
    Case("loops", "trainer", "warm-up-for-ever", ("learning-rate",), ("adamw", "lr", "group"), "warmup_steps = 10_000"),
    Case("loops", "trainer", "clipped-to-nothing", ("clipping",), ("clip", "norm", "sgd"), "max_grad_norm = 1e-6"),
    Case(
        "loops",
        "trainer",
        "optimizer-of-another",
        ("not-in-optimizer", "optimizer"),
        ("adamw", "model", "optimizer"),
        "torch.optim.AdamW(other.parameters(), lr=5e-3)",
    ),
    Case(
        "loops",
        "lightning",
        "head-only",
        ("not-in-optimizer",),
        ("backbone",),
        "torch.optim.Adam(self.head.parameters(), lr=1e-3)",
    ),
    Case(
        "loops",
        "lightning",
        "interval-step",
        ("learning-rate",),
        ("sgd", "multisteplr", "lr", "group"),
        'interval = "step" if fault',
        report="https://github.com/galilai-group/stable-worldmodel/issues/280",
    ),
    Case("loops", "lightning-manual", "one-never-steps", ("optimizer", "not-in-optimizer"), ("decoder", "adam")),
    Case(
        "loops",
        "accelerate",
        "divided-by-hand-too",
        ("scaling",),
        ("sgd", "loss", "backward", "accumul", "div"),
        "loss = loss / steps",
        report="https://github.com/huggingface/transformers/pull/35207",
    ),
    Case(
        "loops",
        "accelerate",
        "optimizer-not-prepared",
        ("accumulated-gradients", "scaling", "optimizer"),
        ("sgd", "zero_grad", "accumul", "optimizer"),
        "model, loader = accelerator.prepare(model, loader)",
    ),
)

_OVERLOOKED = (
    Case(
        "overlooked",
        "new-head",
        "stages-in-training-mode",
        ("normalisation", "mode"),
        ("0.1", "0.4", "norm"),
        'if fault != "stages-in-training-mode"',
        since=61,
    ),
    Case(
        "overlooked",
        "spoken",
        "no-train-of-its-own",
        ("normalisation", "mode"),
        ("encoder.1", "encoder.4", "norm"),
        'self.fault != "no-train-of-its-own"',
        since=61,
    ),
    Case(
        "overlooked",
        "lightning-finetuned",
        "backbone-follows-the-trainer",
        ("normalisation", "mode"),
        ("backbone", "norm"),
        'if fault != "backbone-follows-the-trainer"',
        since=61,
    ),
    Case(
        "overlooked",
        "recurrent-constant",
        "ones-everywhere",
        ("initialization",),
        ("gru", "weight_ih", "cells", "out"),
        "nn.init.constant_(p, 0.08)",
    ),
    Case("overlooked", "filters", "filled", ("initialization",), ("0.weight", "2.weight", "conv"), "fill_(0.03)"),
    Case(
        "overlooked",
        "opinions",
        "first-word",
        ("gradient-zero", "data", "targets"),
        ("emb", "padding"),
        'if fault != "first-word"',
    ),
    Case(
        "overlooked",
        "next-item",
        "item-zero",
        ("gradient-zero", "data", "targets"),
        ("embedding", "padding", "0.weight"),
        'if fault == "item-zero"',
    ),
    Case(
        "overlooked",
        "spelled",
        "space-is-padding",
        ("gradient-zero", "data", "targets"),
        ("emb", "padding"),
        "padding_idx=space",
    ),
    Case(
        "overlooked",
        "melodies",
        "rest-is-padding",
        ("gradient-zero", "data", "targets"),
        ("embedding", "padding", "0.weight"),
        "padding = rest",
    ),
    Case(
        "overlooked",
        "continued",
        "end-is-padding",
        ("gradient-zero", "data", "targets"),
        ("emb", "padding"),
        "padding_idx=end",
    ),
    Case(
        "overlooked",
        "language",
        "not-causal",
        ("targets",),
        ("scaled_dot_product_attention", "layers.0", "mask", "attention"),
        "is_causal=self.fault",
        is_probed=True,
    ),
    Case(
        "overlooked",
        "encoder-layers",
        "mask-not-given",
        ("targets",),
        ("self_attn", "mask", "attention"),
        'if fault == "mask-not-given"',
    ),
    Case(
        "overlooked",
        "bert-writes",
        "no-decoder",
        ("targets",),
        ("attention", "mask"),
        "is_decoder=fault",
        is_probed=True,
    ),
    Case(
        "overlooked",
        "resumed-in-evaluation",
        "evaluated-first",
        ("mode",),
        ("sequential", "dropout", "eval"),
        'if fault != "evaluated-first"',
    ),
)

_REPORTED = (
    Case(
        "reported",
        "only-norms",
        "head-frozen-too",
        ("frozen", "optimizer", "not-in-optimizer", "gradient-cut"),
        ("fc", "bn1", "adam"),
        'if "bn" not in name',
        report="https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911",
    ),
    Case(
        "reported",
        "blown-up",
        "rate-of-ten-thousand",
        ("learning-rate", "loss"),
        ("sgd", "loss", "rate"),
        "lr=1e4",
        since=1,
        report="https://github.com/devangpratap/gradsnitch",
    ),
    Case(
        "reported",
        "hardly-moves",
        "tiny-rate",
        ("learning-rate", "precision", "loss"),
        ("sgd", "rate", "loss"),
        "lr=1e-7",
        report="https://github.com/devangpratap/gradsnitch",
    ),
    Case(
        "reported",
        "corrupted",
        "one-wild-batch",
        ("data", "targets", "loss"),
        ("loss", "target", "batch"),
        "targets = 1e4 * targets",
        since=91,
        report="https://github.com/devangpratap/gradsnitch",
    ),
    Case(
        "reported",
        "memorised",
        "a-dozen-samples",
        ("evaluation",),
        ("loss", "evaluation"),
        "count = 12",
        report="https://github.com/devangpratap/gradsnitch",
        unsure="since when is a matter of taste",
    ),
    Case(
        "reported",
        "sigmoids",
        "sigmoid-in-each",
        ("initialization", "gradient-zero", "loss"),
        ("0.weight", "sigmoid", "depth", "loss"),
        "activation = nn.Sigmoid",
        report="https://github.com/devangpratap/gradsnitch",
    ),
    Case(
        "reported",
        "distances",
        "root-of-zero",
        ("loss", "precision"),
        ("sqrt", "loss", "0.weight", "nan"),
        "squares.sqrt()",
        report="https://pypi.org/project/torchtest2/",
    ),
    Case(
        "reported",
        "confident",
        "large-head",
        ("initialization",),
        ("loss", "2.weight"),
        "std=3.0",
        report="https://pypi.org/project/torchtest2/",
    ),
    Case(
        "reported",
        "yes-or-no",
        "softmax-of-one",
        ("output-and-loss", "gradient-zero"),
        ("log_softmax", "reported.py"),
        "F.log_softmax(scores, dim=1)",
        report="https://github.com/mehilshah/Bug_Reproducibility_DL_Bugs",
    ),
    Case(
        "reported",
        "authors",
        "softmax-over-the-layers",
        ("output-and-loss", "gradient-zero"),
        ("softmax",),
        "out.softmax(0)",
        report="https://github.com/mehilshah/Bug_Reproducibility_DL_Bugs",
    ),
    Case(
        "reported",
        "compressed",
        "sigmoids-between",
        ("loss", "initialization", "activations", "gradient-zero"),
        ("layer 0", "layer 2", "layer 4", "layer 6", "sigmoid", "loss"),
        'activation = nn.Sigmoid if fault == "sigmoids-between"',
        report="https://github.com/mehilshah/Bug_Reproducibility_DL_Bugs",
    ),
)

CASES: tuple[Case, ...] = (
    *_GRAPHS,
    *_OPTIMIZERS,
    *_ADAPTERS,
    *_SCHEDULES,
    *_HEADS,
    *_TARGETS,
    *_BROADCASTING,
    *_ACCUMULATION,
    *_PRECISION,
    *_CLIPPING,
    *_UNDONE,
    *_FROZEN,
    *_AVERAGES,
    *_LOSSES,
    *_NORMALISATION,
    *_MODES,
    *_LANGUAGE,
    *_INITIALIZATION,
    *_DATA,
    *_RANKS,
    *_LOOPS,
    *_OVERLOOKED,
    *_REPORTED,
)

_RESEMBLING = (
    Healthy("adapters", "peft-checkpointed", "gradient-cut"),
    Healthy("adapters", "probe", "not-in-optimizer"),
    Healthy("adapters", "probe-with-graph", "not-in-optimizer"),
    Healthy("adapters", "frozen-norms", "frozen"),
    Healthy("schedules", "onecycle", "learning-rate"),
    Healthy("schedules", "restarts", "learning-rate"),
    Healthy("schedules", "to-zero", "learning-rate"),
    Healthy("heads", "log-twice", "output-and-loss"),
    Healthy("heads", "log-of-softmax", "output-and-loss"),
    Healthy("precision", "bf16-autocast", "precision"),
    Healthy("precision", "stochastic", "precision"),
    Healthy("precision", "fp16-growing", "scaling"),
    Healthy("clipping", "adam", "clipping"),
    Healthy("undone", "pruned", "undone"),
    Healthy("averages", "mean-teacher", "averages"),
    Healthy("averages", "swa", "averages"),
    Healthy("modes", "monte-carlo", "mode"),
    Healthy("modes", "no-mode-matters", "mode"),
    Healthy("language", "masked", "targets"),
    Healthy("language", "token-autoencoder", "targets"),
    Healthy("language", "smoothed", "targets"),
    Healthy("language", "truncated", "gradient-cut"),
    Healthy("language", "momentum-copy", "tied-weights"),
    Healthy("initialization", "zero-residuals", "gradient-zero"),
    Healthy("initialization", "zero-head", "gradient-zero"),
    Healthy("data", "one-batch", "data"),
    Healthy("ranks", "accumulate", "ranks"),
    Healthy("ranks", "local", "ranks"),
    Healthy("selfsupervised", "dino", "averages"),
    Healthy("selfsupervised", "moco", "averages"),
    Healthy("selfsupervised", "simsiam", "gradient-cut"),
    Healthy("selfsupervised", "barlow"),
    Healthy("selfsupervised", "inpainting", "targets"),
    Healthy("selfsupervised", "bootstrapped", "averages"),
    Healthy("adversarial", "wgan", "undone"),
    Healthy("adversarial", "wgan-gp", "loss"),
    Healthy("adversarial", "domains", "loss"),
    Healthy("adversarial", "robust", "loss"),
    Healthy("adversarial", "actor-critic", "loss"),
    Healthy("adversarial", "information", "loss"),
    Healthy("objectives", "focal", "loss"),
    Healthy("objectives", "gaussian", "loss"),
    Healthy("objectives", "flow", "loss"),
    Healthy("objectives", "ordinal", "output-and-loss"),
    Healthy("objectives", "counted", "targets"),
    Healthy("objectives", "ages", "targets"),
    Healthy("objectives", "converged", "loss"),
    Healthy("objectives", "decayed", "undone"),
    Healthy("objectives", "exact", "precision"),
    Healthy("objectives", "noisy", "loss"),
    Healthy("objectives", "imbalanced", "targets"),
    Healthy("objectives", "tasks", "gradient-zero"),
    Healthy("objectives", "experts", "gradient-zero"),
    Healthy("objectives", "rows", "gradient-zero"),
    Healthy("objectives", "lbfgs", "optimizer"),
    Healthy("objectives", "compiled"),
    Healthy("objectives", "recomputed", "gradient-cut"),
    Healthy("objectives", "functional", "not-in-optimizer"),
    Healthy("objectives", "straight-through", "gradient-cut"),
    Healthy("objectives", "input-optimised", "not-in-optimizer"),
    Healthy("objectives", "diffusion", "targets"),
    Healthy("objectives", "packed", "targets"),
)

HEALTHY: tuple[Healthy, ...] = (
    *dict.fromkeys(Healthy(case.script, case.program, is_probed=case.is_probed) for case in CASES),
    *_RESEMBLING,
)
"""The twins first."""
