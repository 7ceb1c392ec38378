"""Small trainings of Lightning and of Transformers. Importing this takes seconds, so tests do it where they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer as TransformersTrainer
from transformers import TrainingArguments

if TYPE_CHECKING:
    from pathlib import Path

ROWS, BATCH = 32, 4


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows of a made-up table; those from a certain one on may hold a NaN."""

    def __init__(self, sick_from: int = ROWS) -> None:
        numbers = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(ROWS, 8, generator=numbers)
        self.labels = self.inputs.sum(dim=1, keepdim=True)
        self.inputs[sick_from:] = float("nan")

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"inputs": self.inputs[row], "labels": self.labels[row]}


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))


class Regression(LightningModule):
    """What people write for Lightning."""

    def __init__(self, fails_at: int = -1, sick_at: int = -1) -> None:
        super().__init__()
        self.network = network()
        self.fails_at, self.sick_at = fails_at, sick_at

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        if number == self.fails_at:
            raise ZeroDivisionError("the script's own")
        outputs = self.network(batch["inputs"])
        if number == self.sick_at:
            outputs = outputs * 0 / (outputs * 0)  # here
        return nn.functional.mse_loss(outputs, batch["labels"])

    def validation_step(self, batch: dict[str, torch.Tensor]) -> None:
        self.log("validation", nn.functional.mse_loss(self.network(batch["inputs"]), batch["labels"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Wrapper:
    """An optimizer that is none of PyTorch's: it has what Lightning asks of one, and leaves the rest to another one."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


class Wrapped(Regression):
    def configure_optimizers(self) -> Any:
        return Wrapper(super().configure_optimizers())


class TwoOptimizers(Regression):
    """Manual optimization: each optimizer steps on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, number))
            optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.network[place].parameters(), lr=0.01) for place in (0, 2)]


class Module(nn.Module):
    """What Transformers' trainer wants of a model."""

    def __init__(self, *, is_sick: bool = False) -> None:
        super().__init__()
        self.network = network()
        self.is_sick = is_sick

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = self.network(inputs)
        if self.is_sick:
            outputs = outputs * 0 / (outputs * 0)  # here
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


def fit(model: Regression, folder: Path, callbacks: list[Any], sick_from: int = ROWS, **options: Any) -> None:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        enable_checkpointing=False,
        default_root_dir=folder,
        callbacks=callbacks,
        **quiet,
        **options,
    )
    trainer.fit(model, DataLoader(Rows(sick_from), BATCH), DataLoader(Rows(), BATCH))


def train(model: Module, folder: Path, callbacks: list[Any], sick_from: int = ROWS, **options: Any) -> None:
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        eval_strategy="epoch",
        **quiet,
        **options,
    )
    TransformersTrainer(
        model, arguments, train_dataset=Rows(sick_from), eval_dataset=Rows(), callbacks=callbacks
    ).train()
