"""Pack: an ensemble of random networks
====================================

How much better is an ensemble than one network, and which activations does it select?

::

    python examples/pack_of_networks.py

Writes pack_of_networks.png: the weight and the loss of each member of the ensemble.
"""

from __future__ import annotations

from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from combutab import MLPRegressor, PackRegressor
from combutab.plotting import PackDisplay

# %%
# Simulate data in which five of ten features matter.

X, y = make_friedman1(n_samples=800, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# A pack trains networks with random activations, sizes and other settings, and boosted trees. From
# these members, it selects an ensemble by their validation loss. This one has 8 members to be
# quick. The default is 16.

pack = PackRegressor(
    n_members=8,
    max_time="2min",  # time limit of the training
    random_state=0,
)

# %%
# Compare it with gradient boosting and with one network.

models = {
    "boosting": HistGradientBoostingRegressor(random_state=0),
    "one network": MLPRegressor(n_members=1, random_state=0),
    "pack": pack,
}
for name, model in models.items():
    print(f"{name}: R2 {model.fit(X_train, y_train).score(X_test, y_test):.3f}")

# %%
# The weight is the share of a member in the ensemble. Members with a weight of 0 are not used in
# predictions.

chosen = pack.members_[pack.members_["weight"] > 0].sort_values("weight", ascending=False)
columns = ["activation", "depth", "dropout", "validation_loss", "weight"]
print(chosen[columns].round(3).to_string(index=False))
print(f"weight by activation: {pack.activation_weights_.round(2).to_dict()}")

# %%
# The picture shows the weights and losses.

display = PackDisplay.from_estimator(pack)
display.figure_.savefig("pack_of_networks.png", dpi=110)
