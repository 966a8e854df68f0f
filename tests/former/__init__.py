"""Runs and receipts that earlier versions wrote."""
