"""A way to start an engine in, the arguments with which it decodes fastest without answering worse out."""
