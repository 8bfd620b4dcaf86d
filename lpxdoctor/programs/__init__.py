"""Small programs that collect runs in a child process and that answer with JSON on stdout."""
