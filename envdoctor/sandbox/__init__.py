"""Bounded children: work on hostile input happens in a process that may die."""
