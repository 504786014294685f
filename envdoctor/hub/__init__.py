"""Snapshots of model repositories: on the Hub, in the local cache, or in a folder; and how to read them cheaply."""
