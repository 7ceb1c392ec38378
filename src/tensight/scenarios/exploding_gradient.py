"""Predict a temperature and how far off the prediction may be. One reading is wrong, and the weights are gone."""

import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 32)
        self.mean = nn.Linear(32, 1)
        self.log_variance = nn.Linear(32, 1)

    def forward(self, readings):
        hidden = torch.tanh(self.hidden(readings))
        return self.mean(hidden), torch.exp(self.log_variance(hidden))


def likelihood_loss(mean, variance, temperature):
    error = (temperature - mean) ** 2
    return (error / variance + torch.log(variance)).mean()  # FAULT: nothing keeps the variance away from 0


def readings(amount, step):
    inputs = torch.randn(amount, 8)
    temperature = inputs.mean(dim=1, keepdim=True)
    if step == 100:
        temperature[0] = 15.0  # what this sensor says when it is unplugged
    return inputs, temperature


def main():
    torch.manual_seed(0)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, 301):
        inputs, temperature = readings(64, step)
        mean, variance = model(inputs)
        loss = likelihood_loss(mean, variance, temperature)
        optimizer.zero_grad()
        loss.backward()
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
        optimizer.step()


if __name__ == "__main__":
    main()
