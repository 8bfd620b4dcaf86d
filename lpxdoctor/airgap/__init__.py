"""Carry what hosts without a network need: packages, wheels, collections and images in, one verified archive out."""
