"""Interop tests: real clients against real servers, random kills, bad input; run by `make test-interop`."""
