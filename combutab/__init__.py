"""CombuTab: neural networks for tables with a scikit-learn face."""
