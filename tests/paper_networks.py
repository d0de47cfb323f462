"""What the CombU paper's network was when it was the default: all parameters, as literals."""

UNSHAPELY = {"random_state", "verbose", "warm_start", "device", "track_metric", "callbacks"}
UNSHAPELY |= {"max_time"}
_BOTH = {
    "hidden_layer_sizes": "paper",
    "activation": "combu",
    "solver": "adam",
    "alpha": 0.0001,
    "batch_size": "paper",
    "learning_rate": "constant",
    "learning_rate_init": 0.0005,
    "power_t": 0.5,
    "max_iter": 200,
    "shuffle": True,
    "tol": 0.0001,
    "momentum": 0.9,
    "nesterovs_momentum": True,
    "early_stopping": False,
    "validation_fraction": 0.1,
    "validation_split": None,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-8,
    "n_iter_no_change": 10,
    "max_fun": 15000,
    "early_stopping_scoring": None,
    "dropout": 0.1,
    "weight_decay": 0.01,
    "max_grad_norm": None,
    "normalization": "none",
    "proxy_norm": False,
    "init": "torch",
    "n_members": 1,
    "bagging": None,
    "categorical_features": "from_dtype",
    "numeric_encoding": "standard",
    "max_onehot": 32,
    "min_frequency": 5,
    "embedding_dim": 8,
    "numeric_embedding": "none",
    "numeric_embedding_dim": 4,
    "n_frequencies": 16,
    "n_bins": 48,
    "date_features": ("number",),
    "text_features": "ignore",
    "frequency_scale": 0.1,
    "scale_inputs": False,
    "learning_rate_factors": None,
    "regularization_schedule": "constant",
    "precision": "float32",
}
PAPER = {
    "classification": {**_BOTH, "class_weight": None, "label_smoothing": 0.0, "calibration": None},
    "regression": {
        **_BOTH,
        "loss": "squared_error",
        "quantiles": (0.05, 0.5, 0.95),
        "scale_target": True,
        "clip_predictions": False,
    },
}


def shape_of(estimator):
    """The parameters that an estimator's network depends on."""
    return {n: v for n, v in estimator.get_params(deep=False).items() if n not in UNSHAPELY}
