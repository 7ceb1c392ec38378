"""Make pictures: python generative.py dcgan|wgan|vae|vq-vae|ddpm|dit|flow."""

from __future__ import annotations

import copy
import sys

import torch
from diffusers import DDPMScheduler, DiTTransformer2DModel, UNet2DModel
from learning import pictures, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


def generator(width: int = 16) -> nn.Sequential:
    """Deconvolutions as in DCGAN."""
    model = nn.Sequential(
        nn.ConvTranspose2d(16, 4 * width, 4),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, 1, 4, 2, 1),
        nn.Tanh(),
    )
    for module in model:
        if isinstance(module, nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, 0.05)
    return model


def critic(width: int = 16, *, norm: bool = True) -> nn.Sequential:
    """Convolutions as in DCGAN."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.BatchNorm2d(2 * width) if norm else nn.GroupNorm(4, 2 * width),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 4),
        nn.Flatten(),
    )


def dcgan(real: torch.Tensor, steps: int) -> None:
    """Two networks against each other, each with its optimizer."""
    make, judge = generator(), critic()
    make_optimizer = torch.optim.Adam(make.parameters(), lr=1e-3, betas=(0.5, 0.999))
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=3e-4, betas=(0.5, 0.999))
    distances = []
    for step in range(steps):
        batch = real[torch.arange(16) + step * 16 % 128]
        judge_optimizer.zero_grad()
        fake = make(torch.randn(16, 16, 1, 1))
        loss = F.binary_cross_entropy_with_logits(judge(batch), torch.ones(16, 1))
        loss = loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(16, 1))
        loss.backward()
        judge_optimizer.step()
        make_optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(judge(fake), torch.ones(16, 1)).backward()
        make_optimizer.step()
        distances.append((fake.mean((0, 1)) - real.mean((0, 1))).abs().mean().item())
    report(distances, make, judge, make_optimizer, judge_optimizer)


def wgan(real: torch.Tensor, steps: int) -> None:
    """A critic whose gradient has the norm one: the backward pass of a backward pass."""
    make, judge = generator(), critic(norm=False)
    make_optimizer = torch.optim.RMSprop(make.parameters(), lr=1e-3)
    judge_optimizer = torch.optim.RMSprop(judge.parameters(), lr=5e-4)
    distances = []
    for step in range(steps):
        batch = real[torch.arange(16) + step * 16 % 128]
        judge_optimizer.zero_grad()
        fake = make(torch.randn(16, 16, 1, 1))
        share = torch.rand(16, 1, 1, 1)
        between = (share * batch + (1 - share) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        (judge(fake.detach()).mean() - judge(batch).mean() + 10 * penalty).backward()
        judge_optimizer.step()
        make_optimizer.zero_grad()
        (-judge(fake).mean()).backward()
        make_optimizer.step()
        distances.append((fake.mean((0, 1)) - real.mean((0, 1))).abs().mean().item())
    report(distances, make, judge, make_optimizer, judge_optimizer)


class Encoder(nn.Module):
    """Halves a picture twice."""

    def __init__(self, out: int, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.SiLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.SiLU()
        )
        self.head = nn.Conv2d(2 * width, out, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images))


class Vae(nn.Module):
    """A mean and a variance at each place."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.encoder = Encoder(2 * channels)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(channels, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encoder(images).chunk(2, 1)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).mean()
        return F.mse_loss(self.decoder(latent), images) + 0.01 * divergence


class VqVae(nn.Module):
    """The nearest of some vectors at each place; gradients go straight through."""

    def __init__(self, channels: int = 8, entries: int = 32) -> None:
        super().__init__()
        self.encoder = Encoder(channels)
        self.book = nn.Embedding(entries, channels)
        nn.init.normal_(self.book.weight, 0.0, 0.3)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(channels, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        latent = self.encoder(images).permute(0, 2, 3, 1)
        nearest = torch.cdist(latent.flatten(0, 2), self.book.weight).argmin(1).view(latent.shape[:3])
        chosen = self.book(nearest)
        straight = latent + (chosen - latent).detach()
        decoded = self.decoder(straight.permute(0, 3, 1, 2))
        codes = F.mse_loss(chosen, latent.detach()) + 0.25 * F.mse_loss(latent, chosen.detach())
        return F.mse_loss(decoded, images) + codes


def autoencoder(model: nn.Module, real: torch.Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(real[torch.arange(32) + step * 32 % 128])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def diffusion(model: nn.Module, real: torch.Tensor, steps: int, *, classes: torch.Tensor | None = None) -> None:
    """Predict noise; a copy follows slowly."""
    slow = copy.deepcopy(model).requires_grad_(False)
    schedule = DDPMScheduler(100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for step in range(steps):
        rows = torch.arange(8) + step * 8 % 128
        images, noise = real[rows], torch.randn(8, *real.shape[1:])
        times = torch.randint(0, 100, (8,))
        noisy = schedule.add_noise(images, noise, times)
        more = {} if classes is None else {"class_labels": classes[rows]}
        loss = F.mse_loss(model(noisy, times, **more).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(slow.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.05)
        losses.append(loss.item())
    report(losses, model, slow, optimizer)


class Coupling(nn.Module):
    """Half of the features scale and shift the other half; begins as if it were not there."""

    def __init__(self, features: int, width: int, *, swap: bool) -> None:
        super().__init__()
        self.swap = swap
        self.net = nn.Sequential(nn.Linear(features // 2, width), nn.Tanh(), nn.Linear(width, features))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = values.chunk(2, 1)
        if self.swap:
            first, second = second, first
        scale, shift = self.net(first).chunk(2, 1)
        scale = torch.tanh(scale)
        second = second * scale.exp() + shift
        return torch.cat([second, first] if self.swap else [first, second], 1), scale.sum(1)


def flow(steps: int) -> None:
    """A normalizing flow (RealNVP) of points on a ring."""
    angles = 6.28 * torch.rand(512)
    real = torch.stack([2 * angles.cos(), 2 * angles.sin()], 1) + 0.1 * torch.randn(512, 2)
    model = nn.ModuleList(Coupling(2, 64, swap=bool(index % 2)) for index in range(6))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for step in range(steps):
        values, change = real[torch.arange(128) + step * 128 % 512], torch.zeros(128)
        for coupling in model:
            values, log_det = coupling(values)
            change = change + log_det
        loss = (0.5 * values.square().sum(1) - change).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def main(name: str) -> None:
    torch.manual_seed(6)
    images, labels = pictures(128, 16, 1)
    images = images.clamp(-1, 1)
    if name == "dcgan":
        dcgan(images, 40)
    elif name == "wgan":
        wgan(images, 40)
    elif name == "vae":
        autoencoder(Vae(), images, 60)
    elif name == "vq-vae":
        autoencoder(VqVae(), images, 60)
    elif name == "ddpm":
        unet = UNet2DModel(
            sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=4, attention_head_dim=8,
        )  # fmt: skip
        diffusion(unet, images, 40)
    elif name == "dit":
        transformer = DiTTransformer2DModel(
            num_attention_heads=4, attention_head_dim=12, in_channels=1, out_channels=1, num_layers=3,
            norm_num_groups=4, sample_size=16, patch_size=4, num_embeds_ada_norm=4,
        )  # fmt: skip
        diffusion(transformer, images, 40, classes=labels)
    else:
        flow(80)


if __name__ == "__main__":
    main(sys.argv[1])
