"""Which programs there are: a name, a script of this folder, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A training that is healthy.

    Attributes
    ----------
    name : str
    script : str
        In this folder.
    arguments : tuple of str
    ranks : int
        Processes; more than one are started by `torchrun`.
    notices : tuple of str
        Words of what the agent is meant to report of it.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    ranks: int = 1
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Broken:
    """A twin of a program in which something was broken on purpose.

    Attributes
    ----------
    program : str
        The name of the healthy one.
    fault : str
        What its script knows as ``--fault``.
    """

    program: str
    fault: str


def _family(script: str, *arguments: str) -> tuple[Program, ...]:
    """Return a program for each argument of a script that has several."""
    return tuple(Program(argument, f"{script}.py", (argument,)) for argument in arguments)


PROGRAMS: tuple[Program, ...] = (
    *_family(
        "images", "resnet18", "resnet-zero-init", "densenet", "mobilenet-v3", "vit",
        "swin", "convnext", "mixer", "beit", "maxvit", "nfnet",
    ),
    *_family("segmentation", "deeplab", "unet"),
    *_family(
        "language", "gpt2", "llama", "gemma2", "phi", "mixtral", "qwen2-moe", "bloom", "mamba", "gpt-neo", "bert",
        "roberta", "albert", "deberta", "modernbert", "fnet", "t5", "bart",
    ),
    *_family("speech", "whisper", "wav2vec2", "clip", "masked-autoencoder", "forecast"),
    *_family("generative", "dcgan", "wgan", "vae", "vq-vae", "ddpm", "dit", "flow"),
    *_family("sequences", "lstm", "seq2seq", "cell"),
    *_family("reinforcement", "dqn", "ppo", "sac"),
    *_family("adapters", "lora", "dora", "ia3", "prompt"),
    *_family("copies", "byol", "mean-teacher", "distillation", "swa"),
    *_family("precision", "bf16", "fp16", "accumulation", "checkpointing"),
    *_family("tables", "missing-data", "recommender", "graph", "tied", "frozen", "unfreezing", "contrastive"),
    *_family("loops", "lightning", "trainer", "accelerate"),
    *(
        Program(name, "transformed.py", (name,), notices=("is compiled: ",))
        for name in ("compiled", "compiled-step")
    ),
    *_family(
        "surgery", "widened", "vocabulary", "pruned", "masked", "clamped", "normalised", "restarted",
        "averaged-weights", "lookahead", "unused-rows", "stacked",
    ),
    *_family(
        "beside", "function-mode", "dispatch-mode", "subclass", "saved-tensors", "global-hooks", "profiled",
        "large-contexts", "reentrant", "double-backward", "several-forwards", "evaluated-between",
        "adapters-checkpointed",
    ),
    *_family(
        "objectives", "converged", "converged-exactly", "accumulation-32", "many-parameters", "small-linears", "dino",
        "simclr", "barlow", "wgan-gp", "experts", "maml", "pinn", "energy", "straight-through", "gumbel",
        "hypernetwork", "lbfgs", "sharpness", "ctc", "packed",
    ),
    *_family("transformed", "quantized", "traced", "functional", "normed", "curve"),
    *(
        Program(f"{way}-{ranks}", "parallel.py", (way,), ranks)
        for way, ranks in (
            ("ddp", 2), ("fsdp2", 1), ("fsdp2", 2), ("tensor-parallel", 1), ("tensor-parallel", 2)
        )
    ),
    *_family("detection", "retinanet", "fcos", "detr", "yolos", "rt-detr"),
)  # fmt: skip

BROKEN: tuple[Broken, ...] = (
    Broken("resnet18", "learning-rate"),
    Broken("resnet18", "dead-relu"),
    Broken("resnet18", "zero-weights"),
    Broken("resnet18", "frozen"),
    Broken("resnet18", "nan-in-data"),
    Broken("resnet18", "zero-grad"),
    Broken("gpt2", "attention-logits"),
    Broken("gpt2", "detach"),
    Broken("missing-data", "nan-in-data"),
    Broken("missing-data", "nan-loss"),
    Broken("cell", "saturated"),
    Broken("fp16", "fp16-overflow"),
)
