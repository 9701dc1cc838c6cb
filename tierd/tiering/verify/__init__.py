"""Looks whether the bucket still has what it should have: reads only, writes nothing, needs no claim and no daemon."""
