"""Interop tests: real clients against real servers, random kills, bad input. `make test-interop` runs them."""
