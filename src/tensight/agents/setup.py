"""The environment of a training: versions, variables, seeds; as data that is kept with every trace and recording.

Nothing here changes anything, waits or raises: a part that is not available is left out, and named under ``left_out``.
Only variables that are known to matter to trainings are kept, and nothing that may be a secret.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
import re
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tensight.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT = 1
"""Version of the description; it grows when a reader of an older one could misunderstand it."""

LONGEST_TEXT = 500
"""Maximum number of characters in a value."""

MOST_VARIABLES = 500
_MOST_ITEMS = 16
MOST_PACKAGES = 200

_PREFIXES = (
    "ACCELERATE_", "ASCEND_", "ATEN_", "CUBLAS_", "CUDA_", "CUDNN_", "DEEPSPEED_", "DNNL_", "FLASH_ATTENTION_", "FSDP_",
    "GLOG_", "GLOO_", "HCCL_", "HF_", "HIP_", "HSA_", "KMP_", "LCCL_", "MIOPEN_", "MKL_", "MS_", "NCCL_", "NUMEXPR_",
    "NVIDIA_", "NVTE_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "RCCL_", "ROCM_", "TORCH_",
    "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRANSFORMERS_", "TRITON_", "VECLIB_", "XLA_",
)  # fmt: skip
_NAMES = frozenset(
    {
        "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "RANK",
        "RANK_ID", "RANK_SIZE", "ROLE_RANK", "TF32_OVERRIDE", "TOKENIZERS_PARALLELISM", "WORLD_SIZE",
    }
)  # fmt: skip
_SECRET = re.compile(
    r"TOKEN(?!IZER)|KEY|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|SESSION|SIGNATURE|WEBHOOK|DSN", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|[?&][\w.-]*(?:token|key|secret|sig|password)[\w.-]*=", re.IGNORECASE)
REMOVED = "(removed)"
"""Replaces the value of a variable that may contain a secret."""

_PACKAGES = (
    "accelerate", "apex", "bitsandbytes", "datasets", "deepspeed", "diffusers", "einops", "flash_attn", "jax",
    "lightning", "llamafactory", "megatron", "mindformers", "mindspore", "ml_dtypes", "msadapter", "numpy", "nemo",
    "pandas", "peft", "PIL", "pytorch_lightning", "safetensors", "scipy", "sklearn", "tensight", "timm",
    "tokenizers", "torch", "torch_npu", "torchaudio", "torchtitan", "torchvision", "transformer_engine",
    "transformers", "triton", "trl", "unsloth", "vllm", "xformers",
)  # fmt: skip
_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "flash_attn": "flash-attn", "megatron": "megatron-core"}


def describe(framework_part: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the environment of this training as JSON data.

    Parameters
    ----------
    framework_part : mapping, optional
        What the adapter of the framework adds, such as the result of `tensight.agents.torch.setup.describe_torch`. Its
        entries ``random`` and ``threads`` are merged with those found here.

    Returns
    -------
    dict
        ``format``, ``python``, ``packages``, ``environment``, ``process``, ``threads``, ``random``, and what the
        framework adds; ``left_out`` names parts that were not available.
    """
    parts: dict[str, Callable[[], object]] = {
        "python": _python,
        "packages": _packages,
        "environment": _environment,
        "process": _process,
        "threads": dict,
        "random": _generators,
    }
    result: dict[str, object] = {"format": FORMAT}
    left_out: list[object] = []
    for name, part in parts.items():
        result[name] = attempt(name, part, left_out)
    for name, content in (framework_part or {}).items():
        existing = result.get(name)
        if name == "left_out" and isinstance(content, list):
            left_out += content
        elif isinstance(existing, dict) and isinstance(content, dict):
            result[name] = {**existing, **content}
        else:
            result[name] = content
    if left_out:
        result["left_out"] = left_out
    return result


def attempt(name: str, part: Callable[[], object], left_out: list[object]) -> object:
    """Return a part of a description, or an empty one if it is not available, which is noted in `left_out`."""
    try:
        return part()
    except Exception as error:
        left_out.append(f"{name}: {type(error).__name__}")
        return {}


def plain(value: object, depth: int = 0) -> Any:
    """Return a value as JSON data, or None if it is not plain.

    Parameters
    ----------
    value : object
        Numbers, texts, booleans and short sequences of these are plain; NaN and infinities become texts.
    depth : int
        Number of enclosing sequences.
    """
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float:
        return value if value - value == 0 else str(value)
    if type(value) is str:
        return value[:LONGEST_TEXT]
    if isinstance(value, (tuple, list)) and len(value) <= _MOST_ITEMS and depth < 2:
        items = [plain(item, depth + 1) for item in value]
        has_lost_one = any(item is None and given is not None for given, item in zip(value, items, strict=True))
        return None if has_lost_one else items
    return None


def digest(content: bytes) -> str:
    """Return a hash of bytes for comparing."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _python() -> dict[str, object]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "optimize": sys.flags.optimize,
    }


def _packages() -> dict[str, object]:
    """Return the versions of the relevant packages that are imported."""
    versions: dict[str, object] = {}
    for name in _PACKAGES:
        module = sys.modules.get(name)
        if module is None:
            continue
        version = __version__ if name == "tensight" else vars(module).get("__version__")
        if not isinstance(version, str):
            try:
                version = metadata.version(_DISTRIBUTIONS.get(name, name))
            except Exception:
                version = "unknown"
        versions[name] = str(version)[:LONGEST_TEXT]
        if len(versions) >= MOST_PACKAGES:
            break
    return versions


def _environment() -> dict[str, object]:
    """Return the variables that are known to matter, without possible secrets."""
    chosen = sorted(name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES))
    return {name: _variable(name, os.environ[name]) for name in chosen[:MOST_VARIABLES]}


def _variable(name: str, value: str) -> str:
    is_secret = _SECRET.search(name) is not None or _SECRET_VALUE.search(value) is not None
    # Bytes that are not text stay comparable.
    return REMOVED if is_secret else value[:LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()


def _process() -> dict[str, object]:
    """Return ranks and world size of the process, as launchers set them, and the number of cores that it may use."""
    names = {"rank": ("RANK", "RANK_ID"), "local_rank": ("LOCAL_RANK",), "world_size": ("WORLD_SIZE", "RANK_SIZE")}
    result: dict[str, object] = {}
    for key, variables in names.items():
        for variable in variables:
            text = os.environ.get(variable, "")
            if text.isascii() and text.isdigit() and len(text) < 10:
                result.setdefault(key, int(text))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**result, "cores": cores}


def _generators() -> dict[str, object]:
    """Return hashes of the states of the generators of Python and NumPy."""
    result: dict[str, object] = {"python": digest(repr(random.getstate()).encode())}
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        state = numpy.random.get_state(legacy=False)
        inner = state["state"]
        key = inner["key"].tobytes() if "key" in inner else b""
        rest = {name: value for name, value in inner.items() if name != "key"}
        about = (state["bit_generator"], rest, state["has_gauss"], state["gauss"])
        result["numpy"] = digest(key + repr(about).encode())
    return result
