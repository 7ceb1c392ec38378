"""Train a language model of transformers from random weights: python language.py gpt2."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import torch
import transformers
from learning import report, sentences

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS, LENGTH = 120, 24
SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
ROPE = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 64, "pad_token_id": 0}


def gpt2(fault: str) -> transformers.PreTrainedModel:
    """Learnt positions, tied weights; wants no padding."""
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=32, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    if fault == "attention-logits":
        with torch.no_grad():
            model.transformer.h[1].attn.c_attn.weight.mul_(1e20)
    if fault == "detach":
        layer = model.transformer.h[1]
        layer.register_forward_hook(lambda module, inputs, output: output.detach())
    return model


def plain(model: str, **more: object) -> Callable[[str], transformers.PreTrainedModel]:
    """Return what builds a model by the names of its classes."""

    def build(fault: str) -> transformers.PreTrainedModel:
        config = getattr(transformers, f"{model}Config")(**more)
        suffix = "ForCausalLM" if hasattr(transformers, f"{model}ForCausalLM") else "LMHeadModel"
        return getattr(transformers, f"{model}{suffix}")(config)

    return build


CAUSAL = {
    "gpt2": gpt2,
    "llama": plain("Llama", **ROPE, num_key_value_heads=2),
    "gemma2": plain("Gemma2", **ROPE, num_key_value_heads=2, head_dim=16, sliding_window=8, query_pre_attn_scalar=16),
    "phi": plain("Phi", **ROPE, partial_rotary_factor=0.5),
    "mixtral": plain(
        "Mixtral", **ROPE, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True
    ),
    "qwen2-moe": plain(
        "Qwen2Moe", **ROPE, num_key_value_heads=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        num_experts=8, num_experts_per_tok=2, output_router_logits=True,
    ),
    "bloom": plain("Bloom", vocab_size=WORDS, hidden_size=64, n_layer=3, n_head=4, hidden_dropout=0.1),
    "mamba": plain("Mamba", vocab_size=WORDS, hidden_size=48, num_hidden_layers=2, state_size=8, pad_token_id=0),
    "gpt-neo": plain(
        "GPTNeo", vocab_size=WORDS, hidden_size=64, num_layers=2, num_heads=4, max_position_embeddings=64,
        attention_types=[[["global", "local"], 1]], window_size=8,
    ),
}  # fmt: skip


def causal(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """The next word; sentences are padded at their ends."""
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (len(text), 1))
    mask = torch.arange(LENGTH) < lengths
    labels = text.masked_fill(~mask, -100)
    return model(input_ids=text.masked_fill(~mask, 0), attention_mask=mask.long(), labels=labels).loss


def masked(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """Words that were hidden."""
    hidden = torch.rand(text.shape) < 0.3
    hidden[:, 0] = True
    mask = torch.arange(LENGTH) < torch.randint(LENGTH // 2, LENGTH + 1, (len(text), 1))
    labels = text.masked_fill(~(hidden & mask), -100)
    inputs = text.masked_fill(hidden, 1).masked_fill(~mask, 0)
    return model(input_ids=inputs, attention_mask=mask.long(), labels=labels).loss


def translated(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """The sentence with other words, from right to left."""
    labels = (text.flip(1) + 5) % (WORDS - 2) + 2
    mask = torch.arange(LENGTH) < torch.randint(LENGTH // 2, LENGTH + 1, (len(text), 1))
    labels = labels[:, :10].contiguous()
    return model(input_ids=text.masked_fill(~mask, 0), attention_mask=mask.long(), labels=labels).loss


BERT = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 64, "pad_token_id": 0}
MASKED = {
    "bert": lambda fault: transformers.BertForMaskedLM(transformers.BertConfig(**BERT)),
    "roberta": lambda fault: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**BERT)),
    "albert": lambda fault: transformers.AlbertForMaskedLM(transformers.AlbertConfig(**BERT, embedding_size=32)),
    "deberta": lambda fault: transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(
            **BERT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False
        )
    ),
    "modernbert": lambda fault: transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            **BERT, global_attn_every_n_layers=2, local_attention=8, bos_token_id=0, eos_token_id=0, cls_token_id=0,
            sep_token_id=0,
        )
    ),
    "fnet": lambda fault: transformers.FNetForMaskedLM(
        transformers.FNetConfig(
            vocab_size=WORDS, hidden_size=64, num_hidden_layers=3, intermediate_size=128, max_position_embeddings=64
        )
    ),
}  # fmt: skip
TRANSLATING = {
    "t5": lambda fault: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0,
            relative_attention_num_buckets=8, relative_attention_max_distance=16,
        )
    ),
    "bart": lambda fault: transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1,
        )
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=sorted({*CAUSAL, *MASKED, *TRANSLATING}))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fault", default="")
    options = parser.parse_args()
    torch.manual_seed(4)
    # Hidden words are guessed sooner where there are few.
    text = sentences(256, LENGTH, 20 if options.network in MASKED else WORDS)
    table, loss_of = next(
        (table, loss_of)
        for table, loss_of in ((CAUSAL, causal), (MASKED, masked), (TRANSLATING, translated))
        if options.network in table
    )
    model = table[options.network](options.fault)
    model.train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-3)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 5, 2 * options.steps)
    losses = []
    for step in range(options.steps):
        rows = torch.arange(16) + step * 16 % 256
        loss = loss_of(model, text[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    report(losses, model, optimizer)


if __name__ == "__main__":
    main()
