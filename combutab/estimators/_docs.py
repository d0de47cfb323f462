"""The parameter and attribute descriptions that both estimators share."""

from __future__ import annotations

import textwrap
from typing import TypeVar

T = TypeVar("T", bound=type)

_PARAMETERS = """
hidden_layer_sizes : "auto", "paper", int or sequence of int, default="auto"
    Units of each hidden layer. ``"paper"`` is the CombU paper's rule: (128, 128) below 1,000
    training rows, else (256,) * 5. ``"auto"`` is (256, 256, 256).
activation : str or callable, default="combu"
    A name of ``combutab.activations.ACTIVATIONS`` (``"relu"``, ``"combu"``, ``"pln-8"``,
    ``"la-silu"``, scikit-learn's ``"logistic"``, ...) or a callable ``width -> nn.Module``.
solver : {"adam", "adamw", "sgd", "lbfgs"}, default="adamw"
    ``"lbfgs"`` uses all rows at once, without dropout, early stopping or callbacks.
alpha : float, default=0.0
    Strength of the L2 penalty on the weights, divided by the batch's rows as in scikit-learn.
batch_size : int, "auto" or "paper", default="auto"
    Rows in a batch. ``"auto"`` is a power of two: near an eighth of the training rows, from 32
    to 256, and from 65,536 rows on near a 256th of them, up to 2048; ``"paper"`` is 500.
learning_rate : str, default="coslog4"
    Schedule: scikit-learn's ``"constant"``, ``"invscaling"`` and ``"adaptive"``, or ``"cosine"``,
    ``"one-cycle"``, ``"flat-cosine"``, ``"coslog4"`` over ``max_iter`` epochs (constant in
    ``partial_fit``); for every solver but lbfgs. ``"coslog4"`` falls to zero after a 15th, a
    fifth, seven 15ths and all of the epochs, as networks overfit some tables early and others
    late; the best epoch is kept.
learning_rate_init : float, default=0.002, of regressors 0.004
    Initial (for ``"one-cycle"``: largest) learning rate.
power_t : float, default=0.5
    Exponent of ``"invscaling"``.
max_iter : int, default=100
    Epochs at most (lbfgs: iterations).
shuffle : bool, default=True
    Draw the rows anew for each epoch's batches.
random_state : int, RandomState, Generator or None, default=None
    Fixes weights, shuffles, dropout and the validation split; global state is never touched.
tol : float, default=1e-6
    Improvement that counts, in loss or validation score.
verbose : bool or int, default=False
    Print a line an epoch. For a bar, pass ``callbacks=[combutab.training.ProgressBar()]``.
warm_start : bool, default=False
    Go on from the previous fit's weights and encoding. Parameters that shape these (layers,
    activation, normalisation, encoding, loss, ``n_members``, ...) cannot be changed meanwhile;
    those of the training can, and another integer as ``random_state`` shuffles and drops anew.
    As in scikit-learn, each fit that reaches ``max_iter`` gives a ``ConvergenceWarning``, also
    with ``n_iter_no_change=inf``.
momentum, nesterovs_momentum : float, default=0.9, and bool, default=True
    Of ``solver="sgd"``.
early_stopping : bool or "auto", default="auto"
    Set ``validation_fraction`` of the rows aside (stratified for classes), stop when their score
    stalls, and keep the best epoch's weights. ``"auto"`` does so from 200 rows on.
validation_fraction : float, default=0.2
    Share of rows set aside.
early_stopping_scoring : str, callable or None, default="loss"
    The score of the rows set aside: ``"loss"``, which is minus the training's loss (without label
    smoothing), any of scikit-learn's scorers, or None for accuracy and R2.
beta_1, beta_2, epsilon : float, default=0.9, 0.95, 1e-8
    Of Adam.
n_iter_no_change : int or inf, default=30
    Epochs without improvement after which training stops; ``inf`` runs ``max_iter`` epochs.
max_fun : int, default=15000
    Function calls of lbfgs at most.
dropout : float, default=0.15
    Share of hidden units dropped in training, rounded to 1/256 (but never to 0).
weight_decay : float, default=0.02
    Decoupled decay of the weights, used by ``solver="adamw"`` alone.
max_grad_norm : float or None, default=None
    Clip each member's gradient to this Euclidean norm.
normalization : {"none", "batch", "layer", "group", "rms", "pln", "pls"}, default="none"
    Between each linear layer and its activation; groups are of 8 units.
proxy_norm : bool, default=False
    Follow layer or group normalisation by proxy normalisation of the activation.
init : str or ConstructedNetwork, default="torch"
    Initial weights: ``"torch"``, ``"kaiming"``, ``"xavier"``, ``"lecun"``, ``"ntk"`` or
    ``"data"``. ``"ntk"`` divides them by the square root of a layer's inputs in the forward
    pass, so that one learning rate suits all widths; ``"data"`` as well, and has each unit vary by
    1 over the training rows and its zero between some of them. A network of
    ``combutab.constructions``, in the units of the table and the target, is where the training
    starts: a known law is fitted further, not learned anew. It needs ``dropout=0``, CombU (of a
    trigonometric law ``activation="complex-combu"``), inputs that are scaled alone (all as in
    ``paper_recipe``), and room in the hidden layers (``"auto"``: as much as it takes); units left
    over start as usual, unread. Its outputs are the target (classifier: the logits).
n_members : int, default=1
    Networks trained from different seeds as one stack, whose predictions are averaged.
bagging : {"cv"} or None, default=None
    ``"cv"`` splits the rows into as many folds as members (stratified for classes): each member
    trains on the others and has its own fold as validation rows, so that all rows train and every
    member stops early and keeps its best epoch, whatever ``early_stopping`` says. Encoding and
    target's scaling are learned of all rows. Needs ``n_members`` of 2 or more (5, say); not for
    lbfgs, ``warm_start``, ``partial_fit``, ``fit_parquet``, nor with ``X_val``.
categorical_features : "from_dtype", array-like or None, default="from_dtype"
    Which columns are categories: by dtype, by mask, positions or names, or none.
numeric_encoding : {"standard", "quantile", "robust", "none"}, default="robust"
    Scaling of numeric columns.
max_onehot : int, default=8
    Categorical columns of more categories are embedded instead of one-hot encoded.
min_frequency : int or float, default=5
    Rows, or share of them, that a value must have to be kept in the fitted estimator and its
    files. Rarer categories become one, as which unseen ones count too; quantiles are taken of
    means of so many neighbours. 1 keeps all.
embedding_dim : int, default=8
    Width of those embeddings.
numeric_embedding : {"none", "pbld", "piecewise-linear"}, default="pbld"
    Numbers as they are, or each as ``numeric_embedding_dim`` numbers: itself and linear maps of
    cosines of learned frequencies, as RealMLP has it; or piecewise-linear functions, whose kinks
    are at quantiles of the training rows, as TabM has it.
numeric_embedding_dim, n_frequencies, frequency_scale : int, int and float, default=4, 16, 0.1
    Of those embeddings; the scale is the standard deviation of the first frequencies.
n_bins : int, default=48
    Bins of the piecewise-linear functions at most, which have as many pieces.
scale_inputs : bool, default=True
    Multiply each input of the first layer by a learned factor.
learning_rate_factors : dict, "auto" or None, default="auto"
    Factors of the learning rate by parameters' role: "weight", "bias", "normalization",
    "activation", "embedding", "scale". ``"auto"`` is 6 for the scale and 0.1 for biases; None is 1
    for all.
regularization_schedule : str, default="flat-cosine"
    How dropout and weight decay change from epoch to epoch, over ``max_iter`` of them:
    ``"constant"``, or one of the schedules of ``learning_rate`` by the step.
device : str or torch.device, default="auto"
    ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
precision : {"float32", "float64", "bf16-mixed"}, default="float32"
    What the network computes in. Predictions are float64, of that precision.
track_metric : bool, default=False
    Also record, in ``history_``, the accuracy (regressor: the mean absolute error, in the units
    of the scaled target) on each epoch's training batches, as trained, dropout included.
callbacks : list of combutab.training.Callback or None, default=None
    Told of every epoch; may stop the training. `combutab.evaluation.ActivationRecorder` records
    what the units do. scikit-learn's own (1.9 and later) are given by ``set_callbacks``: a
    ``sklearn.callback.ProgressBar`` of a search or a pipeline shows our epochs, too.
"""

_ATTRIBUTES = """
encoder_ : TableEncoder
    The fitted encoding of the table's columns.
loss_ : float
    Loss of the last epoch.
best_loss_ : float or None
    Smallest training loss; None with a validation set.
loss_curve_ : list of float
    Training loss of each epoch (of the first member, as all that follow).
validation_scores_ : list of float or None
    ``early_stopping_scoring`` of the validation rows after each epoch: minus their loss, or the
    scorer's value, larger being better. None without validation rows.
best_validation_score_ : float or None
    The largest of them, whose epoch's weights are kept.
t_ : int
    Training rows seen so far.
coefs_, intercepts_ : list of ndarray
    Weights (in, out) and biases of each layer.
n_iter_ : int
    Epochs (lbfgs: iterations) run.
n_layers_ : int
    Layers, input and output included.
n_outputs_ : int
    Output units, as scikit-learn counts them.
out_activation_ : str
    Name of the output activation.
n_features_in_ : int
    Columns seen in fit.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Their names, when all are strings.
history_ : DataFrame
    One row a member and epoch: train_loss, train_metric (with ``track_metric``),
    validation_score, learning_rate.
"""


def document(cls: T) -> T:
    """Fill ``{parameters}`` and ``{attributes}`` into a class's docstring."""
    return fill(cls, _PARAMETERS, _ATTRIBUTES)


def fill(cls: T, parameters: str, attributes: str) -> T:
    """Fill in these texts, one line after the other."""
    doc = cls.__doc__ or ""

    def indented(text: str) -> str:
        return textwrap.indent(text.strip(), "    ").lstrip()

    cls.__doc__ = doc.format(parameters=indented(parameters), attributes=indented(attributes))
    return cls
