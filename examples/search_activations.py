"""Search over activations: GridSearchCV and stacked search
========================================================

Two ways to search over the activation and other parameters: scikit-learn's ``GridSearchCV`` on a
pipeline, and ``StackedGridSearchCV``, which trains many networks at once.

::

    python examples/search_activations.py

Writes search_activations.png.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline

from combutab import MLPClassifier, StackedGridSearchCV

# %%
# The data are scikit-learn's digits. All networks train for the same fixed number of epochs.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
folds = StratifiedKFold(3, shuffle=True, random_state=0)
net = MLPClassifier(
    hidden_layer_sizes=(64,),
    numeric_embedding="none",  # trains faster
    batch_size=128,
    learning_rate_init=0.008,
    max_iter=12,
    n_members=1,  # one network per fit
    n_iter_no_change=np.inf,  # no early stopping
    random_state=0,
)

# %%
# With ``GridSearchCV``, the estimator can be a step of a pipeline. Networks are fitted one after
# another.

pipeline = make_pipeline(PCA(24, random_state=0), net)
grid = {"mlpclassifier__activation": ["relu", "combu"]}
search = GridSearchCV(pipeline, grid, cv=folds).fit(X_train, y_train)
for params, score in zip(
    search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
):
    print(f"pipeline, {params['mlpclassifier__activation']}: accuracy {score:.3f}")

# %%
# ``StackedGridSearchCV`` trains the networks of all candidates and folds as stacks, here 45 fits in
# all. It takes an ``MLPClassifier`` or ``MLPRegressor``; other estimators are searched one fit at a
# time.

ACTIVATIONS = ["relu", "gelu", "combu", "pln-4", "la-silu"]
RATES = [0.0005, 0.002, 0.008]

grid = {"activation": ACTIVATIONS, "learning_rate_init": RATES}
stacked = StackedGridSearchCV(net, grid, cv=folds).fit(X_train, y_train)
print(f"stacked search: {len(stacked.cv_results_['params'])} candidates")
print(f"best: {stacked.best_params_}, accuracy {stacked.best_score_:.3f} in the folds")
print(f"accuracy on held-out rows: {stacked.score(X_test, y_test):.3f}")

# %%
# The picture shows the mean score of each candidate of the stacked search.


def draw(scores: pd.DataFrame) -> Figure:
    """Draw mean scores: one row per activation, one column per learning rate."""
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(scores, cmap="cividis", aspect="auto")
    axes.set_xticks(range(scores.shape[1]), [f"{rate:g}" for rate in scores.columns])
    axes.set_yticks(range(scores.shape[0]), scores.index)
    axes.set_xlabel("learning_rate_init")
    middle = (scores.to_numpy().min() + scores.to_numpy().max()) / 2
    for (row, column), score in np.ndenumerate(scores):
        color = "white" if score < middle else "black"
        axes.text(column, row, f"{score:.3f}", ha="center", va="center", color=color)
    figure.colorbar(image, label="accuracy, mean of 3 folds")
    axes.set_title("Digits after 12 epochs", loc="left")
    return figure


results = pd.DataFrame(stacked.cv_results_["params"])
results["score"] = stacked.cv_results_["mean_test_score"]
scores = results.pivot(index="activation", columns="learning_rate_init", values="score")
draw(scores.loc[ACTIVATIONS]).savefig("search_activations.png", dpi=100)
