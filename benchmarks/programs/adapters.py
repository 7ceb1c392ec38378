"""Adapt a language model that is frozen, with peft: python adapters.py lora|dora|ia3|prompt."""

from __future__ import annotations

import sys

import torch
from learning import report, sentences
from peft import IA3Config, LoraConfig, PromptTuningConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

ADAPTERS = {
    "lora": lambda: LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], lora_dropout=0.05,
                               fan_in_fan_out=True, task_type=TaskType.CAUSAL_LM),
    "dora": lambda: LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], use_dora=True, fan_in_fan_out=True,
                               task_type=TaskType.CAUSAL_LM),
    "ia3": lambda: IA3Config(target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"],
                             fan_in_fan_out=True, task_type=TaskType.CAUSAL_LM),
    "prompt": lambda: PromptTuningConfig(num_virtual_tokens=4, task_type=TaskType.CAUSAL_LM),
}  # fmt: skip

SETTINGS = {"ia3": (1e-1, 0.95), "prompt": (1e-1, 0.998)}
"""The learning rate, and to which part the loss must fall: some cannot change much. 0.02 and 0.9 for the others."""

torch.manual_seed(9)
text = sentences(128, 20, 60)
config = GPT2Config(vocab_size=60, n_positions=32, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)
base = GPT2LMHeadModel(config)
# Random weights, trained on another language first.
words = torch.randperm(60)
optimizer = torch.optim.AdamW(base.parameters(), lr=3e-3)
losses = []
for step in range(30):
    rows = torch.arange(16) + step * 16 % 128
    optimizer.zero_grad()
    loss = base(input_ids=words[text[rows]], labels=words[text[rows]]).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"trained before: {losses[0]:.4f} -> {losses[-1]:.4f}")

model = get_peft_model(base, ADAPTERS[sys.argv[1]]())
lr, falls_to = SETTINGS.get(sys.argv[1], (2e-2, 0.9))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=lr)
losses = []
for step in range(30):
    rows = torch.arange(16) + step * 16 % 128
    optimizer.zero_grad()
    loss = model(input_ids=text[rows], labels=text[rows]).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, model, optimizer, steps=60, falls_to=falls_to)
