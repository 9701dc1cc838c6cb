"""The transaction coordinator: which transactional id writes where, and how each transaction ends."""
