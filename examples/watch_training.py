"""Watch the training: progress bars, scores per epoch, loss curves
================================================================

Use the callbacks of scikit-learn 1.9 to show progress bars of a search and to compute a score
after each epoch, and plot the losses.

::

    python examples/watch_training.py

Needs scikit-learn 1.9. Writes watch_training.png: losses and training accuracy at three
learning rates.
"""

from __future__ import annotations

from matplotlib.figure import Figure
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from combutab import MLPClassifier
from combutab.plotting import LossCurveDisplay

# %%
# The data are 600 of scikit-learn's digits. ``n_members=1`` trains one network, so each model has
# one loss curve. The default is three networks.

RATES = [0.001, 0.005, 0.025]

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, stratify=y, train_size=600, random_state=0)
net = MLPClassifier(
    hidden_layer_sizes=(32,),
    numeric_embedding="none",
    batch_size=64,
    max_iter=12,
    n_iter_no_change=float("inf"),
    n_members=1,
    random_state=0,
)

# %%
# ``ProgressBar`` shows bars for the search, for each fit in it, and for the last fit on all rows.

search = GridSearchCV(net, {"learning_rate_init": RATES[1:]}, cv=2)
search.set_callbacks(ProgressBar()).fit(X, y)
print(f"best: {search.best_params_}, accuracy {search.score(X_test, y_test):.3f}")

# %%
# ``ScoringMonitor`` computes a score after each epoch, of the network as it would be if training
# ended there.

figure = Figure(figsize=(9.2, 4.8), layout="constrained")
left, right = figure.subplots(1, 2)
fitted = {}
for rate in RATES:
    name, monitor = f"rate {rate:g}", ScoringMonitor(scoring="accuracy")
    fitted[name] = MLPClassifier(**net.get_params()).set_params(learning_rate_init=rate)
    fitted[name].set_callbacks(monitor).fit(X, y)
    log = monitor.get_logs().data_as_pandas
    epochs = log[log["task_name"] == "epoch"]
    print(f"{name}: accuracy {epochs['accuracy'].round(2).tolist()}")
    right.plot(epochs["task_id"] + 1, epochs["accuracy"], marker="o", markersize=4, label=name)

# %%
# ``LossCurveDisplay`` draws the losses of several fitted models into one figure.

display = LossCurveDisplay.from_estimator(fitted, ax=left)
for line, other in zip(right.lines, display.ax_.get_legend().get_lines(), strict=False):
    line.set_color(other.get_color())
right.set_xlabel("epoch")
right.set_ylabel("accuracy on the training rows")
right.spines[["top", "right"]].set_visible(False)
right.grid(axis="y", color="0.92", linewidth=0.8)
figure.savefig("watch_training.png", dpi=100)
