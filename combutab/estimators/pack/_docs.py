"""The parameter and attribute descriptions that both packs share."""

PARAMETERS = """
n_members : int, default=16
    Networks that are trained.
activations : sequence of str or callable
    What the members have, in turns: names of ``combutab.activations.ACTIVATIONS`` or callables
    ``width -> nn.Module``.
max_time : float, str or None, default=None
    Seconds, or text such as ``"90s"``, ``"2min"`` or ``"1h"``, after which training ends with the
    epoch: the pack is made of what is found by then, and members that have not begun are left
    out; other machines go by their own clocks. Which these are depends on the machine, so that
    such a fit cannot be repeated exactly.
cv : int, splitter, iterable of (train, test) or None, default=None
    None sets ``validation_fraction`` of the rows aside, by which snapshots are chosen (of fewer
    than 50 rows none: all members count alike). A number splits the rows into so many folds;
    each member trains without one of them, in turns, and those of one fold are chosen by its
    loss, so that all rows train. The encoding is then learned on all rows. Other folds are
    given as in scikit-learn.
validation_fraction : float, default=0.2
    Share of rows set aside, stratified for classes.
max_ensemble_size : int, default=32
    Snapshots in the ensemble at most, counted as often as they are chosen.
max_iter : int, default=80
    Epochs at most.
n_iter_no_change : int or inf, default=16
    Epochs without a smaller validation loss after which a member stops.
member_params : dict or None, default=None
    Parameters of every member, which then do not vary: any of {member}'s that a pack does not set
    itself, such as ``{{"dropout": 0.1, "numeric_encoding": "quantile"}}``.
categorical_features : as in {member}, default="from_dtype"
    Which columns are categorical.
random_state : int, RandomState, Generator or None, default=None
    Fixes what the members are made with, their training, and which rows are set aside.
device : str or torch.device, default="auto"
    ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
verbose : bool or int, default=False
    Print a line whenever members have been trained.
n_jobs : int or None, default=None
    Stacks of members that train at the same time: in threads, or in the processes that joblib's
    context names ("loky", "dask", "ray"), to the same pack. None is as many as torch has threads,
    or all workers of a cluster. Within a task of a cluster they stay in its process.
"""

ATTRIBUTES = """
members_ : DataFrame
    One row a member: its number, ``activation``, ``depth`` (hidden layers), what else it was made
    with, ``fold`` (the one that it did not train on), ``n_iter`` (epochs), ``validation_loss``
    (its smallest), ``n_snapshots`` (that were chosen) and ``weight`` in the ensemble; weights add
    up to 1.
n_iter_ : int
    Epochs that the member trained that did so longest.
activation_weights_ : Series
    Weight of each activation's members, the largest first.
validation_loss_ : float or None
    Loss of the ensemble on the rows by which it was chosen (the folds' mean), and so better than
    what to expect of new rows. None if none were set aside.
best_member_validation_loss_ : float or None
    The smallest loss of one snapshot alone on these rows (the folds' mean).
history_ : DataFrame
    One row a member and epoch: train_loss, validation_loss, learning_rate.
encoder_ : TableEncoder
    The fitted encoding of the table's columns.
n_outputs_ : int
    Output units, as scikit-learn counts them.
n_features_in_ : int
    Columns seen in fit.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Their names, when all are strings.
"""
