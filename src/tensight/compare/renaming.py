"""Translation of the names of one model to those of another, learned from parameters that were matched already."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_flat_param", "network", "_backbone"}
)
"""Parts of names that wrappers of modules add."""

WORDS = {
    "gamma": "weight", "beta": "bias", "embedding_table": "weight", "moving_mean": "running_mean",
    "moving_variance": "running_var", "moments": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq",
    "adam_m": "exp_avg", "adam_v": "exp_avg_sq", "accum": "momentum_buffer", "kernel": "weight", "scale": "weight",
}  # fmt: skip
"""Words of MindSpore and Flax, and PyTorch's words for them."""


def plain_name(name: str) -> str:
    """Return a parameter's name in PyTorch's words, without the names of wrappers."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    return ".".join(WORDS.get(part, part) for part in parts) or name


_SPELLINGS = {
    "layers": ("layers", "layer", "blocks", "block", "h", "resblocks"),
    "attention": ("attention", "attn", "self_attn", "self_attention", "self"),
    "mlp": ("mlp", "ffn", "ff", "feed_forward"),
    "q": ("q", "wq", "to_q", "q_proj", "q_lin", "linear_q", "query"),
    "k": ("k", "wk", "to_k", "k_proj", "k_lin", "linear_k", "key"),
    "v": ("v", "wv", "to_v", "v_proj", "v_lin", "linear_v", "value"),
    "o": ("o", "wo", "o_proj", "out_proj", "out_lin", "linear_o"),
    "gate": ("gate", "gate_proj"),
    "up": ("up", "up_proj"),
    "down": ("down", "down_proj"),
    "fc1": ("fc1", "c_fc", "linear1", "dense_h_to_4h"),
    "fc2": ("fc2", "linear2", "dense_4h_to_h"),
    "norm1": ("norm1", "ln_1", "ln1", "input_layernorm", "attention_norm", "layernorm_before"),
    "norm2": ("norm2", "ln_2", "ln2", "post_attention_layernorm", "ffn_norm", "layernorm_after"),
    "tokens": ("wte", "embed_tokens", "tok_embeddings", "tok_emb", "token_embedding", "word_embeddings"),
    "positions": ("wpe", "embed_positions", "pos_emb", "position_embeddings", "position_embedding"),
    "norm": ("norm", "ln_f", "ln_final", "final_layernorm"),
    "head": ("head", "lm_head"),
}
_USUAL = {spelling: word for word, spellings in _SPELLINGS.items() for spelling in spellings}
_PROJECTIONS = {"attention": "o", "mlp": "fc2"}
"""What ``proj`` and ``c_proj`` are in which module."""


def spellings_of(word: str) -> tuple[str, ...]:
    """Return all spellings of a part of a name that models of one kind call differently."""
    return _SPELLINGS.get(_USUAL.get(word, ""), (word,))


def usual_name(name: str) -> str:
    """Return a parameter's name with one word for each thing that models of one kind call differently.

    Examples
    --------
    >>> usual_name("blocks.3.attn.wq.weight"), usual_name("module.layers.3.self_attn.q_proj.weight")
    ('layers.3.attention.q.weight', 'layers.3.attention.q.weight')
    """
    parts: list[str] = []
    for part in plain_name(name).split("."):
        word = _USUAL.get(part, part)
        if part in ("proj", "c_proj") and parts:
            word = _PROJECTIONS.get(parts[-1], part)
        if not (word == "attention" and parts[-1:] == ["attention"]):
            parts.append(word)
    return ".".join(parts)


def paths_in_b(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
    """Return the paths of B that correspond to the paths of A, by a vote.

    Parameters
    ----------
    pairs : iterable of (sequence of str, sequence of str)
        Parts of two corresponding paths, such as ``("blocks", "0", "norm")`` and ``("layers", "0", "ln")``; their
        parents correspond, too.

    Returns
    -------
    dict of str to str
        Paths with slashes between the parts. The most frequent candidate wins, among equally frequent ones the
        shortest.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for parts_a, parts_b in pairs:
        shorter = min(len(parts_a), len(parts_b))
        for left_out in range(shorter):
            path_a, path_b = parts_a[: len(parts_a) - left_out], parts_b[: len(parts_b) - left_out]
            votes["/".join(path_a)]["/".join(path_b)] += 1
    return {a: max(of_a, key=lambda b: (of_a[b], -len(b))) for a, of_a in votes.items()}
