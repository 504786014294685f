"""Scripts for bounded children. They are started by the floors above and never imported by them."""
