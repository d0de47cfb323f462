"""Power plots: why a deep network does not learn
==============================================

Twenty layers with layer normalization learn nothing. A power plot of the layers shows why, and
which normalization helps.

::

    python examples/power_plots.py

Writes power_plots.png.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from combutab import MLPClassifier, paper_recipe
from combutab.evaluation import power_decomposition
from combutab.plotting import plot_power

# %%
# The data are scikit-learn's digits. The networks differ only in their normalization. (With a third
# of this learning rate, the first network learns too.)

NETWORKS = {
    "layer norm": {"normalization": "layer"},
    "layer norm + proxy norm": {"normalization": "layer", "proxy_norm": True},
    "batch norm": {"normalization": "batch"},
}

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# ``power_decomposition`` splits the mean square of each layer's channels into parts. P1 is the part
# that is the same for all inputs, P2 differs between inputs. With layer normalization, nearly all
# power moves to P1, so the last layer cannot distinguish the inputs. Proxy Normalization after each
# activation, or batch normalization, keeps most of the power in P2.

powers = {}
for name, parameters in NETWORKS.items():
    settings = paper_recipe(
        "classification",
        hidden_layer_sizes=(64,) * 20,
        activation="relu",
        dropout=0,
        batch_size=128,
        learning_rate_init=3e-3,
        max_iter=15,
        n_iter_no_change=np.inf,
        random_state=0,
        **parameters,
    )
    model = MLPClassifier(**settings).fit(X_train, y_train)
    power = power_decomposition(model, X_test)
    accuracy, last = model.score(X_test, y_test), power.iloc[-1]
    print(f"{name}: accuracy {accuracy:.2f}; P1 is {last['P1'] / last['P']:.0%} in the last layer")
    powers[f"{name}: accuracy {accuracy:.2f}"] = power

# %%
# The picture shows the parts of the power in each layer.

plot_power(powers).savefig("power_plots.png", dpi=100)
