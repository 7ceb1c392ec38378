from __future__ import annotations

import torch
from launch import run
from learning import CLASSES, points
from torch import autograd, nn
from torch.nn import functional as F


def ring(count):
    angle = 6.2832 * torch.rand(count, 1)
    return torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def wgan(fault):
    """A critic whose weights are clipped, five of its steps for one of the generator."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    g_opt = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
    c_opt = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for step in range(80):
        for _ in range(5):
            c_opt.zero_grad()
            c_loss = critic(generator(torch.randn(64, 4)).detach()).mean() - critic(ring(64)).mean()
            c_loss.backward()
            c_opt.step()
            for p in critic.parameters():
                p.data.clamp_(-0.1, 0.1)
        g_opt.zero_grad()
        g_loss = -critic(generator(torch.randn(64, 4))).mean()
        g_loss.backward()
        g_opt.step()
        if step % 16 == 15:
            print(f"{step + 1} critic {c_loss.item():.4f} generator {g_loss.item():.4f}")


def wgan_gp(fault):
    """A penalty on the critic's gradient, by a derivative of second order."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
    g_opt = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for step in range(80):
        for _ in range(3):
            real, fake = ring(64), generator(torch.randn(64, 4)).detach()
            mix = torch.rand(64, 1)
            between = (mix * real + (1 - mix) * fake).requires_grad_(True)
            (slope,) = autograd.grad(critic(between).sum(), between, create_graph=True)
            c_loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
            c_opt.zero_grad()
            c_loss.backward()
            c_opt.step()
        g_loss = -critic(generator(torch.randn(64, 4))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if step % 16 == 15:
            print(f"{step + 1} critic {c_loss.item():.4f} generator {g_loss.item():.4f}")


class Reverse(autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.weight * grad, None


def domains(fault):
    """Features that do not tell the domains apart: the gradient of that classifier is reversed."""
    x, y = points(600, 16, 1.0)
    shifted = x + 1.5
    features = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
    classes, domain = nn.Linear(24, CLASSES), nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam([*features.parameters(), *classes.parameters(), *domain.parameters()], lr=2e-3)
    for step in range(150):
        i, j = torch.randint(0, 600, (32,)), torch.randint(0, 600, (32,))
        source, target = features(x[i]), features(shifted[j])
        guess = domain(Reverse.apply(torch.cat([source, target]), 0.3)).squeeze(1)
        truth = torch.cat([torch.zeros(32), torch.ones(32)])
        label_loss = F.cross_entropy(classes(source), y[i])
        loss = label_loss + F.binary_cross_entropy_with_logits(guess, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} label {label_loss.item():.4f} all {loss.item():.4f}")


def robust(fault):
    """Trained on the worst of small changes of the inputs, which are found by ascent."""
    x, y = points(512, 16, 0.8)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(100):
        i = torch.randint(0, 512, (32,))
        delta = torch.zeros(32, 16, requires_grad=True)
        for _ in range(3):
            (slope,) = autograd.grad(F.cross_entropy(net(x[i] + delta), y[i]), delta)
            delta = (delta + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach().requires_grad_(True)
        loss = F.cross_entropy(net(x[i] + delta.detach()), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1} {loss.item():.4f}")


def actor_critic(fault):
    """Advantages, an entropy bonus, and two losses that need not fall: a line to walk along."""
    policy = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))
    value = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(
        [{"params": policy.parameters(), "lr": 3e-3}, {"params": value.parameters(), "lr": 1e-2}]
    )
    for step in range(120):
        at = torch.rand(32, 1) * 4 - 2
        logs, values, entropies, rewards = [], [], [], []
        for _ in range(8):
            choice = torch.distributions.Categorical(logits=policy(at))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            entropies.append(choice.entropy())
            values.append(value(at).squeeze(1))
            at = (at + 0.4 * (2 * action.float().unsqueeze(1) - 1)).clamp(-3, 3)
            rewards.append(-at.squeeze(1).abs())
        returns, total = [], torch.zeros(32)
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns, values = torch.stack(returns), torch.stack(values)
        advantage = (returns - values).detach()
        loss = -(torch.stack(logs) * advantage).mean() + 0.5 * F.mse_loss(values, returns)
        loss = loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} loss {loss.item():.4f} reward {torch.stack(rewards).mean().item():.4f}")


def information(fault):
    """A bound on mutual information is maximised by maximize=True."""
    net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, maximize=True)
    for step in range(200):
        a = torch.randn(128, 1)
        b = 0.9 * a + 0.44 * torch.randn(128, 1)
        joint = net(torch.cat([a, b], 1)).mean()
        apart = net(torch.cat([a, b[torch.randperm(128)]], 1)).logsumexp(0).squeeze() - torch.log(torch.tensor(128.0))
        bound = joint - apart
        optimizer.zero_grad()
        bound.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} bound {bound.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "wgan": wgan,
            "wgan-gp": wgan_gp,
            "domains": domains,
            "robust": robust,
            "actor-critic": actor_critic,
            "information": information,
        }
    )
