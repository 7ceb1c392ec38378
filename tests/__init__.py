"""Tests, a package for each part of Tensight, with what helps them."""
