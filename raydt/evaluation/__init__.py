"""Prequential metrics of classification and regression."""
