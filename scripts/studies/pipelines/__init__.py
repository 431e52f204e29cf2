"""Pipe-Search and Shisha reproduced on simulated execution places."""
