"""Loops that others wrote: python loops.py lightning|trainer|accelerate."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import torch
from learning import CLASSES, pictures, report, sentences
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, TensorDataset


def lightning() -> None:
    """Two epochs with validation, accumulation, clipping and an average of the weights."""
    import lightning.pytorch as pl

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
                nn.Flatten(), nn.Linear(512, CLASSES),
            )  # fmt: skip
            self.losses: list[float] = []

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.body(batch[0]), batch[1])
            self.losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
            self.log("validation", F.cross_entropy(self.body(batch[0]), batch[1]))

        def configure_optimizers(self) -> dict[str, object]:
            optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=48)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    images, labels = pictures(288, 16)
    data = TensorDataset(images, labels)
    training, validation = torch.utils.data.random_split(data, (256, 32))
    model = Classifier()
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2, gradient_clip_val=1.0, precision="bf16-mixed",
    )  # fmt: skip
    trainer.fit(model, DataLoader(training, 8, shuffle=True), DataLoader(validation, 16))
    report(model.losses, model, steps=trainer.global_step)


def trainer() -> None:
    """The Trainer of transformers, with evaluation, accumulation and bfloat16."""
    import transformers

    text = sentences(224, 16, 60)
    rows = [{"input_ids": row, "labels": row} for row in text]
    config = transformers.LlamaConfig(
        vocab_size=60, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    losses: list[float] = []

    class Losses(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs) -> None:
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    arguments = transformers.TrainingArguments(
        "out", num_train_epochs=3, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=5e-3,
        warmup_steps=4, bf16=True, use_cpu=True, logging_steps=1, eval_strategy="epoch", save_strategy="no",
        report_to=[], disable_tqdm=True, seed=13, max_grad_norm=1.0, lr_scheduler_type="cosine",
    )  # fmt: skip
    runner = transformers.Trainer(
        model, arguments, train_dataset=rows[:192], eval_dataset=rows[192:], callbacks=[Losses()]
    )
    runner.remove_callback(transformers.PrinterCallback)
    runner.train()
    report(losses, model, steps=runner.state.global_step)


def accelerate() -> None:
    """The user's own loop, with Accelerate around model, optimizer, data and schedule."""
    from accelerate import Accelerator

    images, labels = pictures(256, 16)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, 4), nn.GELU(), nn.Flatten(), nn.LayerNorm(512), nn.Linear(512, 64), nn.GELU(),
        nn.Linear(64, CLASSES),
    )  # fmt: skip
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, 10)
    batches = DataLoader(TensorDataset(images, labels), 16, shuffle=True)
    model, optimizer, batches, schedule = accelerator.prepare(model, optimizer, batches, schedule)
    losses, updates = [], 0
    for _ in range(4):
        for inputs, classes in batches:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), classes)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    updates += 1
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    report(losses, accelerator.unwrap_model(model), steps=updates)


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
os.environ["ACCELERATE_USE_CPU"] = "1"
torch.manual_seed(13)
{"lightning": lightning, "trainer": trainer, "accelerate": accelerate}[sys.argv[1]]()
