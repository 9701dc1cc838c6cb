"""Makes partition directories again out of a bucket that is only read; needs no daemon and no claim. Blocking."""
