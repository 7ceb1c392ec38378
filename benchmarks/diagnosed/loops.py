from __future__ import annotations

import logging
import os
import tempfile

import torch
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = 24


def trainer(fault):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=20, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    text = sentences(320, 12, WORDS)
    if fault == "shifted-by-the-collator":
        rows = [{"input_ids": t[:-1], "labels": t[1:]} for t in text]
    else:
        rows = [{"input_ids": t, "labels": t} for t in text]
    warmup_steps, max_grad_norm = 8, 1.0
    if fault == "warm-up-for-ever":
        warmup_steps = 10_000
    if fault == "clipped-to-nothing":
        max_grad_norm = 1e-6
    optimizers = (None, None)
    if fault == "clipped-to-nothing":
        optimizers = (torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), None)
    if fault == "optimizer-of-another":
        other = transformers.LlamaForCausalLM(config)
        optimizers = (torch.optim.AdamW(other.parameters(), lr=5e-3), None)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=60, per_device_train_batch_size=16, learning_rate=5e-3, warmup_steps=warmup_steps,
            use_cpu=True, logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, seed=3,
            max_grad_norm=max_grad_norm,
        )  # fmt: skip
        transformers.Trainer(model, arguments, train_dataset=rows, optimizers=optimizers).train()


def lightning(fault):
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(3, 16, 3, 2, 1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, 2, 1),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.drop, self.head = nn.Dropout(0.2), nn.Linear(256, CLASSES)
            self.seen = []

        def forward(self, x):
            return self.head(self.drop(self.backbone(x)))

        def training_step(self, batch, batch_idx):
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.seen.append(loss.item())
            return loss

        def on_train_epoch_end(self):
            print(f"epoch {self.current_epoch} loss {sum(self.seen) / len(self.seen):.4f}")
            self.seen.clear()

        def configure_optimizers(self):
            if fault == "head-only":
                return torch.optim.Adam(self.head.parameters(), lr=1e-3)
            optimizer = torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9)
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 6], gamma=0.05)
            interval = "step" if fault == "interval-step" else "epoch"
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": interval}}

    images, labels = pictures(320, 16)
    images = images + 2.5 * torch.randn_like(images)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    runner = lightning.Trainer(
        max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    runner.fit(Classifier(), DataLoader(TensorDataset(images, labels), 32, shuffle=True))


def lightning_manual(fault):
    """Optimization by hand, two networks."""
    import lightning

    class Pair(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.encoder, self.decoder = nn.Linear(32, 8), nn.Linear(8, 32)

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            (x,) = batch
            loss = F.mse_loss(self.decoder(torch.tanh(self.encoder(x))), x)
            first.zero_grad()
            second.zero_grad()
            self.manual_backward(loss)
            first.step()
            if fault != "one-never-steps":
                second.step()
            if batch_idx == 0:
                print(f"epoch {self.current_epoch} mse {loss.item():.5f}")

        def configure_optimizers(self):
            adam = torch.optim.Adam
            return adam(self.encoder.parameters(), 5e-3), adam(self.decoder.parameters(), 5e-3)

    data = torch.tanh(torch.randn(512, 5) @ torch.randn(5, 32))
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    runner = lightning.Trainer(
        max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    runner.fit(Pair(), DataLoader(TensorDataset(data), 32, shuffle=True))


def accelerate(fault):
    os.environ["ACCELERATE_USE_CPU"] = "1"
    from accelerate import Accelerator

    x, y = points(512, 16, 1.3)
    steps = 8
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(TensorDataset(x, y), 8, shuffle=True)
    if fault == "optimizer-not-prepared":
        model, loader = accelerator.prepare(model, loader)
    else:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(6):
        total = 0.0
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), targets)
                total += loss.item() / len(loader)
                if fault == "divided-by-hand-too":
                    loss = loss / steps
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch} loss {total:.4f}")


if __name__ == "__main__":
    run(
        {
            "trainer": trainer,
            "lightning": lightning,
            "lightning-manual": lightning_manual,
            "accelerate": accelerate,
        }
    )
