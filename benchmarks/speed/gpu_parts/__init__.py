"""The parts of speed.gpu."""
