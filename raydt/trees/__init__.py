"""Trees under updates: counted trees, their records, canonical arrays, digests, predictions and Shapley values."""
