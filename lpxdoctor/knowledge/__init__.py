"""Compatibility tables with source and date per row, and their typed reader."""
