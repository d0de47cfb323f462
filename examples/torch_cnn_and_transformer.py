"""Activations in your own torch networks: CNN and Transformer
===========================================================

Each activation is a torch module that you can use in any network. This example uses four of them
in a small CNN and in a small Transformer encoder.

::

    python examples/torch_cnn_and_transformer.py

Writes torch_cnn_and_transformer.png.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from combutab.activations import make_activation

# %%
# Load scikit-learn's digits. The Transformer reads each image as 8 rows of 8 pixels.

ACTIVATIONS = {"relu": "#000000", "combu": "#0072B2", "pln-4": "#D55E00", "la-silu": "#009E73"}

images, labels = load_digits(return_X_y=True)
X = torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 8, 8)
y = torch.tensor(labels)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# In a CNN, pass the number of channels, and ``dim=1`` because the channels are axis 1.


def make_cnn(activation: str) -> nn.Module:  # (batch, 8, 8) -> (batch, 10)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        make_activation(activation, 16, dim=1),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        make_activation(activation, 32, dim=1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


# %%
# In a Transformer, pass the width of the feed-forward layer.


class Transformer(nn.Module):
    def __init__(self, activation: str) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.position = nn.Parameter(0.1 * torch.randn(8, 32))
        layer = nn.TransformerEncoderLayer(
            d_model=32,
            nhead=4,
            dim_feedforward=64,
            activation=make_activation(activation, 64),  # as wide as dim_feedforward
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # (batch, 8, 8) -> (batch, 10)
        return self.head(self.encoder(self.embed(x) + self.position).mean(dim=1))


# %%
# Train each network with each activation. One run per network shows that the activations work, not
# which one is best. For a comparison see which_activation.py.


def train(
    net: nn.Module, X: Tensor, y: Tensor, X_test: Tensor, y_test: Tensor, epochs: int
) -> list[float]:
    """Train, and return the test error after each epoch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    errors = []
    for _ in range(epochs):
        net.train()
        for rows in torch.randperm(len(X)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            errors.append((net(X_test).argmax(dim=1) != y_test).double().mean().item())
    return errors


errors: dict[str, dict[str, list[float]]] = {}
for title, make in {"CNN": make_cnn, "Transformer encoder": Transformer}.items():
    errors[title] = {}
    for name in ACTIVATIONS:
        torch.manual_seed(0)
        line = train(make(name), X_train, y_train, X_test, y_test, epochs=6)
        errors[title][name] = line
        print(f"{title}, {name}: test accuracy {1 - line[-1]:.3f}")

# %%
# The picture shows the test error after each epoch.


def draw(errors: dict[str, dict[str, list[float]]]) -> Figure:
    """Draw errors by epoch: one panel per network, one line per activation."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    panels = figure.subplots(1, len(errors), sharey=True)
    for axes, (title, lines) in zip(panels, errors.items(), strict=True):
        for (name, line), marker in zip(lines.items(), "osD^", strict=True):
            epochs = range(1, len(line) + 1)
            percent = [100 * error for error in line]
            axes.plot(
                epochs, percent, color=ACTIVATIONS[name], marker=marker, markersize=4, label=name
            )
        axes.set_yscale("log")
        axes.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color="0.92")
        axes.set_title(title, loc="left")
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test error in %")
    panels[0].legend(frameon=False)
    return figure


draw(errors).savefig("torch_cnn_and_transformer.png", dpi=100)
