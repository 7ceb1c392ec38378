"""Learn by trying: python reinforcement.py dqn|ppo|sac."""

from __future__ import annotations

import copy
import sys

import torch
from learning import report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


def environment(state: torch.Tensor, push: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Push a cart towards the middle; it has a place and a speed."""
    place, speed = state.unbind(1)
    speed = (0.9 * speed + 0.2 * push).clamp(-1, 1)
    place = (place + speed).clamp(-3, 3)
    return torch.stack([place, speed], 1), -0.2 * (place.square() + 0.1 * speed.square())


def mlp(inputs: int, outputs: int, width: int = 64, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, outputs)
    )


def dqn() -> None:
    """A target network is copied now and then, and never trained."""
    values = mlp(2, 3)
    target = copy.deepcopy(values)
    optimizer = torch.optim.Adam(values.parameters(), lr=2e-3)
    state = 4 * torch.rand(64, 2) - 2
    losses, memory = [], []
    for step in range(120):
        with torch.no_grad():
            best = values(state).argmax(1)
        explores = torch.rand(64) < 0.3
        action = torch.where(explores, torch.randint(0, 3, (64,)), best)
        following, reward = environment(state, action - 1.0)
        memory.append((state, action, reward, following))
        state = following if (step + 1) % 20 else 4 * torch.rand(64, 2) - 2
        seen, action, reward, after = memory[int(torch.randint(max(0, len(memory) - 50), len(memory), ()))]
        with torch.no_grad():
            goal = reward + 0.8 * target(after).max(1).values
        loss = F.smooth_l1_loss(values(seen).gather(1, action[:, None])[:, 0], goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24:
            target.load_state_dict(values.state_dict())
        losses.append(loss.item())
    report(losses, values, target, optimizer)


def ppo() -> None:
    """Play, then learn from that several times with a clipped ratio."""
    policy, critic = (mlp(2, outputs, activation=nn.Tanh) for outputs in (3, 1))
    both = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(both, lr=2e-3, eps=1e-5)
    losses = []
    for _ in range(15):
        state, played = 4 * torch.rand(64, 2) - 2, []
        with torch.no_grad():
            for _ in range(8):
                choice = torch.distributions.Categorical(logits=policy(state))
                action = choice.sample()
                following, reward = environment(state, action - 1.0)
                played.append((state, action, choice.log_prob(action), reward, critic(state)[:, 0]))
                state = following
            gain, gains = critic(state)[:, 0], []
            for _, _, _, reward, _ in reversed(played):
                gain = reward + 0.9 * gain
                gains.append(gain)
        states, actions, before, _, values = (torch.cat(column) for column in zip(*played, strict=True))
        returns = torch.cat(gains[::-1])
        advantage = returns - values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(4):
            choice = torch.distributions.Categorical(logits=policy(states))
            ratio = (choice.log_prob(actions) - before).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            critic_loss = F.mse_loss(critic(states)[:, 0], returns)
            optimizer.zero_grad()
            (critic_loss * 0.5 - gain - 0.01 * choice.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(both, 0.5)
            optimizer.step()
            losses.append(critic_loss.item())
    report(losses, policy, critic, optimizer)


def sac() -> None:
    """Two critics with slow copies, an actor, and a temperature; three optimizers."""
    actor, critics = mlp(2, 2), nn.ModuleList([mlp(3, 1), mlp(3, 1)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    temperature = nn.Parameter(torch.zeros(()))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3)
    temperature_optimizer = torch.optim.Adam([temperature], lr=1e-3)

    def act(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_deviation = actor(state).chunk(2, 1)
        choice = torch.distributions.Normal(mean, log_deviation.clamp(-5, 2).exp())
        raw = choice.rsample()
        action = torch.tanh(raw)
        return action, (choice.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(1)

    state = 4 * torch.rand(128, 2) - 2
    losses = []
    for step in range(60):
        with torch.no_grad():
            action, _ = act(state)
            following, reward = environment(state, action[:, 0])
            next_action, log_chance = act(following)
            later = (
                torch.stack([target(torch.cat([following, next_action], 1))[:, 0] for target in targets]).min(0).values
            )
            goal = reward + 0.8 * (later - temperature.exp() * log_chance)
        critic_loss = sum(F.mse_loss(critic(torch.cat([state, action], 1))[:, 0], goal) for critic in critics)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        critics.requires_grad_(False)
        new_action, log_chance = act(state)
        value = torch.stack([critic(torch.cat([state, new_action], 1))[:, 0] for critic in critics]).min(0).values
        actor_optimizer.zero_grad()
        (temperature.exp().detach() * log_chance - value).mean().backward()
        actor_optimizer.step()
        critics.requires_grad_(True)
        temperature_optimizer.zero_grad()
        (-temperature.exp() * (log_chance.detach() - 1.0).mean()).backward()
        temperature_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        state = following if (step + 1) % 10 else 4 * torch.rand(128, 2) - 2
        losses.append(critic_loss.item())
    report(losses, actor, critics, targets)


torch.manual_seed(8)
{"dqn": dqn, "ppo": ppo, "sac": sac}[sys.argv[1]]()
